/* A client that sends an id in both forms means one: the binary form counts. Several values of one header, repeated or (-bin) separated by
 * commas, are several models. */
#include "ids.h"

#include "codec/json.h"

#define ID_TEXT_MAX 4096 /* of one id, encoded: longer ones are too long in any case */

struct reading {
    mr_str *at; /* [PLANE_IDS_MAX] */
    size_t count;
    const char *name; /* of the header */
};

static int add(struct reading *r, mr_str id, struct mr_err *err)
{
    if (id.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "the metadata %s has an empty id", r->name);
    }
    if (r->count == PLANE_IDS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "the metadata %s has more than %d ids", r->name,
                       PLANE_IDS_MAX);
    }
    r->at[r->count++] = id;
    return MR_OK;
}

/* gRPC leaves the padding out. */
static int add_binary(struct reading *r, mr_str text, struct mr_arena *arena, struct mr_err *err)
{
    size_t padded = (text.len + 3) / 4 * 4;
    size_t len = 0;

    if (text.len > ID_TEXT_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "the metadata %s has an id of more than %d bytes",
                       r->name, ID_TEXT_MAX);
    }
    char *copy = mr_arena_try(arena, padded + 1, 1);
    uint8_t *id = mr_arena_try(arena, padded + 1, 1);
    if (!copy || !id) {
        return MR_ARENA_FAIL(err);
    }
    memset(copy, '=', padded);
    memcpy(copy, text.len ? text.ptr : "", text.len);
    if (!mr_base64_decode(mr_str_n(copy, padded), id, &len)) {
        return MR_FAIL(err, MR_E_INVALID, "the metadata %s is not base64", r->name);
    }
    return add(r, mr_str_n((const char *)id, len), err);
}

static int read_value(struct reading *r, mr_str value, struct mr_arena *arena, struct mr_err *err)
{
    bool is_binary = mr_str_ends(mr_str_c(r->name), MR_STR("-bin"));
    mr_str part;
    int rc = MR_OK;

    if (!is_binary || value.len == 0) {
        return add(r, value, err);
    }
    while (rc == MR_OK && mr_str_split(&value, ',', &part)) {
        rc = add_binary(r, mr_str_trim(part), arena, err);
    }
    return rc;
}

static int read_header(const struct mr_call *call, const char *name, struct reading *r,
                       struct mr_err *err)
{
    int rc = MR_OK;

    r->name = name;
    for (size_t i = 0; i < call->header_count && rc == MR_OK; i++) {
        if (!mr_str_eq_c(call->headers[i].name, name)) {
            continue;
        }
        if (!r->at) {
            r->at = MR_ARENA_ARRAY(call->arena, mr_str, PLANE_IDS_MAX);
        }
        rc = r->at ? read_value(r, call->headers[i].value, call->arena, err) : MR_ARENA_FAIL(err);
    }
    return rc;
}

/* The first of these headers that is there. */
static int read_any(const struct mr_call *call, const char *const *names, struct reading *r,
                    struct mr_err *err)
{
    int rc = MR_OK;

    for (; *names && r->count == 0 && rc == MR_OK; names++) {
        rc = read_header(call, *names, r, err);
    }
    return rc;
}

int plane_ids_read(const struct mr_call *call, struct plane_ids *out, struct mr_err *err)
{
    static const char *const model_names[] = {PLANE_ID, "mm-model-id", "tas-model-id", NULL};
    static const char *const vmodel_names[] = {"mm-vmodel-id-bin", "mm-vmodel-id", NULL};
    struct reading models = {0}, vmodels = {0};
    int rc;

    MR_TRY(read_any(call, model_names, &models, err));
    MR_TRY(read_any(call, vmodel_names, &vmodels, err));
    if (models.count && vmodels.count) {
        return MR_FAIL(err, MR_E_INVALID,
                       "must include only one of model id and vmodel id: %s and %s", models.name,
                       vmodels.name);
    }
    out->is_vmodel = vmodels.count > 0;
    out->at = out->is_vmodel ? vmodels.at : models.at;
    out->count = out->is_vmodel ? vmodels.count : models.count;
    out->requires_all = mr_str_ieq(mr_call_header(call, "mm-required"), MR_STR("all"));
out:
    return rc;
}

bool plane_is_id_header(mr_str name)
{
    return mr_str_starts(name, MR_STR("mm-")) || mr_str_eq_c(name, "tas-model-id");
}

struct mr_header plane_id_header(struct mr_arena *arena, mr_str id)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_base64_encode((mr_bytes){(const uint8_t *)id.ptr, id.len}, &b);
    struct mr_header h = {MR_STR(PLANE_ID), mr_arena_str(arena, mr_buf_view(&b))};
    mr_buf_fini(&b);
    return h;
}
