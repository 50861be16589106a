/* The table alone: what finding answers, how it grows, and how little that costs; folders and
 * names. */
#include "harness.h"
#include "model/records/table.h"

static struct mr_model *add(struct mr_models *m, const char *name)
{
    struct mr_model *model = mr_model_get(m, mr_str_c(name));
    struct mr_version_record *r = mr_record_get(model, 1);
    r->state = MR_VERSION_LOADING;
    mr_table_publish(m, model);
    return model;
}

static struct mr_models *manager(struct fixture *f)
{
    const struct mr_model_hooks hooks = {0};
    assert_int_equal(mr_models_new(&f->m, &f->o, &hooks, NULL), MR_OK);
    return f->m;
}

static void test_states(void **state)
{
    (void)state;
    static const struct {
        enum mr_version_state s;
        const char *name;
        const char *triton;
    } rows[] = {
        {MR_VERSION_START, "START", "UNKNOWN"},
        {MR_VERSION_LOADING, "LOADING", "LOADING"},
        {MR_VERSION_WARMING, "WARMING", "LOADING"},
        {MR_VERSION_READY, "READY", "READY"},
        {MR_VERSION_DRAINING, "DRAINING", "UNLOADING"},
        {MR_VERSION_UNLOADED, "UNLOADED", "UNAVAILABLE"},
        {MR_VERSION_FAILED, "FAILED", "UNAVAILABLE"},
        {(enum mr_version_state)99, "UNKNOWN", "UNKNOWN"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(mr_version_state_name(rows[i].s), rows[i].name);
        assert_string_equal(mr_version_state_triton(rows[i].s), rows[i].triton);
    }
}

/* Models that come one by one cost a copy of the table only when it doubles: counted in retired
 * tables and sets, which is what a publication replaces. */
static void test_growth_is_not_quadratic(void **state)
{
    struct mr_models *m = manager(*state);
    size_t retired = 0;
    char name[32];
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        add(m, name);
    }
    for (struct mr_model_retired *r = m->retired; r; r = r->next) {
        retired++;
    }
    pthread_mutex_unlock(&m->lock);
    assert_true(retired <= 10); /* 64 slots grow to 32,768 */
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "model-%d", i);
        const struct mr_model *model = mr_table_find(m, mr_str_c(name));
        assert_non_null(model);
        assert_true(mr_str_eq_c(model->name, name));
    }
    assert_null(mr_table_find(m, MR_STR("model-10000")));
    struct mr_err err = {0};
    int64_t n;
    assert_int_equal(fx_find(*state, "model-77", "1", &n, &err), MR_E_UNAVAILABLE);
    assert_string_equal(err.msg,
                        "Request for unknown model: 'model-77' version 1 is not at ready state");
}

static void test_coming_and_going(void **state)
{
    struct mr_models *m = manager(*state);
    char name[32];
    pthread_mutex_lock(&m->lock);
    add(m, "stays");
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "goes-%d", i);
        struct mr_model *model = add(m, name);
        model->records.at[0].state = MR_VERSION_UNLOADED;
        mr_model_forget_if_empty(m, model);
        assert_null(mr_table_find(m, mr_str_c(name)));
        assert_non_null(mr_table_find(m, MR_STR("stays")));
    }
    assert_int_equal(m->models.len, 1);
    assert_int_equal(m->table_live, 1);
    assert_true(m->table_used <= 32); /* slots of models that went are cleared away */
    pthread_mutex_unlock(&m->lock);
}

static void test_records_stay_sorted(void **state)
{
    struct mr_models *m = manager(*state);
    static const int64_t numbers[] = {5, 1, 9, 3, 5, 7};
    pthread_mutex_lock(&m->lock);
    struct mr_model *model = mr_model_get(m, MR_STR("m"));
    for (size_t i = 0; i < 6; i++) {
        mr_record_get(model, numbers[i]);
    }
    assert_int_equal(model->records.len, 5);
    for (size_t i = 1; i < 5; i++) {
        assert_true(model->records.at[i - 1].number < model->records.at[i].number);
    }
    mr_record_remove(model, 1);
    assert_null(mr_record_find(model, 3));
    assert_non_null(mr_record_find(model, 9));
    pthread_mutex_unlock(&m->lock);
}

static void test_long_name_in_error(void **state)
{
    struct mr_models *m = manager(*state);
    char *name = mr_alloc(100000);
    struct mr_version *v;
    struct mr_err err = {0};
    memset(name, 'x', 100000);
    assert_int_equal(mr_models_find(m, mr_str_n(name, 100000), MR_STR(""), &v, &err),
                     MR_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "xxx' is not found"));
    mr_free(name);
}

/* ---- folders ---- */

static void test_version_numbers(void **state)
{
    static const struct {
        const char *name;
        int64_t number; /* 0 = none */
    } rows[] = {{"1", 1},  {"10", 10}, {"9223372036854775807", INT64_MAX},
                {"0", 0},  {"01", 0},  {"9223372036854775808", 0},
                {"-1", 0}, {"1a", 0},  {"", 0},
                {" 1", 0}, {"+1", 0},  {"1.0", 0}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n = 0;
        bool ok = mr_version_number(mr_str_c(rows[i].name), &n);
        assert_int_equal(ok ? n : 0, rows[i].number);
    }
}

static void read_folder(struct fixture *f, struct mr_folder *out)
{
    struct mr_err err = {0};
    if (mr_folder_read(out, f->repo[0], NULL, MR_STR("m"), NULL, NULL, NULL, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

static void test_print_sees_changes(void **state)
{
    struct fixture *f = *state;
    struct mr_folder a;
    struct mr_folder b;
    static const char *const changes[][2] = {
        {"m/1/weights.bin", "weightz!"}, {"m/1/new", ""},    {"m/1/deep/er/file", "x"},
        {"m/1/deep/er/file", "y and z"}, {"m/1/empty/", ""},
    };
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_model(f, 0, "m", NULL, 2);
    read_folder(f, &a);
    assert_int_equal(a.versions.len, 2);
    assert_non_null(a.config_path);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        fx_write(f, 0, changes[i][0], changes[i][1]);
        read_folder(f, &b);
        assert_true(a.versions.at[0].fingerprint.sum != b.versions.at[0].fingerprint.sum);
        assert_true(a.versions.at[1].fingerprint.sum == b.versions.at[1].fingerprint.sum);
        assert_true(a.shared.sum == b.shared.sum);
        mr_folder_fini(&a);
        a = b;
    }
    fx_write(f, 0, "m/1/.hidden", "not looked at");
    fx_write(f, 0, "m/1/__pycache__/model.pyc", "compiled");
    fx_write(f, 0, "m/labels.txt", "shared");
    read_folder(f, &b);
    assert_true(a.versions.at[0].fingerprint.sum == b.versions.at[0].fingerprint.sum);
    assert_true(a.shared.sum != b.shared.sum);
    mr_folder_fini(&a);
    mr_folder_fini(&b);
}

/* Whatever is in it: where the links lead is not watched. */
static void test_folder_by_a_link(void **state)
{
    struct fixture *f = *state;
    struct mr_folder folder;

    fx_model(f, 0, ".store/new", IDENTITY_TEXT, 1);
    fx_link(f, 0, "new", ".store/now");
    fx_link(f, 0, ".store/now", "m");
    read_folder(f, &folder);
    assert_int_equal(folder.shared.links, 1);
    mr_folder_fini(&folder);
}

static void test_folder_bounds(void **state)
{
    struct fixture *f = *state;
    struct mr_folder folder;
    struct mr_err err = {0};
    char path[512] = "m/1";
    fx_write(f, 0, "m/config.pbtxt", "");
    for (int i = 0; i < 40; i++) {
        strcat(path, "/d");
    }
    fx_write(f, 0, strcat(path, "/file"), "deep");
    read_folder(f, &folder);
    assert_int_equal(folder.versions.at[0].err.status, MR_E_TOO_LARGE);
    mr_folder_fini(&folder);

    assert_int_equal(
        mr_folder_read(&folder, f->repo[0], NULL, MR_STR("none"), NULL, NULL, NULL, &err),
        MR_E_NOT_FOUND);
    mr_folder_fini(&folder);
    /* A repository that is away is not a model that is away. */
    assert_int_equal(
        mr_folder_read(&folder, "/does/not/exist", NULL, MR_STR("m"), NULL, NULL, NULL, &err),
        MR_E_IO);
    mr_folder_fini(&folder);
    fx_write(f, 0, "file", "no folder");
    assert_int_equal(
        mr_folder_read(&folder, f->repo[0], NULL, MR_STR("file"), NULL, NULL, NULL, &err),
        MR_E_NOT_FOUND);
    mr_folder_fini(&folder);
}

static void test_file_read(void **state)
{
    struct fixture *f = *state;
    char path[PATH_MAX];
    struct mr_err err = {0};
    char *data = NULL;
    size_t len = 0;
    fx_write(f, 0, "file", "12345");
    fx_path(path, f, 0, "file");
    assert_int_equal(mr_file_read(path, 5, &data, &len, &err), MR_OK);
    assert_int_equal(len, 5);
    assert_string_equal(data, "12345");
    mr_free(data);
    assert_int_equal(mr_file_read(path, 4, &data, &len, &err), MR_E_TOO_LARGE);
    assert_int_equal(mr_file_read(f->repo[0], 4, &data, &len, &err), MR_E_INVALID);
    fx_path(path, f, 0, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(mr_file_read(path, 4, &data, &len, &err), MR_E_INVALID);
    assert_non_null(strstr(err.msg, "not a regular file"));
    fx_path(path, f, 0, "none");
    assert_int_equal(mr_file_read(path, 4, &data, &len, &err), MR_E_NOT_FOUND);
}

static void test_names(void **state)
{
    struct fixture *f = *state;
    struct mr_name_list list;
    fx_write(f, 0, "b/", "");
    fx_write(f, 0, "a/", "");
    fx_write(f, 1, "b/", "");
    fx_write(f, 1, "c/", "");
    fx_write(f, 0, ".hidden/", "");
    fx_write(f, 0, "file", "");
    fx_write(f, 0, "new\nline/", "");
    assert_int_equal(mr_names_read(f->repos, 2, NULL, 0, &list, NULL), MR_OK);
    assert_int_equal(list.len, 3);
    assert_string_equal(list.at[0].name, "a");
    assert_string_equal(list.at[1].name, "b");
    assert_int_equal(list.at[1].count, 2);
    assert_string_equal(list.at[2].name, "c");
    mr_names_fini(&list);
    const char *none[] = {"/does/not/exist"};
    assert_int_equal(mr_names_read(none, 1, NULL, 0, &list, NULL), MR_E_NOT_FOUND);
}

static void test_paths(void **state)
{
    static const struct {
        const char *path;
        bool ok;
    } rows[] = {{"a", true},
                {"1/model.onnx", true},
                {"a/b/c", true},
                {"a..b/...", true},
                {"", false},
                {"/a", false},
                {"a/", false},
                {"a//b", false},
                {"./a", false},
                {"a/.", false},
                {"../a", false},
                {"a/../b", false},
                {"a/..", false},
                {"a\tb", false},
                {"1/2/3/4/5/6/7/8/9/0/1/2/3/4/5/6/7", false}};
    char big[600];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((mr_model_path_check(mr_str_c(rows[i].path), NULL) == MR_OK) != rows[i].ok) {
            fail_msg("'%s'", rows[i].path);
        }
    }
    memset(big, 'a', sizeof big);
    assert_int_equal(mr_model_path_check(mr_str_n(big, 256), NULL), MR_E_INVALID);
    assert_int_equal(mr_model_path_check(mr_str_n(big, 600), NULL), MR_E_INVALID);
    assert_int_equal(mr_model_name_check(mr_str_n(big, 255), NULL), MR_OK);
    assert_int_equal(mr_model_name_check(mr_str_n(big, 256), NULL), MR_E_INVALID);
}

static void test_inside(void **state)
{
    struct fixture *f = *state;
    char root[PATH_MAX];
    char path[PATH_MAX];
    char *real = NULL;
    struct mr_err err = {0};
    assert_non_null(realpath(f->repo[0], root));
    fx_write(f, 0, "a/file", "x");
    fx_link(f, 0, "a/file", "in");
    fx_link(f, 0, "..", "up");
    fx_link(f, 0, f->repo[1], "out");
    fx_link(f, 0, "self", "self");
    /* A neighbour whose name only begins like the root's. */
    snprintf(path, sizeof path, "%sX", f->repo[0]);
    assert_int_equal(mkdir(path, 0755), 0);
    fx_link(f, 0, path, "neighbour");
    static const struct {
        const char *path;
        int rc;
    } rows[] = {{"a/file", MR_OK},
                {"in", MR_OK},
                {"a/../in", MR_OK},
                {"up", MR_E_FORBIDDEN},
                {"out", MR_E_FORBIDDEN},
                {"neighbour", MR_E_FORBIDDEN},
                {"a/../../x", MR_E_NOT_FOUND},
                {"../repo1", MR_E_FORBIDDEN},
                {"none", MR_E_NOT_FOUND},
                {"self", MR_E_INVALID},
                {"a/file/x", MR_E_NOT_FOUND}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fx_path(path, f, 0, rows[i].path);
        int rc = mr_path_inside(root, NULL, path, &real, &err);
        if (rc != rows[i].rc) {
            fail_msg("%s: %d %s", rows[i].path, rc, err.msg);
        }
        mr_freep(&real);
    }
    assert_int_equal(mr_path_inside("/", NULL, "/tmp", &real, NULL), MR_OK);
    mr_free(real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_states),
        fx_test(test_growth_is_not_quadratic),
        fx_test(test_coming_and_going),
        fx_test(test_records_stay_sorted),
        fx_test(test_long_name_in_error),
        fx_test(test_version_numbers),
        fx_test(test_print_sees_changes),
        fx_test(test_folder_by_a_link),
        fx_test(test_folder_bounds),
        fx_test(test_file_read),
        fx_test(test_names),
        fx_test(test_paths),
        fx_test(test_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
