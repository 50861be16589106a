#include "ipc/call.h"

#include <string.h>

#include "base/mem.h"
#include "ipc/message.h"

#define KIND        1 /* in place of the status of answers and replies, which is never above 0 */
#define SMALL_BYTES 8192
#define ALIGN_BYTES 64
#define PACK_MAX    ((uint64_t)1 << 20)

/* The head of a call, at the beginning of the letter like that of an answer. */
struct head {
    uint64_t nonce;
    int32_t kind;
    uint32_t reserved;
    uint64_t number;
    uint64_t pack_offset, pack_bytes;
};

/* An answer that is sent as mail: the head, the pack, and, aligned, the outputs. */
struct mail {
    uint64_t bytes; /* of all of it */
    uint64_t pack_bytes;
    uint64_t outputs; /* from the head; 0: none */
};

/* ---- the worker's side ---- */

/* Copies bytes into shared memory and returns their place. */
static int place(const struct mr_block_provider *provider, const void *data, uint64_t bytes,
                 uint64_t *out_offset, struct mr_err *err)
{
    struct mr_block *b = mr_block_new_in(provider, MR_MAX(bytes, 1));
    int fd;

    if (!b) {
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "no shared memory now for %llu bytes of a call, try later",
                       (unsigned long long)bytes);
    }
    if (bytes > 0) {
        memcpy(b->data, data, bytes);
    }
    mr_block_in_file(b, b->data, &fd, out_offset);
    mr_block_unref(&b);
    return MR_OK;
}

static int inputs_pack(struct mr_buf *pack, const struct mr_block_provider *provider,
                       const struct mr_call_args *a, struct mr_err *err)
{
    int rc = MR_OK;

    mr_pack_u64(pack, a->input_count);
    for (uint32_t i = 0; i < a->input_count && rc == MR_OK; i++) {
        const struct mr_tensor *t = &a->inputs[i].tensor;
        uint64_t offset = 0;
        rc = place(provider, t->data, t->bytes, &offset, err);
        mr_pack_text(pack, a->inputs[i].name);
        mr_pack_i64(pack, t->dtype);
        mr_pack_i64(pack, t->rank);
        for (int32_t k = 0; k < t->rank; k++) {
            mr_pack_i64(pack, t->shape[k]);
        }
        mr_pack_u64(pack, offset);
        mr_pack_u64(pack, t->bytes);
    }
    return rc;
}

static const char *text_or_none(const char *text)
{
    return text ? text : "";
}

static void args_pack(struct mr_buf *pack, const struct mr_call_args *a)
{
    const bool has_kinds = a->size > offsetof(struct mr_call_args, parameter_kinds);
    const uint8_t *kinds = has_kinds ? a->parameter_kinds : NULL;

    mr_pack_text(pack, a->model);
    mr_pack_text(pack, text_or_none(a->version));
    mr_pack_text(pack, text_or_none(a->id));
    mr_pack_u64(pack, a->priority);
    mr_pack_u64(pack, a->timeout_us);
    mr_pack_u64(pack, a->correlation_id);
    mr_pack_text(pack, text_or_none(a->correlation_text));
    mr_pack_u64(pack, a->sequence_flags);
    mr_pack_u64(pack, a->output_count);
    for (uint32_t i = 0; i < a->output_count; i++) {
        mr_pack_text(pack, a->outputs[i]);
    }
    mr_pack_settings(pack, a->parameters, a->parameter_count);
    for (uint32_t i = 0; i < a->parameter_count; i++) {
        mr_pack_u64(pack, kinds ? kinds[i] : MR_PARAMETER_TEXT);
    }
}

int mr_ipc_call_write(const struct mr_shm_task *t, uint64_t nonce,
                      const struct mr_block_provider *provider, uint64_t number,
                      const struct mr_call_args *args, struct mr_err *err)
{
    struct head h = {.nonce = nonce, .kind = KIND, .number = number};
    struct mr_buf pack;
    int rc;

    mr_buf_init(&pack, PACK_MAX);
    args_pack(&pack, args);
    MR_TRY(inputs_pack(&pack, provider, args, err));
    if (pack.failed) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE,
                     "names and parameters of a call have more than 1 MiB together");
        goto out;
    }
    h.pack_bytes = pack.len;
    MR_TRY(place(provider, pack.ptr, pack.len, &h.pack_offset, err));
    memcpy(t->room, &h, sizeof h);
out:
    mr_buf_fini(&pack);
    return rc;
}

/* ---- the server's side ---- */

bool mr_ipc_is_call(const struct mr_shm_slot *s, uint64_t nonce)
{
    struct head h;

    memcpy(&h, s->letter, sizeof h);
    return h.nonce == nonce && h.kind == KIND;
}

static int broken(const char *what, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INTERNAL, "a worker process wrote %s", what);
}

static int input_read(struct mr_shm *p, const struct mr_shm_slot *s, struct mr_unpack *u,
                      struct mr_call_input *in, struct mr_block **out_block, struct mr_err *err)
{
    struct mr_tensor *t = &in->tensor;
    const uint8_t *data;
    struct mr_block *block;
    int64_t *shape;

    in->name = mr_unpack_name(u);
    t->dtype = mr_unpack_i32(u);
    t->rank = mr_unpack_i32(u);
    if (u->failed || t->rank < 0 || t->rank > MR_MAX_RANK) {
        return broken("a call with an input of an impossible rank", err);
    }
    t->shape = shape = mr_unpack_array(u, (size_t)t->rank + 1, sizeof *shape);
    for (int32_t k = 0; shape && k < t->rank; k++) {
        shape[k] = mr_unpack_i64(u);
    }
    const uint64_t offset = mr_unpack_u64(u);
    t->bytes = mr_unpack_u64(u);
    if (u->failed || !mr_shm_output_at(p, s, offset, t->bytes, &data, &block)) {
        return broken("a call with an input outside of its memory", err);
    }
    /* Strings contain lengths, which must not change after their check. */
    if (block && t->bytes > SMALL_BYTES && t->dtype != MR_DTYPE_BYTES &&
        offset % ALIGN_BYTES == 0) {
        t->data = (void *)(uintptr_t)data;
        *out_block = mr_block_ref(block);
        return MR_OK;
    }
    if (t->bytes > SMALL_BYTES) {
        *out_block = mr_block_new(t->bytes);
        t->data = *out_block ? (*out_block)->data : NULL;
    } else {
        t->data = mr_arena_try(u->arena, t->bytes + 1, 16);
    }
    if (!t->data) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for %llu bytes of a call, try later",
                       (unsigned long long)t->bytes);
    }
    memcpy(t->data, data, t->bytes);
    return MR_OK;
}

static const char *const *names_read(struct mr_unpack *u, uint32_t count)
{
    const char **list = mr_unpack_array(u, (size_t)count + 1, sizeof *list);

    for (uint32_t i = 0; list && i < count; i++) {
        list[i] = mr_unpack_name(u);
    }
    return list;
}

static void args_read(struct mr_unpack *u, struct mr_ipc_call *c)
{
    struct mr_call_args *a = &c->args;
    uint8_t *kinds;

    *a = (struct mr_call_args){.size = sizeof *a};
    a->model = mr_unpack_name(u);
    a->version = mr_unpack_name(u);
    a->id = mr_unpack_name(u);
    a->priority = mr_unpack_u64(u);
    a->timeout_us = mr_unpack_u64(u);
    a->correlation_id = mr_unpack_u64(u);
    a->correlation_text = mr_unpack_name(u);
    a->sequence_flags = mr_unpack_u32(u, MR_SEQUENCE_START | MR_SEQUENCE_END);
    a->output_count = mr_unpack_count(u);
    a->outputs = names_read(u, a->output_count);
    a->parameters = mr_unpack_settings(u, &a->parameter_count);
    a->parameter_kinds = kinds = mr_unpack_array(u, (size_t)a->parameter_count + 1, 1);
    for (uint32_t i = 0; kinds && i < a->parameter_count; i++) {
        kinds[i] = (uint8_t)mr_unpack_u32(u, MR_PARAMETER_DOUBLE);
    }
}

int mr_ipc_call_read(struct mr_shm *p, const struct mr_shm_slot *s, struct mr_arena *arena,
                     struct mr_ipc_call *out, struct mr_err *err)
{
    struct mr_call_input *inputs;
    const uint8_t *data;
    struct mr_block *block;
    struct head h;
    int rc = MR_OK;

    memcpy(&h, s->letter, sizeof h);
    *out = (struct mr_ipc_call){.number = h.number};
    if (h.pack_bytes > PACK_MAX ||
        !mr_shm_output_at(p, s, h.pack_offset, h.pack_bytes, &data, &block)) {
        return broken("a call outside of its memory", err);
    }
    uint8_t *copy = mr_arena_try(arena, h.pack_bytes + 1, 8);
    if (!copy) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call, try later");
    }
    memcpy(copy, data, h.pack_bytes);
    struct mr_unpack u = mr_unpack_begin((mr_bytes){copy, h.pack_bytes}, arena);
    args_read(&u, out);
    const uint32_t count = mr_unpack_count(&u);
    inputs = mr_unpack_array(&u, (size_t)count + 1, sizeof *inputs);
    out->blocks = mr_unpack_array(&u, (size_t)count + 1, sizeof *out->blocks);
    if (u.failed) {
        return broken("a call that is damaged", err);
    }
    out->args.inputs = inputs;
    out->args.input_count = count;
    for (uint32_t i = 0; i < count && rc == MR_OK; i++) {
        rc = input_read(p, s, &u, &inputs[i], &out->blocks[i], err);
    }
    return rc;
}

void mr_ipc_call_drop(struct mr_ipc_call *c)
{
    for (uint32_t i = 0; c->blocks && i < c->args.input_count; i++) {
        mr_block_unref(&c->blocks[i]);
    }
}

/* ---- answers ---- */

void mr_ipc_call_answer_pack(struct mr_buf *b, const struct mr_ipc_call_answer *a)
{
    mr_pack_u64(b, a->call);
    mr_pack_u64(b, a->number);
    mr_pack_i64(b, a->status);
    mr_pack_u64(b, a->is_last);
    mr_pack_text(b, a->message);
    mr_pack_i64(b, a->value);
    mr_pack_u64(b, a->count);
    for (uint32_t i = 0; i < a->count; i++) {
        mr_pack_text(b, a->names[i]);
    }
    mr_pack_settings(b, a->parameters.list, a->parameters.count);
    mr_pack_bytes(b, a->parameters.kinds, a->parameters.count);
}

static void parameters_unpack(struct mr_unpack *u, struct mr_answer_parameters *out)
{
    out->list = mr_unpack_settings(u, &out->count);
    const mr_bytes kinds = mr_unpack_bytes(u);
    uint8_t *copy = mr_unpack_array(u, kinds.len, 1);

    u->failed |= kinds.len != out->count;
    if (!u->failed && kinds.len > 0) {
        memcpy(copy, kinds.ptr, kinds.len);
    }
    out->kinds = copy;
}

int mr_ipc_call_answer_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_call_answer *out,
                              struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);

    out->call = mr_unpack_u64(&u);
    out->number = mr_unpack_u64(&u);
    out->status = mr_unpack_i32(&u);
    out->is_last = mr_unpack_u32(&u, 1) != 0;
    out->message = mr_unpack_name(&u);
    out->value = mr_unpack_i64(&u);
    out->count = mr_unpack_count(&u);
    out->names = names_read(&u, out->count);
    parameters_unpack(&u, &out->parameters);
    return u.failed ? MR_FAIL(err, MR_E_INVALID, "an answer to a call that is damaged") : MR_OK;
}

/* ---- answers as mail ---- */

#define MAIL_COPY_BYTES ((uint64_t)16 << 10) /* the longest one that the worker copies */

static uint64_t aligned(uint64_t at)
{
    return (at + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

int mr_ipc_call_mail_write(struct mr_shm *p, const struct mr_ipc_call_answer *a,
                           const struct mr_exec *outputs, struct mr_block **out, struct mr_err *err)
{
    struct mr_buf pack;

    mr_buf_init(&pack, 0);
    mr_ipc_call_answer_pack(&pack, a);
    struct mail h = {.pack_bytes = pack.len};
    h.bytes = sizeof h + pack.len;
    if (outputs) {
        h.outputs = aligned(h.bytes);
        h.bytes = h.outputs + mr_ipc_exec_bytes(outputs);
    }
    struct mr_block *b = pack.failed ? NULL : mr_block_new_in(&mr_shm_inputs(p)->provider, h.bytes);
    if (b) {
        memcpy(b->data, &h, sizeof h);
        memcpy(b->data + sizeof h, pack.ptr, pack.len);
    }
    if (b && outputs) {
        mr_ipc_exec_put(outputs, b->data + h.outputs, h.bytes - h.outputs);
    }
    mr_buf_fini(&pack);
    *out = b;
    return b ? MR_OK
             : MR_FAIL(err, MR_E_EXHAUSTED, "no shared memory now for %llu bytes of an answer",
                       (unsigned long long)h.bytes);
}

bool mr_ipc_call_mail_is_kept(const struct mr_block *b, bool is_last)
{
    struct mail h;

    memcpy(&h, b->data, sizeof h);
    return h.bytes > MAIL_COPY_BYTES || !is_last;
}

int mr_ipc_call_mail_read(const struct mr_shm_view *v, uint64_t offset, struct mr_arena *arena,
                          struct mr_ipc_call_answer *out, struct mr_exec *exec, bool *out_is_kept,
                          struct mr_err *err)
{
    const uint8_t *data = mr_shm_input(v, offset, sizeof(struct mail));
    struct mail h = {0};
    int rc;

    if (data) {
        memcpy(&h, data, sizeof h);
        data = mr_shm_input(v, offset, h.bytes);
    }
    if (data && h.bytes <= MAIL_COPY_BYTES) {
        uint8_t *copy = mr_arena_try(arena, h.bytes, ALIGN_BYTES);
        data = copy ? memcpy(copy, data, h.bytes) : NULL;
    }
    if (!data) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for an answer to a call");
    }
    MR_TRY(mr_ipc_call_answer_unpack((mr_bytes){data + sizeof h, h.pack_bytes}, arena, out, err));
    *exec = (struct mr_exec){0};
    if (h.outputs > 0) {
        MR_TRY(mr_ipc_exec_read_at(v, data + h.outputs, arena, exec, err));
    }
    *out_is_kept = h.bytes > MAIL_COPY_BYTES || !out->is_last;
out:
    return rc;
}
