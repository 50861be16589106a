/* Splits the output and error stream of a worker into lines, and keeps the last ones for the report of its end. */
#ifndef SENTINEL_LINES_H
#define SENTINEL_LINES_H

#include <stddef.h>

#define LINES_BYTES 1000 /* of one line; a longer one is split */

struct lines {
    size_t used;
    char line[LINES_BYTES + 1];
    char last[LINES_BYTES + 1]; /* the newest whole line */
};

/* Reads until it would block. Calls fn for each line. Returns -1 at the end of the file. */
int lines_read(struct lines *l, int fd, void (*fn)(void *ctx, const char *line), void *ctx);
/* Passes on an incomplete last line. */
void lines_flush(struct lines *l, void (*fn)(void *ctx, const char *line), void *ctx);

#endif
