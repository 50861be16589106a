/* The scheduler: from a checked inference request to its outputs. One `struct mr_sched` per model version.
 *
 *   validate names, types and shapes of a request are checked against the model (sched/validate.c)
 *   submit   runs it at once on the calling thread when the model is known to be fast enough (inline
 *            path), otherwise queues it
 *   instance threads take requests from the queue, join them to batches, run the backend
 *   on_done  runs on the thread that the request came from
 *
 * The inline path costs no lock, no wake-up and no heap allocation. The queue has one mutex per model version; it
 * is held for list operations only, never while a backend runs.
 *
 * Threads: a request belongs to its reply loop's thread until submit and from on_done on; in between to the
 * scheduler, which uses the request's arena during that time. */
#ifndef MR_SCHED_SCHED_H
#define MR_SCHED_SCHED_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/hist.h"
#include "base/mailbox.h"
#include "base/pool.h"
#include "model/model.h"

struct mr_sched;
struct mr_turns;
struct exec_run;
struct sequence_item;

/** A timer on the thread of a reply loop. The caller's memory, zeroed but for `run` before it is first set. */
struct mr_reply_timer {
    void (*run)(struct mr_reply_timer *t);
    uint64_t room[12]; /* the loop's */
};

/** The loop that a request came from, on whose thread its callbacks are called. */
struct mr_reply_loop {
    /** Runs mail on the loop's thread. Thread: any. NULL: there is no loop. Callbacks are then called on the thread that
     *  has the answer and must not block, and the caller ensures that cancel and expire of a request do not run at the
     *  same time as its mr_infer_finish. */
    void (*post)(void *ctx, struct mr_mail *mail);
    void *ctx;
    /** (may be NULL: there are no timers) Has t->run called once at that time, instead of an earlier one; at_ns 0: not at
     *  all. Thread: the loop's. */
    void (*set_timer)(void *ctx, struct mr_reply_timer *t, int64_t at_ns);
    /** (may be NULL: it is not known) When the loop began its current round of work, see mr_infer.round_ns. Thread: the
     *  loop's. */
    int64_t (*round)(void *ctx);
    /** (may be NULL) Of the loop, for long work on its thread. */
    struct mr_turns *turns;
    /** The index of its pins, see model/model.h. MR_EPOCH_SLOT_NONE: no reader, nothing runs inline. */
    unsigned epoch_slot;
    /** Without a reader: 1 + the index of the loop whose thread takes results of worker processes, 0 = none. Callbacks are
     *  called there, too. */
    unsigned near;
    /* ---- the scheduler's own, zeroed ---- */
    int64_t round_ns;  /* start of the round of work that inline_ns counts */
    int64_t inline_ns; /* time of executions in that round */
    bool had_pause;    /* one of them is taken to have been preempted */
};

enum mr_infer_protocol { MR_INFER_REST = 0, MR_INFER_GRPC = 1, MR_INFER_PROTOCOLS = 2 };

/** The arguments of an inference, where the caller has them. Everything is borrowed until the request has ended,
 *  except blocks.
 *
 *  Inputs and outputs are columns: each name, tensor and block is `stride` bytes after the previous one, so callers
 *  whose tensors are members of larger structures copy nothing. */
struct mr_infer_args {
    mr_str model;   /* for the engine, the scheduler has a version */
    mr_str version; /* a number, a label or "" */
    mr_str id;
    const mr_str *input_names; /* distinct */
    const struct mr_tensor *input_tensors;
    /** (may be NULL) Owners of the data, NULL where there is none: the request's arena gets a reference to each. */
    struct mr_block *const *input_blocks;
    size_t input_stride;
    size_t input_count;
    const mr_str *output_names; /* that are wanted, distinct */
    size_t output_stride;
    size_t output_count; /* 0 = all */
    /** Inputs with a batch dimension of 1 too many or too few for the model are taken without or with it. */
    bool fits_batch;
    const struct mr_setting *parameters;
    uint32_t parameter_count;
    const uint8_t *parameter_kinds; /* [parameter_count] enum mr_parameter_kind; NULL: texts */
    uint64_t priority;              /* 0 = default */
    uint64_t timeout_us;            /* 0 = none */
    /* the sequence that it belongs to */
    bool has_sequence;
    uint64_t correlation_id;
    mr_str correlation_text; /* ptr NULL: the id is a number */
    uint32_t sequence_flags; /* MR_SEQUENCE_* */
};
static inline mr_str mr_infer_input_name(const struct mr_infer_args *a, size_t i)
{
    return *(const mr_str *)(const void *)((const char *)a->input_names + i * a->input_stride);
}
static inline const struct mr_tensor *mr_infer_input_tensor(const struct mr_infer_args *a, size_t i)
{
    return (const void *)((const char *)a->input_tensors + i * a->input_stride);
}

/** Points in time of one inference, CLOCK_MONOTONIC ns, 0 = not reached. */
struct mr_infer_times {
    int64_t received;    /* set by the caller: first byte seen */
    int64_t queued;      /* submit */
    int64_t start;       /* taken by an instance */
    int64_t infer_start; /* inputs in place */
    int64_t infer_end;   /* model done */
    int64_t end;         /* outputs in place */
    int64_t answered;    /* set by the caller: answer built; 0: when the outputs were in place */
};

/** The sequence that a request belongs to. Models without sequence_batching get it unchanged. */
struct mr_sequence_ref {
    uint64_t number; /* correlation id, 0 = none or a text */
    mr_str text;     /* correlation id as text, NUL-terminated, len 0 = none or a number */
    uint32_t flags;  /* MR_SEQUENCE_* */
};
/** Longest correlation id. */
#define MR_SEQUENCE_TEXT_MAX 128

/** One inference. Lives in the caller's memory (zeroed) until the caller is done with the outputs. */
struct mr_infer {
    /* ---- set by the caller before mr_infer_validate ---- */
    struct mr_version *version; /* pinned until mr_infer_finish */
    struct mr_arena *arena;
    struct mr_reply_loop *reply_loop;
    enum mr_infer_protocol protocol;
    int64_t deadline_ns; /* the client's own, 0 = none */
    /** When the reply loop began the round of work that this is part of; 0 = not known. */
    int64_t round_ns;
    /** True: the client leaves answers unread, and on_done is called with status MR_SCHED_UNREAD instead of an
     *  execution; the request can be submitted again. NULL = never. Lives until on_done. */
    const _Atomic bool *is_unread;
    bool names_version;                /* the client did: its sequences are those of that number */
    bool is_lone;                      /* no other request is part of its execution */
    const struct mr_call_chain *chain; /* of the models that ask, NULL: a client; until on_done */
    /** (may be NULL: it has none) A header of the client's request, by its name in lower case; ptr NULL: it was not sent, or is
     *  a secret. Until on_done. Thread: the reply loop's. */
    mr_str (*header)(void *ctx, const char *lower_name);
    void *header_ctx;
    /** A node's request of an execution that takes no instance (mr_engine_infer): `chain` is that of what it runs. */
    bool is_part;
    uint32_t nested; /* of how many ensembles and workflows it is a part, one within the other */
    void (*on_done)(struct mr_infer *r);
    /** (may be NULL) An answer of a decoupled model, which the caller then owns: mr_infer_response_end when it has
     *  left. on_done follows the last one. A request without this gets no answers of a decoupled model. */
    void (*on_response)(struct mr_infer *r, struct mr_response *response);
    /** (may be NULL) Further messages, for which its model asks while it runs; until on_done. It is_lone. */
    struct mr_feed *feed;
    void *user;
    /* ---- set by mr_infer_validate ---- */
    mr_str id;
    struct mr_tensor *inputs; /* [version->input_count], dtype INVALID = optional and not sent */
    uint8_t *wanted;          /* [version->output_count] */
    const struct mr_setting *parameters;
    uint32_t parameter_count;
    const uint8_t *parameter_kinds;
    uint64_t priority;
    uint64_t timeout_us;
    const struct mr_sequence_ref *sequence; /* NULL = none */
    int64_t rows;                           /* batch rows, 0 for a model without batching */
    uint64_t input_bytes;
    /* ---- results ---- */
    int status;
    struct mr_err err;
    /** [version->backend_output_count] in the backend's order, see mr_infer_output; or NULL. */
    struct mr_exec_output *outputs;
    /** Parameters of the answer, in the request's arena. An executor that asks others may set them (mr_execution.infers), of
     *  any size, before the execution ends. */
    struct mr_answer_parameters answer;
    struct mr_infer_times times;
    /** After submit and mr_sched_expire: when the reply loop should call mr_sched_expire (again), 0 = never. */
    int64_t expire_ns;
    /* ---- the scheduler's own ---- */
    struct mr_mail mail;
    struct mr_infer *next; /* in chains */
    TAILQ_ENTRY(mr_infer) in_queue;
    uint64_t dispatch;          /* preserve_order: nth that was taken */
    struct sequence_item *item; /* in its sequence, while it waits or runs */
    int64_t gap_rows;           /* empty rows of the batch before its own */
    int64_t due_ns;             /* the queue's view of expire_ns */
    int64_t start_by_ns;        /* latest start of an execution that meets deadline_ns; 0 = none */
    uint32_t level;
    struct exec_run *run; /* its execution, while that could be cancelled */
    struct mr_infer *inline_item;
    /** Its executor cannot wait, and offers an answer again when there is room. */
    struct mr_execution *room_for;
    uint64_t unread_bytes; /* of answers that have not left */
    uint32_t unread;
    uint8_t place; /* enum infer_place */
    bool is_final; /* a decoupled model has given its last answer */
    bool delayed;
    bool is_executed;
    _Atomic bool is_cancelled;
    /* ---- the engine's own ---- */
    void *resolving;
    struct engine_part *part; /* what waits for it, if is_part */
};

/** Checks a request against r->version and sets the fields named above. The results are in r->arena or refer to the
 *  caller's memory. May be the work of a turn. Errors: MR_E_INVALID with Triton's texts, MR_E_EXHAUSTED. */
int mr_infer_validate(struct mr_infer *r, const struct mr_infer_args *args, struct mr_err *err);

/** Output `i` of the version, in config order, of a request that succeeded: its dims are the config's, batch dimension
 *  first. Not set when it is not wanted. */
static inline struct mr_exec_output *mr_infer_output(const struct mr_infer *r, uint32_t i)
{
    return &r->outputs[r->version->outputs[i].backend_index];
}

/** Returns MR_SCHED_DONE: it ran on this thread, r->status and outputs are there, on_done is not called;
 *  MR_OK: queued, on_done comes later on the reply loop's thread; negative: refused (queue full, expired), r->status
 *  is the same. Thread: the reply loop's, online reader; any with MR_EPOCH_SLOT_NONE. */
#define MR_SCHED_DONE   1
#define MR_SCHED_UNREAD 2 /* not a result of submit: see is_unread */
int mr_sched_submit(struct mr_infer *r);

/** Open sequences of a version, 0 for models without sequences. Thread: any. */
uint32_t mr_sched_sequences(const struct mr_version *v);
/** True if the version has an open sequence of that id, a number if text.ptr is NULL; unnamed: one whose start did not name
 *  the version. v stays for the call. Thread: any. */
bool mr_sched_has_sequence(const struct mr_version *v, uint64_t number, mr_str text, bool unnamed);
/** The sequence of that id has begun again elsewhere: if v has it open, no further request joins it, and it ends when those
 *  that wait or run are answered. v stays for the call. Thread: any. */
void mr_sched_leave_sequence(struct mr_version *v, uint64_t number, mr_str text);

/** The version ends: its sequences that have no request give up their places to those that wait for one. v stays for the
 *  call. Thread: any. */
void mr_sched_hasten(struct mr_version *v);

/** Cancels a request. True: it was still queued and is removed with r->status MR_E_CANCELLED, on_done is not called.
 *  False: it runs or is done, and on_done will be called. Thread: the reply loop's. */
bool mr_sched_cancel(struct mr_infer *r);
/** Frees an answer that has left or is not wanted, and lets the model make another. Thread: the reply loop's, before
 *  mr_infer_finish. */
void mr_infer_response_end(struct mr_infer *r, struct mr_response **response);
/** To be called at r->expire_ns for a request that still waits. True: it timed out in the queue with r->status
 *  UNAVAILABLE ("Request timeout expired") or DEADLINE, on_done is not called. False: as for cancel, or r->expire_ns
 *  is later now. */
bool mr_sched_expire(struct mr_infer *r);

/** Executions of this version give several answers: r->on_response gets them. */
static inline bool mr_version_is_streaming(const struct mr_version *v)
{
    return v->is_decoupled && (v->backend_flags & MR_BACKEND_DECOUPLED);
}

/** Counts the finished request in the statistics, releases output blocks, unpins the version. encode_ns: time spent
 *  on encoding its answers. Thread: the reply loop's. Call exactly once for every request that has a version, also
 *  refused ones. */
void mr_infer_finish(struct mr_infer *r, int64_t encode_ns);

/* ---- life ---- */

/** The format of recorded requests in a file. */
struct mr_record_format {
    /** The inputs of `args` in a block of their own. Errors: MR_E_TOO_LARGE, MR_E_EXHAUSTED. */
    int (*write)(const struct mr_infer_args *args, uint64_t max_bytes, struct mr_block **out,
                 uint64_t *out_bytes, struct mr_err *err);
    /** Reads a record, which may come from another program. `out` refers to the record and the arena. Errors:
     *  MR_E_INVALID. */
    int (*read)(mr_bytes record, struct mr_arena *arena, struct mr_infer_args *out,
                struct mr_err *err);
};

/** The time that generated requests of several versions may take together. */
struct mr_warmup_budget {
    _Atomic int64_t left_ns; /* of executions, below 0 = exceeded */
};

struct mr_sched_options {
    uint32_t reader_count;
    int64_t inline_threshold_ns; /* 0 = never inline */
    /** A batch waits max_queue_delay_microseconds whether or not requests are expected. */
    bool has_exact_delay;
    int64_t default_warmup_ns; /* generated requests for models without model_warmup; 0 = none */
    struct mr_warmup_budget *warmup_budget; /* shared by generated requests; NULL = none */
    int64_t recorded_warmup_ns;             /* recorded requests; 0: only checked */
    uint32_t max_queue_size;                /* unless the model's config sets one */
    /** Lives as long as the process. NULL: recorded requests are neither read nor written. */
    const struct mr_record_format *records;
    /** Test hook (TRITONSERVER_DELAY_SCHEDULER): nothing runs before this many requests wait. */
    uint32_t hold_until_queued;
};
/** Makes and warms instances, sets v->sched. Blocks. Errors: the backend's; MR_E_INVALID for a bad
 *  warm-up sample, naming it. */
int mr_sched_open(struct mr_version *v, const struct mr_sched_options *o, struct mr_err *err);
/** No request is queued or running. Joins the threads, closes the instances. */
void mr_sched_close(struct mr_version *v);

/* ---- recording requests for the warm-up of later loads (sched/record.c) ---- */

#define MR_RECORDS_MAX      1000
#define MR_RECORD_BYTES_MAX (UINT64_C(64) << 20)

struct mr_record_options {
    uint32_t requests; /* 1..MR_RECORDS_MAX */
    uint32_t every;    /* one request of this many is recorded, >= 1 */
    int64_t time_ns;   /* the recording ends after this time */
};

enum mr_record_state {
    MR_RECORD_NONE = 0,  /* nothing was recorded since the version was loaded */
    MR_RECORD_RECORDING, /* requests are gathered */
    MR_RECORD_WRITING,
    MR_RECORD_WRITTEN,
    MR_RECORD_FAILED, /* see reason */
    MR_RECORD_STATES
};
/** "none", "recording", ... */
const char *mr_record_state_name(enum mr_record_state state);

struct mr_record_view {
    enum mr_record_state state;
    uint32_t requests;
    uint32_t every;
    uint32_t recorded;
    uint64_t seen; /* requests that were eligible */
    uint64_t bytes;
    int64_t left_ns; /* while it is recording */
    char reason[200];
};

/** Records requests that are answered without an error, as tensors: no id, parameters or wanted outputs. When there
 *  are enough, or the time is over, they replace the file MR_WARMUP_REQUESTS in the version's folder. v is pinned
 *  until this returns; blocks for file work. Errors: MR_E_INVALID (out of range), MR_E_UNAVAILABLE (already
 *  recording, too many recordings, files of a load request, the version is being unloaded), MR_E_FORBIDDEN, MR_E_IO,
 *  MR_E_EXHAUSTED (the folder cannot be written), MR_E_UNSUPPORTED (no record format). */
int mr_sched_record_start(struct mr_version *v, const struct mr_record_options *o,
                          struct mr_err *err);
/** Ends the recording and writes its requests. Errors: MR_E_UNAVAILABLE (nothing is being recorded). v pinned. */
int mr_sched_record_stop(struct mr_version *v, struct mr_err *err);
/** The state of the recording. v pinned. */
void mr_sched_record_view(const struct mr_version *v, struct mr_record_view *out);

/* ---- statistics (Thread: any) ---- */

struct mr_duration {
    _Atomic uint64_t count;
    _Atomic uint64_t ns;
};

/** Why a batch was closed. */
enum mr_close_reason {
    MR_CLOSE_SINGLE = 0, /* the model does not batch, or not this request */
    MR_CLOSE_FULL,       /* max_batch_size, or the next request does not fit */
    MR_CLOSE_PREFERRED,  /* a preferred size */
    MR_CLOSE_DELAY,      /* the oldest request waited max_queue_delay_microseconds */
    MR_CLOSE_NO_COMPANY, /* no other request waited, and none was expected in time */
    MR_CLOSE_SHAPE,      /* the next request has other shapes or inputs */
    MR_CLOSE_DEADLINE,   /* waiting longer would miss a deadline */
    MR_CLOSE_REASONS
};
const char *mr_close_reason_name(enum mr_close_reason r);

enum mr_fail_reason {
    MR_FAIL_REJECTED,
    MR_FAIL_CANCELED,
    MR_FAIL_BACKEND,
    MR_FAIL_OTHER,
    MR_FAIL_REASONS
};

/** Latency buckets: upper bounds 2^k microseconds, k = 0..24, and one for the rest. */
#define MR_LATENCY_BUCKETS 26
struct mr_latency {
    _Atomic uint64_t bucket[MR_LATENCY_BUCKETS];
    _Atomic uint64_t sum_ns;
};

/** One batch size's executions. */
struct mr_batch_stat {
    struct mr_duration compute_input;
    struct mr_duration compute_infer;
    struct mr_duration compute_output;
};

struct mr_sched_stats {
    _Atomic uint64_t inference_count; /* rows */
    _Atomic uint64_t execution_count;
    _Atomic uint64_t inline_count; /* executions on a network thread */
    _Atomic int64_t last_wall_ns;
    struct mr_duration success, fail, queue, compute_input, compute_infer, compute_output;
    _Atomic uint64_t failed[MR_FAIL_REASONS];
    _Atomic uint64_t closed[MR_CLOSE_REASONS];
    struct mr_latency latency_queue[MR_INFER_PROTOCOLS];
    struct mr_latency latency_compute[MR_INFER_PROTOCOLS];
    struct mr_latency latency_encode[MR_INFER_PROTOCOLS];
    struct mr_latency latency_total[MR_INFER_PROTOCOLS];
};
/** Sum over threads into *out (zeroed by it). v pinned or protected by the epoch. */
void mr_sched_stats_sum(const struct mr_version *v, struct mr_sched_stats *out);
/** Summed statistics of executions with this batch size; false when there were none. sizes 1..max. */
bool mr_sched_batch_stat(const struct mr_version *v, uint32_t batch_size,
                         struct mr_batch_stat *out);
uint32_t mr_sched_batch_max(const struct mr_version *v);
/** Requests waiting in the queue. */
uint64_t mr_sched_pending(const struct mr_version *v);

/** Requests in quarantine because worker processes died of them. */
struct mr_quarantine_stats {
    uint32_t held;    /* in quarantine now */
    uint64_t refused; /* refusals */
};
struct mr_quarantine_stats mr_sched_quarantine(const struct mr_version *v);

#endif
