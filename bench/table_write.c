/* Writes a Parquet file of a key and a list of floats again and again from the same rows, and says what that took:
 * bench_table_write OUT WIDTH ROWS. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "table/table.h"

#define ROWS_A_PUT 8192

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

int main(int argc, char **argv)
{
    static char element_name[] = "element", key_name[] = "id", list_name[] = "y";
    struct mr_field element = {.name = element_name, .type = MR_COLUMN_F32};
    struct mr_field fields[] = {
        {.name = key_name, .type = MR_COLUMN_I64},
        {.name = list_name, .type = MR_COLUMN_FIXED_LIST, .item = &element}};
    const struct mr_schema schema = {fields, 2};
    const struct mr_writer_options options = {.format = MR_TABLE_PARQUET};
    struct mr_writer *writer;
    struct mr_err err;

    if (argc != 4) {
        fprintf(stderr, "usage: bench_table_write OUT WIDTH ROWS\n");
        return 2;
    }
    fields[1].width = strtoull(argv[2], NULL, 10);
    struct mr_rows *rows = rows_make(&schema, fields[1].width);
    const int fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    const int64_t since_ns = mr_now_ns();
    int rc = fd < 0 ? MR_FAIL(&err, MR_E_IO, "cannot open %s", argv[1])
                    : mr_writer_new(&writer, fd, &schema, &options, &err);
    for (uint64_t left = strtoull(argv[3], NULL, 10); rc == MR_OK && left > 0;) {
        const uint64_t n = MR_MIN(left, (uint64_t)ROWS_A_PUT);
        rc = mr_writer_put(writer, rows, 0, n, &err);
        left -= n;
    }
    rc = rc == MR_OK ? mr_writer_finish(writer, &err) : rc;
    if (rc < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    printf("%.6f\n", (double)(mr_now_ns() - since_ns) / 1e9);
    mr_writer_free(&writer);
    mr_rows_unref(&rows);
    return close(fd) < 0;
}
