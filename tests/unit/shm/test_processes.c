/* Two homes, four workers that are killed again and again, once as threads and once as processes: every request gets
 * its own answer, once. Kills follow numbers of answers, not times. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "shm/plane.h"
#include "shm/worker.h"

#define HOMES      2u
#define WORKERS    4u
#define SLOTS      16u
#define REQUESTS   10000u /* of each home */
#define KILLS      300u
#define BETWEEN    50u /* answers between two kills, on average */
#define NEED_BYTES 70000u
#define WORDS      16u
#define ANSWERS    3u /* to a request that has several */

struct request {
    uint64_t number;
    uint32_t home;
    bool is_large, is_several;
    unsigned answered; /* the holder of its slot */
    _Atomic unsigned ends;
};

struct home {
    uint32_t index;
    pthread_t thread;
    _Atomic uint32_t over;
    struct request requests[REQUESTS];
};

struct worker {
    bool is_thread;
    pid_t pid;
    pthread_t thread;
    struct mr_shm_view *view;
    struct mr_rng rng;
    _Atomic bool must_die;
};

static struct {
    struct mr_shm_homes *homes;
    struct mr_shm_door doors[HOMES];
    struct mr_shm *plane;
    struct home home[HOMES];
    struct worker workers[WORKERS];
    pthread_mutex_t lock; /* guards answers */
    pthread_cond_t more;
    unsigned answers;
    _Atomic unsigned wrong;
} t;

/* What a worker does with a number: the i-th word of the answer. */
static uint64_t answer_to(uint64_t number, uint64_t i)
{
    return (number + i) * 0x9e3779b97f4a7c15ull ^ number >> 7;
}

/* ---- a worker ---- */

/* The number, whether the answer needs an extent, how many there are besides the last, and its place, as the first words
 * of message and room. */
static bool execute(struct worker *w, struct mr_shm_task *task)
{
    uint64_t message[3], place;
    struct mr_shm_range range = {task->room + 64, task->room_offset + 64, task->room_bytes - 64};

    memcpy(message, task->message, sizeof message);
    if (message[1] != 0 && !(mr_shm_task_extent(w->view, task, 0, &range) ||
                             mr_shm_task_need(w->view, task, NEED_BYTES, &range))) {
        return false;
    }
    for (uint64_t i = 0; i < WORDS; i++) {
        const uint64_t word = answer_to(message[0], i);
        memcpy(range.data + i * 8, &word, 8);
    }
    place = range.offset;
    memcpy(task->room, &place, sizeof place);
    return true;
}

/* Whether a thread that is to die does so here. */
static bool dies_here(struct worker *w)
{
    return atomic_load_explicit(&w->must_die, memory_order_relaxed) && mr_rng_u64(&w->rng) % 2;
}

/* All answers but the last. */
static bool answer(struct worker *w, struct mr_shm_task *task)
{
    struct mr_err err;
    uint64_t count;

    memcpy(&count, task->message + 16, sizeof count);
    for (uint64_t i = 0; i < count; i++) {
        if (!execute(w, task) || mr_shm_task_answer(w->view, task, &err) < 0 || dies_here(w)) {
            return false;
        }
    }
    return true;
}

static void *worker_main(void *ctx)
{
    struct worker *w = ctx;
    struct mr_shm_task task;

    while (!dies_here(w)) {
        if (!mr_shm_claim(w->view, &task)) {
            /* the end of the wait is for threads, which are not killed in their sleep */
            mr_shm_wait(w->view, w->is_thread ? MR_NS_PER_MS : 10 * MR_NS_PER_S);
            continue;
        }
        if (dies_here(w) || !answer(w, &task) || !execute(w, &task)) {
            break;
        }
        if (dies_here(w)) {
            break;
        }
        mr_shm_complete(w->view, &task);
    }
    return NULL;
}

static void worker_start(struct worker *w)
{
    mr_shm_worker_begin(t.plane, (uint32_t)(w - t.workers));
    atomic_store(&w->must_die, false);
    if (w->is_thread) {
        assert_int_equal(pthread_create(&w->thread, NULL, worker_main, w), 0);
        return;
    }
    w->pid = fork();
    assert_true(w->pid >= 0);
    if (w->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        worker_main(w);
        _exit(70); /* it had no memory */
    }
}

static void worker_kill(struct worker *w)
{
    int status;

    if (w->is_thread) {
        atomic_store(&w->must_die, true);
        pthread_join(w->thread, NULL);
        return;
    }
    assert_int_equal(kill(w->pid, SIGKILL), 0);
    assert_int_equal(waitpid(w->pid, &status, 0), w->pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- the server ---- */

static void check_answer(struct mr_shm_slot *s, const struct request *r)
{
    const uint8_t *data;
    struct mr_block *block;
    uint64_t place, word;
    bool is_right = true;

    memcpy(&place, s->room, sizeof place);
    if (!mr_shm_output_at(t.plane, s, place, (uint64_t)WORDS * 8, &data, &block) ||
        (block != NULL) != r->is_large) {
        atomic_fetch_add(&t.wrong, 1);
        return;
    }
    for (uint64_t i = 0; i < WORDS; i++) {
        memcpy(&word, data + i * 8, 8);
        is_right &= word == answer_to(r->number, i);
    }
    atomic_fetch_add(&t.wrong, !is_right);
}

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    (void)ctx;
    if (outcome == MR_SHM_WAITING) {
        return;
    }
    struct request *r = s->user;
    if (outcome == MR_SHM_ANSWER) {
        check_answer(s, r);
        r->answered++;
        if (mr_shm_go_on(t.plane, s, MR_OK, NULL)) {
            return;
        }
        outcome = MR_SHM_LOST;
    }
    if (outcome == MR_SHM_LOST && r->answered == 0) {
        mr_shm_submit(t.plane, s, 24, r->home, true);
        return;
    }
    if (outcome != MR_SHM_LOST) { /* else it has had some of its answers, and will have no more */
        const bool is_right = r->answered == (r->is_several ? ANSWERS - 1 : 0);
        atomic_fetch_add(&t.wrong, outcome != MR_SHM_DONE || !is_right);
        check_answer(s, r);
    }
    const uint32_t home = r->home;
    atomic_fetch_add(&r->ends, 1);
    mr_shm_give(t.plane, s);
    atomic_fetch_add(&t.home[home].over, 1);
    pthread_mutex_lock(&t.lock);
    t.answers++;
    pthread_cond_signal(&t.more);
    pthread_mutex_unlock(&t.lock);
}

static void submit(struct request *r)
{
    struct mr_shm_slot *s = mr_shm_take(t.plane);
    const uint64_t message[3] = {r->number, r->is_large, r->is_several ? ANSWERS - 1 : 0};

    if (!s) {
        abort(); /* each home has its share of the slots */
    }
    s->user = r;
    memcpy(s->message, message, sizeof message);
    mr_shm_submit(t.plane, s, sizeof message, r->home, false);
}

static void *home_main(void *ctx)
{
    struct home *h = ctx;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    const int epoll = epoll_create1(EPOLL_CLOEXEC);
    uint32_t submitted = 0, over;

    epoll_ctl(epoll, EPOLL_CTL_ADD, t.doors[h->index].workers, &event);
    epoll_ctl(epoll, EPOLL_CTL_ADD, t.doors[h->index].server, &event);
    /* over is read before the submissions: another thread that ends a request after that, and rings while this one does not
     * sleep yet, is seen by the second look */
    while ((over = atomic_load(&h->over)) < REQUESTS) {
        while (submitted < REQUESTS && submitted - over < SLOTS / HOMES) {
            submit(&h->requests[submitted++]);
        }
        if (mr_shm_poll(t.plane, h->index, on_outcome, NULL) > 0) {
            continue;
        }
        mr_shm_home_sleep(t.homes, h->index);
        if (mr_shm_poll(t.plane, h->index, on_outcome, NULL) == 0 &&
            atomic_load(&h->over) == over) {
            epoll_wait(epoll, &event, 1, -1);
        }
        mr_shm_home_wake(t.homes, h->index);
    }
    close(epoll);
    return NULL;
}

/* The next worker dies at that number of answers. */
static void wait_for_answers(unsigned count)
{
    pthread_mutex_lock(&t.lock);
    while (t.answers < count) {
        pthread_cond_wait(&t.more, &t.lock);
    }
    pthread_mutex_unlock(&t.lock);
}

static void replace(struct worker *w)
{
    static struct mr_shm_worker_state states[MR_SHM_WORKERS_MAX];

    worker_kill(w);
    mr_shm_worker_end(t.plane, (uint32_t)(w - t.workers), on_outcome, NULL);
    mr_shm_sweep(t.plane, mr_now_ns(), states, on_outcome, NULL);
    worker_start(w);
    for (uint32_t i = 0; i < HOMES; i++) {
        mr_shm_home_ring(t.homes, i);
    }
}

/* ---- all of it ---- */

static void open_all(bool are_threads)
{
    struct mr_err err;

    memset(&t, 0, sizeof t);
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.more, NULL);
    for (uint32_t i = 0; i < HOMES; i++) {
        t.doors[i] = (struct mr_shm_door){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                          eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    }
    assert_int_equal(mr_shm_homes_new(&t.homes, t.doors, HOMES, &err), MR_OK);
    const struct mr_shm_options o = {.name = "processes",
                                     .slots = SLOTS,
                                     .message_bytes = 4096,
                                     .room_bytes = 4096,
                                     .output_bytes = 64 << 20,
                                     .homes = t.homes};
    assert_int_equal(mr_shm_new(&t.plane, &o, &err), MR_OK);
    const struct mr_shm_fds fds = mr_shm_get_fds(t.plane);
    const int home_fds[HOMES] = {mr_shm_home_fd(t.homes, 0), mr_shm_home_fd(t.homes, 1)};
    const struct mr_shm_view_fds view = {
        fds.control, fds.input, fds.output, mr_shm_homes_segment(t.homes), home_fds, HOMES};
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct worker *w = &t.workers[i];
        w->is_thread = are_threads;
        mr_rng_seed(&w->rng, i);
        assert_int_equal(mr_shm_view_open(&w->view, &view, i, &err), MR_OK);
    }
}

static void close_all(void)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_kill(&t.workers[i]);
        mr_shm_worker_end(t.plane, i, on_outcome, NULL);
        mr_shm_view_close(&t.workers[i].view);
    }
    assert_int_equal(t.answers, HOMES * REQUESTS);
    assert_int_equal(t.wrong, 0);
    for (uint32_t i = 0; i < HOMES; i++) {
        for (uint32_t k = 0; k < REQUESTS; k++) {
            assert_int_equal(t.home[i].requests[k].ends, 1);
        }
    }
    assert_int_equal(mr_shm_heap_get_stats(mr_shm_outputs(t.plane)).used_bytes, 0);
    mr_shm_free(&t.plane); /* no slot is out */
    mr_shm_homes_free(&t.homes);
    for (uint32_t i = 0; i < HOMES; i++) {
        close(t.doors[i].workers);
        close(t.doors[i].server);
    }
    pthread_cond_destroy(&t.more);
    pthread_mutex_destroy(&t.lock);
}

static void kill_many(bool are_threads)
{
    struct mr_rng rng;
    unsigned next = 0;

    open_all(are_threads);
    mr_rng_seed(&rng, 11);
    for (uint32_t i = 0; i < WORKERS; i++) {
        worker_start(&t.workers[i]);
    }
    for (uint32_t i = 0; i < HOMES; i++) {
        struct home *h = &t.home[i];
        h->index = i;
        for (uint32_t k = 0; k < REQUESTS; k++) {
            const uint64_t number = mr_rng_u64(&rng);
            h->requests[k] = (struct request){.number = number,
                                              .home = i,
                                              .is_large = number % 8 == 0,
                                              .is_several = number % 5 == 0};
        }
        assert_int_equal(pthread_create(&h->thread, NULL, home_main, h), 0);
    }
    for (unsigned i = 0; i < KILLS; i++) {
        next += (unsigned)(mr_rng_u64(&rng) % (2 * BETWEEN));
        wait_for_answers(next < HOMES * REQUESTS ? next : HOMES * REQUESTS);
        replace(&t.workers[mr_rng_u64(&rng) % WORKERS]);
    }
    for (uint32_t i = 0; i < HOMES; i++) {
        pthread_join(t.home[i].thread, NULL);
    }
    close_all();
}

static void test_threads(void **state)
{
    (void)state;
    kill_many(true);
}

#if !defined(__SANITIZE_THREAD__)
static void test_forked(void **state)
{
    (void)state;
    kill_many(false);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
#if !defined(                                                                                      \
    __SANITIZE_THREAD__) /* its run-time does not follow a fork of a program with threads */
        cmocka_unit_test(test_forked),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
