/* The Parquet writer's parts. Private.
 *
 * A leaf is a column of the file: a column of rows at the innermost level of its lists. Rows go through
 * parquet_leaf.c (levels) and parquet_values.c (values, statistics) into the leaf's page, from there through
 * parquet_page.c into the file or, while another leaf is being streamed, into memory. */
#ifndef MR_TABLE_PARQUET_H
#define MR_TABLE_PARQUET_H

#include "parquet_levels.h"
#include "parquet_thrift.h"
#include "table/merge.h"
#include "table/rows/formats.h"

#define PARQUET_PAGE_BYTES (1u << 20) /* a page of that size ends after its row */
#define PARQUET_PAGE_MOST  (8u << 20) /* a page of that size ends within a row */
#define PARQUET_HELD_BYTES (8u << 20) /* of all leaves that are not streamed */
#define PARQUET_STAT_BYTES 64         /* of a string in statistics */

/* Parquet's own numbers (parquet.thrift). */
enum parquet_type {
    PARQUET_BOOLEAN = 0,
    PARQUET_INT32 = 1,
    PARQUET_INT64 = 2,
    PARQUET_FLOAT = 4,
    PARQUET_DOUBLE = 5,
    PARQUET_BYTE_ARRAY = 6,
    PARQUET_FIXED_LEN_BYTE_ARRAY = 7
};

struct parquet_bound {
    union {
        int64_t i;
        uint64_t u;
        float f;
        double d;
        __int128 x;
        uint8_t text[PARQUET_STAT_BYTES];
    };
    uint8_t len;   /* of text */
    bool is_exact; /* the bound itself is a value */
};

struct parquet_stats {
    bool has; /* at least one value that is not NaN */
    struct parquet_bound min;
    struct parquet_bound max;
};

struct parquet_held {
    struct parquet_held *next;
    size_t bytes;
    uint8_t data[];
};

struct parquet_leaf {
    size_t column;  /* of the schema */
    unsigned depth; /* lists above the leaf; the highest repetition level */
    const struct mr_field *path[MR_FIELD_DEPTH + 1]; /* the lists, then the leaf */
    /* definition level of a null at each level; one more, if nullable, is not null */
    uint8_t def[MR_FIELD_DEPTH + 1];
    uint8_t def_most;
    const struct mr_field *field; /* path[depth] */
    enum parquet_type type;
    size_t bytes;      /* of a value in a page, 0 = strings; BOOL counts as one */
    bool is_direct;    /* values in the file are as in rows */
    bool is_too_large; /* a value has 2 GiB or more */
    /* values of a row without nulls if all lists are fixed; 0: not all are */
    uint64_t fixed_items;

    /* the page */
    struct parquet_levels rep;
    struct parquet_levels levels_def;
    /* leading rows of fixed_items values each, without levels in rep and def */
    uint64_t regular;
    uint64_t entries;     /* levels, including those of regular rows */
    uint64_t value_count; /* values, including those of `near` */
    struct mr_buf values;
    unsigned bit_count;  /* BOOLEAN: bits of the last byte of values */
    const uint8_t *near; /* further values, in the memory of rows */
    uint64_t near_bytes;
    struct mr_buf regular_rep; /* cached repetition levels of regular rows */
    uint64_t regular_rep_rows;

    /* the chunk: this leaf in the row group */
    struct parquet_held *held;
    struct parquet_held **held_end;
    uint64_t held_bytes;
    struct parquet_stats stats;
    uint64_t chunk_entries;
    uint64_t chunk_values;
    uint64_t chunk_plain; /* uncompressed bytes of pages with their headers */
    uint64_t chunk_bytes; /* bytes in the file */
    uint64_t chunk_at;    /* where in the file */
};

struct parquet_writer {
    int fd;
    struct mr_no_room no_room;
    const struct mr_schema *schema;
    bool is_zstd;
    uint64_t group_most;
    struct parquet_leaf *leaves;
    size_t leaf_count;
    struct parquet_leaf *streamed; /* its pages are written at once */
    uint64_t at;                   /* bytes written */
    uint64_t group_at;
    uint64_t group_rows;
    uint64_t group_bytes; /* of the rows in this row group, approximately */
    uint64_t rows;
    uint32_t group_count;
    struct mr_buf groups; /* descriptions of the written row groups */
    struct mr_buf notes;  /* key-value pairs */
    size_t note_count;
    struct mr_buf head;   /* of a page */
    struct mr_buf packed; /* a page compressed */
    struct ZSTD_CCtx_s *zstd;
};

/* ---- parquet_leaf.c ---- */

/** Makes the leaves of the schema. Errors: MR_E_UNSUPPORTED. */
int parquet_leaves_new(struct parquet_writer *w, struct mr_err *err);
void parquet_leaves_free(struct parquet_writer *w);
/** Adds rows [first, first + count) to the leaf's pages. Values may stay in the rows' memory: parquet_values_settle
 *  must be called before the rows are freed. Errors: those of mr_writer_put. */
int parquet_leaf_put(struct parquet_writer *w, struct parquet_leaf *l, const struct mr_rows *rows,
                     uint64_t first, uint64_t count, struct mr_err *err);
/** Approximate bytes that these rows will take; does not scan them. */
uint64_t parquet_leaf_weight(const struct parquet_leaf *l, const struct mr_rows *rows,
                             uint64_t first, uint64_t count);

/** Writes the levels of the page's regular rows one by one. */
void parquet_regular_spell(struct parquet_leaf *l);

/* ---- parquet_values.c ---- */

/** Appends values [first, first + count) of the leaf's column, none of which is null. */
void parquet_values_add(struct parquet_leaf *l, const struct mr_column *c, uint64_t first,
                        uint64_t count);
/** Copies values that are still in the rows' memory into the page. */
void parquet_values_settle(struct parquet_leaf *l);
/** Adds values in the rows' memory, from which the page will be written, to the statistics. */

void parquet_values_count_near(struct parquet_leaf *l);
static inline uint64_t parquet_page_bytes(const struct parquet_leaf *l)
{
    return l->values.len + l->near_bytes + l->rep.out.len + l->levels_def.out.len;
}

/* ---- parquet_stats.c ---- */

/** Adds values from rows. */
void parquet_stats_numbers(struct parquet_stats *s, enum mr_column_type type, const void *values,
                           uint64_t count);
void parquet_stats_text(struct parquet_stats *s, const uint8_t *text, size_t len);
/** Writes the thrift struct Statistics as field `id`. */
void parquet_stats_write(struct parquet_thrift *t, int16_t id, const struct parquet_leaf *l);

/* ---- parquet_page.c ---- */

/** Ends the page, if there is one. Errors: those of mr_writer_put. */
int parquet_page_end(struct parquet_writer *w, struct parquet_leaf *l, struct mr_err *err);
int parquet_write(struct parquet_writer *w, const void *data, size_t bytes, struct mr_err *err);
/** Writes the held pages of the leaf. */
int parquet_held_write(struct parquet_writer *w, struct parquet_leaf *l, struct mr_err *err);
void parquet_held_drop(struct parquet_leaf *l);

/* ---- parquet_footer.c ---- */

/** Describes the row group that all leaves have written, and resets the leaves for the next one. */
int parquet_group_describe(struct parquet_writer *w, struct mr_err *err);
void parquet_note(struct parquet_writer *w, const char *key, const char *value);
int parquet_footer_write(struct parquet_writer *w, struct mr_err *err);

/* ---- the format; duckdb.h has its source ---- */

extern const struct mr_writer_ops mr_parquet_writer_ops;
/** As mr_table_merge. */
int parquet_merge(const struct mr_merge_part *parts, size_t count, int out, struct mr_err *err);

#endif
