/* The main thread: loads the model in the steps that the server requests, then waits for its frames. */
#include "worker/worker.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vec.h"
#include "calls.h"
#include "control.h"
#include "exec/exec.h"
#include "ipc/frame.h"
#include "ipc/setup.h"
#include "plugin/plugin.h"
#include "process/cgroup.h"
#include "process/confine.h"
#include "process/folder.h"
#include "process/spawn.h"
#include "process/user.h"
#include "serve.h"
#include "shm/worker.h"

#define SETUP_BYTES_MAX ((size_t)256 << 20)

#define WARMUPS_MAX 64u

struct worker {
    pid_t server;
    struct mr_buf in;
    struct mr_arena arena; /* the load request; lives as long as the model */
    struct mr_ipc_open open;
    struct mr_loading loading;
    struct mr_model_kept kept;
    struct mr_plugin *plugin;
    struct mr_executor *executor;
    void *instance;
    struct mr_shm_view *view;
    struct worker_serve *serve;
    struct worker_warmup warmups[WARMUPS_MAX];
    uint32_t warmup_count;
    bool is_serving, is_stopping, is_closing;
};

/* There is one in a process. */
static struct worker *the_worker;

static int pump(int64_t timeout_ns, struct mr_err *err);

static int view_open(struct worker *w, struct mr_err *err)
{
    int *homes = MR_NEW_ARRAY(int, w->open.home_count + 1);

    for (uint32_t i = 0; i < w->open.home_count; i++) {
        homes[i] = MR_WORKER_FD_HOME_FIRST + (int)i;
    }
    const struct mr_shm_view_fds fds = {
        MR_WORKER_FD_CONTROL, MR_WORKER_FD_INPUT, MR_WORKER_FD_OUTPUT, MR_WORKER_FD_HOMES, homes,
        w->open.home_count};
    const int rc = mr_shm_view_open(&w->view, &fds, w->open.worker, err);
    mr_free(homes);
    return rc;
}

static struct mr_ipc_opened opened(const struct worker *w)
{
    return (struct mr_ipc_opened){.signature = *w->executor->signature,
                                  .backend_version = mr_plugin_version(w->plugin),
                                  .bytes = w->executor->ops->bytes(w->executor),
                                  .has_cancel = w->executor->ops->cancel != NULL,
                                  .memory = w->executor->ops->memory(w->executor)};
}

static int say_opened(const struct worker *w, enum mr_frame_type type, struct mr_err *err)
{
    const struct mr_ipc_opened o = opened(w);
    struct mr_buf body;

    mr_buf_init(&body, MR_FRAME_MAX);
    mr_ipc_opened_pack(&body, &o);
    const int rc = worker_frame_send(type, (mr_bytes){(const uint8_t *)body.ptr, body.len}, err);
    mr_buf_fini(&body);
    return rc;
}

typedef MR_VEC(const char *) paths;

/* Libraries beside a backend may be symbolic links. */
static void links_add(struct worker *w, const char *dir, paths *out)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    char path[PATH_MAX], real[PATH_MAX];

    while (d && (entry = readdir(d))) {
        const int n = snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (entry->d_type == DT_LNK && n > 0 && (size_t)n < sizeof path && realpath(path, real)) {
            MR_VEC_PUSH(out, mr_arena_str(&w->arena, mr_str_c(real)).ptr);
        }
    }
    if (d) {
        closedir(d);
    }
}

static bool loading_is_unwanted(const struct mr_loading *l)
{
    const struct worker *w =
        MR_CONTAINER_OF((struct mr_loading *)(uintptr_t)l, struct worker, loading);

    return mr_shm_load_is_unwanted(w->view);
}

static void loading_on_progress(struct mr_loading *l)
{
    const char *step = atomic_load_explicit(&l->step, memory_order_relaxed);

    mr_shm_load_progress(MR_CONTAINER_OF(l, struct worker, loading)->view, step ? step : "",
                         atomic_load_explicit(&l->done, memory_order_relaxed),
                         atomic_load_explicit(&l->total, memory_order_relaxed));
}

/* A change of the user clears the signal at the death of the parent. */
static int user_change(const struct worker *w, struct mr_err *err)
{
    int rc;

    if (!w->open.user) {
        return MR_OK;
    }
    MR_TRY(mr_process_become(w->open.user, err));
    if (!mr_process_die_with(w->server)) {
        rc = MR_FAIL(err, MR_E_CLOSED, "the server is gone");
    }
out:
    return rc;
}

/* What the process before this one has left there goes. */
static void temporary_begin(const struct worker *w)
{
    if (w->open.temp_dir) {
        mr_folder_empty(w->open.temp_dir);
        setenv("TMPDIR", w->open.temp_dir, 1);
    }
}

/* Before any foreign code is loaded. */
static int confine(struct worker *w, struct mr_err *err)
{
    const struct mr_model_desc *m = &w->open.model;
    uint32_t steps;
    paths list = {0}, written = {0};

    for (size_t i = 0; w->open.backend_dirs[i]; i++) {
        MR_VEC_PUSH(&list, w->open.backend_dirs[i]);
        links_add(w, w->open.backend_dirs[i], &list);
    }
    for (size_t i = 0; m->link_dirs && m->link_dirs[i]; i++) {
        MR_VEC_PUSH(&list, m->link_dirs[i]);
    }
    MR_VEC_PUSH(&list, m->model_dir);
    MR_VEC_PUSH(&list, m->version_dir);
    MR_VEC_PUSH(&list, NULL);
    for (size_t i = 0; w->open.write_dirs && w->open.write_dirs[i]; i++) {
        MR_VEC_PUSH(&written, w->open.write_dirs[i]);
    }
    MR_VEC_PUSH(&written, w->open.temp_dir);
    MR_VEC_PUSH(&written, NULL);
    const struct mr_confine c = {w->open.confine_steps, w->open.memory_bytes, list.at, written.at};
    int rc = user_change(w, err);
    if (rc == MR_OK) {
        temporary_begin(w);
        rc = mr_confine_self(&c, &steps, err);
    }
    MR_VEC_FINI(&list);
    MR_VEC_FINI(&written);
    return rc;
}

/* Maps the files that an earlier worker of the model has left. */
static void kept_begin(struct worker *w)
{
    w->kept.count = w->open.kept_count;
    for (uint32_t i = 0; i < w->kept.count; i++) {
        w->kept.fds[i] = MR_WORKER_FD_HOME_FIRST + (int)(w->open.home_count + i);
    }
    w->open.model.kept = &w->kept;
}

/* Leaves the files of this worker to later ones. The backend has mapped what it needs. */
static int kept_end(struct worker *w, struct mr_err *err)
{
    int rc = MR_OK;

    w->open.model.kept = NULL;
    if (w->kept.count > w->open.kept_count) {
        rc = mr_frame_send_fds(MR_WORKER_FD_SOCKET, MR_FRAME_KEPT, w->kept.fds, w->kept.count, err);
    }
    for (uint32_t i = 0; i < w->kept.count; i++) {
        close(w->kept.fds[i]);
    }
    w->kept.count = 0;
    return rc;
}

static int on_open(struct worker *w, mr_bytes body, struct mr_err *err)
{
    size_t dirs = 0;
    int rc;

    if (w->executor) {
        return MR_FAIL(err, MR_E_INVALID, "a worker process loads one model");
    }
    MR_TRY(mr_ipc_open_unpack(body, &w->arena, &w->open, err));
    MR_TRY(view_open(w, err));
    worker_calls_start(w->view, worker_serve_call, pump);
    if (w->open.has_control) {
        MR_TRY(worker_control_start(
            MR_WORKER_FD_HOME_FIRST + (int)(w->open.home_count + w->open.kept_count), err));
    }
    w->loading.is_unwanted = loading_is_unwanted;
    w->loading.on_progress = loading_on_progress;
    w->open.model.loading = &w->loading;
    while (w->open.backend_dirs[dirs]) {
        dirs++;
    }
    MR_TRY(confine(w, err));
    MR_TRY(mr_plugin_open(&w->plugin, mr_str_c(w->open.backend), w->open.backend_dirs, dirs,
                          w->open.settings, w->open.setting_count, err));
    kept_begin(w);
    MR_TRY(mr_plugin_model_open(&w->executor, w->plugin, &w->open.model, err));
    MR_TRY(kept_end(w, err));
    MR_TRY(say_opened(w, MR_FRAME_OPENED, err));
out:
    return rc;
}

static int on_configure(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct mr_signature s;
    int rc;

    if (!w->executor || w->instance) {
        return MR_FAIL(err, MR_E_INVALID, "configure comes between open and instance");
    }
    MR_TRY(mr_ipc_signature_unpack(body, &w->arena, &s, err));
    MR_TRY(w->executor->ops->configure(w->executor, &s, err));
    MR_TRY(worker_frame_send(MR_FRAME_CONFIGURED, (mr_bytes){NULL, 0}, err));
out:
    return rc;
}

static int on_instance(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct mr_instance_desc desc;
    int rc;

    if (!w->executor || w->instance) {
        return MR_FAIL(err, MR_E_INVALID, "a worker process has one instance");
    }
    MR_TRY(mr_ipc_instance_unpack(body, &w->arena, &desc, err));
    MR_TRY(w->executor->ops->instance_open(w->executor, &desc, &w->instance, err));
    w->serve = worker_serve_new(w->view, w->executor, w->instance);
    MR_TRY(worker_serve_start(w->serve, w->warmups, w->warmup_count, err));
out:
    return rc;
}

static int on_serve(struct worker *w, struct mr_err *err)
{
    int rc;

    if (!w->serve || w->is_serving) {
        return MR_FAIL(err, MR_E_INVALID, "serve comes once, after instance");
    }
    w->is_serving = true;
    MR_TRY(say_opened(w, MR_FRAME_READY, err)); /* before anything that may crash it */
    worker_serve_begin(w->serve);
out:
    return rc;
}

/* An execution that the instance runs before it is ready. */
static int on_warmup(struct worker *w, mr_bytes body, struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(body, &w->arena);
    const uint64_t offset = mr_unpack_u64(&u), bytes = mr_unpack_u64(&u);

    if (u.failed || w->warmup_count == WARMUPS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "a warm-up that is damaged, or one too many");
    }
    w->warmups[w->warmup_count].offset = offset;
    w->warmups[w->warmup_count++].bytes = bytes;
    return MR_OK;
}

static void on_cancel(struct worker *w, mr_bytes body)
{
    struct mr_unpack u = mr_unpack_begin(body, &w->arena);
    const uint32_t slot = mr_unpack_u32(&u, UINT32_MAX);
    const uint64_t generation = mr_unpack_u64(&u);

    if (w->serve && !u.failed) {
        worker_serve_cancel(w->serve, slot, generation);
    }
}

static int frame_handle(struct worker *w, const struct mr_frame *f, struct mr_err *err)
{
    switch (f->type) {
    case MR_FRAME_OPEN: return on_open(w, f->body, err);
    case MR_FRAME_CONFIGURE: return on_configure(w, f->body, err);
    case MR_FRAME_WARMUP: return on_warmup(w, f->body, err);
    case MR_FRAME_INSTANCE: return on_instance(w, f->body, err);
    case MR_FRAME_SERVE: return on_serve(w, err);
    case MR_FRAME_CANCEL: on_cancel(w, f->body); return MR_OK;
    case MR_FRAME_ANSWER: return worker_calls_on_answer(f->body, err);
    case MR_FRAME_STOP: w->is_stopping = true; return MR_OK;
    default: return MR_FAIL(err, MR_E_INVALID, "message %u is not for a worker", f->type);
    }
}

/* Handles what has been read. The body is copied: while it is handled, others may be (pump). */
static int frames_take(struct worker *w, struct mr_err *err)
{
    int rc = MR_OK;

    while (!w->is_stopping || w->is_closing) {
        struct mr_frame f;
        struct mr_buf body;
        rc = mr_frame_next(&w->in, &f, err);
        if (rc <= 0) {
            break;
        }
        mr_buf_init(&body, MR_FRAME_MAX);
        mr_buf_append(&body, f.body.ptr, f.body.len);
        mr_frame_drop(&w->in, &f);
        f.body = (mr_bytes){(const uint8_t *)body.ptr, body.len};
        rc = frame_handle(w, &f, err);
        mr_buf_fini(&body);
        if (rc < 0) {
            break;
        }
    }
    return rc < 0 ? rc : MR_OK;
}

static int frames_serve(struct worker *w, struct mr_err *err)
{
    int rc = MR_OK;

    while (!w->is_stopping && rc == MR_OK) {
        rc = mr_frame_read(MR_WORKER_FD_SOCKET, &w->in, NULL, err);
        if (rc >= 0) {
            rc = frames_take(w, err);
        }
    }
    return rc;
}

/* The model waits for an answer while it is loaded or closed. */
static int pump(int64_t timeout_ns, struct mr_err *err)
{
    struct worker *w = the_worker;
    struct pollfd p = {.fd = MR_WORKER_FD_SOCKET, .events = POLLIN};
    const int64_t ms = (timeout_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS;
    int rc;

    if (w->is_stopping && !w->is_closing) {
        return MR_FAIL(err, MR_E_CLOSED, "the load is not wanted any more");
    }
    if (poll(&p, 1, timeout_ns > 0 ? (int)MR_MIN(ms, INT_MAX) : -1) <= 0) {
        return MR_FAIL(err, MR_E_DEADLINE, "no answer in time");
    }
    rc = mr_frame_read(MR_WORKER_FD_SOCKET, &w->in, NULL, err);
    return rc < 0 ? rc : frames_take(w, err);
}

static int failed(const struct mr_err *e)
{
    struct mr_buf body;
    struct mr_err ignored;

    mr_buf_init(&body, 0);
    mr_ipc_err_pack(&body, e);
    worker_frame_send(MR_FRAME_FAILED, (mr_bytes){(const uint8_t *)body.ptr, body.len}, &ignored);
    mr_buf_fini(&body);
    return e->status == MR_E_NOMEM || e->status == MR_E_EXHAUSTED ? MR_WORKER_EXIT_MEMORY
                                                                  : MR_WORKER_EXIT_MODEL;
}

static void worker_close(struct worker *w)
{
    w->is_closing = true;
    worker_calls_stop();
    worker_serve_stop(&w->serve);
    if (w->executor) {
        mr_executor_instance_close(w->executor, &w->instance);
    }
    mr_executor_close(&w->executor);
    mr_plugin_close(&w->plugin);
    worker_control_stop();
    mr_shm_view_close(&w->view);
    mr_buf_fini(&w->in);
    mr_arena_fini(&w->arena);
}

/* Started by hand, it has no descriptors and no server. */
static bool is_of_server(int argc, char **argv)
{
    return (argc == 3 || argc == 4) && mr_process_die_with((pid_t)strtol(argv[2], NULL, 10)) &&
           fcntl(MR_WORKER_FD_HOMES, F_GETFD) >= 0;
}

int mr_worker_main(int argc, char **argv)
{
    struct worker w = {0};
    struct mr_err err;
    int code = MR_WORKER_EXIT_OK;

    if (!is_of_server(argc, argv)) {
        fprintf(stderr, "millrace-worker: started by `millrace serve` only\n");
        return MR_WORKER_EXIT_MODEL;
    }
    w.server = (pid_t)strtol(argv[2], NULL, 10);
    the_worker = &w;
    mr_err_clear(&err);
    mr_buf_init(&w.in, MR_FRAME_MAX + 4096);
    mr_arena_init(&w.arena, 4096, SETUP_BYTES_MAX);
    int rc = argc == 4 ? mr_cgroup_enter(argv[3], &err) : MR_OK;
    if (rc == MR_OK) {
        rc = frames_serve(&w, &err);
    }
    if (rc == MR_E_CLOSED) {
        _exit(MR_WORKER_EXIT_OK); /* the server has ended: no result is wanted */
    }
    if (rc < 0) {
        code = failed(&err);
    }
    worker_close(&w);
    return code;
}
