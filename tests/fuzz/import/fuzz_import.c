/* Graphs of other servers: whatever the file says, reading ends with models that have text or with an error that has words.
 * The first byte of the input says which format it has. */
#include "fuzz.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {NULL, "kserve", "ovms", "seldon", "paddle"};
    char path[64];
    struct mr_import *im;
    struct mr_err err = {0};
    const struct mr_import_model *m;

    if (size < 1) {
        return 0;
    }
    const struct mr_import_options o = {.from = formats[data[0] % 5]};
    const int fd = memfd_create("graph", MFD_CLOEXEC);
    REQUIRE(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (mr_import_read(&im, path, &o, &err) == MR_OK) {
        for (size_t i = 0; (m = mr_import_model_at(im, i)); i++) {
            REQUIRE(m->name[0] && m->config.len > 0);
        }
        mr_import_free(&im);
    } else {
        REQUIRE(err.msg[0]);
    }
    close(fd);
    return 0;
}
