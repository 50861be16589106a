/* Files through a window of memory.
 *
 * Plain reads, no mapping: a file that shrinks while it is read is then an end, not a signal. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io.h"
#include "s3/s3.h"
#include "table/rows/formats.h"

#define WINDOW     ((size_t)256 << 10)
#define WINDOW_BIG MR_WINDOW_BIG /* a larger one, grown for one long row, is freed */

/* Rows are identified by number, so a changed file is another table. */
static int unchanged_check(const struct mr_input *in, struct mr_err *err)
{
    const struct mr_source_file *f = in->file;
    struct stat st;

    if (fstat(in->fd, &st) != 0) {
        return MR_FAIL(err, MR_E_IO, "cannot look at '%s': %s", f->path, strerror(errno));
    }
    const int64_t mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    if ((uint64_t)st.st_size != f->bytes || mtime_ns != f->mtime_ns) {
        return MR_FAIL(err, MR_E_INVALID, "'%s' has changed since it was opened", f->path);
    }
    return MR_OK;
}

static void to_front(struct mr_input *in)
{
    const size_t left = in->end - in->begin;

    if (in->begin > 0) {
        memmove(in->buf, in->buf + in->begin, left);
        in->begin = 0;
        in->end = left;
    }
}

static bool room_set(struct mr_input *in, size_t room)
{
    char *buf = room == in->room ? in->buf : mr_try_realloc(in->buf, room);

    if (!buf) {
        return false;
    }
    in->buf = buf;
    in->room = room;
    return true;
}

static bool room_make(struct mr_input *in)
{
    const size_t left = in->end - in->begin;
    size_t room = in->room;

    to_front(in);
    if (left == room) {
        room = room == 0 ? WINDOW : room < WINDOW_BIG ? 2 * room : room + room / 8;
    }
    return room_set(in, room);
}

void mr_input_trim(struct mr_input *in)
{
    if (in->room > WINDOW_BIG && in->end - in->begin <= WINDOW_BIG / 2) {
        to_front(in);
        room_set(in, WINDOW_BIG);
    }
}

static int raw_read(void *input, void *out, size_t room, size_t *out_n, struct mr_err *err)
{
    struct mr_input *in = input;
    ssize_t n;

    if (in->object) {
        return mr_s3_reader_read(in->object, out, room, out_n, err);
    }
    do {
        bool is_there;
        int rc = in->is_stream ? mr_input_wait(in, INT64_MAX, &is_there, err) : MR_OK;
        if (rc < 0) {
            return rc;
        }
        n = read(in->fd, out, room);
    } while (n < 0 && (errno == EINTR || (in->is_stream && errno == EAGAIN)));
    if (n < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot read '%s': %s", in->file->path, strerror(errno));
    }
    *out_n = (size_t)n;
    return MR_OK;
}

static int file_open(struct mr_input *in, const struct mr_source_file *file, struct mr_err *err)
{
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot open '%s': %s", file->path, strerror(errno));
    }
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *in = (struct mr_input){.file = file, .fd = fd};
    return unchanged_check(in, err);
}

static int object_open(struct mr_input *in, const struct mr_source_file *file, struct mr_s3 *s3,
                       struct mr_err *err)
{
    struct mr_s3_place at;
    const int rc = mr_s3_uri_parse(file->path, &at.bucket, &at.key, err);

    if (rc == MR_OK) {
        *in = (struct mr_input){.file = file, .fd = -1};
        in->object = mr_s3_reader_new(s3, at, file->etag, file->bytes);
    }
    return rc;
}

/* Checks by the first bytes if the file is compressed; they then go to the unpacker. */
static int packing_probe(struct mr_input *in, struct mr_err *err)
{
    size_t n = 1;

    if (!room_make(in)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to read '%s'", in->file->path);
    }
    while (n > 0 && in->end < MR_UNPACKER_MARK) {
        const int rc = raw_read(in, in->buf + in->end, MR_UNPACKER_FIRST - in->end, &n, err);
        if (rc < 0) {
            return rc;
        }
        in->end += n;
    }
    const mr_bytes first = {(const uint8_t *)in->buf, in->end};
    const int rc = mr_unpacker_new(&in->unpacker, in->file->path, first, raw_read, in, err);
    in->end = in->unpacker ? 0 : in->end;
    return rc;
}

int mr_input_open(struct mr_input *in, const struct mr_source_file *file, struct mr_s3 *s3,
                  struct mr_err *err)
{
    int rc;

    MR_TRY(file->etag ? object_open(in, file, s3, err) : file_open(in, file, err));
    rc = packing_probe(in, err);
out:
    if (rc < 0) {
        mr_input_close(in);
    }
    return rc;
}

int mr_input_open_stream(struct mr_input *in, const struct mr_source_file *file,
                         const struct mr_source_stream *stream, int cancel_fd, struct mr_err *err)
{
    const size_t room = MR_MAX(WINDOW, stream->first.len);
    char *buf = mr_try_alloc(room);

    if (!buf) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory to read '%s'", file->path);
    }
    memcpy(buf, stream->first.ptr ? stream->first.ptr : "", stream->first.len);
    *in = (struct mr_input){.file = file,
                            .fd = stream->fd,
                            .is_stream = true,
                            .cancel_fd = cancel_fd,
                            .buf = buf,
                            .end = stream->first.len,
                            .room = room};
    return MR_OK;
}

int mr_input_wait(const struct mr_input *in, int64_t until_ns, bool *out, struct mr_err *err)
{
    struct pollfd fds[2] = {{in->fd, POLLIN, 0}, {in->cancel_fd, POLLIN, 0}};
    int n;

    do {
        const int64_t left_ns = MR_MAX(until_ns - mr_now_ns(), INT64_C(0));
        const int64_t left_ms = (left_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS;
        n = poll(fds, 2, until_ns == INT64_MAX ? -1 : (int)MR_MIN(left_ms, (int64_t)INT_MAX));
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot wait for '%s': %s", in->file->path, strerror(errno));
    }
    if (fds[1].revents) {
        return MR_FAIL(err, MR_E_CANCELLED, "stopped");
    }
    *out = n > 0;
    return MR_OK;
}

void mr_input_close(struct mr_input *in)
{
    if (in->file) {
        mr_unpacker_free(&in->unpacker);
        if (!in->is_stream && in->fd >= 0) {
            close(in->fd);
        }
        mr_s3_reader_free(&in->object);
        mr_free(in->buf);
    }
    *in = (struct mr_input){0};
}

int mr_input_more(struct mr_input *in, struct mr_err *err)
{
    size_t n;

    if (!room_make(in)) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "'%s': no memory to read a row", in->file->path);
    }
    char *to = in->buf + in->end;
    const size_t room = MR_MIN(in->room - in->end, WINDOW_BIG / 2);
    int rc = in->unpacker ? mr_unpacker_read(in->unpacker, to, room, &n, err)
                          : raw_read(in, to, room, &n, err);
    if (rc < 0) {
        return rc;
    }
    in->end += n;
    in->is_end = n == 0;
    return in->is_end && !in->is_stream && !in->object ? unchanged_check(in, err) : MR_OK;
}

int mr_input_check(const struct mr_source_file *file, struct mr_s3 *s3, const atomic_bool *stop,
                   struct mr_err *err)
{
    struct mr_input in = {0};
    size_t n = 1;
    int rc;

    MR_TRY(mr_input_open(&in, file, s3, err));
    while (rc == MR_OK && n > 0 && in.unpacker) {
        rc = mr_unpacker_read(in.unpacker, in.buf, in.room, &n, err);
        /* Relaxed: it orders nothing. */
        if (rc == MR_OK && atomic_load_explicit(stop, memory_order_relaxed)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "stopped");
        }
    }
    if (rc < 0 && in.unpacker && mr_unpacker_is_cut(in.unpacker)) {
        rc = MR_OK;
    }
out:
    mr_input_close(&in);
    return rc;
}

int mr_input_skip_mark(struct mr_input *in, struct mr_err *err)
{
    /* Reads on only while it can be a mark: a stream's first row may be shorter. */
    while (in->end - in->begin < 3 && !in->is_end &&
           (in->end == in->begin ||
            memcmp(in->buf + in->begin, "\xef\xbb", in->end - in->begin) == 0)) {
        int rc = mr_input_more(in, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (in->end - in->begin >= 3 && memcmp(in->buf + in->begin, "\xef\xbb\xbf", 3) == 0) {
        in->begin += 3;
    }
    return MR_OK;
}
