/* `millrace workflow import` and `draw`: from one file to another one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "cli/infer/infer.h"
#include "flow/flow.h"
#include "graph.h"
#include "import/import.h"
#include "workflow.h"

#define CONFIG_MAX (64u << 20)

int workflow_put(const char *path, mr_str text, struct mr_err *err)
{
    char why[128];
    FILE *f = path ? fopen(path, "wxe") : stdout;

    if (!f) {
        return MR_FAIL(err, errno == EEXIST ? MR_E_EXISTS : MR_E_IO, "%.300s: %s", path,
                       strerror_r(errno, why, sizeof why));
    }
    const bool is_written = fwrite(text.ptr, 1, text.len, f) == text.len;
    if ((path ? fclose(f) : fflush(f)) != 0 || !is_written) {
        return MR_FAIL(err, MR_E_IO, "%.300s cannot be written", path ? path : "standard output");
    }
    return MR_OK;
}

/* ---- import ---- */

/* One model is printed as it is; of several, each begins with a line that names its file. */
static int print_models(const struct mr_import *im, struct mr_err *err)
{
    const struct mr_import_model *m;
    const bool is_one = !mr_import_model_at(im, 1);
    struct mr_buf out;

    mr_buf_init(&out, 0);
    for (size_t i = 0; (m = mr_import_model_at(im, i)); i++) {
        if (!is_one) {
            mr_buf_printf(&out, "%s# ---- %s/config.pbtxt ----\n", i > 0 ? "\n" : "", m->name);
        }
        mr_buf_str(&out, m->config);
    }
    const int rc = out.failed ? MR_FAIL(err, MR_E_TOO_LARGE, "the text is larger than 1 GiB")
                              : workflow_put(NULL, mr_buf_view(&out), err);
    mr_buf_fini(&out);
    return rc;
}

int workflow_import(const struct workflow_options *o, const char *path, struct mr_err *err)
{
    const struct mr_import_options options = {.from =
                                                  o->from > 0 ? workflow_formats[o->from] : NULL,
                                              .repository = o->repository,
                                              .check = mr_flow_check};
    struct mr_import *im;
    const char *warning;
    struct mr_buf clean;
    int rc = mr_import_read(&im, path, &options, err);

    if (rc < 0) {
        return rc;
    }
    mr_buf_init(&clean, 0);
    for (size_t i = 0; (warning = mr_import_warning_at(im, i)); i++) {
        mr_buf_reset(&clean);
        mr_text_clean(&clean, mr_str_c(warning));
        fprintf(stderr, "millrace workflow: warning: %s\n", mr_buf_cstr(&clean));
    }
    mr_buf_fini(&clean);
    rc = o->out ? mr_import_write(im, o->out, false, err) : print_models(im, err);
    mr_import_free(&im);
    return rc;
}

/* ---- draw ---- */

int workflow_read_config(const char *path, struct mr_buf *text, struct mr_pbtext_lines *lines,
                         Inference__ModelConfig **out, struct mr_err *err)
{
    char inside[PATH_MAX];
    ProtobufCMessage *message;
    struct mr_buf own;
    struct stat st;

    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        if ((size_t)snprintf(inside, sizeof inside, "%s/config.pbtxt", path) >= sizeof inside) {
            return MR_FAIL(err, MR_E_INVALID, "%.300s: too long a name", path);
        }
        path = inside;
    }
    mr_buf_init(&own, CONFIG_MAX);
    text = text ? text : &own;
    mr_buf_init(text, CONFIG_MAX);
    int rc = mr_read_whole(path, text, err);
    if (rc == MR_OK) {
        rc = mr_pbtext_parse_lines(&inference__model_config__descriptor, mr_buf_view(text), lines,
                                   &message, err);
        rc = rc < 0 ? MR_WRAP(err, rc, "%s", path) : rc;
    }
    mr_buf_fini(&own);
    if (rc == MR_OK) {
        *out = (Inference__ModelConfig *)(void *)message;
    }
    return rc;
}

int workflow_draw(const struct workflow_options *o, const char *path, struct mr_err *err)
{
    static void (*const pictures[])(const struct graph *g, struct mr_buf *out) = {
        [PICTURE_TEXT] = graph_text, [PICTURE_SVG] = graph_svg, [PICTURE_DOT] = graph_dot};
    Inference__ModelConfig *c;
    struct mr_arena arena;
    struct graph g;
    struct mr_buf out;
    int rc = workflow_read_config(path, NULL, NULL, &c, err);

    if (rc < 0) {
        return rc;
    }
    mr_arena_init(&arena, 0, 256u << 20);
    mr_buf_init(&out, 0);
    rc = graph_make(c, &arena, &g, err);
    if (rc == MR_OK) {
        pictures[o->picture](&g, &out);
        rc = workflow_put(o->out, mr_buf_view(&out), err);
    } else {
        rc = MR_WRAP(err, rc, "%.200s", path);
    }
    mr_buf_fini(&out);
    mr_arena_fini(&arena);
    protobuf_c_message_free_unpacked(&c->base, NULL);
    return rc;
}
