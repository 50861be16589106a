/* Requests by name: from threads that read nothing, for models that are here, that a resolver loads, and that never come. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/shadow.h"

#define IO_TEXT                                                                                    \
    "input [ { name: \"X\" data_type: TYPE_INT32 dims: [ 2 ] } ]\n"                                \
    "output [ { name: \"Y\" data_type: TYPE_INT32 dims: [ 2 ] } ]\n"
#define PARAMETER(key, value)                                                                      \
    "parameters { key: \"" key "\" value { string_value: \"" value "\" } }\n"
#define WAITS_MAX 4

struct fixture {
    char dir[64];
    char backends[PATH_MAX];
    struct mr_engine *engine;
    struct mr_engine_options options;
    /* the resolver: its results, and the waits that it keeps */
    int answer;         /* of resolve */
    bool answers_early; /* mr_engine_resolved with `early` before it returns */
    int early;
    bool loads; /* it loads the model, and answers when that is over */
    unsigned asked;
    pthread_t asked_on;
    struct mr_engine_wait *waits[WAITS_MAX];
    unsigned wait_count;
    /* a thread of callbacks */
    struct mr_reply_loop reply_loop;
    struct mr_mailbox box;
};

/* ---- files ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void model_write(struct fixture *f, const char *name, const char *config)
{
    char path[PATH_MAX];
    const char *const folders[] = {"", "/1"};

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s%s", f->dir, name, folders[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    snprintf(path, sizeof path, "%s/%s/1/weights.bin", f->dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", f->dir, name);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(config, file) >= 0);
    fclose(file);
}

/* ---- the resolver ---- */

static void on_loaded(void *ctx, int rc, const struct mr_err *err)
{
    struct mr_engine_wait *wait = ctx;

    mr_engine_resolved(&wait, rc, err);
    assert_null(wait);
}

static int resolve(void *ctx, mr_str model, mr_str version, struct mr_engine_wait *wait,
                   struct mr_err *err)
{
    struct fixture *f = ctx;
    const struct mr_err early = {.status = f->early, .msg = "not today"};

    (void)version;
    f->asked++;
    f->asked_on = pthread_self();
    if (f->loads) {
        mr_models_load(mr_engine_models(f->engine), model, NULL, on_loaded, wait);
    } else if (f->answers_early) {
        mr_engine_resolved(&wait, f->early, &early);
    } else if (f->answer == MR_PENDING) {
        f->waits[f->wait_count++] = wait;
    }
    return f->answer < 0 ? MR_FAIL(err, f->answer, "the resolver refuses") : f->answer;
}

/* ---- the engine ---- */

static void no_wake(void *ctx)
{
    (void)ctx;
}

static void post(void *ctx, struct mr_mail *mail)
{
    struct fixture *f = ctx;

    mr_mailbox_post(&f->box, mail);
}

static int setup(void **state)
{
    struct fixture *f = MR_NEW(struct fixture);

    strcpy(f->dir, "/tmp/mr-engine-XXXXXX"); /* NOLINT: a constant that fits */
    assert_non_null(mkdtemp(f->dir));
    assert_non_null(getenv("MR_BUILD_DIR"));
    snprintf(f->backends, sizeof f->backends, "%s/lib/millrace", getenv("MR_BUILD_DIR"));
    model_write(f, "echo", "backend: \"identity\"\n" IO_TEXT);
    model_write(f, "cold", "backend: \"identity\"\n" IO_TEXT);
    model_write(f, "broken", "backend: \"fault\"\n" PARAMETER("fail_open", "true") IO_TEXT);
    model_write(f, "ordered",
                "backend: \"identity\"\nmax_batch_size: 4\n"
                "dynamic_batching { preserve_ordering: true max_queue_delay_microseconds: 100 }\n"
                "instance_group [ { count: 2 } ]\n" IO_TEXT);
    model_write(f, "many",
                "backend: \"identity\"\nmodel_transaction_policy { decoupled: true }\n" PARAMETER(
                    "repeat", "100") IO_TEXT);
    model_write(f, "waits",
                "backend: \"fault\"\n" PARAMETER("async", "1") PARAMETER("until_cancelled", "true")
                    IO_TEXT);
    model_write(f, "keeps",
                "backend: \"identity\"\nmax_batch_size: 4\n"
                "sequence_batching { max_sequence_idle_microseconds: 3600000000 }\n" IO_TEXT);
    mr_mailbox_init(&f->box, no_wake, NULL);
    f->reply_loop =
        (struct mr_reply_loop){.post = post, .ctx = f, .epoch_slot = MR_EPOCH_SLOT_NONE};
    f->answer = MR_PENDING;
    *state = f;
    return 0;
}

/* Loads `models`; with the resolver of the fixture when that is wanted. */
static void open_engine(struct fixture *f, const char *const *models, size_t count,
                        bool has_resolver)
{
    const char *const repositories[] = {f->dir};
    const char *const backends[] = {f->backends};
    struct mr_engine_options *o = &f->options;
    struct mr_err err;
    size_t failed = 0;

    mr_models_options_init(&o->models);
    o->models.repositories = repositories;
    o->models.repository_count = 1;
    o->models.backend_dirs = backends;
    o->models.backend_dir_count = 1;
    o->models.control = MR_MODEL_CONTROL_EXPLICIT;
    o->models.load_models = models;
    o->models.load_model_count = count;
    o->sched.max_queue_size = 1000;
    if (has_resolver) {
        o->resolver = (struct mr_resolver){resolve, f};
    }
    if (mr_engine_new(&f->engine, o, &err) < 0 ||
        mr_models_start(mr_engine_models(f->engine), &failed, &err) < 0 || failed > 0) {
        fail_msg("%s", err.msg);
    }
}

/* Nothing is left after any of the requests: no version is pinned. */
static int teardown(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < f->wait_count; i++) {
        if (f->waits[i]) {
            mr_engine_resolved(&f->waits[i], MR_OK, NULL);
        }
    }
    assert_int_equal(mr_engine_stop(f->engine, 60 * MR_NS_PER_S), 0);
    mr_engine_free(&f->engine);
    assert_null(f->engine);
    nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    mr_free(f);
    return 0;
}

/* ---- requests ---- */

struct ask {
    struct mr_infer infer;
    struct mr_infer_args args;
    struct mr_arena arena;
    mr_str name;
    struct mr_tensor tensor;
    int64_t shape[2];
    int32_t data[2];
    unsigned responses;
    pthread_mutex_t mutex; /* guards is_done */
    pthread_cond_t done;
    bool is_done;
};

static void ask_done(struct mr_infer *r)
{
    struct ask *a = r->user;

    pthread_mutex_lock(&a->mutex);
    assert_false(a->is_done);
    a->is_done = true;
    pthread_cond_signal(&a->done);
    pthread_mutex_unlock(&a->mutex);
}

static void ask_response(struct mr_infer *r, struct mr_response *q)
{
    struct ask *a = r->user;

    a->responses += q->outputs.list != NULL;
    mr_infer_response_end(r, &q);
}

static void ask_init(struct ask *a, const char *model, int32_t first, int batch_rank)
{
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->mutex, NULL);
    pthread_cond_init(&a->done, NULL);
    mr_arena_init(&a->arena, 4096, 1u << 20);
    a->data[0] = first;
    a->data[1] = first + 1;
    a->name = MR_STR("X");
    a->shape[0] = batch_rank ? 1 : 2;
    a->shape[1] = 2;
    a->tensor = (struct mr_tensor){.dtype = MR_DTYPE_INT32,
                                   .rank = 1 + batch_rank,
                                   .shape = a->shape,
                                   .data = a->data,
                                   .bytes = sizeof a->data};
    a->args = (struct mr_infer_args){.model = mr_str_c(model),
                                     .version = MR_STR(""),
                                     .input_names = &a->name,
                                     .input_tensors = &a->tensor,
                                     .input_stride = sizeof a->tensor,
                                     .input_count = 1};
    a->infer = (struct mr_infer){.arena = &a->arena, .on_done = ask_done, .user = a};
}

static void ask_wait(struct ask *a)
{
    pthread_mutex_lock(&a->mutex);
    while (!a->is_done) {
        pthread_cond_wait(&a->done, &a->mutex);
    }
    pthread_mutex_unlock(&a->mutex);
}

static void ask_fini(struct ask *a)
{
    mr_engine_end(&a->infer);
    mr_arena_fini(&a->arena);
    pthread_cond_destroy(&a->done);
    pthread_mutex_destroy(&a->mutex);
}

static void ask_check(const struct ask *a)
{
    if (a->infer.status != MR_OK) {
        fail_msg("status %d: %s", a->infer.status, a->infer.err.msg);
    }
    const struct mr_exec_output *o = mr_infer_output(&a->infer, 0);
    assert_true(o->is_set);
    assert_int_equal(o->tensor.bytes, sizeof a->data);
    assert_memory_equal(o->tensor.data, a->data, sizeof a->data);
}

#define THREADS  4
#define REQUESTS 100

struct caller {
    pthread_t thread;
    struct mr_engine *engine;
    const char *model;
    int batch_rank;
    int32_t first;
};

static void *caller_main(void *arg)
{
    const struct caller *c = arg;
    struct ask asks[REQUESTS];

    for (int i = 0; i < REQUESTS; i++) {
        ask_init(&asks[i], c->model, c->first + i, c->batch_rank);
        assert_int_equal(mr_engine_infer(c->engine, &asks[i].infer, &asks[i].args), MR_OK);
    }
    for (int i = 0; i < REQUESTS; i++) {
        ask_wait(&asks[i]);
        ask_check(&asks[i]);
        ask_fini(&asks[i]);
    }
    return NULL;
}

static void call_from_threads(struct fixture *f, const char *model, int batch_rank)
{
    struct caller callers[THREADS];
    struct mr_sched_stats st;
    struct mr_target target;
    struct mr_err err;

    for (int i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){
            .engine = f->engine, .model = model, .batch_rank = batch_rank, .first = i * 1000};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(callers[i].thread, NULL);
    }
    assert_int_equal(
        mr_engine_find(f->engine, &f->reply_loop, mr_str_c(model), MR_STR(""), &target, &err),
        MR_OK);
    mr_sched_stats_sum(target.version, &st);
    assert_int_equal(st.success.count, THREADS * REQUESTS);
    mr_version_unpin(target.version, MR_EPOCH_SLOT_NONE);
}

static void from_any_thread(void **state)
{
    const char *const models[] = {"echo"};

    open_engine(*state, models, 1, false);
    call_from_threads(*state, "echo", 0);
}

/* Answers in order are handed over without the queue's lock, which their ends take. */
static void from_any_thread_in_order(void **state)
{
    const char *const models[] = {"ordered"};

    open_engine(*state, models, 1, false);
    call_from_threads(*state, "ordered", 1);
}

/* A request that is refused at once holds nothing, and gets the reason. */
static void refused(void **state)
{
    const char *const models[] = {"echo", "many"};
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, models, 2, false);
    ask_init(&a, "nothing", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_E_NOT_FOUND);
    assert_int_equal(a.infer.status, MR_E_NOT_FOUND);
    assert_non_null(strstr(a.infer.err.msg, "'nothing' is not found"));
    ask_fini(&a);
    ask_init(&a, "echo", 0, 1); /* one dimension too many */
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_E_INVALID);
    assert_null(a.infer.version);
    ask_fini(&a);
    ask_init(&a, "many", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_E_UNSUPPORTED);
    assert_non_null(strstr(a.infer.err.msg, "'many' gives any number of answers"));
    ask_fini(&a);
}

/* More answers than may be unread at once: each makes room for another as it is taken. */
static void many_answers(void **state)
{
    const char *const models[] = {"many"};
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, models, 1, false);
    ask_init(&a, "many", 0, 0);
    a.infer.on_response = ask_response;
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    ask_wait(&a);
    assert_int_equal(a.infer.status, MR_OK);
    assert_int_equal(a.responses, 100);
    ask_fini(&a);
}

/* A version lives as long as a holder on any thread, and a running request can be cancelled. */
static void pins_and_cancel(void **state)
{
    const char *const models[] = {"waits"};
    struct fixture *f = *state;
    struct mr_target target;
    struct mr_err err;
    struct ask a;

    open_engine(f, models, 1, false);
    assert_int_equal(
        mr_engine_find(f->engine, &f->reply_loop, MR_STR("waits"), MR_STR("1"), &target, &err),
        MR_OK);
    ask_init(&a, "waits", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    assert_int_equal(mr_engine_stop(f->engine, 0), 1);
    if (mr_engine_cancel(f->engine, &a.infer)) {
        ask_done(&a.infer); /* it had not started */
    }
    ask_wait(&a);
    assert_int_equal(a.infer.status, MR_E_CANCELLED);
    ask_fini(&a);
    assert_int_equal(mr_engine_stop(f->engine, 0), 1);
    mr_version_unpin(target.version, MR_EPOCH_SLOT_NONE);
}

/* ---- sequences ---- */

static void start_sequence(struct ask *a, uint64_t id)
{
    ask_init(a, "keeps", 0, 1);
    a->args.has_sequence = true;
    a->args.correlation_id = id;
    a->args.sequence_flags = MR_SEQUENCE_START;
}

static void on_loaded_ask(void *ctx, int rc, const struct mr_err *err)
{
    (void)err;
    assert_int_equal(rc, MR_OK);
    ask_done(ctx);
}

/* The version is replaced between the look-up for a request that starts a sequence and its submission: the sequence begins
 * there, and goes on. */
static void starts_while_replaced(void **state)
{
    const char *const models[] = {"keeps"};
    const mr_str no_text = {NULL, 0};
    struct fixture *f = *state;
    struct mr_reply_loop no_loop = {.epoch_slot = MR_EPOCH_SLOT_NONE};
    struct mr_target target;
    struct mr_err err;
    struct ask first, second, load;
    char path[PATH_MAX];

    open_engine(f, models, 1, false);
    start_sequence(&first, 1); /* for which the version stays */
    assert_int_equal(mr_engine_infer(f->engine, &first.infer, &first.args), MR_OK);
    ask_wait(&first);
    ask_fini(&first);
    assert_int_equal(
        mr_engine_find(f->engine, &no_loop, MR_STR("keeps"), MR_STR(""), &target, &err), MR_OK);

    snprintf(path, sizeof path, "%s/keeps/2", f->dir);
    assert_int_equal(mkdir(path, 0755), 0);
    ask_init(&load, "keeps", 0, 1);
    mr_models_load(mr_engine_models(f->engine), MR_STR("keeps"), NULL, on_loaded_ask, &load.infer);
    ask_wait(&load);
    ask_fini(&load);
    assert_ptr_equal(mr_version_held(target.version, NULL), target.version);

    start_sequence(&second, 2);
    second.infer.reply_loop = &no_loop;
    second.infer.version = target.version; /* with its pin */
    assert_int_equal(mr_infer_validate(&second.infer, &second.args, &err), MR_OK);
    assert_int_equal(mr_engine_submit(f->engine, &second.infer), MR_OK);
    ask_wait(&second);
    ask_check(&second);
    const bool goes_on = mr_sched_has_sequence(target.version, 2, no_text, false);
    ask_fini(&second);
    assert_true(goes_on);
}

/* ---- names that are resolved ---- */

/* The model is loaded because of the request, and a second request finds it. */
static void loads_on_demand(void **state)
{
    struct fixture *f = *state;
    struct ask a;

    f->loads = true;
    open_engine(f, NULL, 0, true);
    for (int i = 0; i < 2; i++) {
        ask_init(&a, "cold", i, 0);
        assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
        ask_wait(&a);
        ask_check(&a);
        ask_fini(&a);
    }
    assert_int_equal(f->asked, 1);
    ask_init(&a, "broken", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    ask_wait(&a);
    assert_true(a.infer.status < 0);
    assert_true(a.infer.err.msg[0] != '\0');
    assert_null(a.infer.version);
    ask_fini(&a);
}

static void *answer_main(void *arg)
{
    struct fixture *f = arg;
    const struct mr_err err = {.status = MR_E_UNAVAILABLE, .msg = "no room for it"};

    mr_engine_resolved(&f->waits[0], MR_E_UNAVAILABLE, &err);
    return NULL;
}

/* The failure comes from another thread. With a reply loop it is reported there, otherwise on the thread it came from. */
static void fails_later(void **state)
{
    struct fixture *f = *state;
    pthread_t thread;
    struct ask a;

    open_engine(f, NULL, 0, true);
    for (int has_reply_loop = 0; has_reply_loop < 2; has_reply_loop++) {
        f->wait_count = 0;
        ask_init(&a, "cold", 0, 0);
        a.infer.reply_loop = has_reply_loop ? &f->reply_loop : NULL;
        assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
        assert_false(a.is_done);
        assert_int_equal(pthread_create(&thread, NULL, answer_main, f), 0);
        pthread_join(thread, NULL);
        assert_null(f->waits[0]);
        assert_int_equal(a.is_done, !has_reply_loop);
        assert_int_equal(mr_mailbox_drain(&f->box), has_reply_loop);
        assert_true(a.is_done);
        assert_int_equal(a.infer.status, MR_E_UNAVAILABLE);
        assert_string_equal(a.infer.err.msg, "no room for it");
        ask_fini(&a);
    }
}

/* The resolver answers before it returns. */
static void answers_at_once(void **state)
{
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, NULL, 0, true);
    f->answers_early = true;
    f->early = MR_E_FORBIDDEN;
    ask_init(&a, "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    assert_true(a.is_done);
    assert_int_equal(a.infer.status, MR_E_FORBIDDEN);
    assert_string_equal(a.infer.err.msg, "not today");
    ask_fini(&a);

    f->answers_early = false;
    f->answer = MR_E_EXHAUSTED;
    ask_init(&a, "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_E_EXHAUSTED);
    assert_string_equal(a.infer.err.msg, "the resolver refuses");
    ask_fini(&a);

    f->answer = MR_OK; /* which is not so */
    ask_init(&a, "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_E_NOT_FOUND);
    ask_fini(&a);
}

/* Before the answer a cancel ends it, and the answer is dropped; after the answer the reply loop learns of the cancel. */
static void cancelled_while_pending(void **state)
{
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, NULL, 0, true);
    ask_init(&a, "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    assert_true(mr_engine_cancel(f->engine, &a.infer));
    assert_int_equal(a.infer.status, MR_E_CANCELLED);
    ask_fini(&a);
    mr_engine_resolved(&f->waits[0], MR_OK, NULL);

    ask_init(&a, "cold", 0, 0);
    a.infer.reply_loop = &f->reply_loop;
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    mr_engine_resolved(&f->waits[1], MR_OK, NULL);
    assert_false(mr_engine_cancel(f->engine, &a.infer));
    assert_false(a.is_done);
    assert_int_equal(mr_mailbox_drain(&f->box), 1);
    assert_true(a.is_done);
    assert_int_equal(a.infer.status, MR_E_CANCELLED);
    ask_fini(&a);
}

/* A drain answers all waiting requests, and later ones do not wait; so does a limit. */
static void drained_while_pending(void **state)
{
    struct fixture *f = *state;
    struct ask a[3];

    f->options.max_resolving = 2;
    open_engine(f, NULL, 0, true);
    for (int i = 0; i < 2; i++) {
        ask_init(&a[i], "cold", 0, 0);
        assert_int_equal(mr_engine_infer(f->engine, &a[i].infer, &a[i].args), MR_OK);
    }
    ask_init(&a[2], "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a[2].infer, &a[2].args), MR_E_UNAVAILABLE);
    assert_non_null(strstr(a[2].infer.err.msg, "2 requests wait"));
    ask_fini(&a[2]);
    assert_false(a[0].is_done || a[1].is_done);

    mr_engine_drain(f->engine);
    for (int i = 0; i < 2; i++) {
        assert_true(a[i].is_done);
        assert_int_equal(a[i].infer.status, MR_E_UNAVAILABLE);
        assert_non_null(strstr(a[i].infer.err.msg, "exiting"));
        ask_fini(&a[i]);
    }
    ask_init(&a[2], "cold", 0, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a[2].infer, &a[2].args), MR_E_NOT_FOUND);
    ask_fini(&a[2]);
    assert_int_equal(f->asked, 2);
}

/* A name alone, for callers that do the rest themselves. */
static void name_alone_done(struct mr_resolve *q)
{
    q->done = NULL;
}

static void name_alone(void **state)
{
    struct fixture *f = *state;
    struct mr_resolve q = {.done = name_alone_done};
    struct mr_target target;
    struct mr_err err;

    open_engine(f, NULL, 0, true);
    assert_int_equal(
        mr_engine_resolve(f->engine, &f->reply_loop, MR_STR("cold"), MR_STR(""), &q, &target, &err),
        MR_PENDING);
    assert_true(mr_engine_resolve_cancel(f->engine, &q));
    assert_false(mr_engine_resolve_cancel(f->engine, &q));
    assert_int_equal(
        mr_engine_resolve(f->engine, &f->reply_loop, MR_STR("cold"), MR_STR(""), &q, &target, &err),
        MR_PENDING);
    mr_engine_resolved(&f->waits[1], MR_OK, NULL);
    assert_non_null(q.done);
    assert_false(mr_engine_resolve_cancel(f->engine, &q));
    mr_mailbox_drain(&f->box);
    assert_null(q.done);
    assert_int_equal(q.status, MR_OK);
}

/* What posts the jobs of a shadow is a loop, which does none of their work. */
static void a_shadow_starts_on_another_thread(void **state)
{
    static const struct mr_shadow_config config = {
        .target = {.model = MR_STR_INIT("nowhere"), .version = MR_STR_INIT("")}, .max_queue = 1};
    static const char *const models[] = {"echo"};
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, models, 1, true);
    f->answer = MR_E_NOT_FOUND;
    struct mr_shadow *s = mr_shadow_new(f->engine, &config);
    ask_init(&a, "echo", 1, 0);
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    ask_wait(&a);
    struct mr_shadow_job *job = mr_shadow_take(s, &a.infer);
    assert_non_null(job);
    ask_fini(&a);
    mr_shadow_run(&job);
    while (mr_shadow_stats(s).failed == 0) {
        sched_yield();
    }
    assert_int_equal(f->asked, 1);
    assert_false(pthread_equal(f->asked_on, pthread_self()));
    mr_shadow_drop(&s);
}

/* A request of a sequence, whose other requests need not be copied, is not. */
static void a_shadow_has_no_sequences(void **state)
{
    static const struct mr_shadow_config config = {
        .target = {.model = MR_STR_INIT("echo"), .version = MR_STR_INIT("")}, .max_queue = 1};
    static const char *const models[] = {"echo"};
    struct fixture *f = *state;
    struct ask a;

    open_engine(f, models, 1, false);
    struct mr_shadow *s = mr_shadow_new(f->engine, &config);
    ask_init(&a, "echo", 1, 0);
    a.args.has_sequence = true;
    a.args.correlation_id = 7;
    assert_int_equal(mr_engine_infer(f->engine, &a.infer, &a.args), MR_OK);
    ask_wait(&a);
    ask_check(&a);
    struct mr_shadow_job *job = mr_shadow_take(s, &a.infer);
    ask_fini(&a);
    assert_null(job);
    assert_int_equal(mr_shadow_stats(s).requests, 0);
    mr_shadow_drop(&s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(from_any_thread),
        TEST(from_any_thread_in_order),
        TEST(refused),
        TEST(many_answers),
        TEST(pins_and_cancel),
        TEST(starts_while_replaced),
        TEST(loads_on_demand),
        TEST(fails_later),
        TEST(answers_at_once),
        TEST(cancelled_while_pending),
        TEST(drained_while_pending),
        TEST(name_alone),
        TEST(a_shadow_starts_on_another_thread),
        TEST(a_shadow_has_no_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
