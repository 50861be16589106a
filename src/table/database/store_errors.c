/* Errors shared by the stores. */
#include "store_priv.h"

int mr_store_no_table(const struct mr_store_options *o, struct mr_err *err)
{
    return MR_FAIL(
        err, MR_E_NOT_FOUND,
        "the table '%s' is gone, to which an earlier start of the job has committed rows",
        o->table);
}

int mr_store_no_column(const struct mr_store_options *o, const char *column, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "the table '%s' is there and has no column '%s'", o->table,
                   column);
}

int mr_store_other_type(const struct mr_store_options *o, const char *column, mr_str type,
                        const char *expected, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID,
                   "the table '%s' is there and its column '%s' is %.*s; results need %s", o->table,
                   column, MR_STR_ARG(type), expected);
}

int mr_store_fenced(const struct mr_store_options *o, int64_t epoch, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CLOSED,
                   "another process has taken the job over: start %lld writes to '%s', this is %u",
                   (long long)epoch, o->table, o->epoch);
}
