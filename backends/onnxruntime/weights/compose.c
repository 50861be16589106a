/* The model without its large tensors: the same ONNX file, but for tensors that refer to another file with their bytes. */
#include <stdio.h>
#include <unistd.h>

#include "parameters.h"

int onnx_read_all(int fd, void *to, uint64_t bytes, uint64_t at)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (uint8_t *)to + done, bytes - done, (off_t)(at + done));
        if (n <= 0) {
            return 0;
        }
        done += (uint64_t)n;
    }
    return 1;
}

int onnx_write_all(int fd, const uint8_t *from, uint64_t bytes, uint64_t at)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, from + done, bytes - done, (off_t)(at + done));
        if (n <= 0) {
            return 0;
        }
        done += (uint64_t)n;
    }
    return 1;
}

/* NULL: nothing requested, or no memory. */
static uint8_t *grow(struct onnx_bytes *b, size_t more)
{
    if (more == 0) {
        return NULL;
    }
    if (b->cap - b->len < more) {
        size_t cap = (b->len + more) * 2;
        uint8_t *at = b->is_bad ? NULL : realloc(b->at, cap);
        if (!at) {
            b->is_bad = 1;
            return NULL;
        }
        b->at = at;
        b->cap = cap;
    }
    b->len += more;
    return b->at + b->len - more;
}

static void put(struct onnx_bytes *b, const void *from, size_t n)
{
    uint8_t *to = grow(b, n);
    if (to) {
        memcpy(to, from, n);
    }
}

static void put_varint(struct onnx_bytes *b, uint64_t v)
{
    uint8_t text[10];
    size_t n = 0;
    for (; v > 127; v >>= 7) {
        text[n++] = (uint8_t)(v | 128);
    }
    text[n++] = (uint8_t)v;
    put(b, text, n);
}

static void put_number(struct onnx_bytes *b, uint32_t field, uint64_t v)
{
    put_varint(b, (uint64_t)field << 3);
    put_varint(b, v);
}

static void put_bytes(struct onnx_bytes *b, uint32_t field, const void *from, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
    put(b, from, n);
}

static void put_file(struct onnx_bytes *b, int fd, uint64_t at, uint64_t end)
{
    uint8_t *to = grow(b, end - at);
    if (to && !onnx_read_all(fd, to, end - at, at)) {
        b->is_bad = 1;
    }
}

static void put_entry(struct onnx_bytes *tensor, const char *key, const char *value)
{
    struct onnx_bytes entry = {0};
    put_bytes(&entry, 1, key, strlen(key));
    put_bytes(&entry, 2, value, strlen(value));
    tensor->is_bad |= entry.is_bad;
    put_bytes(tensor, 13, entry.at, entry.len);
    free(entry.at);
}

static void put_tensor(struct onnx_bytes *graph, const struct onnx_tensor *t, const char *location,
                       uint64_t offset)
{
    struct onnx_bytes b = {0};
    char number[24];

    for (uint32_t i = 0; i < t->rank; i++) {
        put_number(&b, 1, (uint64_t)t->dims[i]);
    }
    put_number(&b, 2, (uint64_t)t->type);
    put_bytes(&b, 8, t->name, strlen(t->name));
    put_entry(&b, "location", location);
    snprintf(number, sizeof number, "%llu", (unsigned long long)offset);
    put_entry(&b, "offset", number);
    snprintf(number, sizeof number, "%llu", (unsigned long long)t->bytes);
    put_entry(&b, "length", number);
    put_number(&b, 14, 1);
    graph->is_bad |= b.is_bad;
    put_bytes(graph, 5, b.at, b.len);
    free(b.at);
}

uint64_t onnx_tensor_next(uint64_t offset, const struct onnx_tensor *t)
{
    return (offset + t->bytes + ONNX_TENSOR_ALIGN - 1) / ONNX_TENSOR_ALIGN * ONNX_TENSOR_ALIGN;
}

struct onnx_bytes onnx_compose(int fd, uint64_t file_bytes, const struct onnx_tensors *t,
                               const char *location, uint64_t *out_data)
{
    struct onnx_bytes graph = {0};
    struct onnx_bytes model = {0};
    uint64_t at = t->graph.at;
    uint64_t offset = 0;

    for (size_t i = 0; i < t->count; i++) {
        put_file(&graph, fd, at, t->at[i].whole.at);
        put_tensor(&graph, &t->at[i], location, offset);
        at = t->at[i].whole.end;
        offset = onnx_tensor_next(offset, &t->at[i]);
    }
    put_file(&graph, fd, at, t->graph.end);
    put_file(&model, fd, 0, t->around.at);
    put_bytes(&model, 7, graph.at, graph.len);
    put_file(&model, fd, t->around.end, file_bytes);
    model.is_bad |= graph.is_bad;
    free(graph.at);
    *out_data = offset;
    return model;
}
