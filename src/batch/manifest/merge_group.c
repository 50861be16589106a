/* Nothing is changed before the commit, so a group may be given up at any time. */
#include "merge_group.h"

#include <string.h>

#include "manifest_priv.h"
#include "provenance.h"
#include "table/merge.h"

int merge_join(enum mr_manifest_kind kind, const struct piece *pieces, size_t count, int fd,
               struct mr_err *err)
{
    const bool is_results = kind == MR_MANIFEST_RESULTS;
    MR_VEC(struct mr_merge_part) parts = {0};

    for (size_t i = 0; i < count; i++) {
        const struct mr_manifest *m = pieces[i].job;
        const char *name = is_results ? pieces[i].item->part : pieces[i].item->dlq;
        if (name) {
            MR_VEC_PUSH(&parts, ((struct mr_merge_part){is_results ? m->parts : m->dlq, name}));
        }
    }
    int rc = mr_table_merge(parts.at, parts.len, fd, err);
    MR_VEC_FINI(&parts);
    return rc;
}

void merge_group_begin(struct merge_group *g, struct mr_manifest *m,
                       const struct mr_manifest_item *const *items, size_t count)
{
    struct provenance provenance = {0};
    bool is_known = true;

    g->m = m;
    g->part.fd = g->dlq.fd = -1;
    g->add.part = &g->part;
    mr_buf_init(&g->hosts, 0);
    for (size_t i = 0; i < count; i++) {
        MR_VEC_PUSH(&g->items, items[i]);
        MR_VEC_PUSH(&g->pieces, ((struct piece){m, items[i]}));
        g->add.rows += items[i]->rows;
        g->add.dead += items[i]->dead;
        provenance_read(&provenance, items[i]->hosts);
        is_known = is_known && (items[i]->hosts || !items[i]->part);
        for (size_t k = 0; k < items[i]->extent_count; k++) {
            MR_VEC_PUSH(&g->extents, items[i]->extents[k]);
        }
    }
    g->add.hosts = is_known ? provenance_json(&provenance, &g->hosts) : NULL;
    provenance_fini(&provenance);
    g->add.dlq = g->add.dead > 0 ? &g->dlq : NULL;
    g->add.extents = g->extents.at;
    g->add.extent_count = g->extents.len;
}

/* Where the rows are in the order of the input, the name says so. */
static int part_begin(struct merge_group *g, struct mr_err *err)
{
    const struct mr_manifest_extent *at = g->items.at[0]->extents;
    size_t first = 0;

    while (!g->items.at[first]->part) {
        first++;
    }
    const char *suffix = strchr(g->items.at[first]->part, '.');
    return mr_manifest_is_in_order(g->items.at, g->items.len)
               ? mr_manifest_part_begin_at(g->m, at->file, at->first, suffix, &g->part, err)
               : mr_manifest_part_begin(g->m, MR_MANIFEST_RESULTS, suffix, &g->part, err);
}

int merge_group_join(struct merge_group *g, struct mr_err *err)
{
    int rc;

    MR_TRY(part_begin(g, err));
    MR_TRY(merge_join(MR_MANIFEST_RESULTS, g->pieces.at, g->pieces.len, g->part.fd, err));
    MR_TRY(mr_manifest_part_seal(g->m, &g->part, err));
    if (g->add.dlq) {
        MR_TRY(mr_manifest_part_begin(g->m, MR_MANIFEST_DEAD_LETTERS, ".jsonl", &g->dlq, err));
        MR_TRY(merge_join(MR_MANIFEST_DEAD_LETTERS, g->pieces.at, g->pieces.len, g->dlq.fd, err));
        MR_TRY(mr_manifest_part_seal(g->m, &g->dlq, err));
    }
out:
    return rc;
}

int merge_group_commit(struct merge_group *g, struct mr_err *err)
{
    return mr_manifest_replace(g->m, &g->add, 1, g->items.at, g->items.len, err);
}

void merge_group_end(struct merge_group *g)
{
    mr_manifest_part_drop(g->m, &g->part);
    mr_manifest_part_drop(g->m, &g->dlq);
    mr_buf_fini(&g->hosts);
    MR_VEC_FINI(&g->pieces);
    MR_VEC_FINI(&g->items);
    MR_VEC_FINI(&g->extents);
    *g = (struct merge_group){0};
}
