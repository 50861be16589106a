/* Which thread runs the client's loop. Private.
 *
 * A thread that waits for its own call runs the loop itself, so that a call costs no change of threads; a thread of the client
 * runs it while there is work that no caller waits for in this way. */
#ifndef MR_SDK_DRIVER_H
#define MR_SDK_DRIVER_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "net/loop.h"

struct driver {
    struct mr_loop *loop;
    /** Held by the thread that runs the loop. */
    pthread_mutex_t lock;
    _Atomic bool is_driven;
    /** Mails and calls that are not over; while there are any, a thread runs the loop. */
    _Atomic uint32_t work;
    pthread_t thread;
    sem_t wanted; /* the thread waits for it */
    _Atomic bool is_wanted;
    _Atomic bool is_ending;
    /** Threads between driver_enter and driver_leave: driver_settle waits for them. */
    _Atomic uint32_t users;
    pthread_mutex_t left_lock;
    bool is_closed, is_left_posted; /* left_lock */
    struct mr_mail left;
};

/** Errors: those of mr_loop_new and mr_thread_start. */
int driver_start(struct driver *d, struct mr_err *err);
/** The thread ends; the loop is the caller's then (driver_step). Threads that run it in driver_run leave it first. */
void driver_stop(struct driver *d);
/** After driver_stop: steps until no thread uses the loop. `is_idle`: whether there is nothing else that needs it. */
void driver_settle(struct driver *d, bool (*is_idle)(void *ctx), void *ctx);
/** After driver_stop. driver_enter fails from then on; `d` itself stays as long as others may call it. */
void driver_close(struct driver *d);
/** The memory is no one's any more. */
void driver_free(struct driver *d);

/** Keeps the loop until driver_leave. False: it ends. Thread: any. */
bool driver_enter(struct driver *d);
void driver_leave(struct driver *d);
/** One iteration, after driver_stop. */
void driver_step(struct driver *d);

/** Counts work, before it is posted. Thread: any. */
void driver_begin(struct driver *d);
/** The work is done. Thread: the loop's. */
void driver_end(struct driver *d);
/** Has the client's thread run the loop while there is work. Thread: any. */
void driver_wake(struct driver *d);
/** Runs the mail on the loop's thread. Thread: any. */
void driver_post(struct driver *d, struct mr_mail *mail);
/** Runs the mail, if any, then the loop in this thread until *is_done, until_ns (INT64_MAX: as long as it takes), or driver_stop. False:
 *  another thread runs it; nothing was done. Within driver_enter. */
bool driver_run(struct driver *d, struct mr_mail *mail, const _Atomic bool *is_done,
                int64_t until_ns);
/** When a wait of wait_ms ends, monotonic; < 0: INT64_MAX. 0 on the loop's own thread, which must not wait. Thread: any. */
int64_t driver_wait_end(struct driver *d, int64_t wait_ms);

#endif
