#include "interpreter.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKEND     "python"
#define ENVIRONMENT "EXECUTION_ENV_PATH"
#define MODEL_DIR   "$$TRITON_MODEL_DIRECTORY"
#define SCRIPT      "python/millrace_worker.py"

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

/* The folder of an environment. */
static int environment_dir(struct mr_arena *arena, const char *given,
                           const struct mr_model_desc *desc, const char **out, struct mr_err *err)
{
    const bool is_relative = strncmp(given, MODEL_DIR, sizeof MODEL_DIR - 1) == 0;
    struct stat st;

    *out = is_relative
               ? mr_arena_printf(arena, "%s%s", desc->model_dir, given + sizeof MODEL_DIR - 1).ptr
               : given;
    if (!*out || stat(*out, &st) < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "parameter " ENVIRONMENT ": there is no %.300s", given);
    }
    if (!S_ISDIR(st.st_mode)) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "parameter " ENVIRONMENT ": %.256s is no folder; unpack the environment",
                       given);
    }
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
                              "parameter " ENVIRONMENT ": there is no bin/python3 in %.256s", dir);
    }
    *out = o->python ? o->python : path_find(arena, "python3");
    if (!*out || access(*out, X_OK) < 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND,
                       "no interpreter for Python models: %.256s; --python names another",
                       *out ? *out : "there is no python3 in the folders of PATH");
    }
    return MR_OK;
}

int interpreter_find(struct interpreter *out, struct mr_arena *arena,
                     const struct mr_models_options *o, const Inference__ModelConfig *c,
                     const struct mr_model_desc *desc, struct mr_err *err)
{
    const char *given = mr_config_parameter(c, ENVIRONMENT), *dir = NULL;
    const char *script = file_find(arena, o->backend_dirs, o->backend_dir_count, SCRIPT, R_OK);
    const char **command = MR_ARENA_ARRAY(arena, const char *, 3);
    int rc;

    if (!command) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a command");
    }
    if (!script) {
        return MR_FAIL(err, MR_E_NOT_FOUND,
                       "there is no " SCRIPT " in the folders of backends: this build has no "
                       "python backend");
    }
    if (given && given[0]) {
        MR_TRY(environment_dir(arena, given, desc, &dir, err));
    }
    MR_TRY(program_find(arena, o, dir, &command[0], err));
    command[1] = script;
    out->command = command;
    out->environment = variables(arena, dir);
    rc = out->environment ? MR_OK : MR_FAIL(err, MR_E_NOMEM, "no memory for an environment");
out:
    return rc;
}
