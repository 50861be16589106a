/* A slot's way through server and worker, in one process: the segments mapped twice. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "shm/plane.h"
#include "shm/worker.h"
#include "shm_priv.h"

struct pair {
    struct mr_shm_homes *homes;
    struct mr_shm_door doors[2];
    struct mr_shm *plane;
    struct mr_shm_view *views[2];
    unsigned done, lost, damaged, answers;
    struct mr_shm_slot *last;
};

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct pair *t = ctx;

    t->done += outcome == MR_SHM_DONE;
    t->lost += outcome == MR_SHM_LOST;
    t->damaged += outcome == MR_SHM_DAMAGED;
    t->answers += outcome == MR_SHM_ANSWER;
    t->last = s;
}

static int setup(void **state)
{
    static struct pair t;
    struct mr_err err;

    t = (struct pair){0};
    for (uint32_t i = 0; i < 2; i++) {
        t.doors[i] = (struct mr_shm_door){eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                                          eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    }
    assert_int_equal(mr_shm_homes_new(&t.homes, t.doors, 2, &err), MR_OK);
    const struct mr_shm_options o = {.name = "test",
                                     .slots = 4,
                                     .message_bytes = 4096,
                                     .room_bytes = 8192,
                                     .input_bytes = 1 << 20,
                                     .output_bytes = 1 << 20,
                                     .homes = t.homes,
                                     .has_bound = true};
    assert_int_equal(mr_shm_new(&t.plane, &o, &err), MR_OK);
    const struct mr_shm_fds fds = mr_shm_get_fds(t.plane);
    const int home_fds[] = {mr_shm_home_fd(t.homes, 0), mr_shm_home_fd(t.homes, 1)};
    const struct mr_shm_view_fds view = {
        fds.control, fds.input, fds.output, mr_shm_homes_segment(t.homes), home_fds, 2};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(mr_shm_view_open(&t.views[i], &view, i, &err), MR_OK);
        mr_shm_worker_begin(t.plane, i);
    }
    *state = &t;
    return 0;
}

static int teardown(void **state)
{
    struct pair *t = *state;

    for (uint32_t i = 0; i < 2; i++) {
        mr_shm_worker_end(t->plane, i, on_outcome, t);
        mr_shm_view_close(&t->views[i]);
    }
    mr_shm_free(&t->plane);
    mr_shm_homes_free(&t->homes);
    for (uint32_t i = 0; i < 2; i++) {
        close(t->doors[i].workers);
        close(t->doors[i].server);
    }
    return 0;
}

static struct mr_shm_slot *submit(struct pair *t, const char *text, uint32_t home, bool is_again)
{
    struct mr_shm_slot *s = mr_shm_take(t->plane);

    assert_non_null(s);
    memcpy(s->message, text, strlen(text));
    mr_shm_submit(t->plane, s, strlen(text), home, is_again);
    return s;
}

static void test_there_and_back(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task, other;
    struct mr_shm_slot *s = submit(t, "question", 1, false);

    assert_int_equal(mr_shm_pending(t->plane, 1), 1);
    assert_true(mr_shm_claim(t->views[0], &task));
    assert_false(mr_shm_claim(t->views[1], &other));
    assert_int_equal(task.message_bytes, 8);
    assert_memory_equal(task.message, "question", 8);
    memcpy(task.room, "answer", 6);
    assert_true(mr_shm_complete(t->views[0], &task));
    assert_false(mr_shm_complete(t->views[0], &task));
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 0);
    assert_int_equal(mr_shm_poll(t->plane, 1, on_outcome, t), 1);
    assert_int_equal(t->done, 1);
    assert_ptr_equal(t->last, s);
    assert_memory_equal(s->room, "answer", 6);
    assert_int_equal(mr_shm_pending(t->plane, 1), 0);
    mr_shm_give(t->plane, s);
}

static bool is_reported(int epoll)
{
    struct epoll_event event;

    return epoll_wait(epoll, &event, 1, 0) == 1;
}

static void complete_one(struct pair *t)
{
    struct mr_shm_task task;

    submit(t, "question", 1, false);
    assert_true(mr_shm_claim(t->views[0], &task));
    assert_true(mr_shm_complete(t->views[0], &task));
    assert_int_equal(mr_shm_poll(t->plane, 1, on_outcome, t), 1);
    mr_shm_give(t->plane, t->last);
}

/* The descriptors of a home are never read; not even a counter that somebody has filled keeps a wake-up back, nor does it
 * make the server wait. */
static void test_home_is_woken_each_time(void **state)
{
    struct pair *t = *state;
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    const int epoll = epoll_create1(EPOLL_CLOEXEC), door = t->doors[1].workers;
    const uint64_t full = UINT64_MAX - 1;
    uint64_t count;

    epoll_ctl(epoll, EPOLL_CTL_ADD, door, &event);
    epoll_ctl(epoll, EPOLL_CTL_ADD, t->doors[1].server, &event);
    mr_shm_home_sleep(t->homes, 1);
    for (unsigned i = 0; i < 3; i++) {
        mr_shm_home_ring(t->homes, 1);
        assert_true(is_reported(epoll));
        complete_one(t);
        assert_true(is_reported(epoll));
        assert_false(is_reported(epoll));
    }
    assert_int_equal(read(door, &count, sizeof count), sizeof count);
    assert_int_equal(count, 3);
    assert_int_equal(write(door, &full, sizeof full), sizeof full);
    assert_true(is_reported(epoll));
    complete_one(t);
    assert_true(is_reported(epoll));
    assert_int_equal(read(door, &count, sizeof count), sizeof count);
    assert_int_equal(write(door, &full, sizeof full), sizeof full);
    assert_true(is_reported(epoll));
    assert_int_equal(fcntl(door, F_SETFL, 0), 0);
    mr_shm_home_ring(t->homes, 1);
    assert_true(is_reported(epoll));
    close(epoll);
}

static _Atomic bool has_completed;

static void *complete_main(void *ctx)
{
    complete_one(ctx);
    atomic_store(&has_completed, true);
    return NULL;
}

/* A worker does not wait for ever in its write to a descriptor that another one has filled. */
static void test_full_door_is_relieved(void **state)
{
    struct pair *t = *state;
    const uint64_t full = UINT64_MAX - 1;
    pthread_t thread;

    assert_int_equal(fcntl(t->doors[1].workers, F_SETFL, 0), 0);
    mr_shm_homes_relieve(t->homes); /* of an empty one, it does not wait either */
    assert_int_equal(write(t->doors[1].workers, &full, sizeof full), sizeof full);
    mr_shm_home_sleep(t->homes, 1);
    pthread_create(&thread, NULL, complete_main, t);
    while (!atomic_load(&has_completed)) {
        mr_shm_homes_relieve(t->homes);
        usleep(100);
    }
    pthread_join(thread, NULL);
    assert_int_equal(t->done, 1);
}

static void test_order(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task;
    const char *texts[] = {"a", "b", "c"};
    const char expected[] = "cab";

    submit(t, texts[0], 0, false);
    submit(t, texts[1], 0, false);
    submit(t, texts[2], 0, true);
    for (int i = 0; i < 3; i++) {
        assert_true(mr_shm_claim(t->views[i % 2], &task));
        assert_int_equal(task.message[0], expected[i]);
        mr_shm_complete(t->views[i % 2], &task);
        mr_shm_poll(t->plane, 0, on_outcome, t);
        mr_shm_give(t->plane, t->last);
    }
}

static void test_no_slot_left(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s[4];

    for (int i = 0; i < 4; i++) {
        s[i] = mr_shm_take(t->plane);
        assert_non_null(s[i]);
    }
    assert_null(mr_shm_take(t->plane));
    assert_int_equal(mr_shm_get_stats(t->plane).no_slot, 1);
    for (int i = 0; i < 4; i++) {
        mr_shm_give(t->plane, s[i]);
    }
}

/* A worker that dies while it runs a slot, and one that died after its completion, but before it rang. */
static void test_worker_ends(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task;
    struct mr_shm_slot *s = submit(t, "a", 0, false);

    assert_true(mr_shm_claim(t->views[0], &task));
    mr_shm_worker_end(t->plane, 0, on_outcome, t);
    assert_int_equal(t->lost, 1);
    assert_int_equal(s->attempts, 1);
    assert_false(mr_shm_complete(t->views[0], &task)); /* it comes too late */
    mr_shm_submit(t->plane, s, 1, 0, true);
    assert_true(mr_shm_claim(t->views[1], &task));
    assert_true(mr_shm_complete(t->views[1], &task));
    mr_shm_worker_end(t->plane, 1, on_outcome, t);
    assert_int_equal(t->done, 1);
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 0);
    mr_shm_give(t->plane, s);
}

static void test_withdraw(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task;
    struct mr_shm_slot *s = submit(t, "a", 0, false), *other = submit(t, "b", 0, false);

    assert_true(mr_shm_withdraw(t->plane, s));
    assert_false(mr_shm_withdraw(t->plane, s));
    assert_true(mr_shm_claim(t->views[0], &task));
    assert_int_equal(task.message[0], 'b');
    assert_false(mr_shm_withdraw(t->plane, other));
    assert_false(mr_shm_task_is_cancelled(t->views[0], &task));
    mr_shm_cancel(t->plane, other);
    assert_true(mr_shm_task_is_cancelled(t->views[0], &task));
    mr_shm_complete(t->views[0], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    mr_shm_give(t->plane, s);
    mr_shm_give(t->plane, other);
}

/* What is withdrawn leaves nothing in the line that others would have to wait for. */
static void test_withdrawn_many_times(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task;
    struct mr_shm_slot *first = submit(t, "a", 0, false);

    for (int i = 0; i < 100; i++) {
        struct mr_shm_slot *s = submit(t, "x", 0, false);
        assert_true(mr_shm_withdraw(t->plane, s));
        mr_shm_give(t->plane, s);
    }
    struct mr_shm_slot *last = submit(t, "b", 0, false);
    for (int i = 0; i < 2; i++) {
        assert_true(mr_shm_claim(t->views[0], &task));
        assert_int_equal(task.message[0], i == 0 ? 'a' : 'b');
        assert_true(mr_shm_complete(t->views[0], &task));
    }
    assert_false(mr_shm_claim(t->views[0], &task));
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 2);
    mr_shm_give(t->plane, first);
    mr_shm_give(t->plane, last);
}

static void test_generations_begin_again(void **state)
{
    const uint64_t last = (1ull << 40) - 1;

    (void)state;
    assert_int_equal(shm_next_generation(1), 2);
    assert_int_equal(shm_next_generation(last), 0);
    assert_int_equal(shm_generation(shm_word(last, 255, 255, SHM_NEED)), last);
}

static void test_cancel_of_whoever_has_it(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task task;
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    int mine, others;

    s->user = &mine;
    assert_false(mr_shm_cancel_of(t->plane, s, &mine)); /* not submitted */
    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_false(mr_shm_cancel_of(t->plane, s, &others));
    assert_true(mr_shm_cancel_of(t->plane, s, &mine));
    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(t->views[0], &task));
    assert_false(mr_shm_cancel_of(t->plane, s, &others));
    assert_false(mr_shm_task_is_cancelled(t->views[0], &task));
    assert_false(mr_shm_cancel_of(t->plane, s, &mine));
    assert_true(mr_shm_task_is_cancelled(t->views[0], &task));
    mr_shm_complete(t->views[0], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    mr_shm_give(t->plane, s);
}

static void on_cancelled(void *ctx, uint32_t worker, uint32_t slot, uint64_t generation)
{
    const struct mr_shm_task *task = ctx;

    assert_int_equal(worker, 1);
    assert_int_equal(slot, task->slot);
    assert_int_equal(generation, task->generation);
    ((struct mr_shm_task *)ctx)->message_bytes++;
}

/* Workers are notified once of the slots that they run. */
static void test_cancelled_are_named(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    struct mr_shm_task task;

    mr_shm_submit(t->plane, s, 0, 0, false);
    mr_shm_cancel(t->plane, s);
    mr_shm_cancelled(t->plane, on_cancelled, NULL); /* no worker runs it */
    assert_true(mr_shm_claim(t->views[1], &task));
    mr_shm_cancelled(t->plane, on_cancelled, &task);
    assert_int_equal(task.message_bytes, 1);
    mr_shm_cancelled(t->plane, on_cancelled, &task);
    assert_int_equal(task.message_bytes, 1);
    mr_shm_complete(t->views[1], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    mr_shm_give(t->plane, s);
}

static void test_extents(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    struct mr_shm_task task;
    struct mr_shm_range range;
    const uint8_t *data;
    struct mr_block *block;

    assert_true(mr_shm_add_extent(t->plane, s, 100000));
    assert_false(mr_shm_add_extent(t->plane, s, 2 << 20));
    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(t->views[0], &task));
    assert_true(mr_shm_task_extent(t->views[0], &task, 0, &range));
    assert_false(mr_shm_task_extent(t->views[0], &task, 1, &range));
    assert_true(range.bytes >= 100000);
    memcpy(range.data, "large", 5);
    mr_shm_complete(t->views[0], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    assert_true(mr_shm_output_at(t->plane, s, range.offset, range.bytes, &data, &block));
    assert_non_null(block);
    assert_memory_equal(data, "large", 5);
    assert_false(mr_shm_output_at(t->plane, s, range.offset, range.bytes + 1, &data, &block));
    assert_false(mr_shm_output_at(t->plane, s, range.offset - 1, 1, &data, &block));
    assert_false(mr_shm_output_at(t->plane, s, UINT64_MAX, 2, &data, &block));
    assert_true(mr_shm_output_at(t->plane, s, s->room_offset, s->room_bytes, &data, &block));
    assert_null(block);
    mr_shm_give(t->plane, s);
    assert_int_equal(mr_shm_heap_get_stats(mr_shm_outputs(t->plane)).used_bytes, 0);
}

/* A worker that gives one answer and then completes. */
struct answerer {
    struct mr_shm_view *view;
    struct mr_shm_task task;
    struct mr_err err;
    int status;
};

static void *answerer_main(void *ctx)
{
    struct answerer *a = ctx;

    a->status = mr_shm_task_answer(a->view, &a->task, &a->err);
    return NULL;
}

/* Returns when the answer is the caller's. */
static pthread_t answer_begin(struct pair *t, struct answerer *a)
{
    const unsigned had = t->answers;
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, answerer_main, a), 0);
    while (t->answers == had) {
        mr_shm_poll(t->plane, 0, on_outcome, t);
    }
    return thread;
}

static void test_answers(void **state)
{
    struct pair *t = *state;
    struct answerer a = {.view = t->views[0]};
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    struct mr_shm_range range, again;
    const uint8_t *data;
    struct mr_block *block;
    pthread_t thread;

    assert_true(mr_shm_add_extent(t->plane, s, 100000));
    s->user = t;
    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(a.view, &a.task));
    assert_true(mr_shm_task_extent(a.view, &a.task, 0, &range));
    memcpy(range.data, "first", 5);
    thread = answer_begin(t, &a);
    assert_int_equal(mr_shm_pending(t->plane, 0), 1);
    assert_true(mr_shm_output_at(t->plane, s, range.offset, 5, &data, &block));
    block = mr_block_ref(block);
    assert_true(mr_shm_go_on(t->plane, s, MR_OK, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(a.status, MR_OK);
    /* referenced memory is not written again */
    assert_true(mr_shm_task_extent(a.view, &a.task, 0, &again));
    assert_true(again.bytes >= 100000 && again.offset != range.offset);
    assert_memory_equal(block->data, "first", 5);
    mr_block_unref(&block);

    thread = answer_begin(t, &a);
    assert_false(mr_shm_cancel_of(t->plane, s, t));
    assert_true(mr_shm_task_is_cancelled(a.view, &a.task));
    assert_true(mr_shm_go_on(t->plane, s, MR_E_CANCELLED, "nobody waits"));
    pthread_join(thread, NULL);
    assert_int_equal(a.status, MR_E_CANCELLED);
    assert_string_equal(a.err.msg, "nobody waits");
    assert_true(mr_shm_task_extent(a.view, &a.task, 0, &range));
    assert_int_equal(range.offset, again.offset); /* none did */
    mr_shm_complete(a.view, &a.task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    assert_int_equal(t->done, 1);
    mr_shm_give(t->plane, s);
    assert_int_equal(mr_shm_heap_get_stats(mr_shm_outputs(t->plane)).used_bytes, 0);
}

static void post(struct mr_shm_view *v, struct mr_shm_task *task, uint32_t value)
{
    struct mr_shm_range letter;

    assert_true(mr_shm_task_letter(v, task, &letter));
    assert_true(letter.bytes >= sizeof value);
    memcpy(letter.data, &value, sizeof value);
    assert_true(mr_shm_task_post(v, task));
}

/* Reads the letters of the slot, whose values go on from *next. Returns their number. */
static uint32_t letters_read(struct pair *t, struct mr_shm_slot *s, uint32_t *next)
{
    const uint32_t first = *next;
    uint32_t value;

    while (mr_shm_next_letter(t->plane, s)) {
        assert_true(s->letter >= s->room && s->letter < s->room + s->room_bytes);
        memcpy(&value, s->letter, sizeof value);
        assert_int_equal(value, (*next)++);
    }
    return *next - first;
}

static void test_letters(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    struct mr_shm_task task;
    uint32_t next = 0;

    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(t->views[0], &task));
    for (uint32_t i = 0; i < 3; i++) {
        post(t->views[0], &task, i);
    }
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 1);
    assert_int_equal(t->answers, 1);
    assert_true(mr_shm_is_posted(s));
    post(t->views[0], &task, 3); /* while they are read */
    assert_int_equal(letters_read(t, s, &next), 4);
    post(t->views[0], &task, 4); /* too late for that */
    assert_true(mr_shm_go_on(t->plane, s, MR_OK, NULL));
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 1);
    assert_int_equal(letters_read(t, s, &next), 1);
    assert_true(mr_shm_go_on(t->plane, s, MR_OK, NULL));
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 0);
    assert_true(mr_shm_task_settle(t->views[0], &task));
    for (uint32_t i = 5; i < 21; i++) { /* all that it may post at once */
        post(t->views[0], &task, i);
    }
    mr_shm_poll(t->plane, 0, on_outcome, t);
    assert_int_equal(letters_read(t, s, &next), 16);
    assert_false(mr_shm_next_letter(t->plane, s));
    mr_shm_go_on(t->plane, s, MR_OK, NULL);
    mr_shm_complete(t->views[0], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    assert_int_equal(t->done, 1);
    mr_shm_give(t->plane, s);
}

static int64_t oldest_at(struct pair *t, int64_t now_ns)
{
    static struct mr_shm_worker_state states[MR_SHM_WORKERS_MAX];

    mr_shm_sweep(t->plane, now_ns, states, on_outcome, t);
    return states[0].oldest_ns;
}

/* The oldest of several that a worker runs counts. The time of one starts again when the caller has taken an answer. */
static void test_how_long_a_worker_runs_one(void **state)
{
    struct pair *t = *state;
    struct mr_shm_task first, second;
    struct mr_shm_slot *slots[2];
    uint32_t next = 0;

    mr_shm_set_at_once(t->plane, 2);
    assert_int_equal(oldest_at(t, 10), 0);
    slots[0] = submit(t, "first", 0, false);
    assert_true(mr_shm_claim(t->views[0], &first));
    assert_int_equal(oldest_at(t, 20), 20);
    slots[1] = submit(t, "second", 0, false);
    assert_true(mr_shm_claim(t->views[0], &second));
    assert_int_equal(oldest_at(t, 30), 20);
    post(t->views[0], &first, 0);
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 1);
    assert_int_equal(oldest_at(t, 40), 30);
    assert_int_equal(letters_read(t, slots[0], &next), 1);
    assert_true(mr_shm_go_on(t->plane, slots[0], MR_OK, NULL));
    assert_int_equal(oldest_at(t, 50), 30);
    mr_shm_complete(t->views[0], &second);
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 1);
    assert_int_equal(oldest_at(t, 60), 50);
    mr_shm_complete(t->views[0], &first);
    assert_int_equal(mr_shm_poll(t->plane, 0, on_outcome, t), 1);
    assert_int_equal(oldest_at(t, 70), 0);
    for (int i = 0; i < 2; i++) {
        mr_shm_give(t->plane, slots[i]);
    }
}

#define LETTERS 20000u

static void *poster_main(void *ctx)
{
    struct answerer *a = ctx;

    for (uint32_t i = 0; i < LETTERS; i++) {
        post(a->view, &a->task, i);
    }
    a->status = mr_shm_task_settle(a->view, &a->task) ? MR_OK : MR_E_CANCELLED;
    mr_shm_complete(a->view, &a->task);
    return NULL;
}

/* Letters that are posted while others are read come once, in order, and without being rung for. */
static void test_letters_of_a_thread(void **state)
{
    struct pair *t = *state;
    struct answerer a = {.view = t->views[0]};
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    pthread_t thread;
    uint32_t next = 0;

    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(a.view, &a.task));
    assert_int_equal(pthread_create(&thread, NULL, poster_main, &a), 0);
    while (t->done == 0) {
        const unsigned had = t->answers;
        mr_shm_poll(t->plane, 0, on_outcome, t);
        if (t->answers > had) {
            letters_read(t, s, &next);
            assert_true(mr_shm_go_on(t->plane, s, MR_OK, NULL));
        }
    }
    pthread_join(thread, NULL);
    assert_int_equal(a.status, MR_OK);
    assert_int_equal(next, LETTERS);
    mr_shm_give(t->plane, s);
}

static void test_letter_to_no_one(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s = mr_shm_take(t->plane);
    struct mr_shm_task task;

    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(t->views[0], &task));
    post(t->views[0], &task, 0);
    mr_shm_worker_end(t->plane, 0, on_outcome, t);
    mr_shm_worker_begin(t->plane, 0);
    assert_int_equal(t->lost, 1);
    assert_false(mr_shm_task_post(t->views[0], &task));
    assert_false(mr_shm_task_settle(t->views[0], &task));
    mr_shm_give(t->plane, s);
}

/* Its next life in the same place is another worker. */
static void test_worker_ends_between_answers(void **state)
{
    struct pair *t = *state;
    struct answerer a = {.view = t->views[0]};
    struct mr_shm_slot *s = mr_shm_take(t->plane);

    mr_shm_submit(t->plane, s, 0, 0, false);
    assert_true(mr_shm_claim(a.view, &a.task));
    const pthread_t thread = answer_begin(t, &a);
    mr_shm_worker_end(t->plane, 0, on_outcome, t);
    assert_int_equal(mr_shm_worker_begin(t->plane, 0), s->process + 1);
    assert_int_equal(t->lost, 0);
    assert_false(mr_shm_go_on(t->plane, s, MR_OK, NULL));
    pthread_join(thread, NULL);
    assert_int_equal(a.status, MR_E_CANCELLED);
    mr_shm_submit(t->plane, s, 0, 0, true);
    assert_true(mr_shm_claim(t->views[1], &a.task));
    mr_shm_complete(t->views[1], &a.task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    mr_shm_give(t->plane, s);
}

/* Slots that are bound to a worker go to it alone, and not to its next life. */
static void test_bound(void **state)
{
    struct pair *t = *state;
    struct mr_shm_slot *s[3];
    struct mr_shm_task task;

    for (unsigned i = 0; i < 3; i++) {
        s[i] = mr_shm_take(t->plane);
        s[i]->bound = 1;
        s[i]->life = mr_shm_worker_life(t->plane, 1);
    }
    assert_true(mr_shm_submit(t->plane, s[0], 0, 0, false));
    assert_true(mr_shm_submit(t->plane, s[1], 0, 0, false));
    assert_false(mr_shm_claim(t->views[0], &task));
    /* nothing is lost with a worker that has had nothing */
    mr_shm_worker_end(t->plane, 1, on_outcome, t);
    mr_shm_worker_end(t->plane, 0, on_outcome, t);
    mr_shm_worker_begin(t->plane, 1);
    mr_shm_worker_begin(t->plane, 0);
    assert_int_equal(mr_shm_worker_life(t->plane, 1), s[0]->life);
    assert_true(mr_shm_claim(t->views[1], &task));
    assert_int_equal(task.slot, s[0]->index);
    mr_shm_complete(t->views[1], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    assert_int_equal(t->done, 1);
    assert_int_equal(t->lost, 0);

    mr_shm_worker_end(t->plane, 1, on_outcome, t);
    mr_shm_worker_begin(t->plane, 1);
    assert_int_equal(t->lost, 1);
    assert_ptr_equal(t->last, s[1]);
    assert_true(mr_shm_worker_life(t->plane, 1) != s[0]->life);
    assert_false(mr_shm_submit(t->plane, s[2], 0, 0, false));
    assert_false(mr_shm_claim(t->views[1], &task));
    s[2]->life = 0;
    assert_true(mr_shm_submit(t->plane, s[2], 0, 0, false));
    assert_true(mr_shm_claim(t->views[1], &task));
    mr_shm_complete(t->views[1], &task);
    mr_shm_poll(t->plane, 0, on_outcome, t);
    for (unsigned i = 0; i < 3; i++) {
        mr_shm_give(t->plane, s[i]);
    }
}

/* Only the server can write the memory that workers read. */
static void test_inputs_are_read_only(void **state)
{
    struct pair *t = *state;
    const struct mr_shm_fds fds = mr_shm_get_fds(t->plane);

    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds.input, 0),
                     MAP_FAILED);
    assert_int_equal(ftruncate(fds.control, 0), -1);
    assert_int_equal(ftruncate(fds.output, 1 << 30), -1);
    assert_true(fcntl(fds.input, F_GET_SEALS) & F_SEAL_SEAL);
}

static void *check_and_drop(void *arg)
{
    struct mr_block *b = arg;

    for (size_t i = 0; i < b->cap; i++) {
        if (b->data[i] != 7) {
            return (void *)1;
        }
    }
    mr_block_unref(&b);
    return NULL;
}

static _Thread_local unsigned usages;

/* In place of the C library's, for all tests of the program: a wait that may spin first asks whether its thread was preempted. */
int getrusage(__rusage_who_t who, struct rusage *out)
{
    usages++;
    return (int)syscall(SYS_getrusage, who, out);
}

/* Waits that end at once: after one, the next one spins if it may. */
static bool waits_spin(struct pair *t)
{
    struct mr_shm_slot *s = submit(t, "question", 0, false);

    usages = 0;
    for (int i = 0; i < 1000; i++) {
        mr_shm_wait(t->views[0], 1);
    }
    assert_true(mr_shm_withdraw(t->plane, s));
    mr_shm_give(t->plane, s);
    return usages > 0;
}

/* On the only CPU, what a spin waits for cannot come before its thread is preempted. */
static void test_spins_beside_another_cpu_only(void **state)
{
    cpu_set_t all, one;
    size_t first = 0;

    if (sched_getaffinity(0, sizeof all, &all) < 0) {
        skip(); /* more CPUs than a set has */
    }
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    setup(state);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_false(waits_spin(*state));
    teardown(state);
    if (mr_cpu_count() > 1) {
        setup(state);
        assert_true(waits_spin(*state));
        teardown(state);
    }
}

/* Clients that read or write slowly: their blocks stay, and are freed on the thread that drops them, before or after the
 * end of the plane. */
static void test_blocks_outlive_the_plane(void **state)
{
    struct pair *t = *state;
    struct mr_block *blocks[8];
    pthread_t threads[8];
    void *wrong;

    for (int i = 0; i < 8; i++) {
        struct mr_shm_heap *h = i % 2 == 0 ? mr_shm_inputs(t->plane) : mr_shm_outputs(t->plane);
        blocks[i] = mr_block_new_in(&h->provider, 100000);
        assert_non_null(blocks[i]);
        memset(blocks[i]->data, 7, blocks[i]->cap);
    }
    for (uint32_t i = 0; i < 2; i++) {
        mr_shm_worker_end(t->plane, i, on_outcome, t);
        mr_shm_view_close(&t->views[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_and_drop, blocks[i]), 0);
    }
    mr_shm_free(&t->plane);
    assert_null(t->plane);
    mr_shm_homes_free(&t->homes);
    for (int i = 4; i < 8; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_and_drop, blocks[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_blocks_outlive_the_plane, setup),
        cmocka_unit_test_setup_teardown(test_there_and_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_home_is_woken_each_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_door_is_relieved, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_slot_left, setup, teardown),
        cmocka_unit_test_setup_teardown(test_worker_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_withdraw, setup, teardown),
        cmocka_unit_test_setup_teardown(test_withdrawn_many_times, setup, teardown),
        cmocka_unit_test(test_generations_begin_again),
        cmocka_unit_test_setup_teardown(test_cancel_of_whoever_has_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cancelled_are_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_extents, setup, teardown),
        cmocka_unit_test_setup_teardown(test_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letters, setup, teardown),
        cmocka_unit_test_setup_teardown(test_how_long_a_worker_runs_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letters_of_a_thread, setup, teardown),
        cmocka_unit_test_setup_teardown(test_letter_to_no_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_worker_ends_between_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(test_inputs_are_read_only, setup, teardown),
        cmocka_unit_test(test_spins_beside_another_cpu_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
