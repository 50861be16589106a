/* The floor of large requests: one connection, HTTP/1.1 with Content-Length, the body is read whole and sent back
 * as it is. Nothing is looked at but the length, so what this takes is what the kernel's copies take.
 *
 *   copy_loop PORT        serves one connection after the other until it is ended */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define BODY_MAX ((size_t)64 << 20)

static char head[16384];
static char body[BODY_MAX];

/* Reads one request: its head with what followed it, then the rest of its body. */
static bool take(int fd, size_t *out_length)
{
    size_t have = 0;
    char *end = NULL;

    while (!end) {
        ssize_t n = have < sizeof head - 1 ? recv(fd, head + have, sizeof head - 1 - have, 0) : 0;
        if (n <= 0) {
            return false;
        }
        have += (size_t)n;
        head[have] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    char *field = strcasestr(head, "\r\ncontent-length:");
    size_t length = field ? strtoul(field + 17, NULL, 10) : 0;
    size_t early = have - (size_t)(end + 4 - head);
    if (length > BODY_MAX || early > length) {
        return false;
    }
    memcpy(body, end + 4, early);
    *out_length = length;
    return length == early ||
           recv(fd, body + early, length - early, MSG_WAITALL) == (ssize_t)(length - early);
}

static bool give(int fd, size_t length)
{
    char text[64];
    struct iovec parts[2] = {
        {text, (size_t)snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\ncontent-length: %zu\r\n\r\n",
                                length)},
        {body, length}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};

    return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)(parts[0].iov_len + length);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    int listening = socket(AF_INET, SOCK_STREAM, 0);

    at.sin_port = htons((uint16_t)(argc == 2 ? atoi(argv[1]) : 0));
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&at, sizeof at) < 0 || listen(listening, 16) < 0) {
        perror("copy_loop: listen");
        return 1;
    }
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        size_t length;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        while (take(fd, &length) && give(fd, length)) {
        }
        close(fd);
    }
}
