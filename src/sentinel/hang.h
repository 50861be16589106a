/* Detects hangs of a worker from the progress of its executing thread, or of executions that end on other threads. Pure: the
 * caller passes observations and the time.
 *
 * The limit of an execution follows from the times of earlier executions. Time that the thread spends without a CPU, and
 * time in which the observer itself does not run, does not count. */
#ifndef SENTINEL_HANG_H
#define SENTINEL_HANG_H

#include <stdbool.h>
#include <stdint.h>

/* The state of one worker. Zeroed when its process starts. */
struct hang {
    uint64_t progress;
    int64_t since_ns;     /* start of the period that is judged: no progress, with work to do */
    int64_t excused_ns;   /* time since then that does not count */
    int64_t first_cpu_ns; /* at since_ns */
    int64_t cpu_ns, delay_ns, looked_ns; /* at the last observation */
    bool is_judged;
    bool is_running;   /* as in the samples of this period */
    bool is_computing; /* the thread has used its CPU in this period; set by hang_judge */
};

struct hang_sample {
    int64_t now_ns;
    int64_t gap_ns;    /* since the last observation, beyond the usual interval */
    bool has_work;     /* that thread is in one, or may take one that waits */
    bool is_running;   /* its executing thread is in an execution */
    bool may_wait;     /* idle waiting is not a sign of a hang */
    bool is_starting;  /* its thread has not reported itself yet */
    uint64_t progress; /* its counter */
    int64_t cpu_ns;    /* of its thread */
    int64_t delay_ns;  /* that its thread waited for a CPU, as far as that is over; 0 = not known */
    bool is_runnable;  /* its thread has a CPU, or waits for one */
    int64_t typical_ns; /* the longest of many executions of that size; 0 = not known */
    int64_t most_ns;    /* the limit if that is not known */
    int64_t compute_ns; /* the least limit of a thread that computes */
};

/* Returns the limit that it exceeds, in nanoseconds; 0: it does not hang. */
int64_t hang_judge(struct hang *h, const struct hang_sample *sample);

#endif
