/* Answers to questions: of REST as they are, of gRPC as the same JSON, and what is neither. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "client/ask.h"

struct row {
    bool is_grpc;
    enum mr_ask ask;
    const char *body;
    size_t len;
    int rc;
    bool is_yes;
    const char *text; /* begins so */
};
#define ROW(is_grpc, ask, body, ...)                                                               \
    {                                                                                              \
        is_grpc, ask, body, sizeof(body) - 1, __VA_ARGS__                                          \
    }

static const struct row rows[] = {
    ROW(false, MR_ASK_READY, "", MR_OK, true, ""),
    ROW(false, MR_ASK_LIVE, "anything", MR_OK, true, ""),
    ROW(true, MR_ASK_READY, "\x08\x01", MR_OK, true, ""),
    ROW(true, MR_ASK_MODEL_READY, "\x08\x00", MR_OK, false, ""),
    ROW(true, MR_ASK_LIVE, "", MR_OK, false, ""),
    ROW(true, MR_ASK_READY, "\x08", MR_E_INVALID, false, ""),
    ROW(false, MR_ASK_SERVER, " {\"name\":\"x\"} ", MR_OK, false, "{\"name\":\"x\"}"),
    ROW(false, MR_ASK_SERVER, "[1]", MR_E_INVALID, false, ""),
    ROW(false, MR_ASK_MODEL, "{\"name\":", MR_E_INVALID, false, ""),
    ROW(false, MR_ASK_MODEL, "{} {}", MR_E_INVALID, false, ""),
    ROW(false, MR_ASK_MODEL_CONFIG, "", MR_E_INVALID, false, ""),
    ROW(true, MR_ASK_SERVER,
        "\x0a\x01x\x1a\x03"
        "ext",
        MR_OK, false, "{\"name\":\"x\",\"version\":\"\",\"extensions\":[\"ext\"]}"),
    ROW(true, MR_ASK_MODEL, "\x0a\x01m\x12\x01\x31", MR_OK, false,
        "{\"name\":\"m\",\"versions\":[\"1\"]"),
    ROW(true, MR_ASK_MODEL, "\x0a\x09m", MR_E_INVALID, false, ""),
    ROW(true, MR_ASK_MODEL_CONFIG, "\x0a\x03\x0a\x01m", MR_OK, false, "{\"name\":\"m\""),
    ROW(true, MR_ASK_MODEL_CONFIG, "\x0a\x03\x0a\x02m", MR_E_INVALID, false, ""),
};

static void answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mr_endpoint e = {.is_grpc = rows[i].is_grpc, .model = "m"};
        bool is_yes = false;
        struct mr_arena arena;
        struct mr_buf text;
        struct mr_err err;

        mr_arena_init(&arena, 1024, 1 << 20);
        mr_buf_init(&text, 1 << 20);
        const int rc = mr_endpoint_ask_decode(
            &e, rows[i].ask, (mr_bytes){(const uint8_t *)rows[i].body, rows[i].len}, &arena, &text,
            &is_yes, &err);
        if (rc != rows[i].rc || is_yes != rows[i].is_yes || text.len < strlen(rows[i].text) ||
            memcmp(text.ptr ? text.ptr : "", rows[i].text, strlen(rows[i].text)) != 0) {
            fail_msg("row %zu: %d, %d, '%.*s'", i, rc, is_yes, (int)text.len, text.ptr);
        }
        mr_buf_fini(&text);
        mr_arena_fini(&arena);
    }
}

static void what_is_no(void **state)
{
    const struct mr_client_response not_found = {.status = 404, .grpc_status = -1};
    const struct mr_client_response failed = {.status = 500, .grpc_status = -1};
    const struct mr_client_response away = {.status = 200, .grpc_status = MR_GRPC_UNAVAILABLE};
    const struct mr_client_response denied = {.status = 200,
                                              .grpc_status = MR_GRPC_PERMISSION_DENIED};

    (void)state;
    assert_true(mr_endpoint_ask_is_no(MR_ASK_MODEL_READY, MR_OK, &not_found));
    assert_true(mr_endpoint_ask_is_no(MR_ASK_READY, MR_E_UNAVAILABLE, &away));
    assert_false(mr_endpoint_ask_is_no(MR_ASK_MODEL, MR_OK, &not_found));
    assert_false(mr_endpoint_ask_is_no(MR_ASK_READY, MR_OK, &failed));
    assert_false(mr_endpoint_ask_is_no(MR_ASK_READY, MR_E_UNAVAILABLE, NULL)); /* no server */
    assert_false(mr_endpoint_ask_is_no(MR_ASK_READY, MR_E_FORBIDDEN, &denied));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),
        cmocka_unit_test(what_is_no),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
