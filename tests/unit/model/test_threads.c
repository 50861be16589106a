/* Many threads at once: requests that find, pin, use and unpin versions while models are reloaded,
 * come and go. What a request holds must stay whole; TSan and ASan watch the rest. */
#include "base/rng.h"
#include "harness.h"

#define READERS 3
#define RELOADS 200

struct reader {
    struct fixture *f;
    unsigned number;
    pthread_t thread;
    _Atomic bool *stop;
    uint64_t found;
    uint64_t pinned;
    uint64_t went_back; /* saw an older version than before */
    _Atomic bool has_begun;
};

/* Reads what a request would read of a version. */
static uint64_t use(const struct mr_version *v)
{
    uint64_t sum = (uint64_t)v->number + v->inputs[0].name.len + (uint64_t)v->inputs[0].dims[0];
    assert_true(mr_str_eq_c(v->inputs[0].name, "INPUT0"));
    assert_string_equal(v->config->name, "m");
    return sum;
}

static void *reader_main(void *arg)
{
    struct reader *r = arg;
    struct mr_models *m = r->f->m;
    struct mr_version *held = NULL;
    int64_t last = 0;
    uint64_t sum = 0;
    mr_epoch_online(mr_models_epoch(m));
    for (uint64_t i = 0; !atomic_load_explicit(r->stop, memory_order_relaxed); i++) {
        struct mr_version *v = NULL;
        if (mr_models_find(m, MR_STR("m"), MR_STR(""), &v, NULL) == MR_OK) {
            r->found++;
            r->went_back += v->number < last;
            last = v->number;
            sum += use(v);
            if (!held) {
                mr_version_pin(v, r->number);
                held = v;
                r->pinned++;
                atomic_store_explicit(&r->has_begun, true, memory_order_relaxed);
            }
        }
        if (held && i % 7 == 0) {
            sum += use(held);
            mr_version_unpin(held, r->number);
            held = NULL;
        }
        if (i % 1000 == 0) { /* sleeps as a loop does, perhaps with a request in flight */
            mr_epoch_offline(mr_models_epoch(m));
            usleep(100);
            mr_epoch_online(mr_models_epoch(m));
        } else {
            mr_epoch_quiesce(mr_models_epoch(m));
        }
    }
    mr_epoch_offline(mr_models_epoch(m));
    if (held) {
        sum += use(held);
        mr_version_unpin(held, r->number);
    }
    return (void *)(uintptr_t)(sum | 1);
}

/* "m" exists; returns when each has held a version of it. */
static void readers_start(struct reader *r, struct fixture *f, _Atomic bool *stop)
{
    for (unsigned i = 0; i < READERS; i++) {
        r[i] = (struct reader){.f = f, .number = i, .stop = stop};
        assert_int_equal(mr_thread_start(&r[i].thread, "reader", reader_main, &r[i], NULL), MR_OK);
    }
    for (unsigned i = 0; i < READERS; i++) {
        while (!atomic_load(&r[i].has_begun)) {
            usleep(100);
        }
    }
}

static void readers_stop(struct reader *r, _Atomic bool *stop)
{
    atomic_store(stop, true);
    for (unsigned i = 0; i < READERS; i++) {
        pthread_join(r[i].thread, NULL);
        assert_true(r[i].found > 0);
        assert_true(r[i].pinned > 0);
    }
}

/* Each reload is a new version; the old one goes from the disk two reloads later. */
static void test_reload_under_readers(void **state)
{
    struct fixture *f = *state;
    struct reader r[READERS];
    _Atomic bool stop = false;
    char path[64];
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    readers_start(r, f, &stop);
    for (int i = 2; i <= RELOADS; i++) {
        fx_model(f, 0, "m", NULL, i);
        snprintf(path, sizeof path, "m/%d", i - 2);
        fx_remove(f, 0, path);
        fx_must_load(f, "m");
        assert_int_equal(fx_newest(f, "m"), i);
    }
    readers_stop(r, &stop);
    for (unsigned i = 0; i < READERS; i++) {
        assert_int_equal(r[i].went_back, 0);
    }
    fx_drained(f);
    assert_int_equal(atomic_load(&f->served), RELOADS);
    assert_int_equal(atomic_load(&f->unserved), RELOADS - 1);
}

static void done_count(void *ctx, int rc, const struct mr_err *err)
{
    _Atomic int *left = ctx;
    (void)rc, (void)err;
    atomic_fetch_sub(left, 1);
}

static void report_read(void *ctx, const struct mr_model_report *r)
{
    size_t *n = ctx;
    *n += r->name.len + r->reason.len + (r->v ? (size_t)r->v->number : 0);
}

/* Loads and unloads of several models, from several sides, with reports and health checks
 * between. */
static void test_everything_at_once(void **state)
{
    struct fixture *f = *state;
    struct reader r[READERS];
    _Atomic bool stop = false;
    _Atomic int left = 0;
    struct mr_rng rng;
    size_t n = 0;
    static const char *const names[] = {"m", "a", "b", "broken", "absent"};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "b", FAULT_TEXT("open_delay_ms", "1"), 1);
    fx_model(f, 0, "broken", FAULT_TEXT("fail_open", "true"), 1);
    fx_start(f);
    fx_must_load(f, "m");
    readers_start(r, f, &stop);
    mr_rng_seed(&rng, 1);
    for (int i = 0; i < 300; i++) {
        mr_str name = mr_str_c(names[mr_rng_u64(&rng) % 5]);
        atomic_fetch_add(&left, 1);
        if (mr_rng_u64(&rng) % 3 == 0) {
            mr_models_unload(f->m, name, false, done_count, &left);
        } else {
            mr_models_load(f->m, name, NULL, done_count, &left);
        }
        if (i % 10 == 0) {
            mr_models_report(f->m, report_read, &n);
            n += mr_models_ready(f->m);
            usleep(1000);
        }
    }
    while (atomic_load(&left) > 0) {
        usleep(1000);
    }
    readers_stop(r, &stop);
    assert_true(n > 0);
}

/* Stop with readers still there that hold pins for a while. */
static void test_stop_under_readers(void **state)
{
    struct fixture *f = *state;
    struct reader r[READERS];
    _Atomic bool stop = false;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    readers_start(r, f, &stop);
    assert_int_equal(mr_models_stop(f->m, PATIENCE_NS), 0);
    assert_int_equal(fx_newest(f, "m"), 0);
    readers_stop(r, &stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_reload_under_readers),
        fx_test(test_everything_at_once),
        fx_test(test_stop_under_readers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
