/* Lines of a file, one after the other. Private. One thread. */
#ifndef MR_BATCH_LINES_H
#define MR_BATCH_LINES_H

#include "base/buf.h"
#include "base/err.h"

struct lines {
    int fd;
    const char *path;
    struct mr_buf buf;
    size_t at;       /* where the next line begins */
    size_t last;     /* where the one before it does */
    uint64_t number; /* of the next line, from 0 */
    size_t most;     /* bytes of a line */
    bool is_over;
};

struct line {
    uint64_t number;
    mr_str text;      /* without its end; valid until the next call */
    bool is_too_long; /* there is no text */
};

/** *l is zero. Errors: MR_E_NOT_FOUND, MR_E_IO. */
int lines_open(struct lines *l, const char *path, size_t most, struct mr_err *err);
void lines_close(struct lines *l);
/** *out_is_there false: the file has no more. Errors: MR_E_IO. */
int lines_next(struct lines *l, struct line *out, bool *out_is_there, struct mr_err *err);
/** The line that was given last, which is not too long, comes again. */
void lines_return(struct lines *l);

#endif
