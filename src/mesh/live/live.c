/* The mesh's thread: a loop with the core, its registry and its clock. Everything reaches it by mail; what the core wants goes out
 * by clients of this loop (messages), to the model manager (loads) and to the loops of requests (tickets). */
#include "live.h"

#include "runtime.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/thread.h"

#define SAMPLE_NS (2 * MR_NS_PER_S)
/* A server that is busy with other things than the mesh answers within that. */
#define PROBE_NS (250 * MR_NS_PER_MS)

int64_t live_now(void *ctx)
{
    (void)ctx;
    return mr_now_ns();
}

static void on_tick(struct mr_timer *t);

static void arm(struct mr_mesh *m)
{
    int64_t next = MR_MIN(mesh_core_next(m->core), registry_next(m->registry));
    int64_t wait = next - mr_now_ns();

    if (next != INT64_MAX) {
        mr_timer_start(m->loop, &m->tick, MR_MAX(wait, 0), 0, on_tick);
    }
}

static void tell(struct mr_mesh *m, bool *what)
{
    pthread_mutex_lock(&m->lock);
    *what = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

static bool wait_for(struct mr_mesh *m, const bool *what, int64_t timeout_ns)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + timeout_ns % MR_NS_PER_S;
    until.tv_sec += timeout_ns / MR_NS_PER_S + ns / MR_NS_PER_S;
    until.tv_nsec = ns % MR_NS_PER_S;
    pthread_mutex_lock(&m->lock);
    while (!*what && rc == 0) {
        rc = pthread_cond_timedwait(&m->changed, &m->lock, &until);
    }
    bool is_so = *what;
    pthread_mutex_unlock(&m->lock);
    return is_so;
}

static void on_left(void *ctx)
{
    struct mr_mesh *m = ctx;

    tell(m, &m->is_gone);
}

static void act(struct mr_mesh *m, const struct mesh_action *a)
{
    switch (a->kind) {
    case MESH_ACT_RUN:
    case MESH_ACT_FORWARD:
    case MESH_ACT_CANCEL:
    case MESH_ACT_REPLY: live_tickets_act(m, a); break;
    case MESH_ACT_SEND: live_peers_send(m, a); break;
    case MESH_ACT_TXN:
    case MESH_ACT_GET: registry_act(m->registry, a); break;
    case MESH_ACT_LOAD: m->loader->load(m, a); break;
    case MESH_ACT_UNLOAD: m->loader->unload(m, a); break;
    case MESH_ACT_RECONCILED:
        mr_log(a->status < 0 ? MR_LOG_WARN : MR_LOG_INFO, "mesh.journal", "%s=%s %.*s",
               a->is_vmodel ? "vmodel" : "model", MR_LOG_STR(a->id), MR_STR_ARG(a->text));
        break;
    case MESH_ACT_ANSWER:
        if (a->user) {
            live_admin_answer(m, a);
            break;
        }
        if (a->status < 0 && !(a->is_refused && m->was_refused)) {
            mr_log(MR_LOG_WARN, "mesh.register", "%.*s", MR_STR_ARG(a->text));
        }
        m->was_refused |= a->is_refused;
        m->registering--;
        live_models_register_more(
            m); /* after the log line: it calls the core, which frees a->text */
        break;
    case MESH_ACT_DRAINED: registry_leave(m->registry, on_left); break;
    }
}

/* Once the registry is read and has the models of the repositories here. */
static void join(struct mr_mesh *m)
{
    if (atomic_load_explicit(&m->is_joined, memory_order_relaxed) ||
        !registry_is_read(m->registry)) {
        return;
    }
    if (!m->has_registered) {
        m->has_registered = true;
        live_models_register(m);
    } else if (m->registering == 0 && !m->was_refused) {
        mr_log(MR_LOG_INFO, "mesh.joined", "id=%s registry=%s", m->id, mr_kv_name(m->kv));
        m->joined_ns = mr_now_ns();
        atomic_store_explicit(&m->is_joined, true, memory_order_release);
        live_ready_sample(m);
    }
}

/* Actions may lead to further events at once, which call this again: the outer call takes what they add. */
void live_acted(void *ctx)
{
    struct mr_mesh *m = ctx;
    struct mesh_action a;

    if (m->is_acting) {
        return;
    }
    m->is_acting = true;
    while (mesh_core_take(m->core, &a)) {
        /* release: who is answered after this asks after this */
        atomic_store_explicit(&m->names, mesh_core_names(m->core), memory_order_release);
        act(m, &a);
    }
    m->is_acting = false;
    atomic_store_explicit(&m->names, mesh_core_names(m->core), memory_order_release);
    live_admin_settle(m);
    join(m);
    arm(m);
}

static void on_tick(struct mr_timer *t)
{
    struct mr_mesh *m = MR_CONTAINER_OF(t, struct mr_mesh, tick);
    int64_t now = mr_now_ns();

    registry_tick(m->registry, now);
    mesh_core_tick(m->core, now);
    live_acted(m);
}

static void on_sample(struct mr_timer *t)
{
    struct mr_mesh *m = MR_CONTAINER_OF(t, struct mr_mesh, sample);

    live_plane_sample(m);
    live_rules_sample(m);
    live_models_sample(m);
    live_ready_sample(m);
}

static void on_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    struct mr_mesh *m = ctx;

    if (state == MR_KV_LOST) {
        mr_log(MR_LOG_WARN, "mesh.registry", "lost: %s", why ? why->msg : "");
        pthread_mutex_lock(&m->lock);
        m->lost = why ? *why : (struct mr_err){0};
        pthread_mutex_unlock(&m->lock);
        if (m->core) {
            mesh_core_why(m->core, mr_str_c(m->lost.msg));
        }
    } else if (state == MR_KV_READY) {
        tell(m, &m->is_reached);
        mr_log(MR_LOG_INFO, "mesh.registry", "connected to %s", m->kv ? mr_kv_name(m->kv) : "it");
    }
    if (m->registry) {
        registry_on_state(m->registry, state);
    }
}

static void on_journal_state(void *ctx, enum mr_kv_state state, const struct mr_err *why)
{
    struct mr_mesh *m = ctx;

    if (state == MR_KV_LOST) {
        mr_log(MR_LOG_WARN, "mesh.journal", "lost: %s", why ? why->msg : "");
    }
    registry_on_journal_state(m->registry, state);
}

/* ---- life ---- */

/* False: there is none. The caller frees the text. */
static bool journal_text(const struct mr_mesh *m, struct mr_buf *out)
{
    mr_buf_init(out, 0);
    if (m->o.journal) {
        mr_buf_printf(out, "file:%s", m->o.journal);
    }
    return m->o.journal != NULL;
}

static int check_journal(const struct mr_mesh *m, struct mr_err *err)
{
    struct mr_buf text;
    int rc = journal_text(m, &text) ? mr_kv_check(mr_buf_view(&text), err) : MR_OK;

    mr_buf_fini(&text);
    return rc < 0 ? MR_WRAP(err, rc, "--mesh-journal") : MR_OK;
}

int mr_mesh_new(struct mr_mesh **out, const struct mr_mesh_options *options, struct mr_err *err)
{
    struct mr_mesh *m = MR_NEW(struct mr_mesh);
    pthread_condattr_t clock;
    int rc;

    m->o = *options;
    if (!m->o.capacity_bytes && !m->o.runtime) {
        m->o.capacity_bytes = mr_machine_memory() / 4;
    }
    m->o.loaders = m->o.loaders ? m->o.loaders : 4;
    m->loader = options->runtime ? &live_runtime_loader : &live_own_loader;
    m->runtime_methods.allows_others = true;
    m->id = mr_strndup(options->id, strlen(options->id));
    m->tickets.prev = m->tickets.next = &m->tickets;
    m->admins.prev = m->admins.next = &m->admins;
    live_changes_init(m);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&m->changed, &clock);
    pthread_condattr_destroy(&clock);
    rc = mr_kv_check(mr_str_c(options->registry), err);
    if (rc < 0) {
        MR_WRAP(err, rc, "--mesh");
        goto out;
    }
    if (!mesh_instance_id_is_valid(mr_str_c(options->id))) {
        rc = MR_FAIL(err, MR_E_INVALID, "--mesh-id '%s': 1 to %d letters, digits, '.', '_' and '-'",
                     options->id, MESH_INSTANCE_MAX);
        goto out;
    }
    if (options->label_count > MESH_LABELS_MAX) {
        rc = MR_FAIL(err, MR_E_INVALID, "--mesh-label: %d labels at most", MESH_LABELS_MAX);
        goto out;
    }
    if (options->max_copies && options->min_copies > options->max_copies) {
        rc = MR_FAIL(err, MR_E_INVALID, "--mesh-min-copies is %u, more than --mesh-max-copies, %u",
                     options->min_copies, options->max_copies);
        goto out;
    }
    if ((rc = mesh_owner_check(mr_str_c(options->vmodel_owner), err)) < 0) {
        MR_WRAP(err, rc, "--mesh-vmodel-owner");
        goto out;
    }
    MR_TRY(check_journal(m, err));
    MR_TRY(live_rules_start(m, err));
    MR_TRY(live_plane_start(m, err));
    MR_TRY(mr_loop_new(&m->loop, NULL, err)); /* what is asked before mr_mesh_start waits in it */
    *out = m;
    return MR_OK;
out:
    mr_mesh_free(&m);
    return rc;
}

static int make_core(struct mr_mesh *m, struct mr_err *err)
{
    struct mesh_core_options o = {.id = mr_str_c(m->id),
                                  .constraints = m->rules.at,
                                  .constraint_count = m->rules.len,
                                  .vmodel_owner = mr_str_c(m->o.vmodel_owner),
                                  .scale_per_minute = m->o.scale_up_rate,
                                  .default_bytes = m->default_bytes,
                                  .probe_ns = PROBE_NS,
                                  .place_wait_ns = 2 * PROBE_NS,
                                  .claim_wait_ns = PROBE_NS,
                                  .times = &m->times,
                                  .wall_ns = mr_wall_ns,
                                  .self = {.address = mr_str_c(m->address),
                                           .zone = mr_str_c(m->o.zone),
                                           .capacity_bytes = m->o.capacity_bytes,
                                           .device_bytes = m->o.device_bytes,
                                           .loaders = m->o.loaders}};

    for (size_t i = 0; i < m->o.label_count; i++) {
        o.self.labels[o.self.label_count++] = mr_str_c(m->o.labels[i]);
    }
    return mesh_core_new(&m->core, &o, mr_now_ns(), err);
}

static int open_journal(struct mr_mesh *m, struct mr_err *err)
{
    struct mr_buf text;
    int rc = MR_OK;

    if (journal_text(m, &text)) {
        rc = mr_kv_open(&m->journal, m->loop, mr_buf_view(&text),
                        &(struct mr_kv_options){.on_state = on_journal_state, .ctx = m}, err);
    }
    mr_buf_fini(&text);
    return rc;
}

static int open_registry(struct mr_mesh *m, struct mr_err *err)
{
    int rc = mr_kv_open(
        &m->kv, m->loop, mr_str_c(m->o.registry),
        &(struct mr_kv_options){.on_state = on_state, .ctx = m, .prefix = mr_str_c(m->o.prefix)},
        err);

    return rc < 0 ? MR_WRAP(err, rc, "--mesh") : MR_OK;
}

static int make_instance(struct mr_mesh *m, struct mr_err *err)
{
    struct registry_options ro = {.id = mr_str_c(m->id),
                                  .address = mr_str_c(m->address),
                                  .lease_s = m->o.lease_s,
                                  .now = live_now,
                                  .acted = live_acted,
                                  .changed = live_changes_add,
                                  .is_gone = live_peer_is_gone,
                                  .ctx = m};
    int rc;

    MR_TRY(make_core(m, err));
    m->registry = registry_new(m->core, &ro);
    MR_TRY(open_journal(m, err));
out:
    return rc;
}

static void begin(struct mr_mesh *m)
{
    registry_start(m->registry, m->kv, m->journal);
    if (mr_kv_state(m->kv) == MR_KV_READY) { /* before a runtime was */
        registry_on_state(m->registry, MR_KV_READY);
    }
    mr_timer_start(m->loop, &m->sample, SAMPLE_NS, SAMPLE_NS, on_sample);
    arm(m);
}

int live_join(struct mr_mesh *m, struct mr_err *err)
{
    int rc = make_instance(m, err);

    if (rc == MR_OK) {
        begin(m);
    }
    return rc;
}

static void *thread_main(void *arg)
{
    struct mr_mesh *m = arg;

    if (m->runtime) {
        live_runtime_start(m->runtime);
    } else {
        begin(m);
    }
    mr_loop_run(m->loop);
    return NULL;
}

static int unreached(struct mr_mesh *m, struct mr_err *err)
{
    pthread_mutex_lock(&m->lock);
    int rc =
        MR_FAIL(err, MR_E_UNAVAILABLE,
                "--mesh %s: the registry does not answer%s%s (--mesh-start-timeout=0 waits for it)",
                mr_kv_name(m->kv), m->lost.msg[0] ? ": " : "", m->lost.msg);
    pthread_mutex_unlock(&m->lock);
    return rc;
}

int mr_mesh_start(struct mr_mesh *m, struct mr_models *models, const char *address,
                  struct mr_err *err)
{
    int rc;

    m->models = models;
    m->started_ns = mr_now_ns();
    m->address = mr_strndup(address, strlen(address));
    MR_TRY(open_registry(m, err));
    MR_TRY(m->o.runtime ? live_runtime_new(&m->runtime, m, m->o.runtime, err)
                        : make_instance(m, err));
    MR_TRY(mr_thread_start(&m->thread, "mesh", thread_main, m, err));
    atomic_store(&m->is_started, true);
    if (m->o.start_timeout_ns && !wait_for(m, &m->is_reached, m->o.start_timeout_ns)) {
        rc = unreached(m, err);
    }
out:
    return rc;
}

bool mr_mesh_is_joined(const struct mr_mesh *m)
{
    return atomic_load_explicit(&m->is_joined, memory_order_acquire);
}

uint64_t mr_mesh_names(const struct mr_mesh *m)
{
    return atomic_load_explicit(&m->names, memory_order_acquire);
}

static void run_drain(struct mr_mail *mail)
{
    struct mr_mesh *m = MR_CONTAINER_OF(mail, struct mr_mesh, drain);

    if (!m->registry) { /* it has not joined */
        on_left(m);
        return;
    }
    mesh_core_drain(m->core, mr_now_ns());
    live_acted(m);
}

/* What administrators wait for will not be seen here any more. */
static void run_end(struct mr_mail *mail)
{
    struct mr_mesh *m = MR_CONTAINER_OF(mail, struct mr_mesh, end);

    m->is_ending = true;
    live_admin_settle(m);
}

bool mr_mesh_drain(struct mr_mesh *m, int64_t timeout_ns)
{
    if (!atomic_load(&m->is_started)) {
        return true;
    }
    m->drain.run = run_drain;
    mr_loop_post(m->loop, &m->drain);
    bool is_gone = wait_for(m, &m->is_gone, timeout_ns);
    m->end.run = run_end;
    mr_loop_post(m->loop, &m->end);
    return is_gone;
}

static void run_stop(struct mr_mail *mail)
{
    struct mr_mesh *m = MR_CONTAINER_OF(mail, struct mr_mesh, stop);

    mr_timer_stop(&m->tick);
    mr_timer_stop(&m->sample);
    live_runtime_free(&m->runtime);
    live_tickets_fini(m);
    live_peers_fini(m);
    registry_free(&m->registry);
    if (m->kv) {
        mr_kv_free(&m->kv); /* ends the lists that are under way */
    }
    if (m->journal) {
        mr_kv_free(&m->journal);
    }
    live_admin_fini(m);
    mr_loop_stop(m->loop);
}

void mr_mesh_stop(struct mr_mesh *m)
{
    if (!atomic_exchange(&m->is_started, false)) {
        return;
    }
    atomic_store(&m->is_stopping, true);
    m->stop.run = run_stop;
    mr_loop_post(m->loop, &m->stop);
    pthread_join(m->thread, NULL);
}

void mr_mesh_free(struct mr_mesh **io_m)
{
    struct mr_mesh *m = *io_m;

    *io_m = NULL;
    if (!m) {
        return;
    }
    mr_mesh_stop(m);
    if (atomic_load(&m->loads) > 0) {
        return; /* a load that was cut off will post to the loop when it ends; the process is about to end */
    }
    live_runtime_free(&m->runtime); /* of a start that failed, as what follows */
    registry_free(&m->registry);
    if (m->kv) {
        mr_kv_free(&m->kv);
    }
    if (m->journal) {
        mr_kv_free(&m->journal);
    }
    if (m->loop) {
        mr_loop_free(&m->loop);
    }
    live_models_fini(m);
    mesh_core_free(&m->core);
    mesh_rules_fini(&m->rules);
    live_plane_fini(m);
    live_changes_fini(m);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    mr_free(m->address);
    mr_free(m->id);
    mr_free(m);
}
