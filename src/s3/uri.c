/* Names of objects: s3:// URIs and their encoding in requests. */
#include "s3_priv.h"

#define SCHEME "s3://"

bool mr_s3_is_uri(const char *text)
{
    return strncmp(text, SCHEME, sizeof SCHEME - 1) == 0;
}

static bool is_bucket(mr_str name)
{
    for (size_t i = 0; i < name.len; i++) {
        const char c = name.ptr[i];
        const bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (!is_plain && (i == 0 || i + 1 == name.len || (c != '-' && c != '.'))) {
            return false;
        }
    }
    return name.len >= 3 && name.len <= 63;
}

int mr_s3_uri_parse(const char *uri, mr_str *out_bucket, mr_str *out_key, struct mr_err *err)
{
    const mr_str rest = mr_str_c(mr_s3_is_uri(uri) ? uri + sizeof SCHEME - 1 : "");
    const ptrdiff_t slash = mr_str_find(rest, '/');
    const mr_str bucket = mr_str_sub(rest, 0, slash < 0 ? rest.len : (size_t)slash);
    const mr_str key = mr_str_sub(rest, bucket.len + 1, rest.len);

    if (!is_bucket(bucket)) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "'%.200s': expected s3://BUCKET/KEY; a bucket's name is 3 to 63 of a-z, 0-9, "
            "'.' and '-'",
            uri);
    }
    if (key.len > MR_S3_KEY_MOST) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s…': a key of %zu bytes; %d are the most", uri,
                       key.len, MR_S3_KEY_MOST);
    }
    *out_bucket = bucket;
    *out_key = key;
    return MR_OK;
}

void s3_encode(struct mr_buf *b, mr_str text, bool keeps_slash)
{
    mr_buf_percent(b, text, keeps_slash ? "/" : "");
}

size_t s3_decode(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)(text[i] == '+' ? ' ' : text[i]);
    }
    return mr_percent_decode(mr_str_n(text, len), text, len);
}
