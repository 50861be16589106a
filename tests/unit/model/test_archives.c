/* Models in archives: they are served as if the archive were unpacked. */
#include "archive/archive.h"
#include "harness.h"

static char cache[PATH_MAX];

/* The second repository holds folders that become archives of the first. */
static int setup(void **state)
{
    fx_setup(state);
    struct fixture *f = *state;

    snprintf(cache, sizeof cache, "%s/cache", f->dir);
    f->o.archive_cache = cache;
    f->o.settle_ns = MR_NS_PER_MS;
    return 0;
}

/* Replaces the archive of the first repository. */
static void pack(struct fixture *f, const char *folder, const char *name)
{
    char from[PATH_MAX], part[PATH_MAX], to[PATH_MAX];
    struct mr_err err = {0};

    fx_path(from, f, 1, folder);
    fx_path(to, f, 0, name);
    snprintf(part, sizeof part, "%s/new.%s", f->dir, name);
    if (mr_archive_pack(from, "", part, NULL, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(rename(part, to), 0);
}

static void vk_layout_is_served(void **state)
{
    struct fixture *f = *state;

    fx_model(f, 1, "a/models/one", IDENTITY_TEXT, 1);
    fx_model(f, 1, "a/models/two", IDENTITY_TEXT, 3);
    fx_write(f, 1, "a/assets/words.txt", "words");
    fx_link(f, 1, "../../../assets/words.txt", "a/models/one/1/words.txt");
    pack(f, "a", "bundle.tar.gz");
    fx_start(f);
    assert_string_equal(fx_index(f), "one; two");
    fx_must_load(f, "one");
    fx_must_load(f, "two");
    assert_int_equal(fx_newest(f, "one"), 1);
    assert_int_equal(fx_newest(f, "two"), 3);
}

static void folders_around_it_are_no_matter(void **state)
{
    struct fixture *f = *state;

    fx_model(f, 1, "a/project/models/one", IDENTITY_TEXT, 1);
    fx_write(f, 1, "a/project/requirements.txt", "");
    fx_model(f, 1, "b/two", IDENTITY_TEXT, 1);
    pack(f, "a", "a.zip");
    pack(f, "b", "b.tar.zst");
    fx_start(f);
    assert_string_equal(fx_index(f), "one; two");
    fx_must_load(f, "one");
    fx_must_load(f, "two");
}

static void model_at_the_top_has_the_archives_name(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};

    fx_model(f, 1, "a", IDENTITY_TEXT, 2);
    pack(f, "a", "m.v1.tar");
    fx_start(f);
    fx_must_load(f, "m.v1");
    assert_int_equal(fx_newest(f, "m.v1"), 2);
    assert_int_equal(fx_load(f, "a", &err), MR_E_INTERNAL);
}

static void damaged_archive_is_its_models_failure(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};

    fx_write(f, 0, "m.tar.gz", "no archive");
    fx_write(f, 0, "other.txt", "no archive, and no model");
    fx_start(f);
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "m.tar.gz is no whole archive"));
    assert_non_null(strstr(fx_index(f), "m.tar.gz is no whole archive"));
}

static void model_in_two_places_is_refused(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};

    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    fx_model(f, 0, "one", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar");
    fx_start(f);
    assert_int_equal(fx_load(f, "one", &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "two or more repositories"));
}

/* Archives come, change and go while the server runs; the same content again changes nothing. */
static void load_requests_find_what_came(void **state)
{
    struct fixture *f = *state;

    fx_start(f);
    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar");
    fx_must_load(f, "one");
    fx_changes(f);
    pack(f, "a", "a.tar");
    fx_must_load(f, "one");
    assert_string_equal(fx_changes(f), "");
    fx_model(f, 1, "a/one", NULL, 2);
    pack(f, "a", "a.tar");
    fx_must_load(f, "one");
    assert_string_equal(fx_ready(f, "one"), "2");
}

static void polling_follows(void **state)
{
    struct fixture *f = *state;

    f->o.control = MR_MODEL_CONTROL_POLL;
    f->o.poll_ns = 10 * MR_NS_PER_MS;
    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar");
    fx_start(f);
    fx_wait_newest(f, "one", 1);
    fx_model(f, 1, "a/one", NULL, 2);
    pack(f, "a", "a.tar");
    fx_wait_newest(f, "one", 2);
    fx_remove(f, 0, "a.tar");
    fx_wait_newest(f, "one", 0);
}

/* The model goes on, and loads say why, until there is an archive that can be used. */
static void update_that_cannot_be_used(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};

    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar.gz");
    fx_start(f);
    fx_must_load(f, "one");
    for (int i = 0; i < 2; i++) { /* what was before is kept over several of them */
        fx_write(f, 0, "a.tar.gz", i ? "again no archive" : "no archive");
        assert_int_equal(fx_load(f, "one", &err), MR_E_INVALID);
        assert_non_null(strstr(err.msg, "a.tar.gz is no whole archive"));
        assert_non_null(strstr(fx_index(f), "one:1 READY !"));
    }
    pack(f, "a", "a.tar.gz");
    fx_must_load(f, "one");
    assert_string_equal(fx_index(f), "one:1 READY");
    assert_int_equal(atomic_load(&f->served), 1);
}

static void update_that_cannot_be_used_while_polling(void **state)
{
    struct fixture *f = *state;

    f->o.control = MR_MODEL_CONTROL_POLL;
    f->o.poll_ns = 10 * MR_NS_PER_MS;
    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar.gz");
    fx_start(f);
    fx_wait_newest(f, "one", 1);
    fx_write(f, 0, "a.tar.gz", "no archive");
    fx_wait_index(f, "a.tar.gz is no whole archive");
    assert_non_null(strstr(fx_index(f), "one:1 READY !"));
    fx_model(f, 1, "a/one", NULL, 2);
    pack(f, "a", "a.tar.gz");
    fx_wait_newest(f, "one", 2);
    assert_null(strstr(fx_index(f), "no whole archive"));
}

/* What serves keeps its files, however small the cache is. */
static void served_files_stay(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];
    struct mr_version *v = NULL;

    fx_model(f, 1, "a/one", IDENTITY_TEXT, 1);
    fx_model(f, 1, "b/two", IDENTITY_TEXT, 1);
    pack(f, "a", "a.tar");
    f->o.archive_cache_bytes = 1000; /* less than any folder takes */
    fx_start(f);
    fx_must_load(f, "one");
    fx_remove(f, 0, "a.tar");
    pack(f, "b", "b.tar");
    fx_must_load(f, "two");
    mr_epoch_online(mr_models_epoch(f->m));
    assert_int_equal(mr_models_find(f->m, MR_STR("one"), MR_STR(""), &v, NULL), MR_OK);
    snprintf(path, sizeof path, "%s/1/weights.bin", v->model_dir);
    mr_epoch_offline(mr_models_epoch(f->m));
    assert_int_equal(access(path, R_OK), 0);
    assert_int_equal(fx_unload(f, "one"), MR_OK);
    fx_drained(f);
    fx_remove(f, 0, "b.tar");
    fx_model(f, 1, "c/three", IDENTITY_TEXT, 1);
    pack(f, "c", "c.tar");
    fx_must_load(f, "three");
    assert_int_equal(access(path, R_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(vk_layout_is_served, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(folders_around_it_are_no_matter, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(model_at_the_top_has_the_archives_name, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(damaged_archive_is_its_models_failure, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(model_in_two_places_is_refused, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(load_requests_find_what_came, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(polling_follows, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(update_that_cannot_be_used, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(update_that_cannot_be_used_while_polling, setup,
                                        fx_teardown),
        cmocka_unit_test_setup_teardown(served_files_stay, setup, fx_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
