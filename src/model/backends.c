/* Backend libraries: each is opened at its first use and stays open until the manager is freed.
 *
 * Opening one may take a second (it maps a run-time and starts its threads), so it happens outside
 * the lock; who wants the same one meanwhile waits for that, others go on. A library that failed to
 * open is tried again at the next load. Thread: loaders; may block. */
#include "manager.h"

static struct mr_model_backend **backend_find(struct mr_models *m, const char *name)
{
    struct mr_model_backend **at = &m->backends;

    while (*at && strcmp((*at)->name, name) != 0) {
        at = &(*at)->next;
    }
    return at;
}

static int backend_open(struct mr_models *m, const char *name, struct mr_plugin **out,
                        struct mr_err *err)
{
    const struct mr_models_options *o = &m->o;
    const struct mr_setting *settings = NULL;
    size_t setting_count = 0;

    for (size_t i = 0; i < o->backend_setting_name_count; i++) {
        if (strcmp(o->backend_setting_names[i], name) == 0) {
            settings = o->backend_settings[i];
            setting_count = o->backend_setting_counts[i];
        }
    }
    return mr_plugin_open(out, mr_str_c(name), o->backend_dirs, o->backend_dir_count, settings,
                          setting_count, err);
}

int mr_backend_get(struct mr_models *m, const char *name, struct mr_plugin **out,
                   struct mr_err *err)
{
    struct mr_plugin *plugin = NULL;

    pthread_mutex_lock(&m->backends_lock);
    struct mr_model_backend *b = *backend_find(m, name);
    while (b && !b->plugin) {
        pthread_cond_wait(&m->backend_opened, &m->backends_lock);
        b = *backend_find(m, name); /* gone if it failed */
    }
    if (b) {
        *out = b->plugin;
        pthread_mutex_unlock(&m->backends_lock);
        return MR_OK;
    }
    b = MR_NEW(struct mr_model_backend);
    b->name = mr_strndup(name, strlen(name));
    b->next = m->backends;
    m->backends = b;
    pthread_mutex_unlock(&m->backends_lock);

    int rc = backend_open(m, name, &plugin, err);

    pthread_mutex_lock(&m->backends_lock);
    if (rc == MR_OK) {
        b->plugin = plugin;
        *out = plugin;
    } else {
        *backend_find(m, name) = b->next;
        mr_free(b->name);
        mr_free(b);
    }
    pthread_cond_broadcast(&m->backend_opened);
    pthread_mutex_unlock(&m->backends_lock);
    return rc;
}

void mr_backends_close(struct mr_models *m)
{
    while (m->backends) {
        struct mr_model_backend *b = m->backends;
        m->backends = b->next;
        mr_plugin_close(&b->plugin);
        mr_free(b->name);
        mr_free(b);
    }
}
