/* One shard of a table: the rows that one of several processes takes, and the folder that it keeps.
 *
 * Which rows follows from the number of shards and from what is in the identity of the job, so it is the same at every start and on
 * every machine, and the shards neither overlap nor leave a row out:
 *
 *   files whose rows are counted (Parquet, Arrow) are one long table, cut into as many equal ranges as there are shards;
 *   other files are dealt out whole, in turn, when there are at least 8 of them for each shard;
 *   fewer are dealt out in stretches of 4096 rows, in turn. Each shard then reads past what is others'.
 *
 * A file that is left out has no rows. Among files that are not counted it keeps its turn, so that its repair changes no shard.
 *
 * One thread at a time, but after shard_begin nothing changes. */
#ifndef MR_BATCH_SHARD_H
#define MR_BATCH_SHARD_H

#include "base/err.h"
#include "batch/manifest/ranges.h"
#include "table/table.h"

#define MR_SHARD_FIELD       "shard"       /* of the manifest: which one it is … */
#define MR_SHARD_NAME_FORMAT "\"%zu/%zu\"" /* … as this, among other things */

/** All-zero takes every row. */
struct shard {
    uint32_t index;
    uint32_t count; /* 0: the table is not divided */
    uint64_t counted_rows;
    struct shard_file {
        struct mr_range rows; /* that may be its own … */
        bool is_dealt;        /* … if this is false; otherwise stretches are dealt out, */
        uint32_t turn;        /* the first of them to the shard of this number */
    } * files;
};

/** Shard `index` of `count`, 0: all of the table. file_rows: of each file, -1: not counted, or left out. */
void shard_begin(struct shard *s, uint32_t index, uint32_t count, const int64_t *file_rows,
                 size_t files);
void shard_fini(struct shard *s);
/** The first rows at or after `from` that are its own and not in `done`, as many as are together; false when there
 *  are none. There may be fewer rows in the file. */
bool shard_gap(const struct shard *s, uint32_t file, const struct mr_ranges *done, uint64_t from,
               struct mr_range *out);
/** How many rows are its own; -1: not known. */
int64_t shard_rows(const struct shard *s, const struct mr_source *source);

/** Gives the path of its folder within that of the whole job, to be freed with mr_free. With `make` it is there when
 *  this returns, and the job is divided as it says. Errors: MR_E_INVALID (the job is divided otherwise, or not at all),
 *  MR_E_IO. */
int shard_folder(char **out, const char *job, uint32_t index, uint32_t count, bool make,
                 struct mr_err *err);

/** What a job reads. */
struct job_input {
    struct mr_source *source; /* NULL: not opened yet */
    struct shard shard;
};

#endif
