/* Calls of the Open Inference Protocol: columns are tensors, a call has as many rows as the model takes. */
#include <stdio.h>

#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "batch/hosts/hosts.h"
#include "batch/protocols/oip/answer.h"
#include "batch/protocols/oip/bind.h"
#include "batch/protocols/oip/declared.h"
#include "tensor/tensor.h"

#define EXTENT_ROWS  4096
#define STRING_BYTES 64 /* what a string is taken for before there is one */

/* ---- the model's metadata ---- */

static int io_compare(const struct mr_oip_io *a, const struct mr_oip_io *b, const char *what,
                      struct mr_err *err)
{
    char one[128];
    char two[128];

    if (mr_str_eq(a->name, b->name) && a->dtype == b->dtype && a->rank == b->rank &&
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "%s '%.*s' %s%s instead of '%.*s' %s%s", what,
                   (int)b->name.len, b->name.ptr, mr_dtype_name(b->dtype),
                   mr_shape_text(b->shape, b->rank, two, sizeof two), (int)a->name.len, a->name.ptr,
                   mr_dtype_name(a->dtype), mr_shape_text(a->shape, a->rank, one, sizeof one));
}

static int metadata_compare(const struct mr_oip_metadata *a, const struct mr_oip_metadata *b,
                            struct mr_err *err)
{
    if (a->input_count != b->input_count || a->output_count != b->output_count) {
        return MR_FAIL(err, MR_E_INVALID, "%zu inputs and %zu outputs instead of %zu and %zu",
                       b->input_count, b->output_count, a->input_count, a->output_count);
    }
    int rc = MR_OK;
    for (size_t i = 0; i < a->input_count && rc == MR_OK; i++) {
        rc = io_compare(&a->inputs[i], &b->inputs[i], "input", err);
    }
    for (size_t i = 0; i < a->output_count && rc == MR_OK; i++) {
        rc = io_compare(&a->outputs[i], &b->outputs[i], "output", err);
    }
    if (rc == MR_OK && !mr_str_eq(a->version, b->version)) {
        rc = MR_FAIL(err, MR_E_INVALID, "version '%.*s' instead of '%.*s'", (int)b->version.len,
                     b->version.ptr, (int)a->version.len, a->version.ptr);
    }
    return rc;
}

/* The metadata of the first host, or the same again. */
static int metadata_take(struct host *h, int rc, const struct mr_err *cause,
                         const struct mr_client_response *response, struct mr_err *err)
{
    struct dialect_model *model = h->model;
    struct mr_oip_metadata m = {0};
    struct mr_arena own;
    struct mr_arena *arena = model->has_metadata ? &own : &model->arena;

    mr_arena_init(&own, 4096, 16 << 20);
    rc = transport_metadata(&h->transport, rc, cause, response, arena, &m, err);
    rc = rc < 0 ? rc : declared_fill(model->o, arena, &m, err);
    if (rc == MR_OK) {
        snprintf(h->version, sizeof h->version, "%.*s", (int)m.version.len, m.version.ptr);
        if (model->has_metadata) {
            rc = metadata_compare(&model->metadata, &m, err);
            rc = rc < 0 ? MR_WRAP(err, rc, "another model") : rc;
        } else {
            model->metadata = m;
            model->has_metadata = true;
        }
    }
    mr_arena_fini(&own);
    return rc;
}

static void on_metadata(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct host *h = ctx;
    struct mr_err why;

    mr_err_clear(&why);
    if (h->is_listed && h->transport.client) {
        rc = metadata_take(h, rc, err, response, &why);
    }
    h->reported(h, rc, &why);
}

static void ask(struct host *h, int64_t timeout_ns)
{
    transport_ask(&h->transport, timeout_ns, on_metadata, h);
}

/* ---- rows and calls ---- */

static struct batch_bind_options bind_options(const struct mr_batch_options *o)
{
    return (struct batch_bind_options){
        .maps = o->model.maps, .map_count = o->model.map_count, .null_value = o->model.null_value};
}

static int want(struct dialect_model *model, struct mr_err *err)
{
    const struct batch_bind_options options = bind_options(model->o);
    const bool has_inputs = model->metadata.input_count > 0;

    /* MLServer and KServe report none unless the model's settings or code define them. */
    if (!has_inputs || model->metadata.output_count == 0) {
        return MR_FAIL(err, MR_E_INVALID,
                       "the hosts' metadata of model '%s' names no %s, which rows are checked "
                       "against: its settings have to name them, or --model-%s does",
                       model->o->model.name, has_inputs ? "outputs" : "inputs",
                       has_inputs ? "output" : "input");
    }
    return batch_bind_wanted(&model->metadata, &options, &model->wanted, err);
}

static int bind(struct dialect_model *model, const struct mr_schema *table,
                const struct mr_schema *all, struct mr_err *err)
{
    const struct mr_batch_options *o = model->o;
    struct batch_bind_options options = bind_options(o);
    options.columns = all;
    const struct batch_outputs_options outputs = {.columns = all,
                                                  .carried = o->results.carried,
                                                  .carried_count = o->results.carried_count,
                                                  .outputs = o->results.outputs,
                                                  .output_count = o->results.output_count,
                                                  .error =
                                                      o->filter ? o->filter->error_column : NULL,
                                                  .allows_nan = o->model.allows_nan};
    int rc;

    MR_TRY(batch_bind_new(&model->bind, &model->metadata, table, &options, err));
    MR_TRY(batch_outputs_new(&model->outputs, &model->metadata, table, &outputs, err));
out:
    return rc;
}

/* As far as the model's metadata define it. */
static uint64_t answer_bytes(const struct dialect_model *model)
{
    uint64_t sum = 64;

    for (size_t i = 0; i < model->metadata.output_count; i++) {
        const struct mr_oip_io *io = &model->metadata.outputs[i];
        uint64_t n = io->dtype == MR_DTYPE_BYTES ? STRING_BYTES : mr_dtype_size(io->dtype);
        for (int d = 0; d < io->rank; d++) {
            /* A dimension that is open counts as 64; the budget is put right when the answer is there. */
            const uint64_t dim = io->shape[d] >= 0 ? (uint64_t)io->shape[d] : d == 0 ? 1 : 64;
            n = dim > 0 && n > UINT32_MAX / dim ? UINT32_MAX : n * dim;
        }
        sum += n;
    }
    return sum;
}

static bool knows_bytes(const struct dialect_model *model)
{
    bool is_known = true;

    for (size_t i = 0; i < model->metadata.output_count; i++) {
        const struct mr_oip_io *io = &model->metadata.outputs[i];
        is_known = is_known && io->dtype != MR_DTYPE_BYTES;
        for (int d = batch_is_batched(&model->metadata); d < io->rank; d++) {
            is_known = is_known && io->shape[d] >= 0;
        }
    }
    return is_known;
}

static uint64_t extent_rows(const struct dialect_model *model)
{
    (void)model;
    return EXTENT_ROWS;
}

static bool takes_rows(const struct dialect_model *model)
{
    return batch_is_batched(&model->metadata);
}

static bool are_good(const struct dialect_model *model, const struct mr_rows *rows)
{
    return batch_bind_all_good(model->bind, rows);
}

static bool is_bad(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                   char *why)
{
    return batch_bind_is_bad(model->bind, rows, row, why);
}

static uint64_t together(const struct dialect_model *model, const struct mr_rows *rows,
                         uint64_t first, uint64_t most)
{
    return batch_bind_together(model->bind, rows, first, most);
}

static bool joins(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                  const struct mr_rows *others, uint64_t other)
{
    return batch_bind_joins(model->bind, rows, row, others, other);
}

/* ---- calls ---- */

static void rows_release(void *ctx, void *data)
{
    struct mr_rows *rows = ctx;

    (void)data;
    mr_rows_unref(&rows);
}

/* Values in the rows are sent from there: the network keeps the rows until they are sent. */
static bool values_keep(struct call *k, struct mr_oip_tensor *t)
{
    if (t->block || t->tensor.bytes == 0) {
        return true;
    }
    struct mr_rows *rows = mr_rows_ref(k->work->ranges[0].extent->rows);
    struct mr_block *b = mr_block_wrap(t->tensor.data, t->tensor.bytes, rows_release, rows);
    if (!b) {
        mr_rows_unref(&rows);
        return false;
    }
    t->block = b;
    return mr_block_keep(b, &k->arena);
}

/* The request of a call; tensors are in the arena and the rows. */
static int call_request(struct call *k, struct mr_oip_request *out, struct mr_err *err)
{
    struct dialect_model *model = k->model;
    const struct work *w = k->work;
    struct batch_row_range ranges[RANGES_MOST];
    int rc = MR_OK;

    *out = (struct mr_oip_request){.input_count = model->metadata.input_count,
                                   .output_count = model->o->results.output_count};
    out->inputs = MR_ARENA_ARRAY(&k->arena, struct mr_oip_tensor, out->input_count + 1);
    out->outputs = MR_ARENA_ARRAY(&k->arena, struct mr_oip_requested_output, out->output_count + 1);
    if (!out->inputs || !out->outputs) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call");
    }
    for (size_t i = 0; i < w->range_count; i++) {
        const struct row_range *s = &w->ranges[i];
        ranges[i] = (struct batch_row_range){s->extent->rows, s->first, s->count};
    }
    MR_TRY(batch_bind_make(model->bind, ranges, w->range_count, &k->arena, out->inputs, err));
    for (size_t i = 0; i < out->input_count; i++) {
        k->made_bytes += out->inputs[i].block ? out->inputs[i].tensor.bytes : 0;
        if (!values_keep(k, &out->inputs[i])) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call");
        }
    }
    for (size_t i = 0; i < out->output_count; i++) {
        out->outputs[i].name = mr_str_c(model->o->results.outputs[i]);
    }
out:
    return rc;
}

static int send(struct call *k, int64_t timeout_ns, struct mr_err *err)
{
    struct mr_oip_request request;
    struct transport *transport = &k->host->transport;
    int rc;

    MR_TRY(call_request(k, &request, err));
    MR_TRY(
        transport_send(transport, &k->transport, &request, &k->head, &k->arena, timeout_ns, err));
    if (transport->protocol != MR_BATCH_LOCAL) {
        /* What is sent has references of its own; tensors of which JSON was made are not needed any more. */
        mr_arena_reset(&k->arena);
        mr_buf_fini(&k->head);
    }
    const bool is_json = transport->protocol == MR_BATCH_JSON ||
                         (transport->protocol == MR_BATCH_BINARY && !k->transport.is_binary);
    k->made_bytes = (is_json ? 0 : k->made_bytes) + k->transport.text_bytes;
out:
    return rc;
}

/* Is an answer of the version of the model that all others were of? The first one that has a version decides. */
static int version_check(struct dialect_model *model, mr_str version, struct mr_err *err)
{
    if (version.len == 0) {
        return MR_OK;
    }
    const mr_str cut = mr_str_sub(version, 0, sizeof model->answer_version - 1);
    if (!model->answer_version[0]) {
        /* Metadata from before may be that of the last of several served versions. */
        snprintf(model->answer_version, sizeof model->answer_version, "%.*s", MR_STR_ARG(cut));
    }
    const char *want = model->o->model.version ? model->o->model.version : model->answer_version;
    return mr_str_eq_c(cut, want)
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID,
                         "another model: an answer of version '%.*s' instead of '%s'",
                         MR_STR_ARG(cut), want);
}

static void answer_check(struct call *k, struct transport_answer *a)
{
    struct mr_err err;

    if (version_check(k->model, a->response.model_version, &err) < 0) {
        a->outcome = MR_BALANCE_FAILED;
        a->is_for_good = true;
        snprintf(a->cause, sizeof a->cause, "%s", err.msg);
    } else if (batch_answer_check(k->model->outputs, &a->response, k->work->count, &err) < 0) {
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
    }
}

static void judge(struct call *k, const struct transport_reply *reply, struct transport_answer *a)
{
    struct transport *transport = &k->host->transport;

    transport_judge(transport, reply, &k->arena, a);
    if (a->outcome == MR_BALANCE_OK && !k->work->is_settled) {
        answer_check(k, a);
    }
    a->is_for_form = transport_form_note(transport, &k->transport, a->outcome);
}

static int rows(struct call *k, const struct transport_answer *a, uint64_t first,
                const struct row_range *of, struct mr_rows **out, struct mr_err *err)
{
    const struct batch_answer_part part = {.answer = &a->response,
                                           .body = a->body,
                                           .first = first,
                                           .count = of->count,
                                           .of = k->work->count};

    return batch_answer_rows(k->model->outputs, of->extent->rows, of->first, &part, out, err);
}

const struct dialect dialect_oip = {
    .ask = ask,
    .want = want,
    .bind = bind,
    .extent_rows = extent_rows,
    .answer_bytes = answer_bytes,
    .knows_bytes = knows_bytes,
    .takes_rows = takes_rows,
    .are_good = are_good,
    .is_bad = is_bad,
    .together = together,
    .joins = joins,
    .send = send,
    .judge = judge,
    .rows = rows,
    .compares_hosts = true,
    .grows_calls = true,
};
