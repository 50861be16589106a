/* Where the results of a job go. Private.
 *
 * The committer gathers rows in parts, and a part becomes an item of the manifest. What lies in between is a sink's: how
 * rows get to where they belong, and that they are there for good before the manifest says so. Dead letters are files in
 * the job's folder whatever the sink is.
 *
 * Thread: `open` and `close` the loop's, before the committer begins and after it has ended; `stop` any; all else the
 * committer's. */
#ifndef MR_BATCH_SINK_H
#define MR_BATCH_SINK_H

#include "committer.h"
#include "results.h"

struct sink_ops {
    /** After the manifest is opened, before any row is read. What an earlier start brought to its place, without
     *  coming to say so in the manifest, is added to it. NULL: there is nothing to do. */
    int (*open)(struct results *rs, struct mr_err *err);
    void (*close)(struct results *rs); /* NULL: nothing */
    /** The part has its first rows, of this extent: p->results is begun, has_results is set. */
    int (*begin)(struct results *rs, struct open_part *p, const struct extent *e,
                 struct mr_err *err);
    /** Rows of the part, which begin with a row of the extent. They stay in memory as long as they are referenced,
     *  and with them all rows of the extent: a sink that keeps rows for longer than the call copies them. */
    int (*put)(struct results *rs, struct open_part *p, const struct extent *e,
               const struct extent_answer *a, struct mr_err *err);
    /** Bytes of rows so far, compared with most_bytes. */
    uint64_t (*bytes)(const struct open_part *p);
    /** A part is closed at about that size. */
    uint64_t (*most_bytes)(const struct results *rs);
    /** The part is complete. When this has returned MR_OK, a commit of p->results can follow. */
    int (*finish)(struct results *rs, struct open_part *p, struct mr_err *err);
    /** The part is over, committed or not; p->results itself is the caller's. */
    void (*drop)(struct open_part *p);
    /** A finish that waits for something far away should end soon, with an error if need be. NULL: none does. */
    void (*stop)(struct results *rs);
    /** All rows have an outcome and are committed; before the job is marked as finished. May be called again. NULL: there is
     *  nothing to do. */
    int (*publish)(struct results *rs, struct mr_err *err);
    /** Rows that were put stay in memory, `bytes` of it, until the part is over, and so does credit for them. */
    bool holds_rows;
    /** Results are files in the job's folder, which can be joined and taken back. */
    bool is_in_folder;
};

extern const struct sink_ops sink_files;   /* parts/ */
extern const struct sink_ops sink_table;   /* options.results.table */
extern const struct sink_ops sink_objects; /* options.results.objects */

#endif
