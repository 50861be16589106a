/* Text and JSON forms of protobuf-c messages, driven by their descriptors.
 *
 * Text: the protobuf text format (config.pbtxt): '#' comments, "..." and '...' strings with escapes
 * and adjacent concatenation, ':' optional before '{' and '<', [ ] lists, ',' and ';' between
 * fields, enums by name or number, maps as entries (key/value), oneofs (a second member of a oneof
 * is an error), a repeated scalar given once or in a list. Errors name line and column and, for an
 * unknown field, the nearest known one.
 *
 * JSON: proto field names (also lowerCamelCase on input), int64 as numbers on output and numbers or
 * strings on input, enums by name, bytes as base64, maps as objects. Map fields are found by their
 * entry type (protobuf-c: repeated message named ...Entry with fields key = 1 and value = 2). */
#ifndef MR_CODEC_PBTEXT_H
#define MR_CODEC_PBTEXT_H

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

/** A new message from text; free with protobuf_c_message_free_unpacked(m, NULL). Nesting is limited
 *  to 100. Errors: MR_E_INVALID with "line L column C: ...". */
int mr_pbtext_parse(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                    struct mr_err *err);
/** A new message from a JSON object; unknown fields are errors. A null counts as absent, the last of equal map keys
 *  wins, and enum names are compared without case. */
int mr_pbjson_parse(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                    struct mr_err *err);
/** As JSON. with_defaults: print every scalar, list and map, set or not (messages and oneof members
 *  only when set), as Triton's /config does. */
void mr_pbjson_print(const ProtobufCMessage *m, bool with_defaults, struct mr_buf *out);
/** As text format, set fields only, two-space indents. mr_pbtext_parse reads it back. */
void mr_pbtext_print(const ProtobufCMessage *m, struct mr_buf *out);

/** Names of the fields that are set, dotted, lists without index, e.g. "input.dims"; calls `each`
 *  once per distinct path, a message before its fields. Of maps with messages as values, the fields
 *  of the values follow without key: "parameters.string_value". `owner` is the first message found that has the
 *  field. For reports on the settings that have an effect. */
void mr_pb_walk_set_fields(const ProtobufCMessage *m,
                           void (*each)(void *ctx, const char *path, const ProtobufCMessage *owner),
                           void *ctx);

#endif
