/* A call with the ids of several models is as many calls of one model, a few at a time, and its answer is their answers one after the
 * other: protobuf merges messages that are joined so. The server sends them to its own address in the mesh, so that each
 * goes its way as if a client had sent it. On the network thread of the call. */
#include "base/clock.h"
#include "methods_priv.h"
#include "serve/mesh/hop_send.h"
#include "serve/plane/ids.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/loops.h"

#define PARALLEL 4

struct multi {
    struct serve_pending pending;
    struct mr_server *server;
    struct serve_loop *loop;
    struct mr_grpc_call *g;
    struct plane_ids ids;
    mr_bytes message;
    size_t next;    /* to be sent */
    size_t running; /* those whose end has not come */
    size_t found;
    uint64_t len; /* of the answers */
    bool is_over; /* nothing more is sent */
    int code;     /* gRPC's status */
    struct mr_err err;
    struct part {
        struct multi *multi;
        struct mr_client_call *call; /* NULL: not under way */
        struct mr_piece answer;
        bool is_found;
    } parts[];
};

static void finish(struct multi *m)
{
    struct mr_grpc_call *g = m->g;
    struct mr_piece *pieces = MR_ARENA_ARRAY(g->call->arena, struct mr_piece, m->ids.count);
    size_t count = 0;

    g->call->user = NULL;
    if (!m->code && !pieces) {
        m->code = MR_GRPC_RESOURCE_EXHAUSTED;
        MR_ARENA_FAIL(&m->err);
    } else if (!m->code && m->found == 0) {
        m->code = MR_GRPC_NOT_FOUND;
        MR_FAIL(&m->err, MR_E_NOT_FOUND, "none of the requested models were found");
    }
    for (size_t i = 0; i < m->ids.count; i++) {
        struct mr_piece *p = &m->parts[i].answer;
        if (m->code || p->len == 0) {
            mr_block_unref(&p->block);
        } else {
            pieces[count++] = *p;
        }
    }
    if (m->code) {
        mr_grpc_fail(g, m->code, mr_str_c(m->err.msg));
    } else {
        mr_grpc_reply(g, pieces, count, grpc_compression(m->server));
    }
}

/* Ends the rest. */
static void give_up(struct multi *m, int code, const struct mr_err *err)
{
    if (m->is_over) {
        return;
    }
    m->is_over = true;
    m->code = code;
    m->err = *err;
    for (size_t i = 0; i < m->ids.count; i++) {
        if (m->parts[i].call) {
            mr_client_cancel(m->parts[i].call);
        }
    }
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response);

static void send_part(struct multi *m, struct mr_client *c, size_t i)
{
    struct mr_call *call = m->g->call;
    struct mr_piece piece = {m->message.ptr, m->message.len, NULL};
    struct mr_client_request whole;
    size_t kept = 0;
    struct mr_err err;

    if (!hop_request(call, m->ids.at[i], false, &whole)) {
        MR_ARENA_FAIL(&err);
        give_up(m, MR_GRPC_RESOURCE_EXHAUSTED, &err);
        return;
    }
    struct mr_header *h = (struct mr_header *)(uintptr_t)whole.headers;
    for (size_t k = 0; k < whole.header_count; k++) {
        bool is_grpcs = mr_str_starts(h[k].name, MR_STR("grpc-")) ||
                        mr_str_eq_c(h[k].name, "content-type") || mr_str_eq_c(h[k].name, "te");
        if (mr_str_eq_c(h[k].name, PLANE_ID) && m->ids.is_vmodel) {
            h[k].name = MR_STR("mm-vmodel-id-bin");
        }
        if (!is_grpcs) {
            h[kept++] = h[k];
        }
    }
    h[kept++] = (struct mr_header){MR_STR(HOP_PART), MR_STR("1")};
    int64_t left_ns = m->g->deadline_ns ? MR_MAX(m->g->deadline_ns - mr_now_ns(), 1) : 0;
    struct mr_client_grpc_request q = {.path = mr_arena_str(call->arena, call->path).ptr,
                                       .metadata = h,
                                       .metadata_count = kept,
                                       .pieces = &piece,
                                       .piece_count = piece.len > 0,
                                       .timeout_ns = left_ns};
    m->running++;
    m->parts[i].call = mr_client_grpc(c, &q, on_answer, &m->parts[i]);
}

static void go_on(struct multi *m)
{
    struct mr_client *c = hop_client(m->loop, m->server->mesh_address);
    struct mr_err err;

    if (!c) {
        MR_FAIL(&err, MR_E_INTERNAL, "the server cannot reach itself");
        give_up(m, MR_GRPC_INTERNAL, &err);
    }
    while (!m->is_over && m->running < PARALLEL && m->next < m->ids.count) {
        send_part(m, c, m->next++);
    }
    if (m->running == 0) {
        finish(m);
    }
}

static int keep(struct part *p, const struct mr_client_response *r, struct mr_err *err)
{
    struct multi *m = p->multi;

    m->len += r->body.len;
    if (m->len > m->server->options.grpc_max_message_bytes) {
        return MR_FAIL(err, MR_E_EXHAUSTED,
                       "the answers of the models are larger than %llu bytes together "
                       "(--grpc-max-message-size)",
                       (unsigned long long)m->server->options.grpc_max_message_bytes);
    }
    p->answer = (struct mr_piece){r->body.ptr, r->body.len,
                                  r->body_block ? mr_block_ref(r->body_block) : NULL};
    if (!r->body_block && r->body.len) {
        p->answer.ptr =
            mr_arena_str(m->g->call->arena, mr_str_n((const char *)r->body.ptr, r->body.len)).ptr;
    }
    return p->answer.ptr || r->body.len == 0 ? MR_OK : MR_ARENA_FAIL(err);
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *r)
{
    struct part *p = ctx;
    struct multi *m = p->multi;
    struct mr_err why;

    p->call = NULL;
    m->running--;
    if (rc == MR_OK) {
        m->found++;
        if (keep(p, r, &why) < 0) {
            give_up(m, MR_GRPC_RESOURCE_EXHAUSTED, &why);
        }
    } else if (rc != MR_E_NOT_FOUND || m->ids.requires_all) {
        bool is_known = r && r->grpc_status > 0;
        give_up(m, is_known ? r->grpc_status : (int)mr_status_grpc(rc), err);
    }
    go_on(m);
}

static void on_cancel(struct serve_pending *p)
{
    struct multi *m = MR_CONTAINER_OF(p, struct multi, pending);
    struct mr_err err;

    MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
    give_up(m, MR_GRPC_CANCELLED, &err);
}

void grpc_multi(struct mr_server *s, struct mr_grpc_call *g, const struct plane_ids *ids)
{
    struct multi *m = mr_arena_try_array(
        g->call->arena, 1, sizeof *m + ids->count * sizeof *m->parts, _Alignof(struct multi));
    struct mr_err err = {0};

    if (!m) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the request needs more memory than it may use"));
        return;
    }
    m->server = s;
    m->loop = serve_here();
    m->g = g;
    m->ids = *ids;
    for (size_t i = 0; i < ids->count; i++) {
        m->parts[i].multi = m;
    }
    if (mr_grpc_message(g, &m->message, &err) < 0) {
        grpc_fail_err(g, &err);
        return;
    }
    m->pending.cancel = on_cancel;
    g->call->user = &m->pending;
    go_on(m);
}
