/* Instances of one model on several threads, and models opened and closed beside running ones. */
#include "harness.h"

#include "base/thread.h"

#define THREADS 4
#define RUNS    200

struct worker {
    pthread_t thread;
    struct loaded loaded;
    int dtype;
    int wrong;
};

/* cmocka's checks are for the main thread; this counts what is wrong instead. */
static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct call c;
    call_init(&c, &w->loaded);
    for (int i = 0; i < RUNS; i++) {
        const int64_t shape[] = {i % 12 + 1, i % 5 == 0 ? 2000 : 7};
        uint64_t bytes;
        uint8_t *data = sample(w->dtype, (uint64_t)(shape[0] * shape[1]), &bytes);
        call_input(&c, 0, w->dtype, data, bytes, 2, shape);
        int rc = call_run(&c, &w->loaded);
        w->wrong += rc != MR_OK || c.out[0].tensor.bytes != bytes ||
                    memcmp(c.out[0].tensor.data, data, bytes) != 0;
        mr_free(data);
    }
    call_fini(&c);
    return NULL;
}

static void run_parallel(int dtype)
{
    struct loaded l = identity_load(dtype);
    struct worker workers[THREADS] = {0};
    struct mr_err err;
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i].loaded = l;
        workers[i].dtype = dtype;
        assert_int_equal(instance_open(l.model, i + 1, &workers[i].loaded.instance, &err), MR_OK);
        assert_int_equal(
            mr_thread_start(&workers[i].thread, "worker", worker_main, &workers[i], &err), MR_OK);
    }
    for (int i = 0; i < 5; i++) {
        struct loaded other = identity_load(MR_DTYPE_FP64);
        model_drop(&other);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
        mr_executor_instance_close(l.model, &workers[i].loaded.instance);
    }
    model_drop(&l);
}

static void parallel_numbers(void **state)
{
    (void)state;
    run_parallel(MR_DTYPE_INT16);
}

static void parallel_strings(void **state)
{
    (void)state;
    run_parallel(MR_DTYPE_BYTES);
}

const struct CMUnitTest parallel_cases[] = {
    cmocka_unit_test(parallel_numbers),
    cmocka_unit_test(parallel_strings),
};
const size_t parallel_case_count = sizeof parallel_cases / sizeof *parallel_cases;
