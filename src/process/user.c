#include "process/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define ENTRY_BYTES 16384

static int user_find(const char *name, char entry[ENTRY_BYTES], struct passwd *out,
                     struct mr_err *err)
{
    struct passwd *found = NULL;

    if (getpwnam_r(name, out, entry, ENTRY_BYTES, &found) != 0 || !found) {
        return MR_FAIL(err, MR_E_INVALID, "there is no user '%.64s'", name);
    }
    return out->pw_uid > 0 ? MR_OK
                           : MR_FAIL(err, MR_E_INVALID, "the user '%.64s' is root itself", name);
}

int mr_process_user_check(const char *name, struct mr_err *err)
{
    char entry[ENTRY_BYTES];
    struct passwd user;

    if (geteuid() != 0) {
        return MR_FAIL(err, MR_E_INVALID, "only root can start processes of another user");
    }
    return user_find(name, entry, &user, err);
}

int mr_process_user_give(const char *path, const char *name, struct mr_err *err)
{
    char entry[ENTRY_BYTES];
    struct passwd user;
    int rc;

    MR_TRY(user_find(name, entry, &user, err));
    if (chown(path, user.pw_uid, user.pw_gid) < 0) {
        rc = MR_FAIL(err, MR_E_IO, "cannot give %.300s to the user '%.64s': %s", path, name,
                     strerror(errno));
    }
out:
    return rc;
}

int mr_process_become(const char *name, struct mr_err *err)
{
    char entry[ENTRY_BYTES];
    struct passwd user;
    int rc;

    MR_TRY(user_find(name, entry, &user, err));
    if (initgroups(name, user.pw_gid) < 0 || setresgid(user.pw_gid, user.pw_gid, user.pw_gid) < 0 ||
        setresuid(user.pw_uid, user.pw_uid, user.pw_uid) < 0) {
        return MR_FAIL(err, MR_E_FORBIDDEN, "cannot become the user '%.64s': %s", name,
                       strerror(errno));
    }
    prctl(PR_SET_DUMPABLE, 1); /* otherwise what it has in /proc stays root's */
out:
    return rc;
}
