#include "paddle_config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define ENGINES_MAX 10000u

static int parse(struct paddle_config *c, const ProtobufCMessageDescriptor *desc, const char *file,
                 mr_str text, void *out, struct mr_err *err)
{
    ProtobufCMessage *message;
    int rc = mr_pbtext_parse_lines(desc, text, &c->lines, &message, err);

    if (rc < 0) {
        return MR_WRAP(err, rc, "%s", file);
    }
    *(void **)out = message;
    return MR_OK;
}

static int read_message(struct paddle_config *c, const ProtobufCMessageDescriptor *desc,
                        const char *file, void *out, struct mr_err *err)
{
    mr_str text;
    int rc = import_read_file(file, c->arena, &text, err);

    return rc < 0 ? rc : parse(c, desc, file, text, out, err);
}

/* The folder of a path, "." without one. */
static mr_str folder_of(mr_str path)
{
    for (size_t i = path.len; i > 0; i--) {
        if (path.ptr[i - 1] == '/') {
            return mr_str_sub(path, 0, i > 1 ? i - 1 : 1);
        }
    }
    return MR_STR(".");
}

/* A path of Paddle Serving's files is relative to where its server is started: the folder above that of the files, mostly.
 * NULL: there is no such file from there, from the folder of the files, or from the working folder. */
static const char *find(struct mr_import *im, const char *folder, const char *file)
{
    const mr_str near = folder_of(mr_str_c(im->file));
    const char *middle = folder && *folder ? folder : ".";
    const mr_str paths[] = {
        mr_arena_printf(&im->arena, "%.*s/../%s/%s", MR_STR_ARG(near), middle, file),
        mr_arena_printf(&im->arena, "%.*s/%s/%s", MR_STR_ARG(near), middle, file),
        mr_arena_printf(&im->arena, "%s/%s", middle, file),
    };

    for (size_t i = middle[0] == '/' ? 2 : 0; i < 3; i++) {
        if (paths[i].ptr && access(paths[i].ptr, R_OK) == 0) {
            return paths[i].ptr;
        }
    }
    return NULL;
}

/* A file that resource.prototxt names. */
static int find_named(struct mr_import *im, struct paddle_config *c, size_t i, char *const *folders,
                      size_t folder_count, char *const *files, const char *what, const char **out,
                      struct mr_err *err)
{
    const char *folder = folder_count > 0 ? folders[MR_MIN(i, folder_count - 1)] : ".";

    *out = find(im, folder, files[i]);
    return *out ? MR_OK
                : PADDLE_FAIL(err, MR_E_NOT_FOUND, c, c->resource_file, files[i],
                              "%s '%.128s/%.128s' is not there", what, folder, files[i]);
}

static const char *sibling(struct mr_import *im, const char *file)
{
    const mr_str near = folder_of(mr_str_c(im->file));
    const mr_str path = mr_arena_printf(&im->arena, "%.*s/%s", MR_STR_ARG(near), file);

    return path.ptr && access(path.ptr, R_OK) == 0 ? path.ptr : NULL;
}

/* ---- engines ---- */

/* The only file that ends with .onnx in a folder; NULL: there is none, or there are several. */
static const char *only_onnx(struct mr_import *im, const char *folder)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    mr_str found = {NULL, 0};
    int count = 0;

    while (d && (e = readdir(d))) {
        if (mr_str_ends(mr_str_c(e->d_name), MR_STR(".onnx"))) {
            found = mr_arena_printf(&im->arena, "%s/%s", folder, e->d_name);
            count++;
        }
    }
    if (d) {
        closedir(d);
    }
    return count == 1 ? found.ptr : NULL;
}

static const char *onnx_of(struct mr_import *im, const char *model_dir)
{
    const char *folder = find(im, model_dir, ".");
    const char *inside = folder ? find(im, model_dir, "model.onnx") : NULL;

    if (inside) {
        return inside;
    }
    if (folder && (inside = only_onnx(im, folder))) {
        return inside;
    }
    const mr_str dir = mr_str_c(model_dir);
    const mr_str beside = mr_arena_printf(
        &im->arena, "%.*s.onnx",
        MR_STR_ARG(mr_str_ends(dir, MR_STR("/")) ? mr_str_sub(dir, 0, dir.len - 1) : dir));
    return beside.ptr ? find(im, beside.ptr[0] == '/' ? "/" : ".", beside.ptr) : NULL;
}

static int read_toolkit(struct mr_import *im, struct paddle_config *c, const char *file,
                        struct mr_err *err)
{
    Paddle__ModelToolkitConf *t;
    int rc = read_message(c, &paddle__model_toolkit_conf__descriptor, file, &t, err);

    if (rc < 0) {
        return rc;
    }
    MR_VEC_PUSH(&c->toolkits, t);
    for (size_t i = 0; i < t->n_engines; i++) {
        const Paddle__EngineDesc *d = t->engines[i];
        const struct doc_at at = {.file = file};
        if (c->engines.len == ENGINES_MAX || paddle_engine_find(c, d->name)) {
            return PADDLE_FAIL(err, MR_E_INVALID, c, file, d,
                               "engine '%.64s' is there twice, or more than 10000", d->name);
        }
        rc = import_check_name(&at, PADDLE_DOC(c, d), mr_str_c(d->name), err);
        if (rc < 0) {
            return rc;
        }
        const struct paddle_engine e = {
            .desc = d, .file = file, .model_file = onnx_of(im, d->model_dir)};
        MR_VEC_PUSH(&c->engines, e);
    }
    return MR_OK;
}

/* The files of tensors belong to the engines in their order, as Paddle Serving takes them. */
static int read_tensors(struct mr_import *im, struct paddle_config *c, size_t i, struct mr_err *err)
{
    const Paddle__ResourceConf *r = c->resources;
    Paddle__GeneralModelConfig *m;
    const char *file;
    int rc;

    MR_TRY(find_named(im, c, i, r->general_model_path, r->n_general_model_path,
                      r->general_model_file, "general_model", &file, err));
    MR_TRY(read_message(c, &paddle__general_model_config__descriptor, file, &m, err));
    MR_VEC_PUSH(&c->models, m);
    if (i < c->engines.len) {
        c->engines.at[i].tensors = m;
        c->engines.at[i].tensors_file = file;
    }
out:
    return rc;
}

static int read_resources(struct mr_import *im, struct paddle_config *c, struct mr_err *err)
{
    const char *file = sibling(im, "resource.prototxt");
    int rc;

    if (!file) {
        return MR_OK;
    }
    c->resource_file = file;
    MR_TRY(read_message(c, &paddle__resource_conf__descriptor, file, &c->resources, err));
    const Paddle__ResourceConf *r = c->resources;
    if (r->cube_config_file[0] || r->cube_config_path[0]) {
        const char *cube = r->cube_config_file[0] ? r->cube_config_file : r->cube_config_path;
        MR_TRY(import_warn(im, err,
                           "%s:%u: the sparse parameter server (cube) has no counterpart here",
                           file, mr_pbtext_line_of(&c->lines, cube)));
    }
    for (size_t i = 0; i < r->n_model_toolkit_file; i++) {
        MR_TRY(find_named(im, c, i, r->model_toolkit_path, r->n_model_toolkit_path,
                          r->model_toolkit_file, "model_toolkit", &file, err));
        MR_TRY(read_toolkit(im, c, file, err));
    }
    for (size_t i = 0; i < r->n_general_model_file; i++) {
        MR_TRY(read_tensors(im, c, i, err));
    }
out:
    return rc;
}

/* ---- services and workflows ---- */

static int read_services(struct mr_import *im, struct paddle_config *c, struct mr_err *err)
{
    const char *file = sibling(im, "infer_service.prototxt");

    file = file ? file : sibling(im, "service.prototxt");
    c->service_file = file;
    return file ? read_message(c, &paddle__infer_service_conf__descriptor, file, &c->services, err)
                : MR_OK;
}

int paddle_config_read(struct mr_import *im, mr_str text, struct paddle_config *out,
                       struct mr_err *err)
{
    int rc;

    *out = (struct paddle_config){.arena = &im->arena};
    out->workflow_file = out->service_file = im->file;
    if (mr_str_find_str(text, MR_STR("services")) >= 0) {
        MR_TRY(parse(out, &paddle__infer_service_conf__descriptor, im->file, text, &out->services,
                     err));
        out->workflow_file = sibling(im, "workflow.prototxt");
        if (!out->workflow_file) {
            return MR_FAIL(err, MR_E_NOT_FOUND, "%s: there is no workflow.prototxt beside it",
                           im->file);
        }
        MR_TRY(read_message(out, &paddle__workflow_conf__descriptor, out->workflow_file,
                            &out->workflows, err));
    } else {
        MR_TRY(
            parse(out, &paddle__workflow_conf__descriptor, im->file, text, &out->workflows, err));
        MR_TRY(read_services(im, out, err));
    }
    MR_TRY(read_resources(im, out, err));
out:
    return rc;
}

static void drop(void *message)
{
    if (message) {
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

void paddle_config_free(struct paddle_config *c)
{
    drop(c->services);
    drop(c->workflows);
    drop(c->resources);
    for (size_t i = 0; i < c->toolkits.len; i++) {
        drop(c->toolkits.at[i]);
    }
    for (size_t i = 0; i < c->models.len; i++) {
        drop(c->models.at[i]);
    }
    MR_VEC_FINI(&c->toolkits);
    MR_VEC_FINI(&c->models);
    MR_VEC_FINI(&c->engines);
    mr_pbtext_lines_fini(&c->lines);
}

const struct paddle_engine *paddle_engine_find(const struct paddle_config *c, const char *name)
{
    for (size_t i = 0; i < c->engines.len; i++) {
        if (strcmp(c->engines.at[i].desc->name, name) == 0) {
            return &c->engines.at[i];
        }
    }
    return NULL;
}
