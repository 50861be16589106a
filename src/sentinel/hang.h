/* Whether a worker hangs, judged by its executing thread. Pure: the caller looks, and has the clock.
 *
 * The time that an execution may take comes from what executions took before. What the thread could not do because it had
 * no CPU, and what the judge itself slept through, does not count against it. */
#ifndef SENTINEL_HANG_H
#define SENTINEL_HANG_H

#include <stdbool.h>
#include <stdint.h>

/* What is known of one worker. Zeroed when its process starts. */
struct hang {
    uint64_t progress;
    int64_t since_ns;     /* of what is judged: the same progress, with something to do */
    int64_t excused_ns;   /* of the time since then */
    int64_t first_cpu_ns; /* at since_ns */
    int64_t cpu_ns, delay_ns, looked_ns; /* at the last look */
    bool is_judged;
};

struct hang_look {
    int64_t now_ns;
    int64_t gap_ns;    /* since the last look, beyond the usual */
    bool has_work;     /* it runs something, or something waits for it */
    bool is_running;   /* it runs something */
    bool may_wait;     /* to stand still is no sign */
    bool is_starting;  /* its thread has not said yet that it is there */
    uint64_t progress; /* its counter */
    int64_t cpu_ns;    /* of its thread */
    int64_t delay_ns;  /* that its thread waited for a CPU, as far as that is over; 0 = not known */
    bool is_runnable;  /* its thread has a CPU, or waits for one */
    int64_t typical_ns; /* the longest of many executions of that size; 0 = not known */
    int64_t most_ns;    /* when it is not known, or while the thread computes */
};

/* True: it hangs. */
bool hang_judge(struct hang *h, const struct hang_look *look);

#endif
