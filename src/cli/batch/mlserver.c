/* `millrace mlserver infer`: the command line of `mlserver infer`, so that scripts only need another program name.
 * Options, environment variables and files are MLServer's; batch/requests.h does the work. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "batch/requests.h"
#include "batch_options.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "cli/mlserver/start.h"

#define REPORTED_MOST 10 /* failures, without --verbose */

static const char program[] = "millrace mlserver infer";

static const char usage[] =
    "usage: millrace mlserver infer --model-name MODEL --input-data-path FILE --output-data-path "
    "FILE [options]\n\n"
    "Sends a file of inference requests, one in JSON on each line, to servers of the Open "
    "Inference "
    "Protocol, and\n"
    "writes a line for each: the answer or an error. Takes the options of 'mlserver infer', also "
    "from variables\n"
    "such as MLSERVER_INFER_URL.\n";

static const char notes[] =
    "Exit status: 0 each line of the input has a line in the output, which may be an error; 1 the "
    "run ended before\n"
    "that; 2 the command line is wrong.\n";

struct infer_command {
    struct mr_requests_options requests;
    struct mr_option_list headers;
    const char *url;
    const char *timeout;
    const char *connection_timeout; /* the same by its name in the environment */
    const char *interval;
    const char *jitter;
    int transport;
    bool is_verbose;
    bool is_very_verbose;
    /* while it runs */
    struct mr_term term;
    uint64_t reported;
    int64_t shown_ns;
    bool has_line;
};

#define AT(member) MR_OPTION_AT(struct infer_command, member)

static const char *const transports[] = {"rest", "grpc", NULL};

static const struct mr_option table[] = {
    {.name = "url",
     .letter = 'u',
     .kind = MR_OPTION_STRING,
     AT(url),
     .fallback = "localhost:8080",
     .value = "HOST:PORT",
     .help = "of the server, perhaps followed by a path; several, separated by commas, share the "
             "work"},
    {.name = "model-name",
     .letter = 'm',
     .kind = MR_OPTION_STRING,
     AT(requests.model),
     .value = "MODEL",
     .help = "as the server names it"},
    {.name = "input-data-path",
     .letter = 'i',
     .kind = MR_OPTION_STRING,
     AT(requests.input),
     .value = "FILE",
     .help = "requests, one a line"},
    {.name = "output-data-path",
     .letter = 'o',
     .kind = MR_OPTION_STRING,
     AT(requests.output),
     .value = "FILE",
     .help = "answers, in the order in which they come; what is there is replaced"},
    {.name = "workers",
     .letter = 'w',
     .kind = MR_OPTION_INT,
     AT(requests.workers),
     .fallback = "10",
     .min = 1,
     .max = 10000,
     .value = "N",
     .help = "calls at a time"},
    {.name = "retries",
     .letter = 'r',
     .kind = MR_OPTION_INT,
     AT(requests.attempts),
     .fallback = "3",
     .min = 1,
     .max = 1000000,
     .value = "N",
     .help =
         "attempts of a call, a second apart; what the server says is wrong is not tried again"},
    {.name = "batch-size",
     .letter = 's',
     .kind = MR_OPTION_INT,
     AT(requests.batch_lines),
     .fallback = "1",
     .min = 1,
     .max = 1 << 20,
     .value = "N",
     .help = "requests that go in one call, where they differ in nothing but data"},
    {.name = "binary-data",
     .letter = 'b',
     .kind = MR_OPTION_BOOL,
     AT(requests.is_binary),
     .help = "tensors as binary data, both ways"},
    {.name = "verbose",
     .letter = 'v',
     .kind = MR_OPTION_BOOL,
     AT(is_verbose),
     .help = "report each call that fails; otherwise the first ones"},
    {.name = "extra-verbose", .kind = MR_OPTION_BOOL, AT(is_very_verbose), .help = "the same; -vv"},
    {.name = "transport",
     .letter = 't',
     .kind = MR_OPTION_CHOICE,
     AT(transport),
     .fallback = "rest",
     .choices = transports,
     .value = "TRANSPORT",
     .help = "grpc is refused, as by MLServer"},
    {.name = "request-headers",
     .letter = 'H',
     .kind = MR_OPTION_LIST,
     AT(headers),
     .value = "'NAME: VALUE'",
     .help = "header of each request"},
    {.name = "timeout",
     .kind = MR_OPTION_STRING,
     AT(timeout),
     .fallback = "60",
     .value = "SECONDS",
     .help = "of a call"},
    {.name = "connection-timeout",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_HIDDEN,
     AT(connection_timeout)},
    {.name = "batch-interval",
     .kind = MR_OPTION_STRING,
     AT(interval),
     .fallback = "0",
     .value = "SECONDS",
     .help = "from one call of a worker to its next, at least"},
    {.name = "batch-jitter",
     .kind = MR_OPTION_STRING,
     AT(jitter),
     .fallback = "0",
     .value = "SECONDS",
     .help = "up to so much is added, at random"},
    {.name = "use-ssl", .kind = MR_OPTION_BOOL, AT(requests.is_tls), .help = "speak TLS"},
    {.name = "insecure",
     .kind = MR_OPTION_BOOL,
     AT(requests.tls.is_insecure),
     .help = "accept any certificate: the server is not verified"},
};

/* ---- options ---- */

static int seconds_read(const char *option, const char *text, int64_t *out_ns, struct mr_err *err)
{
    double seconds = 0;
    int rc = mr_cli_batch_number(option, text, 0, 86400, &seconds, err);

    *out_ns = (int64_t)(seconds * (double)MR_NS_PER_S);
    return rc;
}

/* In the environment they are one text, with blanks between headers: 'Name:Value Name:Value'. */
static void headers_cut(struct infer_command *c, bool is_from_environment,
                        struct mr_cli_batch_list *to)
{
    for (size_t i = 0; i < c->headers.len; i++) {
        mr_str rest = mr_str_c(c->headers.at[i]);
        mr_str word;
        while (mr_str_split(&rest, is_from_environment ? ' ' : '\0', &word)) {
            if (word.len > 0) {
                MR_VEC_PUSH(&to->at, mr_strndup(word.ptr, word.len));
            }
        }
    }
    c->requests.headers = (const char *const *)to->at.at;
    c->requests.header_count = to->at.len;
}

static int command_complete(struct infer_command *c, const struct mr_options *o,
                            struct mr_cli_batch_list *hosts, struct mr_cli_batch_list *headers,
                            struct mr_err *err)
{
    const struct {
        const char *name;
        const char *value;
    } required[] = {{"model-name", c->requests.model},
                    {"input-data-path", c->requests.input},
                    {"output-data-path", c->requests.output}};
    const bool is_long =
        mr_options_source(o, "timeout") != MR_OPTION_FROM_COMMAND_LINE && c->connection_timeout;
    int rc;

    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (!required[i].value) {
            return MR_FAIL(err, MR_E_INVALID, "--%s is required", required[i].name);
        }
    }
    if (c->transport != 0) {
        return MR_FAIL(err, MR_E_INVALID, "--transport grpc: only rest is spoken here");
    }
    MR_TRY(seconds_read("timeout", is_long ? c->connection_timeout : c->timeout,
                        &c->requests.timeout_ns, err));
    MR_TRY(seconds_read("batch-interval", c->interval, &c->requests.interval_ns, err));
    MR_TRY(seconds_read("batch-jitter", c->jitter, &c->requests.jitter_ns, err));
    c->requests.hosts =
        mr_cli_batch_cut(hosts, &(struct mr_option_list){&c->url, 1}, &c->requests.host_count);
    headers_cut(c, mr_options_source(o, "request-headers") == MR_OPTION_FROM_ENVIRONMENT, headers);
out:
    return rc;
}

/* ---- messages during the run ---- */

static void line_end(struct infer_command *c)
{
    fputs(c->has_line ? "\r\033[J" : "", stderr);
    c->has_line = false;
}

static void on_failure(void *ctx, const struct mr_requests_failure *f)
{
    struct infer_command *c = ctx;
    struct mr_buf text;

    if (!c->is_verbose && c->reported++ >= REPORTED_MOST) {
        return;
    }
    line_end(c);
    mr_buf_init(&text, 0);
    mr_text_clean(&text, f->text);
    fprintf(stderr, "%s: line %llu", program, (unsigned long long)f->line);
    if (f->count > 1) {
        fprintf(stderr, " and %llu more", (unsigned long long)f->count - 1);
    }
    if (f->host) {
        fprintf(stderr, ", attempt %u at %s", f->attempt, f->host);
    }
    fprintf(stderr, ": %s%s\n", mr_buf_cstr(&text),
            c->reported == REPORTED_MOST ? " (--verbose reports further ones)" : "");
    mr_buf_fini(&text);
}

static void on_progress(void *ctx, uint64_t lines)
{
    struct infer_command *c = ctx;
    const int64_t now_ns = mr_now_ns();

    if (now_ns - c->shown_ns < (c->term.is_terminal ? MR_NS_PER_S : 10 * MR_NS_PER_S)) {
        return;
    }
    c->shown_ns = now_ns;
    fprintf(stderr, "%s%llu lines done%s", c->term.is_terminal ? "\r" : "",
            (unsigned long long)lines, c->term.is_terminal ? "" : "\n");
    c->has_line = c->term.is_terminal;
}

static int infer_run(struct infer_command *c, struct mr_err *err)
{
    const int64_t begin_ns = mr_now_ns();
    struct mr_requests_done done;
    char took[32];

    c->is_verbose = c->is_verbose || c->is_very_verbose;
    c->term = mr_term_of(stderr);
    c->shown_ns = begin_ns;
    c->requests.on_failure = on_failure;
    c->requests.on_progress = on_progress;
    c->requests.ctx = c;
    mr_cli_heap_bounds(2 << 20);
    int rc = mr_requests_run(&c->requests, &done, err);
    line_end(c);
    if (rc == MR_OK) {
        mr_text_duration(took, (double)(mr_now_ns() - begin_ns));
        fprintf(stderr, "%llu lines done, %llu of them errors, in %llu calls and %s\n",
                (unsigned long long)done.lines, (unsigned long long)done.errors,
                (unsigned long long)done.calls, took);
    }
    return rc;
}

/* Spells out MLServer's option of two letters. */
static char **spelled_out(int argc, char **argv)
{
    static char word[] = "--extra-verbose";
    char **out = MR_NEW_ARRAY(char *, (size_t)argc + 1);

    for (int i = 0; i < argc; i++) {
        out[i] = strcmp(argv[i], "-vv") == 0 ? word : argv[i];
    }
    return out;
}

int mr_cli_mlserver(int argc, char **argv, char **env)
{
    struct infer_command command = {0};
    struct mr_cli_batch_list hosts = {0};
    struct mr_cli_batch_list headers = {0};
    struct mr_options o;
    struct mr_err err;

    if (argc > 0 && strcmp(argv[0], "start") == 0) {
        return mr_cli_mlserver_start(argc - 1, argv + 1);
    }
    if (argc < 1 || (strcmp(argv[0], "infer") != 0 && strcmp(argv[0], "--help") != 0 &&
                     strcmp(argv[0], "-h") != 0)) {
        return mr_cli_fail("millrace mlserver", MR_EXIT_USAGE, "expected: start or infer");
    }
    const int skip = strcmp(argv[0], "infer") == 0;
    char **words = spelled_out(argc - skip, argv + skip);
    mr_options_init(&o, program, table, sizeof table / sizeof *table, &command);
    o.env_prefix = "MLSERVER_INFER_";
    int code = mr_cli_parse(&o, argc - skip, words, env, usage, notes);
    if (code < 0) {
        int rc = command_complete(&command, &o, &hosts, &headers, &err);
        rc = rc < 0 ? rc : infer_run(&command, &err);
        code = rc == MR_E_INVALID ? MR_EXIT_USAGE : MR_EXIT_FAILED;
        code = rc < 0 ? mr_cli_fail(program, code, err.msg) : MR_EXIT_OK;
    }
    mr_cli_batch_list_fini(&hosts);
    mr_cli_batch_list_fini(&headers);
    mr_options_fini(&o);
    mr_free(words);
    return code;
}
