/* Checks of bounds, and of nothing else: the libraries believe the lengths in a file. XGBoost reads beyond the end of a
 * binary one that is cut short, LightGBM ends the process when a tree is not where the file's head says. */
#include "whole.h"

#include <stdlib.h>
#include <string.h>

/* ---- UBJSON ---- */

#define DEPTH_MAX 64

struct cursor {
    const uint8_t *at;
    const uint8_t *end;
};

static int value_skip(struct cursor *c, int depth);

static size_t left(const struct cursor *c)
{
    return (size_t)(c->end - c->at);
}

static int bytes_skip(struct cursor *c, uint64_t count)
{
    if (count > left(c)) {
        return 0;
    }
    c->at += count;
    return 1;
}

/* The next byte, if it is this one. */
static int marker_take(struct cursor *c, char marker)
{
    return left(c) > 0 && *c->at == (uint8_t)marker && bytes_skip(c, 1);
}

/* Bytes of a value of this type; -1 if they vary, or if there is no such type. */
static int type_bytes(uint8_t type)
{
    static const struct {
        char types[5];
        int bytes;
    } sizes[] = {{"ZTFN", 0}, {"iUC", 1}, {"I", 2}, {"ld", 4}, {"LD", 8}};

    for (size_t i = 0; type && i < sizeof sizes / sizeof *sizes; i++) {
        if (strchr(sizes[i].types, type)) {
            return sizes[i].bytes;
        }
    }
    return -1;
}

/* An integer with its type before it, big-endian, not negative. */
static int length_take(struct cursor *c, uint64_t *out)
{
    const uint8_t type = left(c) > 0 ? *c->at : 0;
    const int bytes = type && strchr("iUIlL", type) ? type_bytes(type) : 0;
    const uint8_t *from = c->at + 1;
    uint64_t value = 0;

    if (bytes == 0 || !bytes_skip(c, 1 + (uint64_t)bytes) || (type != 'U' && *from > 127)) {
        return 0;
    }
    for (int i = 0; i < bytes; i++) {
        value = value << 8 | from[i];
    }
    *out = value;
    return 1;
}

static int text_skip(struct cursor *c)
{
    uint64_t count;

    return length_take(c, &count) && bytes_skip(c, count);
}

/* Numbers of one type, whose count comes first. */
static int numbers_skip(struct cursor *c)
{
    const int bytes = left(c) > 0 ? type_bytes(*c->at) : -1;
    uint64_t count;

    return bytes > 0 && bytes_skip(c, 1) && marker_take(c, '#') && length_take(c, &count) &&
           count <= left(c) / (unsigned)bytes && bytes_skip(c, count * (unsigned)bytes);
}

static int container_skip(struct cursor *c, int is_object, int depth)
{
    const char close = is_object ? '}' : ']';
    uint64_t count = 0;
    const int is_counted = marker_take(c, '#');

    if (depth == DEPTH_MAX || (is_counted && !length_take(c, &count))) {
        return 0;
    }
    while (is_counted ? count-- > 0 : !marker_take(c, close)) {
        if ((is_object && !text_skip(c)) || !value_skip(c, depth + 1)) {
            return 0;
        }
    }
    return 1;
}

static int value_skip(struct cursor *c, int depth)
{
    const uint8_t type = left(c) > 0 ? *c->at : 0;

    if (!bytes_skip(c, 1)) {
        return 0;
    }
    if (type == '[' && marker_take(c, '$')) {
        return numbers_skip(c);
    }
    if (type == '[' || type == '{') {
        return container_skip(c, type == '{', depth);
    }
    if (type == 'S' || type == 'H') {
        return text_skip(c);
    }
    return type_bytes(type) >= 0 && bytes_skip(c, (uint64_t)type_bytes(type));
}

int whole_ubjson(const void *data, size_t bytes)
{
    struct cursor c = {data, (const uint8_t *)data + bytes};

    return value_skip(&c, 0) && left(&c) == 0;
}

/* ---- LightGBM's text ---- */

int whole_lightgbm(const char *text, size_t bytes)
{
    static const char key[] = "\ntree_sizes=";
    const char *trees = strstr(text, "\nTree=");
    const char *sizes = strstr(text, key);
    uint64_t at = trees ? (uint64_t)(trees + 1 - text) : bytes;

    if (strncmp(text, "tree", 4) != 0) {
        return 1; /* something else, of which the library says so */
    }
    if (!sizes || (trees && sizes > trees)) {
        return trees != NULL; /* an old one, whose trees are read one after the other */
    }
    sizes += strlen(key);
    while (*sizes >= '0' && *sizes <= '9') {
        char *end = NULL;
        const unsigned long long size = strtoull(sizes, &end, 10);
        if (at >= bytes || strncmp(text + at, "Tree=", 5) != 0 || size > bytes - at) {
            return 0;
        }
        at += size;
        sizes = end + (*end == ' ');
    }
    return *sizes == '\n' || *sizes == '\r';
}
