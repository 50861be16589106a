#include "local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store.h"

int kv_local_path(char out[KV_LOCAL_ROOM], struct mr_err *err)
{
    const char *service = getenv("STATE_DIRECTORY");
    const char *user = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");

    if (service && service[0] == '/') {
        snprintf(out, KV_LOCAL_ROOM, "%.*s/mesh/registry", (int)strcspn(service, ":"), service);
    } else if (user && user[0] == '/') {
        snprintf(out, KV_LOCAL_ROOM, "%s/millrace/mesh/registry", user);
    } else if (geteuid() == 0) {
        snprintf(out, KV_LOCAL_ROOM, "/var/lib/millrace/mesh/registry");
    } else if (home && home[0] == '/') {
        snprintf(out, KV_LOCAL_ROOM, "%s/.local/state/millrace/mesh/registry", home);
    } else {
        return MR_FAIL(err, MR_E_INVALID,
                       "local: none of $STATE_DIRECTORY, $XDG_STATE_HOME and $HOME names a folder "
                       "for the registry; file:PATH does");
    }
    int rc = kv_file_check(mr_str_c(out), err);
    return rc < 0 ? MR_WRAP(err, rc, "local") : MR_OK;
}

static int fail_errno(struct mr_err *err, const char *path)
{
    char text[128];
    const int error = errno;

    return MR_FAIL(err, MR_E_IO, "local: %s: %s", path, strerror_r(error, text, sizeof text));
}

/* Who may write to the folder could take the place of the registry's file and socket. */
int kv_local_make(const char *file, struct mr_err *err)
{
    char path[KV_LOCAL_ROOM];
    struct stat st;

    snprintf(path, sizeof path, "%s", file);
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            return fail_errno(err, path);
        }
        *p = '/';
    }
    *strrchr(path, '/') = '\0';
    if (stat(path, &st) != 0) {
        return fail_errno(err, path);
    }
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022)) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "local: %s must be a folder of this user that no other may write to; "
                       "file:PATH names another",
                       path);
    }
    return MR_OK;
}
