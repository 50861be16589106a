/* json.parse: whatever the text, tensors that fit their shapes, or an error with words. */
#include "fuzz_op.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct mr_setting settings[] = {
        {"a.dims", "-1,2"},   {"a.dtype", "INT32"}, {"b.path", "x[1].\"y z\""},
        {"b.dtype", "BYTES"}, {"b.dims", "-1"},     {"c.default", "0.5"},
        {"d.path", "$"},      {"d.dtype", "BYTES"}, {"d.dims", "-1"}};
    static const struct mr_op_io outputs[] = {
        {.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}};
    static const struct mr_op_io last[] = {{.name = "d"}};
    static const struct mr_setting of_last[] = {
        {"d.path", "$"}, {"d.dtype", "BYTES"}, {"d.dims", "-1"}};
    static struct mr_op *all, *whole;

    if (!all) {
        all = fuzz_create("json.parse", "json", settings, 9, outputs, 4);
        whole = fuzz_create("json.parse", "json", of_last, 3, last, 1);
    }
    fuzz_run(all, data, size, 4);
    fuzz_run(whole, data, size, 1);
    return 0;
}
