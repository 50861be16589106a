/* The protobuf wire reader on any bytes, descending into every payload. What is read and written
 * again means the same, and messages that protobuf-c accepts are fields for this reader, too. */
#include "fuzz.h"

#include "codec/pb.h"
#include "inference.pb-c.h"

static void copy_field(const struct mr_pb_field *f, struct mr_buf *out)
{
    char raw[8];
    mr_pb_put_tag(out, f->number, f->wire);
    switch (f->wire) {
    case MR_PB_VARINT: mr_pb_put_varint(out, f->value); break;
    case MR_PB_LEN:
        mr_pb_put_varint(out, f->bytes.len);
        mr_buf_append(out, f->bytes.ptr, f->bytes.len);
        break;
    default:
        for (int i = 0; i < 8; i++) {
            raw[i] = (char)(f->value >> (8 * i));
        }
        mr_buf_append(out, raw, f->wire == MR_PB_I64 ? 8 : 4);
    }
}

/* Reads all fields, writing them to `out`; false if the bytes are not protobuf. */
static bool read_all(mr_bytes in, struct mr_buf *out, int depth)
{
    struct mr_pb_field f;
    int rc;
    while ((rc = mr_pb_next(&in, &f)) > 0) {
        REQUIRE(f.number > 0 && f.number < 1u << 29);
        copy_field(&f, out);
        if (f.wire == MR_PB_LEN && depth < 8) {
            struct mr_buf inner;
            mr_buf_init(&inner, 0);
            read_all(f.bytes, &inner, depth + 1);
            mr_buf_fini(&inner);
        }
    }
    REQUIRE(rc == 0 ? in.len == 0 : in.len > 0);
    return rc == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_buf once, twice;
    mr_bytes in = {data, size};
    uint64_t varint;
    mr_buf_init(&once, 0);
    mr_buf_init(&twice, 0);
    bool ok = read_all(in, &once, 0);
    if (ok) {
        mr_bytes again = {(const uint8_t *)once.ptr, once.len};
        REQUIRE(once.len <= size);
        REQUIRE(read_all(again, &twice, 0));
        REQUIRE(mr_str_eq(mr_buf_view(&once), mr_buf_view(&twice)));
    }
    mr_pb_varint(&in, &varint);
    Inference__ModelInferRequest *m = inference__model_infer_request__unpack(NULL, size, data);
    /* protobuf-c keeps unknown fields, even with numbers beyond the largest that there may be. */
    if (m && m->base.n_unknown_fields == 0) {
        mr_buf_reset(&once);
        size_t len = inference__model_infer_request__get_packed_size(m);
        char *to = mr_buf_reserve(&once, len + 1);
        if (to) {
            inference__model_infer_request__pack(m, (uint8_t *)to);
            mr_buf_reset(&twice);
            REQUIRE(read_all((mr_bytes){(const uint8_t *)to, len}, &twice, 0));
        }
    }
    inference__model_infer_request__free_unpacked(m, NULL);
    mr_buf_fini(&once);
    mr_buf_fini(&twice);
    return 0;
}
