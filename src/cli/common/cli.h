/* Shared by the files of the program: sub-commands, exit codes, error output. */
#ifndef MR_CLI_CLI_H
#define MR_CLI_CLI_H

#include <stdio.h>

#include "base/err.h"
#include "base/options.h"

/* Exit codes, the same for every sub-command. */
enum mr_cli_exit {
    MR_EXIT_OK = 0,
    MR_EXIT_FAILED = 1, /* a failure of the request, the model or the machine */
    MR_EXIT_USAGE = 2   /* the command line is wrong */
};

/** The whole program; argv[0] is its name. Returns the exit code. */
int mr_cli_main(int argc, char **argv, char **env);

/* Sub-commands: argv[0] is the first argument after the program's name. */
int mr_cli_serve(int argc, char **argv, char **env);
int mr_cli_infer(int argc, char **argv, char **env);
int mr_cli_perf(int argc, char **argv, char **env);
int mr_cli_model(int argc, char **argv, char **env);
int mr_cli_mesh(int argc, char **argv, char **env);
int mr_cli_endpoint(int argc, char **argv, char **env);
int mr_cli_batch(int argc, char **argv, char **env);
int mr_cli_map(int argc, char **argv, char **env);
int mr_cli_workflow(int argc, char **argv, char **env);
int mr_cli_doctor(int argc, char **argv, char **env);
int mr_cli_mlserver(int argc, char **argv, char **env);

/** "PROGRAM: MESSAGE" on standard error; returns `code`. */
int mr_cli_fail(const char *program, int code, const char *message);
/** Parses the options of a sub-command. Returns -1 to continue, or the exit code after printing help or an error. The
 *  help prints `usage` before the options and `notes` (may be NULL) after them. */
int mr_cli_parse(struct mr_options *o, int argc, char **argv, char **env, const char *usage,
                 const char *notes);

/** Bounds the C library's heap, before threads exist; see command.c. Allocations from kept_bytes on go back to the system when they
 *  are freed; of smaller ones a heap keeps up to twice as much. */
void mr_cli_heap_bounds(int kept_bytes);

/** Build version, "0.1.0". */
const char *mr_cli_version(void);

#endif
