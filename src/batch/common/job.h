/* A running job, between its parts.
 *
 * Three threads: the loop (hosts, calls, judgement of answers), the reader (source) and the committer (files, disk).
 * An extent of rows moves from one to the next and belongs to one at a time; only credits and the two queues are
 * shared. */
#ifndef MR_BATCH_JOB_H
#define MR_BATCH_JOB_H

#include <stdatomic.h>

#include "base/clock.h"
#include "batch/batch.h"
#include "batch/manifest/manifest.h"
#include "credits.h"
#include "dialect.h"
#include "host.h"
#include "shard.h"

/** How long the probe of a plan takes at most, waiting for the first host included. */
#define PLAN_NS (10 * MR_NS_PER_S)

struct calls;
struct cross_check;
struct committer;
struct disk_hold;
struct discover;
struct extent;
struct plan;
struct reader;
struct dlq_retry;
struct sink_ops;

struct control {
    struct mr_http_server *server;
    char trouble[464]; /* why there is no socket, until it is reported; "": nothing */
    char address[300]; /* of TCP, with the port that it became; "": none */
};

/** A host in quarantine. It lasts when the job is begun again in this process. */
struct quarantine {
    char *address; /* as hosts are called in views and parts, or as lists name them */
    char *reason;
};

struct mr_batch {
    const struct mr_batch_options *o;
    void (*on_view)(void *ctx, const struct mr_batch_view *view);
    void *view_ctx;
    _Atomic int stops;
    struct mr_loop *loop; /* this and the control are the same when the job is begun again */
    struct control control;
    struct job *job; /* NULL: its memory is being freed, and it must not be queried */
    MR_VEC(struct quarantine) quarantined;
    bool has_answers;    /* a host has served rows */
    bool is_stopped;     /* by a problem that needs attention */
    bool has_taken_back; /* results of a host that answered wrongly */
    char *folder;        /* the job's; NULL: it has none, or none yet */
    size_t folder_there; /* bytes of its path that named a folder before this start */
};

/** What parts of a job say to those above them. On the loop's thread. */
struct job_events {
    /** Something may have ended: the job begins its next phase, or ends. */
    void (*advance)(struct job *j);
    /** All rows of the extent have an outcome: takes it. */
    void (*settled)(struct job *j, struct extent *e);
    /** Calls are about to be made; more of them may be asked for. */
    void (*before_calls)(struct job *j);
    /** A host has answered rows of the job, as `rows` says. */
    void (*answered)(struct call *k, const struct row_range *of, const struct mr_rows *rows);
    /** A call of calls_ask ended. */
    void (*asked)(struct call *k, const struct transport_answer *a);
    /** A call of calls_ask cannot be made, as its host is away. */
    void (*absent)(struct job *j, const struct work *w);
};

enum job_phase { JOB_ASKING, JOB_RUNNING, JOB_ENDING };

struct job {
    struct mr_batch *batch;
    const struct mr_batch_options *o;
    enum job_phase phase;
    struct mr_loop *loop; /* the batch's */
    struct mr_timer tick;
    struct mr_timer wake;
    int64_t begin_ns;
    struct mr_balance *balance;
    const struct dialect *dialect;
    const struct job_events *events;
    struct local *local; /* NULL: the model is on hosts only */
    MR_VEC(struct host *) hosts;
    struct discover *discover;
    struct mr_arena arena; /* the metadata */
    struct mr_oip_metadata metadata;
    bool has_metadata;
    char answer_version[32]; /* "": unknown so far */
    struct mr_schema wanted;
    struct mr_schema columns; /* if the input has none; otherwise empty */
    char *folder;             /* of its own: that of the options, or one in it */
    struct mr_source *source;
    struct shard shard;
    struct batch_bind *bind; /* dialect_oip.c */
    struct openai *openai;   /* NULL: the Open Inference Protocol */
    struct batch_outputs *outputs;
    const struct sink_ops *sink;
    struct mr_store *store;  /* of the sink, if it is a table */
    struct objects *objects; /* the same, if it is objects */
    struct mr_manifest *manifest;
    struct mr_manifest_totals before; /* zeros with `dlq_retry` */
    struct dlq_retry *dlq_retry;      /* NULL: rows without outcome are what is to be done */
    bool was_finished;
    int64_t total_rows;
    struct credits credits;
    struct reader *reader;
    struct committer *committer;
    struct calls *calls;
    bool is_refused;        /* the start was: what is wrong is in `err`, and nowhere else */
    bool is_finishing;      /* all is with the committer */
    struct disk_hold *hold; /* why it was begun again, and when it goes on */
    bool may_go_on;         /* it ends, and can be begun again */
    bool begins_again;      /* it is, at once */
    struct cross_check *cross_check; /* NULL: hosts are not compared */
    char pause_reason[480];          /* "": on request */
    bool is_accepted;                /* thresholds do not count any more */
    bool is_read;                    /* the reader has come to the end */
    MR_VEC(struct extent *) open;    /* extents that are with the loop */
    uint64_t read_rows;
    uint64_t dead_rows; /* of this start, committed or not */
    struct plan *plan;  /* NULL: a run */
    int rc;             /* why the loop was left */
    struct mr_err err;
    struct {
        int64_t at_ns;
        uint64_t rows;
    } marks[11]; /* of the last seconds, for the rate */
    uint64_t mark_count;
    bool is_paused;
    int64_t resumed_ns;          /* 0: never */
    _Atomic uint32_t batch_rows; /* as asked for last; the reader looks at it */
    uint32_t max_in_flight;
    int64_t answer_most; /* bytes; more is no answer */
    struct call_cause causes[CAUSES_MOST];
    struct figures figures;
};
/** The loop ends with this; the first reason counts. */
void job_fail(struct job *j, int rc, const struct mr_err *err);
/** Reports a problem that needs attention: the job stops or pauses, by the options. */
void job_stop(struct job *j, const struct mr_err *err);
/** The loop ends. */
void job_end(struct job *j);

#endif
