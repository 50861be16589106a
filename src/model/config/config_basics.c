/* The first things that a config must settle: the name, and which backend opens which file.
 *
 * What the config does not say is read off the folder: a file with a well-known name says its
 * backend, any other `model.<x>` says backend <x>, and so does a model whose own name ends in
 * `.<x>`. The well-known names and the texts are Triton's. Blocks on the file system; any
 * thread. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "config_priv.h"
#include "model/model.h"

/* In the order in which they are looked for. */
static const struct known_backend {
    const char *backend;
    const char *platform; /* "": the backend goes without */
    const char *file;
} known_backends[] = {
    {"tensorrt", "tensorrt_plan", "model.plan"},
    {"onnxruntime", "onnxruntime_onnx", "model.onnx"},
    {"openvino", "", "model.xml"},
    {"pytorch", "pytorch_libtorch", "model.pt"},
    {"torch_aoti", "torch_aoti", "model.pt2"},
    {"python", "", "model.py"},
    {"tensorflow", "tensorflow_savedmodel", "model.savedmodel"},
    {"tensorflow", "tensorflow_graphdef", "model.graphdef"},
    {"xgboost", "", "model.json"},
    {"xgboost", "", "model.ubj"},
    {"xgboost", "", "model.bst"},
    {"lightgbm", "", "model.txt"},
    {"lightgbm", "", "model.bst"},
};

/* MLServer's, which names the model's files itself, whatever they are called. */
static const struct known_backend settings_backend = {"python", "", MR_MODEL_SETTINGS};

#define KNOWN_COUNT (sizeof known_backends / sizeof *known_backends)

static const struct known_backend *known_by_platform(const char *platform)
{
    for (size_t i = 0; platform[0] && i < KNOWN_COUNT; i++) {
        if (strcmp(known_backends[i].platform, platform) == 0) {
            return &known_backends[i];
        }
    }
    return NULL;
}

static const struct known_backend *known_by_file(const char *file)
{
    if (strcmp(settings_backend.file, file) == 0) {
        return &settings_backend;
    }
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (strcmp(known_backends[i].file, file) == 0) {
            return &known_backends[i];
        }
    }
    return NULL;
}

static bool is_in_folder(const char *version_dir, const char *file)
{
    char path[PATH_MAX];
    struct stat st;
    int n = snprintf(path, sizeof path, "%s/%s", version_dir, file);

    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0;
}

static bool is_of(const struct known_backend *k, const char *backend)
{
    return !backend || strcmp(k->backend, backend) == 0;
}

/* The first file that is there, of this backend; NULL: of any. */
static const struct known_backend *known_in_folder(const char *version_dir, const char *backend)
{
    if (version_dir && is_of(&settings_backend, backend) &&
        is_in_folder(version_dir, settings_backend.file)) {
        return &settings_backend;
    }
    for (size_t i = 0; version_dir && i < KNOWN_COUNT; i++) {
        if (is_of(&known_backends[i], backend) &&
            is_in_folder(version_dir, known_backends[i].file)) {
            return &known_backends[i];
        }
    }
    return NULL;
}

static bool is_backend_name(const char *s)
{
    size_t len = strlen(s);

    return len > 0 && len <= 64 &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == len;
}

/* <x> of the first file model.<x> in byte order, so that the answer does not depend on the disk. */
static bool custom_in_folder(const char *version_dir, char out[NAME_MAX + 1])
{
    DIR *dir = version_dir ? opendir(version_dir) : NULL;
    struct dirent *e;
    bool found = false;

    while (dir && (e = readdir(dir))) {
        if (strncmp(e->d_name, "model.", 6) == 0 && is_backend_name(e->d_name + 6) &&
            (!found || strcmp(e->d_name + 6, out) < 0)) {
            snprintf(out, NAME_MAX + 1, "%s", e->d_name + 6);
            found = true;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return found;
}

int mr_config_name(Inference__ModelConfig *c, mr_str model_name, struct mr_err *err)
{
    char *copy;

    if (c->name[0] && !mr_str_eq_c(model_name, c->name)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "unexpected directory name '%.*s' for model '%.128s', directory name must "
                       "equal model name",
                       MR_STR_ARG(model_name), c->name);
    }
    if (!c->name[0]) {
        copy = mr_strndup(model_name.ptr, model_name.len);
        mr_config_set_string(&c->name, copy);
        mr_free(copy);
    }
    return MR_OK;
}

bool mr_config_folder_says(const char *version_dir)
{
    char custom[NAME_MAX + 1];

    return known_in_folder(version_dir, NULL) || custom_in_folder(version_dir, custom);
}

bool mr_config_file_says(const char *file)
{
    return known_by_file(file) != NULL;
}

static int backend_from_folder(Inference__ModelConfig *c, const char *version_dir,
                               struct mr_err *err)
{
    const struct known_backend *k = known_in_folder(version_dir, NULL);
    char custom[NAME_MAX + 1];
    const char *dot = strrchr(c->name, '.');

    if (k) {
        mr_config_set_string(&c->backend, k->backend);
        mr_config_set_string(&c->platform, k->platform);
        mr_config_set_string(&c->default_model_filename, k->file);
    } else if (custom_in_folder(version_dir, custom)) {
        mr_config_set_string(&c->backend, custom);
    } else if (dot && is_backend_name(dot + 1)) {
        mr_config_set_string(&c->backend, dot + 1);
    } else {
        return MR_FAIL(
            err, MR_E_INVALID,
            "Invalid model name: Could not determine backend for model '%.128s' with no "
            "backend in model configuration. Expected model name of the form "
            "'model.<backend_name>', or a file 'model.onnx' or 'model.<backend_name>' in "
            "the version's folder",
            c->name);
    }
    return MR_OK;
}

bool mr_config_says_backend(const Inference__ModelConfig *c)
{
    return c->backend[0] || c->platform[0] || c->default_model_filename[0] || mr_config_is_graph(c);
}

bool mr_config_has_messages(const Inference__ModelConfig *c)
{
    return strcmp(c->backend, settings_backend.backend) == 0 &&
           strcmp(c->default_model_filename, settings_backend.file) == 0;
}

static bool has_platform(const char *backend)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        if (known_backends[i].platform[0] && strcmp(known_backends[i].backend, backend) == 0) {
            return true;
        }
    }
    return false;
}

/* Sets c->backend when it is empty. */
static int backend_settle(Inference__ModelConfig *c, const char *version_dir, struct mr_err *err)
{
    const struct known_backend *k = known_by_platform(c->platform);
    const char *file = c->default_model_filename;

    if (c->backend[0]) {
        if (k ? strcmp(k->backend, c->backend) != 0 : c->platform[0] && has_platform(c->backend)) {
            return MR_FAIL(err, MR_E_INVALID,
                           "unexpected 'platform' and 'backend' pair, got:%.64s, %.64s",
                           c->platform, c->backend);
        }
        return MR_OK;
    }
    if (c->platform[0]) {
        if (!k) {
            return MR_FAIL(err, MR_E_INVALID, "unexpected platform type '%.64s' for %.128s",
                           c->platform, c->name);
        }
        mr_config_set_string(&c->backend, k->backend);
        return MR_OK;
    }
    if (!file[0]) {
        return backend_from_folder(c, version_dir, err);
    }
    k = known_by_file(file);
    if (k) {
        mr_config_set_string(&c->backend, k->backend);
        return MR_OK;
    }
    if (strncmp(file, "model.", 6) == 0 && is_backend_name(file + 6)) {
        mr_config_set_string(&c->backend, file + 6);
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "must specify 'platform' or 'backend' for '%.128s'", c->name);
}

/* Platform and file name that go with the backend, where the config leaves them out. */
static void backend_defaults(Inference__ModelConfig *c, const char *version_dir)
{
    const struct known_backend *k = known_by_platform(c->platform);
    char file[NAME_MAX + 1];

    for (size_t i = 0; !k && i < KNOWN_COUNT; i++) {
        if (strcmp(known_backends[i].backend, c->backend) == 0) {
            k = &known_backends[i];
        }
    }
    /* A backend with several kinds of file (tensorflow, xgboost): what is there decides. */
    const struct known_backend *there =
        k && !c->platform[0] ? known_in_folder(version_dir, k->backend) : NULL;
    k = there ? there : k;
    if (k && !c->platform[0]) {
        mr_config_set_string(&c->platform, k->platform);
    }
    if (!c->default_model_filename[0]) {
        snprintf(file, sizeof file, "model.%.64s", c->backend);
        mr_config_set_string(&c->default_model_filename, k ? k->file : file);
    }
}

/* The name goes into paths: it must stay below the version's folder. */
static int file_name_check(const Inference__ModelConfig *c, struct mr_err *err)
{
    mr_str rest = mr_str_c(c->default_model_filename);
    mr_str part;

    while (mr_str_split(&rest, '/', &part)) {
        if (part.len == 0 || mr_str_eq_c(part, ".") || mr_str_eq_c(part, "..")) {
            return MR_FAIL(err, MR_E_INVALID,
                           "'default_model_filename' of model '%.128s' is '%.128s': it must name a "
                           "file inside the version's folder",
                           c->name, c->default_model_filename);
        }
    }
    return MR_OK;
}

int mr_config_basics(Inference__ModelConfig *c, mr_str model_name, const char *version_dir,
                     struct mr_err *err)
{
    int rc = mr_config_name(c, model_name, err);

    if (rc < 0) {
        return rc;
    }
    if (mr_config_is_graph(c)) {
        return mr_config_graph_basics(c, err);
    }
    rc = backend_settle(c, version_dir, err);
    if (rc < 0) {
        return rc;
    }
    backend_defaults(c, version_dir);
    return file_name_check(c, err);
}
