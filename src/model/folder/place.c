/* Links in a folder of their own. What was there under the name goes first: loads of one name do not overlap. */
#include "model/place.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"
#include "folder.h"
#include "model/model.h"

static const char *const archive_ends[] = {".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip"};

/* Whether the folder is that of a model, or of one version. */
static int model_look(const char *folder, bool *out_is_model, struct mr_err *err)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int64_t number;
    bool has_config = false, has_versions = false, has_settings = false;

    if (!d) {
        return mr_path_errno(folder, errno, err);
    }
    while ((e = readdir(d)) != NULL) {
        has_config |= strcmp(e->d_name, "config.pbtxt") == 0;
        has_settings |= strcmp(e->d_name, MR_MODEL_SETTINGS) == 0;
        has_versions |= mr_version_number(mr_str_c(e->d_name), &number);
    }
    closedir(d);
    if (has_settings && !has_config) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "%.300s: a folder of MLServer, whose " MR_MODEL_SETTINGS
                       " says its name, cannot have another one",
                       folder);
    }
    *out_is_model = has_config || has_versions;
    return MR_OK;
}

/* A link in the folder `in`, and the name with its end. */
static int link_make(const char *in, mr_str name, mr_str end, const char *target,
                     struct mr_err *err)
{
    struct mr_buf text = {0};
    char *path;
    int rc = MR_OK;

    mr_buf_init(&text, 0);
    mr_buf_str(&text, name);
    mr_buf_str(&text, end);
    path = mr_path_join(in, mr_str_n(text.ptr, text.len));
    if (symlink(target, path) != 0) {
        rc = mr_path_errno(path, errno, err);
    }
    mr_free(path);
    mr_buf_fini(&text);
    return rc;
}

/* What is at `target` is the version 1, or a file in it. */
static int version_make(const char *folder, const char *target, bool is_file, struct mr_err *err)
{
    char *version = mr_path_join(folder, MR_STR("1"));
    const char *dot = strrchr(strrchr(target, '/'), '.');
    int rc = MR_OK;

    if (mkdir(folder, 0700) != 0 || (is_file && mkdir(version, 0700) != 0)) {
        rc = mr_path_errno(folder, errno, err);
    } else if (is_file) {
        rc = link_make(version, MR_STR("model"), mr_str_c(dot ? dot : ""), target, err);
    } else {
        rc = link_make(folder, MR_STR("1"), MR_STR(""), target, err);
    }
    mr_free(version);
    return rc;
}

static int make(const char *placed, mr_str name, const char *path, struct mr_err *err)
{
    const mr_str file = mr_str_c(strrchr(path, '/') + 1);
    bool is_model = false;
    mr_str stem;
    struct stat st;
    char *folder;
    int rc;

    if (stat(path, &st) != 0) {
        return mr_path_errno(path, errno, err);
    }
    if (S_ISREG(st.st_mode) && mr_archive_is_name(file, &stem)) {
        return link_make(placed, name, mr_str_sub(file, stem.len, file.len), path, err);
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s: neither a file nor a folder", path);
    }
    if (S_ISDIR(st.st_mode)) {
        MR_TRY(model_look(path, &is_model, err));
        if (is_model) {
            return link_make(placed, name, MR_STR(""), path, err);
        }
    }
    folder = mr_path_join(placed, name);
    rc = version_make(folder, path, S_ISREG(st.st_mode), err);
    mr_free(folder);
out:
    return rc;
}

int mr_model_place(const char *placed, mr_str name, const char *path, struct mr_err *err)
{
    mr_model_displace(placed, name);
    return make(placed, name, path, err);
}

void mr_model_displace(const char *placed, mr_str name)
{
    char *folder = mr_path_join(placed, name);
    const size_t len = strlen(folder);
    char *archive = mr_alloc(len + 16);

    mr_tree_remove(folder, NULL);
    for (size_t i = 0; i < sizeof archive_ends / sizeof *archive_ends; i++) {
        memcpy(archive, folder, len);
        memcpy(archive + len, archive_ends[i], strlen(archive_ends[i]) + 1);
        unlink(archive);
    }
    mr_free(archive);
    mr_free(folder);
}
