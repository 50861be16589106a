/* Poll mode: finds models and versions that have come, changed or gone, and waits until they are at
 * rest.
 *
 * Scans decide; inotify only says which folder to scan sooner. A scan takes the fingerprints of a
 * model's folder (folder.h): one for each version, one for the rest. A fingerprint is at rest when two
 * scans, settle_ns apart or more, have found the same one, or when no file of it was touched for that
 * long; so a version that is being copied is loaded once, when it is complete. Versions at rest go to
 * a loader as a job; others are left out of it and scanned again. Folders are scanned
 * every poll_ns whatever inotify says: it reports no change that another machine makes on a network
 * disk, and its watches can run out. Only a model of which every folder has a watch and lies on a
 * file system known to be this machine's own is scanned each twentieth time: ten thousand models
 * at rest would otherwise cost a few percent of a CPU for ever.
 *
 * Everything here belongs to the watching thread (before it runs: to the one that starts the
 * manager). */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "jobs.h"
#include "model/records/job.h"
#include "model/records/names.h"

#define EVENTS                                                                                     \
    (IN_CREATE | IN_DELETE | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB |            \
     IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

/* From an event to the scan: one change is seldom alone. */
#define AFTER_EVENT_NS (100 * MR_NS_PER_MS)
/* One of this many scans includes the models of which inotify reports every change. */
#define SCANS_ROUND 20

/* A fingerprint as it was seen, and since when. */
struct seen {
    int64_t number; /* of the version */
    uint64_t sum;
    uint64_t beside;
    int64_t since_ns;
    bool is_settled;
};

typedef MR_VEC(struct seen) seen_vec;

/* One model. */
struct entry {
    char *name;
    struct seen shared;
    seen_vec versions;  /* ascending */
    uint64_t place;     /* in which repositories it is, in one number */
    uint64_t submitted; /* what the last job was made from, 0 = none was */
    int64_t scan_ns;    /* when to scan next, 0 = with all others */
    bool exists;
    bool is_reported; /* inotify reports every change */
};

struct mr_model_watch {
    struct mr_models *m;
    pthread_t thread;
    bool has_thread;
    int inotify; /* -1 = none */
    int wake;    /* eventfd: stop */
    bool is_full_warned;
    int64_t all_ns;        /* when to scan all entries */
    unsigned scans_left;   /* until a scan includes those with is_reported */
    bool is_restless;      /* archives were left for a later scan */
    struct mr_map entries; /* name -> struct entry */
    struct mr_map watched; /* watch descriptor -> struct entry, or `roots` */
    struct entry roots;    /* stands for the repositories themselves */
};

/* ---- inotify ---- */

static mr_str key_of(const int *wd)
{
    return mr_str_n((const char *)wd, sizeof *wd);
}

/* Only this machine's kernel changes what is on it, so inotify sees every change. */
static bool is_local(const char *dir)
{
    static const uint32_t kinds[] = {0xEF53 /* ext2 to 4 */,
                                     0x58465342 /* XFS */,
                                     0x9123683E /* btrfs */,
                                     0xF2F52010 /* F2FS */,
                                     0x2FC12FC1 /* ZFS */,
                                     0x01021994 /* tmpfs */,
                                     0x794C7630 /* overlayfs */};
    struct statfs st;

    if (statfs(dir, &st) != 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if ((uint32_t)st.f_type == kinds[i]) {
            return true;
        }
    }
    return false;
}

static void watch_add(struct mr_model_watch *w, const char *dir, struct entry *e)
{
    int wd = -1;

    if (w->inotify >= 0) {
        wd = inotify_add_watch(w->inotify, dir, EVENTS);
    }
    e->is_reported &= wd >= 0 && is_local(dir);
    if (wd >= 0) {
        if (e == &w->roots && !mr_map_find(&w->watched, key_of(&wd))) {
            w->scans_left = 0; /* another folder by the name of the repository */
        }
        mr_map_put(&w->watched, key_of(&wd), e);
    } else if (w->inotify < 0) {
        return;
    } else if (errno == ENOSPC && !w->is_full_warned) {
        w->is_full_warned = true;
        mr_log(
            MR_LOG_WARN, "model.watch_limit",
            "fs.inotify.max_user_watches is used up; further changes are found by the scan every "
            "%lld s",
            (long long)(w->m->o.poll_ns / MR_NS_PER_S));
    }
}

struct visiting {
    struct mr_model_watch *w;
    struct entry *e;
};

static void dir_visit(void *ctx, const char *dir)
{
    const struct visiting *v = ctx;

    watch_add(v->w, dir, v->e);
}

/* The entry goes away: so do its watches. */
static void watches_drop(struct mr_model_watch *w, const struct entry *e)
{
    MR_VEC(int) gone = {0};
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&w->watched, &i));) {
        if (slot->value == e) {
            int wd;
            memcpy(&wd, slot->key.ptr, sizeof wd);
            MR_VEC_PUSH(&gone, wd);
        }
    }
    for (size_t i = 0; i < gone.len; i++) {
        inotify_rm_watch(w->inotify, gone.at[i]);
        mr_map_remove(&w->watched, key_of(&gone.at[i]));
    }
    MR_VEC_FINI(&gone);
}

static void event_take(struct mr_model_watch *w, const struct inotify_event *event, int64_t now_ns)
{
    if (event->mask & IN_Q_OVERFLOW) {
        w->all_ns = now_ns;
        w->scans_left = 0;
        return;
    }
    struct entry *e = mr_map_find(&w->watched, key_of(&event->wd));
    if (!e) {
        return;
    }
    if (event->mask & IN_IGNORED) {
        mr_map_remove(&w->watched, key_of(&event->wd));
    }
    if (e == &w->roots) {
        w->scans_left = 0;
        w->all_ns = MR_MIN(w->all_ns, now_ns + AFTER_EVENT_NS);
    } else if (e->scan_ns == 0) {
        e->scan_ns = now_ns + AFTER_EVENT_NS;
    }
}

static void events_read(struct mr_model_watch *w)
{
    _Alignas(struct inotify_event) char buf[16384];
    int64_t now_ns = mr_now_ns();
    ssize_t n;

    while ((n = read(w->inotify, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n;) {
            const struct inotify_event *event = (const struct inotify_event *)(buf + i);
            event_take(w, event, now_ns);
            i += (ssize_t)(sizeof *event + event->len);
        }
    }
}

/* ---- scans ---- */

/* When a scan began. What it has read is as old or younger, however long the scan takes: rest is
 * counted from the end of one scan to the start of another. */
struct scan_begin {
    int64_t ns;
    int64_t wall_ns;
};

static void seen_update(const struct mr_model_watch *w, struct seen *s,
                        const struct mr_fingerprint *fingerprint, const struct scan_begin *begin)
{
    int64_t settle_ns = w->m->o.settle_ns;

    if (s->since_ns == 0 || s->sum != fingerprint->sum || s->beside != fingerprint->beside) {
        s->sum = fingerprint->sum;
        s->beside = fingerprint->beside;
        s->since_ns = mr_now_ns();
    }
    int64_t untouched_ns = begin->wall_ns - fingerprint->newest_wall_ns;
    s->is_settled = begin->ns - s->since_ns >= settle_ns || untouched_ns >= settle_ns;
}

/* Since when each version has been as it is now. */
static void versions_update(const struct mr_model_watch *w, struct entry *e,
                            const struct mr_folder *f, const struct scan_begin *begin)
{
    seen_vec now = {0};

    for (size_t i = 0, k = 0; i < f->versions.len; i++) {
        const struct mr_folder_version *fv = &f->versions.at[i];
        struct seen s = {.number = fv->number};
        while (k < e->versions.len && e->versions.at[k].number < fv->number) {
            k++;
        }
        if (k < e->versions.len && e->versions.at[k].number == fv->number) {
            s = e->versions.at[k];
        }
        seen_update(w, &s, &fv->fingerprint, begin);
        MR_VEC_PUSH(&now, s);
    }
    MR_VEC_FINI(&e->versions);
    e->versions = now;
}

/* True if the scan read everything in the folder, and nothing in it lies elsewhere. */
static bool is_all_watched(const struct mr_folder *f)
{
    bool is_all = f->shared.links == 0;

    for (size_t i = 0; i < f->versions.len; i++) {
        is_all &= f->versions.at[i].fingerprint.links == 0 && f->versions.at[i].err.status == MR_OK;
    }
    return is_all;
}

static uint64_t place_of(const struct mr_repository *r)
{
    return mr_hash(mr_str_c(r->path ? r->path : r->archive->file));
}

/* Reads the model's folder in every repository. A model in two of them has a sum of its own, so that a
 * loader reads it and reports the error. A repository that is away counts only if no other one has the model, which stays then. */
static void entry_scan(struct mr_model_watch *w, struct entry *e)
{
    struct mr_repository_list list;
    struct visiting visiting = {w, e};
    struct mr_fingerprint shared = {0};
    struct scan_begin begin = {mr_now_ns(), mr_wall_ns()};
    uint64_t away = 0;
    bool is_settled = true;

    e->exists = false;
    e->is_reported = true;
    e->place = 0;
    mr_repositories_get(w->m, &list);
    for (size_t i = 0; i < list.len; i++) {
        struct mr_folder f;
        struct mr_err why = {0};
        int rc = mr_repository_read(&f, w->m, &list.at[i], mr_str_c(e->name), dir_visit, &visiting,
                                    &why);
        if (mr_repository_is_away(&list.at[i], &f, rc)) {
            away += mr_hash(mr_str_c(why.msg));
            rc = MR_E_NOT_FOUND;
            e->is_reported = false;
        }
        if (rc != MR_E_NOT_FOUND) {
            shared.sum += f.shared.sum + (rc < 0 ? mr_hash(mr_str_c(why.msg)) : 0);
            e->place = e->place * 31 + place_of(&list.at[i]);
            shared.newest_wall_ns = MR_MAX(shared.newest_wall_ns, f.shared.newest_wall_ns);
        }
        e->is_reported &= rc == MR_E_NOT_FOUND || (rc == MR_OK && is_all_watched(&f));
        if (rc == MR_OK && !e->exists) {
            versions_update(w, e, &f, &begin);
        }
        e->exists |= rc != MR_E_NOT_FOUND;
        mr_folder_fini(&f);
    }
    mr_repositories_fini(&list);
    if (!e->exists && away != 0) {
        e->exists = true;
        shared.sum = away;
    }
    seen_update(w, &e->shared, &shared, &begin);
    is_settled &= e->shared.is_settled;
    for (size_t i = 0; i < e->versions.len; i++) {
        is_settled &= e->versions.at[i].is_settled;
    }
    e->scan_ns =
        is_settled || !e->exists ? 0 : mr_now_ns() + MR_MAX(w->m->o.settle_ns, MR_NS_PER_MS);
}

/* ---- telling the loaders ---- */

/* What is at rest, in one number; never 0. */
static uint64_t settled_print(const struct entry *e)
{
    uint64_t sum = e->shared.sum + e->place;

    for (size_t i = 0; i < e->versions.len; i++) {
        if (e->versions.at[i].is_settled) {
            const struct seen *s = &e->versions.at[i];
            uint64_t parts[2] = {(uint64_t)s->number, s->sum + s->beside};
            sum += mr_hash(mr_str_n((const char *)parts, sizeof parts));
        }
    }
    return sum | 1;
}

static struct mr_job *entry_job(const struct entry *e, mr_models_done_fn *done, void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_SYNC, done, ctx);

    job->settled_shared = e->shared.sum;
    job->settled = MR_NEW_ARRAY(struct mr_settled_version, e->versions.len + 1);
    for (size_t i = 0; i < e->versions.len; i++) {
        const struct seen *s = &e->versions.at[i];
        if (s->is_settled) {
            job->settled[job->settled_count++] = (struct mr_settled_version){s->number, s->sum};
        }
    }
    return job;
}

static void entry_free(struct mr_model_watch *w, struct entry *e)
{
    watches_drop(w, e);
    mr_map_remove(&w->entries, mr_str_c(e->name));
    MR_VEC_FINI(&e->versions);
    mr_free(e->name);
    mr_free(e);
}

/* A job if something at rest is not what the last job saw. The entry may be gone afterwards. */
static bool entry_submit(struct mr_model_watch *w, struct entry *e, mr_models_done_fn *done,
                         void *ctx)
{
    bool any = false;

    if (!e->exists) {
        if (e->submitted != 0) {
            mr_job_submit(w->m, entry_job(e, done, ctx), mr_str_c(e->name));
            any = true;
        }
        entry_free(w, e);
        return any;
    }
    if (e->shared.is_settled && settled_print(e) != e->submitted) {
        e->submitted = settled_print(e);
        mr_job_submit(w->m, entry_job(e, done, ctx), mr_str_c(e->name));
        any = true;
    }
    return any;
}

/* ---- all of them ---- */

static void entry_add(struct mr_model_watch *w, const char *name)
{
    if (!mr_map_find(&w->entries, mr_str_c(name))) {
        struct entry *e = MR_NEW(struct entry);
        e->name = mr_strndup(name, strlen(name));
        mr_map_put(&w->entries, mr_str_c(name), e);
    }
}

/* Entries for names that are new. Fails when a repository cannot be read now. */
static int names_take(struct mr_model_watch *w, struct mr_err *err)
{
    struct mr_models *m = w->m;

    if (archives_refresh(m->archives, m->o.settle_ns, &w->is_restless)) {
        w->scans_left = 0; /* models have come, changed or gone */
    }
    int rc = mr_names_refresh(m, 0, err);

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < m->o.repository_count; i++) {
        watch_add(w, m->o.repositories[i], &w->roots);
    }
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < m->names.len; i++) {
        entry_add(w, m->names.at[i].name);
    }
    pthread_mutex_unlock(&m->lock);
    return MR_OK;
}

typedef MR_VEC(struct entry *) entry_vec;

/* Entries to scan now; a scan may remove one from the map. */
enum scan { SCAN_DUE, SCAN_UNREPORTED, SCAN_ALL };

static entry_vec entries_due(const struct mr_model_watch *w, enum scan scan, int64_t now_ns)
{
    entry_vec due = {0};
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&w->entries, &i));) {
        struct entry *e = slot->value;
        if (scan == SCAN_ALL || (scan == SCAN_UNREPORTED && !e->is_reported) ||
            (e->scan_ns != 0 && e->scan_ns <= now_ns)) {
            MR_VEC_PUSH(&due, e);
        }
    }
    return due;
}

static void entries_scan(struct mr_model_watch *w, enum scan scan)
{
    int64_t now_ns = mr_now_ns();
    entry_vec due = entries_due(w, scan, now_ns);

    for (size_t i = 0; i < due.len; i++) {
        entry_scan(w, due.at[i]);
        entry_submit(w, due.at[i], NULL, NULL);
    }
    MR_VEC_FINI(&due);
}

static int wait_ms(const struct mr_model_watch *w)
{
    int64_t next_ns = w->all_ns;
    int64_t now_ns = mr_now_ns();
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&w->entries, &i));) {
        const struct entry *e = slot->value;
        if (e->scan_ns != 0) {
            next_ns = MR_MIN(next_ns, e->scan_ns);
        }
    }
    int64_t left_ms = (next_ns - now_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS;
    return (int)MR_MAX(MR_MIN(left_ms, 60000), 0);
}

static int64_t next_scan(const struct mr_model_watch *w)
{
    return mr_now_ns() +
           (w->is_restless ? MR_MAX(w->m->o.settle_ns, MR_NS_PER_MS) : w->m->o.poll_ns);
}

/* Time for a scan; of what? */
static enum scan scan_begin(struct mr_model_watch *w)
{
    struct mr_err err;
    const int rc = names_take(w, &err);

    w->all_ns = next_scan(w);
    if (rc < 0) {
        mr_log(MR_LOG_WARN, "model.repository", "%s", err.msg);
        return SCAN_DUE;
    }
    if (w->scans_left-- > 0) {
        return SCAN_UNREPORTED;
    }
    w->scans_left = SCANS_ROUND - 1;
    return SCAN_ALL;
}

static void *watch_main(void *arg)
{
    struct mr_model_watch *w = arg;
    struct pollfd fds[2] = {{.fd = w->wake, .events = POLLIN},
                            {.fd = w->inotify, .events = POLLIN}};

    for (;;) {
        int n = poll(fds, 2, wait_ms(w));
        if (n > 0 && fds[0].revents) {
            break;
        }
        if (n > 0 && fds[1].revents) {
            events_read(w);
        }
        enum scan scan = SCAN_DUE;
        if (mr_now_ns() >= w->all_ns) {
            scan = scan_begin(w);
        }
        entries_scan(w, scan);
    }
    return NULL;
}

/* ---- start and stop ---- */

static struct mr_model_watch *watch_new(struct mr_models *m)
{
    struct mr_model_watch *w = MR_NEW(struct mr_model_watch);

    w->m = m;
    w->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return w;
}

static void rest(const struct mr_model_watch *w)
{
    int64_t pause_ns = w->m->o.settle_ns;
    struct timespec ts = {pause_ns / MR_NS_PER_S, pause_ns % MR_NS_PER_S};

    nanosleep(&ts, NULL);
}

/* Waits for what is not at rest, once: a model that is being copied now may come later. */
static void rest_wait(struct mr_model_watch *w)
{
    entry_vec unrest = entries_due(w, SCAN_DUE, INT64_MAX);

    if (unrest.len > 0) {
        rest(w);
    }
    for (size_t i = 0; i < unrest.len; i++) {
        entry_scan(w, unrest.at[i]);
    }
    MR_VEC_FINI(&unrest);
}

int mr_watch_first(struct mr_models *m, mr_models_done_fn *done, void *ctx, struct mr_err *err)
{
    struct mr_model_watch *w = watch_new(m);

    m->watch = w;
    int rc = names_take(w, err);
    if (rc == MR_OK && w->is_restless) {
        rest(w);
        rc = names_take(w, err);
    }
    if (rc < 0) {
        return rc;
    }
    entry_vec all = entries_due(w, SCAN_ALL, 0);
    for (size_t i = 0; i < all.len; i++) {
        entry_scan(w, all.at[i]);
    }
    rest_wait(w);
    for (size_t i = 0; i < all.len; i++) {
        entry_submit(w, all.at[i], done, ctx);
    }
    MR_VEC_FINI(&all);
    w->all_ns = next_scan(w);
    w->scans_left = SCANS_ROUND - 1;
    return MR_OK;
}

int mr_watch_start(struct mr_models *m, struct mr_err *err)
{
    if (m->watch->wake < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot watch the repositories: no descriptors are left");
    }
    int rc = mr_thread_start(&m->watch->thread, "mr-watch", watch_main, m->watch, err);

    m->watch->has_thread = rc == MR_OK;
    return rc;
}

void mr_watch_stop(struct mr_models *m)
{
    struct mr_model_watch *w = m->watch;
    struct mr_map_slot *slot;

    m->watch = NULL;
    if (!w) {
        return;
    }
    if (w->has_thread) {
        uint64_t one = 1;
        while (write(w->wake, &one, sizeof one) < 0 && errno == EINTR) {
        }
        pthread_join(w->thread, NULL);
    }
    for (size_t i = 0; (slot = mr_map_next(&w->entries, &i));) {
        struct entry *e = slot->value;
        MR_VEC_FINI(&e->versions);
        mr_free(e->name);
        mr_free(e);
    }
    mr_map_fini(&w->entries);
    mr_map_fini(&w->watched);
    if (w->inotify >= 0) {
        close(w->inotify);
    }
    if (w->wake >= 0) {
        close(w->wake);
    }
    mr_free(w);
}
