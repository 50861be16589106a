/* Joining files of text, and copying for all formats. */
#include "table/merge.h"

#include <unistd.h>

#include "base/mem.h"
#include "table/arrow/arrow.h"
#include "table/io/io.h"
#include "table/parquet/parquet.h"
#include "table/rows/formats.h"

#define BLOCK ((size_t)1 << 20)

/* Reads the first record of a CSV file, with its line feed. A line feed within quotes is part of a name. */
static int head_read(int fd, const char *name, struct mr_buf *out, struct mr_err *err)
{
    bool is_quoted = false;
    size_t at = 0;

    mr_buf_reset(out);
    for (;;) {
        for (; at < out->len; at++) {
            is_quoted ^= out->ptr[at] == '"';
            if (out->ptr[at] == '\n' && !is_quoted) {
                out->len = at + 1;
                return MR_OK;
            }
        }
        char *room = mr_buf_reserve(out, BLOCK);
        const ssize_t n = room ? pread(fd, room, BLOCK, (off_t)out->len) : -1;
        if (n <= 0) {
            return MR_FAIL(err, MR_E_INVALID, "%s: there is no end of its first line", name);
        }
        out->len += (size_t)n;
    }
}

/* Finds the size of a part and, with `head`, its first record. */
static int part_probe(const struct mr_merge_part *part, struct mr_buf *head, uint64_t *out_bytes,
                      struct mr_err *err)
{
    const int fd = mr_merge_open(part, err);

    if (fd < 0) {
        return fd;
    }
    int rc = mr_merge_size(fd, part->name, out_bytes, err);
    if (rc == MR_OK && head) {
        rc = head_read(fd, part->name, head, err);
    }
    close(fd);
    return rc;
}

static int merge_csv(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err)
{
    struct mr_buf first;
    struct mr_buf head;
    uint64_t bytes;
    int rc = MR_OK;

    mr_buf_init(&first, 64 * BLOCK);
    mr_buf_init(&head, 64 * BLOCK);
    for (size_t i = 0; i < count; i++) {
        struct mr_buf *b = i ? &head : &first;
        MR_TRY(part_probe(&parts[i], b, &bytes, err));
        if (!mr_str_eq(mr_buf_view(&first), mr_buf_view(b))) {
            rc = MR_FAIL(err, MR_E_INVALID, "%s has other columns than %s", parts[i].name,
                         parts[0].name);
            goto out;
        }
        const uint64_t from = i ? b->len : 0;
        MR_TRY(mr_merge_copy(&parts[i], from, bytes - from, out, err));
    }
out:
    mr_buf_fini(&first);
    mr_buf_fini(&head);
    return rc;
}

/* Also for compressed ones: readers accept concatenated frames or members. */
static int merge_lines(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err)
{
    uint64_t bytes;
    int rc = MR_OK;

    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        rc = part_probe(&parts[i], NULL, &bytes, err);
        rc = rc < 0 ? rc : mr_merge_copy(&parts[i], 0, bytes, out, err);
    }
    return rc;
}

int mr_table_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err)
{
    const mr_str name = mr_str_c(count > 0 ? parts[0].name : "");
    const enum mr_table_format format = mr_table_format_of(name);

    for (size_t i = 1; i < count; i++) {
        if (mr_table_format_of(mr_str_c(parts[i].name)) != format ||
            mr_packing_named(mr_str_c(parts[i].name)) != mr_packing_named(name)) {
            return MR_FAIL(err, MR_E_INVALID, "%s and %s are of two formats", parts[0].name,
                           parts[i].name);
        }
    }
    switch (format) {
    case MR_TABLE_ARROW: return arrow_merge(parts, count, out, err);
    case MR_TABLE_PARQUET: return parquet_merge(parts, count, out, err);
    case MR_TABLE_JSONL: return merge_lines(parts, count, out, err);
    case MR_TABLE_CSV:
        if (mr_packing_named(name) == PLAIN) {
            return merge_csv(parts, count, out, err);
        }
        break;
    default: break;
    }
    return MR_FAIL(err, MR_E_UNSUPPORTED, "%.*s: files of this kind cannot be merged",
                   MR_STR_ARG(name));
}
