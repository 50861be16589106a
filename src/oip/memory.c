/* Memory of decoded messages, and checks that both wires share.
 *
 * Everything of a message lives in the request's arena. Tensor data that cannot stay where it was
 * received goes there too while it is small; otherwise into a block from the pool (which the byte budget
 * counts), whose reference the arena drops when it is reset. No call here trusts a size: callers have
 * compared it with the bytes that were received. Any thread. */
#include "oip_priv.h"

#include "base/map.h"

int mr_oip_no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "request needs more memory than it may have");
}

int mr_oip_id_check(mr_str id, struct mr_err *err)
{
    return id.len <= OIP_ID_MOST
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "the request's id has %zu bytes, more than the %zu allowed", id.len,
                         OIP_ID_MOST);
}

int mr_oip_ended(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CANCELLED, "ended");
}

int mr_oip_data_new(struct mr_arena *arena, struct mr_oip_tensor *t, uint64_t bytes,
                    struct mr_err *err)
{
    t->tensor.data = NULL;
    t->tensor.bytes = bytes;
    t->block = NULL;
    if (bytes == 0) {
        return MR_OK;
    }
    if (bytes <= OIP_ARENA_BYTES) {
        t->tensor.data = mr_arena_try(arena, (size_t)bytes, 16);
        return t->tensor.data ? MR_OK : mr_oip_no_memory(err);
    }
    if (bytes > SIZE_MAX) {
        return mr_oip_no_memory(err);
    }
    struct mr_block *block = mr_block_new((size_t)bytes);
    if (!block || !mr_block_keep(block, arena)) {
        return mr_oip_no_memory(err);
    }
    t->block = block;
    t->tensor.data = block->data;
    return MR_OK;
}

int mr_oip_data_refer(struct mr_arena *arena, struct mr_oip_tensor *t, mr_bytes data,
                      struct mr_err *err)
{
    size_t size = mr_dtype_size(t->tensor.dtype);
    if (data.len == 0 || size <= 1 || ((uintptr_t)data.ptr & (size - 1)) == 0) {
        t->tensor.data = data.len ? (void *)data.ptr : NULL;
        t->tensor.bytes = data.len;
        return MR_OK;
    }
    int rc = mr_oip_data_new(arena, t, data.len, err);
    if (rc == MR_OK && !mr_turn_copy(t->tensor.data, data.ptr, data.len)) {
        return mr_oip_ended(err);
    }
    return rc;
}

int mr_oip_tensor_align(struct mr_oip_tensor *t, struct mr_arena *arena, struct mr_err *err)
{
    mr_bytes data = {t->tensor.data, (size_t)t->tensor.bytes};
    return mr_oip_data_refer(arena, t, data, err);
}

void *mr_oip_grow(struct mr_arena *arena, void *items, size_t len, size_t *io_cap, size_t size)
{
    if (len < *io_cap) {
        return items;
    }
    size_t cap = *io_cap ? *io_cap * 2 : 4;
    void *grown = mr_arena_try_array(arena, cap, size, 16);
    if (!grown) {
        return NULL;
    }
    if (len > 0) {
        memcpy(grown, items, len * size);
    }
    *io_cap = cap;
    return grown;
}

static const mr_str *name_at(const void *items, size_t size, size_t i)
{
    return (const mr_str *)((const char *)items + i * size);
}

/* A few names are compared each with each; many go through a table, or a message of the largest
 * allowed size would cost milliseconds. */
int mr_oip_find_duplicate(struct mr_arena *arena, const void *items, size_t size, size_t count,
                          const mr_str **out_name, struct mr_err *err)
{
    *out_name = NULL;
    if (count <= 16) {
        for (size_t i = 1; i < count; i++) {
            for (size_t k = 0; k < i; k++) {
                if (mr_str_eq(*name_at(items, size, i), *name_at(items, size, k))) {
                    *out_name = name_at(items, size, i);
                    return MR_OK;
                }
            }
        }
        return MR_OK;
    }
    size_t cap = 64;
    while (cap < count * 2) {
        cap *= 2;
    }
    const mr_str **table = MR_ARENA_ARRAY(arena, const mr_str *, cap);
    if (!table) {
        return mr_oip_no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        const mr_str *name = name_at(items, size, i);
        size_t at = (size_t)mr_hash(*name) & (cap - 1);
        while (table[at] && !mr_str_eq(*table[at], *name)) {
            at = (at + 1) & (cap - 1);
        }
        if (table[at]) {
            *out_name = name;
            return MR_OK;
        }
        table[at] = name;
    }
    return MR_OK;
}

static int bytes_check(const struct mr_oip_tensor *t, uint64_t elements, const char *word,
                       mr_str model, struct mr_err *err)
{
    mr_bytes rest = {t->tensor.data, (size_t)t->tensor.bytes};
    if (mr_bytes_tensor_check(rest, elements, NULL) == MR_OK) {
        return MR_OK;
    }
    /* Something is wrong: walk again to say what. */
    uint64_t found = 0;
    mr_str element;
    while (found <= elements && mr_bytes_tensor_next(&rest, &element)) {
        found++;
    }
    if (found > elements) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "unexpected number of string elements %llu for inference %s '%.*s' for model '%.*s', "
            "expecting %llu",
            (unsigned long long)found, word, MR_STR_ARG(t->name), MR_STR_ARG(model),
            (unsigned long long)elements);
    }
    if (rest.len == 0) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "expected %llu string elements for inference %s '%.*s' for model '%.*s', got %llu",
            (unsigned long long)elements, word, MR_STR_ARG(t->name), MR_STR_ARG(model),
            (unsigned long long)found);
    }
    if (rest.len < 4) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "incomplete string length indicator for inference %s '%.*s' for model '%.*s', "
            "expecting 4 bytes but only %zu bytes available. Please make sure the string "
            "length indicator is in one buffer.",
            word, MR_STR_ARG(t->name), MR_STR_ARG(model), rest.len);
    }
    uint32_t length;
    memcpy(&length, rest.ptr, 4);
    return MR_FAIL(
        err, MR_E_INVALID,
        "incomplete string data for inference %s '%.*s' for model '%.*s', expecting string of "
        "length %u bytes but only %zu bytes available",
        word, MR_STR_ARG(t->name), MR_STR_ARG(model), length, rest.len - 4);
}

int mr_oip_binary_check(const struct mr_oip_tensor *t, uint64_t elements, bool is_response,
                        mr_str model, struct mr_err *err)
{
    if (t->tensor.dtype == MR_DTYPE_BYTES) {
        return bytes_check(t, elements, is_response ? "output" : "input", model, err);
    }
    if (!is_response || mr_tensor_is_whole(&t->tensor)) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "output '%.*s' has %llu bytes, which are not %llu elements of type %s",
                   MR_STR_ARG(t->name), (unsigned long long)t->tensor.bytes,
                   (unsigned long long)elements, mr_dtype_name(t->tensor.dtype));
}
