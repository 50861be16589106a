#include "builtin.h"

#include "util.h"

int builtin_entry(const struct mr_op_host *host, const struct mr_op_library **out,
                  struct mr_err *err)
{
    static const struct mr_op_kind *const kinds[] = {
        &image_decode_kind,    &image_resize_kind, &image_crop_resize_kind,
        &image_normalize_kind, &topk_kind,         &labels_kind,
        &threshold_kind,       &select_kind,       &concat_kind,
        &split_kind,           &stack_kind,        &cast_kind,
        &scale_kind,           &json_parse_kind,   &json_format_kind,
    };
    static const struct mr_op_library library = {.size = sizeof library,
                                                 .abi_minor = MR_OP_ABI_MINOR,
                                                 .version = MR_VERSION,
                                                 .kind_count = sizeof kinds / sizeof kinds[0],
                                                 .kinds = kinds};

    (void)err;
    builtin_host = host;
    *out = &library;
    return MR_OK;
}
