/* `millrace map`: rows from standard input through models on other machines to standard output.
 *
 * An engine that starts it relies on the exit status, so it must not be 0 if a row is missing. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch_options.h"
#include "batch_run.h"
#include "cli/common/cli.h"
#include "cli/common/remote.h"
#include "cli/common/term.h"
#include "cli/serve/opt_serve.h"

#define FIRST_BYTES   65536
#define LINGER_NS     (2 * MR_NS_PER_MS)
#define TELL_EVERY_NS (10 * MR_NS_PER_S)

static const char program[] = "millrace map";

static const char usage[] =
    "usage: millrace map --model MODEL --hosts HOST,... [options] < rows > results\n\n"
    "Sends rows from standard input to hosts that serve a model, and writes what they answer, a "
    "row "
    "for each\n"
    "row and in their order: a filter, for pipes and for engines that run one.\n";

static const char notes[] =
    "Exit status: 0 each row has gone out or was reported as dead, 1 it ended "
    "before that, 2 the command "
    "line is\n"
    "wrong.\n";

struct map_command {
    struct mr_batch_options job;
    struct mr_cli_batch_words words;
    struct mr_batch_filter filter;
    int input_format;
    int output_format;
    int dead;
    struct mr_remote_access access;
    bool is_wrong; /* the options are invalid for a run */
};

#define AT(member) MR_OPTION_AT(struct map_command, member)

static const char *const input_formats[] = {"jsonl", "csv", "tsv", "arrow", NULL};
static const char *const output_formats[] = {"auto", "jsonl", "csv", "tsv", "arrow", NULL};
static const char *const dead_choices[] = {"fail", "skip", "null", NULL};

const struct mr_option mr_cli_map_table[] = {
    MR_BATCH_JOB_FILE_ROW(struct map_command),
    {.name = "Input", .kind = MR_OPTION_GROUP},
    {.name = "input-format",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(input_format),
     .fallback = "jsonl",
     .choices = input_formats,
     .value = "FORMAT",
     .help = "of standard input"},
    MR_BATCH_TEXT_ROWS(struct map_command),
    {.name = "Model", .kind = MR_OPTION_GROUP},
    MR_BATCH_MODEL_ROWS(struct map_command),
    {.name = "max-outage",
     .kind = MR_OPTION_DURATION,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.limits.outage_ns),
     .fallback = "10m",
     .min = 1,
     .max = 31536000,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "the run ends when no host has worked for this long"},
    {.name = "wait-for-hosts",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.hosts.waits),
     .help = "wait for --max-outage also when no host could serve the first row yet and none is "
             "likely to soon: "
             "nothing listens there, unknown names, models or paths"},
    MR_REMOTE_ACCESS_ROWS(struct map_command),
    {.name = "Output", .kind = MR_OPTION_GROUP},
    {.name = "output-format",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(output_format),
     .fallback = "auto",
     .choices = output_formats,
     .value = "FORMAT",
     .help = "of standard output; auto is that of the input"},
    MR_BATCH_COLUMN_ROWS(struct map_command),
    {.name = "unordered",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(filter.is_unordered),
     .help = "results go out as they come, not in the order of the rows"},
    {.name = "dead",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(dead),
     .fallback = "fail",
     .choices = dead_choices,
     .value = "POLICY",
     .help =
         "a row without a result ends the run, is left out, or goes out with null outputs; it is "
         "reported on standard error in any case"},
    {.name = "error-column",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(filter.error_column),
     .value = "NAME",
     .help = "with --dead null: a column that says why the outputs are null"},
    {.name = "Size", .kind = MR_OPTION_GROUP},
    {.name = "batch-rows",
     .letter = 'b',
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.calls.rows),
     .fallback = "256",
     .min = 1,
     .max = 1 << 20,
     .value = "ROWS",
     .help = "of a call, at most; what has come goes without waiting for more"},
    {.name = "memory",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.memory_bytes),
     .fallback = "128MiB",
     .min = 1 << 20,
     .max = INT64_C(1) << 46,
     .value = "SIZE",
     .help = "rows and answers under way, also those that wait for their turn to go out"},
};
const size_t mr_cli_map_table_count = sizeof mr_cli_map_table / sizeof *mr_cli_map_table;

/* ---- messages during the run ---- */

/* Prints text from hosts without control characters. */
static void line_print(struct mr_buf *line)
{
    struct mr_buf clean;

    mr_buf_init(&clean, 0);
    mr_text_clean(&clean, mr_buf_view(line));
    fprintf(stderr, "%s\n", mr_buf_cstr(&clean));
    mr_buf_fini(&clean);
    mr_buf_fini(line);
}

static void on_dead(void *ctx, uint64_t row, const char *kind, const char *cause)
{
    struct mr_buf line;

    (void)ctx;
    mr_buf_init(&line, 0);
    mr_buf_printf(&line, "%s: row %llu (%s): %s", program, (unsigned long long)row, kind, cause);
    line_print(&line);
}

/* Reports why there is no progress. */
static void on_view(void *ctx, const struct mr_batch_view *v)
{
    int64_t *told_ns = ctx;

    for (size_t i = 0; i < v->host_count; i++) {
        if (strcmp(v->hosts[i].state, "ready") == 0) {
            *told_ns = v->ran_ns;
        }
    }
    if (v->ran_ns - *told_ns < TELL_EVERY_NS) {
        return;
    }
    *told_ns = v->ran_ns;
    fprintf(stderr, "%s: no host works\n", program);
    for (size_t i = 0; i < v->host_count; i++) {
        const struct mr_batch_host_view *h = &v->hosts[i];
        struct mr_buf line;
        mr_buf_init(&line, 0);
        mr_buf_printf(&line, "  %s: %s%s%s", h->address, h->state, h->reason[0] ? ": " : "",
                      h->reason);
        line_print(&line);
    }
    for (size_t i = 0; i < v->failure_count; i++) {
        const struct mr_batch_failure_view *f = &v->failures[i];
        struct mr_buf line;
        mr_buf_init(&line, 0);
        mr_buf_printf(&line, "  calls failed %llu times, last at %s: %s",
                      (unsigned long long)f->count, f->host, f->cause);
        line_print(&line);
    }
}

/* ---- running ---- */

/* Reads some bytes; 0: the end. */
static int first_read(char *to, size_t room, size_t *out_n, struct mr_err *err)
{
    ssize_t n;

    do {
        poll(&(struct pollfd){STDIN_FILENO, POLLIN, 0}, 1, -1);
        n = read(STDIN_FILENO, to, room);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot read standard input: %s", strerror(errno));
    }
    *out_n = (size_t)n;
    return MR_OK;
}

static int map_run(struct map_command *c, struct mr_err *err)
{
    struct mr_batch *job = NULL;
    struct mr_source_stream stream = {.fd = STDIN_FILENO, .linger_ns = LINGER_NS};
    char *first = mr_alloc(FIRST_BYTES);
    int64_t told_ns = 0;
    int rc;

    c->job.source.stream = &stream;
    c->is_wrong = true;
    MR_TRY(mr_cli_batch_open(&job, &c->job, err));
    c->is_wrong = false;
    MR_TRY(first_read(first, FIRST_BYTES, &stream.first.len, err));
    if (stream.first.len == 0) { /* an empty input needs no host */
        rc = c->job.source.format == MR_TABLE_ARROW
                 ? MR_FAIL(err, MR_E_INVALID,
                           "'stdin' is empty, and a stream of Arrow has a schema at least")
                 : MR_OK;
        goto out;
    }
    stream.first.ptr = first;
    mr_batch_on_view(job, on_view, &told_ns);
    mr_cli_batch_obey();
    rc = mr_batch_run(job, NULL, err);
out:
    mr_cli_batch_close(&job);
    mr_free(first);
    return rc;
}

static enum mr_table_format format_of(const char *name)
{
    return strcmp(name, "tsv") == 0 ? MR_TABLE_CSV : mr_table_format_of(mr_str_c(name));
}

static int command_complete(struct map_command *c, struct mr_cli_batch_parsed *p,
                            struct mr_err *err)
{
    const char *in = input_formats[c->input_format];
    const char *out = c->output_format == 0 ? in : output_formats[c->output_format];
    struct mr_batch_options *o = &c->job;
    int rc;

    o->hosts.tls = c->access.tls;
    o->hosts.headers = c->access.headers.at;
    o->hosts.header_count = c->access.headers.len;
    MR_TRY(mr_cli_batch_words_read(o, p, &c->words, err));
    if (strcmp(in, "tsv") == 0 && !o->source.delimiter) {
        o->source.delimiter = '\t';
    }
    o->source.format = format_of(in);
    o->results.writer.format = format_of(out);
    o->results.writer.is_stream = true;
    o->results.writer.delimiter = strcmp(out, "tsv") == 0 ? '\t'
                                  : c->output_format == 0 ? o->source.delimiter
                                                          : 0;
    o->results.writer.has_no_header = o->source.has_no_header;
    o->filter = &c->filter;
    o->limits.dead_rows = UINT64_MAX;
    o->limits.dead_share = 1;
    c->filter.fd = STDOUT_FILENO;
    c->filter.dead = (enum mr_batch_dead)c->dead;
    c->filter.on_dead = on_dead;
    if (c->filter.error_column && c->filter.dead != MR_BATCH_DEAD_NULLS) {
        rc = MR_FAIL(err, MR_E_INVALID, "--error-column needs --dead null");
    }
out:
    return rc;
}

int mr_cli_map(int argc, char **argv, char **env)
{
    struct map_command command = {0};
    struct mr_cli_batch_parsed parsed = {0};
    struct mr_options o;
    struct mr_err err;

    mr_options_init(&o, program, mr_cli_map_table, mr_cli_map_table_count, &command);
    o.files_take_all = true;
    o.sibling = mr_cli_batch_table;
    o.sibling_count = mr_cli_batch_table_count;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        int rc = command_complete(&command, &parsed, &err);
        code = rc < 0 ? MR_EXIT_USAGE : -1;
        if (rc == MR_OK && (rc = map_run(&command, &err)) < 0) {
            code = command.is_wrong ? MR_EXIT_USAGE : MR_EXIT_FAILED;
        }
        code = rc < 0 ? mr_cli_fail(program, code, err.msg) : MR_EXIT_OK;
    }
    mr_cli_batch_parsed_fini(&parsed);
    mr_options_fini(&o);
    return code;
}
