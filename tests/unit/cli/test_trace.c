/* Traces of workflows: from text to lines and pictures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "cli/workflow/trace.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static int read(const char *text, struct mr_arena *arena, struct trace *t, struct mr_err *err)
{
    mr_arena_init(arena, 1024, 1 << 20);
    return trace_read(mr_str_c(text), arena, t, err);
}

static void expect(const char *text, unsigned width, const char *wanted)
{
    struct mr_arena arena;
    struct trace t;
    struct mr_err err = {0};
    struct mr_buf out;

    mr_buf_init(&out, 0);
    assert_int_equal(read(text, &arena, &t, &err), MR_OK);
    trace_text(&t, width, &out);
    assert_string_equal(mr_buf_cstr(&out), wanted);
    mr_buf_fini(&out);
    mr_arena_fini(&arena);
}

static void bars(void **state)
{
    (void)state;
    expect(
        "{\"name\":\"w\",\"ns\":2000,\"nodes\":["
        "{\"name\":\"a\",\"outcome\":\"ran\",\"start\":0,\"end\":1000,\"calls\":1,\"model\":\"m\"},"
        "{\"name\":\"bb\",\"outcome\":\"skipped\"},"
        "{\"name\":\"c\",\"outcome\":\"ran\",\"start\":1000,\"end\":2000,\"calls\":2}],\"omitted\":"
        "4}",
        0,
        "w: 2.00 us\n"
        "a     ran      ██████████             1.00 us  m\n"
        "bb    skipped\n"
        "c     ran                ██████████   1.00 us  2 calls\n"
        "(4 nodes more)\n");
    /* a workflow within it, at the times of the whole; a bar has one cell at least */
    expect(
        "{\"name\":\"w\",\"ns\":2000,\"nodes\":[{\"name\":\"a\",\"outcome\":\"ran\",\"start\":1000,"
        "\"end\":2000,\"calls\":1,\"workflow\":{\"name\":\"i\",\"ns\":1,\"nodes\":[{\"name\":\"x\","
        "\"outcome\":\"fallback\",\"start\":0,\"end\":0,\"by\":\"y\",\"variant\":\"v\"}]}}]}",
        0,
        "w: 2.00 us\n"
        "a     ran                 ██████████   1.00 us\n"
        "  x   fallback            █                  0  variant v, by y\n");
}

static void refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "[]",
                                        "{\"nodes\":[1]}",
                                        "{\"nodes\":[{\"start\":1.5}]}",
                                        "{} x",
                                        "{\"nodes\":[{\"workflow\":7}]}"};
    struct mr_arena arena;
    struct trace t;

    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct mr_err err = {0};
        assert_true(read(texts[i], &arena, &t, &err) < 0);
        assert_true(err.msg[0]);
        mr_arena_fini(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bars), cmocka_unit_test(refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
