/* Work of low priority: it runs so, its threads do not, and it is asked to end when it gets no CPU time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "onnxruntime/session/onnx.h"

#define FOR_EVER INT64_MAX

static _Atomic int is_unwanted;

static int host_is_unwanted(const struct mr_loading *loading)
{
    (void)loading;
    return atomic_load(&is_unwanted);
}

static const struct mr_host host = {.size = sizeof host, .load_is_unwanted = host_is_unwanted};
const struct mr_host *onnx_host = &host;

struct seen {
    int nice;
    int policy;
    int is_low;
};

static void look(void *arg)
{
    struct seen *s = arg;
    s->nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    s->policy = sched_getscheduler(0);
    s->is_low = onnx_low_here() != NULL;
}

struct work {
    struct seen worker;
    struct seen child;
};

static int look_work(void *ctx)
{
    struct work *w = ctx;
    look(&w->worker);
    for (int i = 0; i < 3; i++) {
        OrtCustomThreadHandle t = onnx_thread_start(NULL, look, &w->child);
        assert_non_null(t);
        onnx_thread_join(t);
    }
    return 17;
}

static void only_the_worker_is_low(void **state)
{
    const int mine = getpriority(PRIO_PROCESS, 0);
    struct work w = {0};
    int gave_up = 1;
    (void)state;
    assert_int_equal(onnx_low_run(look_work, &w, FOR_EVER, &gave_up), 17);
    assert_false(gave_up);
    assert_int_equal(w.worker.nice, 19);
    assert_int_equal(w.worker.policy, SCHED_BATCH);
    assert_true(w.worker.is_low);
    assert_int_equal(w.child.nice, mine);
    assert_int_equal(w.child.policy, SCHED_OTHER);
    assert_false(w.child.is_low);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), mine);
    assert_null(onnx_low_here());
}

/* Until it is asked to end. */
static int endless_work(void *ctx)
{
    (void)ctx;
    while (!onnx_give_up(NULL, onnx_low_here())) {
        usleep(1000);
    }
    return MR_E_CANCELLED;
}

static void it_gives_up(void **state)
{
    int gave_up = 0;
    (void)state;
    assert_false(onnx_give_up(NULL, NULL));
    /* No patience at all: the first look is one too many. */
    assert_int_equal(onnx_low_run(endless_work, NULL, -1, &gave_up), MR_E_CANCELLED);
    assert_true(gave_up);
    atomic_store(&is_unwanted, 1); /* it is cancelled: that is no reason to start again */
    assert_int_equal(onnx_low_run(endless_work, NULL, FOR_EVER, &gave_up), MR_E_CANCELLED);
    assert_false(gave_up);
    atomic_store(&is_unwanted, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_worker_is_low),
                                       cmocka_unit_test(it_gives_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
