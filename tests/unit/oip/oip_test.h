/* cmocka in the order of includes that it needs, and what the tests of oip share: an arena and a
 * buffer, bodies as one exact allocation, sample tensors of every data type. */
#ifndef MR_TEST_OIP_TEST_H
#define MR_TEST_OIP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"
#include "oip/oip.h"
#include "tensor/tensor.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/** Fails the test, naming the row of a table. */
#define CHECK_ROW(cond, row, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("row %zu: ", (size_t)(row));                                               \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail_msg("%s", #cond);                                                                 \
        }                                                                                          \
    } while (0)

static const struct mr_oip_limits test_limits = {
    .max_json_bytes = 64u << 20,
    .max_json_depth = 100,
    .max_tensors = 64,
    .size_option = "--http-max-input-size",
};

/** Arena, buffer and error of one test. */
struct bench {
    struct mr_arena arena;
    struct mr_buf buf;
    struct mr_err err;
    uint8_t *body; /* exactly as large as the message, at its own address */
    size_t body_len;
};

static inline void bench_init(struct bench *b)
{
    *b = (struct bench){0};
    mr_arena_init(&b->arena, 16384, 8u << 20);
    mr_buf_init(&b->buf, 0);
}

static inline void bench_fini(struct bench *b)
{
    mr_arena_fini(&b->arena);
    mr_buf_fini(&b->buf);
    free(b->body);
}

/** Keep a copy of `bytes` as the body, so that AddressSanitizer sees a read past its end. */
static inline mr_bytes bench_body(struct bench *b, const void *bytes, size_t len)
{
    free(b->body);
    b->body = malloc(len ? len : 1);
    assert_non_null(b->body);
    if (len > 0) {
        memcpy(b->body, bytes, len);
    }
    b->body_len = len;
    return (mr_bytes){b->body, len};
}

/** Join the pieces of an encoded message, dropping the references that they carry. */
static inline mr_bytes bench_join(struct bench *b, const struct mr_oip_encoded *e)
{
    free(b->body);
    b->body = malloc(e->bytes ? (size_t)e->bytes : 1);
    assert_non_null(b->body);
    b->body_len = 0;
    for (size_t i = 0; i < e->piece_count; i++) {
        struct mr_piece piece = e->pieces[i];
        memcpy(b->body + b->body_len, piece.ptr, piece.len);
        b->body_len += piece.len;
        mr_block_unref(&piece.block);
    }
    assert_int_equal(b->body_len, e->bytes);
    return (mr_bytes){b->body, b->body_len};
}

static inline bool str_is(mr_str s, const char *text)
{
    return mr_str_eq_c(s, text);
}

/** An element pattern for each data type: extremes first, then whatever 16 bits of a counter give. */
static inline void sample_fill(int dtype, void *data, uint64_t n)
{
    size_t size = mr_dtype_size(dtype);
    uint32_t state = 12345;
    for (uint64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        int32_t v = (int32_t)(state >> 8) - (1 << 23);
        uint64_t bits = (uint64_t)(int64_t)v;
        float f = (float)v / 4096.0f;
        double d = (double)v / 3.0;
        switch (dtype) {
        case MR_DTYPE_BOOL: bits = state >> 31; break;
        case MR_DTYPE_FP16: bits = mr_fp16_from_float(f / 16); break;
        case MR_DTYPE_BF16: bits = mr_bf16_from_float(f); break;
        case MR_DTYPE_FP32: memcpy(&bits, &f, 4); break;
        case MR_DTYPE_FP64: memcpy(&bits, &d, 8); break;
        default:
            if (i == 0) {
                bits = UINT64_C(1) << (size * 8 - 1); /* lowest signed */
            } else if (i == 1) {
                bits = (UINT64_C(1) << (size * 8 - 1)) - 1; /* highest signed */
            } else if (i == 2) {
                bits = UINT64_MAX;
            }
            break;
        }
        memcpy((char *)data + i * size, &bits, size);
    }
}

/** A tensor of n elements on the heap; BYTES elements of lengths 0.. with all kinds of characters. */
static inline struct mr_tensor sample_new(int dtype, const int64_t *shape, int rank)
{
    uint64_t n = 0;
    assert_int_equal(mr_shape_elements(shape, rank, &n, NULL), MR_OK);
    struct mr_tensor t = {.dtype = dtype, .rank = rank, .shape = shape};
    static const char *const words[] = {"",
                                        "a",
                                        "\"quoted\\\"",
                                        "tab\tnewline\n",
                                        "\xc3\xa4\xe2\x82\xac",
                                        "\xf0\x9f\x99\x82 smile",
                                        "plain text that is longer"};
    if (dtype != MR_DTYPE_BYTES) {
        t.bytes = n * mr_dtype_size(dtype);
        t.data = malloc(t.bytes ? (size_t)t.bytes : 1);
        sample_fill(dtype, t.data, n);
        return t;
    }
    for (uint64_t i = 0; i < n; i++) {
        t.bytes += 4 + strlen(words[i % COUNT_OF(words)]);
    }
    char *to = t.data = malloc(t.bytes ? (size_t)t.bytes : 1);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t len = (uint32_t)strlen(words[i % COUNT_OF(words)]);
        memcpy(to, &len, 4);
        memcpy(to + 4, words[i % COUNT_OF(words)], len);
        to += 4 + len;
    }
    return t;
}

static inline bool tensors_equal(const struct mr_tensor *a, const struct mr_tensor *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes &&
           memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0 &&
           (a->bytes == 0 || memcmp(a->data, b->data, (size_t)a->bytes) == 0);
}

static inline bool is_aligned(const struct mr_tensor *t)
{
    size_t size = mr_dtype_size(t->dtype);
    return size <= 1 || (uintptr_t)t->data % size == 0;
}

#endif
