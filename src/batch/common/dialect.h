/* The form of calls, and the conversion of answers to rows. There are three implementations: the Open Inference
 * Protocol (dialect_oip.c), OpenAI's API (openai.c) and its batch files (openai_file.c). The rest of a job (which
 * host gets which rows and how many calls, retries, commits) depends on none of them.
 *
 * Thread: the loop's; extent_rows and answer_bytes also the reader's, when bind has returned. */
#ifndef MR_BATCH_DIALECT_H
#define MR_BATCH_DIALECT_H

#include "batch/transport/transport.h"

#define DIALECT_FIELDS 8

struct call;
struct host;
struct job;
struct row_range;
struct work;

struct dialect {
    /** Asks a host whether it serves the same model as the others. h->told is called once, later, with MR_OK or the
     *  reason why the host cannot be used. */
    void (*ask)(struct host *h, int64_t timeout_ns);
    /** The columns that calls are made of go into j->wanted, typed as calls need them, when a host has answered.
     *  Errors: MR_E_INVALID, MR_E_UNSUPPORTED. */
    int (*want)(struct job *j, struct mr_err *err);
    /** Checks the table's columns, and makes j->outputs. Errors: as want. */
    int (*bind)(struct job *j, const struct mr_schema *table, struct mr_err *err);
    /** The identity of this job's calls, besides the model: writes names and JSON into keys[DIALECT_FIELDS] and
     *  texts[DIALECT_FIELDS] and returns their number. NULL: nothing. */
    size_t (*identity)(const struct job *j, const char **keys, struct mr_buf *texts);
    /** Rows that are read, and committed, as one. */
    uint64_t (*extent_rows)(const struct job *j);
    /** Bytes of the answer to a row, about. */
    uint64_t (*answer_bytes)(const struct job *j);
    /** True if that is exact. NULL: it may always be an estimate. */
    bool (*knows_bytes)(const struct job *j);
    /** A call may have several rows. */
    bool (*takes_rows)(const struct job *j);

    /** No row of these can be bad. */
    bool (*are_good)(const struct job *j, const struct mr_rows *rows);
    /** Why a row cannot be sent, into why[256]. */
    bool (*is_bad)(const struct job *j, const struct mr_rows *rows, uint64_t row, char *why);
    /** How many rows from `first` on, `most` at most, may be in one call. */
    uint64_t (*together)(const struct job *j, const struct mr_rows *rows, uint64_t first,
                         uint64_t most);
    /** May a row of another place be in a call with this one? NULL: a call has one range of rows. */
    bool (*joins)(const struct job *j, const struct mr_rows *rows, uint64_t row,
                  const struct mr_rows *others, uint64_t other);

    /** The size of a work: the divisor of its latency, and its part of mr_balance_options.max_weight. NULL: its
     *  rows, and nothing. */
    uint64_t (*size)(const struct job *j, const struct work *w, uint64_t *out_weight);
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
    void (*free)(struct job *j);

    bool compares_hosts; /* two hosts say the same of a row, so their answers can be compared */
    bool grows_calls;    /* calls of more rows may be faster, and how many are is measured */
};

extern const struct dialect dialect_oip;
extern const struct dialect openai_dialect;
extern const struct dialect openai_file_dialect; /* openai_file.c */

#endif
