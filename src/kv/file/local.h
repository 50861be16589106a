/* The registry of this user on this machine, in a folder that no one has to name. */
#ifndef MR_KV_FILE_LOCAL_H
#define MR_KV_FILE_LOCAL_H

#include "base/err.h"

#define KV_LOCAL_ROOM 4096 /* PATH_MAX */

/** The path of its file: mesh/registry in the first that there is of $STATE_DIRECTORY (systemd's StateDirectory=),
 *  $XDG_STATE_HOME/millrace, for root /var/lib/millrace, $HOME/.local/state/millrace. Changes nothing.
 *  Errors: MR_E_INVALID (there is none, or the path is too long). Thread: any that getenv may be called from. */
int kv_local_path(char out[KV_LOCAL_ROOM], struct mr_err *err);
/** Makes the folder of that path, and those above it, with mode 0700. Errors, which name the folder: MR_E_IO;
 *  MR_E_FORBIDDEN (it is another user's, or others may write to it). */
int kv_local_make(const char *path, struct mr_err *err);

#endif
