/* `millrace doctor`: the folder for weights of large models (chosen by backends/onnxruntime/weights/cache.c). Without
 * it weights stay on the heap, which only a line of the log reports. */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"

#define HEAP "weights of large models stay on the heap, and updates of them cost memory and time"

/* False: no folder is configured. */
static bool folder_of(char *out, size_t room)
{
    const char *service = getenv("CACHE_DIRECTORY");
    const char *user = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int n = -1;

    if (service && service[0] == '/') {
        n = snprintf(out, room, "%.*s/parameters", (int)strcspn(service, ":"), service);
    } else if (user && user[0] == '/') {
        n = snprintf(out, room, "%s/millrace/parameters", user);
    } else if (home && home[0] == '/') {
        n = snprintf(out, room, "%s/.cache/millrace/parameters", home);
    }
    return n > 0 && (size_t)n < room;
}

/* True if it can be created: its nearest existing parent must be writable. */
static bool can_be_made(const char *folder)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s", folder);
    while (access(path, F_OK) != 0 && strcmp(path, "/") != 0) {
        const char *above = dirname(path);
        memmove(path, above, strlen(above) + 1);
    }
    return access(path, W_OK | X_OK) == 0;
}

void doctor_cache(struct doctor *d)
{
    char folder[PATH_MAX];
    struct stat st;

    if (!folder_of(folder, sizeof folder)) {
        doctor_say(d, FINDING_WARN, "cache",
                   "set CacheDirectory= in the unit, $HOME, or "
                   "--backend-config=onnxruntime,parameter_cache=DIR",
                   "no folder is named: " HEAP);
        return;
    }
    bool is_there = stat(folder, &st) == 0;
    if (is_there && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))) {
        doctor_say(d, FINDING_WARN, "cache",
                   "chown it to the server's user, chmod go-w, or name another one: "
                   "--backend-config=onnxruntime,parameter_cache=DIR",
                   "%s does not belong to this user alone: " HEAP, folder);
    } else if (!can_be_made(folder)) {
        doctor_say(d, FINDING_WARN, "cache",
                   "make it writable, or name another one: "
                   "--backend-config=onnxruntime,parameter_cache=DIR",
                   "%s cannot be written by this user: " HEAP, folder);
    } else {
        doctor_say(d, FINDING_OK, "cache", NULL, "%s%s", folder,
                   is_there ? "" : " (made when it is needed)");
    }
}
