/* A message as protobuf text format: set fields only, in the order of their numbers, lists of scalars in brackets,
 * maps and messages as blocks. mr_pbtext_parse reads it back to an equal message. */
#include "codec/pbtext.h"

#include <inttypes.h>
#include <math.h>

#include "codec/json.h"
#include "pbmsg.h"

static void put_indent(struct mr_buf *out, int depth)
{
    for (int i = 0; i < depth; i++) {
        MR_BUF_LIT(out, "  ");
    }
}

static void put_escaped_byte(struct mr_buf *out, unsigned char c)
{
    static const char names[] = "\"\\nrt";
    static const char values[] = "\"\\\n\r\t";
    const char *at = memchr(values, c, sizeof values - 1);
    if (at) {
        mr_buf_char(out, '\\');
        mr_buf_char(out, names[at - values]);
    } else {
        /* Three digits always: the next character may be one too. */
        mr_buf_printf(out, "\\%03o", c);
    }
}

/* keep_utf8: leave characters beyond ASCII as they are. */
static void put_quoted(struct mr_buf *out, mr_str s, bool keep_utf8)
{
    mr_buf_char(out, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        bool plain = c >= 0x80 ? keep_utf8 : c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
        if (plain) {
            mr_buf_char(out, (char)c);
        } else {
            put_escaped_byte(out, c);
        }
    }
    mr_buf_char(out, '"');
}

static void put_double(struct mr_buf *out, double v)
{
    if (isnan(v)) {
        MR_BUF_LIT(out, "nan");
    } else if (isinf(v)) {
        mr_buf_c(out, v < 0 ? "-inf" : "inf");
    } else {
        mr_json_put_double(out, v);
    }
}

static void put_float(struct mr_buf *out, const void *value)
{
    float v;
    memcpy(&v, value, sizeof v);
    if (isfinite(v)) {
        mr_json_put_float(out, v);
    } else {
        put_double(out, (double)v);
    }
}

static void put_enum(struct mr_buf *out, const ProtobufCEnumDescriptor *desc, const void *value)
{
    int number = (int)mr_pbmsg_signed(PROTOBUF_C_TYPE_ENUM, value);
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(desc, number);
    if (known) {
        mr_buf_c(out, known->name);
    } else {
        mr_buf_i64(out, number);
    }
}

static void put_scalar(struct mr_buf *out, const ProtobufCFieldDescriptor *field, const void *value)
{
    double d;
    mr_str s;
    mr_bytes b;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        s = mr_pbmsg_string(value);
        put_quoted(out, s, mr_utf8_valid(s));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        b = mr_pbmsg_bytes(value);
        put_quoted(out, mr_str_n((const char *)b.ptr, b.len), false);
        break;
    case PROTOBUF_C_TYPE_FLOAT: put_float(out, value); break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(&d, value, sizeof d);
        put_double(out, d);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        mr_buf_c(out, *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM: put_enum(out, field->descriptor, value); break;
    default:
        if (mr_pbmsg_is_signed(field->type)) {
            mr_buf_i64(out, mr_pbmsg_signed(field->type, value));
        } else {
            mr_buf_u64(out, mr_pbmsg_unsigned(field->type, value));
        }
    }
}

static void print_fields(const ProtobufCMessage *m, int depth, struct mr_buf *out);

static void print_messages(const ProtobufCFieldDescriptor *field, const char *values, size_t count,
                           int depth, struct mr_buf *out)
{
    for (size_t i = 0; i < count; i++) {
        const ProtobufCMessage *inner = mr_pbmsg_message(values + i * sizeof inner);
        put_indent(out, depth);
        mr_buf_c(out, field->name);
        MR_BUF_LIT(out, " {\n");
        if (inner) {
            print_fields(inner, depth + 1, out);
        }
        put_indent(out, depth);
        MR_BUF_LIT(out, "}\n");
    }
}

static void print_scalars(const ProtobufCFieldDescriptor *field, const char *values, size_t count,
                          int depth, struct mr_buf *out)
{
    size_t size = mr_pbmsg_value_size(field->type);
    bool is_list = mr_pbmsg_is_list(field);
    put_indent(out, depth);
    mr_buf_c(out, field->name);
    mr_buf_c(out, is_list ? ": [" : ": ");
    for (size_t i = 0; i < count; i++) {
        mr_buf_c(out, i ? ", " : "");
        put_scalar(out, field, values + i * size);
    }
    mr_buf_c(out, is_list ? "]\n" : "\n");
}

static void print_fields(const ProtobufCMessage *m, int depth, struct mr_buf *out)
{
    const ProtobufCMessageDescriptor *desc = m->descriptor;
    if (depth > MR_PBMSG_DEPTH_MAX) {
        return;
    }
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &desc->fields[i];
        const void *first;
        if (!mr_pbmsg_is_set(m, field)) {
            continue;
        }
        size_t count = mr_pbmsg_values(m, field, &first);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
            print_messages(field, first, count, depth, out);
        } else {
            print_scalars(field, first, count, depth, out);
        }
    }
}

void mr_pbtext_print(const ProtobufCMessage *m, struct mr_buf *out)
{
    print_fields(m, 0, out);
}
