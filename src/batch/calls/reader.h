/* The reader: a thread that reads rows of the table and hands them to the loop as extents. */
#ifndef MR_BATCH_READER_H
#define MR_BATCH_READER_H

#include <pthread.h>

#include "batch/common/extent.h"
#include "batch/common/waits.h"

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
    char *unread; /* why one of them is not known to be damaged; NULL: all are. As `bad` */
    /* posted to the loop by `ended`, after the last extent */
    struct mr_mail ended;
    struct calls *calls;
    const struct results *results;
    int rc;
    struct mr_err err;
};
/** The manifest is opened, if the job has one. */
int reader_start(struct reader *r, struct calls *calls, const struct results *results,
                 struct mr_err *err);
/** Ends it soon; joins it. */
void reader_stop(struct reader *r);
/** After reader_stop: MR_OK if everything was read. Errors: MR_E_INVALID (damage that is not to be left out), MR_E_IO (what a
 *  later start may read: an error of the disk, a file that has changed); they name what was not read. */
int reader_check(const struct reader *r, struct mr_err *err);
/** A part of the input is damaged or cannot be read now; the others may be. */
bool reader_passes(const struct reader *r, int rc);
void reader_fini(struct reader *r);

#endif
