/* The worker process: loads one model through its backend and runs what the server puts into the shared memory. */
#ifndef MR_WORKER_WORKER_H
#define MR_WORKER_WORKER_H

/* How a worker ends, for the server's judgement. */
enum mr_worker_exit {
    MR_WORKER_EXIT_OK = 0, /* was told to stop, or the server is gone */
    MR_WORKER_EXIT_MODEL =
        64, /* the model or its configuration is bad: another worker would fail as well */
    MR_WORKER_EXIT_DEVICE = 70, /* a device has failed for good */
    MR_WORKER_EXIT_MEMORY = 71  /* out of memory */
};

/** Runs the worker on the descriptors of ipc/setup.h until the server says stop or is gone. Returns the exit code. */
int mr_worker_main(int argc, char **argv);

#endif
