/* A change is made in memory at once, so that the next request sees it, and is an entry that waits for the disk.
 * While the disk is busy with some, the next ones gather and go together: one fdatasync for all. Nothing that is not
 * on the disk is answered or shown to a watch. If the disk fails, the host ends and is made anew from what is on the
 * disk.
 *
 * When the file has twice what it had when it was written as a whole, and 4 MiB more, it is written as a whole
 * again; what waits then is in it. */
#include "host.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define REWRITE_BYTES (4 * 1024 * 1024)
/* A timer so late means that the process stood still; leases could not be kept alive in that time. */
#define LATE_NS MR_NS_PER_S

static void on_timer(struct mr_timer *t);

/* ---- jobs ---- */

static void run_job(struct kv_job *job)
{
    struct kv_host *h = MR_CONTAINER_OF(job, struct kv_host, job);
    uint64_t id;

    switch (h->job_kind) {
    case HOST_LOAD:
        mr_rng_system(&id, sizeof id);
        h->job_rc = kv_disk_load(&h->disk, id | 1, mr_now_ns(), &h->state, &h->job_err);
        break;
    case HOST_APPEND:
        h->job_rc = kv_disk_append(&h->disk, mr_buf_view(&h->writing), &h->job_err);
        break;
    case HOST_REWRITE: h->job_rc = kv_disk_rewrite(&h->disk, &h->whole, &h->job_err); break;
    }
}

static void whole_fini(struct kv_disk_whole *w)
{
    for (size_t i = 0; i < w->record_count; i++) {
        kv_record_unref(w->records[i]);
    }
    mr_free((void *)w->records);
    mr_free((void *)w->leases);
    *w = (struct kv_disk_whole){0};
}

static void whole_init(struct kv_disk_whole *w, const struct kv_state *s)
{
    struct kv_record **records = MR_NEW_ARRAY(struct kv_record *, s->keys.count + 1);
    struct kv_lease *leases = MR_NEW_ARRAY(struct kv_lease, s->leases.by_id.len + 1);
    struct mr_map_slot *slot;

    *w = (struct kv_disk_whole){.revision = s->revision, .leases = leases, .records = records};
    for (const struct kv_node *n = s->keys.first[0]; n; n = kv_keys_next(n)) {
        records[w->record_count++] = kv_record_ref(n->record);
    }
    for (size_t i = 0; (slot = mr_map_next(&s->leases.by_id, &i));) {
        const struct kv_lease *lease = slot->value;
        leases[w->lease_count++] = (struct kv_lease){.id = lease->id, .ttl_s = lease->ttl_s};
    }
}

static void job_done(struct kv_job *job);

static void start_job(struct kv_host *h, enum host_job_kind kind)
{
    h->job_kind = kind;
    h->job_position = h->appended;
    h->job_revision = h->state.revision;
    h->job = (struct kv_job){.run = run_job, .done = job_done};
    kv_writer_start(h->writer, &h->job);
}

/** Gives the disk something to do. */
static void flush(struct kv_host *h)
{
    if (kv_writer_is_busy(h->writer) || !h->filling.len) {
        return;
    }
    struct mr_buf empty = h->writing;
    h->writing = h->filling;
    h->filling = empty;
    if (h->disk.bytes > 2 * h->disk.base + REWRITE_BYTES) {
        whole_init(&h->whole, &h->state);
        start_job(h, HOST_REWRITE);
    } else {
        start_job(h, HOST_APPEND);
    }
}

/** The file could not be written anew, but is still there: what waits is added to it, and the next try comes when it
 *  has grown. */
static void append_instead(struct kv_host *h)
{
    h->disk.base = h->disk.bytes;
    h->job_kind = HOST_APPEND;
    kv_writer_start(h->writer, &h->job);
}

static void job_fails(struct kv_host *h, int rc)
{
    struct mr_err err = h->job_err;

    err.status = rc;
    if (h->is_up) {
        h->events.on_failed(h->events.ctx, &err);
    } else {
        h->events.on_ready(h->events.ctx, rc, &err);
    }
}

static int serve(struct kv_host *h, struct mr_err *err);

static void loaded(struct kv_host *h)
{
    struct mr_err err;

    kv_leases_keep_all(&h->state.leases, mr_now_ns());
    h->durable_revision = h->state.revision;
    int rc = serve(h, &err);
    h->is_up = rc == MR_OK;
    if (h->is_up) {
        host_arm(h);
    }
    h->events.on_ready(h->events.ctx, rc, &err);
}

static void job_done(struct kv_job *job)
{
    struct kv_host *h = MR_CONTAINER_OF(job, struct kv_host, job);
    struct host_stream *s, *next;

    whole_fini(&h->whole);
    if (h->job_rc < 0 && h->job_kind == HOST_REWRITE && !h->disk.is_replaced) {
        append_instead(h);
        return;
    }
    mr_buf_reset(&h->writing);
    if (h->job_rc < 0) {
        job_fails(h, h->job_rc);
        return;
    }
    if (h->job_kind == HOST_LOAD) {
        loaded(h);
        return;
    }
    h->durable = h->job_position;
    h->durable_revision = h->job_revision;
    flush(h);
    host_release(h);
    for (s = TAILQ_FIRST(&h->streams); s; s = next) {
        next = TAILQ_NEXT(s, link);
        host_watch_feed(s);
    }
}

/* ---- changes ---- */

void host_commit(struct kv_host *h, size_t before, const struct kv_lease *granted, int64_t ended)
{
    struct kv_history *history = &h->state.history;
    size_t count = history->end - before, at = h->filling.len;

    if (!count && !granted && !ended) {
        return;
    }
    struct kv_record **records = MR_NEW_ARRAY(struct kv_record *, count + 1);
    for (size_t i = 0; i < count; i++) {
        records[i] = kv_history_at(history, before + i);
    }
    kv_log_put(&h->filling, &(struct kv_log_entry){.revision = h->state.revision,
                                                   .records = records,
                                                   .record_count = count,
                                                   .granted = granted,
                                                   .ended = ended});
    mr_free(records);
    h->appended += h->filling.len - at;
    flush(h);
}

void host_arm(struct kv_host *h)
{
    int64_t next_ns = h->state.leases.next_ns;

    if (next_ns == h->due_ns && h->timer.active) {
        return;
    }
    mr_timer_stop(&h->timer);
    h->due_ns = next_ns;
    if (next_ns != INT64_MAX) {
        mr_timer_start(h->loop, &h->timer, MR_MAX(next_ns - mr_now_ns(), 0), 0, on_timer);
    }
}

static void on_timer(struct mr_timer *t)
{
    struct kv_host *h = MR_CONTAINER_OF(t, struct kv_host, timer);
    int64_t now_ns = mr_now_ns();
    struct kv_lease *lease;

    if (now_ns > h->due_ns + LATE_NS) {
        kv_leases_keep_all(&h->state.leases, now_ns);
    }
    while ((lease = kv_leases_ended(&h->state.leases, now_ns))) {
        size_t before = h->state.history.end;
        int64_t id = lease->id;
        kv_state_end_lease(&h->state, lease);
        host_commit(h, before, NULL, id);
    }
    host_arm(h);
}

/* ---- begin and end ---- */

static int serve(struct kv_host *h, struct mr_err *err)
{
    struct mr_http_handler handler = {
        .on_head = host_on_head,
        .on_body = host_on_body,
        .on_data = host_on_data,
        .on_cancel = host_on_cancel,
        .on_room = host_on_room,
        .on_body_refused = host_on_refused,
        .ctx = h,
    };
    struct mr_http_options options;
    uint16_t port;

    mr_http_options_init(&options);
    options.max_connections = 0;
    options.h2_max_streams = 100000; /* more than MR_KV_CALLS_MAX, and watches */
    options.h2_max_resets = 1000000;
    int rc = mr_http_server_new(&h->server, &options, &handler, err);
    if (rc == MR_OK) {
        rc = mr_http_listen(h->server, &h->loop, 1, h->socket, 0, false, &port, err);
    }
    if (rc == MR_OK) {
        chmod(h->socket + strlen("unix:"), 0600); /* without it, the folder's rights decide */
    }
    return rc;
}

int kv_host_new(struct kv_host **out, struct mr_loop *loop, const char *path, int lock_fd,
                const struct kv_host_events *events, struct mr_err *err)
{
    struct kv_writer *writer;
    int rc = kv_writer_new(&writer, loop, err);
    if (rc < 0) {
        return rc;
    }
    struct kv_host *h = MR_NEW(struct kv_host);
    size_t size = strlen(path) + sizeof "unix:.sock";
    uint64_t seed;

    h->loop = loop;
    h->events = *events;
    h->lock_fd = lock_fd;
    h->writer = writer;
    h->socket = mr_alloc(size);
    snprintf(h->socket, size, "unix:%s.sock", path);
    kv_disk_init(&h->disk, path);
    kv_state_init(&h->state, NULL);
    mr_rng_system(&seed, sizeof seed);
    mr_rng_seed(&h->rng, seed);
    mr_buf_init(&h->filling, 0);
    mr_buf_init(&h->writing, 0);
    TAILQ_INIT(&h->held);
    TAILQ_INIT(&h->streams);
    start_job(h, HOST_LOAD);
    *out = h;
    return MR_OK;
}

/** The last of it. */
static void on_closed(void *ctx)
{
    struct kv_host *h = ctx;
    mr_free(h);
}

void kv_host_free(struct kv_host **io_h)
{
    struct kv_host *h = *io_h;

    *io_h = NULL;
    if (!h) {
        return;
    }
    h->is_over = true;
    mr_timer_stop(&h->timer);
    kv_writer_free(&h->writer);
    if (h->is_up && h->job_rc == MR_OK &&
        h->filling.len) { /* after an error: what came before it is missing */
        kv_disk_append(&h->disk, mr_buf_view(&h->filling), NULL);
    }
    host_drop(h);
    whole_fini(&h->whole);
    mr_buf_fini(&h->filling);
    mr_buf_fini(&h->writing);
    kv_state_fini(&h->state);
    kv_disk_fini(&h->disk);
    mr_freep(&h->socket);
    struct mr_http_server *server = h->server;
    int lock_fd = h->lock_fd;
    if (server) {
        mr_http_server_close(server, on_closed,
                             h); /* the socket's name goes now, before the lock */
        mr_http_server_free(&server);
    } else {
        mr_free(h);
    }
    close(lock_fd);
}
