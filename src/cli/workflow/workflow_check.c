/* `millrace workflow check`: loads ensembles and workflows in this process, with the models that they use in processes of
 * their own, which proves all that a server proves; an error is a line with the file and the line of the node. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/log.h"
#include "cli/common/term.h"
#include "cli/infer/infer.h"
#include "cli/model/check_engine.h"
#include "engine/engine.h"
#include "flow/flow.h"
#include "flow/where.h"
#include "graph.h"
#include "model/name.h"
#include "workflow.h"

/* One configuration to check. */
struct check {
    const struct workflow_options *o;
    char file[PATH_MAX];
    char name[NAME_MAX + 1];
    char repositories[2][PATH_MAX];
    size_t repository_count;
    char made[PATH_MAX]; /* a temporary repository; "": there is none */
    struct mr_engine *engine;
    struct mr_buf text; /* of the file */
    struct mr_pbtext_lines lines;
    const Inference__ModelConfig *config;
    bool is_ready;
    char error[sizeof((struct mr_err *)0)->msg];
    char member[sizeof((struct mr_err *)0)
                    ->msg]; /* why a model in it is not there; "": all are, or it is not known */
    int64_t load_ns;
    struct mr_buf warning;
};

static int refuse(struct check *c, const char *message, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_INVALID, "%.200s:%u: %s", c->file,
                   mr_flow_where(c->config, &c->lines, mr_str_c(message)), message);
}

/* ---- the repository ---- */

static int make_repository(struct check *c, struct mr_err *err)
{
    const char *base = getenv("TMPDIR");
    char path[PATH_MAX + NAME_MAX + 32];
    int rc;

    snprintf(c->made, sizeof c->made, "%.3000s/millrace-check-XXXXXX",
             base && base[0] == '/' ? base : "/tmp");
    if (!mkdtemp(c->made)) {
        c->made[0] = '\0';
        return MR_FAIL(err, MR_E_IO, "no temporary folder can be made");
    }
    snprintf(path, sizeof path, "%s/%s", c->made, c->name);
    rc = mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/1", c->made, c->name);
    rc = rc == 0 ? mkdir(path, 0700) : rc;
    if (rc != 0) {
        return MR_FAIL(err, MR_E_IO, "no temporary folder can be made");
    }
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", c->made, c->name);
    snprintf(c->repositories[c->repository_count++], PATH_MAX, "%s", c->made);
    return workflow_put(path, mr_buf_view(&c->text), err);
}

/* The file is REPOSITORY/NAME/config.pbtxt, or stands alone. */
static int find_repository(struct check *c, struct mr_err *err)
{
    char real[PATH_MAX];
    int rc = MR_OK;

    if (!realpath(c->file, real)) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "%.300s: %s", c->file, strerror(errno));
    }
    char *slash = strrchr(real, '/');
    *slash = '\0';
    char *folder = strrchr(real, '/');
    if (strcmp(slash + 1, "config.pbtxt") == 0 && folder && strcmp(folder + 1, c->name) == 0) {
        *folder = '\0';
        snprintf(c->repositories[c->repository_count++], PATH_MAX, "%s", real[0] ? real : "/");
    } else {
        rc = make_repository(c, err);
    }
    if (rc == MR_OK && c->o->repository) {
        snprintf(c->repositories[c->repository_count++], PATH_MAX, "%.4000s", c->o->repository);
    }
    return rc;
}

/* ---- the engine ---- */

static int engine_start(struct check *c, struct mr_err *err)
{
    struct mr_models_options models;
    const char *repositories[] = {c->repositories[0], c->repositories[1]};
    const char *name = c->name;

    mr_models_options_init(&models);
    models.repositories = repositories;
    models.repository_count = c->repository_count;
    models.load_models = &name;
    models.load_model_count = 1;
    models.maker.open = mr_flow_open_bare; /* refuse() says where */
    return check_engine_start(&c->engine, &models, err);
}

static void take_report(void *ctx, const struct mr_model_report *r)
{
    struct check *c = ctx;

    if (mr_str_eq_c(r->name, c->name)) {
        c->is_ready = c->is_ready || r->state == MR_VERSION_READY;
        c->load_ns = r->load_ns;
        if (r->v) {
            mr_flow_warning(r->v->executor, &c->warning);
        }
        snprintf(c->error, sizeof c->error, "%.*s",
                 MR_STR_ARG(r->reason.len ? r->reason : MR_STR("it was not loaded")));
    } else if (r->reason.len && !c->member[0]) {
        snprintf(c->member, sizeof c->member, " (model '%.*s': %.*s)",
                 MR_STR_ARG(mr_str_sub(r->name, 0, 128)), MR_STR_ARG(r->reason));
    }
}

static int prove(struct check *c, struct mr_err *err)
{
    int rc;

    MR_TRY(find_repository(c, err));
    MR_TRY(engine_start(c, err));
    snprintf(c->error, sizeof c->error, "it was not loaded");
    mr_models_report(mr_engine_models(c->engine), take_report, c);
    if (!c->is_ready) {
        const size_t len = strlen(c->error);
        snprintf(c->error + len, sizeof c->error - len, "%s", c->member);
    }
    rc = c->is_ready ? MR_OK : refuse(c, c->error, err);
out:
    check_engine_stop(&c->engine);
    if (c->made[0]) {
        mr_tree_remove(c->made, NULL);
    }
    return rc;
}

static bool is_graph(const Inference__ModelConfig *c)
{
    return c->scheduling_choice_case ==
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_WORKFLOW_SCHEDULING ||
           c->scheduling_choice_case ==
               INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_ENSEMBLE_SCHEDULING;
}

static void warn(struct check *c)
{
    const mr_str text = mr_buf_view(&c->warning);
    struct mr_buf line;

    if (text.len > 0) {
        mr_buf_init(&line, 0);
        mr_text_clean(&line, mr_str_c(c->file));
        mr_buf_printf(&line, ":%u: ", mr_flow_where(c->config, &c->lines, text));
        mr_text_clean(&line, text);
        fprintf(stderr, "millrace workflow: warning: %s\n", mr_buf_cstr(&line));
        mr_buf_fini(&line);
    }
}

static int check_graph(struct check *c, struct mr_err *err)
{
    struct mr_arena arena;
    struct graph g;
    char took[32];
    int rc = is_graph(c->config) ? prove(c, err) : MR_OK;

    if (rc < 0) {
        return rc;
    }
    mr_arena_init(&arena, 0, 256u << 20);
    rc = graph_make(c->config, &arena, &g, err);
    if (rc < 0) {
        const struct mr_err why = *err;
        rc = refuse(c, why.msg, err);
    } else {
        mr_text_duration(took, (double)c->load_ns);
        struct mr_buf file;
        mr_buf_init(&file, 0);
        mr_text_clean(&file, mr_str_c(c->file));
        printf("%s: %zu nodes in %u steps, all checks passed (%s)\n", mr_buf_cstr(&file),
               g.node_count - 2, g.level_count - 2, took);
        mr_buf_fini(&file);
        warn(c);
    }
    mr_arena_fini(&arena);
    return rc;
}

static int check_file(const struct workflow_options *o, const char *path, struct mr_err *err)
{
    struct check c = {.o = o};
    Inference__ModelConfig *config = NULL;
    int rc;

    mr_buf_init(&c.warning, 0);
    snprintf(c.file, sizeof c.file, "%.4000s", path);
    MR_TRY(workflow_read_config(path, &c.text, &c.lines, &config, err));
    const char *name = config->name;
    char folder[PATH_MAX];
    if (!name[0] && realpath(path, folder)) { /* the folder's */
        *strrchr(folder, '/') = '\0';
        name = strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder;
    }
    c.config = config;
    rc = mr_model_name_check(mr_str_c(name), err);
    if (rc < 0) {
        const struct mr_err why = *err;
        rc = refuse(&c, why.msg, err);
    } else {
        snprintf(c.name, sizeof c.name, "%.255s", name);
        rc = check_graph(&c, err);
    }
    protobuf_c_message_free_unpacked(&config->base, NULL);
out:
    mr_pbtext_lines_fini(&c.lines);
    mr_buf_fini(&c.text);
    mr_buf_fini(&c.warning);
    return rc;
}

/* ---- a repository of several ---- */

static bool holds_graph(const char *path)
{
    Inference__ModelConfig *c;
    struct mr_err ignored;
    bool is = true; /* and its error is said */

    if (workflow_read_config(path, NULL, NULL, &c, &ignored) == MR_OK) {
        is = is_graph(c);
        protobuf_c_message_free_unpacked(&c->base, NULL);
    }
    return is;
}

static int check_all(const struct workflow_options *o, const char *folder, struct mr_err *err)
{
    DIR *d = opendir(folder);
    const struct dirent *e;
    char path[PATH_MAX];
    size_t count = 0;
    int rc = d ? MR_OK : MR_FAIL(err, MR_E_IO, "%.300s: %s", folder, strerror(errno));

    while (rc == MR_OK && (e = readdir(d))) {
        struct stat st;
        if (e->d_name[0] == '.' ||
            (size_t)snprintf(path, sizeof path, "%s/%s/config.pbtxt", folder, e->d_name) >=
                sizeof path ||
            stat(path, &st) != 0 || !holds_graph(path)) {
            continue;
        }
        count++;
        rc = check_file(o, path, err);
    }
    if (d) {
        closedir(d);
    }
    return rc == MR_OK && count == 0
               ? MR_FAIL(err, MR_E_NOT_FOUND, "%.300s holds no ensemble and no workflow", folder)
               : rc;
}

int workflow_check(const struct workflow_options *o, const char *path, struct mr_err *err)
{
    char inside[PATH_MAX];
    struct stat st;

    mr_log_set_enabled(MR_LOG_INFO, false);
    mr_log_set_enabled(MR_LOG_WARN, false);
    mr_log_set_enabled(MR_LOG_ERROR, false);
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return check_file(o, path, err);
    }
    snprintf(inside, sizeof inside, "%.4000s/config.pbtxt", path);
    return stat(inside, &st) == 0 ? check_file(o, inside, err) : check_all(o, path, err);
}
