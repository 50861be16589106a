/* A YAML or JSON file as a tree of values that know their lines. Aliases are refused, so that a tree is never larger than
 * its text. */
#ifndef IMPORT_DOC_H
#define IMPORT_DOC_H

#include "base/arena.h"
#include "base/err.h"

enum doc_kind { DOC_SCALAR, DOC_LIST, DOC_MAP };

/** A value, in the arena of its file. */
struct doc {
    struct doc *next;  /* in its list, map or file */
    struct doc *first; /* of a list or map */
    mr_str key;        /* of a member of a map */
    mr_str text;       /* of a scalar, NUL-terminated; "" for null */
    uint32_t line;     /* from 1 */
    enum doc_kind kind;
    bool is_null;
};

/** The documents of a text, linked by `next`; at least one. Errors: as mr_import_read. */
int doc_parse(mr_str text, const char *file, struct mr_arena *arena, struct doc **out,
              struct mr_err *err);

/** Where messages say that a value is, and who needs it. */
struct doc_at {
    const char *file;
    const char *what; /* "node 'x'" */
};
/** A member of a map; NULL: there is none, or it is null, or `map` is NULL or no map. */
const struct doc *doc_get(const struct doc *map, const char *key);
/** Checks that `map` is a map whose keys are among `keys` (NULL-terminated). Errors: MR_E_INVALID, MR_E_UNSUPPORTED. */
int doc_only(const struct doc *map, const struct doc_at *at, const char *const *keys,
             struct mr_err *err);
/** A member as text, a list or a map; NULL or an empty text if it is not there. Errors: MR_E_INVALID: it is something else,
 *  or not there although it is_needed. */
int doc_text(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
             mr_str *out, struct mr_err *err);
int doc_list(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
             const struct doc **out, struct mr_err *err);
int doc_map(const struct doc *map, const char *key, bool is_needed, const struct doc_at *at,
            const struct doc **out, struct mr_err *err);
/** A member as a whole number of min … max; `absent` if it is not there. */
int doc_int(const struct doc *map, const char *key, int64_t absent, int64_t min, int64_t max,
            const struct doc_at *at, int64_t *out, struct mr_err *err);

/** "FILE:LINE: WHAT: …" */
#define DOC_FAIL(err, status, at, value, fmt, ...)                                                 \
    MR_FAIL(err, status, "%s:%u: %s%s" fmt, (at)->file, (value) ? (value)->line : 1,               \
            (at)->what ? (at)->what : "", (at)->what ? ": " : "", ##__VA_ARGS__)

#endif
