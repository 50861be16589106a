/* What the files of the sentinel share. */
#ifndef SENTINEL_PRIV_H
#define SENTINEL_PRIV_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/rng.h"
#include "durations.h"
#include "hang.h"
#include "ipc/frame.h"
#include "ipc/setup.h"
#include "kept.h"
#include "lines.h"
#include "process/spawn.h"
#include "restart.h"
#include "rows.h"
#include "sentinel/sentinel.h"
#include "shm/plane.h"
#include "times.h"
#include "warmups.h"

/* Of the threads that take what is done, the watching thread; the loops follow. */
#define HOME_SENTINEL 0u

/* How far a worker has come, in order. */
enum step {
    STEP_NONE,
    STEP_OPENING,
    STEP_OPENED,
    STEP_CONFIGURING,
    STEP_CONFIGURED,
    STEP_INSTANCE,
    STEP_READY
};

/* What the watching thread waits for, of one worker. */
enum watch_kind { WATCH_END, WATCH_SOCKET, WATCH_OUTPUT };
struct watch {
    enum watch_kind kind;
    struct worker *worker;
};

struct process_model;
struct call;

/* One worker of a model: a place for one process after the other. All of it under the sentinel's lock. */
struct worker {
    struct process_model *model;
    uint32_t index;
    struct watch watches[3];
    enum step step, goal; /* goal NONE: it shall not run */
    bool is_running;      /* there is a process, or one that has not been reaped */
    bool is_failed;       /* not started again by itself */
    bool is_stopping;     /* it was told to */
    bool is_deaf;         /* its socket is closed */
    bool has_said;        /* why it ends: err */
    bool was_killed;      /* the last process, by SIGKILL from outside */
    bool was_short;       /* the last process, of memory */
    bool was_ready;       /* once, with this or an earlier process */
    bool is_standby;      /* it loads the model, then waits to take a dead one's place */
    struct mr_err err;    /* why it failed */
    struct mr_process process;
    int socket;
    struct mr_buf in, out;
    struct mr_frame_fds received;
    struct lines lines;
    struct restart restart;
    int64_t start_at_ns; /* when it is started (again), 0 = it is not to be */
    int64_t since_ns;    /* of what it does now */
    int64_t started_ns;  /* of the process */
    int64_t loading_ns;  /* since then it comes to be ready */
    int64_t died_ns;     /* the process before, 0 = there was none */
    enum mr_worker_fault died_of;
    int64_t stop_by_ns;  /* it was told to stop, and is killed then */
    int64_t ready_by_ns; /* of a process that replaces another: it is killed then; 0 = any time */
    enum mr_worker_fault fault; /* why it was killed; FAULTS: it was not */
    uint64_t restarts[MR_WORKER_FAULTS];
    char last_fault[160];
    struct mr_instance_desc instance;   /* name in the model's arena */
    TAILQ_HEAD(, call) calls;           /* that its process has begun and not ended */
    uint32_t call_count, waiting_count; /* of them; those whose last answer has not been sent */
    _Atomic uint64_t answered;          /* executions, since the process started; relaxed */
    _Atomic bool is_hopeless;           /* it will not run soon; relaxed */
    struct hang hang;
};

/* A model and one of the homes. */
struct model_home {
    struct process_model *model;
    struct model_home *next; /* in the home's list */
    uint32_t unrung;         /* submissions that no worker has been woken for; the home's own */
    _Atomic bool is_listed;
};

/* A thread that takes what is done. */
struct home {
    _Alignas(MR_CACHE_LINE) _Atomic(struct model_home *) coming;
    struct model_home *active; /* the thread's own */
};

/* A model in processes: an executor. */
struct process_model {
    struct mr_executor base; /* first */
    struct mr_sentinel *sentinel;
    TAILQ_ENTRY(process_model) link;
    struct mr_arena arena;   /* names and what follows */
    struct mr_ipc_open open; /* what each of its workers is told to load */
    /* What runs its workers, terminated by NULL; NULL: millrace-worker, and an environment of few variables. */
    const char *const *command, *const *environment;
    struct mr_loading *loading;
    struct mr_buf configured; /* packed signature of the config; len 0 = none */
    struct mr_shm *shm;
    struct model_home *homes; /* [sentinel->home_count] */
    _Atomic uint32_t refs;    /* the scheduler's, and one for each home that lists it */
    bool has_strings;         /* among its outputs */
    struct worker workers[MR_SHM_WORKERS_MAX];
    uint32_t worker_count;   /* places that are used */
    uint32_t instance_count; /* the last of them to open is followed by the standby workers */
    uint32_t standby_count;
    struct warmups warmups;
    struct kept kept;            /* set before `opened`, then constant */
    struct mr_ipc_opened opened; /* of the first worker; strings in the arena */
    _Atomic uint32_t ready;      /* workers; relaxed */
    _Atomic bool is_broken;      /* no worker will come soon; relaxed */
    _Atomic bool has_cancelled;  /* the backends of workers have to hear of executions; relaxed */
    bool keeps_state;            /* of sequences, in its workers; constant once opened */
    bool may_wait;               /* its executions may stand still; constant */
    bool has_bound;              /* executions may be for one worker; constant */
    _Atomic uint64_t nonce;
    _Atomic uint64_t
        output_bytes; /* largest outputs of an execution so far, beyond the room; relaxed */
    struct times times;
    struct rows rows;
    int64_t load_ns; /* the longest start of a worker so far; under the lock */
    /* relaxed, for reports */
    _Atomic uint64_t requeued, quarantined, copied_bytes;
    struct durations detection[MR_WORKER_FAULTS], replacement[MR_WORKER_FAULTS];
    _Atomic uint64_t restarts[MR_WORKER_FAULTS];
    int64_t
        none_since_ns; /* no worker is ready since then, 0 = there is one, or none yet; under the lock */
    bool has_served; /* a worker was ready once */
    bool is_closing;
    _Atomic bool is_unready; /* no worker for a while; relaxed */
};

TAILQ_HEAD(model_list, process_model);

#define STEPS 32u

struct mr_sentinel {
    /* names of what workers do while they load, kept for reports of loads; under the lock */
    char steps[STEPS][MR_SHM_STEP_BYTES];
    uint32_t step_count;
    struct mr_sentinel_options options;
    char *program;
    char *user;        /* NULL: none */
    char **write_dirs; /* terminated by NULL */
    struct mr_shm_homes *homes;
    struct home *home_list; /* [home_count] */
    uint32_t home_count;
    _Atomic(struct run *) late;                 /* answers that this thread is to read */
    _Atomic(struct call *) begun;               /* calls that this thread is to start */
    struct call *joined;                        /* those that it knows; its own */
    _Atomic(struct call_answer *) call_answers; /* that it is to send */
    int epoll;
    int wake; /* eventfd: somebody wants something */
    pthread_t thread;
    pthread_mutex_t
        lock; /* guards workers and models; held by the watching thread while it works */
    pthread_cond_t moved; /* a worker has come further, or has ended */
    struct model_list models;
    struct mr_rng rng;
    int64_t last_sweep_ns;
    int64_t busy_ns;          /* when a sweep last found anything submitted */
    _Atomic bool is_resting;  /* the thread does not sweep */
    int64_t woken_ns;         /* the watching thread, the last time */
    _Atomic uint32_t unready; /* models; relaxed */
    bool was_busy;            /* at the last sweep */
    bool is_stopping;
    bool is_started;
};

/* sentinel.c */
void sentinel_wake(struct mr_sentinel *s);
/* Something has been submitted. Thread: any. */
void sentinel_note_busy(struct mr_sentinel *s);
int sentinel_watch(struct mr_sentinel *s, int fd, struct watch *w, struct mr_err *err);

/* Note whether the model has a worker. Lock held. */
void sentinel_note_ready(struct process_model *m, int64_t now_ns);
void sentinel_set_unready(struct process_model *m, bool is_unready);

/* worker.c. Lock held, all of it. */
void worker_init(struct worker *w, struct process_model *m, uint32_t index);
/* Start its process. Thread: the sentinel's, with which the process dies. A failure is noted in the worker. */
void worker_start(struct worker *w, int64_t now_ns);
/* From when on it hangs, unless it is ready: by what loading took before. */
void worker_set_ready_by(struct worker *w, int64_t now_ns);
/* Send what waits for room in the socket. */
void worker_flush(struct worker *w);
void worker_on_socket(struct worker *w, int64_t now_ns);
void worker_on_output(struct worker *w);
/* Its process has ended. */
void worker_on_end(struct worker *w, bool is_waiting, int64_t now_ns);
/* Tell its backend that nobody waits for an execution. */
void worker_cancel(struct worker *w, uint32_t slot, uint64_t generation);
/* Ask it to end; it is killed when that takes too long. */
void worker_stop(struct worker *w, int64_t now_ns);
/* Have it load the model and wait, for another worker to die. */
void worker_stand_by(struct worker *w);
/* Ask for the next step towards the goal, if the worker waits for that. */
void worker_advance(struct worker *w);
/* End its process, because of a fault. */
void worker_kill(struct worker *w, enum mr_worker_fault fault, const char *why);
/* As it hangs since then. */
void worker_kill_hung(struct worker *w, const char *why, int64_t since_ns, int64_t now_ns);

/* homes.c */
bool home_is_here(uint32_t home);
/* As mr_shm_submit; the home hears of it. Thread: any. */
bool home_submit(struct process_model *m, struct mr_shm_slot *slot, size_t message_bytes,
                 uint32_t home, bool is_again);
/* Ends what is done for the home; workers ring from now on. Thread: the home. */
size_t home_take(struct mr_sentinel *s, uint32_t home);
/* No thread is a home any more. */
void homes_drop(struct mr_sentinel *s);

/* calls.c */
/* Takes over a call that lies in the slot, which a worker of the model runs for x. Errors: those of mr_ipc_call_read. Thread:
 * any that has the slot. */
int call_take(struct process_model *m, const struct mr_shm_slot *slot, const struct mr_execution *x,
              struct mr_err *err);
/* Adds what call_take has left to the lists of workers, before their frames are handled. Thread: the watching one. Lock
 * held, as below. */
void calls_join(struct mr_sentinel *s);
/* Sends answers to workers. */
void calls_answer(struct mr_sentinel *s);
/* Starts what calls_join has added. Thread: the watching one, without the lock. */
void calls_start(struct mr_sentinel *s);
/* MR_FRAME_TAKEN and MR_FRAME_CALL_END. Errors: MR_E_INVALID. */
int call_on_frame(struct worker *w, const struct mr_frame *f, struct mr_err *err);
/* The worker's process has ended. */
void calls_end(struct worker *w);

/* executor.c. The model goes with its last reference. Thread: any. */
void sentinel_model_ref(struct process_model *m);
void sentinel_model_unref(struct process_model *m);

/* run.c */
int run_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err);
void run_cancel(struct mr_executor *e, struct mr_execution *x);
/* mr_shm_outcome_fn; ctx: the model. */
void run_outcome(void *model, struct mr_shm_slot *s, enum mr_shm_outcome outcome);
/* Reads the answers that were left to the watching thread. Thread: that one. */
void run_late(struct mr_sentinel *s);
/* Ids of the requests in a slot, for a log line; returns out. */
const char *run_ids(const struct mr_shm_slot *s, char *out, size_t size);

static inline struct process_model *process_model_of(const struct mr_executor *e)
{
    return (struct process_model *)(uintptr_t)e;
}

#endif
