/* The commands against a server in this process: what is typed, what is printed, how it ends. Models are
 * those of the identity backend, so an answer is what was sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/cli.h"
#include "serve/server.h"

static char work[] = "/tmp/millrace-test-XXXXXX";
static char repository[64];
static char backends[4096];
static const char *const backend_dirs[] = {backends};
static const char *const repositories[] = {repository};
static struct mr_server *server;
static char http_url[64];
static char grpc_url[64];

/* ---- running a command ---- */

static char out[65536];
static char err_out[65536];

static void slurp(int fd, char *buf, size_t size)
{
    ssize_t n = pread(fd, buf, size - 1, 0);

    assert_true(n >= 0);
    buf[n] = '\0';
    close(fd);
}

static int scratch(void)
{
    char path[] = "/tmp/millrace-test-out-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

/* Words are separated by single blanks; '_' in a word represents a blank. %H and %G: the two addresses,
 * %W: the scratch folder. input: standard input, or NULL. Returns the exit code. */
static int run(const char *line, const char *input)
{
    static char text[8192];
    char *argv[64] = {text};
    int argc = 0;
    size_t n = 0;
    int saved[3];
    int fds[3] = {scratch(), scratch(), scratch()};

    for (const char *p = line; *p && n < sizeof text - 100; p++) {
        const char *word = p[0] != '%'   ? NULL
                           : p[1] == 'H' ? http_url
                           : p[1] == 'G' ? grpc_url
                           : p[1] == 'W' ? work
                                         : NULL;
        if (word) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s", word);
            p++;
        } else {
            text[n++] = *p;
        }
    }
    text[n] = '\0';
    for (char *rest = text, *w; (w = strsep(&rest, " ")) && argc < 63;) {
        for (char *c = w; *c; c++) {
            *c = *c == '_' ? ' ' : *c;
        }
        argv[argc++] = w;
    }
    if (input) {
        assert_int_equal(write(fds[0], input, strlen(input)), strlen(input));
        lseek(fds[0], 0, SEEK_SET);
    }
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        saved[i] = dup(i);
        dup2(fds[i], i);
    }
    clearerr(stdin);
    int code = mr_cli_main(argc, argv, NULL);
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        dup2(saved[i], i);
        close(saved[i]);
    }
    close(fds[0]);
    slurp(fds[1], out, sizeof out);
    slurp(fds[2], err_out, sizeof err_out);
    return code;
}

static void expect(const char *line, const char *input, int code, const char *text)
{
    int got = run(line, input);

    if (got != code || strcmp(code ? err_out : out, text) != 0) {
        print_error("$ %s\n-> %d\n%s%s", line, got, out, err_out);
    }
    assert_int_equal(got, code);
    assert_string_equal(code ? err_out : out, text);
}

/* ---- the server ---- */

static void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void put_model(const char *name, const char *config)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", repository, name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/1", repository, name);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", repository, name);
    put_file(path, config);
    snprintf(path, sizeof path, "%s/%s/labels.txt", repository, name);
    put_file(path, "zero\none\ntwo\n");
}

static const char *const types[] = {"BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
                                    "INT32", "INT64", "FP16",   "FP32",   "FP64",   "BF16"};

static void put_models(void)
{
    char config[512];
    char name[32];

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(name, sizeof name, "t%s", types[i]);
        snprintf(
            config, sizeof config,
            "backend: 'identity' max_batch_size: 8 input { name: 'X' data_type: TYPE_%s dims: 2 } "
            "output { name: 'Y' data_type: TYPE_%s dims: 2 }",
            types[i], types[i]);
        put_model(name, config);
    }
    put_model("text", "backend: 'identity' max_batch_size: 8 "
                      "input { name: 'X' data_type: TYPE_STRING dims: 1 } "
                      "output { name: 'Y' data_type: TYPE_STRING dims: 1 }");
    put_model("pair",
              "backend: 'identity' max_batch_size: 8 "
              "input [{ name: 'A' data_type: TYPE_FP32 dims: 3 }, "
              "{ name: 'B' data_type: TYPE_STRING dims: 1 }] "
              "output [{ name: 'A' data_type: TYPE_FP32 dims: 3 label_filename: 'labels.txt' }, "
              "{ name: 'B' data_type: TYPE_STRING dims: 1 }]");
    put_model("matrix",
              "backend: 'identity' input { name: 'X' data_type: TYPE_FP32 dims: [-1, 2] } "
              "output { name: 'Y' data_type: TYPE_FP32 dims: [-1, 2] }");
}

static int set_up(void **state)
{
    (void)state;
    struct mr_server_options o;
    struct mr_err err = {0};
    static const char *const all[] = {"*"};

    signal(SIGPIPE, SIG_IGN);
    assert_non_null(getenv("MR_BUILD_DIR"));
    snprintf(backends, sizeof backends, "%s/lib/millrace", getenv("MR_BUILD_DIR"));
    assert_non_null(mkdtemp(work));
    snprintf(repository, sizeof repository, "%s/models", work);
    mkdir(repository, 0700);
    put_models();
    mr_log_set_enabled(MR_LOG_INFO, false);
    mr_server_options_init(&o);
    o.models.repositories = repositories;
    o.models.repository_count = 1;
    o.models.backend_dirs = backend_dirs;
    o.models.backend_dir_count = 1;
    o.models.control = MR_MODEL_CONTROL_EXPLICIT;
    o.models.load_models = all;
    o.models.load_model_count = 1;
    o.http_port = o.grpc_port = 0;
    o.allow_metrics = false;
    o.loop_threads = 1;
    if (mr_server_start(&server, &o, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    snprintf(http_url, sizeof http_url, "127.0.0.1:%u", mr_server_http_port(server));
    snprintf(grpc_url, sizeof grpc_url, "127.0.0.1:%u", mr_server_grpc_port(server));
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static int tear_down(void **state)
{
    (void)state;
    mr_server_stop(server);
    mr_server_free(&server);
    return nftw(work, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- infer ---- */

static const char *const to_protocols[] = {"-u %H --protocol rest", "-u %H --protocol binary",
                                           "-u %G --protocol grpc"};

static void every_type_every_protocol(void **state)
{
    (void)state;
    char line[256];
    char answer[256];

    for (size_t p = 0; p < 3; p++) {
        for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
            bool is_bool = i == 0;
            const char *value = is_bool ? "[true,false]" : "[1,0]";
            snprintf(line, sizeof line, "millrace infer -m t%s %s -i X=%s", types[i],
                     to_protocols[p], value);
            snprintf(answer, sizeof answer, "Y\t%s\t[1,2]\t%s\n", types[i], value);
            expect(line, NULL, 0, answer);
        }
    }
}

static void strings(void **state)
{
    (void)state;
    char line[256];

    for (size_t p = 0; p < 3; p++) {
        snprintf(line, sizeof line, "millrace infer -m text %s -i X=two_words", to_protocols[p]);
        expect(line, NULL, 0, "Y\tBYTES\t[1,1]\t[\"two words\"]\n");
        snprintf(line, sizeof line, "millrace infer -m text %s -i X=[[\"a\"],[\"b\\n\"]]",
                 to_protocols[p]);
        expect(line, NULL, 0, "Y\tBYTES\t[2,1]\t[\"a\",\"b\\n\"]\n");
    }
}

static void standard_input(void **state)
{
    (void)state;
    char line[256];

    for (size_t p = 0; p < 3; p++) {
        snprintf(line, sizeof line, "millrace infer -m tINT32 %s -", to_protocols[p]);
        expect(line, "[1,2]\n\n[3,4]\n", 0, "Y\tINT32\t[2,2]\t[1,2,3,4]\n");
        expect(
            line,
            "{\"inputs\":[{\"name\":\"X\",\"datatype\":\"INT32\",\"shape\":[1,2],\"data\":[7,8]}]}",
            0, "Y\tINT32\t[1,2]\t[7,8]\n");
        snprintf(line, sizeof line, "millrace infer -m pair %s -o B -", to_protocols[p]);
        expect(line, "{\"A\":[1,2,3],\"B\":\"x\"}\n{\"B\":\"y\",\"A\":[4,5,6]}\n", 0,
               "B\tBYTES\t[2,1]\t[\"x\",\"y\"]\n");
    }
    expect("millrace infer -m tINT32 -u %H -", "[1,2]\n[3\n", 2,
           "millrace infer: standard input line 2: expected ',' or ']', found the end of the "
           "text at offset 2\n");
    expect("millrace infer -m tINT32 -u %H -i X=@-", "[5,6]", 0, "Y\tINT32\t[1,2]\t[5,6]\n");
    assert_int_equal(run("millrace infer -m pair -u %H -", "[1]\n"), 2);
    assert_non_null(strstr(err_out, "the model has 2 inputs"));
}

static void files(void **state)
{
    (void)state;
    char path[128];

    expect("millrace infer -m tFP32 -u %H -i X=[0.1,2] --to %W/y.npy", NULL, 0, "");
    expect("millrace infer -m tFP32 -u %G --protocol grpc -i @%W/y.npy", NULL, 0,
           "Y\tFP32\t[1,2]\t[0.1,2]\n");
    expect("millrace infer -m tFP64 -u %H --protocol binary -i X=@%W/y.npy --json", NULL, 0,
           "{\"model_name\":\"tFP64\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"Y\","
           "\"datatype\":\"FP64\",\"shape\":[1,2],\"data\":[0.10000000149011612,2.0]}]}\n");
    expect("millrace infer -m pair -u %H -i A=[1,2,3] -i B=x --output npy --to %W", NULL, 0, "");
    expect("millrace infer -m text -u %H -i X=@%W/B.npy", NULL, 0, "Y\tBYTES\t[1,1]\t[\"x\"]\n");
    snprintf(path, sizeof path, "%s/x.json", work);
    put_file(path, "[[1,2],[3,4]]");
    expect("millrace infer -m tINT8 -u %H -i X=@%W/x.json", NULL, 0, "Y\tINT8\t[2,2]\t[1,2,3,4]\n");
    assert_int_equal(run("millrace infer -m text -u %H -i X=@%W/x.bin", NULL), 2);
    assert_non_null(strstr(err_out, "x.bin: No such file or directory"));
}

static void tables(void **state)
{
    (void)state;
    assert_int_equal(
        run("millrace infer -m matrix -u %H --output table -i X=[[1,2.5],[3,4]]", NULL), 0);
    assert_non_null(strstr(out, "Y  FP32 [2,2]\n     0    1\n  0  1  2.5\n  1  3    4\n"));
    assert_int_equal(run("millrace infer -m pair -u %G --protocol grpc --output table -k 2 -o A "
                         "-i A=[0.1,0.7,0.2] -i B=x",
                         NULL),
                     0);
    assert_non_null(strstr(out, "CLASS  LABEL"));
    assert_non_null(strstr(out, "1  one"));
    assert_non_null(strstr(out, "2  two"));
    expect("millrace infer -m matrix -u %H --output table -i X=[1,2,3]", NULL, 2,
           "millrace infer: input X: shape [3] does not fit the model's [-1,2]\n");
}

static void request_fields(void **state)
{
    (void)state;
    char line[256];

    for (size_t p = 0; p < 3; p++) {
        snprintf(line, sizeof line,
                 "millrace infer -m tINT32 %s -i X=[1,2] --id=abc --json -p custom=1 -p priority=0",
                 to_protocols[p]);
        expect(line, NULL, 0,
               "{\"id\":\"abc\",\"model_name\":\"tINT32\",\"model_version\":\"1\",\"outputs\":[{"
               "\"name\":"
               "\"Y\",\"datatype\":\"INT32\",\"shape\":[1,2],\"data\":[1,2]}]}\n");
        snprintf(line, sizeof line, "millrace infer -m tINT32 %s -i X=[1,2] --repeat 3",
                 to_protocols[p]);
        assert_int_equal(run(line, NULL), 0);
        assert_non_null(strstr(err_out, "3 requests one after the other"));
    }
}

static void infer_errors(void **state)
{
    (void)state;
    expect("millrace infer -m nope -u %H -i X=1", NULL, 1,
           "millrace infer: Request for unknown model: 'nope' is not found\n");
    expect("millrace infer -m tINT32 -u %H -i Z=1", NULL, 2,
           "millrace infer: model tINT32 has no input 'Z'; it has: X\n");
    expect("millrace infer -m tINT32 -u %H -i X=[1,2,3]", NULL, 2,
           "millrace infer: input X: shape [3] does not fit the model's [-1,2]\n");
    expect("millrace infer -m tINT8 -u %H -i X=[1,200]", NULL, 2,
           "millrace infer: input X: 200 does not fit INT8 (-128 to 127) at offset 6\n");
    expect("millrace infer -m tINT8 -u %H -i X=[1,2] -i X=[1,2]", NULL, 2,
           "millrace infer: input X: given twice\n");
    expect("millrace infer -m tINT8 -u 127.0.0.1:1 -i X=1", NULL, 1,
           "millrace infer: cannot connect to 127.0.0.1:1: Connection refused\n");
    expect("millrace infer -m tINT8 -u https://x --tls-ca /nothing -i X=1", NULL, 2,
           "millrace infer: /nothing: No such file or directory\n");
    expect("millrace model list -u https://x --tls-key /nothing", NULL, 2,
           "millrace model: /nothing: a key needs the certificate that it belongs to\n");
    for (size_t i = 0; i < 4; i++) {
        static const char *const lines[] = {"infer -m m -i X=1", "model list", "mesh list",
                                            "endpoint list"};
        char line[100], said[200];
        snprintf(line, sizeof line, "millrace %s -u x:99999", lines[i]);
        snprintf(said, sizeof said,
                 "millrace %.*s: 'x:99999' is not an address: expected host:port, the port 1 to "
                 "65535, or unix:/path\n",
                 (int)strcspn(lines[i], " "), lines[i]);
        expect(line, NULL, 2, said);
    }
    assert_int_equal(run("millrace infer -m tINT8 -u %H -o nope -i X=[1,2]", NULL), 1);
    assert_non_null(strstr(err_out, "unexpected inference output 'nope' for model 'tINT8'"));
    assert_int_equal(run("millrace infer -m tINT8 -u %G --protocol grpc -o nope -i X=[1,2]", NULL),
                     1);
    assert_non_null(strstr(err_out, "unexpected inference output 'nope' for model 'tINT8'"));
}

/* ---- model ---- */

static void model_commands(void **state)
{
    (void)state;
    assert_int_equal(run("millrace model list -u %H", NULL), 0);
    assert_non_null(strstr(out, "text\t1\tREADY\t\n"));
    assert_int_equal(run("millrace model unload text -u %H", NULL), 0);
    assert_memory_equal(out, "text unloaded, ", 15);
    assert_int_equal(run("millrace model list -u %H", NULL), 0);
    /* it may still be letting go of its memory */
    assert_true(strstr(out, "text\t1\tUNAVAILABLE\tunloaded\n") ||
                strstr(out, "text\t1\tUNLOADING\t"));
    assert_int_equal(run("millrace infer -m text -u %H -i X=a", NULL), 1);
    assert_int_equal(run("millrace model load text -u %H --json", NULL), 0);
    assert_memory_equal(out, "{\"model\":\"text\",\"done\":\"load\",\"ns\":", 35);
    assert_int_equal(run("millrace infer -m text -u %H -i X=a", NULL), 0);
    assert_int_equal(run("millrace model versions text -u %H", NULL), 0);
    assert_non_null(strstr(out, "\n1\tREADY\t20"));
    assert_int_equal(run("millrace model label text stable 1 -u %H", NULL), 0);
    assert_non_null(strstr(out, "text version 1 is labelled 'stable', "));
    assert_int_equal(run("millrace infer -m text --model-version stable -u %H -i X=a", NULL), 0);
    assert_int_equal(run("millrace model versions text -u %H", NULL), 0);
    assert_non_null(strstr(out, "\tstable\t"));
    assert_int_equal(run("millrace model label text stable -u %H", NULL), 0);
    assert_non_null(strstr(out, "text has no label 'stable' any more, "));
    expect("millrace model rollback text -u %H", NULL, 1,
           "millrace model: model 'text' has no version to go back to\n");
    assert_int_equal(run("millrace model rollback text 1 -u %H --json", NULL), 0);
    assert_memory_equal(out, "{\"model\":\"text\",\"done\":\"rollback\"", 33);
    assert_int_equal(run("millrace model versions nope -u %H", NULL), 1);
    assert_int_equal(run("millrace model stats text -u %H", NULL), 0);
    assert_memory_equal(out, "text\t1\t", 7);
    assert_int_equal(run("millrace model list -u %H --json", NULL), 0);
    assert_int_equal(out[0], '[');
    expect("millrace model load nope -u %H", NULL, 1,
           "millrace model: failed to load 'nope', failed to poll from model repository\n");
}

static void model_config(void **state)
{
    (void)state;
    char path[128];

    assert_int_equal(run("millrace model config pair -u %H", NULL), 0);
    assert_memory_equal(out, "name: \"pair\"\n", 13);
    assert_non_null(strstr(out, "max_batch_size: 8\n"));
    /* What was printed can be edited and given back. */
    snprintf(path, sizeof path, "%s/config.pbtxt", work);
    char *eight = strstr(out, "max_batch_size: 8");
    eight[16] = '4';
    put_file(path, out);
    assert_int_equal(run("millrace model load pair -u %H --config %W/config.pbtxt", NULL), 0);
    assert_int_equal(run("millrace model config pair -u %H --json", NULL), 0);
    assert_non_null(strstr(out, "\"max_batch_size\":4"));
    put_file(path, "max_batch_size: x");
    assert_int_equal(run("millrace model load pair -u %H --config %W/config.pbtxt", NULL), 1);
    assert_non_null(strstr(err_out, "config.pbtxt: line 1 column 17"));
}

/* ---- the front ---- */

static void usage(void **state)
{
    (void)state;
    expect("millrace --version", NULL, 0, "millrace " MR_VERSION "\n");
    expect("millrace inferr", NULL, 2,
           "millrace: 'inferr' is not a command; did you mean 'infer'?\n");
    expect("millrace infer -i X=1", NULL, 2, "millrace infer: no model: give -m MODEL\n");
    expect(
        "millrace infer -m x", NULL, 2,
        "millrace infer: no inputs: give -i NAME=VALUE, or '-' to read them from standard input\n");
    expect("millrace model lost", NULL, 2,
           "millrace model: 'lost' is not one of list, load, unload, config, stats, versions, "
           "workers, label, rollback, record-warmup, pack and check; did you mean 'list'?\n");
    expect("millrace model load", NULL, 2,
           "millrace model: load takes one model: millrace model load NAME\n");
    for (const char *const *c = (const char *const[]){"serve", "infer", "model", "doctor", NULL};
         *c; c++) {
        char line[64];
        snprintf(line, sizeof line, "millrace %s --help", *c);
        assert_int_equal(run(line, NULL), 0);
        assert_non_null(strstr(out, "usage: millrace "));
        assert_non_null(strstr(out, "Exit status: "));
        for (char *l = out; l; l = strchr(l + 1, '\n')) {
            char *end = strchr(l + 1, '\n');
            assert_true(!end || end - l <= 110);
        }
    }
}

static void doctor(void **state)
{
    (void)state;
    char line[4200];

    snprintf(line, sizeof line, "millrace doctor --backend-directory=%s --json", backends);
    int code = run(line, NULL);
    assert_true(code == 0 || code == 1); /* 1 without onnxruntime */
    assert_int_equal(out[0], '[');
    assert_non_null(strstr(out, "identity, "));
    assert_non_null(strstr(out, "\"name\":\"memory\""));
    snprintf(line, sizeof line, "millrace doctor --http-port=%u", mr_server_http_port(server));
    run(line, NULL);
    assert_non_null(strstr(out, "cannot be listened on: Address already in use"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_every_protocol),
        cmocka_unit_test(strings),
        cmocka_unit_test(standard_input),
        cmocka_unit_test(files),
        cmocka_unit_test(tables),
        cmocka_unit_test(request_fields),
        cmocka_unit_test(infer_errors),
        cmocka_unit_test(model_commands),
        cmocka_unit_test(model_config),
        cmocka_unit_test(usage),
        cmocka_unit_test(doctor),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
