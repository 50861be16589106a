/* The ops that come with Millrace, as a library of the op ABI. docs/workflows.md describes each. */
#ifndef MR_OP_BUILTIN_BUILTIN_H
#define MR_OP_BUILTIN_BUILTIN_H

#include "millrace/op.h"

/** As mr_op_entry_v1 of a library. */
int builtin_entry(const struct mr_op_host *host, const struct mr_op_library **out,
                  struct mr_err *err);

extern const struct mr_op_kind image_decode_kind, image_resize_kind, image_crop_resize_kind,
    image_normalize_kind;
extern const struct mr_op_kind topk_kind, labels_kind, threshold_kind, select_kind;
extern const struct mr_op_kind concat_kind, split_kind, stack_kind, cast_kind, scale_kind;
extern const struct mr_op_kind json_parse_kind, json_format_kind;

#endif
