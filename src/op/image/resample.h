/* Images in other sizes. */
#ifndef MR_OP_IMAGE_RESAMPLE_H
#define MR_OP_IMAGE_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum resample_method {
    RESAMPLE_NEAREST,
    RESAMPLE_BILINEAR, /* two neighbours, as OpenCV's INTER_LINEAR */
    RESAMPLE_AREA /* bilinear over all pixels that a smaller pixel covers, as Pillow's BILINEAR */
};

/** How one axis is sampled: of `from` pixels, those of [begin, end) become `to`. Pixel centres are at halves. */
struct resample_axis {
    uint32_t from, to;
    double begin, end;
};

/** What resample_run needs once per pair of axes; one block, freed with mr_free. NULL: no memory. */
struct resample_plan *resample_plan(enum resample_method method, const struct resample_axis *x,
                                    const struct resample_axis *y);

/** Resamples height × width × channels elements, of float if is_float, else of uint8, to the axes' sizes. `spend` (may be NULL) as in
 *  image.h: false ends it. False as well: no memory. */
bool resample_run(const struct resample_plan *plan, const void *from, void *to, size_t channels,
                  bool is_float, bool (*spend)(void *ctx, uint64_t units), void *ctx);

#endif
