/* Turns: stacks that are switched by ucontext, and their queue.
 *
 * A stack is a mapping with a guard page below it; its bookkeeping lies at its upper end. It is entered once and then
 * kept: between two pieces of work it is suspended in stack_main, so that starting one costs a switch and no set-up.
 * glibc's switch saves the signal mask by a system call, twice per slice; for half a millisecond of work that is
 * negligible, and shadow stacks and all architectures work without code of our own.
 *
 * At most ROUND_MAX pieces of work are started at a time, which bounds the stacks; the owners of the data count its
 * memory. */
#include "base/turn.h"

#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base_priv.h"

#if defined(__SANITIZE_THREAD__)
#    define WITH_TSAN 1
#elif defined(__has_feature)
#    if __has_feature(thread_sanitizer)
#        define WITH_TSAN 1
#    endif
#endif
#ifdef MR_WITH_ASAN
#    include <sanitizer/common_interface_defs.h>
#endif
#ifdef WITH_TSAN
#    include <sanitizer/tsan_interface.h>
#endif

#define ROUND_MAX   256
#define STACKS_KEPT 4
#define GUARD_BYTES ((size_t)64 * 1024) /* a multiple of any page size */
#ifdef MR_WITH_ASAN
#    define STACK_BYTES ((size_t)256 * 1024) /* frames are several times as large */
#else
#    define STACK_BYTES ((size_t)64 * 1024)
#endif

_Thread_local struct mr_turn *mr_turn_now;

struct mr_turn_stack {
    struct mr_turn_stack *next; /* while kept */
    char *base;                 /* of the usable part */
    size_t bytes;
    struct mr_turn *turn; /* NULL: the stack is about to be freed */
    bool is_idle;         /* the work has returned */
    ucontext_t inside;
    ucontext_t outside;
    void *fake; /* state of the sanitizers */
    const void *outer_base;
    size_t outer_bytes;
    void *fiber;
    void *outer_fiber;
};

/* ---- switching ------------------------------------------------------------------------------ */

static void arrived_inside(struct mr_turn_stack *s, void *fake)
{
#ifdef MR_WITH_ASAN
    __sanitizer_finish_switch_fiber(fake, &s->outer_base, &s->outer_bytes);
#else
    (void)s;
    (void)fake;
#endif
}

/* Switches to the thread's own stack. is_last: the stack is freed next. */
static void switch_out(struct mr_turn_stack *s, bool is_last)
{
    void *fake = NULL;

#ifdef MR_WITH_ASAN
    __sanitizer_start_switch_fiber(is_last ? NULL : &fake, s->outer_base, s->outer_bytes);
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(s->outer_fiber, 0);
#endif
    (void)is_last;
    swapcontext(&s->inside, &s->outside);
    arrived_inside(s, fake);
}

static void switch_in(struct mr_turn_stack *s)
{
#ifdef MR_WITH_ASAN
    __sanitizer_start_switch_fiber(&s->fake, s->base, s->bytes);
#endif
#ifdef WITH_TSAN
    s->outer_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(s->fiber, 0);
#endif
    mr_turn_now = s->turn;
    swapcontext(&s->outside, &s->inside);
    mr_turn_now = NULL;
#ifdef MR_WITH_ASAN
    __sanitizer_finish_switch_fiber(s->fake, NULL, NULL);
#endif
}

/* makecontext passes ints only; halves of a pointer are what its manual page shows. */
static void stack_main(unsigned low, unsigned high)
{
    struct mr_turn_stack *s = (void *)((uintptr_t)low | (uintptr_t)high << 32);

    arrived_inside(s, NULL);
    while (s->turn) {
        s->turn->work(s->turn);
        s->is_idle = true;
        switch_out(s, false);
    }
    switch_out(s, true);
}

bool mr_turn_pause(struct mr_turn *t)
{
    if (t->status == MR_OK && mr_now_ns() >= t->until_ns) {
        switch_out(t->stack, false);
    }
    t->left = t->status == MR_OK ? MR_TURN_STEP : 0;
    return t->status == MR_OK;
}

bool mr_turn_copy(void *to, const void *from, size_t n)
{
    const size_t step = (size_t)128 * 1024;

    for (size_t at = 0; at < n; at += step) {
        memcpy((char *)to + at, (const char *)from + at, MR_MIN(step, n - at));
        if (!mr_turn_spend(MR_TURN_STEP)) {
            return false;
        }
    }
    return true;
}

/* ---- stacks --------------------------------------------------------------------------------- */

static struct mr_turn_stack *stack_new(void)
{
    char *map = mr_mem_must_fail() ? MAP_FAILED
                                   : mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);

    if (map == MAP_FAILED) {
        return NULL;
    }
    struct mr_turn_stack *s = (void *)(map + GUARD_BYTES + STACK_BYTES - sizeof *s / 64 * 64 - 64);
    *s = (struct mr_turn_stack){.base = map + GUARD_BYTES,
                                .bytes = (size_t)((char *)s - map) - GUARD_BYTES};
    if (mprotect(map, GUARD_BYTES, PROT_NONE) != 0 || getcontext(&s->inside) != 0) {
        munmap(map, GUARD_BYTES + STACK_BYTES);
        return NULL;
    }
    s->inside.uc_stack.ss_sp = s->base;
    s->inside.uc_stack.ss_size = s->bytes;
    s->inside.uc_link = NULL;
    uintptr_t p = (uintptr_t)s;
    makecontext(&s->inside, (void (*)(void))stack_main, 2, (unsigned)p, (unsigned)(p >> 32));
#ifdef WITH_TSAN
    s->fiber = __tsan_create_fiber(0);
#endif
    return s;
}

/* It leaves its loop first: the sanitizers keep a stack's state until its last switch. */
static void stack_free(struct mr_turn_stack *s)
{
    char *map = s->base - GUARD_BYTES;

    s->turn = NULL;
    switch_in(s);
#ifdef WITH_TSAN
    __tsan_destroy_fiber(s->fiber);
#endif
    munmap(map, GUARD_BYTES + STACK_BYTES);
}

static struct mr_turn_stack *stack_take(struct mr_turns *line)
{
    struct mr_turn_stack *s = line->stacks;

    if (!s) {
        return stack_new();
    }
    line->stacks = s->next;
    line->stack_count--;
    return s;
}

static void stack_give(struct mr_turns *line, struct mr_turn_stack *s)
{
    if (line->stack_count == STACKS_KEPT) {
        stack_free(s);
        return;
    }
    s->next = line->stacks;
    line->stacks = s;
    line->stack_count++;
}

/* ---- the line ------------------------------------------------------------------------------- */

void mr_turns_init(struct mr_turns *line, int64_t slice_ns)
{
    *line = (struct mr_turns){.slice_ns = slice_ns};
    TAILQ_INIT(&line->round);
    TAILQ_INIT(&line->waiting);
}

void mr_turns_fini(struct mr_turns *line)
{
    while (line->stacks) {
        struct mr_turn_stack *s = line->stacks;
        line->stacks = s->next;
        stack_free(s);
    }
    line->stack_count = 0;
}

/* Runs the work until then. True: it has ended. */
static bool take_turn(struct mr_turn *t, int64_t until_ns)
{
    struct mr_turns *line = t->line;

    if (!t->stack) {
        if (t->status < 0) {
            return true;
        }
        t->stack = stack_take(line);
        if (!t->stack) {
            t->status = MR_E_EXHAUSTED;
            return true;
        }
        t->stack->turn = t;
        t->stack->is_idle = false;
    }
    t->until_ns = until_ns;
    t->left = t->status == MR_OK ? MR_TURN_STEP : 0;
    switch_in(t->stack);
    if (!t->stack->is_idle) {
        return false;
    }
    stack_give(line, t->stack);
    t->stack = NULL;
    return true;
}

static void round_join(struct mr_turns *line, struct mr_turn *t)
{
    TAILQ_INSERT_TAIL(&line->round, t, link);
    line->count++;
}

static void call_done(struct mr_turn *t)
{
    t->line = NULL;
    t->done(t);
}

void mr_turns_add(struct mr_turns *line, struct mr_turn *t)
{
    t->line = line;
    t->is_waiting = line->count >= ROUND_MAX;
    if (t->may_refuse && line->refusal) {
        t->status = line->refusal;
        call_done(t);
        return;
    }
    if (t->is_waiting) {
        TAILQ_INSERT_TAIL(&line->waiting, t, link);
        return;
    }
    if (line->used_ns >= line->slice_ns) {
        round_join(line, t);
        return;
    }
    int64_t begin_ns = mr_now_ns();
    bool is_over = take_turn(t, begin_ns + line->slice_ns - line->used_ns);
    line->used_ns += mr_now_ns() - begin_ns;
    if (is_over) {
        call_done(t);
    } else {
        round_join(line, t);
    }
}

/* Makes room in the round and fills it with the oldest waiting turn. */
static void round_leave(struct mr_turns *line)
{
    struct mr_turn *next = TAILQ_FIRST(&line->waiting);

    line->count--;
    if (next) {
        TAILQ_REMOVE(&line->waiting, next, link);
        next->is_waiting = false;
        round_join(line, next);
    }
}

void mr_turns_run(struct mr_turns *line)
{
    int64_t until_ns = mr_now_ns() + line->slice_ns;
    struct mr_turn *t;

    while ((t = TAILQ_FIRST(&line->round))) {
        TAILQ_REMOVE(&line->round, t, link);
        line->turns++;
        if (take_turn(t, until_ns)) {
            round_leave(line);
            call_done(t);
        } else {
            TAILQ_INSERT_TAIL(&line->round, t, link);
        }
        if (mr_now_ns() >= until_ns) {
            break;
        }
    }
    line->used_ns = 0;
}

void mr_turn_end(struct mr_turn *t, int status)
{
    struct mr_turns *line = t->line;

    if (!line || t->status < 0) {
        return;
    }
    t->status = status;
    if (t == mr_turn_now) {
        return; /* it ends itself */
    }
    /* To the front, so that its resources are free soon. */
    if (t->is_waiting) {
        TAILQ_REMOVE(&line->waiting, t, link);
        t->is_waiting = false;
        line->count++;
    } else {
        TAILQ_REMOVE(&line->round, t, link);
    }
    TAILQ_INSERT_HEAD(&line->round, t, link);
}

static void list_refuse(struct mr_turn_list *list, int status)
{
    struct mr_turn *next;

    for (struct mr_turn *t = TAILQ_FIRST(list); t; t = next) {
        next = TAILQ_NEXT(t, link);
        if (t->may_refuse) {
            mr_turn_end(t, status);
        }
    }
}

void mr_turns_refuse(struct mr_turns *line, int status)
{
    line->refusal = status;
    list_refuse(&line->waiting, status);
    list_refuse(&line->round, status);
}

void mr_turns_end(struct mr_turns *line)
{
    struct mr_turn *t;

    while ((t = TAILQ_FIRST(&line->round))) {
        TAILQ_FOREACH (t, &line->round, link) {
            t->status = t->status < 0 ? t->status : MR_E_CLOSED;
        }
        mr_turns_run(line);
    }
}

mr_str mr_turn_str(struct mr_arena *a, mr_str s)
{
    char *to = s.len < SIZE_MAX ? mr_arena_try(a, s.len + 1, 1) : NULL;

    if (!to || !mr_turn_copy(to, s.ptr, s.len)) {
        return (mr_str){NULL, 0};
    }
    to[s.len] = 0;
    return mr_str_n(to, s.len);
}
