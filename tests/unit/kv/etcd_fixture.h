/* A real etcd, on an address of the loopback and in a folder of its own. */
#ifndef KV_ETCD_FIXTURE_H
#define KV_ETCD_FIXTURE_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "codec/pb.h"
#include "kv/wire/fields.h"
#include "loop_fixture.h"
#include "net/client.h"
#include "process/folder.h"

struct etcd {
    char *folder;
    pid_t pid;
    uint32_t ip;
    char address[32];   /* host:port */
    int port;           /* and that of its peers: the next one */
    const char *tls[4]; /* certificate, key and authority of TLS; NULL: none */
};

/* Where it is installed; NULL: it is not. */
static inline const char *etcd_program(void)
{
    static const char *const places[] = {"/usr/bin/etcd", "/usr/local/bin/etcd"};
    for (size_t i = 0; i < COUNT(places); i++) {
        if (access(places[i], X_OK) == 0) {
            return places[i];
        }
    }
    return NULL;
}

/* An address of the loopback that is this process's alone. */
static inline uint32_t own_address(void)
{
    return (127u << 24) + (1u << 16) + (uint32_t)getpid() % (250u << 16);
}

static inline bool port_answers(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(own_address()),
                            .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = connect(fd, (struct sockaddr *)&a, sizeof a);
    close(fd);
    return rc == 0;
}

/* Calls that wait for the disk succeed at once: a disk that is busy with other tests would have etcd's own time
 * limits pass. */
static inline void no_fsync(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {COUNT(code), code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* In the child. */
static inline void etcd_exec(const struct etcd *e)
{
    static char data[200], client[64], peer[64], cluster[80], log[200];
    const char *argv[32] = {etcd_program(), "--data-dir",
                            data,           "--listen-client-urls",
                            client,         "--advertise-client-urls",
                            client,         "--listen-peer-urls",
                            peer,           "--initial-advertise-peer-urls",
                            peer,           "--initial-cluster",
                            cluster,        "--log-level",
                            "error"};
    int n = 15;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    no_fsync();
    snprintf(data, sizeof data, "%s/data", e->folder);
    snprintf(log, sizeof log, "%s/log", e->folder);
    snprintf(client, sizeof client, "%s://%s", e->tls[0] ? "https" : "http", e->address);
    snprintf(peer, sizeof peer, "http://%.*s:%d", (int)strcspn(e->address, ":"), e->address,
             e->port + 1);
    snprintf(cluster, sizeof cluster, "default=%s", peer);
    if (e->tls[0]) {
        const char *const more[] = {"--cert-file",       e->tls[0], "--key-file",        e->tls[1],
                                    "--trusted-ca-file", e->tls[2], "--client-cert-auth"};
        memcpy(&argv[n], more, sizeof more);
    }
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    close_range(3, ~0u, 0);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* False: it has ended, because the port is taken. */
static inline bool etcd_run(struct etcd *e)
{
    e->pid = fork();
    assert_true(e->pid >= 0);
    if (e->pid == 0) {
        etcd_exec(e);
    }
    while (!port_answers(e->port)) {
        if (waitpid(e->pid, NULL, WNOHANG) == e->pid) {
            return false;
        }
        poll(NULL, 0, 20);
    }
    return true;
}

static inline void etcd_restart(struct etcd *e)
{
    for (int tries = 0; !etcd_run(e); tries++) {
        assert_true(tries < 50);
    }
}

static inline void etcd_start_with(struct etcd *e, const char *const tls[4])
{
    static int next = 20000;
    uint32_t ip = own_address();

    *e = (struct etcd){.ip = ip};
    if (tls) {
        memcpy(e->tls, tls, sizeof e->tls);
    }
    assert_int_equal(mr_folder_new(&e->folder, NULL), MR_OK);
    for (int tries = 0;; tries++) {
        e->port = next;
        next += 2;
        snprintf(e->address, sizeof e->address, "%u.%u.%u.%u:%d", ip >> 24, ip >> 16 & 255,
                 ip >> 8 & 255, ip & 255, e->port);
        if (etcd_run(e)) {
            return;
        }
        mr_folder_empty(e->folder);
        assert_true(tries < 50);
    }
}

static inline void etcd_start(struct etcd *e)
{
    etcd_start_with(e, NULL);
}

/* Returns when no thread of the child runs any more; SIGCONT has it go on. */
static inline void child_stop(pid_t pid)
{
    int status;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

static inline void etcd_kill(struct etcd *e)
{
    kill(e->pid, SIGKILL);
    assert_int_equal(waitpid(e->pid, NULL, 0), e->pid);
    e->pid = 0;
}

/* Loses all that it had. */
static inline void etcd_wipe(struct etcd *e)
{
    mr_folder_empty(e->folder);
}

static inline void etcd_end(struct etcd *e)
{
    if (e->pid) {
        etcd_kill(e);
    }
    mr_folder_remove(e->folder);
    free(e->folder);
}

/* ---- a connection that can be cut ---- */

/* A process that hands bytes on between those who connect to its port and etcd: killed, it cuts all connections;
 * stopped, it leaves them as they are. */
struct proxy {
    pid_t pid;
    int fd; /* listens; stays when the process is replaced */
    char address[32];
};

/* Hands on what there is; false: the connection is over. */
static inline bool proxy_copy(int from, int to)
{
    char bytes[16384];
    ssize_t n = read(from, bytes, sizeof bytes);
    for (ssize_t at = 0, done; at < n; at += done) {
        done = write(to, bytes + at, (size_t)(n - at));
        if (done < 0) {
            return false;
        }
    }
    return n > 0;
}

static inline int etcd_connect(const struct etcd *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(e->ip),
                            .sin_port = htons((uint16_t)e->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        _exit(1);
    }
    return fd;
}

static inline void proxy_run(const struct proxy *p, const struct etcd *e)
{
    struct pollfd fds[65] = {{.fd = p->fd, .events = POLLIN}};
    nfds_t count = 1; /* the pairs are at 1 and 2, 3 and 4 ... */

    for (;;) {
        poll(fds, count, -1);
        for (nfds_t i = 1; i < count; i++) {
            nfds_t other = i % 2 ? i + 1 : i - 1;
            if (fds[i].fd >= 0 && fds[i].revents && !proxy_copy(fds[i].fd, fds[other].fd)) {
                close(fds[i].fd);
                close(fds[other].fd);
                fds[i].fd = fds[other].fd = -1;
            }
        }
        if (fds[0].revents) {
            if (count > 63) {
                _exit(1);
            }
            fds[count++] = (struct pollfd){.fd = accept(p->fd, NULL, NULL), .events = POLLIN};
            fds[count++] = (struct pollfd){.fd = etcd_connect(e), .events = POLLIN};
        }
    }
}

static inline void proxy_start(struct proxy *p, const struct etcd *e)
{
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        proxy_run(p, e);
    }
}

static inline void proxy_new(struct proxy *p, const struct etcd *e)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;

    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(p->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(p->fd, 64), 0);
    assert_int_equal(getsockname(p->fd, (struct sockaddr *)&a, &len), 0);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%d", ntohs(a.sin_port));
    proxy_start(p, e);
}

static inline void proxy_kill(struct proxy *p)
{
    kill(p->pid, SIGKILL);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

static inline void proxy_end(struct proxy *p)
{
    proxy_kill(p);
    close(p->fd);
}

/* ---- calls that the registry has no function for ---- */

static inline void raw_done(void *ctx, int rc, const struct mr_err *err,
                            const struct mr_client_response *response)
{
    bool *done = ctx;
    (void)response;
    if (rc != MR_OK) {
        print_error("%s\n", err->msg);
    }
    assert_int_equal(rc, MR_OK);
    *done = true;
}

static inline void etcd_raw(struct kv_fixture *f, const char *address, const char *path,
                            const struct mr_buf *message)
{
    struct mr_client_options options = {.http2 = true};
    struct mr_piece piece = {message->ptr ? message->ptr : "", message->len, NULL};
    struct mr_client_grpc_request request = {.path = path, .pieces = &piece, .piece_count = 1};
    struct mr_client *c;
    bool done = false;

    assert_int_equal(mr_client_new(&c, f->own, address, &options, NULL), MR_OK);
    mr_client_grpc(c, &request, raw_done, &done);
    kvt_wait(f, &done);
    mr_client_free(&c);
}

static inline void etcd_compact(struct kv_fixture *f, const char *address, int64_t revision)
{
    struct mr_buf b;
    mr_buf_init(&b, 0);
    mr_pb_put_i64(&b, COMPACT_REVISION, revision);
    etcd_raw(f, address, ETCD_COMPACT, &b);
    mr_buf_fini(&b);
}

#endif
