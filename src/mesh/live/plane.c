/* The tables of methods and the rules for types that are in force. Their files are looked at with every sample; one that is wrong leaves
 * what was read before. Network threads read under a lock, which is held for a look-up. */
#include "live.h"

#include "base/clock.h"
#include "base/log.h"

static int read_config(struct mr_mesh *m, struct mr_err *err)
{
    struct mesh_methods ms;
    struct mr_buf json;
    int rc;

    MR_TRY(mesh_rules_text(&json, m->o.dataplane, err));
    rc = mesh_methods_parse(&ms, mr_buf_view(&json), err);
    mr_buf_fini(&json);
    if (rc == MR_OK) {
        pthread_mutex_lock(&m->lock);
        mesh_methods_fini(&m->config);
        m->config = ms;
        pthread_mutex_unlock(&m->lock);
    }
out:
    return rc;
}

/* Whether the option is the name of a file that has changed, or its rights have, since the last look. */
static bool has_changed(const char *text, struct stat *seen)
{
    struct stat now;

    if (!text || text[strspn(text, " \t\r\n")] == '{' || stat(text, &now) != 0) {
        return false; /* not there: an editor replaces it */
    }
    bool is_same = now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
                   now.st_ctim.tv_sec == seen->st_ctim.tv_sec &&
                   now.st_ctim.tv_nsec == seen->st_ctim.tv_nsec;
    *seen = now;
    return !is_same;
}

int live_plane_start(struct mr_mesh *m, struct mr_err *err)
{
    if (!m->o.dataplane) {
        m->config.allows_others = true;
        return MR_OK;
    }
    has_changed(m->o.dataplane, &m->config_seen);
    int rc = read_config(m, err);
    return rc < 0 ? MR_WRAP(err, rc, "--mesh-dataplane-config") : rc;
}

void live_plane_sample(struct mr_mesh *m)
{
    struct mr_err err;

    if (!has_changed(m->o.dataplane, &m->config_seen)) {
        return;
    }
    if (read_config(m, &err) < 0) {
        mr_log(MR_LOG_WARN, "mesh.dataplane_config", "%s: %s; what was in force stays",
               m->o.dataplane, err.msg);
    } else {
        mr_log(MR_LOG_INFO, "mesh.dataplane_config", "%s is in force", m->o.dataplane);
    }
}

/* ---- rules for types ---- */

int live_rules_start(struct mr_mesh *m, struct mr_err *err)
{
    if (!m->o.constraints) {
        return MR_OK;
    }
    has_changed(m->o.constraints, &m->rules_seen);
    int rc = mesh_rules_read(&m->rules, m->o.constraints, err);
    return rc < 0 ? MR_WRAP(err, rc, "--mesh-constraints") : rc;
}

void live_rules_sample(struct mr_mesh *m)
{
    struct mesh_rules fresh;
    struct mr_err err;

    if (!has_changed(m->o.constraints, &m->rules_seen)) {
        return;
    }
    if (mesh_rules_read(&fresh, m->o.constraints, &err) < 0) {
        mr_log(MR_LOG_WARN, "mesh.constraints", "%s; what was in force stays", err.msg);
        return;
    }
    mesh_core_constraints(m->core, fresh.at, fresh.len);
    mesh_rules_fini(&m->rules);
    m->rules = fresh;
    mr_log(MR_LOG_INFO, "mesh.constraints", "%s is in force", m->o.constraints);
}

void live_plane_fini(struct mr_mesh *m)
{
    mesh_methods_fini(&m->config);
    mesh_methods_fini(&m->runtime_methods);
    live_plane_forget(m, (mr_str){0});
    mr_map_fini(&m->reloads);
}

void mr_mesh_method(struct mr_mesh *m, mr_str path, struct mr_mesh_method *out)
{
    mr_str name = mr_str_sub(path, 1, path.len);

    *out = (struct mr_mesh_method){0};
    pthread_mutex_lock(&m->lock);
    const struct mesh_method *c = mesh_methods_find(&m->config, name);
    out->is_refused = !c && !m->config.allows_others;
    if (c) {
        out->is_vmodel = c->is_vmodel;
        out->extract = c->path;
    }
    const struct mesh_method *r = mesh_methods_find(&m->runtime_methods, name);
    out->is_refused |= !r && !m->runtime_methods.allows_others;
    if (r) {
        out->inject = r->path;
    }
    pthread_mutex_unlock(&m->lock);
}

/* ---- the runtime ---- */

void live_plane_set_runtime(struct mr_mesh *m, struct mesh_methods *methods)
{
    struct mesh_methods old;

    pthread_mutex_lock(&m->lock);
    old = m->runtime_methods;
    m->runtime_methods = *methods;
    pthread_mutex_unlock(&m->lock);
    *methods = (struct mesh_methods){0};
    mesh_methods_fini(&old);
}

const char *mr_mesh_runtime(const struct mr_mesh *m)
{
    return m->o.runtime_inference ? m->o.runtime_inference : m->o.runtime;
}

static void run_check(struct mr_mail *mail)
{
    struct mr_mesh *m = MR_CONTAINER_OF(mail, struct mr_mesh, check);

    atomic_store(&m->is_check_posted, false);
    if (!atomic_load(&m->is_stopping)) {
        live_runtime_check(m);
    }
}

/* ---- models that the runtime says it has not got ---- */

#define RELOADS_MAX 10000
#define RELOAD_NS                                                                                  \
    (600 * MR_NS_PER_S) /* before a model is loaded again for that once more; doubled each time */
#define DAY_NS (86400 * MR_NS_PER_S)

/* A model that was loaded again because the runtime said so. It goes with its unload, and with the runtime. */
struct live_reload {
    bool is_due;
    int64_t done_ns; /* when the last such load began */
    int64_t wait_ns;
    int64_t next_ns; /* not again before */
};

/* NULL: there are too many. */
static struct live_reload *add_reload(struct mr_mesh *m, mr_str id)
{
    struct live_reload *known = NULL;

    if (m->reloads.len < RELOADS_MAX) {
        known = MR_NEW(struct live_reload);
        known->wait_ns = RELOAD_NS;
        mr_map_put(&m->reloads, id, known);
    }
    return known;
}

/* The request that waited for the reload shows whether it helped: a second such answer is the model's own. The same answer to a request
 * that came in later means that the runtime has lost the model once more. */
static enum mr_mesh_missing see_missing(struct mr_mesh *m, mr_str id, int64_t came_ns,
                                        int64_t sent_ns)
{
    struct live_reload *known = mr_map_find(&m->reloads, id);
    int64_t now = mr_now_ns();

    if (!known) {
        known = add_reload(m, id);
    } else if (known->is_due) {
        return MR_MESH_LOST;
    } else if (sent_ns < known->done_ns) {
        return MR_MESH_AGAIN;
    } else if (now < known->next_ns) {
        return MR_MESH_OWN;
    } else if (came_ns < known->done_ns) {
        known->next_ns = now + known->wait_ns;
        known->wait_ns = MR_MIN(2 * known->wait_ns, DAY_NS);
        return MR_MESH_OWN;
    }
    if (!known) {
        return MR_MESH_OWN;
    }
    known->is_due = true;
    return MR_MESH_LOST;
}

enum mr_mesh_missing mr_mesh_runtime_missing(struct mr_mesh *m, mr_str id, int64_t came_ns,
                                             int64_t sent_ns)
{
    pthread_mutex_lock(&m->lock);
    enum mr_mesh_missing what = see_missing(m, id, came_ns, sent_ns);
    pthread_mutex_unlock(&m->lock);
    return what;
}

void mr_mesh_runtime_broke(struct mr_mesh *m, mr_str id)
{
    pthread_mutex_lock(&m->lock);
    struct live_reload *known = mr_map_find(&m->reloads, id);
    known = known ? known : add_reload(m, id);
    if (known) {
        known->is_due = true;
    }
    pthread_mutex_unlock(&m->lock);
    if (!atomic_exchange(&m->is_check_posted, true)) {
        m->check.run = run_check;
        mr_loop_post(m->loop, &m->check);
    }
}

bool live_plane_reloads(struct mr_mesh *m, mr_str id)
{
    pthread_mutex_lock(&m->lock);
    struct live_reload *known = mr_map_find(&m->reloads, id);
    bool is_due = known && known->is_due;
    if (is_due) {
        known->is_due = false;
        known->done_ns = mr_now_ns();
    }
    pthread_mutex_unlock(&m->lock);
    return is_due;
}

void live_plane_forget(struct mr_mesh *m, mr_str id)
{
    struct mr_map_slot *slot;

    pthread_mutex_lock(&m->lock);
    if (id.ptr) {
        mr_free(mr_map_remove(&m->reloads, id));
    }
    for (size_t i = 0; !id.ptr && (slot = mr_map_next(&m->reloads, &i));) {
        mr_free(slot->value);
    }
    if (!id.ptr) {
        mr_map_fini(&m->reloads);
        m->reloads = (struct mr_map){0};
    }
    pthread_mutex_unlock(&m->lock);
}
