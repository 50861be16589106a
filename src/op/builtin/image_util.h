/* What the ops of images share: images are [..., height, width, channels], of uint8 or float. */
#ifndef MR_OP_BUILTIN_IMAGE_UTIL_H
#define MR_OP_BUILTIN_IMAGE_UTIL_H

#include "op/image/image.h"
#include "op/image/resample.h"
#include "util.h"

/** Largest width and height that a node may ask for. */
#define IMAGE_SIDE_MAX 16384

/** A size and a way to get there: parameters width, height, method (nearest, bilinear), antialias. */
struct image_target {
    bool is_set;
    int64_t width, height;
    enum resample_method method;
};

/** Errors: MR_E_INVALID; without width and height only if `is_needed`. */
int image_target_parse(const struct mr_op_desc *d, bool is_needed, struct image_target *out,
                       struct mr_err *err);
/** A whole image to the target's size. */
int image_target_run(const struct image_target *t, struct mr_op_run *run, struct image_size from,
                     size_t channels, bool is_float, const void *in, void *out, struct mr_err *err);
/** The `spend` of image.h and resample.h, with a run as ctx. */
bool image_spend(void *run, uint64_t units);

#endif
