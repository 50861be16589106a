#include "settings.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "codec/json.h"
#include "folder.h"
#include "model/model.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

static bool is_file(const char *dir, mr_str name)
{
    char *path = mr_path_join(dir, name);
    struct stat st;
    bool found = stat(path, &st) == 0 && S_ISREG(st.st_mode);

    mr_free(path);
    return found;
}

bool settings_are_in(const char *dir)
{
    return is_file(dir, MR_STR(MR_MODEL_SETTINGS));
}

static bool is_dir(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool settings_are_foreign(const char *dir)
{
    struct dirent *e;
    bool is_foreign = is_file(dir, MR_STR("config.pbtxt"));
    DIR *d = is_foreign ? NULL : opendir(dir);
    int64_t number;

    while (d && !is_foreign && (e = readdir(d))) {
        if (mr_version_number(mr_str_c(e->d_name), &number)) {
            char *path = mr_path_join(dir, mr_str_c(e->d_name));
            is_foreign = is_dir(path) && !settings_are_in(path) && !settings_are_in(dir);
            mr_free(path);
        }
    }
    if (d) {
        closedir(d);
    }
    return is_foreign;
}

/* ---- one file ---- */

/* A number, which may be written as text. */
static int number_read(struct mr_json *j, double *out)
{
    mr_str text;

    if (mr_json_peek(j) != MR_JSON_STRING) {
        return mr_json_double(j, out);
    }
    const int rc = mr_json_string(j, &text);
    if (rc == MR_OK && !mr_text_double(text, out)) {
        *out = 0;
    }
    return rc;
}

static int text_read(struct mr_json *j, char **out)
{
    mr_str text;

    if (mr_json_peek(j) != MR_JSON_STRING) {
        return mr_json_skip(j, NULL);
    }
    const int rc = mr_json_string(j, &text);
    if (rc == MR_OK && text.len > 0) {
        mr_free(*out);
        *out = mr_strndup(text.ptr, text.len);
    }
    return rc;
}

static void variable_take(char **text, const char *name)
{
    const char *given = getenv(name);

    if (!*text && given && given[0]) {
        *text = mr_strndup(given, strlen(given));
    }
}

static int parameters_read(struct mr_json *j, struct settings_file *f)
{
    bool first = true;
    mr_str key;

    if (mr_json_peek(j) != MR_JSON_OBJECT) {
        return mr_json_skip(j, NULL);
    }
    int rc = mr_json_enter_object(j);
    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "version") ? text_read(j, &f->version) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int member_read(struct mr_json *j, mr_str key, struct settings_file *f)
{
    double number = 0;
    int rc;

    if (mr_str_eq_c(key, "name")) {
        return text_read(j, &f->name);
    }
    if (mr_str_eq_c(key, "parameters")) {
        return parameters_read(j, f);
    }
    if (mr_str_eq_c(key, "max_batch_time")) {
        return number_read(j, &f->max_batch_time_s);
    }
    if (!mr_str_eq_c(key, "max_batch_size")) {
        return mr_json_skip(j, NULL);
    }
    rc = number_read(j, &number);
    f->max_batch_size = number >= 1 && number <= 1e9 ? (int64_t)number : 0;
    return rc;
}

static int text_parse(mr_str text, struct settings_file *f, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_arena_init(&arena, 0, 2 * FILE_BYTES_MAX);
    mr_json_init(&j, text, &arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = member_read(&j, key, f);
    }
    rc = rc < 0 ? rc : j.status;
    mr_arena_fini(&arena);
    return rc;
}

/* The folder's name; of a folder that is a version of its parent, the parent's. */
static char *folder_name(const char *dir)
{
    const char *slash = strrchr(dir, '/');
    mr_str name = mr_str_c(slash ? slash + 1 : dir);
    int64_t number;

    if (slash && mr_version_number(name, &number)) {
        mr_str parent = mr_str_n(dir, (size_t)(slash - dir));
        const char *above = memrchr(dir, '/', parent.len);
        name = above ? mr_str_n(above + 1, (size_t)(slash - above - 1)) : parent;
    }
    return mr_strndup(name.ptr, name.len);
}

static void file_take(const char *dir, settings_list *out)
{
    struct settings_file f = {.dir = mr_strndup(dir, strlen(dir))};
    char *path = mr_path_join(dir, MR_STR(MR_MODEL_SETTINGS));
    char *data = NULL;
    struct mr_err err;
    size_t len = 0;
    int rc = mr_file_read(path, FILE_BYTES_MAX, &data, &len, &err);

    if (rc == MR_OK) {
        rc = text_parse(mr_str_n(data, len), &f, &err);
    }
    if (rc < 0) {
        mr_log(MR_LOG_WARN, "model.settings", "path=%s %s", MR_LOG_STR(mr_str_c(path)), err.msg);
    }
    variable_take(&f.version, "MLSERVER_MODEL_VERSION");
    if (!f.name) {
        f.name = folder_name(dir);
    }
    mr_free(data);
    mr_free(path);
    MR_VEC_PUSH(out, f);
}

/* ---- its environment ---- */

struct environment {
    char *path;
    char *tarball;
};

static int environment_parameters_read(struct mr_json *j, struct environment *e)
{
    bool first = true;
    mr_str key;

    if (mr_json_peek(j) != MR_JSON_OBJECT) {
        return mr_json_skip(j, NULL);
    }
    int rc = mr_json_enter_object(j);
    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_str_eq_c(key, "environment_path")      ? text_read(j, &e->path)
             : mr_str_eq_c(key, "environment_tarball") ? text_read(j, &e->tarball)
                                                       : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static void environment_read(mr_str text, struct environment *e)
{
    struct mr_arena arena;
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_arena_init(&arena, 0, 2 * FILE_BYTES_MAX);
    mr_json_init(&j, text, &arena, 0, NULL);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = mr_str_eq_c(key, "parameters") ? environment_parameters_read(&j, e)
                                            : mr_json_skip(&j, NULL);
    }
    mr_arena_fini(&arena);
}

void settings_environment(const char *dir, char **out)
{
    char *file = mr_path_join(dir, MR_STR(MR_MODEL_SETTINGS));
    struct environment e = {NULL, NULL};
    char *text = NULL;
    size_t len = 0;

    *out = NULL;
    if (mr_file_read(file, FILE_BYTES_MAX, &text, &len, NULL) == MR_OK) {
        environment_read(mr_str_n(text, len), &e);
    }
    variable_take(&e.path, "MLSERVER_MODEL_ENVIRONMENT_PATH");
    variable_take(&e.tarball, "MLSERVER_MODEL_ENVIRONMENT_TARBALL");
    if (e.path) {
        *out = e.path;
        e.path = NULL;
    } else if (e.tarball) {
        *out = e.tarball[0] == '/' ? mr_strndup(e.tarball, strlen(e.tarball))
                                   : mr_path_join(dir, mr_str_c(e.tarball));
    }
    mr_free(e.path);
    mr_free(e.tarball);
    mr_free(text);
    mr_free(file);
}

/* ---- all of them ---- */

struct search {
    settings_list *out;
    size_t dirs;
};

static void search_dir(struct search *s, const char *dir, DIR *d, int depth);

static void search_entry(struct search *s, const char *dir, const struct dirent *e, int depth)
{
    /* Links further down are not followed: they may lead in circles. */
    const bool may_be_dir = e->d_type == DT_DIR || (depth == 0 && e->d_type != DT_REG);

    if (e->d_name[0] == '.' || !may_be_dir || depth >= MR_FOLDER_MAX_DEPTH) {
        return;
    }
    char *path = mr_path_join(dir, mr_str_c(e->d_name));
    bool is_searched = strlen(path) < PATH_MAX && is_dir(path) && !settings_are_foreign(path);
    DIR *d = is_searched && s->dirs++ < MR_FOLDER_MAX_FILES ? opendir(path) : NULL;
    if (d) {
        search_dir(s, path, d, depth + 1);
        closedir(d);
    }
    mr_free(path);
}

static void search_dir(struct search *s, const char *dir, DIR *d, int depth)
{
    struct dirent *e;

    if (settings_are_in(dir)) {
        file_take(dir, s->out);
    }
    while ((e = readdir(d))) {
        search_entry(s, dir, e, depth);
    }
}

int settings_find(const char *dir, settings_list *out, struct mr_err *err)
{
    struct search s = {out, 0};
    DIR *d = opendir(dir);

    if (!d) {
        return mr_path_errno(dir, errno, err);
    }
    search_dir(&s, dir, d, 0);
    closedir(d);
    return MR_OK;
}

/* Numbers before other texts before none. */
static int kind_of(const struct settings_file *f, int64_t *out_number)
{
    if (!f->version) {
        return 2;
    }
    return mr_version_number(mr_str_c(f->version), out_number) ? 0 : 1;
}

static int by_version(const void *a, const void *b)
{
    const struct settings_file *x = a, *y = b;
    int64_t i = 0, k = 0;
    const int p = kind_of(x, &i), q = kind_of(y, &k);

    if (p != q) {
        return p - q;
    }
    const int order = p == 0 ? (i > k) - (i < k) : p == 1 ? strcmp(x->version, y->version) : 0;
    return order ? order : strcmp(x->dir, y->dir);
}

void settings_sort(settings_list *list)
{
    if (list->len > 1) {
        qsort(list->at, list->len, sizeof *list->at, by_version);
    }
}

void settings_free(settings_list *list)
{
    for (size_t i = 0; i < list->len; i++) {
        mr_free(list->at[i].dir);
        mr_free(list->at[i].name);
        mr_free(list->at[i].version);
    }
    MR_VEC_FINI(list);
}
