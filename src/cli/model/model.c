/* `millrace model`: the management calls of a running server, over REST. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "cli/infer/infer.h"
#include "codec/json.h"
#include "codec/pbtext.h"
#include "model.h"
#include "model_config.pb-c.h"

static const char usage[] =
    "usage: millrace model list [options]\n"
    "       millrace model load NAME [--config FILE] [--file VERSION/PATH=FILE]... [options]\n"
    "       millrace model load NAME --from URL [--sha256 SUM] [--config FILE] [options]\n"
    "       millrace model unload NAME [--dependents] [options]\n"
    "       millrace model config NAME [options]\n"
    "       millrace model stats [NAME] [options]\n"
    "       millrace model versions NAME [options]\n"
    "       millrace model workers NAME [options]\n"
    "       millrace model label NAME LABEL [VERSION] [options]\n"
    "       millrace model rollback NAME [VERSION] [options]\n"
    "       millrace model record-warmup NAME [--requests N] [--every K] [--wait] [options]\n"
    "       millrace model pack FOLDER [--to FILE]\n"
    "       millrace model check PATH [--python PATH] [options]\n\n"
    "Lists, loads, unloads and inspects the models of a running server. load, unload, label, "
    "rollback\n"
    "and record-warmup need a server with --model-control-mode=explicit. label puts LABEL on a "
    "version, or\n"
    "takes it away; rollback goes back to VERSION, or to the one before the present one; "
    "record-warmup\n"
    "records requests of clients, which later loads of the version run to warm up. All of them "
    "speak\n"
    "HTTP, on either port; while APIs are restricted, on the HTTP port.\n\n"
    "pack and check need no server. pack makes an archive of a model's folder, or of one with "
    "models/ in it "
    "and\n"
    "what they share, which a model repository takes as it is. check loads the models of a folder "
    "or "
    "archive in\n"
    "processes of its own, runs one made-up request on each, and says what is wrong.\n";

static const char notes[] = MR_REMOTE_NOTES("");

#define AT(member) MR_OPTION_AT(struct model_options, member)

static const char *const forms[] = {"auto", "table", "plain", "json", NULL};

static const struct mr_option table[] = {
    {.name = "Server", .kind = MR_OPTION_GROUP},
    MR_REMOTE_URL_ROW(struct model_options, "8000"),
    MR_REMOTE_TIMEOUT_ROW(struct model_options, "0", "time limit of a call; 0 is none"),
    MR_REMOTE_ACCESS_ROWS(struct model_options),
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
    {.name = "ready",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(ready),
     .help = "list: only models that are ready"},
    {.name = "model-version",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(version),
     .value = "N",
     .help = "config, stats, workers, record-warmup: of this version"},
    {.name = "Loading", .kind = MR_OPTION_GROUP},
    {.name = "config",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(config),
     .value = "FILE",
     .help = "load with this configuration, JSON or config.pbtxt, instead of the repository's"},
    {.name = "file",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CLI_ONLY,
     AT(files),
     .value = "VERSION/PATH=FILE",
     .help = "load this file as part of the model; needs --config"},
    {.name = "from",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(from),
     .value = "URL",
     .help = "load the archive at this address, below one of the server's --allow-model-url"},
    {.name = "sha256",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(sha256),
     .value = "SUM",
     .help = "of the archive of --from; http: and https: need it"},
    {.name = "dependents",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(dependents),
     .help = "unload: also the models that only this one needed"},
    {.name = "Packing and checking", .kind = MR_OPTION_GROUP},
    {.name = "to",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(to),
     .value = "FILE",
     .help = "pack: the archive, .tar, .tar.gz, .tar.zst or .zip; by default FOLDER.tar.gz here"},
    {.name = "python",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(python),
     .value = "PATH",
     .help = "check: the interpreter of Python models, by default python3 of PATH"},
    {.name = "archive-cache",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_CLI_ONLY,
     AT(archive_cache),
     .value = "DIR",
     .help = "check: the folder for unpacked archives and Python environments, by default the "
             "server's"},
    {.name = "Recording", .kind = MR_OPTION_GROUP},
    {.name = "requests",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(requests),
     .fallback = "100",
     .min = 1,
     .max = 1000,
     .value = "N",
     .help = "how many to record"},
    {.name = "every",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     AT(every),
     .fallback = "1",
     .min = 1,
     .max = 4294967295,
     .value = "K",
     .help = "record one of K requests"},
    {.name = "for",
     .kind = MR_OPTION_DURATION,
     .flags = MR_OPTION_CLI_ONLY,
     AT(record_ns),
     .fallback = "10m",
     .min = 1,
     .max = 86400,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "what came until then is written"},
    {.name = "stop",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(stop),
     .help = "write what there is"},
    {.name = "wait",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(wait),
     .help = "until the requests are written"},
};

/* ---- list ---- */

static int run_list(struct model_run *m, struct mr_err *err)
{
    struct mr_remote_reply reply;
    struct mr_buf body;

    mr_buf_init(&body, 0);
    mr_buf_c(&body, m->opt.ready ? "{\"ready\":true}" : "{}");
    int rc = mr_remote_text(&m->remote, "/v2/repository/index", &body, &reply, err);
    if (rc == MR_OK) {
        rc = model_print_list(m, reply.body, err);
        mr_remote_reply_fini(&reply);
    }
    mr_buf_fini(&body);
    return rc;
}

/* ---- load, unload ---- */

/* Reads a config file as JSON, the server's format; converts config.pbtxt. */
static int config_as_json(const char *path, struct mr_buf *out, struct mr_err *err)
{
    ProtobufCMessage *config = NULL;
    struct mr_buf file;
    int rc;

    mr_buf_init(&file, (size_t)64 << 20);
    rc = mr_read_whole(path, &file, err);
    mr_str text = mr_buf_view(&file);
    mr_str trimmed = text.len ? mr_str_trim(text) : (mr_str){"", 0};
    if (rc == MR_OK && trimmed.len && trimmed.ptr[0] == '{') {
        mr_buf_str(out, text);
    } else if (rc == MR_OK) {
        rc = mr_pbtext_parse(&inference__model_config__descriptor, text, &config, err);
        if (rc == MR_OK) {
            mr_pbjson_print(config, false, out);
            protobuf_c_message_free_unpacked(config, NULL);
        } else {
            rc = MR_WRAP(err, rc, "%s", path);
        }
    }
    mr_buf_fini(&file);
    return rc;
}

/* "key": of an object that is begun */
static void add_key(mr_str key, struct mr_buf *body)
{
    if (body->len > 0 && body->ptr[body->len - 1] != '{') {
        mr_buf_char(body, ',');
    }
    mr_json_put_string(body, key);
    mr_buf_char(body, ':');
}

static void add_text(const char *key, const char *value, struct mr_buf *body)
{
    if (value) {
        add_key(mr_str_c(key), body);
        mr_json_put_string(body, mr_str_c(value));
    }
}

/* "file:1/model.onnx":"<base64>" */
static int add_file(const char *text, struct mr_buf *body, struct mr_err *err)
{
    const char *equals = strchr(text, '=');
    struct mr_buf file;
    struct mr_buf key;

    if (!equals || equals == text || equals[1] == '\0') {
        return MR_FAIL(err, MR_E_INVALID, "--file '%s': expected VERSION/PATH=FILE", text);
    }
    mr_buf_init(&file, (size_t)2 << 30);
    mr_buf_init(&key, 8192);
    int rc = mr_read_whole(equals + 1, &file, err);
    if (rc == MR_OK) {
        MR_BUF_LIT(&key, "file:");
        mr_buf_append(&key, text, (size_t)(equals - text));
        add_key(mr_buf_view(&key), body);
        mr_buf_char(body, '"');
        mr_base64_encode((mr_bytes){(const uint8_t *)file.ptr, file.len}, body);
        mr_buf_char(body, '"');
    }
    mr_buf_fini(&file);
    mr_buf_fini(&key);
    return rc;
}

static int load_body(const struct model_options *opt, struct mr_buf *body, struct mr_err *err)
{
    struct mr_buf config;
    int rc = MR_OK;

    mr_buf_init(&config, (size_t)64 << 20);
    MR_BUF_LIT(body, "{\"parameters\":{");
    if (opt->config) {
        MR_TRY(config_as_json(opt->config, &config, err));
        add_key(MR_STR("config"), body);
        mr_json_put_string(body, mr_buf_view(&config));
    }
    add_text("url", opt->from, body);
    add_text("sha256", opt->sha256, body);
    for (size_t i = 0; i < opt->files.len; i++) {
        MR_TRY(add_file(opt->files.at[i], body, err));
    }
    MR_BUF_LIT(body, "}}");
    if (body->failed) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "the files are too large to be sent");
    }
out:
    mr_buf_fini(&config);
    return rc;
}

int model_post(struct model_run *m, const char *verb, const struct mr_buf *body,
               int64_t *out_took_ns, struct mr_err *err)
{
    struct mr_remote_reply reply;
    char path[600];

    if (body->failed) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "the request is too large");
    }
    snprintf(path, sizeof path, "/v2/repository/models/%.500s/%s", m->name, verb);
    int rc = mr_remote_text(&m->remote, path, body, &reply, err);
    if (rc == MR_OK) {
        *out_took_ns = reply.took_ns;
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

void model_say(const struct model_run *m, const char *verb, const char *done, int64_t took_ns)
{
    struct mr_buf name;
    char took[32];

    if (m->form == MODEL_JSON) {
        mr_buf_init(&name, 0);
        mr_json_put_string(&name, mr_str_c(m->name));
        printf("{\"model\":%s,\"done\":\"%s\",\"ns\":%lld}\n", mr_buf_cstr(&name), verb,
               (long long)took_ns);
        mr_buf_fini(&name);
        return;
    }
    mr_text_duration(took, (double)took_ns);
    printf("%s %s, %s\n", m->name, done, took);
}

static int run_load(struct model_run *m, struct mr_err *err)
{
    struct mr_buf body;
    int64_t took_ns;

    mr_buf_init(&body, (size_t)3 << 30);
    int rc = load_body(&m->opt, &body, err);
    if (rc == MR_OK) {
        struct model_watch *watch = model_watch_start(m);
        rc = model_post(m, "load", &body, &took_ns, err);
        model_watch_stop(&watch); /* clears its line before the result is printed */
    }
    if (rc == MR_OK) {
        model_say(m, "load", "loaded", took_ns);
    }
    mr_buf_fini(&body);
    return rc;
}

static int run_unload(struct model_run *m, struct mr_err *err)
{
    struct mr_buf body;
    int64_t took_ns;

    mr_buf_init(&body, 0);
    mr_buf_c(&body, m->opt.dependents ? "{\"parameters\":{\"unload_dependents\":true}}" : "{}");
    int rc = model_post(m, "unload", &body, &took_ns, err);
    if (rc == MR_OK) {
        model_say(m, "unload", "unloaded", took_ns);
    }
    mr_buf_fini(&body);
    return rc;
}

/* ---- config, stats ---- */

static void model_path(const struct model_run *m, const char *leaf, char out[700])
{
    if (!m->name) {
        snprintf(out, 700, "/v2/models/%s", leaf);
    } else if (m->opt.version) {
        snprintf(out, 700, "/v2/models/%.500s/versions/%.40s/%s", m->name, m->opt.version, leaf);
    } else {
        snprintf(out, 700, "/v2/models/%.500s/%s", m->name, leaf);
    }
}

/* In the format of config.pbtxt; with --json as sent by the server. */
static int run_config(struct model_run *m, struct mr_err *err)
{
    struct mr_remote_reply reply;
    ProtobufCMessage *config = NULL;
    struct mr_buf out;
    char path[700];

    model_path(m, "config", path);
    int rc = mr_remote_text(&m->remote, path, NULL, &reply, err);
    if (rc < 0) {
        return rc;
    }
    mr_buf_init(&out, 0);
    mr_str text = {(const char *)reply.body.ptr, reply.body.len};
    if (m->form == MODEL_JSON) {
        mr_buf_str(&out, text);
        mr_buf_char(&out, '\n');
    } else {
        rc = mr_pbjson_parse(&inference__model_config__descriptor, text, &config, err);
        if (rc == MR_OK) {
            mr_pbtext_print(config, &out);
            protobuf_c_message_free_unpacked(config, NULL);
        } else {
            rc = MR_WRAP(err, rc, "the server's answer");
        }
    }
    if (rc == MR_OK) {
        fwrite(out.ptr, 1, out.len, stdout);
    }
    mr_buf_fini(&out);
    mr_remote_reply_fini(&reply);
    return rc;
}

static int run_report(struct model_run *m, const char *what,
                      int (*print)(const struct model_run *, mr_bytes, struct mr_err *),
                      struct mr_err *err)
{
    struct mr_remote_reply reply;
    char path[700];

    model_path(m, what, path);
    int rc = mr_remote_text(&m->remote, path, NULL, &reply, err);
    if (rc == MR_OK) {
        rc = print(m, reply.body, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

static int run_stats(struct model_run *m, struct mr_err *err)
{
    return run_report(m, "stats", model_print_stats, err);
}

static int run_workers(struct model_run *m, struct mr_err *err)
{
    return run_report(m, "workers", model_print_workers, err);
}

/* ---- the command ---- */

static const struct verb {
    const char *name;
    int args_min;
    int args_max;
    const char *args; /* for the error text, NULL = from the counts */
    int (*run)(struct model_run *m, struct mr_err *err);
} verbs[] = {
    {"list", 0, 0, "no model", run_list},
    {"load", 1, 1, NULL, run_load},
    {"unload", 1, 1, NULL, run_unload},
    {"config", 1, 1, NULL, run_config},
    {"stats", 0, 1, "one model at most", run_stats},
    {"versions", 1, 1, NULL, model_run_versions},
    {"workers", 1, 1, NULL, run_workers},
    {"label", 2, 3, "a model, a label and a version, or no version to take the label away",
     model_run_label},
    {"rollback", 1, 2, "one model, and a version or none", model_run_rollback},
    {"record-warmup", 1, 1, NULL, model_run_record},
    {"pack", 1, 1, "one folder", model_run_pack},
    {"check", 1, 1, "one folder or archive", model_run_check},
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

/* "list, load, ... and stats" */
static const char *verb_names(char text[200])
{
    size_t n = 0;

    for (size_t i = 0; i < VERB_COUNT; i++) {
        const char *before = i == 0 ? "" : i + 1 == VERB_COUNT ? " and " : ", ";
        n += (size_t)snprintf(text + n, 200 - n, "%s%s", before, verbs[i].name);
    }
    return text;
}

static const struct verb *find_verb(const char *name, char text[400])
{
    char all[200];
    const char *names[VERB_COUNT + 1] = {0};

    for (size_t i = 0; i < VERB_COUNT; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    const char *near = mr_nearest_word(mr_str_c(name), names);
    snprintf(text, 400,
             near ? "'%.60s' is not one of %s; did you mean '%s'?" : "'%.60s' is not one of %s",
             name, verb_names(all), near);
    return NULL;
}

static const struct verb *check(const struct model_run *m, const struct mr_options *o,
                                char text[400])
{
    char all[200];

    if (o->args.len == 0) {
        snprintf(text, 400, "what? One of %s", verb_names(all));
        return NULL;
    }
    const struct verb *v = find_verb(o->args.at[0], text);
    if (!v) {
        return NULL;
    }
    int args = (int)o->args.len - 1;
    if (args < v->args_min || args > v->args_max) {
        snprintf(text, 400,
                 v->args ? "%s takes %s" : "%s takes one model: millrace model load NAME", v->name,
                 v->args);
        return NULL;
    }
    if (m->opt.files.len && !m->opt.config) {
        snprintf(text, 200, "--file needs --config");
        return NULL;
    }
    bool loads = strcmp(v->name, "load") == 0;
    if (m->opt.sha256 && !m->opt.from) {
        snprintf(text, 200, "--sha256 needs --from");
        return NULL;
    }
    if (!loads && (m->opt.config || m->opt.from)) {
        snprintf(text, 200, "--config, --file and --from go with load");
        return NULL;
    }
    return v;
}

static int run(struct model_run *m, const struct verb *v, const struct mr_options *o)
{
    struct mr_err err = {0};
    int rc, code = MR_EXIT_FAILED;

    const char *more[3] = {NULL};

    m->name = o->args.len > 1 ? o->args.at[1] : NULL;
    for (size_t i = 2; i < o->args.len && i < 4; i++) {
        more[i - 2] = o->args.at[i];
    }
    m->more = more;
    m->form = m->opt.json ? MODEL_JSON : m->opt.form;
    if (m->form == MODEL_AUTO) {
        m->form = mr_term_of(stdout).is_terminal ? MODEL_TABLE : MODEL_PLAIN;
    }
    if (v->run == model_run_pack || v->run == model_run_check) { /* these ask no server */
        rc = v->run(m, &err);
    } else {
        const struct mr_endpoint e = {.model = m->name, .version = m->opt.version};
        rc = mr_endpoint_names_check(&e, &err);
        rc = rc < 0 ? rc
                    : mr_remote_open(&m->remote, m->opt.url, 8000, false, m->opt.timeout_ns,
                                     &m->opt.access, &err);
        code = rc < 0 ? MR_EXIT_USAGE : code;
        rc = rc < 0 ? rc : v->run(m, &err);
        mr_remote_close(&m->remote);
    }
    return rc < 0 ? mr_cli_fail(o->program, code, err.msg) : MR_EXIT_OK;
}

int mr_cli_model(int argc, char **argv, char **env)
{
    struct model_run m = {0};
    struct mr_options o;
    char text[400];

    mr_options_init(&o, "millrace model", table, sizeof table / sizeof *table, &m.opt);
    o.max_args = 4;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        const struct verb *v = check(&m, &o, text);
        code = v ? run(&m, v, &o) : mr_cli_fail(o.program, MR_EXIT_USAGE, text);
    }
    mr_options_fini(&o);
    return code;
}
