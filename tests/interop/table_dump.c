/* Reads a table and prints it, for the tests that compare it with what another program wrote
 * (tests/integration/50): a line of JSON with the schema, the files and their rows, then a line per row.
 *
 *   table_dump [option]… PATH…
 *     --query SQL            instead of paths
 *     --columns A,B          those columns
 *     --fixed NAME=N         reads the list NAME as lists of N items
 *     --as NAME=TYPE         reads NAME as F32, F64, I64, STRING
 *     --range FILE:FIRST:N   these rows (again and again: in this order); without it all rows of all files
 *     --batch N, --bytes N   most rows and bytes a read
 *     --max-cell N, --memory N, --threads N
 *     --pause FIFO           opens it after the first range, and waits until nobody writes to it
 *     --no-header, --delimiter C
 *     --to FILE              writes the rows as well, in the format of its name; those at fault as nulls
 *     --count                reads all, prints rows and bytes instead
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "table/table.h"
#include "tensor/tensor.h"

#define MOST 64

static struct mr_source_options options;
static struct mr_schema wanted;
static const char *names[MOST];
static const char *ranges[MOST];
static size_t range_count;
static uint64_t batch = UINT64_MAX;
static uint64_t max_bytes = UINT64_C(1) << 20;
static bool is_count;
static const char *pause_at;
static uint64_t total_rows;
static uint64_t total_bytes;
static const char *to_path;
static struct mr_writer *writer;
static int to_fd = -1;

static void die(struct mr_source *s, const struct mr_err *err)
{
    mr_source_close(&s);
    printf("error %s %s\n", mr_status_name(err->status), err->msg);
    mr_schema_fini(&wanted);
    exit(1);
}

static void text_print(const uint8_t *p, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '"' || p[i] == '\\' || p[i] < 0x20) {
            printf("\\u%04x", p[i]);
        } else {
            putchar(p[i]);
        }
    }
    putchar('"');
}

static void hex_print(const uint8_t *p, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++) {
        printf("%02x", p[i]);
    }
    putchar('"');
}

static void decimal_print(const uint8_t *p)
{
    __int128 v;
    char digits[48];
    int n = 0;

    memcpy(&v, p, sizeof v);
    const bool is_negative = v < 0;
    unsigned __int128 u = is_negative ? 0 - (unsigned __int128)v : (unsigned __int128)v;
    do {
        digits[n++] = (char)('0' + (int)(u % 10));
        u /= 10;
    } while (u > 0);
    printf("\"%s", is_negative ? "-" : "");
    while (n > 0) {
        putchar(digits[--n]);
    }
    putchar('"');
}

static void list_print(const struct mr_field *f, const struct mr_column *c, uint64_t row);

static void bytes_print(const struct mr_column *c, uint64_t row, bool is_text)
{
    const mr_bytes s = mr_column_bytes(c, row);

    (is_text ? text_print : hex_print)(s.ptr, s.len);
}

static void whole_print(int type, const uint8_t *at)
{
    switch (type) {
    case MR_COLUMN_I8: printf("%d", *(const int8_t *)at); break;
    case MR_COLUMN_I16: printf("%d", *(const int16_t *)(const void *)at); break;
    case MR_COLUMN_DATE:
    case MR_COLUMN_I32: printf("%" PRId32, *(const int32_t *)(const void *)at); break;
    case MR_COLUMN_U8: printf("%u", *at); break;
    case MR_COLUMN_U16: printf("%u", *(const uint16_t *)(const void *)at); break;
    case MR_COLUMN_U32: printf("%" PRIu32, *(const uint32_t *)(const void *)at); break;
    case MR_COLUMN_U64: printf("%" PRIu64, *(const uint64_t *)(const void *)at); break;
    default: printf("%" PRId64, *(const int64_t *)(const void *)at);
    }
}

static void value_print(const struct mr_field *f, const struct mr_column *c, uint64_t row)
{
    if (mr_column_is_null(c, row)) {
        printf("null");
        return;
    }
    const uint8_t *at = (const uint8_t *)c->values + row * mr_column_type_bytes(f->type);
    switch (f->type) {
    case MR_COLUMN_BOOL: printf(*at ? "true" : "false"); break;
    case MR_COLUMN_F16:
        printf("%.9g", (double)mr_fp16_to_float(*(const uint16_t *)(const void *)at));
        break;
    case MR_COLUMN_F32: printf("%.9g", (double)*(const float *)(const void *)at); break;
    case MR_COLUMN_F64: printf("%.17g", *(const double *)(const void *)at); break;
    case MR_COLUMN_DECIMAL: decimal_print(at); break;
    case MR_COLUMN_STRING:
    case MR_COLUMN_BINARY: bytes_print(c, row, f->type == MR_COLUMN_STRING); break;
    case MR_COLUMN_LIST:
    case MR_COLUMN_FIXED_LIST: list_print(f, c, row); break;
    default: whole_print((int)f->type, at);
    }
}

static void list_print(const struct mr_field *f, const struct mr_column *c, uint64_t row)
{
    const bool is_fixed = f->type == MR_COLUMN_FIXED_LIST;
    const uint64_t from = is_fixed ? row * f->width : c->begin[row];
    const uint64_t to = is_fixed ? from + f->width : c->begin[row + 1];

    putchar('[');
    for (uint64_t i = from; i < to; i++) {
        printf(i > from ? "," : "");
        value_print(f->item, c->item, i);
    }
    putchar(']');
}

static void rows_print(const struct mr_rows *r)
{
    for (uint64_t row = 0; row < r->count; row++) {
        const char *fault = mr_rows_fault_of(r, row);
        if (fault) {
            printf("{\"fault\":");
            text_print((const uint8_t *)fault, strlen(fault));
            printf("}\n");
            continue;
        }
        putchar('[');
        for (size_t i = 0; i < r->schema->count; i++) {
            printf(i > 0 ? "," : "");
            value_print(&r->schema->fields[i], &r->columns[i], row);
        }
        printf("]\n");
    }
}

static void range_read(struct mr_source *s, size_t file, uint64_t first, uint64_t count)
{
    struct mr_err err = {0};

    while (count > 0) {
        struct mr_rows *rows;
        if (mr_source_read(s, file, first, MR_MIN(count, batch), max_bytes, &rows, &err) < 0) {
            die(s, &err);
        }
        if (!rows) {
            return;
        }
        if (mr_rows_check(rows, &err) < 0) {
            mr_rows_unref(&rows);
            die(s, &err);
        }
        if (writer && mr_writer_put(writer, rows, 0, rows->count, &err) < 0) {
            die(s, &err);
        }
        if (!is_count) {
            rows_print(rows);
        }
        total_rows += rows->count;
        total_bytes += rows->bytes;
        first += rows->count;
        count -= rows->count;
        mr_rows_unref(&rows);
    }
}

static void to_open(struct mr_source *s)
{
    const mr_str path = mr_str_c(to_path);
    const struct mr_writer_options with = {
        .format = mr_table_format_of(path),
        .compression = mr_str_ends(path, MR_STR(".gz"))    ? MR_COMPRESSION_GZIP
                       : mr_str_ends(path, MR_STR(".zst")) ? MR_COMPRESSION_ZSTD
                                                           : MR_COMPRESSION_NONE,
        .is_stream = mr_str_ends(path, MR_STR(".arrows")),
        .delimiter = options.delimiter};
    struct mr_err err;

    to_fd = open(to_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (to_fd < 0 || mr_writer_new(&writer, to_fd, mr_source_schema(s), &with, &err) < 0) {
        die(s, &err);
    }
}

static void head_print(const struct mr_source *s)
{
    const struct mr_schema *schema = mr_source_schema(s);
    char text[256];

    printf("{\"schema\":[");
    for (size_t i = 0; i < schema->count; i++) {
        const char *name = schema->fields[i].name;
        printf(i > 0 ? ",[" : "[");
        text_print((const uint8_t *)name, strlen(name));
        printf(",\"%s\"]", mr_field_text(&schema->fields[i], text, sizeof text));
    }
    printf("],\"rows\":[");
    for (size_t i = 0; i < mr_source_file_count(s); i++) {
        printf("%s%" PRId64, i > 0 ? "," : "", mr_source_file(s, i).rows);
    }
    printf("]}\n");
}

static void wanted_add(char *text, bool is_fixed)
{
    char *value = strchr(text, '=');
    struct mr_field item = {.name = (char *)(uintptr_t) "element", .type = MR_COLUMN_F32};
    struct mr_field f = {.name = text};

    *value++ = '\0';
    if (is_fixed) {
        f.type = MR_COLUMN_FIXED_LIST;
        f.width = strtoull(value, NULL, 10);
        f.item = &item;
    } else {
        f.type = strcmp(value, "F32") == 0   ? MR_COLUMN_F32
                 : strcmp(value, "F64") == 0 ? MR_COLUMN_F64
                 : strcmp(value, "I64") == 0 ? MR_COLUMN_I64
                                             : MR_COLUMN_STRING;
    }
    mr_schema_add(&wanted, &f);
}

static void option_take(const char *name, char *value)
{
    if (strcmp(name, "--query") == 0) {
        options.query = value;
    } else if (strcmp(name, "--columns") == 0) {
        for (char *p = strtok(value, ","); p && options.column_count < MOST;
             p = strtok(NULL, ",")) {
            names[options.column_count++] = p;
        }
        options.columns = names;
    } else if (strcmp(name, "--fixed") == 0 || strcmp(name, "--as") == 0) {
        wanted_add(value, name[2] == 'f');
    } else if (strcmp(name, "--range") == 0 && range_count < MOST) {
        ranges[range_count++] = value;
    } else if (strcmp(name, "--to") == 0) {
        to_path = value;
    } else if (strcmp(name, "--delimiter") == 0) {
        options.delimiter = *value;
    } else if (strcmp(name, "--pause") == 0) {
        pause_at = value;
    } else if (strcmp(name, "--batch") == 0) {
        batch = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--bytes") == 0) {
        max_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--max-cell") == 0) {
        options.max_cell_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--memory") == 0) {
        options.memory_bytes = strtoull(value, NULL, 10);
    } else if (strcmp(name, "--threads") == 0) {
        options.threads = (uint32_t)strtoul(value, NULL, 10);
    } else {
        fprintf(stderr, "table_dump: unknown option %s\n", name);
        exit(2);
    }
}

static void wait_for_fifo(void)
{
    FILE *fifo = fopen(pause_at, "r");

    while (fifo && fgetc(fifo) != EOF) {
    }
    if (fifo) {
        fclose(fifo);
    }
}

static void ranges_read(struct mr_source *s)
{
    for (size_t k = 0; k < range_count; k++) {
        char *p = NULL;
        const size_t file = strtoul(ranges[k], &p, 10);
        const uint64_t first = strtoull(p + 1, &p, 10);
        range_read(s, file, first, strtoull(p + 1, NULL, 10));
        if (k == 0 && pause_at) {
            wait_for_fifo();
        }
    }
}

int main(int argc, char **argv)
{
    struct mr_source *s = NULL;
    struct mr_err err = {0};
    int i = 1;

    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--count") == 0) {
            is_count = true;
        } else if (strcmp(argv[i], "--no-header") == 0) {
            options.has_no_header = true;
        } else if (i + 1 < argc) {
            option_take(argv[i], argv[i + 1]);
            i++;
        }
    }
    options.paths = (const char *const *)argv + i;
    options.path_count = (size_t)(argc - i);
    options.wanted = wanted.count > 0 ? &wanted : NULL;
    if (mr_source_open(&s, &options, &err) < 0) {
        die(s, &err);
    }
    if (!is_count) {
        head_print(s);
    }
    if (to_path) {
        to_open(s);
    }
    for (size_t f = 0; range_count == 0 && f < mr_source_file_count(s); f++) {
        range_read(s, f, 0, UINT64_MAX);
    }
    ranges_read(s);
    if (is_count) {
        printf("%" PRIu64 " rows, %" PRIu64 " bytes\n", total_rows, total_bytes);
    }
    if (writer && mr_writer_finish(writer, &err) < 0) {
        die(s, &err);
    }
    mr_writer_free(&writer);
    mr_source_close(&s);
    mr_schema_fini(&wanted);
    return 0;
}
