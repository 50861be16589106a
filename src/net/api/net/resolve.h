/* Name look-up on a loop. Thread: loop. */
#ifndef MR_NET_RESOLVE_H
#define MR_NET_RESOLVE_H

#include "net/loop.h"

struct mr_resolve;
/** addresses: "1.2.3.4:PORT" and "[v6]:PORT", in the order of the look-up, each once; valid until this returns. rc:
 *  MR_OK with one at least, or MR_E_UNAVAILABLE, saying why. */
typedef void(mr_resolve_fn)(void *ctx, int rc, const struct mr_err *err,
                            const char *const *addresses, size_t count);

/** All addresses of a name. `done` is called once, never from within this; then *out is gone. Errors: MR_E_INVALID. */
int mr_resolve_start(struct mr_resolve **out, struct mr_loop *loop, const char *name,
                     const char *port, mr_resolve_fn *done, void *ctx, struct mr_err *err);
/** `done` will not be called. NULL is allowed. A look-up that hangs keeps the loop from going until it is over. */
void mr_resolve_cancel(struct mr_resolve **r);

#endif
