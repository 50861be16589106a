/* posix_spawn does not copy the parent's page tables. Descriptors are first moved above all numbers that the child
 * wants, so that none is overwritten before it is copied. */
#include "process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef P_PIDFD
#    define P_PIDFD 3
#endif

struct spawning {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int *moved; /* [count] */
    size_t count;
    int output[2];
};

static bool is_wanted(const struct mr_process_args *args, int fd)
{
    for (size_t i = 0; i < args->fd_count; i++) {
        if (args->fds[i].as == fd) {
            return true;
        }
    }
    return false;
}

static int fds_move(struct spawning *s, const struct mr_process_args *args, struct mr_err *err)
{
    int above = 3;

    for (size_t i = 0; i < args->fd_count; i++) {
        above = MR_MAX(above, args->fds[i].as + 1);
    }
    for (; s->count < args->fd_count; s->count++) {
        const int fd = fcntl(args->fds[s->count].fd, F_DUPFD_CLOEXEC, above);
        if (fd < 0) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "no descriptor for a process: %s", strerror(errno));
        }
        s->moved[s->count] = fd;
        posix_spawn_file_actions_adddup2(&s->actions, fd, args->fds[s->count].as);
    }
    const int output = fcntl(s->output[1], F_DUPFD_CLOEXEC, above);
    if (output < 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no descriptor for a process: %s", strerror(errno));
    }
    close(s->output[1]);
    s->output[1] = output;
    posix_spawn_file_actions_addopen(&s->actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&s->actions, output, 1);
    posix_spawn_file_actions_adddup2(&s->actions, output, 2);
    for (int fd = 3; fd < above; fd++) {
        if (!is_wanted(args, fd)) {
            posix_spawn_file_actions_addclose(&s->actions, fd);
        }
    }
    posix_spawn_file_actions_addclosefrom_np(&s->actions, above);
    return MR_OK;
}

static void attributes_set(struct spawning *s)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&s->attributes, &none);
    posix_spawnattr_setsigdefault(&s->attributes, &all);
    posix_spawnattr_setflags(&s->attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
}

static int start(struct spawning *s, struct mr_process *out, const struct mr_process_args *args,
                 struct mr_err *err)
{
    const int failed =
        posix_spawn(&out->pid, args->program, &s->actions, &s->attributes,
                    (char *const *)(uintptr_t)args->argv, (char *const *)(uintptr_t)args->env);

    if (failed) {
        return MR_FAIL(err, failed == ENOENT ? MR_E_NOT_FOUND : MR_E_EXHAUSTED,
                       "cannot start %s: %s", args->program, strerror(failed));
    }
    out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
    if (out->pidfd < 0) {
        const int reason = errno;
        kill(out->pid, SIGKILL); /* our child, not reaped: its number is unique */
        waitpid(out->pid, NULL, 0);
        return MR_FAIL(err, reason == ENOSYS ? MR_E_UNSUPPORTED : MR_E_EXHAUSTED,
                       "no descriptor of a process: %s", strerror(reason));
    }
    return MR_OK;
}

int mr_process_spawn(struct mr_process *out, const struct mr_process_args *args, struct mr_err *err)
{
    struct spawning s = {.output = {-1, -1}};
    struct mr_process p = {.pid = -1, .pidfd = -1, .output = -1};
    int rc;

    if (pipe2(s.output, O_CLOEXEC) < 0) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no pipe for a process: %s", strerror(errno));
    }
    s.moved = MR_NEW_ARRAY(int, args->fd_count + 1);
    posix_spawn_file_actions_init(&s.actions);
    posix_spawnattr_init(&s.attributes);
    attributes_set(&s);
    MR_TRY(fds_move(&s, args, err));
    MR_TRY(start(&s, &p, args, err));
    p.output = s.output[0];
    s.output[0] = -1;
    fcntl(p.output, F_SETFL, O_NONBLOCK);
    *out = p;
out:
    for (size_t i = 0; i < s.count; i++) {
        close(s.moved[i]);
    }
    close(s.output[1]);
    if (s.output[0] >= 0) {
        close(s.output[0]);
    }
    posix_spawn_file_actions_destroy(&s.actions);
    posix_spawnattr_destroy(&s.attributes);
    mr_free(s.moved);
    return rc;
}

bool mr_process_die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return getppid() == parent;
}

void mr_process_kill(const struct mr_process *p, int signal)
{
    syscall(SYS_pidfd_send_signal, p->pidfd, signal, NULL, 0);
}

static bool wait_for_end(const struct mr_process *p, int flags, siginfo_t *out)
{
    int rc;

    do {
        rc = waitid((idtype_t)P_PIDFD, (id_t)p->pidfd, out, WEXITED | flags);
    } while (rc < 0 && errno == EINTR);
    return rc == 0 && out->si_pid != 0;
}

bool mr_process_reap(const struct mr_process *p, bool is_waiting, struct mr_process_exit *out)
{
    siginfo_t info = {0};

    if (!wait_for_end(p, WNOWAIT | (is_waiting ? 0 : WNOHANG), &info)) {
        return false;
    }
    kill(-p->pid, SIGKILL); /* its group: not reaped yet, it keeps the number from meaning others */
    if (!wait_for_end(p, 0, &info)) {
        return false;
    }
    *out = (struct mr_process_exit){info.si_code != CLD_EXITED, info.si_status};
    return true;
}

const char *mr_process_exit_text(const struct mr_process_exit *e, char out[48])
{
    const char *name = e->is_signal ? sigabbrev_np(e->code) : NULL;

    if (e->is_signal) {
        snprintf(out, 48, "signal %d (%s%s)", e->code, name ? "SIG" : "", name ? name : "?");
    } else {
        snprintf(out, 48, "exit code %d", e->code);
    }
    return out;
}

void mr_process_close(struct mr_process *p)
{
    if (p->pidfd >= 0) {
        close(p->pidfd);
    }
    if (p->output >= 0) {
        close(p->output);
    }
    *p = (struct mr_process){.pid = -1, .pidfd = -1, .output = -1};
}
