/* Pixels of one format as those of another. */
#ifndef MR_OP_IMAGE_PIXELS_H
#define MR_OP_IMAGE_PIXELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** `n` pixels of `from_channels` (1 grey, 2 grey and alpha, 3 RGB, 4 RGBA) as those of `to_channels` (1, 3, 4). */
void pixels_convert(const uint8_t *from, int from_channels, uint8_t *to, int to_channels,
                    bool is_bgr, size_t n);

#endif
