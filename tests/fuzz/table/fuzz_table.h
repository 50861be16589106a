/* A table of text from outside: FORMAT is defined by who includes this.
 *
 * The first byte chooses the limits and options. Whatever is read agrees with its schema, is the same in whatever
 * ranges it is read, and comes back when it was written. */
#ifndef MR_FUZZ_TABLE_H
#define MR_FUZZ_TABLE_H

#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"
#include "table/table.h"

struct file {
    int fd;
    char path[64];
};

static struct file file_make(const void *data, size_t size)
{
    struct file f = {.fd = memfd_create("table", MFD_CLOEXEC)};

    REQUIRE(f.fd >= 0 && write(f.fd, data, size) == (ssize_t)size);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    return f;
}

static struct mr_rows *read_at(struct mr_source *s, uint64_t first, uint64_t count)
{
    struct mr_rows *rows;
    struct mr_err err;

    const int rc = mr_source_read(s, 0, first, count, UINT64_MAX, &rows, &err);
    REQUIRE(rc == MR_OK || rc == MR_E_INVALID || rc == MR_E_EXHAUSTED);
    if (rc < 0) {
        return NULL;
    }
    REQUIRE(!rows ||
            (rows->count > 0 && rows->count <= count && mr_rows_check(rows, &err) == MR_OK));
    return rows;
}

static void same_in_pieces(struct mr_source *s, const struct mr_rows *all)
{
    for (uint64_t at = 0; at < all->count;) {
        struct mr_rows *some = read_at(s, at, 1 + at % 3);
        REQUIRE(some);
        for (uint64_t i = 0; i < some->count; i++) {
            const char *a = mr_rows_fault_of(all, at + i);
            const char *b = mr_rows_fault_of(some, i);
            REQUIRE(a ? b && strcmp(a, b) == 0 : !b);
            for (size_t c = 0; c < all->schema->count; c++) {
                REQUIRE(mr_column_is_null(&all->columns[c], at + i) ==
                        mr_column_is_null(&some->columns[c], i));
            }
        }
        at += some->count;
        mr_rows_unref(&some);
    }
    REQUIRE(!read_at(s, all->count, 1));
}

static void there_and_back(const struct mr_rows *rows)
{
    const struct mr_writer_options options = {.format = FORMAT};
    struct file f = file_make("", 0);
    const char *path = f.path;
    struct mr_source *s;
    struct mr_writer *w;
    struct mr_err err;

    REQUIRE(mr_writer_new(&w, f.fd, rows->schema, &options, &err) == MR_OK);
    REQUIRE(mr_writer_put(w, rows, 0, rows->count, &err) == MR_OK);
    REQUIRE(mr_writer_finish(w, &err) == MR_OK);
    REQUIRE((off_t)mr_writer_bytes(w) == lseek(f.fd, 0, SEEK_CUR));
    mr_writer_free(&w);
    const struct mr_source_options again = {
        .paths = &path, .path_count = 1, .format = FORMAT, .wanted = rows->schema};
    REQUIRE(mr_source_open(&s, &again, &err) == MR_OK);
    if (rows->schema->count > 0) {
        struct mr_rows *back = read_at(s, 0, UINT64_MAX);
        REQUIRE(back && back->count == rows->count && back->fault_count == 0);
        mr_rows_unref(&back);
    }
    mr_source_close(&s);
    close(f.fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct file f = file_make(data + 1, size - 1);
    const char *path = f.path;
    const struct mr_source_options options = {.paths = &path,
                                              .path_count = 1,
                                              .format = FORMAT,
                                              .max_cell_bytes = data[0] & 1 ? 16 : 0,
                                              .memory_bytes = data[0] & 2 ? 64 : 1 << 20,
                                              .has_no_header = data[0] & 4,
                                              .delimiter = data[0] & 8 ? ';' : 0};
    struct mr_source *s;
    struct mr_err err;

    if (mr_source_open(&s, &options, &err) == MR_OK) {
        struct mr_rows *all = read_at(s, 0, UINT64_MAX);
        if (all) {
            same_in_pieces(s, all);
            there_and_back(all);
        }
        mr_rows_unref(&all);
        mr_source_close(&s);
    } else {
        REQUIRE(err.status < 0 && err.msg[0]);
    }
    close(f.fd);
    return 0;
}

#endif
