/* What the files of the manifest share. */
#ifndef MR_BATCH_MANIFEST_PRIV_H
#define MR_BATCH_MANIFEST_PRIV_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/vec.h"
#include "codec/json.h"
#include "manifest.h"

#define MR_MANIFEST_LOG      "manifest.log"
#define MR_MANIFEST_JOB      "job.json"
#define MR_MANIFEST_SUCCESS  "_SUCCESS"
#define MR_MANIFEST_LOCK     "LOCK"
#define MR_MANIFEST_FORMAT   1
#define MR_MANIFEST_STOPPED  "{\"event\":\"stopped\"" /* begins a note */
#define MR_MANIFEST_WENT_ON  "{\"event\":\"went on\""
#define MR_MANIFEST_NOTES    1000
#define MR_MANIFEST_LOG_MOST (8ull << 30)
/* Lines of manifest.log that say nothing any more. */
#define MR_MANIFEST_HISTORY_MOST 100000u

struct mr_manifest {
    char *folder; /* for messages */
    int dir;
    int parts;
    int dlq;
    int lock;

    int log;
    uint64_t log_bytes;
    uint64_t log_lines;
    uint64_t history_most; /* MR_MANIFEST_HISTORY_MOST and more after failures, less in tests */
    /* Not MR_OK: every change is refused with it until the job is opened again. */
    struct mr_err broken;
    bool may_reopen; /* broken by the disk, not by another process */

    char id[MR_MANIFEST_ID_BYTES];
    uint32_t epoch;
    _Atomic uint64_t next_number; /* of parts; relaxed, it orders nothing */
    bool is_finished;

    MR_VEC(struct mr_manifest_item *) items;
    struct mr_map by_name; /* parts and files of dead letters -> their items */
    MR_VEC(struct mr_ranges) done;
    MR_VEC(char *) notes; /* the last ones, JSON */
    struct mr_manifest_totals totals;
};

/* ---- manifest.c: the state in memory ---- */

void mr_manifest_item_free(struct mr_manifest_item **item);
/** Mark the rows of `add` as done and those of `remove` as not. Nothing is changed after an error.
 *  Errors: MR_E_EXISTS, MR_E_INVALID. */
int mr_manifest_reserve(struct mr_manifest *m, struct mr_manifest_item *const *add,
                        size_t add_count, const struct mr_manifest_item *const *remove,
                        size_t remove_count, struct mr_err *err);
/** Undo mr_manifest_reserve. */
void mr_manifest_unreserve(struct mr_manifest *m, struct mr_manifest_item *const *add,
                           size_t add_count, const struct mr_manifest_item *const *remove,
                           size_t remove_count);
/** After mr_manifest_reserve: takes the items of `add`, frees those of `remove`. */
void mr_manifest_apply(struct mr_manifest *m, struct mr_manifest_item *const *add, size_t add_count,
                       const struct mr_manifest_item *const *remove, size_t remove_count);
/** Takes a copy; forgets the oldest beyond MR_MANIFEST_NOTES. */
void mr_manifest_keep_note(struct mr_manifest *m, mr_str json);
/** The JSON text is one value on one line; line ends between its parts become spaces. */
int mr_manifest_check_json(const char *what, mr_str json, struct mr_buf *out, struct mr_err *err);
/** Does `name` look like a file of ours ("p-000001-000002.parquet")? */
bool mr_manifest_name_is_ours(enum mr_manifest_kind kind, mr_str name);
/** The epoch in a name; 0: it is none of ours. */
uint32_t mr_manifest_name_epoch(enum mr_manifest_kind kind, mr_str name);

/* ---- record.c: lines of the log ---- */

void mr_record_begin(struct mr_buf *b, uint32_t epoch);
void mr_record_change(struct mr_buf *b, struct mr_manifest_item *const *add, size_t add_count,
                      const struct mr_manifest_item *const *remove, size_t remove_count);
void mr_record_note(struct mr_buf *b, mr_str json);
/** An item as an object, as in the log and in manifest.json. */
void mr_record_item(struct mr_buf *b, const struct mr_manifest_item *item);
/** Do to `m` what the record says. */
int mr_record_replay(struct mr_manifest *m, mr_str json, struct mr_err *err);

/* ---- journal.c: manifest.log ---- */

/** Replay the log, if there is one: *out_exists. */
int mr_journal_read(struct mr_manifest *m, bool *out_exists, struct mr_err *err);
/** Write the state as a new log and put it in the place of the old one, unless that is another's by now. */
int mr_journal_rewrite(struct mr_manifest *m, struct mr_err *err);
/** Append one record; it is on disk when this returns MR_OK. Otherwise nothing of it is, or m->broken. */
int mr_journal_append(struct mr_manifest *m, mr_str json, struct mr_err *err);
/** The job may be changed: not broken, and the log in the folder is still ours. */
int mr_journal_check(struct mr_manifest *m, struct mr_err *err);

/* ---- manifest_open.c ---- */

/** Checks that there is no later start, which would have read the data that is about to be replaced. */
int mr_manifest_check_epoch(struct mr_manifest *m, struct mr_err *err);

/** Remove files of results and dead letters, of starts up to `last`, that no item names. */
int mr_manifest_sweep(struct mr_manifest *m, uint32_t last, struct mr_err *err);

#endif
