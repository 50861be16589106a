#include "interpreter.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "environment.h"
#include "model/folder/settings.h"

#define BACKEND     "python"
#define ENVIRONMENT "EXECUTION_ENV_PATH"
#define MODEL_DIR   "$$TRITON_MODEL_DIRECTORY"
#define SCRIPT      "python/millrace_worker.py"
#define MAKER       "python/millrace_environment.py"
#define PACKAGES    "requirements.txt"

bool interpreter_is_needed(const char *backend)
{
    return strcmp(backend, BACKEND) == 0;
}

/* The first file of that name in a list of folders; NULL: in none. */
static const char *file_find(struct mr_arena *arena, const char *const *dirs, size_t count,
                             const char *name, int mode)
{
    for (size_t i = 0; i < count; i++) {
        const char *path = mr_arena_printf(arena, "%s/%s", dirs[i], name).ptr;
        if (path && access(path, mode) == 0) {
            return path;
        }
    }
    return NULL;
}

static const char *path_find(struct mr_arena *arena, const char *name)
{
    const char *path = getenv("PATH");
    mr_str rest = mr_str_c(path ? path : "/usr/local/bin:/usr/bin:/bin");
    mr_str dir;

    while (mr_str_split(&rest, ':', &dir)) {
        const char *one = dir.len ? mr_arena_str(arena, dir).ptr : NULL;
        const char *found = one ? file_find(arena, &one, 1, name, X_OK) : NULL;
        if (found) {
            return found;
        }
    }
    return NULL;
}

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct mr_loading *l = ctx;

    if (l) {
        /* Relaxed: for people. */
        atomic_store_explicit(&l->step, "unpacking the environment", memory_order_relaxed);
        atomic_store_explicit(&l->done, done, memory_order_relaxed);
        atomic_store_explicit(&l->total, total, memory_order_relaxed);
    }
    return !l || !l->is_unwanted || !l->is_unwanted(l);
}

/* An environment that was packed by conda-pack or venv-pack. */
static int environment_unpack(const struct interpreter_args *a, const char *path,
                              struct mr_cache_ref **out, struct mr_err *err)
{
    struct mr_loading *l = a->desc->loading;
    const struct mr_cache_archive_args args = {
        .path = path, .flags = MR_ARCHIVE_ENVIRONMENT, .on_progress = on_progress, .ctx = l};

    if (a->on_wait) {
        a->on_wait(a->ctx, false);
    }
    const int rc = mr_cache_archive(a->cache, &args, out, err);
    if (l) {
        atomic_store_explicit(&l->step, NULL, memory_order_relaxed);
        atomic_store_explicit(&l->done, 0, memory_order_relaxed);
        atomic_store_explicit(&l->total, 0, memory_order_relaxed);
    }
    if (a->on_wait) {
        a->on_wait(a->ctx, true);
    }
    return rc;
}

/* What a model of MLServer names in its settings; NULL: nothing. */
static const char *settings_given(struct mr_arena *arena, const struct interpreter_args *a)
{
    char *found = NULL;

    if (mr_config_has_messages(a->config)) {
        settings_environment(a->desc->version_dir, &found);
    }
    const char *out = found ? mr_arena_str(arena, mr_str_c(found)).ptr : NULL;
    mr_free(found);
    return out;
}

/* The folder of an environment that the model names; what: its parameter, for errors. */
static int environment_dir(struct mr_arena *arena, const struct interpreter_args *a,
                           const char *given, const char *what, const char **out,
                           struct mr_cache_ref **held, struct mr_err *err)
{
    const bool is_relative = strncmp(given, MODEL_DIR, sizeof MODEL_DIR - 1) == 0;
    const char *path =
        is_relative
            ? mr_arena_printf(arena, "%s%s", a->desc->model_dir, given + sizeof MODEL_DIR - 1).ptr
            : given;
    struct stat st;
    int rc;

    if (!path || stat(path, &st) < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "parameter %s: there is no %.300s", what, given);
    }
    if (!S_ISDIR(st.st_mode)) {
        rc = environment_unpack(a, path, held, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "parameter %s", what);
        }
        path = mr_cache_path(*held);
    }
    *out = path;
    return MR_OK;
}

#if defined(__SANITIZE_ADDRESS__)
/* An interpreter that was built without the sanitizer loads its library before all others. */
static const char *preload(struct mr_arena *arena)
{
    Dl_info info;

    return dladdr(dlsym(RTLD_DEFAULT, "__asan_init"), &info)
               ? mr_arena_printf(arena, "LD_PRELOAD=%s", info.dli_fname).ptr
               : NULL;
}
#else
static const char *preload(struct mr_arena *arena)
{
    (void)arena;
    return NULL;
}
#endif

/* The server's variables, with those of the environment before them. */
static const char *const *variables(struct mr_arena *arena, const char *dir)
{
    const char *path = getenv("PATH");
    const char **out;
    size_t n = 0, used = 0;

    while (environ[n]) {
        n++;
    }
    out = MR_ARENA_ARRAY(arena, const char *, n + 4);
    if (!out) {
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (!dir ||
            (strncmp(environ[i], "PATH=", 5) != 0 && strncmp(environ[i], "PYTHONHOME=", 11) != 0)) {
            out[used++] = mr_arena_str(arena, mr_str_c(environ[i])).ptr;
        }
    }
    if (dir) {
        out[used++] =
            mr_arena_printf(arena, "PATH=%s/bin%s%s", dir, path ? ":" : "", path ? path : "").ptr;
        out[used++] = mr_arena_printf(arena, "VIRTUAL_ENV=%s", dir).ptr;
    }
    out[used++] = preload(arena);
    return out;
}

static int program_find(struct mr_arena *arena, const struct mr_models_options *o, const char *dir,
                        const char **out, struct mr_err *err)
{
    const char *bin = dir ? mr_arena_printf(arena, "%s/bin", dir).ptr : NULL;

    if (dir) {
        *out = file_find(arena, &bin, 1, "python3", X_OK);
        *out = *out ? *out : file_find(arena, &bin, 1, "python", X_OK);
        return *out ? MR_OK
                    : MR_FAIL(err, MR_E_NOT_FOUND,
                              "the model's environment has no bin/python3: %.256s", dir);
    }
    *out = o->python ? o->python : path_find(arena, "python3");
    if (!*out || access(*out, X_OK) < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND,
                       "no interpreter for Python models: %.256s; --python names another",
                       *out ? *out : "there is no python3 in the folders of PATH");
    }
    return MR_OK;
}

/* The folder of an environment with the packages that the model or its archive asks for; NULL: none does. */
static int packages_dir(struct mr_arena *arena, const struct interpreter_args *a, const char **out,
                        struct mr_cache_ref **held, struct mr_err *err)
{
    const char *const dirs[] = {a->desc->version_dir, a->desc->model_dir, a->top};
    const struct mr_models_options *o = a->options;
    struct environment_args args = {
        .cache = a->cache,
        .model = a->desc->name,
        .requirements = file_find(arena, dirs, a->top ? 3 : 2, PACKAGES, R_OK),
        .script = file_find(arena, o->backend_dirs, o->backend_dir_count, MAKER, R_OK),
        .loading = a->desc->loading,
        .on_wait = a->on_wait,
        .ctx = a->ctx};
    int rc = MR_OK;

    if (!args.requirements || !args.script) {
        return MR_OK;
    }
    MR_TRY(program_find(arena, o, NULL, &args.python, err));
    MR_TRY(environment_get(&args, held, err));
    *out = *held ? mr_cache_path(*held) : NULL;
out:
    return rc;
}

static int script_find(struct mr_arena *arena, const struct mr_models_options *o, const char **out,
                       struct mr_err *err)
{
    *out = file_find(arena, o->backend_dirs, o->backend_dir_count, SCRIPT, R_OK);
    return *out ? MR_OK
                : MR_FAIL(err, MR_E_NOT_FOUND,
                          "there is no " SCRIPT " in the folders of backends: this build has no "
                          "python backend");
}

int interpreter_find(struct interpreter *out, struct mr_arena *arena,
                     const struct interpreter_args *args, struct mr_err *err)
{
    const char *given = mr_config_parameter(args->config, ENVIRONMENT), *dir = NULL;
    const char *settings = given && given[0] ? NULL : settings_given(arena, args);
    const char **command = MR_ARENA_ARRAY(arena, const char *, 3);
    struct mr_cache_ref *held = NULL;
    int rc;

    if (!command) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a command");
    }
    MR_TRY(script_find(arena, args->options, &command[1], err));
    if (given && given[0]) {
        MR_TRY(environment_dir(arena, args, given, ENVIRONMENT, &dir, &held, err));
    } else if (settings) {
        MR_TRY(environment_dir(arena, args, settings, "environment", &dir, &held, err));
    } else {
        MR_TRY(packages_dir(arena, args, &dir, &held, err));
    }
    MR_TRY(program_find(arena, args->options, dir, &command[0], err));
    out->command = command;
    out->environment = variables(arena, dir);
    rc = out->environment ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for an environment");
out:
    if (rc < 0) {
        mr_cache_unref(&held);
    }
    out->held = held;
    return rc;
}
