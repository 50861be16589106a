/* Second calls of nodes with `hedge`; see hedge.c. Thread: that of the reply loop. */
#ifndef FLOW_HEDGE_H
#define FLOW_HEDGE_H

#include "exec.h"

/** Prepares a call whose arguments are made: c->hedge is set if there may be a second one, or this is it (c->first). Errors:
 *  MR_E_EXHAUSTED. */
int flow_hedge_make(struct call *c, struct mr_err *err);
/** A call with c->hedge is pending: the second one begins when it is time. */
void flow_hedge_begun(struct call *c);
/** The request of a call with c->hedge has ended. True: the call belongs to no walk any more, and is freed. */
bool flow_hedge_done(struct call *c);
/** Before the end of a call with c->hedge is taken. True: the other one has answered, and nothing is to be done. */
bool flow_hedge_lost(struct call *c);
/** A call with c->hedge has ended with `rc`. True: it has failed, and the other one goes on. Otherwise that one is
 *  cancelled. */
bool flow_hedge_waits(struct call *c, int rc);

#endif
