/* Building and reading protobuf-c messages through their descriptors: shared by the text and JSON forms. Private.
 *
 * A message under construction is at every moment one that protobuf_c_message_free_unpacked can
 * free: nested messages and strings are attached as soon as they exist. */
#ifndef MR_CODEC_PBMSG_H
#define MR_CODEC_PBMSG_H

#include <protobuf-c/protobuf-c.h>

#include "base/err.h"
#include "base/str.h"

/* Levels of messages within messages. */
#define MR_PBMSG_DEPTH_MAX  100
#define MR_PBMSG_FIELDS_MAX 256

/** Which fields of one message have been given; all-zero at first. */
struct mr_pbmsg_seen {
    uint64_t bits[MR_PBMSG_FIELDS_MAX / 64];
};

/** Empty message; NULL without memory. */
ProtobufCMessage *mr_pbmsg_new(const ProtobufCMessageDescriptor *desc);
/** Field by its proto name, or NULL. */
const ProtobufCFieldDescriptor *mr_pbmsg_find(const ProtobufCMessageDescriptor *desc, mr_str name);
/** The name in `desc` that is nearest to a wrong one, or NULL if none is near. */
const char *mr_pbmsg_near_field(const ProtobufCMessageDescriptor *desc, mr_str name);
const char *mr_pbmsg_near_enum(const ProtobufCEnumDescriptor *desc, mr_str name);
/** Enum value by name or number; false if there is none. */
bool mr_pbmsg_enum_named(const ProtobufCEnumDescriptor *desc, mr_str name, bool ignore_case,
                         int *out);
bool mr_pbmsg_enum_known(const ProtobufCEnumDescriptor *desc, int64_t number);

bool mr_pbmsg_is_map(const ProtobufCFieldDescriptor *field);
bool mr_pbmsg_is_oneof(const ProtobufCFieldDescriptor *field);
static inline bool mr_pbmsg_is_list(const ProtobufCFieldDescriptor *field)
{
    return field->label == PROTOBUF_C_LABEL_REPEATED;
}

/** Note that `field` is about to be given. Returns the field that it collides with: itself, given
 *  before, or another member of its oneof; NULL if there is none. */
const ProtobufCFieldDescriptor *mr_pbmsg_claim(const ProtobufCMessage *m,
                                               const ProtobufCFieldDescriptor *field,
                                               struct mr_pbmsg_seen *seen);
/** Where to put the value of a field, marking it as present; a new zeroed element for a repeated
 *  one. NULL without memory. */
void *mr_pbmsg_slot(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field);
/** Empty message in the slot of `field`, attached; NULL without memory. */
ProtobufCMessage *mr_pbmsg_add_message(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field);
/** Put an integer into a slot of an integer type; false when out of range. */
bool mr_pbmsg_put_integer(ProtobufCType type, bool negative, uint64_t magnitude, void *slot);
/** Put a string or bytes value into the field: MR_E_INVALID for a string that is not UTF-8 or holds
 *  a NUL (it would end there), MR_E_NOMEM. *out_why is a phrase for the message. */
int mr_pbmsg_add_text(ProtobufCMessage *m, const ProtobufCFieldDescriptor *field, mr_str value,
                      const char **out_why);
/** Called after all fields of a message: keeps only the last of map entries with equal keys, and gives an entry
 *  without its message value an empty one. False without memory. */
bool mr_pbmsg_finish_maps(ProtobufCMessage *m);

/** Number of values of a field and the first of them; 0 for one that is absent. Scalars without
 *  presence count as one value, default or not. */
size_t mr_pbmsg_values(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field,
                       const void **out_first);
/** Whether a field differs from what an empty message has. */
bool mr_pbmsg_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field);
size_t mr_pbmsg_value_size(ProtobufCType type);

/** Scalars in memory, read by type. */
int64_t mr_pbmsg_signed(ProtobufCType type, const void *value);
uint64_t mr_pbmsg_unsigned(ProtobufCType type, const void *value);
bool mr_pbmsg_is_signed(ProtobufCType type);
static inline mr_str mr_pbmsg_string(const void *value)
{
    const char *s;
    memcpy(&s, value, sizeof s);
    return mr_str_c(s);
}
static inline const ProtobufCMessage *mr_pbmsg_message(const void *value)
{
    const ProtobufCMessage *m;
    memcpy(&m, value, sizeof m);
    return m;
}
mr_bytes mr_pbmsg_bytes(const void *value);

#endif
