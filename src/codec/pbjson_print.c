/* A message as JSON with the names of the proto file. Where the official mapping and Triton's
 * config endpoint differ, Triton is followed: snake_case names, 64-bit integers as numbers. */
#include "codec/pbtext.h"

#include <math.h>

#include "codec/json.h"
#include "pbmsg.h"

struct printer {
    struct mr_buf *out;
    bool with_defaults;
};

static void print_message(struct printer *p, const ProtobufCMessage *m, int depth);

/* NaN and the infinities are strings here, so that the document is JSON for every reader. */
static void print_float(struct printer *p, ProtobufCType type, const void *value)
{
    float f = 0;
    double d;
    if (type == PROTOBUF_C_TYPE_FLOAT) {
        memcpy(&f, value, sizeof f);
        d = (double)f;
    } else {
        memcpy(&d, value, sizeof d);
    }
    const char *quote = isfinite(d) ? "" : "\"";
    mr_buf_c(p->out, quote);
    if (type == PROTOBUF_C_TYPE_FLOAT) {
        mr_json_put_float(p->out, f);
    } else {
        mr_json_put_double(p->out, d);
    }
    mr_buf_c(p->out, quote);
}

static void print_enum(struct printer *p, const ProtobufCEnumDescriptor *desc, const void *value)
{
    int number = (int)mr_pbmsg_signed(PROTOBUF_C_TYPE_ENUM, value);
    const ProtobufCEnumValue *known = protobuf_c_enum_descriptor_get_value(desc, number);
    if (known) {
        mr_json_put_string(p->out, mr_str_c(known->name));
    } else {
        mr_buf_i64(p->out, number);
    }
}

static void print_value(struct printer *p, const ProtobufCFieldDescriptor *field, const void *value,
                        int depth)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE: print_message(p, mr_pbmsg_message(value), depth + 1); break;
    case PROTOBUF_C_TYPE_STRING: mr_json_put_string(p->out, mr_pbmsg_string(value)); break;
    case PROTOBUF_C_TYPE_BYTES:
        mr_buf_char(p->out, '"');
        mr_base64_encode(mr_pbmsg_bytes(value), p->out);
        mr_buf_char(p->out, '"');
        break;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE: print_float(p, field->type, value); break;
    case PROTOBUF_C_TYPE_BOOL:
        mr_buf_c(p->out, *(const protobuf_c_boolean *)value ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_ENUM: print_enum(p, field->descriptor, value); break;
    default:
        if (mr_pbmsg_is_signed(field->type)) {
            mr_buf_i64(p->out, mr_pbmsg_signed(field->type, value));
        } else {
            mr_buf_u64(p->out, mr_pbmsg_unsigned(field->type, value));
        }
    }
}

static void print_map(struct printer *p, const char *values, size_t count, int depth)
{
    mr_buf_char(p->out, '{');
    for (size_t i = 0; i < count; i++) {
        const ProtobufCMessage *entry = mr_pbmsg_message(values + i * sizeof entry);
        const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
        const ProtobufCFieldDescriptor *value = &entry->descriptor->fields[1];
        const void *at;
        mr_buf_c(p->out, i ? "," : "");
        bool quote = key->type != PROTOBUF_C_TYPE_STRING;
        mr_buf_c(p->out, quote ? "\"" : "");
        mr_pbmsg_values(entry, key, &at);
        print_value(p, key, at, depth);
        mr_buf_c(p->out, quote ? "\":" : ":");
        mr_pbmsg_values(entry, value, &at);
        print_value(p, value, at, depth);
    }
    mr_buf_char(p->out, '}');
}

static void print_list(struct printer *p, const ProtobufCFieldDescriptor *field, const char *values,
                       size_t count, int depth)
{
    size_t size = mr_pbmsg_value_size(field->type);
    mr_buf_char(p->out, '[');
    for (size_t i = 0; i < count; i++) {
        mr_buf_c(p->out, i ? "," : "");
        print_value(p, field, values + i * size, depth);
    }
    mr_buf_char(p->out, ']');
}

static bool is_printed(const struct printer *p, const ProtobufCMessage *m,
                       const ProtobufCFieldDescriptor *field)
{
    if (!p->with_defaults) {
        return mr_pbmsg_is_set(m, field);
    }
    const void *first;
    return mr_pbmsg_is_list(field) || mr_pbmsg_values(m, field, &first) > 0;
}

/* m NULL: a map entry from the wire without value, which stands for an empty message. */
static void print_message(struct printer *p, const ProtobufCMessage *m, int depth)
{
    bool first_field = true;
    mr_buf_char(p->out, '{');
    for (unsigned i = 0; m && depth <= MR_PBMSG_DEPTH_MAX && i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        const void *first;
        if (!is_printed(p, m, field)) {
            continue;
        }
        mr_buf_c(p->out, first_field ? "" : ",");
        first_field = false;
        mr_json_put_string(p->out, mr_str_c(field->name));
        mr_buf_char(p->out, ':');
        size_t count = mr_pbmsg_values(m, field, &first);
        if (mr_pbmsg_is_map(field)) {
            print_map(p, first, count, depth);
        } else if (mr_pbmsg_is_list(field)) {
            print_list(p, field, first, count, depth);
        } else {
            print_value(p, field, first, depth);
        }
    }
    mr_buf_char(p->out, '}');
}

void mr_pbjson_print(const ProtobufCMessage *m, bool with_defaults, struct mr_buf *out)
{
    struct printer p = {.out = out, .with_defaults = with_defaults};
    print_message(&p, m, 0);
}
