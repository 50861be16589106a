/* Tells the formats apart and holds the limit on pixels. */
#include "image.h"

#include "formats.h"

static bool is_jpeg(mr_bytes data)
{
    return data.len >= 3 && memcmp(data.ptr, "\xff\xd8\xff", 3) == 0;
}

static bool is_png(mr_bytes data)
{
    return data.len >= 8 && memcmp(data.ptr, "\x89PNG\r\n\x1a\n", 8) == 0;
}

int image_probe(mr_bytes data, const struct image_options *options, struct image_size *out,
                struct mr_err *err)
{
    struct image_size size;
    int rc;

    if (is_jpeg(data)) {
        rc = jpeg_probe(data, &size, err);
    } else if (is_png(data)) {
        rc = png_probe(data, &size, err);
    } else {
        rc = MR_FAIL(err, MR_E_INVALID, "%zu bytes that are neither a JPEG nor a PNG image",
                     data.len);
    }
    if (rc < 0) {
        return rc;
    }
    if (size.width == 0 || size.height == 0) {
        return MR_FAIL(err, MR_E_INVALID, "an image without pixels");
    }
    if ((uint64_t)size.width * size.height > options->max_pixels) {
        return MR_FAIL(err, MR_E_TOO_LARGE,
                       "an image of %u x %u pixels; at most %llu pixels are allowed", size.width,
                       size.height, (unsigned long long)options->max_pixels);
    }
    *out = size;
    return MR_OK;
}

int image_read(mr_bytes data, const struct image_options *options, struct image_size size,
               uint8_t *out, struct mr_err *err)
{
    return is_jpeg(data) ? jpeg_read(data, options, size, out, err)
                         : png_read(data, options, size, out, err);
}
