/* A request goes to another server as it came: method, path, headers and body, without a look into it, over HTTP/2 connections that each
 * network thread keeps. The answer comes back the same way. Servers use an address of their own for each other (--mesh-address); what
 * their headers say counts there only.
 *
 * A hop outlives its call: the mesh may still have something to say about it. */
#include "hop_priv.h"

#include "mesh/mesh.h"
#include "mesh/plane.h"
#include "serve/state/places.h"
#include "serve/state/reply.h"

#define LOOKED_AT 4096
/* A request that was sent to where its model was before, and is not answered by then, is looked after by the mesh. */
#define SLOW_NS       (250 * MR_NS_PER_MS)
#define RETRY_MOST_MS (300 * 1000)

void hop_release(struct hop *h)
{
    if (h->is_closed && h->calls == 0) {
        for (int i = 0; i < 2; i++) {
            mr_buf_fini(&h->attempt[i].text);
        }
        mr_mesh_copy_unref(&h->lost);
        mr_free(h);
    }
}

struct mr_call *hop_take_call(struct hop *h)
{
    struct serve_arrival *a = h->arrival;
    struct mr_call *call = a->call;

    if (a->is_stream) {
        mr_buf_fini(&a->first);
        serve_closed(&a->pending);
    }
    call->user = NULL;
    h->arrival = NULL;
    mr_timer_stop(&h->slow);
    return call;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *r);

static bool send_one(struct hop *h, struct hop_attempt *at, struct mr_client *c,
                     struct mr_client_request *q)
{
    const struct mr_call *call = h->arrival->call;
    struct mr_piece body = {call->body.ptr, call->body.len, NULL};

    if (h->arrival->is_stream) {
        return hop_pass_begin(h, at, c, q);
    }
    if (body.len > 0) {
        body.block = call->body_block ? mr_block_ref(call->body_block) : NULL;
        q->pieces = &body;
        q->piece_count = 1;
    }
    if (h->arrival->is_passed) {
        return hop_pass_begin(h, at, c, q);
    }
    at->call = mr_client_send(c, q, on_answer, at);
    return true;
}

static bool send(struct hop *h, unsigned attempt, const char *address, bool load_here)
{
    struct mr_call *call = h->arrival ? h->arrival->call : NULL;
    struct mr_client *c = hop_client(h->loop, address);
    struct hop_attempt *at = &h->attempt[attempt];
    struct mr_client_request q;
    mr_str id = {0};

    if (call) {
        id = h->arrival->route ? h->arrival->route->id : h->arrival->model;
    }
    *at = (struct hop_attempt){.hop = h, .number = attempt, .text = at->text};
    if (!call || !c || h->chosen || !hop_request(call, id, load_here, &q) ||
        (!h->arrival->is_stream && !hop_spent(call, &q)) || !send_one(h, at, c, &q)) {
        return false;
    }
    h->calls++;
    return true;
}

static void forward(struct hop *h, const struct mr_mesh_event *e)
{
    if (e->is_plain) {
        places_put(h->loop, e->id, NULL, e->address);
    }
    if (!h->arrival) {
        mr_mesh_result(&h->ticket, e->attempt, MR_MESH_ENDED, MR_OK, (mr_str){0});
    } else if (!send(h, e->attempt, e->address, e->load_here)) {
        mr_mesh_result(&h->ticket, e->attempt, MR_MESH_UNREACHABLE, MR_OK, (mr_str){0});
    }
}

void hop_result(struct hop *h, const struct hop_attempt *at, enum mr_mesh_result result,
                mr_str text)
{
    if (!h->is_direct) {
        mr_mesh_result(&h->ticket, at->number, result, at->status, text);
    } else if (result == MR_MESH_ANSWERING) {
        mr_timer_stop(&h->slow);
    } else {
        hop_end_direct(h, result == MR_MESH_ENDED);
    }
}

/* ---- without the mesh ---- */

static void on_slow(struct mr_timer *t)
{
    struct hop *h = MR_CONTAINER_OF(t, struct hop, slow);

    h->is_direct = false;
    mr_mesh_begin(h->loop->server->mesh, &h->ticket);
}

static void leave_copy(struct hop *h)
{
    if (h->copy) {
        mr_mesh_copy_unuse(h->copy);
        mr_mesh_copy_unref(&h->copy);
    }
}

/* The mesh finds out which model it is, and where. */
static void ask_mesh(struct hop *h)
{
    struct serve_arrival *a = h->arrival;

    a->model = (mr_str){0};
    if (a->route) {
        a->route->id = h->ticket.id;
    }
    h->ticket.sent_to = (mr_str){0};
    mr_mesh_begin(h->loop->server->mesh, &h->ticket);
}

static bool send_direct(struct hop *h)
{
    const char *address = h->ticket.sent_to.ptr;

    if (h->copy) {
        h->is_direct = true;
        hop_run_at_runtime(h, 0);
        return true;
    }
    if (!address || !send(h, 0, address, false)) {
        return false;
    }
    h->is_direct = true;
    mr_timer_start(h->loop->loop, &h->slow, SLOW_NS, 0, on_slow);
    return true;
}

void hop_end_direct(struct hop *h, bool is_answered)
{
    h->is_direct = false;
    h->is_closed = is_answered || !h->arrival;
    mr_timer_stop(&h->slow);
    leave_copy(h);
    if (is_answered) {
        atomic_fetch_add_explicit(&h->loop->direct, 1, memory_order_relaxed);
    }
    if (h->is_closed) {
        hop_release(h);
        return;
    }
    places_forget(h->loop, h->model);
    ask_mesh(h);
}

/* Ends an attempt that was chosen. A lost copy is reported as MR_MESH_NOT_HERE; if the mesh does not know the request yet, it is begun
 * first, and the report follows in run_here. */
void hop_end_chosen(struct hop *h, const struct hop_attempt *at)
{
    bool is_lost = h->is_lost;

    if (is_lost && h->is_direct) {
        h->is_direct = false;
        mr_mesh_copy_unuse(h->copy);
        h->lost = h->copy;
        h->copy = NULL;
        places_forget(h->loop, h->model);
        h->ticket.sent_to = (mr_str){0};
        mr_mesh_begin(h->loop->server->mesh, &h->ticket);
        return;
    }
    h->is_lost = false;
    hop_result(h, at, is_lost ? MR_MESH_NOT_HERE : MR_MESH_ENDED, (mr_str){0});
}

/* ---- what comes back ---- */

void hop_reply(struct mr_call *call, const struct mr_client_response *r)
{
    struct mr_piece body = {r->body.ptr, r->body.len,
                            r->body_block ? mr_block_ref(r->body_block) : NULL};
    struct hop_answer a;

    if (!hop_answer(call, r, &a)) {
        mr_block_unref(&body.block);
        mr_call_abort(call, 11); /* ENHANCE_YOUR_CALM: its headers used up the arena */
    } else if (call->is_grpc && r->trailer_count > 0) {
        mr_call_begin(call, r->status, a.headers, a.count);
        mr_call_write(call, &body, 1);
        mr_call_end(call, a.trailers, a.trailer_count);
    } else {
        /* Of gRPC a status alone, which stays in one block of headers: clients may repeat only such calls. */
        struct mr_reply reply = {.status = r->status,
                                 .headers = a.headers,
                                 .header_count = a.count,
                                 .pieces = &body,
                                 .piece_count = 1};
        mr_call_reply(call, &reply);
    }
}

/* The other server answers, but with what cannot be passed on: asking again would not help. */
static bool is_final(int rc)
{
    return rc == MR_E_TOO_LARGE || rc == MR_E_EXHAUSTED || rc == MR_E_INVALID;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *r)
{
    struct hop_attempt *at = ctx;
    struct hop *h = at->hop;

    h->calls--;
    if (!at->call) { /* it was given up */
        hop_release(h);
        return;
    }
    at->call = NULL;
    if (rc < 0 && !is_final(rc)) {
        hop_result(h, at, MR_MESH_BROKEN, (mr_str){0});
        return;
    }
    if (rc == MR_OK && hop_refuses(r, &at->why, &at->status)) {
        hop_result(h, at, at->why, mr_str_n((const char *)r->body.ptr, r->body.len));
        return;
    }
    struct serve_arrival *a = h->arrival;
    if (a && rc == MR_OK) {
        hop_reply(hop_take_call(h), r);
    } else if (a) {
        hop_take_call(h);
        a->fail(a, err);
    }
    hop_result(h, at, MR_MESH_ENDED, (mr_str){0});
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
    places_put_found(l, target.version);
    return true;
}

/* Whether the request may be one of a sequence: its parameters are at the beginning, or at the end of a JSON text. */
static bool may_be_of_sequence(const struct serve_arrival *a)
{
    static const char name[] = "sequence_id";
    mr_str json = mr_call_header(a->call, "inference-header-content-length");
    mr_bytes all =
        a->is_stream ? (mr_bytes){(const uint8_t *)a->first.ptr, a->first.len} : a->call->body;
    uint64_t len = all.len;

    if (json.ptr && (!mr_str_to_u64(json, &len) || len > all.len)) {
        return false; /* the request will be refused */
    }
    size_t part = MR_MIN(len, LOOKED_AT);
    const uint8_t *body = all.ptr;

    return part > 0 && (memmem(body, part, name, sizeof name - 1) ||
                        memmem(body + len - part, part, name, sizeof name - 1));
}

/* The call goes on here, with all that the client has sent. */
static void give_back(struct hop *h)
{
    struct serve_arrival *a = h->arrival;

    if (a->is_stream) {
        mr_call_pause(a->call, false);
        mr_call_unread(a->call, (mr_bytes){(const uint8_t *)a->first.ptr, a->first.len});
    }
    hop_take_call(h);
}

static void run_here(struct hop *h, const struct mr_mesh_event *e)
{
    unsigned attempt = e->attempt;
    struct serve_arrival *a = h->arrival;
    bool ignored;

    if (e->copy) {
        places_put(h->loop, e->id, e->copy, "");
    }
    if (!a) {
        const bool is_lost = h->is_lost && e->copy && e->copy == h->lost; /* and no later one */
        h->is_lost = false;
        mr_mesh_result(&h->ticket, attempt, is_lost ? MR_MESH_NOT_HERE : MR_MESH_ENDED, MR_OK,
                       (mr_str){0});
    } else if (a->route && a->route->is_for_runtime) {
        hop_run_at_runtime(h, attempt);
    } else if (!is_ready(h->loop, e->id, (mr_str){0}, &ignored)) {
        mr_mesh_result(&h->ticket, attempt, MR_MESH_NOT_HERE, MR_OK, (mr_str){0});
    } else {
        give_back(h);
        a->go(a); /* takes hold of the model, which may be evicted once the mesh knows of the end */
        mr_mesh_result(&h->ticket, attempt, MR_MESH_ENDED, MR_OK, (mr_str){0});
    }
}

static void refuse_peer(struct mr_call *call, const struct mr_mesh_event *e)
{
    static const char *const whys[] = {[MR_MESH_NO_REASON] = "refused",
                                       [MR_MESH_IS_NOT_HERE] = "not-here",
                                       [MR_MESH_IS_REFUSED] = "refused",
                                       [MR_MESH_HAS_FAILED] = "failed"};
    struct mr_header headers[] = {{MR_STR(HOP_WHY), mr_str_c(whys[e->why])},
                                  {MR_STR(HOP_STATUS), mr_str_c(mr_status_name(e->status))}};
    struct mr_piece text = {e->text, strlen(e->text), NULL};
    struct mr_reply reply = {
        .status = 503, .headers = headers, .header_count = 2, .pieces = &text, .piece_count = 1};

    mr_call_reply(call, &reply);
}

void hop_refuse_exiting(struct mr_call *call)
{
    refuse_peer(
        call, &(struct mr_mesh_event){.why = MR_MESH_IS_NOT_HERE, .text = "the server is exiting"});
}

static void give_up(struct hop_attempt *at)
{
    struct mr_client_call *call = at->call;
    struct mr_client_stream *stream = at->stream;

    at->call = NULL;
    at->stream = NULL;
    if (call) {
        mr_client_cancel(call);
    }
    if (stream) {
        mr_client_stream_cancel(stream);
    }
}

/* What a vmodel stood for is gone: it stands for another model by now. */
static bool has_changed(const struct hop *h, const struct mr_mesh_event *e)
{
    return e->status == MR_E_NOT_FOUND && e->id.len > 0 && !mr_str_eq(e->id, h->ticket.id) &&
           !h->chosen && !h->is_asked_again;
}

/* True: the mesh has been asked again. */
static bool answer(struct hop *h, const struct mr_mesh_event *e)
{
    struct serve_arrival *a = h->arrival;
    struct mr_err err;

    if (!a) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        give_up(&h->attempt[i]); /* that the mesh does not wait for */
    }
    if (has_changed(h, e)) {
        h->is_asked_again = true;
        ask_mesh(h);
        return true;
    }
    if (h->has_begun) {
        mr_call_abort(hop_take_call(h), 2); /* INTERNAL_ERROR */
        return false;
    }
    if (!h->ticket.is_from_peer && e->status == MR_E_NOT_FOUND && !a->route) {
        give_back(h);
        a->go(a); /* the protocol's own text for a model that is not known */
        return false;
    }
    struct mr_call *call = hop_take_call(h);
    if (h->ticket.is_from_peer) {
        refuse_peer(call, e);
    } else {
        call->retry_ms = (uint32_t)MR_MIN(e->retry_ns / MR_NS_PER_MS, (int64_t)RETRY_MOST_MS);
        MR_FAIL(&err, e->status, "%s '%.*s': %s", h->ticket.is_vmodel ? "vmodel" : "model",
                MR_STR_ARG(mr_str_sub(h->ticket.id, 0, 128)), e->text);
        a->fail(a, &err);
    }
    return false;
}

/* Of the model; a vmodel stands for another one in time. */
static void set_model(struct serve_arrival *a, mr_str name, mr_str id)
{
    if (a->route) {
        a->route->id = id;
    } else if (!mr_str_eq(id, name)) {
        a->model = id;
    }
}

static void note_id(struct hop *h, const struct mr_mesh_event *e)
{
    const struct mr_mesh_ticket *t = &h->ticket;
    bool is_run = e->kind == MR_MESH_RUN || e->kind == MR_MESH_FORWARD;

    if (is_run && (t->is_vmodel || !mr_str_eq(e->id, t->id))) {
        places_put_active(h->loop, t->id, t->may_be_vmodel, e->id, e->names);
    }
    if (h->arrival && e->id.len > 0) {
        set_model(h->arrival, t->id, mr_arena_str(h->arrival->call->arena, e->id));
    }
}

static void on_event(struct mr_mesh_ticket *t, const struct mr_mesh_event *e)
{
    struct hop *h = MR_CONTAINER_OF(t, struct hop, ticket);

    note_id(h, e);
    switch (e->kind) {
    case MR_MESH_RUN: run_here(h, e); break;
    case MR_MESH_FORWARD: forward(h, e); break;
    case MR_MESH_CANCEL: give_up(&h->attempt[e->attempt]); break;
    case MR_MESH_REPLY:
    case MR_MESH_CLOSED:
        if (e->kind == MR_MESH_REPLY && answer(h, e)) {
            break;
        }
        h->is_closed = true;
        hop_release(h);
        break;
    }
}

/* ---- the call ---- */

struct mr_call *hop_abandon(struct hop *h)
{
    struct mr_call *call = hop_take_call(h);

    if (h->is_direct) {
        h->is_closed = true;
        leave_copy(h);
        give_up(&h->attempt[0]);
    } else {
        mr_mesh_cancel(&h->ticket);
    }
    return call;
}

static void on_cancel(struct serve_pending *p)
{
    struct serve_arrival *a = MR_CONTAINER_OF(p, struct serve_arrival, pending);
    bool has_begun = a->hop->has_begun;
    struct mr_call *call = hop_abandon(a->hop);
    struct mr_err err;

    if (has_begun) {
        mr_call_end(call, NULL, 0);
        return;
    }
    MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
    a->fail(a, &err);
}

static void refuse_early(struct serve_arrival *a, bool is_from_peer)
{
    struct mr_err err;

    mr_buf_fini(&a->first);
    if (is_from_peer) { /* records of an earlier process may show copies here */
        refuse_peer(a->call, &(struct mr_mesh_event){.why = MR_MESH_IS_NOT_HERE,
                                                     .text = "the server is starting"});
        return;
    }
    MR_FAIL(&err, MR_E_UNAVAILABLE, "the server has not joined its mesh yet");
    a->fail(a, &err);
}

/* The texts go with it. place: where it is sent to without the mesh; NULL: the mesh is asked. */
static struct hop *hop_new(struct serve_arrival *a, mr_str name, mr_str model,
                           const struct place *place)
{
    size_t place_len = place && !place->copy ? strlen(place->address) : 0;
    struct hop *h = mr_alloc(sizeof *h + name.len + model.len + place_len + 1);
    char *at = h->text + name.len + model.len;

    memcpy(h->text, name.ptr, name.len);
    memcpy(h->text + name.len, model.ptr, model.len);
    memcpy(at, place ? place->address : "", place_len + 1);
    h->arrival = a;
    h->loop = a->loop;
    h->model = mr_str_n(h->text + name.len, model.len);
    h->copy = place ? mr_mesh_copy_ref(place->copy) : NULL;
    h->input_ended = a->first_is_all;
    for (int i = 0; i < 2; i++) {
        mr_buf_init(&h->attempt[i].text, 4096);
    }
    h->ticket = (struct mr_mesh_ticket){.id = mr_str_n(h->text, name.len),
                                        .sent_to = {place_len ? at : NULL, place_len},
                                        .is_vmodel = a->route && a->route->is_vmodel,
                                        .event = on_event,
                                        .post = h->loop->reply_loop.post,
                                        .post_ctx = a->loop};
    return h;
}

static void wait_for(struct hop *h)
{
    struct serve_arrival *a = h->arrival;

    a->hop = h;
    a->pending.cancel = on_cancel;
    a->pending.room = hop_pass_room;
    if (a->is_stream) {
        a->pending.data = hop_pass_data;
        a->pending.changed = hop_pass_changed;
        hop_pass_first(h);
        serve_open(&a->pending);
    }
    a->call->user = &a->pending;
}

/* What the request says about itself. */
struct asked {
    mr_str name;  /* as in the request */
    mr_str model; /* that it stands for; the name if that is not known */
    bool is_known, is_vmodel, is_from_peer, is_joined, is_sequence;
};

/* The model is ready here, and the request may run at any copy, or only here. */
static bool may_go_on(struct serve_arrival *a, const struct asked *q, mr_str version)
{
    bool has_sequences = false;
    bool is_bound = q->is_from_peer || !q->is_joined;

    if (a->route && a->route->is_for_runtime) {
        return false;
    }
    return q->is_known && is_ready(a->loop, q->model, version, &has_sequences) &&
           (is_bound || !(q->is_sequence || has_sequences));
}

/* A vmodel that the mesh has been asked about lately. */
static void resolve(struct serve_arrival *a, struct asked *q)
{
    bool by_name = a->may_be_vmodel && !q->is_from_peer;
    mr_str model = {0};

    if ((q->is_vmodel || by_name) && q->is_joined && !q->is_sequence) {
        model = places_active(a->loop, q->name, by_name);
    }
    if (model.len) {
        q->model = mr_arena_str(a->call->arena, model);
        q->is_known = q->model.len > 0;
    }
}

/* Where it goes without the mesh; NULL: not known. */
static const struct place *place_for(struct serve_arrival *a, const struct asked *q)
{
    bool is_ours = !a->route || !a->route->is_for_runtime;
    bool asks = q->is_sequence || !q->is_known || (is_ours && (a->is_stream || a->is_passed));
    const struct place *p = asks ? NULL : places_find(a->loop, q->model);

    if (p && p->copy) {
        return mr_mesh_copy_use(p->copy) ? p : NULL;
    }
    return q->is_from_peer ? NULL : p;
}

bool hop_begin(struct serve_arrival *a, mr_str model, mr_str version)
{
    struct serve_loop *l = a->loop;
    struct asked q = {.name = model,
                      .model = model,
                      .is_vmodel = a->route && a->route->is_vmodel,
                      .is_from_peer = mr_call_listener_tag(a->call) == LISTEN_MESH &&
                                      !mr_call_header(a->call, HOP_PART).ptr,
                      .is_joined = mr_mesh_is_joined(l->server->mesh)};

    q.is_known = !q.is_vmodel;
    q.is_sequence = !q.is_from_peer && may_be_of_sequence(a);
    if (may_go_on(a, &q, version)) {
        return false;
    }
    resolve(a, &q);
    if (q.model.ptr != q.name.ptr) {
        set_model(a, q.name, q.model);
        if (may_go_on(a, &q, version)) {
            a->go(a);
            return true;
        }
    }
    if (!q.is_joined) {
        refuse_early(a, q.is_from_peer);
        return true;
    }
    struct hop *h = hop_new(a, q.name, q.model, place_for(a, &q));
    h->ticket.is_from_peer = q.is_from_peer;
    h->ticket.load_here = q.is_from_peer && mr_call_header(a->call, HOP_LOAD).len > 0;
    h->ticket.is_safe = !q.is_sequence;
    h->ticket.is_sequence = q.is_sequence;
    h->ticket.may_be_vmodel = a->may_be_vmodel && !q.is_from_peer;
    wait_for(h);
    if (!send_direct(h)) {
        ask_mesh(h);
    }
    return true;
}

void hop_message(struct mr_server *s, struct mr_call *call)
{
    mr_mesh_message(s->mesh, mr_call_header(call, HOP_FROM), call->body);
    reply_empty(call, 204);
}
