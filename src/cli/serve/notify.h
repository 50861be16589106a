/* Notifies systemd and other service managers by the protocol of sd_notify(3), over the socket named in
 * $NOTIFY_SOCKET. */
#ifndef MR_CLI_NOTIFY_H
#define MR_CLI_NOTIFY_H

#include <stdbool.h>

/** True if a service manager listens. */
bool mr_notify_is_on(void);
/** Send assignments, one a line: "READY=1\nSTATUS=...". No effect without a service manager. Never blocks. Thread:
 *  any. */
void mr_notify(const char *assignments);
/** Sends RELOADING=1 with its timestamp; READY=1 must follow. */
void mr_notify_reloading(void);

#endif
