/* The manifest of a batch job: which rows are done, and in which files their results lie.
 *
 * A job is a folder:
 *
 *     job.json            what identifies the job; a restart with something else is refused. And its id
 *     manifest.log        one line for each commit: JSON, a space, CRC-32C of the JSON as 8 hex digits
 *     parts/              p-<epoch>-<number><suffix>: results, or, when the job keeps the order of the input,
 *                         p-<input>-<first row>-<epoch>-<number><suffix>, so that names sort as rows do
 *     dlq/                d-<epoch>-<number><suffix>: dead letters
 *     epoch-<number>      one more at each start
 *     LOCK                held (flock) by the process that works on the job; its pid is in it
 *     control             that process's socket; not the manifest's
 *     .tmp-*              what is not committed yet
 *     manifest.json, report.json, _SUCCESS   written when the job is finished, the last one last
 *
 * An item is what one commit adds: a file of results, a file of dead letters, or both, and the rows of the
 * input (extents) that they stand for. Each of these rows is either a row of the one or a line of the other.
 * Results may also lie elsewhere, in a database for instance: then the part is a name, and parts/ holds nothing of it.
 *
 * An item counts from the moment its record is in manifest.log, and not before: whatever is in the folders
 * and not in the log is removed at the next start. Whatever is in the log is on disk.
 *
 *     struct mr_manifest_part part;
 *     mr_manifest_part_begin(m, MR_MANIFEST_RESULTS, ".parquet", &part, &err);
 *     … write to part.fd …
 *     struct mr_manifest_add add = {.part = &part, .rows = n, .extents = e, .extent_count = k};
 *     if (mr_manifest_commit(m, &add, 1, &err) < 0)
 *         … try again, or mr_manifest_part_drop(m, &part) and do the rows again …
 *
 * Thread: part_begin, part_seal and part_drop any, on different parts at once; all else one at a time. A part
 * that a commit failed with belongs to the thread of the commit.
 * Everything blocks on the disk. Errors of any function that writes: MR_E_EXHAUSTED (disk full; what was
 * begun is undone and the call may be repeated), MR_E_IO, MR_E_FORBIDDEN, MR_E_CLOSED (another process has
 * taken the job over, or an earlier failure left open what is on disk: reopen). */
#ifndef MR_BATCH_MANIFEST_H
#define MR_BATCH_MANIFEST_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "ranges.h"

struct mr_manifest;

/** A part of what a job is known by: the same at every start of it. */
struct mr_identity_field {
    const char *key; /* as a person would name it: "model", "input /data/a.parquet" */
    const char *json;
    /* Size, time and the like of an input: options.accept_changed_input lets it pass. Not for the names and the order of
     * the inputs, which give file numbers their meaning. */
    bool is_input;
    bool is_model; /* what the hosts say of the model: options.accept_changed_model */
    bool is_place; /* of several such ways to say the same, one has to be as it was */
};
#define MR_MANIFEST_PLACES                                                                         \
    "input places" /* not compared between shards: each machine has its own */

struct mr_manifest_options {
    bool accept_changed_input; /* take changed inputs for what they are now, in job.json too */
    bool accept_changed_model; /* the same for what the model is now */
    bool takes_any_job;        /* one that is there, whatever its identity is */
    bool verify_content;       /* read all committed files and compare their checksums */
};

/** Rows first .. first + count - 1 of input number `file`. */
struct mr_manifest_extent {
    uint32_t file;
    uint64_t first;
    uint64_t count;
};

#define MR_MANIFEST_CONTROL "control"

/** Inputs are numbered below this. */
#define MR_MANIFEST_FILES_MOST (1u << 20)
/** Bytes of a note, and of the `hosts` of an item. */
#define MR_MANIFEST_NOTE_BYTES_MOST (64u << 10)
/** Room for a name in parts/ or dlq/. */
#define MR_MANIFEST_NAME_BYTES  96
#define MR_MANIFEST_SUFFIX_MOST 24

enum mr_manifest_kind { MR_MANIFEST_RESULTS, MR_MANIFEST_DEAD_LETTERS };

/** Room for mr_manifest_id. */
#define MR_MANIFEST_ID_BYTES 33

/** A file that is being written. Only fd and name are of interest to the caller. */
struct mr_manifest_part {
    int fd; /* to write to, from the beginning; -1 after commit and drop, which close it */
    enum mr_manifest_kind kind;
    /** It is not a file in the folder; `name` identifies it in its place. */
    bool is_elsewhere;
    bool is_sealed;
    bool is_renamed;
    /** A sync failed: the content on disk is unknown, the file must be written again. */
    bool is_lost;
    uint32_t crc;
    uint64_t bytes;
    char name[MR_MANIFEST_NAME_BYTES]; /* its final one, without folder */
};

/** What a commit adds. Borrowed for the call. */
struct mr_manifest_add {
    /** NULL when rows is 0, but for a file that only has the columns. */
    struct mr_manifest_part *part;
    struct mr_manifest_part *dlq; /* NULL when dead is 0 */
    /* For mr_manifest_replace only: in place of part or dlq, a file of a removed item that stays. */
    const char *keep_part;
    const char *keep_dlq;
    uint64_t rows; /* in the file of results */
    uint64_t dead; /* in the file of dead letters; rows + dead are the rows of the extents */
    const struct mr_manifest_extent *extents;
    size_t extent_count;
    const char *hosts; /* JSON, or NULL: whose answers these are */
};

/** What was added. Valid until a replace removes it, or close. */
struct mr_manifest_item {
    char *part; /* name in parts/; NULL without one */
    char *dlq;  /* name in dlq/; NULL without one */
    uint64_t rows;
    uint64_t dead;
    uint64_t part_bytes;
    uint64_t dlq_bytes;
    uint32_t part_crc; /* CRC-32C of the content */
    uint32_t dlq_crc;
    bool is_elsewhere; /* the part is */
    /** Ascending, neighbours joined; the first is zeros if there are none. */
    struct mr_manifest_extent *extents;
    size_t extent_count;
    char *hosts;
};

/** Sums over all items. */
struct mr_manifest_totals {
    uint64_t rows;
    uint64_t dead;
    uint64_t parts; /* files of results */
    uint64_t bytes; /* of these */
};

/** Open or begin the job in `folder`, which is made if need be. Afterwards everything that counts is on
 *  disk, and a process that had the job before can change nothing any more.
 *  identity  borrowed for the call; keys are unique
 *  Gives: *out, to be closed with mr_manifest_close.
 *  Errors: MR_E_UNAVAILABLE (another process works on it; names its pid), MR_E_INVALID (a field changed;
 *  names it with both values), MR_E_EXISTS (the folder holds other things), MR_E_NOT_FOUND (a committed
 *  file is missing), MR_E_IO (damage: in manifest.log before its end, or a file of another size or
 *  checksum; names it). */
int mr_manifest_open(struct mr_manifest **out, const char *folder,
                     const struct mr_identity_field *identity, size_t identity_count,
                     const struct mr_manifest_options *options, struct mr_err *err);
/** Reads the folder without changing it, also while another process works on it. *out_pid: the process that does, 0:
 *  none on this machine. out_stop (NULL: not wanted) gets why the last start stopped, if it said so. Errors:
 *  MR_E_NOT_FOUND (no folder, or no job in it), MR_E_IO (damage). */
int mr_manifest_summary(const char *folder, struct mr_manifest_totals *out_totals,
                        bool *out_finished, uint32_t *out_epoch, int64_t *out_pid,
                        struct mr_buf *out_stop, struct mr_err *err);
/** Appends the field of this key as JSON to out_one, nothing if there is none, and all others as text: two jobs have the
 *  same text if they have the same identity. */
int mr_manifest_identity_put(const struct mr_manifest *m, const char *key, struct mr_buf *out_one,
                             struct mr_buf *out_others, struct mr_err *err);
/** Closes the job, and removes it from its folder if this was its first start and nothing has been added. */
void mr_manifest_forget(struct mr_manifest **m);
/** Give the job up, as it is. Open parts are dropped by their owners before. */
void mr_manifest_close(struct mr_manifest **m);

/** True if further changes are possible. Otherwise *out_may_reopen: no other process has taken the job over, but the state on
 *  disk is unknown, and opening the job again resolves it. */
bool mr_manifest_is_sound(const struct mr_manifest *m, bool *out_may_reopen);
/** The job was finished, and nothing was changed since. */
bool mr_manifest_is_finished(const struct mr_manifest *m);
/** Marks a finished job as not finished, before a change. Changes do this themselves; a caller that first removes marks of
 *  the end for others calls it before. */
int mr_manifest_unfinish(struct mr_manifest *m, struct mr_err *err);
/** The job's unique id, chosen when it began: 32 digits. Empty: the job is older than such ids. */
const char *mr_manifest_id(const struct mr_manifest *m);
/** Number of this start, from 1. */
uint32_t mr_manifest_epoch(const struct mr_manifest *m);
/** Rows of an input that have an outcome. Borrowed until the next change. */
const struct mr_ranges *mr_manifest_done(const struct mr_manifest *m, uint32_t file);
struct mr_manifest_totals mr_manifest_totals(const struct mr_manifest *m);
/** Was the file begun by mr_manifest_part_begin_at? Then its rows are in the order of the input. */
bool mr_manifest_name_is_placed(const char *name);
/** Do the rows of these items, sorted by their first ones, follow each other in the order of the input? */
bool mr_manifest_is_in_order(const struct mr_manifest_item *const *items, size_t count);
/** Items in the order of their commits. */
size_t mr_manifest_item_count(const struct mr_manifest *m);
const struct mr_manifest_item *mr_manifest_item(const struct mr_manifest *m, size_t i);
/** The item that a file or part belongs to, NULL: none. */
const struct mr_manifest_item *mr_manifest_find(const struct mr_manifest *m, mr_str name);
/** Open a committed file for reading. `name` as in an item. Gives a descriptor, or an error. */
int mr_manifest_file_open(const struct mr_manifest *m, enum mr_manifest_kind kind, const char *name,
                          struct mr_err *err);

/** Begin a file. suffix: ".parquet", without a slash. */
int mr_manifest_part_begin(struct mr_manifest *m, enum mr_manifest_kind kind, const char *suffix,
                           struct mr_manifest_part *out, struct mr_err *err);
/** The same for results that begin with the row `first` of an input, whose name sorts by that. */
int mr_manifest_part_begin_at(struct mr_manifest *m, uint32_t file, uint64_t first,
                              const char *suffix, struct mr_manifest_part *out, struct mr_err *err);
/** The same for results that do not lie in the folder: there is no file, and nothing is looked for where `name` is. The
 *  caller sees to it that they are there before the commit, and for good, and may set `bytes`. */
int mr_manifest_part_begin_elsewhere(struct mr_manifest *m, const char *suffix,
                                     struct mr_manifest_part *out, struct mr_err *err);
/** The same with a name as of mr_manifest_part_begin_at. */
int mr_manifest_part_begin_elsewhere_at(struct mr_manifest *m, uint32_t file, uint64_t first,
                                        const char *suffix, struct mr_manifest_part *out,
                                        struct mr_err *err);
/** One of an earlier start, whose commit never came to the log. Errors: MR_E_INVALID (no name of such a part). */
int mr_manifest_part_find_elsewhere(const struct mr_manifest *m, mr_str name,
                                    struct mr_manifest_part *out, struct mr_err *err);
/** Bring the complete file to disk, so that a later commit, perhaps by another thread, need not wait for
 *  that. Not needed: commit does what was not done. After an error the part can only be dropped. */
int mr_manifest_part_seal(struct mr_manifest *m, struct mr_manifest_part *part, struct mr_err *err);
/** Throw a part away that was not committed. Does nothing with a part that was. */
void mr_manifest_part_drop(struct mr_manifest *m, struct mr_manifest_part *part);

/** Add items, all of them or none, with one sync of the log. They are on disk when this returns MR_OK, and
 *  their parts are closed. After an error the parts are the caller's: to be committed again, unless is_lost,
 *  or dropped.
 *  Errors: MR_E_EXISTS (rows that are done already), MR_E_INVALID (numbers that do not fit together); both
 *  before anything is written. */
int mr_manifest_commit(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t add_count,
                       struct mr_err *err);
/** Put items in the place of others in one step, then delete the files that are left over. The new items
 *  stand for exactly the rows of the removed ones (a merge), or there are none, and the rows are to be done
 *  again. Ownership and errors as mr_manifest_commit. */
int mr_manifest_replace(struct mr_manifest *m, const struct mr_manifest_add *adds, size_t add_count,
                        const struct mr_manifest_item *const *removes, size_t remove_count,
                        struct mr_err *err);
/** Say why the job stops, for those who look at its folder, or that it goes on (NULL); nothing is written if that is what
 *  the folder says already. Errors: as mr_manifest_note. */
int mr_manifest_stop(struct mr_manifest *m, const char *why, struct mr_err *err);
/** Put an event (one JSON value) into the log. The last thousand are kept. */
int mr_manifest_note(struct mr_manifest *m, mr_str json, struct mr_err *err);
/** Write manifest.json (items by their first rows), report.json and _SUCCESS. */
int mr_manifest_finish(struct mr_manifest *m, mr_str report_json, struct mr_err *err);

#endif
