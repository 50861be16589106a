/* Which loads wait for which, which end those before them, and which are tried again. */
#include <malloc.h>

#include "harness.h"

#define FAILING                                                                                    \
    "backend: \"fault\"\nparameters { key: \"fail_open\" value { string_value: \"1\" } "           \
    "}\n" IO_TEXT

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected '%s' in '%s'", part, text);
    }
}

static void load_begin(struct fixture *f, const char *name, struct answer *a)
{
    answer_init(a);
    mr_models_load(f->m, mr_str_c(name), NULL, answer_take, a);
}

/* Its load gets as far as warm-up and stays there. */
static void load_hold(struct fixture *f, const char *name, struct answer *a)
{
    atomic_store(&f->hold, name);
    load_begin(f, name, a);
    while (atomic_load(&f->held) == 0) {
        usleep(1000);
    }
}

static void let_go(struct fixture *f)
{
    atomic_store(&f->hold, NULL);
}

static bool has_answer(struct answer *a)
{
    pthread_mutex_lock(&a->lock);
    bool is_there = a->is_there;
    pthread_mutex_unlock(&a->lock);
    return is_there;
}

static void until_index(struct fixture *f, const char *part)
{
    for (int i = 0; !strstr(fx_index(f), part); i++) {
        if (i == 10000) {
            fail_msg("waited for '%s' in '%s'", part, fx_index(f));
        }
        usleep(2000);
    }
}

static void until_changes(struct fixture *f, const char *part, int count)
{
    static char all[65536];
    size_t used = 0;
    all[0] = '\0';
    for (int i = 0;; i++) {
        used += (size_t)snprintf(all + used, sizeof all - used, "%s,", fx_changes(f));
        int n = 0;
        for (const char *p = all; (p = strstr(p, part)); p++) {
            n++;
        }
        if (n >= count) {
            return;
        }
        if (i == 10000 || used >= sizeof all - 1) {
            fail_msg("waited for %d times '%s' in '%s'", count, part, all);
        }
        usleep(2000);
        used = strlen(all);
    }
}

/* ---- places ---- */

static void test_one_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    fx_model(f, 0, "slow", IDENTITY_TEXT, 1);
    fx_model(f, 0, "fast", IDENTITY_TEXT, 1);
    fx_model(f, 0, "third", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "third");
    load_hold(f, "slow", &a);
    load_begin(f, "fast", &b);
    assert_int_equal(fx_unload(f, "third"), MR_OK); /* jobs other than loads do not wait */
    usleep(50000);
    assert_null(strstr(fx_index(f), "fast:")); /* a load does */
    let_go(f);
    assert_int_equal(answer_wait(&a), MR_OK);
    assert_int_equal(answer_wait(&b), MR_OK);
}

static void test_as_many_as_told(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    f->o.update_threads = 2;
    fx_model(f, 0, "slow", IDENTITY_TEXT, 1);
    fx_model(f, 0, "fast", IDENTITY_TEXT, 1);
    fx_start(f);
    load_hold(f, "slow", &a);
    load_begin(f, "fast", &b);
    assert_int_equal(answer_wait(&b), MR_OK);
    assert_false(has_answer(&a));
    let_go(f);
    assert_int_equal(answer_wait(&a), MR_OK);
}

/* ---- superseding ---- */

static void test_an_unload_ends_a_load(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    load_hold(f, "m", &a);
    answer_init(&b);
    mr_models_unload(f->m, MR_STR("m"), false, answer_take, &b);
    assert_int_equal(answer_wait(&a), MR_E_CANCELLED); /* although it still hangs in warm-up */
    assert_contains(a.err.msg, "newer request for model 'm'");
    assert_false(has_answer(&b));
    let_go(f);
    assert_int_equal(answer_wait(&b), MR_OK);
    fx_drained(f);
    assert_string_equal(fx_changes(f), "m:1 LOADING,m:1 WARMING,m:1 UNLOADED,m:1 UNLOADED");
    fx_must_load(f, "m");
}

static void test_what_waits_is_told_at_once(void **state)
{
    struct fixture *f = *state;
    struct answer slow, a;
    fx_model(f, 0, "slow", IDENTITY_TEXT, 1);
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    load_hold(f, "slow", &slow);
    load_begin(f, "m", &a);
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    assert_int_equal(answer_wait(&a), MR_E_CANCELLED);
    assert_false(has_answer(&slow)); /* neither had to wait for the load before them */
    let_go(f);
    assert_int_equal(answer_wait(&slow), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "");
}

/* A load that sleeps before another try has left its place; it ends without getting one again. */
static void test_what_sleeps_ends_at_once(void **state)
{
    struct fixture *f = *state;
    struct answer slow, a;
    f->o.load_retries = 100;
    fx_model(f, 0, "bad", FAILING, 1);
    fx_model(f, 0, "slow", IDENTITY_TEXT, 1);
    fx_start(f);
    load_begin(f, "bad", &a);
    until_index(f, "bad:1 LOADING");
    load_hold(f, "slow", &slow);
    assert_int_equal(fx_unload(f, "bad"), MR_OK);
    assert_int_equal(answer_wait(&a), MR_E_CANCELLED);
    assert_false(has_answer(&slow));
    let_go(f);
    assert_int_equal(answer_wait(&slow), MR_OK);
}

static void test_a_load_of_what_has_changed(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    load_hold(f, "m", &a);
    fx_model(f, 0, "m", NULL, 2);
    load_begin(f, "m", &b);
    assert_int_equal(answer_wait(&a), MR_E_CANCELLED);
    let_go(f);
    assert_int_equal(answer_wait(&b), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "2");
    assert_null(strstr(fx_changes(f), "m:1 READY"));
}

static void test_a_load_of_what_has_not(void **state)
{
    struct fixture *f = *state;
    struct answer a[3];
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    load_hold(f, "m", &a[0]);
    load_begin(f, "m", &a[1]);
    load_begin(f, "m", &a[2]);
    let_go(f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(answer_wait(&a[i]), MR_OK);
    }
    assert_int_equal(atomic_load(&f->served), 1);
}

static void test_what_serves_goes_on(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_write(f, 0, "m/1/weights.bin", "other weights");
    load_hold(f, "m", &a);
    answer_init(&b);
    const struct mr_load_request q = {.config_json = MR_STR("{\"backend\":\"nosuch\"}")};
    mr_models_load(f->m, MR_STR("m"), &q, answer_take, &b);
    assert_int_equal(answer_wait(&a), MR_E_CANCELLED);
    assert_string_equal(fx_index(f), "m:1 READY"); /* without a warning */
    let_go(f);
    assert_true(answer_wait(&b) < 0);
    assert_int_equal(fx_newest(f, "m"), 1);
    assert_true(mr_models_ready(f->m));
}

/* ---- retries ---- */

static void test_first_loads_are_tried_again(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"m"};
    f->o.load_models = names;
    f->o.load_model_count = 1;
    f->o.retry_pause_ns = 20 * MR_NS_PER_MS;
    fx_model(f, 0, "m", FAILING, 1);
    fx_start(f);
    assert_int_equal(f->failed, 1);
    until_changes(f, "m:1 FAILED", 3);
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT);
    until_index(f, "m:1 READY");
    assert_true(mr_models_ready(f->m));
}

static void test_what_a_client_asks_for_is_not(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"m"};
    struct mr_err err = {0};
    f->o.load_models = names;
    f->o.load_model_count = 1;
    f->o.retry_pause_ns = 200 * MR_NS_PER_MS;
    fx_model(f, 0, "m", FAILING, 1);
    fx_start(f);
    assert_true(fx_load(f, "m", &err) < 0); /* takes the retry's place */
    assert_null(f->m->retries);
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    fx_drained(f);
    assert_string_equal(fx_index(f), "m:1 UNAVAILABLE (unloaded)");
}

static void test_retries_end(void **state)
{
    struct fixture *f = *state;
    f->o.control = MR_MODEL_CONTROL_POLL;
    f->o.poll_ns = 100 * MR_NS_PER_MS;
    f->o.settle_ns = 0;
    f->o.retry_pause_ns = MR_NS_PER_MS;
    fx_model(f, 0, "m", FAILING, 1);
    fx_start(f);
    until_changes(f, "m:1 FAILED", 11);
    usleep(100000);
    assert_null(strstr(fx_changes(f), "FAILED"));
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT); /* at once, when the files change */
    until_index(f, "m:1 READY");
}

static _Atomic int trims;

/* Replaces the C library's. */
int malloc_trim(size_t pad)
{
    (void)pad;
    atomic_fetch_add(&trims, 1);
    return 1;
}

static int64_t trim_at(struct fixture *f, int64_t sooner_ns)
{
    pthread_mutex_lock(&f->m->lock);
    f->m->trim_ns = MR_MIN(f->m->trim_ns, sooner_ns);
    int64_t at_ns = f->m->trim_ns;
    pthread_cond_broadcast(&f->m->work);
    pthread_mutex_unlock(&f->m->lock);
    return at_ns;
}

/* Some time after a job, and not without any. */
static void test_heap_is_trimmed(void **state)
{
    struct fixture *f = *state;
    f->o.control = MR_MODEL_CONTROL_EXPLICIT;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    atomic_store(&trims, 0);
    assert_true(trim_at(f, INT64_MAX) == INT64_MAX);
    fx_must_load(f, "m");
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    fx_drained(f);
    assert_true(trim_at(f, INT64_MAX) < INT64_MAX || atomic_load(&trims) > 0);
    trim_at(f, mr_now_ns());
    for (int i = 0; i < 10000 && atomic_load(&trims) == 0; i++) {
        usleep(2000);
    }
    assert_true(atomic_load(&trims) > 0);
    assert_true(trim_at(f, INT64_MAX) == INT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_one_at_a_time),
        fx_test(test_as_many_as_told),
        fx_test(test_an_unload_ends_a_load),
        fx_test(test_what_waits_is_told_at_once),
        fx_test(test_what_sleeps_ends_at_once),
        fx_test(test_a_load_of_what_has_changed),
        fx_test(test_a_load_of_what_has_not),
        fx_test(test_what_serves_goes_on),
        fx_test(test_first_loads_are_tried_again),
        fx_test(test_what_a_client_asks_for_is_not),
        fx_test(test_retries_end),
        fx_test(test_heap_is_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
