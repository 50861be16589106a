/* Names and paths from outside, and the check that a path stays inside its repository.
 *
 * A repository is the operator's, but what is in it may come from elsewhere: unpacked archives,
 * mounted volumes, a load request. So every path is resolved with all its links before it is used.
 * Links that stay inside are fine (mounted config maps are made of them), and links to folders that
 * the operator has named. A process that changes links between the check and the use could change the
 * files as well; that is not defended against.
 *
 * Blocks on the file system; any thread. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "folder.h"

static bool has_control(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c < 0x20 || c == 0x7f) {
            return true;
        }
    }
    return false;
}

static bool is_blank(mr_str s)
{
    size_t i = 0;

    while (i < s.len && (s.ptr[i] == ' ' || (s.ptr[i] >= '\t' && s.ptr[i] <= '\r'))) {
        i++;
    }
    return i == s.len;
}

/* Clients look for the texts about empty names and paths. */
int mr_model_name_check(mr_str name, struct mr_err *err)
{
    mr_str trimmed = mr_str_trim(name);

    if (is_blank(name)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid model name: Model name cannot be empty. Please enter a valid name "
                       "to deploy.");
    }
    if (name.len > NAME_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "invalid model name: %zu bytes, allowed are %d", name.len,
                       NAME_MAX);
    }
    if (has_control(name) || !mr_utf8_valid(name)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid model name: it has control characters or is not UTF-8");
    }
    if (mr_str_find(name, '/') >= 0 || mr_str_eq_c(trimmed, ".") || mr_str_eq_c(trimmed, "..")) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid model name '%.*s', model name must not contain path traversal "
                       "characters",
                       MR_STR_ARG(name));
    }
    return MR_OK;
}

int mr_model_path_check(mr_str path, struct mr_err *err)
{
    mr_str rest = path;
    mr_str part;
    size_t parts = 0;
    bool ok = path.len > 0 && path.len <= 512 && !has_control(path);

    while (ok && mr_str_split(&rest, '/', &part)) {
        parts++;
        ok = part.len > 0 && part.len <= NAME_MAX && !mr_str_eq_c(part, ".") &&
             !mr_str_eq_c(part, "..");
    }
    if (!ok || parts > 16) {
        return MR_FAIL(err, MR_E_INVALID,
                       "invalid file path '%.*s': it must be relative, without empty, '.' and '..' "
                       "parts, of at most 16 parts and 512 bytes",
                       MR_STR_ARG(mr_str_sub(path, 0, has_control(path) ? 0 : 100)));
    }
    return MR_OK;
}

char *mr_path_join(const char *a, mr_str b)
{
    size_t len = strlen(a);
    char *path = mr_alloc(len + b.len + 2);

    memcpy(path, a, len);
    path[len] = '/';
    if (b.len > 0) {
        memcpy(path + len + 1, b.ptr, b.len);
    }
    return path;
}

static bool is_below(const char *root, const char *real)
{
    size_t len = strlen(root);

    return strncmp(real, root, len) == 0 &&
           (real[len] == '/' || real[len] == '\0' || strcmp(root, "/") == 0);
}

int mr_path_inside(const char *root, const char *const *links, const char *path, char **out,
                   struct mr_err *err)
{
    char real[PATH_MAX];

    if (!realpath(path, real)) {
        return mr_path_errno(path, errno, err);
    }
    bool is_inside = root && is_below(root, real);
    for (size_t i = 0; links && links[i] && !is_inside; i++) {
        is_inside = is_below(links[i], real);
    }
    if (!is_inside) {
        return MR_FAIL(
            err, MR_E_FORBIDDEN,
            "%.150s leads out of the repository, to %.120s; links to a folder elsewhere take "
            "--allow-links-to=DIR",
            path, real);
    }
    *out = mr_strndup(real, strlen(real));
    return MR_OK;
}
