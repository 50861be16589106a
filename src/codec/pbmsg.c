/* Access to protobuf-c messages by descriptor. protobuf-c keeps a message as a plain struct; the
 * descriptor says where in it a field lies and where its count, presence flag or oneof case is. All
 * offsets come from generated code, all sizes of lists grow by one element at a time from what was
 * read, so memory use is in proportion to the text.
 *
 * Memory comes from mr_try_alloc, which protobuf-c's default allocator can free. */
#include "pbmsg.h"

#include "base/map.h"
#include "base/mem.h"

static void *member(const ProtobufCMessage *m, size_t offset)
{
    return (char *)(uintptr_t)m + offset;
}

static size_t *list_count(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    return member(m, field->quantifier_offset);
}

/* The case of a oneof is an enum of the generated code, as wide as an int. */
static uint32_t oneof_case(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    uint32_t value;
    memcpy(&value, member(m, field->quantifier_offset), sizeof value);
    return value;
}

ProtobufCMessage *mr_pbmsg_new(const ProtobufCMessageDescriptor *desc)
{
    ProtobufCMessage *m = mr_try_alloc(desc->sizeof_message);
    if (m) {
        protobuf_c_message_init(desc, m);
    }
    return m;
}

const ProtobufCFieldDescriptor *mr_pbmsg_find(const ProtobufCMessageDescriptor *desc, mr_str name)
{
    for (unsigned i = 0; i < desc->n_fields; i++) {
        if (mr_str_eq_c(name, desc->fields[i].name)) {
            return &desc->fields[i];
        }
    }
    return NULL;
}

/* Keep the nearer of two names; distances above a third of the word are no help. */
static void nearer(mr_str name, const char *candidate, unsigned *io_best, const char **io_name)
{
    unsigned distance = mr_str_distance(name, mr_str_c(candidate));
    if (distance < *io_best && distance <= 1 + name.len / 3) {
        *io_best = distance;
        *io_name = candidate;
    }
}

const char *mr_pbmsg_near_field(const ProtobufCMessageDescriptor *desc, mr_str name)
{
    unsigned best = UINT32_MAX;
    const char *found = NULL;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        nearer(name, desc->fields[i].name, &best, &found);
    }
    return found;
}

const char *mr_pbmsg_near_enum(const ProtobufCEnumDescriptor *desc, mr_str name)
{
    unsigned best = UINT32_MAX;
    const char *found = NULL;
    for (unsigned i = 0; i < desc->n_values; i++) {
        nearer(name, desc->values[i].name, &best, &found);
    }
    return found;
}

bool mr_pbmsg_enum_named(const ProtobufCEnumDescriptor *desc, mr_str name, bool ignore_case,
                         int *out)
{
    for (unsigned i = 0; i < desc->n_values; i++) {
        mr_str known = mr_str_c(desc->values[i].name);
        if (ignore_case ? mr_str_ieq(name, known) : mr_str_eq(name, known)) {
            *out = desc->values[i].value;
            return true;
        }
    }
    return false;
}

bool mr_pbmsg_enum_known(const ProtobufCEnumDescriptor *desc, int64_t number)
{
    for (unsigned i = 0; i < desc->n_values; i++) {
        if (desc->values[i].value == number) {
            return true;
        }
    }
    return false;
}

bool mr_pbmsg_is_oneof(const ProtobufCFieldDescriptor *field)
{
    return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
}

bool mr_pbmsg_is_map(const ProtobufCFieldDescriptor *field)
{
    if (!mr_pbmsg_is_list(field) || field->type != PROTOBUF_C_TYPE_MESSAGE) {
        return false;
    }
    const ProtobufCMessageDescriptor *entry = field->descriptor;
    return entry->n_fields == 2 && mr_str_ends(mr_str_c(entry->short_name), MR_STR("Entry")) &&
           entry->fields[0].id == 1 && strcmp(entry->fields[0].name, "key") == 0 &&
           entry->fields[1].id == 2 && strcmp(entry->fields[1].name, "value") == 0;
}

size_t mr_pbmsg_value_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING: return sizeof(char *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(ProtobufCMessage *);
    default: return 4;
    }
}

const ProtobufCFieldDescriptor *mr_pbmsg_claim(const ProtobufCMessage *m,
                                               const ProtobufCFieldDescriptor *field,
                                               struct mr_pbmsg_seen *seen)
{
    const ProtobufCMessageDescriptor *desc = m->descriptor;
    uint32_t set = mr_pbmsg_is_oneof(field) ? oneof_case(m, field) : 0;
    if (set != 0) {
        return protobuf_c_message_descriptor_get_field(desc, set);
    }
    size_t at = (size_t)(field - desc->fields);
    if (at >= MR_PBMSG_FIELDS_MAX) {
        return NULL;
    }
    uint64_t bit = UINT64_C(1) << (at % 64);
    bool again = (seen->bits[at / 64] & bit) != 0;
    seen->bits[at / 64] |= bit;
    return again ? field : NULL;
}

/* Lists have room for a power of two, at least 4: full when the count is 0 or such a power. */
static void *list_grow(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    size_t size = mr_pbmsg_value_size(field->type);
    size_t *count = list_count(m, field);
    void **list = member(m, field->offset);
    if (*count == 0 || (*count >= 4 && (*count & (*count - 1)) == 0)) {
        size_t bytes;
        if (!mr_size_mul(*count ? *count * 2 : 4, size, &bytes)) {
            return NULL;
        }
        void *grown = mr_try_realloc(*list, bytes);
        if (!grown) {
            return NULL;
        }
        *list = grown;
    }
    char *slot = (char *)*list + (*count)++ * size;
    memset(slot, 0, size);
    return slot;
}

void *mr_pbmsg_slot(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    if (mr_pbmsg_is_list(field)) {
        return list_grow(m, field);
    }
    if (mr_pbmsg_is_oneof(field)) {
        memcpy(member(m, field->quantifier_offset), &field->id, sizeof field->id);
    } else if (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->quantifier_offset) {
        protobuf_c_boolean has = 1;
        memcpy(member(m, field->quantifier_offset), &has, sizeof has);
    }
    return member(m, field->offset);
}

ProtobufCMessage *mr_pbmsg_add_message(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    void *slot = mr_pbmsg_slot(m, field);
    ProtobufCMessage *added = slot ? mr_pbmsg_new(field->descriptor) : NULL;
    if (added) {
        memcpy(slot, &added, sizeof added);
    }
    return added;
}

bool mr_pbmsg_is_signed(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: return true;
    default: return false;
    }
}

bool mr_pbmsg_put_integer(ProtobufCType type, bool negative, uint64_t magnitude, void *slot)
{
    size_t size = mr_pbmsg_value_size(type);
    bool is_signed = mr_pbmsg_is_signed(type);
    uint64_t high = UINT64_MAX >> (64 - size * 8 + is_signed);
    uint64_t low = is_signed ? high + 1 : 0;
    if (magnitude > (negative ? low : high)) {
        return false;
    }
    uint64_t value = negative ? 0 - magnitude : magnitude;
    uint32_t narrow = (uint32_t)value;
    memcpy(slot, size == 4 ? (const void *)&narrow : (const void *)&value, size);
    return true;
}

static char *string_new(mr_str s)
{
    char *copy = mr_try_alloc(s.len + 1);
    if (copy) {
        if (s.len > 0) {
            memcpy(copy, s.ptr, s.len);
        }
        copy[s.len] = 0;
    }
    return copy;
}

int mr_pbmsg_add_text(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, mr_str value,
                      const char **out_why)
{
    bool is_string = field->type == PROTOBUF_C_TYPE_STRING;
    if (is_string && !mr_utf8_valid(value)) {
        *out_why = "is not valid UTF-8";
        return MR_E_INVALID;
    }
    if (is_string && mr_str_find(value, 0) >= 0) {
        *out_why = "holds a NUL character";
        return MR_E_INVALID;
    }
    char *copy = string_new(value);
    void *slot = copy ? mr_pbmsg_slot(m, field) : NULL;
    if (!slot) {
        mr_free(copy);
        *out_why = "finds no memory";
        return MR_E_NOMEM;
    }
    if (is_string) {
        memcpy(slot, &copy, sizeof copy);
    } else {
        ProtobufCBinaryData data = {.len = value.len, .data = (uint8_t *)copy};
        memcpy(slot, &data, sizeof data);
    }
    return MR_OK;
}

/* ---- maps ---- */

/* The bytes that make a map key: text of a string, memory of a number. */
static mr_str entry_key(const ProtobufCMessage *entry)
{
    const ProtobufCFieldDescriptor *key = &entry->descriptor->fields[0];
    const void *value = member(entry, key->offset);
    if (key->type == PROTOBUF_C_TYPE_STRING) {
        return mr_pbmsg_string(value);
    }
    return mr_str_n(value, mr_pbmsg_value_size(key->type));
}

static bool entry_complete(ProtobufCMessage *entry)
{
    const ProtobufCFieldDescriptor *value = &entry->descriptor->fields[1];
    if (value->type != PROTOBUF_C_TYPE_MESSAGE) {
        return true;
    }
    void *slot = member(entry, value->offset);
    if (mr_pbmsg_message(slot)) {
        return true;
    }
    ProtobufCMessage *empty = mr_pbmsg_new(value->descriptor);
    memcpy(slot, &empty, sizeof empty);
    return empty != NULL;
}

/* A later entry takes the place of an earlier one with the same key. */
static void entries_unique(ProtobufCMessage **entries, size_t *io_count)
{
    struct mr_map by_key = {0};
    size_t kept = 0;
    for (size_t i = 0; i < *io_count; i++) {
        mr_str key = entry_key(entries[i]);
        ProtobufCMessage **earlier = mr_map_find(&by_key, key);
        if (earlier) {
            protobuf_c_message_free_unpacked(*earlier, NULL);
            *earlier = entries[i];
        } else {
            entries[kept] = entries[i];
            mr_map_put(&by_key, key, &entries[kept]);
            kept++;
        }
    }
    *io_count = kept;
    mr_map_fini(&by_key);
}

bool mr_pbmsg_finish_maps(ProtobufCMessage *m)
{
    const ProtobufCMessageDescriptor *desc = m->descriptor;
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &desc->fields[i];
        if (!mr_pbmsg_is_map(field)) {
            continue;
        }
        size_t *count = list_count(m, field);
        ProtobufCMessage **entries;
        memcpy(&entries, member(m, field->offset), sizeof entries);
        for (size_t k = 0; k < *count; k++) {
            if (!entry_complete(entries[k])) {
                return false;
            }
        }
        if (*count > 1) {
            entries_unique(entries, count);
        }
    }
    return true;
}

/* ---- reading ---- */

size_t mr_pbmsg_values(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field,
                       const void **out_first)
{
    const void *at = member(m, field->offset);
    *out_first = at;
    if (mr_pbmsg_is_list(field)) {
        memcpy(out_first, at, sizeof *out_first);
        return *list_count(m, field);
    }
    if (mr_pbmsg_is_oneof(field)) {
        if (oneof_case(m, field) != field->id) {
            return 0;
        }
        return field->type != PROTOBUF_C_TYPE_MESSAGE || mr_pbmsg_message(at);
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return mr_pbmsg_message(at) != NULL;
    }
    if (field->label != PROTOBUF_C_LABEL_OPTIONAL) {
        return 1;
    }
    if (field->quantifier_offset) {
        return *(const protobuf_c_boolean *)member(m, field->quantifier_offset) != 0;
    }
    /* An optional string has no flag: it is absent while it points to its default. */
    return mr_pbmsg_message(at) && (const void *)mr_pbmsg_message(at) != field->default_value;
}

bool mr_pbmsg_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    const void *first;
    if (mr_pbmsg_values(m, field, &first) == 0) {
        return false;
    }
    if (field->label != PROTOBUF_C_LABEL_NONE || mr_pbmsg_is_oneof(field)) {
        return true;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE: return true;
    case PROTOBUF_C_TYPE_STRING: return mr_pbmsg_string(first).len > 0;
    case PROTOBUF_C_TYPE_BYTES: return mr_pbmsg_bytes(first).len > 0;
    default: {
        static const char zeros[8];
        return memcmp(first, zeros, mr_pbmsg_value_size(field->type)) != 0;
    }
    }
}

int64_t mr_pbmsg_signed(ProtobufCType type, const void *value)
{
    int32_t narrow;
    int64_t wide;
    if (mr_pbmsg_value_size(type) == 4) {
        memcpy(&narrow, value, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, value, sizeof wide);
    return wide;
}

uint64_t mr_pbmsg_unsigned(ProtobufCType type, const void *value)
{
    uint32_t narrow;
    uint64_t wide;
    if (mr_pbmsg_value_size(type) == 4) {
        memcpy(&narrow, value, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, value, sizeof wide);
    return wide;
}

mr_bytes mr_pbmsg_bytes(const void *value)
{
    ProtobufCBinaryData data;
    memcpy(&data, value, sizeof data);
    return (mr_bytes){data.data, data.len};
}
