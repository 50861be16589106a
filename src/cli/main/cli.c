/* The program's entry: sub-commands, help, version. */
#include "cli/common/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv, char **env);
};

static const struct command commands[] = {
    {"serve", "serve models over HTTP and gRPC", mr_cli_serve},
    {"infer", "send one request and show the answer", mr_cli_infer},
    {"perf", "put load on a server and measure its latency", mr_cli_perf},
    {"model", "list, load, unload and inspect the models of a running server", mr_cli_model},
    {"endpoint", "show and change how requests are shared among variants", mr_cli_endpoint},
    {"mesh", "show and change a mesh of servers: its models, vmodels and servers", mr_cli_mesh},
    {"batch", "send a table through a model on many hosts", mr_cli_batch},
    {"map", "send rows from standard input through a model on many hosts", mr_cli_map},
    {"mlserver", "run command lines of 'mlserver start' and 'mlserver infer'", mr_cli_mlserver},
    {"workflow", "convert and draw graphs of models", mr_cli_workflow},
    {"doctor", "say what this machine has and lacks", mr_cli_doctor},
};
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static void print_overview(FILE *out)
{
    fprintf(out,
            "millrace %s: an inference server for the Open Inference Protocol\n\n"
            "usage: millrace COMMAND [options]\n\n",
            mr_cli_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].summary);
    }
    fprintf(out, "\n'millrace COMMAND --help' describes a command. 'millrace --version' prints the "
                 "version.\n"
                 "Exit status: 0 done, 1 it failed, 2 the command line is wrong, 3 'batch' stopped "
                 "a job.\n");
}

static const char *nearest_command(const char *word)
{
    const char *names[COMMAND_COUNT + 1] = {0};

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i].name;
    }
    return mr_nearest_word(mr_str_c(word), names);
}

static int unknown_command(const char *word)
{
    const char *near = nearest_command(word);
    char text[256];

    if (near) {
        snprintf(text, sizeof text, "'%.60s' is not a command; did you mean '%s'?", word, near);
    } else {
        snprintf(text, sizeof text, "'%.60s' is not a command; 'millrace --help' lists them", word);
    }
    return mr_cli_fail("millrace", MR_EXIT_USAGE, text);
}

static bool is_word(const char *arg, const char *a, const char *b, const char *c)
{
    return strcmp(arg, a) == 0 || strcmp(arg, b) == 0 || strcmp(arg, c) == 0;
}

/* Output that could not be written (a full disk, a closed pipe) is a failure. */
static int finish_output(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return code == MR_EXIT_OK ? MR_EXIT_FAILED : code;
    }
    return code;
}

/* True if the program was started under the name of MLServer's, which it then replaces. */
static bool is_called_mlserver(const char *path)
{
    const char *slash = strrchr(path, '/');

    return strcmp(slash ? slash + 1 : path, "mlserver") == 0;
}

/* Opens standard descriptors that the parent has closed, as otherwise the next socket or file would get their
 * numbers. Reading the input and writing the output still fail; messages are dropped. */
static void standard_open(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            _exit(MR_EXIT_FAILED);
        }
    }
}

int mr_cli_main(int argc, char **argv, char **env)
{
    standard_open();
    if (argc > 0 && is_called_mlserver(argv[0])) {
        return finish_output(mr_cli_mlserver(argc - 1, argv + 1, env));
    }
    if (argc < 2) {
        print_overview(stderr);
        return MR_EXIT_USAGE;
    }
    if (is_word(argv[1], "help", "--help", "-h")) {
        if (argc == 2) {
            print_overview(stdout);
            return finish_output(MR_EXIT_OK);
        }
        /* "millrace help serve" */
        static char help[] = "--help";
        char *help_argv[] = {help, NULL};
        for (size_t i = 0; i < COMMAND_COUNT; i++) {
            if (strcmp(argv[2], commands[i].name) == 0) {
                return finish_output(commands[i].run(1, help_argv, env));
            }
        }
        return unknown_command(argv[2]);
    }
    if (is_word(argv[1], "version", "--version", "-V")) {
        printf("millrace %s\n", mr_cli_version());
        return finish_output(MR_EXIT_OK);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return finish_output(commands[i].run(argc - 2, argv + 2, env));
        }
    }
    return unknown_command(argv[1]);
}
