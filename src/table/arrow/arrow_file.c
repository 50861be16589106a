/* Files of Arrow IPC, of both kinds: the places of their messages.
 *
 *   stream   schema, dictionaries and batches, then an end mark, which may be missing
 *   file     the same between two magics, and a footer with the place of each of them
 *
 * Opening reads the metadata of each message, not the bodies: after that the number of rows is known, each row can be
 * found, and a truncated file is detected before its first row. Plain reads, no mapping: a file that shrinks during
 * the read is an error, not a signal. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow.h"
#include "base/mem.h"

#define FOOTER_TAIL 10 /* its length, and the magic */
#define BLOCK_BYTES 24

static int fail(const struct arrow_file *f, int status, const char *what, struct mr_err *err)
{
    return MR_FAIL(err, status, "'%s' %s", f->file->path, what);
}

static int bytes_read(const struct arrow_file *f, uint64_t at, size_t bytes, void *to,
                      struct mr_err *err)
{
    uint8_t *p = to;

    while (bytes > 0) {
        const ssize_t n = pread(f->fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return MR_FAIL(err, n < 0 ? MR_E_IO : MR_E_INVALID, "cannot read '%s': %s",
                           f->file->path, n < 0 ? strerror(errno) : "it has become shorter");
        }
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return MR_OK;
}

/* ---- messages ---- */

static int cut_off(const struct arrow_file *f, uint64_t at, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "'%s' is cut off in the message at byte %" PRIu64,
                   f->file->path, at);
}

int arrow_file_message(const struct arrow_file *f, uint64_t at, struct mr_buf *buf,
                       struct arrow_message *out, uint64_t *out_body_at, bool *out_is_end,
                       struct mr_err *err)
{
    int32_t head[2] = {0, 0};
    const uint64_t left = f->bytes - MR_MIN(at, f->bytes);

    *out_is_end = left == 0;
    if (left == 0) {
        return MR_OK;
    }
    if (left < sizeof head[0]) {
        return cut_off(f, at, err);
    }
    int rc = bytes_read(f, at, MR_MIN(left, sizeof head), head, err);
    if (rc < 0) {
        return rc;
    }
    /* Before version 0.15 the length had no prefix. */
    const bool is_announced = head[0] == -1;
    const int64_t bytes = is_announced ? head[1] : head[0];
    const uint64_t head_bytes = is_announced ? 8 : 4;
    *out_is_end = bytes == 0 && left >= head_bytes;
    if (*out_is_end) {
        return MR_OK;
    }
    if (left < head_bytes || bytes < 0 || (uint64_t)bytes > left - head_bytes) {
        return bytes < 0 ? fail(f, MR_E_INVALID, "has a message of a negative length", err)
                         : cut_off(f, at, err);
    }
    mr_buf_reset(buf);
    char *to = (uint64_t)bytes <= f->metadata_most ? mr_buf_reserve(buf, (size_t)bytes) : NULL;
    if (!to) {
        return fail(f, MR_E_EXHAUSTED, "has a message that is too long to be read", err);
    }
    rc = bytes_read(f, at + head_bytes, (size_t)bytes, to, err);
    if (rc < 0) {
        return rc;
    }
    rc = arrow_message_parse(out, (mr_bytes){(const uint8_t *)to, (size_t)bytes}, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "'%s': at byte %" PRIu64, f->file->path, at);
    }
    *out_body_at = at + head_bytes + (uint64_t)bytes;
    return out->body_bytes > f->bytes - *out_body_at ? cut_off(f, at, err) : MR_OK;
}

/* ---- blocks ---- */

static int block_add(struct arrow_file *f, uint64_t at, const struct arrow_message *m,
                     struct mr_err *err)
{
    const bool is_dictionary = m->kind == ARROW_DICTIONARY;
    const int64_t rows = is_dictionary ? 0 : flat_int(&m->header, 0, 8, 0);

    if (m->kind == ARROW_SCHEMA || rows < 0 || (uint64_t)rows > INT64_MAX - f->rows) {
        return fail(f, MR_E_INVALID, "has a message that makes no sense there", err);
    }
    if (f->count == f->room) {
        const size_t room = f->room ? 2 * f->room : 64;
        struct arrow_block *more = room * sizeof *more <= f->metadata_most
                                       ? mr_try_realloc(f->blocks, room * sizeof *more)
                                       : NULL;
        if (!more) {
            return fail(f, MR_E_EXHAUSTED, "has too many batches of rows: write larger ones", err);
        }
        f->blocks = more;
        f->room = room;
    }
    f->blocks[f->count++] = (struct arrow_block){at, f->rows, (uint64_t)rows, is_dictionary};
    f->rows += (uint64_t)rows;
    return MR_OK;
}

static int schema_take(struct arrow_file *f, const struct flat_table *schema, int version,
                       struct mr_err *err)
{
    int rc = arrow_schema_parse(&f->schema, schema, version, err);
    return rc < 0 ? MR_WRAP(err, rc, "'%s'", f->file->path) : rc;
}

static int stream_scan(struct arrow_file *f, struct mr_buf *buf, struct mr_err *err)
{
    struct arrow_message m;
    uint64_t body_at;
    uint64_t at = 0;
    bool is_end;
    int rc = arrow_file_message(f, at, buf, &m, &body_at, &is_end, err);

    if (rc < 0) {
        return rc;
    }
    if (is_end || m.kind != ARROW_SCHEMA) {
        return fail(f, MR_E_INVALID, "is no table of Arrow: it does not begin with a schema", err);
    }
    rc = schema_take(f, &m.header, m.version, err);
    while (rc == MR_OK) {
        at = body_at + m.body_bytes;
        rc = arrow_file_message(f, at, buf, &m, &body_at, &is_end, err);
        if (rc < 0 || is_end) {
            break;
        }
        rc = block_add(f, at, &m, err);
    }
    return rc;
}

static int blocks_check(struct arrow_file *f, const struct flat_vector *list, enum arrow_kind kind,
                        struct mr_buf *buf, struct mr_err *err)
{
    struct arrow_message m;
    uint64_t body_at;
    bool is_end;
    int rc = MR_OK;

    for (uint32_t i = 0; i < list->count && rc == MR_OK; i++) {
        const int64_t at = flat_list_i64(list, i, 0);
        if (at < 0) {
            return fail(f, MR_E_INVALID, "has a damaged footer", err);
        }
        rc = arrow_file_message(f, (uint64_t)at, buf, &m, &body_at, &is_end, err);
        if (rc == MR_OK && (is_end || m.kind != kind)) {
            rc = fail(f, MR_E_INVALID, "has a footer that points to nowhere", err);
        }
        rc = rc < 0 ? rc : block_add(f, (uint64_t)at, &m, err);
    }
    return rc;
}

static int footer_parse(struct arrow_file *f, mr_bytes footer, struct mr_buf *buf,
                        struct mr_err *err)
{
    struct flat flat = {footer, false};
    const struct flat_table root = flat_root(&flat);
    const struct flat_table schema = flat_child(&root, 1);
    const struct flat_vector dictionaries = flat_list(&root, 2, BLOCK_BYTES);
    const struct flat_vector batches = flat_list(&root, 3, BLOCK_BYTES);

    if (flat.is_bad || schema.at == 0) {
        return fail(f, MR_E_INVALID, "has a damaged footer", err);
    }
    int rc = schema_take(f, &schema, (int)flat_int(&root, 0, 2, 0), err);
    rc = rc < 0 ? rc : blocks_check(f, &dictionaries, ARROW_DICTIONARY, buf, err);
    return rc < 0 ? rc : blocks_check(f, &batches, ARROW_BATCH, buf, err);
}

static int footer_scan(struct arrow_file *f, struct mr_buf *buf, struct mr_err *err)
{
    uint8_t tail[FOOTER_TAIL];
    int32_t bytes;

    if (f->bytes < ARROW_MAGIC_BYTES + FOOTER_TAIL) {
        return fail(f, MR_E_INVALID, "is cut off: it has no footer", err);
    }
    int rc = bytes_read(f, f->bytes - FOOTER_TAIL, FOOTER_TAIL, tail, err);
    if (rc < 0) {
        return rc;
    }
    memcpy(&bytes, tail, sizeof bytes);
    if (memcmp(tail + 4, ARROW_MAGIC, 6) != 0) {
        return fail(f, MR_E_INVALID, "is cut off: it has no footer", err);
    }
    f->bytes -= FOOTER_TAIL;
    if (bytes <= 0 || (uint64_t)bytes > f->bytes - ARROW_MAGIC_BYTES) {
        return fail(f, MR_E_INVALID, "has a damaged footer", err);
    }
    f->bytes -= (uint64_t)bytes;
    uint8_t *footer = (uint64_t)bytes <= f->metadata_most ? mr_try_alloc((size_t)bytes) : NULL;
    if (!footer) {
        return fail(f, MR_E_EXHAUSTED, "has a footer that is too long to be read", err);
    }
    rc = bytes_read(f, f->bytes, (size_t)bytes, footer, err);
    rc = rc < 0 ? rc : footer_parse(f, (mr_bytes){footer, (size_t)bytes}, buf, err);
    mr_free(footer);
    return rc;
}

/* ---- the whole ---- */

static int unchanged_check(const struct arrow_file *f, struct mr_err *err)
{
    struct stat st;

    if (fstat(f->fd, &st) != 0) {
        return MR_FAIL(err, MR_E_IO, "cannot look at '%s': %s", f->file->path, strerror(errno));
    }
    const int64_t mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
    return (uint64_t)st.st_size == f->file->bytes && mtime_ns == f->file->mtime_ns
               ? MR_OK
               : fail(f, MR_E_INVALID, "has changed since it was opened", err);
}

/* The kind of a file that is not Arrow, from its first bytes. */
static const char *other_kind(const uint8_t *first)
{
    static const struct {
        uint8_t bytes[4];
        const char *what;
    } kinds[] = {
        {{'F', 'E', 'A', '1'}, "is of version 1 of Feather, which cannot be read: write version 2"},
        {{'P', 'A', 'R', '1'}, "is a file of Parquet, not of Arrow"},
        {{0x28, 0xb5, 0x2f, 0xfd},
         "is compressed as a whole: unpack it, or let Arrow compress its batches"},
        {{0x1f, 0x8b, 0x08, 0x00},
         "is compressed as a whole: unpack it, or let Arrow compress its batches"},
    };

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (memcmp(first, kinds[i].bytes, kinds[i].bytes[3] ? 4 : 3) == 0) {
            return kinds[i].what;
        }
    }
    return NULL;
}

int arrow_file_scan(struct arrow_file *f, int fd, const struct mr_source_file *file,
                    uint64_t memory_bytes, struct mr_err *err)
{
    uint8_t first[ARROW_MAGIC_BYTES] = {0};
    struct mr_buf buf;
    int rc;

    *f = (struct arrow_file){
        .file = file, .fd = fd, .bytes = file->bytes, .metadata_most = memory_bytes / 2};
    mr_buf_init(&buf, SIZE_MAX / 2);
    MR_TRY(unchanged_check(f, err));
    if (f->bytes == 0) {
        rc = fail(f, MR_E_INVALID, "is empty, and a table of Arrow has a schema at least", err);
        goto out;
    }
    MR_TRY(bytes_read(f, 0, MR_MIN(f->bytes, sizeof first), first, err));
    const char *other = other_kind(first);
    if (other) {
        rc = fail(f, MR_E_UNSUPPORTED, other, err);
        goto out;
    }
    rc = memcmp(first, ARROW_MAGIC, 6) == 0 ? footer_scan(f, &buf, err) : stream_scan(f, &buf, err);
out:
    mr_buf_fini(&buf);
    if (rc < 0) {
        arrow_file_close(f);
    }
    return rc;
}

int arrow_file_open(struct arrow_file *f, const struct mr_source_file *file, uint64_t memory_bytes,
                    struct mr_err *err)
{
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? MR_FAIL(err, MR_E_IO, "cannot open '%s': %s", file->path, strerror(errno))
                  : arrow_file_scan(f, fd, file, memory_bytes, err);
}

void arrow_file_close(struct arrow_file *f)
{
    if (f->file) {
        close(f->fd);
        arrow_schema_fini(&f->schema);
        mr_free(f->blocks);
    }
    *f = (struct arrow_file){0};
}
