/* Requests of a version with sequence_batching, on their way through the scheduler.
 *
 *   sequences.c         they wait with their sequence (sequence/sequence.h has the rules) until an instance takes them
 *   sequence_tensors.c  control inputs are made for them, implicit state goes in and is kept
 *   sequence_config.c   the parts of the config that both use
 *
 * Implicit state is kept per sequence in blocks that count against the memory budget, until the sequence ends. While a
 * request of the sequence runs, the thread that runs it has it for itself; otherwise the scheduler's mutex guards it. */
#ifndef MR_SCHED_SEQUENCES_H
#define MR_SCHED_SEQUENCES_H

#include "sched/sequence/sequence.h"
#include "sched_priv.h"

/* A request with its sequence; in the request's arena. */
struct sequence_item {
    struct seq_request request;
    struct mr_infer *infer;
};

/* A control input of the model. */
struct sequence_control {
    uint32_t input; /* of the backend */
    int32_t dtype;
    int kind;            /* as in the config */
    uint8_t value[2][4]; /* false and true, mr_dtype_size(dtype) bytes; not of CORRID */
};

/* A tensor that the model gives to the next request of the sequence. */
struct sequence_state {
    struct mr_model_io io; /* name, dtype, dims without the batch dimension */
    uint32_t input;        /* of the backend, as output */
    uint32_t output;
    int64_t *initial_dims; /* [io.rank] */
    uint8_t *initial;      /* one row */
    uint64_t initial_bytes;
};

struct sequences {
    struct seq_request **taken; /* [max_rows], under the mutex: the batch being taken */
    struct seq_set *set;        /* under the mutex */
    int64_t due_ns;             /* no request that waits for a place has to leave before */
    pthread_cond_t *wake;    /* [instance_count] threads of instances, which wait under the mutex */
    uint32_t max_executions; /* of an instance at once */
    _Atomic uint32_t count;  /* copy of sequence_count for readers without the mutex */
    /** Executions have one request each: the answers of several may differ in shape, and none can run twice; or the model takes one
     *  row at a time. */
    bool is_apart;
    struct sequence_control *controls;
    uint32_t control_count;
    struct sequence_state *states;
    uint32_t state_count;
};

/* sequence_config.c. Set s->sequences if the config says sequence_batching. Blocks for files. Errors: MR_E_INVALID, MR_E_IO,
 * MR_E_NOT_FOUND, MR_E_FORBIDDEN (an initial state). Thread: loader. */
int sequence_config_open(struct mr_sched *s, struct mr_err *err);
/* Frees it, NULL too. No request waits or runs, no thread runs. */
void sequence_config_close(struct mr_sched *s);

/* sequences.c: holding the mutex. */

/* MR_OK: r waits with its sequence; negative: refused, and r->status says so. */
int sequences_push(struct mr_sched *s, struct mr_infer *r, int64_t now_ns);
/* Removes r, which waits. That ends its sequence: the other waiting requests up to the next start are returned as a chain,
 * to be failed and delivered. */
struct mr_infer *sequences_withdraw(struct mr_sched *s, struct mr_infer *r);
/* True: r has waited for too long and is removed, with its status; the other waiting requests of its sequence are in
 * *out_others, failed, to be delivered. False: r->due_ns says when to ask again. */
bool sequences_expire_one(struct mr_sched *s, struct mr_infer *r, int64_t now_ns,
                          struct mr_infer **out_others);
/* Waits for a batch for the instance, takes it, and ends sequences that have been idle for too long. 0 items: the
 * thread should end. Releases the mutex while it waits. Thread: the instance's. */
uint32_t sequences_next(struct sched_instance *in, struct mr_infer **items,
                        struct batch_plan *plan);
/* The items have ended. The sequence of one that ended without having run ends, too: its waiting requests are returned in a chain,
 * failed, to be delivered. */
struct mr_infer *sequences_done(struct sched_instance *in, struct mr_infer **items, uint32_t count);
/* The item has ended before its execution. */
void sequences_leave(struct mr_sched *s, struct mr_infer *r);
void sequences_wake_all(struct mr_sched *s);

/* sequence_tensors.c. Thread: the one that runs the execution. */

/* The number of implicit state tensors of the model. */
static inline uint32_t sequence_state_count(const struct mr_sched *s)
{
    return s->sequences ? s->sequences->state_count : 0;
}
/* State outputs are always wanted. */
void sequence_want(const struct mr_sched *s, uint8_t *wanted);
/* Control inputs and states of the run's requests into `inputs`, by the backend's order. Joined tensors are in
 * run->gathered. Errors: MR_E_EXHAUSTED. */
int sequence_place(struct exec_run *run, struct mr_tensor *inputs, struct mr_err *err);
/* Keeps the states of a successful run for each request that has not failed; a request whose state cannot be kept
 * fails, and its sequence continues with the previous state. */
void sequence_keep(struct exec_run *run);
/* True if the states of two waiting requests can be joined. Holding the mutex. */
bool sequence_can_join(const struct sequences *q, struct mr_infer *first, struct mr_infer *r);
/* seq_options.drop: the states of a sequence. */
void sequence_drop(void *ctx, void *data);

#endif
