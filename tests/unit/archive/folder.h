/* A folder for a test, and files in it. */
#ifndef TEST_FOLDER_H
#define TEST_FOLDER_H

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "archive/archive.h"
#include "base/mem.h"

static char folder[64];

static inline int folder_new(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/test_archive_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int folder_end(void **state)
{
    struct mr_err err;

    (void)state;
    return mr_tree_remove(folder, &err);
}

/* A path in it; the last 32 stay. */
static inline const char *in_folder(const char *name)
{
    static char texts[32][256];
    static unsigned next;
    char *out = texts[next++ % 32];

    snprintf(out, sizeof texts[0], "%s/%s", folder, name);
    return out;
}

static inline void folder_make(const char *name)
{
    assert_int_equal(mkdir(in_folder(name), 0755), 0);
}

static inline void file_write(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static inline void assert_file(const char *path, const char *text)
{
    char got[256] = "";
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    got[fread(got, 1, sizeof got - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(got, text);
}

static inline bool is_there(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

#endif
