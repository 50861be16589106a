/* The common columns of a set of files. Private. */
#ifndef MR_TABLE_SCHEMA_JOIN_H
#define MR_TABLE_SCHEMA_JOIN_H

#include "formats.h"

/** Reads the columns of each file and appends those of the table to *out.
 *
 *  A column is needed if it is in the options' `columns` or `wanted`, or if these are not set. Each file must have
 *  all needed columns that any file has, with compatible types: integers of any width with each other, floating-point
 *  numbers likewise. The majority of the files decides. Other columns are in *out if all files have them with such
 *  types; with guessed types, also if some lack them. A file may lack a needed column, too, if its format does not name
 *  its columns, if it is empty, or, with guessed types, if the options name none.
 *
 *  A bad file gets `bad` and no rows if the options skip such files, others remain and all bad ones are damaged or
 *  differ; otherwise it is an error, which names all of them: in its text, or in lines of the log if there are several.
 *  Errors: as mr_source_open. */
int mr_schemas_join(const struct mr_source_ops *ops, void *state,
                    const struct mr_source_setup *setup, struct mr_schema *out, struct mr_err *err);
/** True if an error of this status is about one file: it is damaged, or cannot be read now. */
bool mr_is_fault_of_file(int status);
/** Returns rc, of a read of the file. What looks like damage (MR_E_INVALID) may be a file that is being written: MR_E_IO if
 *  it has changed since it was found. */
int mr_damage_check(const struct mr_source_file *f, int rc, struct mr_err *err);

#endif
