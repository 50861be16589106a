/* A running job, between its files.
 *
 * Three threads: the loop (hosts, calls, judgement of answers), the reader (source) and the committer (files, disk). A
 * stretch of rows, an extent, goes from one to the next and belongs to one at a time; only credits and the two queues
 * are shared. */
#ifndef MR_BATCH_JOB_H
#define MR_BATCH_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hist.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "base/vec.h"
#include "batch/batch.h"
#include "batch/calls/ahead.h"
#include "batch/calls/call_rows.h"
#include "batch/calls/retry_policy.h"
#include "batch/manifest/manifest.h"
#include "batch/manifest/origin.h"
#include "batch/protocols/oip/answer.h"
#include "batch/protocols/oip/bind.h"
#include "batch/transport/wire.h"
#include "canary.h"
#include "dialect.h"
#include "disk.h"
#include "grow.h"
#include "shard.h"

struct job;
struct sink_ops;

/* ---- credits.c: bytes of rows under way; taken by the reader only ---- */

struct credits {
    pthread_mutex_t lock; /* guards what follows; held for a few instructions */
    pthread_cond_t more;
    uint64_t most;
    uint64_t limit; /* what of it is for extents */
    uint64_t taken;
    bool is_waited_for;
    bool is_held;
    bool is_closed;
};
void credits_init(struct credits *c, uint64_t most);
void credits_fini(struct credits *c);
/** Waits until they are there, or nothing is out (a stretch larger than all of it goes alone). False: closed. */
bool credits_take(struct credits *c, uint64_t bytes);
/** Corrects an estimate, without waiting. */
void credits_move(struct credits *c, uint64_t from, uint64_t to);
void credits_give(struct credits *c, uint64_t bytes);
/** Somebody waits for some, as there are too few. */
bool credits_are_wanted(struct credits *c);
/** That much is used otherwise, and taken from what is for extents: half of it at most. */
void credits_reserve(struct credits *c, uint64_t bytes);
/** What is for extents. */
uint64_t credits_limit(struct credits *c);
/** While that is so, nobody gets any, however many there are. */
void credits_hold(struct credits *c, bool is_held);
/** More are out than there are. */
bool credits_are_short(struct credits *c);
/** Nobody gets any from now on. */
void credits_close(struct credits *c);

/* ---- extents ---- */

/** What a host sent that was no good, or the begin of it. */
struct raw_answer {
    int status;     /* HTTP */
    uint64_t bytes; /* of all of it */
    char *text;     /* owned */
    size_t len;
};

struct dead_row {
    uint64_t row;     /* in the extent */
    const char *kind; /* "row", "rejected", "failed" */
    char *cause;
    const char *host; /* of the last attempt; NULL: never sent */
    uint32_t attempts;
    struct raw_answer answer; /* to that; without text: there was none */
};

/** Rows of the results for rows of an extent that follow each other. */
struct extent_answer {
    uint64_t first; /* in the extent */
    struct mr_rows *rows;
    const char *host; /* address */
};

struct extent {
    struct mr_mail mail; /* to the loop */
    struct extent *next; /* in the committer's queue, or where it waits for its turn */
    struct job *job;
    uint64_t number; /* of all that were read in this start, in the order of the input */
    uint32_t file;
    uint64_t first; /* row of the file */
    struct mr_rows *rows;
    uint64_t credit;
    uint64_t per_row; /* of this, for the answer to a row that is not there yet */
    uint64_t cut;     /* rows that have been made into calls */
    uint64_t settled; /* rows that have an outcome */
    bool is_checked;  /* no row can be bad */
    MR_VEC(struct extent_answer) answers;
    MR_VEC(struct dead_row) dead;
};
void extent_free(struct extent **e);

/* ---- reader.c ---- */

/** Time that a thread has waited, with a wait that goes on: long ones must be seen while they last. One thread begins and
 *  ends, any may read. */
struct waits {
    _Atomic int64_t ns; /* while a wait goes on, less the time at which it began: below zero */
};

static inline void waits_begin(struct waits *w)
{
    atomic_fetch_sub_explicit(&w->ns, mr_now_ns(), memory_order_relaxed);
}

static inline void waits_end(struct waits *w)
{
    atomic_fetch_add_explicit(&w->ns, mr_now_ns(), memory_order_relaxed);
}

static inline int64_t waits_ns(const struct waits *w)
{
    const int64_t ns = atomic_load_explicit(&w->ns, memory_order_relaxed);
    return ns < 0 ? ns + mr_now_ns() : ns;
}

/** Rows of the input that cannot be read. */
struct bad_input {
    uint32_t file;
    uint64_t first;
    uint64_t end; /* UINT64_MAX: that of the file */
    char *why;
};
#define BAD_INPUTS_MOST 1000 /* are kept; all others are only counted */

struct reader {
    pthread_t thread;
    bool is_started;
    _Atomic bool is_stopped;
    struct waits waits; /* for credits, and for rows that went ahead */
    _Atomic int64_t read_ns;
    uint64_t rows; /* read in this start; the reader's */
    uint64_t extents;
    uint64_t row_bytes;           /* of the largest row of late; the reader's */
    bool is_ahead;                /* the last rows went ahead of the others; the reader's */
    MR_VEC(struct bad_input) bad; /* the reader's, until reader_stop has returned */
    uint64_t bad_count;
    /* told to the loop by `ended`, after the last extent */
    struct mr_mail ended;
    struct job *job;
    int rc;
    struct mr_err err;
};
int reader_start(struct reader *r, struct job *job, struct mr_err *err);
/** Ends it soon; joins it. */
void reader_stop(struct reader *r);
/** After reader_stop: was something left out that should have been read? Errors: MR_E_INVALID, which says what. */
int reader_check(const struct reader *r, struct mr_err *err);
/** A file of the input has a fault that does not keep others from being read. */
bool reader_passes(const struct job *j, int rc);
void reader_fini(struct reader *r);

/* ---- committer.c ---- */

/** What is open: the files and what they stand for. */
struct open_part {
    struct mr_manifest_part results;
    struct mr_manifest_part dead;
    bool has_results;
    bool has_dead;
    struct mr_writer *writer;                    /* the sink's */
    uint64_t sent_bytes;                         /* sink_files.c: as long as the file was then */
    struct object_part *object;                  /* sink_objects.c */
    uint64_t credit;                             /* of rows that the sink holds */
    MR_VEC(struct mr_rows *) held;               /* the same rows … */
    MR_VEC(struct mr_manifest_extent) held_rows; /* … and which ones they are */
    struct mr_buf lines;
    uint64_t rows;
    uint64_t dead_rows;
    int64_t since_ns;
    uint64_t number; /* of the last extent */
    struct origin origin;
    const char *hosts; /* the same as JSON, when it is committed */
    MR_VEC(struct mr_manifest_extent) extents;
};
/** Adds a line to the file of dead letters, which is begun if need be. */
int part_letter(struct job *j, struct open_part *p, mr_str line, struct mr_err *err);
/** Brings lines that are held to the file. */
int part_lines_write(struct job *j, struct open_part *p, struct mr_err *err);

/** The rest of rows that were read without some of their columns; the committer's thread. */
struct whole {
    struct mr_source *source;
    bool is_over; /* it failed, and was told */
};

struct committer {
    pthread_t thread;
    bool is_started;
    struct job *job;
    pthread_mutex_t lock; /* guards the queue, the flags and `hold` */
    pthread_cond_t more;
    struct extent *first;
    struct extent *last;
    bool is_ending;
    bool is_dropped; /* what is not committed is not to be */
    bool is_hurried; /* nothing is waited for any more */
    bool tries_now;
    bool is_wanted; /* all credit is, also what rows of an open part have */
    bool is_told;   /* … and the committer is to look at that now */
    bool has_failed;
    bool may_go_on; /* it failed for the disk, and the job can be begun again */
    struct disk_hold hold;
    int64_t begin_ns;   /* 0: it has not begun */
    struct waits waits; /* for answers */
    _Atomic int64_t write_ns;
    _Atomic int64_t commit_ns;
    /* figures, read by the loop */
    _Atomic uint64_t rows;
    _Atomic uint64_t dead;
    _Atomic uint64_t files;
    _Atomic uint64_t merged; /* files that are in others now */
    struct tree *tree;       /* NULL: files stay as they are */
    struct whole whole;
    _Atomic uint64_t bytes; /* of these */
    /* told to the loop when it failed */
    struct mr_mail failed;
    struct mr_err err;
    /* told to the loop when all is committed, or it failed: the last thing */
    struct mr_mail ended;
};
int committer_start(struct committer *c, struct job *job, struct mr_err *err);
/** Takes an extent all of whose rows have an outcome. */
void committer_put(struct committer *c, struct extent *e);
/** Nothing more will be put: it commits all and ends the loop. Not for a filter. */
void committer_finish(struct committer *c);
/** What is not committed yet is thrown away, to be done again. Any thread. */
void committer_drop(struct committer *c);
/** What is waited for is tried at once. */
void committer_try(struct committer *c);
/** While it is wanted, rows are committed as they come where the sink holds them, so that their credit comes back. Any
 *  thread. */
void committer_want(struct committer *c, bool is_wanted);
/** Commits all that was put, without waiting for a disk, joins the thread. Errors: those of the commit, or of an earlier
 *  one. */
int committer_end(struct committer *c, struct mr_err *err);

/* What its thread does is here for a job, and in filter.c for a filter. */
/** The next extent, the caller's; NULL: the time is over, or less of it is left than there was, or *out_is_over: there
 *  will be none. */
struct extent *committer_next(struct committer *c, int64_t until_ns, bool *out_is_over);
/** Tells the loop that c->err has happened; only the first time. Extents still come, to be dropped. */
void committer_fail(struct committer *c);

/* ---- filter.c ---- */

/** The committer's thread. */
void *filter_run(void *committer);
/** Whether the results still have a reader: a filter whose engine was killed is to end, also while it waits for hosts.
 *  Errors: MR_E_IO. */
int filter_look(const struct job *j, struct mr_err *err);

/* ---- letter.c ---- */

/** A row of the extent with all columns, the caller's; NULL: there are none beside those that were read, or they cannot
 *  be read. */
struct mr_rows *whole_row(struct whole *w, const struct job *j, const struct extent *e,
                          uint64_t row);
void whole_close(struct whole *w);

/** The line of dlq/ for a row. `whole` is the same row with all columns, NULL: the extent has them. Nothing of the extent
 *  is changed. */
void letter_put(struct mr_buf *b, const char *path, const struct extent *e,
                const struct dead_row *d, const struct mr_rows *whole);

/* ---- retry.c: dead letters once more ---- */

struct retry;
/** All dead letters of the job. Errors: MR_E_IO (a file of them is damaged; names the line). */
int retry_new(struct retry **out, const struct job *j, struct mr_err *err);
void retry_free(struct retry **r);
/** How many there are. */
uint64_t retry_rows(const struct retry *r);
/** All rows of a file but theirs, into an empty set. */
int retry_others(const struct retry *r, uint32_t file, struct mr_ranges *out, struct mr_err *err);
/** What was tried before with a row. */
uint32_t retry_attempts(const struct retry *r, uint32_t file, uint64_t row);
/** Puts what became of the rows into the place of their letters. The part is complete but for letters that others leave
 *  behind. Errors: as mr_manifest_replace. */
int retry_commit(struct job *j, struct open_part *p, struct mr_err *err);

/* ---- figures.c: what is counted, on the loop's thread ---- */

struct call;

/** Of the calls to a host. */
struct host_figures {
    uint64_t outcomes[MR_BALANCE_CANCELLED + 1];
    uint64_t retries;       /* calls with rows that had failed before */
    uint64_t dead;          /* rows whose last attempt was there */
    uint64_t prompt_tokens; /* as hosts count them; language models only */
    uint64_t completion_tokens;
    int64_t encode_ns;         /* rows into requests */
    int64_t judge_ns;          /* answers into rows */
    struct mr_hist *answer_ns; /* from the request to a good answer; NULL: none yet */
};

/** Dead letters with one cause. */
#define DEAD_CAUSES_MOST 32
struct dead_cause {
    const char *kind;
    char text[160];
    uint64_t count;
};

/** Of this start. */
struct figures {
    struct dead_cause dead[DEAD_CAUSES_MOST];
    size_t dead_count;
    uint64_t dead_other; /* with further causes */
};
void figures_sent(struct call *k);
void figures_answered(struct call *k, enum mr_balance_outcome outcome, int64_t came_ns);
void figures_dead(struct job *j, const char *kind, const char *cause, const char *host);
void figures_add(struct host_figures *to, const struct host_figures *from);
void figures_fini(struct host_figures *f);
/** report.json. */
void report_put(const struct job *j, struct mr_buf *b);
/** Prometheus text. */
void metrics_put(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);

/* ---- storage.c: S3 ---- */

/** As the job uses it: its patience is the job's, its troubles are logged, and it ends when the job is stopped. */
struct mr_s3_options storage_options(struct job *j);
/** Whether somebody wants the job to end (a struct mr_batch), for those who wait. Any thread. */
bool batch_has_stop(void *batch);

/* ---- hosts.c ---- */

struct host {
    struct job *job;
    char *url; /* as its list has it */
    size_t list;
    bool is_listed; /* it may get calls */
    bool is_wanted; /* while a list is taken over */
    bool is_new;    /* the same; it was not listed before */
    struct wire wire;
    uint32_t id;        /* in `balance`; 0: its metadata has not come yet */
    bool is_fenced;     /* it said that it cannot serve the model */
    bool is_distrusted; /* nor will it be asked again */
    bool is_asking;
    int64_t ask_at_ns;
    int64_t ask_timeout_ns;
    bool sends_floats; /* openai_ask.c: it does not know base64 */
    uint32_t in_flight;
    char trouble[560]; /* why it is not used */
    int64_t heard_ns;  /* the last answer of any use, or when it was listed */
    struct retry_host retry;
    uint32_t
        lasting; /* answers in a row that will hardly be others soon; all before it served a row */
    char lasting_text[160];
    uint64_t rows;
    uint64_t calls;
    uint64_t failures;
    char version[32]; /* as it told */
    struct canary_clock canary;
    struct host_figures figures;
};
/** The hosts of a list are these from now on. tls_name: see wire_open. Errors: those of wire_open, MR_E_EXHAUSTED (too
 *  many); the list is as it was then. */
int hosts_set(struct job *j, size_t list, const char *const *urls, size_t count,
              const char *tls_name, struct mr_err *err);
/** The model in this process is a host, and the first to tell its metadata. Errors: those of the load. */
int hosts_add_local(struct job *j, struct mr_err *err);
/** How large answers can be follows from the rows of a call: to be said again when they may be more. */
void hosts_bound(struct job *j);
/** Asks whose turn it is whether they serve the model, closes those that left. */
void hosts_tick(struct job *j, int64_t now_ns);
/** dialect.ask of the Open Inference Protocol. */
void hosts_ask_metadata(struct host *h, int64_t timeout_ns);
/** To an ask: MR_OK, or why the host cannot be used. */
void host_told(struct host *h, int rc, const struct mr_err *err);
void hosts_close(struct job *j);
/** After the loop is gone. */
void hosts_free(struct job *j);
struct host *host_of(struct job *j, uint32_t id);
/** Is an answer of the version of the model that all others were of? The first one that tells its version decides.
 *  Errors: MR_E_INVALID. */
int hosts_version_check(struct job *j, mr_str version, struct mr_err *err);
/** It said something that will hardly be different soon: no such model, no such server. */
void host_lasts(struct host *h, const char *why);
/** Is there no host that could serve the job, and none to be expected? MR_OK, or MR_E_UNAVAILABLE with what they say. */
int hosts_look(struct job *j, int64_t now_ns, struct mr_err *err);
/** It gets no more calls until it tells the metadata of the first host. */
void host_fence(struct host *h, const char *why, int64_t now_ns);
size_t hosts_listed(const struct job *j);

/* ---- distrust.c: hosts that are not to be believed ---- */

/** One of the process: it lasts when the job is begun again. */
struct distrust {
    char *address; /* as hosts are called in views and parts, or as lists name them */
    char *reason;
};
/** It answers rubbish. All that it answered is done again, without it. */
void host_distrust(struct host *h, const char *why);
/** Why the host is not to be used; NULL: it is. */
const char *distrust_of(const struct job *j, const struct host *h);
/** Rows of hosts that are distrusted, and with is_asked of those that options.recompute names, are to be done again: takes
 *  their items out of the manifest. Errors: MR_E_UNSUPPORTED (options.recompute, and results that are not files), those of
 *  mr_manifest_replace. */
int distrust_recompute(struct job *j, bool is_asked, struct mr_err *err);
/** Are results committed that are known to be wrong, and could not be taken back? Then *err says which. */
bool distrust_is_left(struct job *j, struct mr_err *err);
void distrust_free(struct mr_batch *b);

/* ---- discover.c: lists of hosts ---- */

struct discover;
/** Reads what the options say; lists that are looked up come later. Errors: those of hosts_set, and MR_E_NOT_FOUND,
 *  MR_E_IO (a file). */
int discover_start(struct job *j, struct mr_err *err);
/** Looks again at what may have changed. */
void discover_tick(struct job *j, int64_t now_ns);
void discover_stop(struct job *j);
/** A name was not looked up yet, for a few seconds at most: there may be more hosts soon. */
bool discover_is_pending(const struct job *j, int64_t now_ns);
/** May a list still tell hosts? False: all have told theirs, or are names that cannot be looked up. Appends what is wrong
 *  with those. */
bool discover_may_tell(const struct job *j, struct mr_buf *why);

/* ---- calls.c ---- */

/** The two parts of work that a host refused. If both are taken, it was too large, and nothing else was wrong. */
struct halves {
    uint64_t rows;    /* of the larger one */
    uint32_t taken;   /* that succeeded */
    uint32_t holders; /* parts that are left */
};

/** Rows of an extent that follow each other. */
struct span {
    struct extent *extent;
    uint64_t first;
    uint64_t count;
};

/** Of a work. What takes more is several calls. */
#define SPANS_MOST 256

/** Some rows that go together, and what was tried with them. */
struct work {
    struct work *next;
    struct halves *halves; /* NULL: not part of refused work */
    uint64_t count;        /* of rows */
    struct retry_work tried;
    int64_t not_before_ns;
    uint32_t in_flight; /* one, or two when hedged */
    bool is_settled;
    bool is_answered; /* the last call was, whatever the answer is */
    bool is_retry;
    bool is_trial;      /* of more rows than calls have, until it failed */
    bool is_granted;    /* it needs no permission of the retry budget */
    bool is_witness;    /* a row that has an outcome: its answer only tells that hosts are well */
    uint32_t asks;      /* answers that were not what was asked for */
    uint32_t doublings; /* see row_fault */
    char *note;         /* the same; NULL: none */
    struct host *only;  /* a canary: nobody else gets it; NULL: it is none */
    uint32_t trial;
    uint32_t ballot;
    char cause[560];
    const char *last_host;
    struct raw_answer answer; /* to the last call with this row alone */
    size_t span_count;        /* more than one where extents or dead rows between them end */
    struct span spans[];
};

struct call {
    struct job *job;
    struct work *work;
    struct host *host;
    uint64_t ticket;
    uint32_t index; /* of calls.in_flight */
    int64_t sent_ns;
    struct mr_arena arena;
    struct mr_buf head;
    struct wire_call wire;
    uint64_t made_bytes; /* of memory that its request takes beside the rows */
};

struct calls {
    struct work *retry_first;
    struct work *retry_last;
    MR_VEC(struct extent *) extents; /* with rows that are in no call yet, oldest first */
    uint64_t waiting;                /* such rows */
    uint64_t waiting_bytes;          /* of these extents */
    struct ahead ahead;
    int64_t waiting_ns;              /* they are too few for a call since then; 0: they are not */
    MR_VEC(struct call *) in_flight; /* by the index of struct mr_balance_call; NULL: none */
    uint64_t in_flight_count;
    struct call_rows rows;
    struct grow grow;
    struct retry_policy policy;
    struct work *fresh; /* cut, and not sent for want of a host */
    struct extent
        *witness; /* one row that succeeded, and is not too large to be kept; NULL: none */
    _Atomic uint64_t
        answer_bytes; /* to a row, the most of late; 0: none came. The reader looks at it; relaxed */
    _Atomic uint64_t request_bytes; /* of a row beside the row itself; likewise */
    _Atomic uint64_t witness_bytes; /* likewise */
    _Atomic uint64_t
        recent_rows; /* results of the last half second, about. The reader looks at it; relaxed */
    bool is_asking;  /* the witness is on its way */
    bool is_dropped;
    uint64_t sent;
    uint64_t hedged;
};
/** A new extent from the reader: rows that cannot be sent become dead letters. */
void calls_add(struct job *j, struct extent *e);
/** Puts the one row of an extent to a host, for a trial; canary_told or canary_absent is called later. */
void calls_ask(struct job *j, struct extent *row, struct host *h, uint32_t trial, uint32_t ballot);
/** Sends what can be sent. */
void calls_pump(struct job *j);
/** Five times a second. */
void calls_tick(struct job *j);
/** Drops all that waits and is under way; answers that come later are nobody's. */
void calls_drop(struct job *j);

/* ---- control.c: who asks about the job, and changes it while it runs ---- */

struct control {
    struct mr_http_server *server;
    char trouble[464]; /* why there is no socket, until it has been told; "": nothing */
    char address[300]; /* of TCP, with the port that it became; "": none */
};
/** The socket in the folder, without which the job runs as well, and what the options say. It stays when the job is
 *  begun again: who asks meanwhile waits for the answer. Errors: MR_E_INVALID, MR_E_IO (options.listen). */
int control_open(struct job *j, struct mr_err *err);
/** Says why there is no socket, once. */
void control_tell(struct mr_batch *b);
/** The socket is gone when this returns, connections when the loop is freed. */
void control_close(struct mr_batch *b);

/* ---- view.c: how the job is doing ---- */

/** What is wrong with calls, said once for each host and cause. */
#define CAUSES_MOST 16
struct cause {
    const struct host *host;
    char text[200];
    uint64_t count;
    int64_t last_ns;
};
/** A call failed. */
void view_cause(struct job *j, const struct host *h, const char *text, int64_t now_ns);
/** NULL: none has failed. */
const struct cause *view_last_cause(const struct job *j);
/** Once a second: counts the rows. True: it was time to. */
bool view_mark(struct job *j, int64_t now_ns);
/** To on_view. */
void view_tell(struct job *j);
/** Valid until view_free, as long as nothing is done with the job. */
struct mr_batch_view *view_new(struct job *j);
void view_free(struct mr_batch_view **v);
/** The page, and the part of it that changes. */
void page_put(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);
void page_figures(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);
/** As JSON. */
void status_put(struct mr_buf *b, const struct job *j, const struct mr_batch_view *v);

/* ---- job.c, job_state.c ---- */

struct mr_batch {
    const struct mr_batch_options *o;
    void (*on_view)(void *ctx, const struct mr_batch_view *view);
    void *view_ctx;
    _Atomic int stops;
    struct mr_loop *loop; /* this and the control are the same when the job is begun again */
    struct control control;
    struct job *job; /* NULL: its memory goes, and nobody may ask about it */
    MR_VEC(struct distrust) distrusted;
    bool has_answers;    /* a host has served rows */
    bool is_stopped;     /* for somebody to look at it */
    bool has_taken_back; /* results of a host that answered wrongly */
    char *folder;        /* the job's; NULL: it has none, or none yet */
    size_t folder_there; /* bytes of its path that named a folder before this start */
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
    struct local *local; /* NULL: the model is on hosts only */
    MR_VEC(struct host *) hosts;
    struct discover *discover;
    struct mr_arena arena; /* the metadata */
    struct mr_oip_metadata metadata;
    bool has_metadata;
    char answer_version[32]; /* "": no answer has told it yet */
    struct mr_schema wanted;
    struct mr_schema columns; /* where the input tells none; otherwise empty */
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
    struct mr_manifest_totals before; /* zeros with `retry` */
    struct retry *retry;              /* NULL: rows without outcome are what is to be done */
    bool was_finished;
    int64_t total_rows;
    struct credits credits;
    struct reader reader;
    struct committer committer;
    struct calls calls;
    bool is_refused;              /* the start was: what is wrong is in `err`, and nowhere else */
    bool is_finishing;            /* all is with the committer */
    struct disk_hold hold;        /* why it was begun again, and when it goes on */
    bool may_go_on;               /* it ends, and can be begun again */
    bool begins_again;            /* it is, at once */
    struct canary *canary;        /* NULL: hosts are not compared */
    char pause_reason[480];       /* "": somebody has asked for it */
    bool is_accepted;             /* thresholds do not count any more */
    bool is_read;                 /* the reader has come to the end */
    MR_VEC(struct extent *) open; /* extents that are with the loop */
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
    struct cause causes[CAUSES_MOST];
    struct figures figures;
};
/** The loop ends with this; the first reason counts. */
void job_fail(struct job *j, int rc, const struct mr_err *err);
/** Something is wrong that somebody should look at: the job stops or pauses, as the options say. */
void job_stop(struct job *j, const struct mr_err *err);
/** The loop ends. */
void job_end(struct job *j);
/** All rows of the extent have an outcome: to the committer, who frees it. */
void job_settled(struct job *j, struct extent *e);
/** Something may have ended. */
void job_look(struct job *j);

#endif
