/* Folders for what processes write for a while. */
#ifndef MR_PROCESS_FOLDER_H
#define MR_PROCESS_FOLDER_H

#include "base/err.h"

/** Makes a folder among the system's temporary files ($TMPDIR, otherwise /tmp), in which only this user can make entries;
 *  *out: its path, which the caller frees. Errors: MR_E_IO. */
int mr_folder_new(char **out, struct mr_err *err);
/** The same for a folder that is to go with the process even if that is killed: the next call removes those of processes of
 *  this user that have ended. *out_lock: a descriptor that says that this one is in use, for the caller to close once the
 *  folder is removed. Errors: MR_E_IO. */
int mr_folder_new_locked(char **out, int *out_lock, struct mr_err *err);
/** Makes the folder unless it is there. NULL for the user: folders are this user's, and others can pass through them if they
 *  know a name in them; otherwise only that user has access. Errors: MR_E_IO, MR_E_INVALID (no such user). */
int mr_folder_make(const char *path, const char *user, struct mr_err *err);
/** Removes what is in it, except what cannot be removed. Follows no symbolic links. */
void mr_folder_empty(const char *path);
/** The same, and the folder itself. */
void mr_folder_remove(const char *path);

#endif
