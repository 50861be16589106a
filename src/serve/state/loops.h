/* The network threads, and the calls that last on them. Thread: the loop, unless noted. */
#ifndef MR_SERVE_STATE_LOOPS_H
#define MR_SERVE_STATE_LOOPS_H

#include "state.h"

/* The target of call->user while a call waits. */
struct serve_pending {
    void (*cancel)(struct serve_pending *p);
    void (*room)(struct serve_pending *p); /* after mr_call_when_room */
    void (*data)(struct serve_pending *p, mr_bytes data, bool last);
    /* Open calls: readiness may have changed; when the server exits they end soon. May end its own call only. */
    void (*changed)(struct serve_pending *p);
    LIST_ENTRY(serve_pending) link; /* of the loop's open calls */
};

/* The loop that this thread runs; NULL: none. */
struct serve_loop *serve_here(void);
int loops_open(struct mr_server *s, struct mr_err *err);
/* Descriptors by which worker processes wake the loops: a new array. NULL: there are too few. */
struct mr_shm_door *loops_doors(struct mr_server *s);
int loops_start(struct mr_server *s, struct mr_err *err);
void loops_stop(struct mr_server *s);
void serve_notify(struct mr_server *s);
/* For streams and watches: `changed` is called between these two. */
void serve_open(struct serve_pending *p);
void serve_closed(struct serve_pending *p);

#endif
