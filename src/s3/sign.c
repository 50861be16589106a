/* AWS Signature Version 4: the request in a canonical form is hashed, and the hash signed with a key derived from the
 * secret, the day, the region and the service.
 * Source: "AWS Signature Version 4 for API requests", "Signature calculations for the Authorization header". */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <time.h>

#include "base/clock.h"
#include "s3_priv.h"

#define HASH_BYTES 32
#define ALGORITHM  "AWS4-HMAC-SHA256"

static void hex(const uint8_t *bytes, char out[S3_HASH_TEXT])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < HASH_BYTES; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * HASH_BYTES] = '\0';
}

void s3_hash(const void *data, size_t len, char out[S3_HASH_TEXT])
{
    uint8_t sum[HASH_BYTES];

    /* It fails only without memory for its state. */
    MR_ASSERT(EVP_Digest(data ? data : "", len, sum, NULL, EVP_sha256(), NULL) == 1);
    hex(sum, out);
}

static void mac(uint8_t key[HASH_BYTES], const void *data, size_t len)
{
    uint8_t sum[HASH_BYTES];

    MR_ASSERT(HMAC(EVP_sha256(), key, HASH_BYTES, data, len, sum, NULL));
    memcpy(key, sum, HASH_BYTES);
}

/* Derives the key for requests of that day, region and service. */
static void key_derive(const char *secret, const struct s3_signed *r, uint8_t key[HASH_BYTES])
{
    struct mr_buf first;

    mr_buf_init(&first, 0);
    mr_buf_printf(&first, "AWS4%s", secret);
    MR_ASSERT(
        HMAC(EVP_sha256(), first.ptr, (int)first.len, (const uint8_t *)r->time, 8, key, NULL));
    OPENSSL_cleanse(first.ptr, first.cap);
    mr_buf_fini(&first);
    mac(key, r->region, strlen(r->region));
    mac(key, r->service, strlen(r->service));
    mac(key, "aws4_request", 12);
}

static void names_put(struct mr_buf *b, const struct s3_signed *r)
{
    for (size_t i = 0; i < r->header_count; i++) {
        mr_buf_c(b, i ? ";" : "");
        mr_buf_str(b, r->headers[i].name);
    }
}

static void canonical_put(struct mr_buf *b, const struct s3_signed *r)
{
    mr_buf_printf(b, "%s\n", r->method);
    mr_buf_str(b, r->path);
    mr_buf_char(b, '\n');
    mr_buf_str(b, r->query);
    mr_buf_char(b, '\n');
    for (size_t i = 0; i < r->header_count; i++) {
        mr_buf_str(b, r->headers[i].name);
        mr_buf_char(b, ':');
        mr_buf_str(b, mr_str_trim(r->headers[i].value));
        mr_buf_char(b, '\n');
    }
    mr_buf_char(b, '\n');
    names_put(b, r);
    mr_buf_printf(b, "\n%s", r->payload_hash);
}

void s3_sign(const struct s3_credentials *c, const struct s3_signed *r, struct mr_buf *out)
{
    uint8_t key[HASH_BYTES];
    char hash[S3_HASH_TEXT];
    struct mr_buf text;

    mr_buf_init(&text, 0);
    canonical_put(&text, r);
    s3_hash(text.ptr, text.len, hash);
    mr_buf_reset(&text);
    mr_buf_printf(&text, ALGORITHM "\n%s\n%.8s/%s/%s/aws4_request\n%s", r->time, r->time, r->region,
                  r->service, hash);
    key_derive(c->secret, r, key);
    mac(key, text.ptr, text.len);
    hex(key, hash);
    mr_buf_fini(&text);
    mr_buf_printf(out, ALGORITHM " Credential=%s/%.8s/%s/%s/aws4_request, SignedHeaders=", c->id,
                  r->time, r->region, r->service);
    names_put(out, r);
    mr_buf_printf(out, ", Signature=%s", hash);
}

void s3_time_text(int64_t wall_ns, char out[17])
{
    const time_t seconds = wall_ns / MR_NS_PER_S;
    struct tm t;

    gmtime_r(&seconds, &t);
    strftime(out, 17, "%Y%m%dT%H%M%SZ", &t);
}
