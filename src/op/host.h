/* What registry.c, node.c and run.c share. */
#ifndef MR_OP_HOST_H
#define MR_OP_HOST_H

#include <stdatomic.h>

#include "base/vec.h"
#include "op/op.h"

/** An op of a library: a copy of its table, as long as the library's is. */
struct op_entry {
    struct mr_op_kind kind;
    bool is_builtin;
};

struct mr_ops {
    MR_VEC(struct op_entry *) entries;
};

#define OP_COUNTERS_MAX     16
#define OP_COUNTER_NAME_MAX 48

struct mr_op_metric {
    char name[OP_COUNTER_NAME_MAX + 1];
    _Atomic uint64_t value; /* relaxed: a figure for people */
};

struct mr_op {
    const struct op_entry *entry;
    void *object;
    struct mr_op_signature signature;
    struct mr_op_io *outputs; /* those of `signature`, the op's own */
    struct mr_op_io *inputs;  /* what it was created for, likewise */
    char **names;             /* of outputs */
    uint32_t input_count, output_count;
    uint32_t counter_count;
    struct mr_op_metric counters[OP_COUNTERS_MAX];
};

/** The services of op.h of one run, and of `create`. */
int op_run_output(struct mr_op_run *run, uint32_t index, int32_t dtype, int32_t rank,
                  const int64_t *shape, uint64_t byte_size, void **out_data, struct mr_err *err);
int op_run_output_view(struct mr_op_run *run, uint32_t index, uint32_t input, uint64_t offset,
                       int32_t dtype, int32_t rank, const int64_t *shape, uint64_t byte_size,
                       struct mr_err *err);
int op_run_output_in_place(struct mr_op_run *run, uint32_t index, uint32_t input, int32_t dtype,
                           int32_t rank, const int64_t *shape, void **out_data, struct mr_err *err);
int op_run_spend(struct mr_op_run *run, uint64_t units);
int op_node_read_file(struct mr_op_node *node, const char *path, uint64_t max_bytes,
                      const char **out_data, uint64_t *out_bytes, struct mr_err *err);
int op_node_counter(struct mr_op_node *node, const char *name, struct mr_op_metric **out,
                    struct mr_err *err);
void op_node_count(struct mr_op_metric *metric, uint64_t n);

/** The op of a name. Errors: MR_E_NOT_FOUND. */
int op_registry_find(const struct mr_ops *ops, mr_str name, const struct op_entry **out,
                     struct mr_err *err);

/** The op's result as a status: what is no status is MR_E_INTERNAL, messages are ended and never empty. */
int op_result(const struct op_entry *e, const char *what, int rc, struct mr_err *err);

#endif
