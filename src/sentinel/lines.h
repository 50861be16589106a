/* Splits the output and error stream of a worker into lines, and keeps the last ones for the report of its end. */
#ifndef SENTINEL_LINES_H
#define SENTINEL_LINES_H

#include <stddef.h>
#include <stdint.h>

#define LINES_BYTES      1900 /* of one line; a longer one is split */
#define LINES_KEPT       10
#define LINES_KEPT_BYTES 200 /* of one that is kept; the rest is cut */

struct lines {
    size_t used;
    uint64_t count; /* of whole lines */
    char line[LINES_BYTES + 1];
    char last[LINES_BYTES + 1];                  /* the newest whole line */
    char kept[LINES_KEPT][LINES_KEPT_BYTES + 1]; /* the newest ones, line n at n % LINES_KEPT */
};

/* Of a new worker: none. */
void lines_reset(struct lines *l);
/* The newest lines, the oldest of them first, as quoted texts with a space between them; as many as fit, at most
 * LINES_KEPT. */
void lines_tail(const struct lines *l, char *out, size_t size);

/* Reads until it would block. Calls fn for each line. Returns -1 at the end of the file. */
int lines_read(struct lines *l, int fd, void (*fn)(void *ctx, const char *line), void *ctx);
/* Passes on an incomplete last line. */
void lines_flush(struct lines *l, void (*fn)(void *ctx, const char *line), void *ctx);

#endif
