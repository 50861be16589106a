/* The tables of methods that are in force. The configuration's file is looked at with every sample; one that is wrong leaves what was
 * read before. Network threads read under a lock, which is held for a look-up. */
#include "live.h"

#include "base/log.h"

static bool is_file(const struct mr_mesh *m)
{
    const char *text = m->o.dataplane;

    return text && text[strspn(text, " \t\r\n")] != '{';
}

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

static bool has_changed(struct mr_mesh *m)
{
    struct stat now;
    struct stat *seen = &m->config_seen;

    if (!is_file(m) || stat(m->o.dataplane, &now) != 0) {
        return false; /* while an editor replaces it */
    }
    bool is_same = now.st_ino == seen->st_ino && now.st_size == seen->st_size &&
                   now.st_mtim.tv_sec == seen->st_mtim.tv_sec &&
                   now.st_mtim.tv_nsec == seen->st_mtim.tv_nsec;
    *seen = now;
    return !is_same;
}

int live_plane_start(struct mr_mesh *m, struct mr_err *err)
{
    if (!m->o.dataplane) {
        m->config.allows_others = true;
        return MR_OK;
    }
    has_changed(m);
    int rc = read_config(m, err);
    return rc < 0 ? MR_WRAP(err, rc, "--mesh-dataplane-config") : rc;
}

void live_plane_sample(struct mr_mesh *m)
{
    struct mr_err err;

    if (!has_changed(m)) {
        return;
    }
    if (read_config(m, &err) < 0) {
        mr_log(MR_LOG_WARN, "mesh.dataplane_config", "%s: %s; what was in force stays",
               m->o.dataplane, err.msg);
    } else {
        mr_log(MR_LOG_INFO, "mesh.dataplane_config", "%s is in force", m->o.dataplane);
    }
}

void live_plane_fini(struct mr_mesh *m)
{
    mesh_methods_fini(&m->config);
}

void mr_mesh_method(struct mr_mesh *m, mr_str path, struct mr_mesh_method *out)
{
    mr_str name = mr_str_sub(path, 1, path.len);

    *out = (struct mr_mesh_method){0};
    pthread_mutex_lock(&m->lock);
    const struct mesh_method *c = mesh_methods_find(&m->config, name);
    out->is_refused = !c && !m->config.allows_others;
    if (c) {
        out->is_listed = true;
        out->is_vmodel = c->is_vmodel;
        out->extract = c->path;
    }
    pthread_mutex_unlock(&m->lock);
}
