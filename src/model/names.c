/* Names of the folders in the repositories, kept for the index: models that nobody asked to load
 * are in it by name only. Read outside the lock and swapped in. Thread: any; blocks on the file
 * system. */
#include "base/clock.h"
#include "manager.h"

int mr_names_refresh(struct mr_models *m, int64_t max_age_ns, struct mr_err *err)
{
    struct mr_name_list fresh = {0};
    int64_t now_ns = mr_now_ns();

    pthread_mutex_lock(&m->lock);
    bool is_recent = m->names_ns != 0 && now_ns - m->names_ns < max_age_ns;
    if (!is_recent) {
        m->names_ns = now_ns; /* others need not do the same meanwhile */
    }
    pthread_mutex_unlock(&m->lock);
    if (is_recent) {
        return MR_OK;
    }
    int rc = mr_names_read(m->o.repositories, m->o.repository_count, &fresh, err);
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
