/* One worker: its process, the steps by which it loads the model, its end, and its successor. Nothing here blocks. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "ipc/frame.h"
#include "process/cgroup.h"
#include "process/folder.h"
#include "sentinel_priv.h"

#define STOP_NS    (10 * MR_NS_PER_S)
#define LOAD_TIMES 4 /* the limit is the usual load time multiplied by this */

/* Variables of the environment that a worker keeps. */
static const char *const kept[] = {
    "LANG",         "LC_ALL",        "TZ",          "LD_LIBRARY_PATH", "ASAN_OPTIONS",
    "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"};
#define KEPT        (sizeof kept / sizeof *kept)
#define COMMAND_MAX 8 /* a program and its first arguments */

void worker_init(struct worker *w, struct process_model *m, uint32_t index)
{
    w->model = m;
    w->index = index;
    w->process = (struct mr_process){.pid = -1, .pidfd = -1, .output = -1};
    w->socket = -1;
    TAILQ_INIT(&w->calls);
    pthread_mutex_init(&w->calls_lock, NULL);
    w->fault = MR_WORKER_FAULTS;
    for (unsigned k = 0; k < 3; k++) {
        w->watches[k] = (struct watch){(enum watch_kind)k, w};
    }
}

static void moved(struct worker *w, enum step step, int64_t now_ns)
{
    struct process_model *m = w->model;

    if ((w->step == STEP_READY) != (step == STEP_READY)) {
        atomic_fetch_add_explicit(&m->ready, step == STEP_READY ? 1 : UINT32_MAX,
                                  memory_order_relaxed);
    }
    w->step = step;
    w->since_ns = now_ns;
    sentinel_note_ready(m, now_ns);
    pthread_cond_broadcast(&m->sentinel->moved);
}

/* ---- starting ---- */

static const char *const *environment(struct mr_arena *arena, const char *out[KEPT + 1])
{
    size_t n = 0;

    for (size_t i = 0; i < KEPT; i++) {
        const char *value = getenv(kept[i]);
        if (value) {
            out[n++] = mr_arena_printf(arena, "%s=%s", kept[i], value).ptr;
        }
    }
    out[n] = NULL;
    return out;
}

/* The command, with the arguments that the worker reads. */
static const char *const *arguments(const struct process_model *m, const char *parent,
                                    const char *cgroup, const char *out[COMMAND_MAX + 4])
{
    static const char *const usual[] = {"millrace-worker", NULL};
    const char *const *command = m->command ? m->command : usual;
    size_t n = 0;

    while (n < COMMAND_MAX && command[n]) {
        out[n] = command[n];
        n++;
    }
    out[n++] = m->base.model;
    out[n++] = parent;
    out[n++] = cgroup; /* may be NULL */
    out[n] = NULL;
    return out;
}

/* Its process has ended, or did not start. */
static void cgroup_end(struct worker *w)
{
    w->was_oom = w->cgroup > 0 && mr_cgroup_end(w->model->sentinel->cgroups, w->cgroup);
    w->cgroup = 0;
}

static int spawn(struct worker *w, int socket, struct mr_err *err)
{
    const struct process_model *m = w->model;
    const struct mr_sentinel *s = m->sentinel;
    const struct mr_shm_fds shm = mr_shm_get_fds(m->shm);
    struct mr_process_fd fds[MR_WORKER_FD_HOME_FIRST + MR_SHM_HOMES_MAX + MR_KEPT_MAX + 1];
    const char *env[KEPT + 1];
    const char *argv[COMMAND_MAX + 4];
    char cgroup[MR_CGROUP_PATH_BYTES];
    struct mr_arena arena;
    char parent[16];
    size_t n = 0;

    if (s->cgroups && mr_cgroup_new(s->cgroups, &w->cgroup, cgroup, err) < 0) {
        return MR_E_EXHAUSTED;
    }
    fds[n++] = (struct mr_process_fd){socket, MR_WORKER_FD_SOCKET};
    fds[n++] = (struct mr_process_fd){shm.control, MR_WORKER_FD_CONTROL};
    fds[n++] = (struct mr_process_fd){shm.input, MR_WORKER_FD_INPUT};
    fds[n++] = (struct mr_process_fd){shm.output, MR_WORKER_FD_OUTPUT};
    fds[n++] = (struct mr_process_fd){mr_shm_homes_segment(s->homes), MR_WORKER_FD_HOMES};
    for (uint32_t i = 0; i < mr_shm_homes_count(s->homes); i++) {
        fds[n++] =
            (struct mr_process_fd){mr_shm_home_fd(s->homes, i), MR_WORKER_FD_HOME_FIRST + (int)i};
    }
    for (uint32_t i = 0; i < m->kept.files.count; i++) {
        fds[n] = (struct mr_process_fd){m->kept.files.fds[i], MR_WORKER_FD_SOCKET + (int)n};
        n++;
    }
    if (m->command) {
        fds[n] = (struct mr_process_fd){mr_metrics_fd(s->metrics), MR_WORKER_FD_SOCKET + (int)n};
        n++;
    }
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    mr_arena_init(&arena, 1024, 1 << 20);
    const struct mr_process_args args = {m->command ? m->command[0] : s->program,
                                         arguments(m, parent, s->cgroups ? cgroup : NULL, argv),
                                         m->environment ? m->environment : environment(&arena, env),
                                         fds, n};
    const int rc = mr_process_spawn(&w->process, &args, err);
    if (rc < 0) {
        cgroup_end(w);
    }
    mr_arena_fini(&arena);
    return rc;
}

static int watch_all(struct worker *w, struct mr_err *err)
{
    struct mr_sentinel *s = w->model->sentinel;
    int rc;

    MR_TRY(sentinel_watch(s, w->process.pidfd, &w->watches[WATCH_END], err));
    MR_TRY(sentinel_watch(s, w->socket, &w->watches[WATCH_SOCKET], err));
    MR_TRY(sentinel_watch(s, w->process.output, &w->watches[WATCH_OUTPUT], err));
out:
    return rc;
}

/* True if no worker of the model runs or will run soon. */
static void broken_note(struct process_model *m)
{
    bool has_hope = false;

    for (uint32_t i = 0; i < m->worker_count; i++) {
        struct worker *w = &m->workers[i];
        const bool may_come = w->step == STEP_READY || (w->goal == STEP_READY && !w->is_failed &&
                                                        !restart_is_open(&w->restart));
        atomic_store_explicit(&w->is_hopeless, !may_come, memory_order_relaxed);
        has_hope |= may_come;
    }
    atomic_store_explicit(&m->is_broken, !has_hope, memory_order_relaxed);
}

static void give_up(struct worker *w, const struct mr_err *err)
{
    w->err = *err;
    w->is_failed = true;
    pthread_cond_broadcast(&w->model->sentinel->moved);
}

/* The start failed: the system lacks resources. */
static void start_failed(struct worker *w, const struct mr_err *err, int64_t now_ns)
{
    struct mr_sentinel *s = w->model->sentinel;

    mr_log(MR_LOG_ERROR, "worker.start", "model=%s worker=%u %s",
           MR_LOG_STR(mr_str_c(w->model->base.model)), w->index, err->msg);
    if (!w->was_ready && !w->is_standby) {
        give_up(w, err); /* a first load: its caller decides */
        return;
    }
    snprintf(w->last_fault, sizeof w->last_fault, "start: %.150s", err->msg);
    const int64_t delay = restart_died(&w->restart, RESTART_FAULT, (uint32_t)mr_rng_u64(&s->rng));
    w->start_at_ns = now_ns + MR_MAX(delay, 10 * MR_NS_PER_MS);
    broken_note(w->model);
}

void worker_set_ready_by(struct worker *w, int64_t now_ns)
{
    const struct process_model *m = w->model;

    w->ready_by_ns = now_ns + MR_MAX(m->sentinel->options.hang_ns, LOAD_TIMES * m->load_ns);
}

void worker_start(struct worker *w, int64_t now_ns)
{
    struct process_model *m = w->model;
    int sockets[2] = {-1, -1};
    struct mr_err err;
    int rc;

    mr_err_clear(&err);
    w->start_at_ns = 0;
    w->fault = MR_WORKER_FAULTS;
    w->is_stopping = false;
    w->has_said = false;
    w->shares_damage = false;
    w->started_ns = w->loading_ns = now_ns;
    w->hang = w->pending_hang = (struct hang){0};
    w->ready_by_ns = 0;
    if (w->was_ready || w->is_standby) {
        worker_set_ready_by(w, now_ns); /* for a first load, the loader decides */
    }
    lines_reset(&w->lines);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0) {
        rc = MR_FAIL(&err, MR_E_EXHAUSTED, "no socket for a worker process: %s", strerror(errno));
        goto out;
    }
    MR_TRY(spawn(w, sockets[1], &err));
    w->is_running = true;
    atomic_store_explicit(&w->pid, (int)w->process.pid, memory_order_relaxed);
    close(sockets[1]);
    /* Other processes may have the worker's end, a child of it or this one, even when it has ended: no read may wait. */
    fcntl(sockets[0], F_SETFL, O_NONBLOCK);
    w->socket = sockets[0];
    mr_buf_init(&w->in, MR_FRAME_MAX + 65536 * 2);
    mr_buf_init(&w->out, MR_FRAME_MAX + 4096);
    calls_begin(w, mr_shm_worker_begin(m->shm, w->index));
    moved(w, STEP_NONE, now_ns);
    rc = watch_all(w, &err);
    if (rc < 0) {
        worker_kill(w, MR_WORKER_SICK, err.msg);
        worker_on_end(w, true, now_ns); /* no event will report it */
        return;
    }
    worker_advance(w);
    return;
out:
    if (sockets[0] >= 0) {
        close(sockets[0]);
        close(sockets[1]);
    }
    start_failed(w, &err, now_ns);
}

/* ---- steps ---- */

void worker_flush(struct worker *w)
{
    struct mr_err err;

    if (!w->is_deaf && mr_frame_flush(w->socket, &w->out, &err) < 0) {
        mr_buf_reset(&w->out); /* it has ended, which another descriptor reports */
    }
}

static void say(struct worker *w, enum mr_frame_type type, const struct mr_buf *body)
{
    mr_frame_append(&w->out, type, (mr_bytes){(const uint8_t *)body->ptr, body->len});
    if (w->out.failed) {
        worker_kill(w, MR_WORKER_SICK, "what it is to load is too large");
    }
    worker_flush(w);
}

/* For a replacement process; the scheduler warms up the first ones. */
static void warm_up_say(struct worker *w)
{
    const struct warmups *list = &w->model->warmups;
    struct mr_buf body;

    for (uint32_t i = 0; (w->was_ready || w->is_standby) && i < list->count; i++) {
        mr_buf_init(&body, MR_FRAME_MAX);
        mr_pack_u64(&body, list->at[i].offset);
        mr_pack_u64(&body, list->at[i].bytes);
        say(w, MR_FRAME_WARMUP, &body);
        mr_buf_fini(&body);
    }
}

/* Its temporary folder, which its successors have as well. NULL: it has none. */
static const char *temporary_make(const struct worker *w, char out[PATH_MAX])
{
    const struct process_model *m = w->model;
    struct mr_err err;

    mr_err_clear(&err);
    if (!m->temp_dir || snprintf(out, PATH_MAX, "%s/%u", m->temp_dir, w->index) >= PATH_MAX) {
        return NULL;
    }
    if (mr_folder_make(out, m->sentinel->user, &err) < 0) {
        mr_log(MR_LOG_ERROR, "worker.start", "model=%s worker=%u %s",
               MR_LOG_STR(mr_str_c(m->base.model)), w->index, err.msg);
        return NULL;
    }
    return out;
}

void worker_advance(struct worker *w)
{
    struct process_model *m = w->model;
    struct mr_buf body;

    if (!w->is_running || w->step >= w->goal) {
        return;
    }
    mr_buf_init(&body, MR_FRAME_MAX);
    if (w->step == STEP_NONE) {
        struct mr_ipc_open open = m->open;
        char temporary[PATH_MAX];
        open.temp_dir = temporary_make(w, temporary);
        open.worker = w->index;
        open.kept_count = m->kept.files.count;
        if (w->was_ready) {
            open.model.load_flags &= ~MR_LOAD_IN_BACKGROUND; /* requests wait for it */
        }
        mr_ipc_open_pack(&body, &open);
        w->step = STEP_OPENING;
        say(w, MR_FRAME_OPEN, &body);
    } else if (w->step == STEP_OPENED && m->configured.len > 0) {
        w->step = STEP_CONFIGURING;
        say(w, MR_FRAME_CONFIGURE, &m->configured);
    } else if ((w->step == STEP_OPENED || w->step == STEP_CONFIGURED) && w->goal >= STEP_WARMED) {
        w->step = STEP_INSTANCE;
        warm_up_say(w);
        mr_ipc_instance_pack(&body, &w->instance);
        say(w, MR_FRAME_INSTANCE, &body);
    } else if (w->step == STEP_WARMED) {
        w->step = STEP_SERVING;
        say(w, MR_FRAME_SERVE, &body);
    }
    mr_buf_fini(&body);
}

/* ---- standby ---- */

/* The step of a worker that has loaded the model. */
static enum step loaded(const struct process_model *m)
{
    return m->configured.len > 0 ? STEP_CONFIGURED : STEP_OPENED;
}

void worker_stand_by(struct worker *w)
{
    w->is_standby = true;
    w->goal = w->model->instance_count == 1 ? STEP_WARMED : loaded(w->model);
}

/* The standby worker that is ready first, NULL = none has loaded the model. One that warms up is ahead of a new process. */
static struct worker *standby_find(struct process_model *m)
{
    struct worker *best = NULL;

    for (uint32_t i = 0; i < m->worker_count; i++) {
        struct worker *w = &m->workers[i];
        if (w->is_standby && w->is_running && !w->is_stopping && w->fault == MR_WORKER_FAULTS &&
            w->step >= loaded(m) && (!best || w->step > best->step)) {
            best = w;
        }
    }
    return best;
}

/* A standby worker takes over the dead worker's instance, and the dead worker's successor becomes the standby. */
static void place_take(struct worker *dead, int64_t now_ns)
{
    struct worker *w = dead->is_standby ? NULL : standby_find(dead->model);

    if (!w) {
        return;
    }
    const struct restart own = w->restart;
    w->is_standby = false;
    w->was_ready = true;
    w->loading_ns = now_ns;
    w->instance = dead->instance;
    w->restart = dead->restart; /* the deaths of a standby say nothing of the place */
    dead->restart = own;
    w->died_ns = dead->died_ns;
    w->died_of = dead->died_of;
    w->goal = STEP_READY;
    if (w->ready_by_ns == 0) {
        worker_set_ready_by(w, now_ns); /* one that still warms up has no more time than before */
    }
    worker_stand_by(dead);
    dead->died_ns = 0;
    worker_advance(w);
    mr_process_kill(&w->process, SIGCONT); /* stopped while it stood by, it would not be noticed */
}

/* A standby worker has come a step further: a place that waits for its next start can have it. */
static void places_fill(struct process_model *m, int64_t now_ns)
{
    for (uint32_t i = 0; i < m->worker_count; i++) {
        struct worker *w = &m->workers[i];
        if (w->goal == STEP_READY && w->was_ready && !w->is_running) {
            place_take(w, now_ns);
        }
    }
    broken_note(m);
}

/* ---- messages ---- */

/* Inputs and outputs, which executions know by their positions alone. */
static void io_pack(struct mr_buf *b, const struct mr_signature *s)
{
    const struct mr_signature io = {.input_count = s->input_count,
                                    .output_count = s->output_count,
                                    .inputs = s->inputs,
                                    .outputs = s->outputs};

    mr_buf_init(b, 0);
    mr_ipc_signature_pack(b, &io);
}

static bool io_is_equal(const struct mr_signature *a, const struct mr_signature *b)
{
    struct mr_buf of_a, of_b;

    io_pack(&of_a, a);
    io_pack(&of_b, b);
    const bool is_equal = of_a.len == of_b.len && memcmp(of_a.ptr, of_b.ptr, of_a.len) == 0;
    mr_buf_fini(&of_a);
    mr_buf_fini(&of_b);
    return is_equal;
}

/* The first worker defines the signature of the model; all others must report equal inputs and outputs. */
static int on_opened(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct process_model *m = w->model;
    struct mr_ipc_opened o;
    struct mr_arena arena;
    int rc;

    if (!m->opened.backend_version) {
        return mr_ipc_opened_unpack(body, &m->arena, &m->opened, err);
    }
    mr_arena_init(&arena, 4096, MR_FRAME_MAX);
    rc = mr_ipc_opened_unpack(body, &arena, &o, err);
    if (rc == MR_OK && !io_is_equal(&o.signature, &m->opened.signature)) {
        rc = MR_FAIL(err, MR_E_INVALID, "the model has changed since it was loaded");
    }
    mr_arena_fini(&arena);
    return rc;
}

static void on_ready(struct worker *w, int64_t now_ns)
{
    struct process_model *m = w->model;

    w->was_ready = true;
    w->ready_by_ns = 0;
    m->load_ns = MR_MAX(m->load_ns, now_ns - w->loading_ns);
    if (w->died_ns > 0) {
        durations_add(&m->replacement[w->died_of], now_ns - w->died_ns);
        w->died_ns = 0;
    }
    moved(w, STEP_READY, now_ns);
    atomic_store_explicit(&m->is_broken, false, memory_order_relaxed);
    atomic_store_explicit(&w->is_hopeless, false, memory_order_relaxed);
    mr_log(MR_LOG_DEBUG, "worker.ready", "model=%s worker=%u pid=%d",
           MR_LOG_STR(mr_str_c(m->base.model)), w->index, (int)w->process.pid);
}

static void on_step(struct worker *w, enum step step, int64_t now_ns)
{
    moved(w, step, now_ns);
    if (step == w->goal) {
        w->ready_by_ns = 0;
    }
    if (w->is_standby) {
        places_fill(w->model, now_ns);
    }
}

static int frame_handle(struct worker *w, const struct mr_frame *f, int64_t now_ns,
                        struct mr_err *err)
{
    int rc = MR_OK;

    if (f->type == MR_FRAME_KEPT && w->step == STEP_OPENING && !w->model->opened.backend_version) {
        rc = kept_take(&w->model->kept, &w->received, err);
    } else if (f->type == MR_FRAME_OPENED && w->step == STEP_OPENING) {
        rc = on_opened(w, f->body, err);
        if (rc == MR_OK) {
            on_step(w, STEP_OPENED, now_ns);
        }
    } else if (f->type == MR_FRAME_CONFIGURED && w->step == STEP_CONFIGURING) {
        on_step(w, STEP_CONFIGURED, now_ns);
    } else if (f->type == MR_FRAME_WARMED && w->step == STEP_INSTANCE) {
        on_step(w, STEP_WARMED, now_ns);
    } else if (f->type == MR_FRAME_READY && w->step == STEP_SERVING) {
        on_ready(w, now_ns);
    } else if (f->type == MR_FRAME_TAKEN || f->type == MR_FRAME_CALL_END) {
        rc = call_on_frame(w, f, err);
    } else if (f->type == MR_FRAME_CONTROL || f->type == MR_FRAME_METRIC) {
        rc = call_on_control(w, f, err);
    } else if (f->type == MR_FRAME_FAILED) {
        mr_ipc_err_unpack(f->body, &w->err);
        w->has_said = true;
    } else {
        rc = MR_FAIL(err, MR_E_INVALID, "it sent message %u out of turn", f->type);
    }
    return rc;
}

void worker_on_socket(struct worker *w, int64_t now_ns)
{
    struct mr_err err;
    struct mr_frame f;
    int rc;

    mr_err_clear(&err);
    if (!w->is_running || w->is_deaf) {
        return;
    }
    rc = mr_frame_read(w->socket, &w->in, &w->received, &err);
    if (rc == MR_E_CLOSED) {
        w->is_deaf = true;
        sentinel_unwatch(w->model->sentinel, w->socket);
        close(w->socket);
        w->socket = -1;
    }
    while (rc >= 0 && (rc = mr_frame_next(&w->in, &f, &err)) > 0) {
        rc = frame_handle(w, &f, now_ns, &err);
        mr_frame_drop(&w->in, &f);
    }
    if (rc < 0 && rc != MR_E_CLOSED) {
        worker_kill(w, MR_WORKER_DAMAGED, err.msg);
        return;
    }
    worker_advance(w);
}

/* A line of the worker's own log has its level after the time: "2026-01-02T03:04:05.678901Z E backend.log ...". */
static enum mr_log_level level_of(const char *line)
{
    const char *end = strstr(line, " backend.log ");

    if (!end || end - line != 29) {
        return MR_LOG_INFO;
    }
    return end[-1] == 'E' ? MR_LOG_ERROR : end[-1] == 'W' ? MR_LOG_WARN : MR_LOG_INFO;
}

static void line_log(void *ctx, const char *line)
{
    const struct worker *w = ctx;

    mr_log(level_of(line), "worker.output", "model=%s worker=%u pid=%d \"%s\"",
           MR_LOG_STR(mr_str_c(w->model->base.model)), w->index, (int)w->process.pid, line);
}

void worker_on_output(struct worker *w)
{
    if (w->process.output >= 0 && lines_read(&w->lines, w->process.output, line_log, w) < 0) {
        sentinel_unwatch(w->model->sentinel, w->process.output);
        close(w->process.output);
        w->process.output = -1;
    }
}

/* ---- the end ---- */

void worker_stop(struct worker *w, int64_t now_ns)
{
    const struct mr_buf nothing = {0};

    w->goal = STEP_NONE;
    w->start_at_ns = 0;
    if (w->is_running && !w->is_stopping) {
        w->is_stopping = true;
        w->stop_by_ns = now_ns + STOP_NS;
        if (w->step == STEP_READY || w->step == STEP_WARMED) {
            say(w, MR_FRAME_STOP, &nothing);
            mr_process_kill(&w->process, SIGCONT); /* one that was stopped could not heed it */
        } else {
            mr_process_kill(&w->process, SIGKILL); /* it runs no execution */
        }
    }
}

void worker_cancel(struct worker *w, uint32_t slot, uint64_t generation)
{
    struct mr_buf body;

    if (w->step < STEP_SERVING || w->is_stopping) {
        return;
    }
    mr_buf_init(&body, 0);
    mr_pack_u64(&body, slot);
    mr_pack_u64(&body, generation);
    say(w, MR_FRAME_CANCEL, &body);
    mr_buf_fini(&body);
}

void worker_kill(struct worker *w, enum mr_worker_fault fault, const char *why)
{
    if (w->is_running && w->fault == MR_WORKER_FAULTS) {
        w->fault = fault;
        snprintf(w->last_fault, sizeof w->last_fault, "%s: %s", mr_worker_fault_name(fault), why);
        mr_process_kill(&w->process, SIGKILL);
    }
}

void worker_kill_hung(struct worker *w, const char *why, int64_t since_ns, int64_t now_ns)
{
    durations_add(&w->model->detection[MR_WORKER_HUNG], now_ns - since_ns);
    worker_kill(w, MR_WORKER_HUNG, why);
}

/* The executions that it was running, for its log line. */
struct end {
    struct process_model *model;
    uint32_t count;
    char ids[512];
};

static void on_outcome(void *ctx, struct mr_shm_slot *s, enum mr_shm_outcome outcome)
{
    struct end *e = ctx;

    if (outcome == MR_SHM_LOST) {
        const size_t used = strlen(e->ids), sep = e->count++ > 0;
        if (used + sep + 1 < sizeof e->ids) {
            memcpy(e->ids + used, ",", sep);
            run_ids(s, e->ids + used + sep, sizeof e->ids - used - sep);
        }
    }
    run_outcome(e->model, s, outcome);
}

static const char *end_text(const struct worker *w, const struct mr_process_exit *how, char out[48])
{
    return w->was_oom ? "out of memory (cgroup limit)" : mr_process_exit_text(how, out);
}

static void end_log(const struct worker *w, const struct end *e)
{
    char tail[1200]; /* so that the line has room for the rest */

    lines_tail(&w->lines, tail, sizeof tail);
    mr_log(MR_LOG_WARN, "worker.end",
           "model=%s worker=%u pid=%d fault=%s requests=%u ids=%s age_ms=%lld %s; last output: %s",
           MR_LOG_STR(mr_str_c(w->model->base.model)), w->index, (int)w->process.pid,
           mr_worker_fault_name(w->fault), e->count, MR_LOG_STR(mr_str_c(e->ids)),
           (long long)((mr_now_ns() - w->started_ns) / MR_NS_PER_MS),
           MR_LOG_STR(mr_str_c(w->last_fault)), tail[0] ? tail : "none");
}

static void descriptors_close(struct worker *w)
{
    struct mr_sentinel *s = w->model->sentinel;

    sentinel_unwatch(s, w->process.pidfd);
    sentinel_unwatch(s, w->process.output);
    sentinel_unwatch(s, w->socket);
    mr_process_close(&w->process);
    if (w->socket >= 0) {
        close(w->socket);
        w->socket = -1;
    }
    kept_fds_close(&w->received);
    mr_buf_fini(&w->in);
    mr_buf_fini(&w->out);
    w->is_deaf = false;
}

static bool ended_with(const struct mr_process_exit *how, int code)
{
    return !how->is_signal && how->code == code;
}

/* The process has answered, or was ready to for a minute. */
static bool has_worked(const struct worker *w, int64_t now_ns)
{
    return w->step == w->goal && (atomic_load_explicit(&w->answered, memory_order_relaxed) > 0 ||
                                  now_ns - w->since_ns >= PROBE_NS);
}

static void end_note(struct worker *w, const struct mr_process_exit *how)
{
    w->was_short = w->was_oom || ended_with(how, MR_WORKER_EXIT_MEMORY);
    w->was_killed =
        how->is_signal && how->code == SIGKILL && w->fault == MR_WORKER_FAULTS && !w->was_oom;
    w->was_damaged = w->fault == MR_WORKER_DAMAGED && w->shares_damage;
}

/* Decides whether and when a successor starts. */
static void next_plan(struct worker *w, const struct mr_process_exit *how, bool was_loading,
                      bool worked, int64_t now_ns)
{
    struct mr_sentinel *s = w->model->sentinel;
    enum restart_cause cause = RESTART_FAULT;
    char text[48];

    end_note(w, how);
    if (w->was_killed) {
        cause = RESTART_KILL;
    } else if (ended_with(how, MR_WORKER_EXIT_DEVICE)) {
        cause = RESTART_DEVICE;
    } else if (was_loading && ended_with(how, MR_WORKER_EXIT_MODEL)) {
        cause = RESTART_MODEL;
    }
    if (w->fault == MR_WORKER_FAULTS) {
        w->fault =
            !w->was_oom && (how->is_signal || how->code == 0) ? MR_WORKER_CRASHED : MR_WORKER_SICK;
        snprintf(w->last_fault, sizeof w->last_fault, "%s: %s%s%.80s",
                 mr_worker_fault_name(w->fault), end_text(w, how, text), w->has_said ? ": " : "",
                 w->has_said ? w->err.msg : "");
        durations_add(&w->model->detection[w->fault], mr_now_ns() - s->woken_ns);
    }
    w->restarts[w->fault]++;
    w->died_ns = now_ns;
    w->died_of = w->fault;
    atomic_fetch_add_explicit(&w->model->restarts[w->fault], 1, memory_order_relaxed);
    if (!w->has_said) {
        mr_err_clear(&w->err);
        MR_FAIL(&w->err, MR_E_INTERNAL, "the worker process of model '%s' ended (%s)%s%.200s",
                w->model->base.model, end_text(w, how, text),
                w->lines.last[0] ? "; its last words: " : "", w->lines.last);
    }
    if (!w->was_ready && !w->is_standby) {
        w->is_failed = true; /* a first load: its caller decides */
        return;
    }
    /* RESTART_MODEL is not the end of it: the model has been ready, so its files may become good again. */
    if (worked) {
        restart_worked(&w->restart);
    }
    w->start_at_ns = now_ns + restart_died(&w->restart, cause, (uint32_t)mr_rng_u64(&s->rng));
    place_take(w, now_ns);
}

void worker_on_end(struct worker *w, bool is_waiting, int64_t now_ns)
{
    struct end e = {.model = w->model};
    struct mr_process_exit how;

    if (!w->is_running || !mr_process_reap(&w->process, is_waiting, &how)) {
        return;
    }
    cgroup_end(w);
    if (!w->is_deaf) {
        worker_on_socket(w, now_ns); /* the message that it was ready, or the reason of its end */
    }
    const bool was_loading = w->step != w->goal, worked = has_worked(w, now_ns);
    worker_on_output(w);
    lines_flush(&w->lines, line_log, w);
    w->is_running = false;
    atomic_store_explicit(&w->pid, 0, memory_order_relaxed);
    calls_end(w);
    moved(w, STEP_NONE, now_ns);
    if (w->goal != STEP_NONE) {
        next_plan(w, &how, was_loading, worked, now_ns);
    }
    broken_note(w->model);
    mr_shm_worker_end(w->model->shm, w->index, on_outcome, &e);
    if (w->goal != STEP_NONE) {
        end_log(w, &e);
    }
    descriptors_close(w);
}
