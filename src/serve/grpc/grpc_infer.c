/* ModelInfer: the request path of gRPC. */
#include "methods_priv.h"

#include <string.h>

#include "codec/json.h"
#include "net/grpc_status.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/state.h"

struct grpc_infer {
    struct serve_infer si;
    struct mr_grpc_message answer;
};

static struct grpc_infer *of_turn(struct mr_turn *t)
{
    return MR_CONTAINER_OF(t, struct grpc_infer, si.turn);
}

/* Clients take 8 KiB of metadata in all. */
#define TRACE_BYTES_MAX 6144u

/* What a graph says of its failure when it was asked for a trace: trailing metadata, if they are not too large. */
static void fail(struct mr_grpc_call *g, const struct mr_infer *r)
{
    const struct mr_answer_parameters *p = &r->answer;
    struct mr_header trailers[2];
    size_t count = 0;
    struct mr_buf text;

    mr_buf_init(&text, TRACE_BYTES_MAX);
    for (uint32_t i = 0; i < p->count && count == 0; i++) {
        const mr_str value = mr_str_c(p->list[i].value);
        if (strcmp(p->list[i].key, "workflow.trace") == 0) {
            mr_base64_encode((mr_bytes){(const uint8_t *)value.ptr, value.len}, &text);
            trailers[count++] =
                (struct mr_header){MR_STR("workflow.trace-bin"), mr_buf_view(&text)};
        }
    }
    grpc_fail_with(g, &r->err, trailers, text.failed ? 0 : count);
    mr_buf_fini(&text);
}

/* The work of a turn, or done at once. */
static void encode(struct mr_turn *t)
{
    struct grpc_infer *gi = of_turn(t);

    gi->si.infer.status = infer_encode_grpc(&gi->si, NULL, &gi->answer);
}

static void encoded(struct mr_turn *t)
{
    struct grpc_infer *gi = of_turn(t);
    struct serve_infer *si = &gi->si;

    infer_turned(si);
    struct mr_buf text = si->text; /* outlives the call, as pieces point into it */
    if (si->infer.status < 0) {
        infer_drop_answer(&gi->answer);
        si->infer.err.status = si->infer.status;
        infer_log_failure(si);
        infer_end(si);
        fail(si->grpc, &si->infer);
    } else {
        infer_end(si);
        mr_grpc_send_message(si->grpc, &gi->answer, grpc_compression(si->loop->server));
        mr_grpc_finish_with(si->grpc, MR_GRPC_OK, (mr_str){NULL, 0}, si->trailers,
                            si->trailer_count);
    }
    mr_buf_fini(&text);
}

static void reply_grpc(struct serve_infer *si)
{
    if (si->infer.status == MR_OK && infer_is_long_answer(si)) {
        infer_turn(si, encode, encoded, false);
        return;
    }
    if (si->infer.status == MR_OK) {
        encode(&si->turn);
    }
    encoded(&si->turn);
}

static void cancel_grpc(struct serve_pending *p)
{
    infer_cancel(MR_CONTAINER_OF(p, struct serve_infer, pending));
}

/* The work of a turn, or done at once. */
static void decode(struct mr_turn *t)
{
    struct grpc_infer *gi = of_turn(t);
    struct mr_infer *r = &gi->si.infer;
    struct mr_oip_request *q = &gi->si.request;
    mr_bytes message;
    int rc;

    MR_TRY(mr_grpc_message(gi->si.grpc, &message, &r->err));
    rc = mr_oip_pb_decode_request(message, &gi->si.loop->server->grpc_limits, r->arena, q, &r->err);
    if (rc < 0) {
        mr_oip_pb_find_names(message, q);
    } else {
        if (infer_takes_messages(&gi->si, q->model_name, q->model_version)) {
            gi->si.message = message;
            gi->si.message_kind = "grpc";
        }
        rc = infer_bind(&gi->si, q->model_name, q->model_version);
    }
out:
    r->status = rc;
}

static void decoded(struct mr_turn *t)
{
    struct serve_infer *si = &of_turn(t)->si;
    struct mr_infer *r = &si->infer;

    infer_turned(si);
    if (r->status == MR_OK) {
        infer_run(si);
        return;
    }
    infer_refuse(si, r->status);
    infer_log_failure(si);
    infer_end(si);
    grpc_fail_err(si->grpc, &r->err);
}

/* NULL: the call was answered. */
static struct grpc_infer *infer_new(struct mr_grpc_call *g)
{
    struct grpc_infer *gi = MR_ARENA_NEW(g->call->arena, struct grpc_infer);

    if (!gi) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the request needs more memory than it may use"));
        return NULL;
    }
    infer_init(&gi->si, g->call, g->call->arena, MR_INFER_GRPC);
    gi->si.grpc = g;
    gi->si.reply = reply_grpc;
    gi->si.pending.cancel = cancel_grpc;
    gi->si.no_decoupled = "ModelInfer RPC doesn't support models with decoupled transaction policy";
    gi->si.infer.deadline_ns = g->deadline_ns;
    return gi;
}

void grpc_ask(struct mr_grpc_call *g, mr_str model, mr_str version, const char *kind)
{
    struct grpc_infer *gi = infer_new(g);

    if (gi) {
        gi->si.message_kind = kind;
        gi->si.request.model_name = model;
        gi->si.infer.status = infer_bind(&gi->si, model, version);
        decoded(&gi->si.turn);
    }
}

void grpc_model_infer(struct mr_server *s, struct mr_grpc_call *g)
{
    struct grpc_infer *gi = infer_new(g);

    (void)s;
    if (!gi) {
        return;
    }
    if (mr_grpc_is_packed(g) || infer_is_long_body(g->call->body.len)) {
        infer_turn(&gi->si, decode, decoded, true);
    } else {
        decode(&gi->si.turn);
        decoded(&gi->si.turn);
    }
}
