/* Models that are loaded by their paths or addresses, under names that their files need not know.
 *
 * A path is resolved and has to lie in a folder of the operator's, an address below one of the operator's. Either becomes a
 * repository of its own, like an unpacked archive; the versions made of it hold references to it. Loaders do this, so that as
 * many are fetched at a time as may load at a time. */
#include "placed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "archive/archive.h"
#include "jobs.h"
#include "load.h"
#include "model/archives/url.h"
#include "model/records/job.h"
#include "model/records/names.h"

#define FILE_SCHEME "file:"
#define SUM_BEGIN   "#sha256="

/* The path of a file: address, whether it has two slashes before it or not; other texts as they are. */
static mr_str path_of(mr_str text)
{
    if (!mr_str_starts(text, MR_STR(FILE_SCHEME))) {
        return text;
    }
    text = mr_str_sub(text, strlen(FILE_SCHEME), text.len);
    return mr_str_starts(text, MR_STR("//")) ? mr_str_sub(text, 2, text.len) : text;
}

/* Below one of the operator's addresses, with nothing that a server might take for a way out. */
static int address_check(const struct mr_models *m, mr_str address, struct mr_err *err)
{
    static const char *const ways_out[] = {"/../", "/./", "//", "%", "\\"};
    size_t len = 0, i = 0;

    while (len < address.len && !strchr("?#", address.ptr[len])) {
        len++;
    }
    const mr_str text = path_of(mr_str_sub(address, 0, len));
    const mr_str shown = mr_str_sub(text, 0, memchr(text.ptr, '@', text.len) ? 0 : 200);
    while (i < m->o.allowed_url_count &&
           !mr_str_starts(text, path_of(mr_str_c(m->o.allowed_urls[i])))) {
        i++;
    }
    if (i == m->o.allowed_url_count) {
        return MR_FAIL(err, MR_E_FORBIDDEN, "'%.*s' is below no address of --allow-model-url",
                       MR_STR_ARG(shown));
    }
    const mr_str begin = path_of(mr_str_c(m->o.allowed_urls[i]));
    const mr_str rest = mr_str_sub(text, begin.len - 1, text.len);
    for (size_t k = 0; k < sizeof ways_out / sizeof *ways_out; k++) {
        if (mr_str_find_str(rest, mr_str_c(ways_out[k])) >= 0) {
            return MR_FAIL(err, MR_E_INVALID, "'%.*s' has '%s' in it", MR_STR_ARG(shown),
                           ways_out[k]);
        }
    }
    return MR_OK;
}

int mr_url_check(const struct mr_models *m, mr_str url, struct mr_err *err)
{
    if (!m->o.loads_urls) {
        return MR_FAIL(err, MR_E_FORBIDDEN, "%s",
                       m->o.allowed_url_count
                           ? "models of a mesh are registered with their addresses"
                           : "load requests with a 'url' parameter are not allowed "
                             "(--allow-model-url)");
    }
    if (url.len >= PATH_MAX || memchr(url.ptr, 0, url.len) || !mr_models_is_address(url)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is no address of %d characters at most",
                       MR_STR_ARG(mr_str_sub(url, 0, 200)), PATH_MAX - 1);
    }
    return address_check(m, url, err);
}

static int sum_check(const char *path, const char *sha256, struct mr_err *err)
{
    char sum[MR_SHA256_TEXT];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd >= 0 ? mr_sha256_fd(fd, path, sum, err) : mr_path_errno(path, errno, err);

    if (rc == MR_OK && strcasecmp(sum, sha256) != 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "%.200s: has the SHA-256 %s, not %.64s", path, sum, sha256);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* sha256 NULL: none is given. */
static int path_place(struct mr_models *m, const struct mr_job *job, const char *path,
                      const char *sha256, struct mr_err *err)
{
    const mr_str name = job->model->name, type = mr_str_c(job->type);
    char *real = NULL;
    int rc;

    MR_TRY(mr_path_inside(NULL, m->o.link_dirs, path, &real, err));
    if (sha256 && !archives_is_file(real)) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "%.200s is not an archive, and only archives have a checksum", path);
        goto out;
    }
    MR_TRY(sha256 ? sum_check(real, sha256, err) : MR_OK);
    MR_TRY(archives_place(m->archives, name, type, real, NULL, err));
out:
    mr_free(real);
    return rc;
}

/* A download, during which other loads have the place of this one. */
static int address_place(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    const mr_str name = job->model->name;
    int rc;

    MR_TRY(address_check(m, mr_str_c(job->path), err));
    pthread_mutex_lock(&m->lock);
    mr_load_place_leave(m, job);
    pthread_mutex_unlock(&m->lock);
    rc = archives_place(m->archives, name, mr_str_c(job->type), job->path, &job->is_cancelled, err);
    pthread_mutex_lock(&m->lock);
    mr_load_place_take(m, job);
    pthread_mutex_unlock(&m->lock);
out:
    return rc;
}

/* Two models of one name could not be distinguished, and neither would load. */
static int name_check(struct mr_models *m, mr_str name, struct mr_err *err)
{
    struct mr_repository_list list;
    int rc = MR_OK;

    mr_repositories_get(m, &list);
    for (size_t i = 0; i < list.len && rc == MR_OK; i++) {
        const struct mr_repository *r = &list.at[i];
        struct mr_folder f = {0};
        if (r->archive && r->archive->is_placed) {
            continue;
        }
        const int found = mr_repository_read(&f, m, r, name, NULL, NULL, err);
        if (mr_repository_is_away(r, &f, found)) {
            rc = found; /* it may have the model */
        } else if (found != MR_E_NOT_FOUND) {
            rc = MR_FAIL(err, MR_E_INVALID, "a model repository has a model of that name");
        }
        mr_folder_fini(&f);
    }
    mr_repositories_fini(&list);
    return rc;
}

static int place(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    const char *sum = NULL;
    char *path = NULL;
    int rc;

    MR_TRY(name_check(m, job->model->name, err));
    if (job->path[0] != '/' && !mr_str_starts(mr_str_c(job->path), MR_STR(FILE_SCHEME))) {
        return address_place(m, job, err);
    }
    const mr_str text = path_of(mr_str_c(job->path));
    path = mr_strndup(text.ptr, text.len);
    char *mark = job->path[0] == '/' ? NULL : strstr(path, SUM_BEGIN);
    if (mark) {
        *mark = '\0';
        sum = mark + strlen(SUM_BEGIN);
    }
    rc = path_place(m, job, path, sum, err);
out:
    mr_free(path);
    return rc;
}

int mr_place_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    const mr_str name = job->model->name;
    struct archive_repository *before = archives_placed(m->archives, name);
    uint64_t unused;
    int rc = place(m, job, err);

    if (rc < 0) {
        MR_WRAP(err, rc, "failed to load '%.*s'", MR_STR_ARG(mr_str_sub(name, 0, 128)));
    } else {
        rc = mr_load_run(m, job, err);
    }
    /* A load that waits for its members is placed again when it resumes. Not loaded at all: the cache may have its room. */
    if (rc != MR_OK) {
        archives_put(m->archives, name,
                     mr_models_size(m, name, &unused) ? archive_repository_ref(before) : NULL);
    }
    archive_repository_unref(&before);
    return rc;
}

static int check(const struct mr_models *m, mr_str name, mr_str path, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_model_name_check(name, err));
    if (!m->o.placed) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "failed to load '%.*s': this server loads no models by paths or addresses "
                       "(--mesh-models, --allow-model-url)",
                       MR_STR_ARG(name));
    }
    if (path.len == 0 || path.len >= PATH_MAX || memchr(path.ptr, 0, path.len) ||
        (path.ptr[0] != '/' && !mr_models_is_address(path))) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "failed to load '%.*s', '%.*s' is neither an absolute path nor an address",
                     MR_STR_ARG(name), MR_STR_ARG(mr_str_sub(path, 0, 200)));
    }
out:
    return rc;
}

bool mr_models_is_address(mr_str path)
{
    char text[16] = "";

    memcpy(text, path.ptr, MR_MIN(path.len, sizeof text - 1));
    return archive_url_is(text);
}

void mr_models_place(struct mr_models *m, mr_str name, mr_str path, mr_str type,
                     mr_models_done_fn *done, void *ctx)
{
    struct mr_job *job = mr_job_new(MR_JOB_LOAD, done, ctx);

    job->answer = check(m, name, path, &job->err);
    if (job->answer < 0) {
        job->kind = MR_JOB_ANSWER;
    } else {
        job->path = mr_strndup(path.ptr, path.len);
        job->type = mr_strndup(type.ptr, type.len);
    }
    mr_job_submit(m, job, name);
}
