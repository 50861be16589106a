/* Sorted, disjoint ranges in an array. A job works through a file roughly from front to back, so that the
 * array stays short and a change near its end moves little. */
#include "ranges.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"

void mr_ranges_fini(struct mr_ranges *r)
{
    mr_free(r->at);
    *r = (struct mr_ranges){0};
}

/* The first range that ends after `row`: it holds the row, or all before it end earlier. */
static size_t first_after(const struct mr_ranges *r, uint64_t row)
{
    size_t low = 0;
    size_t high = r->len;

    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->at[middle].end > row) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void insert(struct mr_ranges *r, size_t i, struct mr_range range)
{
    if (r->len == r->cap) {
        r->cap = r->cap ? r->cap * 2 : 8;
        r->at = mr_realloc_array(r->at, r->cap, sizeof *r->at);
    }
    memmove(&r->at[i + 1], &r->at[i], (r->len - i) * sizeof *r->at);
    r->at[i] = range;
    r->len++;
}

static void erase(struct mr_ranges *r, size_t i)
{
    memmove(&r->at[i], &r->at[i + 1], (r->len - i - 1) * sizeof *r->at);
    r->len--;
}

int mr_ranges_add(struct mr_ranges *r, uint64_t first, uint64_t end, struct mr_err *err)
{
    const size_t i = first_after(r, first);

    if (first >= end) {
        return MR_FAIL(err, MR_E_INVALID, "a range of no rows");
    }
    if (i < r->len && r->at[i].first < end) {
        return MR_FAIL(err, MR_E_EXISTS, "rows %" PRIu64 " to %" PRIu64 " are done already",
                       MR_MAX(first, r->at[i].first), MR_MIN(end, r->at[i].end) - 1);
    }
    const bool touches_before = i > 0 && r->at[i - 1].end == first;
    const bool touches_behind = i < r->len && r->at[i].first == end;
    if (touches_before && touches_behind) {
        r->at[i - 1].end = r->at[i].end;
        erase(r, i);
    } else if (touches_before) {
        r->at[i - 1].end = end;
    } else if (touches_behind) {
        r->at[i].first = first;
    } else {
        insert(r, i, (struct mr_range){first, end});
    }
    r->rows += end - first;
    return MR_OK;
}

int mr_ranges_remove(struct mr_ranges *r, uint64_t first, uint64_t end, struct mr_err *err)
{
    const size_t i = first_after(r, first);

    if (first >= end) {
        return MR_FAIL(err, MR_E_INVALID, "a range of no rows");
    }
    if (!mr_ranges_contains(r, first, end)) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "rows %" PRIu64 " to %" PRIu64 " are not all done",
                       first, end - 1);
    }
    const struct mr_range whole = r->at[i];
    if (whole.first < first && end < whole.end) {
        r->at[i].first = end;
        insert(r, i, (struct mr_range){whole.first, first});
    } else if (whole.first < first) {
        r->at[i].end = first;
    } else if (end < whole.end) {
        r->at[i].first = end;
    } else {
        erase(r, i);
    }
    r->rows -= end - first;
    return MR_OK;
}

bool mr_ranges_contains(const struct mr_ranges *r, uint64_t first, uint64_t end)
{
    const size_t i = first_after(r, first);

    return first >= end || (i < r->len && r->at[i].first <= first && end <= r->at[i].end);
}

bool mr_ranges_gap(const struct mr_ranges *r, uint64_t from, uint64_t end, struct mr_range *out)
{
    size_t i = first_after(r, from);

    if (i < r->len && r->at[i].first <= from) {
        from = r->at[i++].end;
    }
    if (from >= end) {
        return false;
    }
    *out = (struct mr_range){from, i < r->len ? MR_MIN(end, r->at[i].first) : end};
    return true;
}
