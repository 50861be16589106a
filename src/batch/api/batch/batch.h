/* A batch job: the rows of a table through many hosts of a model, into files of results, each row once.
 *
 * The job's folder holds its state (see batch/manifest/manifest.h): a job that was stopped or killed continues where
 * it was when it is run again with the same options. Every row ends as a row of the results or as a dead letter.
 *
 * Thread: mr_batch_run blocks the one that calls it; mr_batch_stop any, also from a signal handler. */
#ifndef MR_BATCH_BATCH_H
#define MR_BATCH_BATCH_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "net/tls.h"
#include "s3/s3.h"
#include "table/table.h"

/** An input of the model and where it comes from: COLUMN, stack(COLUMN,…), const(NUMBER), or mask(COLUMN,…), which is 1
 *  for each value and 0 for a null. The nulls of a column with a mask are sent, as null_value or 0, or as no text. */
struct mr_batch_map {
    const char *input;
    const char *from;
};

/** The protocol of hosts whose addresses do not name one. */
enum mr_batch_protocol {
    MR_BATCH_BINARY, /* REST with binary tensors; answers may be either */
    MR_BATCH_JSON,   /* REST */
    MR_BATCH_GRPC,
    MR_BATCH_LOCAL, /* not for `protocol`: the host that mr_batch_hosts_options.repository makes */
};

/** Order of the rows in the files of results. The rows of one extent are always in the order of the input. */
enum mr_batch_order {
    MR_BATCH_UNORDERED, /* none: rows are written as they come */
    /** The files one after the other, by their names, are the input; rows of dead letters are missing. A file does
     *  not wait long for a late row: the row gets a file of its own. */
    MR_BATCH_LOGICAL,
    MR_BATCH_PHYSICAL, /* the same; files are written in that order and wait for late rows */
};

/** The treatment of a row that has no result. */
enum mr_batch_dead {
    MR_BATCH_DEAD_FAIL,  /* the run ends */
    MR_BATCH_DEAD_SKIP,  /* it is reported, and is not in the results */
    MR_BATCH_DEAD_NULLS, /* it is reported; in the results its outputs are null */
};

/** Results are written to a descriptor, and no state is kept for another start. */
struct mr_batch_filter {
    int fd; /* whole rows, all that there are whenever no more come for now */
    /** Otherwise in the order of the input, which delays rows that are ready early. */
    bool is_unordered;
    enum mr_batch_dead dead;
    const char *error_column; /* of the results: why the outputs are null; NULL: none */
    /** Not with MR_BATCH_DEAD_FAIL. Rows count from 0; on a thread of the job's. */
    void (*on_dead)(void *ctx, uint64_t row, const char *kind, const char *cause);
    void *ctx;
};

/** A member of each request besides those that are made here: max_tokens, 64. */
struct mr_batch_param {
    const char *name;
    const char *json;
};

/** The protocols of hosts other than the Open Inference Protocol: parts of OpenAI's API. */
enum mr_batch_api {
    MR_BATCH_API_CHAT,
    MR_BATCH_API_COMPLETIONS,
    MR_BATCH_API_EMBEDDINGS,
    /** The input is a batch file of OpenAI's: {"custom_id":…,"method":"POST","url":…,"body":{…}} a line. Of the other
     *  options only `key` counts; mr_batch_options.model.name is asked for in hosts' lists, NULL: it is not. */
    MR_BATCH_API_FILE,
};

/** An answer was cut off at its length. */
enum mr_batch_length {
    MR_BATCH_LENGTH_KEEP, /* it is a result */
    MR_BATCH_LENGTH_DEAD,
    MR_BATCH_LENGTH_MORE, /* it is requested again with twice the max_tokens, three times, then it is a dead letter */
};

/** Hosts are servers of OpenAI's API (vLLM, …). Results have the columns text, finish_reason, prompt_tokens,
 *  completion_tokens and model (chat), text, finish_reason and model (completions), or embedding and, if it is among
 *  mr_batch_results_options.outputs, model (embeddings). */
struct mr_batch_openai {
    enum mr_batch_api api;
    const char *prompt;    /* text with {{column}} */
    const char *system;    /* the same, before it; chat. NULL: none */
    const char *messages;  /* a column with lists of messages, as JSON, instead of a prompt; chat */
    const char *null_text; /* what a null is in a prompt; NULL: its row cannot be sent */
    const struct mr_batch_param *params;
    size_t param_count;
    const char *text_column; /* another name for the column text or embedding; NULL: none */
    enum mr_batch_length on_length;
    /** JSON Schema of answers (chat), sent along and checked; its properties are columns instead of text. NULL:
     *  none. */
    const char *schema;
    uint32_t reasks; /* times that a row is sent again whose answer does not fit, with the error */
    uint64_t max_tokens_in_flight; /* of prompts and answers at a host, estimated; 0: any number */
    /** Limit of a start, as hosts count tokens, after which it ends and can be resumed; 0: none. */
    uint64_t max_total_tokens;
    const char *key; /* sent as bearer token, never shown; NULL: none */
};

/** The model, and what it takes and gives. */
struct mr_batch_model_options {
    const char *name;
    const char *version; /* NULL: the one that hosts serve by default */
    /** Tensors of hosts without model metadata: "NAME=TYPE[DIMS]", all dimensions of a call, -1 for a variable one. */
    const char *const *inputs;
    size_t input_count;
    const char *const *outputs;
    size_t output_count;
    const struct mr_batch_map *maps;
    size_t map_count;
    const char *null_value; /* a number; NULL: a row with a null cannot be sent */
    bool allows_nan;
};

/** The hosts that serve the model. */
struct mr_batch_hosts_options {
    /** "host:port", optionally preceded by http://, https://, grpc:// or grpcs://, with `openai` optionally followed
     *  by a path (/v1 if there is none); "dns:NAME:PORT" for all addresses of a name, looked up again and again;
     *  "@FILE", a file of hosts, one a line, that is read again when it changes. */
    const char *const *list;
    size_t count;
    const char *repository; /* the model runs in this process, too, from there; NULL: it does not */
    const char *const *backend_dirs; /* with a repository: where its backends are looked for */
    size_t backend_dir_count;
    /* with a repository: of models that are graphs; NULL: there are none */
    const struct mr_model_maker *maker;
    struct mr_tls_client_options tls;
    const char *const *headers; /* "Name: value", of each request; see mr_client_options */
    size_t header_count;
    enum mr_batch_protocol protocol;
    /** The job also waits for hosts none of which could serve it yet, for what does not pass by itself. */
    bool waits;
};

/** How rows are sent. */
struct mr_batch_calls_options {
    uint32_t rows;          /* of a call */
    bool grows;             /* `rows` is 256, and there may be more where that is faster */
    uint32_t max_in_flight; /* per host */
    uint32_t max_attempts;  /* of a row, before it is a dead letter */
    int64_t max_timeout_ns; /* of a call */
};

/** Where results go, and what they are. */
struct mr_batch_results_options {
    const char *objects;  /* "s3://bucket/prefix/" instead of the folder; NULL: none */
    const char *database; /* its table instead of files (see table/store.h); NULL: none */
    const char *table;
    const char *const *carried; /* columns of the input to keep */
    size_t carried_count;
    bool has_default_key;       /* these columns are the default key, as none were named */
    const char *const *outputs; /* of the model, none: all */
    size_t output_count;
    struct mr_writer_options writer;
    const char *suffix; /* of files: ".parquet" */
    enum mr_batch_order order;
    uint64_t part_bytes; /* a file is closed at about this size … */
    int64_t commit_ns; /* … or at this age; 0: a thirtieth of the time of this start, 2 to 60 s */
    uint64_t merge_bytes; /* small files are merged to about this size during the run; 0: never */
};

/** Limits at which the job stops or pauses. */
struct mr_batch_limits {
    int64_t outage_ns;  /* time without a working host after which the job stops */
    uint64_t dead_rows; /* more dead letters; UINT64_MAX: any number */
    double dead_share;  /* of the rows, from 10,000 rows on */
    bool pauses;        /* instead of stopping */
};

/** Comparison of hosts by rows that several of them answer. */
struct mr_batch_cross_check_options {
    double share;     /* additional rows, as a share of a host's answers; 0: none */
    double tolerance; /* largest relative difference of numbers that are not whole */
};

/** What a start does apart from rows without an outcome. */
struct mr_batch_start_options {
    const char *const *recompute; /* hosts, by address, whose rows are done again by others */
    size_t recompute_count;
    bool accepts_changed_input;
    /** Allows another version or other inputs than those of existing results. */
    bool accepts_changed_model;
    bool retries_dead; /* instead: rows that became dead letters are tried once more */
    bool verifies;     /* committed files are read and compared */
};

/** Access to the job other than by the socket in its folder. */
struct mr_batch_control_options {
    const char *listen; /* "host:port" for status, metrics and page; NULL: none */
    bool may_change;    /* connections there may also change the job */
};

struct mr_batch_options {
    const struct mr_batch_openai *openai; /* NULL: hosts speak the Open Inference Protocol */
    struct mr_source_options source;      /* with a filter, a stream; s3 is the job's */
    struct mr_s3_options s3;              /* for objects; patience and callbacks are the job's */
    const char *folder;                   /* of the job */
    const struct mr_batch_filter *filter; /* instead of a folder; NULL: none */
    /** The part of the table that is done, from 0, in a folder of its own within that of the job. */
    uint32_t shard;
    uint32_t shard_count;  /* of parts; 0: all of the table is done */
    uint64_t memory_bytes; /* rows and answers that are under way */
    /** Read, and done again if not done as a whole. 0: as many as hosts answer in half a second, 64 to 4096, or
     *  calls.rows, whichever is more. */
    uint32_t extent_rows;
    struct mr_batch_model_options model;
    struct mr_batch_hosts_options hosts;
    struct mr_batch_calls_options calls;
    struct mr_batch_results_options results;
    struct mr_batch_limits limits;
    struct mr_batch_cross_check_options cross_check;
    struct mr_batch_start_options start;
    struct mr_batch_control_options control;
};

/** How a job is doing, every second and at the end. */
struct mr_batch_failure_view {
    const char *host;
    const char *cause;
    uint64_t count;
    int64_t ago_ns; /* the last one */
};

struct mr_batch_host_view {
    const char *address;
    const char *state; /* "ready", "no answer yet", … */
    const char *reason;
    const char *version; /* of the model; "": unknown */
    uint64_t rows;
    uint64_t calls;
    uint64_t failures;
    uint64_t retries; /* calls with rows that had failed before */
    uint32_t in_flight;
    uint32_t limit;
    int64_t p50_ns; /* of the last answers; at the end, of all of this start */
    int64_t p95_ns;
};

/** Dead letters of this start with one cause. */
struct mr_batch_dead_view {
    const char *kind;
    const char *cause;
    uint64_t count;
};

struct mr_batch_view {
    int64_t total_rows;    /* -1: not known */
    uint64_t rows;         /* results that are committed */
    uint64_t dead;         /* dead letters that are */
    uint64_t rows_before;  /* of both, from earlier starts */
    uint64_t under_way;    /* read and not committed */
    uint64_t settled;      /* rows of this start that have an outcome, committed or not */
    uint64_t memory_bytes; /* that those take */
    /** "reads", "waits for memory", "waits for hosts" (which have rows enough), "has ended" */
    const char *reader;
    uint64_t files; /* of results */
    int64_t ran_ns;
    double rows_per_s;      /* of the last ten seconds */
    bool has_tokens;        /* hosts are language models */
    uint64_t prompt_tokens; /* of this start, as hosts count them */
    uint64_t completion_tokens;
    const char *bottleneck; /* "reader", "hosts", "writer" */
    const char *phase;      /* "asking" for the model, "running", "ending" */
    bool is_refused;        /* the job could not begin */
    bool is_paused;         /* no calls are made */
    const char *held;       /* why results cannot be written just now; "": they can */
    uint32_t batch_rows;    /* of a call: as asked for, … */
    uint32_t most_rows;     /* … and what hosts have shown to take */
    uint32_t max_in_flight; /* calls per host */
    const struct mr_batch_failure_view *failures; /* of calls, recent ones, the last one first */
    size_t failure_count;
    const struct mr_batch_host_view *hosts;
    size_t host_count;
    const struct mr_batch_dead_view *dead_causes;
    size_t dead_cause_count;
    uint64_t dead_others; /* with further causes */
    /* where time went: reader and writer have a thread each */
    int64_t read_ns;
    int64_t reader_waited_ns;
    int64_t write_ns;
    int64_t commit_ns;
    int64_t writer_waited_ns;
};

struct mr_batch;
/** Nothing is opened yet. Options are borrowed until free. Errors: MR_E_INVALID (says which option). */
int mr_batch_new(struct mr_batch **out, const struct mr_batch_options *options, struct mr_err *err);
/** Called on the running thread; valid until on_view returns. May be NULL. */
void mr_batch_on_view(struct mr_batch *b, void (*fn)(void *ctx, const struct mr_batch_view *view),
                      void *ctx);
/** Runs until each row has an outcome. Then report.json is in the folder, and *out_report (may be NULL) is its text.
 *  With retries_dead: until each dead letter was tried; the view counts these only. Rows that have no outcome yet
 *  are left alone. Errors: those of sources, manifests and binding; MR_E_NOT_FOUND (retries_dead, and there is no
 *  job); MR_E_CANCELLED (stopped; what was under way is committed), MR_E_UNAVAILABLE (no host for max_outage),
 *  MR_E_EXHAUSTED (disk full, or too many dead letters). In all these cases the job can be run again. */
int mr_batch_run(struct mr_batch *b, struct mr_buf *out_report, struct mr_err *err);

/** It ended because of a problem that needs attention: too many dead letters, or hosts that answer differently. The
 *  reason is in its folder. */
bool mr_batch_is_stopped(const struct mr_batch *b);

/** The estimated cost of a job. Negative numbers are unknown. */
struct mr_batch_plan {
    size_t files;
    uint64_t bytes;
    int64_t rows;
    bool rows_are_counted; /* else estimated from samples of the text */
    uint64_t done_rows;    /* of these, in earlier starts; what follows is for the others */
    size_t hosts;
    size_t working_hosts; /* that answered rows of the probe */
    uint64_t probed_rows;
    uint64_t probed_dead; /* of these, dead letters */
    int64_t probed_ns;
    double rows_per_s; /* 0: no row had an outcome in time */
    uint64_t call_rows;
    int64_t calls;
    int64_t result_bytes;
    uint64_t row_bytes;    /* of memory, for a row and its answer under way; 0: not known */
    uint64_t memory_bytes; /* for rows and answers under way, at most */
    int64_t run_ns;
};
/** Sends the first rows to the hosts, for ten seconds at most, and estimates the cost of all rows. Creates nothing
 *  in the folder. *out is written on success. Errors: as mr_batch_run. */
int mr_batch_plan(struct mr_batch *b, struct mr_batch_plan *out, struct mr_err *err);
/** Stops reading and commits rows that are under way; then mr_batch_run returns. A second call stops without waiting
 *  for hosts. */
void mr_batch_stop(struct mr_batch *b);
void mr_batch_free(struct mr_batch **b);

struct mr_batch_openai_counts {
    uint64_t results;
    uint64_t errors;
};
/** The result file of a job of MR_BATCH_API_FILE: {"id":…,"custom_id":…,"response":{…},"error":null} a line. Dead letters
 *  have an error and are in a file of their own, NULL: in the same. Files that are there are replaced at once. Errors: MR_E_NOT_FOUND (no job),
 *  MR_E_UNAVAILABLE (it is being worked on), MR_E_INVALID (it is not finished), MR_E_IO. */
int mr_batch_openai_result(const char *folder, const char *output, const char *errors,
                           struct mr_batch_openai_counts *out, struct mr_err *err);

/* ---- a job, seen from another process ---- */

/** Address of a running job's socket, for net/client.h. Speaks HTTP: GET /status, POST /pause, /resume, /set.
 *  Errors: MR_E_INVALID (the path is too long for a socket). */
int mr_batch_control_address(const char *folder, char *out, size_t size, struct mr_err *err);

/** The state in a job's folder. */
struct mr_batch_summary {
    bool is_finished;
    int64_t pid; /* of the process that works on it; 0: none on this machine */
    uint64_t rows;
    uint64_t dead;
    uint64_t files;
    uint64_t bytes; /* of these */
    uint32_t starts;
    char stopped[480]; /* why the last start stopped; "": unknown */
};
/** Changes nothing. Errors: MR_E_NOT_FOUND (no folder, or no job in it), MR_E_IO (damage). */
int mr_batch_summary(const char *folder, struct mr_batch_summary *out, struct mr_err *err);

/** A part of a job that several processes do. */
struct mr_batch_shard {
    char *folder; /* owned */
    bool is_begun;
    struct mr_batch_summary summary; /* zeros if it is not */
};
/** All shards of the job in a folder, by their numbers. *out_count 0: it is not divided. Gives: *out, to be freed with
 *  mr_batch_shards_free. Errors: MR_E_NOT_FOUND (no folder), MR_E_INVALID (two divisions), MR_E_IO (damage). */
int mr_batch_shard_summaries(const char *folder, struct mr_batch_shard **out, size_t *out_count,
                             struct mr_err *err);
void mr_batch_shards_free(struct mr_batch_shard **shards, size_t count);

/* ---- afterwards ---- */

struct mr_batch_merge_options {
    const char *folder;
    const char *output; /* a file for all results, made or replaced at once; or NULL and … */
    uint64_t max_bytes; /* … the files of the job become fewer, none larger than this by it */
};

struct mr_batch_merged {
    uint64_t rows;
    uint64_t bytes; /* of the files before */
    uint64_t files_before;
    uint64_t files;
    bool is_in_order; /* of the input, as far as there are results (see mr_batch_order) */
};

/** Joins the results of a finished job, without unpacking them (see table/merge.h): of one that is divided into shards,
 *  all of them into `output`, or those of each shard by `max_bytes`. Any thread; blocks on the disk.
 *  Errors: MR_E_NOT_FOUND (no job, or no results), MR_E_INVALID (it is not finished), MR_E_UNAVAILABLE (it is being
 *  worked on), and those of mr_table_merge. */
int mr_batch_merge(const struct mr_batch_merge_options *options, struct mr_batch_merged *out,
                   struct mr_err *err);

#endif
