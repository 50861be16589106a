#include "lines.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define READS_MAX 16 /* bounds the time of the thread for a worker that writes without end */

void lines_flush(struct lines *l, void (*fn)(void *ctx, const char *line), void *ctx)
{
    if (l->used > 0) {
        l->line[l->used] = '\0';
        memcpy(l->last, l->line, l->used + 1);
        l->used = 0;
        fn(ctx, l->last);
    }
}

static void add(struct lines *l, const char *data, size_t n,
                void (*fn)(void *ctx, const char *line), void *ctx)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n' || l->used == LINES_BYTES) {
            lines_flush(l, fn, ctx);
        }
        if (data[i] != '\n' && data[i] != '\0') {
            l->line[l->used++] = data[i];
        }
    }
}

int lines_read(struct lines *l, int fd, void (*fn)(void *ctx, const char *line), void *ctx)
{
    char data[4096];

    for (int i = 0; i < READS_MAX; i++) {
        const ssize_t n = read(fd, data, sizeof data);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            return 0;
        }
        if (n <= 0) {
            return -1;
        }
        add(l, data, (size_t)n, fn, ctx);
    }
    return 0;
}
