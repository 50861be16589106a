/* A disk that stops at a given call, for tests of what must survive that.
 *
 * A test program linked with it (--wrap, see CMakeLists.txt) goes through it with all calls that touch
 * files. Calls on what lies below one folder, the base, are counted; all others pass. At a given count the
 * process ends, as by a kill, or with its power: then what had been on disk is written beside the base, and
 * guesses of what else might have been. Or a call fails.
 *
 * The model of the disk is stricter than any file system that we know. Data of a file is on disk after fsync
 * or fdatasync of it, a name after fsync of its folder, and both halves of a rename are names of their own.
 * Anything else may be there or not, each change for itself, and a write also in part, by sectors. Data for
 * which fsync has failed may never be written later, though it can be read until the power fails. One thread. */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include <stdbool.h>
#include <stdint.h>

#define DISK_CRASHED    99 /* exit status of a process that was stopped */
#define DISK_TRACE_MOST 2048

struct disk_orders {
    char base[64]; /* absolute; calls below it count, from 1 */
    char *
        trace; /* NULL, or DISK_TRACE_MOST bytes: [n] becomes 'w' for a write or cut, 's' for a sync */
    uint64_t seed; /* of all guesses */

    uint64_t crash_at; /* this call does not happen, nor anything after it; 0 = never */
    bool crash_tears;  /* if it is a write, half of it happens */
    bool power_fails;  /* leave <base>.0, only what was synced, to <base>.<variants - 1> */
    unsigned variants;

    uint64_t fail_from; /* this call and those after it fail with fail_errno; 0 = none */
    uint64_t fail_count;
    int fail_errno;
    bool fail_tears; /* if the first of them is a write, half of it succeeds instead */

    /* Before this call, unless it puts a new manifest.log in its place: against that moment only the
     * lock helps. 0 = never. */
    uint64_t visit_at;
    void (*visit)(void);
};

/** Sets the faults. Calls below base count as on disk. */
void disk_begin(const struct disk_orders *orders);
/** Calls counted so far. */
uint64_t disk_calls(void);
/** Number of calls that were made to fail of which the caller must not be silent. */
uint64_t disk_failed(void);
/** No more crash and no more failures. */
void disk_calm(void);

#endif
