/* Runs a few threads of a small program in every order, one step at a time.
 *
 * Threads are coroutines on one thread of the system. At each point the explorer continues the running one, lets
 * another run instead (a preemption, of which a schedule has a limited number: Musuvathi and Qadeer, "Iterative context
 * bounding", PLDI 2007), or lets a mortal one die: it never runs again. When the running one blocks or ends, which of
 * the others follows is a choice too, and costs nothing. All schedules are visited depth first, each from the start;
 * so a program must do the same in each run but for these choices. */
#ifndef SHM_EXPLORE_H
#define SHM_EXPLORE_H

#include <stdbool.h>
#include <stdint.h>

#define EXPLORE_THREADS 4

struct explore_thread {
    void (*run)(unsigned me);
    bool is_mortal;
    /* A schedule is over when all that are awaited have ended; the others then run until they block. */
    bool is_awaited;
};

struct explore {
    struct explore_thread threads[EXPLORE_THREADS];
    unsigned thread_count;
    /* Not 0: it does the same as the thread before it, and so need not be the first of the two that runs. */
    unsigned twin;
    unsigned preemptions, deaths;
    void (*begin)(void); /* before each schedule; no points */
    void (*end)(void);   /* after it */
};

/** Visits every schedule; returns their number. A schedule in which an awaited thread stays blocked, or a failed
 *  explore_require, ends the process with the schedule printed. */
uint64_t explore_all(const struct explore *e);

/** Where the running thread may be interrupted. Outside of schedules: nothing. */
void explore_point(void);
/** The running thread continues when is_ready(ctx); at once if it is. */
void explore_block(bool (*is_ready)(void *ctx), void *ctx);
/** The explorer's choice among n. */
unsigned explore_choose(unsigned n);
/** Whether that thread has died in this schedule. */
bool explore_is_dead(unsigned thread);
/** A dead thread runs again from its beginning. */
void explore_restart(unsigned thread);
/** The number of points passed in this schedule: a clock. */
uint64_t explore_now(void);
/** 0-based; EXPLORE_THREADS outside of threads. */
unsigned explore_me(void);

void explore_fail(const char *file, int line, const char *what) __attribute__((noreturn));
#define explore_require(cond) ((cond) ? (void)0 : explore_fail(__FILE__, __LINE__, #cond))

#endif
