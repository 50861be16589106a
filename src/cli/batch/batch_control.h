/* The commands for a running job: status, pause, resume, set. */
#ifndef MR_CLI_BATCH_CONTROL_H
#define MR_CLI_BATCH_CONTROL_H

#include <stdbool.h>

bool mr_cli_batch_is_control(const char *command);
/** argv[0] is the command. */
int mr_cli_batch_control(int argc, char **argv, char **env);

#endif
