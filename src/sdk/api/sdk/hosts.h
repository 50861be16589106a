/* Addresses of hosts, for those who read them from files of their own. The client itself is millrace/client.h. */
#ifndef MR_SDK_HOSTS_H
#define MR_SDK_HOSTS_H

#include "base/err.h"
#include "base/str.h"

/** Checks one of mr_sdk_options.urls: "ADDRESS[ SHARE]", "list://ADDRESS[ SHARE],…", "file://PATH" or "dns://NAME:PORT".
 *  Nothing is looked up. Errors: MR_E_INVALID, MR_E_UNSUPPORTED (other ways to find hosts), with the text. Thread: any. */
int mr_hosts_check(mr_str text, struct mr_err *err);

#endif
