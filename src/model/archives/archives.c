/* A refresh lists the repositories, and unpacks what is not in the list yet; a file is known by its inode, size and times, an
 * archive elsewhere by its checksum or ETag: one with a checksum that is in the list is not asked for again.
 * It makes a list of its own and swaps it in, so that those who only read the list do not wait for it. A failure stays in the
 * list as well, for the model that has the archive's name: where else would it be seen? It is tried again if the
 * archive itself is not to blame. After an update that fails, what was there before stays beside the failure, which is then
 * that of its models: none of them is taken for removed. A placed model need not be an archive: then its repository is a folder of links. */
#include "archives.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/vec.h"
#include "fetch.h"
#include "url.h"

typedef MR_VEC(struct archive_repository *) repository_vec;

struct archives {
    struct archives_options o;
    size_t link_count;
    pthread_mutex_t refresh; /* held while archives are unpacked */
    pthread_mutex_t lock;    /* of `list` */
    struct archive_list list;
    repository_vec placed;    /* guarded by lock */
    struct archive_url *urls; /* [o.url_count] */
    struct fetcher *fetcher;
};

/* An archive that was found: a file, or at an address. */
struct source {
    const char *file; /* its path or address */
    mr_str stem;
    const struct archive_url *url; /* NULL: a file */
    uint64_t identity;
    struct archive_repository *known; /* what it was at the last refresh; NULL: nothing */
    bool is_placed;
    mr_str type; /* if it is */
};

/* ---- references ---- */

struct archive_repository *archive_repository_ref(struct archive_repository *r)
{
    if (r) {
        /* Relaxed: the caller has a reference, so the count cannot fall to zero. */
        atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
    }
    return r;
}

static void temp_remove(struct archive_repository *r)
{
    if (r->is_temp && mr_tree_remove(r->path, NULL) < 0) {
        mr_log(MR_LOG_WARN, "model.temp_left", "path=%s could not be removed",
               MR_LOG_STR(mr_str_c(r->path)));
    }
    r->is_temp = false;
}

void archive_repository_unref(struct archive_repository **repository)
{
    struct archive_repository *r = *repository;

    *repository = NULL;
    /* Acquire and release: the files may go after all that other threads did with them. */
    if (r && atomic_fetch_sub_explicit(&r->refs, 1, memory_order_acq_rel) == 1) {
        archive_repository_unref(&r->before);
        mr_cache_unref(&r->view);
        mr_cache_unref(&r->content);
        temp_remove(r);
        mr_free(r->links);
        mr_free(r->path);
        mr_free(r->top);
        mr_free(r->stem);
        mr_free(r->file);
        mr_free(r);
    }
}

void archive_list_fini(struct archive_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        archive_repository_unref(&list->at[i]);
    }
    mr_free(list->at);
    *list = (struct archive_list){0};
}

/* ---- what of an archive is a repository ---- */

static char *text_copy(const char *s)
{
    return mr_strndup(s, strlen(s));
}

static bool is_folder(const char *dir, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    return (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path &&
           stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *dir, const char *name)
{
    char path[PATH_MAX];

    return (size_t)snprintf(path, sizeof path, "%s/%s", dir, name) < sizeof path &&
           access(path, F_OK) == 0;
}

/* What a folder has at its top. */
struct contents {
    bool has_version, has_folder;
    size_t count;
    char only[NAME_MAX + 1]; /* the one that it has, if that is a folder */
};

static void contents_read(const char *dir, struct contents *out)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    uint64_t number;

    *out = (struct contents){0};
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.') {
            continue;
        }
        const bool is_dir = is_folder(dir, e->d_name);
        out->has_folder |= is_dir;
        out->has_version |=
            is_dir && e->d_name[0] != '0' && mr_str_to_u64(mr_str_c(e->d_name), &number);
        snprintf(out->only, sizeof out->only, "%s", is_dir ? e->d_name : "");
        out->count++;
    }
    if (out->count != 1) {
        out->only[0] = '\0';
    }
    if (d) {
        closedir(d);
    }
}

static bool is_model(const char *dir, const struct contents *c)
{
    return is_file(dir, "config.pbtxt") || is_file(dir, "model-settings.json") || c->has_version;
}

/* A folder with the model, by the name that it is to have. */
struct view {
    const struct archives *a;
    const struct source *from;
    const char *path; /* of the model's files */
};

static int view_make(void *ctx, const char *dir, const char *path, struct mr_err *err)
{
    const struct view *w = ctx;
    char link[PATH_MAX];

    (void)path;
    if (w->from->is_placed) {
        return w->a->o.place(dir, w->from->stem, w->path, w->from->type, err);
    }
    if ((size_t)snprintf(link, sizeof link, "%s/%.*s", dir, MR_STR_ARG(w->from->stem)) >=
            sizeof link ||
        symlink(w->path, link) != 0) {
        return MR_FAIL(err, MR_E_IO, "%.300s: no link to %.200s can be made there", dir, w->path);
    }
    return MR_OK;
}

static int view_set(const struct view *w, struct archive_repository *r, struct mr_err *err)
{
    const struct mr_cache_maker maker = {.make = view_make, .ctx = (void *)(uintptr_t)w};
    const struct source *from = w->from;
    struct mr_sha256 *s = mr_sha256_new();
    char key[MR_SHA256_TEXT];

    mr_sha256_add(s, mr_str_c(w->path));
    mr_sha256_add(s, from->stem);
    if (from->is_placed) {
        mr_sha256_add(s, MR_STR("/")); /* no name has one */
        mr_sha256_add(s, from->type);
    }
    mr_sha256_end(&s, key);
    const int rc = mr_cache_get(w->a->o.cache, from->is_placed ? "placed" : "view", key, &maker,
                                &r->view, err);
    if (rc == MR_OK) {
        r->path = text_copy(mr_cache_path(r->view));
    }
    return rc;
}

/* Enters a folder; false: the path is too long, or it is none. */
static bool enter(char path[PATH_MAX], const char *name)
{
    const size_t len = strlen(path);

    if (!is_folder(path, name) ||
        (size_t)snprintf(path + len, PATH_MAX - len, "/%s", name) >= PATH_MAX - len) {
        path[len] = '\0';
        return false;
    }
    return true;
}

#define ENTER_MAX 3 /* project/models/name */

/* What of an archive that is placed is the model. */
static int placed_set(const struct view *w, struct archive_repository *r, struct mr_err *err)
{
    char path[PATH_MAX];
    struct contents c;

    snprintf(path, sizeof path, "%s", r->top);
    contents_read(path, &c);
    for (size_t i = 0; i < ENTER_MAX && !is_model(path, &c); i++) {
        if (is_folder(path, "models")) {
            mr_free(r->top);
            r->top = text_copy(path); /* what versions may link to, and where requirements.txt is */
            enter(path, "models");
        } else if (!enter(path, r->stem) && !(c.only[0] && enter(path, c.only))) {
            break;
        }
        contents_read(path, &c);
    }
    const struct view found = {w->a, w->from, path};
    return view_set(&found, r, err);
}

static int path_set(const struct archives *a, struct archive_repository *r,
                    const struct source *from, struct mr_err *err)
{
    const struct view w = {a, from, r->top};
    char path[PATH_MAX];
    struct contents c;
    int n = snprintf(path, sizeof path, "%s", r->top);

    if (from->is_placed) {
        return placed_set(&w, r, err);
    }
    contents_read(r->top, &c);
    if (is_model(r->top, &c)) {
        return view_set(&w, r, err);
    }
    if (is_folder(r->top, "models")) {
        n = snprintf(path, sizeof path, "%s/models", r->top);
    } else if (c.only[0]) {
        n = snprintf(path, sizeof path, "%s/%s/models", r->top, c.only);
        if ((size_t)n >= sizeof path || !is_folder(path, ".")) {
            n = snprintf(path, sizeof path, "%s", r->top);
        } else {
            mr_free(r->top); /* what versions may link to, and where requirements.txt is */
            r->top = mr_strndup(path, strlen(path) - strlen("/models"));
        }
    }
    r->path = mr_strndup(path, (size_t)MR_MIN(n, (int)sizeof path - 1));
    contents_read(path, &c);
    return c.has_folder ? MR_OK
                        : MR_FAIL(err, MR_E_INVALID,
                                  "%.300s has no model: no folders of models, and no config.pbtxt, "
                                  "model-settings.json or version (1/) at its top",
                                  r->file);
}

/* ---- one archive ---- */

static bool on_progress(void *ctx, uint64_t done, uint64_t total)
{
    const struct archives *a = ctx;

    (void)done;
    (void)total;
    /* Relaxed: a flag that stands alone. */
    return !atomic_load_explicit(a->o.is_stopping, memory_order_relaxed);
}

static void links_set(const struct archives *a, struct archive_repository *r)
{
    size_t n = 0;

    r->links = MR_NEW_ARRAY(const char *, a->link_count + 2);
    if (r->top) {
        r->links[n++] = r->top;
    }
    for (size_t i = 0; i < a->link_count; i++) {
        r->links[n++] = a->o.links[i];
    }
}

/* No archive: its links are new each time, as what they are made from may be another one. */
static int temp_set(const struct archives *a, struct archive_repository *r,
                    const struct source *from, struct mr_err *err)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%.4000s/XXXXXX", a->o.placed);
    if (!mkdtemp(path)) {
        return MR_FAIL(err, MR_E_IO, "the folder of a placed model: %.400s: %s", path,
                       strerror(errno));
    }
    r->is_temp = true;
    r->path = text_copy(path);
    links_set(a, r);
    return a->o.place(r->path, from->stem, r->file, from->type, err);
}

static int unpack(struct archives *a, struct fetcher *fetcher, struct archive_repository *r,
                  const struct source *from, struct mr_err *err)
{
    const struct mr_cache_archive_args args = {
        .path = r->file, .on_progress = on_progress, .ctx = a};
    char real[PATH_MAX];
    int rc;

    if (from->is_placed && !from->url && !archives_is_file(r->file)) {
        return temp_set(a, r, from, err);
    }
    MR_TRY(from->url ? fetch_archive(fetcher, from->url, &r->content, err)
                     : mr_cache_archive(a->o.cache, &args, &r->content, err));
    if (!realpath(mr_cache_path(r->content), real)) {
        rc = MR_FAIL(err, MR_E_IO, "%.300s does not exist", mr_cache_path(r->content));
        goto out;
    }
    r->top = text_copy(real);
    MR_TRY(path_set(a, r, from, err));
    links_set(a, r);
out:
    return rc;
}

static struct archive_repository *repository_new(struct archives *a, struct fetcher *fetcher,
                                                 const struct source *from)
{
    struct archive_repository *r = MR_NEW(struct archive_repository);
    struct archive_repository *known = from->known;
    const char *file = from->file;

    atomic_init(&r->refs, 1);
    r->file = text_copy(file);
    r->stem = mr_strndup(from->stem.ptr, from->stem.len);
    r->identity = from->identity;
    r->is_placed = from->is_placed;
    if (unpack(a, fetcher, r, from, &r->err) < 0) {
        /* Its name is there, whatever is at its address: not that of a model which does not exist. */
        r->err.status = r->err.status == MR_E_NOT_FOUND && !r->is_placed ? MR_E_IO : r->err.status;
        mr_cache_unref(&r->view);
        mr_cache_unref(&r->content);
        temp_remove(r);
        mr_freep(&r->path);
        mr_freep(&r->top);
        r->before = archive_repository_ref(known && known->err.status < 0 ? known->before : known);
        mr_log(MR_LOG_ERROR, "model.archive", "path=%s %s%s", MR_LOG_STR(mr_str_c(file)),
               r->err.msg, r->before ? "; its models that serve go on" : "");
    } else {
        mr_log(MR_LOG_INFO, "model.archive", "path=%s is served from %s",
               MR_LOG_STR(mr_str_c(file)), r->path);
    }
    return r;
}

/* ---- all of them ---- */

static const struct archive_repository *find(const struct archives *a, const char *file)
{
    for (size_t i = 0; i < a->list.len; i++) {
        if (strcmp(a->list.at[i]->file, file) == 0) {
            return a->list.at[i];
        }
    }
    return NULL;
}

static uint64_t identity_of(const struct stat *st)
{
    const uint64_t parts[] = {(uint64_t)st->st_dev,          (uint64_t)st->st_ino,
                              (uint64_t)st->st_size,         (uint64_t)st->st_mtim.tv_sec,
                              (uint64_t)st->st_mtim.tv_nsec, (uint64_t)st->st_ctim.tv_sec,
                              (uint64_t)st->st_ctim.tv_nsec};

    return mr_hash(mr_str_n((const char *)parts, sizeof parts));
}

static bool is_final(const struct archive_repository *r)
{
    const int status = r->err.status;

    return status == MR_OK || status == MR_E_INVALID || status == MR_E_TOO_LARGE;
}

struct refreshing {
    struct archives *a;
    int64_t settle_ns;
    repository_vec found;
    bool is_restless;
    bool has_changed;
};

static void file_take(struct refreshing *f, const char *path, mr_str stem)
{
    struct stat st;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        return;
    }
    struct archive_repository *known =
        (struct archive_repository *)(uintptr_t)find(f->a, path); /* counted, not changed */
    const uint64_t identity = identity_of(&st);
    const int64_t touched_ns = (int64_t)st.st_ctim.tv_sec * MR_NS_PER_S + st.st_ctim.tv_nsec;
    if (known && known->identity == identity && is_final(known)) {
        MR_VEC_PUSH(&f->found, archive_repository_ref(known));
    } else if (mr_wall_ns() - touched_ns < f->settle_ns) {
        f->is_restless = true;
        if (known) {
            MR_VEC_PUSH(&f->found, archive_repository_ref(known));
        }
    } else {
        const struct source from = {
            .file = path, .stem = stem, .identity = identity, .known = known};
        MR_VEC_PUSH(&f->found, repository_new(f->a, f->a->fetcher, &from));
        f->has_changed = true;
    }
}

/* While it cannot be asked whether an archive has changed, it stays what it was. */
static void url_take(struct refreshing *f, const struct archive_url *u)
{
    struct archive_repository *known =
        (struct archive_repository *)(uintptr_t)find(f->a, u->text); /* counted, not changed */
    struct mr_err err = {0};
    uint64_t identity = 0;

    if (u->kind == ARCHIVE_FILE) {
        file_take(f, u->text, mr_str_c(u->stem));
        return;
    }
    const bool is_asked = fetch_identity(f->a->fetcher, u, &identity, &err) == MR_OK;
    if (!is_asked && known) {
        mr_log(MR_LOG_WARN, "model.archive", "path=%s %s", MR_LOG_STR(mr_str_c(u->text)), err.msg);
    }
    if (known && is_final(known) && (!is_asked || known->identity == identity)) {
        MR_VEC_PUSH(&f->found, archive_repository_ref(known));
    } else {
        const struct source from = {.file = u->text,
                                    .stem = mr_str_c(u->stem),
                                    .url = u,
                                    .identity = identity,
                                    .known = known};
        MR_VEC_PUSH(&f->found, repository_new(f->a, f->a->fetcher, &from));
        f->has_changed = true;
    }
}

static void folder_take(struct refreshing *f, const char *dir)
{
    char path[PATH_MAX];
    struct dirent *e;
    mr_str stem;
    /* One that is missing is reported elsewhere. One that is a model itself has archives of its own, such as its
     * environment. */
    DIR *d = is_file(dir, "model-settings.json") ? NULL : opendir(dir);

    while (d && (e = readdir(d))) {
        if (e->d_name[0] != '.' && mr_archive_is_name(mr_str_c(e->d_name), &stem) &&
            (size_t)snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < sizeof path) {
            file_take(f, path, stem);
        }
    }
    if (d) {
        closedir(d);
    }
}

bool archives_refresh(struct archives *a, int64_t settle_ns, bool *out_is_restless)
{
    struct refreshing f = {.a = a, .settle_ns = settle_ns};

    pthread_mutex_lock(&a->refresh);
    for (size_t i = 0; i < a->o.repository_count; i++) {
        folder_take(&f, a->o.repositories[i]);
    }
    for (size_t i = 0; i < a->o.url_count; i++) {
        url_take(&f, &a->urls[i]);
    }
    f.has_changed |= f.found.len != a->list.len;
    pthread_mutex_lock(&a->lock);
    struct archive_list old = a->list;
    a->list = (struct archive_list){f.found.at, f.found.len};
    pthread_mutex_unlock(&a->lock);
    pthread_mutex_unlock(&a->refresh);
    archive_list_fini(&old);
    if (out_is_restless) {
        *out_is_restless = f.is_restless;
    }
    return f.has_changed;
}

/* ---- placed ones ---- */

/* Lock held. */
static size_t placed_index(const struct archives *a, mr_str name)
{
    size_t i = 0;

    while (i < a->placed.len && !mr_str_eq_c(name, a->placed.at[i]->stem)) {
        i++;
    }
    return i;
}

struct archive_repository *archives_placed(struct archives *a, mr_str name)
{
    pthread_mutex_lock(&a->lock);
    const size_t i = placed_index(a, name);
    struct archive_repository *r =
        i < a->placed.len ? archive_repository_ref(a->placed.at[i]) : NULL;
    pthread_mutex_unlock(&a->lock);
    return r;
}

void archives_put(struct archives *a, mr_str name, struct archive_repository *r)
{
    struct archive_repository *old = NULL;

    pthread_mutex_lock(&a->lock);
    const size_t i = placed_index(a, name);
    if (i < a->placed.len) {
        old = a->placed.at[i];
        a->placed.at[i] = r ? r : a->placed.at[--a->placed.len];
    } else if (r) {
        MR_VEC_PUSH(&a->placed, r);
    }
    pthread_mutex_unlock(&a->lock);
    archive_repository_unref(&old);
}

bool archives_is_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct stat st;
    mr_str stem;

    return mr_archive_is_name(mr_str_c(slash ? slash + 1 : path), &stem) && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode);
}

int archives_place(struct archives *a, mr_str name, mr_str type, const char *address,
                   const _Atomic bool *is_unwanted, struct mr_err *err)
{
    struct archive_url *url = MR_NEW(struct archive_url);
    /* Of its own, so that several are fetched at a time. */
    struct fetcher *fetcher = fetch_new(a->o.cache, a->o.max_bytes, a->o.is_stopping, is_unwanted);
    struct archive_repository *r = NULL;
    const bool is_address = archive_url_is(address);
    int rc = is_address ? archive_url_parse(address, url, err) : MR_OK;

    if (rc == MR_OK) {
        const struct source from = {.file = is_address ? url->text : address,
                                    .stem = name,
                                    .url = is_address ? url : NULL,
                                    .is_placed = true,
                                    .type = type};
        r = repository_new(a, fetcher, &from);
        rc = r->err.status;
        if (rc < 0) {
            *err = r->err;
            archive_repository_unref(&r);
        } else {
            archives_put(a, name, r);
        }
    }
    fetch_free(&fetcher);
    mr_free(url);
    return rc;
}

void archives_get(struct archives *a, struct archive_list *out)
{
    pthread_mutex_lock(&a->lock);
    const size_t len = a->list.len + a->placed.len;
    *out = (struct archive_list){MR_NEW_ARRAY(struct archive_repository *, len + 1), len};
    for (size_t i = 0; i < len; i++) {
        out->at[i] =
            archive_repository_ref(i < a->list.len ? a->list.at[i] : a->placed.at[i - a->list.len]);
    }
    pthread_mutex_unlock(&a->lock);
}

struct archives *archives_new(const struct archives_options *o)
{
    struct archives *a = MR_NEW(struct archives);

    a->o = *o;
    while (o->links && o->links[a->link_count]) {
        a->link_count++;
    }
    a->urls = MR_NEW_ARRAY(struct archive_url, o->url_count + 1);
    for (size_t i = 0; i < o->url_count; i++) {
        (void)archive_url_parse(o->urls[i], &a->urls[i], NULL); /* it was accepted before */
    }
    a->fetcher = fetch_new(o->cache, o->max_bytes, o->is_stopping, NULL);
    pthread_mutex_init(&a->refresh, NULL);
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

void archives_free(struct archives **archives)
{
    struct archives *a = *archives;

    if (a) {
        archive_list_fini(&a->list);
        while (a->placed.len > 0) {
            archive_repository_unref(&a->placed.at[--a->placed.len]);
        }
        MR_VEC_FINI(&a->placed);
        fetch_free(&a->fetcher);
        mr_free(a->urls);
        pthread_mutex_destroy(&a->lock);
        pthread_mutex_destroy(&a->refresh);
        mr_freep(archives);
    }
}
