/* Finding the files of a source.
 *
 * A path is a file, a folder or a pattern, tried in this order, so that a file with a bracket in its name is found.
 * Folders are walked recursively, because tables are often partitioned into folders; names in them that begin with a
 * dot or an underscore are skipped, as writers use them for marks and unfinished files; wildcards skip them, too. A
 * file that is named twice counts once, also if one of the names is absolute and the other relative, or goes through a
 * link to a folder. */
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/map.h"
#include "base/mem.h"
#include "finder.h"
#include "s3/s3.h"

#define FOLDER_DEPTH 32
#define FILES_MOST   1000000

void mr_source_file_fini(struct mr_source_file *f)
{
    mr_free((void *)(uintptr_t)f->path);
    mr_free((void *)(uintptr_t)f->etag);
    mr_free((void *)(uintptr_t)f->state);
    mr_free((void *)(uintptr_t)f->bad);
}

int mr_finder_add(struct mr_finder *f, struct mr_source_file file)
{
    if (f->count == FILES_MOST) {
        mr_source_file_fini(&file);
        return MR_FAIL(f->err, MR_E_EXHAUSTED, "more than %d files", FILES_MOST);
    }
    if (f->count == f->room) {
        f->room = MR_MAX(2 * f->room, (size_t)16);
        f->files = mr_realloc_array(f->files, f->room, sizeof *f->files);
    }
    f->files[f->count++] = file;
    return MR_OK;
}

static int file_add(struct mr_finder *f, const char *path, const struct stat *st)
{
    return mr_finder_add(
        f, (struct mr_source_file){
               .path = mr_strndup(path, strlen(path)),
               .bytes = (uint64_t)st->st_size,
               .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
               .rows = -1,
           });
}

bool mr_finder_name_fits(const struct mr_finder *f, const char *name)
{
    const enum mr_table_format format = mr_table_format_of(mr_str_c(name));

    /* A name without a dot has no extension. */
    return strchr(name, '.') && format != MR_TABLE_AUTO &&
           (f->format == MR_TABLE_AUTO || f->format == format);
}

bool mr_finder_is_hidden(const char *pattern, const char *path)
{
    mr_str left[2] = {mr_str_c(pattern), mr_str_c(path)};
    mr_str part[2];

    while (mr_str_split(&left[0], '/', &part[0]) && mr_str_split(&left[1], '/', &part[1])) {
        if (mr_str_starts(part[1], MR_STR("_")) && !mr_str_starts(part[0], MR_STR("_"))) {
            return true;
        }
    }
    return false;
}

static bool is_left_out(const struct mr_finder *f, DIR *dir)
{
    struct stat out, in;

    return f->not_in && stat(f->not_in, &out) == 0 && fstat(dirfd(dir), &in) == 0 &&
           out.st_dev == in.st_dev && out.st_ino == in.st_ino;
}

static int folder_add(struct mr_finder *f, const char *path, int depth)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    int rc = MR_OK;

    if (!dir) {
        return MR_FAIL(f->err, MR_E_IO, "cannot read the folder '%s': %s", path, strerror(errno));
    }
    if (depth > 0 && is_left_out(f, dir)) {
        closedir(dir);
        return MR_OK;
    }
    while (rc == MR_OK && (entry = readdir(dir))) {
        if (entry->d_name[0] == '.' || entry->d_name[0] == '_') {
            continue;
        }
        const size_t room = strlen(path) + strlen(entry->d_name) + 2;
        char *below = mr_alloc(room);
        struct stat st;
        const bool has_slash = path[0] && path[strlen(path) - 1] == '/';
        snprintf(below, room, "%s%s%s", path, has_slash ? "" : "/", entry->d_name);
        if (stat(below, &st) == 0 && S_ISDIR(st.st_mode)) {
            rc = depth < FOLDER_DEPTH
                     ? folder_add(f, below, depth + 1)
                     : MR_FAIL(f->err, MR_E_INVALID, "'%s': folders are too deep", below);
        } else if (mr_finder_name_fits(f, entry->d_name)) {
            rc = stat(below, &st) != 0
                     ? MR_FAIL(f->err, MR_E_IO, "cannot look at '%s': %s", below, strerror(errno))
                 : S_ISREG(st.st_mode) ? file_add(f, below, &st)
                                       : MR_OK;
        }
        mr_free(below);
    }
    closedir(dir);
    return rc;
}

static int found_add(struct mr_finder *f, const char *path, const struct stat *st)
{
    if (S_ISDIR(st->st_mode)) {
        return folder_add(f, path, 0);
    }
    if (!S_ISREG(st->st_mode)) {
        return MR_FAIL(f->err, MR_E_INVALID, "'%s' is no file and no folder", path);
    }
    return file_add(f, path, st);
}

static int path_add(struct mr_finder *f, const char *path)
{
    const size_t before = f->count;
    struct stat st;
    glob_t found = {0};
    int rc = MR_OK;

    if (stat(path, &st) == 0) {
        rc = found_add(f, path, &st);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        return MR_FAIL(f->err, MR_E_IO, "cannot look at '%s': %s", path, strerror(errno));
    } else if (strpbrk(path, "*?[")) {
        const int failed = glob(path, GLOB_NOSORT, NULL, &found);
        if (failed && failed != GLOB_NOMATCH) {
            return MR_FAIL(f->err, MR_E_IO, "cannot look for '%s'", path);
        }
        for (size_t i = 0; rc == MR_OK && i < found.gl_pathc; i++) {
            if (!mr_finder_is_hidden(path, found.gl_pathv[i]) &&
                stat(found.gl_pathv[i], &st) == 0) {
                rc = found_add(f, found.gl_pathv[i], &st);
            }
        }
        globfree(&found);
    }
    if (rc == MR_OK && f->count == before) {
        return MR_FAIL(f->err, MR_E_NOT_FOUND, "no file is found by '%s'", path);
    }
    return rc;
}

static int path_cmp(const void *a, const void *b)
{
    return strcmp(((const struct mr_source_file *)a)->path,
                  ((const struct mr_source_file *)b)->path);
}

static void sort_unique(struct mr_finder *f)
{
    size_t kept = 0;

    if (f->count > 0) {
        qsort(f->files, f->count, sizeof *f->files, path_cmp);
    }
    for (size_t i = 0; i < f->count; i++) {
        if (kept > 0 && strcmp(f->files[i].path, f->files[kept - 1].path) == 0) {
            mr_source_file_fini(&f->files[i]);
        } else {
            f->files[kept++] = f->files[i];
        }
    }
    f->count = kept;
}

/* A folder as it was named, and its real path; NULL: none. */
struct folder {
    char *named;
    char *real;
};

static void folder_fini(struct folder *f)
{
    mr_free(f->named);
    free(f->real); /* NOLINT: allocated by libc */
}

/* The real path of the folder, and the name in it: a link to a file is a file of its own. NULL: an object, or the
 * file is gone. *io: the folder of the path before, which is often the same. */
static char *place_of(const char *path, struct folder *io)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    char *folder = slash ? mr_strndup(path, (size_t)(name - path)) : mr_strndup(".", 1);

    if (io->named && strcmp(folder, io->named) == 0) {
        mr_free(folder);
    } else {
        folder_fini(io);
        *io = (struct folder){folder, mr_s3_is_uri(path) ? NULL : realpath(folder, NULL)};
    }
    if (!io->real) {
        return NULL;
    }
    const size_t room = strlen(io->real) + strlen(name) + 2;
    char *place = mr_alloc(room);
    snprintf(place, room, "%s/%s", io->real, name);
    return place;
}

static void places_unique(struct mr_finder *f)
{
    struct mr_map seen = {0};
    struct folder folder = {0};
    size_t kept = 0;

    for (size_t i = 0; i < f->count; i++) {
        char *place = place_of(f->files[i].path, &folder);
        if (place && mr_map_put(&seen, mr_str_c(place), &seen)) {
            mr_source_file_fini(&f->files[i]);
        } else {
            f->files[kept++] = f->files[i];
        }
        mr_free(place);
    }
    f->count = kept;
    folder_fini(&folder);
    mr_map_fini(&seen);
}

/* Finds the format by the names, which must agree. */
static int format_find(const struct mr_finder *f, enum mr_table_format *out, struct mr_err *err)
{
    enum mr_table_format all = MR_TABLE_AUTO;

    for (size_t i = 0; i < f->count; i++) {
        const char *path = f->files[i].path;
        const enum mr_table_format format = mr_table_format_of(mr_str_c(path));
        if (format == MR_TABLE_AUTO) {
            return MR_FAIL(err, MR_E_INVALID, "the format of '%s' does not follow from its name",
                           path);
        }
        if (i > 0 && format != all) {
            return MR_FAIL(err, MR_E_INVALID, "'%s' is %s and '%s' is %s: name one format",
                           f->files[0].path, mr_table_format_name(all), path,
                           mr_table_format_name(format));
        }
        all = format;
    }
    *out = all;
    return MR_OK;
}

static int object_path_add(struct mr_finder *f, struct mr_source_setup *setup, const char *uri)
{
    const struct mr_s3_options usual = {0};
    const struct mr_s3_options *o = setup->options->s3;
    int rc = setup->s3 ? MR_OK : mr_s3_new(&setup->s3, o ? o : &usual, f->err);

    return rc < 0 ? rc : mr_objects_find(f, setup->s3, uri);
}

int mr_files_find(struct mr_source_setup *setup, enum mr_table_format *out_format,
                  struct mr_err *err)
{
    const struct mr_source_options *options = setup->options;
    struct mr_finder f = {.format = options->format, .not_in = options->not_in, .err = err};
    enum mr_table_format format = options->format;
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && i < options->path_count; i++) {
        rc = mr_s3_is_uri(options->paths[i]) ? object_path_add(&f, setup, options->paths[i])
                                             : path_add(&f, options->paths[i]);
    }
    if (rc == MR_OK && f.count == 0) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "no input is named");
    }
    sort_unique(&f);
    places_unique(&f);
    if (rc == MR_OK && format == MR_TABLE_AUTO) {
        rc = format_find(&f, &format, err);
    }
    if (rc < 0) {
        for (size_t i = 0; i < f.count; i++) {
            mr_source_file_fini(&f.files[i]);
        }
        mr_free(f.files);
        return rc;
    }
    setup->files = f.files;
    setup->file_count = f.count;
    *out_format = format;
    return MR_OK;
}
