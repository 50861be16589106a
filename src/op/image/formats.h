/* The formats that image.h offers: each decodes rows into the caller's memory. */
#ifndef MR_OP_IMAGE_FORMATS_H
#define MR_OP_IMAGE_FORMATS_H

#include "image.h"

/** As image_probe without the limit, and image_read. */
int jpeg_probe(mr_bytes data, struct image_size *out, struct mr_err *err);
int jpeg_read(mr_bytes data, const struct image_options *options, struct image_size size,
              uint8_t *out, struct mr_err *err);
int png_probe(mr_bytes data, struct image_size *out, struct mr_err *err);
int png_read(mr_bytes data, const struct image_options *options, struct image_size size,
             uint8_t *out, struct mr_err *err);

#endif
