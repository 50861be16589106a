/* One execution: requests in, backend called, outputs passed to the requests.
 *
 * For a single request nothing is copied: the backend sees the tensors where the decoder left them, and its
 * small outputs go into the request's own arena. Begins on an instance thread or, on the inline path, on
 * the network thread of the request; may end on any thread.
 *
 * Of several requests with several answers each, one ends with its last answer, while the backend goes on with the
 * others: such an execution refers to nothing that belongs to a request. */
#include "sequences.h"

bool exec_is_cancelled(const struct exec_run *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->items[i] && !is_cancelled(run->items[i])) {
            return false;
        }
    }
    return true;
}

static bool run_is_cancelled(const struct mr_execution *x, uint32_t request)
{
    struct exec_run *run = x->user;
    const bool may_end = run->ends_apart; /* a request, meanwhile */

    if (may_end) {
        pthread_mutex_lock(&run->s->mutex);
    }
    const bool is = request == MR_ALL_REQUESTS
                        ? exec_is_cancelled(run)
                        : run->items[request] && is_cancelled(run->items[request]);
    if (may_end) {
        pthread_mutex_unlock(&run->s->mutex);
    }
    return is;
}

/* The longest of its requests'. */
static const struct mr_call_chain *chain_of(const struct exec_run *run)
{
    const struct mr_call_chain *longest = NULL;

    for (uint32_t i = 0; i < run->count; i++) {
        const struct mr_call_chain *c = run->items[i] ? run->items[i]->chain : NULL;
        if (c && (!longest || c->depth > longest->depth)) {
            longest = c;
        }
    }
    return longest;
}

static void times_set(struct mr_infer_times *t, int64_t start, int64_t in, int64_t out, int64_t end)
{
    t->start = start;
    t->infer_start = in;
    t->infer_end = out;
    t->end = end;
}

struct mr_infer *exec_open_request(const struct exec_run *run, uint32_t request)
{
    struct mr_infer *r = run->items[request];

    return r && !r->is_final ? r : NULL;
}

struct mr_infer *exec_end_request(struct exec_run *run, uint32_t request)
{
    struct mr_infer *r = run->items[request];
    const int64_t now = mr_now_ns();

    r->is_final = true;
    if (!run->ends_apart || run->open == 1) {
        return NULL;
    }
    run->open--;
    run->items[request] = NULL;
    run->has_success |= r->status == MR_OK;
    run->x.chain = chain_of(run);
    run->s->inflight_rows -= rows_of(r);
    r->run = NULL;
    times_set(&r->times, run->start, run->gathered_ns, now, now);
    if (run->s->sequences) {
        sequences_leave(run->s, r);
    }
    /* under the mutex: the next request of its sequence cannot end before it. */
    if (r->reply_loop->post) {
        sched_deliver(r);
        return NULL;
    }
    return r;
}

static void run_fail_request(struct mr_execution *x, uint32_t request, int status,
                             const char *message)
{
    struct exec_run *run = x->user;
    struct mr_infer *r, *ended = NULL;

    if (request >= run->count || status >= 0) {
        return;
    }
    if (!(x->exec.flags & MR_EXEC_DECOUPLED)) {
        sched_fail(run->items[request], status, "%s", message);
        return;
    }
    pthread_mutex_lock(&run->s->mutex);
    r = exec_open_request(run, request);
    if (r) {
        sched_fail(r, status, "%s", message);
        ended = exec_end_request(run, request);
    }
    pthread_mutex_unlock(&run->s->mutex);
    if (ended) {
        sched_deliver(ended);
    }
}

/* The shape that the backend sees: reshape's dims, its -1 taken in order from the -1 of dims. */
static const int64_t *reshape_in(const struct mr_model_io *io, const struct mr_tensor *t, int lead,
                                 struct mr_arena *arena)
{
    int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)io->reshape_rank + (size_t)lead);
    int from = 0;

    if (!shape) {
        return NULL;
    }
    if (lead) {
        shape[0] = t->shape[0];
    }
    for (int i = 0; i < io->reshape_rank; i++) {
        shape[lead + i] = io->reshape[i];
        if (io->reshape[i] >= 0) {
            continue;
        }
        while (from < io->rank && io->dims[from] >= 0) {
            from++;
        }
        shape[lead + i] = from < io->rank ? t->shape[lead + from++] : 1;
    }
    return shape;
}

/* The execution has one request: nothing is joined or split. */
static bool is_whole(const struct exec_run *run)
{
    return run->count == 1 && (run->is_apart || run->items[0]->gap_rows == 0);
}

/* Makes a tensor of a request one of the run, which the request may leave. */
static int keep_tensor(struct exec_run *run, struct mr_tensor *t, struct mr_block **out_block,
                       struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(run->arena, int64_t, (size_t)t->rank);
    uint8_t *data = batch_room(run->s->version->executor, run->arena, t->bytes, out_block);

    if (!shape || !data) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(shape, t->shape, (size_t)t->rank * sizeof *shape);
    if (t->bytes) {
        memcpy(data, t->data, t->bytes);
    }
    t->shape = shape;
    t->data = data;
    return MR_OK;
}

/* Likewise what a request says beside its tensors. False without memory. */
static bool keep_words(struct mr_exec_request *q, struct mr_arena *arena)
{
    struct mr_setting *list = MR_ARENA_ARRAY(arena, struct mr_setting, q->parameter_count + 1u);
    uint8_t *kinds = MR_ARENA_ARRAY(arena, uint8_t, q->parameter_count + 1u);
    bool is_whole = list && kinds;

    q->id = mr_arena_str(arena, mr_str_c(q->id)).ptr;
    q->correlation_text = mr_arena_str(arena, mr_str_c(q->correlation_text)).ptr;
    for (uint32_t i = 0; is_whole && i < q->parameter_count; i++) {
        list[i].key = mr_arena_str(arena, mr_str_c(q->parameters[i].key)).ptr;
        list[i].value = mr_arena_str(arena, mr_str_c(q->parameters[i].value)).ptr;
        kinds[i] = q->parameter_kinds ? q->parameter_kinds[i] : MR_PARAMETER_TEXT;
        is_whole = list[i].key && list[i].value;
    }
    q->parameters = list;
    q->parameter_kinds = kinds;
    return is_whole && q->id && q->correlation_text;
}

static int place_input(struct exec_run *run, uint32_t i, struct mr_tensor *inputs,
                       struct mr_err *err)
{
    const struct mr_version *v = run->s->version;
    const struct mr_model_io *io = &v->inputs[i];
    struct mr_tensor *to = &inputs[io->backend_index];
    int rc = MR_OK;

    if (run->items[0]->inputs[i].dtype == MR_DTYPE_INVALID) {
        return MR_OK;
    }
    if (is_whole(run)) {
        *to = run->items[0]->inputs[i];
        rc = run->ends_apart ? keep_tensor(run, to, &run->gathered[i], err) : MR_OK;
    } else {
        rc = batch_gather(run->items, run->count, i, run->rows, run->arena, to, &run->gathered[i],
                          err);
    }
    if (rc < 0) {
        return rc;
    }
    if (io->reshape) {
        to->shape = reshape_in(io, to, v->max_batch_size > 0, run->arena);
        to->rank = io->reshape_rank + (v->max_batch_size > 0 ? 1 : 0);
        if (!to->shape) {
            return MR_ARENA_FAIL(err);
        }
    }
    return MR_OK;
}

static int place_requests(struct exec_run *run, const struct mr_tensor *inputs, struct mr_err *err)
{
    bool per_request = (run->s->version->backend_flags & MR_BACKEND_PER_REQUEST) != 0;
    struct mr_exec_request *q = MR_ARENA_ARRAY(run->arena, struct mr_exec_request, run->count);
    int64_t row = 0;

    if (!q) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        const struct mr_infer *r = run->items[i];
        row += r->gap_rows;
        q[i] = (struct mr_exec_request){.id = r->id.ptr,
                                        .row_begin = row,
                                        .row_count = r->rows,
                                        .deadline_ns = r->deadline_ns,
                                        .parameters = r->parameters,
                                        .parameter_count = r->parameter_count,
                                        .parameter_kinds = r->parameter_kinds,
                                        .timeout_us = r->timeout_us,
                                        .correlation_text = ""};
        row += r->rows;
        if (r->sequence) {
            q[i].correlation_id = r->sequence->number;
            q[i].correlation_text = r->sequence->text.len ? r->sequence->text.ptr : "";
            q[i].sequence_flags = r->sequence->flags;
        }
        if (per_request && is_whole(run)) {
            q[i].inputs = inputs;
        }
        if (run->ends_apart && !keep_words(&q[i], run->arena)) {
            return MR_ARENA_FAIL(err);
        }
    }
    run->x.exec.requests = q;
    return MR_OK;
}

/* For backends that take each request's tensors separately: in backend order, reshaped, not joined. */
static int place_apart(struct exec_run *run, struct mr_err *err)
{
    const struct mr_version *v = run->s->version;
    struct mr_exec_request *q = (struct mr_exec_request *)(uintptr_t)run->x.exec.requests;

    for (uint32_t k = 0; k < run->count; k++) {
        struct exec_run one = {.s = run->s,
                               .items = &run->items[k],
                               .count = 1,
                               .rows = run->items[k]->rows,
                               .arena = run->arena,
                               .gathered = run->gathered + k * v->input_count,
                               .ends_apart = run->ends_apart,
                               .is_apart = true};
        struct mr_tensor *t = MR_ARENA_ARRAY(run->arena, struct mr_tensor, v->backend_input_count);
        if (!t) {
            return MR_ARENA_FAIL(err);
        }
        for (uint32_t i = 0; i < v->input_count; i++) {
            int rc = place_input(&one, i, t, err);
            if (rc < 0) {
                return rc;
            }
        }
        if (run->s->sequences) {
            int rc = sequence_place(&one, t, err);
            if (rc < 0) {
                return rc;
            }
        }
        q[k].inputs = t;
    }
    return MR_OK;
}

/* Warm-up has no reply loop. */
static uint32_t loop_of(const struct mr_reply_loop *l, const struct mr_version *v)
{
    if (l && l->epoch_slot != MR_EPOCH_SLOT_NONE) {
        return l->epoch_slot;
    }
    return l && l->near > 0 && !mr_version_is_streaming(v) ? l->near - 1 : MR_NO_LOOP;
}

static void run_done(struct mr_execution *x);

/* Of its own memory of inputs and states: for all requests together, or for each of them. */
static uint32_t gathered_most(const struct exec_run *run)
{
    return run->s->version->input_count * (run->ends_apart ? run->count : 1) +
           sequence_state_count(run->s);
}

static int prepare(struct exec_run *run, struct mr_err *err)
{
    const struct mr_version *v = run->s->version;
    bool apart = !is_whole(run) && (v->backend_flags & MR_BACKEND_PER_REQUEST) != 0;
    struct mr_tensor *inputs = MR_ARENA_ARRAY(run->arena, struct mr_tensor, v->backend_input_count);
    uint8_t *wanted = MR_ARENA_ARRAY(run->arena, uint8_t, v->backend_output_count);
    int rc = MR_OK;

    run->ends_apart = mr_version_is_streaming(v) && run->count > 1;
    run->open = run->count;
    run->gathered_count = gathered_most(run);
    run->gathered = MR_ARENA_ARRAY(run->arena, struct mr_block *, run->gathered_count);
    run->x.outputs.list =
        MR_ARENA_ARRAY(run->arena, struct mr_exec_output, v->backend_output_count);
    run->x.outputs.arena = run->arena;
    if (!inputs || !wanted || !run->x.outputs.list || !run->gathered) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t k = 0; k < run->count; k++) {
        run->items[k]->answer =
            (struct mr_answer_parameters){NULL, NULL, 0}; /* of an earlier attempt */
        run->input_bytes += run->items[k]->input_bytes;
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        for (uint32_t k = 0; k < run->count; k++) {
            wanted[v->outputs[i].backend_index] |= run->items[k]->wanted[i];
        }
    }
    if (!apart) {
        for (uint32_t i = 0; i < v->input_count; i++) {
            MR_TRY(place_input(run, i, inputs, err));
        }
    }
    if (run->s->sequences) {
        sequence_want(run->s, wanted);
        if (!apart) {
            MR_TRY(sequence_place(run, inputs, err));
        }
    }
    MR_TRY(place_requests(run, inputs, err));
    if (apart) {
        MR_TRY(place_apart(run, err));
    }

    run->x.parameters = NULL; /* of an earlier attempt */
    run->x.exec.size = sizeof run->x.exec;
    run->x.exec.input_count = v->backend_input_count;
    run->x.exec.output_count = v->backend_output_count;
    run->x.exec.request_count = run->count;
    run->x.exec.inputs = apart ? NULL : inputs;
    run->x.exec.output_wanted = wanted;
    run->x.exec.row_count = run->rows;
    run->x.exec.flags = mr_version_is_streaming(v) ? MR_EXEC_DECOUPLED : 0;
    /* of several answers: a request that has failed keeps its own error */
    run->x.err =
        mr_version_is_streaming(v) ? MR_ARENA_NEW(run->arena, struct mr_err) : &run->items[0]->err;
    if (!run->x.err) {
        rc = MR_ARENA_FAIL(err);
        goto out;
    }
    run->x.is_cancelled = run_is_cancelled;
    run->x.fail_request = run_fail_request;
    run->x.respond = sched_respond;
    run->x.on_done = run_done;
    run->x.is_suspect = run->is_suspect;
    run->x.is_bound = run->is_bound;
    run->x.life = run->life;
    run->x.chain = chain_of(run);
    run->x.loop = loop_of(run->items[0]->reply_loop, v);
    run->x.infers = run->items;
    run->x.feed = run->count == 1 ? run->items[0]->feed : NULL;
    run->x.user = run;
out:
    return rc;
}

static int output_error(const struct mr_version *v, const struct mr_model_io *io, const char *what,
                        const struct mr_tensor *t, struct mr_err *err)
{
    char shape[256];

    return MR_FAIL(err, MR_E_INTERNAL,
                   "model '%.*s' gave output '%.*s' with an unexpected %s (%s %s), the "
                   "configuration says otherwise",
                   MR_STR_ARG(v->model_name), MR_STR_ARG(io->name), what, mr_dtype_name(t->dtype),
                   mr_shape_text(t->shape, t->rank, shape, sizeof shape));
}

int exec_check_output(const struct mr_version *v, const struct mr_model_io *io,
                      const struct mr_tensor *t, struct mr_err *err)
{
    int lead = v->max_batch_size > 0 ? 1 : 0;
    const int64_t *dims = io->reshape ? io->reshape : io->dims;
    int rank = io->reshape ? io->reshape_rank : io->rank;

    if (t->dtype != io->dtype) {
        return output_error(v, io, "data-type", t, err);
    }
    if (t->rank != rank + lead) {
        return output_error(v, io, "shape", t, err);
    }
    for (int i = 0; i < rank; i++) {
        if (dims[i] >= 0 && dims[i] != t->shape[i + lead]) {
            return output_error(v, io, "shape", t, err);
        }
    }
    return MR_OK;
}

int exec_reshape_output(const struct mr_version *v, struct mr_arena *arena,
                        const struct mr_model_io *io, struct mr_tensor *t, struct mr_err *err)
{
    int lead = v->max_batch_size > 0 ? 1 : 0, from = 0;

    if (!io->reshape) {
        return MR_OK;
    }
    int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)io->rank + 1);
    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    if (lead) {
        shape[0] = t->shape[0];
    }
    for (int i = 0; i < io->rank; i++) {
        shape[lead + i] = io->dims[i];
        if (io->dims[i] >= 0) {
            continue;
        }
        while (from < io->reshape_rank && io->reshape[from] >= 0) {
            from++;
        }
        shape[lead + i] = from < io->reshape_rank ? t->shape[lead + from++] : 1;
    }
    t->shape = shape;
    t->rank = io->rank + lead;
    return MR_OK;
}

/* The request's share of the outputs: its rows, or, when it is alone, the outputs as they are. */
static int hand_out(struct exec_run *run, struct mr_infer *r, int64_t row, struct mr_err *err)
{
    const struct mr_version *v = run->s->version;

    if (is_whole(run)) {
        r->outputs = run->x.outputs.list;
        run->x.outputs.list = NULL;
        return MR_OK;
    }
    r->outputs = MR_ARENA_ARRAY(r->arena, struct mr_exec_output, v->backend_output_count);
    if (!r->outputs) {
        return MR_ARENA_FAIL(err);
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        struct mr_exec_output *o = &run->x.outputs.list[v->outputs[i].backend_index];
        if (!r->wanted[i] || !o->is_set) {
            continue;
        }
        int rc = batch_slice(o, row, r->rows, r, mr_infer_output(r, i), err);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

/* Those of its answer. They outlive the run. */
static int hand_out_parameters(const struct exec_run *run, uint32_t index, struct mr_err *err)
{
    struct mr_infer *r = run->items[index];
    const struct mr_answer_parameters *p = run->x.parameters ? &run->x.parameters[index] : NULL;

    return p && p->count > 0
               ? mr_answer_parameters_set(&r->answer, r->arena, p->list, p->kinds, p->count, err)
               : MR_OK;
}

static void finish_times(struct exec_run *run, int64_t start)
{
    int64_t end = mr_now_ns(), in = run->x.exec.infer_start_ns, out = run->x.exec.infer_end_ns;

    /* The marks come from the backend: force them into order. */
    if (in < start || in > end) {
        in = run->gathered_ns ? run->gathered_ns : start;
    }
    if (out < in || out > end) {
        out = end;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        times_set(&run->items[i]->times, start, in, out, end);
    }
}

/* Keeps the requests that end with it. */
static void drop_ended(struct exec_run *run)
{
    uint32_t kept = 0;

    if (!run->ends_apart) {
        return;
    }
    pthread_mutex_lock(&run->s->mutex); /* a cancel may look at them */
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->items[i]) {
            run->items[kept++] = run->items[i];
        }
    }
    run->count = kept;
    pthread_mutex_unlock(&run->s->mutex);
}

static void release(struct exec_run *run)
{
    const struct mr_version *v = run->s->version;

    for (uint32_t i = 0; run->x.outputs.list && i < v->backend_output_count; i++) {
        mr_block_unref(&run->x.outputs.list[i].block);
    }
    for (uint32_t i = 0; run->gathered && i < run->gathered_count; i++) {
        mr_block_unref(&run->gathered[i]);
    }
}

static int hand_out_all(struct exec_run *run, struct mr_err *err)
{
    const struct mr_version *v = run->s->version;
    int64_t row = 0;
    int rc = MR_OK;

    for (uint32_t i = 0; i < v->output_count; i++) {
        struct mr_exec_output *o = &run->x.outputs.list[v->outputs[i].backend_index];
        if (o->is_set) {
            MR_TRY(exec_check_output(v, &v->outputs[i], &o->tensor, err));
        }
    }
    if (run->s->sequences) {
        sequence_keep(run); /* states have the backend's shape */
    }
    for (uint32_t i = 0; i < v->output_count; i++) {
        struct mr_exec_output *o = &run->x.outputs.list[v->outputs[i].backend_index];
        if (o->is_set) {
            MR_TRY(exec_reshape_output(v, run->arena, &v->outputs[i], &o->tensor, err));
        }
    }
    for (uint32_t i = 0; i < run->count; i++) {
        struct mr_infer *r = run->items[i];
        row += r->gap_rows;
        if (r->status == MR_OK) {
            r->status = hand_out(run, r, row, &r->err);
        }
        if (r->status == MR_OK) {
            r->status = hand_out_parameters(run, i, &r->err);
        }
        row += r->rows;
    }
out:
    return rc;
}

/* What of an error has the requests run again in parts. Answers of a decoupled model may have left already. */
static uint32_t torn_flags(const struct exec_run *run)
{
    return run->x.exec.flags & MR_EXEC_DECOUPLED ? MR_ERR_LOST : MR_ERR_LOST | MR_ERR_APART;
}

/* Passes the result of the execution to the requests. */
static void finish(struct exec_run *run, int rc, struct mr_err *err)
{
    drop_ended(run);
    if (rc == MR_OK && !(run->x.exec.flags & MR_EXEC_DECOUPLED)) {
        rc = hand_out_all(run, err);
    }
    run->torn = rc < 0 ? err->flags & torn_flags(run) : 0;
    if (rc < 0 && (err->flags & MR_ERR_POISON)) {
        sched_quarantine_add(run->s, run->items[0]);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        struct mr_infer *r = run->items[i];
        if (rc < 0 && !r->is_final) { /* otherwise it has all of its answers already */
            r->status = rc;
            r->err = *err;
        }
        run->has_success |= r->status == MR_OK;
    }
    release(run);
    finish_times(run, run->start);
}

/* It was pending. */
static void run_done(struct mr_execution *x)
{
    struct exec_run *run = x->user;
    struct mr_err err;

    mr_err_clear(&err);
    if (x->status < 0) {
        err = *x->err;
    }
    finish(run, x->status, &err);
    run->done(run);
}

bool exec_run(struct exec_run *run, void *instance)
{
    struct mr_err err;
    int rc;

    mr_err_clear(&err);
    for (uint32_t i = 0; i < run->count; i++) {
        run->items[i]->status = MR_OK;
    }
    if (run->count == 1) {
        MR_TRY(sched_quarantine_check(run->s, run->items[0],
                                      &err)); /* it may have been queued before */
    }
    MR_TRY(prepare(run, &err));
    if (run->count > 1) {
        run->gathered_ns = mr_now_ns();
    }
    for (uint32_t i = 0; i < run->count; i++) {
        run->items[i]->is_executed = true;
    }
    run->x.instance = instance;
    rc = mr_executor_execute(run->s->version->executor, &run->x, &err);
    if (rc == MR_PENDING) {
        return false;
    }
out:
    finish(run, rc, &err);
    return true;
}
