/* The interpreter that Python models get unless the server has another one configured: whether there is one, and has numpy. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "doctor.h"
#include "process/spawn.h"

#define WAIT_MS 10000 /* numpy from a slow disk */
#define ADVICE                                                                                     \
    "install numpy (Debian: python3-numpy), or name an interpreter that has it: --python PATH"

/* What the process writes, up to its end. False: it takes too long. */
static bool output_read(const struct mr_process *p, char *out, size_t size)
{
    struct pollfd wait = {.fd = p->output, .events = POLLIN};
    size_t used = 0;
    ssize_t n;

    out[0] = '\0';
    while (poll(&wait, 1, WAIT_MS) > 0) {
        n = read(p->output, out + used, size - 1 - used);
        if (n == 0 || used + 1 == size) {
            return true;
        }
        if (n > 0) {
            used += (size_t)n;
            out[used] = '\0';
        } else if (errno != EAGAIN && errno != EINTR) {
            return true;
        }
    }
    return false;
}

void doctor_python(struct doctor *d)
{
    static const char *const argv[] = {
        "sh", "-c",
        "exec python3 -c 'import sys, numpy; "
        "print(sys.executable, sys.version.split()[0], \"numpy\", numpy.__version__)'",
        NULL};
    const struct mr_process_args args = {
        .program = "/bin/sh", .argv = argv, .env = (const char *const *)environ};
    struct mr_process p;
    struct mr_process_exit how = {0};
    struct mr_err err;
    char text[512];

    if (mr_process_spawn(&p, &args, &err) < 0) {
        doctor_say(d, FINDING_WARN, "python", ADVICE, "Python models: %s", err.msg);
        return;
    }
    const bool has_ended = output_read(&p, text, sizeof text);
    if (!has_ended) {
        mr_process_kill(&p, SIGKILL);
    }
    mr_process_reap(&p, true, &how);
    mr_process_close(&p);
    text[strcspn(text, "\n")] = '\0';
    if (has_ended && !how.is_signal && how.code == 0) {
        doctor_say(d, FINDING_OK, "python", NULL, "%s", text);
    } else {
        doctor_say(d, FINDING_WARN, "python", ADVICE,
                   "python3 of PATH runs no Python models: it %s",
                   has_ended ? "is missing, or has no numpy" : "does not answer");
    }
}
