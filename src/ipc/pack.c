#include "ipc/pack.h"

#define TEXT_NONE UINT64_MAX

void mr_pack_u64(struct mr_buf *b, uint64_t v)
{
    mr_buf_append(b, &v, sizeof v);
}

void mr_pack_bytes(struct mr_buf *b, const void *data, size_t len)
{
    mr_pack_u64(b, len);
    mr_buf_append(b, data, len);
}

void mr_pack_text(struct mr_buf *b, const char *text)
{
    if (text) {
        mr_pack_bytes(b, text, strlen(text) + 1);
    } else {
        mr_pack_u64(b, TEXT_NONE);
    }
}

uint64_t mr_unpack_u64(struct mr_unpack *u)
{
    uint64_t v = 0;

    if ((size_t)(u->end - u->at) < sizeof v) {
        u->failed = true;
        return 0;
    }
    memcpy(&v, u->at, sizeof v);
    u->at += sizeof v;
    return v;
}

uint32_t mr_unpack_u32(struct mr_unpack *u, uint32_t max)
{
    const uint64_t v = mr_unpack_u64(u);

    u->failed |= v > max;
    return u->failed ? 0 : (uint32_t)v;
}

int32_t mr_unpack_i32(struct mr_unpack *u)
{
    const int64_t v = mr_unpack_i64(u);

    u->failed |= v < INT32_MIN || v > INT32_MAX;
    return u->failed ? 0 : (int32_t)v;
}

uint32_t mr_unpack_count(struct mr_unpack *u)
{
    const uint64_t v = mr_unpack_u64(u);

    u->failed |= v > (size_t)(u->end - u->at) / sizeof(uint64_t) || v > UINT32_MAX;
    return u->failed ? 0 : (uint32_t)v;
}

mr_bytes mr_unpack_bytes(struct mr_unpack *u)
{
    const uint64_t len = mr_unpack_u64(u);

    if (u->failed || len > (size_t)(u->end - u->at)) {
        u->failed = true;
        return (mr_bytes){NULL, 0};
    }
    const mr_bytes data = {u->at, (size_t)len};
    u->at += len;
    return data;
}

const char *mr_unpack_text(struct mr_unpack *u)
{
    const uint8_t *before = u->at;

    if (mr_unpack_u64(u) == TEXT_NONE) {
        return NULL;
    }
    u->at = before;
    const mr_bytes data = mr_unpack_bytes(u);
    if (u->failed || data.len == 0 || data.ptr[data.len - 1] != '\0') {
        u->failed = true;
        return NULL;
    }
    const mr_str copy = mr_arena_str(u->arena, mr_str_n((const char *)data.ptr, data.len - 1));
    u->failed |= !copy.ptr;
    return copy.ptr;
}

const char *mr_unpack_name(struct mr_unpack *u)
{
    const char *text = mr_unpack_text(u);

    u->failed |= !text;
    return text ? text : "";
}

void *mr_unpack_array(struct mr_unpack *u, size_t count, size_t size)
{
    void *list = u->failed ? NULL : mr_arena_try_array(u->arena, count + 1, size, 8);

    u->failed |= !list;
    return list;
}

void mr_pack_settings(struct mr_buf *b, const struct mr_setting *list, uint32_t count)
{
    mr_pack_u64(b, count);
    for (uint32_t i = 0; i < count; i++) {
        mr_pack_text(b, list[i].key);
        mr_pack_text(b, list[i].value);
    }
}

const struct mr_setting *mr_unpack_settings(struct mr_unpack *u, uint32_t *out_count)
{
    const uint32_t count = mr_unpack_count(u);
    struct mr_setting *list = mr_unpack_array(u, (size_t)count + 1, sizeof *list);

    for (uint32_t i = 0; i < count && !u->failed; i++) {
        list[i].key = mr_unpack_name(u);
        list[i].value = mr_unpack_name(u);
    }
    *out_count = u->failed ? 0 : count;
    return list;
}
