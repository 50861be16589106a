/* Members that the configuration does not know are errors: one that is misspelled would open what it should close. */
#include "methods.h"

#include "base/arena.h"
#include "codec/json.h"

#define FIELD_MAX ((1 << 29) - 1)

void mesh_methods_add(struct mesh_methods *ms, mr_str name, const struct mesh_method *method)
{
    struct mesh_method *known = mr_map_find(&ms->all, name);

    if (!known && ms->all.len < MESH_METHODS_MAX) {
        known = MR_NEW(struct mesh_method);
        mr_map_put(&ms->all, name, known);
    }
    if (known) {
        *known = *method;
    }
}

const struct mesh_method *mesh_methods_find(const struct mesh_methods *ms, mr_str name)
{
    return mr_map_find(&ms->all, name);
}

void mesh_methods_fini(struct mesh_methods *ms)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&ms->all, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&ms->all);
    *ms = (struct mesh_methods){0};
}

/* ---- the configuration ---- */

static int read_path(struct mr_json *j, struct mr_splice_path *out)
{
    bool first = true;
    int rc = mr_json_enter_array(j);

    out->depth = 0;
    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        int64_t field = 0;
        if (out->depth == MR_SPLICE_DEPTH_MAX) {
            return mr_json_fail(j, MR_E_INVALID, "idExtractionPath has more than %d field numbers",
                                MR_SPLICE_DEPTH_MAX);
        }
        rc = mr_json_i64(j, &field);
        if (rc == MR_OK && (field < 1 || field > FIELD_MAX)) {
            return mr_json_fail(j, MR_E_INVALID,
                                "idExtractionPath: field number %lld is not 1 to %d",
                                (long long)field, FIELD_MAX);
        }
        out->field[out->depth++] = (uint32_t)field;
    }
    return rc < 0 ? rc : j->status;
}

static int unknown_key(struct mr_json *j, mr_str key, const char *known)
{
    return mr_json_fail(j, MR_E_INVALID, "member '%.*s' is not %s",
                        MR_STR_ARG(mr_str_sub(key, 0, 64)), known);
}

static int read_method(struct mr_json *j, struct mesh_method *m)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "idExtractionPath")) {
            rc = read_path(j, &m->path);
        } else if (mr_str_eq_c(key, "vModelId")) {
            rc = mr_json_bool(j, &m->is_vmodel);
        } else {
            rc = unknown_key(j, key, "idExtractionPath or vModelId");
        }
    }
    return rc < 0 ? rc : j->status;
}

static int read_methods(struct mr_json *j, struct mesh_methods *ms)
{
    bool first = true;
    mr_str name;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &name)) {
        struct mesh_method m = {0};
        if (name.len == 0 || name.len > 1024 || name.ptr[0] == '/') {
            return mr_json_fail(j, MR_E_INVALID, "a method is named \"package.Service/Method\"");
        }
        if (ms->all.len == MESH_METHODS_MAX) {
            return mr_json_fail(j, MR_E_TOO_LARGE, "more than %d methods", MESH_METHODS_MAX);
        }
        rc = read_method(j, &m);
        mesh_methods_add(ms, name, &m);
    }
    return rc < 0 ? rc : j->status;
}

static int read_config(struct mr_json *j, struct mesh_methods *ms)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "rpcConfigs")) {
            rc = read_methods(j, ms);
        } else if (mr_str_eq_c(key, "allowOtherRpcs")) {
            rc = mr_json_bool(j, &ms->allows_others);
        } else {
            rc = unknown_key(j, key, "rpcConfigs or allowOtherRpcs");
        }
    }
    rc = rc < 0 ? rc : j->status;
    return rc < 0 ? rc : mr_json_finish(j);
}

int mesh_methods_parse(struct mesh_methods *out, mr_str json, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;

    *out = (struct mesh_methods){0};
    mr_arena_init(&arena, 4096, 4 << 20);
    mr_json_init(&j, json, &arena, 0, err);
    int rc = read_config(&j, out);
    mr_arena_fini(&arena);
    if (rc < 0) {
        mesh_methods_fini(out);
    }
    return rc;
}
