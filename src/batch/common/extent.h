/* An extent: consecutive rows of one file, with their outcomes. It moves from the reader to the loop and then to the
 * committer, and belongs to one of them at a time. */
#ifndef MR_BATCH_EXTENT_H
#define MR_BATCH_EXTENT_H

#include "base/mailbox.h"
#include "base/vec.h"
#include "table/rows.h"

struct calls;

/** The beginning of an answer that could not be used. */
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
    struct calls *calls; /* where it arrives */
    uint64_t number;     /* of all that were read in this start, in the order of the input */
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
/** With its rows, answers and dead letters. */
void extent_free(struct extent **e);

#endif
