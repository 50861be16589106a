/* Names of the folders in the repositories, kept for the index: models whose load was never requested
 * are in it by name only. Read outside the lock and swapped in. Thread: any; blocks on the file
 * system. */
#include "names.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"

bool mr_repository_counts(struct mr_models *m, size_t i)
{
    struct stat st;

    /* Relaxed: a flag and a count that stand alone. */
    if (!atomic_load_explicit(&m->is_missing[i], memory_order_relaxed)) {
        return true;
    }
    /* Mode none loads at the start only, so it would never have the models. */
    if (m->o.control == MR_MODEL_CONTROL_NONE || stat(m->o.repositories[i], &st) != 0 ||
        !S_ISDIR(st.st_mode)) {
        return false;
    }
    if (atomic_exchange_explicit(&m->is_missing[i], false, memory_order_relaxed)) {
        atomic_fetch_sub_explicit(&m->missing_count, 1, memory_order_relaxed);
        mr_log(MR_LOG_INFO, "model.repository_found", "repository=%s",
               MR_LOG_STR(mr_str_c(m->o.repositories[i])));
    }
    return true;
}

void mr_repositories_get(struct mr_models *m, struct mr_repository_list *out)
{
    size_t n = 0;

    archives_get(m->archives, &out->archives);
    out->at = MR_NEW_ARRAY(struct mr_repository, m->o.repository_count + out->archives.len + 1);
    for (size_t i = 0; i < m->o.repository_count; i++) {
        if (mr_repository_counts(m, i)) {
            out->at[n++] = (struct mr_repository){m->o.repositories[i], m->o.link_dirs, NULL};
        }
    }
    for (size_t i = 0; i < out->archives.len; i++) {
        struct archive_repository *a = out->archives.at[i];
        const struct archive_repository *files = a->before ? a->before : a;
        out->at[n++] = (struct mr_repository){files->path, files->links, a};
    }
    out->len = n;
}

void mr_repositories_fini(struct mr_repository_list *list)
{
    archive_list_fini(&list->archives);
    mr_freep(&list->at);
}

static int archive_fail(const struct archive_repository *a, struct mr_err *err)
{
    return MR_FAIL(err, a->err.status, "%s", a->err.msg);
}

int mr_repository_read(struct mr_folder *f, const struct mr_models *m,
                       const struct mr_repository *r, mr_str name, mr_folder_visit_fn *visit,
                       void *ctx, struct mr_err *err)
{
    *f = (struct mr_folder){0};
    if (r->archive && r->archive->is_placed && !mr_str_eq_c(name, r->archive->stem)) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "%.300s is another model", r->archive->file);
    }
    if (!r->path) {
        return mr_str_eq_c(name, r->archive->stem)
                   ? archive_fail(r->archive, err)
                   : MR_FAIL(err, MR_E_NOT_FOUND, "%.300s has no model", r->archive->file);
    }
    const int rc = mr_folder_read(f, r->path, r->links, name, m->o.config_name, visit, ctx, err);
    f->archive = archive_repository_ref(r->archive);
    return rc == MR_OK && r->archive && r->archive->err.status < 0 ? archive_fail(r->archive, err)
                                                                   : rc;
}

bool mr_repository_is_away(const struct mr_repository *r, const struct mr_folder *f, int rc)
{
    return rc == MR_E_IO && r->path && !f->dir;
}

static int names_read(struct mr_models *m, struct mr_name_list *out, struct mr_err *err)
{
    struct mr_repository_list list;
    size_t count = 0, more_count = 0;

    mr_repositories_get(m, &list);
    const char **paths = MR_NEW_ARRAY(const char *, list.len + 1);
    const char **more = MR_NEW_ARRAY(const char *, list.len + 1);
    for (size_t i = 0; i < list.len; i++) {
        if (list.at[i].path) {
            paths[count++] = list.at[i].path;
        } else {
            more[more_count++] = list.at[i].archive->stem;
        }
    }
    const int rc = mr_names_read(paths, count, more, more_count, out, err);
    mr_free(more);
    mr_free(paths);
    mr_repositories_fini(&list);
    return rc;
}

int mr_names_refresh(struct mr_models *m, int64_t max_age_ns, struct mr_err *err)
{
    struct mr_name_list fresh = {0};
    int64_t now_ns = mr_now_ns();

    pthread_mutex_lock(&m->lock);
    bool is_recent = m->names_ns != 0 && now_ns - m->names_ns < max_age_ns;
    if (!is_recent) {
        m->names_ns = now_ns; /* other threads do not read them at the same time */
    }
    pthread_mutex_unlock(&m->lock);
    if (is_recent) {
        return MR_OK;
    }
    int rc = names_read(m, &fresh, err);
    if (rc < 0) {
        return rc;
    }
    pthread_mutex_lock(&m->lock);
    struct mr_name_list old = m->names;
    m->names = fresh;
    pthread_mutex_unlock(&m->lock);
    mr_names_fini(&old);
    return MR_OK;
}

bool mr_models_folder(struct mr_models *m, mr_str name, char **out)
{
    struct mr_repository_list list;
    char *path = NULL;
    struct stat st;

    mr_repositories_get(m, &list);
    for (size_t i = 0; i < list.len && !path; i++) {
        const struct archive_repository *archive = list.at[i].archive;
        if (list.at[i].path && !(archive && archive->is_placed) &&
            asprintf(&path, "%s/%.*s", list.at[i].path, MR_STR_ARG(name)) >= 0 &&
            (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))) {
            mr_freep(&path);
        }
    }
    mr_repositories_fini(&list);
    *out = path;
    return path != NULL;
}

#define CONFIG_BYTES_MAX ((size_t)1 << 24)

int mr_models_folder_config(struct mr_models *m, mr_str name, Inference__ModelConfig **out,
                            struct mr_err *err)
{
    struct mr_repository_list list;
    char *path = NULL;
    char *text = NULL;
    size_t len;
    int rc = MR_OK;

    mr_repositories_get(m, &list);
    for (size_t i = 0; i < list.len && !path; i++) {
        const struct mr_repository *r = &list.at[i];
        if (r->path) {
            mr_folder_config_path(&path, r->path, r->links, name, m->o.config_name, NULL);
        }
    }
    mr_repositories_fini(&list);
    if (!path) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.*s' has no config.pbtxt", MR_STR_ARG(name));
    }
    rc = mr_file_read(path, CONFIG_BYTES_MAX, &text, &len, err);
    rc = rc < 0 ? rc : mr_config_parse_text(mr_str_n(text, len), path, out, err);
    mr_free(text);
    mr_free(path);
    return rc;
}
