/* millrace_environment.py, run by the interpreter in question, says what an environment is to be named after, and makes it.
 * Its lines come through a pipe: steps become the load's progress, all of them lines of the log, the last one is the reason
 * when it fails. */
#include "environment.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "process/spawn.h"

#define LINE_MOST 1024
#define POLL_MS   200
#define KEY_CHARS 64

static const char *const steps[] = {"making the environment", "installing packages", "finishing"};

struct script {
    const struct environment_args *args;
    struct mr_process process;
    char line[LINE_MOST]; /* what has come of it */
    size_t len;
    char last[LINE_MOST]; /* the last one that is whole */
};

static bool is_unwanted(const struct environment_args *a)
{
    return a->loading && a->loading->is_unwanted && a->loading->is_unwanted(a->loading);
}

/* ---- what it says ---- */

static void step_set(const struct environment_args *a, const char *words)
{
    for (size_t i = 0; a->loading && i < sizeof steps / sizeof *steps; i++) {
        if (strcmp(words, steps[i]) == 0) {
            /* Relaxed: for people. */
            atomic_store_explicit(&a->loading->step, steps[i], memory_order_relaxed);
        }
    }
}

static void line_take(struct script *s)
{
    const mr_str line = mr_str_trim(mr_str_n(s->line, s->len));

    s->len = 0;
    if (line.len == 0) {
        return;
    }
    snprintf(s->last, sizeof s->last, "%.*s", MR_STR_ARG(line));
    mr_log(MR_LOG_DEBUG, "model.environment", "model=%s %s", MR_LOG_STR(mr_str_c(s->args->model)),
           s->last);
    if (strncmp(s->last, "step ", 5) == 0) {
        step_set(s->args, s->last + 5);
    }
}

static void text_take(struct script *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\n') {
            line_take(s);
        } else if (s->len < sizeof s->line - 1) {
            s->line[s->len++] = text[i];
        }
    }
}

/* Reads until it says nothing more. False: the model is not wanted any more. */
static bool output_read(struct script *s)
{
    struct pollfd fd = {.fd = s->process.output, .events = POLLIN};
    char text[4096];

    for (;;) {
        if (is_unwanted(s->args)) {
            return false;
        }
        if (poll(&fd, 1, POLL_MS) <= 0) {
            continue;
        }
        const ssize_t n = read(fd.fd, text, sizeof text);
        if (n > 0) {
            text_take(s, text, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            line_take(s);
            return true;
        }
    }
}

/* ---- the process ---- */

/* The server's variables without those that lead an interpreter elsewhere. */
static const char **variables(void)
{
    static const char *const without[] = {"PYTHONHOME=", "PYTHONPATH=", "VIRTUAL_ENV="};
    MR_VEC(const char *) out = {0};

    for (size_t i = 0; environ[i]; i++) {
        bool is_kept = true;
        for (size_t k = 0; k < sizeof without / sizeof *without; k++) {
            is_kept &= strncmp(environ[i], without[k], strlen(without[k])) != 0;
        }
        if (is_kept) {
            MR_VEC_PUSH(&out, (const char *)environ[i]);
        }
    }
    MR_VEC_PUSH(&out, (const char *)NULL);
    return out.at;
}

/* Runs the script; `last` gets its last line. Errors: MR_E_INVALID (it failed; that line is the reason). */
static int script_run(const struct environment_args *a, const char *const *words,
                      char last[LINE_MOST], struct mr_err *err)
{
    const char *argv[] = {a->python, a->script, words[0], a->requirements,
                          words[1],  words[2],  NULL};
    const char **env = variables();
    const struct mr_process_args args = {.program = a->python, .argv = argv, .env = env};
    struct script s = {.args = a};
    struct mr_process_exit how;
    char text[48];
    int rc = mr_process_spawn(&s.process, &args, err);

    mr_free(env);
    if (rc < 0) {
        return rc;
    }
    const bool is_wanted = output_read(&s);
    if (!is_wanted) {
        mr_process_kill(&s.process, SIGKILL); /* its group goes with it */
    }
    mr_process_reap(&s.process, true, &how);
    mr_process_close(&s.process);
    if (!is_wanted) {
        return MR_FAIL(err, MR_E_CANCELLED, "the model is not wanted any more");
    }
    if (how.is_signal || how.code != 0) {
        return MR_FAIL(err, MR_E_INVALID, "%.150s: %.300s", a->requirements,
                       s.last[0] ? s.last : mr_process_exit_text(&how, text));
    }
    memcpy(last, s.last, LINE_MOST);
    return MR_OK;
}

/* ---- the environment ---- */

static int environment_make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    const struct environment_args *a = ctx;
    const char *const words[] = {"make", dir, path};
    char last[LINE_MOST];

    mr_log(MR_LOG_INFO, "model.environment", "model=%s packages of %s are being installed",
           MR_LOG_STR(mr_str_c(a->model)), a->requirements);
    return script_run(a, words, last, err);
}

static bool environment_is_unwanted(void *ctx)
{
    return is_unwanted(ctx);
}

static int key_check(const char *key, const struct environment_args *a, struct mr_err *err)
{
    return strlen(key) == KEY_CHARS && strspn(key, "0123456789abcdef") == KEY_CHARS
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "%.150s: %.150s said '%.100s' instead of a key",
                         a->requirements, a->python, key);
}

int environment_get(const struct environment_args *args, struct mr_cache_ref **out,
                    struct mr_err *err)
{
    const char *const words[] = {"key", NULL, NULL};
    const struct mr_cache_maker maker = {environment_make, environment_is_unwanted,
                                         (void *)(uintptr_t)args};
    char key[LINE_MOST];
    int rc;

    *out = NULL;
    if (args->on_wait) {
        args->on_wait(args->ctx, false);
    }
    MR_TRY(script_run(args, words, key, err));
    if (key[0]) {
        MR_TRY(key_check(key, args, err));
        MR_TRY(mr_cache_get(args->cache, "environment", key, &maker, out, err));
    }
out:
    if (args->loading) {
        atomic_store_explicit(&args->loading->step, NULL, memory_order_relaxed);
    }
    if (args->on_wait) {
        args->on_wait(args->ctx, true);
    }
    return rc;
}
