/* What a process that runs foreign code gives up, before it loads it. Nothing of it can be taken back.
 *
 *   limits    no core file, a limit of descriptors and of its own memory
 *   landlock  files: only the folders that are listed
 *   seccomp   no new sockets, no other programs or processes, no look into other processes, no signals to them
 * / */
#ifndef MR_PROCESS_CONFINE_H
#define MR_PROCESS_CONFINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define MR_CONFINE_LIMITS   1u
#define MR_CONFINE_LANDLOCK 2u
#define MR_CONFINE_SECCOMP  4u
#define MR_CONFINE_ALL      7u

struct mr_confine {
    uint32_t steps;        /* MR_CONFINE_* */
    uint64_t memory_bytes; /* of its own, without what it shares; 0 = no limit */
    /** Folders and files in addition to the system's, terminated by NULL; missing ones are skipped. */
    const char *const *read_dirs;
    const char *const *write_dirs; /* may be read, too */
};

/** Confines the calling process, which has one thread. Steps that the kernel does not have are left out; *out_steps:
 *  those that are in force. In a build with sanitizers seccomp is left out. Errors: MR_E_INTERNAL (a step failed half way). */
int mr_confine_self(const struct mr_confine *c, uint32_t *out_steps, struct mr_err *err);
/** Steps that this kernel has. Changes nothing. */
uint32_t mr_confine_probe(void);
/** "limits,seccomp" into MR_CONFINE_*; "all" and "none" are words as well. Errors: MR_E_INVALID. */
int mr_confine_parse(const char *text, uint32_t *out_steps, struct mr_err *err);

#endif
