/* Waiting for a disk: for how long, and what is logged during the wait. */
#include "disk.h"

#include <stdio.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "committer.h"
#include "results.h"

#define FIRST_NS (MR_NS_PER_S / 10)
#define MOST_NS  (10 * MR_NS_PER_S)

static bool disk_is_at_fault(const struct mr_err *err)
{
    return err->status == MR_E_EXHAUSTED || err->status == MR_E_IO;
}

bool disk_may_begin_again(const struct mr_manifest *m, const struct mr_err *err)
{
    bool may_reopen;

    return !m || mr_manifest_is_sound(m, &may_reopen) ? disk_is_at_fault(err) : may_reopen;
}

bool disk_is_lost(const struct disk_hold *h, const struct results *rs)
{
    return h->since_ns > 0 && mr_now_ns() - h->since_ns >= rs->o->limits.outage_ns;
}

static void size_text(char out[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, 32, "%.*f %s", unit > 0, bytes, units[unit]);
}

/* ", about 3.4 GiB needed for the rows that are left", as far as that is known; returns out. */
static const char *needs_text(const struct results *rs, char *out, size_t room)
{
    const uint64_t rows = atomic_load_explicit(&rs->committer->rows, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&rs->committer->bytes, memory_order_relaxed);
    const double done = (double)(rs->before.rows + rs->before.dead + rows) +
                        (double)atomic_load_explicit(&rs->committer->dead, memory_order_relaxed);
    const double left = (double)rs->total_rows - done;
    char text[32];

    out[0] = '\0';
    if (left > 0 && rs->before.rows + rows > 0) {
        size_text(text,
                  left * (double)(rs->before.bytes + bytes) / (double)(rs->before.rows + rows));
        snprintf(out, room, ", about %s needed for the rows that are left", text);
    }
    return out;
}

void disk_fails(struct disk_hold *h, const struct results *rs, const struct mr_err *err)
{
    const int64_t now_ns = mr_now_ns();
    struct statvfs fs;
    char needs[96];
    char room[32] = "";

    if (statvfs(rs->o->folder, &fs) == 0) {
        size_text(room, (double)fs.f_bavail * (double)fs.f_frsize);
    }
    snprintf(h->reason, sizeof h->reason, "%.300s; %.160s: %s free%s", err->msg, rs->o->folder,
             room[0] ? room : "unknown room", needs_text(rs, needs, sizeof needs));
    if (h->since_ns == 0) {
        h->since_ns = now_ns;
        mr_log(MR_LOG_WARN, "batch.disk_failed", "reason=%s; the job waits, and tries again",
               MR_LOG_STR(mr_str_c(h->reason)));
    }
    h->until_ns = mr_ns_after(now_ns, MR_MIN(FIRST_NS << MR_MIN(h->tries, 7u), MOST_NS));
    h->tries++;
}

bool disk_wait(struct committer *c, const struct mr_err *err)
{
    struct disk_hold h = c->hold; /* written by this thread alone */

    /* results NULL: it has not been started */
    if (!c->results || !disk_is_at_fault(err) || c->results->o->filter) {
        return false;
    }
    disk_fails(&h, c->results, err);
    const struct timespec until = {h.until_ns / MR_NS_PER_S, h.until_ns % MR_NS_PER_S};
    int waited = 0;
    pthread_mutex_lock(&c->lock);
    c->hold = h;
    c->tries_now = false;
    while (!c->is_hurried && !c->tries_now && waited == 0) {
        waited = pthread_cond_timedwait(&c->more, &c->lock, &until);
    }
    const bool is_hurried = c->is_hurried;
    pthread_mutex_unlock(&c->lock);
    return !is_hurried && !disk_is_lost(&h, c->results);
}

bool disk_wait_fn(void *committer, const struct mr_err *err)
{
    return disk_wait(committer, err);
}

static void hold_set(struct committer *c, const struct disk_hold *h)
{
    pthread_mutex_lock(&c->lock);
    c->hold = *h;
    pthread_mutex_unlock(&c->lock);
}

void disk_goes_on(struct committer *c)
{
    struct disk_hold h = c->hold;

    if (h.reason[0]) {
        h.reason[0] = '\0';
        h.tries = 0;
        hold_set(c, &h);
    }
}

void disk_is_well(struct committer *c)
{
    if (c->hold.since_ns > 0) {
        mr_log(MR_LOG_INFO, "batch.disk_works", "waited_s=%lld",
               (long long)((mr_now_ns() - c->hold.since_ns) / MR_NS_PER_S));
        hold_set(c, &(struct disk_hold){0});
    }
}
