/* Open Inference Protocol messages and inferences of the scheduler, which knows no messages. */
#include "engine/wire.h"
#include "codec/json.h"

#include <string.h>

#include "base/mem.h"
#include "base/turn.h"
#include "tensor/tensor.h"

/* ---- requests ---- */

static mr_str param_text(struct mr_arena *a, const struct mr_oip_param *p)
{
    switch (p->kind) {
    case MR_OIP_BOOL: return mr_arena_str(a, p->b ? MR_STR("true") : MR_STR("false"));
    case MR_OIP_INT: return mr_arena_printf(a, "%lld", (long long)p->i);
    case MR_OIP_UINT: return mr_arena_printf(a, "%llu", (unsigned long long)p->u);
    case MR_OIP_DOUBLE: return mr_arena_printf(a, "%.17g", p->d);
    case MR_OIP_STRING: return mr_turn_str(a, p->s);
    }
    return mr_arena_str(a, MR_STR(""));
}

static enum mr_parameter_kind param_kind(const struct mr_oip_param *p)
{
    switch (p->kind) {
    case MR_OIP_BOOL: return MR_PARAMETER_BOOL;
    case MR_OIP_INT:
    case MR_OIP_UINT: return MR_PARAMETER_INT;
    case MR_OIP_DOUBLE: return MR_PARAMETER_DOUBLE;
    case MR_OIP_STRING: return MR_PARAMETER_TEXT;
    }
    return MR_PARAMETER_TEXT;
}

static int parameters_of(const struct mr_oip_request *q, struct mr_arena *arena,
                         struct mr_infer_args *out, struct mr_err *err)
{
    struct mr_setting *s = MR_ARENA_ARRAY(arena, struct mr_setting, q->param_count);
    uint8_t *kinds = MR_ARENA_ARRAY(arena, uint8_t, q->param_count);

    if (!s || !kinds) {
        return MR_ARENA_FAIL(err);
    }
    for (size_t i = 0; i < q->param_count; i++) {
        s[i].key = mr_turn_str(arena, q->params[i].key).ptr;
        s[i].value = param_text(arena, &q->params[i]).ptr;
        if (!s[i].key || !s[i].value) {
            return MR_ARENA_FAIL(err);
        }
        kinds[i] = (uint8_t)param_kind(&q->params[i]);
    }
    out->parameters = s;
    out->parameter_kinds = kinds;
    out->parameter_count = (uint32_t)q->param_count;
    return MR_OK;
}

int mr_wire_args(const struct mr_oip_request *q, struct mr_arena *arena, struct mr_infer_args *out,
                 struct mr_err *err)
{
    *out = (struct mr_infer_args){
        .model = q->model_name,
        .version = q->model_version,
        .id = q->id,
        .input_stride = sizeof *q->inputs,
        .input_count = q->input_count,
        .output_stride = sizeof *q->outputs,
        .output_count = q->output_count,
        .priority = q->priority,
        .timeout_us = q->timeout_us,
        .has_sequence = q->has_sequence_id,
        .correlation_id = q->sequence_id,
        .correlation_text = q->sequence_id_str,
        .sequence_flags =
            (q->sequence_start ? MR_SEQUENCE_START : 0) | (q->sequence_end ? MR_SEQUENCE_END : 0),
    };
    if (q->input_count > 0) {
        out->input_names = &q->inputs->name;
        out->input_tensors = &q->inputs->tensor;
    }
    if (q->output_count > 0) {
        out->output_names = &q->outputs->name;
    }
    return q->param_count > 0 ? parameters_of(q, arena, out, err) : MR_OK;
}

/* ---- raw binary requests ---- */

int mr_wire_element(struct mr_tensor *t, struct mr_arena *arena, struct mr_err *err)
{
    uint32_t len = (uint32_t)t->bytes;
    uint8_t *to = t->bytes <= 65536 ? mr_arena_try(arena, t->bytes + 4, 8) : NULL;

    if (t->bytes > UINT32_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "a BYTES element is at most 4 GiB");
    }
    if (!to) {
        struct mr_block *b = mr_block_new(t->bytes + 4);
        if (!b || !mr_block_keep(b, arena)) {
            return MR_ARENA_FAIL(err);
        }
        to = b->data;
    }
    memcpy(to, &len, 4);
    if (len && !mr_turn_copy(to + 4, t->data, len)) {
        return MR_FAIL(err, MR_E_CANCELLED, "ended");
    }
    t->data = to;
    t->bytes += 4;
    return MR_OK;
}

/* The input's dims, a batch of one in front; *out_variable: the one that the body's size decides, -1 = none. */
static int raw_shape(const struct mr_model_io *io, int lead, struct mr_arena *arena,
                     int64_t **out_shape, uint64_t *out_fixed, int *out_variable,
                     struct mr_err *err)
{
    int64_t *shape = MR_ARENA_ARRAY(arena, int64_t, (size_t)io->rank + 1);
    uint64_t fixed = 1;
    int variable = -1;

    if (!shape) {
        return MR_ARENA_FAIL(err);
    }
    shape[0] = 1;
    for (int i = 0; i < io->rank; i++) {
        shape[i + lead] = io->dims[i];
        if (io->dims[i] >= 0) {
            fixed *= (uint64_t)io->dims[i];
        } else if (variable >= 0) {
            return MR_FAIL(err, MR_E_INVALID,
                           "The shape of the raw input '%.*s' can not be deduced because there are "
                           "more than one variable-sized dimension",
                           MR_STR_ARG(io->name));
        } else {
            variable = i + lead;
        }
    }
    *out_shape = shape;
    *out_fixed = fixed;
    *out_variable = variable;
    return MR_OK;
}

int mr_wire_complete_raw(struct mr_oip_request *q, const struct mr_version *v,
                         struct mr_arena *arena, struct mr_err *err)
{
    const struct mr_model_io *io = &v->inputs[0];
    const int lead = v->max_batch_size > 0 ? 1 : 0;
    struct mr_oip_tensor *in = &q->inputs[0];
    struct mr_tensor *t = &in->tensor;
    int64_t *shape = NULL;
    uint64_t fixed = 1;
    int variable = -1;

    if (v->input_count != 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "Raw request must only have 1 input (found %u) to be deduced but got %u "
                       "inputs in '%.*s' model configuration",
                       1u, v->input_count, MR_STR_ARG(v->model_name));
    }
    int rc = raw_shape(io, lead, arena, &shape, &fixed, &variable, err);
    if (rc < 0) {
        return rc;
    }
    in->name = io->name;
    t->dtype = io->dtype;
    t->rank = io->rank + lead;
    t->shape = shape;
    if (io->dtype == MR_DTYPE_BYTES) {
        if (fixed != 1) {
            return MR_FAIL(
                err, MR_E_INVALID,
                "For BYTE datatype raw input '%.*s', the model must have input shape [1]",
                MR_STR_ARG(io->name));
        }
        if (variable >= 0) {
            shape[variable] = 1;
        }
        return mr_wire_element(t, arena, err);
    }
    const uint64_t unit = fixed * mr_dtype_size(io->dtype);
    if (variable >= 0) {
        shape[variable] = unit ? (int64_t)(t->bytes / unit) : 0;
    }
    return mr_oip_tensor_align(in, arena, err);
}

/* ---- responses ---- */

static bool param_read(const struct mr_setting *s, uint8_t kind, struct mr_oip_param *out)
{
    const mr_str text = mr_str_c(s->value);
    struct mr_json j;

    *out = (struct mr_oip_param){.key = mr_str_c(s->key), .kind = MR_OIP_STRING, .s = text};
    if (kind == MR_PARAMETER_BOOL) {
        out->kind = MR_OIP_BOOL;
        out->b = mr_str_eq_c(text, "true");
    } else if (kind == MR_PARAMETER_INT) {
        out->kind = MR_OIP_INT;
        return mr_str_to_i64(text, &out->i);
    } else if (kind == MR_PARAMETER_DOUBLE) {
        out->kind = MR_OIP_DOUBLE;
        mr_json_init(&j, text, NULL, 0, NULL);
        return mr_json_double(&j, &out->d) == MR_OK && mr_json_finish(&j) == MR_OK;
    }
    return true;
}

int mr_wire_answer_params(const struct mr_answer_parameters *p, struct mr_arena *arena,
                          size_t spare, struct mr_oip_param **out, size_t *out_count,
                          struct mr_err *err)
{
    struct mr_oip_param *list = MR_ARENA_ARRAY(arena, struct mr_oip_param, p->count + spare);

    if (!list) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "the answer needs more memory than a request may use");
    }
    for (uint32_t i = 0; i < p->count; i++) {
        if (!param_read(&p->list[i], p->kinds ? p->kinds[i] : MR_PARAMETER_TEXT, &list[i])) {
            return MR_FAIL(err, MR_E_INTERNAL,
                           "parameter '%.100s' of the model's answer is no number of its type",
                           p->list[i].key);
        }
    }
    *out = list;
    *out_count = p->count;
    return MR_OK;
}

int mr_wire_response(const struct mr_infer *r, const struct mr_oip_request *q,
                     struct mr_oip_response *out, struct mr_err *err)
{
    const struct mr_version *v = r->version;
    const size_t count = q->output_count ? q->output_count : v->output_count;
    struct mr_oip_tensor *t = MR_ARENA_ARRAY(r->arena, struct mr_oip_tensor, count);

    if (!t) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "the answer needs more memory than a request may use");
    }
    static const struct mr_oip_param numpy = {
        .key = MR_STR_INIT("content_type"), .kind = MR_OIP_STRING, .s = MR_STR_INIT("np")};
    for (size_t k = 0; k < count; k++) {
        const struct mr_oip_requested_output *asked = q->output_count ? &q->outputs[k] : NULL;
        uint32_t i = 0;
        while (asked ? i < v->output_count && !mr_str_eq(v->outputs[i].name, asked->name) : i < k) {
            i++;
        }
        const struct mr_exec_output *o = mr_infer_output(r, i);
        t[k] = (struct mr_oip_tensor){.name = v->outputs[i].name,
                                      .tensor = o->tensor,
                                      .block = o->block,
                                      .labels = v->outputs[i].labels,
                                      .label_count = v->outputs[i].label_count,
                                      .batched = v->max_batch_size > 0};
        t[k].binary = asked && asked->binary_data >= 0 ? asked->binary_data
                                                       : q->binary_data_output || q->raw_binary;
        t[k].classification = asked ? asked->classification : 0;
        t[k].params = v->reads_matrix ? &numpy : NULL;
        t[k].param_count = v->reads_matrix;
    }
    *out = (struct mr_oip_response){.model_name = v->model_name,
                                    .model_version = v->label.ptr ? v->label : v->number_text,
                                    .id = q->id,
                                    .outputs = t,
                                    .output_count = count};
    return MR_OK;
}

/* ---- recorded requests ---- */

static int encode_record(const struct mr_infer_args *args, struct mr_arena *arena,
                         struct mr_buf *buf, struct mr_oip_encoded *out, struct mr_err *err)
{
    struct mr_oip_request q = {.model_name = args->model, .input_count = args->input_count};

    q.inputs = MR_ARENA_ARRAY(arena, struct mr_oip_tensor, args->input_count + 1);
    if (!q.inputs) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory to record a request");
    }
    for (size_t i = 0; i < args->input_count; i++) {
        q.inputs[i].name = mr_infer_input_name(args, i);
        q.inputs[i].tensor = *mr_infer_input_tensor(args, i);
    }
    return mr_oip_pb_encode_request(&q, buf, arena, out, err);
}

static int record_write(const struct mr_infer_args *args, uint64_t max_bytes, struct mr_block **out,
                        uint64_t *out_bytes, struct mr_err *err)
{
    struct mr_block *block = NULL;
    struct mr_oip_encoded e;
    struct mr_arena arena;
    struct mr_buf buf;
    uint8_t *to;
    int rc;

    mr_arena_init(&arena, 0, 4u << 20);
    mr_buf_init(&buf, 4u << 20);
    MR_TRY(encode_record(args, &arena, &buf, &e, err));
    if (e.bytes > max_bytes) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "a request of more than %llu MiB is not recorded",
                     (unsigned long long)(max_bytes >> 20));
        goto out;
    }
    block = mr_block_new(MR_MAX(e.bytes, 1));
    if (!block) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory to record a request");
        goto out;
    }
    to = block->data;
    for (size_t i = 0; i < e.piece_count; i++) {
        memcpy(to, e.pieces[i].ptr, e.pieces[i].len);
        to += e.pieces[i].len;
    }
    *out = block;
    *out_bytes = e.bytes;
out:
    mr_buf_fini(&buf);
    mr_arena_fini(&arena);
    return rc;
}

static int record_read(mr_bytes record, struct mr_arena *arena, struct mr_infer_args *out,
                       struct mr_err *err)
{
    const struct mr_oip_limits limits = {.max_json_bytes = MR_RECORD_BYTES_MAX};
    struct mr_oip_request *q = MR_ARENA_NEW(arena, struct mr_oip_request);
    int rc;

    if (!q) {
        return MR_ARENA_FAIL(err);
    }
    MR_TRY(mr_oip_pb_decode_request(record, &limits, arena, q, err));
    for (size_t i = 0; i < q->input_count; i++) {
        if (q->inputs[i].shm.region.ptr) {
            rc = MR_FAIL(err, MR_E_INVALID, "refers to shared memory");
            goto out;
        }
    }
    rc = mr_wire_args(q, arena, out, err);
out:
    return rc;
}

const struct mr_record_format mr_wire_records = {record_write, record_read};
