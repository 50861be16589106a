/* The head of a reply, or of one of several answers, is at the beginning of the room; data of variable size are packed
 * (ipc/pack.h) into memory of the same kind as the outputs. The server copies head and pack before it reads them, so they
 * cannot change between check and use. The bytes of large outputs are not copied: a worker can change them until the
 * answer is sent, which corrupts the answer and nothing else, as no size or count is read from them. Strings contain
 * counts, and are copied. */
#include "ipc/reply.h"

#include <stdio.h>

#include "ipc/pack.h"

#define SMALL_BYTES   8192
#define ALIGN_BYTES   64
#define FAILURE_BYTES 1024 /* of one failure, packed */
/* of the parameters of one answer: with a length and an end for each text */
#define PARAMETERS_BYTES (MR_ANSWER_PARAMETER_BYTES + 20u * MR_ANSWER_PARAMETERS_MAX + 64)

struct reply {
    uint64_t nonce;
    int32_t status;
    uint32_t flags;
    int64_t infer_start_ns, infer_end_ns, run_ns;
    uint64_t pack_offset, pack_bytes; /* in the output segment; no bytes: there are no outputs */
    uint32_t request, is_final;       /* of one of several answers */
    char where[40];
    char message[464];
};

_Static_assert(sizeof(struct reply) <= MR_IPC_REPLY_BYTES, "reserved for it");
_Static_assert(MR_IPC_REPLY_BYTES % ALIGN_BYTES == 0, "the outputs follow");

/* ---- the worker's side ---- */

static uint64_t offset_in_segment(const struct mr_block *b, const void *data)
{
    uint64_t offset = 0;
    int fd;

    mr_block_in_file(b, data, &fd, &offset);
    return offset;
}

static int output_pack(struct mr_buf *pack, const struct mr_block_provider *provider,
                       const struct mr_exec_output *o, struct mr_err *err)
{
    const struct mr_tensor *t = &o->tensor;
    uint64_t offset = 0;
    int fd;

    mr_pack_u64(pack, o->is_set);
    if (!o->is_set) {
        return MR_OK;
    }
    if (!o->block || !mr_block_in_file(o->block, t->data, &fd, &offset)) {
        struct mr_block *b = mr_block_new_in(provider, MR_MAX(t->bytes, 1));
        if (!b) {
            return MR_FAIL(err, MR_E_EXHAUSTED,
                           "no shared memory now for %llu bytes of an output, try later",
                           (unsigned long long)t->bytes);
        }
        if (t->bytes > 0) {
            memcpy(b->data, t->data, t->bytes);
        }
        offset = offset_in_segment(b, b->data);
        mr_block_unref(&b);
    }
    mr_pack_i64(pack, t->dtype);
    mr_pack_i64(pack, t->rank);
    for (int32_t k = 0; k < t->rank; k++) {
        mr_pack_i64(pack, t->shape[k]);
    }
    mr_pack_u64(pack, offset);
    mr_pack_u64(pack, t->bytes);
    return MR_OK;
}

/* Data of variable size. */
struct parts {
    const struct mr_exec_output *outputs;
    uint32_t output_count;
    const struct mr_ipc_failure *failures;
    uint32_t failure_count;
    const struct mr_answer_parameters *parameters; /* of requests that follow each other */
    uint32_t parameters_count;
};

static int pack_write(struct reply *r, const struct mr_block_provider *provider,
                      const struct parts *p, struct mr_err *err)
{
    struct mr_buf pack;
    struct mr_block *b = NULL;
    int rc = MR_OK;

    mr_buf_init(&pack, 0);
    for (uint32_t i = 0; i < p->output_count; i++) {
        MR_TRY(output_pack(&pack, provider, &p->outputs[i], err));
    }
    mr_pack_u64(&pack, p->failure_count);
    for (uint32_t i = 0; i < p->failure_count; i++) {
        mr_pack_u64(&pack, p->failures[i].request);
        mr_pack_i64(&pack, p->failures[i].status);
        mr_pack_text(&pack, p->failures[i].message);
    }
    mr_pack_u64(&pack, p->parameters_count);
    for (uint32_t i = 0; i < p->parameters_count; i++) {
        const struct mr_answer_parameters *a = &p->parameters[i];
        mr_pack_settings(&pack, a->list, a->count);
        mr_pack_bytes(&pack, a->kinds, a->count);
    }
    b = pack.failed ? NULL : mr_block_new_in(provider, pack.len);
    if (!b) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no shared memory now for an answer, try later");
        goto out;
    }
    memcpy(b->data, pack.ptr, pack.len);
    r->pack_offset = offset_in_segment(b, b->data);
    r->pack_bytes = pack.len;
    mr_block_unref(&b);
out:
    mr_buf_fini(&pack);
    return rc;
}

void mr_ipc_reply_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_ipc_failure *failures, uint32_t failure_count,
                        int64_t run_ns, int status, const struct mr_err *err)
{
    struct reply r = {.nonce = nonce,
                      .run_ns = run_ns,
                      .infer_start_ns = x->exec.infer_start_ns,
                      .infer_end_ns = x->exec.infer_end_ns};
    struct mr_err local;

    if (status >= 0) {
        mr_err_clear(&local);
        const struct parts parts = {x->outputs.list, x->exec.output_count,
                                    failures,        failure_count,
                                    x->parameters,   x->parameters ? x->exec.request_count : 0};
        status = pack_write(&r, provider, &parts, &local);
        err = &local;
    }
    r.status = status;
    if (status < 0) {
        r.flags = err->flags;
        snprintf(r.where, sizeof r.where, "%s", err->where);
        snprintf(r.message, sizeof r.message, "%s", err->msg);
    }
    memcpy(t->room, &r, sizeof r);
}

int mr_ipc_answer_write(const struct mr_shm_task *t, uint64_t nonce,
                        const struct mr_block_provider *provider, const struct mr_execution *x,
                        const struct mr_response *q, struct mr_err *err)
{
    struct reply r = {.nonce = nonce, .request = q->request, .is_final = q->is_final};

    if (q->outputs.list) {
        const struct parts parts = {q->outputs.list, x->exec.output_count,   NULL, 0,
                                    &q->parameters,  q->parameters.count > 0};
        const int rc = pack_write(&r, provider, &parts, err);
        if (rc < 0) {
            return rc;
        }
    }
    memcpy(t->room, &r, sizeof r);
    return MR_OK;
}

/* ---- the server's side ---- */

static int broken(const struct mr_execution *x, const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL, "the worker process of model '%s' wrote %s",
                   x->outputs.executor->model, what);
}

/* The limit of the bytes of the pack. */
static uint64_t pack_limit(const struct mr_execution *x)
{
    const uint64_t output = (6 + MR_MAX_RANK) * sizeof(uint64_t);

    return 64 + output * x->exec.output_count +
           (uint64_t)(FAILURE_BYTES + PARAMETERS_BYTES) * x->exec.request_count;
}

static int output_read(struct mr_shm *p, const struct mr_shm_slot *s, struct mr_unpack *u,
                       const struct mr_execution *x, struct mr_exec_outputs *o, uint32_t index,
                       uint64_t *copied, struct mr_err *err)
{
    int64_t shape[MR_MAX_RANK];
    struct mr_tensor t = {.shape = shape};
    const uint8_t *data;
    struct mr_block *block;
    void *to;
    int rc;

    if (!mr_unpack_u32(u, 1)) {
        return MR_OK;
    }
    t.dtype = mr_unpack_i32(u);
    t.rank = mr_unpack_i32(u);
    if (t.rank < 0 || t.rank > MR_MAX_RANK) {
        return broken(x, "an output of an impossible rank", err);
    }
    for (int32_t k = 0; k < t.rank; k++) {
        shape[k] = mr_unpack_i64(u);
    }
    const uint64_t offset = mr_unpack_u64(u);
    t.bytes = mr_unpack_u64(u);
    if (u->failed || !mr_shm_output_at(p, s, offset, t.bytes, &data, &block)) {
        return broken(x, "an output outside of its memory", err);
    }
    if (block && t.bytes > SMALL_BYTES && t.dtype != MR_DTYPE_BYTES && offset % ALIGN_BYTES == 0) {
        t.data = (void *)(uintptr_t)data;
        MR_TRY(mr_exec_output_check(o, index, &t, err));
        block = mr_block_ref(block);
        rc = mr_exec_output_set(o, index, &t, block, err);
        if (rc < 0) {
            mr_block_unref(&block);
        }
        return rc;
    }
    /* A size of 0 would stand for the size of the shape. */
    if (t.bytes == 0 && t.dtype != MR_DTYPE_BYTES) {
        t.data = (void *)(uintptr_t)data;
        MR_TRY(mr_exec_output_check(o, index, &t, err));
    }
    MR_TRY(mr_exec_output_place(o, index, t.dtype, t.rank, shape, t.bytes, &to, err));
    if (t.bytes > 0) {
        memcpy(to, data, t.bytes);
        *copied += t.bytes;
    }
out:
    return rc;
}

static int failures_read(struct mr_unpack *u, struct mr_execution *x, struct mr_err *err)
{
    const uint32_t count = mr_unpack_u32(u, x->exec.request_count);

    for (uint32_t i = 0; i < count && !u->failed; i++) {
        const uint32_t request = mr_unpack_u32(u, x->exec.request_count - 1);
        const int32_t status = mr_unpack_i32(u);
        const char *message = mr_unpack_name(u);
        if (!u->failed && status < 0 && x->fail_request) {
            x->fail_request(x, request, status, message);
        }
    }
    return u->failed ? broken(x, "a list of failed requests that is damaged", err) : MR_OK;
}

/* Those of one answer. */
static int parameters_read(struct mr_unpack *u, const struct mr_execution *x,
                           struct mr_answer_parameters *to, struct mr_arena *arena,
                           struct mr_err *err)
{
    uint32_t count;
    const struct mr_setting *list = mr_unpack_settings(u, &count);
    const mr_bytes kinds = mr_unpack_bytes(u);
    struct mr_err detail;

    if (u->failed || kinds.len != count ||
        mr_answer_parameters_set(to, arena, list, kinds.ptr, count, &detail) < 0) {
        return broken(x, "parameters of an answer that are damaged", err);
    }
    return MR_OK;
}

/* q: the answer of several that they belong to, NULL: the only ones. */
static int all_parameters_read(struct mr_unpack *u, struct mr_execution *x, struct mr_response *q,
                               struct mr_err *err)
{
    struct mr_arena *arena = q ? &q->arena : x->outputs.arena;
    const uint32_t count = mr_unpack_u32(u, q ? 1 : x->exec.request_count);
    struct mr_answer_parameters *list = q ? &q->parameters : NULL;
    int rc = MR_OK;

    if (u->failed) {
        return broken(x, "a number of parameters that is impossible", err);
    }
    if (!q && count > 0) {
        list = MR_ARENA_ARRAY(arena, struct mr_answer_parameters, x->exec.request_count);
        if (!list) {
            return MR_ARENA_FAIL(err);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        MR_TRY(parameters_read(u, x, &list[i], arena, err));
    }
    if (!q) {
        x->parameters = list;
    }
out:
    return rc;
}

/* Reads what belongs to one of several answers of x, or, with q NULL, to the only ones. */
static int pack_read(struct mr_shm *p, const struct mr_shm_slot *s, const struct reply *r,
                     struct mr_execution *x, struct mr_response *q, uint64_t *copied,
                     struct mr_err *err)
{
    struct mr_exec_outputs *o = q ? &q->outputs : &x->outputs;
    const uint8_t *data;
    struct mr_block *block;
    int rc;

    if (r->pack_bytes > pack_limit(x) ||
        !mr_shm_output_at(p, s, r->pack_offset, r->pack_bytes, &data, &block)) {
        return broken(x, "an answer outside of its memory", err);
    }
    uint8_t *copy = mr_arena_try(o->arena, r->pack_bytes + 1, 8);
    if (!copy) {
        return MR_ARENA_FAIL(err);
    }
    memcpy(copy, data, r->pack_bytes);
    struct mr_unpack u = mr_unpack_begin((mr_bytes){copy, r->pack_bytes}, o->arena);
    for (uint32_t i = 0; i < x->exec.output_count; i++) {
        MR_TRY(output_read(p, s, &u, x, o, i, copied, err));
    }
    MR_TRY(failures_read(&u, x, err));
    MR_TRY(all_parameters_read(&u, x, q, err));
out:
    return rc;
}

int mr_ipc_reply_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                      struct mr_execution *x, uint64_t *out_copied, int64_t *out_run_ns,
                      struct mr_err *err)
{
    struct reply r;

    memcpy(&r, s->room, sizeof r);
    *out_copied = 0;
    *out_run_ns = 0;
    if (r.nonce != nonce) {
        return broken(x, "an answer to another request", err);
    }
    x->exec.infer_start_ns = r.infer_start_ns;
    x->exec.infer_end_ns = r.infer_end_ns;
    *out_run_ns = r.run_ns;
    if (r.status == MR_OK) {
        return pack_read(p, s, &r, x, NULL, out_copied, err);
    }
    r.where[sizeof r.where - 1] = '\0';
    r.message[sizeof r.message - 1] = '\0';
    if (r.status > 0 || r.message[0] == '\0') {
        return broken(x, "a failure without a reason", err);
    }
    mr_err_set(err, r.status, r.where, "%s", r.message);
    if (err) {
        err->flags = r.flags & (MR_ERR_RETRYABLE | MR_ERR_APART | MR_ERR_ROWS);
    }
    return r.status;
}

int mr_ipc_answer_read(struct mr_shm *p, const struct mr_shm_slot *s, uint64_t nonce,
                       struct mr_execution *x, struct mr_response **out, uint64_t *out_copied,
                       struct mr_err *err)
{
    struct mr_response *q = NULL;
    struct reply r;
    int rc;

    memcpy(&r, s->letter, sizeof r);
    *out_copied = 0;
    if (r.nonce != nonce) {
        return broken(x, "an answer to another request", err);
    }
    MR_TRY(mr_response_new(x, r.request, &q, err));
    q->is_final = r.is_final != 0;
    if (r.pack_bytes > 0) {
        MR_TRY(pack_read(p, s, &r, x, q, out_copied, err));
    } else {
        q->outputs.list = NULL;
    }
    *out = q;
    return MR_OK;
out:
    mr_response_free(&q);
    return rc;
}
