/* What tests use of cgroup.c besides its interface. */
#ifndef PROCESS_CGROUP_PRIV_H
#define PROCESS_CGROUP_PRIV_H

#include "process/cgroup.h"

/* mr_cgroups_open with any folder, of whatever file system. */
int cgroup_open_any(struct mr_cgroups **out, const char *dir, const struct mr_cgroup_limits *limits,
                    struct mr_err *err);

#endif
