/* What the files of the program share: sub-commands, exit codes, how errors are said. */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H

#include <stdio.h>

#include "base/err.h"
#include "base/options.h"

/* Exit codes, the same for every sub-command. */
enum mr_cli_exit {
    MR_EXIT_OK = 0,
    MR_EXIT_FAILED = 1, /* the request, the model or the machine said no */
    MR_EXIT_USAGE = 2   /* the command line is wrong */
};

/** The whole program; argv[0] is its name. Returns the exit code. */
int mr_cli_main(int argc, char **argv, char **env);

/* Sub-commands: argv[0] is the first argument behind the name. */
int mr_cli_serve(int argc, char **argv, char **env);
int mr_cli_infer(int argc, char **argv, char **env);
int mr_cli_perf(int argc, char **argv, char **env);
int mr_cli_model(int argc, char **argv, char **env);
int mr_cli_batch(int argc, char **argv, char **env);
int mr_cli_map(int argc, char **argv, char **env);
int mr_cli_doctor(int argc, char **argv, char **env);
int mr_cli_mlserver(int argc, char **argv, char **env);

/** "PROGRAM: MESSAGE" on standard error; returns `code`. */
int mr_cli_fail(const char *program, int code, const char *message);
/** Parse the options of a sub-command. Returns -1 to go on, or the exit code: help was printed, or an error
 *  was. `usage` goes before the options in the help, `notes` (may be NULL) behind them. */
int mr_cli_parse(struct mr_options *o, int argc, char **argv, char **env, const char *usage,
                 const char *notes);

/** Bounds for the C library's heap, before there are threads; see command.c. */
void mr_cli_heap_bounds(void);

/** Build version, "0.1.0". */
const char *mr_cli_version(void);

#endif
