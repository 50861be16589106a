/* `millrace endpoint`: the endpoints of a running server, over REST. The server's answer is a message of
 * proto/endpoints.proto as JSON, and is read as such. */
#include <stdio.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/remote.h"
#include "cli/common/term.h"
#include "codec/json.h"
#include "codec/pbtext.h"
#include "endpoints.pb-c.h"

static const char usage[] =
    "usage: millrace endpoint list [options]\n"
    "       millrace endpoint show NAME [options]\n"
    "       millrace endpoint set-weights NAME TAG=WEIGHT... [options]\n"
    "       millrace endpoint promote NAME TAG [options]\n"
    "       millrace endpoint rollback NAME [options]\n"
    "       millrace endpoint resume NAME [options]\n\n"
    "Shows and changes the endpoints of a running server: names whose requests are shared among "
    "variants\n"
    "(millrace serve --endpoints=FILE). set-weights changes the weights of the variants that are "
    "named, and stops\n"
    "a ramp. promote gives all requests to one variant. rollback takes the share of the ramp's "
    "variant back;\n"
    "without a ramp it goes back to the weights before the last change by hand. resume lets a ramp "
    "go on that is\n"
    "held, stopped or rolled back. What is changed lasts until the endpoint's entry in the file "
    "changes, or the\n"
    "server ends.\n";

static const char notes[] = MR_REMOTE_NOTES("");

enum form { FORM_AUTO, FORM_TABLE, FORM_PLAIN, FORM_JSON };

struct endpoint_options {
    const char *url;
    struct mr_remote_access access;
    int64_t timeout_ns;
    int form;
    bool json;
};

#define AT(member) MR_OPTION_AT(struct endpoint_options, member)

static const char *const forms[] = {"auto", "table", "plain", "json", NULL};

static const struct mr_option table[] = {
    {.name = "Server", .kind = MR_OPTION_GROUP},
    MR_REMOTE_URL_ROW(struct endpoint_options, "8000"),
    MR_REMOTE_TIMEOUT_ROW(struct endpoint_options, "0", "time limit of a call; 0 is none"),
    MR_REMOTE_ACCESS_ROWS(struct endpoint_options),
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
};

struct endpoint_run {
    struct endpoint_options opt;
    struct mr_remote remote;
    const char *const *args; /* after the verb */
    size_t arg_count;
    bool is_usage; /* what failed is the command line */
};

typedef Millrace__EndpointStatus status_message;

/* ---- printing ---- */

static bool is_table(const struct endpoint_run *r)
{
    return r->opt.form == FORM_TABLE;
}

static void add_share(struct mr_grid *t, double percent)
{
    if (percent > 0 && percent < 0.01) {
        mr_grid_add_str(t, MR_STYLE_PLAIN, MR_STR("<0.01%"));
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "%.2f%%", percent);
    }
}

static void add_ms(struct mr_grid *t, double ms)
{
    mr_grid_add(t, MR_STYLE_PLAIN, ms < 100 ? "%.3g" : "%.0f", ms);
}

static void print_variants(const struct endpoint_run *r, const status_message *m)
{
    static const char *const head[] = {"variant",  "model",  "version", "weight", "share", "ready",
                                       "requests", "errors", "mean_ms", "p99_ms", NULL};
    struct mr_grid t;

    mr_grid_init(&t, head);
    for (size_t i = 0; i < m->n_variants; i++) {
        const Millrace__EndpointStatus__Variant *v = m->variants[i];
        mr_grid_add_str(&t, MR_STYLE_BOLD, mr_str_c(v->tag));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(v->model));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(v->version[0] ? v->version : "-"));
        mr_grid_add(&t, MR_STYLE_PLAIN, "%.15g", v->weight);
        add_share(&t, v->share * 100);
        mr_grid_add(&t, v->ready ? MR_STYLE_GOOD : MR_STYLE_BAD, "%s", v->ready ? "yes" : "no");
        mr_grid_add(&t, MR_STYLE_PLAIN, "%llu", (unsigned long long)v->requests);
        mr_grid_add(&t, v->errors ? MR_STYLE_WARN : MR_STYLE_PLAIN, "%llu",
                    (unsigned long long)v->errors);
        add_ms(&t, v->mean_ms);
        add_ms(&t, v->p99_ms);
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
}

static void put_weight(struct mr_buf *b, size_t index, const char *tag, double weight)
{
    mr_buf_printf(b, "%s%s=%.15g", index ? " " : "", tag, weight);
}

static void print_history(const struct endpoint_run *r, const status_message *m)
{
    static const char *const head[] = {"time", "change", "by", "weights", "reason", NULL};
    struct mr_grid t;
    struct mr_buf b;
    char at[32];

    mr_grid_init(&t, head);
    mr_buf_init(&b, 0);
    for (size_t i = 0; i < m->n_history; i++) {
        const Millrace__EndpointStatus__Event *e = m->history[i];
        mr_buf_reset(&b);
        for (size_t k = 0; k < e->n_weights && k < m->n_variants; k++) {
            put_weight(&b, k, m->variants[k]->tag, e->weights[k]);
        }
        mr_grid_add(&t, MR_STYLE_DIM, "%s", mr_wall_text(e->unix_ns, at));
        mr_grid_add(&t, e->reason[0] ? MR_STYLE_BAD : MR_STYLE_BOLD, "%s", e->kind);
        mr_grid_add(&t, MR_STYLE_PLAIN, "%s", e->by_hand ? "hand" : "ramp");
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_buf_view(&b));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(e->reason));
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
    mr_buf_fini(&b);
}

static void print_line(const char *what, const char *text)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_text_clean(&b, mr_str_c(text));
    printf("%s\t%s\n", what, mr_buf_cstr(&b));
    mr_buf_fini(&b);
}

static void print_status(const struct endpoint_run *r, const status_message *m)
{
    print_line("endpoint", m->name);
    if (m->sticky[0]) {
        print_line("sticky", m->sticky);
    }
    if (m->ramp) {
        print_line("ramp", m->ramp->tag);
        print_line("state", m->ramp->state);
        print_line("guard", m->ramp->guard);
    }
    if (m->shadow) {
        const Millrace__EndpointStatus__Shadow *s = m->shadow;
        printf("shadow\t%s\t%.15g%%\trequests %llu\tdropped %llu\tfailed %llu\tcompared %llu\t"
               "different %llu\n",
               s->tag, s->percent, (unsigned long long)s->requests, (unsigned long long)s->dropped,
               (unsigned long long)s->failed, (unsigned long long)s->compared,
               (unsigned long long)s->different);
    }
    print_variants(r, m);
    if (m->n_history) {
        print_history(r, m);
    }
}

static void print_list(const struct endpoint_run *r, const Millrace__EndpointsResponse *m)
{
    static const char *const head[] = {"endpoint", "ramp", "variants", "requests", "errors", NULL};
    struct mr_grid t;
    struct mr_buf b;

    mr_grid_init(&t, head);
    mr_buf_init(&b, 0);
    for (size_t i = 0; i < m->n_endpoints; i++) {
        const status_message *e = m->endpoints[i];
        uint64_t requests = 0, errors = 0;
        mr_buf_reset(&b);
        for (size_t k = 0; k < e->n_variants; k++) {
            put_weight(&b, k, e->variants[k]->tag, e->variants[k]->weight);
            requests += e->variants[k]->requests;
            errors += e->variants[k]->errors;
        }
        mr_grid_add_str(&t, MR_STYLE_BOLD, mr_str_c(e->name));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(e->ramp ? e->ramp->state : "-"));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_buf_view(&b));
        mr_grid_add(&t, MR_STYLE_PLAIN, "%llu", (unsigned long long)requests);
        mr_grid_add(&t, MR_STYLE_PLAIN, "%llu", (unsigned long long)errors);
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
    mr_buf_fini(&b);
}

/* ---- asking ---- */

static int print_answer(const struct endpoint_run *r, mr_bytes body, bool is_list,
                        struct mr_err *err)
{
    const mr_str text = {(const char *)body.ptr, body.len};
    ProtobufCMessage *m;
    int rc;

    if (r->opt.form == FORM_JSON) {
        printf("%.*s\n", (int)text.len, text.ptr);
        return MR_OK;
    }
    rc = mr_pbjson_parse(is_list ? &millrace__endpoints_response__descriptor
                                 : &millrace__endpoint_status__descriptor,
                         text, &m, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "the server's answer");
    }
    if (is_list) {
        print_list(r, (const Millrace__EndpointsResponse *)m);
    } else {
        print_status(r, (const status_message *)m);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    return MR_OK;
}

/* verb NULL: what there is. */
static int ask(struct endpoint_run *r, const char *verb, const struct mr_buf *body,
               struct mr_err *err)
{
    struct mr_remote_reply reply;
    char path[600];
    int rc;

    snprintf(path, sizeof path, "/v2/endpoints%s%.500s%s%s", r->arg_count ? "/" : "",
             r->arg_count ? r->args[0] : "", verb ? "/" : "", verb ? verb : "");
    rc = mr_remote_text(&r->remote, path, body, &reply, err);
    if (rc == MR_OK) {
        rc = print_answer(r, reply.body, r->arg_count == 0, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

static int run_show(struct endpoint_run *r, struct mr_err *err)
{
    return ask(r, NULL, NULL, err);
}

static int add_weight(struct endpoint_run *r, const char *text, struct mr_buf *body,
                      struct mr_err *err)
{
    const char *equals = strchr(text, '=');
    double weight;

    if (!equals || equals == text || !mr_text_double(mr_str_c(equals + 1), &weight)) {
        r->is_usage = true;
        return MR_FAIL(err, MR_E_INVALID, "'%s': expected TAG=WEIGHT", text);
    }
    mr_json_put_string(body, mr_str_n(text, (size_t)(equals - text)));
    mr_buf_char(body, ':');
    mr_json_put_double(body, weight);
    return MR_OK;
}

static int run_weights(struct endpoint_run *r, struct mr_err *err)
{
    struct mr_buf body;
    int rc = MR_OK;

    mr_buf_init(&body, 0);
    MR_BUF_LIT(&body, "{\"weights\":{");
    for (size_t i = 1; i < r->arg_count; i++) {
        if (i > 1) {
            mr_buf_char(&body, ',');
        }
        MR_TRY(add_weight(r, r->args[i], &body, err));
    }
    MR_BUF_LIT(&body, "}}");
    rc = ask(r, "weights", &body, err);
out:
    mr_buf_fini(&body);
    return rc;
}

static int run_promote(struct endpoint_run *r, struct mr_err *err)
{
    struct mr_buf body;

    mr_buf_init(&body, 0);
    MR_BUF_LIT(&body, "{\"tag\":");
    mr_json_put_string(&body, mr_str_c(r->args[1]));
    mr_buf_char(&body, '}');
    const int rc = ask(r, "promote", &body, err);
    mr_buf_fini(&body);
    return rc;
}

static int post_nothing(struct endpoint_run *r, const char *verb, struct mr_err *err)
{
    struct mr_buf body;

    mr_buf_init(&body, 0);
    MR_BUF_LIT(&body, "{}");
    const int rc = ask(r, verb, &body, err);
    mr_buf_fini(&body);
    return rc;
}

static int run_rollback(struct endpoint_run *r, struct mr_err *err)
{
    return post_nothing(r, "rollback", err);
}

static int run_resume(struct endpoint_run *r, struct mr_err *err)
{
    return post_nothing(r, "resume", err);
}

/* ---- the command ---- */

static const struct verb {
    const char *name;
    size_t args_min, args_max;
    const char *args;
    int (*run)(struct endpoint_run *r, struct mr_err *err);
} verbs[] = {
    {"list", 0, 0, "nothing", run_show},
    {"show", 1, 1, "the name of an endpoint", run_show},
    {"set-weights", 2, 64, "the name of an endpoint, and TAG=WEIGHT once or more", run_weights},
    {"promote", 2, 2, "the name of an endpoint, and a tag", run_promote},
    {"rollback", 1, 1, "the name of an endpoint", run_rollback},
    {"resume", 1, 1, "the name of an endpoint", run_resume},
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static const struct verb *find_verb(const struct mr_options *o, char text[300])
{
    static const char all[] = "list, show, set-weights, promote, rollback and resume";

    if (o->args.len == 0) {
        snprintf(text, 300, "what? One of %s", all);
        return NULL;
    }
    for (size_t i = 0; i < VERB_COUNT; i++) {
        const struct verb *v = &verbs[i];
        const size_t count = o->args.len - 1;
        if (strcmp(v->name, o->args.at[0]) != 0) {
            continue;
        }
        if (count >= v->args_min && count <= v->args_max) {
            return v;
        }
        snprintf(text, 300, "%s takes %s", v->name, v->args);
        return NULL;
    }
    snprintf(text, 300, "'%.60s' is not one of %s", o->args.at[0], all);
    return NULL;
}

int mr_cli_endpoint(int argc, char **argv, char **env)
{
    struct endpoint_run r = {0};
    struct mr_options o;
    struct mr_err err = {0};
    char text[300];

    mr_options_init(&o, "millrace endpoint", table, sizeof table / sizeof *table, &r.opt);
    o.max_args = 65;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    const struct verb *v = code < 0 ? find_verb(&o, text) : NULL;
    if (code < 0 && !v) {
        code = mr_cli_fail(o.program, MR_EXIT_USAGE, text);
    } else if (v) {
        r.args = &o.args.at[1];
        r.arg_count = o.args.len - 1;
        r.opt.form = r.opt.json ? FORM_JSON : r.opt.form;
        if (r.opt.form == FORM_AUTO) {
            r.opt.form = mr_term_of(stdout).is_terminal ? FORM_TABLE : FORM_PLAIN;
        }
        int rc = mr_remote_open(&r.remote, r.opt.url, 8000, false, r.opt.timeout_ns, &r.opt.access,
                                &err);
        r.is_usage = rc < 0;
        rc = rc < 0 ? rc : v->run(&r, &err);
        mr_remote_close(&r.remote);
        code = r.is_usage ? MR_EXIT_USAGE : MR_EXIT_FAILED;
        code = rc < 0 ? mr_cli_fail(o.program, code, err.msg) : MR_EXIT_OK;
    }
    mr_options_fini(&o);
    return code;
}
