/* The system's counters of a server's process on this machine, read from /proc, to explain noisy times. */
#ifndef MR_CLI_PERF_COUNTERS_H
#define MR_CLI_PERF_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

/** Counts of a thread, or of all threads with a name. */
struct perf_thread {
    char name[16];
    int64_t id;
    uint64_t born; /* distinguishes threads with the same id */
    uint64_t minor_faults;
    uint64_t major_faults;
    uint64_t voluntary; /* context switches */
    uint64_t involuntary;
    uint64_t delay_ns; /* runnable without a CPU */
    unsigned threads;  /* at once */
};

/** A snapshot. Release with perf_counters_fini. */
struct perf_counters {
    uint64_t rss_bytes;
    uint64_t maps;  /* lines of /proc/PID/maps; 0: not readable */
    uint64_t steal; /* of this machine's CPUs, in ticks; then their total time */
    uint64_t ticks;
    MR_VEC(struct perf_thread) threads;
};

/** pid 0: the machine only. Errors: MR_E_NOT_FOUND (no such process, or no permission). */
int perf_counters_read(int pid, struct perf_counters *out, struct mr_err *err);
void perf_counters_fini(struct perf_counters *f);
/** Share of the CPUs' time that others on the same host took. */
double perf_counters_steal(const struct perf_counters *before, const struct perf_counters *after);
struct perf_thread_list {
    struct perf_thread *at;
    size_t len;
    size_t cap;
};
/** The difference between two snapshots, a row for each name of a thread. Threads that have ended are not included. */
void perf_counters_since(const struct perf_counters *before, const struct perf_counters *after,
                         struct perf_thread_list *out);
/** Adds the rows of `from`, name by name. */
void perf_threads_add(struct perf_thread_list *into, const struct perf_thread_list *from);

/** The row of a name; a row of zeros if there is none. */
const struct perf_thread *perf_threads_find(const struct perf_thread_list *names, const char *name);

/* Parse texts of the kernel; false if they are invalid. */
bool perf_stat_parse(mr_str text, struct perf_thread *out);   /* /proc/PID/task/TID/stat */
void perf_status_parse(mr_str text, struct perf_thread *out); /* .../status: the switches */
bool perf_steal_parse(mr_str text, uint64_t *out_steal, uint64_t *out_ticks); /* /proc/stat */

#endif
