/* Finding the C library of a backend when the server runs, and saying what it says.
 *
 * The wheels of Python hold these libraries as they are, and are where most machines have them. Packages of the Python of
 * a folder of PATH lie in ../lib/python3*, in an environment as well as in the system, so no interpreter is asked. */
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>

#include "trees.h"

/* The library stays: it has threads and thread-local memory of its own. */
static void *open_one(const char *file)
{
    return dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static int named_open(const char *path, void **out, struct mr_err *err)
{
    *out = open_one(path);
    return *out ? MR_OK
                : mr_backend_fail(err, MR_E_IO, "%s does not open: %s", trees_name, dlerror());
}

/* By the loader. It is there but does not open if the loader complains of another file than the one it was asked for. */
static int usual_open(const char *const *names, void **out, struct mr_err *err)
{
    for (size_t i = 0; names[i]; i++) {
        *out = open_one(names[i]);
        const char *why = *out ? NULL : dlerror();
        if (*out) {
            return MR_OK;
        }
        if (why && strncmp(why, names[i], strlen(names[i])) != 0) {
            return mr_backend_fail(err, MR_E_IO, "%s does not open: %s", names[i], why);
        }
    }
    return MR_E_NOT_FOUND;
}

/* Beside one folder of PATH. */
static int beside_open(const char *dir, size_t dir_len, const char *wheel, void **out,
                       struct mr_err *err)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    int rc = MR_E_NOT_FOUND;
    const int n = snprintf(pattern, sizeof pattern, "%.*s/../lib/python3*/*-packages/%s",
                           (int)dir_len, dir, wheel);

    if (n > 0 && (size_t)n < sizeof pattern && dir[0] == '/' &&
        glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc > 0) {
        rc = named_open(found.gl_pathv[0], out, err);
    }
    globfree(&found);
    return rc;
}

static int wheel_open(const char *wheel, void **out, struct mr_err *err)
{
    const char *at = getenv("PATH");
    int rc = MR_E_NOT_FOUND;

    while (at && rc == MR_E_NOT_FOUND) {
        const size_t len = strcspn(at, ":");
        rc = beside_open(at, len < PATH_MAX ? len : 0, wheel, out, err);
        at = at[len] == ':' ? at + len + 1 : NULL;
    }
    return rc;
}

int trees_library_open(const char *path, const char *const *names, const char *wheel, void **out,
                       struct mr_err *err)
{
    if (path) {
        return named_open(path, out, err);
    }
    int rc = usual_open(names, out, err);
    rc = rc == MR_E_NOT_FOUND ? wheel_open(wheel, out, err) : rc;
    return rc == MR_E_NOT_FOUND
               ? mr_backend_fail(
                     err, rc,
                     "its library is not there: the loader knows no %s, and no package of "
                     "a Python in PATH has %s; --backend-config=%s,library=PATH names it",
                     names[0], wheel, trees_name)
               : rc;
}

void *trees_symbol(void *library, const char *name, struct mr_err *err)
{
    void *found = dlsym(library, name);

    if (!found) {
        mr_backend_fail(err, MR_E_UNSUPPORTED,
                        "the library of %s is of a version that is not supported: it has no %s",
                        trees_name, name);
    }
    return found;
}

/* The text after "[time] /path/of/file.cc:line: ", with which XGBoost begins. */
static const char *without_place(const char *said)
{
    const char *after = said[0] == '[' ? strstr(said, "] ") : NULL;
    const char *colon = after ? strstr(after, ": ") : NULL;

    return colon && !memchr(after + 2, ' ', (size_t)(colon - after - 2)) ? colon + 2 : said;
}

int trees_fail(struct mr_err *err, int status, const char *what, const char *said)
{
    const char *begin = without_place(said);
    const char *end = strstr(begin, "\nStack trace");
    const int len = end ? (int)(end - begin) : (int)strlen(begin);

    mr_backend_fail(err, status, "%s: %.*s", what, len, begin);
    for (char *c = err->msg; *c; c++) {
        *c = (unsigned char)*c < ' ' ? ' ' : *c;
    }
    return status;
}
