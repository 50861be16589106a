/* Objects of S3 as files of a source, found by their names.
 *
 * A name is an object, or a folder (of everything below it, also with a final "/"), or a pattern. Listings are in the
 * order of names. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "codec/json.h"
#include "finder.h"
#include "s3/s3.h"

#define WILD "*?["

/* A search in a bucket. */
struct search {
    struct mr_finder *finder;
    mr_str bucket;
    const char *pattern; /* NULL: all below `prefix` */
    size_t prefix_bytes;
    size_t slashes; /* in the pattern */
};

static int object_add(struct mr_finder *f, mr_str bucket, mr_str key, uint64_t bytes,
                      const char *etag)
{
    const size_t room = bucket.len + key.len + 7;
    char *path = mr_alloc(room);

    struct mr_buf state;

    snprintf(path, room, "s3://%.*s/%.*s", MR_STR_ARG(bucket), MR_STR_ARG(key));
    mr_buf_init(&state, 0);
    mr_buf_printf(&state, "{\"bytes\":%llu,\"etag\":", (unsigned long long)bytes);
    mr_json_put_string(&state, mr_str_c(etag));
    mr_buf_char(&state, '}');
    const struct mr_source_file file = {.path = path,
                                        .bytes = bytes,
                                        .etag = mr_strndup(etag, strlen(etag)),
                                        .state = mr_strndup(state.ptr, state.len),
                                        .rows = -1};
    mr_buf_fini(&state);
    return mr_finder_add(f, file);
}

/* True for an object below a folder that is not hidden and has the format's name. */
static bool fits_below(const struct mr_finder *f, mr_str rest)
{
    mr_str part = {0};
    char name[MR_S3_KEY_MOST + 1];

    if (rest.len == 0 || mr_str_ends(rest, MR_STR("/"))) {
        return false; /* some tools keep folders as empty objects */
    }
    while (mr_str_split(&rest, '/', &part)) {
        if (part.len > 0 && (part.ptr[0] == '.' || part.ptr[0] == '_')) {
            return false;
        }
    }
    snprintf(name, sizeof name, "%.*s", MR_STR_ARG(part));
    return mr_finder_name_fits(f, name);
}

/* The rest of a key after as many parts as the pattern has. */
static mr_str behind_pattern(mr_str key, size_t slashes)
{
    for (size_t i = 0; i <= slashes; i++) {
        const ptrdiff_t slash = mr_str_find(key, '/');
        key = mr_str_sub(key, slash < 0 ? key.len : (size_t)slash + 1, key.len);
    }
    return key;
}

static int listed(void *ctx, const struct mr_s3_object *o, struct mr_err *err)
{
    const struct search *s = ctx;
    char key[MR_S3_KEY_MOST + 1];
    bool fits;

    (void)err; /* in the finder */
    snprintf(key, sizeof key, "%.*s", MR_STR_ARG(o->key));
    if (!s->pattern) {
        fits = fits_below(s->finder, mr_str_sub(o->key, s->prefix_bytes, o->key.len));
    } else if (mr_str_ends(o->key, MR_STR("/")) || mr_finder_is_hidden(s->pattern, key)) {
        fits = false;
    } else if (fnmatch(s->pattern, key, FNM_PATHNAME | FNM_PERIOD) == 0) {
        fits = true;
    } else {
        fits = fnmatch(s->pattern, key, FNM_PATHNAME | FNM_PERIOD | FNM_LEADING_DIR) == 0 &&
               fits_below(s->finder, behind_pattern(o->key, s->slashes));
    }
    return fits ? object_add(s->finder, s->bucket, o->key, o->bytes, o->etag) : MR_OK;
}

static int below_add(struct mr_finder *f, struct mr_s3 *s3, mr_str bucket, mr_str prefix)
{
    struct search s = {.finder = f, .bucket = bucket, .prefix_bytes = prefix.len};

    return mr_s3_list(s3, bucket, prefix, listed, &s, f->err);
}

static int pattern_add(struct mr_finder *f, struct mr_s3 *s3, mr_str bucket, const char *pattern)
{
    const size_t plain = strcspn(pattern, WILD "\\");
    const size_t len = strlen(pattern);
    struct search s = {.finder = f, .bucket = bucket};
    char *text = mr_strndup(pattern, len);

    if (len > 0 && text[len - 1] == '/') {
        text[len - 1] = '\0'; /* everything below is found anyway */
    }
    s.pattern = text;
    for (const char *p = text; (p = strchr(p, '/')); p++) {
        s.slashes++;
    }
    int rc = mr_s3_list(s3, bucket, mr_str_n(pattern, plain), listed, &s, f->err);
    mr_free(text);
    return rc;
}

int mr_objects_find(struct mr_finder *f, struct mr_s3 *s3, const char *uri)
{
    struct mr_s3_object found;
    struct mr_err missing;
    mr_str bucket;
    mr_str key;
    char below[MR_S3_KEY_MOST + 2];
    const size_t before = f->count;
    int rc = mr_s3_uri_parse(uri, &bucket, &key, f->err);

    if (rc < 0) {
        return rc;
    }
    if (key.len == 0 || (mr_str_ends(key, MR_STR("/")) && !strpbrk(key.ptr, WILD))) {
        rc = below_add(f, s3, bucket, key);
        return rc == MR_OK && f->count == before
                   ? MR_FAIL(f->err, MR_E_NOT_FOUND, "no object is found below '%s'", uri)
                   : rc;
    }
    rc = mr_s3_head(s3, (struct mr_s3_place){bucket, key}, &found, &missing);
    if (rc == MR_OK) {
        return object_add(f, bucket, key, found.bytes, found.etag);
    }
    /* Without the right to list, missing objects are reported as "forbidden". */
    if (rc != MR_E_NOT_FOUND && !(rc == MR_E_FORBIDDEN && strpbrk(key.ptr, WILD))) {
        *f->err = missing;
        return rc;
    }
    snprintf(below, sizeof below, "%.*s/", MR_STR_ARG(key));
    rc = strpbrk(key.ptr, WILD) ? pattern_add(f, s3, bucket, key.ptr)
                                : below_add(f, s3, bucket, mr_str_c(below));
    if (rc == MR_OK && f->count == before) {
        *f->err = missing;
        rc = missing.status;
        rc = strpbrk(key.ptr, WILD)
                 ? MR_FAIL(f->err, MR_E_NOT_FOUND, "no object is found by '%s'", uri)
                 : rc;
    }
    return rc;
}
