/* ModelInfer: the request path of gRPC. */
#include "serve_private.h"

static int encode(struct serve_infer *si, struct mr_oip_encoded *e)
{
    struct mr_oip_response response;
    int rc = infer_response(si, &response, &si->infer.err);

    if (rc < 0)
        return rc;
    return mr_oip_pb_encode_response(&response, false, mr_loop_scratch(si->call->loop),
                                     si->call->arena, e, &si->infer.err);
}

static void reply_grpc(struct serve_infer *si)
{
    struct mr_grpc_call *g = si->grpc;
    struct mr_server *s = si->loop->server;
    struct mr_oip_encoded e;

    if (si->infer.status == MR_OK) {
        si->encode_start_ns = mr_now_ns();
        si->infer.status = encode(si, &e);
    }
    if (si->infer.status < 0) {
        si->infer.err.status = si->infer.status;
        infer_log_failure(si);
        infer_end(si);
        grpc_fail_err(g, &si->infer.err);
        return;
    }
    infer_end(si);
    mr_grpc_reply(g, e.pieces, e.piece_count, grpc_compression(s));
}

static void cancel_grpc(struct serve_pending *p)
{
    infer_cancel(MR_CONTAINER_OF(p, struct serve_infer, pending));
}

void grpc_model_infer(struct mr_server *s, struct mr_grpc_call *g)
{
    struct mr_call *call = g->call;
    struct serve_infer *si = MR_ARENA_NEW(call->arena, struct serve_infer);
    struct mr_err err;
    mr_bytes message;
    int rc = MR_OK;

    mr_err_clear(&err);
    if (!si) {
        mr_grpc_fail(g, 8, MR_STR("the request needs more memory than it may use"));
        return;
    }
    infer_init(si, call, call->arena, MR_INFER_GRPC);
    si->grpc = g;
    si->reply = reply_grpc;
    si->pending.cancel = cancel_grpc;
    si->infer.deadline_ns = g->deadline_ns;
    MR_TRY(mr_grpc_message(g, &message, &err));
    MR_TRY(mr_oip_pb_decode_request(message, &s->grpc_limits, call->arena, &si->request, &err));
    MR_TRY(infer_forward_headers(si, &err));
    infer_run(si, si->request.model_name, si->request.model_version);
    return;
out:
    err.status = rc;
    grpc_fail_err(g, &err);
}
