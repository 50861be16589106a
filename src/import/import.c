/* Which format a file has, and what the readers of all formats share. */
#include "import_priv.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_MAX   (256u << 20)
#define MODELS_MAX  10000u
#define TENSORS_MAX 10000u

int import_no_memory(struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXHAUSTED, "no memory");
}

int import_count(struct mr_import *im, size_t count, const struct doc_at *at,
                 const struct doc *value, struct mr_err *err)
{
    im->tensors += count;
    return im->tensors <= TENSORS_MAX
               ? MR_OK
               : DOC_FAIL(err, MR_E_TOO_LARGE, at, value,
                          "the steps of the file have more than %u tensors", TENSORS_MAX);
}

int import_add(struct mr_import *im, mr_str name, const struct emit *config, const char *model_file,
               struct mr_err *err)
{
    const mr_str text = mr_buf_view(&config->buf);
    struct mr_import_model m = {.name = mr_arena_str(&im->arena, name).ptr,
                                .config = mr_arena_str(&im->arena, text),
                                .model_file = model_file};

    for (size_t i = 0; i < im->models.len; i++) {
        if (mr_str_eq_c(name, im->models.at[i].name)) {
            return MR_FAIL(err, MR_E_INVALID, "two models are named '%.128s'", name.ptr);
        }
    }
    if (im->models.len == MODELS_MAX || config->buf.failed) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "more than %u models, or a text of 64 MiB", MODELS_MAX);
    }
    if (!m.name || !m.config.ptr) {
        return import_no_memory(err);
    }
    MR_VEC_PUSH(&im->models, m);
    return MR_OK;
}

/* ---- workflows ---- */

#define QUOTED_MAX 80 /* longer names are cut in messages */

static bool has_quoted(mr_str message, mr_str name)
{
    const mr_str part = mr_str_sub(name, 0, QUOTED_MAX);
    size_t from = 0;

    for (ptrdiff_t at = 0; part.len > 0 && at >= 0; from += (size_t)at + 1) {
        const mr_str rest = mr_str_sub(message, from, message.len);
        at = mr_str_find_str(rest, part);
        const size_t end = (size_t)at + part.len;
        if (at > 0 && rest.ptr[at - 1] == '\'' &&
            (part.len == QUOTED_MAX || (end < rest.len && rest.ptr[end] == '\''))) {
            return true;
        }
    }
    return false;
}

/* The line of what a message names last, its own name before ": " aside. */
static uint32_t line_of(const struct flow *f, mr_str message)
{
    const ptrdiff_t colon = mr_str_find_str(message, MR_STR(": "));
    uint32_t line = f->line;

    message = mr_str_sub(message, colon < 0 ? 0 : (size_t)colon, message.len);
    for (const struct flow_node *n = f->nodes; n; n = n->next) {
        line = has_quoted(message, n->name) ? n->line : line;
        for (const struct flow_variant *v = n->variants; v; v = v->next) {
            line = has_quoted(message, v->tag) ? v->line : line;
        }
    }
    return line;
}

static int flow_fail(const struct mr_import *im, const struct flow *f, uint32_t line, int status,
                     struct mr_err *err)
{
    const char *file = f->file ? f->file : im->file;

    return line > 0 ? MR_WRAP(err, status, "%s:%u", file, line) : MR_WRAP(err, status, "%s", file);
}

/* Whether a node asks the workflow that it is in. */
static int check_own_name(const struct mr_import *im, const struct flow *f, struct mr_err *err)
{
    for (const struct flow_node *n = f->nodes; n; n = n->next) {
        bool is_own =
            mr_str_eq(n->shadow, f->name) || (n->remote.len == 0 && mr_str_eq(n->model, f->name));
        uint32_t line = n->line;
        for (const struct flow_variant *v = n->variants; v && !is_own; v = v->next) {
            is_own = v->remote.len == 0 && mr_str_eq(v->model, f->name);
            line = v->line;
        }
        if (is_own) {
            MR_FAIL(err, MR_E_INVALID,
                    "node '%.64s': its model has the name of the workflow, '%.64s', which would "
                    "ask itself",
                    n->name.ptr, f->name.ptr);
            return flow_fail(im, f, line, MR_E_INVALID, err);
        }
    }
    return MR_OK;
}

int import_add_flow(struct mr_import *im, const struct flow *f, struct mr_err *err)
{
    struct emit e;
    int rc = check_own_name(im, f, err);

    if (rc < 0) {
        return rc;
    }
    emit_init(&e);
    flow_emit(f, &e);
    if (im->check && !e.buf.failed && (rc = im->check(mr_buf_view(&e.buf), err)) < 0) {
        rc = flow_fail(im, f, line_of(f, mr_str_c(err->msg)), rc, err);
    } else if ((rc = import_add(im, f->name, &e, NULL, err)) < 0) {
        rc = flow_fail(im, f, f->line, rc, err);
    }
    emit_fini(&e);
    if (rc == MR_OK && flow_may_skip(f)) {
        rc =
            import_warn(im, err,
                        "workflow '%.128s': some of its nodes may be left out: the defaults of its "
                        "outputs, 0 or \"\", then stand for what is not there",
                        f->name.ptr);
    }
    return rc;
}

int import_warn(struct mr_import *im, struct mr_err *err, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    const mr_str copy = mr_arena_str(&im->arena, mr_str_c(text));
    if (!copy.ptr) {
        return import_no_memory(err);
    }
    for (size_t i = 0; i < im->warnings.len; i++) {
        if (mr_str_eq_c(copy, im->warnings.at[i])) {
            return MR_OK;
        }
    }
    MR_VEC_PUSH(&im->warnings, copy.ptr);
    return MR_OK;
}

int import_skip(struct mr_import *im, const struct doc *doc, const char *kind, bool *out_skip,
                struct mr_err *err)
{
    const struct doc *is = doc_get(doc, "kind");
    const struct doc *name = doc_get(doc_get(doc, "metadata"), "name");

    *out_skip = doc->is_null || (is && mr_str_eq_c(is->text, kind));
    return !*out_skip || doc->is_null
               ? MR_OK
               : import_warn(im, err, "%s:%u: %s '%.128s' is a model, and without effect here",
                             im->file, doc->line, kind,
                             name && name->text.ptr ? name->text.ptr : "");
}

int import_signature(struct mr_import *im, mr_str model, struct signature *out, struct mr_err *err)
{
    int rc = signature_of(im->repository, model, &im->arena, out, err);

    if (rc == MR_OK && !out->is_known) {
        rc = import_warn(
            im, err,
            "the tensors of model '%.128s' are not known: INPUT and OUTPUT of type FP32 stand "
            "for them (--model-repository names a folder with its config.pbtxt)",
            model.ptr);
    }
    return rc;
}

static const struct flow_pair *answer_find(const struct flow *f, mr_str name)
{
    const struct flow_pair *a = f->answers;

    while (a && !mr_str_eq(a->name, name)) {
        a = a->next;
    }
    return a;
}

int import_answer(struct mr_import *im, struct flow *f, mr_str node, mr_str name,
                  struct mr_err *err)
{
    return answer_find(f, name) || flow_pair_add(&f->answers, node, name, &im->arena)
               ? MR_OK
               : import_no_memory(err);
}

mr_str import_tensor_name(struct mr_import *im, const struct flow *f, mr_str node, mr_str name)
{
    const struct flow_pair *answer = answer_find(f, name);
    bool is_taken = flow_tensor_find(f->inputs, name) || (answer && !mr_str_eq(answer->of, node));

    for (const struct flow_node *n = f->nodes; n && !is_taken; n = n->next) {
        for (const struct flow_pair *p = n->outputs; p && !is_taken; p = p->next) {
            is_taken = mr_str_eq(p->name, name);
        }
    }
    return is_taken ? mr_arena_printf(&im->arena, "%.*s_%.*s", MR_STR_ARG(node), MR_STR_ARG(name))
                    : name;
}

static bool has_control(mr_str s)
{
    bool has = false;

    for (size_t i = 0; i < s.len; i++) {
        has |= emit_control_bytes(mr_str_sub(s, i, s.len)) > 0;
    }
    return has;
}

int import_check_name(const struct doc_at *at, const struct doc *value, mr_str name,
                      struct mr_err *err)
{
    if (name.len == 0 || name.len > 200 || name.ptr[0] == '.' || mr_str_find(name, '/') >= 0 ||
        has_control(name)) {
        return DOC_FAIL(err, MR_E_INVALID, at, value, "'%.64s' is no name of a model", name.ptr);
    }
    return MR_OK;
}

/* ---- reading ---- */

struct format {
    const char *name;
    int (*read)(struct mr_import *im, const struct doc *doc, struct mr_err *err);
};
static const struct format formats[] = {
    {"kserve", import_kserve}, {"seldon", import_seldon}, {"ovms", import_ovms}};
#define FORMAT_COUNT (sizeof formats / sizeof *formats)

static const char *format_of(const struct doc *doc)
{
    const struct doc *kind = doc_get(doc, "kind");

    if (kind && mr_str_eq_c(kind->text, "InferenceGraph")) {
        return "kserve";
    }
    if (kind && (mr_str_eq_c(kind->text, "Pipeline") || mr_str_eq_c(kind->text, "Experiment"))) {
        return "seldon";
    }
    return doc_get(doc, "pipeline_config_list") ? "ovms" : NULL;
}

/* What the first document that is a graph says of itself: models often stand in front. */
static const struct format *format_told(const struct doc *doc)
{
    const char *name = NULL;

    for (; doc && !name; doc = doc->next) {
        name = format_of(doc);
    }
    for (size_t i = 0; name && i < FORMAT_COUNT; i++) {
        if (strcmp(formats[i].name, name) == 0) {
            return &formats[i];
        }
    }
    return NULL;
}

static int read_document(struct mr_import *im, mr_str text, const char *from, struct mr_err *err)
{
    const struct format *format = NULL;
    struct doc *doc;
    int rc = doc_parse(text, im->file, &im->arena, &doc, err);

    for (size_t i = 0; from && i < FORMAT_COUNT; i++) {
        format = strcmp(from, formats[i].name) == 0 ? &formats[i] : format;
    }
    if (rc == MR_OK && !from) {
        format = format_told(doc);
    }
    if (rc < 0) {
        return rc;
    }
    if (!format) {
        return MR_FAIL(
            err, MR_E_UNSUPPORTED,
            "%s:1: this is no InferenceGraph, Pipeline, Experiment or pipeline_config_list; "
            "--from paddle|kserve|ovms|seldon says what it is",
            im->file);
    }
    rc = format->read(im, doc, err);
    return rc < 0 || im->models.len > 0
               ? rc
               : MR_FAIL(err, MR_E_INVALID, "%s:1: there is no graph in it", im->file);
}

static int check_from(const char *from, struct mr_err *err)
{
    bool is_known = !from || strcmp(from, "paddle") == 0;

    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        is_known = is_known || strcmp(from, formats[i].name) == 0;
    }
    return is_known ? MR_OK
                    : MR_FAIL(err, MR_E_INVALID,
                              "'%.64s' is none of paddle, kserve, ovms and seldon", from);
}

int mr_import_read(struct mr_import **out, const char *path, const struct mr_import_options *o,
                   struct mr_err *err)
{
    const bool is_paddle =
        o->from ? strcmp(o->from, "paddle") == 0 : mr_str_ends(mr_str_c(path), MR_STR(".prototxt"));
    mr_str text;
    int rc = check_from(o->from, err);

    if (rc < 0) {
        return rc;
    }
    struct mr_import *im = MR_NEW(struct mr_import);
    mr_arena_init(&im->arena, 65536, ARENA_MAX);
    im->file = mr_arena_str(&im->arena, mr_str_c(path)).ptr;
    im->repository = o->repository;
    im->check = o->check;
    rc = import_read_file(path, &im->arena, &text, err);
    if (rc == MR_OK) {
        rc = is_paddle ? import_paddle(im, text, err) : read_document(im, text, o->from, err);
    }
    if (rc < 0) {
        mr_import_free(&im);
        return rc;
    }
    *out = im;
    return MR_OK;
}

void mr_import_free(struct mr_import **im)
{
    if (*im) {
        MR_VEC_FINI(&(*im)->models);
        MR_VEC_FINI(&(*im)->warnings);
        mr_arena_fini(&(*im)->arena);
        mr_freep(im);
    }
}

const struct mr_import_model *mr_import_model_at(const struct mr_import *im, size_t index)
{
    return index < im->models.len ? &im->models.at[index] : NULL;
}

const char *mr_import_warning_at(const struct mr_import *im, size_t index)
{
    return index < im->warnings.len ? im->warnings.at[index] : NULL;
}

/* ---- writing ---- */

static int io_failed(const char *path, struct mr_err *err)
{
    char text[128];

    return MR_FAIL(err, errno == EEXIST ? MR_E_EXISTS : MR_E_IO, "%.300s: %s", path,
                   strerror_r(errno, text, sizeof text));
}

static int write_config(const char *path, mr_str text, struct mr_err *err)
{
    FILE *f = fopen(path, "wxe");

    if (!f) {
        return io_failed(path, err);
    }
    const bool is_written = fwrite(text.ptr, 1, text.len, f) == text.len;
    if (fclose(f) != 0 || !is_written) {
        return io_failed(path, err);
    }
    return MR_OK;
}

static int copy_file(const char *from, const char *to, struct mr_err *err)
{
    char part[65536];
    FILE *in = fopen(from, "rbe"), *out = in ? fopen(to, "wbxe") : NULL;
    bool is_good = out != NULL;
    size_t len;

    while (is_good && (len = fread(part, 1, sizeof part, in)) > 0) {
        is_good = fwrite(part, 1, len, out) == len;
    }
    is_good = is_good && !ferror(in);
    is_good = (!out || fclose(out) == 0) && is_good;
    const int rc = is_good ? MR_OK : io_failed(in ? to : from, err);
    if (in) {
        fclose(in);
    }
    return rc;
}

static int write_file(const char *from, const char *to, bool with_links, struct mr_err *err)
{
    char source[PATH_MAX];

    if (!realpath(from, source)) {
        return io_failed(from, err);
    }
    if (with_links) {
        return symlink(source, to) == 0 ? MR_OK : io_failed(to, err);
    }
    return link(source, to) == 0 ? MR_OK : copy_file(source, to, err);
}

static int write_model(const struct mr_import_model *m, const char *folder, bool with_links,
                       struct mr_err *err)
{
    char path[PATH_MAX];
    const char *const parts[] = {"", "/1"};
    int rc = MR_OK;

    if (m->model_file && !m->model_file[0]) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "model '%.128s' has no ONNX file", m->name);
    }
    if (strlen(folder) + strlen(m->name) + 32 > sizeof path) {
        return MR_FAIL(err, MR_E_INVALID, "%.300s: too long a name", folder);
    }
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s%s", folder, m->name, parts[i]);
        if (mkdir(path, 0777) != 0) {
            return io_failed(path, err);
        }
    }
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", folder, m->name);
    rc = write_config(path, m->config, err);
    if (rc == MR_OK && m->model_file) {
        snprintf(path, sizeof path, "%s/%s/1/model.onnx", folder, m->name);
        rc = write_file(m->model_file, path, with_links, err);
    }
    return rc;
}

int mr_import_write(const struct mr_import *im, const char *folder, bool with_links,
                    struct mr_err *err)
{
    int rc = MR_OK;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return io_failed(folder, err);
    }
    for (size_t i = 0; i < im->models.len && rc == MR_OK; i++) {
        rc = write_model(&im->models.at[i], folder, with_links, err);
    }
    return rc;
}
