/* The loop as the rest of `net` sees it: flush list, coarse deadlines, recycled memory. */
#ifndef MR_NET_LOOP_PRIV_H
#define MR_NET_LOOP_PRIV_H

#include <sys/queue.h>
#include <uv.h>

#include "base/clock.h"
#include "base/vec.h"
#include "chunk.h"
#include "net/loop.h"

/** Work to do before the loop sleeps, such as sending a connection's output. Embed it. */
struct mr_flush {
    TAILQ_ENTRY(mr_flush) link;
    void (*run)(struct mr_flush *f);
    bool queued;
};

/** A deadline that is checked a few times a second. Moving it is one store: it stays in its slot of the wheel until
 *  the slot is checked, and moves to its new slot only then.
 */
struct mr_deadline {
    struct mr_deadline *next;
    struct mr_deadline *prev; /* NULL = not in the wheel */
    int64_t at_ns;            /* 0 = none */
    int64_t slot_ns;          /* when it will be checked */
    void (*fn)(struct mr_deadline *d);
};

#define MR_WHEEL_SLOTS   256
#define MR_WHEEL_TICK_NS (250 * MR_NS_PER_MS)

struct mr_wheel {
    struct mr_deadline slots[MR_WHEEL_SLOTS]; /* ring heads */
    size_t count;
    int64_t tick; /* the last tick checked, in units of MR_WHEEL_TICK_NS */
    struct mr_timer timer;
};

/* Under AddressSanitizer nothing is kept, so that a use after free is detected. */
#ifdef MR_WITH_ASAN
#    define MR_CACHE_NOTHING true
#else
#    define MR_CACHE_NOTHING false
#endif

/** A list of free pieces of memory of one size. */
struct mr_free_list {
    void *head;
    size_t bytes;
    uint32_t count;
    uint32_t least; /* count at its lowest since mr_free_list_age */
    uint32_t max;
    void (*fini)(void *p); /* called before a kept piece is freed; may be NULL */
};

/** Classes of nghttp2's allocations, 32 B .. 32 KiB (h2mem.c). */
#define MR_H2MEM_CLASSES 41

/** Regions of HTTP/2 sessions that are not in use (h2region.c). */
#define MR_H2REGIONS_WARM 32
struct mr_h2regions {
    MR_VEC(char *) chunks;
    MR_VEC(char *) clean;
    char *warm[MR_H2REGIONS_WARM];
    size_t warm_count;
};

struct mr_loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t busy; /* active = do not sleep this time */
    uv_timer_t coarse_timer;
    uv_poll_t wake_poll;
    int wake_fd; /* eventfd */
    bool has_wake_edges;
    uv_poll_t door_poll;
    int door_fd; /* eventfd, -1 = not requested yet */
    bool has_door_edges;
    uv_poll_t fine_poll;
    int fine_fd;          /* timerfd */
    int64_t fine_at_ns;   /* time for which it is armed, 0 = not armed */
    int64_t coarse_at_ns; /* time for which coarse_timer is armed, 0 = not armed */
    int open_handles;     /* of the loop itself, and name look-ups, which cannot be stopped */

    struct mr_loop_hooks hooks;
    struct mr_mailbox box;
    _Atomic int wants_wake; /* 1: asleep or about to sleep; a poster has to wake it */
    _Atomic bool stopping;
    bool awake;
    int64_t now_ns;
    int64_t woke_ns;
    int64_t busy_poll_ns;

    struct mr_timer *timers; /* root of a pairing heap */
    int64_t timer_seq;
    TAILQ_HEAD(, mr_flush) flushes;
    struct mr_wheel wheel;
    struct mr_turns turns;

    struct mr_buf scratch;
    uint8_t *read_buf; /* MR_READ_BUF_BYTES, allocated at the first use */
    /* for a TLS record under construction (tls.c), allocated at the first use */
    uint8_t *record_buf;
    struct mr_free_list inputs;
    struct mr_slabs slabs;
    struct mr_free_list conns;
    struct mr_free_list calls;
    struct mr_free_list h2mem[MR_H2MEM_CLASSES];
    struct mr_h2regions h2regions;
    /** Frees memory that connections keep here besides the caches; NULL: no connection yet (conn.c). */
    void (*conn_memory_fini)(struct mr_loop *loop);
    int64_t age_ns; /* when the caches are next aged */
    char date[48];  /* "Sun, 06 Nov 1994 08:49:37 GMT" */
    int64_t date_until_ns;

    struct mr_loop_stats stats;
};

#define MR_READ_BUF_BYTES                                                                          \
    ((size_t)264 * 1024) /* 16 frames of HTTP/2 of the usual size with their heads */

/** Call before any work in a callback of libuv: takes the time and runs the after_wake hook if the
 *  loop slept. */
void mr_loop_wake(struct mr_loop *loop);
static inline void mr_loop_enter(struct mr_loop *loop)
{
    if (!loop->awake) {
        mr_loop_wake(loop);
    }
}

/** Runs f->run before the loop sleeps; no effect if it is queued already. */
void mr_flush_queue(struct mr_loop *loop, struct mr_flush *f);
/** Removes it from the list, if it is queued. */
void mr_flush_cancel(struct mr_loop *loop, struct mr_flush *f);

/** at_ns 0 = none. d->fn runs once, at most two ticks late, with at_ns cleared. */
void mr_deadline_set(struct mr_loop *loop, struct mr_deadline *d, int64_t at_ns);
void mr_deadline_clear(struct mr_loop *loop, struct mr_deadline *d);
void mr_wheel_init(struct mr_loop *loop);

void mr_free_list_init(struct mr_free_list *c, size_t bytes, uint32_t max);
void mr_free_list_fini(struct mr_free_list *c);
/** Not zeroed; NULL without memory. *out_fresh (may be NULL): true if it came from the heap. */
void *mr_free_list_take(struct mr_free_list *c, bool *out_fresh);
/** True if kept; otherwise the caller frees it (mr_free). */
bool mr_free_list_put(struct mr_free_list *c, void *p);
/** Frees half of the pieces that were not used since the last call. */
void mr_free_list_age(struct mr_free_list *c);

/** Runs the timers that are due; returns the time of the next one, 0 = none. */
int64_t mr_timers_run(struct mr_loop *loop);

/** The loop's read buffer: its content does not outlast the callback. NULL without memory. */
uint8_t *mr_loop_read_buf(struct mr_loop *loop);
/** The value of a Date header, 29 bytes. */
const char *mr_loop_date(struct mr_loop *loop);

#endif
