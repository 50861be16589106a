/* JPEG and PNG images as rows of bytes. */
#ifndef MR_OP_IMAGE_IMAGE_H
#define MR_OP_IMAGE_IMAGE_H

#include "base/err.h"
#include "base/str.h"

struct image_size {
    uint32_t width, height;
};

struct image_options {
    int channels;        /* 1 grey, 3 RGB, 4 RGBA */
    bool is_bgr;         /* blue first */
    uint64_t max_pixels; /* more are refused before anything is decoded */
    /** (may be NULL) Called with work done; false ends the decoding with MR_E_CANCELLED. */
    bool (*spend)(void *ctx, uint64_t units);
    void *ctx;
};

/** Size of an image, from its head. Errors: MR_E_INVALID (neither JPEG nor PNG, broken), MR_E_TOO_LARGE (more than max_pixels). */
int image_probe(mr_bytes data, const struct image_options *options, struct image_size *out,
                struct mr_err *err);
/** Decodes to `size`, which image_probe gave: height * width * channels bytes. Alpha is dropped for 1 and 3 channels, 255 where the
 *  image has none; 16 bits are cut to 8; grey is 0.299 R + 0.587 G + 0.114 B. Orientation marks are not applied.
 *  Errors: MR_E_INVALID (broken or cut), MR_E_CANCELLED, MR_E_NOMEM. `out` is undefined then. */
int image_read(mr_bytes data, const struct image_options *options, struct image_size size,
               uint8_t *out, struct mr_err *err);

#endif
