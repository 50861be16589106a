/* Reading the JSON of REST messages: shared by requests and responses. Private to this module. */
#ifndef MR_OIP_REST_READ_H
#define MR_OIP_REST_READ_H

#include "codec/json.h"
#include "oip_priv.h"

struct mr_rest_reader {
    struct mr_json json;
    struct mr_arena *arena;
    mr_str model;
    mr_bytes binary;         /* bytes after the JSON that are not yet assigned to a tensor */
    uint64_t max_json_bytes; /* 0 = no limit */
    uint32_t max_tensors;
    const char *size_option;
    bool is_response;
    const char *word; /* "input" or "output" */
    size_t param_total;
    bool is_named; /* the error names the member that could not be read */
    struct mr_err *err;
};

/** Splits the body into JSON and binary data, checks the sizes and begins reading. */
int mr_rest_begin(struct mr_rest_reader *r, mr_bytes body, int64_t header_length,
                  const struct mr_oip_limits *limits, struct mr_arena *arena, struct mr_err *err);
/** After the last call: names the document in an error without a member; returns rc. */
int mr_rest_fail(struct mr_rest_reader *r, int rc);
/** Names the member in the error that the reader has just made: "Unable to parse 'x': ...". */
int mr_rest_named(struct mr_rest_reader *r, const char *member);
int mr_rest_missing(struct mr_rest_reader *r, const char *member);
int mr_rest_twice(struct mr_rest_reader *r, const char *member);

/** Consumes a null, which means "absent" for optional members, and returns true; otherwise false. */
bool mr_rest_null(struct mr_rest_reader *r);
/** Reads a parameters object; `take` returns 1 when it used the parameter, 0 to leave it in `rest`. */
typedef int(mr_rest_take_fn)(void *ctx, const struct mr_oip_param *p, struct mr_err *err);
int mr_rest_params(struct mr_rest_reader *r, mr_rest_take_fn *take, void *ctx,
                   struct mr_oip_params *rest);
/** Reads an array of tensor objects with their data. */
int mr_rest_tensors(struct mr_rest_reader *r, struct mr_oip_tensor **out, size_t *out_count);

/** rest_data.c: reads JSON data into t->tensor, whose type and shape are known. The reader is before the
 *  value. */
int mr_rest_data(struct mr_rest_reader *r, struct mr_json *j, uint64_t elements,
                 struct mr_oip_tensor *t);

#endif
