/* The event loop on libuv.
 *
 * One iteration: sleep in epoll, callbacks of descriptors, due timers (check), then the prepare step: flush output
 * and run mails until both are empty; then sleep. A callback therefore only queues output, and the answers of one
 * iteration are sent together. Long work runs after all that, and while there is any the loop does not sleep.
 *
 * Posters write to the eventfd only when the loop may be asleep: before it sleeps the loop sets `wants_wake` and
 * checks the mailbox once more; a poster that found the box empty clears the flag and wakes the loop if it was set.
 * Both are read-modify-writes of one variable, so either the poster sees the flag or the loop sees the mail.
 *
 * Timers: libuv sleeps in whole milliseconds. Delays below 100 ms are armed on a timerfd, which is
 * exact to the kernel's timer; longer ones are rounded up to the next millisecond. The timerfd stays armed when its
 * timer is stopped: a needless wake-up is cheaper than a system call per start and stop.
 *
 * libuv runs callbacks of descriptors from within its poll, before uv_check: each callback here begins with
 * mr_loop_enter, which runs the after_wake hook once per wake-up.
 *
 * For connections see conn.c. */
#include "loop_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define MAIL_ROUNDS   8
#define FINE_LIMIT_NS (100 * MR_NS_PER_MS)
#define SCRATCH_KEEP  ((size_t)8 * 1024 * 1024)
#define AGE_NS        (5 * MR_NS_PER_S)
#define SLICE_NS      (MR_NS_PER_MS / 2)

static _Thread_local struct mr_loop *here;

/* ---- waking --------------------------------------------------------------------------------- */

void mr_loop_wake(struct mr_loop *loop)
{
    loop->awake = true;
    loop->now_ns = loop->woke_ns = mr_now_ns();
    /* Relaxed: a poster that still sees the flag only causes a needless wake-up. */
    atomic_store_explicit(&loop->wants_wake, 0, memory_order_relaxed);
    mr_count_add(&loop->stats.iterations, 1);
    if (loop->hooks.after_wake) {
        loop->hooks.after_wake(loop->hooks.ctx);
    }
}

void mr_loop_resume(struct mr_loop *loop)
{
    mr_loop_enter(loop);
}

static void fall_asleep(struct mr_loop *loop)
{
    if (!loop->awake) {
        return;
    }
    mr_hist_add(&loop->stats.lag_ns, (uint64_t)(mr_now_ns() - loop->woke_ns));
    loop->awake = false;
    if (loop->hooks.before_sleep) {
        loop->hooks.before_sleep(loop->hooks.ctx);
    }
}

/* An idle CPU takes tens of microseconds to wake up, more on a virtual machine. So the loop polls for a while after
 * its last work before it sleeps. */
static void busy_poll(struct mr_loop *loop)
{
    struct pollfd events = {.fd = uv_backend_fd(&loop->uv), .events = POLLIN};
    int64_t until_ns = mr_ns_after(loop->woke_ns, loop->busy_poll_ns);

    while (mr_now_ns() < until_ns && poll(&events, 1, 0) == 0) {
    }
}

/* End the loop's sleep. Thread: any. Not uv_async_send: with it the woken thread spins until the waker has finished
 * its call, and if both share a CPU the waker cannot run. */
static void wake_up(struct mr_loop *loop)
{
    uint64_t one = 1;
    ssize_t n;

    do {
        n = write(loop->wake_fd, &one, sizeof one);
    } while (n < 0 && errno == EINTR); /* EAGAIN: the counter is full, the loop is awake */
}

/* Thread: any. The mailbox was empty before this post. */
static void wake_for_mail(void *ctx)
{
    struct mr_loop *loop = ctx;

    /* acq_rel: pairs with the exchange in settle, see the top of the file. */
    if (loop != here && atomic_exchange_explicit(&loop->wants_wake, 0, memory_order_acq_rel) == 1) {
        wake_up(loop);
    }
}

/* ---- the prepare step ----------------------------------------------------------------------- */

static void flush_all(struct mr_loop *loop)
{
    struct mr_flush *f;

    while ((f = TAILQ_FIRST(&loop->flushes))) {
        mr_flush_cancel(loop, f);
        f->run(f);
    }
}

/* Flushes and runs mails until both are empty; false if mails keep coming. */
static bool settle(struct mr_loop *loop)
{
    for (int round = 0; round < MAIL_ROUNDS; round++) {
        flush_all(loop);
        atomic_exchange_explicit(&loop->wants_wake, 1, memory_order_acq_rel);
        size_t mails = mr_mailbox_drain(&loop->box);
        mr_count_add(&loop->stats.mails, mails);
        if (loop->hooks.take) {
            mails += loop->hooks.take(loop->hooks.ctx);
        }
        if (mails == 0 && TAILQ_EMPTY(&loop->flushes)) {
            return true;
        }
    }
    flush_all(loop);
    return false;
}

static void on_fine(uv_poll_t *handle, int status, int events)
{
    struct mr_loop *loop = handle->data;
    uint64_t expirations;

    (void)status;
    (void)events;
    mr_loop_enter(loop);
    if (read(loop->fine_fd, &expirations, sizeof expirations) > 0) {
        loop->fine_at_ns = 0;
    }
}

static void on_coarse(uv_timer_t *timer)
{
    struct mr_loop *loop = timer->data;

    mr_loop_enter(loop);
    loop->coarse_at_ns = 0;
}

static void arm_fine(struct mr_loop *loop, int64_t at_ns)
{
    struct itimerspec spec = {
        .it_value = {.tv_sec = at_ns / MR_NS_PER_S, .tv_nsec = at_ns % MR_NS_PER_S}};

    if (loop->fine_at_ns != 0 && loop->fine_at_ns <= at_ns) {
        return;
    }
    if (timerfd_settime(loop->fine_fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0) {
        loop->fine_at_ns = at_ns;
    }
}

static void arm_timers(struct mr_loop *loop)
{
    if (!loop->timers) {
        if (loop->coarse_at_ns) {
            loop->coarse_at_ns = 0;
            uv_timer_stop(&loop->coarse_timer);
        }
        return;
    }
    int64_t at_ns = loop->timers->at_ns;
    int64_t left_ns = at_ns - loop->now_ns;
    if (left_ns < FINE_LIMIT_NS) {
        arm_fine(loop, at_ns > 0 ? at_ns : 1);
    } else if (loop->coarse_at_ns == 0 || loop->coarse_at_ns != at_ns) {
        uint64_t ms = (uint64_t)((left_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS);
        loop->coarse_at_ns = at_ns;
        uv_update_time(&loop->uv);
        uv_timer_start(&loop->coarse_timer, on_coarse, ms, 0);
    }
}

static void on_busy(uv_idle_t *handle)
{
    (void)handle;
}

/* Runs long work after everything else. False: there is more of it, or mails keep coming. */
static bool turns_take(struct mr_loop *loop)
{
    if (mr_turns_is_empty(&loop->turns)) {
        loop->turns.used_ns = 0;
        return true;
    }
    uint64_t before = loop->turns.turns;
    mr_turns_run(&loop->turns);
    mr_count_add(&loop->stats.turns, loop->turns.turns - before);
    return settle(loop) && mr_turns_is_empty(&loop->turns);
}

/* Returns the memory of a past peak from the caches to the heap step by step, so that memory does not stay at the
 * highest peak. An idle loop does not wake up for it. */
static void caches_age(struct mr_loop *loop)
{
    mr_free_list_age(&loop->inputs);
    mr_free_list_age(&loop->conns);
    mr_free_list_age(&loop->calls);
    for (size_t i = 0; i < MR_H2MEM_CLASSES; i++) {
        mr_free_list_age(&loop->h2mem[i]);
    }
    loop->age_ns = mr_ns_after(loop->now_ns, AGE_NS);
}

static void on_prepare(uv_prepare_t *handle)
{
    struct mr_loop *loop = handle->data;

    /* libuv's own timers (on_coarse) may have run before this, also in the first iteration. */
    mr_loop_enter(loop);
    bool is_settled = settle(loop);
    if (!turns_take(loop) || !is_settled) {
        uv_idle_start(&loop->busy, on_busy);
    }
    if (loop->scratch.cap > SCRATCH_KEEP) {
        mr_buf_fini(&loop->scratch);
    }
    if (loop->now_ns >= loop->age_ns) {
        caches_age(loop);
    }
    if (atomic_load_explicit(&loop->stopping, memory_order_relaxed)) {
        uv_stop(&loop->uv);
        uv_idle_start(&loop->busy, on_busy);
    }
    arm_timers(loop);
    fall_asleep(loop);
    if (loop->busy_poll_ns > 0 && !uv_is_active((uv_handle_t *)&loop->busy)) {
        busy_poll(loop);
    }
}

static void on_check(uv_check_t *handle)
{
    struct mr_loop *loop = handle->data;

    mr_loop_enter(loop);
    uv_idle_stop(&loop->busy);
    mr_timers_run(loop);
}

/* An eventfd has been written to. It is never read: other processes have the door, and could make a read wait. libuv knows
 * level-triggered events only, so at its first event the descriptor becomes edge-triggered in libuv's epoll, whose entries
 * have the descriptor as their data. No wake-up is lost: epoll reports an eventfd once more after each write, whatever its
 * counter is, also after a write that comes between two sleeps; and after this change. */
static void event_end(struct mr_loop *loop, int fd, bool *has_edges)
{
    struct epoll_event edge = {.events = EPOLLIN | EPOLLET, .data.fd = fd};

    if (!*has_edges) {
        const int rc = epoll_ctl(uv_backend_fd(&loop->uv), EPOLL_CTL_MOD, fd, &edge);
        MR_ASSERT(rc == 0); /* libuv has it there, as its event has come */
        *has_edges = true;
    }
}

/* Mails are run in the prepare step; this only ends the sleep. */
static void on_wake(uv_poll_t *handle, int status, int events)
{
    struct mr_loop *loop = handle->data;

    (void)status;
    (void)events;
    mr_loop_enter(loop);
    event_end(loop, loop->wake_fd, &loop->has_wake_edges);
}

static void on_door(uv_poll_t *handle, int status, int events)
{
    struct mr_loop *loop = handle->data;

    (void)status;
    (void)events;
    mr_loop_enter(loop);
    event_end(loop, loop->door_fd, &loop->has_door_edges);
}

int mr_loop_door(struct mr_loop *loop)
{
    if (loop->door_fd >= 0) {
        return loop->door_fd;
    }
    const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    if (uv_poll_init(&loop->uv, &loop->door_poll, fd) < 0) {
        close(fd);
        return -1;
    }
    loop->open_handles++;
    loop->door_poll.data = loop;
    loop->door_fd = fd;
    uv_poll_start(&loop->door_poll, UV_READABLE, on_door);
    return fd;
}

int mr_loop_bell(const struct mr_loop *loop)
{
    return loop->wake_fd;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    ((struct mr_loop *)handle->data)->open_handles--;
}

static void handle_close(struct mr_loop *loop, void *handle)
{
    uv_handle_t *h = handle;

    if (h->data == loop && !uv_is_closing(h)) {
        uv_close(h, on_handle_closed);
    }
}

static void handles_close(struct mr_loop *loop)
{
    handle_close(loop, &loop->prepare);
    handle_close(loop, &loop->check);
    handle_close(loop, &loop->busy);
    handle_close(loop, &loop->coarse_timer);
    handle_close(loop, &loop->fine_poll);
    handle_close(loop, &loop->wake_poll);
    handle_close(loop, &loop->door_poll);
    while (loop->open_handles > 0) {
        uv_run(&loop->uv, UV_RUN_ONCE);
    }
}

static int handles_open(struct mr_loop *loop)
{
    int rc;

#define OPEN(expr, handle)                                                                         \
    do {                                                                                           \
        if ((rc = (expr)) < 0) {                                                                   \
            return rc;                                                                             \
        }                                                                                          \
        loop->open_handles++;                                                                      \
        loop->handle.data = loop;                                                                  \
    } while (0)
    OPEN(uv_prepare_init(&loop->uv, &loop->prepare), prepare);
    OPEN(uv_check_init(&loop->uv, &loop->check), check);
    OPEN(uv_idle_init(&loop->uv, &loop->busy), busy);
    OPEN(uv_timer_init(&loop->uv, &loop->coarse_timer), coarse_timer);
    loop->fine_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->fine_fd < 0 || loop->wake_fd < 0) {
        return uv_translate_sys_error(errno);
    }
    OPEN(uv_poll_init(&loop->uv, &loop->fine_poll, loop->fine_fd), fine_poll);
    OPEN(uv_poll_init(&loop->uv, &loop->wake_poll, loop->wake_fd), wake_poll);
#undef OPEN
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_start(&loop->check, on_check);
    rc = uv_poll_start(&loop->fine_poll, UV_READABLE, on_fine);
    return rc < 0 ? rc : uv_poll_start(&loop->wake_poll, UV_READABLE, on_wake);
}

static void memory_init(struct mr_loop *loop)
{
    mr_buf_init(&loop->scratch, 0);
    TAILQ_INIT(&loop->flushes);
    mr_wheel_init(loop);
    mr_mailbox_init(&loop->box, wake_for_mail, loop);
    mr_turns_init(&loop->turns, SLICE_NS);
}

static void memory_fini(struct mr_loop *loop)
{
    mr_free_list_fini(&loop->inputs);
    mr_slabs_fini(&loop->slabs);
    mr_free_list_fini(&loop->conns);
    mr_free_list_fini(&loop->calls);
    if (loop->conn_memory_fini) {
        loop->conn_memory_fini(loop);
    }
    mr_freep(&loop->read_buf);
    mr_freep(&loop->record_buf);
    mr_buf_fini(&loop->scratch);
    mr_turns_fini(&loop->turns);
}

int mr_loop_new(struct mr_loop **out, const struct mr_loop_hooks *hooks, struct mr_err *err)
{
    struct mr_loop *loop = mr_alloc_aligned(sizeof *loop);
    int rc;

    loop->fine_fd = loop->wake_fd = loop->door_fd = -1;
    loop->hooks = hooks ? *hooks : (struct mr_loop_hooks){0};
    memory_init(loop);
    rc = uv_loop_init(&loop->uv);
    if (rc < 0) {
        mr_free(loop);
        return MR_FAIL(err, MR_E_IO, "event loop: %s", uv_strerror(rc));
    }
    rc = handles_open(loop);
    if (rc < 0) {
        mr_loop_free(&loop);
        return MR_FAIL(err, MR_E_IO, "event loop: %s", uv_strerror(rc));
    }
    *out = loop;
    return MR_OK;
}

void mr_loop_set_busy_poll(struct mr_loop *loop, int64_t ns)
{
    loop->busy_poll_ns = ns;
}

void mr_loop_run(struct mr_loop *loop)
{
    struct mr_loop *outer = here;

    here = loop;
    mr_loop_enter(loop);
    while (!atomic_load_explicit(&loop->stopping, memory_order_relaxed)) {
        uv_run(&loop->uv, UV_RUN_DEFAULT);
    }
    atomic_store_explicit(&loop->stopping, false, memory_order_relaxed);
    uv_idle_stop(&loop->busy);
    fall_asleep(loop);
    here = outer;
}

void mr_loop_step(struct mr_loop *loop, struct mr_mail *first)
{
    struct mr_loop *outer = here;

    here = loop;
    mr_loop_enter(loop);
    const uint64_t mails = atomic_load_explicit(&loop->stats.mails, memory_order_relaxed);
    if (first) {
        first->run(first);
    }
    /* A mail posted before this ends no sleep: if on_prepare ran it, libuv would sleep all the same. A later one does. */
    settle(loop);
    const bool has_mails = atomic_load_explicit(&loop->stats.mails, memory_order_relaxed) != mails;
    if (!first || !has_mails) {
        uv_run(&loop->uv, has_mails ? UV_RUN_NOWAIT : UV_RUN_ONCE);
        mr_loop_enter(loop);
        settle(loop);
    }
    fall_asleep(loop);
    here = outer;
}

void mr_loop_stop(struct mr_loop *loop)
{
    atomic_store_explicit(&loop->stopping, true, memory_order_relaxed);
    wake_up(loop);
}

void mr_loop_settle(struct mr_loop *loop)
{
    struct mr_loop *outer = here;

    here = loop;
    mr_loop_enter(loop);
    settle(loop);
    fall_asleep(loop);
    here = outer;
}

void mr_loop_free(struct mr_loop **io_loop)
{
    struct mr_loop *loop = *io_loop;
    struct mr_loop *outer = here;

    *io_loop = NULL;
    if (!loop) {
        return;
    }
    here = loop;
    loop->hooks = (struct mr_loop_hooks){0};
    mr_loop_enter(loop);
    /* Mails that have not run yet, and the handles that they close. */
    for (int i = 0; i < MAIL_ROUNDS && loop->open_handles > 0; i++) {
        settle(loop);
        uv_run(&loop->uv, UV_RUN_NOWAIT);
    }
    handles_close(loop);
    int rc = uv_loop_close(&loop->uv);
    MR_ASSERT(rc == 0); /* a handle was left open */
    if (loop->fine_fd >= 0) {
        close(loop->fine_fd);
    }
    if (loop->door_fd >= 0) {
        close(loop->door_fd);
    }
    if (loop->wake_fd >= 0) {
        close(loop->wake_fd);
    }
    memory_fini(loop);
    mr_free(loop);
    here = outer;
}

/* ---- use ------------------------------------------------------------------------------------ */

void mr_loop_post(struct mr_loop *loop, struct mr_mail *mail)
{
    mr_mailbox_post(&loop->box, mail);
}

bool mr_loop_is_here(const struct mr_loop *loop)
{
    return here == loop;
}

struct mr_buf *mr_loop_scratch(struct mr_loop *loop)
{
    return &loop->scratch;
}

struct mr_turns *mr_loop_turns(struct mr_loop *loop)
{
    return &loop->turns;
}

int64_t mr_loop_now_ns(const struct mr_loop *loop)
{
    return loop->now_ns;
}

struct uv_loop_s *mr_loop_uv(struct mr_loop *loop)
{
    return &loop->uv;
}

struct mr_loop_stats *mr_loop_stats(struct mr_loop *loop)
{
    return &loop->stats;
}

void mr_flush_queue(struct mr_loop *loop, struct mr_flush *f)
{
    if (f->queued) {
        return;
    }
    f->queued = true;
    TAILQ_INSERT_TAIL(&loop->flushes, f, link);
}

void mr_flush_cancel(struct mr_loop *loop, struct mr_flush *f)
{
    if (!f->queued) {
        return;
    }
    f->queued = false;
    TAILQ_REMOVE(&loop->flushes, f, link);
}

uint8_t *mr_loop_read_buf(struct mr_loop *loop)
{
    if (!loop->read_buf) {
        loop->read_buf = mr_try_alloc(MR_READ_BUF_BYTES);
    }
    return loop->read_buf;
}

const char *mr_loop_date(struct mr_loop *loop)
{
    if (loop->now_ns >= loop->date_until_ns) {
        int64_t wall_ns = mr_wall_ns();
        time_t wall_s = (time_t)(wall_ns / MR_NS_PER_S);
        struct tm tm;
        gmtime_r(&wall_s, &tm);
        /* Own names, as strftime's depend on the locale. */
        static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        snprintf(loop->date, sizeof loop->date, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                 days[tm.tm_wday], tm.tm_mday, months[tm.tm_mon], (tm.tm_year + 1900) % 10000,
                 tm.tm_hour, tm.tm_min, tm.tm_sec);
        loop->date_until_ns = loop->now_ns + MR_NS_PER_S - wall_ns % MR_NS_PER_S;
    }
    return loop->date;
}

/* ---- recycled memory ------------------------------------------------------------------------ */

void mr_free_list_init(struct mr_free_list *c, size_t bytes, uint32_t max)
{
    *c = (struct mr_free_list){.bytes = bytes, .max = MR_CACHE_NOTHING ? 0 : max};
}

static void cache_shrink(struct mr_free_list *c, uint32_t count)
{
    while (c->count > count) {
        void *p = c->head;
        memcpy(&c->head, p, sizeof c->head);
        c->count--;
        if (c->fini) {
            c->fini(p);
        }
        mr_free(p);
    }
}

void mr_free_list_fini(struct mr_free_list *c)
{
    cache_shrink(c, 0);
}

void mr_free_list_age(struct mr_free_list *c)
{
    cache_shrink(c, c->count - c->least / 2);
    c->least = c->count;
}

void *mr_free_list_take(struct mr_free_list *c, bool *out_fresh)
{
    void *p = c->head;

    if (out_fresh) {
        *out_fresh = p == NULL;
    }
    if (!p) {
        return mr_try_alloc(c->bytes);
    }
    memcpy(&c->head, p, sizeof c->head);
    c->count--;
    c->least = MR_MIN(c->least, c->count);
    return p;
}

bool mr_free_list_put(struct mr_free_list *c, void *p)
{
    if (c->count >= c->max) {
        return false;
    }
    memcpy(p, &c->head, sizeof c->head);
    c->head = p;
    c->count++;
    return true;
}
