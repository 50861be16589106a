/* `millrace doctor`: checks this machine for serving models. Each finding is one line and, if there is a problem, one
 * sentence with a remedy. Nothing is changed. */
#include "doctor.h"

#include <stdarg.h>
#include <stdio.h>

#include "cli/common/cli.h"
#include "cli/common/term.h"
#include "codec/json.h"

struct doctor_options {
    bool json;
    struct mr_option_list backend_dirs;
    uint16_t http_port;
    uint16_t grpc_port;
    uint16_t metrics_port;
};

static const char usage[] =
    "usage: millrace doctor [options]\n\n"
    "Says what this machine has and lacks for serving models: processor, memory, limits, kernel,\n"
    "the cache folder, backends with the libraries that they need, and whether the default ports "
    "are "
    "free.\n";

static const char notes[] = "Exit status: 0 models can be served (warnings do not count), 1 they "
                            "cannot, 2 the command line is\n"
                            "wrong.\n";

#define AT(member) MR_OPTION_AT(struct doctor_options, member)

static const struct mr_option table[] = {
    {.name = "Options", .kind = MR_OPTION_GROUP},
    {.name = "json",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_CLI_ONLY,
     AT(json),
     .help = "an array of findings instead of lines"},
    {.name = "backend-directory",
     .kind = MR_OPTION_LIST,
     AT(backend_dirs),
     .value = "DIR",
     .help = "where backends are searched, before the default places"},
    {.name = "http-port",
     .kind = MR_OPTION_INT,
     AT(http_port),
     .fallback = "8000",
     .max = 65535,
     .value = "PORT",
     .help = "to check; 0 for none"},
    {.name = "grpc-port",
     .kind = MR_OPTION_INT,
     AT(grpc_port),
     .fallback = "8001",
     .max = 65535,
     .value = "PORT",
     .help = "to check; 0 for none"},
    {.name = "metrics-port",
     .kind = MR_OPTION_INT,
     AT(metrics_port),
     .fallback = "8002",
     .max = 65535,
     .value = "PORT",
     .help = "to check; 0 for none"},
};

static const char *const level_names[] = {"info", "ok", "warning", "bad"};

void doctor_say(struct doctor *d, enum finding_level level, const char *name, const char *advice,
                const char *fmt, ...)
{
    struct finding f = {.level = level, .name = name};
    char text[1024];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    f.text = mr_strndup(text, strlen(text));
    f.advice = advice ? mr_strndup(advice, strlen(advice)) : NULL;
    MR_VEC_PUSH(&d->list, f);
}

static void print_json(const struct doctor *d)
{
    struct mr_buf out;

    mr_buf_init(&out, 0);
    mr_buf_char(&out, '[');
    for (size_t i = 0; i < d->list.len; i++) {
        const struct finding *f = &d->list.at[i];
        mr_buf_printf(&out, "%s\n  {\"name\":\"%s\",\"level\":\"%s\",\"text\":", i ? "," : "",
                      f->name, level_names[f->level]);
        mr_json_put_string(&out, mr_str_c(f->text));
        if (f->advice) {
            MR_BUF_LIT(&out, ",\"advice\":");
            mr_json_put_string(&out, mr_str_c(f->advice));
        }
        mr_buf_char(&out, '}');
    }
    MR_BUF_LIT(&out, "\n]\n");
    fwrite(out.ptr, 1, out.len, stdout);
    mr_buf_fini(&out);
}

static void print_lines(const struct doctor *d)
{
    static const char *const marks[] = {" ", "+", "!", "x"};
    static const enum mr_style styles[] = {MR_STYLE_PLAIN, MR_STYLE_GOOD, MR_STYLE_WARN,
                                           MR_STYLE_BAD};
    struct mr_term term = mr_term_of(stdout);
    struct mr_buf clean;

    mr_buf_init(&clean, 0);
    for (size_t i = 0; i < d->list.len; i++) {
        const struct finding *f = &d->list.at[i];
        mr_buf_reset(&clean);
        mr_text_clean(&clean, mr_str_c(f->text));
        printf("%s%s%s %-12s %s\n", mr_term_on(term, styles[f->level]), marks[f->level],
               mr_term_off(term), f->name, mr_buf_cstr(&clean));
        if (f->advice) {
            printf("  %-12s %s%s%s\n", "", mr_term_on(term, MR_STYLE_DIM), f->advice,
                   mr_term_off(term));
        }
    }
    mr_buf_fini(&clean);
}

static size_t count(const struct doctor *d, enum finding_level level)
{
    size_t n = 0;

    for (size_t i = 0; i < d->list.len; i++) {
        n += d->list.at[i].level == level;
    }
    return n;
}

static void summary(const struct doctor *d)
{
    struct mr_term term = mr_term_of(stdout);
    size_t bad = count(d, FINDING_BAD);
    size_t warnings = count(d, FINDING_WARN);
    enum mr_style style = bad ? MR_STYLE_BAD : warnings ? MR_STYLE_WARN : MR_STYLE_GOOD;

    printf("\n%s", mr_term_on(term, style));
    if (bad) {
        printf("Models cannot be served yet: see the lines marked x.");
    } else if (warnings) {
        printf("Models can be served; %zu remark%s above.", warnings, warnings == 1 ? "" : "s");
    } else {
        printf("Models can be served.");
    }
    printf("%s\n", mr_term_off(term));
}

static int run(const struct doctor_options *opt)
{
    struct doctor d = {0};
    int ports[] = {opt->http_port, opt->grpc_port, opt->metrics_port};

    doctor_say(&d, FINDING_INFO, "millrace", NULL, "%s", mr_cli_version());
    doctor_machine(&d);
    doctor_cache(&d);
    doctor_backends(&d, &opt->backend_dirs);
    doctor_ports(&d, ports, sizeof ports / sizeof *ports);
    if (opt->json) {
        print_json(&d);
    } else {
        print_lines(&d);
        summary(&d);
    }
    int code = count(&d, FINDING_BAD) ? MR_EXIT_FAILED : MR_EXIT_OK;
    for (size_t i = 0; i < d.list.len; i++) {
        mr_free(d.list.at[i].text);
        mr_free(d.list.at[i].advice);
    }
    MR_VEC_FINI(&d.list);
    return code;
}

int mr_cli_doctor(int argc, char **argv, char **env)
{
    struct doctor_options opt = {0};
    struct mr_options o;

    mr_options_init(&o, "millrace doctor", table, sizeof table / sizeof *table, &opt);
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        code = run(&opt);
    }
    mr_options_fini(&o);
    return code;
}
