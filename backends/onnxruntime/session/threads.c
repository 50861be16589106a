/* The threads of ONNX Runtime's pools are made here, not by it, for three reasons: they get a name
 * that an operator recognises, they take no signals but faults (those belong to the server's loop), and they do not inherit the
 * scheduling class and CPU mask of the thread that loads a model, which may have a low priority. A thread made by
 * ONNX Runtime would inherit all three. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include "onnx.h"

struct worker {
    pthread_t thread;
    OrtThreadWorkerFn work;
    void *param;
    const char *name;
};

/* The CPUs of the main thread, with which the process was started. */
static void process_cpus(cpu_set_t *set)
{
    CPU_ZERO(set);
    if (sched_getaffinity(getpid(), sizeof *set, set) != 0 || CPU_COUNT(set) == 0) {
        CPU_SET(0, set);
    }
}

int64_t onnx_cpu_count(void)
{
    cpu_set_t set;
    process_cpus(&set);
    return CPU_COUNT(&set);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pthread_setname_np(pthread_self(), w->name);
    w->work(w->param);
    return NULL;
}

OrtCustomThreadHandle onnx_thread_make(const char *name, OrtThreadWorkerFn work, void *param)
{
    if (onnx_low_here()) { /* new threads would inherit its priority */
        return onnx_low_thread(name, work, param);
    }
    struct worker *w = calloc(1, sizeof *w);
    pthread_attr_t attr;
    sigset_t all;
    sigset_t before;
    cpu_set_t cpus;
    const struct sched_param priority = {0};
    if (!w || pthread_attr_init(&attr) != 0) {
        free(w);
        return NULL;
    }
    w->name = name;
    w->work = work;
    w->param = param;
    process_cpus(&cpus);
    pthread_attr_setaffinity_np(&attr, sizeof cpus, &cpus);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
    pthread_attr_setschedparam(&attr, &priority);
    sigfillset(&all);
    sigdelset(&all, SIGSEGV); /* a blocked fault kills the process before a handler can report it */
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&w->thread, &attr, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        free(w);
        return NULL; /* ONNX Runtime turns this into an error of its own */
    }
    return (OrtCustomThreadHandle)w;
}

OrtCustomThreadHandle onnx_thread_start(void *options, OrtThreadWorkerFn work, void *param)
{
    (void)options;
    return onnx_thread_make("mr-onnx", work, param);
}

void onnx_thread_join(OrtCustomThreadHandle thread)
{
    struct worker *w = (struct worker *)(uintptr_t)thread;
    pthread_join(w->thread, NULL);
    free(w);
}
