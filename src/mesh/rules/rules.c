/* Read once, when a server starts; all of it is in one arena. */
#include "rules.h"

#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "codec/json.h"

#define LABELS_MAX 256 /* of a rule */

static int read_labels(struct mr_json *j, struct mr_arena *arena, const mr_str **out,
                       size_t *out_count)
{
    mr_str labels[LABELS_MAX];
    size_t count = 0;
    bool first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        if (count == LABELS_MAX) {
            return mr_json_fail(j, MR_E_TOO_LARGE, "more than %d labels", LABELS_MAX);
        }
        rc = mr_json_string(j, &labels[count++]);
    }
    rc = rc < 0 ? rc : j->status;
    if (rc < 0) {
        return rc;
    }
    mr_str *all = MR_ARENA_ARRAY(arena, mr_str, count + 1);
    if (!all) {
        return mr_json_fail(j, MR_E_TOO_LARGE, "the rules take more than %d bytes",
                            4 * MESH_RULES_BYTES_MAX);
    }
    memcpy(all, labels, count * sizeof *all);
    *out = all;
    *out_count = count;
    return MR_OK;
}

static int read_rule(struct mr_json *j, struct mr_arena *arena, struct mesh_constraint *k)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "required")) {
            rc = read_labels(j, arena, &k->required, &k->required_count);
        } else if (mr_str_eq_c(key, "preferred")) {
            rc = read_labels(j, arena, &k->preferred, &k->preferred_count);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static int read_rules(struct mr_json *j, struct mr_arena *arena, struct mesh_rules *r)
{
    bool first = true;
    mr_str type;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &type)) {
        if (r->len == MESH_RULES_MAX) {
            return mr_json_fail(j, MR_E_TOO_LARGE, "more than %d types", MESH_RULES_MAX);
        }
        r->at = mr_realloc_array(r->at, r->len + 1, sizeof *r->at);
        r->at[r->len] = (struct mesh_constraint){.type = type};
        rc = read_rule(j, arena, &r->at[r->len++]);
    }
    rc = rc < 0 ? rc : j->status;
    return rc < 0 ? rc : mr_json_finish(j);
}

/* The texts stay in `arena`, which has a copy of the JSON. */
static int parse(struct mesh_rules *r, struct mr_arena *arena, mr_str text, struct mr_err *err)
{
    struct mr_json j;

    text = mr_arena_str(arena, text);
    mr_json_init(&j, text, arena, 0, err);
    return read_rules(&j, arena, r);
}

static int read_file(const char *path, struct mr_buf *out, struct mr_err *err)
{
    char *text = NULL;
    size_t len = 0;
    const int rc = mr_file_read(path, MESH_RULES_BYTES_MAX, &text, &len, err);

    mr_buf_append(out, text, len);
    mr_free(text);
    return rc;
}

int mesh_rules_text(struct mr_buf *out, const char *text, struct mr_err *err)
{
    bool is_file = text[strspn(text, " \t\r\n")] != '{';
    int rc = MR_OK;

    mr_buf_init(out, 2 * MESH_RULES_BYTES_MAX);
    if (is_file) {
        rc = read_file(text, out, err);
    } else {
        mr_buf_c(out, text);
    }
    if (rc == MR_OK && (out->failed || out->len > MESH_RULES_BYTES_MAX)) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "it is longer than %d bytes", MESH_RULES_BYTES_MAX);
    }
    if (rc < 0) {
        mr_buf_fini(out);
    }
    return rc;
}

int mesh_rules_read(struct mesh_rules *out, const char *text, struct mr_err *err)
{
    struct mr_buf json;
    int rc = mesh_rules_text(&json, text, err);

    if (rc < 0) {
        return rc;
    }
    struct mr_arena *arena = MR_NEW(struct mr_arena);
    *out = (struct mesh_rules){.memory = arena};
    mr_arena_init(arena, 4096, 4 * MESH_RULES_BYTES_MAX);
    rc = parse(out, arena, mr_buf_view(&json), err);
    mr_buf_fini(&json);
    if (rc < 0) {
        mesh_rules_fini(out);
        return text[strspn(text, " \t\r\n")] == '{' ? rc : MR_WRAP(err, rc, "%s", text);
    }
    return MR_OK;
}

void mesh_rules_fini(struct mesh_rules *r)
{
    if (r->memory) {
        mr_arena_fini(r->memory);
        mr_free(r->memory);
    }
    mr_free(r->at);
    *r = (struct mesh_rules){0};
}
