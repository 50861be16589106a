#include "placed.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

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
    for (size_t i = 0; i < o->link_dir_count; i++) {
        MR_VEC_PUSH(&out->link_dirs, o->link_dirs[i]);
    }
    if (allowed) {
        MR_VEC_PUSH(&out->link_dirs, allowed);
    }
    MR_TRY(url_folders_add(o, out, err));
    o->link_dirs = out->link_dirs.at;
    o->link_dir_count = out->link_dirs.len;
    o->places = true;
    o->control = MR_MODEL_CONTROL_EXPLICIT;
out:
    return rc;
}

void placed_fini(struct placed *p)
{
    MR_VEC_FINI(&p->link_dirs);
}
