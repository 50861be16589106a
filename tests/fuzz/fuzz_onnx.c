/* The reader that looks for external data in an ONNX file, beside a plain one over the same bytes: what the
 * plain one finds outside of the folder, ours must have refused. The folder holds one file that may be named. */
#include "fuzz.h"

#include <fcntl.h>
#include <unistd.h>

#include "codec/pb.h"
#include "onnx.h"

#define DEPTH_MAX 100

static struct {
    int fd;
    char folder[40];
    char file[64];
} f = {.fd = -1};

static void clean_up(void)
{
    char inside[64];

    snprintf(inside, sizeof inside, "%s/weights", f.folder);
    unlink(inside);
    unlink(f.file);
    rmdir(f.folder);
}

static void set_up(void)
{
    char inside[64];

    /* The file is written for every input: in memory where that is possible. */
    snprintf(f.folder, sizeof f.folder, "%s/millrace-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    REQUIRE(mkdtemp(f.folder) != NULL);
    snprintf(f.file, sizeof f.file, "%s/model.onnx", f.folder);
    snprintf(inside, sizeof inside, "%s/weights", f.folder);
    f.fd = open(f.file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int weights = open(inside, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(f.fd >= 0 && weights >= 0);
    close(weights);
    atexit(clean_up);
}

/* The way from a model to its tensors, by onnx.proto: message, field, message. 'X' is external data. */
static const char *const ways[] = {"MgG", "MtT", "MyF", "TaG", "TbG", "GaN", "GeR",
                                   "GoS", "NeA", "AeR", "AfG", "AjR", "AkG", "AvS",
                                   "AwS", "SaR", "SbR", "FgN", "FkA", "RmX"};

/* Fields are written as letters: 1 is a, 26 is z. */
static char letter(uint32_t number)
{
    return number > 0 && number <= 26 ? (char)('a' + number - 1) : '-';
}

/* Is there external data that is not the file beside the model? Bytes that are no message have none. */
static bool leaves(char kind, mr_bytes in, int depth)
{
    struct mr_pb_field field;
    mr_bytes key = {0}, value = {0};
    bool found = false;
    int rc;

    while (depth < DEPTH_MAX && (rc = mr_pb_next(&in, &field)) > 0) {
        for (size_t i = 0; field.wire == MR_PB_LEN && i < sizeof ways / sizeof *ways; i++) {
            if (ways[i][0] == kind && ways[i][1] == letter(field.number)) {
                found |= leaves(ways[i][2], field.bytes, depth + 1);
            }
        }
        if (field.wire == MR_PB_LEN && field.number == 1) {
            key = field.bytes;
        } else if (field.wire == MR_PB_LEN && field.number == 2) {
            value = field.bytes;
        }
    }
    bool is_location = kind == 'X' && key.len == 8 && memcmp(key.ptr, "location", 8) == 0;
    bool is_beside = value.len == 7 && memcmp(value.ptr, "weights", 7) == 0;
    bool is_model = value.len == 10 && memcmp(value.ptr, "model.onnx", 10) == 0;
    /* Detours by "." and ".." may lead back to the same files; others name what is not there. */
    bool has_dots = value.len > 0 && memchr(value.ptr, '.', value.len) != NULL;
    return found || (is_location && !is_beside && !is_model && !has_dots);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_err err = {0};

    if (f.fd < 0) {
        set_up();
    }
    struct mr_model_desc desc = {
        .size = sizeof desc, .model_dir = f.folder, .repository_dir = f.folder};
    REQUIRE(ftruncate(f.fd, 0) == 0 && pwrite(f.fd, data, size, 0) == (ssize_t)size);
    int rc = onnx_files_check(&desc, f.file, size, &err);
    REQUIRE(rc == err.status && (rc == MR_OK || err.msg[0]));
    bool is_own_format = size >= 8 && memcmp(data + 4, "ORTM", 4) == 0;
    REQUIRE(rc < 0 || is_own_format || !leaves('M', (mr_bytes){data, size}, 0));
    return 0;
}
