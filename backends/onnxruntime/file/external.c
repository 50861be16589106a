/* Files that a model file refers to: weights kept as "external data" next to it. ONNX Runtime opens any path in the
 * model, in some versions also one outside of its folder, and a model may come from a client. So the paths are
 * checked here before a session is made: each must lead to a regular file inside the repository, after resolving
 * links.
 *
 * Only the messages on the way to TensorProto.external_data are read, and on it the names of operators; everything
 * else is skipped by its length, so that weights in the file are not read. Reading is strict: an invalid file is
 * refused, as the rest of it would not be checked. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fields.h"
#include "onnxruntime/session/onnx.h"

#define DEPTH_MAX 100 /* of nested messages, as in protobuf's own readers */

/* Message types on the way, by onnx.proto. */
enum kind { K_MODEL, K_TRAINING, K_GRAPH, K_NODE, K_ATTRIBUTE, K_SPARSE, K_FUNCTION, K_TENSOR };
#define K_EXTERNAL (K_TENSOR + 1) /* StringStringEntryProto: key 1, value 2 */

static const struct way {
    unsigned char in;
    unsigned char field;
    unsigned char to;
} ways[] = {
    {K_MODEL, 7, K_GRAPH},         {K_MODEL, 20, K_TRAINING},   {K_MODEL, 25, K_FUNCTION},
    {K_TRAINING, 1, K_GRAPH},      {K_TRAINING, 2, K_GRAPH},    {K_GRAPH, 1, K_NODE},
    {K_GRAPH, 5, K_TENSOR},        {K_GRAPH, 15, K_SPARSE},     {K_NODE, 5, K_ATTRIBUTE},
    {K_ATTRIBUTE, 5, K_TENSOR},    {K_ATTRIBUTE, 6, K_GRAPH},   {K_ATTRIBUTE, 10, K_TENSOR},
    {K_ATTRIBUTE, 11, K_GRAPH},    {K_ATTRIBUTE, 22, K_SPARSE}, {K_ATTRIBUTE, 23, K_SPARSE},
    {K_SPARSE, 1, K_TENSOR},       {K_SPARSE, 2, K_TENSOR},     {K_FUNCTION, 7, K_NODE},
    {K_FUNCTION, 11, K_ATTRIBUTE}, {K_TENSOR, 13, K_EXTERNAL},
};

struct walk {
    const char *file;         /* the model */
    const char *root;         /* resolved folder that must contain everything, */
    const char *const *links; /* or in one of these; NULL: none */
    struct mr_err *err;
    struct onnx_contents contents;
    struct onnx_reader reader;
};

/* `path` lies in the folder `root`, or is it; both resolved. */
static int is_inside(const char *root, const char *path)
{
    size_t n = strlen(root);
    return strncmp(root, path, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

static int is_allowed(const struct walk *w, const char *path)
{
    for (size_t i = 0; w->links && w->links[i]; i++) {
        if (is_inside(w->links[i], path)) {
            return 1;
        }
    }
    return is_inside(w->root, path);
}

/* As in ONNX: relative, without "..". ONNX Runtime takes names that begin with a star and a slash for addresses in
 * memory and would read there; a load request can contain a file of such a name. */
static int is_below(const char *location)
{
    if (!location[0] || location[0] == '/' || strncmp(location, "*/", 2) == 0) {
        return 0;
    }
    for (const char *part = location; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == '\0')) {
            return 0;
        }
    }
    return 1;
}

static int location_check(struct walk *w, const char *location)
{
    char path[PATH_MAX];
    char real[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(w->file, '/');
    int folder = slash ? (int)(slash - w->file) + 1 : 0;
    int n = snprintf(path, sizeof path, "%.*s%s", folder, w->file, location);

    if (!is_below(location) || n < 0 || n >= PATH_MAX) {
        return mr_backend_fail(w->err, MR_E_FORBIDDEN,
                               "the model's external data '%.200s' is no path beside or below the "
                               "model file",
                               location);
    }
    if (!realpath(path, real)) {
        return mr_backend_fail(w->err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO,
                               "cannot open the model's external data '%.200s': %s", location,
                               strerror(errno));
    }
    if (!is_allowed(w, real)) {
        return mr_backend_fail(
            w->err, MR_E_FORBIDDEN,
            "the model's external data '%.200s' leads out of the repository; links "
            "to a folder elsewhere take --allow-links-to=DIR",
            location);
    }
    if (stat(real, &st) != 0 || !S_ISREG(st.st_mode)) {
        return mr_backend_fail(w->err, MR_E_INVALID,
                               "the model's external data '%.200s' is not a regular file",
                               location);
    }
    return MR_OK;
}

static int broken(const struct walk *w)
{
    return mr_backend_fail(w->err, MR_E_INVALID,
                           "the model file '%s' is not a valid ONNX model: broken protobuf",
                           w->file);
}

static int entry_check(struct walk *w, struct onnx_slice s)
{
    char text[PATH_MAX] = "";
    struct onnx_field f;
    struct onnx_slice value = {0, 0};
    int is_location = 0;

    while (s.at < s.end) {
        if (!onnx_field_next(&w->reader, &s, &f)) {
            return broken(w);
        }
        if (f.number == 1 && f.has_bytes) {
            is_location =
                onnx_text_read(&w->reader, f.bytes, text, 16) && strcmp(text, "location") == 0;
        } else if (f.number == 2 && f.has_bytes) {
            value = f.bytes;
        }
    }
    if (!is_location) {
        return MR_OK;
    }
    w->contents.external++;
    return onnx_text_read(&w->reader, value, text, sizeof text) ? location_check(w, text)
                                                                : broken(w);
}

static int message_check(struct walk *w, int kind, struct onnx_slice s, int depth);

/* NodeProto.op_type. */
static void operator_note(struct walk *w, struct onnx_slice s)
{
    char name[8];

    w->contents.has_loop |=
        onnx_text_read(&w->reader, s, name, sizeof name) && !strcmp(name, "Loop");
}

/* Checks a field of a message; descends if it may lead to external data. */
static int field_check(struct walk *w, int kind, const struct onnx_field *f, int depth)
{
    if (kind == K_NODE && f->number == 4 && f->has_bytes) {
        operator_note(w, f->bytes);
    }
    for (size_t i = 0; f->has_bytes && i < sizeof ways / sizeof *ways; i++) {
        if (ways[i].in == kind && ways[i].field == f->number) {
            return ways[i].to == K_EXTERNAL ? entry_check(w, f->bytes)
                                            : message_check(w, ways[i].to, f->bytes, depth + 1);
        }
    }
    return MR_OK;
}

static int message_check(struct walk *w, int kind, struct onnx_slice s, int depth)
{
    struct onnx_field f;
    int rc = depth > DEPTH_MAX ? broken(w) : MR_OK;

    while (rc == MR_OK && s.at < s.end) {
        rc = onnx_field_next(&w->reader, &s, &f) ? field_check(w, kind, &f, depth) : broken(w);
    }
    return rc;
}

/* Such a file contains its weights, and its names refer to no other file. */
int onnx_is_ort_name(const char *file)
{
    size_t n = strlen(file);

    return n > 4 && strcasecmp(file + n - 4, ".ort") == 0;
}

static int content_check(struct walk *w, uint64_t bytes)
{
    int rc = MR_OK;

    w->reader.fd = open(w->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (w->reader.fd < 0) {
        return mr_backend_fail(w->err, MR_E_IO, "cannot read the model file '%s': %s", w->file,
                               strerror(errno));
    }
    if (!onnx_is_ort_name(w->file)) {
        rc = message_check(w, K_MODEL, (struct onnx_slice){0, bytes}, 0);
    }
    close(w->reader.fd);
    return rc;
}

int onnx_files_check(const struct mr_model_desc *desc, const char *file, uint64_t bytes,
                     struct onnx_contents *out, struct mr_err *err)
{
    char root[PATH_MAX];
    char real[PATH_MAX];
    struct walk w = {.file = file, .root = root, .err = err};
    int has_root = desc->size >= offsetof(struct mr_model_desc, repository_dir) + sizeof(char *) &&
                   desc->repository_dir;
    const char *given = has_root ? desc->repository_dir : desc->model_dir;

    if (!given || !realpath(given, root) || !realpath(file, real)) {
        return mr_backend_fail(err, MR_E_IO, "cannot find out where the model file '%s' lies",
                               file);
    }
    if (desc->size >= offsetof(struct mr_model_desc, link_dirs) + sizeof(char *)) {
        w.links = desc->link_dirs;
    }
    if (!is_allowed(&w, real)) {
        return mr_backend_fail(err, MR_E_FORBIDDEN,
                               "the model file '%s' leads out of the repository; links to a folder "
                               "elsewhere take --allow-links-to=DIR",
                               file);
    }
    int rc = content_check(&w, bytes); /* ONNX Runtime searches next to the given path */
    *out = w.contents;
    return rc;
}
