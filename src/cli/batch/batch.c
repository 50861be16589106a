/* `millrace batch run`: a table through models on other machines, with progress and a report. */
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "batch/batch.h"
#include "batch_control.h"
#include "batch_merge.h"
#include "batch_options.h"
#include "batch_plan.h"
#include "batch_run.h"
#include "batch_s3.h"
#include "cli/common/cli.h"
#include "cli/common/remote.h"
#include "cli/common/term.h"
#include "cli/serve/opt_serve.h"

static const char usage[] =
    "usage: millrace batch run --input PATH --model MODEL --hosts HOST,... --output FOLDER "
    "[options]\n\n"
    "Sends the rows of a table to hosts that serve a model, and writes what they answer. Run again "
    "with the\n"
    "same options it goes on where it was, whatever ended it. Each row is one row of the results "
    "in\n"
    "FOLDER/parts or, with the cause, one line of FOLDER/dlq.\n\n"
    "millrace batch status|pause|resume|set FOLDER asks about a running job, and changes it.\n"
    "millrace batch retry-dlq, with the options of run, tries dead letters again, which become "
    "results then.\n"
    "millrace batch merge FOLDER joins the files of results.\n";

static const char notes[] =
    "Exit status: 0 each row has an outcome, 1 it ended before that and can be run again, 2 the "
    "command line\n"
    "is wrong, 3 it stopped because too much is wrong: see --on-threshold.\n";

#define SHARDS_MOST 10000

#define EXIT_STOPPED 3

struct batch_command {
    struct mr_batch_options job;
    struct mr_cli_batch_words words;
    struct mr_option_list inputs;
    struct mr_option_list columns;
    int input_format;
    int output_format;
    int compression;
    int s3_addressing;
    int order;
    const char *result_file;
    const char *error_file;
    const char *max_dead_percent;
    const char *cross_check_share;
    const char *cross_check_tolerance;
    struct mr_option_list recompute;
    struct mr_cli_batch_list recomputed;
    int on_threshold;
    bool is_stopped;
    bool is_wrong;     /* the options are invalid for a job */
    const char *shard; /* NULL: all */
    struct mr_remote_access access;
    bool plan;
    bool json;
};

#define AT(member) MR_OPTION_AT(struct batch_command, member)

static const char *const thresholds[] = {"stop", "pause", NULL};
static const char *const formats[] = {"auto", "jsonl", "csv", "parquet", "arrow", NULL};
static const char *const output_formats[] = {"parquet", "jsonl", "csv", "arrow", NULL};
const char *const mr_cli_s3_addressings[] = {"auto", "path", "virtual", NULL};
static const char *const compressions[] = {"none", "zstd", "gzip", NULL};
static const char *const orders[] = {"unordered", "logical", "physical", NULL};

const struct mr_option mr_cli_batch_table[] = {
    MR_BATCH_JOB_FILE_ROW(struct batch_command),
    {.name = "Input", .kind = MR_OPTION_GROUP},
    {.name = "input",
     .letter = 'i',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(inputs),
     .value = "PATH",
     .help = "file, folder or pattern, also with s3://; may be given several times; or a database, "
             "sqlite:FILE or "
             "postgresql://..."},
    {.name = "table",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.source.table),
     .value = "TABLE",
     .help = "of the database, in the order of its keys"},
    {.name = "query",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.source.query),
     .value = "SQL",
     .help = "of DuckDB, instead of paths: select ... from 'data/*.parquet' where ...; or of the "
             "database, with order by; it has to give the same rows in the same order each time"},
    {.name = "input-format",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(input_format),
     .fallback = "auto",
     .choices = formats,
     .value = "FORMAT",
     .help = "auto goes by the names of the files; .gz and .zst are unpacked"},
    {.name = "columns",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(columns),
     .value = "COLUMN,...",
     .help = "the only ones of the input that are read, also for dead letters"},
    MR_BATCH_TEXT_ROWS(struct batch_command),
    {.name = "skip-bad-files",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.source.skips_bad_files),
     .help = "leave out files of the input that are damaged or do not fit to the others, and what "
             "is damaged in those that are read; the report names them"},
    {.name = "shard",
     .kind = MR_OPTION_STRING,
     AT(shard),
     .value = "I/N",
     .help = "only part I, from 0, of N equal ones, in a folder of its own within that of the job; "
             "for N processes on as many machines"},
    {.name = "accept-changed-input",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.start.accepts_changed_input),
     .help = "go on although input files changed since the job began"},
    {.name = "Model", .kind = MR_OPTION_GROUP},
    MR_BATCH_MODEL_ROWS(struct batch_command),
    {.name = "max-outage",
     .kind = MR_OPTION_DURATION,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.limits.outage_ns),
     .fallback = "24h",
     .min = 1,
     .max = 31536000,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "the job ends when no host has worked, or nothing could be written, for this long"},
    {.name = "wait-for-hosts",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.hosts.waits),
     .help = "wait for --max-outage also when no host could serve the first row yet and none is "
             "likely to soon: "
             "nothing listens there, unknown names, models or paths"},
    {.name = "accept-changed-model",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.start.accepts_changed_model),
     .help = "go on although hosts have another version of the model, or other inputs, than when "
             "the job began"},
    {.name = "cross-check-share",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(cross_check_share),
     .fallback = "0.001",
     .value = "NUMBER",
     .help =
         "of a host's answers, how often it is asked for a row that another host has answered, to "
         "be compared; 0: never"},
    {.name = "cross-check-tolerance",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(cross_check_tolerance),
     .fallback = "0.01",
     .value = "NUMBER",
     .help = "what floating-point numbers of two hosts may differ by, as a part of them or of 1, "
             "whichever is more"},
    {.name = "recompute-host",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(recompute),
     .value = "HOST,...",
     .help = "take back files of results that have rows of this host, and have them done again by "
             "others"},
    MR_REMOTE_ACCESS_ROWS(struct batch_command),
    {.name = "Output", .kind = MR_OPTION_GROUP},
    {.name = "output",
     .letter = 'o',
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.folder),
     .value = "FOLDER",
     .help = "of the job: results, dead letters, and what has been done"},
    {.name = "output-database",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.database),
     .value = "DATABASE",
     .help = "results go to a table there, not to files: sqlite:FILE or postgresql://..."},
    {.name = "output-table",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.table),
     .value = "TABLE",
     .help = "of it; created if it does not exist"},
    {.name = "output-objects",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.objects),
     .value = "s3://BUCKET/PREFIX/",
     .help = "for the results; what has been done and dead letters stay in the folder"},
    {.name = "output-file",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(result_file),
     .value = "FILE",
     .help =
         "with --api batch-file: all results, when the job is finished; --output is FILE.job if "
         "not given"},
    {.name = "error-file",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(error_file),
     .value = "FILE",
     .help = "with --output-file: lines with an error, which are in the same file if not given"},
    {.name = "output-format",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(output_format),
     .fallback = "parquet",
     .choices = output_formats,
     .value = "FORMAT",
     .help = "of the results"},
    {.name = "compression",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(compression),
     .fallback = "none",
     .choices = compressions,
     .value = "METHOD",
     .help = "of the results; Parquet and Arrow take none or zstd"},
    {.name = "order",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(order),
     .fallback = "unordered",
     .choices = orders,
     .value = "ORDER",
     .help = "logical: the files of results, by their names, are in the order of the input; "
             "physical: they are also made in it, which waits for a row that is late"},
    MR_BATCH_COLUMN_ROWS(struct batch_command),
    {.name = "max-dead",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.limits.dead_rows),
     .fallback = "-1",
     .min = -1,
     .max = INT64_MAX,
     .value = "ROWS",
     .help = "more dead letters end the job; -1 is any number"},
    {.name = "on-threshold",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(on_threshold),
     .fallback = "stop",
     .choices = thresholds,
     .value = "WHAT",
     .help = "with more dead letters than these, or hosts that answer differently: stop with exit "
             "status 3, or pause until resume"},
    {.name = "max-dead-percent",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(max_dead_percent),
     .fallback = "1",
     .value = "NUMBER",
     .help = "as a part of the rows, from 10000 rows on"},
    MR_BATCH_S3_ROWS(struct batch_command),
    {.name = "Size", .kind = MR_OPTION_GROUP},
    {.name = "batch-rows",
     .letter = 'b',
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.calls.rows),
     .fallback = "0",
     .min = 0,
     .max = 1 << 20,
     .value = "ROWS",
     .help = "of a call, at most; 0: 256, and up to 4096 as far as that is faster"},
    {.name = "extent-rows",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.extent_rows),
     .fallback = "0",
     .max = 1 << 24,
     .value = "ROWS",
     .help =
         "read and committed as one; 0 is what hosts answer in half a second, 64 to 4096, or as "
         "many as a call takes"},
    {.name = "memory",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.memory_bytes),
     .fallback = "512MiB",
     .min = 1 << 20,
     .max = INT64_C(1) << 46,
     .value = "SIZE",
     .help = "rows and answers under way"},
    {.name = "part-bytes",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.part_bytes),
     .fallback = "256MiB",
     .min = 1,
     .max = INT64_C(1) << 46,
     .value = "SIZE",
     .help = "of a file of results, about"},
    {.name = "merge-bytes",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.merge_bytes),
     .fallback = "0",
     .max = INT64_C(1) << 46,
     .value = "SIZE",
     .help =
         "while the job runs, join small files of results, up to about this size; 0 leaves them"},
    {.name = "commit-interval",
     .kind = MR_OPTION_DURATION,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.results.commit_ns),
     .fallback = "0",
     .max = 86400,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "a file of results is committed at this age; what is younger is done again after a "
             "crash; 0 is 2s at first, then a thirtieth of the time so far, up to 60s"},
    {.name = "verify",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.start.verifies),
     .help = "before going on, read what was committed and compare it with its checksums"},
    {.name = "plan",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(plan),
     .help = "send the first rows only, keep nothing, and print what the job would take"},
    {.name = "Control", .kind = MR_OPTION_GROUP},
    {.name = "listen",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.control.listen),
     .value = "HOST:PORT",
     .help = "status over HTTP for whoever connects; 127.0.0.1:PORT is for this machine only"},
    {.name = "listen-control",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(job.control.may_change),
     .help = "who connects there may also pause and change the job"},
    {.name = "json",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(json),
     .help = "print the report, or the plan, as JSON"},
};
const size_t mr_cli_batch_table_count = sizeof mr_cli_batch_table / sizeof *mr_cli_batch_table;

/* ---- options ---- */

static int shard_read(struct mr_batch_options *o, const char *text, struct mr_err *err)
{
    mr_str count = mr_str_c(text ? text : "0/1");
    mr_str index;
    uint64_t i = 0;
    uint64_t n = 0;

    mr_str_split(&count, '/', &index);
    if (!mr_str_to_u64(index, &i) || !mr_str_to_u64(count, &n) || n > SHARDS_MOST || i >= n) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--shard %s: expected I/N, as 0/4 to 3/4 for four shards, and %d at most",
                       text, SHARDS_MOST);
    }
    o->shard = (uint32_t)i;
    o->shard_count = text ? (uint32_t)n : 0;
    return MR_OK;
}

/* True if the path is an input, or in a folder of inputs: output there would overwrite an input, or be read by the
 * next start. */
static bool is_input(const char *path, const char *input)
{
    struct mr_buf folder;
    struct stat in;
    struct stat out;
    const char *slash = strrchr(path, '/');

    if (stat(input, &in) < 0) {
        return false;
    }
    mr_buf_init(&folder, 0);
    mr_buf_str(&folder, slash ? mr_str_n(path, (size_t)(slash - path) + 1) : MR_STR("."));
    const char *searched = S_ISDIR(in.st_mode) ? mr_buf_cstr(&folder) : path;
    const bool is_same =
        stat(searched, &out) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino;
    mr_buf_fini(&folder);
    return is_same;
}

static int place_check(const struct batch_command *c, const char *option, const char *path,
                       struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; path && i < c->inputs.len && rc == MR_OK; i++) {
        glob_t found = {0};
        if (access(c->inputs.at[i], F_OK) != 0 &&
            fnmatch(c->inputs.at[i], path, FNM_PATHNAME | FNM_PERIOD) ==
                0) { /* for the next start */
            return MR_FAIL(err, MR_E_INVALID, "--%s %s is an input, or in a folder of inputs",
                           option, path);
        }
        if (glob(c->inputs.at[i], GLOB_NOCHECK, NULL, &found) == 0) {
            for (size_t k = 0; k < found.gl_pathc && rc == MR_OK; k++) {
                if (is_input(path, found.gl_pathv[k])) {
                    rc = MR_FAIL(err, MR_E_INVALID, "--%s %s is an input, or in a folder of inputs",
                                 option, path);
                }
            }
        }
        globfree(&found);
    }
    return rc;
}

static int result_check(const struct batch_command *c, struct mr_err *err)
{
    const bool has_file = c->result_file;
    const struct {
        bool is_wrong;
        const char *text;
    } checks[] = {
        {has_file && c->job.results.objects,
         "--output-file and --output-objects: name one of them"},
        {has_file && c->job.results.database,
         "--output-file and --output-database: name one of them"},
        {has_file && c->shard,
         "--output-file is of a whole job, not of a --shard; name a folder with --output"},
        {has_file && c->words.api.api != 1 + (int)MR_BATCH_API_FILE,
         "--output-file is for --api batch-file; millrace batch merge makes one file of other "
         "results"},
        {c->error_file && !has_file, "--error-file needs --output-file"},
        {c->error_file && has_file && strcmp(c->error_file, c->result_file) == 0,
         "--error-file and --output-file are the same"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].is_wrong) {
            return MR_FAIL(err, MR_E_INVALID, "%s", checks[i].text);
        }
    }
    const int rc = place_check(c, "output-file", c->result_file, err);
    return rc < 0 ? rc : place_check(c, "error-file", c->error_file, err);
}

/* Results must be joinable with the input: without --keep they contain the place of each row. */
static void default_key(struct batch_command *c)
{
    static const char *const place[] = {"filename", "file_row_number"};
    struct mr_batch_options *o = &c->job;
    const bool has_files = !o->source.query && !o->source.table;

    if (c->words.carried.len == 0 && !(o->openai && o->openai->api == MR_BATCH_API_FILE)) {
        o->results.carried = has_files ? place : place + 1;
        o->results.carried_count = has_files ? 2 : 1;
        o->results.has_default_key = true;
    }
}

static int command_complete(struct batch_command *c, struct mr_cli_batch_parsed *p,
                            struct mr_err *err)
{
    static const char *const suffixes[4][3] = {{".parquet", ".parquet", ""},
                                               {".jsonl", ".jsonl.zst", ".jsonl.gz"},
                                               {".csv", ".csv.zst", ".csv.gz"},
                                               {".arrow", ".arrow", ""}};
    static const enum mr_table_format inputs[] = {MR_TABLE_AUTO, MR_TABLE_JSONL, MR_TABLE_CSV,
                                                  MR_TABLE_PARQUET, MR_TABLE_ARROW};
    static const enum mr_table_format outputs[] = {MR_TABLE_PARQUET, MR_TABLE_JSONL, MR_TABLE_CSV,
                                                   MR_TABLE_ARROW};
    struct mr_batch_options *o = &c->job;
    double percent;
    int rc;

    o->source.paths = c->inputs.at;
    o->source.path_count = c->inputs.len;
    o->source.columns = mr_cli_batch_cut(&p->columns, &c->columns, &o->source.column_count);
    o->source.format = inputs[c->input_format];
    o->results.writer.format = outputs[c->output_format];
    o->results.writer.compression = (enum mr_compression)c->compression;
    o->results.order = (enum mr_batch_order)c->order;
    o->results.suffix = suffixes[c->output_format][c->compression];
    if (!o->results.suffix[0]) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--compression gzip: Parquet and Arrow take none or zstd");
    }
    MR_TRY(result_check(c, err));
    if (c->plan && o->start.retries_dead) {
        return MR_FAIL(err, MR_E_INVALID, "--plan is for run only");
    }
    if (c->result_file && !o->folder) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        mr_buf_printf(&b, "%s.job", c->result_file);
        o->folder = mr_strndup(mr_buf_cstr(&b), b.len);
        MR_VEC_PUSH(&p->api.texts, (char *)(uintptr_t)o->folder);
        mr_buf_fini(&b);
    }
    MR_TRY(shard_read(o, c->shard, err));
    o->s3.addressing = (enum mr_s3_addressing)c->s3_addressing;
    o->hosts.tls = c->access.tls;
    o->hosts.headers = c->access.headers.at;
    o->hosts.header_count = c->access.headers.len;
    MR_TRY(mr_cli_batch_words_read(o, p, &c->words, err));
    default_key(c);
    MR_TRY(mr_cli_batch_number("max-dead-percent", c->max_dead_percent, 0, 100, &percent, err));
    o->calls.grows = o->calls.rows == 0;
    o->calls.rows = o->calls.grows ? 256 : o->calls.rows;
    o->limits.dead_share = percent / 100;
    MR_TRY(mr_cli_batch_number("cross-check-share", c->cross_check_share, 0, 1,
                               &o->cross_check.share, err));
    MR_TRY(mr_cli_batch_number("cross-check-tolerance", c->cross_check_tolerance, 0, 1e9,
                               &o->cross_check.tolerance, err));
    o->start.recompute = mr_cli_batch_cut(&c->recomputed, &c->recompute, &o->start.recompute_count);
    if (o->start.recompute_count > 0 && (c->plan || o->start.retries_dead)) {
        return MR_FAIL(err, MR_E_INVALID, "--recompute-host is for run, without --plan");
    }
    o->limits.pauses = c->on_threshold > 0;
out:
    return rc;
}

/* ---- progress ---- */

struct progress {
    struct mr_term term;
    int64_t told_ns;
    bool has_line;
    size_t lines;   /* below it */
    bool has_table; /* results go to a table */
    int64_t total;
    uint64_t rows;
};

static void host_line(struct mr_buf *b, const struct mr_batch_host_view *h)
{
    char p50[32];

    mr_text_duration(p50, (double)h->p50_ns);
    mr_buf_printf(b, "  %s: %s%s%s, %llu rows, %u of %u calls in flight, p50 %s, %llu failures",
                  h->address, h->state, h->reason[0] ? ": " : "", h->reason,
                  (unsigned long long)h->rows, h->in_flight, h->limit, p50,
                  (unsigned long long)h->failures);
}

/* Prints a line cut to the width, as a wrapped line could not be redrawn. */
static void line_print(struct mr_term term, mr_str line)
{
    struct mr_buf clean;

    mr_buf_init(&clean, 0);
    mr_text_clean(&clean, line);
    fprintf(stderr, "%.*s",
            term.is_terminal ? (int)MR_MIN(clean.len, (size_t)term.width - 1) : (int)clean.len,
            mr_buf_cstr(&clean));
    mr_buf_fini(&clean);
}

/* Prints lines of hosts below the main one: on a terminal as many as fit, otherwise only hosts with a problem. */
static void hosts_print(struct progress *p, const struct mr_batch_view *v)
{
    const struct mr_term term = p->term;
    const size_t room = term.is_terminal ? MR_MAX(term.height, 5u) - 4 : v->host_count;
    struct mr_buf b;

    mr_buf_init(&b, 0);
    for (size_t i = 0; i < v->host_count && i < room; i++) {
        mr_buf_reset(&b);
        host_line(&b, &v->hosts[i]);
        fputs(term.is_terminal ? "\n" : "", stderr);
        line_print(term, mr_buf_view(&b));
        fputs(term.is_terminal ? "" : "\n", stderr);
        p->lines++;
    }
    mr_buf_fini(&b);
}

/* Clears the last drawn lines. */
static void drawn_clear(struct progress *p)
{
    if (p->lines > 0 && p->term.is_terminal) {
        fprintf(stderr, "\033[%zuA", p->lines);
    }
    fputs(p->has_line ? "\r\033[J" : "", stderr);
    p->has_line = false;
    p->lines = 0;
}

static void times_put(struct mr_buf *b, const struct mr_batch_view *v)
{
    char text[5][32];
    const int64_t times[] = {v->read_ns, v->reader_waited_ns, v->write_ns, v->commit_ns,
                             v->writer_waited_ns};

    for (size_t i = 0; i < 5; i++) {
        mr_text_duration(text[i], (double)times[i]);
    }
    mr_buf_printf(b,
                  "  reader: read for %s, waited for %s; writer: wrote for %s, committed for %s, "
                  "waited for %s\n",
                  text[0], text[1], text[2], text[3], text[4]);
}

static void host_end_put(struct mr_buf *b, const struct mr_batch_host_view *h)
{
    char p50[32];
    char p95[32];

    mr_text_duration(p50, (double)h->p50_ns);
    mr_text_duration(p95, (double)h->p95_ns);
    mr_buf_printf(b, "  %s: %s%s%s%s%s, %llu rows in %llu calls, p50 %s, p95 %s, %llu failures, ",
                  h->address, h->state, h->reason[0] ? ": " : "", h->reason,
                  h->version[0] ? ", version " : "", h->version, (unsigned long long)h->rows,
                  (unsigned long long)h->calls, p50, p95, (unsigned long long)h->failures);
    mr_buf_printf(b, "%llu retries\n", (unsigned long long)h->retries);
}

static void dead_put(struct mr_buf *b, const struct mr_batch_view *v)
{
    for (size_t i = 0; i < v->dead_cause_count; i++) {
        const struct mr_batch_dead_view *d = &v->dead_causes[i];
        mr_buf_printf(b, "  dead letters, %llu of kind %s: %s\n", (unsigned long long)d->count,
                      d->kind, d->cause);
    }
    if (v->dead_others > 0) {
        mr_buf_printf(b, "  dead letters, %llu with other causes\n",
                      (unsigned long long)v->dead_others);
    }
}

/* Prints the result of this start; report.json has more. */
static void end_print(struct progress *p, const struct mr_batch_view *v)
{
    const uint64_t done = v->rows + v->dead;
    const uint64_t here = done - MR_MIN(v->rows_before, done);
    /* Otherwise the error says everything, except hosts that do not work. */
    const bool has_begun = done > 0 || v->writer_waited_ns > 0;
    struct mr_buf b;
    char ran[32];

    drawn_clear(p);
    if (v->is_refused) {
        return; /* the error says everything */
    }
    mr_buf_init(&b, 0);
    if (has_begun) {
        mr_text_duration(ran, (double)v->ran_ns);
        mr_buf_printf(&b, "%llu rows done, %llu of them dead, in %llu %s%s",
                      (unsigned long long)done, (unsigned long long)v->dead,
                      (unsigned long long)v->files, p->has_table ? "commit" : "file",
                      v->files == 1 ? "" : "s");
        mr_buf_printf(&b, "; %llu of them now, in %s, %.0f rows/s, bound by the %s\n",
                      (unsigned long long)here, ran,
                      (double)here * 1e9 / (double)MR_MAX(v->ran_ns, INT64_C(1)), v->bottleneck);
        times_put(&b, v);
    }
    for (size_t i = 0; i < v->host_count; i++) {
        if (has_begun || strcmp(v->hosts[i].state, "ready") != 0) {
            host_end_put(&b, &v->hosts[i]);
        }
    }
    dead_put(&b, v);
    for (size_t i = 0; i < v->failure_count; i++) {
        const struct mr_batch_failure_view *f = &v->failures[i];
        mr_buf_printf(&b, "  calls failed %llu times, last at %s: %s\n",
                      (unsigned long long)f->count, f->host, f->cause);
    }
    struct mr_buf clean;
    mr_buf_init(&clean, 0);
    for (mr_str left = mr_buf_view(&b); left.len > 0;) {
        const char *end = memchr(left.ptr, '\n', left.len);
        const size_t n = end ? (size_t)(end - left.ptr) : left.len;
        mr_text_clean(&clean, mr_str_sub(left, 0, n));
        mr_buf_char(&clean, '\n');
        left = mr_str_sub(left, MR_MIN(n + 1, left.len), left.len);
    }
    fputs(mr_buf_cstr(&clean), stderr);
    mr_buf_fini(&clean);
    mr_buf_fini(&b);
}

static void on_view(void *ctx, const struct mr_batch_view *v)
{
    struct progress *p = ctx;
    const int64_t now_ns = mr_now_ns();
    const int64_t every_ns = p->term.is_terminal ? MR_NS_PER_S : 10 * MR_NS_PER_S;
    const uint64_t done = v->rows + v->dead;
    char memory[32];
    char left[80] = "";
    size_t working = 0;

    p->total = v->total_rows;
    p->rows = v->rows;
    if (strcmp(v->phase, "ending") == 0) {
        end_print(p, v);
        return;
    }
    if (p->told_ns && now_ns - p->told_ns < every_ns) {
        return;
    }
    p->told_ns = now_ns;
    for (size_t i = 0; i < v->host_count; i++) {
        working += strcmp(v->hosts[i].state, "ready") == 0;
    }
    if (v->total_rows > 0 && v->rows_per_s > 0) {
        char text[32];
        char longest[32];
        /* Estimated by the last seconds, and by all of this start: the end is probably between these times. */
        const double rows =
            MR_MAX((double)v->total_rows - (double)(v->rows_before + v->settled), 0.0);
        const double so_far = (double)v->settled * 1e9 / (double)MR_MAX(v->ran_ns, INT64_C(1));
        const double fast = MR_MAX(v->rows_per_s, so_far);
        const double slow = so_far > 0 ? MR_MIN(v->rows_per_s, so_far) : v->rows_per_s;
        mr_text_duration(text, rows / fast * 1e9);
        mr_text_duration(longest, rows / slow * 1e9);
        snprintf(left, sizeof left, ", %s to %s left", text, longest);
    }
    mr_text_bytes(memory, v->memory_bytes);
    struct mr_buf line;
    struct mr_buf pace; /* below it on a terminal, where one line would be too long */
    mr_buf_init(&line, 0);
    mr_buf_printf(&line, "%llu rows done, %llu of them dead, %llu under way (%s)",
                  (unsigned long long)done, (unsigned long long)v->dead,
                  (unsigned long long)v->under_way, memory);
    mr_buf_init(&pace, 0);
    mr_buf_printf(&pace, "%s%.0f rows/s%s, %s%s, %zu of %zu hosts",
                  p->term.is_terminal ? "  " : ", ", v->rows_per_s, left,
                  v->held[0]     ? "paused: "
                  : v->is_paused ? "paused"
                                 : "bound by the ",
                  v->held[0]     ? v->held
                  : v->is_paused ? ""
                                 : v->bottleneck,
                  working, v->host_count);
    drawn_clear(p);
    p->term = mr_term_of(stderr); /* its size may have changed */
    line_print(p->term, mr_buf_view(&line));
    if (p->term.is_terminal) {
        fputc('\n', stderr);
        p->lines++;
    }
    line_print(p->term, mr_buf_view(&pace));
    mr_buf_fini(&pace);
    mr_buf_fini(&line);
    fputs(p->term.is_terminal ? "" : "\n", stderr);
    p->has_line = p->term.is_terminal;
    if (p->term.is_terminal || working < v->host_count) {
        hosts_print(p, v);
    }
}

/* ---- running ---- */

static void retried_print(const struct batch_command *c, const struct progress *p)
{
    if (p->total == 0) {
        fprintf(stderr, "the job in %s has no dead letters\n", c->job.folder);
    } else {
        fprintf(stderr, "%lld dead letters tried again: %llu are results now, %llu are left\n",
                (long long)p->total, (unsigned long long)p->rows,
                (unsigned long long)p->total - (unsigned long long)p->rows);
    }
}

static int result_make(const struct batch_command *c, struct mr_err *err)
{
    struct mr_batch_openai_counts counts;
    int rc = mr_batch_openai_result(c->job.folder, c->result_file, c->error_file, &counts, err);

    if (rc == MR_OK) {
        fprintf(stderr, "%llu results and %llu errors in %s%s%s\n",
                (unsigned long long)counts.results, (unsigned long long)counts.errors,
                c->result_file, c->error_file ? " and " : "", c->error_file ? c->error_file : "");
    }
    return rc;
}

static int batch_run(struct batch_command *c, struct mr_err *err)
{
    struct mr_batch *job;
    struct progress progress = {.term = mr_term_of(stderr),
                                .has_table = c->job.results.database != NULL};
    struct mr_buf report;
    int rc = mr_cli_batch_open(&job, &c->job, err);

    if (rc < 0) {
        c->is_wrong = true;
        return rc;
    }
    mr_cli_batch_obey();
    if (c->plan) {
        rc = mr_cli_batch_plan(job, &c->job, c->json, err);
        goto out;
    }
    mr_batch_on_view(job, on_view, &progress);
    mr_buf_init(&report, 0);
    rc = mr_batch_run(job, &report, err);
    c->is_stopped = mr_batch_is_stopped(job);
    if (progress.has_line) {
        fputc('\n', stderr);
    }
    if (rc == MR_OK && c->job.start.retries_dead) {
        retried_print(c, &progress);
    }
    if (rc == MR_OK && c->result_file) {
        rc = result_make(c, err);
    }
    if (report.len > 0 && c->json) {
        printf("%s\n", mr_buf_cstr(&report));
    }
    mr_buf_fini(&report);
out:
    mr_cli_batch_close(&job);
    return rc;
}

int mr_cli_batch(int argc, char **argv, char **env)
{
    struct batch_command command = {0};
    struct mr_cli_batch_parsed parsed = {0};
    struct mr_options o;
    struct mr_err err;

    if (argc > 0 && mr_cli_batch_is_control(argv[0])) {
        return mr_cli_batch_control(argc, argv, env);
    }
    if (argc > 0 && strcmp(argv[0], "merge") == 0) {
        return mr_cli_batch_merge(argc, argv, env);
    }
    command.job.start.retries_dead = argc > 0 && strcmp(argv[0], "retry-dlq") == 0;
    if (argc < 1 || (strcmp(argv[0], "run") != 0 && !command.job.start.retries_dead)) {
        const bool wants_help =
            argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0);
        if (!wants_help) {
            return mr_cli_fail("millrace batch", MR_EXIT_USAGE,
                               "expected: run, retry-dlq, merge, status, pause, resume or set");
        }
    } else {
        argc--;
        argv++;
    }
    mr_options_init(&o, "millrace batch", mr_cli_batch_table, mr_cli_batch_table_count, &command);
    o.files_take_all = true;
    o.sibling = mr_cli_map_table;
    o.sibling_count = mr_cli_map_table_count;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        int rc = command_complete(&command, &parsed, &err);
        code = rc < 0 ? MR_EXIT_USAGE : -1;
        if (rc == MR_OK && (rc = batch_run(&command, &err)) < 0) {
            code = command.is_wrong     ? MR_EXIT_USAGE
                   : command.is_stopped ? EXIT_STOPPED
                                        : MR_EXIT_FAILED;
        }
        code = rc < 0 ? mr_cli_fail("millrace batch", code, err.msg) : MR_EXIT_OK;
    }
    mr_cli_batch_parsed_fini(&parsed);
    mr_cli_batch_list_fini(&command.recomputed);
    mr_options_fini(&o);
    return code;
}
