/* The models of this process, for the core: loads and unloads through the manager's control; which of them were used, by their
 * counters, so that requests for models that are ready here need not pass through the mesh; and what is new in the repositories. */
#include "live.h"

#include "base/log.h"
#include "model/config.h"
#include "model/place.h"

#define REGISTER_EVERY  5 /* samples */
#define REGISTERING_MAX 1000

struct model_uses {
    uint64_t count;
    bool has_waiting;
};

struct load_op {
    struct mr_mail mail;
    struct mr_mesh *mesh;
    bool is_unload;
    int rc;
    int64_t begun_ns;
    struct mesh_loaded loaded;
    struct mr_err err;
    size_t id_len;
    char id[];
};

enum mesh_fail live_fail_of(int rc)
{
    switch (rc) {
    case MR_E_NOT_FOUND: return MESH_FAIL_MISSING;
    case MR_E_INVALID:
    case MR_E_UNSUPPORTED: return MESH_FAIL_INVALID;
    case MR_E_NOMEM:
    case MR_E_EXHAUSTED: return MESH_FAIL_RESOURCE;
    case MR_E_TOO_LARGE: return MESH_FAIL_TOO_LARGE;
    case MR_E_UNAVAILABLE:
    case MR_E_DEADLINE:
    case MR_E_IO:
    case MR_E_CANCELLED: return MESH_FAIL_TRANSIENT;
    default: return MESH_FAIL_OTHER;
    }
}

static void run_done(struct mr_mail *mail)
{
    struct load_op *op = MR_CONTAINER_OF(mail, struct load_op, mail);
    struct mr_mesh *m = op->mesh;
    mr_str id = {op->id, op->id_len};

    if (op->is_unload) {
        if (op->rc == MR_OK || op->rc == MR_E_NOT_FOUND) {
            mr_hist_add(&m->unload_ns, (uint64_t)(live_now(m) - op->begun_ns));
        } else {
            m->unload_failures++;
            m->unload_attempt_failures++;
        }
        mesh_core_unloaded(m->core, id, live_now(m));
    } else if (op->rc == MR_OK) {
        mr_hist_add(&m->load_ns, (uint64_t)(live_now(m) - op->begun_ns));
        mesh_core_loaded(m->core, id, &op->loaded, live_now(m));
    } else {
        m->load_failures++;
        mesh_core_load_failed(m->core, id, live_fail_of(op->rc), mr_str_c(op->err.msg),
                              live_now(m));
        live_ready_failed(m, id);
    }
    if (!atomic_load(&m->is_stopping)) {
        live_acted(m);
    }
    atomic_fetch_sub(&m->loads, 1);
    mr_free(op);
}

/* Thread: a loader. */
static void on_done(void *ctx, int rc, const struct mr_err *err)
{
    struct load_op *op = ctx;
    struct mr_mesh *m = op->mesh;

    op->rc = rc;
    if (rc < 0 && err) {
        op->err = *err;
    }
    if (rc == MR_OK && !op->is_unload) {
        mr_str id = {op->id, op->id_len};
        mr_models_size(m->models, id, &op->loaded.bytes);
        op->loaded.keeps_state = mr_models_has_sequences(m->models, id);
    }
    mr_loop_post(m->loop, &op->mail);
}

static struct load_op *new_op(struct mr_mesh *m, mr_str id, bool is_unload)
{
    struct load_op *op = mr_alloc(sizeof *op + id.len);

    op->mail.run = run_done;
    op->mesh = m;
    op->is_unload = is_unload;
    op->begun_ns = live_now(m);
    op->id_len = id.len;
    memcpy(op->id, id.ptr, id.len);
    atomic_fetch_add(&m->loads, 1);
    return op;
}

/* By its path or address, which the manager checks. */
static void load_path(struct mr_mesh *m, const struct mesh_action *a, struct load_op *op)
{
    struct mr_arena arena;
    struct mr_buf path;
    struct mr_err err;

    const bool is_address = mr_models_is_address(a->path);
    if (!m->o.models && !is_address) {
        MR_FAIL(&err, MR_E_NOT_FOUND,
                "it is registered with a path, and this server has no --mesh-models");
        on_done(op, MR_E_NOT_FOUND, &err);
        return;
    }
    mr_buf_init(&path, 0);
    if (a->path.ptr[0] != '/' && !is_address) {
        mr_buf_printf(&path, "%s/", m->o.models);
    }
    mr_buf_str(&path, a->path);
    mr_arena_init(&arena, 1024, 65536);
    mr_models_place(m->models, a->id, mr_buf_view(&path), mr_model_type_of(a->type, a->key, &arena),
                    on_done, op);
    mr_arena_fini(&arena);
    mr_buf_fini(&path);
}

static void own_load(struct mr_mesh *m, const struct mesh_action *a)
{
    struct load_op *op = new_op(m, a->id, false);

    if (a->path.len) {
        mr_map_put(&m->by_path, a->id, m);
        load_path(m, a, op);
    } else {
        mr_models_load(m->models, a->id, NULL, on_done, op);
    }
}

static void own_unload(struct mr_mesh *m, const struct mesh_action *a)
{
    mr_models_unload(m->models, a->id, false, on_done, new_op(m, a->id, true));
}

/* ---- uses ---- */

struct used {
    char *id;
    bool is_ready;
    uint64_t count;
    uint64_t waiting; /* requests, in the queue */
};

struct sample {
    MR_VEC(struct used) used;
};

/* Versions of a model follow each other. Under the manager's lock. */
static void count_one(void *ctx, const struct mr_model_report *r)
{
    struct sample *s = ctx;
    struct mr_sched_stats stats;

    if (!r->v) {
        return;
    }
    mr_sched_stats_sum(r->v, &stats);
    if (!s->used.len || !mr_str_eq_c(r->name, s->used.at[s->used.len - 1].id)) {
        MR_VEC_PUSH(&s->used, ((struct used){.id = mr_strndup(r->name.ptr, r->name.len)}));
    }
    struct used *u = &s->used.at[s->used.len - 1];
    u->is_ready |= r->state == MR_VERSION_READY;
    u->count += stats.success.count + stats.fail.count;
    u->waiting += mr_sched_pending(r->v);
}

static bool is_unknown(enum mesh_copy_state state)
{
    return state == MESH_NO_COPY || state == MESH_FAILED;
}

/* A graph's load brings the models that it asks, and models in Python load others. What cannot be loaded again in the same way is
 * left out: it would be evicted. */
static void found(struct mr_mesh *m, mr_str id)
{
    struct mesh_loaded what = {.keeps_state = mr_models_has_sequences(m->models, id)};

    if (mr_models_is_as_folder(m->models, id) && mr_models_size(m->models, id, &what.bytes)) {
        mesh_core_found(m->core, id, &what, live_now(m));
    }
}

static void sample_uses(struct mr_mesh *m)
{
    struct sample s = {0};

    mr_models_visit(m->models, count_one, &s);
    for (size_t i = 0; i < s.used.len; i++) {
        struct used *u = &s.used.at[i];
        mr_str id = mr_str_c(u->id);
        struct model_uses *known = mr_map_find(&m->uses, id);
        if (!known) {
            known = MR_NEW(struct model_uses);
            mr_map_put(&m->uses, id, known);
        }
        uint64_t more = u->count >= known->count ? u->count - known->count : u->count;
        known->count = u->count;
        if (u->is_ready && is_unknown(mesh_core_copy(m->core, id))) {
            found(m, id);
        }
        if (more || u->waiting || known->has_waiting) {
            mesh_core_used(m->core, id, (uint32_t)MR_MIN(more, UINT32_MAX),
                           (uint32_t)MR_MIN(u->waiting, UINT32_MAX), live_now(m));
        }
        known->has_waiting = u->waiting > 0;
        mr_free(u->id);
    }
    MR_VEC_FINI(&s.used);
}

const struct live_loader live_own_loader = {own_load, own_unload, sample_uses};

/* ---- registration ---- */

static void name_one(void *ctx, const struct mr_model_report *r)
{
    struct mr_mesh *m = ctx;
    size_t n = m->to_register.len;

    if (n == 0 || !mr_str_eq_c(r->name, m->to_register.at[n - 1])) {
        MR_VEC_PUSH(&m->to_register, mr_strndup(r->name.ptr, r->name.len));
    }
}

/* A number of copies; *io stays as it is if the text is none. */
static void read_copies(const char *text, uint32_t *io, mr_str id, const char *key)
{
    uint64_t n;

    if (text && mr_str_to_u64(mr_str_c(text), &n) && n <= MESH_COPIES_MAX) {
        *io = (uint32_t)n;
    } else if (text) {
        mr_log(MR_LOG_WARN, "mesh.register",
               "model=%s %s is not a number from 0 to %d, and is ignored", MR_LOG_STR(id), key,
               MESH_COPIES_MAX);
    }
}

/* What the model's configuration says for the mesh; the texts are the configuration's. */
static void read_def(const Inference__ModelConfig *config, mr_str id, struct mesh_def *def)
{
    const char *type = mr_config_parameter(config, "millrace.mesh_type");
    const char *pinned = mr_config_parameter(config, "millrace.mesh_pinned");

    def->type = type && *type ? mr_str_c(type) : def->type;
    def->pinned = pinned && strcmp(pinned, "true") == 0;
    read_copies(mr_config_parameter(config, "millrace.mesh_min_copies"), &def->min_copies, id,
                "millrace.mesh_min_copies");
    read_copies(mr_config_parameter(config, "millrace.mesh_max_copies"), &def->max_copies, id,
                "millrace.mesh_max_copies");
    const char *device = mr_config_parameter(config, "millrace.mesh_device_bytes");
    if (device && !mr_str_to_u64(mr_str_c(device), &def->device_bytes)) {
        def->device_bytes = 0;
        mr_log(MR_LOG_WARN, "mesh.register",
               "model=%s millrace.mesh_device_bytes is not a number, and is ignored",
               MR_LOG_STR(id));
    }
}

/* True if the model is in the repositories, and not known only because it was loaded from a path. */
static bool is_own(struct mr_mesh *m, mr_str id)
{
    char *folder = NULL;
    bool is = !mr_map_find(&m->by_path, id) || mr_models_folder(m->models, id, &folder);

    mr_free(folder);
    return is;
}

static void register_one(struct mr_mesh *m, mr_str id)
{
    struct mesh_call call = {.kind = MESH_CALL_REGISTER,
                             .id = id,
                             .def = {.type = MR_STR("millrace"),
                                     .min_copies = m->o.min_copies,
                                     .max_copies = m->o.max_copies}};
    Inference__ModelConfig *config = NULL;
    char *folder = NULL;

    if (m->runtime && mr_models_folder(m->models, id, &folder)) {
        call.def.path = mr_str_c(folder);
    }
    if (mr_models_folder_config(m->models, id, &config, NULL) == MR_OK) {
        read_def(config, id, &call.def);
    }
    m->registering++;
    mesh_core_call(m->core, &call, live_now(m));
    mr_config_free(&config);
    mr_free(folder);
}

void live_models_register_more(struct mr_mesh *m)
{
    while (m->registering < REGISTERING_MAX && m->to_register.len) {
        char *name = m->to_register.at[--m->to_register.len];
        mr_str id = mr_str_c(name);
        const struct view_model *known = view_find(mesh_core_view(m->core), id);
        bool is_known = known && known->revision;
        if (!is_known && mesh_id_check(id, NULL) == MR_OK && is_own(m, id)) {
            register_one(m, id);
        }
        mr_free(name);
    }
}

void live_models_register(struct mr_mesh *m)
{
    m->was_refused = false;
    if (m->to_register.len == 0) {
        mr_models_report(m->models, name_one, m);
    }
    live_models_register_more(m);
    live_acted(m);
}

void live_models_sample(struct mr_mesh *m)
{
    if (!atomic_load(&m->is_joined)) {
        if (m->was_refused && m->registering == 0 && mr_kv_state(m->kv) == MR_KV_READY) {
            live_models_register(m);
        }
        return;
    }
    if (++m->samples % REGISTER_EVERY == 0) {
        live_models_register(m);
    }
    m->loader->sample(m);
    live_acted(m);
}

void live_models_fini(struct mr_mesh *m)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&m->uses, &i));) {
        mr_free(slot->value);
    }
    for (size_t i = 0; i < m->to_register.len; i++) {
        mr_free(m->to_register.at[i]);
    }
    MR_VEC_FINI(&m->to_register);
    mr_map_fini(&m->uses);
    mr_map_fini(&m->by_path);
}
