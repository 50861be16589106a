/* A download goes to a file without a name in the cache, is checked, and unpacked from there.
 *
 * Over HTTP it comes in ranges, so that no more than one of them is in memory, on a loop that this thread runs; a server
 * that knows no ranges gives all at once, up to a gibibyte. */
#include "fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "net/client.h"
#include "net/loop.h"
#include "net/tls.h"
#include "s3/s3.h"

#define RANGE_BYTES   (UINT64_C(16) << 20)
#define WHOLE_BYTES   (INT64_C(1) << 30)
#define REDIRECTS_MAX 5
#define ATTEMPTS      3
#define CALL_NS       (120 * MR_NS_PER_S)
#define PATIENCE_NS   (20 * MR_NS_PER_S)
#define AWAY_NS       (30 * MR_NS_PER_S)
#define STOP_CHECK_NS (200 * MR_NS_PER_MS)
#define READ_BYTES    (1u << 20)
#define KIND          "archive" /* as mr_cache_archive: the same content is the same folder */

struct fetcher {
    struct mr_cache *cache;
    uint64_t max_bytes;
    const _Atomic bool *is_stopping, *is_unwanted; /* the latter may be NULL */
    struct mr_s3 *s3;                              /* made when it is first needed */
    /* The last bucket that did not answer, and why; it is not asked until away_ns. */
    char away[64];
    int64_t away_ns;
    struct mr_err away_err;
};

/* One archive. */
struct job {
    struct fetcher *f;
    const struct archive_url *url;
    struct mr_s3_object object; /* of S3 */
    int fd;
    uint64_t bytes; /* that have been written */
};

static bool is_stopping(const struct fetcher *f)
{
    /* Relaxed: flags that stand alone. */
    return atomic_load_explicit(f->is_stopping, memory_order_relaxed) ||
           (f->is_unwanted && atomic_load_explicit(f->is_unwanted, memory_order_relaxed));
}

static int job_write(struct job *j, const void *data, size_t len, struct mr_err *err)
{
    const uint64_t most = j->f->max_bytes;
    const uint8_t *at = data;

    if (most > 0 && j->bytes + len > most) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "has more than %llu bytes (--archive-cache-size)",
                       (unsigned long long)most);
    }
    while (len > 0) {
        const ssize_t n = pwrite(j->fd, at, len, (off_t)j->bytes);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return MR_FAIL(err, MR_E_IO, "cannot be written into the cache: %s", strerror(errno));
        }
        at += n;
        len -= (size_t)n;
        j->bytes += (uint64_t)n;
    }
    return MR_OK;
}

/* ---- HTTP ---- */

struct answer {
    struct job *job;
    struct mr_loop *loop;
    struct mr_client_call *call;
    struct mr_timer timer;
    int rc;
    int status;
    uint64_t total; /* of the archive; UINT64_MAX: unknown */
    char location[ARCHIVE_URL_MAX];
    struct mr_err err;
};

/* "bytes 0-99/1000" of what has been asked for, with as many bytes. */
static int range_read(struct answer *a, mr_str text, uint64_t len)
{
    unsigned long long first = 0, last = 0, total = 0;
    char copy[96] = "";

    memcpy(copy, text.ptr ? text.ptr : "", MR_MIN(text.len, sizeof copy - 1));
    if (sscanf(copy, "bytes %llu-%llu/%llu", &first, &last, &total) != 3 ||
        first != a->job->bytes || last < first || last >= total || len != last - first + 1) {
        return MR_FAIL(&a->err, MR_E_INVALID,
                       "the server answers with the range '%.80s' and %llu bytes", copy,
                       (unsigned long long)len);
    }
    a->total = total;
    return MR_OK;
}

/* What was there before is of another answer. */
static int job_restart(struct job *j, struct mr_err *err)
{
    j->bytes = 0;
    return ftruncate(j->fd, 0) == 0
               ? MR_OK
               : MR_FAIL(err, MR_E_IO, "cannot be written into the cache: %s", strerror(errno));
}

static int body_take(struct answer *a, const struct mr_client_response *r)
{
    int rc = MR_OK;

    if (r->status == 206) {
        MR_TRY(range_read(a, mr_header_find(r->headers, r->header_count, MR_STR("content-range")),
                          r->body.len));
    } else {
        MR_TRY(job_restart(a->job, &a->err)); /* all of it */
        a->total = r->body.len;
    }
    rc = job_write(a->job, r->body.ptr, r->body.len, &a->err);
out:
    return rc;
}

static bool is_redirection(int status)
{
    return (status >= 301 && status <= 303) || status == 307 || status == 308;
}

static void on_done(void *ctx, int rc, const struct mr_err *err, const struct mr_client_response *r)
{
    struct answer *a = ctx;

    a->call = NULL;
    a->rc = rc;
    a->err = rc < 0 ? *err : (struct mr_err){0};
    a->total = UINT64_MAX;
    a->location[0] = '\0';
    if (rc == MR_OK) {
        const mr_str given = mr_header_find(r->headers, r->header_count, MR_STR("location"));
        const mr_str location = is_redirection(r->status) && given.ptr ? given : MR_STR("");
        a->status = r->status;
        memcpy(a->location, location.ptr, MR_MIN(location.len, sizeof a->location - 1));
        a->location[MR_MIN(location.len, sizeof a->location - 1)] = '\0';
        if (r->status == 200 || r->status == 206) {
            a->rc = body_take(a, r);
        }
    }
    mr_timer_stop(&a->timer);
    mr_loop_stop(a->loop);
}

static void on_timer(struct mr_timer *t)
{
    struct answer *a = MR_CONTAINER_OF(t, struct answer, timer);

    if (a->call && is_stopping(a->job->f)) {
        mr_client_cancel(a->call);
    }
}

/* A range of the archive, or what the server gives in its place. */
static int range_get(struct answer *a, struct mr_client *client, const struct archive_url *u)
{
    char range[64];
    const int n =
        snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)a->job->bytes,
                 (unsigned long long)(a->job->bytes + RANGE_BYTES - 1));
    const struct mr_header headers[] = {{MR_STR("range"), mr_str_n(range, (size_t)n)},
                                        {MR_STR("accept"), MR_STR("*/*")},
                                        {MR_STR("accept-encoding"), MR_STR("identity")}};
    const struct mr_client_request request = {.method = "GET",
                                              .path = mr_str_c(u->target),
                                              .headers = headers,
                                              .header_count = 3,
                                              .timeout_ns = CALL_NS};

    a->call = mr_client_send(client, &request, on_done, a);
    mr_timer_start(a->loop, &a->timer, STOP_CHECK_NS, STOP_CHECK_NS, on_timer);
    mr_loop_run(a->loop);
    return a->rc;
}

static int status_judge(const struct answer *a, struct mr_err *err)
{
    const int s = a->status;
    const int status = s == 404 || s == 410   ? MR_E_NOT_FOUND
                       : s == 401 || s == 403 ? MR_E_FORBIDDEN
                       : s == 429 || s >= 500 ? MR_E_UNAVAILABLE
                                              : MR_E_INVALID;

    return s == 200 || s == 206 ? MR_OK
                                : MR_FAIL(err, status, "the server answers with HTTP status %d", s);
}

/* Ranges from one host, until there is no more, or a redirection: a->location. */
static int host_get(struct answer *a, const struct archive_url *u, struct mr_err *err)
{
    const struct mr_tls_client_options system = {.ca_file = NULL};
    struct mr_client_options options = {.max_response_bytes = WHOLE_BYTES, .max_connections = 1};
    struct mr_tls_client *tls = NULL;
    struct mr_client *client = NULL;
    int rc = MR_OK;

    if (u->is_tls) {
        MR_TRY(mr_tls_client_new(&tls, &system, err));
        options.tls = tls;
    }
    MR_TRY(mr_loop_new(&a->loop, NULL, err));
    MR_TRY(mr_client_new(&client, a->loop, u->address, &options, err));
    do {
        rc = range_get(a, client, u);
        if (rc < 0) {
            *err = a->err;
        } else if (!a->location[0]) {
            rc = status_judge(a, err);
        }
        if (rc == MR_OK && is_stopping(a->job->f)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "the download is not wanted any more");
        }
    } while (rc == MR_OK && !a->location[0] && a->job->bytes < a->total);
out:
    mr_client_free(&client);
    mr_loop_free(&a->loop);
    mr_tls_client_free(&tls);
    return rc;
}

static int http_once(struct job *j, struct mr_err *err)
{
    struct answer *a = MR_NEW(struct answer);
    struct archive_url *u = MR_NEW(struct archive_url), *next = MR_NEW(struct archive_url);
    int rc = MR_OK;

    *u = *j->url;
    a->job = j;
    for (int i = 0; rc == MR_OK && i <= REDIRECTS_MAX; i++) {
        MR_TRY(job_restart(j, err));
        MR_TRY(host_get(a, u, err));
        if (!a->location[0]) {
            goto out;
        }
        MR_TRY(archive_url_redirect(u, mr_str_c(a->location), next, err));
        *u = *next;
    }
    rc = MR_FAIL(err, MR_E_INVALID, "is redirected more than %d times", REDIRECTS_MAX);
out:
    mr_free(a);
    mr_free(u);
    mr_free(next);
    return rc;
}

static bool may_pass(int rc)
{
    return rc == MR_E_UNAVAILABLE || rc == MR_E_DEADLINE;
}

static int http_get(struct job *j, struct mr_err *err)
{
    int rc = http_once(j, err);

    for (int i = 1; may_pass(rc) && i < ATTEMPTS && !is_stopping(j->f); i++) {
        rc = http_once(j, err);
    }
    return rc;
}

/* ---- S3 ---- */

static bool s3_is_stopped(void *ctx)
{
    return is_stopping(ctx);
}

static int s3_place(struct fetcher *f, const struct archive_url *u, struct mr_s3_place *out,
                    struct mr_err *err)
{
    const struct mr_s3_options options = {
        .patience_ns = PATIENCE_NS, .is_stopped = s3_is_stopped, .ctx = f};
    int rc = MR_OK;

    if (!f->s3) {
        MR_TRY(mr_s3_new(&f->s3, &options, err));
    }
    rc = mr_s3_uri_parse(u->text, &out->bucket, &out->key, err);
out:
    return rc;
}

/* Loads of all models wait for it: a bucket that has just exhausted the patience is left alone for a while. */
static int s3_head(struct fetcher *f, const struct archive_url *u, struct mr_s3_object *out,
                   struct mr_err *err)
{
    struct mr_err why = {0};
    struct mr_s3_place at;
    int rc;

    MR_TRY(s3_place(f, u, &at, err));
    if (mr_str_eq_c(at.bucket, f->away) && mr_now_ns() < f->away_ns) {
        return MR_FAIL(err, f->away_err.status, "%s", f->away_err.msg);
    }
    rc = mr_s3_head(f->s3, at, out, &why);
    if (may_pass(rc)) {
        snprintf(f->away, sizeof f->away, "%.*s", MR_STR_ARG(at.bucket));
        f->away_err = why;
        f->away_ns = mr_now_ns() + AWAY_NS;
    }
    if (rc < 0 && err) {
        *err = why;
    }
out:
    return rc;
}

static int s3_get(struct job *j, struct mr_err *err)
{
    uint8_t *data = mr_alloc(READ_BYTES);
    struct mr_s3_reader *r = NULL;
    struct mr_s3_place at;
    size_t n = 1;
    int rc;

    MR_TRY(s3_place(j->f, j->url, &at, err));
    if (!j->object.etag[0]) {
        MR_TRY(s3_head(j->f, j->url, &j->object, err));
    }
    r = mr_s3_reader_new(j->f->s3, at, j->object.etag, j->object.bytes);
    while (n > 0) {
        MR_TRY(mr_s3_reader_read(r, data, READ_BYTES, &n, err));
        MR_TRY(job_write(j, data, n, err));
    }
out:
    if (r) {
        mr_s3_reader_free(&r);
    }
    mr_free(data);
    return rc;
}

/* ---- into the cache ---- */

static bool on_progress(void *ctx, uint64_t done)
{
    const struct job *j = ctx;

    (void)done;
    return !is_stopping(j->f);
}

static bool is_unwanted(void *ctx)
{
    const struct job *j = ctx;

    return is_stopping(j->f);
}

static int file_open(struct job *j, const char *dir, struct mr_err *err)
{
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s/.download", dir) >= sizeof path) {
        return MR_FAIL(err, MR_E_IO, "the path of the cache is too long");
    }
    j->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return j->fd >= 0 && unlink(path) == 0
               ? MR_OK
               : MR_FAIL(err, MR_E_IO, "%.300s: %s", path, strerror(errno));
}

static int sum_check(struct job *j, struct mr_err *err)
{
    char sum[MR_SHA256_TEXT];
    int rc = MR_OK;

    if (!j->url->sha256[0]) {
        return MR_OK;
    }
    if (lseek(j->fd, 0, SEEK_SET) != 0) {
        return MR_FAIL(err, MR_E_IO, "%s", strerror(errno));
    }
    MR_TRY(mr_sha256_fd(j->fd, j->url->text, sum, err));
    if (strcmp(sum, j->url->sha256) != 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "has the SHA-256 %s, not %s", sum, j->url->sha256);
    }
out:
    return rc;
}

static int make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    struct job *j = ctx;
    struct mr_archive_rules rules = {
        .limits = MR_ARCHIVE_LIMITS, .on_progress = on_progress, .ctx = j};
    int rc;

    (void)path;
    if (j->f->max_bytes > 0) {
        rules.limits.bytes = MR_MIN(rules.limits.bytes, j->f->max_bytes);
    }
    MR_TRY(file_open(j, dir, err));
    MR_TRY(j->url->kind == ARCHIVE_S3 ? s3_get(j, err) : http_get(j, err));
    MR_TRY(sum_check(j, err));
    if (lseek(j->fd, 0, SEEK_SET) != 0) {
        rc = MR_FAIL(err, MR_E_IO, "%s", strerror(errno));
        goto out;
    }
    rc = mr_archive_unpack(j->fd, j->url->text, dir, &rules, err);
out:
    if (j->fd >= 0) {
        close(j->fd);
        j->fd = -1;
    }
    return rc;
}

/* The checksum; of S3 without one, what identifies this content of this object. */
static void key_make(const struct job *j, char out[MR_SHA256_TEXT])
{
    if (j->url->sha256[0]) {
        memcpy(out, j->url->sha256, MR_SHA256_TEXT);
        return;
    }
    struct mr_sha256 *s = mr_sha256_new();
    mr_sha256_add(s, mr_str_c(j->url->text));
    mr_sha256_add(s, mr_str_c(j->object.etag));
    mr_sha256_end(&s, out);
}

int fetch_identity(struct fetcher *f, const struct archive_url *u, uint64_t *out,
                   struct mr_err *err)
{
    struct mr_s3_object o = {.etag = ""};
    int rc = MR_OK;

    if (u->kind == ARCHIVE_S3 && !u->sha256[0]) {
        MR_TRY(s3_head(f, u, &o, err));
    }
    *out = mr_hash(mr_str_c(u->sha256[0] ? u->sha256 : o.etag));
out:
    return rc;
}

int fetch_archive(struct fetcher *f, const struct archive_url *u, struct mr_cache_ref **out,
                  struct mr_err *err)
{
    struct job j = {.f = f, .url = u, .fd = -1};
    const struct mr_cache_maker maker = {make, is_unwanted, &j};
    char key[MR_SHA256_TEXT];
    int rc = MR_OK;

    if (u->kind == ARCHIVE_S3 && !u->sha256[0]) {
        MR_TRY(s3_head(f, u, &j.object, err));
    }
    key_make(&j, key);
    rc = mr_cache_get(f->cache, KIND, key, &maker, out, err);
out:
    if (rc < 0 && err && !strstr(err->msg, u->text)) {
        MR_WRAP(err, rc, "%.200s", u->text);
    }
    return rc;
}

struct fetcher *fetch_new(struct mr_cache *cache, uint64_t max_bytes,
                          const _Atomic bool *is_stopping, const _Atomic bool *is_unwanted)
{
    struct fetcher *f = MR_NEW(struct fetcher);

    *f = (struct fetcher){.cache = cache,
                          .max_bytes = max_bytes,
                          .is_stopping = is_stopping,
                          .is_unwanted = is_unwanted};
    return f;
}

void fetch_free(struct fetcher **fetcher)
{
    struct fetcher *f = *fetcher;

    if (f) {
        if (f->s3) {
            mr_s3_free(&f->s3);
        }
        mr_freep(fetcher);
    }
}
