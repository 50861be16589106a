/* Records of a batch job's manifest.log, one a line: whatever is replayed leaves a state that agrees with
 * itself, and whatever is refused changes nothing. */
#include "fuzz.h"

#include "batch/manifest/manifest_priv.h"

static uint64_t rows_done(const struct mr_manifest *m)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < m->done.len; i++) {
        rows += m->done.at[i].rows;
    }
    return rows;
}

static void check(const struct mr_manifest *m)
{
    uint64_t rows = 0;
    size_t files = 0;

    for (size_t i = 0; i < m->items.len; i++) {
        const struct mr_manifest_item *item = m->items.at[i];
        rows += item->rows + item->dead;
        files += (item->part != NULL) + (item->dlq != NULL);
        REQUIRE(!item->part || mr_map_find(&m->by_name, mr_str_c(item->part)) == item);
        REQUIRE(!item->dlq || mr_map_find(&m->by_name, mr_str_c(item->dlq)) == item);
    }
    REQUIRE(files == m->by_name.len);
    REQUIRE(rows == m->totals.rows + m->totals.dead && rows == rows_done(m));
    REQUIRE(m->notes.len <= MR_MANIFEST_NOTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_manifest *m = MR_NEW(struct mr_manifest);
    mr_str rest = mr_str_n((const char *)data, size);
    mr_str line;

    m->dir = m->parts = m->dlq = m->lock = m->log = -1;
    while (rest.len > 0 && mr_str_split(&rest, '\n', &line)) {
        const struct mr_manifest_totals before = m->totals;
        const size_t items = m->items.len;
        struct mr_err err = {0};
        const int rc = mr_record_replay(m, line, &err);
        REQUIRE((rc < 0) == (err.status < 0));
        REQUIRE(rc == MR_OK ||
                (memcmp(&before, &m->totals, sizeof before) == 0 && items == m->items.len));
        check(m);
    }
    mr_manifest_close(&m);
    return 0;
}
