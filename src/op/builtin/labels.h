/* A list of texts by number: of a file with one per line, or of a parameter with commas. */
#ifndef MR_OP_BUILTIN_LABELS_H
#define MR_OP_BUILTIN_LABELS_H

#include "util.h"

struct labels {
    uint64_t count;
    mr_str *list; /* into `text` */
    char *text;
    const char *fallback; /* for numbers that have none; NULL: an error */
    char *fallback_text;
};

/** Parameters `labels` (a list), `labels_file` (in the workflow's folder, at most 16 MiB) and `default`.
 *  Errors: MR_E_INVALID (both, neither while is_needed), those of read_file. */
int labels_parse(struct labels *l, const struct mr_op_desc *d, struct mr_op_node *node,
                 bool is_needed, struct mr_err *err);
void labels_fini(struct labels *l);
/** Sets output `index` to the labels of `count` numbers, in `shape`. Errors: MR_E_INVALID (a number without label). */
int labels_output(const struct labels *l, struct mr_op_run *run, uint32_t index,
                  const struct mr_tensor *numbers, int rank, const int64_t *shape,
                  struct mr_err *err);

#endif
