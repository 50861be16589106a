/* APIs that only callers with a header get: Triton's --http-restricted-api and
 * --grpc-restricted-protocol. Every endpoint belongs to one class; a class is open, or wants one header
 * with one value. */
#ifndef MR_SERVE_RESTRICT_H
#define MR_SERVE_RESTRICT_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"

/** Triton's classes in Triton's order, then two for what Triton does not have or does not restrict. */
enum mr_api {
    MR_API_HEALTH,
    MR_API_METADATA,
    MR_API_INFERENCE,
    MR_API_SHARED_MEMORY,
    MR_API_MODEL_CONFIG,
    MR_API_MODEL_REPOSITORY,
    MR_API_STATISTICS,
    MR_API_TRACE,
    MR_API_LOGGING,
    MR_API_METRICS,    /* HTTP only */
    MR_API_REFLECTION, /* gRPC only */
    MR_API_COUNT
};

#define MR_RESTRICTION_HEADER_MAX 128

struct mr_restriction {
    char header[MR_RESTRICTION_HEADER_MAX]; /* lower case; "" = the class is open */
    mr_str secret;                          /* the header's value */
};

/** All classes of one protocol; zeroed: all open. */
struct mr_restrictions {
    bool is_grpc; /* decides about words in errors, and what comes before the header's name */
    bool is_any;  /* some class is restricted */
    struct mr_restriction of[MR_API_COUNT];
};

/** Add one group, "<API>[,<API>...]:<key>=<value>". The value is borrowed. Errors: MR_E_INVALID; they never
 *  contain the value. A class that is in a group already is one. */
int mr_restrictions_add(struct mr_restrictions *r, const char *group, struct mr_err *err);

/** May a caller that sent `given` as the class's header (ptr NULL: none) use the class? The time that this takes
 *  does not depend on the value. */
bool mr_restriction_allows(const struct mr_restriction *r, mr_str given);

#endif
