/* Joining files of Arrow: batches are copied unchanged, and get one footer.
 *
 * Only files of this writer: their batches are contiguous and have no dictionaries, which could not be joined without
 * decoding rows. They are recognised by their head, which is generated and compared. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "arrow.h"
#include "base/mem.h"
#include "base/vec.h"
#include "table/io/io.h"

#define MEMORY_BYTES ((uint64_t)1 << 30) /* for metadata */

/* Batches of a part. */
struct stretch {
    uint64_t from;
    uint64_t bytes;
};

struct merge {
    const struct mr_merge_part *parts;
    size_t count;
    struct mr_schema schema; /* of the first one */
    struct mr_buf head;      /* the head of files of that schema */
    struct stretch *stretches;
    MR_VEC(struct arrow_footer_block) blocks; /* of all */
    uint64_t at;                              /* in the new file */
};

static int foreign(const struct mr_merge_part *part, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_UNSUPPORTED, "%s was written by another program", part->name);
}

static void head_make(struct merge *m, const struct arrow_schema *schema)
{
    struct mr_buf metadata;

    for (uint32_t i = 0; i < schema->count; i++) {
        struct mr_field f;
        arrow_field_column(&schema->fields[i], &f);
        mr_schema_add(&m->schema, &f);
        mr_field_fini(&f);
    }
    mr_buf_init(&metadata, INT32_MAX);
    arrow_put_schema(&metadata, &m->schema);
    const int32_t announced[2] = {-1, (int32_t)metadata.len};
    mr_buf_append(&m->head, ARROW_MAGIC, ARROW_MAGIC_BYTES);
    mr_buf_append(&m->head, announced, sizeof announced);
    mr_buf_append(&m->head, metadata.ptr, metadata.len);
    m->head.failed |= metadata.failed;
    mr_buf_fini(&metadata);
}

static bool has_columns(const struct arrow_schema *found, const struct mr_schema *want)
{
    bool same = found->count == want->count;

    for (uint32_t i = 0; same && i < found->count; i++) {
        struct mr_field f;
        arrow_field_column(&found->fields[i], &f);
        same = mr_field_equals(&f, &want->fields[i]);
        mr_field_fini(&f);
    }
    return same;
}

static int head_check(const struct merge *m, size_t i, const struct arrow_file *f,
                      struct mr_err *err)
{
    if (!has_columns(&f->schema, &m->schema)) {
        return MR_FAIL(err, MR_E_INVALID, "%s has other columns than %s", m->parts[i].name,
                       m->parts[0].name);
    }
    char *head = mr_try_alloc(m->head.len);
    if (!head || m->head.failed) {
        mr_free(head);
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the schema of %s", m->parts[i].name);
    }
    const bool is_ours = pread(f->fd, head, m->head.len, 0) == (ssize_t)m->head.len &&
                         memcmp(head, m->head.ptr, m->head.len) == 0;
    mr_free(head);
    return is_ours ? MR_OK : foreign(&m->parts[i], err);
}

/* Takes its batches, which must be contiguous up to the end mark. */
static int blocks_take(struct merge *m, size_t i, const struct arrow_file *f, struct mr_buf *buf,
                       struct mr_err *err)
{
    uint64_t at = m->head.len;

    for (size_t k = 0; k < f->count; k++) {
        struct arrow_message message;
        uint64_t body_at = 0;
        bool is_end;
        int rc = arrow_file_message(f, f->blocks[k].at, buf, &message, &body_at, &is_end, err);
        if (rc < 0) {
            return rc;
        }
        if (is_end || f->blocks[k].is_dictionary || f->blocks[k].at != at) {
            return foreign(&m->parts[i], err);
        }
        const struct arrow_footer_block block = {(int64_t)(m->at + at - m->head.len),
                                                 (int32_t)(body_at - at), 0,
                                                 (int64_t)message.body_bytes};
        MR_VEC_PUSH(&m->blocks, block);
        at = body_at + message.body_bytes;
    }
    if (at + 8 != f->bytes) {
        return foreign(&m->parts[i], err);
    }
    m->stretches[i] = (struct stretch){m->head.len, at - m->head.len};
    m->at += at - m->head.len;
    return MR_OK;
}

static int part_probe(struct merge *m, size_t i, struct mr_buf *buf, struct mr_err *err)
{
    const struct mr_merge_part *part = &m->parts[i];
    const int fd = mr_merge_open(part, err);
    struct arrow_file f = {0};
    struct stat st;
    int rc;

    if (fd < 0) {
        return fd;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return MR_FAIL(err, MR_E_IO, "cannot read %s: no plain file", part->name);
    }
    const struct mr_source_file file = {.path = part->name,
                                        .bytes = (uint64_t)st.st_size,
                                        .mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) +
                                                    st.st_mtim.tv_nsec};
    MR_TRY(arrow_file_scan(&f, fd, &file, MEMORY_BYTES, err));
    if (i == 0) {
        head_make(m, &f.schema);
        m->at = m->head.len;
    }
    MR_TRY(head_check(m, i, &f, err));
    rc = blocks_take(m, i, &f, buf, err);
out:
    arrow_file_close(&f);
    return rc;
}

int arrow_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err)
{
    struct merge m = {.parts = parts, .count = count};
    struct mr_buf buf;
    uint64_t bytes;
    int rc = MR_OK;

    mr_buf_init(&buf, SIZE_MAX / 2);
    mr_buf_init(&m.head, INT32_MAX);
    m.stretches = MR_NEW_ARRAY(struct stretch, count + 1);
    for (size_t i = 0; i < count; i++) {
        MR_TRY(part_probe(&m, i, &buf, err));
    }
    MR_TRY(mr_fd_write(out, m.head.ptr, m.head.len, err));
    for (size_t i = 0; i < count; i++) {
        MR_TRY(mr_merge_copy(&parts[i], m.stretches[i].from, m.stretches[i].bytes, out, err));
    }
    rc = arrow_end_write(out, &m.schema, m.blocks.at, m.blocks.len, NULL, &bytes, err);
out:
    mr_buf_fini(&buf);
    mr_buf_fini(&m.head);
    mr_free(m.stretches);
    MR_VEC_FINI(&m.blocks);
    mr_schema_fini(&m.schema);
    return rc;
}
