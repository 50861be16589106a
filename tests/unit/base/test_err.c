/* Errors: filling, wrapping, cutting, and the tables of codes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

static int fail_here(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_NOT_FOUND, "model '%s': no version %d", "m", 3);
}

static void fills(void **state)
{
    struct mr_err err;

    (void)state;
    memset(&err, 0xFF, sizeof err);
    assert_int_equal(fail_here(&err), MR_E_NOT_FOUND);
    assert_int_equal(err.status, MR_E_NOT_FOUND);
    assert_int_equal(err.flags, 0);
    assert_string_equal(err.msg, "model 'm': no version 3");
    assert_memory_equal(err.where, "test_err.c:", 11);
    for (size_t i = strlen(err.msg); i < sizeof err.msg; i++) {
        assert_int_equal(err.msg[i], 0);
    }
    assert_int_equal(fail_here(NULL), MR_E_NOT_FOUND);
    assert_int_equal(MR_WRAP(NULL, MR_E_IO, "x"), MR_E_IO);
}

static void retryable(void **state)
{
    struct mr_err err = {0};

    (void)state;
    MR_FAIL(&err, MR_E_EXHAUSTED, "full");
    assert_int_equal(err.flags, MR_ERR_RETRYABLE);
    MR_FAIL(&err, MR_E_INVALID, "bad");
    assert_int_equal(err.flags, 0);
}

static void wraps(void **state)
{
    struct mr_err err = {0};

    (void)state;
    assert_int_equal(MR_WRAP(&err, fail_here(&err), "loading %s", "x"), MR_E_NOT_FOUND);
    assert_string_equal(err.msg, "loading x: model 'm': no version 3");
    /* The arguments may point into the error itself. */
    MR_FAIL(&err, MR_E_IO, "[%s]", err.msg);
    assert_string_equal(err.msg, "[loading x: model 'm': no version 3]");
    MR_WRAP(&err, MR_E_UNAVAILABLE, "%s", "host");
    assert_int_equal(err.status, MR_E_UNAVAILABLE);
    assert_int_equal(err.flags, MR_ERR_RETRYABLE);
    /* No message is set yet. */
    err = (struct mr_err){0};
    MR_WRAP(&err, MR_E_IO, "reading");
    assert_string_equal(err.msg, "reading: input/output error");
}

static void long_messages_are_cut_at_a_character(void **state)
{
    struct mr_err err = {0};
    char text[1024];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) {
            memcpy(text + i, "\xF0\x9F\x98\x80", 4);
        }
        text[sizeof text - 1] = '\0';
        MR_FAIL(&err, MR_E_INVALID, "%s", text);
        assert_true(strlen(err.msg) > sizeof err.msg - 5);
        assert_true(mr_utf8_valid(mr_str_c(err.msg)));
        for (int i = 0; i < 5; i++) {
            MR_WRAP(&err, MR_E_INVALID, "%s", "context \xC3\xA4");
            assert_true(mr_utf8_valid(mr_str_c(err.msg)));
        }
        MR_WRAP(&err, MR_E_INVALID, "%s", text);
        assert_true(mr_utf8_valid(mr_str_c(err.msg)));
        assert_true(strlen(err.msg) < sizeof err.msg);
    }
}

static void bytes_that_are_no_text_are_replaced(void **state)
{
    struct mr_err err = {0};

    (void)state;
    MR_FAIL(&err, MR_E_IO, "%s", "caf\xE9 \xF0\x9F \xFF");
    assert_string_equal(err.msg, "caf\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD");
    snprintf(err.msg, sizeof err.msg, "caf\xE9");
    MR_WRAP(&err, MR_E_IO, "%s", "here");
    assert_string_equal(err.msg, "here: caf\xEF\xBF\xBD");
    /* as others may leave it: without an end */
    memset(err.msg, 'a', sizeof err.msg);
    mr_err_tidy(&err);
    assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
    memset(err.msg, 0xFF, sizeof err.msg);
    mr_err_tidy(&err);
    assert_true(mr_utf8_valid(mr_str_c(err.msg)));
    assert_int_equal(strlen(err.msg), (sizeof err.msg - 1) / 3 * 3);
}

static void codes(void **state)
{
    (void)state;
    assert_string_equal(mr_status_name(MR_OK), "OK");
    assert_string_equal(mr_status_text(MR_OK), "ok");
    assert_int_equal(mr_status_http(MR_OK), 200);
    assert_int_equal(mr_status_grpc(MR_OK), 0);
    assert_string_equal(mr_status_name(MR_E_NOT_FOUND), "NOT_FOUND");
    assert_string_equal(mr_status_text(MR_E_NOT_FOUND), "not found");
    assert_int_equal(mr_status_http(MR_E_NOT_FOUND), 404);
    assert_int_equal(mr_status_grpc(MR_E_NOT_FOUND), 5);
    assert_int_equal(mr_status_http(MR_E_DEADLINE), 504);
    assert_int_equal(mr_status_grpc(MR_E_UNSUPPORTED), 12);
    static const int odd[] = {1, -100, INT_MIN, INT_MAX};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        assert_string_equal(mr_status_name(odd[i]), "UNKNOWN");
        assert_string_equal(mr_status_text(odd[i]), "unknown error");
        assert_int_equal(mr_status_http(odd[i]), mr_status_http(MR_E_UNKNOWN));
        assert_int_equal(mr_status_grpc(odd[i]), mr_status_grpc(MR_E_UNKNOWN));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills),
        cmocka_unit_test(retryable),
        cmocka_unit_test(wraps),
        cmocka_unit_test(long_messages_are_cut_at_a_character),
        cmocka_unit_test(bytes_that_are_no_text_are_replaced),
        cmocka_unit_test(codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
