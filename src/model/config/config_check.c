/* The judgement of a config: ranges and contradictions, then features. Once as it was given, before
 * anything else of the model is looked at, and once when the model has completed it.
 *
 * Nothing that a config says is used elsewhere before it passed here, so whatever would be an
 * unchecked size or an endless list must fail in this file. (Enum numbers without a name fail when
 * the text is parsed.) Texts follow Triton's where it has one. Thread: any. */
#include <stdio.h>

#include "base/map.h"
#include "codec/pbtext.h"
#include "config_priv.h"
#include "model/folder/folder.h"
#include "tensor/tensor.h"

/* More threads or batch rows than any machine has use for; guards against slips like 1e9. */
#define INSTANCES_MAX 1024
#define BATCH_MAX     (1 << 20)

struct check {
    const Inference__ModelConfig *c;
    bool is_complete; /* nothing will be filled in any more */
    struct mr_err *err;
};

#define BAD(k, ...) MR_FAIL((k)->err, MR_E_INVALID, __VA_ARGS__)

/* ---- inputs and outputs ---- */

/* Product of the dims between wildcards, -1 when it does not fit. */
static int64_t chunk_product(const int64_t *dims, size_t n)
{
    int64_t product = 1;

    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(product, dims[i], &product)) {
            return -1;
        }
    }
    return product;
}

static size_t wildcard_count(const int64_t *dims, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++) {
        count += dims[i] == -1;
    }
    return count;
}

static size_t chunk_length(const int64_t *dims, size_t n)
{
    size_t len = 0;

    while (len < n && dims[len] != -1) {
        len++;
    }
    return len;
}

/* dims and reshape hold the same number of elements: chunk by chunk between the wildcards. */
static int reshape_check(const struct check *k, const struct mr_config_io *io)
{
    const int64_t *a = *io->dims;
    const int64_t *b = (*io->reshape)->shape;
    size_t a_left = *io->n_dims;
    size_t b_left = (*io->reshape)->n_shape;
    size_t a_free = wildcard_count(a, a_left);
    size_t b_free = wildcard_count(b, b_left);
    bool is_same = (a_free == 0) == (b_free == 0);

    if (is_same && a_free != b_free) {
        return BAD(
            k,
            "model %s '%.128s' has different number of variable-size dimensions for dims and "
            "reshape for %.128s",
            io->kind, io->name, k->c->name);
    }
    for (size_t chunk = 0; is_same && chunk <= a_free; chunk++) {
        size_t a_len = chunk_length(a, a_left);
        size_t b_len = chunk_length(b, b_left);
        int64_t product = chunk_product(a, a_len);
        is_same = product >= 0 && product == chunk_product(b, b_len);
        a += a_len + 1;
        b += b_len + 1;
        a_left -= a_len + 1; /* wraps after the last chunk, when it is not used any more */
        b_left -= b_len + 1;
    }
    return is_same ? MR_OK
                   : BAD(k, "model %s '%.128s' has different size for dims and reshape for %.128s",
                         io->kind, io->name, k->c->name);
}

static int dims_check(const struct check *k, const struct mr_config_io *io, const int64_t *dims,
                      size_t n, const char *list)
{
    const char *what = dims == *io->dims ? "dimension" : "reshape dimensions";

    if (n + (k->c->max_batch_size > 0) > MR_MAX_RANK) {
        return BAD(k, "model %s '%.128s' has %zu dimensions in its %s, allowed are %d, for %.128s",
                   io->kind, io->name, n, list, MR_MAX_RANK - (k->c->max_batch_size > 0),
                   k->c->name);
    }
    for (size_t i = 0; i < n; i++) {
        if (dims[i] < 1 && dims[i] != -1) {
            return BAD(k,
                       "model %s '%.128s' %s must be integer >= 1, or -1 to indicate a "
                       "variable-size dimension for %.128s; it is %lld",
                       io->kind, io->name, what, k->c->name, (long long)dims[i]);
        }
    }
    return MR_OK;
}

static int io_check(const struct check *k, const struct mr_config_io *io, struct mr_map *seen)
{
    int rc;

    if (!io->name[0]) {
        return BAD(k, "model %s must specify 'name' for %.128s", io->kind, k->c->name);
    }
    if (mr_map_put(seen, mr_str_c(io->name), seen)) {
        return BAD(k, "two model %ss are named '%.128s' for %.128s", io->kind, io->name,
                   k->c->name);
    }
    if (*io->data_type == INFERENCE__DATA_TYPE__TYPE_INVALID && k->is_complete) {
        return BAD(k, "model %s '%.128s' must specify 'data_type' for %.128s", io->kind, io->name,
                   k->c->name);
    }
    if (*io->n_dims == 0 && (k->is_complete || *io->reshape)) {
        return BAD(k, "model %s '%.128s' must specify 'dims' for %.128s", io->kind, io->name,
                   k->c->name);
    }
    rc = dims_check(k, io, *io->dims, *io->n_dims, "dims");
    if (rc == MR_OK && *io->reshape) {
        rc = dims_check(k, io, (*io->reshape)->shape, (*io->reshape)->n_shape, "reshape");
    }
    return rc == MR_OK && *io->reshape ? reshape_check(k, io) : rc;
}

static int inputs_check(const struct check *k)
{
    struct mr_map seen = {0};
    int rc = MR_OK;

    for (size_t i = 0; i < k->c->n_input && rc == MR_OK; i++) {
        Inference__ModelInput *in = k->c->input[i];
        struct mr_config_io io = mr_config_input_io(in);
        rc = io_check(k, &io, &seen);
        if (rc == MR_OK && in->format != INFERENCE__MODEL_INPUT__FORMAT__FORMAT_NONE &&
            in->n_dims != 3 && (in->n_dims > 0 || k->is_complete)) {
            rc = BAD(k, "model input NHWC/NCHW require 3 dims for %.128s: input '%.128s' has %zu",
                     k->c->name, in->name, in->n_dims);
        }
    }
    mr_map_fini(&seen);
    return rc;
}

static int outputs_check(const struct check *k)
{
    struct mr_map seen = {0};
    int rc = k->c->n_output > 0 || !k->is_complete
                 ? MR_OK
                 : BAD(k, "model %.128s must specify at least one 'output'", k->c->name);

    for (size_t i = 0; i < k->c->n_output && rc == MR_OK; i++) {
        struct mr_config_io io = mr_config_output_io(k->c->output[i]);
        rc = io_check(k, &io, &seen);
    }
    mr_map_fini(&seen);
    return rc;
}

/* ---- batching and instances ---- */

static bool delays(const Inference__ModelQueuePolicy *p)
{
    return p && p->default_timeout_microseconds != 0 &&
           p->timeout_action == INFERENCE__MODEL_QUEUE_POLICY__TIMEOUT_ACTION__DELAY;
}

static int ordering_check(const struct check *k, const Inference__ModelDynamicBatching *d)
{
    bool any = delays(d->default_queue_policy);

    if (!d->preserve_ordering) {
        return MR_OK;
    }
    if (d->priority_levels > 1) {
        return BAD(k,
                   "Only one priority level is allowed when 'preserve_ordering' is true for %.128s",
                   k->c->name);
    }
    for (size_t i = 0; i < d->n_priority_queue_policy; i++) {
        any |= delays(d->priority_queue_policy[i]->value);
    }
    if (any) {
        return BAD(k,
                   "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is "
                   "true for %.128s",
                   k->c->name);
    }
    return MR_OK;
}

static int priorities_check(const struct check *k, const Inference__ModelDynamicBatching *d)
{
    unsigned long long levels = d->priority_levels;

    if (levels > 1000) {
        return BAD(k, "'priority_levels' must be at most 1000 for %.128s", k->c->name);
    }
    if (levels == 0) {
        return MR_OK;
    }
    if (d->default_priority_level == 0 || d->default_priority_level > levels) {
        return BAD(k, "default priority level must be in range [1, %llu] for %.128s", levels,
                   k->c->name);
    }
    for (size_t i = 0; i < d->n_priority_queue_policy; i++) {
        uint64_t level = d->priority_queue_policy[i]->key;
        if (level == 0 || level > levels) {
            return BAD(k,
                       "priority queue policy must have priority level in range [1, %llu] for "
                       "%.128s",
                       levels, k->c->name);
        }
    }
    return MR_OK;
}

static int batching_check(const struct check *k)
{
    const Inference__ModelDynamicBatching *d = k->c->dynamic_batching;

    bool may_grow = !k->is_complete && k->c->max_batch_size == 0;

    if (k->c->max_batch_size < 0) {
        return BAD(k, "'max_batch_size' must be non-negative value for %.128s; it is %d",
                   k->c->name, k->c->max_batch_size);
    }
    if (k->c->max_batch_size > BATCH_MAX) {
        return BAD(k, "'max_batch_size' must be at most %d for %.128s; it is %d", BATCH_MAX,
                   k->c->name, k->c->max_batch_size);
    }
    if (!mr_config_has_dynamic_batching(k->c)) {
        return MR_OK;
    }
    for (size_t i = 0; i < d->n_preferred_batch_size; i++) {
        int32_t size = d->preferred_batch_size[i];
        if (size <= 0) {
            return BAD(k, "dynamic batching preferred size must be positive for %.128s",
                       k->c->name);
        }
        if (size > k->c->max_batch_size && !may_grow) {
            return BAD(k, "dynamic batching preferred size must be <= max batch size for %.128s",
                       k->c->name);
        }
    }
    int rc = priorities_check(k, d);
    return rc < 0 ? rc : ordering_check(k, d);
}

static int groups_check(const struct check *k)
{
    int64_t sum = 0;

    for (size_t i = 0; i < k->c->n_instance_group; i++) {
        const Inference__ModelInstanceGroup *g = k->c->instance_group[i];
        sum += g->count;
        if (g->count < 1 || sum > INSTANCES_MAX) {
            return BAD(k,
                       "instance group %.128s of model %.128s has count %d, allowed are 1..%d in "
                       "all groups together",
                       g->name, k->c->name, g->count, INSTANCES_MAX);
        }
        if (g->kind == INFERENCE__MODEL_INSTANCE_GROUP__KIND__KIND_GPU) {
            return BAD(k,
                       "instance group %.128s of model %.128s has kind KIND_GPU but server does "
                       "not support GPUs",
                       g->name, k->c->name);
        }
    }
    return MR_OK;
}

static int versions_check(const struct check *k)
{
    const Inference__ModelVersionPolicy *p = k->c->version_policy;

    if (!p || p->policy_choice_case != INFERENCE__MODEL_VERSION_POLICY__POLICY_CHOICE_SPECIFIC) {
        return MR_OK;
    }
    for (size_t i = 0; i < p->specific->n_versions; i++) {
        if (p->specific->versions[i] < 1) {
            return BAD(k, "version policy of model %.128s: %lld is no version, versions are >= 1",
                       k->c->name, (long long)p->specific->versions[i]);
        }
    }
    return MR_OK;
}

/* Tags become labels of metrics, whose names have an alphabet of their own; one that a metric of models has already would
 * make all that the server reports unreadable. */
static int tags_check(const struct check *k)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";
    static const char *const taken[] = {"model", "version", "reason", "stage", "protocol",
                                        "le",    "worker",  "node",   "event"};

    for (size_t i = 0; i < k->c->n_metric_tags; i++) {
        const char *key = k->c->metric_tags[i]->key;
        bool is_taken = strncmp(key, "__", 2) == 0;
        for (size_t t = 0; t < sizeof taken / sizeof *taken; t++) {
            is_taken |= strcmp(key, taken[t]) == 0;
        }
        if (!key[0] || (key[0] >= '0' && key[0] <= '9') || key[strspn(key, letters)]) {
            return BAD(k,
                       "model %.128s: metric_tags key '%.64s' cannot be the name of a label: "
                       "letters, digits and '_', no digit first",
                       k->c->name, key);
        }
        if (is_taken) {
            return BAD(
                k, "model %.128s: metric_tags key '%.64s' is a label of the server's own metrics",
                k->c->name, key);
        }
    }
    return MR_OK;
}

/* ---- features ---- */

struct fields {
    const struct check *k;
    struct mr_config_warning *warnings;
    size_t max;
    size_t count;
    const struct mr_config_field *last; /* warned about */
    int rc;
};

static void field_each(void *ctx, const char *path, const ProtobufCMessage *owner)
{
    struct fields *s = ctx;
    const struct mr_config_field *f = mr_config_field_find(mr_str_c(path));

    (void)owner;
    if (s->rc < 0 || !f) {
        return;
    }
    if (f->kind == MR_CONFIG_REFUSED) {
        s->rc = MR_FAIL(s->k->err, MR_E_UNSUPPORTED,
                        "model '%.128s' asks for %s ('%s'), a feature that this server does not "
                        "have",
                        s->k->c->name, f->note, path);
    } else if (f->kind == MR_CONFIG_NO_EFFECT && f != s->last) {
        if (s->count < s->max) {
            snprintf(s->warnings[s->count].text, sizeof s->warnings[0].text,
                     "'%s' has no effect: %s", f->path, f->note);
            s->count++;
        }
        s->last = f;
    }
}

/* ---- names of files ---- */

static int name_of_file(const struct check *k, const char *field, const char *name)
{
    int rc = mr_model_path_check(mr_str_c(name), k->err);

    return rc < 0 ? MR_WRAP(k->err, rc, "'%s' of model %.128s", field, k->c->name) : MR_OK;
}

/* Every field that names a file names one below the model's folder, also where the file is not read.
 * (default_model_filename: config_basics.c.) */
static int names_check(const struct check *k)
{
    const Inference__ModelConfig *c = k->c;
    int rc = MR_OK;

    for (size_t i = 0; i < c->n_cc_model_filenames && rc == MR_OK; i++) {
        rc = name_of_file(k, "cc_model_filenames", c->cc_model_filenames[i]->value);
    }
    for (size_t i = 0; i < c->n_output && rc == MR_OK; i++) {
        const char *name = c->output[i]->label_filename;
        rc = name[0] ? name_of_file(k, "label_filename", name) : MR_OK;
    }
    for (size_t i = 0; i < c->n_model_warmup && rc == MR_OK; i++) {
        const Inference__ModelWarmup *w = c->model_warmup[i];
        for (size_t n = 0; n < w->n_inputs && rc == MR_OK; n++) {
            const Inference__ModelWarmup__Input *in = w->inputs[n]->value;
            if (in && in->input_data_type_case ==
                          INFERENCE__MODEL_WARMUP__INPUT__INPUT_DATA_TYPE_INPUT_DATA_FILE) {
                rc = name_of_file(k, "input_data_file", in->input_data_file);
            }
        }
    }
    const Inference__ModelSequenceBatching *s = mr_config_sequences(c);
    for (size_t i = 0; s && i < s->n_state && rc == MR_OK; i++) {
        for (size_t n = 0; n < s->state[i]->n_initial_state && rc == MR_OK; n++) {
            const Inference__ModelSequenceBatching__InitialState *in =
                s->state[i]->initial_state[n];
            if (in->state_data_case ==
                INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE) {
                rc = name_of_file(k, "data_file", in->data_file);
            }
        }
    }
    return rc;
}

int mr_config_check_features(const Inference__ModelConfig *c, struct mr_config_warning *warnings,
                             size_t max_warnings, size_t *out_warning_count, struct mr_err *err)
{
    const struct check k = {c, true, err};
    struct fields s = {.k = &k, .warnings = warnings, .max = max_warnings};

    for (size_t i = 0; i < c->n_parameters; i++) {
        if (strcmp(c->parameters[i]->key, "TRITON_BATCH_STRATEGY_PATH") == 0) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "model '%.128s' asks for a custom batching strategy "
                           "('parameters: TRITON_BATCH_STRATEGY_PATH'), a feature that this server "
                           "does not have",
                           c->name);
        }
    }
    mr_pb_walk_set_fields(&c->base, field_each, &s);
    if (s.rc == MR_OK) {
        s.rc = mr_config_check_iterative(c, err);
    }
    if (s.rc == MR_OK) {
        *out_warning_count = s.count;
    }
    return s.rc < 0 ? s.rc : names_check(&k);
}

int mr_config_check(const Inference__ModelConfig *c, bool is_complete,
                    struct mr_config_warning *warnings, size_t max_warnings,
                    size_t *out_warning_count, struct mr_err *err)
{
    const struct check k = {c, is_complete, err};
    int rc;

    MR_TRY(batching_check(&k));
    MR_TRY(mr_config_graph_check(c, err));
    MR_TRY(groups_check(&k));
    MR_TRY(mr_config_check_sequence(c, is_complete, err));
    MR_TRY(versions_check(&k));
    MR_TRY(inputs_check(&k));
    MR_TRY(outputs_check(&k));
    MR_TRY(tags_check(&k));
    MR_TRY(mr_config_check_features(c, warnings, max_warnings, out_warning_count, err));
out:
    return rc;
}

/* ---- parameters for the server ---- */

#define OWN_PREFIX "millrace."

static const struct {
    const char *key;
    const char *values[3]; /* none: checked where it is used */
} own[] = {
    {OWN_PREFIX "switch_policy", {"availability", "resource"}},
    {OWN_PREFIX "version_labels", {NULL}},
    {OWN_PREFIX "ready_marker", {"true", "false"}},
    {OWN_PREFIX "default_warmup", {"true", "false"}},
    {OWN_PREFIX "mesh_type", {NULL}},
    {OWN_PREFIX "mesh_min_copies", {NULL}},
    {OWN_PREFIX "mesh_max_copies", {NULL}},
    {OWN_PREFIX "mesh_pinned", {"true", "false"}},
    {OWN_PREFIX "mesh_device_bytes", {NULL}},
};

static int own_check(const char *key, const char *value, struct mr_err *err)
{
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(own[i].key, key) != 0) {
            continue;
        }
        for (size_t k = 0; own[i].values[k]; k++) {
            if (strcmp(own[i].values[k], value) == 0) {
                return MR_OK;
            }
        }
        return own[i].values[0]
                   ? MR_FAIL(err, MR_E_INVALID, "parameter %s is '%.64s', must be '%s' or '%s'",
                             key, value, own[i].values[0], own[i].values[1])
                   : MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "there is no parameter '%.64s' for the server", key);
}

int mr_config_check_own(const Inference__ModelConfig *c, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; i < c->n_parameters && rc == MR_OK; i++) {
        const char *key = c->parameters[i]->key;
        const Inference__ModelParameter *value = c->parameters[i]->value;
        if (strncmp(key, OWN_PREFIX, strlen(OWN_PREFIX)) == 0) {
            rc = own_check(key, value ? value->string_value : "", err);
        }
    }
    return rc;
}
