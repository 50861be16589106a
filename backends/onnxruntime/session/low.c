/* Loads that yield to requests.
 *
 * A load beside others runs in a thread of its own, of the lowest priority: nice 19, SCHED_BATCH, the shortest
 * slice. Such a thread uses idle CPU time, and is preempted soon after another thread wakes up. Not the class
 * SCHED_IDLE, which is no better at that and gets a twentieth of the time when all CPUs are busy: a load would hardly
 * ever end, and a thread that waits for its locks (the heap has a few) would wait as long.
 *
 * Without privileges a thread cannot raise its priority again, and new threads inherit it. So it creates none: the
 * ordinary thread that waits for it does that. And if it has waited for a CPU for too long in total, it ends, and the
 * waiting thread starts its work again.
 *
 * Thread: the loader. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "onnx.h"

#define NS_PER_S INT64_C(1000000000)
#define POLL_NS  (NS_PER_S / 10)
#define LOWEST   19
#define SLICE_NS 100000

struct onnx_low {
    int (*work)(void *ctx);
    void *ctx;
    int rc;
    _Atomic int must_end;
    pthread_mutex_t lock; /* guards what follows */
    /* signals a change to the waiting thread, and a created thread to the worker */
    pthread_cond_t changed;
    int is_over;
    long number; /* of the worker, 0 = not started */
    int has_wish;
    const char *wish_name;
    OrtThreadWorkerFn wish_work;
    void *wish_param;
    OrtCustomThreadHandle wish_made;
};

static _Thread_local struct onnx_low *here;

const struct onnx_low *onnx_low_here(void)
{
    return here;
}

int onnx_give_up(const struct mr_loading *loading, const struct onnx_low *low)
{
    /* Relaxed: a hint to end. */
    return (low && atomic_load_explicit(&low->must_end, memory_order_relaxed)) ||
           onnx_host->load_is_unwanted(loading);
}

/* ---- the worker ---- */

/* The system's struct sched_attr, which some headers lack. */
struct scheduling {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns; /* for ordinary threads since Linux 6.12; ignored before */
    uint64_t deadline;
    uint64_t period;
};

static void priority_lower(void)
{
    const struct scheduling s = {
        .size = sizeof s, .policy = SCHED_BATCH, .nice = LOWEST, .slice_ns = SLICE_NS};

    if (syscall(SYS_sched_setattr, 0, &s, 0) != 0) {
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LOWEST); /* not required */
    }
}

static void worker_main(void *arg)
{
    struct onnx_low *low = arg;

    here = low;
    priority_lower();
    pthread_mutex_lock(&low->lock);
    low->number = syscall(SYS_gettid);
    pthread_mutex_unlock(&low->lock);
    int rc = low->work(low->ctx);
    pthread_mutex_lock(&low->lock);
    low->rc = rc;
    low->is_over = 1;
    pthread_cond_broadcast(&low->changed);
    pthread_mutex_unlock(&low->lock);
}

OrtCustomThreadHandle onnx_low_thread(const char *name, OrtThreadWorkerFn work, void *param)
{
    struct onnx_low *low = here;

    pthread_mutex_lock(&low->lock);
    low->wish_name = name;
    low->wish_work = work;
    low->wish_param = param;
    low->has_wish = 1;
    pthread_cond_broadcast(&low->changed);
    while (low->has_wish) {
        pthread_cond_wait(&low->changed, &low->lock);
    }
    OrtCustomThreadHandle made = low->wish_made;
    pthread_mutex_unlock(&low->lock);
    return made;
}

/* ---- the thread that waits ---- */

/* How long the worker was runnable without a CPU; the whole time if the system does not count it. */
static int64_t waited_ns(long number, int64_t since_ns)
{
    char path[64];
    long long ran = 0;
    long long waited = 0;

    snprintf(path, sizeof path, "/proc/self/task/%ld/schedstat", number);
    FILE *f = fopen(path, "re");
    int n = f ? fscanf(f, "%lld %lld", &ran, &waited) : 0;
    if (f) {
        fclose(f);
    }
    return n == 2 && ran > 0 ? waited : onnx_now_ns() - since_ns;
}

/* Lock held. */
static void wish_grant(struct onnx_low *low)
{
    low->wish_made = onnx_thread_make(low->wish_name, low->wish_work, low->wish_param);
    low->has_wish = 0;
    pthread_cond_broadcast(&low->changed);
}

static void worker_wait(struct onnx_low *low, int64_t patience_ns)
{
    const int64_t since_ns = onnx_now_ns();

    pthread_mutex_lock(&low->lock);
    while (!low->is_over) {
        const int64_t until_ns = onnx_now_ns() + POLL_NS;
        const struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
        if (low->has_wish) {
            wish_grant(low);
        }
        if (low->number && waited_ns(low->number, since_ns) > patience_ns) {
            atomic_store_explicit(&low->must_end, 1, memory_order_relaxed);
        }
        pthread_cond_timedwait(&low->changed, &low->lock, &until);
    }
    pthread_mutex_unlock(&low->lock);
}

int onnx_low_run(int (*work)(void *ctx), void *ctx, int64_t patience_ns, int *out_gave_up)
{
    struct onnx_low low = {.work = work, .ctx = ctx};
    pthread_condattr_t attr;

    pthread_mutex_init(&low.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&low.changed, &attr);
    pthread_condattr_destroy(&attr);
    OrtCustomThreadHandle thread = onnx_thread_make("mr-load-low", worker_main, &low);
    if (thread) {
        worker_wait(&low, patience_ns);
        onnx_thread_join(thread);
    } else {
        low.rc = work(ctx); /* the system has no thread left */
    }
    pthread_cond_destroy(&low.changed);
    pthread_mutex_destroy(&low.lock);
    *out_gave_up = low.rc < 0 && atomic_load_explicit(&low.must_end, memory_order_relaxed);
    return low.rc;
}
