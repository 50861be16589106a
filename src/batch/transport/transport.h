/* How a host is spoken to: requests of the Open Inference Protocol by REST or gRPC, and what an answer means. Private.
 *
 * Thread: the loop's. */
#ifndef MR_BATCH_TRANSPORT_H
#define MR_BATCH_TRANSPORT_H

#include "balance/balance.h"
#include "batch/batch.h"
#include "local.h"
#include "net/client.h"
#include "oip/oip.h"

/* Which form of tensors a host takes over REST. JSON is what each server has to take; not all take bytes, and few say so
 * before they get some. */
struct transport_form {
    bool binary_ok;      /* a call with bytes was answered well: all are made so */
    bool json_ok;        /* a call with JSON was, and none with bytes */
    bool json_next;      /* the next call */
    bool is_json;        /* bytes failed before and after JSON did well */
    uint32_t json_count; /* calls with JSON that did well since bytes were tried last */
    /** After this many they are tried again: the rows may have been the reason. */
    uint32_t json_most;
};

struct transport {
    const struct mr_batch_options *o;
    enum mr_batch_protocol protocol;
    struct mr_tls_client *tls; /* NULL: none */
    struct mr_client *client;
    struct local *local; /* MR_BATCH_LOCAL: all else is none */
    char address[256];
    char prefix[256]; /* of paths, with mr_batch_options.openai: "/v1" */
    struct transport_form form;
};

/** *w is zero, or was closed. url: one of mr_batch_hosts_options.list. tls_name, unless NULL, is whom its certificate has to
 *  name if the options do not say. Nothing is connected yet. Errors: MR_E_INVALID, and those of mr_tls_client_new. */
int transport_open(struct transport *w, struct mr_loop *loop, const struct mr_batch_options *o,
                   const char *url, const char *tls_name, struct mr_err *err);
/** A larger answer is none. */
void transport_bound(struct transport *w, int64_t bytes);
/** The model in this process. */
void transport_open_local(struct transport *w, const struct mr_batch_options *o,
                          struct local *local);
/** Calls that are pending end as cancelled, now; those of a local model when local_close says it. */
void transport_close(struct transport *w);
/** After the loop is gone. */
void transport_fini(struct transport *w);
/** Is a URL one of a host? Its parts: protocol, TLS or not, and the rest, to which a port may be missing. Errors:
 *  MR_E_INVALID, MR_E_UNSUPPORTED. */
int transport_parse(const char *url, const struct mr_batch_options *o, enum mr_batch_protocol *out,
                    bool *out_is_tls, const char **out_rest, struct mr_err *err);
int transport_default_port(const struct mr_batch_options *o, enum mr_batch_protocol protocol,
                           bool is_tls);

/** Asks for the model's metadata; `done` passes what it gets to transport_metadata. */
void transport_ask(struct transport *w, int64_t timeout_ns, mr_client_done_fn *done, void *ctx);
/** Is an HTTP status one that will hardly be another one when the same is asked again? */
bool transport_status_lasts(int status);
/** rc, err and response as `done` got them. *out must be zero. Errors: MR_E_UNKNOWN (the host may work soon), others. */
int transport_metadata(const struct transport *w, int rc, const struct mr_err *cause,
                       const struct mr_client_response *response, struct mr_arena *arena,
                       struct mr_oip_metadata *out, struct mr_err *err);

/** What became of a call; valid until transport_done_fn returns. */
struct transport_reply {
    int rc;
    const struct mr_err *err;
    const struct mr_client_response *response;
    const struct mr_infer *infer; /* MR_BATCH_LOCAL */
};
typedef void(transport_done_fn)(void *ctx, const struct transport_reply *reply);
/** In the caller's memory, until `done` is called. */
struct transport_call {
    /** Once, never from within transport_send; passes what it gets to transport_judge. */
    transport_done_fn *done;
    void *ctx;
    /* of transport_send */
    struct mr_client_call *call; /* NULL: in this process */
    /** Text that it made of the tensors and keeps until the end; 0: they are sent as they are. */
    uint64_t text_bytes;
    bool is_binary;
    bool is_proof; /* that the host takes JSON only, if it fails */
};
/** An inference. r is changed. buf and arena live until it is done, if it is made in this process; otherwise they are not
 *  needed any more. Errors: those of mr_oip_rest_encode_request; then
 *  `done` is not called. */
int transport_send(struct transport *w, struct transport_call *c, struct mr_oip_request *r,
                   struct mr_buf *buf, struct mr_arena *arena, int64_t timeout_ns,
                   struct mr_err *err);

/** Cancels a call at its host (mr_client_cancel): `done` gets MR_E_CANCELLED later. No effect on a local model. */
void transport_cancel(const struct transport_call *c);

/** A row of an answered call that has no result through its own fault: the host works. */
struct row_fault {
    uint64_t row;       /* of the call */
    const char *kind;   /* of the dead letter; static */
    const char *cause;  /* in the call's arena, as what follows */
    mr_str raw;         /* what was answered to it */
    bool may_ask;       /* it is asked for again instead, … */
    const char *note;   /* … with this, NULL: nothing, … */
    uint32_t doublings; /* … and so often doubled room for the answer */
};

struct openai_answer;

struct transport_answer {
    enum mr_balance_outcome outcome;
    int64_t retry_after_ns;
    bool is_for_good;                   /* the host cannot serve the model at all */
    bool is_for_form;                   /* perhaps it takes the rows as JSON */
    char cause[560];                    /* unless outcome is OK */
    struct mr_oip_response response;    /* OK */
    struct mr_block *body;              /* OK: what tensors may lie in; the client's */
    const struct openai_answer *openai; /* instead of response and body */
    const struct row_fault *faults;     /* OK: by ascending row */
    size_t fault_count;
    uint64_t size; /* OK: what the call's latency is divided by; 0: its rows */
};
/** A request of any other kind. */
void transport_post(struct transport *w, struct transport_call *c,
                    const struct mr_client_request *request);
/** What the reply says without its body, all of *out; true: that the body is an answer. */
bool transport_judge_status(const struct transport_reply *reply, struct transport_answer *out);
/** Reads an answer of good form; whether it is a good answer the caller finds out. */
void transport_judge(const struct transport *w, const struct transport_reply *reply,
                     struct mr_arena *arena, struct transport_answer *out);
/** What was found out about an answer, once per call; decides the form of those that follow. True: the call was refused
 *  perhaps for its form, and its rows should be sent again before they are blamed. */
bool transport_form_note(struct transport *w, const struct transport_call *c,
                         enum mr_balance_outcome outcome);

#endif
