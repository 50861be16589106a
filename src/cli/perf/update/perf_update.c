/* Updates under load. One thread measures one model all the time; the other one times the windows, and in some of
 * them updates a model over a connection of its own. Each request is stored with its time, so that its window and
 * phase are found after the run at no cost during it.
 *
 * Windows have the same length if possible: the first update, which is not counted (later ones reuse its memory and
 * caches), determines it. Their order is quiet, update, update, quiet, so that a machine that becomes slower with
 * time does not look like a cost of updates. */
#include "perf_update.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "cli/common/cli.h"

#define AFTER_NS     MR_NS_PER_S
#define PHASE_MIN_NS (50 * MR_NS_PER_MS)
#define SETTLE_NS    (300 * MR_NS_PER_MS)
#define POLL_NS      (50 * MR_NS_PER_MS)
#define DRAIN_MAX_NS (60 * MR_NS_PER_S)
#define CLOCK_NS                                                                                   \
    (5 * MR_NS_PER_MS) /* error of reading two clocks of a machine one after the other */

const char *const perf_phase_names[PERF_PHASES] = {"unload", "load",    "warm", "publish",
                                                   "drain",  "release", "after"};

/* ---- time ---- */

static bool is_stopped(const struct perf_update *u)
{
    return atomic_load(&perf_interrupted) || atomic_load(&u->is_over);
}

/* Sleeps until then, or until the run is interrupted. */
static void sleep_until(const struct perf_update *u, int64_t until)
{
    int64_t now;

    while (!is_stopped(u) && (now = mr_now_ns()) < until) {
        int64_t ns = MR_MIN(until - now, POLL_NS);
        struct timespec ts = {.tv_nsec = ns};
        nanosleep(&ts, NULL);
    }
}

/* ---- the server's report of a load ---- */

static int64_t last_entry(const struct perf_load_history *history)
{
    int64_t last = 0;

    for (size_t i = 0; i < history->len; i++) {
        for (int s = 0; s < PERF_STATES; s++) {
            last = MR_MAX(last, history->at[i].entered_wall_ns[s]);
        }
    }
    return last;
}

static bool goes_on(const struct perf_load_history *history)
{
    for (size_t i = 0; i < history->len; i++) {
        int s = history->at[i].state;
        if (s == PERF_START || s == PERF_LOADING || s == PERF_WARMING || s == PERF_DRAINING) {
            return true;
        }
    }
    return false;
}

/* A phase of several concurrent loads is their whole period. */
static void widen(struct mr_perf_period *period, int64_t begin, int64_t end)
{
    if (period->end_ns == 0) {
        *period = (struct mr_perf_period){begin, end};
    }
    period->begin_ns = MR_MIN(period->begin_ns, begin);
    period->end_ns = MR_MAX(period->end_ns, end);
}

/* The time of the first state entered from `s` to `last`. */
static int64_t first_of(const struct perf_load *load, int s, int last)
{
    for (; s <= last; s++) {
        if (load->entered_wall_ns[s]) {
            return load->entered_wall_ns[s];
        }
    }
    return load->entered_wall_ns[PERF_FAILED];
}

static void add_load(const struct perf_load *load, int64_t mark, int64_t add,
                     struct mr_perf_period phases[PERF_PHASES])
{
    int64_t start = first_of(load, PERF_START, PERF_LOADING);
    int64_t warming = load->entered_wall_ns[PERF_WARMING];
    int64_t ready = load->entered_wall_ns[PERF_READY];
    int64_t draining = load->entered_wall_ns[PERF_DRAINING];
    int64_t unloaded = load->entered_wall_ns[PERF_UNLOADED];
    int64_t ended = first_of(load, PERF_READY, PERF_READY);

    if (start > mark) {
        int64_t loaded = first_of(load, PERF_WARMING, PERF_READY);
        widen(&phases[PERF_PHASE_LOAD], start + add, (loaded ? loaded : start) + add);
    }
    if (warming > mark && ended) {
        widen(&phases[PERF_PHASE_WARM], warming + add, ended + add);
    }
    if (ready > mark) {
        widen(&phases[PERF_PHASE_PUBLISH], ready + add, ready + add);
    }
    if (draining > mark && unloaded) {
        int64_t drained = MR_MAX(unloaded - load->release_ns, draining);
        widen(&phases[PERF_PHASE_DRAIN], draining + add, drained + add);
        if (load->release_ns) {
            widen(&phases[PERF_PHASE_RELEASE], drained + add, unloaded + add);
        }
    }
}

void perf_update_phases(const struct perf_load_history *history, int64_t mark_wall_ns,
                        int64_t wall_to_mono_ns, struct perf_window_row *row)
{
    struct mr_perf_period reported[PERF_PHASES] = {0};
    const struct mr_perf_period *call = &row->phases[PERF_PHASE_LOAD];

    for (size_t i = 0; i < history->len; i++) {
        add_load(&history->at[i], mark_wall_ns, wall_to_mono_ns, reported);
    }
    if (reported[PERF_PHASE_LOAD].end_ns == 0) {
        return; /* nothing was loaded: only the calls are known */
    }
    int64_t begin = reported[PERF_PHASE_LOAD].begin_ns;
    if (begin < call->begin_ns - CLOCK_NS || begin > call->end_ns + CLOCK_NS) {
        row->shift_ns = call->begin_ns - begin; /* a load begins with its call */
    }
    for (int k = 0; k < PERF_PHASES; k++) {
        if (reported[k].end_ns) {
            reported[k].begin_ns += row->shift_ns;
            reported[k].end_ns =
                MR_MAX(reported[k].end_ns + row->shift_ns, reported[k].begin_ns + PHASE_MIN_NS);
        }
    }
    memcpy(row->phases, reported, sizeof reported);
}

/* Queries the phases after the old version is gone. */
static void ask_phases(struct perf_update *u, int64_t mark, struct perf_window_row *row)
{
    int64_t give_up = mr_now_ns() + DRAIN_MAX_NS;
    struct perf_load_history history;

    while (perf_control_load_history(&u->control, &history, NULL) == MR_OK) {
        bool wait = goes_on(&history) && mr_now_ns() < give_up && !is_stopped(u);
        if (!wait) {
            perf_update_phases(&history, mark, mr_now_ns() - mr_wall_ns(), row);
        }
        MR_VEC_FINI(&history);
        if (!wait) {
            return;
        }
        sleep_until(u, mr_now_ns() + POLL_NS);
    }
}

/* ---- an update ---- */

/* `sh -c`, with its output on standard error and no signal blocked, as this thread blocks all. */
static int run_shell(const char *text)
{
    char shell[] = "sh";
    char flag[] = "-c";
    char *argv[] = {shell, flag, (char *)(uintptr_t)text, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    pid_t pid;
    int status = -1;

    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &none);
    if (posix_spawn(&pid, "/bin/sh", &actions, &attr, argv, environ) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    return status;
}

static int run_command(struct perf_update *u, unsigned number, struct mr_err *err)
{
    struct mr_buf text;

    mr_buf_init(&text, 0);
    mr_buf_printf(&text, "MILLRACE_UPDATE=%u; export MILLRACE_UPDATE; %s", number,
                  u->p->opt.command);
    int status = run_shell(mr_buf_cstr(&text));
    mr_buf_fini(&text);
    if (status != 0) {
        return MR_FAIL(err, MR_E_UNKNOWN, "--command failed before update %u", number);
    }
    sleep_until(u, mr_now_ns() + SETTLE_NS);
    return MR_OK;
}

static int call(struct perf_update *u, int phase, mr_str config, struct perf_window_row *row,
                struct mr_err *err)
{
    int64_t begin = mr_now_ns();
    int rc = phase == PERF_PHASE_UNLOAD ? perf_control_unload(&u->control, err)
                                        : perf_control_load(&u->control, config, err);

    row->phases[phase] = (struct mr_perf_period){begin, MR_MAX(mr_now_ns(), begin + PHASE_MIN_NS)};
    return rc;
}

static int update(struct perf_update *u, mr_str config, struct perf_window_row *row,
                  struct mr_err *err)
{
    bool unloads = u->p->versions.len == 0 && !u->p->opt.command;
    struct perf_load_history history;
    int64_t mark = 0;
    int rc = MR_OK;

    u->tells_states = perf_control_load_history(&u->control, &history, NULL) == MR_OK;
    if (u->tells_states) {
        mark = last_entry(&history);
        MR_VEC_FINI(&history);
    }
    row->period.begin_ns = mr_now_ns();
    if (unloads) {
        rc = call(u, PERF_PHASE_UNLOAD, (mr_str){"", 0}, row, err);
    }
    if (rc == MR_OK) {
        rc = call(u, PERF_PHASE_LOAD, config, row, err);
    }
    if (u->tells_states) {
        ask_phases(u, mark, row);
    }
    return rc;
}

static int64_t last_end(const struct perf_window_row *row)
{
    int64_t end = row->period.begin_ns;

    for (int k = 0; k < PERF_PHASES; k++) {
        end = MR_MAX(end, row->phases[k].end_ns);
    }
    return end;
}

/* Numbers include the updates that do not count. */
static int update_window(struct perf_update *u, unsigned number, struct perf_window_row *row,
                         struct mr_err *err)
{
    struct mr_buf config;
    int rc = MR_OK;

    mr_buf_init(&config, 0);
    row->is_update = true;
    if (u->p->opt.command) {
        MR_TRY(run_command(u, number, err));
    }
    if (u->p->versions.len) {
        MR_TRY(perf_config_of_version(
            mr_buf_view(&u->config), u->p->versions.at[number % u->p->versions.len], &config, err));
    }
    struct mr_err failure = {0};
    row->rc = update(u, mr_buf_view(&config), row, &failure);
    snprintf(row->problem, sizeof row->problem, "%.190s", failure.msg);
    int64_t end = last_end(row);
    row->phases[PERF_PHASE_AFTER] = (struct mr_perf_period){end, end + AFTER_NS};
    row->period.end_ns = MR_MAX(row->period.begin_ns + u->window_ns, end + AFTER_NS);
    sleep_until(u, row->period.end_ns);
out:
    mr_buf_fini(&config);
    return rc;
}

static int run_window(struct perf_update *u, unsigned number, bool is_update, struct mr_err *err)
{
    struct perf_window_row row = {.is_update = is_update};
    struct perf_counters before;
    struct perf_counters after;
    int rc = perf_counters_read((int)u->p->opt.pid, &before, err);

    if (rc < 0) {
        return rc;
    }
    if (is_update) {
        rc = update_window(u, number, &row, err);
    } else {
        row.period.begin_ns = mr_now_ns();
        row.period.end_ns = row.period.begin_ns + u->window_ns;
        sleep_until(u, row.period.end_ns);
    }
    if (rc == MR_OK && !is_stopped(u) &&
        (rc = perf_counters_read((int)u->p->opt.pid, &after, err)) == MR_OK) {
        row.steal = perf_counters_steal(&before, &after);
        row.has_counters = u->p->opt.pid != 0;
        row.rss_before = before.rss_bytes;
        row.rss_after = after.rss_bytes;
        row.maps_after = after.maps;
        perf_counters_since(&before, &after, &row.threads);
        MR_VEC_PUSH(&u->windows, row); /* an interrupted window is not used */
        perf_counters_fini(&after);
    }
    perf_counters_fini(&before);
    return rc;
}

/* ---- the run ---- */

static void show(const struct perf_update *u, unsigned number)
{
    if (u->p->shows) {
        fprintf(stderr, "\rupdate %u of %u\033[K", number, u->p->opt.updates);
        fflush(stderr);
    }
}

/* The first update: checks that updates work, and determines the length of windows. */
static int try_update(struct perf_update *u, unsigned number, struct mr_err *err)
{
    struct perf_window_row row = {0};
    int rc = update_window(u, number, &row, err);

    if (rc == MR_OK && row.rc < 0) {
        return MR_FAIL(err, row.rc, "the first update of %s failed: %s", u->control.model,
                       row.problem);
    }
    if (rc == MR_OK && u->p->opt.window_ns == 0) {
        /* With some margin, in tenths of a second. */
        int64_t tenth = MR_NS_PER_S / 10;
        int64_t took = last_end(&row) - row.period.begin_ns;
        u->window_ns = MR_MAX(u->window_ns, (took + took / 4 + tenth - 1) / tenth * tenth);
    }
    return rc;
}

static void *update_thread(void *arg)
{
    struct perf_update *u = arg;
    struct mr_err *err = &u->err;
    int rc = MR_OK;

    while (!atomic_load(&u->runs) && !is_stopped(u)) {
        sleep_until(u, mr_now_ns() + POLL_NS);
    }
    /* The first of several versions may be loaded already, so that nothing happens. */
    unsigned first = u->p->versions.len > 1 ? 2 : 1;
    for (unsigned i = 0; rc == MR_OK && i < first && !is_stopped(u); i++) {
        rc = try_update(u, i, err);
    }
    for (unsigned i = 1; rc == MR_OK && i <= u->p->opt.updates && !is_stopped(u); i++) {
        bool quiet_first = i % 2 == 1;
        show(u, i);
        rc = run_window(u, first - 1 + i, !quiet_first, err);
        if (rc == MR_OK && !is_stopped(u)) {
            rc = run_window(u, first - 1 + i, quiet_first, err);
        }
    }
    u->rc = rc;
    atomic_store(&u->is_over, true);
    return NULL;
}

static void on_second(void *ctx, const struct mr_perf_second *second)
{
    struct perf_update *u = ctx;

    (void)second;
    atomic_store(&u->runs, true);
}

static int prepare(struct perf_update *u, struct mr_err *err)
{
    const struct perf_options *o = &u->p->opt;
    struct perf_counters counters;
    int rc;

    MR_TRY(perf_counters_read((int)o->pid, &counters, err));
    perf_counters_fini(&counters);
    MR_TRY(perf_control_open(&u->control, o->control_url ? o->control_url : o->url,
                             perf_control_is_grpc(o), o->update ? o->update : o->model, &o->access,
                             err));
    if (o->versions) {
        MR_TRY(perf_control_config(&u->control, &u->config, err));
    }
out:
    return rc;
}

static int measure(struct perf_update *u, struct mr_err *err)
{
    struct mr_perf_hooks hooks = {.progress = on_second, .ctx = u, .stop = &u->is_over};
    pthread_t thread;
    int rc = mr_thread_start(&thread, "update", update_thread, u, err);

    if (rc < 0) {
        return rc;
    }
    rc = mr_perf_run(&u->p->target, &u->load, &hooks, u->result, err);
    atomic_store(&u->is_over, true);
    pthread_join(thread, NULL);
    if (u->p->shows) {
        fprintf(stderr, "\r\033[K");
    }
    if (rc == MR_OK && u->rc < 0) {
        *err = u->err;
    }
    return rc < 0 ? rc : u->rc;
}

static int judge(const struct perf_update *u, const char *program)
{
    uint64_t failed = u->result->failed + u->result->warmup_failed;
    int64_t allowed = MR_MAX(u->p->opt.max_errors, INT64_C(0));
    char text[160];

    if (u->result->answered == 0) {
        return mr_cli_fail(program, MR_EXIT_FAILED, "no request was answered");
    }
    if (u->failed_updates) {
        snprintf(text, sizeof text, "%u updates failed", u->failed_updates);
        return mr_cli_fail(program, MR_EXIT_FAILED, text);
    }
    if (failed > (uint64_t)allowed) {
        snprintf(text, sizeof text, "%llu requests failed; --max-errors allows %lld",
                 (unsigned long long)failed, (long long)allowed);
        return mr_cli_fail(program, MR_EXIT_FAILED, text);
    }
    return MR_EXIT_OK;
}

static int report(struct perf_update *u, bool to_stdout, struct mr_err *err)
{
    int rc = MR_OK;

    perf_update_sum_up(u);
    if (!to_stdout) {
        perf_update_print(u, stdout);
    }
    if (u->p->opt.json) {
        rc = perf_update_write_json(u, u->p->opt.json, err);
    }
    if (rc == MR_OK && u->p->opt.html) {
        rc = perf_update_write_html(u, u->p->opt.html, err);
    }
    return rc;
}

static void fini(struct perf_update *u)
{
    for (size_t i = 0; i < u->windows.len; i++) {
        MR_VEC_FINI(&u->windows.at[i].threads);
    }
    MR_VEC_FINI(&u->windows);
    perf_update_fini_sums(u);
    mr_buf_fini(&u->config);
    perf_control_close(&u->control);
    mr_perf_result_fini(u->result);
    mr_free(u->result);
}

int perf_update_run(struct perf *p, const struct mr_perf_load *load, const char *program)
{
    bool to_stdout = perf_is_to_stdout(&p->opt);
    struct perf_update u = {.p = p, .load = *load, .window_ns = p->opt.window_ns};
    struct mr_err err = {0};
    int rc;

    u.result = MR_NEW(struct mr_perf_result);
    u.load.keeps_samples = true;
    u.load.duration_ns = INT64_MAX / 4; /* until the updates are done */
    mr_buf_init(&u.config, 0);
    MR_TRY(prepare(&u, &err));
    if (!to_stdout) {
        perf_update_print_head(&u, stdout);
    }
    MR_TRY(measure(&u, &err));
    MR_TRY(report(&u, to_stdout, &err));
out:;
    int code = rc < 0 ? mr_cli_fail(program, MR_EXIT_FAILED, err.msg) : judge(&u, program);
    fini(&u);
    return code;
}
