/* The models as they change: all of them once the server's events have begun, so that no change is missed, and then those that events
 * are about. All of them again when events were lost, or the connection was; what has not changed is not printed again. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "client/events.h"
#include "mesh.h"
#include "net/loop.h"

#define SILENCE_NS (60 * MR_NS_PER_S) /* the server says something every 15 s */

struct known {
    Millrace__MeshStatus status;
    uint64_t copies; /* a sum over them */
    uint32_t round;
};

struct watch {
    struct mesh_run *run;
    struct mr_remote stream; /* of the events */
    struct mr_map known;     /* id -> struct known */
    uint32_t round;
    uint32_t told;
    bool has_begun; /* this stream of events; was_there: one before has */
    bool was_there;
    bool wants_all; /* all models are to be asked for */
    bool has_ended; /* the stream has, with `rc` */
    int rc;
    struct mr_err err;
};

static bool is_done(const struct watch *w)
{
    return ferror(stdout) || (w->run->opt.count && w->told >= w->run->opt.count);
}

static uint64_t sum_of(const Millrace__MeshModel *m)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_copies; i++) {
        uint64_t h = 1469598103934665603u; /* FNV-1a; copies in any order */
        for (const char *p = m->copies[i]->instance; *p; p++) {
            h = (h ^ (unsigned char)*p) * 1099511628211u;
        }
        h = (h ^ (uint64_t)m->copies[i]->state) * 1099511628211u;
        sum += h;
    }
    return sum;
}

static void tell(struct watch *w, const Millrace__MeshModel *m)
{
    struct mr_buf b;

    if (is_done(w)) {
        return;
    }
    w->told++;
    if (w->run->form == MESH_JSON) {
        mr_buf_init(&b, 0);
        mr_pbjson_print(&m->base, true, &b);
        printf("%s\n", mr_buf_cstr(&b));
        mr_buf_fini(&b);
        return;
    }
    char at[32];
    printf("%s\t", mr_wall_text(mr_wall_ns(), at));
    mesh_print_text(m->id);
    printf("\t%s\t", mesh_status_name(m->status));
    for (size_t i = 0; i < m->n_copies; i++) {
        printf("%s", i ? " " : "");
        mesh_print_text(m->copies[i]->instance);
        printf("=");
        fputs(mesh_copy_name(m->copies[i]->state), stdout);
    }
    printf("%s\n", m->n_copies ? "" : "-");
}

static void see(struct watch *w, const Millrace__MeshModel *m)
{
    struct known *k = mr_map_find(&w->known, mr_str_c(m->id));
    const struct known now = {m->status, sum_of(m), w->round};
    const bool is_new = !k;

    if (is_new) {
        k = MR_NEW(struct known);
        mr_map_put(&w->known, mr_str_c(m->id), k);
    }
    if (is_new || k->status != now.status || k->copies != now.copies) {
        tell(w, m);
    }
    *k = now;
}

static int see_page(void *ctx, const ProtobufCMessage *page, mr_bytes json)
{
    const Millrace__MeshModels *m = (const Millrace__MeshModels *)page;

    (void)json;
    for (size_t i = 0; i < m->n_models; i++) {
        see(ctx, m->models[i]);
    }
    return MR_OK;
}

/* Those that the last round has not seen: they were unregistered. */
static void tell_gone(struct watch *w)
{
    struct mr_map left = {0};
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&w->known, &i));) {
        struct known *k = slot->value;
        if (k->round == w->round) {
            mr_map_put(&left, slot->key, k);
            continue;
        }
        struct mr_buf id;
        mr_buf_init(&id, 0);
        mr_buf_str(&id, slot->key);
        Millrace__MeshModel gone = MILLRACE__MESH_MODEL__INIT;
        gone.id = (char *)(uintptr_t)mr_buf_cstr(&id);
        tell(w, &gone);
        mr_buf_fini(&id);
        mr_free(k);
    }
    mr_map_fini(&w->known);
    w->known = left;
}

/* ---- events ---- */

static void take(struct watch *w, const Millrace__MeshModel *m)
{
    if (m->status != MILLRACE__MESH_STATUS__NOT_FOUND) {
        see(w, m);
        return;
    }
    struct known *k = mr_map_remove(&w->known, mr_str_c(m->id));
    if (k) {
        tell(w, m);
        mr_free(k);
    }
}

static void on_event(void *ctx, mr_str name, mr_str data)
{
    struct watch *w = ctx;
    ProtobufCMessage *m = NULL;

    if (!w->has_begun || mr_str_eq_c(name, "lost")) {
        w->has_begun = w->was_there = w->wants_all = true;
    }
    if (mr_str_eq_c(name, "model")) {
        w->rc = mesh_read((mr_bytes){(const uint8_t *)data.ptr, data.len},
                          &millrace__mesh_model__descriptor, &m, &w->err);
        if (w->rc == MR_OK) {
            take(w, (const Millrace__MeshModel *)m);
            protobuf_c_message_free_unpacked(m, NULL);
            fflush(stdout);
        }
    }
    if (w->wants_all || w->rc < 0 || is_done(w)) {
        mr_loop_stop(w->stream.loop);
    }
}

static void on_end(void *ctx, int rc, const struct mr_err *err, int status, mr_bytes body)
{
    struct watch *w = ctx;

    w->has_ended = true;
    if (w->rc == MR_OK) {
        w->rc = rc;
        w->err = *err;
        if (rc == MR_OK) {
            w->rc = mr_remote_error(&w->stream, status, body, &w->err);
        }
    }
    mr_loop_stop(w->stream.loop);
}

static int ask_for_all(struct watch *w)
{
    const struct mesh_run *r = w->run;

    w->wants_all = false;
    w->round++;
    int rc = mesh_pages(w->run, true, r->arg_count ? r->args[0] : "", see_page, w, &w->err);
    if (rc == MR_OK) {
        tell_gone(w);
        fflush(stdout);
    }
    return rc;
}

/* One stream of events, to its end. */
static int follow(struct watch *w, mr_str path)
{
    static const struct mr_events_listener listener = {on_event, on_end};
    struct mesh_run *r = w->run;

    w->has_begun = w->has_ended = w->wants_all = false;
    w->rc = mr_remote_open(&w->stream, r->opt.url, 8000, true, r->opt.timeout_ns, &r->opt.access,
                           &w->err);
    if (w->rc < 0) {
        return w->rc;
    }
    mr_events_open(w->stream.client, w->stream.loop, path, SILENCE_NS, &listener, w);
    while (!w->has_ended && w->rc == MR_OK && !is_done(w)) {
        mr_loop_run(w->stream.loop);
        if (w->wants_all && w->rc == MR_OK) {
            w->rc = ask_for_all(w);
        }
    }
    const int rc = w->rc;
    w->rc = MR_E_CANCELLED; /* what the end of the stream says does not count any more */
    mr_remote_close(&w->stream);
    return rc;
}

int mesh_run_watch(struct mesh_run *r, struct mr_err *err)
{
    struct watch w = {.run = r};
    struct mr_map_slot *slot;
    struct mr_buf path;
    int rc;

    mr_buf_init(&path, 0);
    mesh_path(&path, "watch", NULL, NULL);
    if (r->arg_count) {
        mesh_path_query(&path, "prefix", r->args[0]);
    }
    while ((rc = follow(&w, mr_buf_view(&path))) == MR_E_UNAVAILABLE && w.was_there) {
        if (w.has_begun) {
            fprintf(stderr, "millrace mesh: the connection to %s is lost, trying again\n",
                    w.stream.address);
        }
        mesh_pause(r);
    }
    *err = w.err;
    for (size_t i = 0; (slot = mr_map_next(&w.known, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&w.known);
    mr_buf_fini(&path);
    return rc;
}
