/* Which line of a graph's configuration a refusal is about. Thread: any. */
#include "flow/where.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>

#include "base/file.h"
#include "model/config.h"

/* What the message calls 'X' after `word`, "" if nothing. */
static mr_str named(mr_str message, const char *word)
{
    const ptrdiff_t at = mr_str_find_str(message, mr_str_c(word));

    if (at < 0) {
        return MR_STR("");
    }
    const mr_str rest = mr_str_sub(message, (size_t)at + strlen(word), message.len);
    const ptrdiff_t end = mr_str_find(rest, '\'');
    return end < 0 ? MR_STR("") : mr_str_sub(rest, 0, (size_t)end);
}

/* The number that follows `word`; SIZE_MAX: none does. */
static size_t number_after(mr_str message, const char *word)
{
    const size_t len = strlen(word);
    size_t n = SIZE_MAX;

    for (ptrdiff_t at; n == SIZE_MAX && (at = mr_str_find_str(message, mr_str_c(word))) >= 0;) {
        message = mr_str_sub(message, (size_t)at + len, message.len);
        for (size_t i = 0; i < message.len && i < 9 && isdigit((unsigned char)message.ptr[i]);
             i++) {
            n = (i ? n * 10 : 0) + (size_t)(message.ptr[i] - '0');
        }
    }
    return n;
}

/* ---- workflows ---- */

/* The last one of that name: of two it is the second one that is wrong. */
static const void *node_named(const Millrace__WorkflowScheduling *w, mr_str name)
{
    const void *at = NULL;

    for (size_t i = 0; name.len > 0 && i < w->n_node; i++) {
        at = mr_str_eq_c(name, w->node[i]->name) ? w->node[i]->name : at;
    }
    for (size_t i = 0; name.len > 0 && i < w->n_switch_; i++) {
        at = mr_str_eq_c(name, w->switch_[i]->name) ? w->switch_[i]->name : at;
    }
    for (size_t i = 0; name.len > 0 && i < w->n_gather; i++) {
        const Millrace__WorkflowScheduling__Gather *g = w->gather[i];
        const char *own = g->name[0] ? g->name : g->into;
        at = mr_str_eq_c(name, own) ? own : at;
    }
    return at;
}

static const void *default_named(const Millrace__WorkflowScheduling *w, mr_str message)
{
    const mr_str names = named(message, "default of the workflow names '");
    const mr_str tensor =
        names.len > 0 ? names : named(message, "default of the workflow for tensor '");
    const void *at = NULL;

    for (size_t i = 0; tensor.len > 0 && i < w->n_default_; i++) {
        at = mr_str_eq_c(tensor, w->default_[i]->tensor) ? w->default_[i]->tensor : at;
    }
    return at;
}

static const void *in_workflow(const Millrace__WorkflowScheduling *w, mr_str message)
{
    static const char *const words[] = {"node '", "nodes are named '", "switch '", "gather '"};
    const size_t number = number_after(message, "node ");
    const void *at = NULL;

    for (size_t i = 0; i < sizeof words / sizeof *words && !at; i++) {
        at = node_named(w, named(message, words[i]));
    }
    if (!at && number < w->n_node) {
        return w->node[number];
    }
    if (!at && w->admission && mr_str_find_str(message, MR_STR("admission ")) >= 0) {
        return w->admission;
    }
    return at ? at : default_named(w, message);
}

/* ---- ensembles ---- */

/* Where the message has the model's name for the last time, in one of the forms of Triton's texts; -1: nowhere. */
static ptrdiff_t model_at(mr_str message, mr_str name)
{
    static const char *const before[] = {"model ", "model '", "ambiguous: ", "depends on '"};
    ptrdiff_t last = -1;

    for (size_t from = 0; name.len > 0 && from < message.len;) {
        const mr_str rest = mr_str_sub(message, from, message.len);
        const ptrdiff_t at = mr_str_find_str(rest, name);
        if (at < 0) {
            break;
        }
        const mr_str head = mr_str_sub(message, 0, from + (size_t)at);
        const size_t end = head.len + name.len;
        const bool ends = end == message.len || strchr(" ',", message.ptr[end]);
        for (size_t i = 0; ends && i < sizeof before / sizeof *before; i++) {
            last = mr_str_ends(head, mr_str_c(before[i])) ? (ptrdiff_t)head.len : last;
        }
        from = head.len + 1;
    }
    return last;
}

static const void *in_ensemble(const Inference__ModelEnsembling *e, mr_str message)
{
    const size_t number = number_after(message, "step ");
    const void *at = NULL;
    ptrdiff_t last = -1;

    if (number < e->n_step) {
        return e->step[number];
    }
    for (size_t i = 0; i < e->n_step; i++) {
        const ptrdiff_t here = model_at(message, mr_str_c(e->step[i]->model_name));
        at = here > last ? e->step[i] : at;
        last = here > last ? here : last;
    }
    return at;
}

/* ---- tensors ---- */

static const void *tensor_named(const Inference__ModelConfig *c, mr_str name)
{
    const void *at = NULL;

    for (size_t i = 0; name.len > 0 && i < c->n_input; i++) {
        at = mr_str_eq_c(name, c->input[i]->name) ? c->input[i]->name : at;
    }
    for (size_t i = 0; name.len > 0 && i < c->n_output; i++) {
        at = mr_str_eq_c(name, c->output[i]->name) ? c->output[i]->name : at;
    }
    return at;
}

uint32_t mr_flow_where(const Inference__ModelConfig *c, struct mr_pbtext_lines *lines,
                       mr_str message)
{
    static const char *const words[] = {"tensor '", "output '", "input '"};
    const void *at = NULL;

    if (c->scheduling_choice_case ==
        INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_WORKFLOW_SCHEDULING) {
        at = in_workflow(c->workflow_scheduling, message);
    } else if (c->scheduling_choice_case ==
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING) {
        at = in_ensemble(c->ensemble_scheduling, message);
    }
    for (size_t i = 0; i < sizeof words / sizeof *words && !at; i++) {
        at = tensor_named(c, named(message, words[i]));
    }
    return at ? mr_pbtext_line_of(lines, at) : 1;
}

/* ---- the refusals of servers ---- */

#define FILE_MAX ((size_t)16 << 20)

static bool is_same(const Inference__ModelConfig *a, const Inference__ModelConfig *b)
{
    const ProtobufCMessage *x = a->workflow_scheduling ? &a->workflow_scheduling->base : NULL;
    const ProtobufCMessage *y = b->workflow_scheduling ? &b->workflow_scheduling->base : NULL;

    if (!mr_config_is_workflow(a) || !mr_config_is_workflow(b) || !x || !y) {
        return false;
    }
    const size_t size = protobuf_c_message_get_packed_size(x);
    bool is = size == protobuf_c_message_get_packed_size(y);
    if (is) {
        uint8_t *bytes = MR_NEW_ARRAY(uint8_t, 2 * size + 1);
        protobuf_c_message_pack(x, bytes);
        protobuf_c_message_pack(y, bytes + size);
        is = memcmp(bytes, bytes + size, size) == 0;
        mr_free(bytes);
    }
    return is;
}

void mr_flow_where_add(const char *model_dir, const Inference__ModelConfig *c, struct mr_err *err)
{
    struct mr_pbtext_lines lines = {0};
    ProtobufCMessage *message = NULL;
    struct mr_err ignored;
    char path[PATH_MAX];
    char *text = NULL;
    size_t len = 0;

    if ((size_t)snprintf(path, sizeof path, "%s/config.pbtxt", model_dir) < sizeof path &&
        mr_file_read(path, FILE_MAX, &text, &len, NULL) == MR_OK &&
        mr_pbtext_parse_lines(&inference__model_config__descriptor, mr_str_n(text, len), &lines,
                              &message, &ignored) == MR_OK) {
        const Inference__ModelConfig *file = (const void *)message;
        if (is_same(file, c)) {
            const uint32_t line = mr_flow_where(file, &lines, mr_str_c(err->msg));
            MR_WRAP(err, err->status, "%.300s:%u", path, line);
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
    mr_pbtext_lines_fini(&lines);
    mr_free(text);
}
