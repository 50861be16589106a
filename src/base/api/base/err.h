/* How functions fail: an int status back, detail in the caller's `struct mr_err` (may be NULL).
 * See include/millrace/status.h for the codes. MR_FAIL is the one way to originate an error. */
#ifndef MR_BASE_ERR_H
#define MR_BASE_ERR_H

#include <stdarg.h>
#include <stdbool.h>

#include "millrace/status.h"

/** Fill *err (when not NULL) and return `status`. UNAVAILABLE and EXHAUSTED are marked retryable.
 *  The arguments may point into *err. A message that is too long is cut at a character; bytes that are not UTF-8 become
 *  U+FFFD. */
int mr_err_set(struct mr_err *err, int status, const char *where, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/** Puts "context: " before the message; returns `status`. */
int mr_err_wrap(struct mr_err *err, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** Does the same to a message that was written by others, perhaps to the last byte of its room. */
void mr_err_tidy(struct mr_err *err);

/** Sets *err to "no error". Cheaper than {0}, which clears half a kilobyte: this runs once per request. */
static inline void mr_err_clear(struct mr_err *err)
{
    err->status = MR_OK;
    err->flags = 0;
    err->where[0] = '\0';
    err->msg[0] = '\0';
}

#define MR_STRINGIFY2(x) #x
#define MR_STRINGIFY(x)  MR_STRINGIFY2(x)
#define MR_HERE          __FILE_NAME__ ":" MR_STRINGIFY(__LINE__)
#ifndef __FILE_NAME__
#    define __FILE_NAME__ __FILE__
#endif

/** return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.*s' ...", ...); */
#define MR_FAIL(err, status, ...) mr_err_set((err), (status), MR_HERE, __VA_ARGS__)
/** return MR_WRAP(err, rc, "loading %s", name); */
#define MR_WRAP(err, status, ...) mr_err_wrap((err), (status), __VA_ARGS__)
/** Sets the local `rc` and jumps to `out` when negative. */
#define MR_TRY(expr)                                                                               \
    do {                                                                                           \
        if ((rc = (expr)) < 0) {                                                                   \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/** Short name ("NOT_FOUND"), text ("not found") and wire codes of a status. Accepts any int. */
const char *mr_status_name(int status);
const char *mr_status_text(int status);
int mr_status_http(int status);
int mr_status_grpc(int status);

/** For bugs in Millrace only, never for what a peer, file, config, plugin or worker sends. Prints the place and
 *  aborts. */
#define MR_ASSERT(cond) ((cond) ? (void)0 : mr_assert_failed(#cond, MR_HERE))
_Noreturn void mr_assert_failed(const char *what, const char *where);

#endif
