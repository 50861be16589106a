/* Writes a table that comes on standard input, so that a test in another language can make any rows and read back what
 * became of them.
 *
 *   table_write FORMAT OUT [zstd|none [ROW_GROUP_BYTES [ROWS_PER_PUT [KEY VALUE]…]]]
 *
 * Input, little-endian: u32 count of fields, then each of them as
 *   u8 type, u8 is_nullable, u8 precision, u8 scale, u64 width, u32 length of its name, name, and for lists the item;
 * then u64 count of rows, then row by row each value: for what can be null u8 1 = there, 0 = null; numbers in their own
 * size, strings as u32 length and bytes, lists as u32 count and items. Prints the bytes that the writer counts before
 * it finishes. Exit status 1 and a sentence when the writer fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "table/table.h"

static void take(void *to, size_t bytes)
{
    if (bytes > 0 && fread(to, bytes, 1, stdin) != 1) {
        fprintf(stderr, "the input ends too early\n");
        exit(2);
    }
}

static uint32_t take_u32(void)
{
    uint32_t v;
    take(&v, sizeof v);
    return v;
}

static void field_take(struct mr_field *f)
{
    uint8_t fixed[4];

    take(fixed, sizeof fixed);
    *f = (struct mr_field){
        .type = fixed[0], .is_nullable = fixed[1], .precision = fixed[2], .scale = fixed[3]};
    take(&f->width, sizeof f->width);
    const uint32_t len = take_u32();
    f->name = mr_alloc(len + 1);
    take(f->name, len);
    if (f->type == MR_COLUMN_LIST || f->type == MR_COLUMN_FIXED_LIST) {
        f->item = MR_NEW(struct mr_field);
        field_take(f->item);
    }
}

static void value_take(struct mr_column_builder *b)
{
    const struct mr_field *f = b->field;
    uint8_t is_there = 1;

    if (f->is_nullable) {
        take(&is_there, 1);
    }
    if (!is_there) {
        mr_column_add_null(b);
    } else if (f->item) {
        for (uint32_t n = take_u32(); n > 0; n--) {
            value_take(b->item);
        }
        mr_column_end_list(b);
    } else if (f->type == MR_COLUMN_STRING || f->type == MR_COLUMN_BINARY) {
        const uint32_t len = take_u32();
        char *text = mr_alloc(len + 1);
        take(text, len);
        mr_column_add_bytes(b, (mr_str){text, len});
        mr_free(text);
    } else {
        uint8_t number[16];
        take(number, mr_column_type_bytes(f->type));
        mr_column_add(b, number);
    }
}

static void check(int rc, const struct mr_err *err)
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", mr_status_name(rc), err->msg);
        exit(1);
    }
}

/* One batch of rows from the input into the writer, in two calls. */
static void rows_take(struct mr_writer *w, const struct mr_schema *s, struct mr_column_builder *b,
                      uint64_t count)
{
    struct mr_rows *rows = mr_rows_new(s);
    struct mr_err err;

    rows->count = count;
    for (uint64_t i = 0; i < count; i++) {
        for (size_t k = 0; k < s->count; k++) {
            value_take(&b[k]);
        }
    }
    for (size_t k = 0; k < s->count; k++) {
        check(mr_column_builder_finish(&b[k], rows, k, &err), &err);
    }
    check(mr_rows_check(rows, &err), &err);
    check(mr_writer_put(w, rows, 0, count / 2, &err), &err);
    check(mr_writer_put(w, rows, count / 2, count - count / 2, &err), &err);
    mr_rows_unref(&rows);
}

int main(int argc, char **argv)
{
    struct mr_schema s = {0};
    struct mr_writer *w;
    struct mr_err err;
    uint64_t rows;

    if (argc < 3) {
        return 2;
    }
    for (uint32_t n = take_u32(); n > 0; n--) {
        struct mr_field f;
        field_take(&f);
        mr_schema_add(&s, &f);
        mr_field_fini(&f);
    }
    take(&rows, sizeof rows);
    const struct mr_writer_options options = {
        .format = mr_table_format_of(mr_str_c(argv[1])),
        .compression =
            argc > 3 && strcmp(argv[3], "zstd") == 0 ? MR_COMPRESSION_ZSTD : MR_COMPRESSION_NONE,
        .row_group_bytes = argc > 4 ? strtoull(argv[4], NULL, 10) : 0,
        .notes = (const char *const *)(argc > 6 ? argv + 6 : NULL),
        .note_count = argc > 6 ? (size_t)(argc - 6) / 2 : 0};
    const uint64_t batch = argc > 5 ? strtoull(argv[5], NULL, 10) : 1000;
    const int fd = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
        return 2;
    }
    check(mr_writer_new(&w, fd, &s, &options, &err), &err);
    struct mr_column_builder *b = MR_NEW_ARRAY(struct mr_column_builder, s.count);
    for (size_t k = 0; k < s.count; k++) {
        mr_column_builder_init(&b[k], &s.fields[k]);
    }
    for (uint64_t n; rows > 0; rows -= n) {
        n = MR_MIN(rows, batch);
        rows_take(w, &s, b, n);
    }
    printf("%llu\n", (unsigned long long)mr_writer_bytes(w));
    check(mr_writer_finish(w, &err), &err);
    mr_writer_free(&w);
    for (size_t k = 0; k < s.count; k++) {
        mr_column_builder_fini(&b[k]);
    }
    mr_free(b);
    mr_schema_fini(&s);
    close(fd);
    return 0;
}
