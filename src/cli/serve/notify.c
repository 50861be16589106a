/* One datagram to a Unix socket per message: not worth a library. */
#include "notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

/* False: no socket, or an unsupported address. */
static bool address_of(struct sockaddr_un *out, socklen_t *out_len)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t len = path ? strlen(path) : 0;

    if (len < 2 || len >= sizeof out->sun_path || (path[0] != '/' && path[0] != '@')) {
        return false;
    }
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, path, len);
    if (path[0] == '@') {
        out->sun_path[0] = '\0'; /* the abstract name space */
    }
    *out_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

bool mr_notify_is_on(void)
{
    struct sockaddr_un address;
    socklen_t len;

    return address_of(&address, &len);
}

void mr_notify(const char *assignments)
{
    struct sockaddr_un address;
    socklen_t len;

    if (!address_of(&address, &len)) {
        return;
    }
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0) {
        (void)!sendto(fd, assignments, strlen(assignments), MSG_NOSIGNAL,
                      (const struct sockaddr *)&address, len);
        close(fd);
    }
}

void mr_notify_reloading(void)
{
    char text[64];

    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)(mr_now_ns() / MR_NS_PER_US));
    mr_notify(text);
}
