/* The process that has the file serves it to all of this machine, itself included, on a Unix socket beside it, by
 * etcd's API.
 *
 *   host.c         begin and end; changes on their way to the disk
 *   host_calls.c   requests, each answered when what it changed or saw is on the disk
 *   host_watch.c   watches, which are given what is on the disk
 *
 * Thread: loop, but for jobs of the writer. */
#ifndef MR_KV_FILE_HOST_H
#define MR_KV_FILE_HOST_H

#include <sys/queue.h>

#include "disk.h"
#include "kv/core/apply.h"
#include "kv/wire/reply_read.h"
#include "net/grpc.h"
#include "net/loop.h"
#include "writer.h"

struct kv_host_events {
    /** Once: it serves (MR_OK), or cannot. The host may be freed in it. */
    void (*on_ready)(void *ctx, int rc, const struct mr_err *err);
    /** It can not go on; to be freed, in it or later. */
    void (*on_failed)(void *ctx, const struct mr_err *why);
    void *ctx;
};

/** A unary call that waits until `position` is on the disk. In the call's arena. */
struct host_call {
    bool is_stream; /* false; distinguishes it from a host_stream */
    struct mr_grpc_call g;
    TAILQ_ENTRY(host_call) link;
    uint64_t position;
    struct mr_buf answer;
};

/** A stream: of a watch, or of leases that are kept alive. In the call's arena. */
struct host_stream {
    bool is_stream; /* true */
    bool is_watch;
    bool is_over; /* answered for good */
    struct kv_host *host;
    struct mr_grpc_call g;
    TAILQ_ENTRY(host_stream) link;
    bool is_active; /* a watch has been asked for, and is not over */
    mr_str prefix;
    int64_t next; /* revision that it is sent next */
    int64_t told; /* revision that it knows to be complete */
};

enum host_job_kind { HOST_LOAD, HOST_APPEND, HOST_REWRITE };

struct kv_host {
    struct mr_loop *loop;
    struct kv_host_events events;
    char *socket; /* unix:PATH.sock */
    int lock_fd;
    struct kv_disk disk; /* the thread's while a job runs */
    struct kv_writer *writer;
    struct kv_state state; /* the thread's during HOST_LOAD */
    struct mr_rng rng;
    struct mr_http_server *server;
    struct mr_timer timer; /* the end of a lease */
    int64_t due_ns;        /* of the timer */
    bool is_up;
    bool is_over; /* freed, but for its server */

    struct mr_buf filling; /* entries that no job has yet */
    uint64_t appended;     /* bytes of entries ever made: a position */
    uint64_t durable;      /* position up to which they are on the disk */
    int64_t durable_revision;
    TAILQ_HEAD(, host_call) held; /* by position */
    TAILQ_HEAD(, host_stream) streams;

    struct kv_job job;
    enum host_job_kind job_kind;
    int job_rc;
    struct mr_err job_err;
    struct mr_buf writing; /* of HOST_APPEND */
    uint64_t job_position; /* durable when the job is done */
    int64_t job_revision;
    struct kv_disk_whole whole; /* of HOST_REWRITE */
};

/** Takes the lock's descriptor, which is locked. Then on_ready. Errors: those of kv_writer_new. */
int kv_host_new(struct kv_host **out, struct mr_loop *loop, const char *path, int lock_fd,
                const struct kv_host_events *events, struct mr_err *err);
/** Writes what is to be written, gives up the lock, and closes its connections; no events after that. The rest goes
 *  with the loop's next iterations. */
void kv_host_free(struct kv_host **h);

/** What changed since the history's `before` becomes an entry. granted, ended: a lease, NULL and 0: none. */
void host_commit(struct kv_host *h, size_t before, const struct kv_lease *granted, int64_t ended);
/** The lease timer has to look again. */
void host_arm(struct kv_host *h);
static inline struct kv_wire_header host_header(const struct kv_host *h, int64_t revision)
{
    return (struct kv_wire_header){.cluster = h->disk.id, .term = 1, .revision = revision};
}

/* ---- host_calls.c ---- */

void host_on_head(void *ctx, struct mr_call *call);
void host_on_body(void *ctx, struct mr_call *call);
void host_on_data(void *ctx, struct mr_call *call, mr_bytes data, bool last);
void host_on_cancel(void *ctx, struct mr_call *call);
void host_on_refused(void *ctx, struct mr_call *call, int status);
/** Answers what waits for no more than `durable`. */
void host_release(struct kv_host *h);
/** Ends all calls and streams. */
void host_drop(struct kv_host *h);
/** Ends a stream. */
void host_stream_end(struct host_stream *s, int grpc_status, const char *text);

/* ---- host_watch.c ---- */

void host_watch_message(struct host_stream *s, mr_bytes message);
/** Sends what the watch has not been sent and is on the disk. */
void host_watch_feed(struct host_stream *s);
void host_on_room(void *ctx, struct mr_call *call);

#endif
