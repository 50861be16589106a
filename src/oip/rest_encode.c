/* REST messages out: responses (server) and requests (client).
 *
 * The JSON is written front to back into the buffer, binary tensors follow it. Where binary tensors
 * follow, blanks pad the JSON to a multiple of eight bytes: a receiver of the body in one piece can
 * then use the first tensor, and most often the others, in place. Any thread. */
#include <math.h>

#include "codec/json.h"
#include "oip_priv.h"

/* An all-zero mr_str is an empty string to our callers. */
static void string_write(struct mr_buf *b, mr_str s)
{
    mr_json_put_string(b, s.ptr ? s : MR_STR(""));
}

/* "2" becomes "2.0", or its reader would take it for an integer. */
static void double_write(struct mr_buf *b, double d)
{
    const size_t begin = b->len;

    mr_json_put_double(b, d);
    if (!b->failed && isfinite(d) && !memchr(b->ptr + begin, '.', b->len - begin) &&
        !memchr(b->ptr + begin, 'e', b->len - begin)) {
        MR_BUF_LIT(b, ".0");
    }
}

void mr_oip_rest_param(struct mr_buf *b, const struct mr_oip_param *p)
{
    string_write(b, p->key);
    mr_buf_char(b, ':');
    switch (p->kind) {
    case MR_OIP_BOOL: mr_buf_c(b, p->b ? "true" : "false"); break;
    case MR_OIP_INT: mr_buf_i64(b, p->i); break;
    case MR_OIP_UINT: mr_buf_u64(b, p->u); break;
    case MR_OIP_DOUBLE: double_write(b, p->d); break;
    case MR_OIP_STRING: string_write(b, p->s); break;
    }
}

/* An object whose braces appear with its first member, so that an empty one is not written at all. */
struct members {
    struct mr_buf *b;
    const char *open;
    bool is_open;
};

static void member_next(struct members *m)
{
    if (m->is_open) {
        mr_buf_char(m->b, ',');
    } else {
        mr_buf_c(m->b, m->open);
        m->is_open = true;
    }
}

static void member_u64(struct members *m, const char *quoted_key, uint64_t v)
{
    member_next(m);
    mr_buf_c(m->b, quoted_key);
    mr_buf_u64(m->b, v);
}

static void member_true(struct members *m, const char *quoted_key)
{
    member_next(m);
    mr_buf_c(m->b, quoted_key);
    MR_BUF_LIT(m->b, "true");
}

static void member_str(struct members *m, const char *quoted_key, mr_str v)
{
    member_next(m);
    mr_buf_c(m->b, quoted_key);
    string_write(m->b, v);
}

static void members_params(struct members *m, const struct mr_oip_param *params, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        member_next(m);
        mr_oip_rest_param(m->b, &params[i]);
    }
}

static void members_shm(struct members *m, const struct mr_oip_shm *shm)
{
    if (!shm->region.ptr) {
        return;
    }
    member_str(m, "\"shared_memory_region\":", shm->region);
    if (shm->offset != 0) {
        member_u64(m, "\"shared_memory_offset\":", shm->offset);
    }
    member_u64(m, "\"shared_memory_byte_size\":", shm->byte_size);
}

static void members_close(struct members *m)
{
    if (m->is_open) {
        mr_buf_char(m->b, '}');
    }
}

/* Whether JSON can hold the elements; those of BYTES have to be UTF-8. */
static bool is_text(const struct mr_tensor *t)
{
    mr_bytes rest = {t->data, (size_t)t->bytes};
    mr_str element;

    while (t->dtype == MR_DTYPE_BYTES && mr_bytes_tensor_next(&rest, &element)) {
        if (!mr_utf8_valid(element)) {
            return false;
        }
    }
    return true;
}

/* Sets which tensors follow the JSON: of a request also those that it cannot hold. */
static void binary_choose(const struct mr_oip_tensor *tensors, struct mr_oip_view *views,
                          size_t count, bool is_request)
{
    for (size_t i = 0; i < count; i++) {
        const struct mr_oip_tensor *t = &tensors[i];
        views[i].is_binary =
            !t->shm.region.ptr && (t->binary || (is_request && !is_text(&views[i].tensor)));
    }
}

static void shape_write(struct mr_buf *b, const struct mr_tensor *t)
{
    MR_BUF_LIT(b, ",\"shape\":[");
    for (int32_t i = 0; i < t->rank; i++) {
        if (i > 0) {
            mr_buf_char(b, ',');
        }
        mr_buf_i64(b, t->shape[i]);
    }
    mr_buf_char(b, ']');
}

static void tensor_write(struct mr_oip_out *o, const struct mr_oip_tensor *t,
                         const struct mr_oip_view *view)
{
    struct mr_buf *b = o->buf;
    MR_BUF_LIT(b, "{\"name\":");
    string_write(b, t->name);
    MR_BUF_LIT(b, ",\"datatype\":\"");
    mr_buf_c(b, mr_dtype_name(view->tensor.dtype));
    mr_buf_char(b, '"');
    shape_write(b, &view->tensor);
    struct members params = {b, ",\"parameters\":{", false};
    members_params(&params, t->params, t->param_count);
    members_shm(&params, &t->shm);
    if (view->is_binary) {
        member_u64(&params, "\"binary_data_size\":", view->tensor.bytes);
    }
    members_close(&params);
    if (!view->is_binary && !t->shm.region.ptr) {
        MR_BUF_LIT(b, ",\"data\":[");
        mr_oip_text_elements(o, &view->tensor, view->elements);
        mr_buf_char(b, ']');
    }
    mr_buf_char(b, '}');
}

/* The array of tensors; true if any of them is to follow the JSON. */
static bool tensors_write(struct mr_oip_out *o, const char *open,
                          const struct mr_oip_tensor *tensors, const struct mr_oip_view *views,
                          size_t count)
{
    struct mr_buf *b = o->buf;
    bool any = false;
    mr_buf_c(b, open);
    for (size_t i = 0; i < count; i++) {
        if (i > 0) {
            mr_buf_char(b, ',');
        }
        tensor_write(o, &tensors[i], &views[i]);
        any |= views[i].is_binary;
    }
    mr_buf_char(b, ']');
    return any;
}

/* Ends the JSON and appends the binary tensors. */
static int body_finish(struct mr_oip_out *o, const struct mr_oip_view *views, size_t count,
                       bool has_binary, struct mr_oip_encoded *out, struct mr_err *err)
{
    mr_buf_char(o->buf, '}');
    int64_t header_length = -1;
    if (has_binary) {
        while ((o->spilt + o->buf->len) % 8 != 0 && !o->buf->failed) {
            mr_buf_char(o->buf, ' ');
        }
        header_length = (int64_t)(o->spilt + o->buf->len);
        for (size_t i = 0; i < count; i++) {
            if (views[i].is_binary) {
                mr_oip_out_data(o, views[i].tensor.data, views[i].tensor.bytes, views[i].block);
            }
        }
    }
    int rc = mr_oip_out_finish(o, out, err);
    if (rc == MR_OK) {
        out->header_length = header_length;
    }
    return rc;
}

int mr_oip_rest_encode_response(const struct mr_oip_response *r, struct mr_buf *buf,
                                struct mr_arena *arena, struct mr_oip_encoded *out,
                                struct mr_err *err)
{
    struct mr_oip_view *views;
    int rc = mr_oip_views_new(r->outputs, r->output_count, "output", arena, &views, err);
    if (rc < 0) {
        return rc;
    }
    binary_choose(r->outputs, views, r->output_count, false);
    struct mr_oip_out o;
    mr_oip_out_init(&o, buf, arena, r->output_count);
    o.may_spill = true;
    if (r->id.len > 0) {
        MR_BUF_LIT(buf, "{\"id\":");
        string_write(buf, r->id);
        MR_BUF_LIT(buf, ",\"model_name\":");
    } else {
        MR_BUF_LIT(buf, "{\"model_name\":");
    }
    string_write(buf, r->model_name);
    MR_BUF_LIT(buf, ",\"model_version\":");
    string_write(buf, r->model_version);
    struct members params = {buf, ",\"parameters\":{", false};
    members_params(&params, r->params, r->param_count);
    members_close(&params);
    bool has_binary = tensors_write(&o, ",\"outputs\":[", r->outputs, views, r->output_count);
    return body_finish(&o, views, r->output_count, has_binary, out, err);
}

static void request_params_write(struct mr_buf *b, const struct mr_oip_request *r)
{
    struct members m = {b, "\"parameters\":{", false};
    if (r->has_sequence_id && r->sequence_id_str.ptr) {
        member_str(&m, "\"sequence_id\":", r->sequence_id_str);
    } else if (r->has_sequence_id) {
        member_u64(&m, "\"sequence_id\":", r->sequence_id);
    }
    if (r->sequence_start) {
        member_true(&m, "\"sequence_start\":");
    }
    if (r->sequence_end) {
        member_true(&m, "\"sequence_end\":");
    }
    if (r->priority != 0) {
        member_u64(&m, "\"priority\":", r->priority);
    }
    if (r->timeout_us != 0) {
        member_u64(&m, "\"timeout\":", r->timeout_us);
    }
    if (r->binary_data_output) {
        member_true(&m, "\"binary_data_output\":");
    }
    members_params(&m, r->params, r->param_count);
    members_close(&m);
    if (m.is_open) {
        mr_buf_char(b, ',');
    }
}

static void requested_write(struct mr_buf *b, const struct mr_oip_requested_output *q)
{
    MR_BUF_LIT(b, "{\"name\":");
    string_write(b, q->name);
    struct members m = {b, ",\"parameters\":{", false};
    if (q->classification > 0) {
        member_u64(&m, "\"classification\":", (uint64_t)q->classification);
    }
    if (q->binary_data >= 0 && !q->shm.region.ptr) {
        member_next(&m);
        mr_buf_c(b, q->binary_data ? "\"binary_data\":true" : "\"binary_data\":false");
    }
    members_shm(&m, &q->shm);
    members_params(&m, q->params, q->param_count);
    members_close(&m);
    mr_buf_char(b, '}');
}

static int raw_encode(const struct mr_oip_request *r, struct mr_buf *buf, struct mr_arena *arena,
                      struct mr_oip_encoded *out, struct mr_err *err)
{
    if (r->input_count != 1) {
        return MR_FAIL(err, MR_E_INVALID, "a raw binary request has one input, not %zu",
                       r->input_count);
    }
    struct mr_oip_out o;
    mr_oip_out_init(&o, buf, arena, 1);
    mr_oip_out_data(&o, r->inputs[0].tensor.data, r->inputs[0].tensor.bytes, r->inputs[0].block);
    int rc = mr_oip_out_finish(&o, out, err);
    if (rc == MR_OK) {
        out->header_length = 0;
    }
    return rc;
}

int mr_oip_rest_encode_request(const struct mr_oip_request *r, struct mr_buf *buf,
                               struct mr_arena *arena, struct mr_oip_encoded *out,
                               struct mr_err *err)
{
    if (r->raw_binary) {
        return raw_encode(r, buf, arena, out, err);
    }
    struct mr_oip_view *views;
    int rc = mr_oip_views_new(r->inputs, r->input_count, "input", arena, &views, err);
    if (rc < 0) {
        return rc;
    }
    binary_choose(r->inputs, views, r->input_count, true);
    struct mr_oip_out o;
    mr_oip_out_init(&o, buf, arena, r->input_count);
    o.may_spill = r->may_spill;
    mr_buf_char(buf, '{');
    if (r->id.len > 0) {
        MR_BUF_LIT(buf, "\"id\":");
        string_write(buf, r->id);
        mr_buf_char(buf, ',');
    }
    request_params_write(buf, r);
    bool has_binary = tensors_write(&o, "\"inputs\":[", r->inputs, views, r->input_count);
    for (size_t i = 0; i < r->output_count; i++) {
        mr_buf_c(buf, i == 0 ? ",\"outputs\":[" : ",");
        requested_write(buf, &r->outputs[i]);
    }
    if (r->output_count > 0) {
        mr_buf_char(buf, ']');
    }
    return body_finish(&o, views, r->input_count, has_binary, out, err);
}

void mr_oip_rest_error(struct mr_buf *buf, mr_str message)
{
    MR_BUF_LIT(buf, "{\"error\":");
    string_write(buf, message);
    mr_buf_char(buf, '}');
}
