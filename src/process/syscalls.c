/* The filter is a list of calls that are refused, and of calls that are allowed with some arguments only. Everything else is
 * allowed: backends are foreign code that may need any of it. */
#include "syscalls.h"

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define HAS_SECCOMP false /* a sanitizer starts a process to look for leaks */
#elif defined(__x86_64__)
#    define HAS_SECCOMP  true
#    define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#    define HAS_SECCOMP  true
#    define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#    define HAS_SECCOMP false
#endif
#ifndef ARCHITECTURE
#    define ARCHITECTURE 0
#endif

/* Calls that older headers lack have one number on all architectures. */
static const int refused[] = {
    /* sockets; io_uring could make them beside the filter */
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    /* programs and processes */
    SYS_execve,
    SYS_execveat,
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
#endif
    /* other processes, and what they run on */
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    440 /* process_madvise */,
    448 /* process_mrelease */,
    SYS_kcmp,
    SYS_pidfd_open,
    SYS_pidfd_send_signal,
    438 /* pidfd_getfd */,
    SYS_kill,
    SYS_tkill,
    SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo,
    SYS_migrate_pages,
    SYS_perf_event_open,
    SYS_bpf,
    SYS_userfaultfd,
    SYS_fanotify_init,
    /* files past the rules for paths, which know no modes, owners, times and attributes */
    SYS_open_by_handle_at,
#if defined(__x86_64__)
    SYS_chmod,
    SYS_chown,
    SYS_lchown,
    SYS_utime,
    SYS_utimes,
    SYS_futimesat,
#endif
    SYS_fchmodat,
    452 /* fchmodat2 */,
    SYS_fchownat,
    SYS_utimensat,
    SYS_setxattr,
    SYS_lsetxattr,
    463 /* setxattrat */,
    SYS_removexattr,
    SYS_lremovexattr,
    466 /* removexattrat */,
    /* memory and messages that outlive their process, and those of others: System V */
    SYS_shmget,
    SYS_shmat,
    SYS_shmctl,
    SYS_msgget,
    SYS_msgsnd,
    SYS_msgrcv,
    SYS_msgctl,
    SYS_semget,
    SYS_semop,
    SYS_semtimedop,
    SYS_semctl,
    /* keys */
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    /* file systems and name spaces */
    SYS_mount,
    SYS_umount2,
    428 /* open_tree */,
    467 /* open_tree_attr */,
    429 /* move_mount */,
    430 /* fsopen */,
    431 /* fsconfig */,
    432 /* fsmount */,
    433 /* fspick */,
    442 /* mount_setattr */,
    SYS_pivot_root,
    SYS_chroot,
    SYS_setns,
    SYS_unshare,
    SYS_quotactl,
    443 /* quotactl_fd */,
    SYS_swapon,
    SYS_swapoff,
    /* the machine: clocks, names, modules, the kernel itself */
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_settimeofday,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_syslog,
    SYS_acct,
    SYS_vhangup,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_kexec_load,
    SYS_kexec_file_load,
    SYS_reboot,
#if defined(__x86_64__)
    SYS_iopl,
    SYS_ioperm,
#endif
};
#define REFUSED (sizeof refused / sizeof *refused)

/* Calls about a process, or one of its threads, by their argument with its number. Other threads of the caller
 * cannot be distinguished from those of other processes, so these are refused as well. The CPUs and the scheduling class
 * of others can be changed, as pthread_create sets them for new threads. */
static const struct {
    int call;
    unsigned argument;
    int which; /* that the first argument has to be, -1: any */
} own[] = {
    {SYS_tgkill, 0, -1}, /* abort uses it */
    {SYS_prlimit64, 0, -1},
    {SYS_move_pages, 0, -1},
    {SYS_setpriority, 1, PRIO_PROCESS},
    {SYS_ioprio_set, 1, 1 /* of a process */},
};
#define OWN (sizeof own / sizeof *own)

/* Calls that are refused with either value of an argument. A descriptor's owner gets its signals, SIGKILL if that is set. */
static const struct {
    int call;
    unsigned argument;
    uint32_t values[2];
} cases[] = {
    {SYS_prctl, 0, {PR_SET_PDEATHSIG, PR_SET_PDEATHSIG}}, /* it still ends with the server */
    {SYS_fcntl, 1, {F_SETOWN, F_SETOWN_EX}},
    {SYS_ioctl, 1, {FIOSETOWN, SIOCSPGRP}},
};
#define CASES (sizeof cases / sizeof *cases)

#define FIELD(name) ((uint32_t)offsetof(struct seccomp_data, name))
/* The lower half of an argument: both machines are little-endian. */
#define ARGUMENT(n) (FIELD(args) + (n)*8u)

struct program {
    unsigned short len;
    struct sock_filter at[2 * REFUSED + 8 * OWN + 6 * CASES + 32];
};

#define ADD(...) p->at[p->len++] = (struct sock_filter)__VA_ARGS__

static void deny(struct program *p)
{
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)));
}

static void permit(struct program *p)
{
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
}

/* The next `skipped` instructions are for that call only. */
static void if_call(struct program *p, int call, uint8_t skipped)
{
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, skipped));
}

static void add_begin(struct program *p)
{
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(arch)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, FIELD(nr)));
#if defined(__x86_64__)
    ADD(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1)); /* x32: other numbers */
    deny(p);
#endif
}

/* Threads, and no processes. The C library falls back from clone3 to clone, whose flags can be seen. */
static void add_clone(struct program *p)
{
    if_call(p, SYS_clone3, 1);
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS));
    if_call(p, SYS_clone, 4);
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(0)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1));
    permit(p);
    deny(p);
}

static void add_case(struct program *p, int call, unsigned argument, const uint32_t values[2])
{
    if_call(p, call, 5);
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(argument)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, values[0], 1, 0));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, values[1], 0, 1));
    deny(p);
    permit(p);
}

static void add_own(struct program *p, int call, unsigned argument, int which)
{
    if_call(p, call, which < 0 ? 5 : 8);
    if (which >= 0) {
        ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(0)));
        ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)which, 1, 0));
        deny(p);
    }
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(argument)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)getpid(), 0, 1));
    permit(p);
    deny(p);
}

int syscalls_refuse(struct mr_err *err)
{
    struct program program = {0};
    struct program *p = &program;

    add_begin(p);
    add_clone(p);
    for (size_t i = 0; i < CASES; i++) {
        add_case(p, cases[i].call, cases[i].argument, cases[i].values);
    }
    for (size_t i = 0; i < OWN; i++) {
        add_own(p, own[i].call, own[i].argument, own[i].which);
    }
    for (size_t i = 0; i < REFUSED; i++) {
        if_call(p, refused[i], 1);
        deny(p);
    }
    permit(p);
    const struct sock_fprog filter = {p->len, p->at};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0
               ? MR_FAIL(err, MR_E_INTERNAL, "cannot confine the process (seccomp): %s",
                         strerror(errno))
               : MR_OK;
}

bool syscalls_can_refuse(void)
{
    /* With NULL for the filter: EFAULT where there is seccomp, EINVAL where there is none. */
    return HAS_SECCOMP && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) < 0 && errno == EFAULT;
}
