/* Walks without a loop: calls end on any thread, and walks wait for their admission. What is judged is that all of them end, by
 * the sanitizers that nothing is touched after its end. */
#include "flow_test.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "flow/exec/admit.h"

enum { WALKS = 2000, AT_ONCE = 8, THREADS = 3, QUEUE = 64 };

/* Calls that are to end, for the threads that end them. */
struct pool {
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct call *calls[QUEUE];
    uint32_t count;
    bool is_over;
    pthread_t threads[THREADS];
};

static struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};

static void *pool_main(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&pool.lock);
    while (pool.count > 0 || !pool.is_over) {
        if (pool.count == 0) {
            pthread_cond_wait(&pool.change, &pool.lock);
            continue;
        }
        struct call *c = pool.calls[--pool.count];
        pthread_mutex_unlock(&pool.lock);
        flow_call_signal(c);
        pthread_mutex_lock(&pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static void take(struct call *c)
{
    struct mr_err err = {0};
    const struct mr_tensor t = {.dtype = MR_DTYPE_INT64};

    flow_call_output(c, 0, &t, NULL, &err);
    flow_call_ended(c, MR_OK, &err);
}

/* The last node fails, so that the walks need no outputs. */
static int ask(struct call *c, struct mr_err *err)
{
    if (c->node == 3) {
        return MR_FAIL(err, MR_E_INTERNAL, "the end");
    }
    c->take = take;
    c->is_pending = true;
    pthread_mutex_lock(&pool.lock);
    assert_true(pool.count < QUEUE);
    pool.calls[pool.count++] = c;
    pthread_cond_signal(&pool.change);
    pthread_mutex_unlock(&pool.lock);
    return MR_PENDING;
}

/* ---- requests ---- */

struct request {
    struct mr_execution x;
    struct mr_infer asked, *list[1];
    struct mr_exec_output outputs[1];
    struct mr_tensor input;
    uint8_t wanted[1];
    struct mr_err err;
    sem_t *places;
};

static void request_end(struct request *r, int status)
{
    sem_t *places = r->places;

    assert_int_equal(status, MR_E_INTERNAL);
    assert_string_equal(r->err.msg, "in workflow 'flow', the end");
    free(r);
    sem_post(places);
}

static void on_done(struct mr_execution *x)
{
    request_end(MR_CONTAINER_OF(x, struct request, x), x->status);
}

static void request_begin(struct flow *f, sem_t *places)
{
    struct request *r = calloc(1, sizeof *r);

    r->places = places;
    r->list[0] = &r->asked;
    r->wanted[0] = 1;
    r->input = (struct mr_tensor){.dtype = MR_DTYPE_INT64};
    r->x.exec.inputs = &r->input;
    r->x.exec.input_count = r->x.exec.output_count = 1;
    r->x.exec.output_wanted = r->wanted;
    r->x.outputs.list = r->outputs;
    r->x.infers = r->list;
    r->x.err = &r->err;
    r->x.on_done = on_done;
    const int rc = mr_executor_execute(&f->executor, &r->x, &r->err);
    if (rc != MR_PENDING) {
        request_end(r, rc);
    }
}

/* Three nodes side by side, whose ends meet, and one after them. */
static void all_end(uint32_t max_open)
{
    static const struct node_text nodes[] = {{"a", {"i=IN"}, {"o=t"}},
                                             {"b", {"i=IN"}, {"o=u"}},
                                             {"c", {"i=IN"}, {"o=v"}},
                                             {"d", {"i=t", "k=u", "l=v"}, {"o=OUT"}}};
    static const struct mr_signature signature = {
        .size = sizeof signature, .input_count = 1, .output_count = 1};
    struct pace paces[4] = {0};
    struct flow f = {
        .plan = plan_make(nodes, 4),
        .ask = ask,
        .paces = paces,
        .executor = {.ops = &flow_executor_ops, .model = "flow", .signature = &signature}};
    sem_t places;

    f.plan->admission = (struct plan_admission){.max_open = max_open, .max_queue = WALKS};
    f.admit = flow_admit_new(f.plan);
    pthread_mutex_init(&f.handles, NULL);
    sem_init(&places, 0, AT_ONCE);
    pool.is_over = false;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&pool.threads[i], NULL, pool_main, NULL), 0);
    }
    for (int i = 0; i < WALKS; i++) {
        sem_wait(&places);
        request_begin(&f, &places);
    }
    for (int i = 0; i < AT_ONCE; i++) {
        sem_wait(&places); /* all have ended */
    }
    pthread_mutex_lock(&pool.lock);
    pool.is_over = true;
    pthread_cond_broadcast(&pool.change);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(pool.threads[i], NULL);
    }
    if (f.admit) {
        assert_int_equal(f.admit->open, 0);
        assert_int_equal(f.admit->waiting_count, 0);
        assert_int_equal(f.admit->bytes, 0);
    }
    flow_admit_free(&f.admit);
    pthread_mutex_destroy(&f.handles);
    sem_destroy(&places);
    plan_free(&f.plan);
}

static void calls_that_end_anywhere(void **state)
{
    (void)state;
    all_end(0);
}

static void walks_that_wait(void **state)
{
    (void)state;
    all_end(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(calls_that_end_anywhere),
                                       cmocka_unit_test(walks_that_wait)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
