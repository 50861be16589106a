/* The committer: a thread that writes results and dead letters and commits them. */
#ifndef MR_BATCH_COMMITTER_H
#define MR_BATCH_COMMITTER_H

#include <pthread.h>

#include "batch/common/extent.h"
#include "batch/common/waits.h"
#include "batch/manifest/manifest.h"
#include "batch/manifest/provenance.h"
#include "disk.h"

struct results;

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
    struct provenance provenance;
    const char *hosts; /* the same as JSON, when it is committed */
    MR_VEC(struct mr_manifest_extent) extents;
};
/** Adds a line to the file of dead letters, which is begun if need be. */
int committer_part_dead_letter(struct results *rs, struct open_part *p, mr_str line,
                               struct mr_err *err);
/** Brings lines that are held to the file. */
int committer_part_lines_write(struct results *rs, struct open_part *p, struct mr_err *err);

/** The rest of rows that were read without some of their columns; the committer's thread. */
struct full_rows {
    struct mr_source *source;
    bool is_over; /* it failed, which was reported */
};

struct committer {
    pthread_t thread;
    bool is_started;
    struct results *results;
    pthread_mutex_t lock; /* guards the queue, the flags and `hold` */
    pthread_cond_t more;
    struct extent *first;
    struct extent *last;
    bool is_ending;
    bool is_dropped; /* what is not committed is not to be */
    bool is_hurried; /* nothing is waited for any more */
    bool tries_now;
    bool is_wanted; /* all credit is, also what rows of an open part have */
    bool has_news;  /* … and the committer has not seen that yet */
    bool has_failed;
    bool may_go_on; /* it failed because of the disk, and the job can start again */
    struct disk_hold hold;
    int64_t begin_ns;   /* 0: it has not begun */
    struct waits waits; /* for answers */
    _Atomic int64_t write_ns;
    _Atomic int64_t commit_ns;
    /* figures, read by the loop */
    _Atomic uint64_t rows;
    _Atomic uint64_t dead;
    _Atomic uint64_t files;
    _Atomic uint64_t merged;       /* files that are in others now */
    struct compaction *compaction; /* NULL: files stay as they are */
    struct full_rows full;
    _Atomic uint64_t bytes; /* of these */
    /* posted to the loop after a failure */
    struct mr_mail failed;
    struct mr_err err;
    /* posted to the loop when everything is committed, or after a failure: the last mail */
    struct mr_mail ended;
};
int committer_start(struct committer *c, struct results *results, struct mr_err *err);
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
/** Reports c->err to the loop, once. Later extents are dropped. */
void committer_fail(struct committer *c);

#endif
