/* What the formats have in common, and their tables of functions. Private. */
#ifndef MR_TABLE_FORMATS_H
#define MR_TABLE_FORMATS_H

#include "table/table.h"

/** A format's writer: the functions of table.h over a state that `open` makes. */
struct mr_writer_ops {
    int (*open)(void **out, int fd, const struct mr_schema *schema,
                const struct mr_writer_options *options, struct mr_err *err);
    int (*put)(void *w, const struct mr_rows *rows, uint64_t first, uint64_t count,
               struct mr_err *err);
    uint64_t (*bytes)(const void *w);
    int (*finish)(void *w, struct mr_err *err);
    void (*free)(void *w);
};

/** Writes all of it to fd. Errors: MR_E_EXHAUSTED (no room), MR_E_IO. */
int mr_fd_write(int fd, const void *data, size_t bytes, struct mr_err *err);

#endif
