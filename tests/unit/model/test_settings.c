/* Folders with model-settings.json: what they are named, and which are versions of one model. */
#include "harness.h"
#include "model/folder/settings.h"

static struct mr_folder folder_of(struct fixture *f, const char *name)
{
    struct mr_folder out;
    struct mr_err err;

    const int rc = mr_folder_read(&out, f->repos[0], NULL, mr_str_c(name), NULL, NULL, NULL, &err);
    assert_true(rc == MR_OK || (rc == MR_E_NOT_FOUND && out.versions.len == 0));
    return out;
}

static void test_names(void **state)
{
    static const char *const expected[] = {"b", "broken", "er", "plain", "three", "versionless"};
    struct fixture *f = *state;
    struct mr_name_list names;

    fx_write(f, 0, "a/model-settings.json", "{\"name\": \"b\", \"other\": [{}]}");
    fx_write(f, 0, "a2/model-settings.json",
             "{\"name\": \"b\", \"parameters\": {\"version\": \"2\"}}");
    fx_write(f, 0, "deep/er/model-settings.json", "{}");
    fx_write(f, 0, "three/3/model-settings.json", "{\"parameters\": null}");
    fx_write(f, 0, "broken/model-settings.json", "{\"name\": ");
    fx_write(f, 0, ".hidden/model-settings.json", "{}");
    fx_write(f, 0, "plain/config.pbtxt", "");
    fx_write(f, 0, "plain/x/model-settings.json", "{}");
    fx_write(f, 0, "versionless/", "");
    assert_int_equal(MR_OK, mr_names_read(f->repos, 1, NULL, 0, &names, NULL));
    assert_int_equal(sizeof expected / sizeof *expected, names.len);
    for (size_t i = 0; i < names.len; i++) {
        assert_string_equal(expected[i], names.at[i].name);
        assert_int_equal(1, names.at[i].count);
    }
    mr_names_fini(&names);
}

static void test_versions(void **state)
{
    struct fixture *f = *state;

    fx_write(f, 0, "x/model-settings.json", "{\"name\": \"m\"}");
    fx_write(f, 0, "y/model-settings.json",
             "{\"name\": \"m\", \"parameters\": {\"version\": \"b\"}}");
    fx_write(f, 0, "y/weights", "1");
    fx_write(f, 0, "y/z/model-settings.json",
             "{\"name\": \"m\", \"parameters\": {\"version\": \"a\"}}");
    fx_write(f, 0, "m/9/model-settings.json",
             "{\"parameters\": {\"version\": \"9\"}, \"max_batch_size\": \"16\", "
             "\"max_batch_time\": 0.5}");
    struct mr_folder m = folder_of(f, "m");
    assert_true(m.is_mlserver);
    assert_int_equal(4, m.versions.len);
    assert_int_equal(9, m.versions.at[0].number);
    assert_null(m.versions.at[0].label);
    assert_int_equal(10, m.versions.at[1].number);
    assert_string_equal("a", m.versions.at[1].label);
    assert_string_equal("b", m.versions.at[2].label);
    assert_int_equal(2, m.versions.at[2].fingerprint.files -
                            1); /* the nested model's are not among them */
    assert_null(m.versions.at[3].label);
    mr_folder_fini(&m);
    struct mr_folder none = folder_of(f, "x");
    assert_int_equal(0, none.versions.len);
    mr_folder_fini(&none);
}

/* The repository itself is a model, whose folder holds others. */
static void test_root(void **state)
{
    struct fixture *f = *state;

    fx_write(f, 0, "model-settings.json",
             "{\"name\": \"r\", \"max_batch_size\": 8, \"max_batch_time\": \"0.25\"}");
    fx_write(f, 0, "a/model-settings.json", "{}");
    struct mr_folder r = folder_of(f, "r");
    assert_int_equal(1, r.versions.len);
    assert_int_equal(1, r.versions.at[0].number);
    assert_int_equal(8, r.max_batch_size);
    assert_true(r.max_batch_time_s == 0.25);
    const uint64_t before = r.versions.at[0].fingerprint.sum;
    mr_folder_fini(&r);
    fx_write(f, 0, "a/more", "text");
    r = folder_of(f, "r");
    assert_true(r.versions.at[0].fingerprint.sum == before);
    mr_folder_fini(&r);
    fx_write(f, 0, "weights", "text");
    r = folder_of(f, "r");
    assert_true(r.versions.at[0].fingerprint.sum != before);
    mr_folder_fini(&r);
}

/* One version may be one folder only. */
static void test_double(void **state)
{
    struct fixture *f = *state;

    fx_write(f, 0, "x/model-settings.json",
             "{\"name\": \"m\", \"parameters\": {\"version\": \"1\"}}");
    fx_write(f, 0, "y/model-settings.json",
             "{\"name\": \"m\", \"parameters\": {\"version\": \"1\"}}");
    struct mr_folder m = folder_of(f, "m");
    assert_int_equal(1, m.versions.len);
    mr_folder_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_names),
        fx_test(test_versions),
        fx_test(test_root),
        fx_test(test_double),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
