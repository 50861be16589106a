/* Links in a folder of their own.
 *
 * A type that is known takes the place of a configuration: a config.pbtxt with the backend is written beside the links to the
 * versions; for sklearn, which MLServer's runtime stands for, also a model-settings.json in each version. A folder of MLServer, whose
 * model-settings.json says its name, becomes a folder with another such file and links to the rest. */
#include "model/place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"
#include "codec/json.h"
#include "config_priv.h"
#include "model/folder/folder.h"
#include "model/model.h"

/* What a type says of a model. */
static const struct format {
    const char *type;
    const char *config;
    const char *implementation; /* of MLServer; NULL: it does without */
    /* Names that the file has in its version; with another ending it takes the first. */
    const char *files[4];
} formats[] = {
    {"onnx", "backend: \"onnxruntime\"\n", NULL, {"model.onnx"}},
    {"python", "backend: \"python\"\n", NULL, {"model.py"}},
    {"xgboost", "backend: \"xgboost\"\n", NULL, {"model.json", "model.ubj", "model.bst"}},
    {"lightgbm", "backend: \"lightgbm\"\n", NULL, {"model.txt", "model.bst"}},
    {"sklearn",
     "backend: \"python\"\nmodel_transaction_policy { decoupled: true }\n",
     "mlserver_sklearn.SKLearnModel",
     {"model.joblib", "model.pickle", "model.pkl"}},
};
#define KEY_MAX      4096
#define SETTINGS_MAX ((size_t)1 << 20)
#define FORMAT_COUNT (sizeof formats / sizeof *formats)

struct placing {
    const char *folder; /* of the model, to be made */
    const char *path;   /* of its files */
    bool is_file;
    const struct format *format; /* NULL: the type is not known */
};

/* KServe's form is mt:FORMAT, with ":VERSION" and "|pv:PROTOCOL" after it. */
static const struct format *format_of(mr_str type)
{
    mr_str name = mr_str_starts(type, MR_STR("mt:")) ? mr_str_sub(type, 3, type.len) : type;
    size_t len = 0;

    while (len < name.len && name.ptr[len] != ':' && name.ptr[len] != '|') {
        len++;
    }
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (mr_str_eq_c(mr_str_sub(name, 0, len), formats[i].type)) {
            return &formats[i];
        }
    }
    return NULL;
}

static int read_name(struct mr_json *j, mr_str *out)
{
    bool first = true;
    mr_str member;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &member)) {
        rc = mr_str_eq_c(member, "name") ? mr_json_string(j, out) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

mr_str mr_model_type_of(mr_str type, mr_str key, struct mr_arena *arena)
{
    mr_str found = {0}, member, text;
    struct mr_json j, part;
    bool first = true;

    if (format_of(type) || key.len > KEY_MAX || !mr_str_starts(key, MR_STR("{"))) {
        return type;
    }
    mr_json_init(&j, key, arena, 0, NULL);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &member)) {
        rc = mr_json_skip(&j, &text);
        if (rc == MR_OK && mr_str_eq_c(member, "model_type")) {
            mr_json_init(&part, text, arena, 0, NULL);
            rc = mr_str_starts(text, MR_STR("{")) ? read_name(&part, &found)
                                                  : mr_json_string(&part, &found);
        }
    }
    return format_of(found) ? found : type;
}

static const char *end_of(const char *path)
{
    const char *dot = strrchr(strrchr(path, '/'), '.');

    return dot ? dot : "";
}

/* How the model's file is called in its version. */
static void file_name(const struct placing *p, char *out, size_t room)
{
    const struct format *f = p->format;
    const char *end = end_of(p->path);

    snprintf(out, room, "%s", f ? f->files[0] : "");
    for (size_t i = 0; f && f->files[i]; i++) {
        if (strcmp(strrchr(f->files[i], '.'), end) == 0) {
            snprintf(out, room, "%s", f->files[i]);
        }
    }
    if (!f) {
        snprintf(out, room, "model%.64s", end);
    }
}

/* What a folder has at its top. */
struct contents {
    bool has_config, has_versions, has_settings;
};

static int contents_read(const char *folder, struct contents *out, struct mr_err *err)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    int64_t number;

    if (!d) {
        return mr_path_errno(folder, errno, err);
    }
    while ((e = readdir(d)) != NULL) {
        out->has_config |= strcmp(e->d_name, "config.pbtxt") == 0;
        out->has_settings |= strcmp(e->d_name, MR_MODEL_SETTINGS) == 0;
        out->has_versions |= mr_version_number(mr_str_c(e->d_name), &number);
    }
    closedir(d);
    return MR_OK;
}

static int link_make(const char *in, mr_str name, const char *target, struct mr_err *err)
{
    char *path = mr_path_join(in, name);
    int rc = MR_OK;

    if (symlink(target, path) != 0) {
        rc = mr_path_errno(path, errno, err);
    }
    mr_free(path);
    return rc;
}

static int text_write(const char *in, const char *name, const char *text, struct mr_err *err)
{
    char *path = mr_path_join(in, mr_str_c(name));
    FILE *f = fopen(path, "we");
    const bool is_written = f && fputs(text, f) >= 0;
    int rc = MR_OK;

    if ((f && fclose(f) != 0) || !is_written) {
        rc = mr_path_errno(path, errno, err);
    }
    mr_free(path);
    return rc;
}

static int folder_make(const char *folder, struct mr_err *err)
{
    return mkdir(folder, 0700) == 0 ? MR_OK : mr_path_errno(folder, errno, err);
}

/* A version that consists of what is at `target`. */
static int version_make(const struct placing *p, mr_str number, const char *target,
                        struct mr_err *err)
{
    const char *implementation = p->format ? p->format->implementation : NULL;
    char name[NAME_MAX + 1] = "model", text[NAME_MAX + 256];
    char *version = mr_path_join(p->folder, number);
    int rc;

    if (!p->is_file && !implementation) {
        rc = link_make(p->folder, number, target, err);
        goto out;
    }
    if (p->is_file) {
        file_name(p, name, sizeof name);
    }
    MR_TRY(folder_make(version, err));
    MR_TRY(link_make(version, mr_str_c(name), target, err));
    if (implementation) {
        snprintf(text, sizeof text,
                 "{\"implementation\": \"%s\", \"parameters\": {\"uri\": \"./%s\"}}\n",
                 implementation, name);
        MR_TRY(text_write(version, MR_MODEL_SETTINGS, text, err));
    }
out:
    mr_free(version);
    return rc;
}

static int versions_make(const struct placing *p, struct mr_err *err)
{
    DIR *d = opendir(p->path);
    const struct dirent *e;
    int64_t number;
    int rc = d ? MR_OK : mr_path_errno(p->path, errno, err);

    while (rc == MR_OK && (e = readdir(d)) != NULL) {
        if (mr_version_number(mr_str_c(e->d_name), &number)) {
            char *target = mr_path_join(p->path, mr_str_c(e->d_name));
            rc = version_make(p, mr_str_c(e->d_name), target, err);
            mr_free(target);
        }
    }
    if (d) {
        closedir(d);
    }
    return rc;
}

/* Without a configuration and a type that is known, the files have to say what they are. */
static int kind_check(const struct placing *p, mr_str type, struct mr_err *err)
{
    char file[NAME_MAX + 1], known[128] = "";

    file_name(p, file, sizeof file);
    if (p->format || (p->is_file ? mr_config_file_says(file) : mr_config_folder_says(p->path))) {
        return MR_OK;
    }
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        const size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i ? ", " : "", formats[i].type);
    }
    return MR_FAIL(
        err, MR_E_INVALID,
        "%.300s does not say which backend it is for, nor does its type '%.*s', which is "
        "none of %s",
        p->path, MR_STR_ARG(mr_str_sub(type, 0, 64)), known);
}

static int model_make(const struct placing *p, bool has_versions, struct mr_err *err)
{
    int rc = folder_make(p->folder, err);

    if (rc == MR_OK && p->format) {
        rc = text_write(p->folder, "config.pbtxt", p->format->config, err);
    }
    if (rc < 0) {
        return rc;
    }
    return has_versions ? versions_make(p, err) : version_make(p, MR_STR("1"), p->path, err);
}

/* ---- folders of MLServer ---- */

/* All that the file says, but for the name. */
static int settings_write(const char *to, const char *from, mr_str name, struct mr_err *err)
{
    char *path = mr_path_join(from, MR_STR(MR_MODEL_SETTINGS));
    mr_str key, value;
    struct mr_arena arena;
    struct mr_json j;
    struct mr_buf b;
    char *data = NULL;
    size_t len = 0;
    bool first = true;

    mr_arena_init(&arena, 0, 2 * SETTINGS_MAX);
    mr_buf_init(&b, 2 * SETTINGS_MAX);
    int rc = mr_file_read(path, SETTINGS_MAX, &data, &len, err);
    if (rc == MR_OK) {
        mr_json_init(&j, mr_str_n(data, len), &arena, 0, err);
        rc = mr_json_enter_object(&j);
    }
    mr_buf_c(&b, "{\"name\": ");
    mr_json_put_string(&b, name);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = mr_json_skip(&j, &value);
        if (rc == MR_OK && !mr_str_eq_c(key, "name")) {
            mr_buf_c(&b, ", ");
            mr_json_put_string(&b, key);
            mr_buf_c(&b, ": ");
            mr_buf_str(&b, value);
        }
    }
    mr_buf_c(&b, "}\n");
    rc = rc == MR_OK && data ? j.status : rc;
    if (rc == MR_OK) {
        rc = text_write(to, MR_MODEL_SETTINGS, mr_buf_cstr(&b), err);
    } else {
        MR_WRAP(err, rc, "%.300s", path);
    }
    mr_buf_fini(&b);
    mr_arena_fini(&arena);
    mr_free(data);
    mr_free(path);
    return rc;
}

/* Its file says the name of the model: that is another one here, beside links to the rest. */
static int mlserver_make(const struct placing *p, mr_str name, struct mr_err *err)
{
    DIR *d = opendir(p->path);
    const struct dirent *e;
    int rc = d ? folder_make(p->folder, err) : mr_path_errno(p->path, errno, err);

    while (rc == MR_OK && (e = readdir(d)) != NULL) {
        if (e->d_name[0] != '.' && strcmp(e->d_name, MR_MODEL_SETTINGS) != 0) {
            char *target = mr_path_join(p->path, mr_str_c(e->d_name));
            rc = link_make(p->folder, mr_str_c(e->d_name), target, err);
            mr_free(target);
        }
    }
    if (d) {
        closedir(d);
    }
    return rc == MR_OK ? settings_write(p->folder, p->path, name, err) : rc;
}

int mr_model_place(const char *placed, mr_str name, const char *path, mr_str type,
                   struct mr_err *err)
{
    struct contents c = {0};
    struct stat st;
    int rc;

    if (stat(path, &st) != 0) {
        return mr_path_errno(path, errno, err);
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s: neither a file nor a folder", path);
    }
    struct placing p = {.path = path, .is_file = S_ISREG(st.st_mode), .format = format_of(type)};
    if (!p.is_file) {
        MR_TRY(contents_read(path, &c, err));
    }
    const bool is_mlserver = c.has_settings && !c.has_config;
    if (c.has_config || (c.has_versions && !p.format && !is_mlserver)) {
        return link_make(placed, name, path, err);
    }
    if (!is_mlserver) {
        MR_TRY(kind_check(&p, type, err));
    }
    char *folder = mr_path_join(placed, name);
    p.folder = folder;
    rc = is_mlserver ? mlserver_make(&p, name, err) : model_make(&p, c.has_versions, err);
    mr_free(folder);
out:
    return rc;
}
