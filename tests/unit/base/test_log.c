/* The log: both formats, escaping, the rate limit, changing the file, many threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

static char path[64];
static struct mr_buf content;

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/mr_test_log_%d", (int)getpid());
    unlink(path);
    mr_log_set_format(MR_LOG_TEXT);
    return mr_log_set_file(path, NULL);
}

static int teardown(void **state)
{
    (void)state;
    mr_log_set_file(NULL, NULL);
    mr_log_set_verbose(0);
    unlink(path);
    mr_buf_fini(&content);
    return 0;
}

static const char *read_all(void)
{
    char chunk[4096];
    size_t n;
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    mr_buf_fini(&content); /* of the reading before */
    mr_buf_init(&content, 0);
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        mr_buf_append(&content, chunk, n);
    }
    fclose(f);
    return mr_buf_cstr(&content);
}

static unsigned line_count(const char *text)
{
    unsigned n = 0;

    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

static void text_format(void **state)
{
    (void)state;
    mr_log(MR_LOG_INFO, "model.ready", "model=%s version=%d", "a", 1);
    int line = __LINE__ - 1;
    const char *text = read_all();
    char want[128];
    /* 2026-11-21T14:03:01.123456Z I model.ready ... */
    assert_int_equal(strspn(text, "0123456789-T:.Z"), 27);
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[19], '.');
    assert_int_equal(text[26], 'Z');
    snprintf(want, sizeof want, " I model.ready model=a version=1 (test_log.c:%d)\n", line);
    assert_string_equal(text + 27, want);
}

static void triton_formats(void **state)
{
    (void)state;
    char want[128];
    mr_log_set_format(MR_LOG_DEFAULT);
    mr_log(MR_LOG_WARN, "model.ready", "model=\"%s\"\n", "a\\b");
    int line = __LINE__ - 1;
    mr_log_set_format(MR_LOG_ISO8601);
    mr_log(MR_LOG_INFO, "serve.ready", "%s", "");
    const char *text = read_all();
    /* W1121 14:03:01.123456 4711 test_log.c:12] "..." */
    assert_int_equal(text[0], 'W');
    assert_int_equal(strspn(text + 1, "0123456789: ."),
                     4 + 1 + 15 + 1 + strcspn(text + 22, " ") + 1);
    assert_int_equal(atoi(text + 22), getpid());
    snprintf(want, sizeof want, " test_log.c:%d] \"model.ready model=\\\"a\\\\b\\\"\\n\"\n", line);
    assert_memory_equal(text + 22 + strcspn(text + 22, " "), want, strlen(want));
    text = strchr(text, '\n') + 1;
    assert_int_equal(strspn(text, "0123456789-T:"), 19);
    snprintf(want, sizeof want, "Z I %d test_log.c:%d] \"serve.ready\"\n", (int)getpid(), line + 3);
    assert_string_equal(text + 19, want);
}

static void json_format(void **state)
{
    (void)state;
    mr_log_set_format(MR_LOG_JSON);
    assert_int_equal(mr_log_get_format(), MR_LOG_JSON);
    mr_log(MR_LOG_ERROR, "a.b", "q=\"%s\" \\ \xC3\xA4 \xFF", "x\ny\x01");
    const char *text = read_all();
    assert_memory_equal(text, "{\"ts\":\"", 7);
    assert_non_null(strstr(text, "Z\",\"level\":\"error\",\"event\":\"a.b\",\"q\":\"x\\ny\\u0001\","
                                 "\"msg\":\"\\\\ \xC3\xA4 \\ufffd\",\"src\":\"test_log.c:"));
    assert_string_equal(text + strlen(text) - 3, "\"}\n");
    assert_int_equal(line_count(text), 1);
}

/* The members of the last line, from the event's name to "src". */
static const char *members(void)
{
    static char out[4096];
    const char *begin = strstr(read_all(), "\"a.b\",");
    snprintf(out, sizeof out, "%.*s", (int)(strstr(begin, ",\"src\"") - begin - 6), begin + 6);
    return out;
}

static void pairs_become_members(void **state)
{
    (void)state;
    mr_log_set_format(MR_LOG_JSON);
    mr_log(MR_LOG_ERROR, "a.b", "m=%s v=%d f=%.2f w=%s b=%s it goes x=%d",
           MR_LOG_STR(MR_STR("a b")), -3, 1.5, "word", "true", 4);
    assert_string_equal(members(), "\"m\":\"a b\",\"v\":-3,\"f\":1.50,\"w\":\"word\",\"b\":true,"
                                   "\"msg\":\"it goes x=4\"");
}

static void only_the_format_makes_members(void **state)
{
    (void)state;
    mr_log_set_format(MR_LOG_JSON);
    mr_log(MR_LOG_ERROR, "a.b", "m=%s %s", MR_LOG_STR(MR_STR("q\" v=1 \x01\\ \xFF")),
           "level=no v=2");
    assert_string_equal(members(),
                        "\"m\":\"q\\\" v=1 \\u0001\\\\ \\u00ff\",\"msg\":\"level=no v=2\"");
}

static void odd_values_stay_json(void **state)
{
    (void)state;
    mr_log_set_format(MR_LOG_JSON);
    mr_log(MR_LOG_ERROR, "a.b", "n=%f s=%s q=\"%s\" e=%s", 0.0 / 0.0, "1e5", "C:\\q \\x1 \\", "");
    assert_null(strstr(members(), ":nan"));
    assert_non_null(strstr(members(), "\"s\":\"1e5\","));
}

static void control_characters_cannot_forge_a_line(void **state)
{
    (void)state;
    mr_log(MR_LOG_WARN, "x", "%s", "a\n2026 I forged\x1B[31m\x7F\xC2\x9B \x80");
    const char *text = read_all();
    assert_int_equal(line_count(text), 1);
    assert_non_null(strstr(text, " W x a\\n2026 I forged\\x1b[31m\\x7f\\x9b \\x80 ("));
}

static void quoting(void **state)
{
    char lengthy[400];

    (void)state;
    assert_string_equal(MR_LOG_STR(MR_STR("plain")), "\"plain\"");
    assert_string_equal(MR_LOG_STR(MR_STR("")), "\"\"");
    assert_string_equal(MR_LOG_STR(((mr_str){NULL, 0})), "\"\"");
    assert_string_equal(MR_LOG_STR(MR_STR("a\"b\\c\nd\x02")), "\"a\\\"b\\\\c\\nd\\x02\"");
    memset(lengthy, 'x', sizeof lengthy);
    struct mr_log_text t = mr_log_quote(mr_str_n(lengthy, 200));
    assert_int_equal(strlen(t.text), 202);
    t = mr_log_quote(mr_str_n(lengthy, 201));
    assert_int_equal(strlen(t.text), 205);
    assert_string_equal(t.text + 200, "x...\"");
    /* Half a character at the cut is left out, not shown as broken. */
    memcpy(lengthy + 198, "\xE2\x82\xAC", 3);
    t = mr_log_quote(mr_str_n(lengthy, sizeof lengthy));
    assert_string_equal(t.text + 198, "x...\"");
    memset(lengthy, 1, sizeof lengthy);
    t = mr_log_quote(mr_str_n(lengthy, sizeof lengthy));
    assert_true(strlen(t.text) < sizeof t.text);
    assert_string_equal(t.text + strlen(t.text) - 8, "\\x01...\"");
}

static void long_lines_keep_their_tail(void **state)
{
    static char lengthy[5000];

    (void)state;
    for (int format = MR_LOG_TEXT; format <= MR_LOG_JSON; format++) {
        mr_log_set_format((enum mr_log_format)format);
        for (size_t i = 0; i + 1 < sizeof lengthy; i++) {
            lengthy[i] = i % 2 ? '\x01' : '\xC3';
        }
        mr_log(MR_LOG_INFO, "long", "%s", lengthy);
        memset(lengthy, 'y', sizeof lengthy - 1);
        mr_log(MR_LOG_INFO, "long", "%s", lengthy);
    }
    const char *text = read_all();
    assert_int_equal(line_count(text), 4);
    assert_true(mr_utf8_valid(mr_str_c(text)));
    const char *json = strchr(text, '{');
    assert_non_null(json);
    assert_non_null(strstr(json, "...\",\"src\":\"test_log.c:"));
    assert_string_equal(text + strlen(text) - 3, "\"}\n");
}

static void levels(void **state)
{
    (void)state;
    assert_false(mr_log_enabled(MR_LOG_DEBUG));
    mr_log(MR_LOG_DEBUG, "no", "%d", 1);
    mr_log_set_verbose(1);
    assert_int_equal(mr_log_verbose(), 1);
    mr_log(MR_LOG_DEBUG, "yes", "%d", 2);
    mr_log_set_enabled(MR_LOG_INFO, false);
    mr_log(MR_LOG_INFO, "no", "%d", 3);
    mr_log_set_enabled(MR_LOG_INFO, true);
    /* A level from a backend may be anything. */
    mr_log_line(NULL, (enum mr_log_level)77, MR_HERE, "odd", "%d", 4);
    mr_log_line(NULL, (enum mr_log_level) - 1, MR_HERE, "odd", "%s", "");
    const char *text = read_all();
    assert_int_equal(line_count(text), 3);
    assert_non_null(strstr(text, " D yes 2 ("));
    assert_non_null(strstr(text, " D odd 4 ("));
    assert_non_null(strstr(text, " D odd ("));
}

static void floods_are_limited_by_call_site(void **state)
{
    struct mr_log_site site = {0};

    (void)state;
    for (int i = 0; i < 50; i++) {
        mr_log_line(&site, MR_LOG_INFO, "f.c:1", "flood", "i=%d", i);
    }
    mr_log_line(NULL, MR_LOG_INFO, "f.c:2", "other", "x");
    const char *text = read_all();
    assert_int_equal(line_count(text), 21);
    assert_non_null(strstr(text, "i=19 "));
    assert_null(strstr(text, "i=20 "));
    mr_buf_fini(&content);
    /* As if a second had passed. */
    atomic_fetch_sub(&site.window_ns, MR_NS_PER_S);
    mr_log_line(&site, MR_LOG_INFO, "f.c:1", "flood", "again");
    mr_log_line(&site, MR_LOG_INFO, "f.c:1", "flood", "and again");
    text = read_all();
    assert_non_null(strstr(text, " I flood again dropped=30 (f.c:1)\n"));
    assert_non_null(strstr(text, " I flood and again (f.c:1)\n"));
}

static void the_file_can_be_changed(void **state)
{
    struct mr_err err = {0};
    char moved[80];

    (void)state;
    assert_string_equal(mr_log_file(), path);
    mr_log(MR_LOG_INFO, "one", "%d", 1);
    snprintf(moved, sizeof moved, "%s.1", path);
    assert_int_equal(rename(path, moved), 0);
    mr_log(MR_LOG_INFO, "two", "%d", 2);
    assert_int_equal(mr_log_set_file(path, &err), MR_OK);
    mr_log(MR_LOG_INFO, "three", "%d", 3);
    const char *text = read_all();
    assert_int_equal(line_count(text), 1);
    assert_non_null(strstr(text, " three "));
    unlink(moved);

    assert_int_equal(mr_log_set_file("/nonexistent/folder/log", &err), MR_E_IO);
    assert_non_null(strstr(err.msg, "/nonexistent/folder/log: No such file"));
    assert_string_equal(mr_log_file(), path);
    assert_int_equal(mr_log_set_file("", NULL), MR_OK);
    assert_string_equal(mr_log_file(), "");
}

static void errno_is_kept(void **state)
{
    (void)state;
    assert_int_equal(mr_log_set_file("/dev/full", NULL), MR_OK);
    errno = 42;
    mr_log(MR_LOG_INFO, "x", "%d", 1);
    assert_int_equal(errno, 42);
}

#define WRITERS 3
#define LINES   400

static void *write_many(void *arg)
{
    for (int i = 0; i < LINES; i++) {
        mr_log_line(NULL, MR_LOG_INFO, "w.c:1", "w", "%d-%0*d", (int)(uintptr_t)arg, i % 90 + 1, i);
    }
    return NULL;
}

static void lines_of_many_threads_do_not_mix(void **state)
{
    static struct mr_log_site site;
    pthread_t threads[WRITERS];

    (void)state;
    for (uintptr_t i = 0; i < WRITERS; i++) {
        assert_int_equal(mr_thread_start(&threads[i], "writer", write_many, (void *)i, NULL),
                         MR_OK);
    }
    for (int i = 0; i < 20; i++) {
        assert_int_equal(mr_log_set_file(path, NULL), MR_OK);
        mr_log_set_format(i % 2 ? MR_LOG_TEXT : MR_LOG_ISO8601);
        (void)mr_log_file();
        mr_log_line(&site, MR_LOG_INFO, "w.c:2", "w", "9-0");
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    const char *text = read_all();
    assert_int_equal(line_count(text), WRITERS * LINES + 20);
    mr_str rest = mr_str_c(text);
    mr_str line;
    while (mr_str_split(&rest, '\n', &line) && line.len > 0) {
        bool is_text = mr_str_starts(mr_str_sub(line, 26, line.len), MR_STR("Z I w ")) &&
                       mr_str_ends(line, MR_STR(")"));
        bool is_iso = mr_str_starts(mr_str_sub(line, 19, line.len), MR_STR("Z I ")) &&
                      mr_str_ends(line, MR_STR("\""));
        assert_true(is_text || is_iso);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_format, setup, teardown),
        cmocka_unit_test_setup_teardown(triton_formats, setup, teardown),
        cmocka_unit_test_setup_teardown(json_format, setup, teardown),
        cmocka_unit_test_setup_teardown(pairs_become_members, setup, teardown),
        cmocka_unit_test_setup_teardown(only_the_format_makes_members, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_values_stay_json, setup, teardown),
        cmocka_unit_test_setup_teardown(control_characters_cannot_forge_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(quoting, setup, teardown),
        cmocka_unit_test_setup_teardown(long_lines_keep_their_tail, setup, teardown),
        cmocka_unit_test_setup_teardown(levels, setup, teardown),
        cmocka_unit_test_setup_teardown(floods_are_limited_by_call_site, setup, teardown),
        cmocka_unit_test_setup_teardown(the_file_can_be_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(errno_is_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_of_many_threads_do_not_mix, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
