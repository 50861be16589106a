/* Making a session. For a large model that takes seconds, during which ONNX Runtime does not return; a flag in its
 * options, which it checks at each node, cancels it. As there is no callback when the model is no longer wanted, a
 * thread polls the host while such a session is made. */
#include <pthread.h>
#include <time.h>

#include "onnx.h"

#define ASK_NS 10000000

/* SessionOptionsSetLoadCancellationFlag: slot 293 of the interface since 1.22. */
#define SLOT_LOAD_CANCELLATION 293
typedef OrtStatus *(ORT_API_CALL cancel_fn)(OrtSessionOptions *options, bool is_cancelled);

struct watch {
    OrtSessionOptions *options;
    const struct mr_loading *loading;
    const struct onnx_low *low; /* that makes it */
    pthread_mutex_t lock;       /* guards is_over */
    pthread_cond_t over;
    int is_over;
};

static void creation_cancel(OrtSessionOptions *options)
{
    cancel_fn *fn;

    memcpy(&fn, (const void *const *)onnx_api + SLOT_LOAD_CANCELLATION, sizeof fn);
    OrtStatus *status = fn(options, true);
    if (status) {
        onnx_api->ReleaseStatus(status);
    }
}

static void watch_wait(struct watch *w)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ASK_NS;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&w->over, &w->lock, &until);
}

static void watch_main(void *arg)
{
    struct watch *w = arg;

    pthread_mutex_lock(&w->lock);
    while (!w->is_over) {
        if (onnx_give_up(w->loading, w->low)) {
            creation_cancel(w->options);
            break;
        }
        watch_wait(w);
    }
    pthread_mutex_unlock(&w->lock);
}

/* NULL: no thread; the session cannot be cancelled. */
static OrtCustomThreadHandle watch_start(struct watch *w)
{
    pthread_condattr_t attr;

    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->over, &attr);
    pthread_condattr_destroy(&attr);
    return onnx_thread_make("mr-load-watch", watch_main, w);
}

static void watch_stop(struct watch *w, OrtCustomThreadHandle thread)
{
    pthread_mutex_lock(&w->lock);
    w->is_over = 1;
    pthread_cond_signal(&w->over);
    pthread_mutex_unlock(&w->lock);
    if (thread) {
        onnx_thread_join(thread);
    }
    pthread_cond_destroy(&w->over);
    pthread_mutex_destroy(&w->lock);
}

static OrtStatus *session_new(struct onnx_backend *b, const struct onnx_source *source,
                              OrtSessionOptions *options, OrtSession **out)
{
    return source->model ? onnx_api->CreateSessionFromArray(b->env, source->model, source->bytes,
                                                            options, out)
                         : onnx_api->CreateSession(b->env, source->path, options, out);
}

int onnx_session_create(struct onnx_backend *b, const struct onnx_source *source,
                        OrtSessionOptions *options, struct mr_loading *loading, OrtSession **out,
                        struct mr_err *err)
{
    struct watch w = {.options = options, .loading = loading, .low = onnx_low_here()};
    const int is_watched = loading && b->can_cancel_load;
    OrtCustomThreadHandle thread = is_watched ? watch_start(&w) : NULL;
    int rc = onnx_check_in(session_new(b, source, options, out), err, "ONNX Runtime");

    if (is_watched) {
        watch_stop(&w, thread);
    }
    if (rc < 0 && onnx_give_up(loading, w.low)) {
        return mr_backend_fail(err, MR_E_CANCELLED, "the model is not wanted any more");
    }
    return rc;
}
