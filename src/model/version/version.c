/* One version: from a folder and a config to something that can serve.
 *
 *   config    copy -> basics -> features -> (open) -> complete -> normalise -> check
 *   backend   library -> model -> signature (or the config's, where the backend has none)
 *   tables    inputs and outputs in config order, each with its place in the signature; labels
 *
 * Small memory of the version is one arena; nothing here is seen by requests before load.c
 * publishes it. Threads: opened on a loader, closed on a loader (taken back) or the reaper. */
#include "version.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "backend_choice.h"
#include "backends.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/pbtext.h"
#include "labels.h"
#include "model/config/config_priv.h"
#include "model/records/load_history.h"
#include "model/remote.h"
#include "placement.h"
#include "tensor/tensor.h"

#define ARENA_FIRST     2048
#define ARENA_LIMIT     ((size_t)64 << 20)
#define CONFIG_JSON_MAX ((size_t)64 << 20)
#define WARNINGS_MAX    32

/* What opening a version works with. */
struct opening {
    struct mr_models *m;
    const struct mr_version_source *s;
    struct mr_version_private *p;
    struct mr_err *err;
    int default_max_batch;
};

static char *keep(struct mr_version_private *p, const char *s)
{
    mr_str copy = mr_arena_str(&p->arena, mr_str_c(s));

    return (char *)copy.ptr;
}

static int no_memory(const struct opening *o)
{
    return MR_FAIL(o->err, MR_E_NOMEM, "no memory for model '%.128s'", o->s->model->name.ptr);
}

int mr_version_file(const struct mr_version *v, mr_str file, char **out, struct mr_err *err)
{
    int rc = mr_model_path_check(file, err);

    if (rc == MR_OK) {
        char *path = mr_path_join(v->model_dir, file);
        rc = mr_path_inside(v->repository_dir, v->link_dirs, path, out, err);
        mr_free(path);
    }
    return rc;
}

bool mr_version_is_stored(const struct mr_version *v)
{
    const struct mr_version_private *p = v->load_private;

    return p && !p->temp && !(p->archive && p->archive->content);
}

bool mr_version_is_unwanted(const struct mr_version *v)
{
    const struct mr_version_private *p = v->load_private;

    return p && p->entry && mr_load_entry_is_unwanted(p->entry);
}

/* ---- config ---- */

static void warnings_log(const struct opening *o, const struct mr_config_warning *w, size_t count)
{
    for (size_t i = 0; i < count && o->s->warn; i++) {
        mr_log(MR_LOG_WARN, "model.config", "model=%s %s", MR_LOG_STR(o->s->model->name),
               w[i].text);
    }
}

/* A library that Triton would load to form batches. */
static int strategy_check(const struct opening *o)
{
    const char *dirs[] = {o->s->version->dir, o->s->folder->dir};
    struct stat st;

    for (size_t i = 0; i < 2; i++) {
        char *path = mr_path_join(dirs[i], MR_STR("batchstrategy.so"));
        bool exists = stat(path, &st) == 0;
        mr_free(path);
        if (exists) {
            return MR_FAIL(o->err, MR_E_UNSUPPORTED,
                           "model '%.128s' brings a custom batching strategy (batchstrategy.so), a "
                           "feature that this server does not have",
                           o->s->model->name.ptr);
        }
    }
    return MR_OK;
}

static void remote_see(void *ctx, const struct mr_remote_model *r)
{
    (void)r;
    *(bool *)ctx = true;
}

/* Whoever may load models does not choose which hosts this one connects to. */
static int remotes_check(const struct opening *o)
{
    bool is_any = mr_config_is_remote(o->p->config);

    mr_config_remotes(o->p->config, remote_see, &is_any);
    return is_any ? MR_FAIL(o->err, MR_E_FORBIDDEN,
                            "model '%.128s': the 'config' of a load request may not name other "
                            "servers",
                            o->s->model->name.ptr)
                  : MR_OK;
}

static int config_begin(const struct opening *o)
{
    struct mr_config_warning warnings[WARNINGS_MAX];
    size_t count = 0;
    int rc;

    MR_TRY(mr_config_copy(o->s->config, &o->p->config, o->err));
    MR_TRY(mr_config_basics(o->p->config, o->s->model->name, o->s->version->dir, o->err));
    if (o->s->is_requested) {
        MR_TRY(mr_config_is_graph(o->p->config)
                   ? remotes_check(o)
                   : mr_backend_may_choose(o->m, o->p->config->backend, o->err));
    }
    MR_TRY(mr_config_check_features(o->p->config, warnings, WARNINGS_MAX, &count, o->err));
    MR_TRY(strategy_check(o));
    warnings_log(o, warnings, count);
out:
    return rc;
}

/* ---- backend ---- */

/* The config's parameters, and what the host adds (include/millrace/backend.h). */
static int settings_make(const struct opening *o, struct mr_model_desc *desc)
{
    const Inference__ModelConfig *c = o->p->config;
    struct mr_setting *list = MR_ARENA_ARRAY(&o->p->arena, struct mr_setting, c->n_parameters + 2);
    uint32_t n = 0;
    int64_t instances = 0;

    if (!list) {
        return no_memory(o);
    }
    for (size_t i = 0; i < c->n_parameters; i++) {
        const Inference__ModelParameter *value = c->parameters[i]->value;
        list[n++] = (struct mr_setting){c->parameters[i]->key, value ? value->string_value : ""};
    }
    if (c->optimization && c->optimization->graph) {
        list[n++] = (struct mr_setting){
            "optimization.graph.level",
            mr_arena_printf(&o->p->arena, "%d", c->optimization->graph->level).ptr};
    }
    for (size_t i = 0; i < c->n_instance_group; i++) {
        instances += c->instance_group[i]->count;
    }
    if (instances > 0) {
        list[n++] =
            (struct mr_setting){"instance_group.count",
                                mr_arena_printf(&o->p->arena, "%lld", (long long)instances).ptr};
    }
    if (n > 0 && !list[n - 1].value) {
        return no_memory(o);
    }
    desc->settings = list;
    desc->setting_count = n;
    return MR_OK;
}

/* The file may be missing (not every backend has one), but it may not lie elsewhere. */
static int model_file_find(const struct opening *o, const char **out)
{
    const struct mr_version *v = &o->p->v;
    char *path = mr_path_join(o->s->version->dir, mr_str_c(o->p->config->default_model_filename));
    struct mr_err why = {0};
    char *real = NULL;
    int rc = mr_path_inside(o->s->folder->root, v->link_dirs, path, &real, &why);

    if (rc < 0 && rc != MR_E_NOT_FOUND && o->err) {
        *o->err = why;
    }
    rc = rc == MR_E_NOT_FOUND ? MR_OK : rc;
    *out = keep(o->p, path);
    mr_free(real);
    mr_free(path);
    return rc == MR_OK && !*out ? no_memory(o) : rc;
}

static int graph_open(const struct opening *o, const struct mr_model_desc *desc)
{
    const struct mr_model_maker *maker = &o->m->o.maker;

    if (!maker->open) {
        return MR_FAIL(o->err, MR_E_UNSUPPORTED, "model '%.128s': this command runs no %ss",
                       desc->name, o->p->config->platform);
    }
    return maker->open(maker->ctx, o->p->config, desc, &o->p->v.executor, o->err);
}

/* The config as backends see it, with the defaults. What they add to it gets those later. */
static int config_text(const struct opening *o, struct mr_buf *out)
{
    Inference__ModelConfig *c = NULL;
    int rc;

    MR_TRY(mr_config_copy(o->p->config, &c, o->err));
    MR_TRY(mr_config_normalize(c, o->err));
    mr_config_json(c, out);
out:
    mr_config_free(&c);
    return rc;
}

/* Whether the model fills in what its configuration leaves out. */
static bool completes(const struct opening *o)
{
    return o->m->o.auto_complete || mr_config_is_remote(o->p->config);
}

static int backend_open(const struct opening *o)
{
    struct mr_version *v = &o->p->v;
    enum mr_placement placement = MR_PLACEMENT_THREAD;
    struct mr_buf json;
    int rc;
    const uint32_t flags = (o->s->in_background ? MR_LOAD_IN_BACKGROUND : 0) |
                           (completes(o) ? 0 : MR_LOAD_AS_CONFIGURED);
    struct mr_model_desc desc = {.size = sizeof desc,
                                 .name = v->model_name.ptr,
                                 .version = v->number,
                                 .model_dir = v->model_dir,
                                 .version_dir = o->s->version->dir,
                                 .repository_dir = o->s->folder->root,
                                 .link_dirs = v->link_dirs,
                                 .load_flags = flags,
                                 .loading = &o->s->entry->loading,
                                 .max_batch_size =
                                     o->s->has_max_batch ? o->p->config->max_batch_size : -1};

    mr_buf_init(&json, CONFIG_JSON_MAX);
    MR_TRY(config_text(o, &json));
    desc.config_json = mr_buf_cstr(&json);
    MR_TRY(settings_make(o, &desc));
    if (mr_config_is_graph(o->p->config)) {
        MR_TRY(graph_open(o, &desc));
        goto out;
    }
    MR_TRY(model_file_find(o, &desc.model_file));
    MR_TRY(mr_placement_of(o->m, o->p->config, &placement, o->err));
    MR_TRY(mr_backend_model_open(o->m, o->p->config, placement, &desc, o->p, o->err));
out:
    mr_buf_fini(&json);
    return rc;
}

static int32_t position_of(const struct mr_io_desc *list, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return (int32_t)i;
        }
    }
    return -1;
}

/* ---- signature of the config, for backends that have none ---- */

/* The shape that the backend sees: batch dimension, then reshape or dims. */
static int io_describe(const struct opening *o, const struct mr_config_io *io, struct mr_io_desc *d)
{
    const Inference__ModelTensorReshape *reshape = *io->reshape;
    size_t lead = o->p->config->max_batch_size > 0 ? 1 : 0;
    size_t n = reshape ? reshape->n_shape : *io->n_dims;
    const int64_t *from = reshape ? reshape->shape : *io->dims;
    int64_t *dims = MR_ARENA_ARRAY(&o->p->arena, int64_t, n + lead + 1);

    if (!dims) {
        return no_memory(o);
    }
    dims[0] = -1;
    if (n > 0) {
        memcpy(dims + lead, from, n * sizeof *dims);
    }
    *d = (struct mr_io_desc){.name = io->name,
                             .dims = dims,
                             .dtype = (int32_t)*io->data_type,
                             .rank = (int32_t)(n + lead)};
    return MR_OK;
}

/* A tensor that the scheduler makes or keeps. */
static int sequence_io_describe(const struct opening *o, const struct mr_config_sequence_io *io,
                                struct mr_io_desc *d)
{
    size_t lead = o->p->config->max_batch_size > 0 ? 1 : 0;
    int64_t *dims = MR_ARENA_ARRAY(&o->p->arena, int64_t, io->rank + lead + 1);

    if (!dims) {
        return no_memory(o);
    }
    dims[0] = -1;
    memcpy(dims + lead, io->dims, io->rank * sizeof *dims);
    *d = (struct mr_io_desc){
        .name = io->name, .dims = dims, .dtype = io->dtype, .rank = (int32_t)(io->rank + lead)};
    return MR_OK;
}

/* Adds control inputs and states after the inputs and outputs of clients. */
static int signature_add_sequences(const struct opening *o, struct mr_signature *s,
                                   struct mr_io_desc *inputs, struct mr_io_desc *outputs)
{
    const Inference__ModelConfig *c = o->p->config;
    struct mr_config_sequence_io io;
    int rc = MR_OK;

    for (size_t i = 0; rc == MR_OK && mr_config_sequence_input(c, i, &io); i++) {
        rc = sequence_io_describe(o, &io, &inputs[s->input_count++]);
    }
    for (size_t i = 0; rc == MR_OK && mr_config_sequence_output(c, i, &io); i++) {
        if (position_of(outputs, s->output_count, io.name) < 0) {
            rc = sequence_io_describe(o, &io, &outputs[s->output_count++]);
        }
    }
    return rc;
}

static int signature_set(const struct opening *o)
{
    const Inference__ModelConfig *c = o->p->config;
    const Inference__ModelSequenceBatching *q = mr_config_sequences(c);
    size_t more = q ? q->n_control_input + q->n_state : 0;
    size_t inputs = c->n_input + more;
    struct mr_io_desc *list =
        MR_ARENA_ARRAY(&o->p->arena, struct mr_io_desc, inputs + c->n_output + more);
    struct mr_signature s = {.size = sizeof s,
                             .input_count = (uint32_t)c->n_input,
                             .output_count = (uint32_t)c->n_output,
                             .inputs = list,
                             .outputs = list ? list + inputs : NULL,
                             .batchable = c->max_batch_size > 0 ? 1 : -1};
    int rc = list ? MR_OK : no_memory(o);

    for (size_t i = 0; i < c->n_input && rc == MR_OK; i++) {
        struct mr_config_io io = mr_config_input_io(c->input[i]);
        rc = io_describe(o, &io, &list[i]);
        list[i].flags = c->input[i]->optional ? MR_IO_OPTIONAL : 0;
    }
    for (size_t i = 0; i < c->n_output && rc == MR_OK; i++) {
        struct mr_config_io io = mr_config_output_io(c->output[i]);
        rc = io_describe(o, &io, &list[inputs + i]);
    }
    if (rc == MR_OK) {
        rc = signature_add_sequences(o, &s, list, list + inputs);
    }
    struct mr_executor *e = o->p->v.executor;

    return rc < 0 ? rc : e->ops->configure(e, &s, o->err);
}

static int config_finish(const struct opening *o)
{
    Inference__ModelConfig *c = o->p->config;
    const struct mr_signature *s = o->p->v.executor->signature;
    bool from_config = s->from_config != 0;
    size_t unused;
    int rc;

    MR_TRY(
        mr_config_complete(c, s, completes(o), o->s->has_max_batch, o->default_max_batch, o->err));
    MR_TRY(mr_config_normalize(c, o->err));
    MR_TRY(mr_config_check(c, true, NULL, 0, &unused, o->err));
    if (from_config) {
        MR_TRY(signature_set(o));
    }
out:
    return rc;
}

/* ---- inputs and outputs ---- */

static void io_make(struct mr_model_io *to, const struct mr_config_io *io, int32_t max_batch_size,
                    const struct mr_io_desc *list, uint32_t count)
{
    static const int64_t none[1];
    const Inference__ModelTensorReshape *reshape = *io->reshape;

    to->name = mr_str_c(io->name);
    to->dtype = (int32_t)*io->data_type;
    to->rank = (int32_t)*io->n_dims;
    to->dims = *io->dims;
    if (reshape) {
        to->reshape = reshape->n_shape ? reshape->shape : none;
        to->reshape_rank = (int32_t)reshape->n_shape;
    }
    to->backend_index = position_of(list, count, io->name);
    if (to->backend_index >= 0 &&
        mr_config_is_scalar(io, max_batch_size, list[to->backend_index].rank)) {
        to->reshape = none;
    }
}

static int labels_make(const struct opening *o, struct mr_model_io *to, const char *file)
{
    char *path = NULL;
    int rc = mr_version_file(&o->p->v, mr_str_c(file), &path, o->err);

    if (rc == MR_OK) {
        rc = mr_labels_read(&o->p->arena, path, &to->labels, &to->label_count, o->err);
        mr_free(path);
    }
    return rc < 0 ? MR_WRAP(o->err, rc, "label_filename of output '%.64s'", to->name.ptr) : MR_OK;
}

static int tables_make(const struct opening *o)
{
    const Inference__ModelConfig *c = o->p->config;
    struct mr_version *v = &o->p->v;
    const struct mr_signature *s = v->executor->signature;

    v->required_input_count = 0;
    v->inputs = MR_ARENA_ARRAY(&o->p->arena, struct mr_model_io, c->n_input + 1);
    v->outputs = MR_ARENA_ARRAY(&o->p->arena, struct mr_model_io, c->n_output + 1);
    if (!v->inputs || !v->outputs) {
        return no_memory(o);
    }
    for (size_t i = 0; i < c->n_input; i++) {
        struct mr_config_io io = mr_config_input_io(c->input[i]);
        io_make(&v->inputs[i], &io, c->max_batch_size, s->inputs, s->input_count);
        v->inputs[i].optional = c->input[i]->optional;
        v->required_input_count += !c->input[i]->optional;
    }
    for (size_t i = 0; i < c->n_output; i++) {
        struct mr_config_io io = mr_config_output_io(c->output[i]);
        io_make(&v->outputs[i], &io, c->max_batch_size, s->outputs, s->output_count);
        if (c->output[i]->label_filename[0]) {
            int rc = labels_make(o, &v->outputs[i], c->output[i]->label_filename);
            if (rc < 0) {
                return rc;
            }
        }
    }
    v->input_count = (uint32_t)c->n_input;
    v->output_count = (uint32_t)c->n_output;
    v->backend_input_count = s->input_count;
    v->backend_output_count = s->output_count;
    v->backend_flags = s->flags;
    v->max_batch_size = c->max_batch_size;
    v->is_decoupled = c->model_transaction_policy && c->model_transaction_policy->decoupled;
    v->reads_matrix = mr_config_reads_matrix(c);
    if (v->reads_matrix && o->s->version->label) {
        v->label = mr_arena_str(&o->p->arena, mr_str_c(o->s->version->label));
    }
    v->has_messages = mr_config_has_messages(c);
    if (v->has_messages || v->reads_matrix) {
        /* relaxed: published with the version */
        atomic_store_explicit(&o->m->has_mlserver, true, memory_order_relaxed);
        if (v->has_messages && v->input_count > 1) {
            atomic_store_explicit(&o->m->has_routes, true, memory_order_relaxed);
        }
    }
    v->config = c;
    return MR_OK;
}

/* ---- models of MLServer that need no Python ---- */

/* Opens the model by a backend of the server, if one stands for its runtime and can. False: it is as it was. */
static bool native_open(const struct opening *o)
{
    Inference__ModelConfig *before = o->p->config;
    const char *name = o->s->model->name.ptr;
    Inference__ModelConfig *native = NULL;
    struct mr_err err = {0};
    struct opening mine = *o;

    if (o->s->config->backend[0] || o->s->is_requested || mr_config_is_graph(before)) {
        return false; /* it was chosen; or a client's files choose, which may not choose this */
    }
    mr_config_without_python(before, o->s->version->dir, &native);
    if (!native) {
        return false;
    }
    mine.err = &err;
    o->p->config = native;
    if (backend_open(&mine) == MR_OK) {
        mr_log(MR_LOG_INFO, "model.native", "model=%s version=%lld backend=%s runs without Python",
               MR_LOG_STR(mr_str_c(name)), (long long)o->p->v.number,
               MR_LOG_STR(mr_str_c(native->backend)));
        mr_config_free(&before);
        return true;
    }
    mr_log(MR_LOG_INFO, "model.native", "model=%s version=%lld backend=%s runs in Python, as %s",
           MR_LOG_STR(mr_str_c(name)), (long long)o->p->v.number,
           MR_LOG_STR(mr_str_c(native->backend)), err.msg);
    o->p->config = before;
    mr_config_free(&native);
    return false;
}

/* ---- the whole ---- */

static int version_begin(const struct opening *o)
{
    const struct mr_version_source *s = o->s;
    struct mr_version *v = &o->p->v;

    v->load_private = o->p;
    o->p->entry = s->entry;
    v->model = s->model;
    v->model_name = s->model->name;
    v->number = s->version->number;
    v->number_text = mr_arena_printf(&o->p->arena, "%lld", (long long)v->number);
    v->model_dir = keep(o->p, s->folder->dir);
    v->file_bytes = s->version->fingerprint.bytes;
    v->has_requests = s->version->has_requests;
    v->pins = mr_alloc_aligned(o->m->o.reader_count * sizeof *v->pins);
    atomic_init(&v->state, MR_VERSION_LOADING);
    v->repository_dir = keep(o->p, s->folder->root);
    v->link_dirs = s->folder->links;
    o->p->fingerprint = s->fingerprint;
    o->p->temp = mr_temp_ref(s->temp);
    o->p->archive = archive_repository_ref(s->folder->archive);
    return v->number_text.ptr && v->model_dir && v->repository_dir ? MR_OK : no_memory(o);
}

int mr_version_open(struct mr_models *m, const struct mr_version_source *s,
                    struct mr_version_private **out, struct mr_err *err)
{
    struct mr_version_private *p = mr_alloc_aligned(sizeof *p);
    struct opening o = {m, s, p, err, m->o.default_max_batch};
    int rc;

    mr_arena_init(&p->arena, ARENA_FIRST, ARENA_LIMIT);
    if (s->version->err.status < 0) {
        if (err) {
            *err = s->version->err;
        }
        rc = s->version->err.status;
        goto out;
    }
    MR_TRY(version_begin(&o));
    MR_TRY(config_begin(&o));
    if (native_open(&o)) {
        o.default_max_batch = 0;
    } else {
        MR_TRY(backend_open(&o));
    }
    MR_TRY(config_finish(&o));
    MR_TRY(tables_make(&o));
    *out = p;
    return MR_OK;
out:
    mr_version_close(m, &p);
    return rc;
}

int mr_version_unbatch(struct mr_models *m, const struct mr_version_source *s,
                       struct mr_version_private *p, struct mr_err *err)
{
    const struct opening o = {m, s, p, err, 0};
    Inference__ModelConfig *before = p->config;
    int rc;

    p->config = NULL;
    MR_TRY(mr_config_copy(s->config, &p->config, err));
    MR_TRY(mr_config_basics(p->config, s->model->name, s->version->dir, err));
    MR_TRY(config_finish(&o));
    p->v.cannot_batch = false;
    mr_config_free(&before);
    return tables_make(&o);
out:
    mr_config_free(&p->config);
    p->config = before; /* its dims leave out the batch dimension */
    return rc == MR_E_INVALID ? MR_OK : rc;
}

void mr_version_unserve(struct mr_models *m, struct mr_version_private *p)
{
    if (p->is_served && m->hooks.unserve) {
        m->hooks.unserve(m->hooks.ctx, &p->v);
    }
    p->is_served = false;
}

void mr_version_close(struct mr_models *m, struct mr_version_private **p)
{
    struct mr_version_private *it = *p;

    mr_version_unserve(m, it);
    mr_executor_close(&it->v.executor);
    mr_config_free(&it->config);
    mr_temp_unref(&it->temp);
    archive_repository_unref(&it->archive);
    mr_cache_unref(&it->environment);
    mr_free(it->v.pins);
    mr_arena_fini(&it->arena);
    mr_free(it);
    *p = NULL;
}
