/* The form of calls, and the conversion of answers to rows. There are three implementations: the Open Inference
 * Protocol (dialect_oip.c), OpenAI's API (openai.c) and its batch files (openai_file.c). The rest of a job (which
 * host gets which rows and how many calls, retries, commits) depends on none of them.
 *
 * Thread: the loop's; extent_rows and answer_bytes also the reader's, when bind has returned. */
#ifndef MR_BATCH_DIALECT_H
#define MR_BATCH_DIALECT_H

#include "batch/batch.h"
#include "batch/transport/transport.h"

#define DIALECT_FIELDS 8

struct batch_bind;
struct batch_outputs;
struct call;
struct host;
struct openai;
struct row_range;
struct work;

struct dialect_model;

struct dialect {
    /** Asks a host for its model, which must be that of the others. h->reported is called once, later, with MR_OK or the
     *  reason why the host cannot be used. */
    void (*ask)(struct host *h, int64_t timeout_ns);
    /** The columns that calls are made of go into model->wanted, typed as calls need them, when a host has answered.
     *  Errors: MR_E_INVALID, MR_E_UNSUPPORTED. */
    int (*want)(struct dialect_model *model, struct mr_err *err);
    /** Checks the columns of the table, and makes model->outputs. `all` also has the columns that are not read. Errors:
     *  as want. */
    int (*bind)(struct dialect_model *model, const struct mr_schema *table,
                const struct mr_schema *all, struct mr_err *err);
    /** The identity of this job's calls, besides the model: writes names and JSON into keys[DIALECT_FIELDS] and
     *  texts[DIALECT_FIELDS] and returns their number. NULL: nothing. */
    size_t (*identity)(const struct dialect_model *model, const char **keys, struct mr_buf *texts);
    /** Rows that are read, and committed, as one. */
    uint64_t (*extent_rows)(const struct dialect_model *model);
    /** Bytes of the answer to a row, about. */
    uint64_t (*answer_bytes)(const struct dialect_model *model);
    /** True if that is exact. NULL: it may always be an estimate. */
    bool (*knows_bytes)(const struct dialect_model *model);
    /** A call may have several rows. */
    bool (*takes_rows)(const struct dialect_model *model);

    /** No row of these can be bad. */
    bool (*are_good)(const struct dialect_model *model, const struct mr_rows *rows);
    /** Why a row cannot be sent, into why[256]. */
    bool (*is_bad)(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                   char *why);
    /** How many rows from `first` on, `most` at most, may be in one call. */
    uint64_t (*together)(const struct dialect_model *model, const struct mr_rows *rows,
                         uint64_t first, uint64_t most);
    /** May a row of another place be in a call with this one? NULL: a call has one range of rows. */
    bool (*joins)(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                  const struct mr_rows *others, uint64_t other);

    /** The size of a work: the divisor of its latency, and its part of mr_balance_options.max_weight. NULL: its
     *  rows, and nothing. */
    uint64_t (*size)(const struct dialect_model *model, const struct work *w, uint64_t *out_weight);
    /** Sends the rows of k->work to k->host; k->transport is ready. Errors: no memory; then nothing was sent. */
    int (*send)(struct call *k, int64_t timeout_ns, struct mr_err *err);
    /** Interprets a reply. An answer that is OK was checked, and has a result or a fault for each row. */
    void (*judge)(struct call *k, const struct transport_reply *reply,
                  struct transport_answer *out);
    /** Rows of the results for rows `of`, which are those from `first` on of the call and have no fault.
     *  Errors: MR_E_EXHAUSTED. */
    int (*rows)(struct call *k, const struct transport_answer *a, uint64_t first,
                const struct row_range *of, struct mr_rows **out, struct mr_err *err);
    /** NULL: nothing to do. */
    void (*free)(struct dialect_model *model);

    bool compares_hosts; /* two hosts say the same of a row, so their answers can be compared */
    bool grows_calls;    /* calls of more rows may be faster, and how many are is measured */
};

/** The model of a job, as the dialect of its hosts knows it. */
struct dialect_model {
    const struct dialect *dialect;
    const struct mr_batch_options *o;
    struct mr_arena arena; /* the metadata */
    struct mr_oip_metadata metadata;
    bool has_metadata;
    char answer_version[32]; /* "": unknown so far */
    struct mr_schema wanted; /* columns */
    struct batch_bind *bind; /* dialect_oip.c */
    struct openai *openai;   /* NULL: the Open Inference Protocol */
    struct batch_outputs *outputs;
};

extern const struct dialect dialect_oip;
extern const struct dialect openai_dialect;
extern const struct dialect openai_file_dialect; /* openai_file.c */

#endif
