/* What an answer means: for the host, for the caller, and whether another attempt may do better. Private. Any thread. */
#ifndef MR_SDK_JUDGE_H
#define MR_SDK_JUDGE_H

#include "balance/balance.h"
#include "base/arena.h"
#include "net/client.h"

struct judgement {
    enum mr_balance_outcome outcome;
    int64_t retry_after_ns;
    bool may_retry; /* on another host, or later */
    int status;     /* enum mr_status; MR_OK: the body is an answer */
};

/** The host has said no, and has not failed: another attempt is not taken from the budget. */
bool judge_is_no(const struct judgement *j);
/** rc, err and response are those of mr_client_done_fn, of a call or a stream; *out_err says what is wrong unless status is
 *  MR_OK. */
struct judgement judge_answer(int rc, const struct mr_err *err,
                              const struct mr_client_response *response, struct mr_arena *arena,
                              struct mr_err *out_err);

#endif
