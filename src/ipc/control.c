#include "ipc/control.h"

#include <string.h>

void mr_ipc_control_pack(struct mr_buf *b, uint64_t number, const struct mr_control_args *args)
{
    mr_pack_u64(b, number);
    mr_pack_i64(b, args->kind);
    mr_pack_text(b, args->model);
    mr_pack_text(b, args->version ? args->version : "");
    mr_pack_text(b, args->config);
    mr_pack_u64(b, args->flags);
    mr_pack_u64(b, args->file_count);
    for (uint32_t i = 0; i < args->file_count; i++) {
        mr_pack_text(b, args->files[i].path);
        mr_pack_bytes(b, args->files[i].data, args->files[i].bytes);
    }
}

int mr_ipc_control_unpack(mr_bytes data, struct mr_arena *arena, uint64_t *out_number,
                          struct mr_control_args *out, struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);
    struct mr_control_file *files;

    *out_number = mr_unpack_u64(&u);
    *out = (struct mr_control_args){.size = sizeof *out};
    out->kind = mr_unpack_i32(&u);
    out->model = mr_unpack_name(&u);
    out->version = mr_unpack_name(&u);
    out->config = mr_unpack_text(&u);
    out->flags = mr_unpack_u32(&u, UINT32_MAX);
    out->file_count = mr_unpack_count(&u);
    out->files = files = mr_unpack_array(&u, (size_t)out->file_count + 1, sizeof *files);
    for (uint32_t i = 0; files && i < out->file_count; i++) {
        files[i].path = mr_unpack_name(&u);
        const mr_bytes content = mr_unpack_bytes(&u);
        files[i].data = content.ptr;
        files[i].bytes = content.len;
    }
    return u.failed ? MR_FAIL(err, MR_E_INVALID, "a control request that is damaged") : MR_OK;
}

void mr_ipc_metric_pack(struct mr_buf *b, uint64_t number, const struct mr_metric_args *args)
{
    uint64_t bits;

    mr_pack_u64(b, number);
    mr_pack_i64(b, args->kind);
    mr_pack_text(b, args->name);
    mr_pack_text(b, args->help);
    mr_pack_settings(b, args->labels, args->label_count);
    mr_pack_u64(b, args->bound_count);
    for (uint32_t i = 0; i < args->bound_count; i++) {
        memcpy(&bits, &args->bounds[i], sizeof bits);
        mr_pack_u64(b, bits);
    }
}

int mr_ipc_metric_unpack(mr_bytes data, struct mr_arena *arena, uint64_t *out_number,
                         struct mr_metric_args *out, struct mr_err *err)
{
    struct mr_unpack u = mr_unpack_begin(data, arena);
    double *bounds;

    *out_number = mr_unpack_u64(&u);
    *out = (struct mr_metric_args){.size = sizeof *out};
    out->kind = mr_unpack_i32(&u);
    out->name = mr_unpack_name(&u);
    out->help = mr_unpack_name(&u);
    out->labels = mr_unpack_settings(&u, &out->label_count);
    out->bound_count = mr_unpack_count(&u);
    out->bounds = bounds = mr_unpack_array(&u, (size_t)out->bound_count + 1, sizeof *bounds);
    for (uint32_t i = 0; bounds && i < out->bound_count; i++) {
        const uint64_t bits = mr_unpack_u64(&u);
        memcpy(&bounds[i], &bits, sizeof bits);
    }
    return u.failed ? MR_FAIL(err, MR_E_INVALID, "a metric that is damaged") : MR_OK;
}
