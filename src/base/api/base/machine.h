/* What the machine and the cgroup of this process allow it; CPUs: mr_cpu_count in thread.h. All of it reads files, from any thread. */
#ifndef MR_BASE_MACHINE_H
#define MR_BASE_MACHINE_H

#include "base/str.h"

/** The beginning of a small file, in buf; len 0 when it cannot be read. */
mr_str mr_machine_read(const char *path, char *buf, size_t size);

/** Called with the folder of a cgroup. */
typedef void(mr_cgroup_look_fn)(void *ctx, const char *dir);
/** Calls look, before this returns, with the cgroup (version 2) of this process and then with its parents; not at all where
 *  there is no version 2. */
void mr_machine_cgroups(mr_cgroup_look_fn *look, void *ctx);
/** The number in a file of a cgroup's folder, "memory.max". False: none ("max"), or no such file. */
bool mr_cgroup_number(const char *dir, const char *file, uint64_t *out);

/** Bytes of memory that this process may use: that of the machine, or the least limit of its cgroup (version 2) and the parents
 *  of that where it is less. Not what is free. */
uint64_t mr_machine_memory(void);

#endif
