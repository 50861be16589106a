/* References in a message are offsets from its body, which the reader turns into pointers. For a body that is too small,
 * the writer continues without writing, and so computes the size that is needed. */
#include "ipc/message.h"

#include "base/mem.h"

#define ALIGN_BYTES 64
#define NOWHERE     UINT64_MAX

struct head {
    uint64_t nonce;
    uint64_t body_offset; /* in the input segment; NOWHERE: after this */
    uint64_t body_bytes;
};

struct body {
    uint32_t input_count, output_count, request_count, flags;
    int64_t row_count;
    uint64_t inputs; /* NOWHERE: none */
    uint64_t wanted;
    uint64_t requests;
};

struct tensor {
    int32_t dtype, rank;
    uint64_t shape;
    uint64_t data;
    uint64_t bytes;
    uint64_t is_in_segment; /* `data` is an offset in the input segment */
};

struct setting {
    uint64_t key, value;
};

struct request {
    uint64_t id;
    int64_t row_begin, row_count, deadline_ns;
    uint64_t parameters;
    uint32_t parameter_count, sequence_flags;
    uint64_t inputs; /* NOWHERE: none */
    uint64_t correlation_id;
    uint64_t correlation_text;
    uint64_t parameter_kinds; /* NOWHERE: all are texts */
    uint64_t timeout_us;
};

/* ---- writing ---- */

struct writer {
    uint8_t *base;
    size_t cap;
    size_t at; /* grows past cap */
    int64_t copied;
    const struct mr_shm *plane; /* tensors in it are referred to; NULL: all are copied */
};

static uint64_t put(struct writer *w, const void *data, size_t bytes, size_t align)
{
    const size_t at = (w->at + align - 1) / align * align;

    if (data && bytes > 0 && at <= w->cap && bytes <= w->cap - at) {
        memcpy(w->base + at, data, bytes);
    }
    w->at = at + bytes;
    return at;
}

/* Writes into room that `put` has reserved. */
static void put_at(struct writer *w, uint64_t at, const void *data, size_t bytes)
{
    if (at <= w->cap && bytes <= w->cap - at) {
        memcpy(w->base + at, data, bytes);
    }
}

static uint64_t put_text(struct writer *w, const char *text)
{
    return put(w, text ? text : "", text ? strlen(text) + 1 : 1, 1);
}

static uint64_t put_tensors(struct writer *w, const struct mr_tensor *list, uint32_t count)
{
    const uint64_t at = put(w, NULL, count * sizeof(struct tensor), 8);

    for (uint32_t i = 0; i < count; i++) {
        const struct mr_tensor *t = &list[i];
        struct tensor it = {.dtype = t->dtype, .rank = t->rank, .bytes = t->bytes};
        if (t->dtype != MR_DTYPE_INVALID) {
            it.shape = put(w, t->shape, (size_t)t->rank * sizeof *t->shape, 8);
            it.is_in_segment = w->plane && mr_shm_input_at(w->plane, t->data, t->bytes, &it.data);
            if (!it.is_in_segment) {
                it.data = put(w, t->data, t->bytes, ALIGN_BYTES);
                w->copied += (int64_t)t->bytes;
            }
        }
        put_at(w, at + i * sizeof it, &it, sizeof it);
    }
    return at;
}

static uint64_t put_settings(struct writer *w, const struct mr_setting *list, uint32_t count)
{
    const uint64_t at = put(w, NULL, count * sizeof(struct setting), 8);

    for (uint32_t i = 0; i < count; i++) {
        const struct setting it = {put_text(w, list[i].key), put_text(w, list[i].value)};
        put_at(w, at + i * sizeof it, &it, sizeof it);
    }
    return at;
}

static uint64_t put_requests(struct writer *w, const struct mr_exec *exec)
{
    const uint64_t at = put(w, NULL, exec->request_count * sizeof(struct request), 8);

    for (uint32_t i = 0; i < exec->request_count; i++) {
        const struct mr_exec_request *q = mr_exec_request_at(exec, i);
        struct request it = {.id = put_text(w, q->id),
                             .row_begin = q->row_begin,
                             .row_count = q->row_count,
                             .deadline_ns = q->deadline_ns,
                             .parameters = put_settings(w, q->parameters, q->parameter_count),
                             .parameter_count = q->parameter_count,
                             .sequence_flags = q->sequence_flags,
                             .inputs = NOWHERE,
                             .correlation_id = q->correlation_id,
                             .correlation_text = put_text(w, q->correlation_text),
                             .parameter_kinds = NOWHERE,
                             .timeout_us = q->timeout_us};
        if (q->parameter_kinds) {
            it.parameter_kinds = put(w, q->parameter_kinds, q->parameter_count, 1);
        }
        /* For a single request these are the tensors of the execution. */
        if (q->inputs && !exec->inputs) {
            it.inputs = put_tensors(w, q->inputs, exec->input_count);
        }
        put_at(w, at + i * sizeof it, &it, sizeof it);
    }
    return at;
}

static void put_body(struct writer *w, const struct mr_exec *exec)
{
    struct body b = {.input_count = exec->input_count,
                     .output_count = exec->output_count,
                     .request_count = exec->request_count,
                     .flags = exec->flags,
                     .row_count = exec->row_count,
                     .inputs = NOWHERE};
    const uint64_t at = put(w, NULL, sizeof b, 8);

    if (exec->inputs) {
        b.inputs = put_tensors(w, exec->inputs, exec->input_count);
    }
    b.wanted = put(w, exec->output_wanted, exec->output_count, 1);
    b.requests = put_requests(w, exec);
    put_at(w, at, &b, sizeof b);
}

int64_t mr_ipc_exec_write(struct mr_shm *p, struct mr_shm_slot *s, const struct mr_exec *exec,
                          uint64_t nonce, size_t *out_bytes, struct mr_block **out_block,
                          struct mr_err *err)
{
    struct head h = {nonce, NOWHERE, 0};
    struct writer w = {s->message + ALIGN_BYTES, s->message_cap - ALIGN_BYTES, 0, 0, p};
    struct mr_block *block = NULL;

    _Static_assert(sizeof h <= ALIGN_BYTES, "the body follows");
    put_body(&w, exec);
    *out_bytes = ALIGN_BYTES + w.at;
    if (w.at > w.cap) {
        int fd;
        block = mr_block_new_in(&mr_shm_inputs(p)->provider, w.at);
        if (!block) {
            MR_FAIL(err, MR_E_EXHAUSTED,
                    "no shared memory now for %zu bytes of a request (--memory-budget), try later",
                    w.at);
            return MR_E_EXHAUSTED;
        }
        mr_block_in_file(block, block->data, &fd, &h.body_offset);
        w = (struct writer){block->data, block->cap, 0, 0, p};
        put_body(&w, exec);
        *out_bytes = sizeof h;
    }
    h.body_bytes = w.at;
    memcpy(s->message, &h, sizeof h);
    *out_block = block;
    return w.copied;
}

size_t mr_ipc_exec_bytes(const struct mr_exec *exec)
{
    struct writer w = {0};

    put_body(&w, exec);
    return w.at;
}

void mr_ipc_exec_put(const struct mr_exec *exec, uint8_t *to, size_t bytes)
{
    struct writer w = {to, bytes, 0, 0, NULL};

    put_body(&w, exec);
}

int mr_ipc_exec_keep(struct mr_shm *p, const struct mr_exec *exec, struct mr_block **out_block,
                     uint64_t *out_offset, uint64_t *out_bytes, struct mr_err *err)
{
    const size_t bytes = mr_ipc_exec_bytes(exec);
    struct mr_block *block = mr_block_new_in(&mr_shm_inputs(p)->provider, bytes);
    int fd;

    if (!block) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no shared memory for %zu bytes of a request", bytes);
    }
    *out_bytes = bytes;
    memset(block->data, 0, bytes); /* equal executions are equal byte for byte */
    mr_block_in_file(block, block->data, &fd, out_offset);
    mr_ipc_exec_put(exec, block->data, block->cap);
    *out_block = block;
    return MR_OK;
}

/* ---- reading ---- */

struct reader {
    const struct mr_shm_view *view;
    const uint8_t *base;
    struct mr_arena *arena;
    bool failed;
};

static void *array(struct reader *r, size_t count, size_t size)
{
    void *list = mr_arena_try_array(r->arena, count + 1, size, 8);

    r->failed |= !list;
    return list;
}

static const char *text(const struct reader *r, uint64_t at)
{
    return (const char *)(r->base + at);
}

static const struct mr_tensor *tensors(struct reader *r, uint64_t at, uint32_t count)
{
    const struct tensor *from = (const struct tensor *)(const void *)(r->base + at);
    struct mr_tensor *list = array(r, count, sizeof *list);

    for (uint32_t i = 0; i < count && !r->failed; i++) {
        const uint8_t *data = from[i].is_in_segment
                                  ? mr_shm_input(r->view, from[i].data, from[i].bytes)
                                  : r->base + from[i].data;
        list[i] =
            (struct mr_tensor){.dtype = from[i].dtype,
                               .rank = from[i].rank,
                               .shape = (const int64_t *)(const void *)(r->base + from[i].shape),
                               .data = (void *)(uintptr_t)data,
                               .bytes = from[i].bytes};
        r->failed |= !data;
    }
    return list;
}

static const struct mr_setting *settings(struct reader *r, uint64_t at, uint32_t count)
{
    const struct setting *from = (const struct setting *)(const void *)(r->base + at);
    struct mr_setting *list = array(r, count, sizeof *list);

    for (uint32_t i = 0; i < count && !r->failed; i++) {
        list[i] = (struct mr_setting){text(r, from[i].key), text(r, from[i].value)};
    }
    return list;
}

static void requests(struct reader *r, const struct body *b, struct mr_exec *out)
{
    const struct request *from = (const struct request *)(const void *)(r->base + b->requests);
    struct mr_exec_request *list = array(r, b->request_count, sizeof *list);

    for (uint32_t i = 0; i < b->request_count && !r->failed; i++) {
        const struct request *q = &from[i];
        list[i] =
            (struct mr_exec_request){.id = text(r, q->id),
                                     .row_begin = q->row_begin,
                                     .row_count = q->row_count,
                                     .deadline_ns = q->deadline_ns,
                                     .parameters = settings(r, q->parameters, q->parameter_count),
                                     .parameter_count = q->parameter_count,
                                     .sequence_flags = q->sequence_flags,
                                     .correlation_id = q->correlation_id,
                                     .correlation_text = text(r, q->correlation_text),
                                     .timeout_us = q->timeout_us};
        if (q->parameter_kinds != NOWHERE) {
            list[i].parameter_kinds = r->base + q->parameter_kinds;
        }
        list[i].inputs = q->inputs == NOWHERE ? out->inputs : tensors(r, q->inputs, b->input_count);
    }
    out->requests = list;
}

int mr_ipc_exec_read_at(const struct mr_shm_view *v, const uint8_t *base, struct mr_arena *arena,
                        struct mr_exec *out, struct mr_err *err)
{
    struct reader r = {.view = v, .base = base, .arena = arena};

    if (!r.base) {
        return MR_FAIL(err, MR_E_INTERNAL, "a request in shared memory is damaged");
    }
    const struct body *b = (const struct body *)(const void *)r.base;
    *out = (struct mr_exec){.size = sizeof *out,
                            .input_count = b->input_count,
                            .output_count = b->output_count,
                            .request_count = b->request_count,
                            .output_wanted = r.base + b->wanted,
                            .row_count = b->row_count,
                            .request_size = sizeof(struct mr_exec_request),
                            .flags = b->flags};
    if (b->inputs != NOWHERE) {
        out->inputs = tensors(&r, b->inputs, b->input_count);
    }
    requests(&r, b, out);
    return r.failed
               ? MR_FAIL(err, MR_E_NOMEM, "no memory for a request of %u inputs", b->input_count)
               : MR_OK;
}

int mr_ipc_exec_read(const struct mr_shm_view *v, const struct mr_shm_task *t,
                     struct mr_arena *arena, struct mr_exec *out, uint64_t *out_nonce,
                     struct mr_err *err)
{
    struct head h;

    memcpy(&h, t->message, sizeof h);
    *out_nonce = h.nonce;
    return h.body_offset == NOWHERE
               ? mr_ipc_exec_read_at(v, t->message + ALIGN_BYTES, arena, out, err)
               : mr_ipc_exec_read_kept(v, h.body_offset, h.body_bytes, arena, out, err);
}

int mr_ipc_exec_read_kept(const struct mr_shm_view *v, uint64_t offset, uint64_t bytes,
                          struct mr_arena *arena, struct mr_exec *out, struct mr_err *err)
{
    return mr_ipc_exec_read_at(v, mr_shm_input(v, offset, bytes), arena, out, err);
}
