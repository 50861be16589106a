/* Which versions serve when others take their place: switch policies, labels, rollback. */
#include "harness.h"

#define ALL "version_policy { all { } }\n"
#define RESOURCE                                                                                   \
    "parameters { key: \"millrace.switch_policy\" value { string_value: \"resource\" } }\n"
#define LABELS(text)                                                                               \
    "parameters { key: \"millrace.version_labels\" value { string_value: \"" text "\" } }\n"

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("expected '%s' in '%s'", part, text);
    }
}

static int label(struct fixture *f, const char *name, const char *version, struct mr_err *err)
{
    return mr_models_label(f->m, MR_STR("m"), mr_str_c(name), mr_str_c(version), err);
}

static void must_label(struct fixture *f, const char *name, const char *version)
{
    struct mr_err err = {0};
    if (label(f, name, version, &err) < 0) {
        fail_msg("%s=%s: %s", name, version, err.msg);
    }
}

static int rollback(struct fixture *f, const char *version, struct mr_err *err)
{
    struct answer a;
    answer_init(&a);
    mr_models_rollback(f->m, MR_STR("m"), mr_str_c(version), answer_take, &a);
    int rc = answer_wait(&a);
    *err = a.err;
    return rc;
}

/* What a request gets that names this version or label; 0 = an error. */
static int64_t found(struct fixture *f, const char *version)
{
    int64_t number = 0;
    return fx_find(f, "m", version, &number, NULL) == MR_OK ? number : 0;
}

/* ---- sequences of replaced versions ---- */

#define SEQUENCES IDENTITY_TEXT "sequence_batching { }\n"

/* The numbers of the versions that stay for their sequences, as a reader finds them: "2 1 ". */
static void held(struct fixture *f, char out[64])
{
    struct mr_version *v = NULL;
    size_t n = 0;

    out[0] = 0;
    mr_epoch_online(mr_models_epoch(f->m));
    if (mr_models_find(f->m, MR_STR("m"), MR_STR(""), &v, NULL) == MR_OK) {
        for (struct mr_version *h = mr_version_held(v, NULL); h && n < 50;
             h = mr_version_held(v, h)) {
            n += (size_t)snprintf(out + n, 64 - n, "%lld ", (long long)h->number);
        }
    }
    mr_epoch_offline(mr_models_epoch(f->m));
}

static void assert_held(struct fixture *f, const char *expected)
{
    char text[64];
    held(f, text);
    assert_string_equal(text, expected);
}

static void *follows(void *arg)
{
    struct fixture *f = arg;
    char text[64];
    do {
        held(f, text);
    } while (text[0]);
    return NULL;
}

static void test_versions_stay_for_their_sequences(void **state)
{
    struct fixture *f = *state;
    pthread_t reader;
    f->holds = true;
    fx_model(f, 0, "m", SEQUENCES, 1);
    fx_start(f);
    fx_must_load(f, "m");
    assert_held(f, "");
    for (int number = 2; number <= 3; number++) {
        fx_model(f, 0, "m", NULL, number);
        fx_must_load(f, "m");
    }
    assert_int_equal(found(f, ""), 3);
    assert_held(f, "2 1 ");
    assert_int_equal(f->unserved, 0);
    fx_changes(f);
    assert_int_equal(pthread_create(&reader, NULL, follows, f), 0);
    f->holds = false;
    fx_drained(f);
    pthread_join(reader, NULL);
    assert_held(f, "");
    assert_int_equal(f->unserved, 2);
    assert_contains(fx_changes(f), "m:1 UNLOADED");
}

static bool is_numbered(void *ctx, struct mr_version *held)
{
    return held->number == *(int64_t *)ctx;
}

/* A thread that is no reader finds them as well, and its pin keeps one after its sequences. */
static void test_a_held_version_is_pinned(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v, *held;
    int64_t one = 1, five = 5;
    f->holds = true;
    fx_model(f, 0, "m", SEQUENCES, 1);
    fx_start(f);
    fx_must_load(f, "m");
    for (int number = 2; number <= 3; number++) {
        fx_model(f, 0, "m", NULL, number);
        fx_must_load(f, "m");
    }
    assert_int_equal(mr_models_acquire(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    assert_null(mr_models_visit_others(f->m, v, MR_EPOCH_SLOT_NONE, is_numbered, &five));
    held = mr_models_visit_others(f->m, v, MR_EPOCH_SLOT_NONE, is_numbered, &one);
    assert_int_equal(held->number, 1);
    f->holds = false;
    while (!strstr(fx_changes(f), "m:2 UNLOADED")) {
        sched_yield();
    }
    assert_int_equal(f->unserved, 1);
    mr_version_unpin(held, MR_EPOCH_SLOT_NONE);
    fx_drained(f);
    assert_int_equal(f->unserved, 2);
    assert_null(mr_models_visit_others(f->m, v, MR_EPOCH_SLOT_NONE, is_numbered, &one));
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
}

/* It is found as well, but not the one that is asked. */
static void test_a_version_beside_another(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v;
    int64_t one = 1, two = 2;
    fx_model(f, 0, "m", SEQUENCES "version_policy { all { } }\n", 1);
    fx_start(f);
    fx_must_load(f, "m");
    assert_int_equal(mr_models_acquire(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    assert_false(mr_version_has_others(v));
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    fx_model(f, 0, "m", NULL, 2);
    fx_must_load(f, "m");
    assert_int_equal(mr_models_acquire(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    assert_int_equal(v->number, 2);
    assert_true(mr_version_has_others(v));
    assert_null(mr_models_visit_others(f->m, v, MR_EPOCH_SLOT_NONE, is_numbered, &two));
    struct mr_version *other =
        mr_models_visit_others(f->m, v, MR_EPOCH_SLOT_NONE, is_numbered, &one);
    assert_int_equal(other->number, 1);
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    mr_version_unpin(other, MR_EPOCH_SLOT_NONE);
}

static void hastened(struct fixture *f, int64_t number)
{
    while (f->hastened != number) {
        sched_yield();
    }
}

/* Until so many retired versions are left: all of them have been looked at. */
static void retired(struct fixture *f, size_t left)
{
    size_t now;

    do {
        sched_yield();
        pthread_mutex_lock(&f->m->lock);
        now = f->m->draining;
        pthread_mutex_unlock(&f->m->lock);
    } while (now > left);
}

/* Versions that requests still use and that need not stay for their sequences: those of an unloaded model, those that
 * make room, and all when the manager stops. */
static void test_what_is_hastened(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v;
    f->holds = true;
    fx_model(f, 0, "m", SEQUENCES, 1);
    fx_start(f);
    fx_must_load(f, "m");
    assert_int_equal(mr_models_acquire(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    fx_model(f, 0, "m", NULL, 2);
    fx_must_load(f, "m");
    assert_held(f, "1 ");
    fx_model(f, 0, "other", IDENTITY_TEXT, 1);
    fx_must_load(f, "other");
    assert_int_equal(fx_unload(f, "other"), MR_OK);
    retired(f, 1);
    assert_int_equal(f->hastened, 0);
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    hastened(f, 1);
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    fx_drained(f);

    fx_write(f, 0, "m/config.pbtxt", SEQUENCES RESOURCE);
    fx_must_load(f, "m");
    assert_int_equal(mr_models_acquire(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    fx_model(f, 0, "m", NULL, 3);
    struct answer a;
    answer_init(&a);
    mr_models_load(f->m, MR_STR("m"), &(const struct mr_load_request){0}, answer_take, &a);
    hastened(f, 2);
    mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    assert_int_equal(answer_wait(&a), MR_OK);
    mr_models_loads_end(f->m);
    assert_int_equal(f->hastened, 3);
}

/* Without sequence_batching nothing stays, nor of an unloaded model, nor where the old version ends first. */
static void test_what_does_not_stay(void **state)
{
    struct fixture *f = *state;
    f->holds = true;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 2);
    fx_must_load(f, "m");
    fx_drained(f);
    fx_write(f, 0, "m/config.pbtxt", SEQUENCES);
    fx_must_load(f, "m");
    fx_drained(f);
    fx_model(f, 0, "m", NULL, 3);
    fx_must_load(f, "m");
    assert_held(f, "2 ");
    assert_int_equal(fx_unload(f, "m"), MR_OK);
    fx_drained(f);
    fx_write(f, 0, "m/config.pbtxt", SEQUENCES RESOURCE);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 4);
    fx_must_load(f, "m");
    fx_drained(f);
    assert_held(f, "");
    assert_int_equal(found(f, ""), 4);
}

/* ---- switch policies ---- */

static void test_availability_loads_first(void **state)
{
    struct fixture *f = *state;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 2);
    fx_changes(f);
    fx_must_load(f, "m");
    fx_drained(f);
    assert_string_equal(fx_changes(f),
                        "m:2 LOADING,m:2 WARMING,m:2 READY,m:1 DRAINING,m:1 UNLOADED");
}

static void test_resource_retires_first(void **state)
{
    struct fixture *f = *state;
    f->o.switch_policy = MR_SWITCH_RESOURCE;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 2);
    fx_changes(f);
    fx_must_load(f, "m");
    assert_string_equal(fx_changes(f),
                        "m:2 LOADING,m:1 DRAINING,m:1 UNLOADED,m:2 WARMING,m:2 READY");
    /* Nothing to be made: nothing is retired. */
    fx_must_load(f, "m");
    assert_string_equal(fx_changes(f), "");
    /* In its own place. */
    fx_write(f, 0, "m/2/weights.bin", "other weights");
    fx_must_load(f, "m");
    assert_string_equal(fx_changes(f),
                        "m:2 DRAINING,m:2 UNLOADED,m:2 LOADING,m:2 WARMING,m:2 READY");
    assert_int_equal(fx_newest(f, "m"), 2);
}

static void test_resource_by_configuration_and_failure(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT RESOURCE, 1);
    fx_start(f);
    fx_must_load(f, "m");
    fx_model(f, 0, "m", NULL, 2);
    atomic_store(&f->serve_status, MR_E_INTERNAL);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_int_equal(fx_newest(f, "m"), 0); /* the price of this policy */
    atomic_store(&f->serve_status, MR_OK);
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);

    fx_write(f, 0, "m/config.pbtxt",
             IDENTITY_TEXT "parameters { key: \"millrace.switch_policy\" "
                           "value { string_value: \"both\" } }\n");
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg, "must be 'availability' or 'resource'");
    fx_write(f, 0, "m/config.pbtxt",
             IDENTITY_TEXT "parameters { key: \"millrace.swich_policy\" value { } }\n");
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg, "no parameter 'millrace.swich_policy'");
    assert_int_equal(fx_newest(f, "m"), 2);
}

static void test_resource_does_not_wait_for_ever(void **state)
{
    struct fixture *f = *state;
    struct mr_version *v = NULL;
    struct mr_err err = {0};
    f->o.drain_wait_ns = 20 * MR_NS_PER_MS;
    fx_model(f, 0, "m", IDENTITY_TEXT RESOURCE, 1);
    fx_start(f);
    fx_must_load(f, "m");
    mr_epoch_online(mr_models_epoch(f->m));
    assert_int_equal(mr_models_find(f->m, MR_STR("m"), MR_STR(""), &v, NULL), MR_OK);
    mr_version_pin(v, 0);
    mr_epoch_offline(mr_models_epoch(f->m));
    fx_model(f, 0, "m", NULL, 2);
    assert_true(fx_load(f, "m", &err) < 0);
    assert_contains(err.msg, "requests still hold the version");
    assert_int_equal(atomic_load(&f->served), 1);
    mr_version_unpin(v, 0);
    fx_drained(f); /* or the next load may find it still on its way out */
    fx_must_load(f, "m");
    assert_int_equal(fx_newest(f, "m"), 2);
}

/* ---- labels ---- */

static void test_labels(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    int64_t n;
    for (int i = 1; i <= 3; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT ALL, i);
    }
    fx_start(f);
    assert_int_equal(label(f, "stable", "1", &err), MR_E_NOT_FOUND);
    fx_must_load(f, "m");
    assert_int_equal(fx_find(f, "m", "stable", &n, &err), MR_E_INVALID);
    assert_contains(err.msg, "'m' has no label 'stable'");
    must_label(f, "stable", "1");
    must_label(f, "canary", "3");
    must_label(f, "also", "1");
    assert_int_equal(found(f, "stable"), 1);
    assert_int_equal(found(f, "also"), 1);
    assert_int_equal(found(f, "canary"), 3);
    assert_int_equal(found(f, "stabl"), 0);
    assert_int_equal(found(f, ""), 3);
    must_label(f, "stable", "2");
    assert_int_equal(found(f, "stable"), 2);
    must_label(f, "also", "");
    assert_int_equal(found(f, "also"), 0);
    assert_int_equal(label(f, "also", "", &err), MR_E_NOT_FOUND);
    assert_int_equal(label(f, "3x", "1", &err), MR_E_INVALID);
    assert_int_equal(label(f, "", "1", &err), MR_E_INVALID);
    assert_int_equal(label(f, "a b", "1", &err), MR_E_INVALID);
    assert_int_equal(label(f, "x", "stable", &err), MR_E_INVALID);
    assert_int_equal(label(f, "x", "9", &err), MR_E_NOT_FOUND);
    for (int i = 2; i < 64; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        must_label(f, name, "1");
    }
    assert_int_equal(label(f, "x", "1", &err), MR_E_EXHAUSTED);
    must_label(f, "stable", "3"); /* an existing one can always move */

    fx_unload(f, "m");
    fx_drained(f);
    assert_int_equal(label(f, "x", "1", &err), MR_E_UNAVAILABLE);
    assert_contains(err.msg, "version 1 of 'm' is UNLOADED");
    fx_must_load(f, "m");
    assert_int_equal(found(f, "stable"), 0); /* they went with the model */
}

static void test_a_label_keeps_its_version(void **state)
{
    struct fixture *f = *state;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    fx_must_load(f, "m");
    must_label(f, "stable", "1");
    fx_model(f, 0, "m", NULL, 2);
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "1,2");
    assert_int_equal(found(f, ""), 2);
    assert_int_equal(found(f, "stable"), 1);

    must_label(f, "stable", "2");
    assert_string_equal(fx_ready(f, "m"), "1,2"); /* for the way back */
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "2");

    fx_model(f, 0, "m", NULL, 3);
    fx_remove(f, 0, "m/2");
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "3"); /* a removed version cannot be kept */
    assert_int_equal(found(f, "stable"), 0);
}

static void test_labels_that_leave_the_configuration(void **state)
{
    struct fixture *f = *state;
    for (int i = 1; i <= 3; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT LABELS("stable=1,canary=2"), i);
    }
    fx_start(f);
    fx_must_load(f, "m");
    must_label(f, "mine", "2");
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT LABELS("stable=1,next=2"));
    fx_must_load(f, "m");
    assert_int_equal(found(f, "canary"), 0);
    assert_int_equal(found(f, "next"), 2);
    assert_int_equal(found(f, "mine"), 2); /* it never was in there */
    assert_string_equal(fx_ready(f, "m"), "1,2,3");

    must_label(f, "mine", "");
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT);
    fx_must_load(f, "m");
    assert_int_equal(found(f, "stable"), 0);
    assert_int_equal(found(f, "next"), 0);
    assert_string_equal(fx_ready(f, "m"), "3"); /* at once: nothing keeps the others */
}

static void test_labels_of_the_configuration(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT LABELS("stable=1, canary = 3"), 1);
    fx_model(f, 0, "m", NULL, 2);
    fx_model(f, 0, "m", NULL, 3);
    fx_start(f);
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "1,3");
    assert_int_equal(found(f, "stable"), 1);
    assert_int_equal(found(f, "canary"), 3);

    must_label(f, "stable", "3");
    fx_write(f, 0, "m/3/weights.bin", "other weights");
    fx_must_load(f, "m");
    assert_int_equal(found(f, "stable"), 3); /* moved since */

    static const char *const bad[][2] = {
        {IDENTITY_TEXT LABELS("stable=9"), "label 'stable' names version 9, which does not exist"},
        {IDENTITY_TEXT LABELS("stable"), "expected LABEL=VERSION"},
        {IDENTITY_TEXT LABELS("1=1"), "is no label"},
        {IDENTITY_TEXT LABELS("a=1,a=2"), "there twice"},
        {IDENTITY_TEXT LABELS("a=x"), "'x' is no version number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fx_write(f, 0, "m/config.pbtxt", bad[i][0]);
        assert_true(fx_load(f, "m", &err) < 0);
        assert_contains(err.msg, bad[i][1]);
        assert_contains(err.msg, "millrace.version_labels");
        assert_int_equal(found(f, "stable"), 3);
    }
    fx_write(f, 0, "m/config.pbtxt", IDENTITY_TEXT LABELS("stable=2"));
    fx_must_load(f, "m");
    assert_int_equal(found(f, "stable"), 2);
}

/* ---- rollback ---- */

static void test_rollback(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    for (int i = 1; i <= 3; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT, i);
    }
    fx_start(f);
    assert_int_equal(rollback(f, "", &err), MR_E_NOT_FOUND); /* nothing serves */
    fx_must_load(f, "m");
    assert_int_equal(rollback(f, "", &err), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "2");
    assert_int_equal(found(f, ""), 2);
    assert_int_equal(rollback(f, "", &err), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "1");
    assert_int_equal(rollback(f, "", &err), MR_E_NOT_FOUND);
    assert_contains(err.msg, "no version to go back to");
    assert_int_equal(rollback(f, "7", &err), MR_E_NOT_FOUND);
    assert_int_equal(rollback(f, "x", &err), MR_E_INVALID);
    assert_string_equal(fx_ready(f, "m"), "1");
    assert_int_equal(rollback(f, "2", &err), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "2");
    fx_must_load(f, "m"); /* the labels of the repository */
    assert_string_equal(fx_ready(f, "m"), "3");
}

static void test_rollback_beside_labels_and_policies(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    for (int i = 1; i <= 4; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT ALL, i);
    }
    fx_start(f);
    fx_must_load(f, "m");
    must_label(f, "canary", "4");
    assert_int_equal(rollback(f, "2", &err), MR_OK);
    assert_string_equal(fx_ready(f, "m"), "1,2,4"); /* 3 goes, 4 is kept by its label */
    assert_int_equal(found(f, ""), 2);
    assert_int_equal(found(f, "canary"), 4);
    assert_int_equal(found(f, "3"), 0);
}

/* The policy wants an older version as well, which would fail. */
static void test_rollback_makes_no_other_version(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    for (int i = 1; i <= 3; i++) {
        fx_model(f, 0, "m", IDENTITY_TEXT "version_policy { latest { num_versions: 2 } }\n", i);
    }
    fx_start(f);
    fx_must_load(f, "m");
    assert_string_equal(fx_ready(f, "m"), "2,3");
    atomic_store(&f->serve_status, MR_E_INTERNAL);
    if (rollback(f, "2", &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_string_equal(fx_ready(f, "m"), "2");
}

static void test_rollback_that_fails(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_model(f, 0, "m", NULL, 2);
    fx_start(f);
    fx_must_load(f, "m");
    atomic_store(&f->serve_status, MR_E_INTERNAL);
    assert_true(rollback(f, "", &err) < 0);
    assert_int_equal(found(f, ""), 2);
    assert_string_equal(fx_ready(f, "m"), "2");
    atomic_store(&f->serve_status, MR_OK);
    assert_int_equal(rollback(f, "", &err), MR_E_NOT_FOUND); /* 1 is known to fail */
    assert_int_equal(rollback(f, "1", &err), MR_OK);
    assert_int_equal(found(f, ""), 1);
}

static void batch_read(void *ctx, const struct mr_model_report *r)
{
    int32_t *to = ctx;
    if (r->v && r->state == MR_VERSION_READY) {
        to[r->version] = r->v->max_batch_size;
    }
}

/* It gives back the configuration, too, that version 1 served with. */
static void test_rollback_to_a_given_configuration(void **state)
{
    static const char given[] =
        "{\"backend\":\"identity\",\"max_batch_size\":7,"
        "\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[4]}],"
        "\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[4]}]}";
    struct fixture *f = *state;
    struct mr_err err = {0};
    int32_t batch[4] = {0};
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    assert_int_equal(fx_load_with(f, MR_STR("m"), given, NULL, 0, &err), MR_OK);
    fx_model(f, 0, "m", NULL, 2);
    fx_must_load(f, "m");
    must_label(f, "kept", "2");
    assert_int_equal(rollback(f, "1", &err), MR_OK);
    mr_models_report(f->m, batch_read, batch);
    assert_int_equal(batch[1], 7);
    assert_int_equal(batch[2], 4); /* stays as it was */
    fx_must_load(f, "m");          /* a plain load is about the repository */
    fx_drained(f);
    memset(batch, 0, sizeof batch);
    mr_models_report(f->m, batch_read, batch);
    assert_int_equal(batch[1], 0);
    assert_int_equal(batch[2], 4);
    assert_int_equal(rollback(f, "1", &err), MR_OK);
    mr_models_report(f->m, batch_read, batch);
    assert_int_equal(batch[1], 7);
    fx_unload(f, "m"); /* forgets it */
    fx_must_load(f, "m");
    assert_int_equal(rollback(f, "1", &err), MR_OK);
    fx_drained(f);
    mr_models_report(f->m, batch_read, batch);
    assert_int_equal(batch[1], 4);
}

static void test_only_in_mode_explicit(void **state)
{
    struct fixture *f = *state;
    struct mr_err err = {0};
    f->o.control = MR_MODEL_CONTROL_NONE;
    fx_model(f, 0, "m", IDENTITY_TEXT, 1);
    fx_start(f);
    assert_int_equal(label(f, "stable", "1", &err), MR_E_UNAVAILABLE);
    assert_int_equal(rollback(f, "1", &err), MR_E_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        fx_test(test_versions_stay_for_their_sequences),
        fx_test(test_a_held_version_is_pinned),
        fx_test(test_a_version_beside_another),
        fx_test(test_what_is_hastened),
        fx_test(test_what_does_not_stay),
        fx_test(test_availability_loads_first),
        fx_test(test_resource_retires_first),
        fx_test(test_resource_by_configuration_and_failure),
        fx_test(test_resource_does_not_wait_for_ever),
        fx_test(test_labels),
        fx_test(test_a_label_keeps_its_version),
        fx_test(test_labels_of_the_configuration),
        fx_test(test_labels_that_leave_the_configuration),
        fx_test(test_rollback),
        fx_test(test_rollback_beside_labels_and_policies),
        fx_test(test_rollback_makes_no_other_version),
        fx_test(test_rollback_that_fails),
        fx_test(test_rollback_to_a_given_configuration),
        fx_test(test_only_in_mode_explicit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
