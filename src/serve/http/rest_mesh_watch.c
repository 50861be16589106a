/* A watch asks the mesh what has changed, writes that, and asks again once the client has taken it, so that nothing piles up for one that does not
 * read. The mesh answers within 15 s in any case, which shows a client that is gone. On the call's network thread. */
#include "rest_mesh_watch.h"

#include "codec/pbtext.h"
#include "mesh/mesh.h"
#include "serve/admin/rest_mesh.h"
#include "serve/state/loops.h"
#include "serve/state/reply.h"

#define TEXT_MAX ((size_t)64 << 20)

struct watch {
    struct mr_mesh_admin admin; /* its id is the prefix */
    struct serve_pending pending;
    struct mr_call *call; /* NULL: it has ended */
    struct mr_server *server;
    bool is_asking, has_begun;
    char prefix[];
};

static void ask(struct watch *w);

static void begin(struct watch *w)
{
    static const struct mr_header headers[] = {
        {MR_STR_INIT("content-type"), MR_STR_INIT("text/event-stream; charset=utf-8")},
        {MR_STR_INIT("cache-control"), MR_STR_INIT("no-store")}};

    if (!w->has_begun) {
        mr_call_begin(w->call, 200, headers, 2);
    }
    w->has_begun = true;
}

/* w may be gone. */
static void end(struct watch *w, const struct mr_err *err)
{
    struct mr_call *call = w->call;

    serve_closed(&w->pending);
    call->user = NULL;
    w->call = NULL;
    if (w->has_begun) {
        mr_call_end(call, NULL, 0);
    } else {
        reply_error(call, err);
    }
    if (!w->is_asking) {
        mr_free(w);
    }
}

/* ---- events ---- */

static void put_event(struct mr_buf *b, const char *name, const ProtobufCMessage *m)
{
    mr_buf_printf(b, "event: %s\ndata: ", name);
    mr_pbjson_print(m, true, b);
    mr_buf_c(b, "\n\n");
}

static bool write_events(struct watch *w, const Millrace__MeshChanges *c)
{
    struct mr_buf b;

    mr_buf_init(&b, TEXT_MAX);
    if (c->lost) {
        mr_buf_c(&b, "event: lost\ndata: {}\n\n");
    }
    for (size_t i = 0; i < c->n_models; i++) {
        put_event(&b, "model", &c->models[i]->base);
    }
    for (size_t i = 0; i < c->n_vmodels; i++) {
        put_event(&b, "vmodel", &c->vmodels[i]->base);
    }
    if (b.len == 0) {
        mr_buf_c(&b, ":\n\n");
    }
    bool is_whole = !b.failed;
    struct mr_piece piece = {b.ptr, b.len, NULL};
    if (is_whole) {
        begin(w);
        mr_call_write(w->call, &piece, 1);
    }
    mr_buf_fini(&b);
    return is_whole;
}

/* ---- between the mesh and the client ---- */

static void answered(struct watch *w)
{
    struct mr_mesh_admin *a = &w->admin;
    struct mr_err err = a->err;

    if (a->status == MR_OK &&
        !write_events(w, (const Millrace__MeshChanges *)(const void *)a->message)) {
        a->status = MR_FAIL(&err, MR_E_EXHAUSTED, "the events are more than the server allows");
    }
    if (a->status < 0) {
        end(w, &err);
    } else if (mr_call_is_backlogged(w->call)) {
        mr_call_when_room(w->call);
    } else {
        ask(w);
    }
}

static void done(struct mr_mesh_admin *a)
{
    struct watch *w = MR_CONTAINER_OF(a, struct watch, admin);
    struct mr_arena arena = a->arena;

    w->is_asking = false;
    if (a->status == MR_OK) {
        a->since = ((const Millrace__MeshChanges *)(const void *)a->message)->next;
    }
    if (w->call) {
        answered(w);
    } else {
        mr_free(w);
    }
    mr_arena_fini(&arena);
}

static void ask(struct watch *w)
{
    w->is_asking = true;
    mr_mesh_admin(w->server->mesh, &w->admin);
}

static void on_room(struct serve_pending *p)
{
    ask(MR_CONTAINER_OF(p, struct watch, pending));
}

static void on_cancel(struct serve_pending *p)
{
    struct mr_err err;

    MR_FAIL(&err, MR_E_CANCELLED, "the request was cancelled");
    end(MR_CONTAINER_OF(p, struct watch, pending), &err);
}

static void on_changed(struct serve_pending *p)
{
    struct watch *w = MR_CONTAINER_OF(p, struct watch, pending);
    struct mr_err err;

    if (serve_is_exiting(w->server)) {
        MR_FAIL(&err, MR_E_UNAVAILABLE, "the server is exiting");
        end(w, &err);
    }
}

void rest_mesh_watch(struct mr_server *s, struct mr_call *call, const struct mr_oip_path *path)
{
    mr_str prefix = rest_mesh_query(call, "prefix");

    (void)path;
    if (!s->mesh || serve_is_exiting(s)) {
        reply_error_text(call, s->mesh ? MR_E_UNAVAILABLE : MR_E_UNSUPPORTED, "%s",
                         s->mesh ? "the server is exiting" : REST_MESH_NONE);
        return;
    }
    if (mr_str_eq_c(call->method, "HEAD")) {
        reply_empty(call, 200);
        return;
    }
    struct watch *w = mr_alloc(sizeof *w + prefix.len);
    *w = (struct watch){.call = call, .server = s};
    memcpy(w->prefix, prefix.len ? prefix.ptr : "", prefix.len);
    w->admin.kind = MR_MESH_CHANGES;
    w->admin.id = mr_str_n(w->prefix, prefix.len);
    w->admin.done = done;
    w->admin.post = serve_here()->reply_loop.post;
    w->admin.post_ctx = serve_here();
    w->pending.cancel = on_cancel;
    w->pending.room = on_room;
    w->pending.changed = on_changed;
    serve_open(&w->pending);
    call->user = &w->pending;
    ask(w);
}
