/* How long hosts are left alone by what they say of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sdk/calls/judge.h"

static const struct {
    const char *name, *value;
    bool in_trailers;
    int64_t ms;
} waits[] = {
    {"retry-after", "2", false, 2000},
    {"retry-after", "99999999999", false, 86400000},
    {"retry-after", "99999999999999999999", false, 0},
    {"retry-after", "-1", false, 0},
    {"retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", false, 0}, /* past */
    {"retry-after", "Wed, 21 Oct 2199 07:28:00 GMT", false, 86400000},
    {"retry-after", "Wed, 21 Oct 2199 07:28:00 CET", false, 0},
    {"retry-after", "Wednesday, 21-Oct-99 07:28:00 GMT", false, 0},
    {"grpc-retry-pushback-ms", "250", true, 250},
    {"grpc-retry-pushback-ms", "250", false, 250}, /* an answer without anything else */
    {"grpc-retry-pushback-ms", "9223372036854775807", true, 86400000},
    {"grpc-retry-pushback-ms", "-1", true, 0},
    {"grpc-retry-pushback-ms", "soon", true, 0},
    {"retry-pushback-ms", "250", true, 0},
};

static void hosts_say_how_long_they_are_busy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        const struct mr_header h = {mr_str_c(waits[i].name), mr_str_c(waits[i].value)};
        const struct mr_err busy = {.status = MR_E_UNAVAILABLE, .msg = "busy"};
        const struct mr_client_response r = {.status = 200,
                                             .headers = waits[i].in_trailers ? NULL : &h,
                                             .header_count = !waits[i].in_trailers,
                                             .trailers = waits[i].in_trailers ? &h : NULL,
                                             .trailer_count = waits[i].in_trailers,
                                             .grpc_status = MR_GRPC_UNAVAILABLE};
        struct mr_err err;
        const struct judgement j = judge_answer(MR_E_UNAVAILABLE, &busy, &r, NULL, &err);

        assert_int_equal(j.outcome, MR_BALANCE_THROTTLED);
        assert_true(j.may_retry && j.status == MR_E_UNAVAILABLE);
        if (j.retry_after_ns != waits[i].ms * MR_NS_PER_MS) {
            fail_msg("%s: %s: %lld ns", waits[i].name, waits[i].value, (long long)j.retry_after_ns);
        }
    }
}

/* Over gRPC, by what stands before the host and knows nothing of it. */
static void proxies(void **state)
{
    (void)state;
    static const struct {
        int http;
        enum mr_balance_outcome outcome;
        bool may_retry;
    } rows[] = {
        {429, MR_BALANCE_THROTTLED, true}, {502, MR_BALANCE_FAILED, true},
        {503, MR_BALANCE_THROTTLED, true}, {504, MR_BALANCE_FAILED, true},
        {404, MR_BALANCE_REJECTED, true},  {403, MR_BALANCE_REJECTED, false},
        {302, MR_BALANCE_FAILED, false},
    };
    const struct mr_header after = {MR_STR("retry-after"), MR_STR("2")};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mr_err cause = {.status = MR_E_UNAVAILABLE, .msg = "HTTP status"};
        const struct mr_client_response r = {
            .status = rows[i].http, .headers = &after, .header_count = 1, .grpc_status = -1};
        struct mr_err err;
        const struct judgement j = judge_answer(MR_E_UNAVAILABLE, &cause, &r, NULL, &err);

        if (j.outcome != rows[i].outcome || j.may_retry != rows[i].may_retry) {
            fail_msg("HTTP status %d: outcome %d, retry %d", rows[i].http, j.outcome, j.may_retry);
        }
        assert_int_equal(j.status, MR_E_UNAVAILABLE);
        assert_int_equal(j.retry_after_ns, 2 * MR_NS_PER_S);
    }
}

/* What is no answer may be one elsewhere, and the host is at fault. A request that net refuses is the caller's. */
static void broken_answers(void **state)
{
    (void)state;
    const struct {
        int rc;
        uint32_t flags;
        const struct mr_client_response *response;
        int status;
        enum mr_balance_outcome outcome;
        bool may_retry;
    } rows[] = {
        {MR_E_INVALID, MR_ERR_PEER, NULL, MR_E_INTERNAL, MR_BALANCE_FAILED, true},
        {MR_E_TOO_LARGE, MR_ERR_PEER, NULL, MR_E_INTERNAL, MR_BALANCE_FAILED, true},
        {MR_E_INVALID, MR_ERR_PEER, &(struct mr_client_response){.status = 200, .grpc_status = -1},
         MR_E_INTERNAL, MR_BALANCE_FAILED, true},
        {MR_E_INVALID, MR_ERR_PEER, &(struct mr_client_response){.status = 200, .grpc_status = 0},
         MR_E_INTERNAL, MR_BALANCE_FAILED, true},
        {MR_E_INVALID, 0, &(struct mr_client_response){.status = 200, .grpc_status = 3},
         MR_E_INVALID, MR_BALANCE_REJECTED, false},
        {MR_E_INVALID, 0, NULL, MR_E_INVALID, MR_BALANCE_REJECTED, false},
        {MR_E_EXHAUSTED, 0, NULL, MR_E_EXHAUSTED, MR_BALANCE_REJECTED, false},
        {MR_E_UNAVAILABLE, 0, NULL, MR_E_UNAVAILABLE, MR_BALANCE_FAILED, true},
        {MR_E_TOO_LARGE, 0, NULL, MR_E_TOO_LARGE, MR_BALANCE_REJECTED, false},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct mr_err cause = {.status = rows[i].rc, .flags = rows[i].flags, .msg = "so"};
        struct mr_err err;
        const struct judgement j = judge_answer(rows[i].rc, &cause, rows[i].response, NULL, &err);

        if (j.status != rows[i].status || j.outcome != rows[i].outcome ||
            j.may_retry != rows[i].may_retry) {
            fail_msg("row %zu: %d, outcome %d, retry %d", i, j.status, j.outcome, j.may_retry);
        }
        assert_int_equal(err.status, j.status);
        assert_int_equal(err.flags, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hosts_say_how_long_they_are_busy),
                                       cmocka_unit_test(proxies), cmocka_unit_test(broken_answers)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
