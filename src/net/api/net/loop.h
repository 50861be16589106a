/* The event loop: one per thread, on libuv. Everything that belongs to a loop is used on its thread only; other
 * threads reach it by mr_loop_post. */
#ifndef MR_NET_LOOP_H
#define MR_NET_LOOP_H

#include "base/buf.h"
#include "base/err.h"
#include "base/hist.h"
#include "base/mailbox.h"
#include "base/turn.h"
#include "net/grpc_status.h"

struct mr_loop;
struct uv_loop_s;

/** Called around every sleep of the loop, on its thread: before_sleep after all work of an iteration (no protected
 *  pointer is held any more), after_wake before the next work. */
struct mr_loop_hooks {
    void (*before_sleep)(void *ctx);
    void (*after_wake)(void *ctx);
    /** (may be NULL) After the work of an iteration, as often as anything comes of it: takes what other processes have
     *  done, and has later ones write to mr_loop_door. Returns how many things it took. */
    size_t (*take)(void *ctx);
    void *ctx;
};

/** Make a loop; mr_loop_run drives it. Errors: MR_E_IO. Thread: any. */
int mr_loop_new(struct mr_loop **out, const struct mr_loop_hooks *hooks, struct mr_err *err);
/** Run on the calling thread, which becomes the loop's thread, until mr_loop_stop. */
void mr_loop_run(struct mr_loop *loop);
/** One iteration on the calling thread, which is the loop's thread until it returns: sleeps until something happens, works on it,
 *  sends the queued output and runs the posted mails; it does not sleep if there are some as it begins. `first` (may be NULL) is run before it sleeps, as a mail; if
 *  that leads to further mails, they are run in place of all else, as they may be what the caller waits for. */
void mr_loop_step(struct mr_loop *loop, struct mr_mail *first);
/** The loop polls for that time after its last work instead of sleeping: less latency for more CPU time. 0 (default):
 *  never. Thread: any, loop not running. */
void mr_loop_set_busy_poll(struct mr_loop *loop, int64_t ns);
/** Ask the loop to return from run as soon as its current iteration ends. Thread: any. */
void mr_loop_stop(struct mr_loop *loop);
/** Runs the posted mails and sends the queued output, without reading input: for a thread that is about to hand the
 *  loop to another one. Thread: the one that ran the loop, loop not running. */
void mr_loop_settle(struct mr_loop *loop);
/** All handles on it must be closed (listeners, connections, timers). Thread: any, loop not
 *  running. */
void mr_loop_free(struct mr_loop **loop);

/** Run mail->run(mail) on the loop's thread, later. Thread: any. */
void mr_loop_post(struct mr_loop *loop, struct mr_mail *mail);
bool mr_loop_is_here(const struct mr_loop *loop);

/** An eventfd that ends the loop's sleep when another process writes to it, and is not read: whoever finds it full empties
 *  it. Borrowed; opened at the first call. -1: no descriptor is left. Thread: any, loop not running. */
int mr_loop_door(struct mr_loop *loop);
/** One that only this process writes to. Borrowed. Thread: any. */
int mr_loop_bell(const struct mr_loop *loop);

/** One scratch buffer per loop, for building an answer within one callback. Reset it before use; its content does not
 *  outlast the callback. */
struct mr_buf *mr_loop_scratch(struct mr_loop *loop);
/** Long work of this loop: a slice of half a millisecond per iteration, after everything else. Thread: loop. */
struct mr_turns *mr_loop_turns(struct mr_loop *loop);
/** Time of the current iteration (one clock read per iteration). Thread: loop. */
int64_t mr_loop_now_ns(const struct mr_loop *loop);
/** libuv's loop, for modules that need another kind of handle (file watch). */
struct uv_loop_s *mr_loop_uv(struct mr_loop *loop);
/** The first call in every callback of such a handle: libuv runs these before the loop's own code after a sleep, and
 *  this runs the after_wake hook if it has not run yet. Thread: loop. */
void mr_loop_resume(struct mr_loop *loop);

/** Timers. The struct is the caller's memory, zeroed before its first start, and stays valid until
 *  stopped or fired (one-shot). Starting a running timer restarts it; stopping is immediate. Delays count from
 *  mr_loop_now_ns. They never fire early; below 100 ms they are exact to the kernel's timers (tens of microseconds),
 *  longer ones are rounded up to the next millisecond. A repeating timer does not make up for missed ticks. Thread:
 *  loop. */
struct mr_timer {
    void *heap_node[3];
    int64_t at_ns;
    int64_t seq;
    int64_t repeat_ns;
    struct mr_loop *loop;
    void (*fn)(struct mr_timer *t);
    bool active;
};
void mr_timer_start(struct mr_loop *loop, struct mr_timer *t, int64_t delay_ns, int64_t repeat_ns,
                    void (*fn)(struct mr_timer *t));
void mr_timer_stop(struct mr_timer *t);

#define MR_HTTP_STATUS_FIRST 100
#define MR_HTTP_STATUSES     500

/** Counters, written by the loop, read by anyone. Lag: time from wake-up to the end of the work of
 *  one iteration, that is, how long a new request may wait before it is read. */
struct mr_loop_stats {
    struct mr_hist lag_ns;
    _Atomic uint64_t iterations;
    _Atomic uint64_t mails;
    _Atomic uint64_t turns;    /* slices of long work */
    _Atomic uint64_t accepted; /* connections */
    _Atomic uint64_t closed;   /* connections */
    _Atomic uint64_t refused;  /* connections over the limit */
    _Atomic uint64_t requests; /* calls that reached the handler */
    _Atomic uint64_t protocol_errors;
    _Atomic uint64_t timeouts;       /* connections closed by a timeout */
    _Atomic uint64_t tls_handshakes; /* completed */
    _Atomic uint64_t tls_resumed;    /* of these, resumed sessions */
    _Atomic uint64_t tls_failures;   /* failed handshakes */
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t bytes_out;
    /* by status - MR_HTTP_STATUS_FIRST; without gRPC calls */
    _Atomic uint64_t http_answers[MR_HTTP_STATUSES];
    _Atomic uint64_t grpc_answers[MR_GRPC_STATUSES]; /* calls ended, by status */
};
struct mr_loop_stats *mr_loop_stats(struct mr_loop *loop);

#endif
