/* Loads, reloads and unloads over real folders and the identity and fault backends. */
#include "harness.h"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected '%s' in '%s'", part, text);
    }
}

static void test_load_and_find(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    int64_t n = 0;
    fx_model(f, 0, "m", IDENTITY_TEXT, 3);
    fx_start(f);
    assert_int_equal(fx_find(f, "m", "", &n, &err), MR_E_NOT_FOUND);
    assert_string_equal(err.msg, "Request for unknown model: 'm' is not found");
    fx_must_load(f, "m");
    assert_string_equal(fx_changes(f), "m:3 LOADING,m:3 WARMING,m:3 READY");
    assert_int_equal(fx_find(f, "m", "", &n, &err), MR_OK);
    assert_int_equal(n, 3);
    assert_int_equal(fx_find(f, "m", "3", &n, &err), MR_OK);
    assert_int_equal(fx_find(f, "m", "4", &n, &err), MR_E_NOT_FOUND);
    assert_string_equal(err.msg, "Request for unknown model: 'm' version 4 is not found");
    assert_int_equal(fx_find(f, "m", "-1", &n, &err), MR_E_INVALID);
    assert_int_equal(fx_find(f, "m", "3x", &n, &err), MR_E_INVALID);
    assert_contains(err.msg, "version should be an integral value > 0");
    assert_int_equal(fx_find(f, "m", "99999999999999999999", &n, &err), MR_E_INVALID);
    assert_int_equal(fx_find(f, "", "", &n, &err), MR_E_NOT_FOUND);
    assert_string_equal(fx_index(f), "m:3 READY");
    assert_true(mr_models_ready(f->m));

    assert_int_equal(fx_unload(f, "m"), MR_OK);
    assert_int_equal(fx_find(f, "m", "", &n, &err), MR_E_NOT_FOUND);
    assert_string_equal(err.msg, "Request for unknown model: 'm' has no available versions");
    assert_int_equal(fx_find(f, "m", "3", &n, &err), MR_E_UNAVAILABLE);
    assert_string_equal(err.msg, "Request for unknown model: 'm' version 3 is not at ready state");
    fx_drained(f);
    assert_string_equal(fx_changes(f), "m:3 DRAINING,m:3 UNLOADED");
    assert_string_equal(fx_index(f), "m:3 UNAVAILABLE (unloaded)");
    assert_true(mr_models_ready(f->m));
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    assert_int_equal(fx_unload(f, "unheard of"), MR_OK);

    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 3);
}

static void version_see(void *ctx, const struct mr_model_report *r)
{
    struct mr_version **out = ctx;
    *out = r->v ? r->v : *out;
}

static void test_version_fields(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v = NULL;
    fx_model(f, 0, "m",
             "backend: \"identity\" max_batch_size: 8\n"
             "input { name: \"A\" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 4 ] } }\n"
             "input { name: \"B\" data_type: TYPE_STRING dims: [ -1 ] optional: true }\n"
             "output { name: \"A\" data_type: TYPE_FP32 dims: [ 4 ] label_filename: \"l.txt\" }\n"
             "output { name: \"B\" data_type: TYPE_STRING dims: [ 1 ] reshape { } }\n",
             1);
    fx_write(f, 0, "m/l.txt", "cat\r\n\ndog");
    fx_start(f);
    fx_must_load(f, "m");
    mr_models_report(f->m, version_see, &v);
    assert_non_null(v);
    assert_true(mr_str_eq_c(v->model_name, "m"));
    assert_true(mr_str_eq_c(v->number_text, "1"));
    assert_int_equal(v->max_batch_size, 8);
    assert_int_equal(v->input_count, 2);
    assert_int_equal(v->required_input_count, 1);
    assert_int_equal(v->backend_input_count, 2);
    assert_int_equal(v->file_bytes, strlen("weights"));
    assert_true(v->backend_flags & MR_BACKEND_CHEAP_INSTANCES);
    assert_int_equal(v->inputs[0].rank, 2);
    assert_int_equal(v->inputs[0].reshape_rank, 1);
    assert_int_equal(v->inputs[0].reshape[0], 4);
    assert_null(v->inputs[1].reshape);
    assert_true(v->inputs[1].optional);
    assert_int_equal(v->inputs[1].backend_index, 1);
    assert_int_equal(v->outputs[0].label_count, 3);
    assert_true(mr_str_eq_c(v->outputs[0].labels[0], "cat"));
    assert_true(mr_str_eq_c(v->outputs[0].labels[1], ""));
    assert_true(mr_str_eq_c(v->outputs[0].labels[2], "dog"));
    assert_non_null(v->outputs[1].reshape);
    assert_int_equal(v->outputs[1].reshape_rank, 0);
    assert_int_equal(v->config->instance_group[0]->count, 1);
}

static void test_policies(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *policy;
        const char *ready;
    } rows[] = {
        {"", "12"},
        {"version_policy { latest { } }", "12"},
        {"version_policy { latest { num_versions: 2 } }", "7,12"},
        {"version_policy { latest { num_versions: 99 } }", "1,7,12"},
        {"version_policy { all { } }", "1,7,12"},
        {"version_policy { specific { versions: [ 1, 7, 99 ] } }", "1,7"},
    };
    char config[1024];
    for (int i = 0; i < 3; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT, (int[]){1, 7, 12}[i]);
    }
    fx_write(f, 0, "m/013/model.bin", "leading zero");
    fx_write(f, 0, "m/0/model.bin", "no version");
    fx_write(f, 0, "m/1.5/model.bin", "no version");
    fx_write(f, 0, "m/99999999999999999999/model.bin", "too large");
    fx_start(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(config, sizeof config, "%s\n%s\n", IDENTITY_TEXT, rows[i].policy);
        fx_write(f, 0, "m/config.pbtxt", config);
        fx_must_load(f, "m");
        assert_string_equal(fx_ready(f, "m"), rows[i].ready);
    }
}

static void test_reload_unchanged_changed_failed(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_must_load(f, "m");
    assert_int_equal(atomic_load(&f->served), 1); /* unchanged: not made again */

    fx_write(f, 0, "m/1/weights.bin", "other weights");
    fx_changes(f);
    fx_must_load(f, "m");
    assert_int_equal(atomic_load(&f->served), 2);
    assert_string_equal(fx_changes(f), "m:1 READY");
    fx_drained(f);
    assert_int_equal(atomic_load(&f->unserved), 1);

    /* A reload that fails leaves what serves. */
    fx_write(f, 0, "m/config.pbtxt", FAULT_TEXT("fail_open", "true"));
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_string_equal(err.msg, "load failed for model 'm': version 1 is at UNAVAILABLE state: "
                                 "failed as configured;");
    assert_int_equal(fx_newest(f, "m"), 1);
    assert_string_equal(fx_index(f), "m:1 READY !failed as configured");
    assert_true(mr_models_ready(f->m));

    fx_write(f, 0, "m/config.pbtxt", "max_batch_size: : 4");
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_contains(err.msg, "failed to load 'm', failed to poll from model repository: ");
    assert_contains(err.msg, "line 1");
    assert_int_equal(fx_newest(f, "m"), 1);

    /* Back to what is loaded: nothing to do, and the warning goes. */
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT);
    fx_must_load(f, "m");
    assert_string_equal(fx_index(f), "m:1 READY");
}

static void test_new_version_replaces_old(void **state)
{
    struct fixture *f = *state;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 2);
    fx_changes(f);
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);
    fx_drained(f);
    assert_string_equal(fx_changes(f),
                        "m:2 LOADING,m:2 WARMING,m:2 READY,m:1 DRAINING,m:1 UNLOADED");
    assert_string_equal(fx_index(f), "m:1 UNAVAILABLE (unloaded); m:2 READY");
    /* Versions removed from the disk leave the index with the next load. */
    fx_remove(f, 0, "m/1");
    fx_must_load(f, "m");
    assert_string_equal(fx_index(f), "m:2 READY");
}

static void test_all_or_nothing(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { all { } }", 1);
    fx_start(f);
    fx_must_load(f, "m");
    /* Version 2 is fine, version 3 leads out of the repository. */
    fx_model(f, 0, "m", NULL, 2);
    fx_link(f, 0, f->repo[1], "m/3");
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_contains(err.msg, "version 3 is at UNAVAILABLE state");
    assert_contains(err.msg, "leads out of the repository");
    assert_string_equal(fx_ready(f, "m"), "1");
    assert_contains(fx_index(f), "m:1 READY; m:2 UNAVAILABLE (taken back");
    assert_true(mr_models_ready(f->m));
    fx_remove(f, 0, "m/3");
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "1,2");
    assert_true(mr_models_ready(f->m));
    assert_string_equal(fx_index(f), "m:1 READY; m:2 READY");
}

static void test_failures(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        const char *config;
        int version; /* 0 = none */
        const char *text;
        int rc;
    } rows[] = {
        {"parse", "backend \"x\"", 1, "config.pbtxt: line 1", MR_E_INVALID},
        {"unknown_field", "bakend: \"x\"", 1, "bakend", MR_E_INVALID},
        {"other_name", "name: \"foo\"" IDENTITY_TEXT, 1,
         "unexpected directory name 'other_name' for model 'foo', directory name must equal model "
         "name",
         MR_E_INVALID},
        {"no_version", IDENTITY_TEXT, 0, "failed to load 'no_version', no version is available",
         MR_E_INTERNAL},
        {"no_backend", "max_batch_size: 1", 1, "Could not determine backend", MR_E_INVALID},
        {"missing_backend", "backend: \"nothere\"" IO_TEXT, 1, "libmillrace_nothere.so",
         MR_E_INVALID},
        {"evil_backend", "backend: \"../x\"" IO_TEXT, 1, "is no backend name", MR_E_INVALID},
        {"instance", FAULT_TEXT("fail_open", "1"), 1, "failed as configured", MR_E_INVALID},
        {"ensemble", "platform: \"ensemble\"", 1, "ensemble", MR_E_INVALID},
        {"sequence", IDENTITY_TEXT "sequence_batching { iterative_sequence: true }", 1,
         "iterative sequences", MR_E_INVALID},
        {"gpu", IDENTITY_TEXT "instance_group { kind: KIND_GPU }", 1,
         "kind KIND_GPU but server does not support GPUs", MR_E_INVALID},
        {"labels",
         "backend: \"identity\" input { name: \"A\" data_type: TYPE_FP32 dims: 1 } output "
         "{ name: \"A\" data_type: TYPE_FP32 dims: 1 label_filename: \"none.txt\" }",
         1, "none.txt: No such file", MR_E_INVALID},
        {"labels_up",
         "backend: \"identity\" input { name: \"A\" data_type: TYPE_FP32 dims: 1 } "
         "output { name: \"A\" data_type: TYPE_FP32 dims: 1 label_filename: "
         "\"../x/none.txt\" }",
         1, "invalid file path", MR_E_INVALID},
        {"file_up", IDENTITY_TEXT "default_model_filename: \"../../x\"", 1,
         "must name a file inside", MR_E_INVALID},
    };
    fx_start(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_err err = {0};
        if (rows[i].version) {
            fx_model(f, 0, rows[i].name, rows[i].config, rows[i].version);
        } else {
            char path[128];
            snprintf(path, sizeof path, "%s/config.pbtxt", rows[i].name);
            fx_write(f, 0, path, rows[i].config);
        }
        int rc = fx_load(f, rows[i].name, &err);
        if (rc != rows[i].rc || !strstr(err.msg, rows[i].text)) {
            fail_msg("%s: %d '%s'", rows[i].name, rc, err.msg);
        }
        assert_contains(fx_index(f), rows[i].name);
        assert_int_equal(fx_newest(f, rows[i].name), 0);
    }
    assert_false(mr_models_ready(f->m));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(fx_unload(f, rows[i].name), MR_OK);
    }
    assert_true(mr_models_ready(f->m));
}

static void test_names_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        size_t len;
    } rows[] = {{"", 0},     {"\v", 1},   {"..", 2},  {".", 1},    {"a/b", 3},   {"../x", 4},
                {"a\0b", 3}, {"a\nb", 3}, {" ..", 3}, {"\xff", 1}, {"a\x7f", 2}, {"\xc0\xaf", 2}};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_err err = {0};
        assert_int_equal(fx_load_with(f, mr_str_n(rows[i].name, rows[i].len), NULL, NULL, 0, &err),
                         MR_E_INVALID);
        assert_contains(err.msg, "invalid model name");
        assert_int_equal(fx_unload(f, rows[i].name), MR_OK); /* nothing to do */
    }
    struct mr_err err = {0};
    assert_int_equal(fx_load(f, "absent", &err), MR_E_INTERNAL);
    assert_string_equal(err.msg, "failed to load 'absent', failed to poll from model repository");
    assert_int_equal(fx_load(f, "a..b", &err), MR_E_INTERNAL); /* no path, if an odd name */
    assert_int_equal(fx_load(f, "...", &err), MR_E_INTERNAL);
    fx_drained(f);
    assert_string_equal(fx_index(f), "m"); /* nothing of them is kept */
    assert_int_equal(f->m->models.len, 0);
}

static void test_control_mode_guard(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.control = MR_MODEL_CONTROL_NONE;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    assert_int_equal(f->failed, 0);
    assert_int_equal(fx_load(f, "m", &err), MR_E_UNAVAILABLE);
    assert_string_equal(err.msg,
                        "explicit model load / unload is not allowed if polling is enabled: the "
                        "server runs with --model-control-mode=none, this needs explicit");
    assert_int_equal(fx_unload(f, "m"), MR_E_UNAVAILABLE);
    assert_int_equal(fx_newest(f, "m"), 1);
}

static void test_start_none(void **state)
{
    struct fixture *f = *state;
    f->o.control = MR_MODEL_CONTROL_NONE;
    f->o.repository_count = 2;
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "both", IDENTITY_TEXT, 1);
    fx_model(f, 1, "both", IDENTITY_TEXT, 1);
    fx_model(f, 1, "z", IDENTITY_TEXT, 2);
    fx_write(f, 0, ".hidden/config.pbtxt", "");
    fx_write(f, 0, "file.txt", "not a model");
    fx_model(f, 0, "broken", "backend: \"identity\" max_batch_size: -1 " IO_TEXT, 1);
    fx_link(f, 0, "/etc", "outside");
    fx_start(f);
    assert_int_equal(f->failed, 3);
    assert_string_equal(fx_ready(f, "a"), "1");
    assert_string_equal(fx_ready(f, "z"), "2");
    const char *index = fx_index(f);
    assert_contains(index, "both:0 UNAVAILABLE (model appears in two or more repositories)");
    assert_contains(index, "outside:0 UNAVAILABLE (");
    assert_contains(index, "leads out of the repository");
    assert_contains(index, "broken:0 UNAVAILABLE (");
    assert_null(strstr(index, "hidden"));
    assert_null(strstr(index, "file.txt"));
    assert_false(mr_models_ready(f->m));
}

/* Models of the others are loaded, and its own go on. */
static void test_repository_that_goes_away(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.repository_count = 2;
    fx_model(f, 1, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "z", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "z");
    fx_take_away(f, 0);
    fx_must_load(f, "a");
    assert_int_equal(fx_load(f, "z", &err), MR_E_INVALID);
    assert_contains(err.msg, f->repo[0]);
    assert_int_equal(fx_newest(f, "z"), 1);
}

static void test_start_explicit(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"b", "absent"};
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "b", IDENTITY_TEXT, 1);
    f->o.load_models = names;
    f->o.load_model_count = 2;
    fx_start(f);
    assert_int_equal(f->failed, 1);
    assert_string_equal(fx_index(f),
                        "a; absent:0 UNAVAILABLE (not in any model repository); b:1 READY");
    assert_false(mr_models_ready(f->m));
    assert_int_equal(fx_unload(f, "absent"), MR_OK);
    assert_true(mr_models_ready(f->m));
}

static void test_start_explicit_all(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"*"};
    fx_model(f, 0, "a", IDENTITY_TEXT, 1);
    fx_model(f, 0, "b", IDENTITY_TEXT, 1);
    f->o.load_models = names;
    f->o.load_model_count = 1;
    fx_start(f);
    assert_int_equal(f->failed, 0);
    assert_string_equal(fx_index(f), "a:1 READY; b:1 READY");
}

static void test_options_refused(void **state)
{
    struct fixture *f = *state;
    const struct mr_model_hooks hooks = {
        .serve = fx_serve, .unserve = fx_unserve, .changed = fx_changed, .ctx = f};
    const char *none[] = {"/does/not/exist"};
    struct mr_err err = {0};
    struct mr_models *m = NULL;
    struct mr_models_options o = f->o;
    o.repositories = none;
    assert_int_equal(mr_models_new(&m, &o, &hooks, &err), MR_E_INVALID);
    assert_contains(err.msg, "/does/not/exist");
    o = f->o;
    o.load_threads = 0;
    assert_int_equal(mr_models_new(&m, &o, &hooks, &err), MR_E_INVALID);
    o = f->o;
    o.config_name = "../x";
    assert_int_equal(mr_models_new(&m, &o, &hooks, &err), MR_E_INVALID);
    assert_null(m);
}

static void test_links(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    char target[PATH_MAX];
    /* Links that stay inside are fine, absolute or not. */
    fx_model(f, 0, "real", IDENTITY_TEXT, 1);
    fx_link(f, 0, "real", "alias");
    fx_path(target, f, 0, "real/1");
    fx_write(f, 0, "linked/config.pbtxt", IDENTITY_TEXT);
    fx_link(f, 0, target, "linked/2");
    /* These are not. */
    fx_model(f, 1, "m", IDENTITY_TEXT, 1);
    fx_path(target, f, 1, "m");
    fx_link(f, 0, target, "out_model");
    fx_write(f, 0, "out_config/1/weights.bin", "x");
    fx_path(target, f, 1, "m/config.pbtxt");
    fx_link(f, 0, target, "out_config/config.pbtxt");
    fx_write(f, 0, "out_file/1/x", "x");
    fx_write(f, 0, "out_file/config.pbtxt", IDENTITY_TEXT);
    fx_path(target, f, 1, "m/1/weights.bin");
    fx_link(f, 0, target, "out_file/1/model.identity");
    fx_write(f, 0, "loop/config.pbtxt", IDENTITY_TEXT);
    fx_link(f, 0, ".", "loop/1");
    fx_start(f);
    assert_int_equal(fx_load(f, "alias", &err), MR_OK);
    assert_int_equal(fx_load(f, "linked", &err), MR_OK);
    static const char *const bad[] = {"out_model", "out_config", "out_file"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fx_load(f, bad[i], &err), MR_E_INVALID);
        assert_contains(err.msg, "leads out of the repository");
    }
    assert_int_equal(fx_load(f, "loop", &err), MR_E_INVALID);
    assert_contains(err.msg, "deeper than");
}

static void test_unload_while_pinned(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v = NULL;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    mr_epoch_online(mr_models_epoch(f->m));
    assert_int_equal(mr_models_find(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    mr_version_pin(v, 2);
    mr_version_pin(v, 2);
    mr_epoch_offline(mr_models_epoch(f->m));

    assert_int_equal(fx_unload(f, "m"), MR_OK); /* does not wait */
    assert_int_equal(fx_newest(f, "m"), 0);
    assert_string_equal(fx_index(f), "m:1 UNLOADING");
    assert_true(atomic_load(&v->retiring));
    /* The pinned one stays while the same number is reloaded and serves. */
    fx_must_load(f, "m");
    assert_string_equal(fx_index(f), "m:1 READY");
    assert_int_equal(atomic_load(&f->unserved), 0);
    assert_true(mr_str_eq_c(v->model_name, "m"));
    mr_version_unpin(v, 2);
    assert_int_equal(atomic_load(&f->unserved), 0);
    mr_version_unpin(v, 2);
    fx_drained(f);
    assert_int_equal(atomic_load(&f->unserved), 1);
    assert_string_equal(fx_index(f), "m:1 READY");
}

static void test_stop_tells_what_is_pinned(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v = NULL;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    mr_epoch_online(mr_models_epoch(f->m));
    assert_int_equal(mr_models_find(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    mr_version_pin(v, 0);
    mr_epoch_offline(mr_models_epoch(f->m));
    assert_int_equal(mr_models_stop(f->m, 20 * MR_NS_PER_MS), 1);
    struct mr_err err = {0};
    assert_int_equal(fx_load(f, "m", &err), MR_E_UNAVAILABLE);
    assert_string_equal(err.msg, "the server is stopping");
    mr_version_unpin(v, 0);
}

static void test_config_override(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    struct mr_version *v = NULL;
    static const char json[] =
        "{\"backend\":\"identity\",\"max_batch_size\":0,\"input\":[{\"name\":\"X\",\"data_type\":"
        "\"TYPE_FP32\",\"dims\":[1]}],\"output\":[{\"name\":\"X\",\"data_type\":\"TYPE_FP32\","
        "\"dims\":[\"1\"]}]}";
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    assert_int_equal(fx_load_with(f, MR_STR("m"), json, NULL, 0, &err), MR_OK);
    mr_models_report(f->m, version_see, &v);
    assert_string_equal(v->config->input[0]->name, "X");
    assert_int_equal(fx_load_with(f, MR_STR("m"), json, NULL, 0, &err), MR_OK);
    assert_int_equal(atomic_load(&f->served), 2); /* the same again: unchanged */
    /* It stays until the files change. */
    fx_must_load(f, "m");
    assert_int_equal(atomic_load(&f->served), 2);
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT " ");
    fx_must_load(f, "m");
    v = NULL;
    mr_models_report(f->m, version_see, &v);
    assert_string_equal(v->config->input[0]->name, "INPUT0");
    assert_int_equal(fx_load_with(f, MR_STR("m"), "{\"nonsense\":1}", NULL, 0, &err), MR_E_INVALID);
    assert_contains(err.msg, "nonsense");
    assert_int_equal(fx_newest(f, "m"), 1);
}

static size_t temp_count(const char *dir)
{
    struct mr_name_list list = {0};
    size_t n = 0;
    assert_int_equal(mr_names_read(&dir, 1, NULL, 0, &list, NULL), MR_OK);
    for (size_t i = 0; i < list.len; i++) {
        n += strncmp(list.at[i].name, "millrace-model-", 15) == 0;
    }
    mr_names_fini(&list);
    return n;
}

static const char *const identity[] = {"identity"}; /* for load requests */

static void test_file_override(void **state)
{
    struct fixture *f = *state;
    f->o.allowed_backends = identity;
    f->o.allowed_backend_count = 1;
    struct mr_err err = {0};
    static const char json[] =
        "{\"backend\":\"identity\",\"input\":[{\"name\":\"X\",\"data_type\":\"TYPE_FP32\",\"dims\":"
        "[1]}],\"output\":[{\"name\":\"X\",\"data_type\":\"TYPE_FP32\",\"dims\":[1],"
        "\"label_filename\":\"labels.txt\"}]}";
    const struct mr_load_file files[] = {
        {MR_STR("5/deep/er/model.bin"), {(const uint8_t *)"abc", 3}},
        {MR_STR("labels.txt"), {(const uint8_t *)"one\ntwo\n", 8}},
    };
    setenv("TMPDIR", f->dir, 1);
    fx_start(f);
    assert_int_equal(fx_load_with(f, MR_STR("new"), json, files, 2, &err), MR_OK);
    assert_string_equal(fx_index(f), "new:5 READY");
    assert_int_equal(temp_count(f->dir), 1);
    struct mr_version *v = NULL;
    mr_models_report(f->m, version_see, &v);
    assert_int_equal(v->outputs[0].label_count, 2);
    assert_int_equal(v->file_bytes, 3);
    assert_int_equal(fx_unload(f, "new"), MR_OK);
    fx_drained(f);
    assert_int_equal(temp_count(f->dir), 0);
    assert_string_equal(fx_index(f), ""); /* no folder, nothing loaded: forgotten */

    static const char *const bad[] = {"../x", "/x", "1/../../x", "", "1//x", "1/./x", "a\nb"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct mr_load_file file = {mr_str_c(bad[i]), {(const uint8_t *)"x", 1}};
        assert_int_equal(fx_load_with(f, MR_STR("new"), json, &file, 1, &err), MR_E_INVALID);
        assert_contains(err.msg, "invalid file path");
    }
    assert_int_equal(fx_load_with(f, MR_STR("new"), NULL, files, 1, &err), MR_E_INVALID);
    assert_contains(err.msg, "need a 'config' parameter");
    const struct mr_load_file twice[] = {files[0], files[0]};
    assert_int_equal(fx_load_with(f, MR_STR("new"), json, twice, 2, &err), MR_E_INVALID);
    assert_contains(err.msg, "exists");
    assert_int_equal(temp_count(f->dir), 0);
    unsetenv("TMPDIR");
}

static void test_serve_hook_fails(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->serve_status = MR_E_INTERNAL;
    f->o.load_retries = 1;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    assert_int_equal(fx_load(f, "m", &err), MR_E_INVALID);
    assert_contains(err.msg, "warm-up failed as configured");
    assert_string_equal(fx_index(f), "m:1 UNAVAILABLE (warm-up failed as configured)");
    f->serve_status = MR_OK;
    fx_must_load(f, "m");
    assert_string_equal(fx_index(f), "m:1 READY");
}

static void test_config_name(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v = NULL;
    f->o.config_name = "small";
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_write(f, 0, "m/configs/small.pbtxt", "backend: \"identity\" max_batch_size: 2 " IO_TEXT);
    fx_model(f, 0, "plain", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    mr_models_report(f->m, version_see, &v);
    assert_int_equal(v->max_batch_size, 2);
    fx_must_load(f, "plain");
}

/* Every allocation that may fail fails once: an answer comes, and the next load works. */
static void test_no_memory(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    static const char json[] =
        "{\"backend\":\"identity\",\"input\":[{\"name\":\"X\",\"data_type\":\"TYPE_FP32\",\"dims\":"
        "[1]}],\"output\":[{\"name\":\"X\",\"data_type\":\"TYPE_FP32\",\"dims\":[1],"
        "\"label_filename\":\"labels.txt\"}]}";
    const struct mr_load_file files[] = {
        {MR_STR("1/model.bin"), {(const uint8_t *)"abc", 3}},
        {MR_STR("labels.txt"), {(const uint8_t *)"one\ntwo\n", 8}},
    };
    int failed = 0;
    f->o.allowed_backends = identity;
    f->o.allowed_backend_count = 1;
    fx_start(f);
    for (uint64_t n = 1; n <= 80; n++) {
        mr_mem_fail_after(n);
        failed += fx_load_with(f, MR_STR("m"), json, files, 2, &err) < 0;
        mr_mem_fail_after(0);
    }
    assert_true(failed > 5);
    assert_int_equal(fx_load_with(f, MR_STR("m"), json, files, 2, &err), MR_OK);
    assert_int_equal(fx_newest(f, "m"), 1);
}

static void test_same_model_in_order(void **state)
{
    struct fixture *f = *state;
    struct answer a[8];
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    for (int i = 0; i < 8; i++) {
        answer_init(&a[i]);
        if (i % 2) {
            mr_models_unload(f->m, MR_STR("m"), false, answer_take, &a[i]);
        } else {
            mr_models_load(f->m, MR_STR("m"), NULL, answer_take, &a[i]);
        }
    }
    for (int i = 0; i < 8; i++) {
        int rc = answer_wait(&a[i]); /* an unload ends the load before it, if that is not done */
        assert_true(rc == MR_OK || (i % 2 == 0 && rc == MR_E_CANCELLED));
    }
    fx_drained(f);
    assert_int_equal(atomic_load(&f->served), atomic_load(&f->unserved));
    assert_int_equal(fx_newest(f, "m"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_load_and_find),
        fx_test(test_version_fields),
        fx_test(test_policies),
        fx_test(test_reload_unchanged_changed_failed),
        fx_test(test_new_version_replaces_old),
        fx_test(test_all_or_nothing),
        fx_test(test_failures),
        fx_test(test_names_refused),
        fx_test(test_control_mode_guard),
        fx_test(test_start_none),
        fx_test(test_repository_that_goes_away),
        fx_test(test_start_explicit),
        fx_test(test_start_explicit_all),
        fx_test(test_options_refused),
        fx_test(test_links),
        fx_test(test_unload_while_pinned),
        fx_test(test_stop_tells_what_is_pinned),
        fx_test(test_config_override),
        fx_test(test_file_override),
        fx_test(test_serve_hook_fails),
        fx_test(test_config_name),
        fx_test(test_no_memory),
        fx_test(test_same_model_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
