/* One inference, whatever the protocol: find and pin the version, check, submit, and bring the outcome to the
 * protocol's reply function, at once or later. On the network thread of the call.
 *
 * `reply` runs exactly once. It builds the answer, calls infer_end and then ends the call, whose arena holds all
 * of this. */
#include "infer.h"

#include "client_memory.h"
#include "grpc_reply.h"
#include "loops.h"
#include "message.h"
#include "places.h"
#include "restrict.h"
#include "serve/plane/call_times.h"
#include "state.h"

/* About half a millisecond of JSON: text to numbers, and numbers to text. */
#define LONG_BODY_BYTES 65536u

/* Errors about a request carry its id, as Triton's do; those of a model, those about names that the model does not have,
 * and the end of a wait in the queue, are their own words there. */
static void add_request_id(struct serve_infer *si)
{
    struct mr_err *err = &si->infer.err;
    struct mr_err shown;

    if (si->message_kind || si->infer.is_executed) {
        return; /* the texts are the model's */
    }
    if (mr_str_starts(mr_str_c(err->msg), MR_STR("unexpected inference ")) ||
        mr_str_eq_c(MR_STR("Request timeout expired"), err->msg)) {
        return;
    }
    mr_str id = si->request.id.len ? mr_str_sub(si->request.id, 0, 100) : MR_STR("<id_unknown>");

    (void)MR_FAIL(&shown, err->status, "[request id: %.*s] %s", MR_STR_ARG(id), err->msg);
    memcpy(err->msg, shown.msg, sizeof err->msg);
}

static void reply_now(struct serve_infer *si)
{
    if (si->message_kind) {
        message_take(si);
    }
    if (si->infer.status < 0) {
        add_request_id(si);
    }
    si->reply(si);
}

static void finish_waiting(struct serve_infer *si)
{
    mr_timer_stop(&si->timer);
    reply_now(si);
}

static void start_timer(struct serve_infer *si);

static void submit(struct serve_infer *si)
{
    int rc = mr_engine_submit(si->loop->server->engine, &si->infer);

    if (rc == MR_OK) {
        start_timer(si);
        return;
    }
    if (rc == MR_SCHED_DONE) {
        si->encode_start_ns = si->infer.times.end; /* the answer is made at once */
    }
    reply_now(si);
}

static void has_read(struct mr_call_wait *w)
{
    submit(MR_CONTAINER_OF(w, struct serve_infer, wait));
}

/* The client leaves its answers unread. */
static void wait_read(struct serve_infer *si)
{
    struct mr_infer *r = &si->infer;

    mr_timer_stop(&si->timer);
    /* relaxed: this thread has set it */
    if (atomic_load_explicit(&r->is_cancelled, memory_order_relaxed)) {
        r->status = MR_FAIL(&r->err, MR_E_CANCELLED, "the request was cancelled");
        finish_waiting(si);
        return;
    }
    si->wait.run = has_read;
    if (!mr_call_wait_read(si->call, &si->wait)) {
        submit(si);
    }
}

static void on_done(struct mr_infer *r)
{
    if (r->status == MR_SCHED_UNREAD) {
        wait_read(r->user);
    } else {
        finish_waiting(r->user);
    }
}

static void on_timer(struct mr_timer *t)
{
    struct serve_infer *si = MR_CONTAINER_OF(t, struct serve_infer, timer);

    if (mr_sched_expire(&si->infer)) {
        finish_waiting(si);
    } else {
        start_timer(si);
    }
}

/* Requests that wait with a time limit are looked at when it ends; running ones are left alone. */
static void start_timer(struct serve_infer *si)
{
    int64_t at = si->infer.expire_ns;

    if (at == 0) {
        return;
    }
    /* Also when it is past by now: all instances may be busy for long, so no other check would run. */
    mr_timer_start(si->loop->loop, &si->timer, MR_MAX(0, at - mr_now_ns()), 0, on_timer);
}

static mr_str header_of(void *ctx, const char *lower_name)
{
    const struct serve_infer *si = ctx;

    return serve_is_secret_header(si->loop->server, mr_str_c(lower_name))
               ? (mr_str){NULL, 0}
               : mr_call_header(si->call, lower_name);
}

void infer_init(struct serve_infer *si, struct mr_call *call, struct mr_arena *arena,
                enum mr_infer_protocol protocol)
{
    si->loop = serve_here();
    si->call = call;
    si->infer.arena = arena;
    si->infer.reply_loop = &si->loop->reply_loop;
    si->infer.protocol = protocol;
    si->infer.on_done = on_done;
    si->infer.is_unread = mr_call_is_unread(call);
    si->infer.user = si;
    si->infer.header = header_of;
    si->infer.header_ctx = si;
    si->infer.times.received = call->recv_start_ns;
    si->infer.round_ns = mr_loop_now_ns(call->loop);
}

/* A wait for the model that a route leads to. In the request's memory. */
struct variant_wait {
    struct serve_infer *si;
    mr_str model, version;
    struct mr_resolve resolve;
    struct mr_version *held; /* pinned until the request is bound to it */
    bool is_open, has_begun, is_cancelled;
};

static int find_version(struct serve_infer *si, mr_str model, mr_str version)
{
    const struct mr_oip_request *q = &si->request;
    struct mr_target target;
    int rc = mr_engine_find(si->loop->server->engine, si->infer.reply_loop, model, version, &target,
                            &si->infer.err);

    if (rc < 0) {
        target.version = places_found(si->loop, model, version);
        if (!target.version && si->variant) {
            target.version = si->variant->held;
        }
        if (!target.version) {
            return rc;
        }
        mr_version_pin(target.version, si->loop->epoch_slot);
    }
    si->infer.names_version = version.len > 0;
    if (q->has_sequence_id && !q->sequence_start) {
        mr_engine_follow(si->loop->server->engine, &si->infer, q->sequence_id, q->sequence_id_str,
                         &target);
    }
    if (target.version->is_decoupled && si->no_decoupled && !target.version->has_messages) {
        mr_version_unpin(target.version, si->loop->epoch_slot);
        return MR_FAIL(&si->infer.err, MR_E_UNSUPPORTED, "%s", si->no_decoupled);
    }
    si->infer.version = target.version;
    si->is_pinned = true;
    return MR_OK;
}

/* The time that the request may wait is less what was spent on its way here. */
static void reduce_timeout(struct serve_infer *si)
{
    struct mr_oip_request *q = &si->request;
    bool is_sent_on = q->timeout_us && mr_call_listener_tag(si->call) == LISTEN_MESH;
    uint64_t us;

    if (!is_sent_on || !mr_str_to_u64(mr_call_header(si->call, SERVE_SPENT), &us)) {
        return;
    }
    uint64_t here = (uint64_t)(mr_now_ns() - si->call->recv_start_ns) / MR_NS_PER_US;
    us = us < UINT64_MAX - here ? us + here : UINT64_MAX;
    q->timeout_us = q->timeout_us > us ? q->timeout_us - us : 1;
}

/* What the name leads to, if that is another model which a resolver may bring. Without memory it is not asked. */
static void variant_note(struct serve_infer *si, mr_str asked, mr_str model, mr_str version)
{
    struct mr_arena *arena = si->infer.arena;

    if (si->variant || !si->loop->server->options.resolver.resolve || mr_str_eq(asked, model)) {
        return;
    }
    struct variant_wait *w = MR_ARENA_NEW(arena, struct variant_wait);
    const mr_str names[] = {mr_arena_str(arena, model), mr_arena_str(arena, version)};
    if (w && names[0].ptr && names[1].ptr) {
        *w = (struct variant_wait){.si = si, .model = names[0], .version = names[1]};
        si->variant = w;
    }
}

static int route_choose(struct serve_infer *si, mr_str *model, mr_str *version)
{
    struct endpoints *es = si->loop->server->endpoints;

    if (si->variant) { /* it was chosen before the wait for it */
        *model = si->variant->model;
        *version = si->variant->version;
        if (si->variant->held) {
            mr_version_pin(si->variant->held, si->loop->epoch_slot);
            places_put_found(si->loop, si->variant->held);
        }
        return MR_OK;
    }
    si->is_routed = true;
    si->route = (struct route){0};
    return es ? route_begin(es, si->loop->epoch_slot, si->call, &si->request, model, version,
                            &si->route, &si->infer.err)
              : MR_OK;
}

static int bind_version(struct serve_infer *si, mr_str model, mr_str version)
{
    struct mr_infer *r = &si->infer;
    const mr_str asked = model;
    struct mr_infer_args args;
    int rc;

    if (!si->is_routed || si->variant) {
        MR_TRY(route_choose(si, &model, &version));
    }
    if (r->deadline_ns && mr_now_ns() >= r->deadline_ns) {
        rc = MR_FAIL(&r->err, MR_E_DEADLINE,
                     "Deadline Exceeded: the request arrived after its deadline");
        goto out;
    }
    rc = find_version(si, model, version);
    si->has_no_model = rc < 0 && rc != MR_E_UNSUPPORTED;
    if (si->has_no_model) {
        variant_note(si, asked, model, version);
    }
    MR_TRY(rc);
    if (r->version->has_messages || si->message_kind) {
        MR_TRY(message_args(si, version, &args));
        MR_TRY(mr_infer_validate(r, &args, &r->err));
        goto out;
    }
    reduce_timeout(si);
    MR_TRY(client_memory_read(si));
    if (si->request.raw_binary) {
        MR_TRY(mr_wire_complete_raw(&si->request, r->version, r->arena, &r->err));
    }
    if (r->version->reads_matrix) {
        MR_TRY(mr_wire_matrix(&si->request, r->version, r->arena, &r->err));
    }
    MR_TRY(mr_wire_args(&si->request, r->arena, &args, &r->err));
    MR_TRY(mr_infer_validate(r, &args, &r->err));
out:
    return rc;
}

/* Parameters that mean something to the server, which a header may not set. */
static bool is_reserved(mr_str name)
{
    static const char *const names[] = {"sequence_id",       "sequence_start", "sequence_end",
                                        "priority",          "timeout",        "headers",
                                        "binary_data_output"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (mr_str_eq_c(name, names[i])) {
            return true;
        }
    }
    return mr_str_starts(name, MR_STR("triton_"));
}

/* Headers that match the pattern become string parameters of the request; with a pattern that minds the case by
 * the name that was sent. */
static int forward_headers(struct serve_infer *si, struct mr_err *err)
{
    const struct mr_server *s = si->loop->server;
    const regex_t *pattern = s->options.header_forward;
    struct mr_oip_request *q = &si->request;
    struct mr_arena *a = si->infer.arena;
    struct mr_oip_param *p;
    size_t n = q->param_count;

    if (!pattern) {
        return MR_OK;
    }
    p = MR_ARENA_ARRAY(a, struct mr_oip_param, q->param_count + si->call->header_count);
    if (!p) {
        return MR_ARENA_FAIL(err);
    }
    if (n) {
        memcpy(p, q->params, n * sizeof *p);
    }
    for (size_t i = 0; i < si->call->header_count; i++) {
        const struct mr_header *h = &si->call->headers[i];
        mr_str name = mr_arena_str(a, mr_call_name_sent(si->call, h));
        if (serve_is_secret_header(s, h->name)) {
            continue;
        }
        if (!name.ptr) {
            return MR_ARENA_FAIL(err);
        }
        if (regexec(pattern, name.ptr, 0, NULL, 0) != 0) {
            continue;
        }
        if (is_reserved(name)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "Header '%s' is reserved for Triton usage and cannot be forwarded.",
                           name.ptr);
        }
        p[n++] = (struct mr_oip_param){.key = name, .kind = MR_OIP_STRING, .s = h->value};
    }
    q->params = p;
    q->param_count = n;
    return MR_OK;
}

int infer_route(struct serve_infer *si, mr_str *model, mr_str *version)
{
    const mr_str asked = *model;
    int rc = forward_headers(si, &si->infer.err);

    if (rc == MR_OK) {
        rc = route_choose(si, model, version);
    }
    if (rc == MR_OK) {
        variant_note(si, asked, *model, *version);
    }
    return rc;
}

int infer_bind(struct serve_infer *si, mr_str model, mr_str version)
{
    int rc = forward_headers(si, &si->infer.err);

    if (rc == MR_OK) {
        si->bound = bind_version(si, model, version);
    }
    return rc;
}

static void rebind(struct mr_turn *t)
{
    struct serve_infer *si = MR_CONTAINER_OF(t, struct serve_infer, turn);

    si->bound = bind_version(si, si->variant->model, si->variant->version);
}

static void rebound(struct mr_turn *t)
{
    struct serve_infer *si = MR_CONTAINER_OF(t, struct serve_infer, turn);

    infer_turned(si);
    si->bound = si->infer.status < 0 ? si->infer.status : si->bound;
    infer_run(si);
}

/* An error other than that the model is not known, whose text was there before. */
static void variant_failed(struct serve_infer *si, int status)
{
    if (si->infer.status < 0) {
        si->infer.status = status; /* that of the decoding */
    } else {
        si->bound = status;
    }
}

/* It may be unloaded once the resolver knows that this has been seen, and is looked up in a later turn. */
static void variant_hold(struct variant_wait *w)
{
    struct serve_loop *loop = w->si->loop;
    struct mr_target target;
    struct mr_err ignored;

    if (mr_engine_find(loop->server->engine, &loop->reply_loop, w->model, w->version, &target,
                       &ignored) == MR_OK) {
        w->held = target.version;
    }
}

static void variant_release(struct serve_infer *si)
{
    if (si->variant && si->variant->held) {
        mr_version_unpin(si->variant->held, si->loop->epoch_slot);
        si->variant->held = NULL;
    }
}

static void on_variant(struct mr_resolve *q)
{
    struct variant_wait *w = MR_CONTAINER_OF(q, struct variant_wait, resolve);
    struct serve_infer *si = w->si;
    const bool is_there = q->status == MR_OK && !w->is_cancelled;

    w->is_open = false;
    if (is_there) {
        variant_hold(w);
    }
    if (w->is_cancelled) {
        variant_failed(si, MR_FAIL(&si->infer.err, MR_E_CANCELLED, "the request was cancelled"));
    } else if (q->status < 0 && q->status != MR_E_NOT_FOUND) {
        si->infer.err = q->err;
        variant_failed(si, q->status);
    }
    if (si->again) {
        si->again(si, is_there);
    } else if (is_there) {
        infer_turn(si, rebind, rebound, true);
    } else {
        infer_run(si);
    }
}

bool infer_awaits_variant(struct serve_infer *si)
{
    struct variant_wait *w = si->variant;
    struct mr_target target;
    struct mr_err err;

    if (!w || w->has_begun || si->is_pinned) {
        return false;
    }
    w->has_begun = true;
    w->resolve.done = on_variant;
    if (!si->call->streaming) {
        si->call->user = &si->pending;
    }
    int rc = mr_engine_resolve(si->loop->server->engine, &si->loop->reply_loop, w->model,
                               MR_STR(""), &w->resolve, &target, &err);
    w->is_open = rc == MR_PENDING;
    if (!w->is_open) {
        if (rc == MR_OK) {
            mr_version_unpin(target.version, si->loop->epoch_slot); /* on_variant takes it */
        }
        w->resolve.status = rc;
        w->resolve.err = err;
        on_variant(&w->resolve);
    }
    return true;
}

bool infer_cancel_variant(struct serve_infer *si)
{
    struct variant_wait *w = si->variant;

    if (!w || !w->is_open) {
        return false;
    }
    w->is_cancelled = true;
    if (mr_engine_resolve_cancel(si->loop->server->engine, &w->resolve)) {
        on_variant(&w->resolve);
    }
    return true;
}

void infer_run(struct serve_infer *si)
{
    if (si->bound < 0 && infer_awaits_variant(si)) {
        return;
    }
    variant_release(si);
    if (si->bound == MR_OK) {
        si->call->user = si->grpc && si->call->streaming ? si->call->user : &si->pending;
        submit(si);
        return;
    }
    if (si->is_pinned) {
        add_request_id(si);
    }
    si->infer.status = si->bound;
    si->reply(si);
}

/* Refusals for lack of room or time come in floods, and the model's counters include them. */
static bool is_of_load(int status)
{
    return status == MR_E_UNAVAILABLE || status == MR_E_EXHAUSTED || status == MR_E_DEADLINE ||
           status == MR_E_CANCELLED;
}

void infer_encode_begins(struct serve_infer *si)
{
    if (!si->encode_start_ns) {
        si->encode_start_ns = mr_now_ns();
    }
}

static void encode_add(struct serve_infer *si, int64_t now_ns)
{
    if (si->encode_start_ns) {
        si->encode_ns += now_ns - si->encode_start_ns;
        si->encode_start_ns = 0;
    }
}

void infer_encode_ends(struct serve_infer *si)
{
    encode_add(si, mr_now_ns());
}

/* A model's parameter of the same name gives way. */
static void param_put(struct mr_oip_param *list, size_t *count, const struct mr_oip_param *p)
{
    size_t at = 0;

    while (at < *count && !mr_str_eq(list[at].key, p->key)) {
        at++;
    }
    list[at] = *p;
    *count += at == *count;
}

int infer_answer_params(struct serve_infer *si, const struct mr_oip_param *final,
                        struct mr_oip_response *io)
{
    const size_t own = sizeof si->answer_params / sizeof *si->answer_params;
    struct mr_infer *r = &si->infer;
    struct mr_oip_param *list = si->answer_params;
    size_t n = 0;
    int rc = MR_OK;

    if (r->answer.count > 0) {
        MR_TRY(mr_wire_answer_params(&r->answer, r->arena, own, &list, &n, &r->err));
    }
    if (final) {
        param_put(list, &n, final);
    }
    if (si->route.endpoint) {
        param_put(list, &n,
                  &(struct mr_oip_param){.key = MR_STR(ROUTE_PARAMETER),
                                         .kind = MR_OIP_STRING,
                                         .s = route_tag(&si->route)});
    }
    if (si->route.asked.ptr) {
        io->model_name = si->route.asked;
    }
    io->params = n ? list : NULL;
    io->param_count = n;
out:
    return rc;
}

int infer_encode_grpc(struct serve_infer *si, const struct mr_oip_param *final,
                      struct mr_grpc_message *out)
{
    struct mr_infer *r = &si->infer;
    struct mr_oip_response response;
    struct mr_oip_encoded e;
    int rc;

    infer_encode_begins(si);
    if (r->version->has_messages) {
        struct message_answer answer;
        MR_TRY(message_answer(si, &answer, &r->err));
        e = answer.body;
        si->trailer_count = message_trailers(&answer);
        si->trailers = answer.headers;
    } else {
        MR_TRY(mr_wire_response(r, &si->request, &response, &r->err));
        MR_TRY(infer_answer_params(si, final, &response));
        MR_TRY(mr_oip_pb_encode_response(&response, final != NULL, infer_buf(si), r->arena, &e,
                                         &r->err));
    }
    *out = (struct mr_grpc_message){.pieces = e.pieces, .count = e.piece_count};
    /* One of several answers that is long stays as it is: packing it here would keep the loop from others. */
    bool is_plain = !mr_turn_now && infer_is_long_answer(si);
    rc = mr_grpc_pack(si->grpc, is_plain ? MR_GRPC_IDENTITY : grpc_compression(si->loop->server),
                      r->arena, out, &r->err);
    if (rc < 0) {
        infer_drop_answer(out);
    }
out:
    return rc;
}

void infer_use_response(struct serve_infer *si, struct mr_response *q)
{
    si->infer.arena = &q->arena; /* a request may have any number of answers */
    si->infer.outputs = q->outputs.list;
    si->infer.answer = q->parameters;
}

int infer_encode_end(struct serve_infer *si, struct mr_grpc_message *out)
{
    static const struct mr_oip_param final = {
        .key = MR_STR_INIT("triton_final_response"), .kind = MR_OIP_BOOL, .b = true};
    struct mr_infer *r = &si->infer;
    struct mr_oip_response response = {.model_name = r->version->model_name,
                                       .model_version = r->version->number_text,
                                       .id = si->request.id};
    struct mr_oip_encoded e;
    int rc = infer_answer_params(si, &final, &response);

    if (rc == MR_OK) {
        rc = mr_oip_pb_encode_response(&response, true, infer_buf(si), r->arena, &e, &r->err);
    }
    if (rc == MR_OK) {
        *out = (struct mr_grpc_message){.pieces = e.pieces, .count = e.piece_count};
    }
    return rc;
}

int infer_encode_response(struct serve_infer *si, struct mr_response *q,
                          struct mr_grpc_message *out)
{
    const struct mr_oip_param final = {
        .key = MR_STR("triton_final_response"), .kind = MR_OIP_BOOL, .b = q->is_final};
    struct mr_infer *r = &si->infer;
    struct mr_arena *of_request = r->arena;
    int rc;

    infer_encode_begins(si);
    r->arena = &q->arena;
    if (q->outputs.list) {
        infer_use_response(si, q);
        MR_TRY(infer_encode_grpc(si, &final, out));
    } else {
        MR_TRY(infer_encode_end(si, out));
    }
out:
    r->outputs = NULL; /* they are the response's */
    r->answer = (struct mr_answer_parameters){NULL, NULL, 0};
    r->arena = of_request;
    infer_encode_ends(si);
    return rc;
}

void infer_drop_answer(struct mr_grpc_message *m)
{
    for (size_t i = 0; i < m->count; i++) {
        struct mr_block *block = m->pieces[i].block;
        mr_block_unref(&block);
    }
    *m = (struct mr_grpc_message){0};
}

/* A line about a request, with the endpoint and the variant of one that has them: members of a line are those that its
 * format names. */
#define LOG_REQUEST(level, event, si, model, format, ...)                                          \
    do {                                                                                           \
        const struct route *route_ = &(si)->route;                                                 \
        if (route_->endpoint)                                                                      \
            mr_log((level), (event), "req=%s model=%s endpoint=%s variant=%s " format,             \
                   MR_LOG_STR((si)->request.id), MR_LOG_STR(model),                                \
                   MR_LOG_STR(route_->endpoint->config->name), MR_LOG_STR(route_tag(route_)),      \
                   __VA_ARGS__);                                                                   \
        else                                                                                       \
            mr_log((level), (event), "req=%s model=%s " format, MR_LOG_STR((si)->request.id),      \
                   MR_LOG_STR(model), __VA_ARGS__);                                                \
    } while (0)

void infer_log_failure(const struct serve_infer *si)
{
    const struct mr_infer *r = &si->infer;
    mr_str model = r->version ? r->version->model_name : si->request.model_name;
    int status = r->status;

    if (status == MR_E_INTERNAL || status == MR_E_IO || status == MR_E_NOMEM) {
        LOG_REQUEST(MR_LOG_WARN, "request.failed", si, model, "status=%s %s",
                    mr_status_name(status), r->err.msg);
    } else if (!is_of_load(status) || mr_log_verbose() > 0) {
        LOG_REQUEST(MR_LOG_INFO, "request.refused", si, model, "protocol=%s peer=%s status=%s %s",
                    infer_protocol_name(r->protocol), mr_call_peer(si->call),
                    mr_status_name(status), r->err.msg);
    }
}

bool infer_takes_messages(const struct serve_infer *si, mr_str model, mr_str version)
{
    struct mr_server *s = si->loop->server;
    struct mr_err ignored;

    return route_main(s->endpoints, &model, &version, &ignored) == MR_OK &&
           mr_models_takes_messages(s->models, model, version);
}

void infer_refuse(struct serve_infer *si, int status)
{
    si->infer.status = si->infer.err.status = status;
    if (si->request.id.len) {
        add_request_id(si);
    }
}

void infer_count_refused(struct mr_call *call, mr_str model, const struct mr_err *err)
{
    struct serve_infer si = {.infer.err = *err, .request.model_name = model};

    infer_init(&si, call, call->arena, call->is_grpc ? MR_INFER_GRPC : MR_INFER_REST);
    infer_refuse(&si, err->status);
    infer_log_failure(&si);
    infer_end(&si);
}

const char *infer_protocol_name(enum mr_infer_protocol protocol)
{
    return protocol == MR_INFER_REST ? "rest" : "grpc";
}

static void log_success(const struct serve_infer *si, int64_t now_ns)
{
    const struct mr_infer_times *t = &si->infer.times;

    LOG_REQUEST(MR_LOG_INFO, "request.done", si, si->infer.version->model_name,
                "version=%lld rows=%lld queue_us=%lld compute_us=%lld total_us=%lld",
                (long long)si->infer.version->number, (long long)si->infer.rows,
                (long long)(t->start - t->queued) / 1000, (long long)(t->end - t->start) / 1000,
                (long long)(now_ns - t->received) / 1000);
}

/* Without a version there are no counters of a model. */
static void count_refused(struct serve_infer *si)
{
    unsigned status = (unsigned)-si->infer.status;

    mr_count_add(&si->loop->refused[si->infer.protocol][status < SERVE_STATUSES ? status : 1], 1);
}

static void run_shadow(struct mr_mail *mail)
{
    struct mr_shadow_job *job = mr_shadow_of_mail(mail);

    mr_shadow_run(&job);
}

/* Its answer leaves before the loop comes to the mail. */
static void shadow_request(struct serve_infer *si)
{
    const struct mr_infer *r = &si->infer;
    struct mr_shadow_job *job;

    if (r->status != MR_OK || !si->is_pinned || !r->outputs || si->message_kind ||
        mr_version_is_streaming(r->version)) {
        return;
    }
    job = mr_shadow_take(si->route.endpoint->shadow, r);
    if (job) {
        mr_shadow_mail(job)->run = run_shadow;
        mr_loop_post(si->loop->loop, mr_shadow_mail(job));
    }
}

/* A variant without its model is the fault of the server, although the client gets "not found": the endpoint chose it. */
static void end_route(struct serve_infer *si, int64_t now_ns)
{
    const int status = si->infer.status;
    const bool is_lost = si->has_no_model && status != MR_E_CANCELLED;

    if (si->route.is_shadowed) {
        shadow_request(si);
    }
    route_end(&si->route, is_lost ? MR_E_UNAVAILABLE : status, now_ns - si->infer.times.received);
}

/* The answer is built: count, let go of outputs and version. */
void infer_end(struct serve_infer *si)
{
    int64_t now = mr_now_ns();

    variant_release(si);
    if (si->infer.status == MR_OK && si->is_pinned && mr_log_verbose() > 0) {
        log_success(si, now);
    }
    if (si->route.endpoint) {
        end_route(si, now);
    }
    if (!si->is_pinned) {
        if (si->infer.status < 0) {
            count_refused(si);
        }
        return;
    }
    si->is_pinned = false;
    if (si->infer.times.start) {
        call_times_queued(si->loop->call_times, si->infer.times.start - si->infer.times.queued);
    }
    call_times_ran(si->loop->call_times, si->call, mr_status_grpc(si->infer.status),
                   si->infer.times.queued ? now - si->infer.times.queued : 0);
    message_end(si);
    encode_add(si, now);
    si->infer.times.answered = now;
    mr_infer_finish(&si->infer, si->encode_ns);
}

bool infer_is_long_body(size_t bytes)
{
    return bytes > LONG_BODY_BYTES;
}

bool infer_is_long_answer(const struct serve_infer *si)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < si->infer.version->output_count; i++) {
        bytes += si->infer.wanted[i] ? mr_infer_output(&si->infer, i)->tensor.bytes : 0;
    }
    return bytes > SERVE_LONG_ANSWER;
}

void infer_turn(struct serve_infer *si, void (*work)(struct mr_turn *t),
                void (*done)(struct mr_turn *t), bool is_input)
{
    si->turn = (struct mr_turn){.work = work, .done = done, .may_refuse = is_input};
    mr_buf_init(&si->text, 0);
    if (!si->call->streaming) {
        si->call->user = &si->pending;
    }
    mr_turns_add(mr_loop_turns(si->loop->loop), &si->turn);
}

int serve_turn_error(const struct mr_turn *t, struct mr_err *err)
{
    switch (t->status) {
    case MR_E_CLOSED:
        return MR_FAIL(err, MR_E_UNAVAILABLE,
                       "the server is exiting, and the request takes long to decode");
    case MR_E_EXHAUSTED:
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the request, try later");
    default: return MR_FAIL(err, MR_E_CANCELLED, "the request was cancelled");
    }
}

void infer_turned(struct serve_infer *si)
{
    if (si->turn.status < 0) {
        si->infer.status = serve_turn_error(&si->turn, &si->infer.err);
    }
}

struct mr_buf *infer_buf(struct serve_infer *si)
{
    return mr_turn_now ? &si->text : mr_loop_scratch(si->loop->loop);
}

void infer_cancel(struct serve_infer *si)
{
    if (mr_turn_is_open(&si->turn)) {
        mr_turn_end(&si->turn, MR_E_CANCELLED);
    } else if (infer_cancel_variant(si)) {
        return;
    } else if (mr_sched_cancel(&si->infer)) {
        finish_waiting(si);
    } else if (si->wait.list) {
        mr_call_wait_end(&si->wait);
        wait_read(si);
    }
}
