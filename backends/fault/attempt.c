/* Things that foreign code in a worker process must not be able to do, tried by it. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault.h"

#define SERVER_SOCKET 3 /* MR_WORKER_FD_SOCKET */

static int try_socket(void)
{
    return socket(AF_INET, SOCK_STREAM, 0);
}

static int try_exec(void)
{
    char name[] = "true";
    char *argv[] = {name, NULL};

    return execv("/usr/bin/true", argv);
}

static int try_fork(void)
{
    const pid_t child = fork();

    if (child == 0) {
        _exit(0);
    }
    return child > 0 ? waitpid(child, NULL, 0) : child;
}

static int try_ptrace(void)
{
    return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

/* Any address: it is the right to look that is asked for. */
static int try_server_memory(void)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/mem", (int)getppid());
    return open(path, O_RDONLY);
}

static int try_signal(void)
{
    return kill(getppid(), 0);
}

static int try_files(void)
{
    int last = -1;

    for (int i = 0; i < 4096; i++) {
        last = dup(0);
        if (last < 0) {
            return -1;
        }
    }
    return last;
}

static int try_memory(void)
{
    for (int i = 0; i < 64; i++) {
        char *more = malloc((size_t)16 << 20);
        if (!more) {
            errno = ENOMEM;
            return -1;
        }
        for (size_t at = 0; at < (size_t)16 << 20; at += 4096) {
            more[at] = 1; /* kept: this process is to be short of it */
        }
    }
    return 0;
}

/* Writes all over the memory that it shares with the server: the words of all slots and rings, and the places of short
 * answers. Or into the last 512 MiB of the memory for large outputs, of which it was given nothing. */
static int write_shared(int is_fill)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    unsigned long from, to;
    int count = 0;

    while (maps && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3 || strcmp(rights, "rw-s") != 0) {
            continue;
        }
        const unsigned long bytes = to - from;
        const int is_large = bytes > 1ul << 30;
        if (is_fill && is_large) {
            for (unsigned long at = to - (512ul << 20); at < to; at += 4096) {
                *(volatile char *)at = 1;
            }
            count++;
        } else if (!is_fill) {
            memset((void *)from, 0xff, is_large ? 16ul << 20 : bytes);
            count++;
        }
    }
    if (maps) {
        fclose(maps);
    }
    return count > 0 ? 0 : -1;
}

static int try_scribble(void)
{
    return write_shared(0);
}

static int try_fill(void)
{
    return write_shared(1);
}

/* Says to the server what no worker says. */
static int try_message(void)
{
    char nonsense[64];

    memset(nonsense, 0xff, sizeof nonsense);
    return send(SERVER_SOCKET, nonsense, sizeof nonsense, 0) < 0 ? -1 : pause();
}

/* Of the file that it leaves there. */
static int try_temporary(void)
{
    const char *folder = getenv("TMPDIR");
    char path[512];

    snprintf(path, sizeof path, "%s/left-XXXXXX", folder ? folder : "/tmp");
    return mkstemp(path);
}

int fault_attempt(const char *what, struct mr_err *err)
{
    static const struct {
        const char *name;
        int (*fn)(void);
    } known[] = {{"socket", try_socket},
                 {"exec", try_exec},
                 {"fork", try_fork},
                 {"ptrace", try_ptrace},
                 {"server_memory", try_server_memory},
                 {"signal", try_signal},
                 {"files", try_files},
                 {"temporary", try_temporary},
                 {"scribble", try_scribble},
                 {"fill", try_fill},
                 {"message", try_message},
                 {"memory", try_memory}};
    int result = -1;

    errno = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, what) == 0) {
            result = known[i].fn();
        }
    }
    if (strncmp(what, "read:", 5) == 0) {
        result = open(what + 5, O_RDONLY);
    } else if (strncmp(what, "write:", 6) == 0) {
        result = open(what + 6, O_WRONLY | O_CREAT, 0600);
    }
    return mr_backend_fail(err, MR_E_INVALID, result < 0 ? "refused: %s" : "possible%s",
                           result < 0 ? strerror(errno) : "");
}
