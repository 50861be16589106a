#include "codec/pbtext_lines.h"

#include <stdlib.h>

/* By address, the latest first: an entry of a map that is given twice is freed, and its memory used again. */
static int compare(const void *a, const void *b)
{
    const struct mr_pbtext_line *x = a, *y = b;
    const uintptr_t p = (uintptr_t)x->value, q = (uintptr_t)y->value;

    return p != q ? (p > q) - (p < q) : (x->order < y->order) - (x->order > y->order);
}

void mr_pbtext_lines_add(struct mr_pbtext_lines *lines, const void *value, long line)
{
    const struct mr_pbtext_line entry = {value, (uint32_t)line, (uint32_t)lines->all.len};

    MR_VEC_PUSH(&lines->all, entry);
    lines->is_sorted = false;
}

uint32_t mr_pbtext_line_of(struct mr_pbtext_lines *lines, const void *value)
{
    size_t first = 0, end = lines->all.len;

    if (!lines->is_sorted && end > 0) {
        qsort(lines->all.at, end, sizeof *lines->all.at, compare);
        lines->is_sorted = true;
    }
    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if ((uintptr_t)lines->all.at[middle].value < (uintptr_t)value) {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    return first < lines->all.len && lines->all.at[first].value == value ? lines->all.at[first].line
                                                                         : 1;
}

void mr_pbtext_lines_fini(struct mr_pbtext_lines *lines)
{
    MR_VEC_FINI(&lines->all);
}
