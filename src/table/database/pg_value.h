/* Values of PostgreSQL in its binary format. Private. */
#ifndef MR_TABLE_PG_VALUE_H
#define MR_TABLE_PG_VALUE_H

#include "base/arena.h"
#include "pg.h"
#include "table/rows.h"
#include "table/rows/formats.h"

/** The column that a type becomes, with its name. False: it is none of those that are read as they are, but text. mod:
 *  what the type was declared with (pg_attribute.atttypmod). */
bool mr_pg_field_of(const char *name, unsigned type, int mod, struct mr_field *out);
/** A row of a column from a value of a type that is not null. NULL, or what is wrong, perhaps in why, whose status is
 *  MR_E_EXHAUSTED without memory. */
const char *mr_pg_add(struct mr_column_builder *b, unsigned type, mr_str value,
                      struct mr_arena *scratch, struct mr_err *why);

/** What numeric(precision, scale) was declared with, of which mod is 4 at least. */
static inline int mr_pg_precision(int mod)
{
    return (mod - 4) >> 16 & 0xffff;
}

static inline int mr_pg_scale(int mod)
{
    return (((mod - 4) & 0x7ff) ^ 1024) - 1024; /* 11 bits with a sign */
}

/** Whether a column of that type and mod (as above) keeps all values of a column of results as they are, or refuses them. */
bool mr_pg_takes(unsigned type, int mod, const struct mr_field *f);
/** What such a column is made as. */
void mr_pg_put_type(struct mr_buf *b, const struct mr_field *f);
/** Appends a value, or null, with its length in front. Errors: MR_E_TOO_LARGE. */
int mr_pg_put(struct mr_buf *b, unsigned type, const struct mr_field *f, const struct mr_column *c,
              uint64_t row, struct mr_err *err);

#endif
