/* A request goes to another server as it came: method, path, headers and body, without a look into it, over HTTP/2 connections that each
 * network thread keeps. The answer comes back the same way. Servers use an address of their own for each other (--mesh-address); what
 * their headers say counts there only.
 *
 * A hop outlives its call: the mesh may still have something to say about it. */
#include "hop.h"

#include <stdio.h>

#include "mesh/mesh.h"
#include "net/client.h"
#include "reply.h"
#include "serve/plane/ids.h"

#define HEADERS_OWN 4 /* that are added */
#define LOOKED_AT   4096

struct hop {
    struct mr_mesh_ticket ticket;
    struct serve_arrival *arrival; /* in the call's memory; NULL: the call is answered */
    struct serve_loop *loop;
    struct hop_attempt {
        struct hop *hop;
        struct mr_client_call *call; /* NULL: none is under way */
        unsigned number;
    } attempt[2];
    unsigned calls; /* whose end has not come yet, those that were given up included */
    bool is_closed; /* the mesh has nothing more to say */
    char id[];
};

static void release(struct hop *h)
{
    if (h->is_closed && h->calls == 0) {
        mr_free(h);
    }
}

/* ---- what goes there ---- */

static struct mr_client *client_of(struct serve_loop *l, const char *address)
{
    struct mr_client *c = mr_map_find(&l->peers, mr_str_c(address));
    struct mr_client_options o = {.http2 = true, .never_repeat = true, .tls = l->server->mesh_tls};

    if (!c && mr_client_new(&c, l->loop, address, &o, NULL) == MR_OK) {
        mr_map_put(&l->peers, mr_str_c(address), c);
    }
    return c;
}

void hop_fini(struct serve_loop *l)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&l->peers, &i));) {
        struct mr_client *c = slot->value;
        mr_client_free(&c);
    }
    mr_map_fini(&l->peers);
}

static bool is_of_connection(mr_str name)
{
    static const char *const names[] = {
        "connection", "content-length",    "date",    "expect",    "host", "keep-alive", "server",
        "te",         "transfer-encoding", "upgrade", "user-agent"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (mr_str_eq_c(name, names[i])) {
            return true;
        }
    }
    return mr_str_starts(name, MR_STR("mr-mesh-")) || mr_str_starts(name, MR_STR("proxy-"));
}

/* With room for `more` after them; NULL without memory. */
static struct mr_header *copy_headers(struct mr_call *call, const struct mr_header *from,
                                      size_t count, size_t more, size_t *out_count)
{
    struct mr_header *to = MR_ARENA_ARRAY(call->arena, struct mr_header, count + more);
    size_t n = 0;

    for (size_t i = 0; i < count && to; i++) {
        if (!is_of_connection(from[i].name)) {
            to[n++] = from[i];
        }
    }
    *out_count = n;
    return to;
}

static mr_str path_of(struct mr_call *call)
{
    return call->query.len ? mr_arena_printf(call->arena, "%.*s?%.*s", MR_STR_ARG(call->path),
                                             MR_STR_ARG(call->query))
                           : call->path;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *r);

/* The id takes the place of those that the client sent, a vmodel's included: what it stands for may change meanwhile. */
static bool put_id(struct hop *h, struct mr_header *headers, size_t *io_count)
{
    struct serve_arrival *a = h->arrival;
    size_t kept = 0;

    for (size_t i = 0; i < *io_count; i++) {
        if (!plane_is_id_header(headers[i].name)) {
            headers[kept++] = headers[i];
        }
    }
    headers[kept++] = plane_id_header(a->call->arena, a->route->id);
    *io_count = kept;
    return headers[kept - 1].value.ptr != NULL;
}

static void forward(struct hop *h, const struct mr_mesh_event *e)
{
    struct mr_call *call = h->arrival ? h->arrival->call : NULL;
    struct mr_client *c = client_of(h->loop, e->address);
    struct mr_header *headers = NULL;
    size_t count = 0;
    char method[32];

    if (call && c) {
        headers = copy_headers(call, call->headers, call->header_count, HEADERS_OWN, &count);
    }
    if (!headers || (h->arrival->route && !put_id(h, headers, &count))) {
        mr_mesh_result(&h->ticket, e->attempt, MR_MESH_UNREACHABLE, (mr_str){0});
        return;
    }
    if (call->is_grpc) {
        headers[count++] = (struct mr_header){MR_STR("te"), MR_STR("trailers")};
    }
    if (e->load_here) {
        headers[count++] = (struct mr_header){MR_STR(HOP_LOAD), MR_STR("1")};
    }
    snprintf(method, sizeof method, "%.*s", MR_STR_ARG(call->method));
    struct mr_piece body = {call->body.ptr, call->body.len,
                            call->body_block ? mr_block_ref(call->body_block) : NULL};
    struct mr_client_request q = {.method = method,
                                  .path = path_of(call),
                                  .headers = headers,
                                  .header_count = count,
                                  .pieces = &body,
                                  .piece_count = call->body.len > 0};
    if (call->body.len == 0) {
        mr_block_unref(&body.block);
    }
    struct hop_attempt *at = &h->attempt[e->attempt];
    at->hop = h;
    at->number = e->attempt;
    h->calls++;
    at->call = mr_client_send(c, &q, on_answer, at);
}

/* ---- what comes back ---- */

static mr_str find(const struct mr_header *headers, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq_c(headers[i].name, name)) {
            return headers[i].value;
        }
    }
    return (mr_str){0};
}

/* The call ends with this. */
static struct mr_call *take_call(struct hop *h)
{
    struct mr_call *call = h->arrival->call;

    call->user = NULL;
    h->arrival = NULL;
    return call;
}

/* Of an answer that has no message gRPC puts the status among the headers; here it goes where it belongs. */
static void pass_on(struct hop *h, const struct mr_client_response *r)
{
    struct mr_call *call = take_call(h);
    size_t count = 0;
    size_t trailer_count = 0;
    struct mr_header *headers = copy_headers(call, r->headers, r->header_count, 1, &count);
    struct mr_header *trailers =
        copy_headers(call, r->trailers, r->trailer_count, count + 1, &trailer_count);
    struct mr_piece body = {r->body.ptr, r->body.len,
                            r->body_block ? mr_block_ref(r->body_block) : NULL};

    if (!headers || !trailers) {
        mr_block_unref(&body.block);
        mr_call_abort(call, 11); /* ENHANCE_YOUR_CALM: its headers used up the arena */
        return;
    }
    if (!call->is_grpc) {
        struct mr_reply reply = {.status = r->status,
                                 .headers = headers,
                                 .header_count = count,
                                 .pieces = &body,
                                 .piece_count = 1};
        mr_call_reply(call, &reply);
        return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (mr_str_starts(headers[i].name, MR_STR("grpc-")) && r->trailer_count == 0) {
            trailers[trailer_count++] = headers[i];
        } else {
            headers[kept++] = headers[i];
        }
    }
    mr_call_begin(call, r->status, headers, kept);
    mr_call_write(call, &body, 1);
    mr_call_end(call, trailers, trailer_count);
}

static enum mr_mesh_result result_of(mr_str why)
{
    return mr_str_eq_c(why, "not-here") ? MR_MESH_NOT_HERE
           : mr_str_eq_c(why, "failed") ? MR_MESH_LOAD_FAILED
                                        : MR_MESH_REFUSED;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *r)
{
    struct hop_attempt *at = ctx;
    struct hop *h = at->hop;

    (void)err;
    h->calls--;
    if (!at->call) { /* it was given up */
        release(h);
        return;
    }
    at->call = NULL;
    mr_str why = rc == MR_OK ? find(r->headers, r->header_count, HOP_WHY) : (mr_str){0};
    if (rc < 0) {
        mr_mesh_result(&h->ticket, at->number, MR_MESH_BROKEN, (mr_str){0});
    } else if (why.len) {
        mr_mesh_result(&h->ticket, at->number, result_of(why),
                       mr_str_n((const char *)r->body.ptr, r->body.len));
    } else {
        if (h->arrival) {
            pass_on(h, r);
        }
        mr_mesh_result(&h->ticket, at->number, MR_MESH_ENDED, (mr_str){0});
    }
}

/* ---- what the mesh says ---- */

static bool is_ready(struct serve_loop *l, mr_str model, mr_str version, bool *out_has_sequences)
{
    struct mr_target target;
    struct mr_err ignored;

    if (mr_engine_find(l->server->engine, &l->reply_loop, model, version, &target, &ignored) < 0) {
        return false;
    }
    *out_has_sequences = mr_config_sequences(target.version->config) != NULL;
    mr_version_unpin(target.version, l->epoch_slot);
    return true;
}

/* Whether the request may be one of a sequence: its parameters are at the beginning, or at the end of a JSON text. */
static bool may_be_of_sequence(const struct mr_call *call)
{
    static const char name[] = "sequence_id";
    mr_str json = mr_call_header(call, "inference-header-content-length");
    uint64_t len = call->body.len;

    if (json.ptr && (!mr_str_to_u64(json, &len) || len > call->body.len)) {
        return false; /* the request will be refused */
    }
    size_t part = MR_MIN(len, LOOKED_AT);
    const uint8_t *body = call->body.ptr;

    return part > 0 && (memmem(body, part, name, sizeof name - 1) ||
                        memmem(body + len - part, part, name, sizeof name - 1));
}

static void run_here(struct hop *h, const struct mr_mesh_event *e)
{
    unsigned attempt = e->attempt;
    struct serve_arrival *a = h->arrival;
    bool ignored;

    if (!a) {
        mr_mesh_result(&h->ticket, attempt, MR_MESH_ENDED, (mr_str){0});
    } else if (!is_ready(h->loop, e->id, (mr_str){0}, &ignored)) {
        mr_mesh_result(&h->ticket, attempt, MR_MESH_NOT_HERE, (mr_str){0});
    } else {
        mr_mesh_result(&h->ticket, attempt, MR_MESH_ENDED, (mr_str){0});
        take_call(h);
        a->go(a);
    }
}

static void refuse_peer(struct mr_call *call, const struct mr_mesh_event *e)
{
    static const char *const whys[] = {[MR_MESH_NO_REASON] = "refused",
                                       [MR_MESH_IS_NOT_HERE] = "not-here",
                                       [MR_MESH_IS_REFUSED] = "refused",
                                       [MR_MESH_HAS_FAILED] = "failed"};
    struct mr_header why = {MR_STR(HOP_WHY), mr_str_c(whys[e->why])};
    struct mr_piece text = {e->text, strlen(e->text), NULL};
    struct mr_reply reply = {
        .status = 503, .headers = &why, .header_count = 1, .pieces = &text, .piece_count = 1};

    mr_call_reply(call, &reply);
}

static void answer(struct hop *h, const struct mr_mesh_event *e)
{
    struct serve_arrival *a = h->arrival;
    struct mr_err err;

    if (!a) {
        return;
    }
    struct mr_call *call = take_call(h);
    if (h->ticket.is_from_peer) {
        refuse_peer(call, e);
    } else if (e->status == MR_E_NOT_FOUND && !a->route) {
        a->go(a); /* the protocol's own text for a model that nobody knows */
    } else {
        MR_FAIL(&err, e->status, "%s '%.*s': %s", h->ticket.is_vmodel ? "vmodel" : "model",
                MR_STR_ARG(mr_str_sub(h->ticket.id, 0, 128)), e->text);
        a->fail(a, &err);
    }
}

static void on_event(struct mr_mesh_ticket *t, const struct mr_mesh_event *e)
{
    struct hop *h = MR_CONTAINER_OF(t, struct hop, ticket);

    if (h->arrival && h->arrival->route && e->id.len) {
        h->arrival->route->id = mr_arena_str(h->arrival->call->arena, e->id);
    }
    switch (e->kind) {
    case MR_MESH_RUN: run_here(h, e); break;
    case MR_MESH_FORWARD: forward(h, e); break;
    case MR_MESH_CANCEL: {
        struct mr_client_call *call = h->attempt[e->attempt].call;
        h->attempt[e->attempt].call = NULL;
        if (call) {
            mr_client_cancel(call);
        }
        break;
    }
    case MR_MESH_REPLY:
    case MR_MESH_CLOSED:
        if (e->kind == MR_MESH_REPLY) {
            answer(h, e);
        }
        h->is_closed = true;
        release(h);
        break;
    }
}

/* ---- the call ---- */

static void on_cancel(struct serve_pending *p)
{
    struct serve_arrival *a = MR_CONTAINER_OF(p, struct serve_arrival, pending);
    struct hop *h = a->hop;
    struct mr_err err;

    take_call(h);
    mr_mesh_cancel(&h->ticket);
    MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
    a->fail(a, &err);
}

static void refuse_early(struct serve_arrival *a, bool is_from_peer)
{
    struct mr_err err;

    if (is_from_peer) {
        refuse_peer(a->call, &(struct mr_mesh_event){.why = MR_MESH_IS_REFUSED,
                                                     .text = "the server is starting"});
        return;
    }
    MR_FAIL(&err, MR_E_UNAVAILABLE, "the server has not joined its mesh yet");
    a->fail(a, &err);
}

static void post(void *ctx, struct mr_mail *mail)
{
    mr_loop_post(((struct serve_loop *)ctx)->loop, mail);
}

bool hop_begin(struct serve_arrival *a, mr_str model, mr_str version)
{
    struct serve_loop *l = a->loop;
    bool is_from_peer = mr_call_listener_tag(a->call) == LISTEN_MESH;
    bool is_joined = mr_mesh_is_joined(l->server->mesh);
    bool is_sequence = !is_from_peer && may_be_of_sequence(a->call);
    bool has_sequences = false;

    bool is_vmodel = a->route && a->route->is_vmodel;

    if (!is_vmodel && is_ready(l, model, version, &has_sequences) &&
        (is_from_peer || !is_joined || !(is_sequence || has_sequences))) {
        return false;
    }
    if (!is_joined) {
        refuse_early(a, is_from_peer);
        return true;
    }
    struct hop *h = mr_alloc(sizeof *h + model.len);
    memcpy(h->id, model.ptr, model.len);
    h->arrival = a;
    h->loop = l;
    h->ticket = (struct mr_mesh_ticket){.id = mr_str_n(h->id, model.len),
                                        .is_from_peer = is_from_peer,
                                        .load_here = is_from_peer &&
                                                     mr_call_header(a->call, HOP_LOAD).len > 0,
                                        .is_safe = !is_sequence,
                                        .is_sequence = is_sequence,
                                        .is_vmodel = is_vmodel,
                                        .event = on_event,
                                        .post = post,
                                        .post_ctx = l};
    a->hop = h;
    a->pending.cancel = on_cancel;
    a->call->user = &a->pending;
    mr_mesh_begin(l->server->mesh, &h->ticket);
    return true;
}

void hop_message(struct mr_server *s, struct mr_call *call)
{
    mr_mesh_message(s->mesh, mr_call_header(call, HOP_FROM), call->body);
    reply_empty(call, 204);
}
