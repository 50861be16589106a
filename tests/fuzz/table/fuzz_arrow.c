/* Arrow IPC: the same bytes as a file and as a stream from a descriptor.
 *
 * All rows that are read match the schema, are the same when they are read again, and survive writing and reading. The
 * first byte selects the limits. */
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"
#include "table/table.h"

#define READS_MOST 64
#define ROWS_MOST  500
#define BYTES_MOST ((uint64_t)1 << 16)

static int file_make(const void *data, size_t size, char *path, size_t room)
{
    const int fd = memfd_create("table", MFD_CLOEXEC);

    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    snprintf(path, room, "/proc/self/fd/%d", fd);
    return fd;
}

static struct mr_rows *read_at(struct mr_source *s, uint64_t first, uint64_t count)
{
    struct mr_rows *rows;
    struct mr_err err;
    const int rc = mr_source_read(s, 0, first, count, BYTES_MOST, &rows, &err);

    if (rc < 0) {
        REQUIRE((rc == MR_E_INVALID || rc == MR_E_EXHAUSTED || rc == MR_E_UNSUPPORTED) &&
                err.msg[0]);
        return NULL;
    }
    REQUIRE(!rows ||
            (rows->count > 0 && rows->count <= count && mr_rows_check(rows, &err) == MR_OK));
    return rows;
}

static void there_and_back(const struct mr_rows *rows)
{
    const struct mr_writer_options options = {.format = MR_TABLE_ARROW};
    char path[64];
    const char *paths = path;
    const int fd = file_make("", 0, path, sizeof path);
    struct mr_source *s;
    struct mr_writer *w;
    struct mr_err err;

    REQUIRE(mr_writer_new(&w, fd, rows->schema, &options, &err) == MR_OK);
    REQUIRE(mr_writer_put(w, rows, 0, rows->count, &err) == MR_OK);
    REQUIRE(mr_writer_finish(w, &err) == MR_OK);
    REQUIRE((off_t)mr_writer_bytes(w) == lseek(fd, 0, SEEK_CUR));
    mr_writer_free(&w);
    const struct mr_source_options again = {
        .paths = &paths, .path_count = 1, .format = MR_TABLE_ARROW};
    REQUIRE(mr_source_open(&s, &again, &err) == MR_OK);
    REQUIRE(mr_source_file(s, 0).rows == (int64_t)rows->count);
    struct mr_rows *back = read_at(s, 0, 1);
    REQUIRE(back && back->fault_count == 0);
    for (size_t i = 0; i < rows->schema->count; i++) {
        REQUIRE(mr_column_is_null(&back->columns[i], 0) == mr_column_is_null(&rows->columns[i], 0));
    }
    mr_rows_unref(&back);
    mr_source_close(&s);
    close(fd);
}

/* To the end, or far enough; some rows again. */
static void all_read(struct mr_source *s, bool is_file)
{
    uint64_t at = 0;

    for (int i = 0; i < READS_MOST; i++) {
        struct mr_rows *rows = read_at(s, at, 1 + (uint64_t)i * 7 % ROWS_MOST);
        if (!rows) {
            break;
        }
        there_and_back(rows);
        struct mr_rows *again = is_file && i % 5 == 0 ? read_at(s, at, 1) : NULL;
        if (again) {
            REQUIRE(!mr_rows_fault_of(again, 0) == !mr_rows_fault_of(rows, 0));
        }
        at += rows->count;
        mr_rows_unref(&again);
        mr_rows_unref(&rows);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    const char *paths = path;
    struct mr_source *s;
    struct mr_err err;

    if (size == 0) {
        return 0;
    }
    const int fd = file_make(data + 1, size - 1, path, sizeof path);
    const struct mr_source_stream stream = {.fd = fd};
    struct mr_source_options options = {.paths = &paths,
                                        .path_count = 1,
                                        .format = MR_TABLE_ARROW,
                                        .max_cell_bytes = data[0] & 1 ? 16 : 0,
                                        .memory_bytes = data[0] & 2 ? 4096 : 1 << 20};
    for (int is_file = 1; is_file >= 0; is_file--) {
        if (mr_source_open(&s, &options, &err) == MR_OK) {
            all_read(s, is_file);
            mr_source_close(&s);
        } else {
            REQUIRE(err.status < 0 && err.msg[0]);
        }
        options.stream = &stream;
        options.paths = NULL;
        options.path_count = 0;
    }
    close(fd);
    return 0;
}
