#include "gzip.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"

#define CHUNK 262144u

struct gzip {
    gzFile file;
    uint8_t chunk[CHUNK];
};

bool gzip_is(int fd)
{
    uint8_t first[2];

    return pread(fd, first, 2, lseek(fd, 0, SEEK_CUR)) == 2 && first[0] == 0x1f && first[1] == 0x8b;
}

struct gzip *gzip_new(int fd)
{
    struct gzip *g = MR_NEW(struct gzip);
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

    g->file = own < 0 ? NULL : gzdopen(own, "rb");
    if (!g->file) {
        if (own >= 0) {
            close(own);
        }
        mr_free(g);
        return NULL;
    }
    gzbuffer(g->file, CHUNK);
    return g;
}

void gzip_free(struct gzip **g)
{
    if (*g) {
        gzclose_r((*g)->file);
        mr_free(*g);
        *g = NULL;
    }
}

int gzip_rest(struct gzip *g, const char **out_why)
{
    const int n = gzread(g->file, g->chunk, CHUNK);
    int code = Z_OK;
    const char *why = n > 0 ? "" : gzerror(g->file, &code);
    const char *end = strstr(why, ">: "); /* of "<fd:7>: ", which zlib has for the file's name */

    *out_why = end ? end + 3 : why;
    return n == 0 && code != Z_OK ? -1 : n; /* a file that was cut ends without another word */
}

static la_ssize_t chunk_read(struct archive *a, void *ctx, const void **out)
{
    struct gzip *g = ctx;
    const char *why;
    const int n = gzip_rest(g, &why);

    *out = g->chunk;
    if (n < 0) {
        archive_set_error(a, EINVAL, "%s", why);
        return ARCHIVE_FATAL;
    }
    return n;
}

int gzip_open(struct gzip *g, struct archive *a)
{
    return archive_read_open(a, g, NULL, chunk_read, NULL);
}

int64_t gzip_packed(const struct gzip *g)
{
    return gzoffset(g->file);
}
