/* Watches. Each has a stream of its own, so that the end of one says nothing about others. A watch remembers the
 * revision up to which its user has seen all; on a new connection it begins after that.
 *
 * That etcd has lost its data (an empty disk, an older copy) shows in a revision that is older than what was seen,
 * in an earlier term, or in another cluster (connect.c): etcd itself would wait until the revision comes about once
 * more. A member that has not caught up with the others has an older revision, too, so the cluster is asked for its. */
#include "etcd.h"
#include "kv/wire/fields.h"
#include "kv/wire/request_write.h"

static struct kv_etcd *etcd_of(const struct etcd_watch *w)
{
    return (struct kv_etcd *)w->base.kv;
}

static void detach(struct etcd_watch *w)
{
    struct etcd_stream *s = w->stream;

    w->stream = NULL;
    if (s) {
        s->watch = NULL;
        mr_client_stream_cancel(s->stream);
    }
}

static void ignore(void *ctx, int rc, const struct mr_err *err, const struct mr_kv_reply *reply)
{
    (void)ctx;
    (void)rc;
    (void)err;
    (void)reply;
}

static void drop_check(struct etcd_watch *w)
{
    struct mr_kv_call *check = w->check;

    w->check = NULL;
    if (check) {
        check->done = ignore;
        mr_kv_cancel(check);
    }
}

void etcd_watch_stop(struct mr_kv_watch *base)
{
    struct etcd_watch *w = (struct etcd_watch *)base;

    drop_check(w);
    detach(w);
    TAILQ_REMOVE(&etcd_of(w)->watches, w, link);
    kv_watch_fini(base);
    mr_free(w);
}

static void resync(struct etcd_watch *w, const struct mr_err *why)
{
    struct mr_kv_watch_events events = w->base.events;
    void *ctx = w->base.ctx;

    etcd_watch_stop(&w->base);
    events.on_resync(ctx, why);
}

/** The server has ended the watch, and says why. */
static void on_canceled(struct etcd_watch *w, const struct kv_wire_watched *m)
{
    struct kv_etcd *e = etcd_of(w);
    struct mr_err why;

    if (m->compact_revision > 0) {
        MR_FAIL(&why, MR_E_NOT_FOUND, "%s has compacted the changes up to revision %lld",
                e->base.name, (long long)m->compact_revision);
    } else if (mr_str_find_str(m->reason, MR_STR("permission denied")) >= 0) {
        MR_FAIL(&why, MR_E_FORBIDDEN, "%s refuses to let the user watch", e->base.name);
    } else {
        MR_FAIL(&why, MR_E_UNAVAILABLE, "%s has ended a watch: %.*s", e->base.name,
                MR_STR_ARG(mr_str_sub(m->reason, 0, 200)));
        detach(w);
        etcd_connect_broken(e, &why);
        return;
    }
    resync(w, &why);
}

/** The cluster's revision is known. */
static void on_revision(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_kv_reply *reply)
{
    struct etcd_watch *w = ctx;
    struct mr_err why;

    w->check = NULL;
    if (rc == MR_OK && reply->revision < w->seen) {
        err = &why;
        rc = MR_FAIL(&why, MR_E_NOT_FOUND,
                     "%s has lost its data: it is at revision %lld, and was at %lld",
                     etcd_of(w)->base.name, (long long)reply->revision, (long long)w->seen);
    }
    if (rc < 0) {
        resync(w, err);
    }
}

static void on_created(struct etcd_watch *w, const struct kv_wire_watched *m)
{
    struct kv_etcd *e = etcd_of(w);
    struct mr_kv_range range = {
        .key = w->base.prefix, .is_prefix = true, .limit = 1, .keys_only = true};

    if (w->seen < 0) {
        w->seen = m->header.revision;
    } else if (m->header.revision < w->seen && !w->check) {
        w->check = mr_kv_range(&e->base, &range, on_revision, w); /* MR_KV_LINEARIZABLE */
    }
}

static void on_changes(struct etcd_watch *w, const struct kv_wire_watched *m)
{
    int64_t revision = m->count ? m->changes[m->count - 1].item.mod_revision : m->header.revision;

    if (m->count || revision > w->seen) {
        drop_check(w); /* the cluster is ahead of what was seen */
        w->seen = MR_MAX(w->seen, revision);
        w->base.events.on_changes(w->base.ctx, w->seen, m->changes, m->count);
    }
}

static void on_watched(struct etcd_watch *w, const struct kv_wire_watched *m)
{
    etcd_of(w)->heard = true;
    if (m->is_canceled) {
        on_canceled(w, m);
    } else if (m->is_created) {
        on_created(w, m);
    } else {
        on_changes(w, m);
    }
}

static void on_message(void *ctx, mr_bytes message)
{
    struct etcd_stream *s = ctx;
    struct kv_wire_watched m;
    struct mr_arena arena;
    struct mr_err err;

    if (!s->watch) {
        return;
    }
    mr_arena_init(&arena, 0, (size_t)KV_ETCD_MESSAGE_MAX * 4);
    int rc = kv_wire_watched(message, etcd_root(etcd_of(s->watch)), &arena, &m, &err);
    if (rc == MR_OK) {
        on_watched(s->watch, &m);
    } else {
        resync(s->watch, &err);
    }
    mr_arena_fini(&arena);
}

static void on_end(void *ctx, int rc, const struct mr_err *err,
                   const struct mr_client_response *response)
{
    struct etcd_stream *s = ctx;
    struct etcd_watch *w = s->watch;
    struct mr_err own;

    (void)response;
    mr_free(s);
    if (!w) {
        return;
    }
    w->stream = NULL;
    if (rc == MR_E_TOO_LARGE || rc == MR_E_FORBIDDEN) {
        resync(w, err);
        return;
    }
    if (rc == MR_OK) {
        MR_FAIL(&own, MR_E_CLOSED, "%s has ended a stream", w->base.kv->name);
        err = &own;
    }
    etcd_connect_broken(etcd_of(w), err);
}

static void open_stream(struct etcd_watch *w)
{
    static const struct mr_client_stream_events events = {on_message, on_end};
    struct kv_etcd *e = etcd_of(w);
    struct etcd_stream *s = MR_NEW(struct etcd_stream);
    struct mr_header token[1];
    struct mr_client_grpc_request request = {
        .path = ETCD_WATCH, .metadata = token, .metadata_count = etcd_metadata(e, token)};
    struct mr_buf b;

    mr_buf_init(&b, 0);
    kv_wire_watch(&b, etcd_root(e), w->base.prefix, w->seen + 1);
    s->watch = w;
    w->stream = s;
    s->stream = mr_client_grpc_stream(e->client, &request, &events, s);
    mr_client_stream_send(s->stream, &(struct mr_piece){b.ptr, b.len, NULL}, 1, NULL);
    mr_buf_fini(&b);
}

void etcd_watches_open(struct kv_etcd *e)
{
    struct etcd_watch *w;
    TAILQ_FOREACH (w, &e->watches, link) {
        if (!w->stream) {
            open_stream(w);
        }
    }
}

void etcd_watches_lose(struct kv_etcd *e)
{
    struct etcd_watch *w;
    TAILQ_FOREACH (w, &e->watches, link) {
        detach(w);
    }
}

static struct etcd_watch *first_over(struct kv_etcd *e)
{
    struct etcd_watch *w;
    TAILQ_FOREACH (w, &e->watches, link) {
        if (w->is_over) {
            return w;
        }
    }
    return NULL;
}

void etcd_watches_resync(struct kv_etcd *e, const struct mr_err *why)
{
    struct etcd_watch *w;

    /* Callbacks may stop others, and start new ones, which are not over. */
    TAILQ_FOREACH (w, &e->watches, link) {
        w->is_over = w->seen >= 0;
    }
    while ((w = first_over(e))) {
        resync(w, why);
    }
}

void etcd_watches_fini(struct kv_etcd *e)
{
    struct etcd_watch *w;
    while ((w = TAILQ_FIRST(&e->watches))) {
        etcd_watch_stop(&w->base);
    }
}

struct mr_kv_watch *etcd_watch_start(struct mr_kv *kv, mr_str prefix, int64_t from,
                                     const struct mr_kv_watch_events *events, void *ctx)
{
    struct kv_etcd *e = (struct kv_etcd *)kv;
    struct etcd_watch *w = MR_NEW(struct etcd_watch);

    kv_watch_init(&w->base, kv, prefix, events, ctx);
    w->seen = from - 1;
    TAILQ_INSERT_TAIL(&e->watches, w, link);
    if (e->phase == ETCD_UP) {
        open_stream(w);
    }
    return &w->base;
}
