#include "pixels.h"

/* The weights of ITU-R BT.601 in 16 bits, as libjpeg and Pillow have them. */
static uint8_t grey_of(uint32_t r, uint32_t g, uint32_t b)
{
    return (uint8_t)((19595 * r + 38470 * g + 7471 * b + 0x8000) >> 16);
}

void pixels_convert(const uint8_t *from, int from_channels, uint8_t *to, int to_channels,
                    bool is_bgr, size_t n)
{
    bool has_color = from_channels >= 3;
    bool has_alpha = from_channels == 2 || from_channels == 4;

    for (size_t i = 0; i < n; i++, from += from_channels, to += to_channels) {
        uint8_t r = from[0];
        uint8_t g = has_color ? from[1] : r;
        uint8_t b = has_color ? from[2] : r;
        if (to_channels == 1) {
            to[0] = has_color ? grey_of(r, g, b) : r;
            continue;
        }
        to[0] = is_bgr ? b : r;
        to[1] = g;
        to[2] = is_bgr ? r : b;
        if (to_channels == 4) {
            to[3] = has_alpha ? from[from_channels - 1] : 255;
        }
    }
}
