/* Paths into JSON texts: a.b[0]."odd key".c; "$" or the empty path is the whole value. */
#ifndef MR_OP_BUILTIN_JSON_PATH_H
#define MR_OP_BUILTIN_JSON_PATH_H

#include "codec/json.h"

#define JSON_PATH_STEPS_MAX 32

struct json_path {
    mr_str text; /* a copy, which the steps refer to; freed with json_path_fini */
    uint32_t count;
    struct json_step {
        mr_str key; /* ptr NULL: an index */
        uint64_t index;
    } steps[JSON_PATH_STEPS_MAX];
};

/** Errors: MR_E_INVALID. */
int json_path_parse(struct json_path *p, mr_str text, struct mr_err *err);
void json_path_fini(struct json_path *p);
/** Moves the reader, which is at a value, to the value that the path names. *out_found: it is there and not null. Errors: of the
 *  text. The first member of a name counts. */
int json_path_seek(const struct json_path *p, struct mr_json *j, bool *out_found);

#endif
