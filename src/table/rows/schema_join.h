/* The columns that a set of files has in common. Private. */
#ifndef MR_TABLE_SCHEMA_JOIN_H
#define MR_TABLE_SCHEMA_JOIN_H

#include "formats.h"

/** Asks each file for its columns and appends those of the table to *out.
 *
 *  A column is needed if the options name it or want it, or want no columns at all. Each file must have all needed
 *  columns that any file has, with types that can be joined: integers of any width with each other, floating-point numbers
 *  likewise. What most files have is right. Other columns are in *out if all files have them so; where types are guessed,
 *  also if some lack them.
 *
 *  A file that cannot be used gets `bad`, and no rows, if the options skip such files and others are left; otherwise it is
 *  an error, which names all of them: in its text, or in lines of the log when there are several.
 *  Errors: as mr_source_open. */
int mr_schemas_join(const struct mr_source_ops *ops, void *state,
                    const struct mr_source_setup *setup, struct mr_schema *out, struct mr_err *err);
/** An error of this status is the fault of one file, not of the machine or the storage. */
bool mr_is_fault_of_file(int status);

#endif
