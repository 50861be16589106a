/* Refuses system calls to the calling process, by a seccomp filter. */
#ifndef PROCESS_SYSCALLS_H
#define PROCESS_SYSCALLS_H

#include <stdbool.h>

#include "base/err.h"

/* False: the kernel has no filters, or the build has a sanitizer, which starts processes of its own. */
bool syscalls_can_refuse(void);
/* Makes such calls fail with EPERM until the process ends. The process has no_new_privs. Errors: MR_E_INTERNAL. */
int syscalls_refuse(struct mr_err *err);

#endif
