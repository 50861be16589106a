/* What systemd and other service managers hear of the server: the protocol of sd_notify(3), over the socket that they name in
 * $NOTIFY_SOCKET. */
#ifndef MR_CLI_NOTIFY_H
#define MR_CLI_NOTIFY_H

#include <stdbool.h>

/** A service manager listens. */
bool mr_notify_is_on(void);
/** Send assignments, one a line: "READY=1\nSTATUS=...". Without a service manager, and when it does not listen any
 *  more, nothing happens. Never blocks. Thread: any. */
void mr_notify(const char *assignments);
/** RELOADING=1 with the time that belongs to it; READY=1 is to follow. */
void mr_notify_reloading(void);

#endif
