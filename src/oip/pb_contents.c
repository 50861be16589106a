/* Typed tensor contents (InferTensorContents): one repeated field per group of data types.
 *
 * Elements may come packed or one by one, and the message itself may come in parts; protobuf adds them
 * up. So the parts are walked twice: once to count, when the shape is held against what is there, and
 * once to store. One packed run of floats is used where it lies, if it is aligned. Any thread. */
#include "pb_read.h"

#define STEP_BYTES ((size_t)16 * 1024) /* read between calls of mr_turn_spend */

/* The field of InferTensorContents that holds each data type, and what it is made of. */
enum element_form { FORM_NONE, FORM_VARINT, FORM_FIXED, FORM_BYTES };
struct content_field {
    uint32_t number;
    enum element_form form;
};

static const struct content_field fields[MR_DTYPE_COUNT] = {
    [MR_DTYPE_BOOL] = {1, FORM_VARINT},   [MR_DTYPE_INT8] = {2, FORM_VARINT},
    [MR_DTYPE_INT16] = {2, FORM_VARINT},  [MR_DTYPE_INT32] = {2, FORM_VARINT},
    [MR_DTYPE_INT64] = {3, FORM_VARINT},  [MR_DTYPE_UINT8] = {4, FORM_VARINT},
    [MR_DTYPE_UINT16] = {4, FORM_VARINT}, [MR_DTYPE_UINT32] = {4, FORM_VARINT},
    [MR_DTYPE_UINT64] = {5, FORM_VARINT}, [MR_DTYPE_FP32] = {6, FORM_FIXED},
    [MR_DTYPE_FP64] = {7, FORM_FIXED},    [MR_DTYPE_BYTES] = {8, FORM_BYTES},
};

/* The type that a foreign field is named by in the error. */
static const int field_dtypes[] = {
    MR_DTYPE_INVALID, MR_DTYPE_BOOL, MR_DTYPE_INT32, MR_DTYPE_INT64, MR_DTYPE_UINT32,
    MR_DTYPE_UINT64,  MR_DTYPE_FP32, MR_DTYPE_FP64,  MR_DTYPE_BYTES,
};
#define CONTENT_FIELDS 9

/* Walks the elements' fields through all parts of the contents. */
struct walk {
    mr_bytes message; /* of the tensor, not yet read */
    mr_bytes part;    /* of the contents */
};

/* 1 = a field of the contents, 0 = no more, negative = broken. */
static int walk_next(struct walk *w, struct mr_pb_field *out)
{
    for (;;) {
        int rc = mr_pb_next(&w->part, out);
        if (rc != 0) {
            return rc;
        }
        struct mr_pb_field f;
        do {
            rc = mr_pb_next(&w->message, &f);
            if (rc <= 0) {
                return rc;
            }
        } while (f.number != 5 || f.wire != MR_PB_LEN);
        w->part = f.bytes;
    }
}

static uint64_t varints_count(mr_bytes packed)
{
    uint64_t n = 0;
    for (size_t begin = 0; begin < packed.len; begin += STEP_BYTES) {
        size_t end = MR_MIN(packed.len, begin + STEP_BYTES);
        for (size_t i = begin; i < end; i++) {
            n += packed.ptr[i] < 0x80;
        }
        if (!mr_turn_spend(STEP_BYTES)) {
            return n; /* what comes next asks again */
        }
    }
    return n;
}

struct content_count {
    uint64_t elements;
    uint64_t fields;
    uint64_t string_bytes;
    uint32_t foreign; /* number of a field that is not this type's, or 0 */
    mr_bytes last;
};

/* Size of one element of a FIXED form. */
static size_t fixed_size(int dtype)
{
    return mr_dtype_size(dtype);
}

static int field_count(int dtype, const struct mr_pb_field *f, struct content_count *c)
{
    enum element_form form = fields[dtype].form;
    enum mr_pb_wire single = form == FORM_VARINT      ? MR_PB_VARINT
                             : form == FORM_BYTES     ? MR_PB_LEN
                             : dtype == MR_DTYPE_FP64 ? MR_PB_I64
                                                      : MR_PB_I32;
    if (f->wire == single) {
        if (f->bytes.len > UINT32_MAX) {
            return MR_E_INVALID; /* has no length prefix */
        }
        c->elements++;
        c->string_bytes += f->bytes.len;
    } else if (f->wire != MR_PB_LEN) {
        return MR_OK; /* a wrong wire type makes an unknown field */
    } else if (form == FORM_VARINT) {
        c->elements += varints_count(f->bytes);
    } else if (f->bytes.len % fixed_size(dtype) != 0) {
        return MR_E_INVALID;
    } else {
        c->elements += f->bytes.len / fixed_size(dtype);
    }
    c->fields++;
    c->last = f->bytes;
    return MR_OK;
}

static int contents_count(struct mr_pb_reader *r, const struct mr_pb_tensor *from, int dtype,
                          struct content_count *c)
{
    struct walk w = {from->message, {NULL, 0}};
    struct mr_pb_field f;
    int rc;
    while ((rc = walk_next(&w, &f)) > 0) {
        if (f.number == fields[dtype].number) {
            if (field_count(dtype, &f, c) < 0) {
                return mr_pb_broken(r->err);
            }
        } else if (f.number < CONTENT_FIELDS && (f.wire != MR_PB_LEN || f.bytes.len > 0)) {
            c->foreign = f.number;
        }
    }
    return rc < 0 ? mr_pb_broken(r->err) : MR_OK;
}

/* Where the next element goes. */
struct store {
    struct mr_pb_reader *r;
    const struct mr_oip_tensor *t;
    char *to;
};

static int store_out_of_range(struct store *s, int64_t v)
{
    return MR_FAIL(s->r->err, MR_E_INVALID, "value %lld of %s tensor '%.*s' does not fit %s",
                   (long long)v, s->r->word, MR_STR_ARG(s->t->name),
                   mr_dtype_name(s->t->tensor.dtype));
}

/* int_contents and uint_contents have 32 bits on the wire, whatever the varint says. */
static int varint_store(struct store *s, uint64_t v)
{
    int64_t narrow = 0;
    int dtype = s->t->tensor.dtype;
    size_t size = mr_dtype_size(dtype);
    switch (dtype) {
    case MR_DTYPE_BOOL: v = v != 0; break;
    case MR_DTYPE_INT8:
        narrow = (int32_t)(uint32_t)v;
        if (narrow < INT8_MIN || narrow > INT8_MAX) {
            return store_out_of_range(s, narrow);
        }
        break;
    case MR_DTYPE_INT16:
        narrow = (int32_t)(uint32_t)v;
        if (narrow < INT16_MIN || narrow > INT16_MAX) {
            return store_out_of_range(s, narrow);
        }
        break;
    case MR_DTYPE_UINT8:
    case MR_DTYPE_UINT16:
        narrow = (uint32_t)v;
        if (narrow > (dtype == MR_DTYPE_UINT8 ? UINT8_MAX : UINT16_MAX)) {
            return store_out_of_range(s, narrow);
        }
        break;
    default: break;
    }
    memcpy(s->to, &v, size); /* little-endian: the low bytes */
    s->to += size;
    return MR_OK;
}

static int packed_store(struct store *s, mr_bytes packed)
{
    const uint8_t *spend_at = packed.ptr;
    while (packed.len > 0) {
        if (packed.ptr >= spend_at) {
            spend_at = packed.ptr + MR_MIN(STEP_BYTES / 4, packed.len);
            if (!mr_turn_spend(STEP_BYTES)) {
                return mr_oip_ended(s->r->err);
            }
        }
        uint64_t v = packed.ptr[0];
        if (v < 0x80) {
            packed.ptr++;
            packed.len--;
        } else if (!mr_pb_varint(&packed, &v)) {
            return mr_pb_broken(s->r->err);
        }
        int rc = varint_store(s, v);
        if (rc < 0) {
            return rc;
        }
    }
    return MR_OK;
}

static int field_store(struct store *s, const struct mr_pb_field *f)
{
    int dtype = s->t->tensor.dtype;
    size_t size = mr_dtype_size(dtype);
    switch (fields[dtype].form) {
    case FORM_VARINT:
        if (f->wire == MR_PB_VARINT) {
            return varint_store(s, f->value);
        }
        return f->wire == MR_PB_LEN ? packed_store(s, f->bytes) : MR_OK;
    case FORM_FIXED:
        if (f->wire == MR_PB_LEN) {
            if (!mr_turn_copy(s->to, f->bytes.ptr, f->bytes.len)) {
                return mr_oip_ended(s->r->err);
            }
            s->to += f->bytes.len;
        } else if (f->wire == (size == 8 ? MR_PB_I64 : MR_PB_I32)) {
            memcpy(s->to, &f->value, size);
            s->to += size;
        }
        return MR_OK;
    case FORM_BYTES:
        if (f->wire == MR_PB_LEN) {
            uint32_t len = (uint32_t)f->bytes.len;
            memcpy(s->to, &len, 4);
            if (!mr_turn_copy(s->to + 4, f->bytes.ptr, len)) {
                return mr_oip_ended(s->r->err);
            }
            s->to += 4 + (size_t)len;
        }
        return MR_OK;
    default: return MR_OK;
    }
}

static int contents_store(struct mr_pb_reader *r, const struct mr_pb_tensor *from,
                          struct mr_oip_tensor *t)
{
    struct store s = {r, t, t->tensor.data};
    struct walk w = {from->message, {NULL, 0}};
    struct mr_pb_field f;
    int rc;
    while ((rc = walk_next(&w, &f)) > 0) {
        if (f.number != fields[t->tensor.dtype].number) {
            continue;
        }
        rc = field_store(&s, &f);
        if (rc < 0) {
            return rc;
        }
    }
    return rc < 0 ? mr_pb_broken(r->err) : MR_OK;
}

/* The counted elements against the type and the shape. */
static int count_check(struct mr_pb_reader *r, const struct content_count *c, uint64_t elements,
                       const struct mr_oip_tensor *t)
{
    int dtype = t->tensor.dtype;
    if (c->foreign || (fields[dtype].form == FORM_NONE && elements > 0)) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "unexpected explicit tensor data for %s tensor '%.*s' for model '%.*s' of type '%s', "
            "expected datatype '%s'",
            r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model),
            mr_dtype_name(c->foreign ? field_dtypes[c->foreign] : MR_DTYPE_INVALID),
            mr_dtype_name(dtype));
    }
    if (c->elements == elements) {
        return MR_OK;
    }
    if (dtype == MR_DTYPE_BYTES && c->elements > elements) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "unexpected number of string elements %llu for inference %s '%.*s' for model '%.*s', "
            "expecting %llu",
            (unsigned long long)elements + 1, r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model),
            (unsigned long long)elements);
    }
    if (dtype == MR_DTYPE_BYTES) {
        return MR_FAIL(
            r->err, MR_E_INVALID,
            "expected %llu string elements for inference %s '%.*s' for model '%.*s', got %llu",
            (unsigned long long)elements, r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model),
            (unsigned long long)c->elements);
    }
    size_t size = mr_dtype_size(dtype);
    return MR_FAIL(
        r->err, MR_E_INVALID,
        "%s byte size mismatch for %s '%.*s' for model '%.*s'. Expected %llu, got %llu", r->word,
        r->word, MR_STR_ARG(t->name), MR_STR_ARG(r->model),
        (unsigned long long)(elements > UINT64_MAX / size ? UINT64_MAX : elements * size),
        (unsigned long long)(c->elements * size));
}

int mr_pb_contents(struct mr_pb_reader *r, const struct mr_pb_tensor *from, struct mr_oip_tensor *t)
{
    int dtype = t->tensor.dtype;
    struct content_count c = {0};
    int rc = contents_count(r, from, dtype, &c);
    if (rc == MR_OK) {
        rc = count_check(r, &c, from->elements, t);
    }
    if (rc < 0) {
        return rc;
    }
    /* The count is bounded by the message: no size below is larger than eight times its length. */
    size_t size = mr_dtype_size(dtype);
    if (fields[dtype].form == FORM_FIXED && c.fields == 1 && c.last.ptr) {
        return mr_oip_data_refer(r->arena, t, c.last, r->err);
    }
    uint64_t bytes = dtype == MR_DTYPE_BYTES ? c.string_bytes + 4 * c.elements : c.elements * size;
    rc = mr_oip_data_new(r->arena, t, bytes, r->err);
    if (rc == MR_OK && bytes > 0) {
        rc = contents_store(r, from, t);
    }
    return rc;
}
