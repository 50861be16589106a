/* Results, and words for numbers. */
#include "abi.h"
#include "tensor/tensor.h"

/* The names of an answer point into its bytes: C strings of them. */
void result_names_end(struct mr_sdk_result *r)
{
    mr_str *texts[] = {&r->response.model_name, &r->response.model_version, &r->response.id};
    const mr_str none = MR_STR("");

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const mr_str copy = texts[i]->ptr ? mr_arena_str(&r->arena, *texts[i]) : none;
        *texts[i] = copy.ptr ? copy : none;
    }
    const char **own[] = {&r->variant, &r->host}; /* of the client, which may go first */
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        *own[i] = *own[i] ? mr_arena_str(&r->arena, mr_str_c(*own[i])).ptr : NULL;
    }
    for (size_t i = 0; i < r->response.output_count; i++) {
        const mr_str copy = mr_arena_str(&r->arena, r->response.outputs[i].name);
        r->response.outputs[i].name = copy.ptr ? copy : none;
    }
}

uint32_t mr_sdk_result_output_count(const struct mr_sdk_result *r)
{
    return (uint32_t)r->response.output_count;
}

int mr_sdk_result_output(const struct mr_sdk_result *r, uint32_t index, struct mr_sdk_tensor *out)
{
    if (index >= r->response.output_count || abi_struct_check(out, "output", NULL) < 0) {
        return MR_E_INVALID;
    }
    const uint32_t room = out->size;
    const struct mr_oip_tensor *t = &r->response.outputs[index];
    const struct mr_sdk_tensor full = {.size = room,
                                       .dtype = t->tensor.dtype,
                                       .name = t->name.ptr,
                                       .shape = t->tensor.shape,
                                       .rank = t->tensor.rank,
                                       .data = t->tensor.data,
                                       .bytes = t->tensor.bytes};
    memcpy(out, &full, MR_MIN((size_t)room, sizeof full));
    return MR_OK;
}

int32_t mr_sdk_result_find(const struct mr_sdk_result *r, const char *name)
{
    for (size_t i = 0; i < r->response.output_count; i++) {
        if (mr_str_eq_c(r->response.outputs[i].name, name)) {
            return (int32_t)i;
        }
    }
    return -1;
}

const char *mr_sdk_result_model(const struct mr_sdk_result *r)
{
    return r->response.model_name.ptr;
}

const char *mr_sdk_result_version(const struct mr_sdk_result *r)
{
    return r->response.model_version.ptr;
}

const char *mr_sdk_result_id(const struct mr_sdk_result *r)
{
    return r->response.id.ptr;
}

const char *mr_sdk_result_variant(const struct mr_sdk_result *r)
{
    return r->variant ? r->variant : "";
}

const char *mr_sdk_result_host(const struct mr_sdk_result *r)
{
    return r->host ? r->host : "";
}

const char *mr_sdk_result_text(const struct mr_sdk_result *r)
{
    return r->text ? r->text : "";
}

uint32_t mr_sdk_result_is_yes(const struct mr_sdk_result *r)
{
    return r->is_yes;
}

uint32_t mr_sdk_result_attempts(const struct mr_sdk_result *r)
{
    return r->attempts;
}

void mr_sdk_result_free(struct mr_sdk_result **r)
{
    if (*r) {
        mr_block_unref(&(*r)->body);
        mr_arena_fini(&(*r)->arena);
    }
    mr_freep(r);
}

const char *mr_sdk_dtype_name(int32_t dtype)
{
    return mr_dtype_name(dtype);
}

int32_t mr_sdk_dtype(const char *name)
{
    return mr_dtype_from_name(mr_str_c(name));
}

uint64_t mr_sdk_dtype_size(int32_t dtype)
{
    return mr_dtype_size(dtype);
}

const char *mr_sdk_status_text(int status)
{
    return status == MR_OK ? "ok" : mr_status_text(status);
}
