/* Input of a user for `millrace infer`: literals, parameters, requests and .npy files, checked against a server's
 * metadata; and traces of a server, for `millrace workflow trace`. The first byte of the input chooses a type and a form. */
#include "fuzz.h"

#include "cli/common/array.h"
#include "cli/infer/infer.h"
#include "cli/workflow/trace.h"

static void check_array(const struct mr_array *a)
{
    uint64_t count = mr_array_count(a);
    size_t size = mr_dtype_size(a->dtype);

    REQUIRE(a->rank >= 0 && a->rank <= MR_MAX_RANK);
    REQUIRE(size == 0 || count * size == a->data.len);
}

/* Every conversion, then every shape; each from a fresh parse. */
static void literal(mr_str text, int dtype)
{
    static const int64_t shapes[][3] = {{-1, 2, 2}, {1, -1, 0}, {4, 0, 0}};

    for (int to = 0; to < 4; to++) {
        struct mr_array a;
        struct mr_err err = {0};
        mr_array_init(&a);
        if (mr_array_parse(text, dtype, &a, &err) == MR_OK) {
            REQUIRE(a.dtype == dtype);
            check_array(&a);
            if (to < 3 && mr_array_fit(&a, shapes[to],
                                       to == 0   ? 3
                                       : to == 1 ? 2
                                                 : 1,
                                       &err) == MR_OK) {
                check_array(&a);
            }
            if (to == 3 && mr_array_cast(&a, MR_DTYPE_FP32, &err) == MR_OK) {
                check_array(&a);
            }
        } else {
            REQUIRE(err.status < 0);
        }
        mr_array_fini(&a);
    }
}

/* Read, write, read again: the same array. */
static void npy(mr_bytes file, int dtype)
{
    struct mr_array a, again;
    struct mr_buf out;
    struct mr_err err = {0};

    mr_array_init(&a);
    mr_array_init(&again);
    mr_buf_init(&out, 0);
    if (mr_npy_parse(file, &a, &err) == MR_OK) {
        check_array(&a);
        struct mr_tensor t = {.dtype = a.dtype,
                              .rank = a.rank,
                              .shape = a.shape,
                              .data = a.data.ptr,
                              .bytes = a.data.len};
        REQUIRE(mr_npy_write(&t, &out, &err) == MR_OK);
        mr_bytes written = {(const uint8_t *)out.ptr, out.len};
        REQUIRE(mr_npy_parse(written, &again, &err) == MR_OK);
        REQUIRE(again.rank == a.rank && again.dtype == a.dtype);
        /* NumPy's S and U drop zeros at the end of a text. */
        REQUIRE(a.dtype == MR_DTYPE_BYTES ||
                mr_str_eq(mr_buf_view(&a.data), mr_buf_view(&again.data)));
        if (mr_array_cast(&a, dtype, &err) == MR_OK) {
            check_array(&a);
        }
    } else {
        REQUIRE(err.status < 0);
    }
    mr_array_fini(&a);
    mr_array_fini(&again);
    mr_buf_fini(&out);
}

static void parameter(mr_str text)
{
    struct infer x = {0};
    struct mr_err err = {0};
    char *line = malloc(text.len + 1);

    memcpy(line, text.ptr, text.len);
    line[text.len] = '\0';
    mr_arena_init(&x.arena, 1024, 1 << 20);
    (void)infer_add_parameter(&x, line, &err);
    mr_arena_fini(&x.arena);
    free(line);
}

static void metadata(mr_bytes body)
{
    struct mr_oip_metadata meta = {0};
    struct mr_arena arena;
    struct mr_err err = {0};

    mr_arena_init(&arena, 1024, 1 << 20);
    if (mr_oip_rest_decode_metadata(body, &arena, &meta, &err) == MR_OK) {
        for (size_t i = 0; i < meta.input_count; i++) {
            REQUIRE(meta.inputs[i].rank >= 0 && meta.inputs[i].rank <= MR_MAX_RANK);
            REQUIRE(mr_oip_find_input(&meta, meta.inputs[i].name) != NULL);
        }
    }
    mr_arena_fini(&arena);
}

/* A whole request from what was typed as --input (one per line), or from standard input. */
static void whole_request(mr_str text, int dtype, bool from_stdin)
{
    struct mr_oip_io inputs[] = {{MR_STR("X"), dtype, 2, {-1, 2}},
                                 {MR_STR("Y"), MR_DTYPE_FP32, 1, {-1}}};
    struct infer x = {
        .opt = {.model = "m", .version = "", .url = ""},
        .meta = {.inputs = inputs, .input_count = 2, .outputs = inputs + 1, .output_count = 1}};
    struct mr_err err = {0};
    FILE *terminal = stdin;
    const char *typed[8];
    char *lines = malloc(text.len + 1);

    memcpy(lines, text.ptr, text.len);
    lines[text.len] = '\0';
    mr_arena_init(&x.arena, 1024, 1 << 20);
    mr_buf_init(&x.stdin_text, 1 << 20);
    x.opt.classification = text.len % 3;
    for (char *at = lines; !from_stdin && at && x.opt.inputs.len < 8;) {
        typed[x.opt.inputs.len++] = strsep(&at, "\n");
    }
    x.opt.inputs.at = typed;
    stdin = fmemopen(lines, text.len + 1, "r");
    /* "@FILE" is read, and what lies on this disk is no part of the input. */
    if (stdin && (from_stdin || !memchr(text.ptr, '@', text.len))) {
        int rc = infer_build(&x, from_stdin, &err);
        REQUIRE(rc == MR_OK || (err.status < 0 && err.msg[0]));
        for (size_t i = 0; rc == MR_OK && i < x.request.input_count; i++) {
            REQUIRE(x.request.inputs[i].tensor.rank <= MR_MAX_RANK);
        }
    }
    if (stdin) {
        fclose(stdin);
    }
    stdin = terminal;
    for (size_t i = 0; i < x.arrays.len; i++) {
        mr_array_fini(x.arrays.at[i]);
        mr_free(x.arrays.at[i]);
    }
    MR_VEC_FINI(&x.arrays);
    mr_buf_fini(&x.stdin_text);
    mr_arena_fini(&x.arena);
    free(lines);
}

/* A trace of a server, and its pictures. */
static void trace(mr_str text)
{
    struct mr_arena arena;
    struct mr_buf out;
    struct trace t;
    struct mr_err err = {0};

    mr_arena_init(&arena, 1024, 4 << 20);
    mr_buf_init(&out, 4 << 20);
    if (trace_read(text, &arena, &t, &err) == MR_OK) {
        trace_text(&t, 60, &out);
        REQUIRE(!memchr(out.ptr, '\x1b', out.len));
        trace_svg(&t, &out);
    } else {
        REQUIRE(err.status < 0);
    }
    mr_buf_fini(&out);
    mr_arena_fini(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int types[] = {MR_DTYPE_BOOL, MR_DTYPE_INT8, MR_DTYPE_UINT64, MR_DTYPE_INT32,
                                MR_DTYPE_FP16, MR_DTYPE_BF16, MR_DTYPE_FP64,   MR_DTYPE_BYTES};

    if (size < 1) {
        return 0;
    }
    int dtype = types[data[0] % 8];
    mr_bytes rest = {data + 1, size - 1};
    mr_str text = mr_str_n((const char *)rest.ptr, rest.len);
    switch (data[0] >> 3 & 7) {
    case 0: literal(text, dtype); break;
    case 1: npy(rest, dtype); break;
    case 2: parameter(text); break;
    case 3: metadata(rest); break;
    case 7: trace(text); break;
    default: whole_request(text, dtype, data[0] & 64);
    }
    return 0;
}
