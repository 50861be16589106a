/* Repository index and statistics as tables. Both are read with the pull parser, member by member;
 * unknown members are skipped, so that other servers' answers are accepted too. */
#include <stdio.h>

#include "cli/common/stats.h"
#include "cli/common/term.h"
#include "codec/json.h"
#include "model.h"

static int print_body(mr_bytes body)
{
    fwrite(body.ptr, 1, body.len, stdout);
    printf("\n");
    return MR_OK;
}

static mr_str text_of(mr_bytes body)
{
    return mr_str_n((const char *)body.ptr, body.len);
}

/* ---- list ---- */

struct index_row {
    mr_str name;
    mr_str version;
    mr_str state;
    mr_str reason;
};

static int parse_index_row(struct mr_json *j, struct index_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        mr_str *to = mr_str_eq_c(key, "name")      ? &row->name
                     : mr_str_eq_c(key, "version") ? &row->version
                     : mr_str_eq_c(key, "state")   ? &row->state
                     : mr_str_eq_c(key, "reason")  ? &row->reason
                                                   : NULL;
        rc = to ? mr_json_string(j, to) : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static void add_index_row(struct mr_grid *t, const struct index_row *row)
{
    bool ready = mr_str_eq_c(row->state, "READY");
    bool gone = mr_str_eq_c(row->state, "UNAVAILABLE") && !mr_str_eq_c(row->reason, "unloaded");
    enum mr_style style = ready ? MR_STYLE_GOOD : gone ? MR_STYLE_BAD : MR_STYLE_DIM;

    mr_grid_add_str(t, MR_STYLE_BOLD, row->name);
    mr_grid_add_str(t, MR_STYLE_PLAIN, row->version.len ? row->version : MR_STR("-"));
    mr_grid_add_str(t, style, row->state.len ? row->state : MR_STR("not loaded"));
    mr_grid_add_str(t, MR_STYLE_PLAIN, row->reason);
}

int model_print_list(const struct model_run *m, mr_bytes body, struct mr_err *err)
{
    static const char *const head[] = {"MODEL", "VERSION", "STATE", "REASON", NULL};
    struct mr_arena arena;
    struct mr_grid t;
    struct mr_json j;
    bool first = true;

    if (m->form == MODEL_JSON) {
        return print_body(body);
    }
    mr_grid_init(&t, head);
    mr_arena_init(&arena, 4096, (size_t)1 << 28);
    mr_json_init(&j, text_of(body), &arena, 0, err);
    int rc = mr_json_enter_array(&j);
    while (rc == MR_OK && mr_json_next_item(&j, &first)) {
        struct index_row row = {0};
        rc = parse_index_row(&j, &row);
        if (rc == MR_OK) {
            add_index_row(&t, &row);
        }
    }
    rc = rc < 0 ? rc : j.status;
    if (rc == MR_OK && (t.cells.len || m->form != MODEL_TABLE)) {
        mr_grid_print(&t, stdout, m->form == MODEL_TABLE, 0);
    } else if (rc == MR_OK) {
        printf("no models\n");
    }
    mr_grid_fini(&t);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}

/* ---- stats ---- */

static void add_mean(struct mr_grid *t, uint64_t ns, uint64_t count)
{
    char text[32] = "-";

    if (count) {
        mr_text_duration(text, (double)ns / (double)count);
    }
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
}

static void add_stats_row(struct mr_grid *t, const struct mr_stats_row *r)
{
    mr_grid_add_str(t, MR_STYLE_BOLD, r->name);
    mr_grid_add_str(t, MR_STYLE_PLAIN, r->version);
    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->success.count);
    mr_grid_add(t, r->fail.count ? MR_STYLE_BAD : MR_STYLE_PLAIN, "%llu",
                (unsigned long long)r->fail.count);
    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->inferences);
    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->executions);
    if (r->executions) {
        mr_grid_add(t, MR_STYLE_PLAIN, "%.2f", (double)r->inferences / (double)r->executions);
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "-");
    }
    add_mean(t, r->success.ns, r->success.count);
    add_mean(t, r->queue.ns, r->queue.count);
    add_mean(t, r->input.ns + r->infer.ns + r->output.ns, r->infer.count);
}

int model_print_stats(const struct model_run *m, mr_bytes body, struct mr_err *err)
{
    static const char *const head[] = {"MODEL", "VERSION", "OK",    "FAILED",  "INFERENCES", "RUNS",
                                       "BATCH", "MEAN",    "QUEUE", "COMPUTE", NULL};
    struct mr_arena arena;
    struct mr_stats_list list = {0};
    struct mr_grid t;

    if (m->form == MODEL_JSON) {
        return print_body(body);
    }
    mr_grid_init(&t, head);
    mr_arena_init(&arena, 4096, (size_t)1 << 28);
    int rc = mr_stats_parse_rest(body, &arena, &list, err);
    if (rc == MR_OK) {
        for (size_t i = 0; i < list.len; i++) {
            add_stats_row(&t, &list.at[i]);
        }
        mr_grid_print(&t, stdout, m->form == MODEL_TABLE, 0);
    }
    MR_VEC_FINI(&list);
    mr_grid_fini(&t);
    mr_arena_fini(&arena);
    return rc;
}
