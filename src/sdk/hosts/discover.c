/* A list that cannot be read or looked up any more leaves its hosts as they were: calls find out which of them are gone. */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/url.h"
#include "cluster.h"
#include "net/resolve.h"

#define FILE_EVERY_NS   MR_NS_PER_S
#define LOOKUP_EVERY_NS (30 * MR_NS_PER_S)
#define LOOKUP_AGAIN_NS MR_NS_PER_S
#define FILE_BYTES_MOST ((size_t)1 << 20)

struct entry {
    struct cluster *cluster;
    size_t list;
    double share;
    char *text;
    struct mr_timer timer;
    bool is_known; /* it has given its hosts, or its error */
    /* a file, as it was when it was read */
    struct timespec mtime;
    off_t bytes;
    ino_t ino;
    /* a name */
    struct mr_lookup *lookup;
    struct mr_err err; /* of the last look-up */
    char scheme[16];
    char name[256];
    char port[8];
};

struct discover {
    struct entry *entries;
    size_t count;
};

/* ---- files: a host per line, as in the configuration; # starts a comment ---- */

static int lines_take(struct entry *e, mr_str text, struct mr_err *err)
{
    struct config lists = {0};
    const struct config_host *hosts;
    mr_str line, found[512];
    size_t count = 0, n = 0;
    int rc;

    mr_arena_init(&lists.arena, 4096, (size_t)16 << 20);
    while (mr_str_split(&text, '\n', &line)) {
        const ptrdiff_t comment = mr_str_find(line, '#');
        line = mr_str_trim(mr_str_sub(line, 0, comment < 0 ? line.len : (size_t)comment));
        if (line.len == 0) {
            continue;
        }
        if (n == sizeof found / sizeof *found) {
            MR_TRY(MR_FAIL(err, MR_E_TOO_LARGE, "%s: more than %zu hosts", e->text, n));
        }
        if (mr_str_starts(line, MR_STR("file://")) || mr_str_starts(line, MR_STR("dns://"))) {
            MR_TRY(MR_FAIL(err, MR_E_INVALID, "%s: '%.*s' is no host", e->text,
                           MR_STR_ARG(mr_str_sub(line, 0, 100))));
        }
        found[n++] = line;
    }
    MR_TRY(config_hosts_read(&lists, found, n, &hosts, &count, err));
    rc = cluster_set(e->cluster, e->list, hosts, count, NULL, err);
out:
    mr_arena_fini(&lists.arena);
    return rc;
}

static int content_take(struct entry *e, int fd, struct mr_err *err)
{
    char *text = mr_alloc(FILE_BYTES_MOST + 1);
    size_t n = 0;
    int rc;

    for (;;) {
        const ssize_t got = read(fd, text + n, FILE_BYTES_MOST + 1 - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            MR_TRY(MR_FAIL(err, MR_E_IO, "%s: %s", e->text, strerror(errno)));
        }
        if (got == 0) {
            break;
        }
        n += (size_t)got;
        if (n > FILE_BYTES_MOST) {
            MR_TRY(MR_FAIL(err, MR_E_TOO_LARGE, "%s has more than %zu bytes", e->text,
                           FILE_BYTES_MOST));
        }
    }
    rc = lines_take(e, mr_str_n(text, n), err);
out:
    mr_free(text);
    return rc;
}

static int file_read(struct entry *e, struct mr_err *err)
{
    const char *path = e->text + strlen("file://");
    struct stat s;
    int rc = MR_OK;

    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &s) < 0) {
        rc = MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", path,
                     strerror(errno));
    } else if (s.st_mtim.tv_sec != e->mtime.tv_sec || s.st_mtim.tv_nsec != e->mtime.tv_nsec ||
               s.st_size != e->bytes || s.st_ino != e->ino) {
        rc = content_take(e, fd, err);
        e->mtime = s.st_mtim;
        e->bytes = s.st_size;
        e->ino = s.st_ino;
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static void on_file_timer(struct mr_timer *t)
{
    struct entry *e = MR_CONTAINER_OF(t, struct entry, timer);
    struct mr_err err;

    if (file_read(e, &err) == MR_OK) {
        cluster_hosts_changed(e->cluster);
    }
}

/* ---- names ---- */

static void on_name_timer(struct mr_timer *t);

static void on_addresses(void *ctx, int rc, const struct mr_err *why, const char *const *addresses,
                         size_t count)
{
    struct entry *e = ctx;
    struct config_host hosts[256];
    char urls[256][300];
    const size_t n = MR_MIN(count, sizeof hosts / sizeof *hosts);

    e->lookup = NULL;
    e->is_known = true;
    e->err = rc < 0 ? *why : (struct mr_err){0};
    for (size_t i = 0; i < n; i++) {
        const int len = snprintf(urls[i], sizeof urls[i], "%s%s", e->scheme, addresses[i]);
        hosts[i] = (struct config_host){.url = mr_str_n(urls[i], (size_t)len), .share = e->share};
    }
    if (rc == MR_OK) {
        (void)cluster_set(e->cluster, e->list, hosts, n, e->name, &e->err);
    }
    cluster_hosts_changed(e->cluster);
    mr_timer_start(e->cluster->o->loop, &e->timer, rc < 0 ? LOOKUP_AGAIN_NS : LOOKUP_EVERY_NS, 0,
                   on_name_timer);
}

static void on_name_timer(struct mr_timer *t)
{
    struct entry *e = MR_CONTAINER_OF(t, struct entry, timer);

    if (mr_resolve_start(&e->lookup, e->cluster->o->loop, e->name, e->port, on_addresses, e,
                         &e->err) < 0) {
        e->is_known = true;
        cluster_hosts_changed(e->cluster);
    }
}

/* The configuration has been checked: dns://[SCHEME://]NAME:PORT. */
static void name_split(struct entry *e)
{
    const char *url = e->text + strlen("dns://");
    struct mr_url parts;
    const char *rest = mr_url_scheme(url, &parts);
    const char *colon = strrchr(rest, ':');

    snprintf(e->scheme, sizeof e->scheme, "%.*s", (int)(rest - url), url);
    snprintf(e->name, sizeof e->name, "%.*s", (int)(colon - rest), rest);
    snprintf(e->port, sizeof e->port, "%s", colon + 1);
}

/* ---- all of them ---- */

static bool is_file(const struct config_host *h)
{
    return mr_str_starts(h->url, MR_STR("file://"));
}

static bool is_name(const struct config_host *h)
{
    return mr_str_starts(h->url, MR_STR("dns://"));
}

static int entry_open(struct entry *e, struct cluster *c, size_t list, struct mr_err *err)
{
    const struct config_host *h = &c->lists[list];

    e->cluster = c;
    e->list = list + 1; /* 0: named by the configuration */
    e->share = h->share;
    e->text = mr_strndup(h->url.ptr, h->url.len);
    if (is_name(h)) {
        name_split(e);
        mr_timer_start(c->o->loop, &e->timer, 0, 0, on_name_timer);
        return MR_OK;
    }
    e->is_known = true;
    mr_timer_start(c->o->loop, &e->timer, FILE_EVERY_NS, FILE_EVERY_NS, on_file_timer);
    return file_read(e, err);
}

int discover_new(struct discover **out, struct cluster *c, struct mr_err *err)
{
    struct discover *d = MR_NEW(struct discover);
    struct config_host *fixed = MR_NEW_ARRAY(struct config_host, c->list_count + 1);
    size_t n = 0;
    int rc = MR_OK;

    d->entries = MR_NEW_ARRAY(struct entry, c->list_count + 1);
    for (size_t i = 0; i < c->list_count; i++) {
        if (!is_file(&c->lists[i]) && !is_name(&c->lists[i])) {
            fixed[n++] = c->lists[i];
            continue;
        }
        MR_TRY(entry_open(&d->entries[d->count++], c, i, err));
    }
    MR_TRY(cluster_set(c, 0, fixed, n, NULL, err));
    if (d->count > 0) {
        *out = d;
        d = NULL;
    }
out:
    mr_free(fixed);
    discover_free(&d);
    return rc;
}

void discover_free(struct discover **pd)
{
    struct discover *d = *pd;

    if (!d) {
        return;
    }
    for (size_t i = 0; i < d->count; i++) {
        mr_timer_stop(&d->entries[i].timer);
        mr_resolve_cancel(&d->entries[i].lookup);
        mr_free(d->entries[i].text);
    }
    mr_free(d->entries);
    mr_freep(pd);
}

const char *discover_error(const struct discover *d)
{
    for (size_t i = 0; d && i < d->count; i++) {
        if (d->entries[i].err.status < 0) {
            return d->entries[i].err.msg;
        }
    }
    return NULL;
}

bool discover_is_unresolved(const struct discover *d)
{
    for (size_t i = 0; d && i < d->count; i++) {
        if (!d->entries[i].is_known) {
            return true;
        }
    }
    return false;
}
