/* Shared by the files of `base` and its tests. Private. */
#ifndef MR_BASE_PRIV_H
#define MR_BASE_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/machine.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/str.h"

/* Marks memory as not accessible. No effect outside an ASan build. */
#ifdef MR_WITH_ASAN
#    include <sanitizer/asan_interface.h>
#    define MR_POISON(ptr, bytes)   ASAN_POISON_MEMORY_REGION((ptr), (bytes))
#    define MR_UNPOISON(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION((ptr), (bytes))
#else
#    define MR_POISON(ptr, bytes)   ((void)(ptr), (void)(bytes))
#    define MR_UNPOISON(ptr, bytes) ((void)(ptr), (void)(bytes))
#endif

/** True when the test hook mr_mem_fail_after says that this allocation fails. */
bool mr_mem_must_fail(void);
/** NULL without memory; not zeroed; align a power of two. Free with mr_free. */
void *mr_mem_try_aligned(size_t align, size_t bytes);

/** Moves the slot's small blocks to the shared cache. Thread: the owner of `slot`, before it releases it. */
void mr_pool_slot_end(unsigned slot);

/** Bytes of the well-formed UTF-8 sequence that `s` begins with; 0 when it begins with none. */
size_t mr_utf8_step(mr_str s);

/** CPUs that a cgroup's cpu.max ("max 100000", "150000 100000") allows, rounded up; 0 = no limit
 *  or not understood. */
unsigned mr_cpu_quota_parse(mr_str text);
/** mr_cgroup_look_fn: lowers an `unsigned` to that of this cgroup, if it has one; 0 = none yet. */
void mr_cpu_quota_look(void *ctx, const char *dir);
/** mr_cgroup_look_fn: lowers a `uint64_t` to the memory limit of this cgroup. */
void mr_memory_look(void *ctx, const char *dir);
/** Calls look with the cgroup `path` ("/a/b") below `root` and then with its parents, `root` included. */
void mr_cgroups_below(const char *root, mr_str path, mr_cgroup_look_fn *look, void *ctx);

/** The two implementations of mr_crc32c. */
bool mr_crc32c_has_instruction(void);
uint32_t mr_crc32c_by_instruction(uint32_t crc, const void *data, size_t len);
uint32_t mr_crc32c_by_table(uint32_t crc, const void *data, size_t len);

/* ---- options*.c ---- */

/* One value as given, not yet checked. Strings are borrowed or owned by the options. */
struct option_given {
    const struct mr_option *row;
    const char *text;
    enum mr_option_source source;
    const char *where; /* "FILE:LINE" or the variable's name */
    const char *file;
};

struct option_givens {
    MR_VEC(struct option_given) list;
};

/** The row of this name, or NULL. */
const struct mr_option *mr_option_find(const struct mr_options *o, mr_str name);
/** A copy that lives until mr_options_fini. */
const char *mr_option_keep(struct mr_options *o, mr_str text);
/** printf into such a copy. */
const char *mr_option_keepf(struct mr_options *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** MR_E_INVALID for a name that is in no row; `where` as "FILE:LINE: ", `dashes` as "--". */
int mr_option_unknown(const struct mr_options *o, const char *where, const char *dashes,
                      mr_str name, struct mr_err *err);

/** Check one value and store it at the target (LIST: check only). `label` begins the text of errors. */
int mr_option_store(const struct mr_option *row, void *target, const char *label, const char *text,
                    struct mr_err *err);
/** true, on, 1, false, off, 0 in any case, as Triton's options take them. False: none of these. */
bool mr_option_bool(mr_str text, bool *out);
/** "0 to 65535", "0 s to 1 h"; empty when the row has no bounds worth showing. */
void mr_option_range(const struct mr_option *row, struct mr_buf *out);

/** Appends the values of the config file. */
int mr_option_read_file(struct mr_options *o, const char *path, struct option_givens *out,
                        struct mr_err *err);

#endif
