/* Executions of the fault backend that end later, on threads of its own: one for each.
 *
 * An instance keeps its jobs in a list, and joins the threads of those that have ended at its next execution and when it
 * is closed, so that no thread runs in the library once it is unloaded. */
#include "fault.h"

#include <stdlib.h>

static void *job_main(void *arg)
{
    struct job *j = arg;
    struct instance *inst = j->instance;
    struct mr_err err = {0};
    pthread_mutex_lock(&inst->mutex);
    while (j->plan.until_cancelled && !j->is_cancelled) {
        pthread_cond_wait(&inst->cancelled, &inst->mutex);
    }
    j->is_ending = true; /* exec is invalid after the end: cancel must not compare with it */
    const bool is_cancelled = j->is_cancelled;
    pthread_mutex_unlock(&inst->mutex);
    int rc = is_cancelled ? mr_backend_fail(&err, MR_E_CANCELLED, "ended early")
                          : fault_run(inst, &j->plan, j->exec, &err);
    pthread_mutex_lock(&inst->mutex);
    inst->pending--;
    pthread_mutex_unlock(&inst->mutex);
    fault_host->complete(j->exec, rc, &err);
    atomic_store_explicit(&j->is_over, true, memory_order_release);
    return NULL;
}

/* Joins the threads that have ended, or all. */
static void reap(struct instance *inst, bool all)
{
    pthread_mutex_lock(&inst->mutex);
    for (struct job **at = &inst->jobs; *at;) {
        struct job *j = *at;
        if (!all && !atomic_load_explicit(&j->is_over, memory_order_acquire)) {
            at = &j->next;
            continue;
        }
        *at = j->next;
        pthread_mutex_unlock(&inst->mutex);
        pthread_join(j->thread, NULL);
        free(j);
        pthread_mutex_lock(&inst->mutex);
        at = &inst->jobs;
    }
    pthread_mutex_unlock(&inst->mutex);
}

int later_start(struct instance *inst, const struct plan *p, struct mr_exec *exec,
                struct mr_err *err)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    reap(inst, false);
    j->instance = inst;
    j->plan = *p;
    j->exec = exec;
    pthread_mutex_lock(&inst->mutex);
    const bool is_full =
        inst->pending > 0 && inst->pending >= inst->model->plan.max_pending; /* 0 = 1 */
    if (is_full || pthread_create(&j->thread, NULL, job_main, j) != 0) {
        pthread_mutex_unlock(&inst->mutex);
        free(j);
        return is_full ? mr_backend_fail(err, MR_E_INTERNAL, "more executions than may be pending")
                       : mr_backend_fail(err, MR_E_EXHAUSTED, "no thread");
    }
    inst->pending++;
    j->next = inst->jobs;
    inst->jobs = j;
    /* An earlier cancel has not found it. */
    j->is_cancelled = fault_host->is_cancelled(exec, MR_ALL_REQUESTS) != 0;
    pthread_mutex_unlock(&inst->mutex);
    return MR_PENDING;
}

void later_cancel(struct instance *inst, const struct mr_exec *exec)
{
    pthread_mutex_lock(&inst->mutex);
    for (struct job *j = inst->jobs; j; j = j->next) {
        j->is_cancelled |= j->exec == exec && !j->is_ending;
    }
    pthread_cond_broadcast(&inst->cancelled);
    pthread_mutex_unlock(&inst->mutex);
}

void later_end(struct instance *inst)
{
    reap(inst, true);
}
