/* Models of MLServer that need no Python: those of a runtime of MLServer's own that a backend of the server stands for.
 *
 * Whatever else could make a difference leaves the model to Python: code beside the file, content types other than numpy's,
 * a configuration that says more. What MLServer reads of the file is in docs/mlserver.md. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/log.h"
#include "codec/json.h"
#include "config_priv.h"
#include "model/folder/folder.h"
#include "model/model.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

static const struct runtime {
    const char *implementation;
    const char *backend;
    const char *files[4]; /* in the order in which they are looked for */
} runtimes[] = {
    {"mlserver_xgboost.XGBoostModel", "xgboost", {"model.bst", "model.json", "model.ubj"}},
    {"mlserver_lightgbm.LightGBMModel", "lightgbm", {"model.bst"}},
};

/* What the file says. Texts are in its text or the arena. */
struct facts {
    mr_str implementation;
    mr_str uri;
};

/* ---- reading ---- */

static int text_read(struct mr_json *j, mr_str *out)
{
    return mr_json_peek(j) == MR_JSON_STRING ? mr_json_string(j, out) : mr_json_skip(j, NULL);
}

static int parameters_read(struct mr_json *j, struct facts *f)
{
    bool first = true;
    mr_str key;

    if (mr_json_peek(j) != MR_JSON_OBJECT) {
        return mr_json_skip(j, NULL);
    }
    int rc = mr_json_enter_object(j);
    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "uri") ? text_read(j, &f->uri) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int facts_read(mr_str text, struct mr_arena *arena, struct facts *f)
{
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_json_init(&j, text, arena, 0, NULL);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = mr_str_eq_c(key, "implementation") ? text_read(&j, &f->implementation)
             : mr_str_eq_c(key, "parameters")   ? parameters_read(&j, f)
                                                : mr_json_skip(&j, NULL);
    }
    return rc < 0 ? rc : j.status;
}

/* Content types, of the model or of a tensor, that are not numpy's. */
static bool has_other_types(mr_str text)
{
    static const char key[] = "\"content_type\"";
    const char *at = text.ptr;
    const char *const end = text.ptr + text.len;

    while ((at = memmem(at, (size_t)(end - at), key, sizeof key - 1))) {
        at += sizeof key - 1;
        while (at < end && strchr(" \t\r\n:", *at)) {
            at++;
        }
        if (!mr_str_starts(mr_str_n(at, (size_t)(end - at)), MR_STR("\"np\""))) {
            return true;
        }
    }
    return false;
}

/* The variables from which MLServer takes what the file does not say. */
static bool has_variables(void)
{
    return getenv("MLSERVER_MODEL_URI") || getenv("MLSERVER_MODEL_CONTENT_TYPE") ||
           getenv("MLSERVER_MODEL_EXTRA") || getenv("MLSERVER_MODEL_IMPLEMENTATION");
}

static bool has_code(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        found = mr_str_ends(mr_str_c(e->d_name), MR_STR(".py"));
    }
    if (d) {
        closedir(d);
    }
    return found;
}

/* ---- the model's file ---- */

static bool is_kind(const char *dir, mr_str file, mode_t kind)
{
    char *path = mr_path_join(dir, file);
    struct stat st;
    const bool is = stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;

    mr_free(path);
    return is;
}

/* The path within the folder; *out empty: none that is inside. */
static void file_find(const struct runtime *r, const char *dir, mr_str uri, char out[PATH_MAX])
{
    const bool is_inside = uri.len < NAME_MAX && (uri.len == 0 || uri.ptr[0] != '/') &&
                           !memmem(uri.ptr, uri.len, "..", 2);
    out[0] = '\0';
    while (mr_str_starts(uri, MR_STR("./"))) {
        uri = mr_str_sub(uri, 2, uri.len);
    }
    if (!is_inside) {
        return;
    }
    if (uri.len > 0 && !mr_str_eq_c(uri, ".")) {
        snprintf(out, PATH_MAX, "%.*s", is_kind(dir, uri, S_IFREG) ? (int)uri.len : 0, uri.ptr);
        return;
    }
    for (size_t i = 0; r->files[i] && !out[0]; i++) {
        if (is_kind(dir, mr_str_c(r->files[i]), S_IFREG)) {
            snprintf(out, PATH_MAX, "%s", r->files[i]);
        }
    }
}

/* ---- the configuration ---- */

static void parameter_add(Inference__ModelConfig *c, const char *key, const char *value)
{
    Inference__ModelConfig__ParametersEntry *e = MR_NEW(Inference__ModelConfig__ParametersEntry);

    inference__model_config__parameters_entry__init(e);
    e->value = MR_NEW(Inference__ModelParameter);
    inference__model_parameter__init(e->value);
    mr_config_set_string(&e->key, key);
    mr_config_set_string(&e->value->string_value, value);
    c->parameters = mr_realloc_array(c->parameters, c->n_parameters + 1, sizeof(void *));
    c->parameters[c->n_parameters++] = e;
}

static const struct runtime *runtime_find(mr_str text, const char *dir, char file[PATH_MAX])
{
    struct facts f = {{"", 0}, {"", 0}};
    const struct runtime *r = NULL;
    struct mr_arena arena;

    mr_arena_init(&arena, 0, 2 * FILE_BYTES_MAX);
    if (facts_read(text, &arena, &f) == MR_OK) {
        for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes && !r; i++) {
            r = mr_str_eq_c(f.implementation, runtimes[i].implementation) ? &runtimes[i] : NULL;
        }
    }
    if (r) {
        file_find(r, dir, f.uri, file);
    }
    mr_arena_fini(&arena);
    return r;
}

/* A prediction costs less than the wait for others. */
static void batching_drop(Inference__ModelConfig *c)
{
    if (c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING) {
        inference__model_dynamic_batching__free_unpacked(c->dynamic_batching, NULL);
        c->dynamic_batching = NULL;
        c->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET;
    }
}

void mr_config_without_python(const Inference__ModelConfig *c, const char *version_dir,
                              Inference__ModelConfig **out)
{
    const bool is_plain = mr_config_has_messages(c) && c->n_input == 0 && c->n_output == 0 &&
                          !mr_config_parameter(c, MR_CONFIG_INTERFACE);
    char *path = mr_path_join(version_dir, MR_STR(MR_MODEL_SETTINGS));
    char file[PATH_MAX] = "";
    char *text = NULL;
    size_t len = 0;

    *out = NULL;
    if (is_plain && !has_variables() && !has_code(version_dir) &&
        mr_file_read(path, FILE_BYTES_MAX, &text, &len, NULL) == MR_OK &&
        !has_other_types(mr_str_n(text, len))) {
        const struct runtime *r = runtime_find(mr_str_n(text, len), version_dir, file);
        if (r && file[0] && mr_config_copy(c, out, NULL) == MR_OK) {
            mr_config_set_string(&(*out)->backend, r->backend);
            mr_config_set_string(&(*out)->default_model_filename, file);
            (*out)->max_batch_size = 0; /* requests have any number of rows */
            batching_drop(*out);
            if ((*out)->model_transaction_policy) {
                (*out)->model_transaction_policy->decoupled = 0;
            }
            parameter_add(*out, MR_CONFIG_INTERFACE, MR_CONFIG_MLSERVER);
        }
    }
    mr_free(text);
    mr_free(path);
}

bool mr_config_reads_matrix(const Inference__ModelConfig *c)
{
    const char *interface = mr_config_parameter(c, MR_CONFIG_INTERFACE);
    bool is = false;

    for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++) {
        is |= strcmp(c->backend, runtimes[i].backend) == 0;
    }
    return is && interface && strcmp(interface, MR_CONFIG_MLSERVER) == 0;
}
