/* What the answers of hosts mean for a job: over gRPC, by the host or by a proxy before it, and over REST. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "batch/transport/transport.h"

struct row {
    int http;
    int grpc; /* -1: there is none */
    struct mr_header header;
    bool is_trailer;
    enum mr_balance_outcome outcome;
    int64_t wait_ms;
};

/* Over REST grpc is 0. */
static struct transport_answer judged(enum mr_batch_protocol protocol, const struct row *row)
{
    const struct transport w = {.protocol = protocol};
    const struct mr_err err = {.status = MR_E_UNAVAILABLE, .msg = "the host's words"};
    const struct mr_client_response response = {
        .status = row->http,
        .grpc_status = row->grpc,
        .headers = &row->header,
        .header_count = row->header.name.len > 0 && !row->is_trailer,
        .trailers = &row->header,
        .trailer_count = row->header.name.len > 0 && row->is_trailer};
    const struct transport_reply reply = {
        .rc = row->grpc ? MR_E_UNAVAILABLE : MR_OK, .err = &err, .response = &response};
    struct transport_answer a;

    transport_judge(&w, &reply, NULL, &a);
    return a;
}

static void check(enum mr_batch_protocol protocol, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct transport_answer a = judged(protocol, &rows[i]);
        if (a.outcome != rows[i].outcome || a.retry_after_ns != rows[i].wait_ms * MR_NS_PER_MS) {
            fail_msg("row %zu: outcome %d, %lld ns", i, a.outcome, (long long)a.retry_after_ns);
        }
    }
}

/* As initialisers of constants, which MR_STR is not. */
#define TEXT(s)                                                                                    \
    {                                                                                              \
        (s), sizeof(s) - 1                                                                         \
    }
#define AFTER(text)                                                                                \
    {                                                                                              \
        TEXT("retry-after"), TEXT(text)                                                            \
    }
#define PUSHBACK(text)                                                                             \
    {                                                                                              \
        TEXT("grpc-retry-pushback-ms"), TEXT(text)                                                 \
    }
#define NONE                                                                                       \
    {                                                                                              \
        TEXT(""), TEXT("")                                                                         \
    }

/* Where there is no status of gRPC, that of HTTP says it. */
static void proxies(void **state)
{
    (void)state;
    static const struct row rows[] = {
        {429, -1, AFTER("3"), false, MR_BALANCE_THROTTLED, 3000},
        {503, -1, AFTER("3"), false, MR_BALANCE_THROTTLED, 3000},
        {502, -1, NONE, false, MR_BALANCE_FAILED, 0},
        {504, -1, NONE, false, MR_BALANCE_FAILED, 0},
        {400, -1, NONE, false, MR_BALANCE_FAILED,
         0}, /* not by the host: the rows are not to blame */
        {200, -1, NONE, false, MR_BALANCE_FAILED, 0},
    };

    check(MR_BATCH_GRPC, rows, sizeof rows / sizeof *rows);
    assert_true(judged(MR_BATCH_GRPC, &(struct row){.http = 404, .grpc = -1}).is_for_good);
}

static void hosts_say_how_long_they_are_busy(void **state)
{
    (void)state;
    static const struct row grpc[] = {
        {200, MR_GRPC_UNAVAILABLE, PUSHBACK("3000"), true, MR_BALANCE_THROTTLED, 3000},
        {200, MR_GRPC_RESOURCE_EXHAUSTED, PUSHBACK("3000"), true, MR_BALANCE_THROTTLED, 3000},
        {200, MR_GRPC_RESOURCE_EXHAUSTED, PUSHBACK("250"), false, MR_BALANCE_THROTTLED, 250},
        {200, MR_GRPC_RESOURCE_EXHAUSTED, NONE, false, MR_BALANCE_THROTTLED, 0},
        {200, MR_GRPC_INVALID_ARGUMENT, PUSHBACK("3000"), true, MR_BALANCE_REJECTED, 0},
    };
    static const struct row rest[] = {
        {503, 0, AFTER("3"), false, MR_BALANCE_THROTTLED, 3000},
        {429, 0, AFTER("Wed, 21 Oct 2199 07:28:00 GMT"), false, MR_BALANCE_THROTTLED, 86400000},
        {503, 0, AFTER("Wed, 21 Oct 2015 07:28:00 GMT"), false, MR_BALANCE_THROTTLED, 0},
        {500, 0, AFTER("3"), false, MR_BALANCE_FAILED, 0},
    };

    check(MR_BATCH_GRPC, grpc, sizeof grpc / sizeof *grpc);
    check(MR_BATCH_JSON, rest, sizeof rest / sizeof *rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(proxies),
                                       cmocka_unit_test(hosts_say_how_long_they_are_busy)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
