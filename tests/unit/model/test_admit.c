/* Loads that do not fit are refused with figures, and nothing else changes. */
#include "harness.h"

#define MIB (UINT64_C(1) << 20)

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected '%s' in '%s'", part, text);
    }
}

/* A file of that size, without its bytes. */
static void weights(struct fixture *f, const char *path, uint64_t bytes)
{
    char full[PATH_MAX];
    fx_write(f, 0, path, "");
    fx_path(full, f, 0, path);
    assert_int_equal(truncate(full, (off_t)bytes), 0);
}

static void test_a_budget(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.memory_check = false;
    f->o.memory_budget = 32 * MIB;
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "b", IDENTITY_TEXT, 1);
    weights(f, "a/1/weights.bin", 8 * MIB);  /* 8 * 1.25 + 4 = 14 */
    weights(f, "b/1/weights.bin", 16 * MIB); /* 24 */
    fx_start(f);
    fx_must_load(f, "a");
    assert_true(fx_load(f, "b", &err) < 0);
    assert_contains(err.msg,
                    "not enough memory: it needs about 24.0 MiB (files of 16.0 MiB), 18.0 MiB of "
                    "32.0 MiB are available by --model-memory-budget");
    assert_int_equal(fx_newest(f, "a"), 1);
    assert_int_equal(atomic_load(&f->served), 1);
    assert_int_equal(f->m->reserved_bytes, 0);
    fx_unload(f, "a");
    fx_drained(f);
    fx_must_load(f, "b");
    assert_int_equal(f->m->reserved_bytes, 0);
}

static void test_an_update_that_fits_only_alone(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.memory_check = false;
    f->o.memory_budget = 32 * MIB;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    weights(f, "m/1/weights.bin", 16 * MIB);
    fx_start(f);
    fx_must_load(f, "m");
    weights(f, "m/2/weights.bin", 16 * MIB);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg, "not enough memory");
    assert_int_equal(fx_newest(f, "m"), 1); /* it continues */
    fx_write(f, 0, "m/config.pbtxt",
             IDENTITY_TEXT "parameters { key: \"millrace.switch_policy\" value { string_value: "
                           "\"resource\" } }\n");
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);
}

static void test_all_versions_of_a_load_count(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.memory_check = false;
    f->o.memory_budget = 32 * MIB;
    fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { all { } }", 1);
    weights(f, "m/1/weights.bin", 8 * MIB);
    weights(f, "m/2/weights.bin", 8 * MIB);
    weights(f, "m/3/weights.bin", 8 * MIB);
    fx_start(f);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg, "version 3 is at UNAVAILABLE state: not enough memory");
    assert_string_equal(fx_ready(f, "m"), "");
    fx_remove(f, 0, "m/3");
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "1,2");
}

/* The probe backend reports 4096 bytes, whatever the size of the file. */
static void test_what_the_last_load_took(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.memory_check = false;
    f->o.memory_budget = 6 * MIB;
    fx_write(f, 0, "m/config.pbtxt", "backend: \"probe\" default_model_filename: \"model.probe\"");
    fx_write(f, 0, "m/1/model.probe", "batch");
    weights(f, "m/1/weights.bin", MIB);
    fx_start(f);
    fx_must_load(f, "m");
    fx_write(f, 0, "m/2/model.probe", "batch");
    weights(f, "m/2/weights.bin", 64 * MIB); /* 256 KiB, as the first took 4 KiB for 1 MiB */
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);
    fx_model(f, 0, "n", IDENTITY_TEXT, 1);
    weights(f, "n/1/weights.bin", 64 * MIB);
    assert_true(fx_load(f, "n", &err) < 0); /* a model of which nothing is known */
    assert_contains(err.msg, "needs about 84.0 MiB");
}

/* What a tiny model takes is not multiplied by the size of a large one. */
static void test_a_large_version_after_a_tiny_one(void **state)
{
    struct fixture *f = *state;
    f->o.memory_check = false;
    f->o.memory_budget = 26 * MIB;
    fx_write(f, 0, "m/config.pbtxt", "backend: \"probe\" default_model_filename: \"model.probe\"");
    fx_write(f, 0, "m/1/model.probe", "batch"); /* 4096 bytes of memory for 5 of files */
    fx_start(f);
    fx_must_load(f, "m");
    fx_write(f, 0, "m/2/model.probe", "batch");
    weights(f, "m/2/weights.bin", 16 * MIB); /* 24 MiB as at a first load, and 4 KiB */
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);
}

static void test_more_than_the_machine_has(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    weights(f, "m/1/weights.bin", UINT64_C(1) << 42);
    fx_start(f);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg,
                    "not enough memory: it needs about 5242884.0 MiB (files of 4194304.0 MiB)");
    assert_null(strstr(err.msg, "budget"));
}

static void test_the_check_can_be_left_out(void **state)
{
    struct fixture *f = *state;
    f->o.memory_check = false;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    weights(f, "m/1/weights.bin", UINT64_C(1) << 42);
    fx_start(f);
    fx_must_load(f, "m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_a_budget),
        fx_test(test_an_update_that_fits_only_alone),
        fx_test(test_all_versions_of_a_load_count),
        fx_test(test_what_the_last_load_took),
        fx_test(test_a_large_version_after_a_tiny_one),
        fx_test(test_more_than_the_machine_has),
        fx_test(test_the_check_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
