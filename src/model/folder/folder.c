/* One scan of a model's folder: which versions there are, and a fingerprint of all files.
 *
 * The fingerprint shows whether anything has changed since the last scan, and whether a copy is still in
 * progress (two scans that differ). Reading names and inodes is enough for that; no file is opened but
 * the config. Hidden files are left out, as tools write incomplete copies there, and what an interpreter compiles. The size is
 * bounded: a folder with a million files is an error. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder.h"
#include "model/model.h"
#include "settings.h"

struct walk {
    const char *root;
    const char *const *links;
    size_t top; /* length of the path that fingerprints leave out */
    mr_folder_visit_fn *visit;
    void *ctx;
    struct mr_fingerprint *fingerprint;
    struct mr_folder_version *version; /* whose folder this is, NULL: what versions share */
    bool leaves_models;                /* folders below that are models of MLServer are left out */
};

bool mr_version_number(mr_str name, int64_t *out)
{
    if (name.len == 0 || name.ptr[0] < '1' || name.ptr[0] > '9') {
        return false;
    }
    return mr_str_to_i64(name, out);
}

static int64_t ns_of(struct timespec t)
{
    return (int64_t)t.tv_sec * MR_NS_PER_S + t.tv_nsec;
}

/* One file or folder as a number. */
static uint64_t fingerprint_of(const struct walk *w, const char *path, const struct stat *st)
{
    char text[PATH_MAX + 128];
    bool is_dir = S_ISDIR(st->st_mode);
    int n = snprintf(text, sizeof text, "%s|%lld|%lld|%llu|%u", path + w->top,
                     is_dir ? 0LL : (long long)st->st_size,
                     is_dir ? 0LL : (long long)ns_of(st->st_mtim), (unsigned long long)st->st_ino,
                     (unsigned)(st->st_mode & S_IFMT));

    return mr_hash(mr_str_n(text, MR_MIN((size_t)n, sizeof text - 1)));
}

/* Who may read one file or folder, as a number. Not by the time of their change, which some network disks make up. */
static uint64_t rights_of(const struct stat *st)
{
    uint64_t parts[4] = {st->st_ino, st->st_mode, st->st_uid, st->st_gid};

    return mr_hash(mr_str_n((const char *)parts, sizeof parts));
}

/* Adds one file or folder. The sum does not depend on the order in which the disk lists them. */
static void print_add(const struct walk *w, const char *path, const struct stat *st)
{
    w->fingerprint->sum += fingerprint_of(w, path, st);
    w->fingerprint->beside += rights_of(st);
    w->fingerprint->bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    w->fingerprint->newest_wall_ns = MR_MAX(w->fingerprint->newest_wall_ns, ns_of(st->st_ctim));
    w->fingerprint->files++;
}

static int walk_dir(const struct walk *w, const char *dir, int depth, struct mr_err *err);

/* Recorded requests are no part of what the version is, but they have to be whole like the rest. */
static bool is_recorded(const struct walk *w, const char *path, int depth)
{
    const char *slash = strrchr(path, '/');

    return w->version && depth == 1 && slash && strcmp(slash + 1, MR_WARMUP_REQUESTS) == 0;
}

static int walk_entry(const struct walk *w, const char *path, unsigned char type, int depth,
                      struct mr_err *err)
{
    struct stat st;
    char *real = NULL;

    if (w->fingerprint->files >= MR_FOLDER_MAX_FILES) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%.300s: more than %d files", path,
                       MR_FOLDER_MAX_FILES);
    }
    if (type == DT_LNK || type == DT_UNKNOWN) {
        w->fingerprint->links++;
        int rc = mr_path_inside(w->root, w->links, path, &real, err);
        mr_free(real);
        if (rc < 0) {
            return rc == MR_E_NOT_FOUND ? MR_OK : rc; /* a link to nothing is nothing */
        }
    }
    if (stat(path, &st) != 0) {
        /* A file that went between listing and looking is a change like any other. */
        return errno == ENOENT ? MR_OK : mr_path_errno(path, errno, err);
    }
    if (is_recorded(w, path, depth)) {
        w->version->has_requests = true;
        w->version->fingerprint.beside += fingerprint_of(w, path, &st) + rights_of(&st);
        return MR_OK;
    }
    if (w->leaves_models && S_ISDIR(st.st_mode) && settings_are_in(path)) {
        return MR_OK;
    }
    print_add(w, path, &st);
    const int rc = S_ISDIR(st.st_mode) ? walk_dir(w, path, depth + 1, err) : MR_OK;
    return rc == MR_E_NOT_FOUND ? MR_OK : rc; /* it has gone in between, as above */
}

/* Hidden files, and what interpreters write beside the files that they read. */
static bool is_left_out(const char *name)
{
    return name[0] == '.' || strcmp(name, "__pycache__") == 0;
}

/* depth bounds loops of links as well as deep trees. */
static int walk_dir(const struct walk *w, const char *dir, int depth, struct mr_err *err)
{
    struct dirent *e;
    int rc = MR_OK;

    if (depth > MR_FOLDER_MAX_DEPTH) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%.300s: folders deeper than %d levels", dir,
                       MR_FOLDER_MAX_DEPTH);
    }
    DIR *d = opendir(dir);
    if (!d) {
        return mr_path_errno(dir, errno, err);
    }
    if (w->visit) {
        w->visit(w->ctx, dir);
    }
    while (rc == MR_OK && (e = readdir(d))) {
        if (is_left_out(e->d_name)) {
            continue;
        }
        char *path = mr_path_join(dir, mr_str_c(e->d_name));
        rc = strlen(path) < PATH_MAX ? walk_entry(w, path, e->d_type, depth, err)
                                     : mr_path_errno(dir, ENAMETOOLONG, err);
        mr_free(path);
    }
    closedir(d);
    return rc;
}

/* Part of the fingerprint, as the version is another one for those who wait for it. */
static void marker_read(const struct walk *w, const char *path, struct mr_folder_version *v)
{
    char *marker = mr_path_join(path, MR_STR(".ready"));
    struct stat st;

    v->has_marker = strlen(marker) < PATH_MAX && lstat(marker, &st) == 0 && S_ISREG(st.st_mode);
    if (v->has_marker) {
        print_add(w, marker, &st);
    }
    mr_free(marker);
}

static void versions_free(struct mr_folder *f)
{
    for (size_t i = 0; i < f->versions.len; i++) {
        mr_free(f->versions.at[i].dir);
        mr_free(f->versions.at[i].label);
    }
    MR_VEC_FINI(&f->versions);
}

/* A version's folder: its failure is its own. */
static void version_read(struct mr_folder *f, const struct walk *shared, const char *path,
                         int64_t number)
{
    struct mr_folder_version v = {.number = number, .dir = mr_strndup(path, strlen(path))};
    struct walk w = *shared;
    char *real = NULL;
    struct stat st;

    w.fingerprint = &v.fingerprint;
    w.version = &v;
    if (mr_path_inside(f->root, f->links, path, &real, &v.err) == MR_OK) {
        if (stat(real, &st) == 0) {
            print_add(&w, path, &st);
        }
        walk_dir(&w, path, 1, &v.err);
        marker_read(&w, path, &v);
    }
    mr_free(real);
    MR_VEC_PUSH(&f->versions, v);
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int entry_read(struct mr_folder *f, const struct walk *w, const struct dirent *e,
                      struct mr_err *err)
{
    char *path = mr_path_join(f->dir, mr_str_c(e->d_name));
    int64_t number;
    int rc = MR_OK;

    if (strlen(path) >= PATH_MAX) {
        rc = mr_path_errno(f->dir, ENAMETOOLONG, err);
    } else if (mr_version_number(mr_str_c(e->d_name), &number) && is_dir(path)) {
        if (f->versions.len >= MR_FOLDER_MAX_VERSIONS) {
            rc = MR_FAIL(err, MR_E_TOO_LARGE, "%.300s: more than %d versions", f->dir,
                         MR_FOLDER_MAX_VERSIONS);
        } else {
            f->shared.links += e->d_type != DT_DIR;
            version_read(f, w, path, number);
        }
    } else {
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9') {
            mr_log(MR_LOG_DEBUG, "model.folder_ignored", "path=%s not a version number",
                   MR_LOG_STR(mr_str_c(path)));
        }
        rc = walk_entry(w, path, e->d_type, 0, err);
    }
    mr_free(path);
    return rc;
}

static int by_number(const void *a, const void *b)
{
    int64_t x = ((const struct mr_folder_version *)a)->number;
    int64_t y = ((const struct mr_folder_version *)b)->number;

    return (x > y) - (x < y);
}

static int config_find(struct mr_folder *f, const char *config_name, struct mr_err *err)
{
    char relative[NAME_MAX + 32];

    for (int i = config_name ? 0 : 1; i < 2 && !f->config_path; i++) {
        snprintf(relative, sizeof relative, i == 0 ? "configs/%s.pbtxt" : "config.pbtxt",
                 config_name);
        char *path = mr_path_join(f->dir, mr_str_c(relative));
        struct mr_err local = {0};
        int rc = mr_path_inside(f->root, f->links, path, &f->config_path, &local);
        mr_free(path);
        if (rc < 0 && rc != MR_E_NOT_FOUND) {
            if (err) {
                *err = local;
            }
            return rc;
        }
    }
    return MR_OK;
}

/* The folder of a model of MLServer that has a configuration, and no folders of versions, is its version. */
static void whole_take(struct mr_folder *f)
{
    if (f->versions.len == 0 && settings_are_in(f->dir)) {
        struct mr_folder_version v = {
            .number = 1, .dir = mr_strndup(f->dir, strlen(f->dir)), .fingerprint = f->shared};
        f->shared = (struct mr_fingerprint){0};
        MR_VEC_PUSH(&f->versions, v);
    }
}

/* Versions that are no numbers follow those that are. */
static int64_t settings_number(const struct mr_folder *f, const struct settings_file *s)
{
    int64_t number;

    if (s->version && mr_version_number(mr_str_c(s->version), &number)) {
        return number;
    }
    return f->versions.len ? f->versions.at[f->versions.len - 1].number + 1 : 1;
}

/* Whether two files of a model say the same version in words, or neither says one. */
static bool is_same_version(const struct settings_file *a, const struct settings_file *b)
{
    return a->version && b->version ? strcmp(a->version, b->version) == 0
                                    : a->version == b->version;
}

/* `before`: the one of the model that comes before it; NULL: none. */
static void settings_take(struct mr_folder *f, const struct walk *w, const struct settings_file *s,
                          const struct settings_file *before)
{
    const bool is_full =
        f->versions.len >= MR_FOLDER_MAX_VERSIONS ||
        (f->versions.len && f->versions.at[f->versions.len - 1].number == INT64_MAX);
    int64_t ignored;

    if (is_full) {
        mr_log(MR_LOG_WARN, "model.settings", "path=%s no number is left for this version",
               MR_LOG_STR(mr_str_c(s->dir)));
        return;
    }
    const int64_t number = settings_number(f, s);
    if (mr_folder_find(f, number) || (before && is_same_version(s, before))) {
        mr_log(MR_LOG_WARN, "model.settings", "path=%s version=%s is in another folder, too",
               MR_LOG_STR(mr_str_c(s->dir)), MR_LOG_STR(mr_str_c(s->version ? s->version : "")));
        return;
    }
    version_read(f, w, s->dir, number);
    struct mr_folder_version *v = &f->versions.at[f->versions.len - 1];
    v->fingerprint.links++; /* a folder elsewhere may become a version */
    if (s->version && !mr_version_number(mr_str_c(s->version), &ignored)) {
        v->label = mr_strndup(s->version, strlen(s->version));
    }
    v->is_unnamed = !s->version;
    f->max_batch_size = s->max_batch_size;
    f->max_batch_time_s = s->max_batch_time_s;
}

/* The model of MLServer of that name. False: there is none. */
static bool settings_collect(struct mr_folder *f, mr_str name, mr_folder_visit_fn *visit, void *ctx)
{
    struct walk w = {f->root,    f->links, strlen(f->root),      visit, ctx,
                     &f->shared, NULL,     .leaves_models = true};
    const struct settings_file *before = NULL;
    settings_list list = {0};

    if (settings_find(f->root, &list, NULL) == MR_OK) {
        settings_sort(&list);
    }
    for (size_t i = 0; i < list.len; i++) {
        const struct settings_file *s = &list.at[i];
        if (!mr_str_eq_c(name, s->name)) {
            continue;
        }
        if (!before) {
            versions_free(f);
            f->shared = (struct mr_fingerprint){0};
            mr_free(f->dir);
        }
        settings_take(f, &w, s, before);
        before = s;
    }
    settings_free(&list);
    f->is_mlserver = before != NULL;
    if (f->is_mlserver) {
        f->dir = mr_strndup(f->versions.at[0].dir, strlen(f->versions.at[0].dir));
    }
    return f->is_mlserver;
}

static int contents_read(struct mr_folder *f, mr_folder_visit_fn *visit, void *ctx,
                         struct mr_err *err)
{
    struct walk w = {f->root, f->links, strlen(f->dir), visit, ctx, &f->shared, NULL, false};
    struct dirent *e;
    int rc = MR_OK;
    DIR *d = opendir(f->dir);

    if (!d) {
        return mr_path_errno(f->dir, errno, err);
    }
    if (visit) {
        visit(ctx, f->dir);
    }
    while (rc == MR_OK && (e = readdir(d))) {
        if (!is_left_out(e->d_name)) {
            rc = entry_read(f, &w, e, err);
        }
    }
    closedir(d);
    if (f->versions.len > 1) {
        qsort(f->versions.at, f->versions.len, sizeof *f->versions.at, by_number);
    }
    for (size_t i = 0; i < f->versions.len; i++) {
        f->versions.at[i].fingerprint.beside += f->shared.beside;
    }
    return rc;
}

/* Finds the folder, and starts *f with it. */
static int folder_find(struct mr_folder *f, const char *repository, const char *const *links,
                       mr_str name, struct mr_err *err)
{
    char real[PATH_MAX];
    char *path;

    *f = (struct mr_folder){.links = links};
    int rc = mr_model_name_check(name, err);
    if (rc < 0) {
        return rc;
    }
    if (!realpath(repository, real)) {
        /* Not MR_E_NOT_FOUND: a repository that is away for a moment does not mean that its models
         * are. */
        int error = errno;
        mr_path_errno(repository, error, err);
        return err ? (err->status = MR_E_IO) : MR_E_IO;
    }
    f->root = mr_strndup(real, strlen(real));
    path = mr_path_join(f->root, name);
    rc = mr_path_inside(f->root, links, path, &f->dir, err);
    f->shared.links += rc == MR_OK && strcmp(path, f->dir) != 0;
    mr_free(path);
    if (rc == MR_OK && (strcmp(f->dir, f->root) == 0 || !is_dir(f->dir))) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "%.300s is not a folder of the repository", f->dir);
    }
    return rc;
}

int mr_folder_config_path(char **out, const char *repository, const char *const *links, mr_str name,
                          const char *config_name, struct mr_err *err)
{
    struct mr_folder f;
    int rc = folder_find(&f, repository, links, name, err);

    rc = rc < 0 ? rc : config_find(&f, config_name, err);
    if (rc == MR_OK) {
        *out = f.config_path;
        f.config_path = NULL;
    }
    mr_folder_fini(&f);
    return rc;
}

int mr_folder_read(struct mr_folder *f, const char *repository, const char *const *links,
                   mr_str name, const char *config_name, mr_folder_visit_fn *visit, void *ctx,
                   struct mr_err *err)
{
    int rc = folder_find(f, repository, links, name, err);

    if (!f->root) {
        return rc;
    }
    if (rc == MR_E_NOT_FOUND && settings_collect(f, name, visit, ctx)) {
        return MR_OK;
    }
    if (rc == MR_OK) {
        rc = contents_read(f, visit, ctx, err);
    }
    if (rc == MR_OK) {
        rc = config_find(f, config_name, err);
    }
    if (rc < 0) {
        return rc;
    }
    if (f->config_path) {
        whole_take(f);
    } else if (!settings_are_foreign(f->dir) && !settings_collect(f, name, visit, ctx) &&
               settings_are_in(f->dir)) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "%.300s is a model of another name", f->dir);
    }
    return MR_OK;
}

void mr_folder_fini(struct mr_folder *f)
{
    versions_free(f);
    mr_free(f->root);
    mr_free(f->dir);
    mr_free(f->config_path);
    archive_repository_unref(&f->archive);
    *f = (struct mr_folder){0};
}

const struct mr_folder_version *mr_folder_find(const struct mr_folder *f, int64_t number)
{
    for (size_t i = 0; i < f->versions.len; i++) {
        if (f->versions.at[i].number == number) {
            return &f->versions.at[i];
        }
    }
    return NULL;
}

/* ---- names of a repository ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct mr_name *)a)->name, ((const struct mr_name *)b)->name);
}

typedef MR_VEC(struct mr_name) name_vec;

static void name_add(name_vec *names, mr_str name)
{
    struct mr_err why = {0};

    if (mr_model_name_check(name, &why) < 0) {
        mr_log(MR_LOG_WARN, "model.folder_ignored", "name=%s %s", MR_LOG_STR(name), why.msg);
        return;
    }
    MR_VEC_PUSH(names, ((struct mr_name){mr_strndup(name.ptr, name.len), 1}));
}

/* Names of models of MLServer, each once, and in `tops` the folders of the repository that these are in. */
static void settings_names(const char *repository, name_vec *names, struct mr_map *tops)
{
    const size_t top = strlen(repository) + 1;
    settings_list list = {0};
    struct mr_map seen = {0};

    settings_find(repository, &list, NULL);
    for (size_t i = 0; i < list.len; i++) {
        const struct settings_file *s = &list.at[i];
        mr_str name = mr_str_c(s->name), below, first;
        if (!mr_map_find(&seen, name)) {
            mr_map_put(&seen, name, tops);
            name_add(names, name);
        }
        below = strlen(s->dir) > top ? mr_str_c(s->dir + top) : MR_STR("");
        if (mr_str_split(&below, '/', &first)) {
            mr_map_put(tops, first, tops);
        }
    }
    mr_map_fini(&seen);
    settings_free(&list);
}

static int names_of(const char *repository, name_vec *names, struct mr_err *err)
{
    struct mr_map tops = {0};
    struct dirent *e;
    DIR *d = opendir(repository);

    if (!d) {
        return mr_path_errno(repository, errno, err);
    }
    settings_names(repository, names, &tops);
    while ((e = readdir(d))) {
        mr_str name = mr_str_c(e->d_name);
        /* Whether a link leads to a folder, and where, is found out when it is loaded. */
        bool may_be_dir = e->d_type == DT_DIR || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN;
        if (e->d_name[0] == '.' || !may_be_dir) {
            continue;
        }
        if (e->d_type != DT_DIR) {
            char *path = mr_path_join(repository, name);
            struct stat st;
            bool is_file = stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
            mr_free(path);
            if (is_file) {
                continue;
            }
        }
        if (!mr_map_find(&tops, name)) {
            name_add(names, name);
        }
    }
    closedir(d);
    mr_map_fini(&tops);
    return MR_OK;
}

int mr_names_read(const char *const *repositories, size_t count, const char *const *more,
                  size_t more_count, struct mr_name_list *out, struct mr_err *err)
{
    name_vec names = {0};
    int rc = MR_OK;

    for (size_t i = 0; i < more_count; i++) {
        MR_VEC_PUSH(&names, ((struct mr_name){mr_strndup(more[i], strlen(more[i])), 1}));
    }

    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        rc = names_of(repositories[i], &names, err);
    }
    struct mr_name_list list = {names.at, 0};
    if (names.len > 1) {
        qsort(names.at, names.len, sizeof *names.at, by_name);
    }
    for (size_t i = 0; i < names.len; i++) {
        if (list.len > 0 && strcmp(list.at[list.len - 1].name, names.at[i].name) == 0) {
            list.at[list.len - 1].count++;
            mr_free(names.at[i].name);
        } else {
            list.at[list.len++] = names.at[i];
        }
    }
    if (rc < 0) {
        mr_names_fini(&list);
        return rc;
    }
    *out = list;
    return MR_OK;
}

void mr_names_fini(struct mr_name_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        mr_free(list->at[i].name);
    }
    mr_free(list->at);
    *list = (struct mr_name_list){0};
}
