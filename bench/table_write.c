/* Writes a Parquet file of a key and a list of floats from the same rows again and again, five times, and prints the
 * seconds of the fastest: the page cache of a virtual machine is slow where its memory is used for the first time.
 * bench_table_write OUT WIDTH ROWS. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "table/table.h"

#define ROWS_A_PUT 8192
#define FILES      5

static struct mr_rows *rows_make(const struct mr_schema *schema, uint64_t width)
{
    struct mr_rows *rows = mr_rows_new(schema);
    struct mr_column *item = mr_rows_alloc(rows, sizeof *item);
    int64_t *key = mr_rows_alloc(rows, ROWS_A_PUT * sizeof *key);
    float *x = mr_rows_alloc(rows, ROWS_A_PUT * width * sizeof *x);

    srand48(1);
    for (uint64_t i = 0; i < ROWS_A_PUT; i++) {
        key[i] = (int64_t)i;
        for (uint64_t k = 0; k < width; k++) {
            x[i * width + k] = (float)drand48();
        }
    }
    *item = (struct mr_column){.count = ROWS_A_PUT * width, .values = x};
    rows->count = ROWS_A_PUT;
    rows->columns[0] = (struct mr_column){.count = ROWS_A_PUT, .values = key};
    rows->columns[1] = (struct mr_column){.count = ROWS_A_PUT, .item = item};
    return rows;
}

static int file_write(const char *path, const struct mr_schema *schema, const struct mr_rows *rows,
                      uint64_t count, int64_t *out_ns, struct mr_err *err)
{
    const struct mr_writer_options options = {.format = MR_TABLE_PARQUET};
    struct mr_writer *writer = NULL;
    int rc;

    unlink(path);
    const int64_t since_ns = mr_now_ns();
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot open %s", path);
    }
    MR_TRY(mr_writer_new(&writer, fd, schema, &options, err));
    for (uint64_t left = count; left > 0;) {
        const uint64_t n = MR_MIN(left, (uint64_t)ROWS_A_PUT);
        MR_TRY(mr_writer_put(writer, rows, 0, n, err));
        left -= n;
    }
    rc = mr_writer_finish(writer, err);
out:
    mr_writer_free(&writer);
    close(fd);
    *out_ns = mr_now_ns() - since_ns;
    return rc;
}

int main(int argc, char **argv)
{
    static char element_name[] = "element", key_name[] = "id", list_name[] = "y";
    struct mr_field element = {.name = element_name, .type = MR_COLUMN_F32};
    struct mr_field fields[] = {
        {.name = key_name, .type = MR_COLUMN_I64},
        {.name = list_name, .type = MR_COLUMN_FIXED_LIST, .item = &element}};
    const struct mr_schema schema = {fields, 2};
    int64_t least_ns = INT64_MAX;
    struct mr_err err;

    if (argc != 4) {
        fprintf(stderr, "usage: bench_table_write OUT WIDTH ROWS\n");
        return 2;
    }
    fields[1].width = strtoull(argv[2], NULL, 10);
    struct mr_rows *rows = rows_make(&schema, fields[1].width);
    for (int i = 0; i < FILES; i++) {
        int64_t ns = 0;
        if (file_write(argv[1], &schema, rows, strtoull(argv[3], NULL, 10), &ns, &err) < 0) {
            fprintf(stderr, "%s\n", err.msg);
            return 1;
        }
        least_ns = MR_MIN(least_ns, ns);
    }
    printf("%.6f\n", (double)least_ns / 1e9);
    mr_rows_unref(&rows);
    return 0;
}
