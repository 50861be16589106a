/* Levels in runs and packed bits.
 *
 * Eight or more equal levels are written as a run, shorter runs go into groups of eight packed levels. A group that
 * is not full is filled from the following run, so only the last one is padded. */
#include "parquet_levels.h"

#include "parquet_thrift.h"

#define PACKED_MOST 63 /* groups in a packed run, so that its head is one byte */

void parquet_levels_init(struct parquet_levels *l, unsigned most)
{
    *l = (struct parquet_levels){0};
    mr_buf_init(&l->out, INT32_MAX);
    while (most >> l->bits) {
        l->bits++;
    }
}

void parquet_levels_fini(struct parquet_levels *l)
{
    mr_buf_fini(&l->out);
}

void parquet_levels_reset(struct parquet_levels *l)
{
    mr_buf_reset(&l->out);
    l->count = l->value = 0;
    l->grouped = l->packed = 0;
}

static void group_write(struct parquet_levels *l)
{
    uint64_t word = 0;

    for (unsigned i = 0; i < 8; i++) {
        word |= (uint64_t)l->group[i] << i * l->bits;
    }
    if (l->packed == 0) {
        l->packed_at = l->out.len;
        mr_buf_char(&l->out, 0);
    }
    mr_buf_append(&l->out, &word, l->bits); /* little-endian */
    l->grouped = 0;
    if (l->out.failed) {
        return;
    }
    l->packed++;
    l->out.ptr[l->packed_at] = (char)(l->packed << 1 | 1);
    if (l->packed == PACKED_MOST) {
        l->packed = 0;
    }
}

void parquet_levels_close_run(struct parquet_levels *l)
{
    if (l->bits == 0 || l->out.failed) {
        l->count = 0;
        return;
    }
    while (l->grouped > 0 && l->count > 0) {
        l->group[l->grouped++] = l->value;
        l->count--;
        if (l->grouped == 8) {
            group_write(l);
        }
    }
    if (l->count >= 8) {
        l->packed = 0;
        parquet_varint(&l->out, l->count << 1);
        mr_buf_char(&l->out, (char)l->value);
        l->count = 0;
    }
    for (; l->count > 0; l->count--) {
        l->group[l->grouped++] = l->value;
    }
}

void parquet_levels_finish(struct parquet_levels *l)
{
    parquet_levels_close_run(l);
    if (l->grouped > 0) {
        memset(l->group + l->grouped, 0, 8 - l->grouped);
        group_write(l);
    }
}
