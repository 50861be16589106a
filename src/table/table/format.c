/* Names of formats. */
#include <string.h>

#include "base/mem.h"
#include "table/rows/formats.h"

static const struct {
    const char *name;
    const char *ends[4];
} formats[] = {
    [MR_TABLE_AUTO] = {"auto", {0}},
    [MR_TABLE_JSONL] = {"jsonl", {".jsonl", ".ndjson", ".json"}},
    [MR_TABLE_CSV] = {"csv", {".csv", ".tsv"}},
    [MR_TABLE_PARQUET] = {"parquet", {".parquet"}},
    [MR_TABLE_ARROW] = {"arrow", {".arrow", ".arrows", ".feather"}},
};
#define COUNT (sizeof formats / sizeof *formats)

const char *mr_table_format_name(enum mr_table_format f)
{
    return (size_t)f < COUNT ? formats[f].name : "unknown";
}

static bool ends_with(mr_str s, const char *end)
{
    const size_t n = strlen(end);
    return s.len >= n && memcmp(s.ptr + s.len - n, end, n) == 0;
}

enum mr_table_format mr_table_format_of(mr_str s)
{
    if (ends_with(s, ".gz")) {
        s.len -= 3;
    } else if (ends_with(s, ".zst")) {
        s.len -= 4;
    }
    for (size_t f = MR_TABLE_AUTO + 1; f < COUNT; f++) {
        if (mr_str_eq_c(s, formats[f].name)) {
            return (enum mr_table_format)f;
        }
        for (int i = 0; i < 4 && formats[f].ends[i]; i++) {
            if (ends_with(s, formats[f].ends[i])) {
                return (enum mr_table_format)f;
            }
        }
    }
    return MR_TABLE_AUTO;
}
