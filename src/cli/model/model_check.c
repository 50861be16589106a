/* `millrace model check`: loads what a path holds, in worker processes of this command, runs one made-up request on each model,
 * and says what is wrong.
 *
 * A repository of its own, a temporary folder, has a link to the path; a folder with `models` in it is packed first, so that it
 * is read as it would be from an archive. Zeros are what the request has, dimensions that are open are 1 long. */
#include <limits.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "check_engine.h"
#include "cli/common/term.h"
#include "codec/json.h"
#include "engine/engine.h"
#include "model.h"
#include "tensor/tensor.h"

#define REQUEST_BYTES ((uint64_t)64 << 20)
#define DIGIT_BYTES   5 /* an element of BYTES: its length, and one digit */

/* What became of one version. */
struct result {
    char name[NAME_MAX + 1];
    int64_t version;
    bool is_ready;
    char error[sizeof((struct mr_err *)0)->msg]; /* "" = none */
    int64_t load_ns;
    int64_t took_ns; /* of the request; 0 = none was made */
    char answer[512];
};

struct check {
    char dir[PATH_MAX];
    char item[2 * PATH_MAX]; /* in it */
    struct mr_engine *engine;
    MR_VEC(struct result) results;
};

/* ---- the repository ---- */

static int repository_make(struct check *c, const struct model_folder *folder, struct mr_err *err)
{
    const char *base = getenv("TMPDIR");

    snprintf(c->dir, sizeof c->dir, "%.3000s/millrace-check-XXXXXX",
             base && base[0] == '/' ? base : "/tmp");
    if (!mkdtemp(c->dir)) {
        c->dir[0] = '\0';
        return MR_FAIL(err, MR_E_IO, "no temporary folder can be made in %.200s",
                       base ? base : "/tmp");
    }
    snprintf(c->item, sizeof c->item, "%s/%s%s", c->dir, folder->name,
             folder->is_project ? ".tar" : "");
    if (folder->is_project) {
        return mr_archive_pack(folder->path, "", c->item, NULL, err);
    }
    if (folder->is_file && !mr_archive_is_name(mr_str_c(folder->name), NULL)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%.300s is neither the folder of a model nor an archive (.tar, .tar.gz, "
                       ".tar.zst, .zip)",
                       folder->path);
    }
    return symlink(folder->path, c->item) == 0
               ? MR_OK
               : MR_FAIL(err, MR_E_IO, "no link can be made in %.300s", c->dir);
}

/* ---- the engine ---- */

static int engine_start(struct check *c, const struct model_run *m,
                        const struct model_folder *folder, struct mr_err *err)
{
    static const char *const all[] = {"*"};
    struct mr_models_options models;
    const char *dir = c->dir, *above = folder->parent;

    mr_models_options_init(&models);
    models.repositories = &dir;
    models.repository_count = 1;
    models.link_dirs = &above;
    models.link_dir_count = 1;
    models.load_models = all;
    models.load_model_count = 1;
    models.python = m->opt.python;
    models.archive_cache = m->opt.archive_cache;
    return check_engine_start(&c->engine, &models, err);
}

static void result_take(void *ctx, const struct mr_model_report *r)
{
    struct check *c = ctx;
    struct result out = {.version = r->version, .load_ns = r->load_ns};

    snprintf(out.name, sizeof out.name, "%.*s", MR_STR_ARG(r->name));
    out.is_ready = r->state == MR_VERSION_READY;
    if (!out.is_ready) {
        snprintf(out.error, sizeof out.error, "%.*s",
                 MR_STR_ARG(r->reason.len ? r->reason : MR_STR("it was not loaded")));
    }
    MR_VEC_PUSH(&c->results, out);
}

/* ---- a request ---- */

struct request {
    struct mr_infer infer;
    struct mr_infer_args args;
    struct mr_arena arena;
    sem_t done;
    unsigned answers; /* of a model that gives several */
};

struct input {
    mr_str name;
    struct mr_tensor tensor;
};

static int input_make(struct request *q, const struct mr_version *v, const struct mr_model_io *io,
                      struct mr_tensor *t, struct mr_err *err)
{
    const int lead = v->max_batch_size > 0;
    int64_t *shape = MR_ARENA_ARRAY(&q->arena, int64_t, (size_t)io->rank + 1);
    uint64_t elements;
    int rc;

    if (!shape) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a request");
    }
    shape[0] = 1;
    for (int i = 0; i < io->rank; i++) {
        shape[lead + i] = io->dims[i] < 0 ? 1 : io->dims[i];
    }
    *t = (struct mr_tensor){.dtype = io->dtype, .rank = io->rank + lead, .shape = shape};
    MR_TRY(mr_shape_elements(shape, t->rank, &elements, err));
    const uint64_t unit = t->dtype == MR_DTYPE_BYTES ? DIGIT_BYTES : mr_dtype_size(t->dtype);
    if (elements > REQUEST_BYTES / unit) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "input '%.*s' would be larger than 64 MiB",
                       MR_STR_ARG(io->name));
    }
    t->bytes = elements * unit;
    uint8_t *data = MR_ARENA_ARRAY(&q->arena, uint8_t, t->bytes + 1);
    if (!data) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a request");
    }
    for (uint64_t i = 0; t->dtype == MR_DTYPE_BYTES && i < elements; i++) {
        data[i * DIGIT_BYTES] = 1;
        data[i * DIGIT_BYTES + 4] = '0';
    }
    t->data = data;
out:
    return rc;
}

static int args_make(struct request *q, const struct mr_version *v, struct mr_err *err)
{
    struct input *list = MR_ARENA_ARRAY(&q->arena, struct input, v->input_count + 1);
    int rc = list ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for a request");

    for (uint32_t i = 0; rc == MR_OK && i < v->input_count; i++) {
        list[i].name = v->inputs[i].name;
        rc = input_make(q, v, &v->inputs[i], &list[i].tensor, err);
    }
    if (rc < 0) {
        return rc;
    }
    q->args = (struct mr_infer_args){.model = v->model_name,
                                     .version = v->number_text,
                                     .input_names = &list->name,
                                     .input_tensors = &list->tensor,
                                     .input_stride = sizeof *list,
                                     .input_count = v->input_count};
    if (mr_config_sequences(v->config)) {
        q->args.has_sequence = true;
        q->args.correlation_id = 1;
        q->args.sequence_flags = MR_SEQUENCE_START | MR_SEQUENCE_END;
    }
    return MR_OK;
}

static void on_done(struct mr_infer *r)
{
    struct request *q = r->user;

    sem_post(&q->done);
}

static void on_response(struct mr_infer *r, struct mr_response *response)
{
    struct request *q = r->user;

    q->answers += response->outputs.list != NULL; /* the last one may be empty */
    mr_infer_response_end(r, &response);
}

static void answer_describe(const struct request *q, const struct mr_version *v, struct result *out)
{
    size_t n = 0;
    const size_t room = sizeof out->answer;

    if (mr_version_is_streaming(v)) {
        snprintf(out->answer, room, "%u answers", q->answers);
        return;
    }
    for (uint32_t i = 0; q->infer.outputs && i < v->output_count && n < room; i++) {
        const struct mr_exec_output *o = mr_infer_output(&q->infer, i);
        n += (size_t)snprintf(out->answer + n, room - n, "%s%.*s %s [", i ? ", " : "",
                              MR_STR_ARG(v->outputs[i].name), mr_dtype_name(o->tensor.dtype));
        for (int k = 0; k < o->tensor.rank && n < room; k++) {
            n += (size_t)snprintf(out->answer + n, room - n, "%s%lld", k ? "," : "",
                                  (long long)o->tensor.shape[k]);
        }
        n += n < room ? (size_t)snprintf(out->answer + n, room - n, "]") : 0;
    }
}

static int request_run(struct check *c, const struct mr_version *v, struct result *out,
                       struct mr_err *err)
{
    struct request *q = MR_NEW(struct request);
    int rc;

    mr_arena_init(&q->arena, 4096, SIZE_MAX);
    sem_init(&q->done, 0, 0);
    q->infer.arena = &q->arena;
    q->infer.on_done = on_done;
    q->infer.on_response = on_response;
    q->infer.user = q;
    q->infer.protocol = MR_INFER_GRPC;
    q->infer.times.received = mr_now_ns();
    MR_TRY(args_make(q, v, err));
    rc = mr_engine_infer(c->engine, &q->infer, &q->args);
    if (rc < 0) {
        *err = q->infer.err;
        goto out;
    }
    while (rc == MR_OK && sem_wait(&q->done) != 0) {
    }
    out->took_ns = mr_now_ns() - q->infer.times.received;
    rc = q->infer.status;
    if (rc < 0) {
        *err = q->infer.err;
    } else {
        answer_describe(q, v, out);
    }
    mr_engine_end(&q->infer);
out:
    sem_destroy(&q->done);
    mr_arena_fini(&q->arena);
    mr_free(q);
    return rc;
}

static void result_complete(struct check *c, struct result *r)
{
    struct mr_version *v = NULL;
    char number[32];
    struct mr_err err = {0};

    snprintf(number, sizeof number, "%lld", (long long)r->version);
    int rc = mr_models_acquire(mr_engine_models(c->engine), mr_str_c(r->name), mr_str_c(number), &v,
                               &err);
    if (rc == MR_OK && v->has_messages) {
        snprintf(r->answer, sizeof r->answer, "no request was made, as MLServer's are messages");
    } else if (rc == MR_OK) {
        rc = request_run(c, v, r, &err);
    }
    if (v) {
        mr_version_unpin(v, MR_EPOCH_SLOT_NONE);
    }
    if (rc < 0) {
        snprintf(r->error, sizeof r->error, "%s", err.msg);
    }
}

/* ---- what is said ---- */

static void result_json(const struct result *r, struct mr_buf *b)
{
    MR_BUF_LIT(b, "{\"model\":");
    mr_json_put_string(b, mr_str_c(r->name));
    mr_buf_printf(b, ",\"version\":\"%lld\",\"ok\":%s", (long long)r->version,
                  r->error[0] ? "false" : "true");
    if (r->error[0]) {
        MR_BUF_LIT(b, ",\"error\":");
        mr_json_put_string(b, mr_str_c(r->error));
    }
    if (r->is_ready) {
        mr_buf_printf(b, ",\"load_ns\":%lld,\"request_ns\":%lld,\"answer\":", (long long)r->load_ns,
                      (long long)r->took_ns);
        mr_json_put_string(b, mr_str_c(r->answer));
    }
    mr_buf_char(b, '}');
}

static void result_text(const struct result *r, struct mr_buf *b)
{
    char load[32], took[32];

    mr_text_duration(load, (double)r->load_ns);
    mr_text_duration(took, (double)r->took_ns);
    mr_buf_printf(b, "%s", r->name);
    if (r->version > 0) {
        mr_buf_printf(b, " version %lld", (long long)r->version);
    }
    if (!r->is_ready) {
        mr_buf_printf(b, ": does not load: %s\n", r->error);
    } else if (r->error[0]) {
        mr_buf_printf(b, ": loaded in %s, but a request fails: %s\n", load, r->error);
    } else if (r->took_ns == 0) {
        mr_buf_printf(b, ": loaded in %s; %s\n", load, r->answer);
    } else {
        mr_buf_printf(b, ": loaded in %s, answered in %s: %s\n", load, took, r->answer);
    }
}

/* Returns the number of models that failed. */
static size_t results_print(const struct check *c, int form)
{
    struct mr_buf b;
    size_t failed = 0;

    mr_buf_init(&b, 0);
    mr_buf_c(&b, form == MODEL_JSON ? "{\"models\":[" : "");
    for (size_t i = 0; i < c->results.len; i++) {
        const struct result *r = &c->results.at[i];
        failed += r->error[0] != '\0';
        if (form == MODEL_JSON) {
            mr_buf_c(&b, i ? "," : "");
            result_json(r, &b);
        } else {
            result_text(r, &b);
        }
    }
    mr_buf_c(&b, form == MODEL_JSON ? "]}\n" : "");
    fwrite(b.ptr, 1, b.len, stdout);
    mr_buf_fini(&b);
    return failed;
}

int model_run_check(struct model_run *m, struct mr_err *err)
{
    struct check c = {.dir = ""};
    struct model_folder folder;
    size_t failed = 0;
    int rc;

    mr_log_set_enabled(MR_LOG_INFO, false);
    MR_TRY(model_folder_inspect(m->name, &folder, err));
    MR_TRY(repository_make(&c, &folder, err));
    MR_TRY(engine_start(&c, m, &folder, err));
    mr_models_report(mr_engine_models(c.engine), result_take, &c);
    for (size_t i = 0; i < c.results.len; i++) {
        if (c.results.at[i].is_ready) {
            result_complete(&c, &c.results.at[i]);
        }
    }
    failed = results_print(&c, m->form);
    if (c.results.len == 0) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "%.300s holds no model", m->name);
    } else if (failed > 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%zu of %zu models failed", failed, c.results.len);
    }
out:
    check_engine_stop(&c.engine);
    if (c.dir[0]) {
        mr_tree_remove(c.dir, NULL);
    }
    MR_VEC_FINI(&c.results);
    return rc;
}
