/* Names of the folders in the repositories, kept for the index: models whose load was never requested
 * are in it by name only. Read outside the lock and swapped in. Thread: any; blocks on the file
 * system. */
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "manager.h"

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
    const char **there = MR_NEW_ARRAY(const char *, m->o.repository_count + 1);
    size_t count = 0;
    for (size_t i = 0; i < m->o.repository_count; i++) {
        if (mr_repository_counts(m, i)) {
            there[count++] = m->o.repositories[i];
        }
    }
    int rc = mr_names_read(there, count, &fresh, err);
    mr_free(there);
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
