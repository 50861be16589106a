/* Types and functions that the files of the sentinel share. */
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

/* The watching thread, among the threads that take completed executions; the loops follow. */
#define HOME_SENTINEL 0u

/* The steps of a worker, in order. */
enum step {
    STEP_NONE,
    STEP_OPENING,
    STEP_OPENED,
    STEP_CONFIGURING,
    STEP_CONFIGURED,
    STEP_INSTANCE, /* it opens its instance, and warms up if it is not one of the first */
    STEP_WARMED,
    STEP_SERVING, /* it was asked to take executions */
    STEP_READY
};

/* The descriptors of one worker that the watching thread polls. */
enum watch_kind { WATCH_END, WATCH_SOCKET, WATCH_OUTPUT };
struct watch {
    enum watch_kind kind;
    struct worker *worker;
};

struct process_model;
struct call;

#define ENDED_EARLY_MAX 256u

/* One worker of a model: a place for successive processes. All of it under the sentinel's lock. */
struct worker {
    struct process_model *model;
    uint32_t index;
    struct watch watches[3];
    enum step step, goal; /* goal NONE: it must not run */
    bool is_running;      /* it has a process that runs or has not been reaped */
    bool is_failed;       /* it does not restart by itself */
    bool is_stopping;     /* it was asked to stop */
    bool is_deaf;         /* its socket is closed */
    bool has_said;        /* the reason of its end: err */
    bool was_killed;      /* the last process was, by SIGKILL from outside */
    bool was_short;       /* the last process was short of memory */
    bool was_damaged;     /* the last one was ended for what any of the model's may have written */
    bool was_oom;         /* the kernel ended it for that, by the limit of its cgroup */
    bool shares_damage;   /* so is this one */
    bool was_ready;       /* this process or an earlier one was */
    bool is_standby;      /* it prepares, then waits to replace a dead worker */
    struct mr_err err;    /* the reason of its failure */
    struct mr_process process;
    uint64_t cgroup; /* of the process, 0 = none */
    int socket;
    struct mr_buf in, out;
    struct mr_frame_fds received;
    struct lines lines;
    struct restart restart;
    int64_t start_at_ns; /* time of its next start, 0 = none */
    int64_t since_ns;    /* start of its current step */
    int64_t started_ns;  /* of the process */
    int64_t loading_ns;  /* start of its way to be ready */
    int64_t died_ns;     /* end of the process before, 0 = there was none */
    enum mr_worker_fault died_of;
    int64_t stop_by_ns; /* deadline of its stop, when it is killed */
    /* deadline of a process that no loader waits for, when it is killed; 0 = none */
    int64_t ready_by_ns;
    enum mr_worker_fault fault; /* the reason of its kill; FAULTS: none */
    uint64_t restarts[MR_WORKER_FAULTS];
    char last_fault[160];
    struct mr_instance_desc instance; /* name in the model's arena */
    /* Guards what follows, and parts of calls; held for a few dozens of instructions. Taken after the sentinel's. */
    pthread_mutex_t calls_lock;
    TAILQ_HEAD(, call) calls; /* that its process has begun and not ended */
    uint32_t call_count;
    bool takes_calls;
    _Atomic uint32_t process_number; /* whose calls they are; relaxed, written under the lock */
    /* The latest that it ended before they came here: an end comes by the socket, a call behind answers. */
    uint64_t ended_early[ENDED_EARLY_MAX];
    uint32_t ended_early_count;
    _Atomic uint64_t answered; /* answers since the start of the process; relaxed */
    _Atomic bool is_hopeless;  /* it will not run soon; relaxed */
    _Atomic int pid;           /* of its process, 0 = none; for reports without the lock; relaxed */
    struct hang hang;          /* of its executing thread */
    struct hang pending_hang;  /* of executions that end on other threads */
};

/* A model and one of the homes. */
struct model_home {
    struct process_model *model;
    struct model_home *next; /* in the home's list */
    uint32_t unrung;         /* submissions without a wake-up of a worker yet; the home's own */
    _Atomic bool is_listed;
};

/* A thread that takes completed executions. */
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
    struct mr_ipc_open open; /* the load request of each of its workers */
    /* The program of its workers with arguments, terminated by NULL; NULL: millrace-worker with a small environment. */
    const char *const *command, *const *environment;
    const char *temp_dir; /* of its workers' temporary folders, NULL: they have none */
    struct mr_loading *loading;
    struct mr_buf configured; /* packed signature of the config; len 0 = none */
    struct mr_shm *shm;
    struct model_home *homes; /* [sentinel->home_count] */
    _Atomic uint32_t refs;    /* the scheduler's, and one for each home that lists it */
    bool has_strings;         /* among its outputs */
    struct worker workers[MR_SHM_WORKERS_MAX];
    uint32_t worker_count; /* places that are used */
    uint32_t instance_count;
    uint32_t standby_count;
    struct warmups warmups;
    struct kept kept;            /* set before `opened`, then constant */
    struct mr_ipc_opened opened; /* of the first worker; strings in the arena */
    _Atomic uint32_t ready;      /* workers; relaxed */
    _Atomic bool is_broken;      /* no worker will be ready soon; relaxed */
    _Atomic bool has_cancelled;  /* the backends of workers are notified of cancels; relaxed */
    bool keeps_state;            /* of sequences, in its workers; constant once opened */
    bool may_wait;               /* its executions may use no CPU for long; constant */
    bool may_pend;               /* they may be pending without a limit; constant once opened */
    bool has_bound;              /* executions may be bound to one worker; constant */
    _Atomic uint64_t nonce;
    /** Largest outputs of an execution so far, beyond the room; relaxed. */
    _Atomic uint64_t output_bytes;
    struct times times;
    struct rows rows;
    int64_t load_ns; /* the longest start of a worker so far; under the lock */
    /* relaxed, for reports */
    _Atomic uint64_t requeued, quarantined, copied_bytes;
    struct durations detection[MR_WORKER_FAULTS], replacement[MR_WORKER_FAULTS];
    _Atomic uint64_t restarts[MR_WORKER_FAULTS];
    /** No worker has been ready since then, 0 = one is, or it is not warmed up yet; under the lock. */
    int64_t none_since_ns;
    bool is_warmed; /* it may serve */
    /* consecutive sweeps that found memory which workers were not given; the watching thread's */
    unsigned overflows;
    bool is_closing;
    _Atomic bool is_unready; /* it has had no ready worker for a while; relaxed */
};

TAILQ_HEAD(model_list, process_model);

#define STEPS 32u

struct mr_sentinel {
    /* names of load steps of workers, kept for reports of loads; under the lock */
    char steps[STEPS][MR_SHM_STEP_BYTES];
    uint32_t step_count;
    struct mr_sentinel_options options;
    char *program;
    char *user;                 /* NULL: none */
    char **write_dirs;          /* terminated by NULL */
    struct mr_cgroups *cgroups; /* NULL: none; under the lock */
    char *temp_dir; /* of all workers' temporary folders, NULL: none yet; under the lock */
    int temp_lock;  /* of that folder */
    uint32_t temp_count;
    struct mr_shm_homes *homes;
    struct mr_metrics *metrics;
    struct home *home_list; /* [home_count] */
    uint32_t home_count;
    _Atomic(struct slot_run *) late;            /* answers that the watching thread has to read */
    _Atomic(struct call *) begun;               /* calls that it has to start */
    struct call *joined;                        /* those in their order; its own */
    _Atomic(struct call_answer *) call_answers; /* answers that it has to send */
    int epoll;
    /* Eventfds that wake the watching thread; also those of its home. */
    struct mr_shm_door door;
    pthread_t thread;
    /** Guards workers and models; held by the watching thread while it works. */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* a worker has reached a step, or has ended */
    struct model_list models;
    struct mr_rng rng;
    int64_t last_sweep_ns;
    int64_t busy_ns;          /* time of the last sweep that found a submission */
    _Atomic bool is_resting;  /* the thread does not sweep */
    int64_t woken_ns;         /* last wake-up of the watching thread */
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
/* Before the descriptor is closed: a process that is being started has a copy until it executes, and events of that would
 * come, with a `w` that may be gone. fd < 0 is allowed. */
void sentinel_unwatch(struct mr_sentinel *s, int fd);

/* Records whether the model has a ready worker. Lock held. */
void sentinel_note_ready(struct process_model *m, int64_t now_ns);
void sentinel_set_unready(struct process_model *m, bool is_unready);

/* worker.c. Lock held, all of it. */
void worker_init(struct worker *w, struct process_model *m, uint32_t index);
/* Starts its process. Thread: the sentinel's, with which the process dies. A failure is recorded in the worker. */
void worker_start(struct worker *w, int64_t now_ns);
/* Sets the deadline of its load, which follows from the times of earlier loads. */
void worker_set_ready_by(struct worker *w, int64_t now_ns);
/* Sends output that waits for room in the socket. */
void worker_flush(struct worker *w);
void worker_on_socket(struct worker *w, int64_t now_ns);
void worker_on_output(struct worker *w);
/* Its process has ended. */
void worker_on_end(struct worker *w, bool is_waiting, int64_t now_ns);
/* Notifies its backend that an execution is cancelled. */
void worker_cancel(struct worker *w, uint32_t slot, uint64_t generation);
/* Asks it to end; it is killed if that takes too long. */
void worker_stop(struct worker *w, int64_t now_ns);
/* Makes it a standby worker, which waits for the death of another one: with the instance warmed up if the model has only
 * one, otherwise with the model loaded. */
void worker_stand_by(struct worker *w);
/* Requests the next step towards the goal, if the worker waits for one. */
void worker_advance(struct worker *w);
/* Ends its process because of a fault. */
void worker_kill(struct worker *w, enum mr_worker_fault fault, const char *why);
/* Ends its process, which has hung since then. */
void worker_kill_hung(struct worker *w, const char *why, int64_t since_ns, int64_t now_ns);

/* homes.c */
bool home_is_here(uint32_t home);
/* As mr_shm_submit; the home is notified. Thread: any. */
bool home_submit(struct process_model *m, struct mr_shm_slot *slot, size_t message_bytes,
                 uint32_t home, bool is_again);
/* Ends the completed executions of the home; workers ring afterwards. Thread: the home. */
size_t home_take(struct mr_sentinel *s, uint32_t home);
/* Wakes workers for what this thread has submitted since home_take, which otherwise wait for the next one. Thread: the
 * home. */
void home_ring(struct mr_sentinel *s, uint32_t home);
/* After the last use by any home. */
void homes_drop(struct mr_sentinel *s);

/* calls.c */
/* Takes over a call, the letter of the slot, which a worker of the model runs for x. Failures are answers to it. Thread: any
 * that has the slot. */
void call_take(struct process_model *m, const struct mr_shm_slot *slot,
               const struct mr_execution *x);
/* Takes over the calls that other threads have left to the watching thread, which calls this and what follows. Lock held. */
void calls_join(struct mr_sentinel *s);
/* Sends answers that are frames. */
void calls_answer(struct mr_sentinel *s);
/* Starts and continues the calls of calls_join. Without the lock. */
void calls_start(struct mr_sentinel *s);
/* MR_FRAME_TAKEN and MR_FRAME_CALL_END. Errors: MR_E_INVALID. */
int call_on_frame(struct worker *w, const struct mr_frame *f, struct mr_err *err);
/* MR_FRAME_CONTROL and MR_FRAME_METRIC. Errors: MR_E_INVALID. */
int call_on_control(struct worker *w, const struct mr_frame *f, struct mr_err *err);
/* The worker has a new process, which does not run yet, of that number (mr_shm_worker_begin); it has ended. */
void calls_begin(struct worker *w, uint32_t process);
void calls_end(struct worker *w);
/* Has the time limits of its calls looked at. */
void calls_expire(struct worker *w);
/* True: the worker has read all answers so far of one of its calls, and more will come. Thread: any. */
bool calls_wait(struct worker *w);

/* executor.c. Frees the model with its last reference. Thread: any. */
void sentinel_model_ref(struct process_model *m);
void sentinel_model_unref(struct process_model *m);

/* run.c */
int run_execute(struct mr_executor *e, struct mr_execution *x, struct mr_err *err);
void run_cancel(struct mr_executor *e, struct mr_execution *x);
/* mr_shm_outcome_fn; ctx: the model. */
void run_outcome(void *model, struct mr_shm_slot *s, enum mr_shm_outcome outcome);
/* Reads the answers that other threads left to the watching thread. Thread: the watching one. */
void run_late(struct mr_sentinel *s);
/* Ids of the requests in a slot, for a log line; returns out. */
const char *run_ids(const struct mr_shm_slot *s, char *out, size_t size);

static inline struct process_model *process_model_of(const struct mr_executor *e)
{
    return (struct process_model *)(uintptr_t)e;
}

#endif
