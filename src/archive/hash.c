/* SHA-256, by OpenSSL. */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"

#define CHUNK ((size_t)256 << 10)

struct mr_sha256 {
    EVP_MD_CTX *ctx;
};

struct mr_sha256 *mr_sha256_new(void)
{
    struct mr_sha256 *s = MR_NEW(struct mr_sha256);

    s->ctx = EVP_MD_CTX_new();
    MR_ASSERT(s->ctx && EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1);
    return s;
}

static void add(struct mr_sha256 *s, const void *data, size_t len)
{
    MR_ASSERT(EVP_DigestUpdate(s->ctx, data, len) == 1);
}

void mr_sha256_add(struct mr_sha256 *s, mr_str text)
{
    const uint64_t len = text.len;

    add(s, &len, sizeof len);
    add(s, text.ptr ? text.ptr : "", text.len);
}

void mr_sha256_end(struct mr_sha256 **s, char out[MR_SHA256_TEXT])
{
    uint8_t sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;

    MR_ASSERT(EVP_DigestFinal_ex((*s)->ctx, sum, &n) == 1 && n * 2 < MR_SHA256_TEXT);
    for (unsigned i = 0; i < n; i++) {
        snprintf(out + 2 * (size_t)i, 3, "%02x", sum[i]);
    }
    EVP_MD_CTX_free((*s)->ctx);
    mr_freep(s);
}

int mr_sha256_fd(int fd, const char *name, char out[MR_SHA256_TEXT], struct mr_err *err)
{
    struct mr_sha256 *s = mr_sha256_new();
    uint8_t *chunk = mr_alloc(CHUNK);
    char text[128];
    int rc = MR_OK;

    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK);
        if (n > 0) {
            add(s, chunk, (size_t)n);
        } else if (n == 0) {
            break;
        } else if (errno != EINTR) {
            rc = MR_FAIL(err, MR_E_IO, "%.300s: %s", name, strerror_r(errno, text, sizeof text));
            break;
        }
    }
    mr_free(chunk);
    mr_sha256_end(&s, out);
    return rc;
}
