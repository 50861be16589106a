/* PNG by libpng. Its errors leave it by longjmp, so that the functions between setjmp and the library keep all state in `struct
 * reader`. Ancillary chunks are skipped, which bounds their memory; the pixels are bounded by image_probe. */
#include "formats.h"
#include "pixels.h"

#include <png.h>

#include "base/mem.h"

struct reader {
    png_structp png;
    png_infop info;
    mr_bytes rest;
    struct mr_err *err;
    int status;
    uint8_t *rows; /* one row; all of them if interlaced */
};

static _Noreturn void on_error(png_structp png, png_const_charp text)
{
    struct reader *r = png_get_error_ptr(png);

    if (r->status == MR_OK) {
        r->status = MR_FAIL(r->err, MR_E_INVALID, "a PNG image that cannot be read: %.200s", text);
    }
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    struct reader *r = png_get_io_ptr(png);

    if (r->rest.len < n) {
        png_error(png, "the end is missing");
    }
    memcpy(to, r->rest.ptr, n);
    r->rest.ptr += n;
    r->rest.len -= n;
}

static int reader_open(struct reader *r, mr_bytes data, struct mr_err *err)
{
    r->err = err;
    r->rest = data;
    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    r->info = r->png ? png_create_info_struct(r->png) : NULL;
    if (!r->info) {
        png_destroy_read_struct(&r->png, NULL, NULL);
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a PNG image");
    }
    png_set_read_fn(r->png, r, on_read);
    /* only what pixels need: no text, no profile */
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    return MR_OK;
}

int png_probe(mr_bytes data, struct image_size *out, struct mr_err *err)
{
    struct reader r = {0};
    int rc = reader_open(&r, data, err);

    if (rc < 0) {
        return rc;
    }
    if (setjmp(png_jmpbuf(r.png)) == 0) {
        png_read_info(r.png, r.info);
        *out = (struct image_size){png_get_image_width(r.png, r.info),
                                   png_get_image_height(r.png, r.info)};
    }
    png_destroy_read_struct(&r.png, &r.info, NULL);
    return r.status;
}

static void spend(struct reader *r, const struct image_options *options, size_t units)
{
    if (options->spend && !options->spend(options->ctx, units)) {
        r->status = MR_FAIL(r->err, MR_E_CANCELLED, "cancelled");
        png_longjmp(r->png, 1);
    }
}

/* Rows of an interlaced image are complete after the last pass only. */
static void read_rows(struct reader *r, const struct image_options *options, struct image_size size,
                      uint8_t *out)
{
    size_t row_bytes = png_get_rowbytes(r->png, r->info);
    int channels = png_get_channels(r->png, r->info);
    int passes = png_set_interlace_handling(r->png);
    size_t to_bytes = (size_t)size.width * (size_t)options->channels;

    r->rows = mr_try_alloc(row_bytes * (passes > 1 ? size.height : 1));
    if (!r->rows) {
        r->status = MR_FAIL(r->err, MR_E_NOMEM, "no memory for a PNG image");
        png_longjmp(r->png, 1);
    }
    for (int pass = 0; pass < passes; pass++) {
        for (size_t y = 0; y < size.height; y++) {
            uint8_t *row = passes > 1 ? r->rows + y * row_bytes : r->rows;
            png_read_row(r->png, row, NULL);
            spend(r, options, 4 * (size_t)size.width);
            if (pass == passes - 1) {
                pixels_convert(row, channels, out + y * to_bytes, options->channels,
                               options->is_bgr, size.width);
            }
        }
    }
    png_read_end(r->png, NULL);
}

static void read_pixels(struct reader *r, const struct image_options *options,
                        struct image_size size, uint8_t *out)
{
    png_read_info(r->png, r->info);
    if (png_get_image_width(r->png, r->info) != size.width ||
        png_get_image_height(r->png, r->info) != size.height) {
        png_error(r->png, "another size than before");
    }
    png_set_expand(r->png); /* palettes, few bits, transparent colors */
    png_set_strip_16(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    read_rows(r, options, size, out);
}

int png_read(mr_bytes data, const struct image_options *options, struct image_size size,
             uint8_t *out, struct mr_err *err)
{
    struct reader r = {0};
    int rc = reader_open(&r, data, err);

    if (rc < 0) {
        return rc;
    }
    if (setjmp(png_jmpbuf(r.png)) == 0) {
        read_pixels(&r, options, size, out);
    }
    png_destroy_read_struct(&r.png, &r.info, NULL);
    mr_free(r.rows);
    return r.status;
}
