/* An inference as REST and gRPC share it. On network threads. */
#ifndef MR_SERVE_STATE_INFER_H
#define MR_SERVE_STATE_INFER_H

#include "engine/shadow.h"
#include "engine/wire.h"
#include "loops.h"
#include "serve/endpoints/route.h"

/* One inference of a client, on either protocol. Lives in its call's arena, or in a stream item. */
struct serve_infer {
    struct serve_pending pending;
    struct mr_infer infer;
    struct mr_oip_request request;
    struct serve_loop *loop;
    struct mr_call *call;
    struct mr_grpc_call *grpc; /* NULL: REST */
    struct mr_timer timer;
    struct mr_call_wait wait; /* until the client has read, to be submitted again */
    struct mr_turn turn;      /* decoding, later encoding, where that takes long */
    struct mr_buf text;       /* of an answer that is encoded in turns */
    const char *no_decoupled; /* why models of several answers are refused; NULL: they are not */
    /* For a model that takes messages (message.c): the message, and what is asked of the model; NULL = a request that
     * was decoded */
    mr_bytes message;
    const char *message_kind;
    struct mr_response *response; /* of a decoupled one that was asked for one answer: the first */
    struct route route;
    struct variant_wait *variant; /* for the model that the route leads to; NULL: none yet */
    struct mr_oip_param answer_params[2]; /* of the answer that is being built */
    bool is_routed;                       /* route is chosen */
    bool has_no_model;                    /* what the route leads to is not here */
    bool is_pinned;
    const struct mr_header *trailers; /* of the answer of a model that takes messages, over gRPC */
    size_t trailer_count;
    int bound;                             /* status of infer_bind */
    int64_t encode_start_ns;               /* of the answer that is being encoded; 0: none is */
    int64_t encode_ns;                     /* of the answers before */
    void (*reply)(struct serve_infer *si); /* infer.status is set; exactly once */
    /* The end of a wait for the route's model, where decoding depends on it: decodes once more if it is there, or else answers
     * with infer.status, or infer_run if that is MR_OK. NULL: it does not depend on it. */
    void (*again)(struct serve_infer *si, bool is_there);
};

/* Header of a request that another server of the mesh sent on: microseconds since its client sent it. */
#define SERVE_SPENT "mr-mesh-spent"

void infer_init(struct serve_infer *si, struct mr_call *call, struct mr_arena *arena,
                enum mr_infer_protocol protocol);
/* Chooses what answers the request, by its parameters and its call's headers: model and version become those, valid for this
 * iteration of the loop. infer_bind does it unless it is done; the request may be another one by then. Errors: as route_begin,
 * and of headers that are forwarded, in infer.err. */
int infer_route(struct serve_infer *si, mr_str *model, mr_str *version);
/* Finishes decoding for the request's model, as work of the same turn. Negative: the request cannot be read
 * (infer_refuse). infer_run answers all other errors. */
int infer_bind(struct serve_infer *si, mr_str model, mr_str version);
void infer_run(struct serve_infer *si);
/* The model that the route leads to is not here. True: the resolver is asked for it, and `again` is called later. False: there is no
 * resolver, or it has been asked. infer_run does it, too. */
bool infer_awaits_variant(struct serve_infer *si);
/* Parameters of the answer: the model's, `final` (may be NULL), and the variant if there is one. The name that the client
 * asked for. Errors are in infer.err. */
int infer_answer_params(struct serve_infer *si, const struct mr_oip_param *final,
                        struct mr_oip_response *io);
void infer_end(struct serve_infer *si);
void infer_cancel(struct serve_infer *si);
/* True: the request waited as infer_awaits_variant says; that wait has ended, or will. infer_cancel does it, too. */
bool infer_cancel_variant(struct serve_infer *si);
/* Outputs of this many bytes take long to encode as text. */
#define SERVE_LONG_ANSWER 32768u
/* True if a body of this many bytes takes longer to decode, or the outputs to encode, than a loop should spend at
 * once. */
bool infer_is_long_body(size_t bytes);
bool infer_is_long_answer(const struct serve_infer *si);
/* Runs `work` in turns of the loop, then calls `done`; a cancel ends it, and with is_input the exit of the server. */
void infer_turn(struct serve_infer *si, void (*work)(struct mr_turn *t),
                void (*done)(struct mr_turn *t), bool is_input);
/* The reason of the end of a turn, for the client. Returns err's status. */
int serve_turn_error(const struct mr_turn *t, struct mr_err *err);
/* To be called first in `done`: infer.status is that of the work, unless the turn was ended. */
void infer_turned(struct serve_infer *si);
/* Records the start of encoding; if the execution has just ended on this thread, its end is the time. infer_end is the end. */
void infer_encode_begins(struct serve_infer *si);
/* The end of encoding one of several answers. Without a start it does nothing. */
void infer_encode_ends(struct serve_infer *si);
/* Builds and compresses the gRPC answer (with `final`: an element of a stream with that parameter). On failure nothing
 * has to be dropped. */
int infer_encode_grpc(struct serve_infer *si, const struct mr_oip_param *final,
                      struct mr_grpc_message *out);
/* Makes infer.outputs those of an answer, in its arena, which becomes infer.arena; the caller restores both. */
void infer_use_response(struct serve_infer *si, struct mr_response *response);
/* The answer without outputs that is the final one, in infer.arena. */
int infer_encode_end(struct serve_infer *si, struct mr_grpc_message *out);
/* The same as infer_encode_grpc for one of several answers, which may be an end without outputs. */
int infer_encode_response(struct serve_infer *si, struct mr_response *response,
                          struct mr_grpc_message *out);
void infer_drop_answer(struct mr_grpc_message *m);
/* The buffer for encoding: the loop's scratch buffer, or si->text in a turn. */
struct mr_buf *infer_buf(struct serve_infer *si);
void infer_log_failure(const struct serve_infer *si);
/* Whether requests for this name are not decoded; of an endpoint, those of its main variant. */
bool infer_takes_messages(const struct serve_infer *si, mr_str model, mr_str version);
/* Replaces infer_run for a request that cannot be read, with the reason in infer.err. */
void infer_refuse(struct serve_infer *si, int status);
/* Counts and logs an inference that ends with `err` before it becomes a serve_infer; model: as far as it is known. The
 * caller answers the call. */
void infer_count_refused(struct mr_call *call, mr_str model, const struct mr_err *err);
const char *infer_protocol_name(enum mr_infer_protocol protocol);

#endif
