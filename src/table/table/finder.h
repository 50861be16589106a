/* Finding the files of a source: the part shared by files and objects. Private. */
#ifndef MR_TABLE_FINDER_H
#define MR_TABLE_FINDER_H

#include "table/rows/formats.h"

struct mr_finder {
    enum mr_table_format format;
    const char *not_in; /* as in mr_source_options */
    struct mr_source_file *files;
    size_t count;
    size_t room;
    struct mr_err *err;
};

/** Always takes the strings of the file. Errors: MR_E_EXHAUSTED (a million of them). */
int mr_finder_add(struct mr_finder *f, struct mr_source_file file);
/** True if a file in a folder belongs to the source by its name. */
bool mr_finder_name_fits(const struct mr_finder *f, const char *name);
/** True if a wildcard has matched the underscore that a name in the path begins with. */
bool mr_finder_is_hidden(const char *pattern, const char *path);

/* ---- objects.c ---- */

/** Adds the objects named by s3://…. Errors: in f->err; MR_E_NOT_FOUND, and those of s3/s3.h. */
int mr_objects_find(struct mr_finder *f, struct mr_s3 *s3, const char *uri);

/* ---- files.c ---- */

/** Finds the files of setup->options, sorted by path, and their format if the options do not set it. Sets files,
 *  file_count and s3, which the caller frees. Errors: as mr_source_open; s3 may be set even then. */
int mr_files_find(struct mr_source_setup *setup, enum mr_table_format *out_format,
                  struct mr_err *err);
void mr_source_file_fini(struct mr_source_file *f);

#endif
