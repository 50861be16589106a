/* POST …/generate and …/generate_stream: a flat JSON object in, one out, or a stream of server-sent events with one each.
 *
 * Answers of a decoupled model come one by one (on_response) and stand in a list until they are written: with generate
 * until the end, as there must be exactly one, with generate_stream while the connection is backlogged. A model of one
 * answer gives it at the end (reply). The call ends once the inference is over and everything is written.
 *
 * An answer that takes long to encode is the work of a turn; the next ones wait for it. On the network thread of the
 * call; what a running execution may write of the inference (status, err) is not touched before its end. */
#include "rest_generate.h"

#include "rest_infer.h"
#include "serve/state/infer.h"
#include "serve/state/loops.h"
#include "serve/state/message.h"
#include "serve/state/meta.h"
#include "serve/state/reply.h"
#include "serve/state/state.h"

#define EVENT_BEGIN "data: "
#define EVENT_END   "\n\n"

struct generate {
    struct serve_infer si;
    mr_str model;
    mr_str version;
    mr_str variant;          /* of an endpoint; ptr NULL: it is a model */
    struct mr_buf rewritten; /* the request as that of an ordinary inference */
    bool is_stream;
    bool has_begun; /* of a stream: its head is sent */
    bool is_over;   /* the inference has ended */
    bool is_encoding;
    bool is_cancelled;
    uint64_t answers;
    struct mr_response *unsent; /* in order */
    struct mr_response **unsent_end;
    struct mr_response *now; /* that is being encoded; NULL: the inference's own outputs */
    struct mr_oip_encoded encoded;
    struct message_answer message; /* of a model that takes messages; encoded is its body */
    int encode_status;
    struct mr_err encode_err;
};

static struct generate *of_turn(struct mr_turn *t)
{
    return MR_CONTAINER_OF(t, struct generate, si.turn);
}

static void unsent_add(struct generate *g, struct mr_response *q)
{
    q->next = NULL;
    *g->unsent_end = q;
    g->unsent_end = &q->next;
}

static struct mr_response *unsent_take(struct generate *g)
{
    struct mr_response *q = g->unsent;

    g->unsent = q->next;
    if (!g->unsent) {
        g->unsent_end = &g->unsent;
    }
    return q;
}

static void unsent_drop(struct generate *g)
{
    while (g->unsent) {
        struct mr_response *q = unsent_take(g);
        mr_infer_response_end(&g->si.infer, &q);
    }
}

/* ---- writing ---- */

/* Of an endpoint, the header that names the variant, and 1. */
static size_t variant_header(const struct generate *g, struct mr_header *out)
{
    if (!g->variant.ptr) {
        return 0;
    }
    *out = (struct mr_header){MR_STR(ROUTE_HEADER), g->variant};
    return 1;
}

static void begin_stream(struct generate *g)
{
    struct mr_header headers[MESSAGE_HEADERS_MAX + 3] = {
        {MR_STR("content-type"), MR_STR("text/event-stream; charset=utf-8")},
        {MR_STR("cache-control"), MR_STR("no-store")}};
    size_t n = 2;
    int status = 200;

    if (g->has_begun) {
        return;
    }
    g->has_begun = true;
    if (g->message.http_status >= 400) { /* the model refuses the request */
        status = g->message.http_status;
        n = g->message.header_count;
        memcpy(headers, g->message.headers, n * sizeof *headers);
    }
    n += variant_header(g, &headers[n]);
    mr_call_begin(g->si.call, status, headers, n);
}

static void write_error_event(struct generate *g, mr_str message)
{
    struct mr_buf *b = mr_loop_scratch(g->si.call->loop);

    mr_buf_reset(b);
    mr_buf_c(b, EVENT_BEGIN);
    mr_oip_rest_error(b, message);
    mr_buf_c(b, EVENT_END);
    struct mr_piece piece = {b->ptr, b->len, NULL};
    if (!b->failed) {
        mr_call_write(g->si.call, &piece, 1);
    }
}

/* Everything has been written, or nothing will be. g is gone. */
static void finish(struct generate *g)
{
    struct serve_infer *si = &g->si;
    struct mr_call *call = si->call;
    struct mr_err err;

    if (g->encode_status < 0 && (si->infer.status == MR_OK || si->infer.status == MR_E_CANCELLED)) {
        si->infer.status = g->encode_status; /* for which the execution was cancelled */
        si->infer.err = g->encode_err;
    } else if (si->infer.status == MR_OK && g->is_cancelled) {
        si->infer.status = MR_FAIL(&si->infer.err, MR_E_CANCELLED, "the request was cancelled");
    } else if (si->infer.status == MR_OK && !g->is_stream) {
        si->infer.status =
            MR_FAIL(&si->infer.err, MR_E_INTERNAL,
                    "generate expects model to produce exactly 1 response, use generate "
                    "stream for model that generates various number of responses");
    }
    err = si->infer.err;
    err.status = si->infer.status;
    if (err.status < 0) {
        infer_log_failure(si);
    }
    message_judge(si, &g->message);
    infer_end(si);
    mr_buf_fini(&g->rewritten);
    if (err.status < 0 && !g->has_begun) {
        reply_error(call, &err);
        return;
    }
    begin_stream(g);
    if (err.status < 0) {
        write_error_event(g, mr_str_c(err.msg));
    }
    mr_call_end(call, NULL, 0);
}

static void advance(struct generate *g);

/* The model has made an event of it. */
static int message_encode(struct generate *g)
{
    int rc = message_answer(&g->si, &g->message, &g->encode_err);

    if (rc == MR_OK) {
        g->encoded = g->message.body;
    }
    return rc;
}

/* The work of a turn, or done at once. */
static void encode(struct mr_turn *t)
{
    struct generate *g = of_turn(t);
    struct mr_infer *r = &g->si.infer;
    struct mr_arena *arena = r->arena;
    struct mr_oip_response response;
    int rc = MR_OK;

    infer_encode_begins(&g->si);
    if (g->now) {
        infer_use_response(&g->si, g->now);
    }
    if (g->si.message_kind) {
        rc = message_encode(g);
        goto out;
    }
    MR_TRY(mr_wire_response(r, &g->si.request, &response, &g->encode_err));
    rc = infer_answer_params(&g->si, NULL, &response);
    if (rc < 0) {
        g->encode_err = r->err;
        goto out;
    }
    rc = mr_oip_generate_response(&response, g->is_stream ? EVENT_BEGIN : "",
                                  g->is_stream ? EVENT_END : "", infer_buf(&g->si), r->arena,
                                  &g->encoded, &g->encode_err);
out:
    if (g->now) {
        r->outputs = NULL; /* they are the response's */
        r->answer = (struct mr_answer_parameters){NULL, NULL, 0};
    }
    r->arena = arena;
    g->encode_status = rc;
}

static void write_whole(struct generate *g)
{
    struct mr_header headers[2] = {{MR_STR("content-type"), MR_STR("application/json")}};
    struct mr_reply reply = {.status = 200,
                             .headers = headers,
                             .header_count = 1 + variant_header(g, &headers[1]),
                             .pieces = g->encoded.pieces,
                             .piece_count = g->encoded.piece_count};
    struct mr_call *call = g->si.call;
    struct mr_buf text = g->si.text; /* these two outlive the call, as pieces point into them */
    struct mr_response *response = g->now;

    if (response) { /* the pieces have references of their own; the version may go with the request */
        mr_exec_outputs_drop(&response->outputs);
        response->outputs.list = NULL;
    }
    infer_end(&g->si);
    mr_buf_fini(&g->rewritten);
    mr_call_reply(call, &reply);
    mr_response_free(&response);
    mr_buf_fini(&text);
}

static void drop_encoded(struct generate *g)
{
    for (size_t i = 0; i < g->encoded.piece_count; i++) {
        mr_block_unref(&g->encoded.pieces[i].block);
    }
    g->encoded = (struct mr_oip_encoded){0};
}

/* What was encoded leaves. g may be gone. */
static void encoded(struct mr_turn *t)
{
    struct generate *g = of_turn(t);

    g->is_encoding = false;
    if (t->status < 0 && g->encode_status == MR_OK) {
        g->encode_status = serve_turn_error(t, &g->encode_err);
    }
    if (g->encode_status == MR_OK && !g->is_cancelled && !g->is_stream) {
        write_whole(g);
        return;
    }
    infer_encode_ends(&g->si);
    if (g->encode_status == MR_OK && !g->is_cancelled) {
        begin_stream(g);
        mr_call_write(g->si.call, g->encoded.pieces, g->encoded.piece_count);
        g->encoded = (struct mr_oip_encoded){0}; /* the pieces lie in memory of the response */
    } else {
        drop_encoded(g);
    }
    mr_buf_fini(&g->si.text);
    if (g->now) {
        mr_infer_response_end(&g->si.infer, &g->now);
    }
    if (g->encode_status < 0 && !g->is_cancelled) {
        g->is_cancelled = true; /* nothing can follow */
        unsent_drop(g);
        if (!g->is_over) {
            infer_cancel(&g->si);
        }
    }
    advance(g);
}

/* g may be gone. */
static void start_encode(struct generate *g, struct mr_response *q)
{
    uint64_t bytes = 0;

    g->now = q;
    g->is_encoding = true;
    for (uint32_t i = 0; q && i < q->outputs.executor->signature->output_count; i++) {
        bytes += q->outputs.list[i].tensor.bytes;
    }
    if (q ? bytes > SERVE_LONG_ANSWER : infer_is_long_answer(&g->si)) {
        infer_turn(&g->si, encode, encoded, false);
        return;
    }
    g->si.turn = (struct mr_turn){0};
    encode(&g->si.turn);
    encoded(&g->si.turn);
}

/* Write what can be written, and end when that was all. g may be gone. */
static void advance(struct generate *g)
{
    bool may_write = g->is_stream || (g->is_over && g->answers == 1 && !g->is_cancelled &&
                                      g->si.infer.status == MR_OK);

    if (g->is_encoding) {
        return;
    }
    if (g->unsent && may_write && !mr_call_is_backlogged(g->si.call)) {
        start_encode(g, unsent_take(g)); /* which comes back here */
        return;
    }
    if (g->unsent && may_write) {
        mr_call_when_room(g->si.call);
    } else if (g->is_over) {
        unsent_drop(g);
        finish(g);
    }
}

/* ---- what comes from the model ---- */

static void on_response(struct mr_infer *r, struct mr_response *q)
{
    struct generate *g = MR_CONTAINER_OF(r, struct generate, si.infer);

    g->answers += q->outputs.list != NULL;
    if (g->is_cancelled || !q->outputs.list || (!g->is_stream && g->answers > 1)) {
        mr_infer_response_end(r, &q);
        if (!g->is_stream && g->answers == 2) {
            infer_cancel(&g->si); /* one was wanted: the model need not go on */
        }
        return;
    }
    unsent_add(g, q);
    advance(g);
}

static void reply(struct serve_infer *si)
{
    struct generate *g = MR_CONTAINER_OF(si, struct generate, si);

    g->is_over = true;
    if (!g->is_stream && g->answers > 1) {
        si->infer.status = MR_OK; /* cancelled for that */
    }
    if (si->infer.status == MR_OK && !mr_version_is_streaming(si->infer.version)) {
        g->answers = 1;
        start_encode(g, NULL);
        return;
    }
    advance(g);
}

static void on_cancel(struct serve_pending *p)
{
    struct generate *g = MR_CONTAINER_OF(p, struct generate, si.pending);

    g->is_cancelled = true;
    unsent_drop(g);
    if (g->is_encoding) {
        mr_turn_end(&g->si.turn, MR_E_CANCELLED);
        if (!g->is_over) {
            mr_sched_cancel(&g->si.infer); /* it runs: its end comes by itself */
        }
    } else if (g->is_over) {
        advance(g);
    } else {
        infer_cancel(&g->si);
    }
}

static void on_room(struct serve_pending *p)
{
    advance(MR_CONTAINER_OF(p, struct generate, si.pending));
}

/* ---- the request ---- */

static int read_rewritten(struct generate *g, const struct mr_buf *text, struct mr_err *err)
{
    return mr_oip_rest_decode_request((mr_bytes){(uint8_t *)text->ptr, text->len}, -1, g->model,
                                      &g->si.loop->server->http_limits, g->si.infer.arena,
                                      &g->si.request, err);
}

/* Model and version of an endpoint or service become those that answer, in memory of the call. What is an input is not known
 * before: a parameter is any scalar. What cannot be read is refused later. */
static int route(struct generate *g, mr_str *model, mr_str *version)
{
    struct serve_infer *si = &g->si;
    struct mr_arena *arena = si->infer.arena;
    struct mr_buf text;
    struct mr_err ignored;
    int rc;

    if (!route_is_taken(si->loop->server->endpoints, *model)) {
        return MR_OK;
    }
    mr_buf_init(&text, 0);
    if (mr_oip_generate_request(si->call->body, NULL, 0, arena, &text, &ignored) < 0 ||
        read_rewritten(g, &text, &ignored) < 0) {
        si->request = (struct mr_oip_request){0};
    }
    rc = infer_route(si, model, version);
    si->request = (struct mr_oip_request){0}; /* it points into the text */
    mr_buf_fini(&text);
    *model = mr_arena_str(arena, *model);
    *version = mr_arena_str(arena, *version);
    return rc < 0 || (model->ptr && version->ptr) ? rc : MR_ARENA_FAIL(&si->infer.err);
}

/* The model's inputs, in memory of the call: the version may go while a turn waits. */
static int inputs_of(struct generate *g, mr_str model, mr_str version, struct mr_oip_io **out,
                     size_t *out_count)
{
    struct mr_infer *r = &g->si.infer;
    struct mr_server *s = g->si.loop->server;
    struct mr_version *v;
    int rc = meta_find(s, model, version, &v, &r->err);

    if (rc < 0) {
        return rc;
    }
    *out = MR_ARENA_ARRAY(r->arena, struct mr_oip_io, v->input_count + 1u);
    for (uint32_t i = 0; *out && i < v->input_count; i++) {
        (*out)[i] = (struct mr_oip_io){.name = mr_arena_str(r->arena, v->inputs[i].name),
                                       .dtype = v->inputs[i].dtype};
        (*out)[i].rank = (int)meta_shape(v, &v->inputs[i], (*out)[i].shape);
    }
    *out_count = v->input_count;
    return *out ? MR_OK : MR_ARENA_FAIL(&r->err);
}

/* What was read is not the client's text: an offset in it says nothing. */
static void offset_drop(struct mr_err *err)
{
    char *at = strstr(err->msg, " at offset ");

    if (at) {
        *at = 0;
    }
}

/* The work of a turn, or done at once. */
static void decode(struct mr_turn *t)
{
    struct generate *g = of_turn(t);
    struct mr_infer *r = &g->si.infer;
    struct mr_oip_io *inputs;
    mr_str model = g->model, version = g->version;
    size_t count;
    int rc;

    if (infer_takes_messages(&g->si, g->model, g->version)) {
        g->si.message_kind = "stream";
        MR_TRY(rest_plain_body(&g->si, &g->si.message, &r->err));
        rc = infer_bind(&g->si, g->model, g->version);
        goto out;
    }
    if (rest_is_packed(g->si.call)) {
        const mr_str coding = mr_call_header(g->si.call, "content-encoding");
        MR_TRY(MR_FAIL(&r->err, MR_E_INVALID, REST_PACKED, MR_STR_ARG(mr_str_sub(coding, 0, 64))));
    }
    MR_TRY(route(g, &model, &version));
    rc = inputs_of(g, model, version, &inputs, &count);
    g->si.has_no_model = rc < 0;
    MR_TRY(rc);
    MR_TRY(
        mr_oip_generate_request(g->si.call->body, inputs, count, r->arena, &g->rewritten, &r->err));
    rc = read_rewritten(g, &g->rewritten, &r->err);
    if (rc < 0) {
        offset_drop(&r->err);
        goto out;
    }
    rc = infer_bind(&g->si, model, version);
out:
    if (g->si.route.endpoint) {
        g->variant = mr_arena_str(r->arena, route_tag(&g->si.route));
    }
    g->si.request.model_name = g->model;
    r->status = rc;
}

static void decoded(struct mr_turn *t)
{
    struct generate *g = of_turn(t);
    struct serve_infer *si = &g->si;

    infer_turned(si);
    if (si->infer.status == MR_OK) {
        infer_run(si);
        return;
    }
    if (si->has_no_model && infer_awaits_variant(si)) {
        return;
    }
    infer_refuse(si, si->infer.status);
    g->is_over = true;
    finish(g);
}

/* serve_infer.again */
static void again(struct serve_infer *si, bool is_there)
{
    struct generate *g = MR_CONTAINER_OF(si, struct generate, si);

    if (is_there) {
        mr_buf_reset(&g->rewritten);
        si->has_no_model = false;
        si->infer.status = MR_OK;
        infer_turn(si, decode, decoded, true);
    } else if (si->infer.status == MR_OK) {
        infer_run(si);
    } else {
        decoded(&si->turn);
    }
}

static void generate_begin(struct mr_call *call, const struct mr_oip_path *path, bool is_stream)
{
    struct generate *g = MR_ARENA_NEW(call->arena, struct generate);

    if (!g) {
        reply_error_text(call, MR_E_EXHAUSTED, "the request needs more memory than it may use");
        return;
    }
    infer_init(&g->si, call, call->arena, MR_INFER_REST);
    g->si.reply = reply;
    g->si.again = again;
    g->si.infer.on_response = on_response;
    g->si.pending.cancel = on_cancel;
    g->si.pending.room = on_room;
    g->is_stream = is_stream;
    g->unsent_end = &g->unsent;
    g->model = path->model;
    g->version = path->version;
    mr_buf_init(&g->rewritten, 0);
    if (rest_is_packed(call) || infer_is_long_body(call->body.len)) {
        infer_turn(&g->si, decode, decoded, true);
    } else {
        decode(&g->si.turn);
        decoded(&g->si.turn);
    }
}

void rest_generate(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    mr_str model = path->model, version = path->version;
    struct mr_err ignored;

    if (route_main(s->endpoints, &model, &version, &ignored) == MR_OK &&
        (mr_models_takes_messages(s->models, model, version) ||
         mr_models_reads_matrix(s->models, model, version))) {
        rest_infer(s, call, path); /* MLServer has one word more for it */
    } else {
        generate_begin(call, path, false);
    }
}

void rest_generate_stream(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    (void)s;
    generate_begin(call, path, true);
}

void rest_infer_stream(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    struct mr_version *v;
    struct mr_err err;
    int rc = meta_find(s, path->model, path->version, &v, &err);

    if (rc == MR_OK && !v->has_messages) {
        rc = MR_FAIL(&err, MR_E_UNSUPPORTED,
                     "infer_stream is for models of MLServer; others have generate_stream");
    }
    if (rc == MR_OK) {
        generate_begin(call, path, true);
    } else {
        infer_count_refused(call, path->model, &err);
        reply_error(call, &err);
    }
}
