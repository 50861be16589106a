/* `millrace workflow`: graphs of models as files, which needs no server, and what a running server does with one. */
#include "workflow.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"

static const char usage[] =
    "usage: millrace workflow import FILE [--from FORMAT] [--model-repository FOLDER] [-o FOLDER]\n"
    "       millrace workflow check FILE|FOLDER [--model-repository FOLDER]\n"
    "       millrace workflow draw FILE|FOLDER [--format text|svg|dot] [-o FILE]\n"
    "       millrace workflow trace MODEL [-i NAME=VALUE]... [--svg FILE] [-u ADDRESS]\n\n"
    "import makes workflows of the graphs of other servers, and prints their config.pbtxt, or "
    "makes "
    "the folders of\n"
    "a model repository: Paddle Serving's infer_service.prototxt or workflow.prototxt with the "
    "files "
    "beside it,\n"
    "KServe's InferenceGraph, pipeline_config_list of OpenVINO Model Server, Pipeline and "
    "Experiment "
    "of Seldon\n"
    "Core 2. What has no counterpart is refused, with its line. check proves an ensemble or "
    "workflow as a server does when it loads it, "
    "with the\n"
    "models that it uses, from the repository that it is in. draw shows an ensemble or "
    "workflow: a "
    "config.pbtxt\n"
    "or the folder of a model. trace sends a request to an ensemble or workflow of a running "
    "server, "
    "and shows\n"
    "when each of its nodes ran. Inputs are given as in millrace infer; without any, they are "
    "zeros.\n";

static const char notes[] = "Exit status: 0 done, 1 the file is refused or cannot be read, or the "
                            "request failed, 2 the command "
                            "line is wrong.\n";

#define AT(member) MR_OPTION_AT(struct workflow_options, member)

const char *const workflow_formats[] = {"auto", "paddle", "kserve", "ovms", "seldon", NULL};
static const char *const pictures[] = {"text", "svg", "dot", NULL};
static const char *const protocols[] = {"rest", "binary", "grpc", NULL};

static const struct mr_option table[] = {
    {.name = "from",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(from),
     .fallback = "auto",
     .choices = workflow_formats,
     .value = "FORMAT",
     .help = "whose file it is; auto is what the file says"},
    {.name = "out",
     .letter = 'o',
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(out),
     .value = "PATH",
     .help = "where to write instead of standard output"},
    {.name = "model-repository",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(repository),
     .value = "FOLDER",
     .help = "models whose config.pbtxt say which tensors they have"},
    {.name = "format",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(picture),
     .fallback = "text",
     .choices = pictures,
     .value = "FORM",
     .help = "of the picture"},
    {.name = "trace", .kind = MR_OPTION_GROUP},
    {.name = "input",
     .letter = 'i',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(inputs),
     .value = "NAME=VALUE",
     .help = "an input, as in millrace infer"},
    {.name = "parameter",
     .letter = 'p',
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(parameters),
     .value = "KEY=VALUE",
     .help = "a request parameter"},
    {.name = "model-version",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(version),
     .value = "N",
     .help = "which version; the newest if not given"},
    {.name = "svg",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(svg),
     .value = "FILE",
     .help = "a file for the timeline as a picture"},
    {.name = "json",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(is_json),
     .help = "print the trace as the server sent it"},
    MR_REMOTE_URL_ROW(struct workflow_options, "8000, for gRPC 8001,"),
    MR_REMOTE_PROTOCOL_ROW(struct workflow_options, protocols, ""),
    {.name = "timeout",
     .letter = 't',
     .kind = MR_OPTION_DURATION,
     AT(timeout_ns),
     .fallback = "60s",
     .max = 86400,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "time limit of a call; 0 is none"},
    MR_REMOTE_ACCESS_ROWS(struct workflow_options),
};

static const struct verb {
    const char *name;
    int (*run)(const struct workflow_options *o, const char *path, struct mr_err *err);
} verbs[] = {{"import", workflow_import},
             {"check", workflow_check},
             {"draw", workflow_draw},
             {"trace", workflow_trace}};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static const struct verb *find_verb(const struct mr_options *o, char text[300])
{
    const char *names[VERB_COUNT + 1] = {0};

    if (o->args.len == 0) {
        snprintf(text, 300, "what? One of import, check, draw and trace");
        return NULL;
    }
    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
        if (strcmp(o->args.at[0], verbs[i].name) == 0) {
            if (o->args.len == 2) {
                return &verbs[i];
            }
            snprintf(text, 300, "%s takes one %s", verbs[i].name,
                     verbs[i].run == workflow_trace ? "model" : "file");
            return NULL;
        }
    }
    const char *near = mr_nearest_word(mr_str_c(o->args.at[0]), names);
    snprintf(text, 300,
             near ? "'%.60s' is none of import, check, draw and trace; did you mean '%s'?"
                  : "'%.60s' is none of import, check, draw and trace",
             o->args.at[0], near);
    return NULL;
}

/* In one line, whatever the names in a file are. */
static int fail(const char *program, const char *message)
{
    struct mr_buf line;

    mr_buf_init(&line, 0);
    mr_text_clean(&line, mr_str_c(message));
    const int code = mr_cli_fail(program, MR_EXIT_FAILED, mr_buf_cstr(&line));
    mr_buf_fini(&line);
    return code;
}

int mr_cli_workflow(int argc, char **argv, char **env)
{
    struct workflow_options opt = {0};
    struct mr_options o;
    struct mr_err err = {0};
    char text[300];

    mr_options_init(&o, "millrace workflow", table, sizeof table / sizeof *table, &opt);
    o.max_args = 2;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        const struct verb *v = find_verb(&o, text);
        if (!v) {
            code = mr_cli_fail(o.program, MR_EXIT_USAGE, text);
        } else if (v->run(&opt, o.args.at[1], &err) < 0) {
            code = fail(o.program, err.msg);
        } else {
            code = MR_EXIT_OK;
        }
    }
    mr_options_fini(&o);
    return code;
}
