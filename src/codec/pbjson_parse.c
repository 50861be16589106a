/* A JSON object into a new message: proto3's JSON mapping, as far as the messages of proto/ need
 * it, with the forms that people write by hand: names in either spelling, enum names in any case,
 * integers as numbers or strings, a list of one without its brackets. Nesting is limited by the JSON
 * reader, recursion follows the nesting. */
#include "codec/pbtext.h"

#include <math.h>

#include "base/map.h"
#include "codec/json.h"
#include "pbmsg.h"

static int no_memory(struct mr_json *j)
{
    return mr_json_fail(j, MR_E_NOMEM, "no memory");
}

/* ---- names ---- */

/* "max_batch_size" as "maxBatchSize". */
static bool is_camel_of(const char *proto, mr_str name)
{
    size_t at = 0;
    for (; *proto; proto++) {
        char c = *proto;
        if (c == '_') {
            c = *++proto;
            c = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
            if (!c) {
                break;
            }
        }
        if (at == name.len || name.ptr[at++] != c) {
            return false;
        }
    }
    return at == name.len;
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *desc,
                                                  mr_str name)
{
    const ProtobufCFieldDescriptor *field = mr_pbmsg_find(desc, name);
    for (unsigned i = 0; !field && i < desc->n_fields; i++) {
        field = is_camel_of(desc->fields[i].name, name) ? &desc->fields[i] : NULL;
    }
    return field;
}

static int unknown_field(struct mr_json *j, const ProtobufCMessageDescriptor *desc, mr_str name)
{
    mr_str shown = mr_str_sub(name, 0, 60);
    const char *near = mr_pbmsg_near_field(desc, name);
    return mr_json_fail(j, MR_E_INVALID, "%s has no field '%.*s'%s%s%s", desc->name,
                        MR_STR_ARG(shown), near ? "; did you mean '" : "", near ? near : "",
                        near ? "'?" : "");
}

/* ---- scalars ---- */

/* The text of a number, or of a string that holds one. */
static int number_text(struct mr_json *j, mr_str *out)
{
    if (mr_json_peek(j) == MR_JSON_STRING) {
        return mr_json_string(j, out);
    }
    return mr_json_number_text(j, out);
}

/* "12", "-12", and also "12.0" and "1.2e1" as long as the value is exact. */
static bool integer_read(mr_str s, bool *out_negative, uint64_t *out_magnitude)
{
    bool negative = mr_str_starts(s, MR_STR("-"));
    double v;
    *out_negative = negative;
    if (mr_str_to_u64(mr_str_sub(s, negative, s.len), out_magnitude)) {
        return true;
    }
    const double exact = 9007199254740992.0; /* 2^53 */
    if (!mr_text_double(s, &v) || !(fabs(v) <= exact) || v != trunc(v)) {
        return false;
    }
    *out_magnitude = (uint64_t)fabs(v);
    return true;
}

static int parse_integer(struct mr_json *j, const ProtobufCFieldDescriptor *field, void *slot)
{
    mr_str text;
    bool negative;
    uint64_t magnitude;
    if (number_text(j, &text) < 0) {
        return j->status;
    }
    if (!integer_read(text, &negative, &magnitude) ||
        !mr_pbmsg_put_integer(field->type, negative, magnitude, slot)) {
        mr_str shown = mr_str_sub(text, 0, 60);
        return mr_json_fail(j, MR_E_INVALID, "'%.*s' is no value of '%s', %s integer of %zu bits,",
                            MR_STR_ARG(shown), field->name,
                            mr_pbmsg_is_signed(field->type) ? "a signed" : "an unsigned",
                            mr_pbmsg_value_size(field->type) * 8);
    }
    return MR_OK;
}

static int parse_float(struct mr_json *j, const ProtobufCFieldDescriptor *field, void *slot)
{
    float f = 0;
    double d = 0;
    mr_str text;
    bool is_float = field->type == PROTOBUF_C_TYPE_FLOAT;
    if (mr_json_peek(j) == MR_JSON_STRING) {
        if (mr_json_string(j, &text) < 0) {
            return j->status;
        }
        if (!(is_float ? mr_text_float(text, &f) : mr_text_double(text, &d))) {
            return mr_json_fail(j, MR_E_INVALID, "the value of '%s' is not a number", field->name);
        }
    } else if ((is_float ? mr_json_float(j, &f) : mr_json_double(j, &d)) < 0) {
        return j->status;
    }
    memcpy(slot, is_float ? (const void *)&f : (const void *)&d, is_float ? sizeof f : sizeof d);
    return MR_OK;
}

static int parse_bool(struct mr_json *j, void *slot)
{
    bool value;
    if (mr_json_bool(j, &value) == MR_OK) {
        protobuf_c_boolean stored = value;
        memcpy(slot, &stored, sizeof stored);
    }
    return j->status;
}

static int parse_enum(struct mr_json *j, const ProtobufCFieldDescriptor *field, void *slot)
{
    int value = 0;
    mr_str name;
    int64_t number;
    if (mr_json_peek(j) != MR_JSON_STRING) {
        if (mr_json_i64(j, &number) < 0) {
            return j->status;
        }
        if (!mr_pbmsg_enum_known(field->descriptor, number)) {
            return mr_json_fail(j, MR_E_INVALID, "%lld is no value of '%s'", (long long)number,
                                field->name);
        }
        value = (int)number;
    } else {
        if (mr_json_string(j, &name) < 0) {
            return j->status;
        }
        if (!mr_pbmsg_enum_named(field->descriptor, name, true, &value)) {
            const char *near = mr_pbmsg_near_enum(field->descriptor, name);
            mr_str shown = mr_str_sub(name, 0, 60);
            return mr_json_fail(j, MR_E_INVALID, "'%.*s' is no value of '%s'%s%s%s",
                                MR_STR_ARG(shown), field->name, near ? "; did you mean '" : "",
                                near ? near : "", near ? "'?" : "");
        }
    }
    memcpy(slot, &value, sizeof value);
    return MR_OK;
}

static int add_text(struct mr_json *j, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field,
                    mr_str value)
{
    const char *why;
    int rc = mr_pbmsg_add_text(m, field, value, &why);
    return rc < 0 ? mr_json_fail(j, rc, "the value of '%s' %s", field->name, why) : MR_OK;
}

static int parse_text(struct mr_json *j, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    mr_str text;
    if (mr_json_string(j, &text) < 0) {
        return j->status;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        return add_text(j, m, field, text);
    }
    size_t len;
    uint8_t *bytes = mr_arena_try(j->arena, text.len / 4 * 3, 1);
    if (!bytes) {
        return no_memory(j);
    }
    if (!mr_base64_decode(text, bytes, &len)) {
        return mr_json_fail(j, MR_E_INVALID, "the value of '%s' is not base64", field->name);
    }
    return add_text(j, m, field, mr_str_n((const char *)bytes, len));
}

/* ---- fields ---- */

static int parse_object(struct mr_json *j, ProtobufCMessage *m);

static int parse_value(struct mr_json *j, ProtobufCMessage *m,
                       const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES) {
        return parse_text(j, m, field);
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        ProtobufCMessage *inner = mr_pbmsg_add_message(m, field);
        return inner ? parse_object(j, inner) : no_memory(j);
    }
    void *slot = mr_pbmsg_slot(m, field);
    if (!slot) {
        return no_memory(j);
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE: return parse_float(j, field, slot);
    case PROTOBUF_C_TYPE_BOOL: return parse_bool(j, slot);
    case PROTOBUF_C_TYPE_ENUM: return parse_enum(j, field, slot);
    default: return parse_integer(j, field, slot);
    }
}

static int parse_list(struct mr_json *j, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    bool first = true;
    if (mr_json_peek(j) != MR_JSON_ARRAY) {
        return parse_value(j, m, field);
    }
    if (mr_json_enter_array(j) < 0) {
        return j->status;
    }
    while (mr_json_next_item(j, &first)) {
        if (parse_value(j, m, field) < 0) {
            return j->status;
        }
    }
    return j->status;
}

/* A member's name into the key of a map entry. */
static int parse_key(struct mr_json *j, ProtobufCMessage *entry, mr_str name)
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    bool negative = false;
    uint64_t magnitude = 0;
    if (key->type == PROTOBUF_C_TYPE_STRING) {
        return add_text(j, entry, key, name);
    }
    void *slot = mr_pbmsg_slot(entry, key);
    if (key->type == PROTOBUF_C_TYPE_BOOL) {
        protobuf_c_boolean value = mr_str_eq_c(name, "true");
        memcpy(slot, &value, sizeof value);
        if (value || mr_str_eq_c(name, "false")) {
            return MR_OK;
        }
    } else if (integer_read(name, &negative, &magnitude) &&
               mr_pbmsg_put_integer(key->type, negative, magnitude, slot)) {
        return MR_OK;
    }
    mr_str shown = mr_str_sub(name, 0, 60);
    return mr_json_fail(j, MR_E_INVALID, "'%.*s' is not a key of this map", MR_STR_ARG(shown));
}

static int parse_map(struct mr_json *j, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    struct mr_map seen = {0};
    bool first = true;
    mr_str name;
    if (mr_json_enter_object(j) < 0) {
        return j->status;
    }
    while (mr_json_next_key(j, &first, &name)) {
        ProtobufCMessage *entry = mr_pbmsg_add_message(m, field);
        if (!entry) {
            no_memory(j);
        } else if (mr_map_put(&seen, name, m)) {
            mr_str shown = mr_str_sub(name, 0, 60);
            mr_json_fail(j, MR_E_INVALID, "'%.*s' is given twice in '%s'", MR_STR_ARG(shown),
                         field->name);
        }
        if (j->status < 0 || parse_key(j, entry, name) < 0 ||
            parse_value(j, entry, &entry->descriptor->fields[1]) < 0) {
            break;
        }
    }
    mr_map_fini(&seen);
    return j->status;
}

static int parse_field(struct mr_json *j, ProtobufCMessage *m, mr_str name,
                       struct mr_pbmsg_seen *seen)
{
    const ProtobufCFieldDescriptor *field = find_field(m->descriptor, name);
    if (!field) {
        return unknown_field(j, m->descriptor, name);
    }
    if (mr_json_peek(j) == MR_JSON_NULL) {
        return mr_json_null(j);
    }
    const ProtobufCFieldDescriptor *clash = mr_pbmsg_claim(m, field, seen);
    if (clash == field) {
        return mr_json_fail(j, MR_E_INVALID, "'%s' is given twice", field->name);
    }
    if (clash) {
        return mr_json_fail(j, MR_E_INVALID, "'%s' cannot be given together with '%s'", field->name,
                            clash->name);
    }
    if (mr_pbmsg_is_map(field)) {
        return parse_map(j, m, field);
    }
    return mr_pbmsg_is_list(field) ? parse_list(j, m, field) : parse_value(j, m, field);
}

static int parse_object(struct mr_json *j, ProtobufCMessage *m)
{
    struct mr_pbmsg_seen seen = {0};
    bool first = true;
    mr_str name;
    if (mr_json_enter_object(j) < 0) {
        return j->status;
    }
    while (mr_json_next_key(j, &first, &name)) {
        if (parse_field(j, m, name, &seen) < 0) {
            return j->status;
        }
    }
    if (j->status == MR_OK && !mr_pbmsg_finish_maps(m)) {
        return no_memory(j);
    }
    return j->status;
}

int mr_pbjson_parse(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                    struct mr_err *err)
{
    struct mr_json j;
    struct mr_arena arena;
    ProtobufCMessage *m = mr_pbmsg_new(desc);
    if (!m) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a %s", desc->name);
    }
    /* Unescaped strings and decoded base64 are each no longer than the text; chunks waste some. */
    size_t limit;
    if (!mr_size_mul(text.len, 4, &limit) || !mr_size_add(limit, 1 << 20, &limit)) {
        limit = SIZE_MAX;
    }
    mr_arena_init(&arena, 4096, limit);
    mr_json_init(&j, text, &arena, MR_PBMSG_DEPTH_MAX, err);
    int rc = parse_object(&j, m);
    if (rc == MR_OK) {
        rc = mr_json_finish(&j);
    }
    mr_arena_fini(&arena);
    if (rc < 0) {
        protobuf_c_message_free_unpacked(m, NULL);
        return rc;
    }
    *out = m;
    return MR_OK;
}
