/* The folder of an import is made once for the same configurations and model files: a server that starts again finds it, and a
 * changed file makes another one. */
#include "imported.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "import/import.h"

static int make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    (void)path;
    return mr_import_write(ctx, dir, true, err);
}

static int key_of(const struct mr_import *im, char out[MR_SHA256_TEXT], struct mr_err *err)
{
    const struct mr_import_model *m;
    struct mr_sha256 *sum = mr_sha256_new();
    char file[PATH_MAX];

    for (size_t i = 0; (m = mr_import_model_at(im, i)); i++) {
        if (m->model_file && !(m->model_file[0] && realpath(m->model_file, file))) {
            mr_sha256_end(&sum, out);
            return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.128s' has no ONNX file", m->name);
        }
        mr_sha256_add(sum, mr_str_n(m->name, strlen(m->name) + 1));
        mr_sha256_add(sum, mr_str_n(m->config.ptr, m->config.len + 1));
        mr_sha256_add(sum, m->model_file ? mr_str_n(file, strlen(file) + 1) : MR_STR("-"));
    }
    mr_sha256_end(&sum, out);
    return MR_OK;
}

/* Links of the repository lead to the folders of the model files. */
static void allow_links(struct imported *i, const struct mr_import *im)
{
    const struct mr_import_model *m;
    char file[PATH_MAX];

    for (size_t k = 0; (m = mr_import_model_at(im, k)); k++) {
        if (m->model_file && realpath(m->model_file, file)) {
            const char *slash = strrchr(file, '/'); /* a resolved path has one */
            char *folder = mr_strndup(file, slash > file ? (size_t)(slash - file) : 1);
            MR_VEC_PUSH(&i->owned, folder);
            MR_VEC_PUSH(&i->link_dirs, folder);
        }
    }
}

static int add(struct imported *i, const char *file, struct mr_err *err)
{
    const struct mr_import_options o = {.from = "paddle"};
    struct mr_cache_ref *ref;
    struct mr_import *im;
    char key[MR_SHA256_TEXT];
    const char *warning;
    int rc = mr_import_read(&im, file, &o, err);

    if (rc < 0) {
        return rc;
    }
    const struct mr_cache_maker maker = {.make = make, .ctx = im};
    for (size_t k = 0; (warning = mr_import_warning_at(im, k)); k++) {
        mr_log(MR_LOG_WARN, "serve.import", "%s", warning);
    }
    MR_TRY(key_of(im, key, err));
    MR_TRY(mr_cache_get(i->cache, "paddle", key, &maker, &ref, err));
    MR_VEC_PUSH(&i->refs, ref);
    MR_VEC_PUSH(&i->repositories, mr_cache_path(ref));
    allow_links(i, im);
out:
    mr_import_free(&im);
    return rc;
}

int imported_open(struct mr_serve_options *s, struct imported *out, struct mr_err *err)
{
    struct mr_models_options *o = &s->server.models;
    int rc = MR_OK;

    if (s->paddle_services.len == 0) {
        return MR_OK;
    }
    for (size_t i = 0; i < o->repository_count; i++) {
        MR_VEC_PUSH(&out->repositories, o->repositories[i]);
    }
    for (size_t i = 0; i < o->link_dir_count; i++) {
        MR_VEC_PUSH(&out->link_dirs, o->link_dirs[i]);
    }
    out->cache = mr_cache_new(o->archive_cache, o->archive_cache_bytes);
    for (size_t i = 0; i < s->paddle_services.len && rc == MR_OK; i++) {
        rc = add(out, s->paddle_services.at[i], err);
    }
    o->repositories = out->repositories.at;
    o->repository_count = out->repositories.len;
    o->link_dirs = out->link_dirs.at;
    o->link_dir_count = out->link_dirs.len;
    return rc < 0 ? MR_WRAP(err, rc, "--paddle-service") : MR_OK;
}

void imported_fini(struct imported *i)
{
    for (size_t k = 0; k < i->refs.len; k++) {
        mr_cache_unref(&i->refs.at[k]);
    }
    for (size_t k = 0; k < i->owned.len; k++) {
        mr_free(i->owned.at[k]);
    }
    MR_VEC_FINI(&i->refs);
    MR_VEC_FINI(&i->repositories);
    MR_VEC_FINI(&i->link_dirs);
    MR_VEC_FINI(&i->owned);
    mr_cache_free(&i->cache);
}
