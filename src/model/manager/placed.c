/* Models that are loaded by their paths or addresses, under names that their files need not know.
 *
 * A path is resolved and has to lie in a folder of the operator's; it becomes a model of the folder of placed models. An archive
 * becomes one of the unpacked archives, wherever it comes from; its address has to lie below one of the operator's. Loaders do
 * this, so that as many are fetched at a time as may load at a time. */
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "archive/archive.h"
#include "manager.h"
#include "model/archives/url.h"
#include "model/place.h"

#define FILE_SCHEME "file:"

/* What "file:" or "file://" stands before; NULL: it is the address of an archive elsewhere. */
static const char *path_of(const char *text)
{
    if (!archive_url_is(text)) {
        return text;
    }
    if (!mr_str_starts(mr_str_c(text), MR_STR(FILE_SCHEME))) {
        return NULL;
    }
    text += strlen(FILE_SCHEME);
    return mr_str_starts(mr_str_c(text), MR_STR("//")) ? text + 2 : text;
}

/* Below one of the operator's addresses, with nothing that a server might take for a way out. */
static int address_check(const struct mr_models *m, const char *address, struct mr_err *err)
{
    static const char *const ways_out[] = {"/../", "/./", "//", "%", "\\"};
    const mr_str text = mr_str_sub(mr_str_c(address), 0, strcspn(address, "?#"));
    const mr_str shown = mr_str_sub(text, 0, memchr(text.ptr, '@', text.len) ? 0 : 200);
    size_t i = 0;

    while (i < m->o.placed_url_count && !mr_str_starts(text, mr_str_c(m->o.placed_urls[i]))) {
        i++;
    }
    if (i == m->o.placed_url_count) {
        return MR_FAIL(err, MR_E_FORBIDDEN, "'%.*s' is below no address of --mesh-model-url",
                       MR_STR_ARG(shown));
    }
    const mr_str rest = mr_str_sub(text, strlen(m->o.placed_urls[i]) - 1, text.len);
    for (size_t k = 0; k < sizeof ways_out / sizeof *ways_out; k++) {
        if (mr_str_find_str(rest, mr_str_c(ways_out[k])) >= 0) {
            return MR_FAIL(err, MR_E_INVALID, "'%.*s' has '%s' in it", MR_STR_ARG(shown),
                           ways_out[k]);
        }
    }
    return MR_OK;
}

static int path_place(struct mr_models *m, const struct mr_job *job, const char *path,
                      struct mr_err *err)
{
    const mr_str name = job->model->name, type = mr_str_c(job->type);
    char *real = NULL;
    struct stat st;
    mr_str stem;
    int rc;

    MR_TRY(mr_path_inside(m->o.placed, m->o.link_dirs, path, &real, err));
    if (mr_archive_is_name(mr_str_c(strrchr(real, '/') + 1), &stem) && stat(real, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        rc = archives_place(m->archives, name, type, real, err);
    } else {
        rc = mr_model_place(m->o.placed, name, real, type, err);
    }
out:
    mr_free(real);
    return rc;
}

static int place(struct mr_models *m, const struct mr_job *job, struct mr_err *err)
{
    const char *path = path_of(job->path);
    int rc;

    mr_displace(m, job->model->name);
    if (path) {
        return path_place(m, job, path, err);
    }
    MR_TRY(address_check(m, job->path, err));
    rc = archives_place(m->archives, job->model->name, mr_str_c(job->type), job->path, err);
out:
    return rc;
}

void mr_displace(struct mr_models *m, mr_str name)
{
    if (m->o.placed) {
        mr_model_displace(m->o.placed, name);
        archives_displace(m->archives, name);
    }
}

int mr_place_run(struct mr_models *m, struct mr_job *job, struct mr_err *err)
{
    const mr_str name = job->model->name;
    uint64_t unused;
    int rc = place(m, job, err);

    if (rc < 0) {
        MR_WRAP(err, rc, "failed to load '%.*s'", MR_STR_ARG(mr_str_sub(name, 0, 128)));
    } else {
        rc = mr_load_run(m, job, err);
    }
    if (rc < 0 && !mr_models_size(m, name, &unused)) {
        archives_displace(m->archives, name); /* the cache may have its room */
    }
    return rc;
}

static int check(const struct mr_models *m, mr_str name, mr_str path, struct mr_err *err)
{
    int rc;

    MR_TRY(mr_model_name_check(name, err));
    if (!m->o.placed) {
        return MR_FAIL(err, MR_E_FORBIDDEN,
                       "failed to load '%.*s': this server loads no models by paths or addresses "
                       "(--mesh-models, --mesh-model-url)",
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
