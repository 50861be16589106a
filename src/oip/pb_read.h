/* Reading protobuf inference messages: shared by the files that do so. Private to this module. */
#ifndef MR_OIP_PB_READ_H
#define MR_OIP_PB_READ_H

#include "codec/pb.h"
#include "oip_priv.h"

struct mr_pb_reader {
    struct mr_arena *arena;
    mr_str model;
    uint32_t max_tensors;
    bool is_response;
    const char *word; /* "input" or "output" */
    size_t param_total;
    struct mr_err *err;
};

/** A tensor whose metadata is read; its data is located at the end of the message. */
struct mr_pb_tensor {
    mr_bytes message;
    uint64_t elements;
    bool has_contents;
    bool has_filled_contents; /* contents that are not empty */
};

/** The repeated parts of a message: its tensors and its raw contents. */
struct mr_pb_tensors {
    struct mr_oip_tensor *at;
    struct mr_pb_tensor *from;
    size_t count;
    size_t cap;
    size_t from_cap;
    mr_bytes *raw;
    size_t raw_count;
    size_t raw_cap;
};

int mr_pb_broken(struct mr_err *err);
int mr_pb_too_many(struct mr_pb_reader *r, const char *what);
/** Reads a string field; ignores one of another wire type. Errors: MR_E_INVALID when it is not UTF-8. */
int mr_pb_str(struct mr_pb_reader *r, const struct mr_pb_field *f, mr_str *out);
/** Reads an entry of a parameters map. Returns 1, or 0 when the entry of a response has no known value. */
int mr_pb_param(struct mr_pb_reader *r, mr_bytes entry, struct mr_oip_param *out);
/** Reads a parameter of a tensor or requested output into `known` or `rest`. */
int mr_pb_tensor_param(struct mr_pb_reader *r, mr_bytes entry, bool is_requested,
                       struct mr_oip_tensor_params *known, struct mr_oip_params *rest);
int mr_pb_tensors_add(struct mr_pb_reader *r, struct mr_pb_tensors *list,
                      const struct mr_pb_field *f);
int mr_pb_raw_add(struct mr_pb_reader *r, struct mr_pb_tensors *list, const struct mr_pb_field *f);
/** Assigns the data to the tensors, at the end of the message. */
int mr_pb_tensors_finish(struct mr_pb_reader *r, struct mr_pb_tensors *list);

/** pb_contents.c: reads the typed contents of the tensor message into t->tensor, whose type and shape are
 *  known. */
int mr_pb_contents(struct mr_pb_reader *r, const struct mr_pb_tensor *from,
                   struct mr_oip_tensor *t);

#endif
