/* `millrace serve`: parses the options and runs a server until it is stopped.
 *
 * Signals are blocked in every thread and taken by one that does nothing else, so that no handler has
 * to be async-signal-safe. The first SIGTERM or SIGINT asks the main thread to drain; the second ends the process at
 * once, unless the drain ends within a twentieth of a second: a terminal and a parent may both pass on one Ctrl-C,
 * and a server that has answered everything has not failed. During the first loads there is nothing to drain, so the
 * first signal ends the process too. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "imported.h"
#include "modelmesh_env.h"
#include "notify.h"
#include "opt_serve.h"
#include "placed.h"
#include "serve_print.h"

static const char usage[] =
    "usage: millrace serve --model-repository=DIR [options]\n\n"
    "Serves the models of one or more folders (Triton's layout) over the Open Inference Protocol:\n"
    "REST with JSON or binary tensors, and gRPC. Triton's option names and defaults hold, except "
    "that\n"
    "it listens on loopback unless an option says otherwise.\n\n"
    "Each option may come from the command line (--http-port=9000), from the environment\n"
    "(MILLRACE_HTTP_PORT=9000) or from a file given by --config (http-port = 9000), in this order "
    "of\n"
    "precedence.\n";

static const char notes[] = "Signals: SIGTERM and SIGINT stop taking requests, finish what is "
                            "under way and end with status 0; a\n"
                            "second one ends at once. SIGHUP reopens the log file and reloads "
                            "certificates and endpoints;\n"
                            "without such files it ends the server.\n"
                            "Exit status: 0 stopped cleanly, 1 could not start or was cut off, 2 "
                            "the command line is wrong.\n";

/* ---- signals ---- */

struct signals {
    sigset_t set;
    sem_t stop;
    _Atomic bool is_serving;
    _Atomic bool is_over;     /* the thread should end */
    _Atomic int first;        /* the signal that asked to stop */
    _Atomic bool is_drained;  /* the drain is complete */
    pthread_mutex_t lock;     /* guards server during SIGHUP */
    struct mr_server *server; /* NULL unless it runs */
    pthread_t thread;
};

static void end_at_once(const char *why)
{
    /* Not exit(), as other threads are running. */
    fprintf(stderr, "millrace serve: %s\n", why);
    _exit(MR_EXIT_FAILED);
}

static bool drains_in_time(struct signals *s)
{
    const struct timespec step = {0, 5 * MR_NS_PER_MS};

    for (int i = 0; i < 10 && !atomic_load(&s->is_drained); i++) {
        nanosleep(&step, NULL);
    }
    return atomic_load(&s->is_drained);
}

static void on_hangup(struct signals *s)
{
    struct mr_err err;

    bool is_serving = atomic_load(&s->is_serving) && atomic_load(&s->first) == 0;

    if (is_serving) {
        mr_notify_reloading();
    }
    if (*mr_log_file() && mr_log_set_file(mr_log_file(), &err) < 0) {
        mr_log(MR_LOG_ERROR, "log.reopen", "%s", err.msg);
    }
    pthread_mutex_lock(&s->lock);
    if (s->server) {
        mr_server_reload_tls(s->server);
        mr_server_reload_endpoints(s->server);
    }
    pthread_mutex_unlock(&s->lock);
    if (is_serving) {
        mr_notify("READY=1");
    }
}

static void set_server(struct signals *s, struct mr_server *server)
{
    pthread_mutex_lock(&s->lock);
    s->server = server;
    pthread_mutex_unlock(&s->lock);
}

static void *signals_run(void *arg)
{
    struct signals *s = arg;
    int further = 0;
    int number;

    for (;;) {
        if (sigwait(&s->set, &number) != 0) {
            continue;
        }
        if (atomic_load(&s->is_over)) {
            return NULL;
        }
        if (number == SIGHUP) {
            on_hangup(s);
            continue;
        }
        if (!atomic_load(&s->is_serving)) {
            end_at_once("stopped while starting");
        }
        if (atomic_load(&s->first) == 0) {
            atomic_store(&s->first, number);
            sem_post(&s->stop);
        } else if (further++ > 0 || !drains_in_time(s)) {
            end_at_once("second signal: stopped at once, requests were cut off");
        }
    }
}

static int signals_start(struct signals *s, bool with_hangup, struct mr_err *err)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};

    memset(s, 0, sizeof *s);
    sem_init(&s->stop, 0, 0);
    pthread_mutex_init(&s->lock, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    /* A log file at its size limit is an error of write() like a full disk. */
    sigaction(SIGXFSZ, &ignore, NULL);
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGTERM);
    sigaddset(&s->set, SIGINT);
    if (with_hangup) {
        sigaddset(&s->set, SIGHUP);
    }
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    return mr_thread_start(&s->thread, "signals", signals_run, s, err);
}

static void signals_stop(struct signals *s)
{
    atomic_store(&s->is_over, true);
    pthread_kill(s->thread, SIGTERM);
    pthread_join(s->thread, NULL);
    sem_destroy(&s->stop);
    pthread_mutex_destroy(&s->lock);
}

static int wait_for_stop(struct signals *s)
{
    while (sem_wait(&s->stop) != 0) {
        /* EINTR, for example by a debugger. */
    }
    return atomic_load(&s->first);
}

/* ---- options ---- */

static int apply_log_options(const struct mr_serve_options *s, struct mr_err *err)
{
    mr_log_set_enabled(MR_LOG_ERROR, s->log_error);
    mr_log_set_enabled(MR_LOG_WARN, s->log_warning && s->log_level >= MR_LOG_WARN);
    mr_log_set_enabled(MR_LOG_INFO, s->log_info && s->log_level >= MR_LOG_INFO);
    mr_log_set_enabled(MR_LOG_DEBUG, s->log_level >= MR_LOG_DEBUG);
    mr_log_set_verbose(s->log_verbose);
    mr_log_set_format((enum mr_log_format)s->log_format);
    return s->log_file ? mr_log_set_file(s->log_file, err) : MR_OK;
}

static int dump(const struct mr_options *o)
{
    struct mr_buf out;

    mr_buf_init(&out, 0);
    mr_options_dump(o, &out);
    fputs(mr_buf_cstr(&out), stdout);
    mr_buf_fini(&out);
    return MR_EXIT_OK;
}

/* ---- running ---- */

static int start_failed(const struct mr_serve_options *s, const struct mr_err *err)
{
    char text[sizeof err->msg + 80];
    bool in_use = strstr(err->msg, "in use") != NULL;

    snprintf(text, sizeof text, "%s%s", err->msg,
             in_use ? " (another server? port 0 takes any free one)" : "");
    /* Not printed twice if the log is the same terminal. */
    if (s->log_file || s->log_format == MR_LOG_JSON) {
        mr_log(MR_LOG_ERROR, "serve.failed", "%s", err->msg);
    }
    return mr_cli_fail("millrace serve", MR_EXIT_FAILED, text);
}

static int stop(struct mr_server **server, struct signals *signals, int number)
{
    int64_t begin = mr_now_ns();

    mr_notify("STOPPING=1\nSTATUS=finishing requests");
    mr_log(MR_LOG_INFO, "serve.stopping", "signal=%s", number == SIGINT ? "SIGINT" : "SIGTERM");
    set_server(signals, NULL);
    int rc = mr_server_stop(*server);
    atomic_store(&signals->is_drained, true);
    mr_server_free(server);
    long long ms = (long long)((mr_now_ns() - begin) / MR_NS_PER_MS);
    if (rc == MR_OK) {
        mr_log(MR_LOG_INFO, "serve.stopped", "drained=true after_ms=%lld", ms);
        return MR_EXIT_OK;
    }
    mr_log(MR_LOG_ERROR, "serve.stopped", "drained=false after_ms=%lld --exit-timeout-secs is over",
           ms);
    return MR_EXIT_FAILED;
}

static int run(struct mr_serve_options *s, char *const *env)
{
    struct mr_server *server = NULL;
    struct imported imported = {0};
    struct placed placed = {0};
    struct signals signals;
    struct mr_err err;
    int64_t begin = mr_now_ns();

    const struct mr_serve_tls *http = &s->server.http_tls;
    const struct mr_serve_tls *grpc = &s->server.grpc_tls;
    bool with_hangup = mr_notify_is_on() || s->log_file || s->server.endpoints || http->on ||
                       http->mutual || grpc->on || grpc->mutual || s->server.mesh_tls.mutual;

    mr_cli_heap_bounds(8 << 20);
    if (apply_log_options(s, &err) < 0 || signals_start(&signals, with_hangup, &err) < 0) {
        return mr_cli_fail("millrace serve", MR_EXIT_FAILED, err.msg);
    }
    mr_notify("STATUS=loading models");
    mr_log(MR_LOG_INFO, "serve.starting", "version=%s pid=%d", mr_cli_version(), (int)getpid());
    mr_modelmesh_env_log(env);
    if (imported_open(s, &imported, &err) < 0 || placed_open(s, &placed, &err) < 0 ||
        mr_server_start(&server, &s->server, &err) < 0) {
        signals_stop(&signals);
        imported_fini(&imported);
        placed_fini(&placed);
        return start_failed(s, &err);
    }
    set_server(&signals, server);
    atomic_store(&signals.is_serving, true);
    if (s->print_ports) {
        mr_serve_print_ports(s, server);
    } else {
        mr_serve_print(s, server);
    }
    /* What cannot be printed does not change the exit status of a server that runs. */
    __fpurge(stdout);
    clearerr(stdout);
    mr_serve_log_ready(s, server, begin);
    mr_notify("READY=1\nSTATUS=serving");
    int code = stop(&server, &signals, wait_for_stop(&signals));
    signals_stop(&signals);
    imported_fini(&imported);
    placed_fini(&placed);
    return code;
}

int mr_cli_serve(int argc, char **argv, char **env)
{
    struct mr_serve_options s = {0};
    struct mr_serve_arrays arrays = {0};
    struct mr_options o;
    struct mr_err err;

    mr_server_options_init(&s.server);
    mr_options_init(&o, "millrace serve", mr_serve_table, mr_serve_table_len, &s);
    mr_modelmesh_env(&o, env);
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0 && s.dump_options) {
        code = dump(&o);
    }
    if (code < 0 && mr_serve_options_finish(&s, &arrays, &err) < 0) {
        code = mr_cli_fail(o.program, MR_EXIT_USAGE, err.msg);
    }
    if (code < 0) {
        code = run(&s, env);
    }
    mr_serve_arrays_fini(&arrays);
    mr_options_fini(&o);
    return code;
}
