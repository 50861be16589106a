/* `millrace model versions`: the state of each load of a model's versions. */
#include <stdio.h>

#include "cli/common/term.h"
#include "codec/json.h"
#include "model.h"

struct version_row {
    mr_str version;
    mr_str state;
    mr_str reason;
    char labels[128]; /* cut if too long */
    mr_str since;     /* when it entered its state */
    uint64_t loading_ns;
    uint64_t warming_ns;
    uint64_t ready_ns;
    uint64_t draining_ns;
    uint64_t file_bytes;
    uint64_t model_bytes;
    struct model_progress progress;
    mr_str parameters;
    mr_str fallback; /* why parameters are not in the pool */
    uint64_t pool_bytes;
    int64_t grown_bytes;
};

/* The states are in the order in which they are entered, except the last one, so the latest time is searched: the
 * texts of times are ordered like times. */
static int parse_entered(struct mr_json *j, struct version_row *row)
{
    bool first = true;
    mr_str key;
    mr_str at;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_json_string(j, &at);
        if (rc == MR_OK && mr_str_cmp(at, row->since) > 0) {
            row->since = at;
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_labels(struct mr_json *j, struct version_row *row)
{
    size_t used = 0;
    bool first = true;
    mr_str name;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        rc = mr_json_string(j, &name);
        if (rc == MR_OK && used + name.len + 2 < sizeof row->labels) {
            used += (size_t)snprintf(row->labels + used, sizeof row->labels - used, "%s%.*s",
                                     used ? "," : "", MR_STR_ARG(name));
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_spent(struct mr_json *j, struct version_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        uint64_t *to = mr_str_eq_c(key, "LOADING")    ? &row->loading_ns
                       : mr_str_eq_c(key, "WARMING")  ? &row->warming_ns
                       : mr_str_eq_c(key, "READY")    ? &row->ready_ns
                       : mr_str_eq_c(key, "DRAINING") ? &row->draining_ns
                                                      : NULL;
        rc = to ? mr_json_u64(j, to) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int parse_progress(struct mr_json *j, struct model_progress *p)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        uint64_t *to = mr_str_eq_c(key, "done_bytes")         ? &p->done
                       : mr_str_eq_c(key, "total_bytes")      ? &p->total
                       : mr_str_eq_c(key, "bytes_per_second") ? &p->per_second
                       : mr_str_eq_c(key, "left_ns")          ? &p->left_ns
                                                              : NULL;
        rc = to                         ? mr_json_u64(j, to)
             : mr_str_eq_c(key, "step") ? mr_json_string(j, &p->step)
                                        : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static int parse_memory(struct mr_json *j, struct version_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "parameters")) {
            rc = mr_json_string(j, &row->parameters);
        } else if (mr_str_eq_c(key, "reason")) {
            rc = mr_json_string(j, &row->fallback);
        } else if (mr_str_eq_c(key, "pool_bytes")) {
            rc = mr_json_u64(j, &row->pool_bytes);
        } else if (mr_str_eq_c(key, "grown_bytes")) {
            rc = mr_json_i64(j, &row->grown_bytes);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static int parse_row(struct mr_json *j, struct version_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "version")) {
            rc = mr_json_string(j, &row->version);
        } else if (mr_str_eq_c(key, "state")) {
            rc = mr_json_string(j, &row->state);
        } else if (mr_str_eq_c(key, "reason")) {
            rc = mr_json_string(j, &row->reason);
        } else if (mr_str_eq_c(key, "labels")) {
            rc = parse_labels(j, row);
        } else if (mr_str_eq_c(key, "entered")) {
            rc = parse_entered(j, row);
        } else if (mr_str_eq_c(key, "spent_ns")) {
            rc = parse_spent(j, row);
        } else if (mr_str_eq_c(key, "file_bytes")) {
            rc = mr_json_u64(j, &row->file_bytes);
        } else if (mr_str_eq_c(key, "model_bytes")) {
            rc = mr_json_u64(j, &row->model_bytes);
        } else if (mr_str_eq_c(key, "progress")) {
            rc = parse_progress(j, &row->progress);
        } else if (mr_str_eq_c(key, "memory")) {
            rc = parse_memory(j, row);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static void add_time(struct mr_grid *t, uint64_t ns)
{
    char text[32] = "-";

    if (ns) {
        mr_text_duration(text, (double)ns);
    }
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
}

static void add_bytes(struct mr_grid *t, uint64_t bytes)
{
    char text[32] = "-";

    if (bytes) {
        mr_text_bytes(text, bytes);
    }
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
}

void model_text_progress(char out[200], const struct model_progress *p)
{
    char done[32];
    char total[32];
    char rate[32];
    char left[32];

    int n = snprintf(out, 200, "%.*s", MR_STR_ARG(mr_str_sub(p->step, 0, 30)));
    if (p->total > 0) { /* some steps have no measure */
        mr_text_bytes(done, p->done);
        mr_text_bytes(total, p->total);
        n += snprintf(out + n, 200 - (size_t)n, " %s of %s", done, total);
    }
    if (p->per_second > 0) {
        mr_text_bytes(rate, p->per_second);
        mr_text_duration(left, (double)p->left_ns);
        snprintf(out + n, 200 - (size_t)n, ", %s/s, %s left", rate, left);
    }
}

/* The progress of a load, or the place of the parameters: "pool 384 MiB", "plain, grew 812 MiB: why". */
static void add_details(struct mr_grid *t, const struct version_row *r)
{
    char text[200] = "";
    char bytes[32];
    int n;

    if (r->progress.step.len) {
        model_text_progress(text, &r->progress);
    } else if (mr_str_eq_c(r->parameters, "pool")) {
        mr_text_bytes(bytes, r->pool_bytes);
        snprintf(text, sizeof text, "pool %s", bytes);
    } else if (r->parameters.len) {
        n = snprintf(text, sizeof text, "%.*s", MR_STR_ARG(mr_str_sub(r->parameters, 0, 20)));
        if (r->grown_bytes > 0) {
            mr_text_bytes(bytes, (uint64_t)r->grown_bytes);
            n += snprintf(text + n, sizeof text - (size_t)n, ", grew %s", bytes);
        }
        if (r->fallback.len) {
            snprintf(text + n, sizeof text - (size_t)n, ": %.*s", MR_STR_ARG(r->fallback));
        }
    }
    mr_grid_add_str(t, MR_STYLE_PLAIN, mr_str_c(text));
}

static void add_row(struct mr_grid *t, const struct version_row *r)
{
    bool is_bad = mr_str_eq_c(r->state, "FAILED");
    bool is_over = is_bad || mr_str_eq_c(r->state, "UNLOADED");
    enum mr_style style = is_bad                           ? MR_STYLE_BAD
                          : mr_str_eq_c(r->state, "READY") ? MR_STYLE_GOOD
                          : is_over                        ? MR_STYLE_DIM
                                                           : MR_STYLE_WARN;

    mr_grid_add_str(t, MR_STYLE_BOLD, r->version);
    mr_grid_add_str(t, style, r->state);
    mr_grid_add_str(t, MR_STYLE_PLAIN, r->since);
    add_time(t, r->loading_ns);
    add_time(t, r->warming_ns);
    add_time(t, r->ready_ns);
    add_time(t, r->draining_ns);
    add_bytes(t, r->file_bytes);
    add_bytes(t, r->model_bytes);
    mr_grid_add_str(t, MR_STYLE_BOLD, mr_str_c(r->labels));
    mr_grid_add_str(t, MR_STYLE_PLAIN, r->reason);
    add_details(t, r);
}

/* Keeps the running load that began last. */
static int read_progress(struct mr_json *j, void *ctx)
{
    struct model_progress *out = ctx;
    struct version_row row = {0};
    int rc = parse_row(j, &row);

    if (rc == MR_OK && (row.progress.step.len || mr_str_eq_c(row.state, "WARMING"))) {
        *out = row.progress;
        out->version = row.version;
        out->state = row.state;
    }
    return rc;
}

int model_read_progress(mr_bytes body, struct mr_arena *arena, struct model_progress *out,
                        struct mr_err *err)
{
    *out = (struct model_progress){0};
    return mr_remote_versions(body, arena, NULL, read_progress, out, err);
}

static int read_row(struct mr_json *j, void *ctx)
{
    struct version_row row = {0};
    int rc = parse_row(j, &row);

    if (rc == MR_OK) {
        add_row(ctx, &row);
    }
    return rc;
}

static int print_versions(const struct model_run *m, mr_bytes body, struct mr_err *err)
{
    static const char *const head[] = {"VERSION", "STATE",   "SINCE", "LOAD",   "WARM-UP",
                                       "SERVED",  "DRAIN",   "FILES", "MEMORY", "LABELS",
                                       "REASON",  "DETAILS", NULL};
    mr_str error = MR_STR("");
    struct mr_arena arena;
    struct mr_grid t;

    if (m->form == MODEL_JSON) {
        printf("%.*s\n", (int)body.len, (const char *)body.ptr);
        return MR_OK;
    }
    mr_grid_init(&t, head);
    mr_arena_init(&arena, 4096, (size_t)1 << 26);
    int rc = mr_remote_versions(body, &arena, &error, read_row, &t, err);
    if (rc == MR_OK) {
        mr_grid_print(&t, stdout, m->form == MODEL_TABLE, 0);
    }
    if (rc == MR_OK && error.len) {
        struct mr_buf clean;
        mr_buf_init(&clean, 0);
        mr_text_clean(&clean, error);
        printf("%s\n", mr_buf_cstr(&clean));
        mr_buf_fini(&clean);
    }
    mr_grid_fini(&t);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}

int model_run_versions(struct model_run *m, struct mr_err *err)
{
    struct mr_remote_reply reply;
    char path[600];

    snprintf(path, sizeof path, "/v2/models/%.500s/versions", m->name);
    int rc = mr_remote_text(&m->remote, path, NULL, &reply, err);
    if (rc == MR_OK) {
        rc = print_versions(m, reply.body, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

/* ---- label, rollback ---- */

/* label NAME LABEL VERSION; without VERSION the label is removed */
int model_run_label(struct model_run *m, struct mr_err *err)
{
    const char *label = m->more[0];
    const char *version = m->more[1];
    struct mr_buf body;
    int64_t took_ns;
    char done[200];

    mr_buf_init(&body, 4096);
    MR_BUF_LIT(&body, "{\"label\":");
    mr_json_put_string(&body, mr_str_c(label));
    MR_BUF_LIT(&body, ",\"version\":");
    mr_json_put_string(&body, mr_str_c(version));
    MR_BUF_LIT(&body, "}");
    int rc = model_post(m, "label", &body, &took_ns, err);
    if (rc == MR_OK) {
        snprintf(done, sizeof done, "version %.20s is labelled '%.64s'", version, label);
        if (!version) {
            snprintf(done, sizeof done, "has no label '%.64s' any more", label);
        }
        model_say(m, "label", done, took_ns);
    }
    mr_buf_fini(&body);
    return rc;
}

/* The version that requests without a version get; "" if the server does not report it. */
static void default_version(struct model_run *m, char out[24])
{
    struct mr_remote_reply reply;
    struct mr_arena arena;
    struct mr_json j;
    struct mr_err ignored;
    bool first = true;
    char path[600];
    mr_str key;
    mr_str value = {NULL, 0};

    out[0] = '\0';
    snprintf(path, sizeof path, "/v2/models/%.500s/versions", m->name);
    if (mr_remote_text(&m->remote, path, NULL, &reply, &ignored) < 0) {
        return;
    }
    mr_arena_init(&arena, 4096, (size_t)1 << 20);
    mr_json_init(&j, mr_str_n((const char *)reply.body.ptr, reply.body.len), &arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        if (!mr_str_eq_c(key, "default_version") || mr_json_string(&j, &value) < 0) {
            mr_json_skip(&j, NULL);
        }
    }
    snprintf(out, 24, "%.*s", MR_STR_ARG(value));
    mr_arena_fini(&arena);
    mr_remote_reply_fini(&reply);
}

/* rollback NAME [VERSION] */
int model_run_rollback(struct model_run *m, struct mr_err *err)
{
    struct mr_buf body;
    int64_t took_ns;
    char before[24];
    char after[24];
    char done[200];

    default_version(m, before);
    mr_buf_init(&body, 4096);
    MR_BUF_LIT(&body, "{\"version\":");
    mr_json_put_string(&body, mr_str_c(m->more[0]));
    MR_BUF_LIT(&body, "}");
    int rc = model_post(m, "rollback", &body, &took_ns, err);
    if (rc == MR_OK) {
        default_version(m, after);
        snprintf(done, sizeof done, "rolled back%s%s%s%s until its next load or unload",
                 before[0] ? " from version " : "", before, after[0] ? " to version " : "", after);
        model_say(m, "rollback", done, took_ns);
    }
    mr_buf_fini(&body);
    return rc;
}
