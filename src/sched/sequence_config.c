/* Prepares sequence_batching of a version: the rules of the strategy, control inputs with their values, states with
 * their initial content. On loader threads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sequences.h"

#define STATE_BYTES_MAX (UINT64_C(1) << 31)

typedef Inference__ModelSequenceBatching config;

static int position_of(const struct mr_io_desc *list, uint32_t count, const char *name,
                       uint32_t *out, struct mr_err *err)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            *out = i;
            return MR_OK;
        }
    }
    return MR_FAIL(err, MR_E_INVALID, "the model has no '%.100s'", name);
}

/* ---- controls ---- */

static void control_values(struct sequence_control *to,
                           const Inference__ModelSequenceBatching__Control *from)
{
    for (size_t i = 0; i < 2; i++) {
        if (from->n_int32_false_true == 2) {
            memcpy(to->value[i], &from->int32_false_true[i], 4);
        } else if (from->n_fp32_false_true == 2) {
            memcpy(to->value[i], &from->fp32_false_true[i], 4);
        } else if (from->n_bool_false_true == 2) {
            to->value[i][0] = from->bool_false_true[i] ? 1 : 0;
        }
    }
}

static int open_controls(struct sequences *q, const config *c, const struct mr_signature *sig,
                         struct mr_err *err)
{
    int rc = MR_OK;

    q->controls = MR_NEW_ARRAY(struct sequence_control, c->n_control_input + 1);
    for (size_t i = 0; i < c->n_control_input; i++) {
        const Inference__ModelSequenceBatching__Control *from = c->control_input[i]->control[0];
        struct sequence_control *to = &q->controls[q->control_count];
        MR_TRY(
            position_of(sig->inputs, sig->input_count, c->control_input[i]->name, &to->input, err));
        to->kind = (int)from->kind;
        to->dtype = mr_config_control_dtype(from);
        control_values(to, from);
        q->control_count++;
    }
out:
    return rc;
}

/* ---- states ---- */

static int read_whole(int fd, uint8_t *to, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes;) {
        ssize_t n = read(fd, to + at, bytes - at);
        if (n <= 0) {
            return MR_E_IO;
        }
        at += (uint64_t)n;
    }
    return MR_OK;
}

/* The file's content: all of it for BYTES, otherwise as many bytes from its start as the tensor has. */
static int read_initial(const struct mr_version *v, struct sequence_state *to, const char *file,
                        struct mr_err *err)
{
    char name[600], *path; /* too long a name stays too long */
    struct stat st;
    int rc, fd;

    snprintf(name, sizeof name, "initial_state/%s", file);
    rc = mr_version_file(v, mr_str_c(name), &path, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "data_file '%.100s'", file);
    }
    /* O_NONBLOCK: a FIFO in the place of a file must not stop a loader */
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    mr_free(path);
    if (fd < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "cannot open %.200s: %s", name, strerror(errno));
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = MR_FAIL(err, MR_E_INVALID, "%.200s is not a regular file", name);
        goto out;
    }
    uint64_t has = (uint64_t)st.st_size,
             wants = to->io.dtype == MR_DTYPE_BYTES ? has : to->initial_bytes;
    if (has < wants || wants > STATE_BYTES_MAX) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "initial_state setting expects %llu bytes, but the data provided from %.100s "
                     "only has %llu bytes.",
                     (unsigned long long)MR_MIN(wants, STATE_BYTES_MAX), file,
                     (unsigned long long)has);
        goto out;
    }
    mr_free(to->initial);
    to->initial = mr_alloc(wants + 1);
    to->initial_bytes = wants;
    rc = read_whole(fd, to->initial, wants);
    if (rc < 0) {
        rc = MR_FAIL(err, MR_E_IO, "cannot read %.200s: %s", name, strerror(errno));
    }
out:
    close(fd);
    return rc;
}

/* Zeros (empty strings), a dimension that is open 1 long, or what initial_state says. */
static int make_initial(const struct mr_version *v, struct sequence_state *to,
                        const Inference__ModelSequenceBatching__State *from, struct mr_err *err)
{
    const Inference__ModelSequenceBatching__InitialState *said =
        from->n_initial_state > 0 ? from->initial_state[0] : NULL;
    uint64_t unit = to->io.dtype == MR_DTYPE_BYTES ? 4 : mr_dtype_size(to->io.dtype), elements;
    int rc;

    to->initial_dims = MR_NEW_ARRAY(int64_t, (size_t)to->io.rank + 1);
    for (int i = 0; i < to->io.rank; i++) {
        to->initial_dims[i] = said ? said->dims[i] : from->dims[i] < 0 ? 1 : from->dims[i];
    }
    MR_TRY(mr_shape_elements(to->initial_dims, to->io.rank, &elements, err));
    if (elements > STATE_BYTES_MAX / unit) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "it is larger than 2 GiB");
    }
    to->initial_bytes = elements * unit;
    to->initial = mr_try_alloc(to->initial_bytes + 1);
    if (!to->initial) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for %llu bytes",
                       (unsigned long long)to->initial_bytes);
    }
    memset(to->initial, 0, to->initial_bytes + 1);
    if (!said || said->state_data_case !=
                     INFERENCE__MODEL_SEQUENCE_BATCHING__INITIAL_STATE__STATE_DATA_DATA_FILE) {
        return MR_OK;
    }
    MR_TRY(read_initial(v, to, said->data_file, err));
    if (to->io.dtype == MR_DTYPE_BYTES) {
        rc = mr_bytes_tensor_check((mr_bytes){to->initial, to->initial_bytes}, elements, err);
    }
out:
    return rc;
}

static int open_states(struct sequences *q, const struct mr_version *v, const config *c,
                       struct mr_err *err)
{
    const struct mr_signature *sig = v->executor->signature;
    int rc = MR_OK;

    q->states = MR_NEW_ARRAY(struct sequence_state, c->n_state + 1);
    for (size_t i = 0; i < c->n_state; i++) {
        const Inference__ModelSequenceBatching__State *from = c->state[i];
        struct sequence_state *to = &q->states[q->state_count++];
        to->io = (struct mr_model_io){.name = mr_str_c(from->output_name),
                                      .dtype = (int32_t)from->data_type,
                                      .rank = (int32_t)from->n_dims,
                                      .dims = from->dims};
        MR_TRY(position_of(sig->inputs, sig->input_count, from->input_name, &to->input, err));
        MR_TRY(position_of(sig->outputs, sig->output_count, from->output_name, &to->output, err));
        rc = make_initial(v, to, from, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "initial state of '%.100s'", from->input_name);
        }
    }
out:
    return rc;
}

/* ---- the rules ---- */

static bool can_join(void *ctx, const struct seq_request *first, const struct seq_request *r)
{
    const struct mr_sched *s = ctx;
    struct mr_infer *a = MR_CONTAINER_OF(first, struct sequence_item, request)->infer;
    struct mr_infer *b = MR_CONTAINER_OF(r, struct sequence_item, request)->infer;

    return !s->sequences->is_apart && instance_can_join(s, a, b) &&
           sequence_can_join(s->sequences, a, b);
}

static bool is_open(const int64_t *dims, int64_t rank)
{
    for (int64_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return true;
        }
    }
    return false;
}

/* A backend that has each request's tensors may answer each in another shape. */
static bool may_differ(const struct mr_version *v, const config *c)
{
    if (!(v->backend_flags & MR_BACKEND_PER_REQUEST) || mr_version_is_streaming(v)) {
        return false;
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        const struct mr_model_io *io = &v->outputs[i];
        if (io->reshape ? is_open(io->reshape, io->reshape_rank) : is_open(io->dims, io->rank)) {
            return true;
        }
    }
    for (size_t i = 0; i < c->n_state; i++) {
        if (is_open(c->state[i]->dims, (int64_t)c->state[i]->n_dims)) {
            return true;
        }
    }
    return false;
}

static int64_t ns_of(uint64_t us)
{
    return (int64_t)MR_MIN(us, (uint64_t)INT64_MAX / MR_NS_PER_US) * MR_NS_PER_US;
}

static void open_set(struct mr_sched *s, const config *c)
{
    const struct mr_version *v = s->version;
    struct sequences *q = s->sequences;
    struct seq_options o = {.instances = s->instance_count,
                            .places = (uint32_t)mr_config_sequence_places(v->config),
                            .max_rows = (uint32_t)MR_MAX(1, v->max_batch_size),
                            .max_idle_ns = ns_of(c->max_sequence_idle_microseconds),
                            .can_join = can_join,
                            .drop = sequence_drop,
                            .ctx = s};

    o.is_direct =
        c->strategy_choice_case != INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST;
    if (!o.is_direct) {
        s->preferred_count = c->oldest->n_preferred_batch_size;
        s->preferred = MR_NEW_ARRAY(int32_t, s->preferred_count + 1);
        for (size_t i = 0; i < s->preferred_count; i++) {
            s->preferred[i] = c->oldest->preferred_batch_size[i];
        }
        sched_sort_sizes(s->preferred, s->preferred_count);
        o.preferred = s->preferred;
        o.preferred_count = s->preferred_count;
        o.max_delay_ns = ns_of(c->oldest->max_queue_delay_microseconds);
        s->preserve_order = c->oldest->preserve_ordering && !mr_version_is_streaming(v);
    } else if (c->direct) {
        o.max_delay_ns = ns_of(c->direct->max_queue_delay_microseconds);
        o.min_utilization = c->direct->minimum_slot_utilization;
    }
    q->is_apart = may_differ(v, c);
    q->set = sequence_set_new(&o);
    q->taken = MR_NEW_ARRAY(struct seq_request *, MR_MAX(o.places, o.max_rows));
    /* A direct batch has a row for each sequence of the instance: two at once would be two states of a row. */
    q->max_executions = o.is_direct ? 1 : s->max_pending;
    q->due_ns = INT64_MAX;
}

int sequence_config_open(struct mr_sched *s, struct mr_err *err)
{
    const struct mr_version *v = s->version;
    const config *c = mr_config_sequences(v->config);
    pthread_condattr_t attr;
    struct sequences *q;
    int rc;

    if (!c) {
        return MR_OK;
    }
    s->sequences = q = MR_NEW(struct sequences);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    q->wake = MR_NEW_ARRAY(pthread_cond_t, s->instance_count);
    for (uint32_t i = 0; i < s->instance_count; i++) {
        pthread_cond_init(&q->wake[i], &attr);
    }
    pthread_condattr_destroy(&attr);
    open_set(s, c);
    MR_TRY(open_controls(q, c, v->executor->signature, err));
    MR_TRY(open_states(q, v, c, err));
out:
    return rc;
}

void sequence_config_close(struct mr_sched *s)
{
    struct sequences *q = s->sequences;

    if (!q) {
        return;
    }
    sequence_set_free(&q->set);
    for (uint32_t i = 0; i < s->instance_count; i++) {
        pthread_cond_destroy(&q->wake[i]);
    }
    for (uint32_t i = 0; i < q->state_count; i++) {
        mr_free(q->states[i].initial);
        mr_free(q->states[i].initial_dims);
    }
    mr_free(q->states);
    mr_free(q->controls);
    mr_free(q->wake);
    mr_free(q->taken);
    mr_free(q);
    s->sequences = NULL;
}
