/* Names for versions, such as "stable": requests may use them in the place of a number.
 *
 * A label is put on a version that is ready, and moves by one store of the set that requests read
 * (table.c), so that no request sees it on two versions or on none. It keeps its version: as long
 * as a label is on it, the version policy does not take it away. Labels come from clients in mode
 * `explicit` (mr_models_label) and, in every mode, from the model's configuration
 * (parameter millrace.version_labels); those of the configuration are put on once, when they are
 * first seen, so that a reload does not undo what was moved since. A label that leaves the
 * configuration comes off. */
#include "version_labels.h"

#include "base/log.h"
#include "job.h"
#include "records.h"
#include "table.h"

#define LABELS_MAX    64
#define LABEL_LEN_MAX 64

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool mr_label_is_name(mr_str s)
{
    if (s.len == 0 || s.len > LABEL_LEN_MAX || !is_letter(s.ptr[0])) {
        return false;
    }
    for (size_t i = 1; i < s.len; i++) {
        char c = s.ptr[i];
        if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '-' && c != '.') {
            return false;
        }
    }
    return true;
}

static int name_check(mr_str label, struct mr_err *err)
{
    return mr_label_is_name(label)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "'%.*s' is no label: it must begin with a letter or '_' and have at most "
                         "%d letters, digits, '_', '-' and '.'",
                         MR_STR_ARG(mr_str_sub(label, 0, 100)), LABEL_LEN_MAX);
}

/* ---- lists ---- */

void mr_label_list_fini(struct mr_label_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        mr_free(list->at[i].name);
    }
    MR_VEC_FINI(list);
}

static struct mr_version_label *list_find(const struct mr_label_list *list, mr_str name)
{
    for (size_t i = 0; i < list->len; i++) {
        if (mr_str_eq_c(name, list->at[i].name)) {
            return &list->at[i];
        }
    }
    return NULL;
}

static int list_put(struct mr_label_list *list, mr_str name, int64_t number, struct mr_err *err)
{
    struct mr_version_label *l = list_find(list, name);

    if (l) {
        l->number = number;
        return MR_OK;
    }
    if (list->len >= LABELS_MAX) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "a model has at most %d labels", LABELS_MAX);
    }
    MR_VEC_PUSH(list, ((struct mr_version_label){mr_strndup(name.ptr, name.len), number}));
    return MR_OK;
}

static void list_drop(struct mr_label_list *list, size_t index)
{
    mr_free(list->at[index].name);
    list->at[index] = list->at[--list->len];
}

/* "stable=3" */
static int one_parse(mr_str text, struct mr_label_list *out, struct mr_err *err)
{
    ptrdiff_t at = mr_str_find(text, '=');
    int64_t number;

    if (at < 0) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s': expected LABEL=VERSION",
                       MR_STR_ARG(mr_str_sub(text, 0, 100)));
    }
    mr_str name = mr_str_trim(mr_str_sub(text, 0, (size_t)at));
    mr_str value = mr_str_trim(mr_str_sub(text, (size_t)at + 1, text.len));
    int rc = name_check(name, err);
    if (rc < 0) {
        return rc;
    }
    if (!mr_version_number(value, &number)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no version number",
                       MR_STR_ARG(mr_str_sub(value, 0, 100)));
    }
    if (list_find(out, name)) {
        return MR_FAIL(err, MR_E_INVALID, "label '%.*s' is there twice", MR_STR_ARG(name));
    }
    return list_put(out, name, number, err);
}

int mr_label_list_parse(mr_str text, struct mr_label_list *out, struct mr_err *err)
{
    mr_str one;
    int rc = MR_OK;

    while (rc == MR_OK && mr_str_split(&text, ',', &one)) {
        rc = one_parse(mr_str_trim(one), out, err);
    }
    return rc;
}

/* ---- of a model (lock held) ---- */

/* Was the label put on by a configuration whose text is `given`, NULL: none? */
static bool text_names(const char *given, const char *name)
{
    mr_str text = mr_str_c(given ? given : "");
    mr_str one;

    while (mr_str_split(&text, ',', &one)) {
        const ptrdiff_t at = mr_str_find(one, '=');
        if (at > 0 && mr_str_eq_c(mr_str_trim(mr_str_sub(one, 0, (size_t)at)), name)) {
            return true;
        }
    }
    return false;
}

/* Does the label come off when `next` is what the configuration names? */
static bool leaves(const struct mr_model *model, const struct mr_version_label *l,
                   const struct mr_label_list *next)
{
    return next && !list_find(next, mr_str_c(l->name)) && text_names(model->labels_given, l->name);
}

bool mr_labels_keep(const struct mr_model *model, const struct mr_label_list *next, int64_t number)
{
    for (size_t i = 0; i < model->labels.len; i++) {
        const struct mr_version_label *l = &model->labels.at[i];
        if (l->number == number && !leaves(model, l, next)) {
            return true;
        }
    }
    return false;
}

void mr_labels_clear(struct mr_model *model)
{
    mr_label_list_fini(&model->labels);
    mr_freep(&model->labels_given);
}

void mr_labels_drop(struct mr_model *model, int64_t number)
{
    for (size_t i = model->labels.len; i-- > 0;) {
        if (model->labels.at[i].number == number) {
            list_drop(&model->labels, i);
        }
    }
}

bool mr_labels_are_new(const struct mr_model *model, const char *given)
{
    const char *taken = model->labels_given ? model->labels_given : "";

    return strcmp(given ? given : "", taken) != 0;
}

void mr_labels_take(struct mr_model *model, const struct mr_label_list *list, const char *given)
{
    for (size_t i = 0; i < list->len; i++) {
        const struct mr_version_record *r = mr_record_find(model, list->at[i].number);
        if (!r || r->state != MR_VERSION_READY) {
            return; /* it is still being copied: with the load that brings it */
        }
    }
    for (size_t i = model->labels.len; i-- > 0;) {
        if (leaves(model, &model->labels.at[i], list)) {
            list_drop(&model->labels, i);
        }
    }
    for (size_t i = 0; i < list->len; i++) {
        struct mr_err err = {0};
        if (list_put(&model->labels, mr_str_c(list->at[i].name), list->at[i].number, &err) < 0) {
            mr_log(MR_LOG_WARN, "model.label", "model=%s label=%s not put: %s",
                   MR_LOG_STR(model->name), list->at[i].name, err.msg);
        }
    }
    mr_free(model->labels_given);
    model->labels_given = given ? mr_strndup(given, strlen(given)) : NULL;
}

/* ---- the call ---- */

static int target_check(struct mr_model *model, mr_str version, int64_t *out, struct mr_err *err)
{
    if (!mr_version_number(version, out)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no version number",
                       MR_STR_ARG(mr_str_sub(version, 0, 100)));
    }
    const struct mr_version_record *r = mr_record_find(model, *out);
    if (!r) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.128s' has no version %lld", model->name.ptr,
                       (long long)*out);
    }
    if (r->state != MR_VERSION_READY) {
        return MR_FAIL(err, MR_E_UNAVAILABLE,
                       "a label can be put on a version that is ready only; version %lld of "
                       "'%.128s' is %s",
                       (long long)*out, model->name.ptr, mr_version_state_name(r->state));
    }
    return MR_OK;
}

static int label_move(struct mr_model *model, mr_str label, mr_str version, struct mr_err *err)
{
    int64_t number;

    if (version.len > 0) {
        int rc = target_check(model, version, &number, err);
        return rc < 0 ? rc : list_put(&model->labels, label, number, err);
    }
    struct mr_version_label *l = list_find(&model->labels, label);
    if (!l) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.128s' has no label '%.*s'", model->name.ptr,
                       MR_STR_ARG(label));
    }
    list_drop(&model->labels, (size_t)(l - model->labels.at));
    return MR_OK;
}

int mr_models_label(struct mr_models *m, mr_str name, mr_str label, mr_str version,
                    struct mr_err *err)
{
    int rc;

    MR_TRY(mr_control_check(m, "no labels by request",
                            "parameter millrace.version_labels in config.pbtxt", err));
    MR_TRY(name_check(label, err));
    pthread_mutex_lock(&m->lock);
    struct mr_model *model = mr_map_find(&m->models, name);
    rc = model ? label_move(model, label, version, err)
               : MR_FAIL(err, MR_E_NOT_FOUND, "Request for unknown model: '%.*s' is not found",
                         MR_STR_ARG(mr_str_sub(name, 0, 200)));
    if (rc == MR_OK) {
        mr_table_publish(m, model);
    }
    pthread_mutex_unlock(&m->lock);
out:
    return rc;
}
