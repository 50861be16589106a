#include "ipc/setup.h"

#include "base/err.h"

static int outcome(const struct mr_unpack *u, const char *what, struct mr_err *err)
{
    return u->failed || u->at != u->end
               ? MR_FAIL(err, MR_E_INVALID, "a message between server and worker is damaged (%s)",
                         what)
               : MR_OK;
}

/* ---- lists ---- */

static void texts_pack(struct mr_buf *b, const char *const *list)
{
    uint64_t count = 0;

    while (list && list[count]) {
        count++;
    }
    mr_pack_u64(b, count);
    for (uint64_t i = 0; i < count; i++) {
        mr_pack_text(b, list[i]);
    }
}

static const char *const *texts_unpack(struct mr_unpack *u)
{
    const uint32_t count = mr_unpack_count(u);
    const char **list = mr_unpack_array(u, count, sizeof *list);

    for (uint32_t i = 0; i < count && !u->failed; i++) {
        list[i] = mr_unpack_name(u);
    }
    return list;
}

/* ---- load requests ---- */

void mr_ipc_open_pack(struct mr_buf *b, const struct mr_ipc_open *o)
{
    const struct mr_model_desc *m = &o->model;

    mr_pack_text(b, o->backend);
    texts_pack(b, o->backend_dirs);
    mr_pack_settings(b, o->settings, o->setting_count);
    mr_pack_u64(b, o->worker);
    mr_pack_u64(b, o->home_count);
    mr_pack_u64(b, o->kept_count);
    mr_pack_u64(b, o->confine_steps);
    mr_pack_u64(b, o->memory_bytes);
    mr_pack_text(b, o->user);
    mr_pack_text(b, o->temp_dir);
    texts_pack(b, o->write_dirs);
    mr_pack_u64(b, o->has_control);
    mr_pack_text(b, m->name);
    mr_pack_i64(b, m->version);
    mr_pack_text(b, m->model_dir);
    mr_pack_text(b, m->version_dir);
    mr_pack_text(b, m->model_file);
    mr_pack_text(b, m->config_json);
    mr_pack_settings(b, m->settings, m->setting_count);
    mr_pack_i64(b, m->max_batch_size);
    mr_pack_text(b, m->repository_dir);
    mr_pack_u64(b, m->load_flags);
    texts_pack(b, m->link_dirs);
}

int mr_ipc_open_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_open *out,
                       struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);
    struct mr_model_desc *m = &out->model;

    *out = (struct mr_ipc_open){.model = {.size = sizeof *m}};
    out->backend = mr_unpack_name(&u);
    out->backend_dirs = texts_unpack(&u);
    out->settings = mr_unpack_settings(&u, &out->setting_count);
    out->worker = mr_unpack_u32(&u, UINT32_MAX);
    out->home_count = mr_unpack_u32(&u, UINT32_MAX);
    out->kept_count = mr_unpack_u32(&u, MR_KEPT_MAX);
    out->confine_steps = mr_unpack_u32(&u, UINT32_MAX);
    out->memory_bytes = mr_unpack_u64(&u);
    out->user = mr_unpack_text(&u);
    out->temp_dir = mr_unpack_text(&u);
    out->write_dirs = texts_unpack(&u);
    out->has_control = mr_unpack_u32(&u, 1) != 0;
    m->name = mr_unpack_name(&u);
    m->version = mr_unpack_i64(&u);
    m->model_dir = mr_unpack_name(&u);
    m->version_dir = mr_unpack_name(&u);
    m->model_file = mr_unpack_name(&u);
    m->config_json = mr_unpack_name(&u);
    m->settings = mr_unpack_settings(&u, &m->setting_count);
    m->max_batch_size = mr_unpack_i32(&u);
    m->repository_dir = mr_unpack_name(&u);
    m->load_flags = mr_unpack_u32(&u, UINT32_MAX);
    m->link_dirs = texts_unpack(&u);
    return outcome(&u, "open", err);
}

/* ---- signatures ---- */

static void list_pack(struct mr_buf *b, const struct mr_io_desc *list, uint32_t count)
{
    mr_pack_u64(b, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct mr_io_desc *d = &list[i];
        mr_pack_text(b, d->name);
        mr_pack_i64(b, d->dtype);
        mr_pack_u64(b, d->flags);
        mr_pack_i64(b, d->rank);
        for (int32_t k = 0; k < d->rank; k++) {
            mr_pack_i64(b, d->dims[k]);
        }
    }
}

static const struct mr_io_desc *list_unpack(struct mr_unpack *u, uint32_t *out_count)
{
    const uint32_t count = mr_unpack_count(u);
    struct mr_io_desc *list = mr_unpack_array(u, count, sizeof *list);

    for (uint32_t i = 0; i < count && !u->failed; i++) {
        struct mr_io_desc *d = &list[i];
        d->name = mr_unpack_name(u);
        d->dtype = mr_unpack_i32(u);
        d->flags = mr_unpack_u32(u, UINT32_MAX);
        d->rank = mr_unpack_i32(u);
        u->failed |= d->rank < -1 || d->rank > MR_MAX_RANK;
        if (u->failed || d->rank <= 0) {
            continue;
        }
        int64_t *dims = mr_unpack_array(u, (size_t)d->rank, sizeof *dims);
        for (int32_t k = 0; dims && k < d->rank; k++) {
            dims[k] = mr_unpack_i64(u);
        }
        d->dims = dims;
    }
    *out_count = u->failed ? 0 : count;
    return list;
}

void mr_ipc_signature_pack(struct mr_buf *b, const struct mr_signature *s)
{
    mr_pack_u64(b, s->from_config);
    mr_pack_i64(b, s->batchable);
    mr_pack_u64(b, s->flags);
    mr_pack_u64(b, s->max_pending);
    mr_pack_u64(b, s->max_batch_size);
    list_pack(b, s->inputs, s->input_count);
    list_pack(b, s->outputs, s->output_count);
}

static void signature_unpack(struct mr_unpack *u, struct mr_signature *out)
{
    *out = (struct mr_signature){.size = sizeof *out};
    out->from_config = mr_unpack_u32(u, UINT32_MAX);
    out->batchable = mr_unpack_i32(u);
    out->flags = mr_unpack_u32(u, UINT32_MAX);
    out->max_pending = mr_unpack_u32(u, UINT32_MAX);
    out->max_batch_size = mr_unpack_u32(u, UINT32_MAX);
    out->inputs = list_unpack(u, &out->input_count);
    out->outputs = list_unpack(u, &out->output_count);
}

int mr_ipc_signature_unpack(mr_bytes data, struct mr_arena *arena, struct mr_signature *out,
                            struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);

    signature_unpack(&u, out);
    return outcome(&u, "signature", err);
}

/* ---- replies ---- */

void mr_ipc_opened_pack(struct mr_buf *b, const struct mr_ipc_opened *o)
{
    const struct mr_model_memory *m = &o->memory;

    mr_ipc_signature_pack(b, &o->signature);
    mr_pack_text(b, o->backend_version);
    mr_pack_u64(b, o->bytes);
    mr_pack_u64(b, o->has_cancel);
    mr_pack_u64(b, m->size > 0);
    mr_pack_u64(b, m->is_apart);
    mr_pack_u64(b, m->mapped_bytes);
    mr_pack_u64(b, m->kept_bytes);
    mr_pack_u64(b, m->packed_bytes);
    mr_pack_u64(b, m->heap_bytes);
    mr_pack_u64(b, m->resident_bytes);
    mr_pack_text(b, m->reason ? m->reason : "");
}

int mr_ipc_opened_unpack(mr_bytes data, struct mr_arena *arena, struct mr_ipc_opened *out,
                         struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);
    struct mr_model_memory *m = &out->memory;

    *out = (struct mr_ipc_opened){0};
    signature_unpack(&u, &out->signature);
    out->backend_version = mr_unpack_name(&u);
    out->bytes = mr_unpack_u64(&u);
    out->has_cancel = mr_unpack_u64(&u) != 0;
    m->size = mr_unpack_u64(&u) ? sizeof *m : 0;
    m->is_apart = mr_unpack_u32(&u, 1);
    m->mapped_bytes = mr_unpack_u64(&u);
    m->kept_bytes = mr_unpack_u64(&u);
    m->packed_bytes = mr_unpack_u64(&u);
    m->heap_bytes = mr_unpack_u64(&u);
    m->resident_bytes = mr_unpack_u64(&u);
    m->reason = mr_unpack_name(&u);
    return outcome(&u, "opened", err);
}

void mr_ipc_instance_pack(struct mr_buf *b, const struct mr_instance_desc *d)
{
    mr_pack_u64(b, d->index);
    mr_pack_i64(b, d->kind);
    mr_pack_i64(b, d->device_id);
    mr_pack_text(b, d->name ? d->name : "");
}

int mr_ipc_instance_unpack(mr_bytes data, struct mr_arena *arena, struct mr_instance_desc *out,
                           struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);

    *out = (struct mr_instance_desc){.size = sizeof *out};
    out->index = mr_unpack_u32(&u, UINT32_MAX);
    out->kind = mr_unpack_i32(&u);
    out->device_id = mr_unpack_i32(&u);
    out->name = mr_unpack_name(&u);
    return outcome(&u, "instance", err);
}

/* ---- errors ---- */

void mr_ipc_err_pack(struct mr_buf *b, const struct mr_err *e)
{
    mr_buf_append(b, e, sizeof *e);
}

void mr_ipc_err_unpack(mr_bytes data, struct mr_err *out)
{
    struct mr_err e = {.status = MR_E_INTERNAL};

    if (data.len == sizeof e) {
        memcpy(&e, data.ptr, sizeof e);
        e.where[sizeof e.where - 1] = '\0';
        mr_err_tidy(&e);
    }
    if (e.status >= 0) {
        e.status = MR_E_INTERNAL;
    }
    if (e.msg[0] == '\0') {
        mr_err_set(&e, e.status, e.where, "the worker process failed without saying why");
    }
    *out = e;
}
