/* The folder of links is made anew at each start: what is placed in it is decided at run time, by the mesh or by load requests. */
#include "placed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"

static int folder_make(char **out, struct mr_err *err)
{
    const char *base = getenv("TMPDIR");
    char path[512], *real;

    snprintf(path, sizeof path, "%.400s/millrace-placed-XXXXXX",
             base && base[0] == '/' ? base : "/tmp");
    real = mkdtemp(path) ? realpath(path, NULL) : NULL;
    if (!real) {
        return MR_FAIL(err, MR_E_IO, "the folder of placed models: %.400s: %s", path,
                       strerror(errno));
    }
    *out = mr_strndup(real, strlen(real));
    free(real);
    return MR_OK;
}

/* Of addresses with file:. */
static int url_folders_add(const struct mr_models_options *o, struct placed *out,
                           struct mr_err *err)
{
    for (size_t i = 0; i < o->allowed_url_count; i++) {
        const char *path = o->allowed_urls[i];
        if (!mr_str_starts(mr_str_c(path), MR_STR("file:"))) {
            continue;
        }
        path += mr_str_starts(mr_str_c(path), MR_STR("file://")) ? 7 : 5;
        if (access(path, X_OK) != 0) {
            return MR_FAIL(err, MR_E_INVALID, "--allow-model-url=%.300s: %s", o->allowed_urls[i],
                           strerror(errno));
        }
        MR_VEC_PUSH(&out->link_dirs, path);
    }
    return MR_OK;
}

int placed_open(struct mr_serve_options *s, struct placed *out, struct mr_err *err)
{
    struct mr_models_options *o = &s->server.models;
    const char *allowed = s->model_runtime ? s->model_runtime : s->server.mesh.models;
    int rc;

    if (!allowed && o->allowed_url_count == 0) {
        return MR_OK;
    }
    MR_TRY(folder_make(&out->folder, err));
    for (size_t i = 0; i < o->link_dir_count; i++) {
        MR_VEC_PUSH(&out->link_dirs, o->link_dirs[i]);
    }
    if (allowed) {
        MR_VEC_PUSH(&out->link_dirs, allowed);
    }
    MR_TRY(url_folders_add(o, out, err));
    o->link_dirs = out->link_dirs.at;
    o->link_dir_count = out->link_dirs.len;
    o->placed = out->folder;
    o->control = MR_MODEL_CONTROL_EXPLICIT;
out:
    return rc;
}

void placed_fini(struct placed *p)
{
    if (p->folder) {
        mr_tree_remove(p->folder, NULL);
    }
    mr_free(p->folder);
    MR_VEC_FINI(&p->link_dirs);
}
