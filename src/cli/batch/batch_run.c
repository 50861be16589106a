#include "batch_run.h"
#include "flow/flow.h"

#include <signal.h>

#include "base/mem.h"
#include "cli/common/cli.h"
#include "cli/serve/opt_serve.h"

static struct mr_batch *running; /* for the signal handler; set before it is installed */
static const char **dirs;

static void on_signals(void (*handler)(int))
{
    const struct sigaction action = {.sa_handler = handler};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* The next signal, whichever of them, ends the process. */
static void on_signal(int number)
{
    (void)number;
    on_signals(SIG_DFL);
    mr_batch_stop(running);
}

static const struct mr_model_maker maker = {.open = mr_flow_open};

int mr_cli_batch_open(struct mr_batch **out, struct mr_batch_options *options, struct mr_err *err)
{
    mr_cli_heap_bounds(2 << 20); /* heaps are part of what it takes beside --memory */
    dirs = mr_default_backend_dirs();
    options->hosts.backend_dirs = dirs;
    options->hosts.maker = &maker;
    while (dirs[options->hosts.backend_dir_count]) {
        options->hosts.backend_dir_count++;
    }
    const int rc = mr_batch_new(&running, options, err);
    if (rc < 0) {
        mr_freep(&dirs);
        return rc;
    }
    *out = running;
    return MR_OK;
}

void mr_cli_batch_obey(void)
{
    on_signals(on_signal);
    signal(SIGPIPE,
           SIG_IGN); /* NOLINT: the reader of messages may go away; errors of writes are handled */
}

void mr_cli_batch_close(struct mr_batch **b)
{
    on_signals(SIG_DFL);
    running = NULL;
    mr_batch_free(b);
    mr_freep(&dirs);
}
