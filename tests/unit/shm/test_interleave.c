/* The plane's state machine in every order of its steps, at small size: one home, up to two workers, and a thread that
 * sweeps and ends workers that have died; a worker may die before each access to a shared word.
 *
 * In every schedule: each submission ends once, as DONE with the answer to its own request, as LOST (and is submitted
 * again, unless it had one of its answers), or withdrawn; several answers come each once and in their order; no generation is completed twice; requests are taken in their order; nothing waits for ever:
 * a sleeping worker or home is always rung, as here a sleep has no end of its own. */
#include "explore.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "shm/plane.h"
#include "shm/worker.h"
#include "shm_priv.h"
#include "steps.h"

#define WORKERS    2u
#define REQUESTS   4u
#define NEED_BYTES 70000u
#define HOME       0u
#define WORKER     1u /* and the next */
#define SENTINEL   3u
#define WAITERS    8u
#define IGNORED    8u

struct scenario {
    const char *name;
    unsigned requests;
    unsigned preemptions, deaths;
    unsigned sweeps;
    unsigned stale;    /* cells of withdrawn submissions that lie in the line */
    bool is_single;    /* the second worker is asleep for ever */
    bool is_need;      /* workers ask for an extent */
    bool is_withdrawn; /* the first request is, if it can be, and its slot used for another */
    /* the first worker is declared dead while it runs a slot, and continues with it */
    bool is_late;
    bool is_unwanted; /* a sweep takes out of the line what it finds there */
    bool is_again;    /* the last request is one that is submitted again */
    unsigned answers; /* to each request before the last one */
    bool is_together; /* completed slots share wake-ups */
    bool is_bound;    /* all requests are, to the first worker in its first life */
};

struct request {
    uint8_t number;
    bool is_over, is_claimed;
    uint8_t answered;
    uint64_t claim_end;
};

/* A sleep on a futex. */
struct waiter {
    const void *word;
    bool is_rung, is_used;
};

static struct {
    const struct scenario *s;
    struct mr_shm_homes *homes;
    struct mr_shm *plane;
    struct mr_shm_view *views[WORKERS];
    struct request requests[REQUESTS];
    unsigned submitted, over;
    uint64_t completed[2]; /* the last generation of each slot that was */
    bool is_busy[WORKERS], is_ended[WORKERS];
    struct mr_shm_slot *answered[REQUESTS]; /* in the home's hands */
    unsigned answered_count;
    uint64_t life; /* of the first worker, when the schedule began */
    /* the system */
    struct waiter waiters[WAITERS];
    unsigned rings; /* of the home's eventfd */
    bool is_locked;
    /* words that do not matter here: a step at each would only make more schedules */
    bool is_learning;
    unsigned ignored_count;
    const volatile void *ignored[IGNORED];
} t;

/* ---- the system, as seen from the sources under test ---- */

void steps_at(const volatile void *word)
{
    if (t.is_learning && t.ignored_count < IGNORED) {
        t.ignored[t.ignored_count++] = word;
    }
    for (unsigned i = 0; i < t.ignored_count; i++) {
        if (t.ignored[i] == word) {
            return;
        }
    }
    explore_point();
}

static bool is_unlocked(void *ctx)
{
    (void)ctx;
    return !t.is_locked;
}

void steps_lock(pthread_mutex_t *m)
{
    (void)m;
    if (explore_me() != EXPLORE_THREADS) {
        if (t.s->deaths + t.s->sweeps > 0 || t.s->is_late) {
            explore_point(); /* else only the home takes it */
        }
        explore_block(is_unlocked, NULL);
    }
    t.is_locked = true;
}

void steps_unlock(pthread_mutex_t *m)
{
    (void)m;
    explore_require(t.is_locked);
    t.is_locked = false;
}

void shm_event_write(int fd)
{
    (void)fd;
    explore_point();
    t.rings++;
}

static bool is_rung(void *ctx)
{
    return ((const struct waiter *)ctx)->is_rung;
}

void shm_futex_wait(const _Atomic uint32_t *word, uint32_t seen, int64_t max_ns)
{
    struct waiter *w = t.waiters;

    (void)max_ns;
    if (atomic_load(word) != seen) {
        return;
    }
    while (w->is_used) {
        w++;
        explore_require(w < t.waiters + WAITERS);
    }
    *w = (struct waiter){.word = word, .is_used = true};
    explore_block(is_rung, w);
    w->is_used = false;
}

/* Server and worker see the word at different addresses of the same page: the offset within the page identifies it. */
static bool is_same_word(const void *a, const void *b)
{
    return ((uintptr_t)a & 4095) == ((uintptr_t)b & 4095);
}

void shm_futex_wake(const _Atomic uint32_t *word, int count)
{
    explore_point();
    for (; count > 0; count--) {
        struct waiter *found[WAITERS];
        unsigned n = 0;
        for (struct waiter *w = t.waiters; w < t.waiters + WAITERS; w++) {
            if (w->is_used && !w->is_rung && is_same_word(w->word, word)) {
                found[n++] = w;
            }
        }
        if (n == 0) {
            return;
        }
        found[explore_choose(n)]->is_rung = true;
    }
}

/* ---- the threads ---- */

static uint8_t answer_to(uint8_t number)
{
    return number ^ 0x5a;
}

static void check_answer(struct mr_shm_slot *s, const struct request *r)
{
    const uint8_t *data = s->room;
    struct mr_block *block;
    uint64_t offset;

    if (t.s->is_need) {
        memcpy(&offset, s->room + 8, sizeof offset);
        explore_require(mr_shm_output_at(t.plane, s, offset, NEED_BYTES, &data, &block));
        explore_require(block != NULL);
    }
    explore_require(data[0] == answer_to(r->number));
}

static void end_request(struct mr_shm_slot *s, struct request *r)
{
    r->is_over = true;
    t.over++;
    mr_shm_give(t.plane, s);
}

static void on_lost(struct mr_shm_slot *s, struct request *r)
{
    explore_require(t.s->deaths > 0 || t.s->is_late);
    if (r->answered > 0 || t.s->is_bound) {
        end_request(s, r);
    } else {
        mr_shm_submit(t.plane, s, 1, 0, true);
    }
}

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct request *r = s->user;

    (void)ctx;
    explore_require(r && !r->is_over);
    if (outcome == MR_SHM_WAITING) {
        s->is_unwanted = t.s->is_unwanted;
        return;
    }
    if (outcome == MR_SHM_WITHDRAWN) {
        explore_require(t.s->is_unwanted);
        end_request(s, r);
        return;
    }
    if (outcome == MR_SHM_LOST) {
        on_lost(s, r);
        return;
    }
    check_answer(s, r);
    if (outcome == MR_SHM_ANSWER) {
        explore_require(s->room[1] == r->answered);
        r->answered++;
        t.answered[t.answered_count++] = s;
        return;
    }
    explore_require(outcome == MR_SHM_DONE && r->answered == t.s->answers);
    end_request(s, r);
}

/* Takes what is done, and lets those go on that have answered. */
static void take_all(void)
{
    mr_shm_poll(t.plane, 0, on_outcome, NULL);
    while (t.answered_count > 0) {
        struct mr_shm_slot *s = t.answered[--t.answered_count];
        if (!mr_shm_go_on(t.plane, s, MR_OK, NULL)) {
            on_lost(s, s->user);
        }
    }
}

static struct mr_shm_slot *submit(bool is_again)
{
    struct mr_shm_slot *s = mr_shm_take(t.plane);
    struct request *r = &t.requests[t.submitted];

    explore_require(s != NULL);
    *r = (struct request){.number = (uint8_t)t.submitted++};
    s->user = r;
    s->message[0] = r->number;
    if (t.s->is_bound) {
        s->bound = 0;
        s->life = t.life;
    }
    if (!mr_shm_submit(t.plane, s, 1, 0, is_again)) {
        explore_require(t.s->is_bound && t.s->deaths > 0);
        end_request(s, r);
    }
    return s;
}

/* The first slot is withdrawn if that is possible, and its next life waits after the second. */
static void withdraw(struct mr_shm_slot *s)
{
    struct request *r = s->user;

    if (mr_shm_withdraw(t.plane, s)) {
        explore_require(!r->is_over);
        end_request(s, r);
        submit(false);
    }
}

static bool is_rung_home(void *ctx)
{
    (void)ctx;
    return t.rings > 0;
}

static void run_home(unsigned me)
{
    struct mr_shm_slot *first = NULL;

    (void)me;
    for (unsigned i = 0; i < t.s->requests; i++) {
        struct mr_shm_slot *s = submit(t.s->is_again && i + 1 == t.s->requests);
        first = first ? first : s;
    }
    if (t.s->is_withdrawn) {
        withdraw(first);
    }
    for (;;) {
        take_all();
        if (t.over == t.submitted) {
            return;
        }
        mr_shm_home_sleep(t.homes, 0);
        take_all();
        if (t.over < t.submitted) {
            explore_block(is_rung_home, NULL);
        }
        t.rings = 0; /* epoll has reported them */
        mr_shm_home_wake(t.homes, 0);
    }
}

/* A worker that began to take a slot after another one was taken has not got an older one. */
static void check_order(struct request *r, uint64_t begin)
{
    if (t.s->deaths == 0 && t.s->sweeps == 0 && !t.s->is_late && !t.s->is_again) {
        for (const struct request *o = r + 1; o < t.requests + t.submitted; o++) {
            explore_require(!o->is_claimed || o->claim_end >= begin);
        }
    }
    r->is_claimed = true;
    r->claim_end = explore_now();
}

static void execute(struct mr_shm_view *v, struct mr_shm_task *task, uint64_t begin)
{
    const uint8_t number = task->message[0];
    struct mr_shm_range range = {.data = task->room};

    explore_require(task->message_bytes == 1 && number < t.submitted);
    explore_require(!t.s->is_bound ||
                    (v == t.views[0] && t.life == mr_shm_worker_life(t.plane, 0)));
    check_order(&t.requests[number], begin);
    if (t.s->is_need) {
        explore_require(mr_shm_task_need(v, task, NEED_BYTES, &range));
        memcpy(task->room + 8, &range.offset, sizeof range.offset);
    }
    explore_require(task->message[0] == number);
    for (unsigned i = 0; i < t.s->answers; i++) {
        task->room[0] = answer_to(number);
        task->room[1] = (uint8_t)i;
        if (mr_shm_task_answer(v, task, NULL) < 0) {
            explore_require(t.s->is_late);
            return;
        }
    }
    range.data[0] = answer_to(number);
    if (t.s->is_together ? mr_shm_complete_with_next(v, task) : mr_shm_complete(v, task)) {
        explore_require(t.completed[task->slot] != task->generation);
        t.completed[task->slot] = task->generation;
    }
}

static bool is_never(void *ctx)
{
    (void)ctx;
    return false;
}

static void run_worker(unsigned me)
{
    const unsigned w = me - WORKER;
    struct mr_shm_task task;

    if (w == 1 && t.s->is_single) {
        explore_block(is_never, NULL);
    }
    while (!t.is_ended[w]) {
        const uint64_t begin = explore_now();
        t.is_busy[w] =
            t.s->answers == 0; /* an answer of who was dead when it took the slot is a sweep's */
        const bool is_taken = mr_shm_claim(t.views[w], &task);
        t.is_busy[w] = true;
        if (is_taken) {
            execute(t.views[w], &task, begin);
        }
        t.is_busy[w] = false;
        if (!is_taken && !t.is_ended[w]) {
            mr_shm_wait(t.views[w], MR_NS_PER_S);
        }
    }
}

static bool is_due(unsigned w)
{
    return !t.is_ended[w] &&
           (explore_is_dead(WORKER + w) || (t.s->is_late && w == 0 && t.is_busy[0]));
}

static bool is_any_due(void *ctx)
{
    (void)ctx;
    return is_due(0) || is_due(1);
}

static void run_sentinel(unsigned me)
{
    static struct mr_shm_worker_state states[MR_SHM_WORKERS_MAX];

    (void)me;
    for (unsigned i = 0; i < t.s->sweeps; i++) {
        mr_shm_sweep(t.plane, i + 1, states, on_outcome, NULL);
        mr_shm_home_ring(t.homes, 0);
    }
    for (;;) {
        explore_block(is_any_due, NULL);
        const unsigned w = is_due(0) ? 0 : 1;
        t.is_ended[w] = true;
        mr_shm_worker_end(t.plane, w, on_outcome, NULL);
        mr_shm_home_ring(t.homes, 0);
        if (t.s->is_single && explore_is_dead(WORKER + w)) {
            mr_shm_worker_begin(t.plane, w);
            t.is_ended[w] = false;
            explore_restart(WORKER + w);
        }
    }
}

/* ---- each schedule ---- */

static void begin(void)
{
    t.submitted = t.over = t.rings = t.answered_count = 0;
    memset(t.completed, 0, sizeof t.completed);
    memset(t.waiters, 0, sizeof t.waiters);
    for (unsigned w = 0; w < WORKERS; w++) {
        t.is_busy[w] = t.is_ended[w] = false;
        mr_shm_worker_begin(t.plane, w);
    }
    t.life = mr_shm_worker_life(t.plane, 0);
    for (unsigned i = 0; i < t.s->stale; i++) {
        struct mr_shm_slot *s = submit(false);
        explore_require(mr_shm_withdraw(t.plane, s));
        mr_shm_give(t.plane, s);
        t.submitted = 0;
    }
}

static void on_nothing(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    (void)ctx;
    (void)s;
    explore_require(outcome != outcome); /* no slot is out */
}

/* The next schedule begins with the same slot. */
static void order_slots(void)
{
    struct mr_shm_slot *a = mr_shm_take(t.plane), *b = mr_shm_take(t.plane);

    mr_shm_give(t.plane, a->index > b->index ? a : b);
    mr_shm_give(t.plane, a->index > b->index ? b : a);
}

static void end(void)
{
    struct mr_shm_task task;

    explore_require(t.over == t.submitted && !t.is_locked);
    for (unsigned i = 0; i < t.submitted; i++) {
        explore_require(t.requests[i].is_over);
    }
    explore_require(mr_shm_pending(t.plane, 0) == 0);
    explore_require(mr_shm_get_stats(t.plane).slots_used == 0);
    explore_require(mr_shm_heap_get_stats(mr_shm_outputs(t.plane)).used_bytes == 0);
    for (unsigned w = 0; w < WORKERS; w++) {
        mr_shm_worker_end(t.plane, w, on_nothing, NULL);
        explore_require(!mr_shm_claim(t.views[w], &task));
    }
    explore_require(mr_shm_poll(t.plane, 0, on_nothing, NULL) == 0);
    mr_shm_home_wake(t.homes, 0);
    order_slots();
}

/* The progress of a worker, and the number of submissions: counters that nothing here depends on. */
static void learn(void)
{
    t.ignored_count = 0;
    t.is_learning = true;
    mr_shm_pending(t.plane, 0);
    for (unsigned w = 0; w < WORKERS; w++) {
        mr_shm_progress(t.views[w]); /* the first call does more than the others */
    }
    t.is_learning = false;
}

static void explore(const struct scenario *s)
{
    struct mr_err err;
    const struct explore e = {.threads = {[HOME] = {.run = run_home, .is_awaited = true},
                                          [WORKER] = {.run = run_worker, .is_mortal = true},
                                          [WORKER + 1] = {.run = run_worker, .is_mortal = true},
                                          [SENTINEL] = {.run = run_sentinel}},
                              .thread_count = 4,
                              .twin = s->is_single || s->is_late ? 0 : WORKER + 1,
                              .preemptions = s->preemptions,
                              .deaths = s->deaths,
                              .begin = begin,
                              .end = end};

    t.s = s;
    const struct mr_shm_door door = {-1, -1}; /* shm_event_write takes its place */
    assert_int_equal(mr_shm_homes_new(&t.homes, &door, 1, &err), MR_OK);
    const struct mr_shm_options o = {.name = "interleave",
                                     .slots = 2,
                                     .message_bytes = 4096,
                                     .room_bytes = 4096,
                                     .output_bytes = 1 << 20,
                                     .homes = t.homes,
                                     .has_bound = s->is_bound};
    assert_int_equal(mr_shm_new(&t.plane, &o, &err), MR_OK);
    const struct mr_shm_fds fds = mr_shm_get_fds(t.plane);
    const int home_fd = mr_shm_home_fd(t.homes, 0);
    const struct mr_shm_view_fds view = {
        fds.control, fds.input, fds.output, mr_shm_homes_segment(t.homes), &home_fd, 1};
    for (uint32_t w = 0; w < WORKERS; w++) {
        assert_int_equal(mr_shm_view_open(&t.views[w], &view, w, &err), MR_OK);
    }
    learn();
    print_message("%s: %llu schedules\n", s->name, (unsigned long long)explore_all(&e));
    for (uint32_t w = 0; w < WORKERS; w++) {
        mr_shm_view_close(&t.views[w]);
    }
    mr_shm_free(&t.plane);
    mr_shm_homes_free(&t.homes);
}

#define SCENARIO(id, ...)                                                                          \
    static void test_##id(void **state)                                                            \
    {                                                                                              \
        (void)state;                                                                               \
        explore(&(const struct scenario){.name = #id, __VA_ARGS__});                               \
    }

SCENARIO(one, .requests = 1, .preemptions = 2)
SCENARIO(two, .requests = 2, .preemptions = 1)
SCENARIO(two_again, .requests = 2, .preemptions = 1, .is_again = true)
SCENARIO(one_dies, .requests = 1, .preemptions = 1, .deaths = 1)
SCENARIO(one_of_two_dies, .requests = 2, .preemptions = 0, .deaths = 1)
SCENARIO(both_lives_end, .requests = 1, .preemptions = 0, .deaths = 2, .is_single = true)
SCENARIO(late, .requests = 2, .preemptions = 1, .is_late = true)
SCENARIO(together, .requests = 2, .preemptions = 1, .is_together = true)
SCENARIO(together_dies, .requests = 2, .preemptions = 0, .deaths = 1, .is_together = true)
SCENARIO(withdraw, .requests = 2, .preemptions = 1, .is_withdrawn = true)
SCENARIO(withdraw_dies, .requests = 2, .preemptions = 0, .deaths = 1, .is_withdrawn = true)
SCENARIO(need, .requests = 1, .preemptions = 1, .is_need = true)
SCENARIO(need_dies, .requests = 1, .preemptions = 0, .deaths = 1, .is_need = true)
SCENARIO(sweep, .requests = 1, .preemptions = 1, .sweeps = 2)
SCENARIO(sweep_dies, .requests = 1, .preemptions = 0, .deaths = 1, .sweeps = 2)
SCENARIO(sweep_unwanted, .requests = 2, .preemptions = 1, .sweeps = 1, .is_unwanted = true)
SCENARIO(full_line, .requests = 2, .preemptions = 1, .stale = 7)
SCENARIO(answers, .requests = 1, .preemptions = 1, .answers = 2)
SCENARIO(answers_of_two, .requests = 2, .preemptions = 1, .answers = 1)
SCENARIO(answers_dies, .requests = 1, .preemptions = 0, .deaths = 1, .answers = 2)
SCENARIO(answers_late, .requests = 1, .preemptions = 1, .is_late = true, .answers = 1)
SCENARIO(bound, .requests = 2, .preemptions = 1, .is_bound = true)
SCENARIO(bound_dies, .requests = 2, .preemptions = 0, .deaths = 1, .is_bound = true,
         .is_single = true)
SCENARIO(answers_sweep, .requests = 1, .preemptions = 1, .sweeps = 2, .answers = 1)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_two_again),
        cmocka_unit_test(test_one_dies),
        cmocka_unit_test(test_one_of_two_dies),
        cmocka_unit_test(test_both_lives_end),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_together_dies),
        cmocka_unit_test(test_withdraw),
        cmocka_unit_test(test_withdraw_dies),
        cmocka_unit_test(test_need),
        cmocka_unit_test(test_need_dies),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_sweep_dies),
        cmocka_unit_test(test_sweep_unwanted),
        cmocka_unit_test(test_full_line),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_answers_of_two),
        cmocka_unit_test(test_answers_dies),
        cmocka_unit_test(test_answers_late),
        cmocka_unit_test(test_answers_sweep),
        cmocka_unit_test(test_bound),
        cmocka_unit_test(test_bound_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
