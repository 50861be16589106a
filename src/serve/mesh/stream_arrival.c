/* The model of a stream is that of its first request, which names it in its first bytes. A compressed one is not looked into: the stream is
 * served here, as one whose model cannot be found. What was read for this is given to the stream's handler again, from the loop: not while the
 * connection still works on it. */
#include "stream_arrival.h"

#include "arrival.h"
#include "oip/oip.h"
#include "serve/state/grpc_reply.h"
#include "serve/state/infer.h"

#define PREFIX_BYTES 5
#define LOOK_MAX     65536u

struct first_look {
    struct serve_arrival arrival;
    struct serve_pending pending;
    struct mr_mail mail;
    struct mr_server *server;
    struct mr_grpc_call *g;
    mr_str model; /* that the first request names */
    void (*handle)(struct mr_server *s, struct mr_grpc_call *g);
    bool is_posted, is_cancelled;
};

static void arrived(struct serve_arrival *a)
{
    struct first_look *f = MR_CONTAINER_OF(a, struct first_look, arrival);

    f->handle(f->server, f->g);
}

static void not_arrived(struct serve_arrival *a, const struct mr_err *err)
{
    const struct first_look *f = MR_CONTAINER_OF(a, struct first_look, arrival);

    if (mr_call_listener_tag(a->call) != LISTEN_MESH) {
        infer_count_refused(a->call, f->model, err); /* of its requests, the first is known */
    }
    grpc_fail_err(f->g, err);
}

static void serve_here_after_all(struct first_look *f)
{
    struct mr_buf *first = &f->arrival.first;

    f->g->call->user = NULL;
    mr_call_pause(f->g->call, false);
    mr_call_unread(f->g->call, (mr_bytes){(const uint8_t *)first->ptr, first->len});
    mr_buf_fini(first);
    f->handle(f->server, f->g);
}

static void decide(struct mr_mail *mail)
{
    struct first_look *f = MR_CONTAINER_OF(mail, struct first_look, mail);
    struct mr_buf *first = &f->arrival.first;
    struct mr_oip_request names = {0};

    if (f->is_cancelled) {
        mr_buf_fini(first);
        mr_grpc_fail(f->g, MR_GRPC_CANCELLED, MR_STR("the request was cancelled"));
        return;
    }
    if (first->len > PREFIX_BYTES && first->ptr[0] == 0) {
        mr_oip_pb_find_names(
            (mr_bytes){(const uint8_t *)first->ptr + PREFIX_BYTES, first->len - PREFIX_BYTES},
            &names);
    }
    f->model = mr_arena_str(f->g->call->arena, names.model_name);
    if (!names.model_name.len ||
        !arrival_wait(&f->arrival, f->model, mr_arena_str(f->g->call->arena, names.model_version),
                      true)) {
        serve_here_after_all(f);
    }
}

static void look(struct first_look *f)
{
    f->is_posted = true;
    serve_closed(&f->pending);
    mr_call_pause(f->g->call, true);
    f->mail.run = decide;
    mr_loop_post(f->g->call->loop, &f->mail);
}

static bool has_first(const struct mr_buf *b)
{
    const uint8_t *p = (const uint8_t *)b->ptr;

    if (b->len < PREFIX_BYTES) {
        return false;
    }
    uint32_t length = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
    return b->len >= MR_MIN(length, LOOK_MAX) + PREFIX_BYTES || p[0] != 0;
}

static void on_data(struct serve_pending *p, mr_bytes data, bool last)
{
    struct first_look *f = MR_CONTAINER_OF(p, struct first_look, pending);

    mr_buf_append(&f->arrival.first, data.ptr, data.len);
    f->arrival.first_is_all |= last;
    if (!f->is_posted && (last || has_first(&f->arrival.first))) {
        look(f);
    }
}

static void on_cancel(struct serve_pending *p)
{
    struct first_look *f = MR_CONTAINER_OF(p, struct first_look, pending);

    f->is_cancelled = true;
    if (!f->is_posted) {
        look(f);
    }
}

/* Nothing is waited for when the server exits: the handler says so. */
static void on_changed(struct serve_pending *p)
{
    struct first_look *f = MR_CONTAINER_OF(p, struct first_look, pending);

    if (serve_is_exiting(f->server) && !f->is_posted) {
        look(f);
    }
}

void stream_arrive(struct mr_server *s, struct mr_grpc_call *g,
                   void (*handle)(struct mr_server *s, struct mr_grpc_call *g))
{
    struct first_look *f = MR_ARENA_NEW(g->call->arena, struct first_look);

    if (!f) {
        mr_grpc_fail(g, MR_GRPC_RESOURCE_EXHAUSTED,
                     MR_STR("the stream needs more memory than it may use"));
        return;
    }
    f->arrival = (struct serve_arrival){
        .call = g->call, .go = arrived, .fail = not_arrived, .is_stream = true};
    mr_buf_init(&f->arrival.first, 0);
    f->server = s;
    f->g = g;
    f->handle = handle;
    f->pending =
        (struct serve_pending){.cancel = on_cancel, .data = on_data, .changed = on_changed};
    serve_open(&f->pending);
    g->call->user = &f->pending;
    on_changed(&f->pending);
}
