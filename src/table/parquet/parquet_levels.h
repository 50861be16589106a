/* Repetition and definition levels, in Parquet's hybrid of runs and packed bits. Private.
 * Source: apache/parquet-format, Encodings.md, "Run Length Encoding / Bit-Packing Hybrid". */
#ifndef MR_TABLE_PARQUET_LEVELS_H
#define MR_TABLE_PARQUET_LEVELS_H

#include "base/buf.h"

struct parquet_levels {
    struct mr_buf out;
    uint8_t bits;   /* per level; 0: all levels are 0 and nothing is written */
    uint8_t value;  /* of the current run */
    uint64_t count; /* its length so far */
    uint8_t group[8];
    unsigned grouped; /* levels in `group` */
    size_t packed_at; /* position of the head of the current packed run */
    unsigned packed;  /* groups of 8 in it; 0: none */
};

/** Levels of 0..most. */
void parquet_levels_init(struct parquet_levels *l, unsigned most);
void parquet_levels_fini(struct parquet_levels *l);
void parquet_levels_reset(struct parquet_levels *l);
void parquet_levels_close_run(struct parquet_levels *l);
/** Adds the same level n times. */
static inline void parquet_levels_add(struct parquet_levels *l, uint8_t value, uint64_t n)
{
    if (value != l->value) {
        parquet_levels_close_run(l);
        l->value = value;
    }
    l->count += n;
}
/** Completes l->out; nothing may be added before a reset. */
void parquet_levels_finish(struct parquet_levels *l);

#endif
