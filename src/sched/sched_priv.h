/* Shared by the files of the scheduler. */
#ifndef MR_SCHED_PRIV_H
#define MR_SCHED_PRIV_H

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sched/sched.h"
#include "tensor/tensor.h"

/* Cost is kept per power of two of the input bytes. */
#define COST_BUCKETS 32
/* Batch sizes past this share the last entry of the batch statistics. */
#define BATCH_STAT_MAX 4096u
/* An instance thread that is idle for this long ends; the next request starts it again. */
#define INSTANCE_IDLE_NS (10 * MR_NS_PER_S)
/* A quiet time after which earlier arrivals do not count any more, unless this many waits in a row were empty. */
#define EXPECTED_ROWS_MEMORY_NS MR_NS_PER_S
#define EMPTY_WAITS_MAX         3
#define PRIORITY_LEVELS_MAX     1024u

enum infer_place {
    INFER_OUTSIDE = 0, /* not with the scheduler */
    INFER_QUEUED,
    INFER_RUNNING
};

/* A request of a model without batching counts as one row. */
static inline int64_t rows_of(const struct mr_infer *r)
{
    return r->rows > 0 ? r->rows : 1;
}

static inline bool is_cancelled(const struct mr_infer *r)
{
    /* relaxed: a hint, nothing else is read because of it */
    return atomic_load_explicit(&r->is_cancelled, memory_order_relaxed);
}

TAILQ_HEAD(infer_list, mr_infer);

/* One priority level: requests in order, followed by those that timed out under policy DELAY. */
struct queue_level {
    struct infer_list ready;
    struct infer_list delayed;
    int64_t timeout_us;
    uint32_t max_size;
    uint32_t size;
    bool delay_on_timeout;
    bool allow_override;
};

/* Counters and the inline executor of one reader; written by that thread alone. One more of these, under
 * the queue's mutex, serves the instance threads. */
struct sched_slot {
    void *instance;
    bool is_instance_tried;
    uint32_t pending_begun;         /* inline executions that did not end at once */
    _Atomic uint32_t pending_ended; /* those of them that are over; threads that end them add */
    int64_t cost_ns[COST_BUCKETS];
    struct mr_sched_stats stats;
    uint32_t batch_stat_count;
    struct mr_batch_stat batches[];
};

struct exec_batch;

struct sched_instance {
    struct mr_sched *sched;
    void *instance;
    pthread_t thread;
    uint32_t index;
    bool is_started;     /* a thread exists or is to be joined */
    bool is_running;     /* its loop has not ended */
    uint32_t executions; /* begun and not ended; at most mr_sched.max_pending */
    uint64_t life;       /* of what it keeps of its sequences (exec/exec.h), when last checked */
    struct exec_batch *idle;  /* to be used again */
    struct exec_batch *again; /* parts of executions that have ended, to be run by its thread */
};

/* One execution of requests, from exec_run to its end. Zeroed, then the fields above the line are the caller's. */
struct exec_run {
    struct mr_sched *s;
    struct mr_infer **items;
    uint32_t count;
    int64_t rows;
    /* the item's own for one item, otherwise scratch that may be reset afterwards */
    struct mr_arena *arena;
    int64_t start;                      /* time of the call */
    void (*done)(struct exec_run *run); /* it was pending, and ended. Thread: any */
    bool is_suspect;                    /* part of an execution that was lost */
    bool is_bound;                      /* by the instance itself */
    uint64_t life;                      /* of the instance, 0 = any */
    /* ---- exec.c's ---- */
    struct mr_execution x;
    struct mr_block **gathered; /* [gathered_count] of inputs: of clients, then states */
    uint32_t gathered_count;
    /* MR_ERR_LOST: its process died, MR_ERR_APART: the outputs do not fit together */
    uint32_t torn;
    bool is_apart;       /* one request of a batch by itself: no empty rows before it */
    int64_t gathered_ns; /* inputs joined, for backends that make no mark */
    uint64_t input_bytes;
    bool has_success; /* of a request that has ended */
    /* Its requests have several answers each, and end with their last ones: `items` has NULL then. The last one that is open
     * ends with the execution, which uses the version until then. */
    bool ends_apart;
    uint32_t open; /* requests that have not ended so; the scheduler's mutex guards it, and items */
};

struct mr_quarantine;
struct recorder;
struct sequences;

struct mr_sched {
    struct mr_version *version;
    struct mr_sched_options options;

    /* constant after open */
    uint32_t max_pending; /* executions of an instance at once */
    bool is_batching;
    bool may_inline;
    bool is_direct; /* executions are handed over without a thread of the model */
    bool preserve_order;
    struct sequences *sequences; /* NULL = the model has none */
    int64_t max_delay_ns;
    int32_t *preferred; /* ascending */
    size_t preferred_count;
    uint32_t batch_stat_count;
    uint32_t level_count;
    uint32_t default_level;

    /* read by every request, seldom written */
    _Atomic int64_t cost_ns[COST_BUCKETS];      /* what instance threads measured */
    _Atomic(struct sched_slot *) *slots;        /* [reader_count] */
    _Atomic(struct recorder *) recording;       /* NULL = requests are not recorded now */
    _Atomic(struct mr_quarantine *) quarantine; /* once a worker process has died of a request */

    _Alignas(MR_CACHE_LINE) pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t work;                           /* for idle instance threads */
    pthread_cond_t filled; /* for the one that waits for its batch to fill */
    /** A pending execution ended, an answer left, or a request was cancelled. */
    pthread_cond_t freed;
    uint32_t waiting_responders;
    struct queue_level *levels; /* [1..level_count] */
    uint32_t queued;
    uint32_t ahead; /* executions that wait for an instance, of a direct scheduler; as if queued */
    int64_t queued_rows;
    int64_t inflight_rows; /* queued and running */
    uint32_t idle_threads;
    int64_t wake_at_rows;     /* the batch being formed is woken at this many queued rows */
    bool is_forming;          /* one instance waits for its batch to fill */
    int64_t forming_until_ns; /* it waits until then at most */
    int64_t rows_before_wait; /* of a direct scheduler: when the wait began, 0 = there is none */
    int64_t run_ns;           /* smoothed duration of executions; a batch counts as one */
    bool is_released;         /* the test hook has released the queue */
    bool is_stopping;
    double expected_rows; /* rows that are likely in flight at once */
    unsigned empty_waits; /* waits in a row in which no row came */
    int64_t last_arrival_ns;
    int64_t gap_ns;         /* smoothed time between arrivals */
    int64_t next_expire_ns; /* no queued request expires before */
    uint64_t next_dispatch; /* of requests taken from the queue */
    uint64_t next_delivery;
    struct mr_infer *undelivered; /* preserve_order: done, by dispatch */
    struct sched_slot *shared;    /* statistics of the instance threads */
    struct sched_instance *instances;
    uint32_t instance_count;
    _Atomic(struct recorder *) recorder; /* of this version, once there was one */
    _Atomic uint64_t pending;            /* copy of queued for readers without the mutex */
    /** Pending executions that are ending now, on threads that are not joined. */
    _Atomic uint32_t endings;
};

/* sched.c */
void sched_sort_sizes(int32_t *sizes, size_t count);

/* cost.c */
unsigned cost_bucket(uint64_t input_bytes);
bool cost_allows_inline(struct mr_sched *s, struct sched_slot *slot, uint64_t input_bytes);
/* An inline execution of this size that took longer was preempted. INT64_MAX: unknown. */
int64_t cost_most(const struct sched_slot *slot, uint64_t input_bytes);
void cost_add_inline(struct mr_sched *s, struct sched_slot *slot, uint64_t input_bytes, int64_t ns);
/* The recent duration of an execution of batch_bytes, or of the largest smaller one that is known, down to input_bytes; 0:
 * none is. */
int64_t cost_of_queued(struct mr_sched *s, uint64_t input_bytes, uint64_t batch_bytes);
void cost_add_queued(struct mr_sched *s, uint64_t input_bytes, int64_t ns);

/* exec.c: run the items as one execution; it fills status, outputs and times of each. True: it is over. False: it is
 * pending, run->done is called, perhaps already. `items` and `count` are then those that have not ended before it. */
bool exec_run(struct exec_run *run, void *instance);
/* All of its requests that have not ended are cancelled. Holding the mutex, if it ends_apart. */
bool exec_is_cancelled(const struct exec_run *run);
/* A request that answers may follow to, NULL: it is final. Holding the mutex. */
struct mr_infer *exec_open_request(const struct exec_run *run, uint32_t request);
/* The last answer to an open request, or its error, has come. Returns the request if it has ended by that and the caller is to
 * deliver it without the mutex, as it has no thread to go to. Holding the mutex. */
struct mr_infer *exec_end_request(struct exec_run *run, uint32_t request);
/* respond.c: the execution that may offer an answer to the request again, NULL = none waits. The caller passes it to
 * sched_offer_again after it has released the mutex. Holding the mutex. */
struct mr_execution *sched_take_offer(struct mr_sched *s, struct mr_infer *r);
/* NULL: nothing. Not holding the mutex. */
void sched_offer_again(struct mr_sched *s, struct mr_execution *x);
/* Checks an output, as the backend made it, against the config. */
int exec_check_output(const struct mr_version *v, const struct mr_model_io *io,
                      const struct mr_tensor *t, struct mr_err *err);
/* Gives an output that has passed the check the config's dims, if the backend saw others. */
int exec_reshape_output(const struct mr_version *v, struct mr_arena *arena,
                        const struct mr_model_io *io, struct mr_tensor *t, struct mr_err *err);
/* respond.c: mr_execution.respond. */
int sched_respond(struct mr_execution *x, struct mr_response *response, struct mr_err *err);
/* batch.c: joining and splitting for exec_run; all return MR_OK or fill *err. */
int batch_gather(struct mr_infer **items, uint32_t count, uint32_t input, int64_t rows,
                 struct mr_arena *arena, struct mr_tensor *out, struct mr_block **out_block,
                 struct mr_err *err);
/* Where rows [begin, begin + count) of a tensor are. */
int batch_row_range(const struct mr_tensor *t, int64_t begin, int64_t count, uint64_t *out_at,
                    uint64_t *out_bytes, struct mr_err *err);
/* Size of an empty row of `t`: zeros, which are empty strings in BYTES. */
uint64_t batch_gap_bytes(const struct mr_tensor *t, int64_t rows);
/* Room for `bytes` of a joined input, where the executor takes it without a copy if possible: in the arena, or *out_block.
 * NULL without memory. */
uint8_t *batch_room(const struct mr_executor *e, struct mr_arena *arena, uint64_t bytes,
                    struct mr_block **out_block);
int batch_slice(const struct mr_exec_output *from, int64_t row_begin, int64_t row_count,
                struct mr_infer *r, struct mr_exec_output *out, struct mr_err *err);

/* queue.c: Thread: holding the mutex. */
/* The number of those that wait, for readers without the mutex. */
void queue_publish(struct mr_sched *s);
/* Counters, place and times of a request that begins to wait, in the queue or in its sequence. */
void queue_count_in(struct mr_sched *s, struct mr_infer *r, int64_t now_ns);
/* It no longer waits: the thread that took it owns it. */
void queue_count_out(struct mr_sched *s, struct mr_infer *r);
/* Fails r when `size` requests or more wait where `max` may, 0 = any; `limit` is for the text. */
int queue_check_room(struct mr_infer *r, uint32_t size, uint32_t max, const char *limit);
/* Latest start of an execution whose answer meets the client's deadline, 0 = any time. */
int64_t queue_last_start(struct mr_sched *s, const struct mr_infer *r);
int queue_push(struct mr_sched *s, struct mr_infer *r, int64_t now_ns);
void queue_remove(struct mr_sched *s, struct mr_infer *r);
/* Taken out without having run. */
void queue_withdraw(struct mr_sched *s, struct mr_infer *r);
/* Removes requests that must not run, linked by next: expired ones, which may be delayed instead, otherwise the
 * first one if its client does not read. */
struct mr_infer *queue_reject(struct mr_sched *s, int64_t now_ns);
bool queue_expire_one(struct mr_sched *s, struct mr_infer *r, int64_t now_ns);
struct mr_infer *queue_front(const struct mr_sched *s);
struct mr_infer *queue_after(const struct mr_sched *s, const struct mr_infer *r);

/* finish.c. Thread: the request's owner, without the mutex. */
/* Worker processes died of the request: it is refused for a while. */
void sched_quarantine_add(struct mr_sched *s, const struct mr_infer *r);
/* Errors: MR_E_INTERNAL, the request is refused. */
int sched_quarantine_check(struct mr_sched *s, const struct mr_infer *r, struct mr_err *err);
void sched_quarantine_free(struct mr_sched *s);

/* batch forming decision, see instance.c */
struct batch_plan {
    uint32_t count;
    int64_t rows;
    enum mr_close_reason reason;
    bool is_ready; /* run it now; otherwise wait until wait_until_ns or wake_at_rows */
    int64_t wait_until_ns;
};
bool instance_can_join(const struct mr_sched *s, const struct mr_infer *first,
                       const struct mr_infer *r);
/* Most rows of a batch now. */
int64_t instance_rows_max(const struct mr_sched *s);
/* Until when a batch with the request may wait for more rows: from then on the whole delay would end after its latest
 * start. 0: it is late already; INT64_MAX: it has no deadline. Holding the mutex. */
int64_t instance_wait_limit(const struct mr_sched *s, const struct mr_infer *r);
void instance_form_batch(struct mr_sched *s, int64_t now_ns, struct batch_plan *plan);

/* instance.c. Wakes a thread for the queue: an idle one, or a new one if the limit allows. Fails if no thread runs
 * and none can be started. Holding the mutex. */
int instance_wake(struct mr_sched *s, struct mr_err *err);
/* Start the thread of an instance, which does not run. Holding the mutex. */
int instance_start(struct sched_instance *in, struct mr_err *err);
/* Wait for a condition with the mutex held, until a time. */
void instance_wait(struct mr_sched *s, pthread_cond_t *cond, int64_t until_ns);
/* The test hook holds requests back. Holding the mutex. */
bool instance_is_held(struct mr_sched *s);
/* Returns a chain of requests. */
void sched_deliver_all(struct mr_infer *r);
/* Starts the first thread before there is a request. */
void instance_start_early(struct mr_sched *s);
/* What instance `index` is, by the instance groups of the config; past them one like the first. */
struct mr_instance_desc sched_instance_desc(const struct mr_sched *s, uint32_t index);
/* Frees what its executions used. None runs. */
void instance_fini(struct sched_instance *in);
/* Bracket the end of a pending execution: mr_sched_close waits in between. */
void instance_ending_begin(struct mr_sched *s);
void instance_ending_end(struct mr_sched *s);
void *instance_main(void *arg);
/* Hands over waiting requests while there is room. For a scheduler that is_direct. Holding the mutex, which it
 * releases in between; the caller keeps the scheduler alive (instance_ending_begin). */
void instance_run_direct(struct mr_sched *s);

/* record.c. A finished request while requests are recorded; its inputs are still there. Thread: the reply loop's. */
void record_maybe(struct mr_sched *s, const struct mr_infer *r);
/* Ends and frees it. No request runs. */
void record_close(struct mr_sched *s);

/* finish.c */
void sched_fail(struct mr_infer *r, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void sched_deliver(struct mr_infer *r);

/* stats.c */
struct sched_slot *stats_slot_new(const struct mr_sched *s);
struct sched_slot *stats_slot_get(struct mr_sched *s, unsigned epoch_slot);
void stats_duration_add(struct mr_duration *d, int64_t ns);
void stats_count_execution(struct sched_slot *slot, const struct mr_infer *first, int64_t rows,
                           enum mr_close_reason reason, bool is_inline);

#endif
