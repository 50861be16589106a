/* Server-sent events, in whatever pieces they come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "client/events.h"

static void put(void *ctx, mr_str name, mr_str data)
{
    struct mr_buf *seen = ctx;

    mr_buf_printf(seen, "[%.*s|%.*s]", MR_STR_ARG(name), MR_STR_ARG(data));
}

/* What a text gives in pieces of that many bytes. */
static void assert_gives(const char *text, size_t piece, const char *expected)
{
    struct mr_event_text t;
    struct mr_buf seen;
    const size_t len = strlen(text);

    mr_buf_init(&seen, 0);
    mr_event_text_init(&t, 1000);
    for (size_t at = 0; at < len; at += piece) {
        const mr_bytes part = {(const uint8_t *)text + at, MR_MIN(piece, len - at)};
        assert_int_equal(mr_event_text_feed(&t, part, put, &seen, NULL), MR_OK);
    }
    assert_string_equal(mr_buf_cstr(&seen), expected);
    mr_event_text_fini(&t);
    mr_buf_fini(&seen);
}

static void forms(void **state)
{
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"event: model\ndata: {\"a\":1}\n\n", "[model|{\"a\":1}]"},
        {"data:x\n\ndata:  y\n\n", "[message|x][message| y]"},
        {"data: 1\r\ndata: 2\r\n\r\n", "[message|1\n2]"},
        {"data: 1\rdata\r\r", "[message|1\n]"},
        {":\n\n: still here\n", "[|][| still here]"},
        {"event: gone\n\ndata: x\n\n", "[message|x]"},
        {"id: 7\nretry: 5\nother\nevent: a\nevent: b\ndata: x\n\n", "[b|x]"},
        {"data: not yet\n", ""},
        {"\n\n\n", ""},
        {"data\n\n", "[message|]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t piece = 1; piece <= strlen(rows[i].text); piece++) {
            assert_gives(rows[i].text, piece, rows[i].expected);
        }
    }
}

static void too_large(void **state)
{
    static const char *const rows[] = {"xxxxxxxxxxxxxxxxxx", "data: 12345678\ndata: 12345678\n",
                                       "data: 12345678\ndata: 12345678\n\n"};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_event_text t;
        struct mr_buf seen;
        struct mr_err err;
        mr_buf_init(&seen, 0);
        mr_event_text_init(&t, 16);
        const mr_bytes all = {(const uint8_t *)rows[i], strlen(rows[i])};
        assert_int_equal(mr_event_text_feed(&t, all, put, &seen, &err), MR_E_TOO_LARGE);
        assert_int_equal(seen.len, 0);
        mr_event_text_fini(&t);
        mr_buf_fini(&seen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(too_large),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
