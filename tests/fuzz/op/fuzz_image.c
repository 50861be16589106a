/* image.decode: whatever the bytes, an image of the size that its shape says, or an error with words; no more pixels than allowed. */
#include "fuzz_op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mr_setting plain[] = {{"max_pixels", "65536"}};
    static const struct mr_setting resized[] = {
        {"max_pixels", "65536"}, {"width", "5"}, {"height", "3"}, {"channels", "1"}};
    static const struct mr_op_io outputs[] = {{.name = "image", .rank = -1}};
    static struct mr_op *ops[2];

    if (!ops[0]) {
        ops[0] = fuzz_create("image.decode", "bytes", plain, 1, outputs, 1);
        ops[1] = fuzz_create("image.decode", "bytes", resized, 4, outputs, 1);
    }
    fuzz_run(ops[0], data, size, 1);
    fuzz_run(ops[1], data, size, 1);
    return 0;
}
