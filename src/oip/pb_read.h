/* Reading protobuf inference messages: what the files about them share. Private to this module. */
#ifndef MR_OIP_PB_READ_H
#define MR_OIP_PB_READ_H

#include "codec/pb.h"
#include "internal.h"

struct mr_pb_reader {
    struct mr_arena *arena;
    mr_str model;
    uint32_t max_tensors;
    bool is_response;
    const char *word; /* "input" or "output" */
    size_t param_total;
    struct mr_err *err;
};

/** A tensor whose metadata is read; its data is found when the whole message is known. */
struct mr_pb_tensor {
    mr_bytes message;
    uint64_t elements;
    bool has_contents;
};

int mr_pb_broken(struct mr_err *err);

/** pb_contents.c: the typed contents of the tensor message into t->tensor, whose type and shape are
 *  known. */
int mr_pb_contents(struct mr_pb_reader *r, const struct mr_pb_tensor *from,
                   struct mr_oip_tensor *t);

#endif
