/* Child processes that inherit what the caller names and nothing else: descriptors, environment, arguments. Found and ended by a pidfd,
 * which never means another process. */
#ifndef MR_PROCESS_SPAWN_H
#define MR_PROCESS_SPAWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/** A descriptor of the parent, and its number in the child. */
struct mr_process_fd {
    int fd;
    int as; /* 3 and more */
};

struct mr_process_args {
    const char *program;
    const char *const *argv; /* terminated by NULL */
    const char *const *env;  /* all of it, terminated by NULL */
    const struct mr_process_fd *fds;
    size_t fd_count;
};

struct mr_process {
    pid_t pid;
    int pidfd;  /* readable when it has ended */
    int output; /* what it writes to its descriptors 1 and 2; does not block */
};

/** Starts a program: descriptor 0 is empty, 1 and 2 are `output`, those of `fds` have their numbers, all others are
 *  closed; signals are as after a log-in; it leads a session of its own. Costs as much in a large process as in a small one. Errors:
 *  MR_E_NOT_FOUND (no such program), MR_E_EXHAUSTED (processes, descriptors, memory), MR_E_UNSUPPORTED. */
int mr_process_spawn(struct mr_process *out, const struct mr_process_args *args,
                     struct mr_err *err);
/** In the child: it is killed when the thread that started it ends. False: the parent is gone already. */
bool mr_process_die_with(pid_t parent);
/** Sends a signal. Nothing happens if it has ended. */
void mr_process_kill(const struct mr_process *p, int signal);

/** How a process ended. */
struct mr_process_exit {
    bool is_signal;
    int code; /* exit code, or number of the signal */
};
/** Takes note of its end, once, and kills what is left of its process group. is_waiting: waits for it. False: it
 *  lives. */
bool mr_process_reap(const struct mr_process *p, bool is_waiting, struct mr_process_exit *out);
/** "exit code 3", "signal 11 (SIGSEGV)"; returns `out`. */
const char *mr_process_exit_text(const struct mr_process_exit *e, char out[48]);
/** Closes the descriptors. */
void mr_process_close(struct mr_process *p);

/** What a process and one of its threads take; 0 where the system does not say. Reads /proc. */
struct mr_process_usage {
    uint64_t resident_bytes;
    int64_t cpu_ns;
    int64_t thread_cpu_ns;
    int64_t thread_delay_ns; /* it could run, and had no CPU: waits that are over */
    char thread_state;       /* 'R' it runs or could, 'S' and 'D' it waits, 'T' it is stopped */
};
void mr_process_get_usage(const struct mr_process *p, uint32_t thread,
                          struct mr_process_usage *out);

#endif
