/* The table that requests look up: name -> model -> versions that are ready.
 *
 * Readers take no lock and write nothing. They follow three pointers, each stored with release
 * after what it points to was complete, and loaded with acquire:
 *   the table      an open hash of model pointers, at most half full
 *   a slot of it   a model, which keeps its name and hash for life
 *   model->set     the versions, newest last, immutable
 * Writers hold the manager's lock. A version appears or goes by storing a new set; a model appears
 * by one store into a free slot, so that the n-th model costs no copy of the n-1 others (a table
 * twice as large takes over when it is half full). A slot whose model goes is marked, never
 * emptied, because an empty slot ends a reader's search. What was replaced goes to the reaper,
 * which frees it after every reader has quiesced (base/thread.h).
 *
 * This file does not decide what is ready: records.c and load.c do. */
#include "table.h"

#include <stdio.h>

#include "version_labels.h"

#define FIRST_SLOTS 64
/* Starts every answer about a model that cannot be had; clients look for it. */
#define UNKNOWN_MODEL "Request for unknown model: "

struct mr_model_table {
    size_t mask;
    _Atomic(struct mr_model *) slots[];
};

/* Stands where a model was. */
static struct mr_model gone;

static struct mr_model_table *table_new(size_t slots)
{
    struct mr_model_table *t = mr_alloc(sizeof *t + slots * sizeof t->slots[0]);

    t->mask = slots - 1;
    return t;
}

void mr_table_init(struct mr_models *m)
{
    atomic_init(&m->table, table_new(FIRST_SLOTS));
}

void mr_table_fini(struct mr_models *m)
{
    mr_free(atomic_load_explicit(&m->table, memory_order_relaxed));
    atomic_store_explicit(&m->table, NULL, memory_order_relaxed);
}

struct mr_model *mr_table_find(const struct mr_models *m, mr_str name)
{
    /* Acquire: pairs with the release in table_grow; the slots are those that were copied. */
    const struct mr_model_table *t = atomic_load_explicit(&m->table, memory_order_acquire);
    uint64_t hash = mr_hash(name);

    for (size_t i = (size_t)hash & t->mask;; i = (i + 1) & t->mask) {
        /* Acquire: pairs with the release in slot_put; the model's name and hash are there. */
        struct mr_model *model = atomic_load_explicit(&t->slots[i], memory_order_acquire);
        if (!model) {
            return NULL;
        }
        if (model != &gone && model->hash == hash && mr_str_eq(model->name, name)) {
            return model;
        }
    }
}

static void slot_put(struct mr_model_table *t, struct mr_model *model)
{
    size_t i = (size_t)model->hash & t->mask;

    /* Relaxed: only writers store, and they hold the lock. */
    while (atomic_load_explicit(&t->slots[i], memory_order_relaxed)) {
        i = (i + 1) & t->mask;
    }
    /* Release: pairs with the acquire in mr_table_find. */
    atomic_store_explicit(&t->slots[i], model, memory_order_release);
}

/* A fresh table with room for twice the models that are left. */
static void table_grow(struct mr_models *m)
{
    struct mr_model_table *old = atomic_load_explicit(&m->table, memory_order_relaxed);
    size_t slots = FIRST_SLOTS;

    while (slots < (m->table_live + 1) * 4) {
        slots *= 2;
    }
    struct mr_model_table *t = table_new(slots);
    for (size_t i = 0; i <= old->mask; i++) {
        struct mr_model *model = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (model && model != &gone) {
            slot_put(t, model);
        }
    }
    m->table_used = m->table_live;
    /* Release: pairs with the acquire in mr_table_find. */
    atomic_store_explicit(&m->table, t, memory_order_release);
    mr_retire_memory(m, old, mr_free);
}

void mr_table_add(struct mr_models *m, struct mr_model *model)
{
    if (model->is_in_table) {
        return;
    }
    struct mr_model_table *t = atomic_load_explicit(&m->table, memory_order_relaxed);
    if ((m->table_used + 1) * 2 > t->mask + 1) {
        table_grow(m);
        t = atomic_load_explicit(&m->table, memory_order_relaxed);
    }
    slot_put(t, model);
    m->table_live++;
    m->table_used++;
    model->is_in_table = true;
}

void mr_table_remove(struct mr_models *m, struct mr_model *model)
{
    if (!model->is_in_table) {
        return;
    }
    struct mr_model_table *t = atomic_load_explicit(&m->table, memory_order_relaxed);
    size_t i = (size_t)model->hash & t->mask;
    while (atomic_load_explicit(&t->slots[i], memory_order_relaxed) != model) {
        i = (i + 1) & t->mask;
    }
    /* Relaxed: what the mark points to is static and never read. */
    atomic_store_explicit(&t->slots[i], &gone, memory_order_relaxed);
    m->table_live--;
    model->is_in_table = false;
}

static bool record_is_ready(const struct mr_version_record *r)
{
    return r->state == MR_VERSION_READY && r->v;
}

/* True if MLServer's file names the version with a text that cannot be a label, such as "1.0.0". */
static bool has_given_name(const struct mr_version_record *r)
{
    return r->given && r->given[0] && !mr_label_is_name(mr_str_c(r->given));
}

static size_t labels_size(const struct mr_model *model)
{
    const struct mr_label_list *list = &model->labels;
    size_t n = list->len * sizeof(struct mr_set_label);

    for (size_t i = 0; i < list->len; i++) {
        n += strlen(list->at[i].name);
    }
    for (size_t i = 0; i < model->records.len; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        n += has_given_name(r) ? sizeof(struct mr_set_label) + strlen(r->given) : 0;
    }
    return n;
}

static void label_add(struct mr_version_set *set, struct mr_set_label *to, const char *name,
                      int64_t number, char **io_text)
{
    const size_t n = strlen(name);

    memcpy(*io_text, name, n);
    to[set->label_count++] = (struct mr_set_label){mr_str_n(*io_text, n), number};
    *io_text += n;
}

/* Labels first, then given names; of two equal ones that of a ready version comes first. */
static void labels_copy(struct mr_version_set *set, struct mr_set_label *to,
                        const struct mr_model *model)
{
    const struct mr_label_list *list = &model->labels;
    const size_t count = model->records.len;
    size_t given_names = 0;

    for (size_t i = 0; i < count; i++) {
        given_names += has_given_name(&model->records.at[i]);
    }
    char *text = (char *)(to + list->len + given_names);
    set->labels = to;
    set->label_count = 0;
    for (size_t i = 0; i < list->len; i++) {
        label_add(set, to, list->at[i].name, list->at[i].number, &text);
    }
    for (size_t i = 0; given_names > 0 && i < 2 * count; i++) {
        const struct mr_version_record *r = &model->records.at[i % count];
        if (has_given_name(r) && record_is_ready(r) == (i < count)) {
            label_add(set, to, r->given, r->number, &text);
        }
    }
}

void mr_table_publish(struct mr_models *m, struct mr_model *model)
{
    size_t ready = 0;
    size_t count = model->records.len;

    for (size_t i = 0; i < count; i++) {
        ready += record_is_ready(&model->records.at[i]);
    }
    struct mr_version_set *set = mr_alloc(sizeof *set + ready * sizeof set->ready[0] +
                                          (count - ready) * sizeof(int64_t) + labels_size(model));
    int64_t *known = (int64_t *)(set->ready + ready);
    for (size_t i = 0; i < count; i++) {
        const struct mr_version_record *r = &model->records.at[i];
        if (!record_is_ready(r)) {
            known[set->known_count++] = r->number;
            continue;
        }
        set->ready[set->ready_count++] = r->v;
        if (!set->default_version || set->default_version->number != model->pinned) {
            set->default_version = r->v;
        }
    }
    set->known = known;
    labels_copy(set, (struct mr_set_label *)(known + set->known_count), model);
    /* Relaxed: the store below releases it. */
    atomic_store_explicit(&model->ready_count, set->ready_count, memory_order_relaxed);
    const struct mr_version_set *old = atomic_load_explicit(&model->set, memory_order_relaxed);
    /* Release: pairs with the acquire in set_of; the versions in it are complete. */
    atomic_store_explicit(&model->set, set, memory_order_release);
    if (old) {
        mr_retire_memory(m, (void *)(uintptr_t)old, mr_free);
    }
    if (count > 0) {
        mr_table_add(m, model);
    }
}

void mr_retire_memory(struct mr_models *m, void *ptr, void (*release)(void *ptr))
{
    struct mr_model_retired *r = MR_NEW(struct mr_model_retired);

    r->ptr = ptr;
    r->release = release;
    r->next = m->retired;
    m->retired = r;
    pthread_cond_signal(&m->reap);
}

/* ---- requests ---- */

/* NULL: it failed before it came to versions. */
static const struct mr_version_set *set_of(const struct mr_model *model)
{
    /* Acquire: pairs with the release in mr_table_publish. */
    return atomic_load_explicit(&model->set, memory_order_acquire);
}

#define NO_VERSION   "failed to get model version from specified version string '%.*s' (details: "
#define VERSION_RULE "), version should be an integral value > 0"

static int version_parse(mr_str text, int64_t *out, struct mr_err *err)
{
    mr_str shown = mr_str_sub(text, 0, 64);

    if (!mr_str_to_i64(text, out)) {
        return MR_FAIL(err, MR_E_INVALID, NO_VERSION "not a number of 64 bits" VERSION_RULE,
                       MR_STR_ARG(shown));
    }
    if (*out < 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid model version specified '%.*s' , version should be an integral "
                       "value > 0",
                       MR_STR_ARG(shown));
    }
    return MR_OK;
}

/* With MLServer's text, where it is asked for, in place of the one that stands in *err. */
static int unknown(const struct mr_models *m, mr_str name, mr_str version, int rc,
                   struct mr_err *err)
{
    if (!m->o.mlserver_errors || rc == MR_OK || rc == MR_E_UNAVAILABLE) {
        return rc;
    }
    return version.len > 0 ? MR_FAIL(err, MR_E_NOT_FOUND, "Model %.*s with version %.*s not found",
                                     MR_STR_ARG(mr_str_sub(name, 0, 200)),
                                     MR_STR_ARG(mr_str_sub(version, 0, 100)))
                           : MR_FAIL(err, MR_E_NOT_FOUND, "Model %.*s not found",
                                     MR_STR_ARG(mr_str_sub(name, 0, 200)));
}

static int set_find(const struct mr_version_set *set, mr_str name, int64_t number,
                    struct mr_version **out, struct mr_err *err)
{
    size_t low = 0;
    size_t high = set->ready_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (set->ready[middle]->number < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < set->ready_count && set->ready[low]->number == number) {
        *out = set->ready[low];
        return MR_OK;
    }
    for (size_t i = 0; i < set->known_count; i++) {
        if (set->known[i] == number) {
            return MR_FAIL(err, MR_E_UNAVAILABLE,
                           UNKNOWN_MODEL "'%.*s' version %lld is not at ready state",
                           MR_STR_ARG(name), (long long)number);
        }
    }
    return MR_FAIL(err, MR_E_NOT_FOUND, UNKNOWN_MODEL "'%.*s' version %lld is not found",
                   MR_STR_ARG(name), (long long)number);
}

static bool label_is_there(const struct mr_version_set *set, mr_str label, int64_t *out)
{
    for (uint32_t i = 0; set && i < set->label_count; i++) {
        if (mr_str_eq(set->labels[i].name, label)) {
            *out = set->labels[i].number;
            return true;
        }
    }
    return false;
}

/* The number of a version by its label, MLServer's name or digits. */
static int number_find(const struct mr_version_set *set, mr_str name, mr_str version, int64_t *out,
                       struct mr_err *err)
{
    if (version.len == 0 || label_is_there(set, version, out)) {
        return MR_OK;
    }
    if (!mr_label_is_name(version)) {
        return version_parse(version, out, err);
    }
    /* Invalid, not unknown: as Triton says of every version text that is no number. */
    return MR_FAIL(err, MR_E_INVALID, NO_VERSION "model '%.*s' has no label '%.*s'" VERSION_RULE,
                   MR_STR_ARG(version), MR_STR_ARG(name), MR_STR_ARG(version));
}

static int find(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                struct mr_err *err)
{
    int64_t number = 0;
    const struct mr_model *model = mr_table_find(m, name);
    const struct mr_version_set *set = model ? set_of(model) : NULL;
    mr_str shown = mr_str_sub(name, 0, 200);
    int rc = number_find(set, shown, version, &number, err);
    if (rc < 0) {
        return rc;
    }
    if (!set) {
        return MR_FAIL(err, MR_E_NOT_FOUND, UNKNOWN_MODEL "'%.*s' is not found", MR_STR_ARG(shown));
    }
    if (version.len > 0) {
        return set_find(set, shown, number, out, err);
    }
    if (!set->default_version) {
        return MR_FAIL(err, MR_E_NOT_FOUND, UNKNOWN_MODEL "'%.*s' has no available versions",
                       MR_STR_ARG(shown));
    }
    *out = set->default_version;
    return MR_OK;
}

int mr_models_find(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                   struct mr_err *err)
{
    return unknown(m, name, version, find(m, name, version, out, err), err);
}

/* NULL: not there, or there has been no version of MLServer's, which costs no look. */
static const struct mr_version *mlserver_find(struct mr_models *m, mr_str name, mr_str version)
{
    struct mr_version *v;

    /* relaxed: a version that is found was published after it was set */
    return atomic_load_explicit(&m->has_mlserver, memory_order_relaxed) &&
                   mr_models_find(m, name, version, &v, NULL) == MR_OK
               ? v
               : NULL;
}

bool mr_models_takes_messages(struct mr_models *m, mr_str name, mr_str version)
{
    const struct mr_version *v = mlserver_find(m, name, version);

    return v && v->has_messages;
}

bool mr_models_reads_matrix(struct mr_models *m, mr_str name, mr_str version)
{
    const struct mr_version *v = mlserver_find(m, name, version);

    return v && v->reads_matrix;
}

/* Pattern "/a/{b}/{c:path}": a part in braces is any segment, one with ":path" the rest, which may be empty. */
static bool path_fits(mr_str pattern, mr_str path)
{
    mr_str want, have;

    while (pattern.len > 0 || path.len > 0) {
        if (pattern.len == 0 || !mr_str_split(&pattern, '/', &want)) {
            return false;
        }
        const bool is_part = want.len > 2 && want.ptr[0] == '{' && want.ptr[want.len - 1] == '}';
        if (is_part && mr_str_ends(want, MR_STR(":path}"))) {
            return true;
        }
        if (!mr_str_split(&path, '/', &have) || !(is_part ? have.len > 0 : mr_str_eq(want, have))) {
            return false;
        }
    }
    return true;
}

/* The inputs of a model of MLServer after the first are "METHOD /pattern". */
static bool has_route(const struct mr_version *v, mr_str method, mr_str path)
{
    for (uint32_t i = 1; v->has_messages && i < v->input_count; i++) {
        mr_str rest = v->inputs[i].name, word;
        if (mr_str_split(&rest, ' ', &word) && mr_str_eq(word, method) && path_fits(rest, path)) {
            return true;
        }
    }
    return false;
}

bool mr_models_find_route(struct mr_models *m, mr_str method, mr_str path, mr_str *out_model)
{
    /* Acquire: as in mr_table_find. */
    const struct mr_model_table *t = atomic_load_explicit(&m->table, memory_order_acquire);
    bool found = false;

    /* relaxed: what is found was published after it was set */
    if (!atomic_load_explicit(&m->has_routes, memory_order_relaxed)) {
        return false;
    }
    for (size_t i = 0; i <= t->mask; i++) {
        const struct mr_model *model = atomic_load_explicit(&t->slots[i], memory_order_acquire);
        const struct mr_version_set *set = model && model != &gone ? set_of(model) : NULL;
        if (set && set->default_version && has_route(set->default_version, method, path) &&
            (!found || mr_str_cmp(model->name, *out_model) < 0)) {
            *out_model = model->name;
            found = true;
        }
    }
    return found;
}

size_t mr_models_ready_versions(struct mr_models *m, mr_str name, const struct mr_version **out,
                                size_t max)
{
    const struct mr_model *model = mr_table_find(m, name);
    const struct mr_version_set *set = model ? set_of(model) : NULL;
    size_t count = set ? set->ready_count : 0;

    for (size_t i = 0; i < count && i < max; i++) {
        out[i] = set->ready[i];
    }
    return count;
}

bool mr_models_is_known(const struct mr_models *m, mr_str name)
{
    return mr_table_find(m, name);
}

void mr_version_pin(struct mr_version *v, unsigned epoch_slot)
{
    if (epoch_slot == MR_EPOCH_SLOT_NONE) {
        /* relaxed: another pin, or the lock, orders it before the reaper's look */
        atomic_fetch_add_explicit(&v->other_pins, 1, memory_order_relaxed);
        return;
    }
    _Atomic int64_t *count = &v->pins[epoch_slot].count;

    /* Relaxed: the reader is online since before it found v, and the reaper looks at pins only
     * after every such reader has quiesced or gone offline, both with release (base/epoch.c). */
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

int mr_models_acquire(struct mr_models *m, mr_str name, mr_str version, struct mr_version **out,
                      struct mr_err *err)
{
    /* The table and the sets change under the lock: what is found is pinned before it retires, and so before the reaper
     * looks at its pins. */
    pthread_mutex_lock(&m->lock);
    int rc = mr_models_find(m, name, version, out, err);
    if (rc == MR_OK) {
        mr_version_pin(*out, MR_EPOCH_SLOT_NONE);
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void mr_version_unpin(struct mr_version *v, unsigned epoch_slot)
{
    if (epoch_slot == MR_EPOCH_SLOT_NONE) {
        /* release: as below */
        atomic_fetch_sub_explicit(&v->other_pins, 1, memory_order_release);
        return;
    }
    _Atomic int64_t *count = &v->pins[epoch_slot].count;

    /* Release: pairs with the acquire in the reaper (is_pinned): all that this reader did with v
     * comes before v is taken apart. This store is the last touch: v may be gone when it
     * returns. */
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) - 1,
                          memory_order_release);
}
