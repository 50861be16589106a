/* Calls of a model that end while others wait: the mail of one plane, read by the threads of this process. */
#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/thread.h"
#include "shm/mail.h"
#include "worker/run/calls.h"

struct plane {
    struct mr_shm_door door;
    struct mr_shm_homes *homes;
    struct mr_shm *shm;
    struct mr_shm_view *view;
};

static void open_plane(struct plane *p)
{
    struct mr_err err;

    p->door.workers = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->door.server = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_int_equal(mr_shm_homes_new(&p->homes, &p->door, 1, &err), MR_OK);
    const struct mr_shm_options o = {.name = "test",
                                     .slots = 4,
                                     .message_bytes = 4096,
                                     .room_bytes = 8192,
                                     .input_bytes = 1 << 20,
                                     .output_bytes = 1 << 20,
                                     .homes = p->homes};
    assert_int_equal(mr_shm_new(&p->shm, &o, &err), MR_OK);
    const struct mr_shm_fds fds = mr_shm_get_fds(p->shm);
    const int home_fd = mr_shm_home_fd(p->homes, 0);
    const struct mr_shm_view_fds view = {
        fds.control, fds.input, fds.output, mr_shm_homes_segment(p->homes), &home_fd, 1};
    assert_int_equal(mr_shm_view_open(&p->view, &view, 0, &err), MR_OK);
    mr_shm_worker_begin(p->shm, 0);
    mr_shm_mail_begin(p->shm, 0);
}

static void close_plane(struct plane *p)
{
    mr_shm_worker_end(p->shm, 0, NULL, NULL);
    mr_shm_view_close(&p->view);
    mr_shm_free(&p->shm);
    mr_shm_homes_free(&p->homes);
    close(p->door.workers);
    close(p->door.server);
}

/* The only answer of a call. */
static void answer(struct plane *p, uint64_t call)
{
    const struct mr_ipc_call_answer a = {.call = call, .is_last = true, .message = ""};
    struct mr_block *mail;
    struct mr_err err;

    assert_int_equal(mr_ipc_call_mail_write(p->shm, &a, NULL, &mail, &err), MR_OK);
    mr_shm_mail_post(p->shm, 0, mail);
    mr_shm_mail_ring(p->shm, 0);
}

static bool thread_sleeps(const char *name)
{
    char state[64], path[64], stat[128];
    DIR *d = opendir("/proc/self/task");
    bool sleeps = false;

    assert_non_null(d);
    snprintf(state, sizeof state, " (%s) S", name);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", e->d_name);
        FILE *f = fopen(path, "r");
        sleeps = sleeps || (f && fgets(stat, sizeof stat, f) && strstr(stat, state));
        if (f) {
            fclose(f);
        }
    }
    closedir(d);
    return sleeps;
}

static void wait_asleep(const char *name)
{
    while (!thread_sleeps(name)) {
        sched_yield();
    }
}

static void *wait_main(void *call)
{
    struct mr_call_answer *a;
    struct mr_err err;

    assert_int_equal(worker_call_next(call, 0, &a, &err), MR_OK);
    worker_call_answer_drop(&a);
    return NULL;
}

/* A thread waits for one call beside the thread that sleeps for the mail of both. It goes on when that one has no call left. */
static void test_the_last_watched_call_ends_first(void **state)
{
    struct mr_model_call *watched, *waited;
    uint64_t watched_number, waited_number, token;
    struct plane plane;
    struct mr_err err;
    pthread_t waiter;

    (void)state;
    open_plane(&plane);
    const int fd = eventfd(0, EFD_CLOEXEC);
    worker_calls_start(plane.view, NULL, NULL);
    assert_int_equal(worker_call_new(&watched, &watched_number, &err), MR_OK);
    assert_int_equal(worker_call_new(&waited, &waited_number, &err), MR_OK);
    assert_int_equal(worker_call_notify(watched, fd, 1, &err), MR_OK);
    wait_asleep("answers");
    assert_int_equal(mr_thread_start(&waiter, "waiter", wait_main, waited, &err), MR_OK);
    wait_asleep("waiter");
    answer(&plane, watched_number);
    assert_int_equal(read(fd, &token, sizeof token), sizeof token);
    answer(&plane, waited_number);
    pthread_join(waiter, NULL);
    worker_call_end(&waited);
    worker_call_end(&watched);
    worker_calls_stop();
    close_plane(&plane);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_watched_call_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
