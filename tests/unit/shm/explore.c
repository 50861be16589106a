#include "explore.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_ADDRESS__)
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES ((size_t)256 << 10)
#define POINTS_MAX  100000u /* of one schedule: more is a loop that does not end */
#define CHOICES_MAX 4096u

enum state { READY, BLOCKED, ENDED, DEAD };

struct fiber {
    ucontext_t context;
    void *stack;
    size_t stack_bytes;
    void *fake_stack; /* AddressSanitizer's */
    enum state state;
    bool has_run;
    bool is_doomed; /* the schedule is over: it is resumed only to leave its stack */
    bool (*is_ready)(void *ctx);
    void *ctx;
};

static struct {
    const struct explore *plan;
    struct fiber fibers[EXPLORE_THREADS];
    struct fiber main;
    unsigned current; /* EXPLORE_THREADS: none */
    uint64_t points;
    unsigned preemptions, deaths; /* left */
    bool is_over;
    /* the schedule: at each choice, how many there were and which was taken */
    uint32_t choice_count, replay_count;
    uint8_t options[CHOICES_MAX], taken[CHOICES_MAX];
} x = {.current = EXPLORE_THREADS};

void explore_fail(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s: thread %u, point %llu, schedule:", file, line, what, x.current,
            (unsigned long long)x.points);
    for (uint32_t i = 0; i < x.choice_count; i++) {
        fprintf(stderr, " %u", x.taken[i]);
    }
    fprintf(stderr, "\n");
    abort();
}

unsigned explore_choose(unsigned n)
{
    if (n <= 1 || x.is_over) {
        return 0;
    }
    explore_require(x.choice_count < CHOICES_MAX);
    const uint32_t i = x.choice_count++;
    if (i >= x.replay_count) {
        x.options[i] = (uint8_t)n;
        x.taken[i] = 0;
    }
    explore_require(x.options[i] == n); /* else the program does not repeat itself */
    return x.taken[i];
}

/* The next schedule: the last choice that has another option takes it. False: all were visited. */
static bool advance(void)
{
    uint32_t n = x.choice_count;

    while (n > 0 && x.taken[n - 1] + 1 >= x.options[n - 1]) {
        n--;
    }
    if (n == 0) {
        return false;
    }
    x.taken[n - 1]++;
    x.replay_count = n;
    return true;
}

/* ---- switching ---- */

/* From fiber to fiber; for ever if is_last. */
static void switch_to(struct fiber *from, struct fiber *to, bool is_last)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(is_last ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
    swapcontext(&from->context, &to->context);
    __sanitizer_finish_switch_fiber(from->fake_stack, NULL, NULL);
#else
    (void)is_last;
    swapcontext(&from->context, &to->context);
#endif
}

static bool can_run(const struct fiber *f)
{
    return f->state == READY || (f->state == BLOCKED && f->is_ready(f->ctx));
}

/* Who can run, but for `except`. */
static unsigned list_ready(unsigned except, unsigned out[EXPLORE_THREADS])
{
    unsigned n = 0;

    for (unsigned i = 0; i < x.plan->thread_count; i++) {
        const bool is_early = i > 0 && i == x.plan->twin && !x.fibers[i - 1].has_run;
        if (i != except && !is_early && can_run(&x.fibers[i])) {
            out[n++] = i;
        }
    }
    return n;
}

static void resume(unsigned to, bool is_last)
{
    struct fiber *from = &x.fibers[x.current];

    x.current = to;
    switch_to(from, to == EXPLORE_THREADS ? &x.main : &x.fibers[to], is_last);
}

/* The running thread cannot go on. */
static void leave(bool is_last)
{
    unsigned ready[EXPLORE_THREADS];
    const unsigned n = list_ready(x.current, ready);

    resume(n == 0 ? EXPLORE_THREADS : ready[explore_choose(n)], is_last);
}

static void die(void)
{
    x.deaths--;
    x.fibers[x.current].state = DEAD;
    leave(true);
}

static bool may_die(void)
{
    return x.plan->threads[x.current].is_mortal && x.deaths > 0 && !x.is_over;
}

void explore_point(void)
{
    unsigned ready[EXPLORE_THREADS];

    if (x.current == EXPLORE_THREADS) {
        return;
    }
    explore_require(++x.points < POINTS_MAX);
    const unsigned others = x.preemptions > 0 && !x.is_over ? list_ready(x.current, ready) : 0;
    const unsigned choice = explore_choose(1 + others + may_die());
    if (choice > others) {
        die();
    } else if (choice > 0) {
        x.preemptions--;
        resume(ready[choice - 1], false);
    }
}

void explore_block(bool (*is_ready)(void *ctx), void *ctx)
{
    struct fiber *f = &x.fibers[x.current];

    if (is_ready(ctx)) {
        return;
    }
    f->is_ready = is_ready;
    f->ctx = ctx;
    f->state = BLOCKED;
    leave(false);
    if (f->is_doomed) {
        f->state = ENDED;
        resume(EXPLORE_THREADS, true);
    }
    f->state = READY;
    if (may_die() && explore_choose(2)) {
        die();
    }
}

static void note_end(void)
{
    x.fibers[x.current].state = ENDED;
    x.is_over = true;
    for (unsigned i = 0; i < x.plan->thread_count; i++) {
        x.is_over &= !x.plan->threads[i].is_awaited || x.fibers[i].state == ENDED;
    }
}

static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    x.fibers[x.current].has_run = true;
    x.plan->threads[x.current].run(x.current);
    note_end();
    leave(true);
}

void explore_restart(unsigned thread)
{
    struct fiber *f = &x.fibers[thread];

#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
    getcontext(&f->context);
    f->context.uc_stack = (stack_t){.ss_sp = f->stack, .ss_size = f->stack_bytes};
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
    f->state = READY;
    f->is_doomed = false;
}

bool explore_is_dead(unsigned thread)
{
    return x.fibers[thread].state == DEAD;
}

uint64_t explore_now(void)
{
    return x.points;
}

unsigned explore_me(void)
{
    return x.current;
}

/* ---- all schedules ---- */

static void run_one(void)
{
    x.points = x.choice_count = 0;
    x.preemptions = x.plan->preemptions;
    x.deaths = x.plan->deaths;
    x.is_over = false;
    for (unsigned i = 0; i < x.plan->thread_count; i++) {
        x.fibers[i].has_run = false;
        explore_restart(i);
    }
    unsigned ready[EXPLORE_THREADS];
    const unsigned to = ready[explore_choose(list_ready(EXPLORE_THREADS, ready))];
    x.current = to;
    switch_to(&x.main, &x.fibers[to], false);
    explore_require(x.is_over); /* otherwise all threads wait for each other */
    for (unsigned i = 0; i < x.plan->thread_count; i++) {
        if (x.fibers[i].state == BLOCKED) {
            x.fibers[i].is_doomed = true;
            x.current = i;
            switch_to(&x.main, &x.fibers[i], false);
        }
    }
}

static void find_main_stack(void)
{
    pthread_attr_t attr;

    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &x.main.stack, &x.main.stack_bytes);
    pthread_attr_destroy(&attr);
}

uint64_t explore_all(const struct explore *e)
{
    uint64_t count = 0;

    x.plan = e;
    x.replay_count = 0;
    find_main_stack();
    for (unsigned i = 0; i < e->thread_count; i++) {
        x.fibers[i].stack_bytes = STACK_BYTES;
        x.fibers[i].stack =
            mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        explore_require(x.fibers[i].stack != MAP_FAILED);
    }
    do {
        e->begin();
        run_one();
        e->end();
        count++;
    } while (advance());
    for (unsigned i = 0; i < e->thread_count; i++) {
        munmap(x.fibers[i].stack, STACK_BYTES);
    }
    return count;
}
