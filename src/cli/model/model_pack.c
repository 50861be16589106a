/* `millrace model pack`: a folder as an archive that a repository takes. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "archive/archive.h"
#include "codec/json.h"
#include "model.h"

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    return (size_t)snprintf(path, sizeof path, "%s/%s", folder, name) < sizeof path &&
           stat(path, &st) == 0;
}

int model_folder_inspect(const char *path, struct model_folder *out, struct mr_err *err)
{
    struct stat st;

    if (!realpath(path, out->path) || stat(out->path, &st) != 0) {
        char text[128];
        return MR_FAIL(err, MR_E_NOT_FOUND, "%.300s: %s", path,
                       strerror_r(errno, text, sizeof text));
    }
    const char *slash = strrchr(out->path, '/');
    snprintf(out->name, sizeof out->name, "%s", slash + 1); /* a resolved path has one */
    snprintf(out->parent, sizeof out->parent, "%.*s",
             slash == out->path ? 1 : (int)(slash - out->path), out->path);
    out->is_file = S_ISREG(st.st_mode);
    out->is_project = !out->is_file && !is_there(out->path, "config.pbtxt") &&
                      !is_there(out->path, "model-settings.json") && is_there(out->path, "models");
    return out->name[0] ? MR_OK
                        : MR_FAIL(err, MR_E_INVALID, "%.300s is no folder of a model", path);
}

int model_run_pack(struct model_run *m, struct mr_err *err)
{
    struct model_folder folder;
    char to[PATH_MAX];
    struct stat st;
    uint64_t files;
    struct mr_buf text;
    int rc;

    MR_TRY(model_folder_inspect(m->name, &folder, err));
    if (folder.is_file) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s is no folder", m->name);
    }
    if ((size_t)snprintf(to, sizeof to, "%s%s", m->opt.to ? m->opt.to : folder.name,
                         m->opt.to ? "" : ".tar.gz") >= sizeof to) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s: too long a name", m->opt.to);
    }
    MR_TRY(mr_archive_pack(folder.path, folder.is_project ? "" : folder.name, to, &files, err));
    if (m->form == MODEL_JSON) {
        mr_buf_init(&text, 0);
        mr_json_put_string(&text, mr_str_c(to));
        printf("{\"archive\":%s,\"files\":%llu,\"bytes\":%llu}\n", mr_buf_cstr(&text),
               (unsigned long long)files,
               (unsigned long long)(stat(to, &st) == 0 ? (uint64_t)st.st_size : 0));
        mr_buf_fini(&text);
    } else {
        printf("%s, %llu files\n", to, (unsigned long long)files);
    }
out:
    return rc;
}
