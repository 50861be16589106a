/* Shared by the files of this module; private. */
#ifndef MR_OIP_PRIV_H
#define MR_OIP_PRIV_H

#include "oip/oip.h"

#include "base/mem.h"
#include "base/turn.h"
#include "tensor/tensor.h"

/* Tensor data that a decoder has to make is kept in the arena up to this size, else in a block. */
#define OIP_ARENA_BYTES ((uint64_t)64 << 10)
/* Tensor data is copied into the answer's buffer up to this size, else sent by reference. */
#define OIP_COPY_BYTES 8192
/* Most parameters of one message, all places together: a repeated key is found by comparing. */
#define OIP_PARAMS_MAX      1024
#define OIP_TENSORS_DEFAULT 1024

/* ---- memory.c ---- */

/** Allocates `bytes` of tensor data in t->tensor.data (aligned to 16), t->block when it is a block.
 *  Errors: MR_E_EXHAUSTED. */
int mr_oip_data_new(struct mr_arena *arena, struct mr_oip_tensor *t, uint64_t bytes,
                    struct mr_err *err);
/** Sets the tensor's data: by reference when it is aligned for the type, else as a copy. */
int mr_oip_data_refer(struct mr_arena *arena, struct mr_oip_tensor *t, mr_bytes data,
                      struct mr_err *err);
/** Makes room for one more item after `len`; returns the items, moved if they had to grow; NULL: no
 *  memory. New items are zeroed. */
void *mr_oip_grow(struct mr_arena *arena, void *items, size_t len, size_t *io_cap, size_t size);
/** The first name that two of the `count` items have, or NULL. Each item begins with its mr_str name.
 *  Returns MR_E_EXHAUSTED without memory. */
int mr_oip_find_duplicate(struct mr_arena *arena, const void *items, size_t size, size_t count,
                          const mr_str **out_name, struct mr_err *err);
/** Checks binary data against the tensor's element count: the elements of BYTES, with Triton's texts; of a response the size of
 *  other types, too, which for a request is checked with the model. */
int mr_oip_binary_check(const struct mr_oip_tensor *t, uint64_t elements, bool is_response,
                        mr_str model, struct mr_err *err);
int mr_oip_no_memory(struct mr_err *err);
/** Checks the length of an id, which the answer repeats in one piece. Errors: MR_E_INVALID. */
int mr_oip_id_check(mr_str id, struct mr_err *err);
#define OIP_ID_MOST ((size_t)1 << 20)
/** The error of a turn that was ended (base/turn.h); its owner knows the reason. */
int mr_oip_ended(struct mr_err *err);

/* ---- param.c ---- */

/** The transport determines error texts and some rules. */
enum mr_oip_wire { MR_OIP_WIRE_REST, MR_OIP_WIRE_GRPC };

struct mr_oip_params {
    struct mr_oip_param *at;
    size_t len;
    size_t cap;
};

/** Adds the parameter, or replaces the one with the same key. io_total counts all of the message. */
int mr_oip_params_put(struct mr_oip_params *list, struct mr_arena *arena, size_t *io_total,
                      const struct mr_oip_param *p, struct mr_err *err);
/** Stores a well-known request parameter in its field: 1 = stored, 0 = it is for the model. */
int mr_oip_param_of_request(struct mr_oip_request *r, const struct mr_oip_param *p,
                            enum mr_oip_wire wire, struct mr_err *err);

/** The well-known parameters of one tensor or requested output. */
struct mr_oip_tensor_params {
    struct mr_oip_shm shm;
    bool has_shm_offset;
    bool has_shm_byte_size;
    bool has_binary_data_size;
    uint64_t binary_data_size; /* REST, tensors */
    bool has_classification;
    int8_t binary_data; /* REST, requested outputs: -1, 0, 1 */
    int32_t classification;
};
/** As mr_oip_param_of_request. is_requested: of a requested output, else of a tensor with data. */
int mr_oip_param_of_tensor(struct mr_oip_tensor_params *to, const struct mr_oip_param *p,
                           bool is_requested, enum mr_oip_wire wire, struct mr_err *err);
/** Refuses an offset or size without region, and a region with classification or binary_data. */
int mr_oip_tensor_params_check(const struct mr_oip_tensor_params *p, mr_str name,
                               enum mr_oip_wire wire, struct mr_err *err);

/* ---- out.c ---- */

/** A body being written: small things in buf, large ones by reference between them. */
struct mr_oip_out {
    struct mr_buf *buf;
    struct mr_arena *arena;
    struct mr_piece *pieces;
    size_t count;
    size_t cap;
    size_t start;   /* bytes at the front of buf that are not part of the body */
    size_t mark;    /* bytes of buf that pieces cover already */
    uint64_t spilt; /* bytes that have left buf for blocks */
    int failure;    /* 0, or the error after which nothing is written */
    bool may_spill; /* mr_oip_out_spill makes blocks */
};

/** Resets buf. tensors: how many payloads may follow. */
void mr_oip_out_init(struct mr_oip_out *o, struct mr_buf *buf, struct mr_arena *arena,
                     size_t tensors);
/** To be called between parts of long text (not once pieces of buf exist): spends `units` of the turn
 *  (mr_turn_spend), and moves the text in buf to a block. False: the caller must end; mr_oip_out_finish fails. */
bool mr_oip_out_spill(struct mr_oip_out *o, uint64_t units);
/** Append tensor data, copied or by reference. */
void mr_oip_out_data(struct mr_oip_out *o, const void *data, uint64_t bytes,
                     struct mr_block *block);
/** Closes the last piece, points the pieces into buf and takes the references. */
int mr_oip_out_finish(struct mr_oip_out *o, struct mr_oip_encoded *out, struct mr_err *err);

/* ---- view.c ---- */

/** The data sent for an output: the tensor itself or its classification; checked against its shape. */
struct mr_oip_view {
    struct mr_tensor tensor;
    struct mr_block *block;
    uint64_t elements;
    bool is_binary; /* follows the JSON, for the caller */
};
/** One view per tensor, in the arena. word: "input" or "output". Errors: MR_E_INTERNAL (of
 *  inputs MR_E_INVALID) for data that does not fit the shape, those of mr_oip_classify. */
int mr_oip_views_new(const struct mr_oip_tensor *tensors, size_t count, const char *word,
                     struct mr_arena *arena, struct mr_oip_view **out, struct mr_err *err);

/* ---- rest_encode.c ---- */

/** Writes "key":value. */
void mr_oip_rest_param(struct mr_buf *b, const struct mr_oip_param *p);

/* ---- rest_text.c ---- */

/** Writes the elements of a checked tensor as JSON values with commas between them. */
void mr_oip_text_elements(struct mr_oip_out *o, const struct mr_tensor *t, uint64_t elements);

#endif
