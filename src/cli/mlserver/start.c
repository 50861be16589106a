/* `millrace mlserver start FOLDER`: in the place of `mlserver start`. Reads settings.json and the variables MLSERVER_*, as
 * MLServer does, and starts the server with the options of `millrace serve` that mean the same. */
#include "start.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/vec.h"
#include "cli/common/cli.h"
#include "codec/json.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

static const char program[] = "millrace mlserver start";

static const char usage[] =
    "usage: millrace mlserver start FOLDER [options of millrace serve]\n\n"
    "Serves the models of MLServer in a folder, in the place of 'mlserver start'. Reads "
    "FOLDER/settings.json and variables such as\n"
    "MLSERVER_HTTP_PORT; options given here come before them. The interpreter is python3 of PATH "
    "unless --python names another.\n";

/* ---- settings ---- */

enum use {
    AS_OPTION,  /* the option has the value, unless it is that which means the option's default */
    AS_SWITCH,  /* the option is given if the value is the one that is named */
    AS_NOTHING, /* a warning unless it is the fallback */
    REFUSED     /* an error unless it is the fallback */
};

/* A key of settings.json. Values are texts; null, [] and {} are "". */
static const struct key {
    const char *name;
    enum use use;
    const char *fallback;
    /* a switch: the value that turns it on; an option: a value that means its default, as an empty one does */
    const char *value;
    const char *options[3];
} keys[] = {
    {"host", AS_OPTION, "0.0.0.0", NULL, {"http-address", "grpc-address", "metrics-address"}},
    {"http_port", AS_OPTION, "8080", NULL, {"http-port"}},
    {"grpc_port", AS_OPTION, "8081", NULL, {"grpc-port"}},
    {"metrics_port", AS_OPTION, "8082", NULL, {"metrics-port"}},
    {"server_name", AS_OPTION, "mlserver", NULL, {"id"}},
    {"grpc_max_message_length", AS_OPTION, "", "-1", {"grpc-max-message-size"}},
    {"load_models_at_startup", AS_SWITCH, "true", "true", {"load-model=*"}},
    {"metrics_endpoint", AS_SWITCH, "/metrics", "", {"allow-metrics=false"}},
    {"parallel_workers", AS_NOTHING, NULL, NULL, {NULL}}, /* read where models are loaded */
    {"root_path", AS_NOTHING, "", NULL, {NULL}},
    {"cors_settings", AS_NOTHING, "", NULL, {NULL}},
    {"cache_enabled", AS_NOTHING, "false", NULL, {NULL}},
    {"tracing_server", AS_NOTHING, "", NULL, {NULL}},
    {"logging_settings", AS_NOTHING, "", NULL, {NULL}},
    {"kafka_enabled", REFUSED, "false", NULL, {NULL}},
    {"model_repository_implementation", REFUSED, "", NULL, {NULL}},
};
#define KEY_COUNT (sizeof keys / sizeof *keys)

/* The variable of a key, NUL-terminated. */
static const char *variable_name(const char *key, char out[64])
{
    snprintf(out, 64, "MLSERVER_%s", key);
    for (char *c = out; *c; c++) {
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - ('a' - 'A') : *c);
    }
    return out;
}

/* A value as the text of a variable. */
static int value_text(struct mr_json *j, mr_str *out)
{
    const enum mr_json_type type = mr_json_peek(j);
    const int rc = type == MR_JSON_STRING ? mr_json_string(j, out) : mr_json_skip(j, out);
    const bool is_empty =
        type == MR_JSON_NULL || mr_str_eq_c(*out, "[]") || mr_str_eq_c(*out, "{}");

    if (rc == MR_OK && type != MR_JSON_STRING && is_empty) {
        *out = MR_STR("");
    }
    return rc;
}

/* An empty value that means the fallback is no variable: MLServer's own settings refuse an empty number or object. */
static void variable_set(const struct key *k, const char *value)
{
    char name[64];

    if (!value[0] && k->fallback && !k->fallback[0]) {
        unsetenv(variable_name(k->name, name));
    } else {
        setenv(variable_name(k->name, name), value, 1);
    }
}

/* What the file says becomes the environment, which it comes before. */
static int variables_set(mr_str text, struct mr_arena *arena, struct mr_err *err)
{
    struct mr_json j;
    bool first = true;
    mr_str key, value;

    mr_json_init(&j, text, arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = value_text(&j, &value);
        for (size_t i = 0; rc == MR_OK && i < KEY_COUNT; i++) {
            const char *copy =
                mr_str_eq_c(key, keys[i].name) ? mr_arena_str(arena, value).ptr : NULL;
            if (copy) {
                variable_set(&keys[i], copy);
            }
        }
    }
    rc = rc < 0 ? rc : j.status;
    return rc < 0 ? rc : mr_json_finish(&j);
}

/* No file is as good as an empty one. *out is NUL-terminated, in the arena. */
static int file_read(const char *path, struct mr_arena *arena, mr_str *out, struct mr_err *err)
{
    FILE *f = fopen(path, "re");
    char *data = mr_arena_try(arena, FILE_BYTES_MAX + 1, 1);

    *out = MR_STR("{}");
    if (!f) {
        return errno == ENOENT ? MR_OK : MR_FAIL(err, MR_E_IO, "%.300s: %s", path, strerror(errno));
    }
    const size_t n = data ? fread(data, 1, FILE_BYTES_MAX + 1, f) : 0;
    const bool is_bad = ferror(f) || n > FILE_BYTES_MAX || !data;
    fclose(f);
    if (is_bad) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s cannot be read, or has more than a mebibyte",
                       path);
    }
    *out = mr_str_n(data, n);
    return MR_OK;
}

static int settings_read(const char *folder, struct mr_arena *arena, struct mr_err *err)
{
    const char *path = mr_arena_printf(arena, "%s/settings.json", folder).ptr;
    mr_str text;
    int rc = path ? file_read(path, arena, &text, err) : MR_FAIL(err, MR_E_NOMEM, "out of memory");

    if (rc == MR_OK) {
        rc = variables_set(text, arena, err);
        rc = rc < 0 ? MR_WRAP(err, rc, "%.300s", path) : MR_OK;
    }
    return rc;
}

/* ---- the command line of `millrace serve` ---- */

struct words {
    struct mr_arena arena;
    MR_VEC(char *) at;
};

/* value NULL: the option has none. */
static void word_add(struct words *w, const char *option, const char *value)
{
    const mr_str text = value ? mr_arena_printf(&w->arena, "--%s=%s", option, value)
                              : mr_arena_printf(&w->arena, "--%s", option);

    if (text.ptr) {
        MR_VEC_PUSH(&w->at, (char *)(uintptr_t)text.ptr);
    }
}

/* Booleans as pydantic reads them are "true" or "false"; other texts are as they are. */
static const char *boolean_text(const char *value)
{
    static const char *const texts[2][6] = {{"0", "off", "f", "false", "n", "no"},
                                            {"1", "on", "t", "true", "y", "yes"}};

    for (size_t i = 0; i < 12; i++) {
        if (strcasecmp(value, texts[i / 6][i % 6]) == 0) {
            return i < 6 ? "false" : "true";
        }
    }
    return value;
}

static bool is_boolean(const struct key *k)
{
    return k->fallback && (strcmp(k->fallback, "true") == 0 || strcmp(k->fallback, "false") == 0);
}

static int key_apply(struct words *w, const struct key *k, struct mr_err *err)
{
    char name[64];
    const char *set = getenv(variable_name(k->name, name));
    const char *given = set && is_boolean(k) ? boolean_text(set) : set;
    const char *value = given ? given : k->fallback;
    const bool is_default = !given || !k->fallback || strcasecmp(given, k->fallback) == 0;

    if (k->use == REFUSED && !is_default) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "'%s' is not supported", k->name);
    }
    if (k->use == AS_NOTHING && !is_default) {
        fprintf(stderr, "%s: '%s' has no effect\n", program, k->name);
    }
    for (size_t i = 0; i < 3 && k->options[i]; i++) {
        const bool is_named = k->value && strcasecmp(value, k->value) == 0;
        if (k->use == AS_OPTION && value[0] && !is_named) {
            word_add(w, k->options[i], value);
        } else if (k->use == AS_SWITCH && is_named) {
            word_add(w, k->options[i], NULL);
        }
    }
    return MR_OK;
}

/* MLServer puts these folders first on sys.path. */
static void python_path_set(const char *folder)
{
    const char *before = getenv("PYTHONPATH");
    char here[PATH_MAX], text[4 * PATH_MAX];
    const int n = snprintf(text, sizeof text, "%s:%s%s%s", getcwd(here, sizeof here) ? here : ".",
                           folder, before ? ":" : "", before ? before : "");

    if (n > 0 && (size_t)n < sizeof text) {
        setenv("PYTHONPATH", text, 1);
    }
}

static int is_model(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    return kind == FTW_F && strcmp(path + at->base, "model-settings.json") == 0;
}

/* MLServer makes a model of environment variables where there is no file. */
static int variables_check(const char *folder, struct mr_err *err)
{
    if (getenv("MLSERVER_MODEL_IMPLEMENTATION") && nftw(folder, is_model, 16, 0) == 0) {
        return MR_FAIL(
            err, MR_E_UNSUPPORTED,
            "MLSERVER_MODEL_IMPLEMENTATION is set, and %.300s has no model-settings.json: "
            "a model needs the file, with its implementation and name",
            folder);
    }
    return MR_OK;
}

static int words_make(struct words *w, const char *folder, struct mr_err *err)
{
    int rc = settings_read(folder, &w->arena, err);

    rc = rc < 0 ? rc : variables_check(folder, err);

    word_add(w, "model-repository", folder);
    word_add(w, "model-control-mode", "explicit");
    word_add(w, "empty-health-bodies", "true");
    word_add(w, "mlserver-errors", "true");
    for (size_t i = 0; rc == MR_OK && i < KEY_COUNT; i++) {
        rc = key_apply(w, &keys[i], err);
    }
    return rc;
}

int mr_cli_mlserver_start(int argc, char **argv)
{
    struct words w = {0};
    char folder[PATH_MAX];
    struct mr_err err;
    int code;

    if (argc < 1 || strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        fputs(usage, argc < 1 ? stderr : stdout);
        return argc < 1 ? MR_EXIT_USAGE : MR_EXIT_OK;
    }
    if (argv[0][0] == '-' || !realpath(argv[0], folder)) {
        snprintf(err.msg, sizeof err.msg, "FOLDER is '%.256s': %s", argv[0],
                 argv[0][0] == '-' ? "it comes before all options" : strerror(errno));
        return mr_cli_fail(program, MR_EXIT_USAGE, err.msg);
    }
    mr_arena_init(&w.arena, 0, 8 * FILE_BYTES_MAX);
    if (words_make(&w, folder, &err) < 0) {
        code = mr_cli_fail(program, MR_EXIT_USAGE, err.msg);
    } else {
        for (int i = 1; i < argc; i++) {
            MR_VEC_PUSH(&w.at, argv[i]);
        }
        python_path_set(folder);
        MR_VEC_PUSH(&w.at, NULL);
        code = mr_cli_serve((int)w.at.len - 1, w.at.at, environ);
    }
    MR_VEC_FINI(&w.at);
    mr_arena_fini(&w.arena);
    return code;
}
