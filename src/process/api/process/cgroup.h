/* Limits of cgroup v2 for processes that the server starts: of memory, CPU and number, each for a process together with all that it
 * forks. Needs a folder of the cgroup file system that this user may write and that has no processes itself.
 *
 * Each process has a folder of its own in there, which it enters by itself, before it runs foreign code. */
#ifndef MR_PROCESS_CGROUP_H
#define MR_PROCESS_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define MR_CGROUP_PATH_BYTES 4096

struct mr_cgroup_limits {
    uint64_t memory_bytes;   /* 0 = none */
    uint32_t cpu_hundredths; /* of a CPU; 0 = no limit */
    uint32_t tasks;          /* processes and threads */
};

/** A folder that others are made in. Thread: one at a time. */
struct mr_cgroups;

/** dir: an absolute path, or "auto": the folder above this process's own. Has its controllers enabled for the folders in it, and
 *  removes those that servers which are gone have left. Errors: MR_E_INVALID (it cannot be used; the message names it). */
int mr_cgroups_open(struct mr_cgroups **out, const char *dir, const struct mr_cgroup_limits *limits,
                    struct mr_err *err);
/** Waits five seconds at most for ended processes whose folders are left. */
void mr_cgroups_close(struct mr_cgroups **g);
/** The controllers that the limits need and the folder does not have, "memory pids"; "" = none. */
const char *mr_cgroups_lacks(const struct mr_cgroups *g);

/** Makes a folder with the limits, for one process. *out: its number, above 0. entry: what the process passes to
 *  mr_cgroup_enter. Errors: MR_E_EXHAUSTED. */
int mr_cgroup_new(struct mr_cgroups *g, uint64_t *out, char entry[MR_CGROUP_PATH_BYTES],
                  struct mr_err *err);
/** In the process: enters the folder. May take some 20 ms. Errors: MR_E_EXHAUSTED. */
int mr_cgroup_enter(const char *entry, struct mr_err *err);
/** The process has been reaped, or has not started: kills what is left of it, and removes the folder. True: the kernel killed
 *  it because the folder's limit of memory was reached. */
bool mr_cgroup_end(struct mr_cgroups *g, uint64_t number);

/** The folder of this process, and what controllers it has ("cpu memory"). False: the system has no cgroup v2. */
bool mr_cgroup_own(char out[MR_CGROUP_PATH_BYTES], char *controllers, size_t size);
/** "1.5" into 150. Errors: MR_E_INVALID (not 0.01 to 4096). */
int mr_cgroup_parse_cpus(const char *text, uint32_t *out_hundredths, struct mr_err *err);

#endif
