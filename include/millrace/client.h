/* The client library: inferences on servers of the Open Inference Protocol, from C.
 *
 *   client -> endpoint -> variant -> host
 *
 * A client is made from addresses, or from a configuration: a file of endpoints as `millrace serve --endpoints` reads it,
 * without ramp, with a `client` block, or Paddle Serving's predictors.prototxt. An endpoint is a name that requests use as their model; its
 * variants share the traffic by weights, and the hosts of a variant share that of the variant. A request for a model that is no
 * endpoint goes to the hosts of the client as it is.
 *
 * Threads: all functions may be called from any thread. Calls wait in the calling thread (mr_sdk_infer, mr_sdk_call_wait) or end in a
 * callback (mr_sdk_infer_start). Callbacks run on a thread of the client, or on one that waits for a call; with MR_SDK_PROCESS they run
 * within mr_sdk_process. They must not block, nor call mr_sdk_infer or mr_sdk_free. A client does not survive fork().
 *
 * Structs that the caller fills begin with their size and grow at the end: set `size` to sizeof and zero what is not used, as in
 * `struct mr_sdk_options o = {.size = sizeof o};`. A member that the caller's struct does not have is zero.
 *
 * Errors: functions return MR_OK or a negative enum mr_status and fill *err, which may be NULL. Outputs are written on success
 * only. Arguments are borrowed for the call unless said otherwise. A client that is NULL, as after mr_sdk_free, a struct that is NULL or whose size
 * is 0, and a list or text that is NULL where it is needed are MR_E_INVALID. */
#ifndef MILLRACE_CLIENT_H
#define MILLRACE_CLIENT_H

#include <stdint.h>

#include "millrace/status.h"
#include "millrace/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_SDK_VERSION_MAJOR 1
#define MR_SDK_VERSION_MINOR 0
#define MR_SDK_EXPORT        __attribute__((visibility("default")))

struct mr_sdk;
struct mr_sdk_call;
struct mr_sdk_result;
struct mr_sdk_stream;
struct mr_sdk_memory;

/** Where callbacks run. */
enum mr_sdk_delivery {
    MR_SDK_THREAD = 0, /* on a thread that the client has */
    MR_SDK_PROCESS = 1 /* within mr_sdk_process, for programs with an event loop of their own */
};

struct mr_sdk_options {
    uint32_t size;
    uint32_t delivery; /* enum mr_sdk_delivery */

    /** Text of a file of endpoints, or of predictors.prototxt. NULL: none. */
    const char *config;
    /** The same in a file; not both. */
    const char *config_file;
    /** Hosts of models that are no endpoint: "http://HOST:PORT", "grpc://HOST:PORT", https, grpcs, "http://unix:/PATH",
     *  "grpc://unix:/PATH", "list://A,B", "file://PATH" (a host per line, read again when it changes), "dns://NAME:PORT" (all its
     *  addresses, looked up again and again). A number after a blank is the host's share, as in "http://a:8000 3". */
    const char *const *urls;
    uint32_t url_count;

    /** Attempts of a call, 1 to 16; 0: 3. Further attempts go to another host if there is one. They are limited to 20 % of
     *  all calls, not counting those after a host that was busy or does not have the model. */
    uint32_t attempts;
    /** NULL: "peak_ewma". See docs/sdk.md. */
    const char *strategy;
    /** Tensors over REST: "binary" (NULL as well) or "json". */
    const char *protocol;
    int64_t timeout_ms;         /* of a call with all its attempts; 0: 20000 */
    int64_t connect_timeout_ms; /* 0: 2000 */
    int64_t attempt_timeout_ms; /* 0: ten times what the host usually takes, at least 5000 */
    int64_t hedge_after_ms;     /* > 0: a second host gets the call as well after this time */
    uint32_t max_connections;   /* per host, and calls at a time; 0: 100 */
    uint32_t header_count;
    /** "Name: value", sent with each request that has none of that name. */
    const char *const *headers;

    const char *tls_ca_file;     /* NULL: the system's authorities */
    const char *tls_cert_file;   /* NULL: no client certificate */
    const char *tls_key_file;    /* NULL: in tls_cert_file */
    const char *tls_server_name; /* NULL: the host of the address */
    uint32_t tls_insecure;       /* 1: any certificate is accepted */
    uint32_t reserved;
    const char *compression; /* of requests of 32 KiB and more: NULL or "none", "gzip", "deflate" */
    /** Requests with inputs that are marked MR_SDK_PACK_ON: rows of a part, 0: 20, and parts at most, 1 to 64, 0: 3. */
    uint32_t package_size;
    uint32_t max_channel_per_request;
};

/** Hosts are connected to by their first call. Errors: MR_E_INVALID, MR_E_UNSUPPORTED, MR_E_NOT_FOUND, MR_E_IO, MR_E_TOO_LARGE. */
MR_SDK_EXPORT int mr_sdk_create(struct mr_sdk **out, const struct mr_sdk_options *options,
                                struct mr_err *err);
/** Ends calls that are under way with MR_E_CANCELLED; their callbacks run before this returns, with MR_SDK_PROCESS as well. Other threads may
 *  be waiting in mr_sdk_infer, mr_sdk_ask, mr_sdk_call_wait and the functions of streams meanwhile: they get that error, and have left
 *  the client when this returns. Nothing else may be called with the client from its beginning on; handles of calls may be
 *  waited for, cancelled and given back at any time. Sets the pointer to NULL; NULL is allowed. */
MR_SDK_EXPORT void mr_sdk_free(struct mr_sdk **client);
/** Which parts of the configuration are read and have no effect, in a sentence; "": none. Programs show it to whoever wrote the
 *  configuration. Borrowed from the client. */
MR_SDK_EXPORT const char *mr_sdk_warning(const struct mr_sdk *client);
/** "MAJOR.MINOR.PATCH" of the library. Static. */
MR_SDK_EXPORT const char *mr_sdk_version(void);

/* ---- memory ---- */

/** Makes memory that servers on the same host read inputs from and write outputs to, without a copy by the client: those at
 *  "http://unix:/PATH" that take it (`millrace serve --http-shared-memory`). Others get its tensors as any; a server that does not take
 *  it answers with an error. It has no name, and nothing of it is left when both processes are done with it. The caller divides
 *  it, and gives it back with mr_sdk_memory_free. bytes: 1 to 1 GiB; zeros. Errors: MR_E_INVALID, MR_E_EXHAUSTED. */
MR_SDK_EXPORT int mr_sdk_memory_new(struct mr_sdk_memory **out, uint64_t bytes, struct mr_err *err);
/** Its first byte, aligned to a page. Lives until the memory is freed and all calls with it are over. */
MR_SDK_EXPORT void *mr_sdk_memory_data(const struct mr_sdk_memory *memory);
/** 1: a call with places was given up, by its deadline, by a cancel or for a second copy, and its server may still write to them. Such
 *  memory is not shared any more: requests send its tensors as any. The program makes another one. */
MR_SDK_EXPORT uint32_t mr_sdk_memory_is_lost(const struct mr_sdk_memory *memory);
/** Calls that are under way keep it. Sets the pointer to NULL; NULL is allowed. */
MR_SDK_EXPORT void mr_sdk_memory_free(struct mr_sdk_memory **memory);

/* ---- requests ---- */

/** The rows of the first dimension may be divided among hosts: the request becomes several, each with a part of them, and the outputs are
 *  joined by their first dimension in the order of the rows. Inputs with this flag have the same number of rows; others are
 *  sent with each part. A part has its own attempts; the first one that fails is the error of the request. Not of sequences, nor
 *  on streams, where the flag has no effect. */
#define MR_SDK_PACK_ON 1u

/** A tensor of a request. BYTES: each element a 4-byte little-endian length and that many bytes. */
struct mr_sdk_tensor {
    uint32_t size;
    int32_t dtype; /* enum mr_dtype */
    const char *name;
    const int64_t *shape; /* rank numbers >= 0 */
    int32_t rank;
    uint32_t flags;   /* of inputs: MR_SDK_PACK_ON */
    const void *data; /* borrowed until the call is over; aligned for its type */
    uint64_t bytes;
};

enum mr_sdk_param_kind {
    MR_SDK_PARAM_BOOL = 0,
    MR_SDK_PARAM_INT = 1,
    MR_SDK_PARAM_DOUBLE = 2,
    MR_SDK_PARAM_STRING = 3
};

/** A parameter of a request. */
struct mr_sdk_param {
    uint32_t size;
    int32_t kind; /* enum mr_sdk_param_kind */
    const char *name;
    int64_t i; /* BOOL, INT */
    double d;
    const char *s;
};

#define MR_SDK_SEQUENCE_START 1u
#define MR_SDK_SEQUENCE_END   2u
/** One attempt, no second copy: for models that change something. Requests of a sequence are so by themselves. */
#define MR_SDK_ONCE 4u
/** Ends with what a host says that is busy or does not have the model, if no other host is left: it is neither asked again nor left
 *  alone for as long as it wants. For callers that have something else to do. */
#define MR_SDK_FAIL_FAST 8u

/** Everything but the data of the inputs is copied. */
struct mr_sdk_request {
    uint32_t size;
    uint32_t flags;
    const char *model;   /* an endpoint or a model */
    const char *version; /* NULL: the endpoint's, or the server's choice */
    const char *id;      /* NULL: none */
    const struct mr_sdk_tensor *inputs;
    uint32_t input_count;
    uint32_t output_count;
    const char *const *outputs; /* names; output_count 0: all */
    const struct mr_sdk_param *params;
    uint32_t param_count;
    uint32_t header_count;
    const char *const *headers; /* "Name: value", at most 6 */
    int64_t timeout_ms;         /* 0: the client's */
    /** Chooses the variant of an endpoint that is sticky, in place of its header or parameter, and the host with strategy hash. */
    const char *key;
    const char *variant;  /* a tag: this variant, whatever the weights are */
    uint64_t sequence_id; /* 0: none */
    uint64_t priority;    /* 0: the model's default */
    /** NULL, or where some of the tensors are: inputs in it are read there by a server that shares it. Streams and requests in
     *  parts send them as others. */
    struct mr_sdk_memory *memory;
    /** NULL, or for each of `outputs` a place in the memory (`data` and `bytes`; data NULL: none), at which the result's data is
     *  then, if the server shares the memory and the output fits. Written by the server until the call is over. */
    const struct mr_sdk_tensor *places;
};

/** Waits for the answer, which the caller frees with mr_sdk_result_free. Errors: MR_E_NOT_FOUND (no such endpoint or variant; or the
 *  server says so), MR_E_INVALID, MR_E_UNAVAILABLE, MR_E_DEADLINE, MR_E_CANCELLED (mr_sdk_free), MR_E_INTERNAL (an answer that
 *  is broken, or is none of the protocol) and those that the server gives. */
MR_SDK_EXPORT int mr_sdk_infer(struct mr_sdk *client, const struct mr_sdk_request *request,
                               struct mr_sdk_result **out, struct mr_err *err);

/** status: MR_OK with a result, which the callee frees; otherwise result is NULL and *err (valid during the call) says what is
 *  wrong. */
typedef void(mr_sdk_done_fn)(void *ctx, int status, const struct mr_err *err,
                             struct mr_sdk_result *result);
/** Starts an inference. `done` is called exactly once, never from within this. NULL: the answer is that of mr_sdk_call_wait, and the
 *  call may begin with the first wait only. out_call: NULL, which needs `done`, or a handle that the caller gives back with
 *  mr_sdk_call_free, before or after the end of the call. Errors: as of mr_sdk_infer, without `done`, for what is wrong with the
 *  request itself. */
MR_SDK_EXPORT int mr_sdk_infer_start(struct mr_sdk *client, const struct mr_sdk_request *request,
                                     mr_sdk_done_fn *done, void *ctx, struct mr_sdk_call **out_call,
                                     struct mr_err *err);
/** Waits for a call without `done`: returns 1, and *out is its result, once; 0: it is not over within wait_ms (-1: as long as it
 *  takes; on a client's own thread not at all), or a signal has ended the wait before; less than 0: the errors of mr_sdk_infer. One thread
 *  waits for a call at a time. Errors: also MR_E_CLOSED (the result was taken), MR_E_INVALID (the call has `done`). */
MR_SDK_EXPORT int mr_sdk_call_wait(struct mr_sdk_call *call, int64_t wait_ms,
                                   struct mr_sdk_result **out, struct mr_err *err);
/** Gives a call up: `done` and mr_sdk_call_wait get MR_E_CANCELLED, unless the call is over already. */
MR_SDK_EXPORT void mr_sdk_call_cancel(struct mr_sdk_call *call);
/** The call itself goes on. Sets the pointer to NULL; NULL is allowed. */
MR_SDK_EXPORT void mr_sdk_call_free(struct mr_sdk_call **call);

/** MR_SDK_PROCESS: readable when mr_sdk_process has something to do; borrowed. Otherwise -1. */
MR_SDK_EXPORT int mr_sdk_fd(const struct mr_sdk *client);
/** MR_SDK_PROCESS: runs the callbacks of calls that are over, and returns how many; does not wait. */
MR_SDK_EXPORT int mr_sdk_process(struct mr_sdk *client);

/* ---- questions ---- */

enum mr_sdk_question_kind {
    MR_SDK_SERVER_LIVE = 1,     /* yes or no */
    MR_SDK_SERVER_READY = 2,    /* yes or no */
    MR_SDK_MODEL_READY = 3,     /* yes or no; of a model that the server does not have, no */
    MR_SDK_SERVER_METADATA = 4, /* text */
    MR_SDK_MODEL_METADATA = 5,  /* text */
    MR_SDK_MODEL_CONFIG = 6     /* text; Triton's extension */
};

/** What a host says of itself or of a model. It is one host, chosen as that of a request. */
struct mr_sdk_question {
    uint32_t size;
    int32_t kind;      /* enum mr_sdk_question_kind */
    const char *model; /* an endpoint or a model; of a server: NULL, or one whose hosts are meant */
    const char *version; /* as of a request */
    const char *key;     /* as of a request */
    const char *variant; /* as of a request */
    const char *const *headers;
    uint32_t header_count; /* at most 6 */
    uint32_t reserved;
    int64_t timeout_ms; /* 0: the client's */
};

/** Waits for the answer: mr_sdk_result_is_yes or mr_sdk_result_text. Errors: as of mr_sdk_infer. */
MR_SDK_EXPORT int mr_sdk_ask(struct mr_sdk *client, const struct mr_sdk_question *question,
                             struct mr_sdk_result **out, struct mr_err *err);
/** As mr_sdk_infer_start. */
MR_SDK_EXPORT int mr_sdk_ask_start(struct mr_sdk *client, const struct mr_sdk_question *question,
                                   mr_sdk_done_fn *done, void *ctx, struct mr_sdk_call **out_call,
                                   struct mr_err *err);

/* ---- shadows ---- */

/** Of the shadow of an endpoint, since the client was made. */
struct mr_sdk_shadow_stats {
    uint32_t size;
    uint32_t reserved;
    uint64_t requests; /* that were to be copied */
    uint64_t dropped;  /* there were as many copies already as may be, or no memory */
    uint64_t failed;   /* the shadow gave an error */
    uint64_t compared;
    uint64_t different;
};

/** *out is filled as far as out->size, which the caller sets. Errors: MR_E_NOT_FOUND (no endpoint of that name, or it has no shadow). */
MR_SDK_EXPORT int mr_sdk_shadow_stats(const struct mr_sdk *client, const char *endpoint,
                                      struct mr_sdk_shadow_stats *out, struct mr_err *err);

/* ---- streams ---- */

/** Something has changed: an answer came after mr_sdk_stream_read had returned 0, there is room after mr_sdk_stream_send had
 *  returned MR_E_EXHAUSTED, or the stream is over. Runs where callbacks run. May call the functions of streams, with a wait
 *  of 0: on a thread of the client a longer one is taken as 0. */
typedef void(mr_sdk_stream_fn)(void *ctx);

struct mr_sdk_stream_options {
    uint32_t size;
    uint32_t header_count;
    const char *model;          /* an endpoint or a model: it chooses the host of the stream */
    const char *const *headers; /* "Name: value", at most 6, of the stream */
    const char *key;            /* as of a request */
    const char *variant;        /* as of a request */
    int64_t timeout_ms;         /* of the whole stream; 0: none */
    /** Answers that are not read yet; the host stops at that many bytes. What is on its way, at most 16 MiB, comes on top. 0: 4 MiB. */
    uint64_t max_unread_bytes;
    /** Requests that the host has not taken yet. One of any size is taken when there is no other. 0: 4 MiB. */
    uint64_t max_unsent_bytes;
    mr_sdk_stream_fn *notify; /* NULL: none */
    void *ctx;
};

/** An answer of a stream. */
struct mr_sdk_answer {
    uint32_t size;
    /** MR_OK, or MR_E_UNKNOWN: the request of this id has failed, and the stream goes on. */
    int32_t status;
    struct mr_sdk_result
        *result;         /* the receiver's; of a request that failed it has an id at most */
    const char *message; /* why it failed, otherwise ""; lives as long as the result */
    /** 1: the request has no further answer. A model that ends without one more gives an answer without outputs then. */
    uint32_t is_final;
    uint32_t reserved;
};

/** Opens a stream (ModelStreamInfer): any number of requests to one host, each with one answer or many. The host must be one with
 *  grpc:// or grpcs://. It is connected to later. If it goes before its first answer, or says that it is busy or does not have the
 *  model, all requests are sent to another host, as the attempts of a call: not if one of them is of a sequence or MR_SDK_ONCE, or
 *  if they have more than max_unsent_bytes. Otherwise that is the end of the stream. The caller gives the handle back with
 *  mr_sdk_stream_free. Errors: MR_E_INVALID, MR_E_NOT_FOUND. */
MR_SDK_EXPORT int mr_sdk_stream_open(struct mr_sdk *client,
                                     const struct mr_sdk_stream_options *options,
                                     struct mr_sdk_stream **out, struct mr_err *err);
/** Sends a request; all of it is copied. `model`: NULL or that of the stream; or another model of the same host. `timeout_ms` is
 *  the longest that it waits in the queue of its model, 0: the model's own limit. headers, key and variant are the stream's, and
 *  refused here. Waits up to wait_ms for room (-1: as long as it takes; 0, and always on the client's own thread: not at all). Errors:
 *  MR_E_EXHAUSTED (no room: again after `notify`), MR_E_CLOSED (after mr_sdk_stream_done, or the stream is over: the text says
 *  why), MR_E_INVALID, MR_E_NOT_FOUND, MR_E_TOO_LARGE; the stream goes on. */
MR_SDK_EXPORT int mr_sdk_stream_send(struct mr_sdk_stream *stream,
                                     const struct mr_sdk_request *request, int64_t wait_ms,
                                     struct mr_err *err);
/** No more requests: the host answers those that it has, and ends the stream. */
MR_SDK_EXPORT void mr_sdk_stream_done(struct mr_sdk_stream *stream);
/** The next answer: returns 1, and fills *answer as far as its size, which the caller sets. 0: none within wait_ms (as above). Less
 *  than 0: there will be none; MR_E_CLOSED: the stream has ended as it should; others, MR_E_DEADLINE, MR_E_CANCELLED,
 *  MR_E_UNAVAILABLE and those that the host gives: why it was cut off. Answers that came before are given first. */
MR_SDK_EXPORT int mr_sdk_stream_read(struct mr_sdk_stream *stream, int64_t wait_ms,
                                     struct mr_sdk_answer *answer, struct mr_err *err);
/** Ends the stream with MR_E_CANCELLED, also on the host, unless it is over. */
MR_SDK_EXPORT void mr_sdk_stream_cancel(struct mr_sdk_stream *stream);
/** Cancels a stream that is not over. `notify` is not called any more after this has returned; within `notify` it may be called as
 *  well. Before or after mr_sdk_free; of the other functions, mr_sdk_stream_read may be called after that. Sets the pointer to NULL; NULL is
 *  allowed. */
MR_SDK_EXPORT void mr_sdk_stream_free(struct mr_sdk_stream **stream);
/** The address of the host, "" before one was chosen; lives as long as the handle. */
MR_SDK_EXPORT const char *mr_sdk_stream_host(struct mr_sdk_stream *stream);

/* ---- results ---- */

MR_SDK_EXPORT uint32_t mr_sdk_result_output_count(const struct mr_sdk_result *result);
/** The tensor at that index. *out is filled as far as out->size, which the caller sets. What it points to lives as long as the
 *  result. Errors: MR_E_INVALID (no such index). */
MR_SDK_EXPORT int mr_sdk_result_output(const struct mr_sdk_result *result, uint32_t index,
                                       struct mr_sdk_tensor *out);
/** The index of an output, -1: there is none of that name. */
MR_SDK_EXPORT int32_t mr_sdk_result_find(const struct mr_sdk_result *result, const char *name);
/** Texts of the answer, "" where there is none; they live as long as the result. `variant`: the tag of the variant that answered;
 *  `host`: its address. */
MR_SDK_EXPORT const char *mr_sdk_result_model(const struct mr_sdk_result *result);
MR_SDK_EXPORT const char *mr_sdk_result_version(const struct mr_sdk_result *result);
MR_SDK_EXPORT const char *mr_sdk_result_id(const struct mr_sdk_result *result);
MR_SDK_EXPORT const char *mr_sdk_result_variant(const struct mr_sdk_result *result);
MR_SDK_EXPORT const char *mr_sdk_result_host(const struct mr_sdk_result *result);
/** The answer to a question: a JSON object, of the same form over REST and gRPC; "" of yes or no. Lives as long as the result. */
MR_SDK_EXPORT const char *mr_sdk_result_text(const struct mr_sdk_result *result);
/** The answer to a question of yes or no: 1 or 0. */
MR_SDK_EXPORT uint32_t mr_sdk_result_is_yes(const struct mr_sdk_result *result);
/** How many attempts the call took, with those of all parts. */
MR_SDK_EXPORT uint32_t mr_sdk_result_attempts(const struct mr_sdk_result *result);
/** Sets the pointer to NULL; NULL is allowed. */
MR_SDK_EXPORT void mr_sdk_result_free(struct mr_sdk_result **result);

/* ---- help ---- */

/** "FP32", "BYTES", as the protocol writes it; "INVALID". Static. */
MR_SDK_EXPORT const char *mr_sdk_dtype_name(int32_t dtype);
/** MR_DTYPE_INVALID: there is none of that name. */
MR_SDK_EXPORT int32_t mr_sdk_dtype(const char *name);
/** Bytes of an element, 0 for BYTES. */
MR_SDK_EXPORT uint64_t mr_sdk_dtype_size(int32_t dtype);
/** "unavailable". Static. */
MR_SDK_EXPORT const char *mr_sdk_status_text(int status);

#ifdef __cplusplus
}
#endif
#endif
