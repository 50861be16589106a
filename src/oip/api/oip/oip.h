/* Open Inference Protocol messages <-> tensors, without any I/O: inference requests and responses as
 * REST JSON, REST with binary data, and protobuf (gRPC). Server, clients and batch all use these.
 *
 * Decoding reads the bytes once. Tensor data points into the received bytes wherever the encoding and the
 * alignment allow it; JSON numbers and typed protobuf contents are parsed straight into a buffer of
 * the tensor's type, in the arena when small, otherwise in a block that the arena's reset releases.
 * Everything in a decoded message lives as long as both the arena and the received bytes.
 *
 * This module checks the message by itself (types, counts, shapes against data sizes). The scheduler checks
 * it against the model (names, expected shapes).
 * Source: KServe OIP v2; Triton's extensions (classification, binary data, parameters, schedule policy). */
#ifndef MR_OIP_OIP_H
#define MR_OIP_OIP_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/pool.h"
#include "base/str.h"
#include "millrace/tensor.h"

enum mr_oip_param_kind { MR_OIP_BOOL, MR_OIP_INT, MR_OIP_UINT, MR_OIP_DOUBLE, MR_OIP_STRING };

struct mr_oip_param {
    mr_str key;
    enum mr_oip_param_kind kind;
    union {
        bool b;
        int64_t i;
        uint64_t u;
        double d;
        mr_str s;
    };
};

#define MR_OIP_PARAM_TEXT 32 /* bytes that the text of a number or a bool may need */
/** The value as a text, which is in `number`, or the parameter's own. Any thread. */
mr_str mr_oip_param_text(const struct mr_oip_param *p, char number[MR_OIP_PARAM_TEXT]);

/** Where the bytes of a tensor are, when not in the message. */
struct mr_oip_shm {
    mr_str region; /* ptr NULL: not in shared memory */
    uint64_t offset;
    uint64_t byte_size;
};

/** A named tensor of a request or a response. */
struct mr_oip_tensor {
    mr_str name;
    struct mr_tensor tensor; /* data NULL with shm.region set: the data is there */
    /* Encoding: owner of tensor.data for sending by reference, or NULL (then large data is borrowed).
     * Decoded: the block that was made for the data, owned by the arena, or NULL when the data is in the arena or the
     * body. */
    struct mr_block *block;
    struct mr_oip_shm shm;
    const struct mr_oip_param *params;
    size_t param_count;
    bool binary; /* REST: after the JSON. Decoded: whether the data came as bytes */
    /* response encoding, set by the server */
    int32_t classification; /* > 0: send the top k as BYTES instead */
    const mr_str *labels;   /* for classification, may be NULL */
    size_t label_count;
    bool batched; /* classification: dimension 0 is the batch */
};

struct mr_oip_requested_output {
    mr_str name;
    int8_t binary_data;     /* -1 absent, 0, 1 */
    int32_t classification; /* 0 = no */
    struct mr_oip_shm shm;
    const struct mr_oip_param *params;
    size_t param_count;
};

/** An inference request. REST leaves model_name and model_version to the caller (they are in the URL). */
struct mr_oip_request {
    mr_str model_name;
    mr_str model_version;
    mr_str id;
    struct mr_oip_tensor *inputs;
    size_t input_count;
    struct mr_oip_requested_output *outputs;
    size_t output_count;     /* 0 = all */
    bool binary_data_output; /* REST request parameter */
    /* well-known request parameters, which are not in params */
    bool has_sequence_id;
    uint64_t sequence_id;
    mr_str sequence_id_str; /* ptr NULL when numeric or absent */
    bool sequence_start;
    bool sequence_end;
    uint64_t priority;   /* 0 = default */
    uint64_t timeout_us; /* 0 = none */
    bool enable_empty_final_response;
    const struct mr_oip_param *params; /* the rest */
    size_t param_count;
    bool raw_binary; /* REST with header length 0: one unnamed input holding the whole body */
    /** Encoding as REST: long text leaves the buffer in blocks, which are sent by reference. */
    bool may_spill;
};

struct mr_oip_response {
    mr_str model_name;
    mr_str model_version;
    mr_str id;
    const struct mr_oip_param *params;
    size_t param_count;
    struct mr_oip_tensor *outputs;
    size_t output_count;
};

struct mr_oip_limits {
    /* --http-max-input-size: JSON text and any tensor made from it, raw binary bodies; 0 = no limit. */
    uint64_t max_json_bytes;
    int32_t max_json_depth;  /* 0 = 100 */
    uint32_t max_tensors;    /* inputs or outputs of one message; 0 = 1024 */
    const char *depth_hint;  /* for texts, " (--json-max-depth)"; may be NULL */
    const char *size_option; /* name for texts, NULL = "--http-max-input-size" */
    bool null_is_nan;        /* REST: null in the data of a float tensor */
};

/* ---- decoding ----
 *
 * `limits` may be NULL (defaults, no size limit). Names of inputs and of requested outputs are distinct.
 * A decoded shape has no negative dimension and its element count fits 64 bits; typed data (JSON
 * numbers, protobuf contents) and BYTES have exactly that many elements. Fixed-size data that came
 * as bytes keeps its size on the wire: the scheduler compares it with the shape. Data is aligned for
 * its type. After an error the arena may hold parts of the message: reset it. Any thread.
 *
 * Decoding and encoding may run within a turn (base/turn.h): all their loops spend its units, and they fail with
 * MR_E_CANCELLED or another error when it is ended. */

/* ---- REST ---- */

/** header_length: the value of Inference-Header-Content-Length, or -1 when the header is absent (the body is
 *  all JSON), 0 for a raw binary request (one input: name "", tensor BYTES-agnostic, dtype INVALID, the
 *  caller completes it from the model). model: for texts only.
 *  Errors: MR_E_INVALID (Triton's texts), MR_E_TOO_LARGE, MR_E_UNSUPPORTED. */
int mr_oip_rest_decode_request(mr_bytes body, int64_t header_length, mr_str model,
                               const struct mr_oip_limits *limits, struct mr_arena *arena,
                               struct mr_oip_request *out, struct mr_err *err);

/** The id of a request that could not be decoded, for its error and the log: empty when it has none, when the id is
 *  not in the first megabyte, or after the first error of the JSON. Arguments as above. */
mr_str mr_oip_rest_find_id(mr_bytes body, int64_t header_length, struct mr_arena *arena);

/** Copies t's data if it is not aligned for its type: the caller of a raw binary request
 *  does so after it has set the type. Errors: MR_E_EXHAUSTED. */
int mr_oip_tensor_align(struct mr_oip_tensor *t, struct mr_arena *arena, struct mr_err *err);

/** Result of an encoding: `pieces` in order make the body. Small things are in `buf` (pieces point into
 *  it, block NULL), large tensors by reference with one more reference taken on their block. Long text
 *  of a response is in blocks that are made here; the arena has the other reference. */
struct mr_oip_encoded {
    struct mr_piece *pieces; /* arena */
    size_t piece_count;
    uint64_t bytes;
    int64_t header_length; /* REST with binary data: bytes of JSON; -1 when all is JSON */
};

/** buf: scratch, reset here; must live until the pieces are passed on. FP16/BF16 as JSON numbers. Before
 *  binary data the JSON is padded with blanks to a multiple of eight bytes.
 *  Errors: MR_E_INVALID (classification of a type that has none; BYTES that are not UTF-8 as JSON are
 *  replaced, not refused), MR_E_INTERNAL (an output's bytes do not fit its shape), MR_E_EXHAUSTED. */
int mr_oip_rest_encode_response(const struct mr_oip_response *r, struct mr_buf *buf,
                                struct mr_arena *arena, struct mr_oip_encoded *out,
                                struct mr_err *err);

/** Client side. Inputs are binary by tensor.binary, and where JSON cannot hold them (BYTES that are not UTF-8); raw_binary sends the one input's bytes as the body. Set
 *  binary_data of requested outputs to -1 to leave it out. Errors: MR_E_INVALID (data does not
 *  fit its shape), MR_E_EXHAUSTED. */
int mr_oip_rest_encode_request(const struct mr_oip_request *r, struct mr_buf *buf,
                               struct mr_arena *arena, struct mr_oip_encoded *out,
                               struct mr_err *err);
/** A body {"error":"..."} gives MR_E_UNKNOWN with that text; the caller knows the HTTP status. */
int mr_oip_rest_decode_response(mr_bytes body, int64_t header_length,
                                const struct mr_oip_limits *limits, struct mr_arena *arena,
                                struct mr_oip_response *out, struct mr_err *err);

/** Appends {"error":"..."}. */
void mr_oip_rest_error(struct mr_buf *buf, mr_str message);

/* ---- metadata ---- */

/** An input or output as the model declares it: -1 in the shape is any size; with the batch dimension, if there is one. */
struct mr_oip_io {
    mr_str name;
    int dtype; /* MR_DTYPE_INVALID: a type that does not exist */
    int rank;
    int64_t shape[MR_MAX_RANK];
};

/** A model's metadata, in an arena. */
struct mr_oip_metadata {
    mr_str name;    /* ptr NULL: absent */
    mr_str version; /* the last of those that are served; ptr NULL: absent */
    struct mr_oip_io *inputs;
    size_t input_count;
    struct mr_oip_io *outputs;
    size_t output_count;
};

/** Decodes the answer to GET /v2/models/MODEL; *out must be zero. Errors: MR_E_INVALID, MR_E_UNSUPPORTED (rank),
 *  MR_E_TOO_LARGE. */
int mr_oip_rest_decode_metadata(mr_bytes body, struct mr_arena *arena, struct mr_oip_metadata *out,
                                struct mr_err *err);
/** Decodes a ModelMetadataResponse, with the same rules. */
int mr_oip_pb_decode_metadata(mr_bytes message, struct mr_arena *arena, struct mr_oip_metadata *out,
                              struct mr_err *err);
/** NULL: none of that name. */
const struct mr_oip_io *mr_oip_find_input(const struct mr_oip_metadata *m, mr_str name);

/* ---- the generate extension ---- */

/** Rewrites a flat object of inputs and parameters as the JSON of an ordinary request, which is appended to `out` and
 *  must outlive the request that is decoded from it. inputs: the model's, with the batch as a dimension of -1; NULL: they are
 *  not known, and scalars are parameters. Errors: MR_E_INVALID (no such object, elements that do not fill a shape),
 *  MR_E_EXHAUSTED. */
int mr_oip_generate_request(mr_bytes body, const struct mr_oip_io *inputs, size_t input_count,
                            struct mr_arena *arena, struct mr_buf *out, struct mr_err *err);
/** Encodes an answer as one flat object between the texts `before` and `after`; an output of one element is a bare value.
 *  Otherwise as mr_oip_rest_encode_response. */
int mr_oip_generate_response(const struct mr_oip_response *r, const char *before, const char *after,
                             struct mr_buf *buf, struct mr_arena *arena, struct mr_oip_encoded *out,
                             struct mr_err *err);

/* ---- gRPC (messages without the 5-byte frame) ---- */

/** Errors: MR_E_INVALID with Triton's texts, MR_E_EXHAUSTED. The model's name is in the message. */
int mr_oip_pb_decode_request(mr_bytes message, const struct mr_oip_limits *limits,
                             struct mr_arena *arena, struct mr_oip_request *out,
                             struct mr_err *err);
/** Sets id, model_name and model_version of a request that is damaged or not there as a whole: empty what is not found
 *  in its first megabyte. They point into the message. */
void mr_oip_pb_find_names(mr_bytes message, struct mr_oip_request *q);
/** wrap_stream: as the infer_response field of a ModelStreamInferResponse. */
int mr_oip_pb_encode_response(const struct mr_oip_response *r, bool wrap_stream, struct mr_buf *buf,
                              struct mr_arena *arena, struct mr_oip_encoded *out,
                              struct mr_err *err);
/** Appends a ModelStreamInferResponse with error_message, and infer_response with what there is of `of`: names, id and
 *  parameters. */
void mr_oip_pb_encode_stream_error(mr_str message, const struct mr_oip_response *of,
                                   struct mr_buf *buf);
/** Client side. Always raw contents. */
int mr_oip_pb_encode_request(const struct mr_oip_request *r, struct mr_buf *buf,
                             struct mr_arena *arena, struct mr_oip_encoded *out,
                             struct mr_err *err);
int mr_oip_pb_decode_response(mr_bytes message, const struct mr_oip_limits *limits,
                              struct mr_arena *arena, struct mr_oip_response *out,
                              struct mr_err *err);

/** Client side: a ModelStreamInferResponse. An answer as mr_oip_pb_decode_response; or *out_error, otherwise "", with an answer
 *  that has an id at most. is_final: the server says that the request has no further answer, which every error says as well. */
int mr_oip_pb_decode_stream_response(mr_bytes message, const struct mr_oip_limits *limits,
                                     struct mr_arena *arena, struct mr_oip_response *out,
                                     mr_str *out_error, bool *out_is_final, struct mr_err *err);

/* ---- both ---- */

/** Top-k of a tensor as "value:index[:label]" BYTES (the classification extension), in memory of the arena,
 *  by in->classification, labels and batched. NaN comes last; of equal values the lower
 *  index first. Errors: MR_E_INVALID "class result not available ..." or "classification output tensor too
 *  large", MR_E_INTERNAL (bytes do not fit the shape), MR_E_EXHAUSTED. */
int mr_oip_classify(const struct mr_oip_tensor *in, struct mr_arena *arena, struct mr_tensor *out,
                    struct mr_err *err);
/** The variable parts of a REST path, slices of it; "" where it has none. */
struct mr_oip_path {
    mr_str model;
    mr_str version; /* a number, or a name of letters, digits, '_', '-' and '.' */
    mr_str repository;
    mr_str region; /* of shared memory */
};
/** True if the whole path has the form of the pattern, as in "/v2/models/{model}[/versions/{version}]/infer":
 * {NAME} is one segment, not empty, for the member of that name; [...] may be left out. Nothing is percent-decoded,
 * and a query must have been cut off before. *out is written in any case, and its parts are "" on false. */
bool mr_oip_path_match(const char *pattern, mr_str path, struct mr_oip_path *out);

#endif
