/* Models in processes of their own: starts, watches and restarts the workers. A crash of a worker loses no execution.
 *
 * A model in a process is an executor like any other (exec/exec.h). Its executions reach the workers through shared
 * memory (shm/plane.h); an idle worker takes the oldest one. One thread watches all workers of all models. Executions of
 * a dead worker run again in another one; a worker that dies repeatedly restarts with growing delays. */
#ifndef MR_SENTINEL_SENTINEL_H
#define MR_SENTINEL_SENTINEL_H

#include "exec/exec.h"
#include "exec/feed.h"
#include "shm/metrics.h"

struct mr_sentinel;
struct mr_shm_door;

/** A request of a model in a worker: to another model, or to load or unload one. Lives until `drop`. */
struct mr_worker_call {
    const struct mr_call_args *args;
    /* NULL: the request is `args`; otherwise these are NULL */
    const struct mr_control_args *control;
    const char *model; /* that asks */
    bool is_loading;   /* it is just being loaded, and waits for the answer */
    struct mr_block *const
        *blocks;                /* [args->input_count] owners of large tensors, otherwise NULL */
    struct mr_call_chain chain; /* the callers, the direct one last */
    /** Identities, which are only compared: the execution that makes the call, and the chain of the call that this execution
     *  runs, NULL: a client's. */
    const void *execution;
    const struct mr_call_chain *runs;
    uint32_t instances; /* of the model that asks */
    /** Further messages for the execution that makes the call; NULL: there are none. */
    struct mr_feed *feed;
    /** The loop whose thread takes the worker's answers, and may take those of the model that is asked; MR_NO_LOOP: the call is
     *  long, or there is none. */
    uint32_t loop;
    void *user; /* of the side that runs the call */
};

/** Runs calls: an engine, which is above this module. */
struct mr_worker_caller {
    /** Answers with mr_worker_answer_send until one is the last, perhaps before this returns. Thread: a loop's, a short call
     *  only, or the watching one. Must not block. */
    void (*start)(void *ctx, struct mr_worker_call *c);
    /** The answers are not wanted any more: the last one should come soon, if it is not on its way. Thread: as `start`, once
     *  that has returned. */
    void (*cancel)(void *ctx, struct mr_worker_call *c);
    /** Every 20 ms between the end of `start` and the last answer: what waits may have a time limit. Thread: the watching
     *  one. */
    void (*expire)(void *ctx, struct mr_worker_call *c);
    /** The worker has released an answer that was not the last one; in the order of the answers. Thread: the watching one, or
     *  the one that sends it, when it is not wanted. */
    void (*taken)(void *ctx, struct mr_worker_call *c);
    /** The continuation of mr_worker_call_later. Thread: the watching one. */
    void (*later)(void *ctx, struct mr_worker_call *c);
    /** After the last answer and all `taken`: the call is freed. Thread: any. */
    void (*drop)(void *ctx, struct mr_worker_call *c);
    void *ctx;
};

struct mr_worker_answer {
    int status;
    const char *message; /* of a failure */
    bool is_last;
    int64_t value; /* of MR_CONTROL_READY */
    uint32_t count;
    const char *const *names;               /* [count] */
    const struct mr_tensor *outputs;        /* [count], copied */
    struct mr_answer_parameters parameters; /* with kinds; copied */
};
struct call_answer;
/** Copies an answer to memory that the worker can read; without memory the answer becomes a failure. Thread: any, one at
 *  a time for a call. */
struct call_answer *mr_worker_answer_make(struct mr_worker_call *c,
                                          const struct mr_worker_answer *a);
/** Sends it. The call may be freed once its last answer is sent. Thread: any; in the order in which answers are made. */
void mr_worker_answer_send(struct call_answer *a);

/** Has `later` called: for what would hold a loop for long. Once for a call, before its last answer. Thread: any. */
void mr_worker_call_later(struct mr_worker_call *c);

struct mr_sentinel_options {
    const char *worker_program; /* path of millrace-worker */
    /** An execution that computes for longer hangs; 0 = the default, 10 s (docs/workers.md). */
    int64_t hang_ns;
    uint32_t confine_steps;  /* MR_CONFINE_* of process/confine.h */
    uint64_t memory_bytes;   /* limit of each worker, 0 = none */
    uint32_t cpu_hundredths; /* of a CPU, for each worker; 0 = no limit; needs a cgroup */
    const char
        *cgroup;      /* as mr_cgroups_open's dir: limits of workers are cgroups', too; NULL: not */
    const char *user; /* that workers run as; copied; NULL: this process's own */
    /** Folders that workers may use, terminated by NULL; copied; NULL: none. */
    const char *const *write_dirs;
    /** Of the loops which call mr_sentinel_take, of the first 255 of them; borrowed. */
    const struct mr_shm_door *loop_doors;
    uint32_t loop_count;
    /** (may be NULL) A model has had no ready worker for 50 ms, or has one again. Thread: any, with the sentinel's lock; must
     *  not block. */
    void (*ready_changed)(void *ctx);
    void *ready_ctx;
    const struct mr_worker_caller *caller; /* borrowed; NULL: calls are refused */
};

/** Starts the watching thread. Errors: MR_E_EXHAUSTED, MR_E_NOMEM, MR_E_INVALID (the cgroup cannot be used). */
int mr_sentinel_new(struct mr_sentinel **out, const struct mr_sentinel_options *o,
                    struct mr_err *err);
/** All models are closed. */
void mr_sentinel_free(struct mr_sentinel **s);

struct mr_sentinel_model_args {
    const char *backend;
    const char *const *backend_dirs;
    size_t backend_dir_count;
    const struct mr_setting *settings; /* of the backend */
    size_t setting_count;
    const struct mr_model_desc *desc;
    /* Requests come in sequences, of which instances may keep state: the worker of their instance runs them. After its
     * death they run again only if the backend declares that equal inputs give equal outputs. */
    bool may_keep_state;
    /** Replaces worker_program: a program and its first arguments, terminated by NULL; the arguments of millrace-worker
     *  follow. Such workers may load other models and define metrics. NULL: worker_program. */
    const char *const *command;
    const char *const
        *environment;      /* of the workers with `command`, all of it, terminated by NULL */
    uint32_t confine_less; /* MR_CONFINE_* that its workers do not apply */
    bool may_wait; /* an execution that uses no CPU gets as much time as one that computes */
    uint32_t instance_count; /* with more than one each runs its own warm-up */
    /** Workers that have loaded the model and wait; together at most MR_WORKERS_MAX. */
    uint32_t standby_count;
};

/** Opens a model in a worker, as mr_plugin_model_open does here. Each of its instances gets a worker. Blocks until the
 *  model is loaded. Errors: the backend's; MR_E_NOT_FOUND (no worker program), MR_E_EXHAUSTED, MR_E_INTERNAL (the
 *  process ended). */
int mr_sentinel_model_open(struct mr_executor **out, struct mr_sentinel *s,
                           const struct mr_sentinel_model_args *args, struct mr_err *err);

/** What models in Python have defined. */
struct mr_metrics *mr_sentinel_metrics(struct mr_sentinel *s);

/* ---- loops ---- */

/** Ends the executions that workers have completed for the loop (mr_execution.loop), and returns their number. Workers then
 *  write to the loop's door until mr_sentinel_awake. Thread: the loop. */
size_t mr_sentinel_take(struct mr_sentinel *s, uint32_t loop);
/** The loop polls by itself before it sleeps: workers do not write to its door. Thread: the loop. */
void mr_sentinel_awake(struct mr_sentinel *s, uint32_t loop);
/** True if workers have executions of the loop, which then wakes by itself now and then: every worker can read the doors,
 *  so a hostile one could keep the loop asleep. Thread: the loop. */
bool mr_sentinel_has_pending(const struct mr_sentinel *s, uint32_t loop);

/* ---- reports ---- */

enum mr_worker_state {
    MR_WORKER_STARTING, /* its process loads the model */
    MR_WORKER_READY,
    MR_WORKER_WAITING, /* it died, and restarts after a delay */
    MR_WORKER_FAILED,  /* it does not restart by itself */
    MR_WORKER_STOPPED,
    MR_WORKER_STANDBY /* it has loaded the model, and takes the place of the next worker that dies */
};

/** Why workers were replaced. */
enum mr_worker_fault {
    MR_WORKER_CRASHED,
    MR_WORKER_HUNG,
    MR_WORKER_SICK,    /* its exit code gives the reason */
    MR_WORKER_DAMAGED, /* it wrote invalid data to shared memory or to its socket */
    MR_WORKER_FAULTS
};

struct mr_worker_report {
    uint32_t index;
    enum mr_worker_state state;
    int pid;          /* 0 = none */
    int64_t since_ns; /* of the state, monotonic */
    uint64_t restarts[MR_WORKER_FAULTS];
    char last_fault[160]; /* "" = none */
    uint64_t resident_bytes;
    int64_t cpu_ns;
};

/** Upper bounds 2^k microseconds, k = 0..24, and one bucket for the rest. */
#define MR_WORKER_TIME_BUCKETS 26u
struct mr_worker_times {
    uint64_t bucket[MR_WORKER_TIME_BUCKETS];
    uint64_t count, sum_ns, max_ns;
};

/** All workers of a model together. */
struct mr_workers_report {
    uint32_t worker_count;
    uint32_t ready_count;
    uint64_t restarts[MR_WORKER_FAULTS];
    uint64_t requeued;     /* executions that were moved to another worker */
    uint64_t quarantined;  /* executions that failed because several workers died with them */
    uint64_t copied_bytes; /* of tensors, in the server */
    uint64_t wakes;        /* system calls that woke a worker */
    /* from the hang of a worker, or from the system's report of its end, until it was handled; empty for damage */
    struct mr_worker_times detection[MR_WORKER_FAULTS];
    /* from then until its successor was ready */
    struct mr_worker_times replacement[MR_WORKER_FAULTS];
};

#define MR_WORKERS_MAX 64u /* of a model */

/** Whether the executor is a model in processes. */
bool mr_sentinel_is_executor(const struct mr_executor *e);
/** Thread: any. Takes no lock that is held for long. */
void mr_sentinel_sum(const struct mr_executor *e, struct mr_workers_report *out);
/** Process ids, 0 where a worker has none. Thread: any; takes no lock. */
void mr_sentinel_pids(const struct mr_executor *e, int out[MR_WORKERS_MAX]);
/** Fills up to `count` of `out` and returns the number of workers. Thread: any; blocks for a moment. */
uint32_t mr_sentinel_report(const struct mr_executor *e, struct mr_worker_report *out,
                            uint32_t count);
/** Models that have served and have had no ready worker for 50 ms. Thread: any; cheap. */
uint32_t mr_sentinel_unready(const struct mr_sentinel *s);
/** "ready", "crash": static. */
const char *mr_worker_state_name(enum mr_worker_state s);
const char *mr_worker_fault_name(enum mr_worker_fault f);

#endif
