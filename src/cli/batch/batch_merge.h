/* The command that joins the files of a finished job. */
#ifndef MR_CLI_BATCH_MERGE_H
#define MR_CLI_BATCH_MERGE_H

/** argv[0] is "merge". */
int mr_cli_batch_merge(int argc, char **argv, char **env);

#endif
