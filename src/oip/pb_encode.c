/* Protobuf messages out: responses (server) and requests (client).
 *
 * Metadata first, then the tensors as raw contents. Small messages within messages are written first and
 * their length inserted, which moves a few bytes; a large tensor is never moved, only its tag and
 * length are written here. The frame that makes a response an element of a stream needs the length of
 * everything, so room for it is kept at the front of the buffer and it is written last. Any thread. */
#include "codec/pb.h"
#include "oip_priv.h"

#define FRAME_ROOM 16 /* a tag and a 64-bit varint */

static void param_write(struct mr_buf *b, uint32_t number, const struct mr_oip_param *p)
{
    size_t entry = mr_pb_begin(b, number);
    mr_pb_set_str(b, 1, p->key);
    size_t value = mr_pb_begin(b, 2);
    switch (p->kind) {
    case MR_OIP_BOOL: mr_pb_set_u64(b, 1, p->b); break;
    case MR_OIP_INT: mr_pb_set_i64(b, 2, p->i); break;
    case MR_OIP_STRING: mr_pb_set_str(b, 3, p->s); break;
    case MR_OIP_DOUBLE: mr_pb_set_double(b, 4, p->d); break;
    case MR_OIP_UINT: mr_pb_set_u64(b, 5, p->u); break;
    }
    mr_pb_end(b, value);
    mr_pb_end(b, entry);
}

static void params_write(struct mr_buf *b, uint32_t number, const struct mr_oip_param *params,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        param_write(b, number, &params[i]);
    }
}

static void int_write(struct mr_buf *b, uint32_t number, mr_str key, uint64_t v)
{
    struct mr_oip_param p = {.key = key, .kind = MR_OIP_INT, .i = (int64_t)v};
    param_write(b, number, &p);
}

static void true_write(struct mr_buf *b, uint32_t number, mr_str key)
{
    struct mr_oip_param p = {.key = key, .kind = MR_OIP_BOOL, .b = true};
    param_write(b, number, &p);
}

static void shm_write(struct mr_buf *b, uint32_t number, const struct mr_oip_shm *shm)
{
    if (!shm->region.ptr) {
        return;
    }
    struct mr_oip_param region = {
        .key = MR_STR("shared_memory_region"), .kind = MR_OIP_STRING, .s = shm->region};
    param_write(b, number, &region);
    if (shm->offset != 0) {
        int_write(b, number, MR_STR("shared_memory_offset"), shm->offset);
    }
    int_write(b, number, MR_STR("shared_memory_byte_size"), shm->byte_size);
}

/* InferInputTensor and InferOutputTensor are alike. */
static void tensor_write(struct mr_buf *b, const struct mr_oip_tensor *t,
                         const struct mr_tensor *sent)
{
    size_t mark = mr_pb_begin(b, 5);
    mr_pb_put_str(b, 1, t->name);
    mr_pb_put_str(b, 2, mr_str_c(mr_dtype_name(sent->dtype)));
    if (sent->rank > 0) {
        size_t dims = 0;
        for (int32_t i = 0; i < sent->rank; i++) {
            dims += mr_pb_varint_size((uint64_t)sent->shape[i]);
        }
        mr_pb_put_len(b, 3, dims);
        for (int32_t i = 0; i < sent->rank; i++) {
            mr_pb_put_varint(b, (uint64_t)sent->shape[i]);
        }
    }
    params_write(b, 4, t->params, t->param_count);
    shm_write(b, 4, &t->shm);
    mr_pb_end(b, mark);
}

/* Raw contents; for tensors in shared memory a response keeps an empty place, a request none. */
static void raw_write(struct mr_oip_out *o, uint32_t number, const struct mr_oip_tensor *tensors,
                      const struct mr_oip_view *views, size_t count, bool keeps_place)
{
    for (size_t i = 0; i < count; i++) {
        bool is_shm = tensors[i].shm.region.ptr != NULL;
        if (is_shm && !keeps_place) {
            continue;
        }
        uint64_t bytes = is_shm ? 0 : views[i].tensor.bytes;
        mr_pb_put_len(o->buf, number, (size_t)bytes);
        mr_oip_out_data(o, views[i].tensor.data, bytes, views[i].block);
    }
}

/* Write the tag and the length of the whole into the room before it. */
static void frame_write(struct mr_oip_out *o, uint32_t number)
{
    uint64_t length = 0;
    for (size_t i = 0; i < o->count; i++) {
        length += o->pieces[i].len;
    }
    length += o->buf->len - o->mark;
    char text[FRAME_ROOM];
    size_t n = 0;
    text[n++] = (char)(number << 3 | MR_PB_LEN);
    for (; length >= 0x80; length >>= 7) {
        text[n++] = (char)(length | 0x80);
    }
    text[n++] = (char)length;
    memcpy(o->buf->ptr + FRAME_ROOM - n, text, n);
    o->start = FRAME_ROOM - n;
    if (o->count > 0) {
        o->pieces[0].len += n; /* the first piece is buf's: metadata comes before any tensor */
    } else {
        o->mark -= n;
    }
}

int mr_oip_pb_encode_response(const struct mr_oip_response *r, bool wrap_stream, struct mr_buf *buf,
                              struct mr_arena *arena, struct mr_oip_encoded *out,
                              struct mr_err *err)
{
    struct mr_oip_view *views;
    int rc = mr_oip_views_new(r->outputs, r->output_count, "output", arena, &views, err);
    if (rc < 0) {
        return rc;
    }
    struct mr_oip_out o;
    mr_oip_out_init(&o, buf, arena, r->output_count);
    if (wrap_stream && mr_buf_reserve(buf, FRAME_ROOM)) {
        buf->len = FRAME_ROOM;
        o.mark = FRAME_ROOM;
    }
    mr_pb_put_str(buf, 1, r->model_name);
    mr_pb_put_str(buf, 2, r->model_version);
    mr_pb_put_str(buf, 3, r->id);
    params_write(buf, 4, r->params, r->param_count);
    for (size_t i = 0; i < r->output_count; i++) {
        tensor_write(buf, &r->outputs[i], &views[i].tensor);
    }
    raw_write(&o, 6, r->outputs, views, r->output_count, true);
    if (wrap_stream && !o.failure && !buf->failed) {
        frame_write(&o, 2);
    }
    rc = mr_oip_out_finish(&o, out, err);
    if (rc == MR_OK) {
        out->header_length = -1;
    }
    return rc;
}

void mr_oip_pb_encode_stream_error(mr_str message, const struct mr_oip_response *of,
                                   struct mr_buf *buf)
{
    mr_pb_put_str(buf, 1, message);
    if (of->model_name.len > 0 || of->id.len > 0 || of->param_count > 0) {
        const size_t mark = mr_pb_begin(buf, 2);
        mr_pb_put_str(buf, 1, of->model_name);
        mr_pb_put_str(buf, 2, of->model_version);
        mr_pb_put_str(buf, 3, of->id);
        params_write(buf, 4, of->params, of->param_count);
        mr_pb_end(buf, mark);
    }
}

static void request_params_write(struct mr_buf *b, const struct mr_oip_request *r)
{
    if (r->has_sequence_id) {
        struct mr_oip_param p = {.key = MR_STR("sequence_id"), .kind = MR_OIP_INT};
        if (r->sequence_id_str.ptr) {
            p.kind = MR_OIP_STRING;
            p.s = r->sequence_id_str;
        } else {
            p.i = (int64_t)r->sequence_id;
        }
        param_write(b, 4, &p);
    }
    if (r->sequence_start) {
        true_write(b, 4, MR_STR("sequence_start"));
    }
    if (r->sequence_end) {
        true_write(b, 4, MR_STR("sequence_end"));
    }
    if (r->priority > INT64_MAX) {
        struct mr_oip_param p = {.key = MR_STR("priority"), .kind = MR_OIP_UINT, .u = r->priority};
        param_write(b, 4, &p);
    } else if (r->priority != 0) {
        int_write(b, 4, MR_STR("priority"), r->priority); /* what older servers know */
    }
    if (r->timeout_us != 0) {
        int_write(b, 4, MR_STR("timeout"), MR_MIN(r->timeout_us, (uint64_t)INT64_MAX));
    }
    if (r->enable_empty_final_response) {
        true_write(b, 4, MR_STR("triton_enable_empty_final_response"));
    }
    params_write(b, 4, r->params, r->param_count);
}

static void requested_write(struct mr_buf *b, const struct mr_oip_requested_output *q)
{
    size_t mark = mr_pb_begin(b, 6);
    mr_pb_put_str(b, 1, q->name);
    if (q->classification > 0) {
        int_write(b, 2, MR_STR("classification"), (uint64_t)q->classification);
    }
    shm_write(b, 2, &q->shm);
    params_write(b, 2, q->params, q->param_count);
    mr_pb_end(b, mark);
}

int mr_oip_pb_encode_request(const struct mr_oip_request *r, struct mr_buf *buf,
                             struct mr_arena *arena, struct mr_oip_encoded *out, struct mr_err *err)
{
    struct mr_oip_view *views;
    int rc = mr_oip_views_new(r->inputs, r->input_count, "input", arena, &views, err);
    if (rc < 0) {
        return rc;
    }
    struct mr_oip_out o;
    mr_oip_out_init(&o, buf, arena, r->input_count);
    mr_pb_put_str(buf, 1, r->model_name);
    mr_pb_put_str(buf, 2, r->model_version);
    mr_pb_put_str(buf, 3, r->id);
    request_params_write(buf, r);
    for (size_t i = 0; i < r->input_count; i++) {
        tensor_write(buf, &r->inputs[i], &views[i].tensor);
    }
    for (size_t i = 0; i < r->output_count; i++) {
        requested_write(buf, &r->outputs[i]);
    }
    raw_write(&o, 7, r->inputs, views, r->input_count, false);
    rc = mr_oip_out_finish(&o, out, err);
    if (rc == MR_OK) {
        out->header_length = -1;
    }
    return rc;
}
