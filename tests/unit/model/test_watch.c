/* Poll mode. Waits are for events, with a bound that only a broken run reaches; that something does
 * not happen is asked for over a stretch of time in which it would. */
#include "harness.h"
#include "model/manager/retry.h"

static void poll_setup(struct fixture *f)
{
    f->o.control = MR_MODEL_CONTROL_POLL;
    f->o.poll_ns = 12 * PATIENCE_NS; /* inotify has to do it */
    f->o.settle_ns = 150 * MR_NS_PER_MS;
}

/* A version can be found a moment before it counts. */
static void wait_ready(struct fixture *f)
{
    int64_t until = mr_now_ns() + PATIENCE_NS;
    while (!mr_models_ready(f->m)) {
        assert_true(mr_now_ns() < until);
        usleep(5000);
    }
}

static void test_start_and_new_models(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "broken", "x:", 1);
    fx_start(f);
    assert_int_equal(f->failed, 1);
    assert_int_equal(fx_newest(f, "a"), 1);
    fx_model(f, 0, "b", IDENTITY_TEXT, 4);
    fx_wait_newest(f, "b", 4);
    fx_model(f, 0, "a", NULL, 2);
    fx_wait_newest(f, "a", 2);
    fx_write(f, 0, "broken/config.pbtxt", IDENTITY_TEXT);
    fx_wait_newest(f, "broken", 1);
    wait_ready(f);
    /* What goes from the disk goes from the server, and is forgotten. */
    fx_remove(f, 0, "b");
    fx_wait_newest(f, "b", 0);
    fx_wait_index(f, "a:1 UNAVAILABLE (unloaded); a:2 READY; broken:1 READY");
}

/* Writes into m's folder for `version` in pieces, until the timeout or `done`. False: the
 * version was taken, but this thread had not run for as long as a writer may rest; that proves nothing. */
static bool written_in_pieces(struct fixture *f, int64_t version, int64_t span_ns,
                              bool (*done)(struct fixture *f, int64_t version))
{
    char path[64];
    char change[64];
    char more[4096] = "";
    size_t len = 0;
    int64_t touched_ns = mr_now_ns();
    int64_t until = touched_ns + span_ns;
    int64_t longest_ns = 0;
    bool is_taken = false;

    snprintf(path, sizeof path, "m/%lld/weights.bin", (long long)version);
    snprintf(change, sizeof change, "m:%lld ", (long long)version);
    while (mr_now_ns() < until && !is_taken && !(done && done(f, version))) {
        int64_t before_ns = touched_ns;
        more[len++ % (sizeof more - 1)] = 'x';
        touched_ns = mr_now_ns();
        fx_write(f, 0, path, more);
        longest_ns = MR_MAX(longest_ns, mr_now_ns() - before_ns);
        usleep(20000);
        is_taken = strstr(fx_changes(f), change);
        longest_ns = MR_MAX(longest_ns, mr_now_ns() - touched_ns);
    }
    assert_true(!is_taken || longest_ns >= f->o.settle_ns * 9 / 10);
    return !is_taken;
}

/* The entries of fx_changes for one version; there may be more for others. */
static const char *changes_of(struct fixture *f, const char *version)
{
    static char text[1024];
    size_t used = 0;
    text[0] = '\0';
    for (const char *p = fx_changes(f), *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, ',');
        if (strncmp(p, version, strlen(version)) == 0) {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s", used ? "," : "",
                                     (int)(end - p), p);
        }
    }
    return text;
}

/* A version that grows piece by piece is not touched before it is whole, and then once. */
static void test_only_whole_versions(void **state)
{
    struct fixture *f = *state;
    int64_t version = 1;
    char name[32];
    char once[128];
    poll_setup(f);
    f->o.poll_ns = MR_NS_PER_S; /* the scan, too */
    f->o.settle_ns = 500 * MR_NS_PER_MS;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    do {
        fx_wait_newest(f, "m", version);
        assert_true(++version < 20);
    } while (!written_in_pieces(f, version, 3 * MR_NS_PER_S, NULL));
    fx_wait_newest(f, "m", version);
    fx_drained(f);
    snprintf(once, sizeof once, "m:%lld LOADING,m:%lld WARMING,m:%lld READY", (long long)version,
             (long long)version, (long long)version);
    snprintf(name, sizeof name, "m:%lld ", (long long)version);
    assert_string_equal(changes_of(f, name), once);
}

static bool n_is_taken(struct fixture *f, int64_t version)
{
    return fx_newest(f, "n") == version;
}

/* While one version is being written, changes of the others are taken. */
static void test_others_go_on(void **state)
{
    struct fixture *f = *state;
    int64_t version = 1;
    poll_setup(f);
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_model(f, 0, "n", IDENTITY_TEXT, 1);
    fx_start(f);
    do {
        fx_wait_newest(f, "m", version);
        fx_wait_newest(f, "n", version);
        assert_true(++version < 20);
        fx_model(f, 0, "n", NULL, (int)version);
    } while (!written_in_pieces(f, version, PATIENCE_NS, n_is_taken));
    assert_int_equal(fx_newest(f, "n"), version);
    fx_wait_newest(f, "m", version);
}

static void test_changed_and_failed(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    f->o.retry_pause_ns = 12 * PATIENCE_NS;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    /* A new version that fails leaves the old one, and is not tried again and again. */
    f->serve_status = MR_E_INTERNAL;
    fx_model(f, 1, "m", NULL, 2);
    fx_move(f, "m/2");
    fx_wait_index(f, "m:2 UNAVAILABLE (warm-up failed as configured)");
    assert_int_equal(fx_newest(f, "m"), 1);
    assert_true(mr_models_ready(f->m));
    fx_drained(f); /* the index can show a failure before it is reported */
    fx_changes(f);
    fx_write(f, 0, "m/1/more", "a look at this model, with nothing new about version 2");
    fx_write(f, 1, "other/config.pbtxt", IDENTITY_TEXT);
    fx_move(f, "other");
    fx_wait_index(f,
                  "other:0 UNAVAILABLE (at least one version must be available under the version "
                  "policy of model 'other')");
    usleep(300000);
    fx_drained(f);
    assert_string_equal(fx_changes(f), "other:0 FAILED");
    assert_string_equal(fx_ready(f, "m"), "1");
    /* Changed: tried again. */
    f->serve_status = MR_OK;
    fx_write(f, 0, "m/2/weights.bin", "repaired");
    fx_wait_newest(f, "m", 2);
    fx_remove(f, 0, "other");
    fx_wait_index(f, "m:2 READY");
    /* The config alone. */
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT "version_policy { all { } }");
    int64_t until = mr_now_ns() + PATIENCE_NS;
    while (strcmp(fx_ready(f, "m"), "1,2") != 0 && mr_now_ns() < until) {
        usleep(5000);
    }
    assert_string_equal(fx_ready(f, "m"), "1,2");
}

static void test_repository_that_goes_away(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    f->o.repository_count = 2;
    fx_model(f, 1, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "z", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_take_away(f, 0);
    fx_model(f, 1, "a", NULL, 2);
    fx_wait_newest(f, "a", 2);
    assert_int_equal(fx_newest(f, "z"), 1);
}

#define PROBE_ALL                                                                                  \
    "backend: \"probe\" default_model_filename: \"model.probe\" version_policy { all { } }"

/* Two versions in one load, of which the second is damaged. */
static void good_and_broken(struct fixture *f)
{
    poll_setup(f);
    fx_write(f, 0, "m/config.pbtxt", PROBE_ALL);
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_write(f, 0, "m/2/model.probe", "broken");
    fx_start(f);
    assert_int_equal(f->failed, 1);
    assert_string_equal(fx_ready(f, "m"), "");
}

/* The others of a load that failed are loaded when the one that failed has changed or is gone. */
static void test_broken_version_is_repaired(void **state)
{
    struct fixture *f = *state;
    good_and_broken(f);
    fx_write(f, 0, "m/2/model.probe", "batch");
    fx_wait_newest(f, "m", 2);
    assert_string_equal(fx_ready(f, "m"), "1,2");
}

/* What may have been wrong can be the rights of files alone, those of the configuration among them. */
static void test_rights_are_repaired(void **state)
{
    static const char *const files[] = {"a/1/weights.bin", "b/config.pbtxt"};
    struct fixture *f = *state;
    char path[PATH_MAX];
    poll_setup(f);
    f->o.retry_pause_ns = 12 * PATIENCE_NS;
    f->serve_status = MR_E_INTERNAL;
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "b", IDENTITY_TEXT, 1);
    fx_start(f);
    assert_int_equal(f->failed, 2);
    f->serve_status = MR_OK;
    for (size_t i = 0; i < 2; i++) {
        fx_path(path, f, 0, files[i]);
        assert_int_equal(chmod(path, 0600), 0);
    }
    fx_wait_newest(f, "a", 1);
    fx_wait_newest(f, "b", 1);
    /* Where nothing failed they change nothing. */
    fx_drained(f);
    fx_changes(f);
    assert_int_equal(chmod(path, 0644), 0);
    fx_model(f, 0, "later", IDENTITY_TEXT, 1);
    fx_wait_newest(f, "later", 1);
    fx_drained(f);
    assert_null(strstr(fx_changes(f), "b:1"));
}

static void test_broken_version_is_removed(void **state)
{
    struct fixture *f = *state;
    good_and_broken(f);
    fx_remove(f, 0, "m/2");
    fx_wait_newest(f, "m", 1);
}

/* A version without a folder goes although another one is known to fail, but not the last one that serves. */
static void test_removed_beside_a_broken_version(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    fx_write(f, 0, "m/config.pbtxt", PROBE_ALL);
    fx_write(f, 0, "m/1/model.probe", "batch");
    fx_write(f, 0, "m/2/model.probe", "batch");
    fx_start(f);
    fx_write(f, 1, "m/3/model.probe", "broken");
    fx_move(f, "m/3");
    fx_wait_index(f, "m:3 UNAVAILABLE (the file is damaged)");
    assert_string_equal(fx_ready(f, "m"), "1,2");
    fx_remove(f, 0, "m/2");
    fx_wait_newest(f, "m", 1);
    fx_remove(f, 0, "m/1");
    fx_model(f, 0, "other", IDENTITY_TEXT, 1);
    fx_wait_newest(f, "other", 1); /* later files were taken */
    fx_drained(f);
    assert_string_equal(fx_ready(f, "m"), "1");
}

/* The scan alone finds everything, too. */
static void test_without_inotify(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    f->o.poll_ns = 50 * MR_NS_PER_MS;
    f->o.settle_ns = 0;
    fx_start(f);
    fx_model(f, 0, "late", IDENTITY_TEXT, 3);
    fx_wait_newest(f, "late", 3);
    fx_remove(f, 0, "late/3");
    fx_wait_index(f, "late:3 READY !at least one version must be available");
}

static void test_many_models(void **state)
{
    struct fixture *f = *state;
    char name[32];
    f->o.control = MR_MODEL_CONTROL_NONE;
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "m%03d", i);
        fx_model(f, 0, name, IDENTITY_TEXT, 1);
    }
    fx_start(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(f->m->table_live, 500);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "m%03d", i);
        assert_int_equal(fx_newest(f, name), 1);
    }
}

/* A configuration that asks for a marker: files at rest are not enough. */
static void test_marker(void **state)
{
    struct fixture *f = *state;
    const char *const config = IDENTITY_TEXT
        "parameters { key: \"millrace.ready_marker\" value { string_value: \"true\" } }\n";
    poll_setup(f);
    fx_model(f, 0, "m", config, 1);
    fx_write(f, 0, "m/1/.ready", "");
    fx_model(f, 0, "n", config, 1);
    fx_start(f);
    assert_int_equal(fx_newest(f, "m"), 1);
    fx_model(f, 0, "m", NULL, 2);
    fx_model(f, 0, "other", IDENTITY_TEXT, 1);
    fx_wait_newest(f, "other", 1); /* later files were taken */
    fx_model(f, 0, "other", NULL, 2);
    fx_wait_newest(f, "other", 2);
    assert_int_equal(fx_newest(f, "m"), 1);
    assert_int_equal(fx_newest(f, "n"), 0);
    fx_write(f, 0, "m/2/.ready", "");
    fx_wait_newest(f, "m", 2);
}

static uint64_t cancelled(struct fixture *f)
{
    struct mr_load_totals t;
    mr_models_totals(f->m, &t);
    return t.cancelled;
}

static size_t jobs_open(struct fixture *f)
{
    pthread_mutex_lock(&f->m->lock);
    size_t n = f->m->jobs_open;
    pthread_mutex_unlock(&f->m->lock);
    return n;
}

/* Version 2 gets as far as warm-up and stays there; then 3 comes. The warm-up ends as `status` says. */
static void third_while_second(struct fixture *f, int status)
{
    int64_t until = mr_now_ns() + PATIENCE_NS;
    fx_start(f);
    atomic_store(&f->hold, "m");
    fx_model(f, 1, "m", NULL, 2); /* moved, so that neither is seen before it is whole */
    fx_model(f, 1, "m", NULL, 3);
    fx_move(f, "m/2");
    while (atomic_load(&f->held) == 0) {
        assert_true(mr_now_ns() < until);
        usleep(5000);
    }
    fx_move(f, "m/3");
    while (jobs_open(f) < 2) {
        assert_true(mr_now_ns() < until);
        usleep(5000);
    }
    f->serve_status = status;
    atomic_store(&f->hold, NULL);
    if (status == MR_OK) {
        fx_wait_newest(f, "m", 3);
    }
    fx_drained(f);
}

/* If both are wanted, the load of the first continues. */
static void test_more_versions_wait_for_the_first(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { latest { num_versions: 2 } }\n", 1);
    third_while_second(f, MR_OK);
    assert_int_equal(cancelled(f), 0);
    assert_string_equal(fx_changes(f),
                        "m:1 LOADING,m:1 WARMING,m:1 READY,m:2 LOADING,m:2 WARMING,m:2 READY,"
                        "m:3 LOADING,m:3 WARMING,m:3 READY,m:1 DRAINING,m:1 UNLOADED");
}

/* Number of the job that is to try m's load again, 0 = none; *due_ns: when. */
static uint64_t retry_id(struct fixture *f, int64_t *due_ns)
{
    uint64_t id = 0;
    pthread_mutex_lock(&f->m->lock);
    const struct mr_model *model = mr_map_find(&f->m->models, MR_STR("m"));
    if (model->retry) {
        id = model->retry->id;
        *due_ns = model->retry->due_ns;
    }
    pthread_mutex_unlock(&f->m->lock);
    return id;
}

/* Waits for another one than `before`. */
static uint64_t wait_retry(struct fixture *f, uint64_t before, int64_t *due_ns)
{
    int64_t until = mr_now_ns() + PATIENCE_NS;
    uint64_t id;
    while ((id = retry_id(f, due_ns)) == 0 || id == before) {
        assert_true(mr_now_ns() < until);
        usleep(5000);
    }
    return id;
}

/* The cause of the failure has gone, and the pause is over. */
static void retry_now(struct fixture *f)
{
    f->serve_status = MR_OK;
    pthread_mutex_lock(&f->m->lock);
    struct mr_model *model = mr_map_find(&f->m->models, MR_STR("m"));
    model->retry_ns = 0;
    if (model->retry) { /* otherwise one more look at the folder is under way */
        mr_retry_now(f->m, model);
    }
    pthread_mutex_unlock(&f->m->lock);
}

/* What else changes in the folder neither ends the tries of a version that failed nor hastens them. */
static void test_retry_outlives_other_changes(void **state)
{
    struct fixture *f = *state;
    int64_t due_ns = 0;
    int64_t later_ns = 0;
    poll_setup(f);
    f->o.retry_pause_ns = 12 * PATIENCE_NS;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    f->serve_status = MR_E_INTERNAL;
    fx_model(f, 1, "m", NULL, 2);
    fx_move(f, "m/2");
    uint64_t id = wait_retry(f, 0, &due_ns);
    fx_write(f, 0, "m/1/more", "nothing new about version 2");
    wait_retry(f, id, &later_ns);
    assert_true(later_ns == due_ns);
    retry_now(f);
    fx_wait_newest(f, "m", 2);
}

/* Likewise if the change came while the version was being loaded. */
static void test_retry_with_what_came_during_the_load(void **state)
{
    struct fixture *f = *state;
    int64_t due_ns;
    poll_setup(f);
    f->o.retry_pause_ns = 12 * PATIENCE_NS;
    fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { latest { num_versions: 2 } }\n", 1);
    third_while_second(f, MR_E_INTERNAL);
    wait_retry(f, 0, &due_ns);
    assert_string_equal(fx_ready(f, "m"), "1");
    retry_now(f);
    fx_wait_newest(f, "m", 3);
    assert_string_equal(fx_ready(f, "m"), "2,3");
}

static void test_a_newer_version_ends_the_load(void **state)
{
    struct fixture *f = *state;
    poll_setup(f);
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    third_while_second(f, MR_OK);
    assert_int_equal(cancelled(f), 1);
    assert_null(strstr(fx_changes(f), "m:2 READY"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_start_and_new_models),
        fx_test(test_only_whole_versions),
        fx_test(test_more_versions_wait_for_the_first),
        fx_test(test_a_newer_version_ends_the_load),
        fx_test(test_retry_outlives_other_changes),
        fx_test(test_retry_with_what_came_during_the_load),
        fx_test(test_others_go_on),
        fx_test(test_changed_and_failed),
        fx_test(test_repository_that_goes_away),
        fx_test(test_broken_version_is_repaired),
        fx_test(test_broken_version_is_removed),
        fx_test(test_rights_are_repaired),
        fx_test(test_removed_beside_a_broken_version),
        fx_test(test_without_inotify),
        fx_test(test_many_models),
        fx_test(test_marker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
