/* Statistics of a server: Triton's extension of the Open Inference Protocol, over REST and gRPC. */
#include "stats.h"

#include "codec/json.h"
#include "inference.pb-c.h"

/* ---- REST ---- */

static int parse_duration(struct mr_json *j, struct mr_stats_time *d)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "count") ? mr_json_u64(j, &d->count)
             : mr_str_eq_c(key, "ns")  ? mr_json_u64(j, &d->ns)
                                       : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int parse_inference_stats(struct mr_json *j, struct mr_stats_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        struct mr_stats_time *d = mr_str_eq_c(key, "success")          ? &row->success
                                  : mr_str_eq_c(key, "fail")           ? &row->fail
                                  : mr_str_eq_c(key, "queue")          ? &row->queue
                                  : mr_str_eq_c(key, "compute_input")  ? &row->input
                                  : mr_str_eq_c(key, "compute_infer")  ? &row->infer
                                  : mr_str_eq_c(key, "compute_output") ? &row->output
                                                                       : NULL;
        rc = d ? parse_duration(j, d) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int parse_stats_row(struct mr_json *j, struct mr_stats_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "name")) {
            rc = mr_json_string(j, &row->name);
        } else if (mr_str_eq_c(key, "version")) {
            rc = mr_json_string(j, &row->version);
        } else if (mr_str_eq_c(key, "inference_count")) {
            rc = mr_json_u64(j, &row->inferences);
        } else if (mr_str_eq_c(key, "execution_count")) {
            rc = mr_json_u64(j, &row->executions);
        } else if (mr_str_eq_c(key, "inference_stats")) {
            rc = parse_inference_stats(j, row);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_rows(struct mr_json *j, struct mr_stats_list *out)
{
    bool first_key = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first_key, &key)) {
        bool first = true;
        if (!mr_str_eq_c(key, "model_stats")) {
            rc = mr_json_skip(j, NULL);
            continue;
        }
        rc = mr_json_enter_array(j);
        while (rc == MR_OK && mr_json_next_item(j, &first)) {
            struct mr_stats_row row = {0};
            rc = parse_stats_row(j, &row);
            if (rc == MR_OK) {
                MR_VEC_PUSH(out, row);
            }
        }
    }
    return rc < 0 ? rc : j->status;
}

int mr_stats_parse_rest(mr_bytes body, struct mr_arena *arena, struct mr_stats_list *out,
                        struct mr_err *err)
{
    struct mr_json j;

    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), arena, 0, err);
    int rc = parse_rows(&j, out);
    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}

/* ---- sums ---- */

static void add_time(struct mr_stats_time *into, struct mr_stats_time t)
{
    into->count += t.count;
    into->ns += t.ns;
}

static void add_row(struct mr_stats_row *into, const struct mr_stats_row *r)
{
    into->inferences += r->inferences;
    into->executions += r->executions;
    add_time(&into->success, r->success);
    add_time(&into->fail, r->fail);
    add_time(&into->queue, r->queue);
    add_time(&into->input, r->input);
    add_time(&into->infer, r->infer);
    add_time(&into->output, r->output);
}

static struct mr_stats_time time_since(struct mr_stats_time before, struct mr_stats_time after)
{
    return (struct mr_stats_time){after.count - before.count, after.ns - before.ns};
}

struct mr_stats_row mr_stats_since(const struct mr_stats_row *before,
                                   const struct mr_stats_row *after)
{
    return (struct mr_stats_row){
        .inferences = after->inferences - before->inferences,
        .executions = after->executions - before->executions,
        .success = time_since(before->success, after->success),
        .fail = time_since(before->fail, after->fail),
        .queue = time_since(before->queue, after->queue),
        .input = time_since(before->input, after->input),
        .infer = time_since(before->infer, after->infer),
        .output = time_since(before->output, after->output),
    };
}

static int get_rest(struct mr_remote *r, const char *model, const char *version,
                    struct mr_stats_row *out, struct mr_err *err)
{
    struct mr_stats_list list = {0};
    struct mr_remote_reply reply;
    struct mr_arena arena;

    mr_arena_init(&arena, 4096, (size_t)1 << 28);
    mr_str path = version
                      ? mr_arena_printf(&arena, "/v2/models/%s/versions/%s/stats", model, version)
                      : mr_arena_printf(&arena, "/v2/models/%s/stats", model);
    int rc = mr_remote_text(r, path.ptr ? path.ptr : "", NULL, &reply, err);
    if (rc == MR_OK) {
        rc = mr_stats_parse_rest(reply.body, &arena, &list, err);
        for (size_t i = 0; rc == MR_OK && i < list.len; i++) {
            add_row(out, &list.at[i]);
        }
        mr_remote_reply_fini(&reply);
    }
    MR_VEC_FINI(&list);
    mr_arena_fini(&arena);
    return rc;
}

/* ---- gRPC ---- */

static struct mr_stats_time time_of(const Inference__StatisticDuration *d)
{
    return d ? (struct mr_stats_time){d->count, d->ns} : (struct mr_stats_time){0, 0};
}

static void add_message(struct mr_stats_row *out, const Inference__ModelStatistics *m)
{
    const Inference__InferStatistics *s = m->inference_stats;
    struct mr_stats_row row = {.inferences = m->inference_count, .executions = m->execution_count};

    if (s) {
        row.success = time_of(s->success);
        row.fail = time_of(s->fail);
        row.queue = time_of(s->queue);
        row.input = time_of(s->compute_input);
        row.infer = time_of(s->compute_infer);
        row.output = time_of(s->compute_output);
    }
    add_row(out, &row);
}

static int get_grpc(struct mr_remote *r, const char *model, const char *version,
                    struct mr_stats_row *out, struct mr_err *err)
{
    Inference__ModelStatisticsRequest ask = INFERENCE__MODEL_STATISTICS_REQUEST__INIT;
    Inference__ModelStatisticsResponse *m = NULL;
    struct mr_remote_reply reply;
    struct mr_buf message;

    /* protobuf-c's structs have char *, but do not modify it. */
    ask.name = (char *)(uintptr_t)model;
    if (version) {
        ask.version = (char *)(uintptr_t)version;
    }
    mr_buf_init(&message, 0);
    char *p =
        mr_buf_reserve(&message, inference__model_statistics_request__get_packed_size(&ask) + 1);
    message.len = p ? inference__model_statistics_request__pack(&ask, (uint8_t *)p) : 0;
    struct mr_piece piece = {.ptr = message.ptr, .len = message.len};
    int rc = mr_remote_grpc(r, "/inference.GRPCInferenceService/ModelStatistics", &piece, 1, &reply,
                            err);
    if (rc == MR_OK) {
        m = inference__model_statistics_response__unpack(NULL, reply.body.len, reply.body.ptr);
        rc = m ? MR_OK : MR_FAIL(err, MR_E_INVALID, "the statistics cannot be read");
        for (size_t i = 0; m && i < m->n_model_stats; i++) {
            add_message(out, m->model_stats[i]);
        }
        inference__model_statistics_response__free_unpacked(m, NULL);
        mr_remote_reply_fini(&reply);
    }
    mr_buf_fini(&message);
    return rc;
}

int mr_stats_get(struct mr_remote *r, bool grpc, const char *model, const char *version,
                 struct mr_stats_row *out, struct mr_err *err)
{
    *out = (struct mr_stats_row){0};
    return grpc ? get_grpc(r, model, version, out, err) : get_rest(r, model, version, out, err);
}
