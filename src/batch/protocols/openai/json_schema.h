/* JSON Schema (a subset of 2020-12), for answers of language models that are to fit one. What it does not know and would
 * have to check is an error when the schema is read, never passed over:
 *
 *   known     type, enum and const of scalars, properties, required, additionalProperties, items, minItems, maxItems,
 *             minLength, maxLength, pattern (a POSIX extended regular expression), minimum, maximum, exclusiveMinimum,
 *             exclusiveMaximum, anyOf, oneOf, allOf, $ref to "#", "#/$defs/…" or "#/definitions/…"
 *   no rules  title, description, default, examples, format and the like
 *
 * Thread: any; nothing is changed after json_schema_new. */
#ifndef MR_BATCH_JSON_SCHEMA_H
#define MR_BATCH_JSON_SCHEMA_H

#include "base/arena.h"
#include "table/rows.h"

struct json_schema;
/** Errors: MR_E_INVALID (no schema), MR_E_UNSUPPORTED (a keyword); both name it. */
int json_schema_new(struct json_schema **out, mr_str text, struct mr_err *err);
void json_schema_free(struct json_schema **s);
/** Checks that the text is JSON that fits. `scratch` holds temporary data. Errors: MR_E_INVALID, saying where and
 *  why not, MR_E_EXHAUSTED. */
int json_schema_check(const struct json_schema *s, mr_str text, struct mr_arena *scratch,
                      struct mr_err *err);

/** Properties of the object that it describes; 0: it describes something else. */
size_t json_schema_property_count(const struct json_schema *s);
/** A property as a column: a scalar or a list of scalars of its type, otherwise JSON text; nulls where it may be missing
 *  or null. *out borrows from the schema; not to be ended. */
void json_schema_property(const struct json_schema *s, size_t i, struct mr_field *out);

#endif
