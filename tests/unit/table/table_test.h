/* What the tests of tables share: a folder for files, rows as text. */
#ifndef MR_TABLE_TEST_H
#define MR_TABLE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "table/table.h"

static char folder[64];

static int folder_make(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/mr-table-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static void folder_empty(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *e;

    while (dir && (e = readdir(dir))) {
        char below[512];
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            folder_empty(below);
            rmdir(below);
        } else if (e->d_type != DT_DIR) {
            unlink(below);
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static int folder_drop(void **state)
{
    (void)state;
    mr_mem_fail_after(0);
    folder_empty(folder);
    return rmdir(folder);
}

/* The path of a file there; a few at a time. */
static const char *path_of(const char *name)
{
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *file_put(const char *name, const void *data, size_t len)
{
    const char *path = path_of(name);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *file_text(const char *name, const char *text)
{
    return file_put(name, text, strlen(text));
}

/* The whole file, with a NUL; mr_free. */
static inline char *file_get(const char *path, size_t *out_len)
{
    struct stat st;
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *text = mr_alloc((size_t)st.st_size + 1);
    *out_len = fread(text, 1, (size_t)st.st_size, f);
    fclose(f);
    return text;
}

/* What a writer makes of the rows; mr_free. */
static char *rows_text(const struct mr_rows *rows, enum mr_table_format format)
{
    const char *path = path_of("written");
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct mr_writer_options options = {.format = format};
    struct mr_writer *w;
    struct mr_err err = {0};
    size_t len;

    assert_int_equal(mr_writer_new(&w, fd, rows->schema, &options, &err), MR_OK);
    assert_int_equal(mr_writer_put(w, rows, 0, rows->count, &err), MR_OK);
    assert_int_equal(mr_writer_finish(w, &err), MR_OK);
    const uint64_t bytes = mr_writer_bytes(w);
    mr_writer_free(&w);
    close(fd);
    char *text = file_get(path, &len);
    assert_int_equal(bytes, len);
    return text;
}

static inline struct mr_source *source_open(const char *path, const struct mr_source_options *more)
{
    struct mr_source_options options = more ? *more : (struct mr_source_options){0};
    struct mr_source *s = NULL;
    struct mr_err err = {0};

    options.paths = &path;
    options.path_count = 1;
    if (mr_source_open(&s, &options, &err) != MR_OK) {
        fail_msg("%s", err.msg);
    }
    return s;
}

/* The error of opening, checked for its status and a part of its text. */
static inline void source_refused(const char *path, const struct mr_source_options *more,
                                  int status, const char *part)
{
    struct mr_source_options options = more ? *more : (struct mr_source_options){0};
    struct mr_source *s = NULL;
    struct mr_err err = {0};

    options.paths = &path;
    options.path_count = 1;
    assert_int_equal(mr_source_open(&s, &options, &err), status);
    if (!strstr(err.msg, part)) {
        fail_msg("'%s' is not in '%s'", part, err.msg);
    }
    assert_null(s);
}

static inline struct mr_rows *rows_get(struct mr_source *s, size_t file, uint64_t first,
                                       uint64_t max_rows)
{
    struct mr_rows *rows = NULL;
    struct mr_err err = {0};

    if (mr_source_read(s, file, first, max_rows, UINT64_MAX, &rows, &err) != MR_OK) {
        fail_msg("%s", err.msg);
    }
    if (rows) {
        assert_int_equal(mr_rows_check(rows, &err), MR_OK);
    }
    return rows;
}

static inline void assert_fault(const struct mr_rows *rows, uint64_t row, const char *part)
{
    const char *text = mr_rows_fault_of(rows, row);

    assert_non_null(text);
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
    for (size_t i = 0; i < rows->schema->count; i++) {
        assert_true(mr_column_is_null(&rows->columns[i], row));
    }
}

/* Rows [first, first + count) are those of `all`, which has an integer or a text first and a text as third column. */
static inline void assert_rows_are(struct mr_source *s, const struct mr_rows *all, uint64_t first,
                                   uint64_t count)
{
    struct mr_rows *rows = rows_get(s, 0, first, count);

    if (first >= all->count) {
        assert_null(rows);
        return;
    }
    assert_int_equal(rows->count, MR_MIN(count, all->count - first));
    for (uint64_t r = 0; r < rows->count; r++) {
        const char *fault = mr_rows_fault_of(all, first + r);
        assert_int_equal(!fault, !mr_rows_fault_of(rows, r));
        if (fault) {
            assert_string_equal(fault, mr_rows_fault_of(rows, r));
        }
        for (int c = 0; c < 3; c += 2) {
            if (all->schema->fields[c].type == MR_COLUMN_I64) {
                assert_int_equal(((const int64_t *)rows->columns[c].values)[r],
                                 ((const int64_t *)all->columns[c].values)[first + r]);
                continue;
            }
            const mr_bytes a = mr_column_bytes(&rows->columns[c], r);
            const mr_bytes b = mr_column_bytes(&all->columns[c], first + r);
            assert_int_equal(a.len, b.len);
            assert_memory_equal(a.ptr, b.ptr, a.len);
        }
    }
    mr_rows_unref(&rows);
}

/* Reading reports any failed allocation, and later returns all rows of the file. */
static inline void assert_no_memory_is_told(struct mr_source *s, uint64_t count)
{
    struct mr_rows *rows = NULL;
    struct mr_err err;
    int failures = 0;

    for (uint64_t n = 1;; n++) {
        mr_mem_fail_after(n);
        const int rc = mr_source_read(s, 0, 0, 1000, UINT64_MAX, &rows, &err);
        mr_mem_fail_after(0);
        if (rc == MR_OK) {
            break;
        }
        assert_int_equal(rc, MR_E_EXHAUSTED);
        assert_null(rows);
        failures++;
    }
    assert_true(failures > 20);
    assert_int_equal(rows->count, count);
    mr_rows_unref(&rows);
}

/* The types of a source, "a I64, b STRING". */
static inline void assert_types(const struct mr_source *s, const char *expected)
{
    const struct mr_schema *schema = mr_source_schema(s);
    char text[1024] = "";

    for (size_t i = 0; i < schema->count; i++) {
        char type[64];
        const size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s %s", i ? ", " : "", schema->fields[i].name,
                 mr_field_text(&schema->fields[i], type, sizeof type));
    }
    assert_string_equal(text, expected);
}

#endif
