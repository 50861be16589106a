/* The worker process: loads one model through its backend, and runs the executions that the server puts into shared
 * memory. */
#ifndef MR_WORKER_WORKER_H
#define MR_WORKER_WORKER_H

/** Runs the worker on the descriptors of ipc/setup.h until the server stops it or ends. Returns the exit code. */
int mr_worker_main(int argc, char **argv);

#endif
