/* `millrace infer`: one request from the shell. Gets the model's metadata, makes tensors from the arguments, sends
 * them over the chosen protocol, and prints the answer. */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "infer.h"

static const char usage[] =
    "usage: millrace infer -m MODEL -i NAME=VALUE [-i NAME=VALUE]... [options]\n"
    "       millrace infer -m MODEL [options] - <request.json\n\n"
    "Sends one inference request and shows the answer. Types and shapes come from the model; a "
    "missing\n"
    "batch dimension is added.\n\n"
    "A VALUE is a literal in JSON ([1, 2, 3], [[0.5], [0.25]], \"text\"), bare text for an input "
    "of\n"
    "strings, or a file: @FILE.npy, @FILE.json; @FILE of any other kind is one string. @- reads\n"
    "standard input. With one input, NAME= may be left out before @ and [.\n\n"
    "With '-' in place of -i, standard input is a whole request as the server takes it (JSON with\n"
    "\"inputs\"), or rows: one per line, each a value, or an object {\"input\": value, ...}; all "
    "rows\n"
    "become one batch.\n";

static const char notes[] =
    "Plain output has one line per output: name, type, shape and data as JSON, separated by tabs.\n"
    "Exit status: 0 answered, 1 the request failed, 2 the command line is wrong.\n"
    "Examples:\n"
    "  millrace infer -m iris -i x='[5.1, 3.5, 1.4, 0.2]'\n"
    "  millrace infer -m digits -i image=@digit.npy --classification 3\n"
    "  millrace infer -m iris --protocol grpc --json -i x=@rows.npy\n";

#define AT(member) MR_OPTION_AT(struct infer_options, member)

static const char *const protocols[] = {"rest", "binary", "grpc", NULL};
static const char *const forms[] = {"auto", "table", "plain", "json", "npy", NULL};

static const struct mr_option table[] = {
    {.name = "Request", .kind = MR_OPTION_GROUP},
    {.name = "model",
     .letter = 'm',
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(model),
     .value = "MODEL",
     .help = "the model"},
    {.name = "model-version",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(version),
     .value = "N",
     .help = "which version; the newest if not given"},
    {.name = "input",
     .letter = 'i',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(inputs),
     .value = "NAME=VALUE",
     .help = "an input"},
    {.name = "want",
     .letter = 'o',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(outputs),
     .value = "NAME",
     .help = "an output to ask for; all if none is given"},
    {.name = "classification",
     .letter = 'k',
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(classification),
     .fallback = "0",
     .max = 1000000,
     .value = "K",
     .help = "ask for the K best classes instead of all values"},
    {.name = "parameter",
     .letter = 'p',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(parameters),
     .value = "KEY=VALUE",
     .help = "a request parameter: priority, timeout (us) or the model's own"},
    {.name = "id",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(id),
     .value = "ID",
     .help = "returned in the answer, and written in the server's log"},
    {.name = "Server", .kind = MR_OPTION_GROUP},
    MR_REMOTE_URL_ROW(struct infer_options, "8000, for gRPC 8001,"),
    MR_REMOTE_PROTOCOL_ROW(struct infer_options, protocols, ""),
    MR_REMOTE_TIMEOUT_ROW(struct infer_options, "60s", "time limit of a call; 0 is none"),
    MR_REMOTE_ACCESS_ROWS(struct infer_options),
    {.name = "Answer", .kind = MR_OPTION_GROUP},
    {.name = "output",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(form),
     .fallback = "auto",
     .choices = forms,
     .value = "FORM",
     .help = "auto is a table on a terminal, plain lines otherwise"},
    {.name = "json",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(json),
     .help = "as --output json"},
    {.name = "to",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(to),
     .value = "PATH",
     .help = "write .npy: one output to this file, or NAME.npy for each into this folder"},
    {.name = "repeat",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(repeat),
     .fallback = "1",
     .min = 1,
     .max = 1000000,
     .value = "N",
     .help = "send it N times, one after the other, and show how long that took"},
};

/* ---- sending ---- */

int infer_send(struct infer *x, struct mr_remote_reply *reply, struct mr_err *err)
{
    const struct mr_endpoint e = infer_endpoint(x);
    struct mr_arena arena;
    struct mr_buf buf;

    mr_arena_init(&arena, 4096, (size_t)1 << 30);
    mr_buf_init(&buf, (size_t)8 << 30);
    int rc = mr_remote_infer(&x->remote, &e, &x->request, &buf, &arena, reply, err);
    mr_buf_fini(&buf);
    mr_arena_fini(&arena);
    return rc;
}

int infer_decode(struct infer *x, const struct mr_remote_reply *reply, struct mr_oip_response *out,
                 struct mr_err *err)
{
    static const struct mr_oip_limits limits = {.max_tensors = 65536, .size_option = "4 GiB"};

    return x->opt.protocol == INFER_GRPC
               ? mr_oip_pb_decode_response(reply->body, &limits, &x->arena, out, err)
               : mr_oip_rest_decode_response(reply->body, reply->header_length, &limits, &x->arena,
                                             out, err);
}

/* ---- repeating ---- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void print_times(int64_t *took, uint32_t n)
{
    char text[4][32];
    int64_t sum = 0;

    qsort(took, n, sizeof *took, compare);
    for (uint32_t i = 0; i < n; i++) {
        sum += took[i];
    }
    mr_text_duration(text[0], (double)took[0]);
    mr_text_duration(text[1], (double)took[n / 2]);
    mr_text_duration(text[2], (double)took[(uint64_t)n * 99 / 100]);
    mr_text_duration(text[3], (double)took[n - 1]);
    fprintf(stderr,
            "%u requests one after the other: fastest %s, median %s, 99th percentile %s, "
            "slowest %s; %.0f per second\n",
            n, text[0], text[1], text[2], text[3], sum ? (double)n * 1e9 / (double)sum : 0.0);
}

static int send_all(struct infer *x, struct mr_remote_reply *reply, struct mr_err *err)
{
    uint32_t n = x->opt.repeat;
    int64_t *took = MR_NEW_ARRAY(int64_t, n);
    int rc = MR_OK;

    for (uint32_t i = 0; i < n && rc == MR_OK; i++) {
        if (i > 0) {
            mr_remote_reply_fini(reply);
        }
        rc = infer_send(x, reply, err);
        took[i] = rc == MR_OK ? reply->took_ns : 0;
    }
    if (rc == MR_OK && n > 1) {
        print_times(took, n);
    }
    mr_free(took);
    return rc;
}

/* ---- the command ---- */

/* *out_code: the exit code on failure. */
static int run(struct infer *x, bool from_stdin, int *out_code, struct mr_err *err)
{
    struct mr_remote_reply reply = {0};
    struct mr_oip_response response = {0};
    const struct mr_endpoint e = infer_endpoint(x);
    bool grpc = x->opt.protocol == INFER_GRPC;
    int rc;

    *out_code = MR_EXIT_USAGE;
    MR_TRY(mr_endpoint_names_check(&e, err));
    MR_TRY(mr_remote_open(&x->remote, x->opt.url, grpc ? 8001 : 8000, grpc, x->opt.timeout_ns,
                          &x->opt.access, err));
    *out_code = MR_EXIT_FAILED;
    MR_TRY(infer_meta_get(x, err));
    *out_code = MR_EXIT_USAGE;
    MR_TRY(infer_build(x, from_stdin, err));
    *out_code = MR_EXIT_FAILED;
    MR_TRY(send_all(x, &reply, err));
    MR_TRY(infer_decode(x, &reply, &response, err));
    MR_TRY(infer_print(x, &response, reply.took_ns, err));
out:
    mr_remote_reply_fini(&reply);
    return rc;
}

static const char *check(const struct infer_options *o, const struct mr_options *parsed)
{
    if (!o->model) {
        return "no model: give -m MODEL";
    }
    if (parsed->args.len && strcmp(parsed->args.at[0], "-") != 0) {
        return "the only argument that is no option is '-', for standard input; inputs are given "
               "by -i NAME=VALUE";
    }
    if (o->inputs.len == 0 && parsed->args.len == 0) {
        return "no inputs: give -i NAME=VALUE, or '-' to read them from standard input";
    }
    if (o->to && (o->json || (o->form != INFER_AUTO && o->form != INFER_NPY))) {
        return "--to writes .npy files: it goes with --output npy only";
    }
    if (o->form == INFER_NPY && !o->to && isatty(STDOUT_FILENO)) {
        return "--output npy writes bytes: redirect it, or give --to FILE.npy";
    }
    return NULL;
}

void infer_setup(struct infer *x)
{
    memset(x, 0, sizeof *x);
    mr_arena_init(&x->arena, 65536, (size_t)1 << 30);
    mr_buf_init(&x->stdin_text, (size_t)4 << 30);
}

/* The arena holds the blocks of decoded tensors, so it is freed after everything is printed. */
void infer_fini(struct infer *x)
{
    mr_arena_fini(&x->arena);
    for (size_t i = 0; i < x->arrays.len; i++) {
        mr_array_fini(x->arrays.at[i]);
        mr_free(x->arrays.at[i]);
    }
    MR_VEC_FINI(&x->arrays);
    mr_buf_fini(&x->stdin_text);
    mr_remote_close(&x->remote);
}

int mr_cli_infer(int argc, char **argv, char **env)
{
    struct infer x;
    struct mr_options o;
    struct mr_err err = {0};

    infer_setup(&x);
    mr_options_init(&o, "millrace infer", table, sizeof table / sizeof *table, &x.opt);
    o.max_args = 1;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    const char *wrong = code < 0 ? check(&x.opt, &o) : NULL;
    if (code < 0 && !wrong && mr_remote_protocol(x.opt.url, &x.opt.protocol, &err) < 0) {
        wrong = err.msg;
    }
    if (wrong) {
        code = mr_cli_fail(o.program, MR_EXIT_USAGE, wrong);
    }
    if (code < 0) {
        int failed = MR_EXIT_FAILED;
        int rc = run(&x, o.args.len > 0, &failed, &err);
        code = rc < 0 ? mr_cli_fail(o.program, failed, err.msg) : MR_EXIT_OK;
    }
    infer_fini(&x);
    mr_options_fini(&o);
    return code;
}
