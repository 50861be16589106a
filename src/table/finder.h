/* Finding the files of a source: what files and objects share. Private. */
#ifndef MR_TABLE_FINDER_H
#define MR_TABLE_FINDER_H

#include "formats.h"

struct mr_finder {
    enum mr_table_format format;
    struct mr_source_file *files;
    size_t count;
    size_t room;
    struct mr_err *err;
};

/** Takes the strings of the file, always. Errors: MR_E_EXHAUSTED (a million of them). */
int mr_finder_add(struct mr_finder *f, struct mr_source_file file);
/** Whether a file in a folder belongs to the source by its name. */
bool mr_finder_name_fits(const struct mr_finder *f, const char *name);

/* ---- objects.c ---- */

/** Adds what s3://… names. Errors: in f->err; MR_E_NOT_FOUND, and those of s3/s3.h. */
int mr_objects_find(struct mr_finder *f, struct mr_s3 *s3, const char *uri);

#endif
