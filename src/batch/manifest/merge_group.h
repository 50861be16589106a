/* Items of a manifest that become one: their files are joined, and one record puts the new item into their place. Private.
 *
 * Thread: merge_group_join any, beside commits of other items; all else that of the manifest. */
#ifndef MR_BATCH_MERGE_GROUP_H
#define MR_BATCH_MERGE_GROUP_H

#include "base/buf.h"
#include "base/vec.h"
#include "manifest.h"

/** An item and whose it is. */
struct piece {
    const struct mr_manifest *job;
    const struct mr_manifest_item *item;
};
/** Joins their files of one kind in order. Errors: those of mr_table_merge. */
int merge_join(enum mr_manifest_kind kind, const struct piece *pieces, size_t count, int fd,
               struct mr_err *err);

struct merge_group {
    struct mr_manifest *m;
    MR_VEC(struct piece) pieces;
    MR_VEC(const struct mr_manifest_item *) items; /* the same */
    MR_VEC(struct mr_manifest_extent) extents;
    struct mr_buf hosts; /* whose rows they are; empty where that is not known of all results */
    struct mr_manifest_part part;
    struct mr_manifest_part dlq;
    struct mr_manifest_add add;
};

/** *g is zero. Items stay what they are until merge_group_end; at least one has results. */
void merge_group_begin(struct merge_group *g, struct mr_manifest *m,
                       const struct mr_manifest_item *const *items, size_t count);
/** Makes the new files and brings them to disk. Errors: those of mr_table_merge and mr_manifest_part_seal. */
int merge_group_join(struct merge_group *g, struct mr_err *err);
/** After a successful join. Errors: those of mr_manifest_replace. */
int merge_group_commit(struct merge_group *g, struct mr_err *err);
/** What was not committed is dropped. */
void merge_group_end(struct merge_group *g);

#endif
