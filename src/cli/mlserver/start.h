/* `millrace mlserver start`. */
#ifndef MR_CLI_MLSERVER_START_H
#define MR_CLI_MLSERVER_START_H

/** argv[0] is the first argument after `start`. Returns the exit code. Changes the environment: workers get MLServer's
 *  settings from it. Thread: main, the only one. */
int mr_cli_mlserver_start(int argc, char **argv);

#endif
