#include "lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

#define READS_MAX 16 /* bounds the time of the thread for a worker that writes without end */

void lines_reset(struct lines *l)
{
    l->used = 0;
    l->count = 0;
    l->last[0] = '\0';
}

static const char *kept(const struct lines *l, uint64_t n)
{
    return l->kept[n % LINES_KEPT];
}

void lines_tail(const struct lines *l, char *out, size_t size)
{
    const uint64_t oldest = l->count - MR_MIN(l->count, (uint64_t)LINES_KEPT);
    uint64_t from = l->count;
    size_t bytes = 1;
    size_t used = 0;

    while (from > oldest) {
        bytes += strlen(MR_LOG_STR(mr_str_c(kept(l, from - 1)))) + 1;
        if (bytes > size) {
            break;
        }
        from--;
    }
    out[0] = '\0';
    for (uint64_t n = from; n < l->count; n++) {
        const int more = snprintf(out + used, size - used, "%s%s", used > 0 ? " " : "",
                                  MR_LOG_STR(mr_str_c(kept(l, n))));
        used += more > 0 ? MR_MIN((size_t)more, size - used - 1) : 0;
    }
}

void lines_flush(struct lines *l, void (*fn)(void *ctx, const char *line), void *ctx)
{
    if (l->used > 0) {
        l->line[l->used] = '\0';
        memcpy(l->last, l->line, l->used + 1);
        snprintf(l->kept[l->count++ % LINES_KEPT], LINES_KEPT_BYTES + 1, "%.*s", LINES_KEPT_BYTES,
                 l->line);
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
