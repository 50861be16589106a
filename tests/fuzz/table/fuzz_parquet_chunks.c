/* Footers of Parquet files of anybody: whatever ranges are found lie before the footer, ascending and apart. */
#include "fuzz.h"
#include "table/parquet/parquet_chunks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"id", "x"};
    const uint64_t data_end = 1 << 20;

    for (size_t count = 0; count <= 2; count++) {
        struct parquet_ranges found = {0};
        const mr_bytes footer = {data, size};
        const bool is_read =
            parquet_chunks_find(footer, data_end, names, count, count * 100, 64, &found);
        REQUIRE(is_read || found.at.len == 0);
        for (size_t i = 0; i < found.at.len; i++) {
            const struct parquet_range *r = &found.at.at[i];
            REQUIRE(r->first >= PARQUET_HEAD_BYTES && r->first < r->end && r->end <= data_end);
            REQUIRE(i == 0 || r[-1].end + 64 <= r->first);
        }
        found.at.len = 0;
        if (parquet_group_find(footer, data_end, names, count, &found) && found.at.len > 0) {
            REQUIRE(found.at.at[0].first >= PARQUET_HEAD_BYTES);
            REQUIRE(found.at.at[found.at.len - 1].end <= data_end);
        }
        MR_VEC_FINI(&found.at);
    }
    return 0;
}
