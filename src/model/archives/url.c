#include "url.h"

#include <stdio.h>
#include <string.h>

#include "archive/archive.h"
#include "base/mem.h"

static const struct scheme {
    const char *begin;
    enum archive_url_kind kind;
    bool is_tls;
} schemes[] = {
    {"file:", ARCHIVE_FILE, false},
    {"http://", ARCHIVE_HTTP, false},
    {"https://", ARCHIVE_HTTP, true},
    {"s3://", ARCHIVE_S3, false},
};

static const struct scheme *scheme_of(mr_str text)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (mr_str_starts(text, mr_str_c(schemes[i].begin))) {
            return &schemes[i];
        }
    }
    return NULL;
}

bool archive_url_is(const char *text)
{
    return scheme_of(mr_str_c(text)) != NULL;
}

/* The first of some characters; the text's length if there is none. */
static size_t first_of(mr_str s, const char *any)
{
    size_t i = 0;

    while (i < s.len && !strchr(any, s.ptr[i])) {
        i++;
    }
    return i;
}

/* NUL-terminated copy; false: too long, or with bytes that no address has. */
static bool copy(char *out, size_t room, mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == 0x7f) {
            return false;
        }
    }
    if (s.len >= room) {
        return false;
    }
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return true;
}

static int sum_parse(mr_str fragment, struct archive_url *out, struct mr_err *err)
{
    static const char begin[] = "sha256=";
    mr_str sum = mr_str_sub(fragment, sizeof begin - 1, fragment.len);

    if (!mr_str_starts(fragment, mr_str_c(begin)) || sum.len != sizeof out->sha256 - 1) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%.200s: after '#' come sha256= and 64 hexadecimal digits", out->text);
    }
    for (size_t i = 0; i < sum.len; i++) {
        const char c =
            sum.ptr[i] >= 'A' && sum.ptr[i] <= 'F' ? (char)(sum.ptr[i] + 32) : sum.ptr[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) {
            return MR_FAIL(err, MR_E_INVALID, "%.200s: the checksum has a '%c'", out->text, c);
        }
        out->sha256[i] = c;
    }
    out->sha256[sum.len] = '\0';
    return MR_OK;
}

/* What stands between the scheme and the checksum. */
static int place_parse(mr_str rest, const struct scheme *s, struct archive_url *out)
{
    const mr_str plain = mr_str_sub(rest, 0, first_of(rest, "?"));
    const size_t slash = first_of(plain, "/");
    const mr_str host = mr_str_sub(plain, 0, slash);
    char address[256];
    int n = 0;

    if (s->kind == ARCHIVE_FILE) {
        return copy(out->text, sizeof out->text,
                    mr_str_starts(rest, MR_STR("//")) ? mr_str_sub(rest, 2, rest.len) : rest) &&
                       out->text[0] == '/'
                   ? MR_OK
                   : MR_E_INVALID;
    }
    n = snprintf(out->text, sizeof out->text, "%s%.*s", s->begin, MR_STR_ARG(plain));
    if (n < 0 || (size_t)n >= sizeof out->text || slash == 0 || slash == plain.len) {
        return MR_E_INVALID;
    }
    if (s->kind == ARCHIVE_S3) {
        return MR_OK;
    }
    const bool has_port = memrchr(host.ptr, ':', host.len) && host.ptr[host.len - 1] != ']';
    if (memchr(host.ptr, '@', host.len) || !copy(address, sizeof address, host) ||
        !copy(out->target, sizeof out->target, mr_str_sub(rest, slash, rest.len))) {
        return MR_E_INVALID;
    }
    n = snprintf(out->address, sizeof out->address, "%s%s", address,
                 has_port    ? ""
                 : s->is_tls ? ":443"
                             : ":80");
    return n > 0 && (size_t)n < sizeof out->address ? MR_OK : MR_E_INVALID;
}

static int stem_parse(struct archive_url *out, struct mr_err *err)
{
    const char *slash = strrchr(out->text, '/');
    mr_str stem;

    if (!slash || !mr_archive_is_name(mr_str_c(slash + 1), &stem) ||
        !copy(out->stem, sizeof out->stem, stem)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%.200s is not the address of an archive: names end in .tar, .tar.gz, .tgz, "
                       ".tar.zst or .zip",
                       out->text);
    }
    return MR_OK;
}

int archive_url_parse(const char *text, struct archive_url *out, struct mr_err *err)
{
    mr_str all = mr_str_c(text);
    const struct scheme *s = scheme_of(all);
    const size_t hash = s ? first_of(all, "#") : 0;
    struct archive_url u = {.text = ""};
    int rc;

    if (!s || all.len >= ARCHIVE_URL_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "'%.200s' is not an address of %d characters at most",
                       text, ARCHIVE_URL_MAX - 1);
    }
    u.kind = s->kind;
    u.is_tls = s->is_tls;
    if (place_parse(mr_str_sub(all, strlen(s->begin), hash), s, &u) < 0) {
        const mr_str shown = mr_str_sub(all, 0, first_of(all, "?#"));
        const bool is_secret = first_of(all, "@") < all.len; /* a password may be in it */
        return MR_FAIL(err, MR_E_INVALID,
                       "'%.*s' is not the address of an archive, as %s%s/name.tar.gz",
                       is_secret ? (int)strlen(s->begin) : (int)MR_MIN(shown.len, 200), shown.ptr,
                       s->begin, s->kind == ARCHIVE_FILE ? "/folder" : "host");
    }
    MR_TRY(stem_parse(&u, err));
    if (hash < all.len) {
        MR_TRY(sum_parse(mr_str_sub(all, hash + 1, all.len), &u, err));
    }
    if (u.kind == ARCHIVE_HTTP && !u.sha256[0]) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%.200s has no checksum: append #sha256= and that of the archive", u.text);
    }
    *out = u;
    rc = MR_OK;
out:
    return rc;
}

int archive_url_redirect(const struct archive_url *from, mr_str location, struct archive_url *out,
                         struct mr_err *err)
{
    const mr_str to = mr_str_sub(location, 0, first_of(location, "#"));
    const struct scheme *s = scheme_of(to);
    struct archive_url u = *from;
    int rc = MR_E_INVALID;

    if (s && s->kind == ARCHIVE_HTTP && (s->is_tls || !from->is_tls)) {
        u.is_tls = s->is_tls;
        rc = place_parse(mr_str_sub(to, strlen(s->begin), to.len), s, &u);
    } else if (!s && mr_str_starts(to, MR_STR("/")) && !mr_str_starts(to, MR_STR("//"))) {
        rc = copy(u.target, sizeof u.target, to) ? MR_OK : MR_E_INVALID;
    }
    if (rc < 0) {
        return MR_FAIL(err, rc, "%.200s leads to '%.*s', which is not followed", from->text,
                       MR_STR_ARG(mr_str_sub(location, 0, 200)));
    }
    *out = u;
    return MR_OK;
}
