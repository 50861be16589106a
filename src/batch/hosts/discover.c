/* Where the hosts of a job come from: the command line itself, files that are read again when they change, names that are
 * looked up again and again.
 *
 * What cannot be read or looked up any more leaves the hosts as they were: the one who keeps the list may be away for a
 * while, and hosts that are gone are found out by their calls. */
#include "discover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "hosts.h"
#include "net/resolve.h"

#define FILE_EVERY_NS   MR_NS_PER_S
#define LOOKUP_EVERY_NS (30 * MR_NS_PER_S)
#define LOOKUP_AGAIN_NS (2 * MR_NS_PER_S)
#define FILE_BYTES_MOST (1 << 20)
#define PENDING_NS      (5 * MR_NS_PER_S)

struct entry {
    struct hosts *hosts;
    size_t list;
    const char *text; /* of the options */
    int64_t poll_ns;
    bool is_in_trouble; /* and that was said */
    bool is_known;      /* a name: it was looked up once */
    /* a file, as it was when it was read */
    struct timespec mtime;
    off_t bytes;
    ino_t ino;
    /* a name */
    struct mr_lookup *lookup;
    char scheme[16];
    char name[256];
    char port[8];
    char why[200]; /* it could not be looked up; "": it could, or was not yet */
};

struct discover {
    struct entry *entries;
    size_t count;
};

static void report(struct entry *e, int rc, const struct mr_err *err)
{
    if (rc < 0 && !e->is_in_trouble) {
        mr_log(MR_LOG_WARN, "batch.hosts", "%s: %s; the hosts stay as they are", e->text, err->msg);
    }
    e->is_in_trouble = rc < 0;
}

/* ---- files ---- */

static int text_read(const char *path, int fd, char *text, size_t room, struct mr_err *err)
{
    size_t n = 0;

    while (n < room) {
        const ssize_t got = read(fd, text + n, room - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return MR_FAIL(err, MR_E_IO, "%s: %s", path, strerror(errno));
        }
        if (got == 0) {
            text[n] = '\0';
            return MR_OK;
        }
        n += (size_t)got;
    }
    return MR_FAIL(err, MR_E_TOO_LARGE, "%s has more than %d bytes", path, FILE_BYTES_MOST);
}

/* One host per line; # starts a comment. Modifies the text. */
static int lines_take(struct entry *e, char *text, struct mr_err *err)
{
    MR_VEC(const char *) urls = {0};
    int rc = MR_OK;

    for (char *line = text; line;) {
        char *next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        line[strcspn(line, "#\r")] = '\0';
        line += strspn(line, " \t");
        line[strcspn(line, " \t")] = '\0';
        if (line[0] == '@' || strncmp(line, "dns:", 4) == 0) {
            rc = MR_FAIL(err, MR_E_INVALID, "%s: '%.100s' is no host", e->text + 1, line);
            goto out;
        }
        if (line[0]) {
            MR_VEC_PUSH(&urls, line);
        }
        line = next;
    }
    rc = hosts_set(e->hosts, e->list, urls.at, urls.len, NULL, err);
out:
    MR_VEC_FINI(&urls);
    return rc;
}

static int file_poll(struct entry *e, struct mr_err *err)
{
    const char *path = e->text + 1;
    struct stat s;
    int rc = MR_OK;

    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &s) < 0) {
        rc = MR_FAIL(err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%s: %s", path,
                     strerror(errno));
    } else if (s.st_mtim.tv_sec != e->mtime.tv_sec || s.st_mtim.tv_nsec != e->mtime.tv_nsec ||
               s.st_size != e->bytes || s.st_ino != e->ino) {
        char *text = mr_alloc(FILE_BYTES_MOST + 1);
        rc = text_read(path, fd, text, FILE_BYTES_MOST, err);
        rc = rc < 0 ? rc : lines_take(e, text, err);
        mr_free(text);
        e->mtime = s.st_mtim;
        e->bytes = s.st_size;
        e->ino = s.st_ino;
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* ---- names ---- */

static void on_addresses(void *ctx, int rc, const struct mr_err *cause,
                         const char *const *addresses, size_t count)
{
    struct entry *e = ctx;
    struct mr_err err = *cause;
    MR_VEC(char *) urls = {0};

    e->lookup = NULL;
    e->is_known = e->is_known || rc == MR_OK;
    snprintf(e->why, sizeof e->why, "%.*s", (int)sizeof e->why - 1, rc < 0 ? cause->msg : "");
    e->poll_ns = mr_ns_after(mr_now_ns(), rc < 0 ? LOOKUP_AGAIN_NS : LOOKUP_EVERY_NS);
    for (size_t i = 0; i < count; i++) {
        char url[360];
        const int n = snprintf(url, sizeof url, "%s%s", e->scheme, addresses[i]);
        MR_VEC_PUSH(&urls, mr_strndup(url, (size_t)n));
    }
    if (rc == MR_OK) {
        rc = hosts_set(e->hosts, e->list, (const char *const *)urls.at, urls.len, e->name, &err);
    }
    report(e, rc, &err);
    for (size_t i = 0; i < urls.len; i++) {
        mr_free(urls.at[i]);
    }
    MR_VEC_FINI(&urls);
}

/* [SCHEME://]NAME[:PORT] */
static int name_parse(struct entry *e, struct mr_err *err)
{
    const char *url = e->text + strlen("dns:");
    enum mr_batch_protocol protocol;
    const char *rest;
    bool is_tls;
    int rc;

    MR_TRY(transport_parse(url, e->hosts->o, &protocol, &is_tls, &rest, err));
    const size_t name = strcspn(rest, ":/");
    const bool has_port = rest[name] == ':' && rest[name + 1];
    if (name == 0 || name >= sizeof e->name || (rest[name] && !has_port) ||
        strlen(rest + name) > sizeof e->port) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "'%.100s' is not dns:NAME:PORT", e->text));
    }
    snprintf(e->scheme, sizeof e->scheme, "%.*s", (int)(rest - url), url);
    snprintf(e->name, sizeof e->name, "%.*s", (int)name, rest);
    if (has_port) {
        snprintf(e->port, sizeof e->port, "%s", rest + name + 1);
    } else {
        snprintf(e->port, sizeof e->port, "%d",
                 transport_default_port(e->hosts->o, protocol, is_tls));
    }
out:
    return rc;
}

/* ---- all of them ---- */

static int list_poll(struct entry *e, int64_t now_ns, struct mr_err *err)
{
    if (e->text[0] == '@') {
        e->poll_ns = mr_ns_after(now_ns, FILE_EVERY_NS);
        return file_poll(e, err);
    }
    e->poll_ns = INT64_MAX; /* until there is an answer */
    return mr_resolve_start(&e->lookup, e->hosts->state->loop, e->name, e->port, on_addresses, e,
                            err);
}

void discover_tick(struct hosts *hs, int64_t now_ns)
{
    struct discover *d = hs->discover;
    struct mr_err err = {0};

    for (size_t i = 0; i < d->count; i++) {
        struct entry *e = &d->entries[i];
        if (now_ns >= e->poll_ns) {
            report(e, list_poll(e, now_ns, &err), &err);
        }
    }
}

int discover_start(struct hosts *hs, struct mr_err *err)
{
    const struct mr_batch_options *o = hs->o;
    struct discover *d = MR_NEW(struct discover);
    MR_VEC(const char *) fixed = {0};
    int rc = MR_OK;

    hs->discover = d;
    d->entries = MR_NEW_ARRAY(struct entry, o->hosts.count + 1);
    for (size_t i = 0; i < o->hosts.count; i++) {
        struct entry *e = &d->entries[d->count];
        const bool is_name = strncmp(o->hosts.list[i], "dns:", 4) == 0;
        if (!is_name && o->hosts.list[i][0] != '@') {
            MR_VEC_PUSH(&fixed, o->hosts.list[i]);
            continue;
        }
        *e = (struct entry){.hosts = hs, .list = ++d->count, .text = o->hosts.list[i]};
        if (is_name) {
            MR_TRY(name_parse(e, err));
        }
        MR_TRY(list_poll(e, hs->state->begin_ns, err));
    }
    MR_TRY(hosts_set(hs, 0, fixed.at, fixed.len, NULL, err));
out:
    MR_VEC_FINI(&fixed);
    return rc;
}

bool discover_is_pending(const struct hosts *hs, int64_t now_ns)
{
    for (size_t i = 0; now_ns - hs->state->begin_ns < PENDING_NS && i < hs->discover->count; i++) {
        if (hs->discover->entries[i].name[0] && !hs->discover->entries[i].is_known) {
            return true;
        }
    }
    return false;
}

bool discover_may_report(const struct hosts *hs, struct mr_buf *why)
{
    for (size_t i = 0; i < hs->discover->count; i++) {
        const struct entry *e = &hs->discover->entries[i];
        if (e->name[0] && !e->is_known && !e->why[0]) {
            return true;
        }
        if (e->name[0] && !e->is_known) {
            mr_buf_printf(why, "%s%s", why->len ? "; " : "", e->why);
        }
    }
    return false;
}

void discover_stop(struct hosts *hs)
{
    for (size_t i = 0; hs->discover && i < hs->discover->count; i++) {
        mr_resolve_cancel(&hs->discover->entries[i].lookup);
    }
    if (hs->discover) {
        mr_free(hs->discover->entries);
    }
    mr_freep(&hs->discover);
}
