/* JPEG by libjpeg (libjpeg-turbo). Its errors leave it by longjmp, so that the functions between setjmp and the library keep all
 * state in `struct reader`. The image comes from clients: warnings about broken data are errors, and a progressive image, whose every
 * scan costs the whole area, may have SCANS_MAX of them. */
#include "formats.h"
#include "pixels.h"

#include <setjmp.h>
#include <stdio.h>

#include <jerror.h>
#include <jpeglib.h>

#include "base/mem.h"

#define SCANS_MAX 100

struct reader {
    struct jpeg_decompress_struct jpeg; /* first: callbacks find the reader by it */
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf leave;
    const struct image_options *options;
    struct mr_err *err;
    int status;
    uint8_t *row;
};

static _Noreturn void on_error(j_common_ptr info)
{
    struct reader *r = (struct reader *)(void *)info;
    char text[JMSG_LENGTH_MAX];

    if (r->status == MR_OK) {
        info->err->format_message(info, text);
        r->status = info->err->msg_code == 0 ? MR_E_NOMEM : MR_E_INVALID;
        mr_err_set(r->err, r->status, MR_HERE, "a JPEG image that cannot be read: %.200s", text);
    }
    longjmp(r->leave, 1);
}

/* Level -1 is a warning: data are missing or broken. Grey pixels in their place would be a wrong answer. */
static void on_message(j_common_ptr info, int level)
{
    if (level < 0) {
        on_error(info);
    }
}

static void on_output(j_common_ptr info)
{
    (void)info;
}

/* Between blocks of rows, and between rows of a progressive image's scans. */
static void on_progress(j_common_ptr info)
{
    struct reader *r = (struct reader *)(void *)info;

    if (r->jpeg.input_scan_number > SCANS_MAX) {
        r->status = MR_FAIL(r->err, MR_E_INVALID, "a JPEG image of more than %d scans", SCANS_MAX);
        longjmp(r->leave, 1);
    }
    if (r->options->spend && !r->options->spend(r->options->ctx, 8u * r->jpeg.image_width)) {
        r->status = MR_FAIL(r->err, MR_E_CANCELLED, "cancelled");
        longjmp(r->leave, 1);
    }
}

static void reader_init(struct reader *r, struct mr_err *err)
{
    r->err = err;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = on_error;
    r->errors.emit_message = on_message;
    r->errors.output_message = on_output;
}

static void read_head(struct reader *r, mr_bytes data)
{
    jpeg_create_decompress(&r->jpeg);
    jpeg_mem_src(&r->jpeg, data.ptr, data.len);
    jpeg_read_header(&r->jpeg, TRUE);
}

int jpeg_probe(mr_bytes data, struct image_size *out, struct mr_err *err)
{
    struct reader r = {0};

    reader_init(&r, err);
    if (setjmp(r.leave) == 0) {
        read_head(&r, data);
        *out = (struct image_size){r.jpeg.image_width, r.jpeg.image_height};
    }
    jpeg_destroy_decompress(&r.jpeg);
    return r.status;
}

/* Adobe's programs write CMYK inverted. */
static void cmyk_to_rgb(uint8_t *row, size_t n, bool is_inverted)
{
    uint8_t flip = is_inverted ? 0 : 255;

    for (size_t i = 0; i < n; i++) {
        unsigned k = row[4 * i + 3] ^ flip;
        for (size_t c = 0; c < 3; c++) {
            row[3 * i + c] = (uint8_t)((row[4 * i + c] ^ flip) * k / 255);
        }
    }
}

static void read_rows(struct reader *r, struct image_size size, uint8_t *out)
{
    struct jpeg_decompress_struct *j = &r->jpeg;
    int channels = r->options->channels;
    bool is_cmyk = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;

    j->out_color_space = is_cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(j);
    if (j->output_width != size.width || j->output_height != size.height) {
        ERREXIT(j, JERR_BAD_STRUCT_SIZE);
    }
    while (j->output_scanline < j->output_height) {
        size_t y = j->output_scanline;
        JSAMPROW row = r->row;
        jpeg_read_scanlines(j, &row, 1);
        if (is_cmyk) {
            cmyk_to_rgb(r->row, size.width, j->saw_Adobe_marker);
        }
        pixels_convert(r->row, is_cmyk ? 3 : j->output_components,
                       out + y * size.width * (size_t)channels, channels, r->options->is_bgr,
                       size.width);
    }
    jpeg_finish_decompress(j);
}

int jpeg_read(mr_bytes data, const struct image_options *options, struct image_size size,
              uint8_t *out, struct mr_err *err)
{
    struct reader r = {.options = options, .progress = {.progress_monitor = on_progress}};

    reader_init(&r, err);
    r.row = mr_try_alloc((size_t)size.width * 4);
    if (!r.row) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a row of an image");
    }
    if (setjmp(r.leave) == 0) {
        read_head(&r, data);
        r.jpeg.progress = &r.progress;
        read_rows(&r, size, out);
    }
    jpeg_destroy_decompress(&r.jpeg);
    mr_free(r.row);
    return r.status;
}
