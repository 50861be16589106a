/* Values of PostgreSQL in its binary format. Private. */
#ifndef MR_TABLE_PG_VALUE_H
#define MR_TABLE_PG_VALUE_H

#include "base/arena.h"
#include "pg.h"
#include "table/rows.h"
#include "table/rows/formats.h"

/** The column for a type, with its name. False: the type is read as text. mod: the type modifier
 *  (pg_attribute.atttypmod). */
bool mr_pg_field_of(const char *name, unsigned type, int mod, struct mr_field *out);
/** Appends a row from a value that is not null. Returns NULL or the error, perhaps as text in why, whose status is
 *  MR_E_EXHAUSTED without memory. */
const char *mr_pg_add(struct mr_column_builder *b, unsigned type, mr_str value,
                      struct mr_arena *scratch, struct mr_err *why);

/** Precision and scale of numeric(precision, scale), from its mod (at least 4). */
static inline int mr_pg_precision(int mod)
{
    return (mod - 4) >> 16 & 0xffff;
}

static inline int mr_pg_scale(int mod)
{
    return (((mod - 4) & 0x7ff) ^ 1024) - 1024; /* 11 bits with a sign */
}

/** True if a column of that type and mod stores all values of the field unchanged, or refuses them. */
bool mr_pg_takes(unsigned type, int mod, const struct mr_field *f);
/** Appends the SQL type for such a column. */
void mr_pg_put_type(struct mr_buf *b, const struct mr_field *f);
/** Appends a value, or null, after its length. Errors: MR_E_TOO_LARGE. */
int mr_pg_put(struct mr_buf *b, unsigned type, const struct mr_field *f, const struct mr_column *c,
              uint64_t row, struct mr_err *err);

#endif
