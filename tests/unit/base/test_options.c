/* Option tables: every kind of value, the three sources and their order, and the texts of errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/options.h"

enum color { COLOR_RED, COLOR_GREEN };

struct target {
    bool verbose;
    bool quiet;
    uint16_t port;
    int32_t offset;
    int64_t budget;
    int64_t timeout_ns;
    const char *address;
    enum color color;
    struct mr_option_list repositories;
    struct mr_option_list configs;
};

static const char *const colors[] = {"red", "green", NULL};

static int check_address(mr_str value, struct mr_err *err)
{
    return value.len ? MR_OK : MR_FAIL(err, MR_E_INVALID, "must not be empty");
}

static const struct mr_option table[] = {
    {.name = "Things", .kind = MR_OPTION_GROUP, .help = "a remark on things"},
    {.name = "verbose",
     .kind = MR_OPTION_BOOL,
     MR_OPTION_AT(struct target, verbose),
     .fallback = "false",
     .help = "say more",
     .letter = 'v'},
    {.name = "quiet",
     .kind = MR_OPTION_BOOL,
     MR_OPTION_AT(struct target, quiet),
     .fallback = "true",
     .help = "say less"},
    {.name = "http-port",
     .kind = MR_OPTION_INT,
     MR_OPTION_AT(struct target, port),
     .fallback = "8000",
     .min = 0,
     .max = 65535,
     .value = "PORT",
     .help = "where it listens, and a text that is long enough to be wrapped at the right margin"},
    {.name = "offset",
     .kind = MR_OPTION_INT,
     MR_OPTION_AT(struct target, offset),
     .min = -10,
     .max = 10,
     .value = "N",
     .help = "a number",
     .letter = 'o'},
    {.name = "budget",
     .kind = MR_OPTION_BYTES,
     MR_OPTION_AT(struct target, budget),
     .fallback = "4KiB",
     .value = "BYTES",
     .help = "room"},
    {.name = "timeout",
     .kind = MR_OPTION_DURATION,
     MR_OPTION_AT(struct target, timeout_ns),
     .fallback = "30",
     .min = 1,
     .max = 3600,
     .scale = 1000000000,
     .value = "TIME",
     .help = "patience"},
    {.name = "address",
     .kind = MR_OPTION_STRING,
     MR_OPTION_AT(struct target, address),
     .value = "ADDRESS",
     .help = "whom to ask",
     .check = check_address},
    {.name = "token",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_SECRET,
     .fallback = "hunter2",
     .value = "TEXT",
     .help = "a secret"},
    {.name = "color",
     .kind = MR_OPTION_CHOICE,
     MR_OPTION_AT(struct target, color),
     .fallback = "red",
     .choices = colors,
     .value = "COLOR",
     .help = "how it looks"},
    {.name = "repository",
     .kind = MR_OPTION_LIST,
     MR_OPTION_AT(struct target, repositories),
     .value = "DIR",
     .help = "where models are"},
    {.name = "config",
     .kind = MR_OPTION_LIST,
     MR_OPTION_AT(struct target, configs),
     .flags = MR_OPTION_CONFIG,
     .value = "FILE",
     .help = "more options"},
    {.name = "old-way",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_IGNORED,
     .help = "there is no such pool"},
    {.name = "cache-config",
     .kind = MR_OPTION_STRING,
     .flags = MR_OPTION_REFUSED,
     .help = "the response cache is"},
    {.name = "use-ssl",
     .kind = MR_OPTION_BOOL,
     .flags = MR_OPTION_REFUSED,
     .fallback = "false",
     .help = "TLS is"},
};
#define TABLE_LEN (sizeof table / sizeof *table)

struct fixture {
    struct target t;
    struct mr_options o;
    struct mr_err err;
    int rc;
};

/* Arguments are separated by blanks; a '~' inside represents a blank. */
static void parse_env(struct fixture *f, const char *line, const char *const *env, size_t max_args)
{
    static char text[1024];
    char *argv[32];
    int argc = 0;

    memset(f, 0, sizeof *f);
    snprintf(text, sizeof text, "%s", line);
    for (char *p = text, *word; (word = strsep(&p, " "));) {
        if (*word) {
            argv[argc++] = word;
        }
    }
    mr_options_init(&f->o, "prog", table, TABLE_LEN, &f->t);
    f->o.max_args = max_args;
    f->rc = mr_options_parse(&f->o, argc, argv, (char *const *)env, &f->err);
}

static void parse(struct fixture *f, const char *line)
{
    parse_env(f, line, NULL, 0);
}

static void expect_error(const char *line, int rc, const char *text)
{
    struct fixture f;

    parse(&f, line);
    if (f.rc != rc || strcmp(f.err.msg, text) != 0) {
        print_error("'%s' gave %d '%s'\n", line, f.rc, f.rc ? f.err.msg : "");
    }
    assert_int_equal(f.rc, rc);
    assert_string_equal(f.err.msg, text);
    mr_options_fini(&f.o);
}

static void defaults(void **state)
{
    (void)state;
    struct fixture f;

    parse(&f, "");
    assert_int_equal(f.rc, MR_OK);
    assert_false(f.t.verbose);
    assert_true(f.t.quiet);
    assert_int_equal(f.t.port, 8000);
    assert_int_equal(f.t.budget, 4096);
    assert_int_equal(f.t.timeout_ns, INT64_C(30000000000));
    assert_null(f.t.address);
    assert_int_equal(f.t.color, COLOR_RED);
    assert_int_equal(f.t.repositories.len, 0);
    assert_int_equal(mr_options_source(&f.o, "http-port"), MR_OPTION_FROM_DEFAULT);
    mr_options_fini(&f.o);
}

static void command_line(void **state)
{
    (void)state;
    struct fixture f;

    parse(&f, "--verbose --quiet=false --http-port 0 -o -3 --budget=2GiB --timeout=1500ms "
              "--address=a=b --color green --repository /a --repository=/b");
    assert_string_equal(f.err.msg, "");
    assert_int_equal(f.rc, MR_OK);
    assert_true(f.t.verbose);
    assert_false(f.t.quiet);
    assert_int_equal(f.t.port, 0);
    assert_int_equal(f.t.offset, -3);
    assert_int_equal(f.t.budget, INT64_C(2) << 30);
    assert_int_equal(f.t.timeout_ns, INT64_C(1500000000));
    assert_string_equal(f.t.address, "a=b");
    assert_int_equal(f.t.color, COLOR_GREEN);
    assert_int_equal(f.t.repositories.len, 2);
    assert_string_equal(f.t.repositories.at[1], "/b");
    assert_int_equal(mr_options_source(&f.o, "color"), MR_OPTION_FROM_COMMAND_LINE);
    mr_options_fini(&f.o);
}

/* Triton accepts both "--allow-http=false" and "--allow-http false". */
static void bools(void **state)
{
    (void)state;
    struct fixture f;

    parse(&f, "--verbose false --quiet 0");
    assert_int_equal(f.rc, MR_OK);
    assert_false(f.t.verbose);
    assert_false(f.t.quiet);
    mr_options_fini(&f.o);
    parse_env(&f, "-v true -", NULL, 2);
    assert_int_equal(f.rc, MR_OK);
    assert_true(f.t.verbose);
    assert_int_equal(f.o.args.len, 2);
    assert_string_equal(f.o.args.at[0], "true");
    mr_options_fini(&f.o);
}

static void plain_arguments(void **state)
{
    (void)state;
    struct fixture f;

    parse_env(&f, "one -o=4 -- --verbose", NULL, 2);
    assert_int_equal(f.rc, MR_OK);
    assert_int_equal(f.t.offset, 4);
    assert_int_equal(f.o.args.len, 2);
    assert_string_equal(f.o.args.at[1], "--verbose");
    mr_options_fini(&f.o);
    parse_env(&f, "one two three", NULL, 2);
    assert_int_equal(f.rc, MR_E_INVALID);
    assert_string_equal(f.err.msg, "too many arguments at 'three'");
    mr_options_fini(&f.o);
}

static void errors(void **state)
{
    (void)state;
    expect_error("--htp-port=1", MR_E_INVALID,
                 "--htp-port is not an option; did you mean --http-port?");
    expect_error("--zzzzzz", MR_E_INVALID, "--zzzzzz is not an option; 'prog --help' lists them");
    expect_error("--http-port=65536", MR_E_INVALID,
                 "--http-port: 65536 is out of range; allowed: 0 to 65535");
    expect_error("--http-port=", MR_E_INVALID, "--http-port: '' is not a whole number");
    expect_error("--http-port=8k", MR_E_INVALID, "--http-port: '8k' is not a whole number");
    expect_error("--http-port", MR_E_INVALID, "--http-port needs a value: --http-port=PORT");
    expect_error("--http-port --verbose", MR_E_INVALID,
                 "--http-port needs a value: --http-port=PORT");
    expect_error("--offset=-11", MR_E_INVALID, "--offset: -11 is out of range; allowed: -10 to 10");
    expect_error("--budget=4X", MR_E_INVALID,
                 "--budget: '4X' is not a size such as 4096, 64KiB or 2GiB");
    expect_error("--budget=-1", MR_E_INVALID, "--budget: -1 is out of range; allowed: 0 or more");
    expect_error("--timeout=2h", MR_E_INVALID,
                 "--timeout: 2h is out of range; allowed: 1 s to 1 h");
    expect_error("--timeout=99999999999999h", MR_E_INVALID,
                 "--timeout: '99999999999999h' is not a duration such as 500ms, 10s or 2m");
    expect_error("--verbose=maybe", MR_E_INVALID, "--verbose: 'maybe' is not true or false");
    expect_error("--color=blue", MR_E_INVALID, "--color: 'blue' is not one of red, green");
    expect_error("--address=", MR_E_INVALID, "--address: must not be empty");
    expect_error("stray", MR_E_INVALID, "only options are taken, got 'stray'");
    expect_error("-x", MR_E_INVALID, "-x is not an option; 'prog --help' lists them");
}

static void refused_and_ignored(void **state)
{
    (void)state;
    struct fixture f;

    expect_error("--cache-config=local,size=1", MR_E_UNSUPPORTED,
                 "--cache-config: the response cache is not available in this version");
    expect_error("--use-ssl", MR_E_UNSUPPORTED, "--use-ssl: TLS is not available in this version");
    parse(&f, "--use-ssl=false --old-way=7");
    assert_int_equal(f.rc, MR_OK);
    assert_int_equal(f.o.warnings.len, 1);
    assert_string_equal(f.o.warnings.at[0], "--old-way has no effect: there is no such pool");
    mr_options_fini(&f.o);
}

static void environment(void **state)
{
    (void)state;
    struct fixture f;
    const char *env[] = {"HOME=/root",
                         "MILLRACE_HTTP_PORT=9",
                         "MILLRACE_REPOSITORY=/a;/b",
                         "MILLRACE_COLOR=green",
                         "MILLRACE_HTTP_PROT=17",
                         "MILLRACE_SOMETHING_ELSE=1",
                         NULL};
    const char *bad[] = {"MILLRACE_HTTP_PORT=x", NULL};

    parse_env(&f, "--color=red", env, 0);
    assert_int_equal(f.rc, MR_OK);
    assert_int_equal(f.t.port, 9);
    assert_int_equal(f.t.color, COLOR_RED);
    assert_int_equal(f.t.repositories.len, 2);
    assert_string_equal(f.t.repositories.at[0], "/a");
    assert_int_equal(f.o.warnings.len, 1);
    assert_string_equal(
        f.o.warnings.at[0],
        "environment variable MILLRACE_HTTP_PROT sets nothing; did you mean --http-port?");
    mr_options_fini(&f.o);
    /* A list comes from one source as a whole. */
    parse_env(&f, "--repository=/c", env, 0);
    assert_int_equal(f.t.repositories.len, 1);
    assert_string_equal(f.t.repositories.at[0], "/c");
    mr_options_fini(&f.o);
    /* A value that loses is checked all the same. */
    parse_env(&f, "--http-port=1", bad, 0);
    assert_int_equal(f.rc, MR_E_INVALID);
    assert_string_equal(f.err.msg, "MILLRACE_HTTP_PORT: 'x' is not a whole number");
    mr_options_fini(&f.o);
}

static char *write_file(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_options_XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static void config_file(void **state)
{
    (void)state;
    struct fixture f;
    char line[128];
    const char *env[] = {"MILLRACE_BUDGET=1K", NULL};
    char *path = write_file("# a comment\n\nhttp-port = 7 # here too\n  address=\"# not one \"\r\n"
                            "repository = /a\nrepository = /b#c\ncolor = green\nbudget=9\n");

    snprintf(line, sizeof line, "--config=%s --http-port=1", path);
    parse_env(&f, line, env, 0);
    assert_string_equal(f.err.msg, "");
    assert_int_equal(f.t.port, 1);
    assert_string_equal(f.t.address, "# not one ");
    assert_int_equal(f.t.repositories.len, 2);
    assert_string_equal(f.t.repositories.at[1], "/b#c");
    assert_int_equal(f.t.color, COLOR_GREEN);
    assert_int_equal(f.t.budget, 1024);
    assert_int_equal(mr_options_source(&f.o, "color"), MR_OPTION_FROM_FILE);
    assert_int_equal(mr_options_source(&f.o, "budget"), MR_OPTION_FROM_ENVIRONMENT);
    mr_options_fini(&f.o);
    unlink(path);
}

static void expect_file_error(const char *text, const char *message)
{
    struct fixture f;
    char line[128];
    char *path = write_file(text);

    snprintf(line, sizeof line, "--config=%s", path);
    parse(&f, line);
    unlink(path);
    assert_true(f.rc < 0);
    assert_memory_equal(f.err.msg, path, strlen(path));
    assert_string_equal(f.err.msg + strlen(path), message);
    mr_options_fini(&f.o);
}

static void config_file_errors(void **state)
{
    (void)state;
    struct fixture f;

    expect_file_error("\nhttp-port 7\n", ":2: expected 'name = value', got 'http-port 7'");
    expect_file_error("colour = red\n", ":1: colour is not an option; did you mean color?");
    expect_file_error("http-port = 99999\n",
                      ":1: http-port: 99999 is out of range; allowed: 0 to 65535");
    expect_file_error("config = x\n", ":1: config cannot be set in a config file");
    expect_file_error("address = \"a\n", ":1: a quoted value is \"...\" without '\"' inside");
    parse(&f, "--config=/nonexistent/x");
    assert_int_equal(f.rc, MR_E_IO);
    assert_string_equal(f.err.msg,
                        "cannot read config file /nonexistent/x: No such file or directory");
    mr_options_fini(&f.o);
    parse(&f, "--config=/");
    assert_int_equal(f.rc, MR_E_IO);
    mr_options_fini(&f.o);
}

static void config_file_twice(void **state)
{
    (void)state;
    struct fixture f;
    char line[128];
    char expected[256];
    char *path = write_file("http-port = 1\nhttp-port = 2\n");

    snprintf(line, sizeof line, "--config=%s", path);
    snprintf(expected, sizeof expected, "%s:2: http-port is given twice, first at %s:1", path,
             path);
    parse(&f, line);
    assert_int_equal(f.rc, MR_E_INVALID);
    assert_string_equal(f.err.msg, expected);
    mr_options_fini(&f.o);
    unlink(path);
}

static void config_file_lines(void **state)
{
    (void)state;
    struct fixture f;
    struct mr_buf dump;
    char line[128];
    char *path = write_file(
        "address = \"\"\"\nselect \"a\" # no comment\r\n  from b\n\n \"\"\" \ncolor = green\n");

    snprintf(line, sizeof line, "--config=%s", path);
    parse(&f, line);
    assert_string_equal(f.err.msg, "");
    assert_string_equal(f.t.address, "select \"a\" # no comment\n  from b\n");
    assert_int_equal(f.t.color, COLOR_GREEN);
    mr_buf_init(&dump, 0);
    mr_options_dump(&f.o, &dump);
    assert_non_null(strstr(mr_buf_cstr(&dump),
                           "address = \"\"\"\nselect \"a\" # no comment\n  from b\n\n\"\"\"\n"));
    mr_buf_fini(&dump);
    mr_options_fini(&f.o);
    unlink(path);
    expect_file_error("\naddress = \"\"\"\nx\n",
                      ":2: no line of \"\"\" alone ends the value that begins here");
}

/* A table whose options are for the command line, and that of a program beside it. */
static const char *const shades[] = {"red", "dark", NULL};

static const struct mr_option job_table[] = {
    {.name = "job",
     .kind = MR_OPTION_LIST,
     .flags = MR_OPTION_CONFIG | MR_OPTION_CLI_ONLY,
     MR_OPTION_AT(struct target, configs)},
    {.name = "http-port",
     .kind = MR_OPTION_INT,
     .flags = MR_OPTION_CLI_ONLY,
     MR_OPTION_AT(struct target, port)},
    {.name = "color",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     MR_OPTION_AT(struct target, color),
     .choices = colors},
};

static const struct mr_option beside_table[] = {
    {.name = "color", .kind = MR_OPTION_CHOICE, .flags = MR_OPTION_CLI_ONLY, .choices = shades},
    {.name = "gloss", .kind = MR_OPTION_INT, .flags = MR_OPTION_CLI_ONLY, .min = 0, .max = 9},
};

static void expect_job(const char *text, const char *message, bool takes_all)
{
    struct target t = {.color = COLOR_RED};
    struct mr_options o;
    struct mr_err err = {0};
    char *path = write_file(text);
    char word[] = "--job";
    char *argv[] = {word, path};

    mr_options_init(&o, "prog", job_table, 3, &t);
    o.files_take_all = takes_all;
    o.sibling = beside_table;
    o.sibling_count = 2;
    int rc = mr_options_parse(&o, 2, argv, NULL, &err);
    assert_int_equal(rc, message ? MR_E_INVALID : MR_OK);
    assert_string_equal(message ? err.msg + strlen(path) : "", message ? message : "");
    assert_true(message || (t.port == 7 && t.color == COLOR_RED));
    mr_options_fini(&o);
    unlink(path);
}

static void config_file_of_two(void **state)
{
    (void)state;

    expect_job("http-port = 7\ncolor = dark\ngloss = 3\n", NULL, true);
    expect_job("http-port = 7\n", ":1: http-port cannot be set in a config file", false);
    expect_job("color = darker\n", ":1: color: 'darker' is not one of red, green", true);
    expect_job("gloss = 10\n", ":1: gloss: 10 is out of range; allowed: 0 to 9", true);
    expect_job("glos = 1\n", ":1: glos is not an option; did you mean gloss?", true);
    expect_job("job = x\n", ":1: job cannot be set in a config file", true);
}

static void help_and_dump(void **state)
{
    (void)state;
    struct fixture f;
    struct mr_buf out;

    mr_buf_init(&out, 0);
    parse(&f, "--help --nonsense");
    assert_int_equal(f.rc, MR_OK);
    assert_true(f.o.wants_help);
    mr_options_help(&f.o, &out);
    const char *text = mr_buf_cstr(&out);
    assert_non_null(strstr(text, "\nThings\n  a remark on things\n"));
    assert_non_null(strstr(text, "  -v, --verbose                   say more\n"));
    assert_non_null(strstr(text,
                           "      --http-port PORT            where it listens, and a text that "
                           "is long enough to be wrapped\n"));
    assert_non_null(strstr(text, "at the right margin (default 8000; 0 to 65535)\n"));
    assert_non_null(strstr(text, "(red, green; default red)"));
    assert_non_null(strstr(text, "this version\n      --cache-config, --use-ssl\n"));
    mr_options_fini(&f.o);

    mr_buf_reset(&out);
    parse(&f, "--repository=/a --repository=/b");
    mr_options_dump(&f.o, &out);
    text = mr_buf_cstr(&out);
    assert_non_null(strstr(text, "http-port = 8000                                  # default\n"));
    assert_non_null(
        strstr(text, "repository = /a                                   # command line\n"));
    assert_non_null(strstr(text, "repository = /b "));
    assert_non_null(strstr(text, "token = ********"));
    assert_null(strstr(text, "hunter2"));
    assert_non_null(strstr(text, "# address is not set"));
    mr_options_fini(&f.o);
    mr_buf_fini(&out);
}

static void nearest(void **state)
{
    (void)state;
    const char *words[] = {"serve", "infer", "model", "doctor", NULL};

    assert_string_equal(mr_nearest_word(mr_str_c("sreve"), words), "serve");
    assert_string_equal(mr_nearest_word(mr_str_c("doc"), words), "doctor");
    assert_string_equal(mr_nearest_word(mr_str_c("models"), words), "model");
    assert_null(mr_nearest_word(mr_str_c("xyzzy"), words));
    assert_null(mr_nearest_word(mr_str_c(""), words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(command_line),
        cmocka_unit_test(bools),
        cmocka_unit_test(plain_arguments),
        cmocka_unit_test(errors),
        cmocka_unit_test(refused_and_ignored),
        cmocka_unit_test(environment),
        cmocka_unit_test(config_file),
        cmocka_unit_test(config_file_errors),
        cmocka_unit_test(config_file_twice),
        cmocka_unit_test(config_file_lines),
        cmocka_unit_test(config_file_of_two),
        cmocka_unit_test(help_and_dump),
        cmocka_unit_test(nearest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
