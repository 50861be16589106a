/* A process of root that goes on as another user. */
#ifndef MR_PROCESS_USER_H
#define MR_PROCESS_USER_H

#include "base/err.h"

/** Whether mr_process_become can work: the process is root's, and there is such a user. Errors: MR_E_INVALID. */
int mr_process_user_check(const char *name, struct mr_err *err);
/** Makes the user the owner of a file or folder. Errors: MR_E_INVALID (no such user), MR_E_IO. */
int mr_process_user_give(const char *path, const char *name, struct mr_err *err);
/** Takes the user's number and groups, for good; the process loses all privileges, and mr_process_die_with has to be called
 *  again. Thread: the only one. Errors: MR_E_INVALID (no such user), MR_E_FORBIDDEN. */
int mr_process_become(const char *name, struct mr_err *err);

#endif
