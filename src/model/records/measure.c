/* Growth of the process by a load or an unload: resident memory after it, less that before.
 *
 * This holds for every backend and every way of keeping parameters. There is no figure if
 * another version was made or ended at the same time. Memory that requests allocate or free during that time
 * is included. Takes the manager's lock. */
#include "measure.h"

#include <stdio.h>
#include <unistd.h>

#include "state.h"

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0;
    unsigned long long resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (!f) {
        return 0;
    }
    int n = fscanf(f, "%llu %llu", &size, &resident);
    fclose(f);
    return n == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

void mr_measure_begin(struct mr_models *m, struct mr_measure *x)
{
    pthread_mutex_lock(&m->lock);
    x->is_alone = m->measures_running++ == 0;
    x->begun = ++m->measures_begun;
    pthread_mutex_unlock(&m->lock);
    x->before = resident_bytes();
}

int64_t mr_measure_end(struct mr_models *m, const struct mr_measure *x)
{
    const uint64_t after = resident_bytes();

    pthread_mutex_lock(&m->lock);
    m->measures_running--;
    bool is_alone = x->is_alone && m->measures_begun == x->begun;
    pthread_mutex_unlock(&m->lock);
    return is_alone && x->before > 0 && after > 0 ? (int64_t)(after - x->before)
                                                  : MR_MEMORY_UNKNOWN;
}
