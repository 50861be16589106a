/* The reader that looks for external data in an ONNX file, beside a plain one over the same bytes: what the
 * plain one finds outside of the folder, ours must have refused. The folder holds one file that may be named.
 * And the writer that takes the tensors out of a file: what it wrote has the same tensors with the same bytes. */
#include "fuzz.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codec/pb.h"
#include "onnxruntime/weights/parameters.h"

#define DEPTH_MAX 100
#define LEAST     8 /* bytes of a tensor that is taken out */

static struct {
    int fd;
    char folder[40];
    char file[64];
    char cache[64];
} f = {.fd = -1};

/* fields.c and its users take this from types.c, which needs ONNX Runtime. */
int onnx_shape_bytes(const int64_t *dims, int32_t rank, size_t unit, uint64_t *out)
{
    *out = unit;
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] < 0 || __builtin_mul_overflow(*out, (uint64_t)dims[i], out)) {
            return 0;
        }
    }
    return 1;
}

/* cache.c takes these from pace.c, which needs a host. */
int onnx_pace_step(struct onnx_pace *p, uint64_t moved, uint64_t done)
{
    (void)p;
    (void)moved;
    (void)done;
    return 1;
}

void onnx_pace_plan(struct onnx_pace *p, const char *step, uint64_t left)
{
    (void)p;
    (void)step;
    (void)left;
}

static int path_remove(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void clean_up(void)
{
    nftw(f.folder, path_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static void set_up(void)
{
    char inside[64];

    /* The file is written for every input: in memory where that is possible. */
    snprintf(f.folder, sizeof f.folder, "%s/millrace-fuzz-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    REQUIRE(mkdtemp(f.folder) != NULL);
    snprintf(f.file, sizeof f.file, "%s/model.onnx", f.folder);
    snprintf(f.cache, sizeof f.cache, "%s/cache", f.folder);
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

static bool bytes_equal(int a, uint64_t at, int b, uint64_t at_b, uint64_t bytes)
{
    uint8_t x[256];
    uint8_t y[256];

    for (uint64_t i = 0; i < bytes; i += sizeof x) {
        size_t n = bytes - i < sizeof x ? (size_t)(bytes - i) : sizeof x;
        if (pread(a, x, n, (off_t)(at + i)) != (ssize_t)n ||
            pread(b, y, n, (off_t)(at_b + i)) != (ssize_t)n || memcmp(x, y, n) != 0) {
            return false;
        }
    }
    return true;
}

static void tensors_compare(const struct onnx_tensors *t, const char *path, int weights)
{
    struct onnx_tensors other;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    REQUIRE(fd >= 0 && fstat(fd, &st) == 0);
    REQUIRE(onnx_tensors_list(fd, (uint64_t)st.st_size, 1, LEAST, &other));
    /* It may have had tensors elsewhere before; those come besides. */
    REQUIRE(other.count >= t->count ||
            (other.location && strcmp(other.location, "weights.bin") != 0));
    for (size_t i = 0, k = 0; i < t->count && other.count >= t->count; i++, k++) {
        const struct onnx_tensor *x = &t->at[i];
        while (k < other.count && strcmp(other.at[k].name, x->name) != 0) {
            k++;
        }
        REQUIRE(k < other.count);
        const struct onnx_tensor *y = &other.at[k];
        REQUIRE(x->type == y->type && x->rank == y->rank && x->bytes == y->bytes);
        REQUIRE(memcmp(x->dims, y->dims, x->rank * sizeof *x->dims) == 0);
        REQUIRE(bytes_equal(f.fd, x->offset, weights, y->offset, x->bytes));
    }
    onnx_tensors_free(&other);
    close(fd);
}

/* Takes the tensors out twice: the second time what was written must be found right. */
static void split(size_t size)
{
    struct onnx_cache cache = {.folder = f.cache, .limit = 1 << 20};
    struct onnx_pace pace = {0};
    struct onnx_tensors t;
    char path[100];

    if (!onnx_tensors_list(f.fd, size, 0, LEAST, &t)) {
        return;
    }
    for (int i = 0; i < 2 && t.count > 0 && t.bytes < 4096; i++) {
        struct mr_err err = {0};
        int weights = -1;
        int rc = onnx_cache_get(&cache, f.fd, size, &t, &pace, path, sizeof path, &weights, &err);
        REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0]));
        if (rc == MR_OK) {
            tensors_compare(&t, path, weights);
            close(weights);
        }
    }
    onnx_tensors_free(&t);
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
    struct onnx_contents contents;
    int rc = onnx_files_check(&desc, f.file, size, &contents, &err);
    REQUIRE(rc == err.status && (rc == MR_OK || err.msg[0]));
    bool is_own_format = size >= 8 && memcmp(data + 4, "ORTM", 4) == 0;
    REQUIRE(rc < 0 || is_own_format || !leaves('M', (mr_bytes){data, size}, 0));
    split(size);
    return 0;
}
