/* Images: what Pillow makes of the same files and sizes (make_images.py), hostile files, parameters. */
#include "op_test.h"

#include <math.h>

#include "images.inc"

/* A BYTES tensor of one or two elements. */
static uint8_t packed[4096];
static size_t packed_bytes;

static const void *pack(const void *a, size_t a_len, const void *b, size_t b_len)
{
    uint32_t len = (uint32_t)a_len;

    memcpy(packed, &len, 4);
    memcpy(packed + 4, a, a_len);
    packed_bytes = 4 + a_len;
    if (b) {
        len = (uint32_t)b_len;
        memcpy(packed + packed_bytes, &len, 4);
        memcpy(packed + packed_bytes + 4, b, b_len);
        packed_bytes += 4 + b_len;
    }
    return packed;
}

static struct node_case decode_case(const void *data, size_t len)
{
    pack(data, len, NULL, 0);
    return (struct node_case){
        .op = "image.decode",
        .inputs = {{"bytes", MR_DTYPE_BYTES, 1, {1}, packed, packed_bytes, NULL}},
        .outputs = {"image"}};
}

static int distance(const uint8_t *a, const uint8_t *b, size_t n)
{
    int most = 0;

    for (size_t i = 0; i < n; i++) {
        most = MR_MAX(most, abs(a[i] - b[i]));
    }
    return most;
}

static void formats(void **state)
{
    (void)state;
    const struct {
        const char *name, *channels;
        const uint8_t *file;
        size_t len;
        const uint8_t *pixels;
        int most; /* difference from Pillow's */
    } rows[] = {
        {"rgb", "3", png_rgb, sizeof png_rgb, rgb, 0},
        {"rgb to grey", "1", png_rgb, sizeof png_rgb, rgb_as_grey, 0},
        {"interlaced", "3", png_interlaced, sizeof png_interlaced, rgb, 0},
        {"rgba", "3", png_rgba, sizeof png_rgba, rgb, 0},
        {"grey", "1", png_grey, sizeof png_grey, rgb_as_grey, 0},
        {"grey of 16 bits", "1", png_grey16, sizeof png_grey16, rgb_as_grey, 0},
        {"one bit", "1", png_1bit, sizeof png_1bit, bits_as_grey, 0},
        {"palette", "3", png_palette, sizeof png_palette, palette_as_rgb, 0},
        {"jpeg", "3", jpeg_rgb, sizeof jpeg_rgb, jpeg_as_rgb, 2},
        {"progressive", "3", jpeg_progressive, sizeof jpeg_progressive, jpeg_as_rgb, 2},
        {"grey jpeg", "1", jpeg_grey, sizeof jpeg_grey, jpeg_grey_as_grey, 2},
        {"cmyk jpeg", "3", jpeg_cmyk, sizeof jpeg_cmyk, cmyk_as_rgb, 3},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct node_case c = decode_case(rows[i].file, rows[i].len);
        struct node n;
        int channels = rows[i].channels[0] - '0';
        c.settings[0] = "channels";
        c.settings[1] = rows[i].channels;
        node_do(&n, &c);
        const struct mr_tensor *t = &n.out[0].tensor;
        CHECK_ROW(t->rank == 3 && t->shape[0] == 5 && t->shape[1] == 7 && t->shape[2] == channels,
                  i, "%s", rows[i].name);
        int d = distance(t->data, rows[i].pixels, t->bytes);
        CHECK_ROW(d <= rows[i].most, i, "%s: %d", rows[i].name, d);
        node_close(&n);
    }
}

static void channels_and_order(void **state)
{
    (void)state;
    struct node_case c = decode_case(png_rgba, sizeof png_rgba);
    struct node n;

    c.settings[0] = "channels";
    c.settings[1] = "4";
    c.settings[2] = "order";
    c.settings[3] = "BGR";
    node_do(&n, &c);
    const uint8_t *p = n.out[0].tensor.data;
    assert_true(p[4] == rgb[5] && p[5] == rgb[4] && p[6] == rgb[3] && p[7] == 128);
    node_close(&n);
    c = decode_case(png_grey, sizeof png_grey);
    c.settings[0] = "channels";
    c.settings[1] = "4";
    node_do(&n, &c);
    p = n.out[0].tensor.data;
    assert_true(p[4] == rgb_as_grey[1] && p[5] == p[4] && p[6] == p[4] && p[7] == 255);
    node_close(&n);
}

static void several_images(void **state)
{
    (void)state;
    static const int64_t two[] = {2};
    static uint8_t both[2 * sizeof rgb];
    struct node_case c = {.op = "image.decode",
                          .inputs = {{"bytes", MR_DTYPE_BYTES, 1, {-1}, packed, 0, two}},
                          .outputs = {"image"}};
    struct node n;

    pack(png_rgb, sizeof png_rgb, png_interlaced, sizeof png_interlaced);
    c.inputs[0].bytes = packed_bytes;
    memcpy(both, rgb, sizeof rgb);
    memcpy(both + sizeof rgb, rgb, sizeof rgb);
    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (2, 5, 7, 3), both);
    node_close(&n);
    /* a batch of elements [-1, 1] loses the last dimension */
    static const int64_t two_one[] = {2, 1};
    c.inputs[0].rank = 2;
    c.inputs[0].dims[1] = 1;
    c.inputs[0].shape = two_one;
    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (2, 5, 7, 3), both);
    node_close(&n);
    /* resized, images of different sizes fit together */
    c.settings[0] = "width";
    c.settings[1] = "7";
    c.settings[2] = "height";
    c.settings[3] = "5";
    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (2, 5, 7, 3), both);
    node_close(&n);
}

static void hostile_files(void **state)
{
    (void)state;
    static uint8_t file[2048];
    struct node_case c;

    c = decode_case("GIF89a", 6);
    expect_refused(&c, MR_E_INVALID, "6 bytes that are neither a JPEG nor a PNG image");
    c = decode_case("", 0);
    expect_refused(&c, MR_E_INVALID, "0 bytes that are neither");
    for (size_t len = 8; len < sizeof png_rgb - 12; len++) {
        c = decode_case(png_rgb, len);
        expect_refused(&c, MR_E_INVALID, "a PNG image that cannot be read");
    }
    for (size_t len = 3; len < sizeof jpeg_rgb - 2; len += 7) {
        c = decode_case(jpeg_rgb, len);
        expect_refused(&c, MR_E_INVALID, "a JPEG image that cannot be read");
    }
    /* a head that promises 2^31 - 1 pixels a side: the limit speaks before memory is asked for */
    memcpy(file, png_rgb, sizeof png_rgb);
    static const uint8_t head[] = {0,  0, 0, 13, 'I', 'H', 'D', 'R', 0,    15,   0,    0,   0,
                                   15, 0, 0, 8,  2,   0,   0,   0,   0xd5, 0xa4, 0x96, 0x64};
    memcpy(file + 8, head, sizeof head);
    c = decode_case(file, sizeof png_rgb);
    struct mr_err err = {0};
    struct node n;
    assert_int_equal(node_open(&n, &c, &err), MR_OK);
    assert_true(node_run(&n, c.inputs, &err) < 0); /* a wrong checksum or too many pixels */
    node_close(&n);
    /* the same for JPEG, whose head has no checksum: 65500 x 65500 */
    memcpy(file, jpeg_rgb, sizeof jpeg_rgb);
    uint8_t *sof = NULL;
    for (size_t i = 0; i + 9 < sizeof jpeg_rgb && !sof; i++) {
        sof = file[i] == 0xff && file[i + 1] == 0xc0 ? file + i : NULL;
    }
    assert_non_null(sof);
    sof[5] = sof[7] = 0xff;
    sof[6] = sof[8] = 0xdc;
    c = decode_case(file, sizeof jpeg_rgb);
    expect_refused(&c, MR_E_TOO_LARGE,
                   "an image of 65500 x 65500 pixels; at most 16777216 pixels are allowed");
    c = decode_case(png_rgb, sizeof png_rgb);
    c.settings[0] = "max_pixels";
    c.settings[1] = "34";
    expect_refused(&c, MR_E_TOO_LARGE, "an image of 7 x 5 pixels; at most 34 pixels are allowed");
    c.settings[1] = "35";
    node_do(&n, &c);
    node_close(&n);
}

static void images_of_other_sizes(void **state)
{
    (void)state;
    static const int64_t two[] = {2};
    struct node_case c = {.op = "image.decode",
                          .inputs = {{"bytes", MR_DTYPE_BYTES, 1, {-1}, packed, 0, two}},
                          .outputs = {"image"}};
    static uint8_t other[sizeof jpeg_rgb];

    memcpy(other, jpeg_rgb, sizeof other);
    for (size_t i = 0; i + 9 < sizeof other; i++) {
        if (other[i] == 0xff && other[i + 1] == 0xc0) {
            other[i + 8] = 6; /* columns */
        }
    }
    pack(png_rgb, sizeof png_rgb, other, sizeof other);
    c.inputs[0].bytes = packed_bytes;
    expect_refused(&c, MR_E_INVALID,
                   "image 1 is 6 x 5, image 0 is 7 x 5; parameters width and height of the node "
                   "make them equal");
}

static struct node_case resize_case(const char *width, const char *height, const char *method)
{
    return (struct node_case){
        .op = "image.resize",
        .settings = {"width", width, "height", height, "method", method},
        .inputs = {{"image", MR_DTYPE_UINT8, 3, {5, 7, 3}, rgb, sizeof rgb, NULL}},
        .outputs = {"image"}};
}

static void sizes(void **state)
{
    (void)state;
    const struct {
        const char *width, *height, *method;
        const uint8_t *pixels;
        size_t len;
        int most;
    } rows[] = {
        {"3", "2", "bilinear", bilinear_3x2, sizeof bilinear_3x2, 1},
        {"14", "11", "bilinear", bilinear_14x11, sizeof bilinear_14x11, 1},
        {"3", "2", "nearest", nearest_3x2, sizeof nearest_3x2, 0},
        {"14", "11", "nearest", nearest_14x11, sizeof nearest_14x11, 0},
        {"7", "5", "bilinear", rgb, sizeof rgb, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct node_case c = resize_case(rows[i].width, rows[i].height, rows[i].method);
        struct node n;
        node_do(&n, &c);
        assert_int_equal(n.out[0].tensor.bytes, rows[i].len);
        int d = distance(n.out[0].tensor.data, rows[i].pixels, rows[i].len);
        CHECK_ROW(d <= rows[i].most, i, "%s %s x %s: %d", rows[i].method, rows[i].width,
                  rows[i].height, d);
        node_close(&n);
    }
}

/* Two neighbours at half-pixel centres: of 4 columns to 2, columns 0.5 and 2.5; up, with the borders repeated. */
static void bilinear_without_antialias(void **state)
{
    (void)state;
    static const float in[] = {0, 10, 20, 60};
    static const float down[] = {5, 40}, up[] = {0, 2.5f, 7.5f, 12.5f, 17.5f, 30, 50, 60};
    struct node_case c = {.op = "image.resize",
                          .settings = {"width", "2", "height", "1", "antialias", "false"},
                          .inputs = {{"image", MR_DTYPE_FP32, 3, {1, 4, 1}, in, sizeof in, NULL}},
                          .outputs = {"image"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (1, 2, 1), down);
    node_close(&n);
    c.settings[1] = "8";
    node_do(&n, &c);
    EXPECT(&n, 0, FP32, (1, 8, 1), up);
    node_close(&n);
}

static void odd_images_to_resize(void **state)
{
    (void)state;
    static const int64_t none[] = {0, 7, 3}, no_images[] = {0, 5, 7, 3};
    struct node_case c = resize_case("2", "2", "bilinear");
    struct node n;

    c.inputs[0].dims[0] = -1;
    c.inputs[0].shape = none;
    c.inputs[0].bytes = 0;
    expect_refused(&c, MR_E_INVALID, "an image of 7 x 0 pixels");
    c.inputs[0].rank = 4;
    memcpy(c.inputs[0].dims, (int64_t[]){-1, 5, 7, 3}, 32);
    c.inputs[0].shape = no_images;
    node_do(&n, &c);
    expect_output(&n, 0, MR_DTYPE_UINT8, 4, SHAPE(0, 2, 2, 3), "", 0);
    node_close(&n);
}

static void crops(void **state)
{
    (void)state;
    static const float boxes[] = {
        1, 1, 5.5f, 4, /* whole: */ -3, -3, 100, 100, /* none: */ 5, 5, 5, 5, 9, 0, 20, 3};
    static const int64_t four[] = {4, 4};
    struct node_case c = {
        .op = "image.crop_resize",
        .settings = {"width", "3", "height", "3"},
        .inputs = {{"image", MR_DTYPE_UINT8, 3, {-1, -1, 3}, rgb, sizeof rgb, (int64_t[]){5, 7, 3}},
                   {"boxes", MR_DTYPE_FP32, 2, {-1, 4}, boxes, sizeof boxes, four}},
        .outputs = {"crops"}};
    struct node_case whole = resize_case("3", "3", "bilinear");
    static const uint8_t black[27];
    struct node n, w;

    node_do(&n, &c);
    node_do(&w, &whole);
    assert_int_equal(n.out[0].tensor.shape[0], 4);
    const uint8_t *p = n.out[0].tensor.data;
    assert_true(distance(p, crop_3x3, 27) <= 1);
    assert_memory_equal(p + 27, w.out[0].tensor.data, 27);
    assert_memory_equal(p + 54, black, 27);
    assert_memory_equal(p + 81, black, 27);
    node_close(&n);
    node_close(&w);
    /* the first box in the other forms */
    static const struct {
        const char *format, *coordinates;
        float box[4];
    } forms[] = {{"xywh", "pixel", {1, 1, 4.5f, 3}},
                 {"yxyx", "pixel", {1, 1, 4, 5.5f}},
                 {"xyxy", "normalized", {1.0f / 7, 1.0f / 5, 5.5f / 7, 4.0f / 5}}};
    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        c.settings[4] = "format";
        c.settings[5] = forms[i].format;
        c.settings[6] = "coordinates";
        c.settings[7] = forms[i].coordinates;
        c.inputs[1].data = forms[i].box;
        c.inputs[1].bytes = 16;
        c.inputs[1].shape = (const int64_t[]){1, 4};
        node_do(&n, &c);
        CHECK_ROW(distance(n.out[0].tensor.data, crop_3x3, 27) <= 1, i, "%s", forms[i].format);
        node_close(&n);
    }
}

static void odd_boxes(void **state)
{
    (void)state;
    static const float nan_box[] = {0.0f / 0.0f, 0, 3, 3};
    static const float many[4 * 3];
    static const int64_t three[] = {3, 4}, wide[] = {2, 5};
    static const uint8_t black[12];
    struct node_case c = {
        .op = "image.crop_resize",
        .settings = {"width", "2", "height", "2", "max_boxes", "2"},
        .inputs =
            {{"image", MR_DTYPE_UINT8, 3, {5, 7, 3}, rgb, sizeof rgb, NULL},
             {"boxes", MR_DTYPE_FP32, 2, {-1, -1}, nan_box, sizeof nan_box, (int64_t[]){1, 4}}},
        .outputs = {"crops"}};
    struct node n;

    node_do(&n, &c);
    EXPECT(&n, 0, UINT8, (1, 2, 2, 3), black);
    node_close(&n);
    c.inputs[1].data = many;
    c.inputs[1].bytes = sizeof many;
    c.inputs[1].shape = three;
    expect_refused(&c, MR_E_TOO_LARGE, "3 boxes; at most 2 are allowed (max_boxes)");
    c.inputs[1].bytes = 40;
    c.inputs[1].shape = wide;
    expect_refused(&c, MR_E_INVALID, "boxes of 5 numbers; a box has 4");
}

static void normalize(void **state)
{
    (void)state;
    static const uint8_t in[] = {0, 255, 51, 102, 204, 153};
    static const float hwc[] = {-0.5f, 2, -0.3f, -0.1f, 1.6f, 0.1f};
    static const float chw[] = {-0.5f, -0.1f, 2, 1.6f, -0.3f, 0.1f};
    struct node_case c = {
        .op = "image.normalize",
        .settings = {"scale", "0.00392156862745098", "mean", "0.5, 0, 0.5", "std", "1,0.5,1"},
        .inputs = {{"image", MR_DTYPE_UINT8, 3, {1, 2, 3}, in, sizeof in, NULL}},
        .outputs = {"image"}};
    struct node n;

    for (int i = 0; i < 2; i++) {
        c.settings[6] = "layout";
        c.settings[7] = i ? "CHW" : "HWC";
        node_do(&n, &c);
        const float *p = n.out[0].tensor.data;
        for (int k = 0; k < 6; k++) {
            assert_true(fabsf(p[k] - (i ? chw : hwc)[k]) < 1e-6f);
        }
        assert_int_equal(n.out[0].tensor.shape[i ? 0 : 2], 3);
        node_close(&n);
    }
    c.settings[8] = "dtype";
    c.settings[9] = "FP16";
    node_do(&n, &c);
    assert_int_equal(((const uint16_t *)n.out[0].tensor.data)[0], 0xb800);
    node_close(&n);
}

static void parameters(void **state)
{
    (void)state;
    struct node_case c = decode_case(png_rgb, sizeof png_rgb);

    c.settings[0] = "channels";
    c.settings[1] = "2";
    expect_no_node(&c, "op 'image.decode': parameter 'channels' is '2', expected 1, 3 or 4");
    c.settings[1] = "5";
    expect_no_node(&c, "parameter 'channels' is '5', expected a whole number 1..4");
    c.settings[0] = "chanels";
    expect_no_node(&c, "unknown parameter 'chanels'");
    c.settings[0] = "order";
    c.settings[1] = "GBR";
    expect_no_node(&c, "parameter 'order' is 'GBR', expected one of RGB, BGR");
    c.settings[0] = "width";
    c.settings[1] = "3";
    expect_no_node(&c, "parameter 'height' is missing");
    c.settings[0] = NULL;
    c.inputs[0].dtype = MR_DTYPE_UINT8;
    expect_no_node(&c, "input 'bytes' is UINT8, expected BYTES");
    c.inputs[0].name = "image";
    expect_no_node(&c, "input_map has no 'bytes'");
    c.op = "image.decoder";
    expect_no_node(&c, "there is no op 'image.decoder'; did you mean 'image.decode'?");
    c = resize_case("0", "2", "bilinear");
    expect_no_node(&c, "parameter 'width' is '0', expected a whole number 1..16384");
    c = resize_case("2", "2", "cubic");
    expect_no_node(&c, "parameter 'method' is 'cubic', expected one of nearest, bilinear");
    c.op = "image.normalize";
    c.settings[0] = "std";
    c.settings[1] = "1,0,1";
    c.settings[2] = NULL;
    expect_no_node(&c, "parameter 'std' has a 0");
    c.settings[1] = "1,2";
    expect_no_node(&c, "parameter 'std' has 2 numbers for 3 channels");
    c.settings[1] = "1,x";
    expect_no_node(&c, "parameter 'std': 'x' is no number");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats),
        cmocka_unit_test(channels_and_order),
        cmocka_unit_test(several_images),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(images_of_other_sizes),
        cmocka_unit_test(sizes),
        cmocka_unit_test(bilinear_without_antialias),
        cmocka_unit_test(odd_images_to_resize),
        cmocka_unit_test(crops),
        cmocka_unit_test(odd_boxes),
        cmocka_unit_test(normalize),
        cmocka_unit_test(parameters),
    };
    return cmocka_run_group_tests(tests, ops_setup, ops_teardown);
}
