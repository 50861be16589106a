/* Graphs of other servers: whatever the file says, reading ends with models that have text or with an error that has words.
 * The first byte of the input says which format it has. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flow/flow.h"
#include "import/import.h"

/* The files of a server of Paddle Serving, with a 0 after each, in the order in which they name each other. */
static const char *const parts[] = {"infer_service.prototxt", "workflow.prototxt",
                                    "resource.prototxt", "model_toolkit.prototxt",
                                    "general_model.prototxt"};
static char folder[] = "/tmp/millrace-fuzz-XXXXXX";

static void part_path(size_t i, char out[96])
{
    snprintf(out, 96, "%s/%s", folder, parts[i]);
}

static void folder_remove(void)
{
    char path[96];

    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        part_path(i, path);
        unlink(path);
    }
    rmdir(folder);
}

static void folder_write(const uint8_t *data, size_t size, char out[96])
{
    static int is_made;
    char path[96];

    if (!is_made) {
        REQUIRE(mkdtemp(folder));
        is_made = 1;
        atexit(folder_remove);
    }
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const uint8_t *end = size ? memchr(data, 0, size) : NULL;
        const size_t len = end ? (size_t)(end - data) : size;
        part_path(i, path);
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        REQUIRE(fd >= 0 && write(fd, data, len) == (ssize_t)len);
        close(fd);
        data += len + (end != NULL);
        size -= len + (end != NULL);
    }
    part_path(0, out);
}

#define FOLDER 5u /* the second one of Paddle */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {NULL, "kserve", "ovms", "seldon", "paddle", "paddle"};
    char path[96];
    struct mr_import *im;
    struct mr_err err = {0};
    const struct mr_import_model *m;

    if (size < 1) {
        return 0;
    }
    const unsigned format = data[0] % (sizeof formats / sizeof *formats);
    const struct mr_import_options o = {.from = formats[format], .check = mr_flow_check};
    int fd = -1;
    if (format == FOLDER) {
        folder_write(data + 1, size - 1, path);
    } else {
        fd = memfd_create("graph", MFD_CLOEXEC);
        REQUIRE(fd >= 0 && write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (mr_import_read(&im, path, &o, &err) == MR_OK) {
        for (size_t i = 0; (m = mr_import_model_at(im, i)); i++) {
            REQUIRE(m->name[0] && m->config.len > 0);
        }
        mr_import_free(&im);
    } else {
        REQUIRE(err.msg[0]);
    }
    if (fd >= 0) {
        close(fd);
    }
    return 0;
}
