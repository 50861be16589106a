/* Status codes and the error value that every fallible Millrace function fills.
 *
 * A fallible function returns MR_OK (0) or one of the negative codes below, and fills the caller's `struct mr_err`
 * (if not NULL) with a message. The struct has a fixed size and no pointers, so that it travels by value through
 * queues, shared memory and the plugin boundary.
 *
 * Used by the server, by backends (backend.h) and by clients. Plain C11 and C++11. */
#ifndef MILLRACE_STATUS_H
#define MILLRACE_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, text, HTTP status, gRPC status). Append only: the values cross the plugin ABI.
 * HTTP codes follow Triton's mapping (all errors of the caller are 400). */
#define MR_STATUS_LIST(X)                                                                          \
    X(UNKNOWN, -1, "unknown error", 400, 2)                                                        \
    X(INVALID, -2, "invalid argument", 400, 3)                                                     \
    X(NOT_FOUND, -3, "not found", 404, 5)                                                          \
    X(EXISTS, -4, "already exists", 400, 6)                                                        \
    X(UNAVAILABLE, -5, "unavailable", 503, 14)                                                     \
    X(UNSUPPORTED, -6, "not supported", 501, 12)                                                   \
    X(INTERNAL, -7, "internal error", 500, 13)                                                     \
    X(CANCELLED, -8, "cancelled", 400, 1)                                                          \
    X(DEADLINE, -9, "deadline exceeded", 504, 4)                                                   \
    X(EXHAUSTED, -10, "out of a bounded resource", 503, 8)                                         \
    X(TOO_LARGE, -11, "larger than the limit", 400, 8)                                             \
    X(FORBIDDEN, -12, "forbidden", 403, 7)                                                         \
    X(NOMEM, -13, "out of memory", 503, 8)                                                         \
    X(IO, -14, "input/output error", 500, 13)                                                      \
    X(CLOSED, -15, "closed", 503, 14)

enum mr_status {
    MR_OK = 0,
#define MR_STATUS_ENUM(name, value, text, http, grpc) MR_E_##name = (value),
    MR_STATUS_LIST(MR_STATUS_ENUM)
#undef MR_STATUS_ENUM
};

/** Detail of one failure. `msg` is a sentence without a trailing newline; `where` is "file.c:line" as text, so that
 *  it survives a copy to another process. All bytes are defined. */
struct mr_err {
    int32_t status; /* enum mr_status, MR_OK when nothing failed */
    uint32_t flags; /* MR_ERR_*                                  */
    char where[40];
    char msg[464];
};

/** The same call may succeed later without any change by the caller. */
#define MR_ERR_RETRYABLE 1u
/** By `execute` of a batch: the outputs of its requests do not fit together, or those of one of them are wrong. The host
 *  runs smaller batches, down to single requests, so that each gets its own outputs or failure. */
#define MR_ERR_APART 2u

#ifdef __cplusplus
}
#endif
#endif
