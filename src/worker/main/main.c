/* The program millrace-worker: one backend, one model, in a process of its own. The server starts it, as
 * millrace-worker MODEL PID-OF-THE-SERVER. */
#include "worker/worker.h"

int main(int argc, char **argv)
{
    return mr_worker_main(argc, argv);
}
