/* A watch gets the changes of its prefix in messages of about a mebibyte, of whole revisions, as long as its
 * connection takes them. What is dropped from the history before that ends the watch, as a compaction does in etcd. */
#include "base/vec.h"
#include "host.h"
#include "kv/wire/reply_write.h"
#include "kv/wire/request_read.h"

#define MESSAGE_BYTES (1024 * 1024)
/* A watch without changes learns how far it is after this many revisions. */
#define PROGRESS_EVERY 256

/** False: it could not, and the stream is gone. */
static bool send_watched(struct host_stream *s, const struct kv_wire_watched *w)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    kv_wire_put_watched(&b, w);
    const bool is_sent = !b.failed;
    if (!is_sent) {
        host_stream_end(s, MR_GRPC_RESOURCE_EXHAUSTED, "no memory for the changes of a watch");
    } else {
        mr_grpc_send(&s->g, &(struct mr_piece){b.ptr, b.len, NULL}, 1, MR_GRPC_IDENTITY);
    }
    mr_buf_fini(&b);
    return is_sent;
}

void host_watch_message(struct host_stream *s, mr_bytes message)
{
    struct kv_host *h = s->host;
    struct kv_wire_watch_request request;
    struct mr_err err;
    int rc = kv_wire_read_watch(message, &request, &err);

    if (rc == MR_OK && request.kind == KV_WATCH_CREATE && s->prefix.ptr) {
        rc = MR_FAIL(&err, MR_E_UNSUPPORTED, "the registry of a file has one watch in a stream");
    }
    if (rc == MR_OK && request.kind == KV_WATCH_CREATE) {
        s->prefix = mr_arena_str(s->g.call->arena, request.prefix);
        rc = s->prefix.ptr ? MR_OK : MR_FAIL(&err, MR_E_NOMEM, "no memory for a watch");
    }
    if (rc < 0) {
        host_stream_end(s, mr_status_grpc(rc), err.msg);
        return;
    }
    if (request.kind == KV_WATCH_CREATE) {
        s->next = request.from ? request.from : h->durable_revision + 1;
        s->told = s->next - 1;
        s->is_active = true;
        struct kv_wire_watched created = {.header = host_header(h, h->durable_revision),
                                          .is_created = true};
        if (send_watched(s, &created)) {
            host_watch_feed(s);
        }
    }
}

/** The changes of the prefix from s->next on, of whole revisions, until there are enough. */
static void collect(struct host_stream *s, struct mr_kv_change **out, size_t *out_count)
{
    struct kv_history *history = &s->host->state.history;
    MR_VEC(struct mr_kv_change) changes = {0};
    size_t bytes = 0, i = kv_history_find(history, s->next);
    int64_t last = s->next;

    for (; i != history->end; i++) {
        const struct kv_record *r = kv_history_at(history, i);
        if (r->mod_revision > s->host->durable_revision ||
            (bytes > MESSAGE_BYTES && r->mod_revision != last)) {
            break;
        }
        last = r->mod_revision;
        if (mr_str_starts(kv_record_key(r), s->prefix)) {
            struct mr_kv_change change = {r->is_delete, kv_record_item(r)};
            MR_VEC_PUSH(&changes, change);
            bytes += kv_record_size(r);
        }
    }
    bool is_all =
        i == history->end || kv_history_at(history, i)->mod_revision > s->host->durable_revision;
    s->next = is_all ? s->host->durable_revision + 1 : last + 1;
    *out = changes.at;
    *out_count = changes.len;
}

static void compacted(struct host_stream *s)
{
    struct kv_host *h = s->host;

    s->is_active = false;
    send_watched(s, &(struct kv_wire_watched){.header = host_header(h, h->durable_revision),
                                              .is_canceled = true,
                                              .compact_revision = h->state.history.compacted});
}

void host_watch_feed(struct host_stream *s)
{
    const struct kv_host *h = s->host;

    while (s->is_active && s->next <= h->durable_revision) {
        struct kv_wire_watched w = {0};
        struct mr_kv_change *changes;

        if (mr_call_is_backlogged(s->g.call)) {
            mr_call_when_room(s->g.call);
            return;
        }
        if (s->next <= h->state.history.compacted) {
            compacted(s);
            return;
        }
        collect(s, &changes, &w.count);
        w.changes = changes;
        w.header = host_header(h, s->next - 1);
        bool is_there = true;
        if (w.count || s->next - s->told > PROGRESS_EVERY) {
            s->told = s->next - 1;
            is_there = send_watched(s, &w);
        }
        mr_free(changes);
        if (!is_there) {
            return;
        }
    }
}

void host_on_room(void *ctx, struct mr_call *call)
{
    const bool *is_stream = call->user;

    (void)ctx;
    if (is_stream && *is_stream) {
        host_watch_feed(call->user);
    }
}
