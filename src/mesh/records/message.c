/* Messages between peers, as bytes and back. Pure. */
#include "message.h"

#include "codec/pb.h"

void mesh_message_put(struct mr_buf *b, const struct mesh_message *m)
{
    mr_pb_put_u64(b, 1, m->kind);
    mr_pb_put_u64(b, 2, m->seq);
    mr_pb_put_str(b, 3, m->model);
    mr_pb_put_u64(b, 4, m->purpose);
    mr_pb_put_u64(b, 5, m->copies);
    for (size_t i = 0; i < m->exclude_count; i++) {
        mr_pb_put_str(b, 6, m->exclude[i]);
    }
    mr_pb_put_str(b, 7, m->instance);
    mr_pb_put_u64(b, 8, (uint64_t)-m->status);
    mr_pb_put_str(b, 9, mr_str_sub(m->text, 0, MESH_TEXT_MAX));
    mr_pb_put_u64(b, 10, m->in_flight);
    mr_pb_put_u64(b, 11, m->queued);
    mr_pb_put_u64(b, 12, m->age_s);
}

static uint32_t number_of(const struct mr_pb_field *f)
{
    return f->wire == MR_PB_VARINT ? (uint32_t)MR_MIN(f->value, UINT32_MAX) : 0;
}

static void set_field(struct mesh_message *m, const struct mr_pb_field *f)
{
    switch (f->number) {
    case 1: m->kind = (enum mesh_message_kind)number_of(f); break;
    case 2: m->seq = f->wire == MR_PB_VARINT ? f->value : 0; break;
    case 3: m->model = mr_pb_text(f); break;
    case 4: m->purpose = (enum mesh_purpose)MR_MIN(number_of(f), MESH_FOR_PRELOAD); break;
    case 5: m->copies = number_of(f); break;
    case 6:
        if (m->exclude_count < MESH_EXCLUDE_MAX) {
            m->exclude[m->exclude_count++] = mr_pb_text(f);
        }
        break;
    case 7: m->instance = mr_pb_text(f); break;
    case 8: m->status = -(int)MR_MIN(number_of(f), 1000); break;
    case 9: m->text = mr_pb_text(f); break;
    case 10: m->in_flight = number_of(f); break;
    case 11: m->queued = number_of(f); break;
    case 12: m->age_s = number_of(f); break;
    default: break;
    }
}

int mesh_message_get(struct mesh_message *out, mr_bytes bytes, struct mr_err *err)
{
    struct mesh_message m = {0};
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&bytes, &f)) > 0) {
        set_field(&m, &f);
    }
    bool has_model =
        m.kind == MESH_MSG_PLACE || m.kind == MESH_MSG_PLACED || m.kind == MESH_MSG_LOAD;
    if (rc < 0 || m.kind < MESH_MSG_PING || m.kind > MESH_MSG_STATE ||
        (has_model && mesh_id_check(m.model, NULL) < 0) || m.text.len > MESH_TEXT_MAX ||
        !mr_utf8_valid(m.text)) {
        return MR_FAIL(err, MR_E_INVALID, "a message of a peer cannot be read");
    }
    *out = m;
    return MR_OK;
}
