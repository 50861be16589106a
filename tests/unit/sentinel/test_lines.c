/* What is kept of a worker's output for the report of its end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "lines.h"

static void count(void *ctx, const char *line)
{
    (void)line;
    ++*(int *)ctx;
}

/* Reads what a worker would have written. Returns the number of lines. */
static int written(struct lines *l, const char *text)
{
    int fds[2], n = 0;

    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], text, strlen(text)), (ssize_t)strlen(text));
    close(fds[1]);
    assert_int_equal(lines_read(l, fds[0], count, &n), -1);
    close(fds[0]);
    return n;
}

static void test_the_newest_lines(void **state)
{
    static struct lines l;
    char out[1200], text[64];

    (void)state;
    lines_reset(&l);
    lines_tail(&l, out, sizeof out);
    assert_string_equal(out, "");
    assert_int_equal(written(&l, "one\ntwo\nthr"), 2);
    lines_tail(&l, out, sizeof out);
    assert_string_equal(out, "\"one\" \"two\"");
    assert_int_equal(written(&l, "ee\n"), 1);
    assert_string_equal(l.last, "three");
    for (int i = 0; i < 25; i++) {
        snprintf(text, sizeof text, "line %d\n", i);
        written(&l, text);
    }
    lines_tail(&l, out, sizeof out);
    assert_string_equal(out,
                        "\"line 15\" \"line 16\" \"line 17\" \"line 18\" \"line 19\" \"line 20\" "
                        "\"line 21\" \"line 22\" \"line 23\" \"line 24\"");
    lines_reset(&l);
    lines_tail(&l, out, sizeof out);
    assert_string_equal(out, "");
}

static void test_bounds(void **state)
{
    static struct lines l;
    char out[1200], text[LINES_BYTES + 2];

    (void)state;
    lines_reset(&l);
    memset(text, 'x', sizeof text);
    text[LINES_BYTES] = '\n';
    text[LINES_BYTES + 1] = '\0';
    for (int i = 0; i < LINES_KEPT; i++) {
        written(&l, text);
    }
    written(&l, "the end\n");
    lines_tail(&l, out, sizeof out);
    assert_true(strlen(out) < sizeof out);
    assert_true(strlen(out) > 4 * LINES_KEPT_BYTES); /* as many as fit */
    assert_string_equal(out + strlen(out) - 9, "\"the end\"");
    lines_tail(&l, out, 12);
    assert_string_equal(out, "\"the end\"");
    lines_tail(&l, out, 4);
    assert_string_equal(out, "");
}

static void test_what_is_no_text(void **state)
{
    static struct lines l;
    char out[64];

    (void)state;
    lines_reset(&l);
    written(&l, "a \"quoted\" \x1b[31mred\xff\n");
    lines_tail(&l, out, sizeof out);
    for (const char *c = out; *c; c++) {
        assert_true(*c >= ' ' && *c <= '~');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_newest_lines),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_what_is_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
