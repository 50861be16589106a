/* An inference changes nothing on the server, so that all may be asked again of which another host may think otherwise: what did
 * not arrive, was cut off or is no answer of the protocol, came too late, or met a server that is busy or does not have the model (yet). What the server says of
 * the request itself, and an error of the model, are answers. */
#include "judge.h"

#include <stdio.h>

#include "oip/oip.h"

/* {"error":"..."}, or the beginning of what is there. */
static void error_text(const struct mr_client_response *r, struct mr_arena *arena, int status,
                       struct mr_err *out)
{
    struct mr_oip_response response;
    struct mr_err answer;

    if (mr_oip_rest_decode_response(r->body, -1, NULL, arena, &response, &answer) == MR_E_UNKNOWN) {
        MR_FAIL(out, status, "%s", answer.msg);
        return;
    }
    MR_FAIL(out, status, "HTTP status %d%s%.*s", r->status, r->body.len ? ": " : "",
            (int)MR_MIN(r->body.len, (size_t)200), (const char *)r->body.ptr);
}

static const struct {
    int http; /* 0: any other one */
    int status;
    enum mr_balance_outcome outcome;
    bool may_retry;
} of_http[] = {
    {400, MR_E_INVALID, MR_BALANCE_REJECTED, false},
    {401, MR_E_FORBIDDEN, MR_BALANCE_REJECTED, false},
    {403, MR_E_FORBIDDEN, MR_BALANCE_REJECTED, false},
    {404, MR_E_NOT_FOUND, MR_BALANCE_REJECTED, true},
    {408, MR_E_DEADLINE, MR_BALANCE_FAILED, true},
    {413, MR_E_TOO_LARGE, MR_BALANCE_REJECTED, false},
    {429, MR_E_UNAVAILABLE, MR_BALANCE_THROTTLED, true},
    {499, MR_E_CANCELLED, MR_BALANCE_REJECTED, false},
    {500, MR_E_INTERNAL, MR_BALANCE_FAILED, false},
    {501, MR_E_UNSUPPORTED, MR_BALANCE_REJECTED, false},
    {502, MR_E_UNAVAILABLE, MR_BALANCE_FAILED, true},
    {503, MR_E_UNAVAILABLE, MR_BALANCE_THROTTLED, true},
    {504, MR_E_DEADLINE, MR_BALANCE_FAILED, true},
    {0, MR_E_UNKNOWN, MR_BALANCE_FAILED, false},
};

static size_t row_of_http(int http)
{
    size_t i = 0;

    while (of_http[i].http != 0 && of_http[i].http != http) {
        i++;
    }
    return i;
}

static struct judgement judge_http(const struct mr_client_response *r, struct mr_arena *arena,
                                   struct mr_err *out)
{
    const size_t i = row_of_http(r->status);

    error_text(r, arena, of_http[i].status, out);
    return (struct judgement){.outcome = of_http[i].outcome,
                              .retry_after_ns = mr_client_retry_after_ns(r),
                              .may_retry = of_http[i].may_retry,
                              .status = of_http[i].status};
}

static const struct {
    int code; /* -1: any other one */
    enum mr_balance_outcome outcome;
    bool may_retry;
} of_grpc[] = {
    {MR_GRPC_INVALID_ARGUMENT, MR_BALANCE_REJECTED, false},
    {MR_GRPC_DEADLINE_EXCEEDED, MR_BALANCE_TIMED_OUT, true},
    {MR_GRPC_NOT_FOUND, MR_BALANCE_REJECTED, true},
    {MR_GRPC_PERMISSION_DENIED, MR_BALANCE_REJECTED, false},
    {MR_GRPC_RESOURCE_EXHAUSTED, MR_BALANCE_THROTTLED, true},
    {MR_GRPC_FAILED_PRECONDITION, MR_BALANCE_REJECTED, false},
    {MR_GRPC_OUT_OF_RANGE, MR_BALANCE_REJECTED, false},
    {MR_GRPC_UNIMPLEMENTED, MR_BALANCE_REJECTED, false},
    {MR_GRPC_UNAVAILABLE, MR_BALANCE_THROTTLED, true},
    {MR_GRPC_UNAUTHENTICATED, MR_BALANCE_REJECTED, false},
    {-1, MR_BALANCE_FAILED, false},
};

/* Without a status of gRPC: a proxy's answer, say. */
static struct judgement judge_proxy(int rc, const struct mr_client_response *r)
{
    const size_t i = row_of_http(r->status);

    return (struct judgement){.outcome = of_http[i].outcome,
                              .retry_after_ns = mr_client_retry_after_ns(r),
                              .may_retry = of_http[i].may_retry,
                              .status = rc};
}

static struct judgement judge_grpc(int rc, const struct mr_client_response *r,
                                   const struct mr_err *err)
{
    size_t i = 0;

    while (of_grpc[i].code >= 0 && of_grpc[i].code != r->grpc_status) {
        i++;
    }
    struct judgement j = {.outcome = of_grpc[i].outcome,
                          .retry_after_ns = mr_client_retry_after_ns(r),
                          .may_retry = of_grpc[i].may_retry,
                          .status = rc};
    /* Servers say RESOURCE_EXHAUSTED of messages that are too large, too. */
    if (r->grpc_status == MR_GRPC_RESOURCE_EXHAUSTED && strstr(err->msg, "larger than max")) {
        j.outcome = MR_BALANCE_REJECTED;
        j.may_retry = false;
    }
    return j;
}

bool judge_is_no(const struct judgement *j)
{
    return j->outcome == MR_BALANCE_THROTTLED || j->outcome == MR_BALANCE_REJECTED;
}

/* Without an answer. What net refuses by itself says nothing of the host. */
static struct judgement judge_end(int rc)
{
    struct judgement j = {.outcome = MR_BALANCE_FAILED,
                          .may_retry = rc == MR_E_DEADLINE || rc == MR_E_UNAVAILABLE,
                          .status = rc};

    switch (rc) {
    case MR_E_DEADLINE: j.outcome = MR_BALANCE_TIMED_OUT; break;
    case MR_E_CANCELLED: j.outcome = MR_BALANCE_CANCELLED; break;
    case MR_E_INVALID:
    case MR_E_TOO_LARGE:
    case MR_E_EXHAUSTED: j.outcome = MR_BALANCE_REJECTED; break;
    default: break;
    }
    return j;
}

struct judgement judge_answer(int rc, const struct mr_err *err,
                              const struct mr_client_response *response, struct mr_arena *arena,
                              struct mr_err *out_err)
{
    if (rc == MR_OK && response->status == 200) {
        return (struct judgement){.outcome = MR_BALANCE_OK, .status = MR_OK};
    }
    if (rc == MR_OK) {
        return judge_http(response, arena, out_err);
    }
    *out_err = *err;
    out_err->status = rc;
    if (err->flags & MR_ERR_PEER) { /* the host has broken the protocol: no answer arrived */
        out_err->status = MR_E_INTERNAL;
        out_err->flags &= ~MR_ERR_PEER;
        return (struct judgement){
            .outcome = MR_BALANCE_FAILED, .may_retry = true, .status = MR_E_INTERNAL};
    }
    if (response && response->grpc_status < 0 && response->status != 200) {
        return judge_proxy(rc, response);
    }
    if (response) {
        return judge_grpc(rc, response, err);
    }
    return judge_end(rc);
}
