/* Name look-up on a loop. Thread: loop. */
#ifndef MR_NET_RESOLVE_H
#define MR_NET_RESOLVE_H

#include "net/loop.h"

struct mr_lookup;
/** addresses: "1.2.3.4:PORT" and "[v6]:PORT", in the order of the look-up, each once; valid during the call. rc:
 *  MR_OK with at least one address, or MR_E_UNAVAILABLE with the reason in err. */
typedef void(mr_resolve_fn)(void *ctx, int rc, const struct mr_err *err,
                            const char *const *addresses, size_t count);

/** Looks up all addresses of a name. `done` is called once, never from within this call; *out is freed after it.
 *  Errors: MR_E_INVALID. */
int mr_resolve_start(struct mr_lookup **out, struct mr_loop *loop, const char *name,
                     const char *port, mr_resolve_fn *done, void *ctx, struct mr_err *err);
/** Cancels: `done` is not called. Accepts NULL. A look-up that hangs delays the end of the loop until it returns. */
void mr_resolve_cancel(struct mr_lookup **r);

#endif
