/* `millrace batch status|pause|resume|set FOLDER`: through the socket of a running job, or from the folder of a job
 * that does not run. */
#include "batch_control.h"

#include <stdio.h>

#include "base/clock.h"
#include "batch_options.h"
#include "batch_shards.h"
#include "cli/common/cli.h"
#include "cli/common/remote.h"
#include "cli/common/term.h"
#include "codec/json.h"

#define TIMEOUT_NS (10 * MR_NS_PER_S)

static const char usage[] =
    "usage: millrace batch status FOLDER [--json]\n"
    "       millrace batch pause FOLDER\n"
    "       millrace batch resume FOLDER\n"
    "       millrace batch set FOLDER [--batch-rows N] [--max-in-flight-per-host N] [--hosts "
    "HOST,...]"
    "\n\n"
    "Asks about the job in FOLDER, and changes it while it runs. A job that is paused makes no "
    "calls; "
    "those under\n"
    "way end and are committed. Changes hold until the job ends: a restart goes by its command "
    "line.\n";

static const char notes[] = "Exit status: 0 done, 1 there is no such job or it does not run, 2 the "
                            "command line is wrong.\n";

struct control_command {
    struct mr_option_list hosts;
    uint32_t batch_rows;
    uint32_t max_in_flight;
    bool json;
};

#define AT(member) MR_OPTION_AT(struct control_command, member)

static const struct mr_option table[] = {
    {.name = "batch-rows",
     .letter = 'b',
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(batch_rows),
     .min = 1,
     .max = 1 << 20,
     .value = "ROWS",
     .help = "set: of a call, at most"},
    {.name = "max-in-flight-per-host",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(max_in_flight),
     .min = 1,
     .max = 65535,
     .value = "N",
     .help = "set: calls at a time"},
    {.name = "hosts",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(hosts),
     .value = "HOST,...",
     .help = "set: all hosts that are named one by one, in the place of those before"},
    {.name = "json",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(json),
     .help = "print what the job answers"},
};

/* ---- a job's answers ---- */

/* Reads members of an object by name: strings unescaped, everything else as its JSON text. */
static void members_read(struct mr_json *j, const char *const *names, mr_str *out, size_t count)
{
    bool first = true;
    mr_str key;

    memset(out, 0, count * sizeof *out);
    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        mr_str ignored;
        mr_str *to = &ignored;
        for (size_t i = 0; i < count; i++) {
            to = mr_str_eq_c(key, names[i]) ? &out[i] : to;
        }
        if (mr_json_peek(j) == MR_JSON_STRING) {
            mr_json_string(j, to);
        } else {
            mr_json_skip(j, to);
        }
    }
}

static double number_of(mr_str text)
{
    double n;
    return mr_text_double(text, &n) ? n : 0;
}

static void hosts_print(mr_str hosts, struct mr_arena *arena)
{
    static const char *const head[] = {"HOST",  "STATE", "ROWS", "CALLS", "FAILED", "IN FLIGHT",
                                       "LIMIT", "P50",   "P95",  "",      NULL};
    static const char *const names[] = {"address",   "state", "rows",  "calls", "failures",
                                        "in_flight", "limit", "p50_s", "p95_s", "reason"};
    enum { COUNT = sizeof names / sizeof *names };
    struct mr_grid grid;
    struct mr_json j;
    mr_str m[COUNT];
    bool first = true;
    char text[32];

    mr_grid_init(&grid, head);
    mr_json_init(&j, hosts, arena, 0, NULL);
    mr_json_enter_array(&j);
    while (mr_json_next_item(&j, &first)) {
        members_read(&j, names, m, COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            const bool is_time = i == 7 || i == 8;
            mr_text_duration(text, is_time ? number_of(m[i]) * 1e9 : 0);
            mr_grid_add_str(&grid, MR_STYLE_PLAIN, is_time ? mr_str_c(text) : m[i]);
        }
    }
    mr_grid_print(&grid, stdout, true, 2);
    mr_grid_fini(&grid);
}

static void failures_print(mr_str failures, struct mr_arena *arena)
{
    static const char *const head[] = {"FAILED CALLS", "HOST", "AGO", "CAUSE", NULL};
    static const char *const names[] = {"count", "host", "ago_s", "cause"};
    struct mr_grid grid;
    struct mr_json j;
    mr_str m[4];
    bool first = true;
    char text[32];

    mr_grid_init(&grid, head);
    mr_json_init(&j, failures, arena, 0, NULL);
    mr_json_enter_array(&j);
    while (mr_json_next_item(&j, &first)) {
        members_read(&j, names, m, 4);
        mr_text_duration(text, number_of(m[2]) * 1e9);
        m[2] = mr_str_c(text);
        for (size_t i = 0; i < 4; i++) {
            mr_grid_add_str(&grid, MR_STYLE_PLAIN, m[i]);
        }
    }
    if (grid.cells.len > 0) {
        mr_grid_print(&grid, stdout, true, 2);
    }
    mr_grid_fini(&grid);
}

static void tokens_print(mr_str tokens, struct mr_arena *arena)
{
    static const char *const names[] = {"prompt", "completion"};
    struct mr_json j;
    mr_str m[2];

    mr_json_init(&j, tokens, arena, 0, NULL);
    members_read(&j, names, m, 2);
    printf("%.*s tokens of prompts, %.*s of answers in this start\n", MR_STR_ARG(m[0]),
           MR_STR_ARG(m[1]));
}

static int status_print(mr_str status, struct mr_err *err)
{
    enum {
        PHASE,
        PAUSED,
        HELD,
        TOTAL,
        ROWS,
        DEAD,
        UNDER_WAY,
        MEMORY,
        RATE,
        BOUND,
        RAN,
        PID,
        LIMITS,
        HOSTS,
        FAILURES,
        TOKENS,
        COUNT
    };
    static const char *const names[COUNT] = {
        "phase",     "paused",       "held",       "total_rows", "rows",  "dead",
        "under_way", "memory_bytes", "rows_per_s", "bottleneck", "ran_s", "pid",
        "limits",    "hosts",        "failures",   "tokens"};
    static const char *const limit_names[] = {"batch_rows", "batch_rows_taken",
                                              "max_in_flight_per_host"};
    struct mr_arena arena;
    struct mr_json j;
    mr_str m[COUNT];
    mr_str limits[3];
    char ran[32];
    char memory[32];

    mr_arena_init(&arena, 4096, (size_t)1 << 28);
    mr_json_init(&j, status, &arena, 0, err);
    members_read(&j, names, m, COUNT);
    const int rc = mr_json_finish(&j);
    if (rc < 0) {
        mr_arena_fini(&arena);
        return rc;
    }
    mr_json_init(&j, m[LIMITS], &arena, 0, NULL);
    members_read(&j, limit_names, limits, 3);
    const bool is_paused = mr_str_eq_c(m[PAUSED], "true");
    mr_text_duration(ran, number_of(m[RAN]) * 1e9);
    mr_text_bytes(memory, (uint64_t)number_of(m[MEMORY]));
    printf("%s%.*s for %s in process %.*s, bound by the %.*s\n", is_paused ? "paused, " : "",
           MR_STR_ARG(m[PHASE]), ran, MR_STR_ARG(m[PID]), MR_STR_ARG(m[BOUND]));
    if (m[HELD].len > 0) {
        printf("paused: %.*s; tried again every 10 s, and at once by resume\n",
               MR_STR_ARG(m[HELD]));
    }
    printf("%.0f rows done, %.*s of them dead, %.*s under way (%s), of %.*s; %.*s rows/s\n",
           number_of(m[ROWS]) + number_of(m[DEAD]), MR_STR_ARG(m[DEAD]), MR_STR_ARG(m[UNDER_WAY]),
           memory,
           MR_STR_ARG(mr_str_eq_c(m[TOTAL], "null") ? MR_STR("an unknown number") : m[TOTAL]),
           MR_STR_ARG(m[RATE]));
    printf("calls of %.*s rows at most%s%.*s%s, %.*s at a time per host\n", MR_STR_ARG(limits[0]),
           mr_str_eq(limits[0], limits[1]) ? "" : " (hosts take ",
           mr_str_eq(limits[0], limits[1]) ? 0 : (int)limits[1].len, limits[1].ptr,
           mr_str_eq(limits[0], limits[1]) ? "" : ")", MR_STR_ARG(limits[2]));
    if (m[TOKENS].len > 0) {
        tokens_print(m[TOKENS], &arena);
    }
    hosts_print(m[HOSTS], &arena);
    failures_print(m[FAILURES], &arena);
    mr_arena_fini(&arena);
    return MR_OK;
}

/* ---- a job that does not run ---- */

static int summary_print(const struct control_command *c, const char *folder, const char *why,
                         struct mr_err *err)
{
    struct mr_batch_summary summary;
    char bytes[32];
    int rc = mr_batch_summary(folder, &summary, err);

    if (rc < 0) {
        return rc;
    }
    const char *state = summary.is_finished ? "finished" : summary.pid ? "running" : "stopped";
    if (c->json) {
        printf("{\"state\":\"%s\",\"pid\":%lld,\"rows\":%llu,\"dead\":%llu,\"files\":%llu,"
               "\"bytes\":%llu,\"starts\":%u,\"reason\":",
               state, (long long)summary.pid, (unsigned long long)summary.rows,
               (unsigned long long)summary.dead, (unsigned long long)summary.files,
               (unsigned long long)summary.bytes, summary.starts);
        struct mr_buf reason;
        mr_buf_init(&reason, 0);
        mr_json_put_string(&reason, mr_str_c(summary.stopped));
        printf("%s}\n", mr_buf_cstr(&reason));
        mr_buf_fini(&reason);
        return MR_OK;
    }
    mr_text_bytes(bytes, summary.bytes);
    if (summary.is_finished) {
        printf("finished: each row has an outcome\n");
    } else if (summary.pid) {
        printf("process %lld works on it, and does not answer (%s); this is what is committed\n",
               (long long)summary.pid, why);
    } else if (summary.stopped[0]) {
        printf("stopped: %s\n", summary.stopped);
    } else {
        printf("does not run and is not finished: the same command goes on with it\n");
    }
    printf("%llu rows done, %llu of them dead, in %llu files of %s, after %u start%s\n",
           (unsigned long long)(summary.rows + summary.dead), (unsigned long long)summary.dead,
           (unsigned long long)summary.files, bytes, summary.starts,
           summary.starts == 1 ? "" : "s");
    return MR_OK;
}

/* ---- calls ---- */

static int ask(const char *folder, const char *path, const struct mr_buf *body, struct mr_buf *out,
               struct mr_err *err)
{
    struct mr_remote_reply reply;
    struct mr_remote remote;
    char address[256];
    int rc;

    MR_TRY(mr_batch_control_address(folder, address, sizeof address, err));
    MR_TRY(mr_remote_open(&remote, address, 0, false, TIMEOUT_NS, NULL, err));
    rc = mr_remote_text(&remote, path, body, &reply, err);
    if (rc == MR_OK) {
        mr_buf_append(out, reply.body.ptr, reply.body.len);
        mr_remote_reply_fini(&reply);
    }
    mr_remote_close(&remote);
out:
    return rc;
}

static void change_put(const struct control_command *c, struct mr_buf *b)
{
    mr_buf_char(b, '{');
    if (c->batch_rows) {
        mr_buf_printf(b, "\"batch_rows\":%u", c->batch_rows);
    }
    if (c->max_in_flight) {
        mr_buf_printf(b, "%s\"max_in_flight_per_host\":%u", b->len > 1 ? "," : "",
                      c->max_in_flight);
    }
    if (c->hosts.len > 0) {
        struct mr_cli_batch_list list = {0};
        size_t count;
        const char *const *hosts = mr_cli_batch_cut(&list, &c->hosts, &count);
        mr_buf_printf(b, "%s\"hosts\":[", b->len > 1 ? "," : "");
        for (size_t i = 0; i < count; i++) {
            mr_buf_c(b, i ? "," : "");
            mr_json_put_string(b, mr_str_c(hosts[i]));
        }
        mr_buf_char(b, ']');
        mr_cli_batch_list_fini(&list);
    }
    mr_buf_char(b, '}');
}

static int control_run(const struct control_command *c, const char *command, const char *folder,
                       struct mr_err *err)
{
    const bool is_status = strcmp(command, "status") == 0;
    bool is_divided = false;
    struct mr_buf body;
    struct mr_buf answer;
    char path[16];

    if (is_status) {
        int found = mr_cli_batch_shards(folder, c->json, &is_divided, err);
        if (found < 0 || is_divided) {
            return found;
        }
    }
    mr_buf_init(&body, 0);
    mr_buf_init(&answer, 64 << 20);
    change_put(c, &body);
    snprintf(path, sizeof path, "/%s", command);
    int rc = ask(folder, path, is_status ? NULL : &body, &answer, err);
    if (is_status && (rc == MR_E_UNAVAILABLE || rc == MR_E_INVALID || rc == MR_E_DEADLINE)) {
        struct mr_err why = *err;
        rc = summary_print(c, folder, why.msg, err);
    } else if (rc == MR_E_UNAVAILABLE) {
        rc = MR_WRAP(err, rc, "the job in %s does not run, or cannot be reached", folder);
    } else if (rc == MR_OK && c->json) {
        fwrite(answer.ptr, 1, answer.len, stdout);
    } else if (rc == MR_OK) {
        rc = status_print(mr_buf_view(&answer), err);
    }
    mr_buf_fini(&body);
    mr_buf_fini(&answer);
    return rc;
}

bool mr_cli_batch_is_control(const char *command)
{
    static const char *const commands[] = {"status", "pause", "resume", "set"};
    bool is_one = false;

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        is_one |= strcmp(command, commands[i]) == 0;
    }
    return is_one;
}

int mr_cli_batch_control(int argc, char **argv, char **env)
{
    static const char program[] = "millrace batch";
    struct control_command c = {0};
    const char *command = argv[0];
    const bool is_set = strcmp(command, "set") == 0;
    struct mr_options o;
    struct mr_err err;

    mr_options_init(&o, program, table, sizeof table / sizeof *table, &c);
    o.max_args = 1;
    int code = mr_cli_parse(&o, argc - 1, argv + 1, env, usage, notes);
    if (code >= 0) {
        /* reported already */
    } else if (o.args.len != 1) {
        code = mr_cli_fail(program, MR_EXIT_USAGE, "expected the folder of a job");
    } else if (is_set != (c.batch_rows || c.max_in_flight || c.hosts.len > 0)) {
        code = mr_cli_fail(
            program, MR_EXIT_USAGE,
            is_set ? "set what? expected --batch-rows, --max-in-flight-per-host or --hosts"
                   : "only set takes --batch-rows, --max-in-flight-per-host and --hosts");
    } else if (control_run(&c, command, o.args.at[0], &err) < 0) {
        code = mr_cli_fail(program, MR_EXIT_FAILED, err.msg);
    } else {
        code = MR_EXIT_OK;
    }
    mr_options_fini(&o);
    return code;
}
