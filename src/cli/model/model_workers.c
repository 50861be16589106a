/* `millrace model workers`: the worker processes of a model version. */
#include <stdio.h>

#include "cli/common/term.h"
#include "codec/json.h"
#include "model.h"

struct worker_row {
    uint64_t index, pid, resident_bytes;
    int64_t age_ns, cpu_ns;
    mr_str state, last_fault;
    uint64_t restarts;
    char reasons[100]; /* "crash 3, hang 1" */
};

static int parse_restarts(struct mr_json *j, struct worker_row *row)
{
    bool first = true;
    size_t used = 0;
    uint64_t n;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        rc = mr_json_u64(j, &n);
        if (rc == MR_OK && n > 0 && used + key.len + 32 < sizeof row->reasons) {
            used += (size_t)snprintf(row->reasons + used, sizeof row->reasons - used, "%s%.*s %llu",
                                     used ? ", " : "", MR_STR_ARG(key), (unsigned long long)n);
        }
        row->restarts += rc == MR_OK ? n : 0;
    }
    return rc < 0 ? rc : j->status;
}

static int parse_worker(struct mr_json *j, struct worker_row *row)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "worker")) {
            rc = mr_json_u64(j, &row->index);
        } else if (mr_str_eq_c(key, "pid")) {
            rc = mr_json_u64(j, &row->pid);
        } else if (mr_str_eq_c(key, "state")) {
            rc = mr_json_string(j, &row->state);
        } else if (mr_str_eq_c(key, "age_ns")) {
            rc = mr_json_i64(j, &row->age_ns);
        } else if (mr_str_eq_c(key, "cpu_ns")) {
            rc = mr_json_i64(j, &row->cpu_ns);
        } else if (mr_str_eq_c(key, "resident_bytes")) {
            rc = mr_json_u64(j, &row->resident_bytes);
        } else if (mr_str_eq_c(key, "restarts")) {
            rc = parse_restarts(j, row);
        } else if (mr_str_eq_c(key, "last_fault")) {
            rc = mr_json_string(j, &row->last_fault);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

static void add_row(struct mr_grid *t, const struct worker_row *r)
{
    char age[32];
    char cpu[32];
    char bytes[32];

    mr_text_duration(age, (double)r->age_ns);
    mr_text_duration(cpu, (double)r->cpu_ns);
    mr_text_bytes(bytes, r->resident_bytes);
    mr_grid_add(t, MR_STYLE_BOLD, "%llu", (unsigned long long)r->index);
    mr_grid_add_str(t,
                    mr_str_eq_c(r->state, "ready")    ? MR_STYLE_GOOD
                    : mr_str_eq_c(r->state, "failed") ? MR_STYLE_BAD
                                                      : MR_STYLE_WARN,
                    r->state);
    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->pid);
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", age);
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", cpu);
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", bytes);
    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)r->restarts);
    mr_grid_add_str(t, MR_STYLE_PLAIN, mr_str_c(r->reasons));
    mr_grid_add_str(t, MR_STYLE_PLAIN, r->last_fault);
}

static int parse_workers(struct mr_json *j, struct mr_grid *t)
{
    bool first = true;
    int rc = mr_json_enter_array(j);

    while (rc == MR_OK && mr_json_next_item(j, &first)) {
        struct worker_row row = {0};
        rc = parse_worker(j, &row);
        if (rc == MR_OK) {
            add_row(t, &row);
        }
    }
    return rc < 0 ? rc : j->status;
}

/* How long faults were not known, and how long there was no successor. */
struct times_row {
    mr_str reason;
    struct times_of {
        uint64_t count, mean_ns, max_ns;
    } detection, replacement;
};
#define REASONS_MAX 8

static int parse_times_of(struct mr_json *j, struct times_of *t)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "count")) {
            rc = mr_json_u64(j, &t->count);
        } else if (mr_str_eq_c(key, "mean_ns")) {
            rc = mr_json_u64(j, &t->mean_ns);
        } else if (mr_str_eq_c(key, "max_ns")) {
            rc = mr_json_u64(j, &t->max_ns);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

/* The row of that reason, or a new one. NULL: there are too many. */
static struct times_row *row_of(struct times_row rows[REASONS_MAX], mr_str reason)
{
    for (int i = 0; i < REASONS_MAX; i++) {
        if (rows[i].reason.len == 0) {
            rows[i].reason = reason;
        }
        if (mr_str_eq(rows[i].reason, reason)) {
            return &rows[i];
        }
    }
    return NULL;
}

static int parse_times(struct mr_json *j, struct times_row rows[REASONS_MAX], bool is_detection)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        struct times_row *row = row_of(rows, key);
        rc = row ? parse_times_of(j, is_detection ? &row->detection : &row->replacement)
                 : mr_json_skip(j, NULL);
    }
    return rc < 0 ? rc : j->status;
}

static void add_times(struct mr_grid *t, const struct times_of *of)
{
    char text[32];

    mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)of->count);
    mr_text_duration(text, (double)of->mean_ns);
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
    mr_text_duration(text, (double)of->max_ns);
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
}

static void print_times(const struct times_row rows[REASONS_MAX])
{
    static const char *const head[] = {"FAULT",    "DETECTED",  "MEAN TIME", "LONGEST",
                                       "REPLACED", "MEAN TIME", "LONGEST",   NULL};
    struct mr_grid t;

    if (rows[0].reason.len == 0) {
        return;
    }
    mr_grid_init(&t, head);
    for (int i = 0; i < REASONS_MAX && rows[i].reason.len > 0; i++) {
        mr_grid_add_str(&t, MR_STYLE_BOLD, rows[i].reason);
        add_times(&t, &rows[i].detection);
        add_times(&t, &rows[i].replacement);
    }
    printf("\n");
    mr_grid_print(&t, stdout, true, 0);
    mr_grid_fini(&t);
}

static int parse_answer(struct mr_json *j, struct mr_grid *t, struct times_row rows[REASONS_MAX],
                        mr_str *placement)
{
    bool first = true;
    mr_str key;
    int rc = mr_json_enter_object(j);

    while (rc == MR_OK && mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "workers")) {
            rc = parse_workers(j, t);
        } else if (mr_str_eq_c(key, "detection") || mr_str_eq_c(key, "replacement")) {
            rc = parse_times(j, rows, mr_str_eq_c(key, "detection"));
        } else if (mr_str_eq_c(key, "placement")) {
            rc = mr_json_string(j, placement);
        } else {
            rc = mr_json_skip(j, NULL);
        }
    }
    return rc < 0 ? rc : j->status;
}

int model_print_workers(const struct model_run *m, mr_bytes body, struct mr_err *err)
{
    static const char *const head[] = {"WORKER", "STATE",    "PID",     "AGE",        "CPU",
                                       "MEMORY", "RESTARTS", "REASONS", "LAST FAULT", NULL};
    struct mr_arena arena;
    struct mr_grid t;
    struct times_row rows[REASONS_MAX] = {0};
    mr_str placement = {0};
    struct mr_json j;

    if (m->form == MODEL_JSON) {
        printf("%.*s\n", (int)body.len, (const char *)body.ptr);
        return MR_OK;
    }
    mr_grid_init(&t, head);
    mr_arena_init(&arena, 4096, (size_t)1 << 24);
    mr_json_init(&j, mr_str_n((const char *)body.ptr, body.len), &arena, 0, err);
    const int rc = parse_answer(&j, &t, rows, &placement);
    if (rc == MR_OK && mr_str_eq_c(placement, "thread")) {
        fprintf(stderr, "millrace model: %s runs in threads of the server\n", m->name);
    } else if (rc == MR_OK) {
        mr_grid_print(&t, stdout, m->form == MODEL_TABLE, 0);
        if (m->form == MODEL_TABLE) {
            print_times(rows);
        }
    }
    mr_grid_fini(&t);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_WRAP(err, rc, "the server's answer") : MR_OK;
}
