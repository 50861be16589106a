/* A file of endpoints (proto/service.proto, text format) as checked structs, for servers and clients. */
#ifndef MR_VARIANT_CONFIG_H
#define MR_VARIANT_CONFIG_H

#include "base/arena.h"
#include "service.pb-c.h"
#include "variant/rollout.h"

#define MR_SERVICE_FILE_MAX ((size_t)1 << 20)
#define MR_ENDPOINTS_MAX    4096u
#define MR_REMOTES_MAX      64u

/** What answers: a model or workflow, and where it is. */
struct mr_variant_target {
    mr_str model;
    mr_str version;        /* a number, a label, or "": as the model gives it by itself */
    const mr_str *remotes; /* addresses of servers */
    size_t remote_count;   /* 0: this server */
};

struct mr_variant_config {
    uint32_t line; /* of the file, as of all that follow */
    mr_str tag;
    struct mr_variant_target target;
    double weight;
};

/** Where a request's key is. */
enum mr_sticky_kind { MR_STICKY_NONE, MR_STICKY_HEADER, MR_STICKY_PARAMETER };

enum mr_compare_kind { MR_COMPARE_NONE, MR_COMPARE_EQUAL, MR_COMPARE_TOLERANCE };

struct mr_shadow_config {
    uint32_t line;
    mr_str tag;
    struct mr_variant_target target;
    double percent;
    enum mr_compare_kind compare;
    double tolerance; /* |a - b| <= tolerance * max(1, |b|) */
    uint32_t max_queue;
};

struct mr_endpoint_config {
    uint32_t line;
    mr_str name;
    enum mr_sticky_kind sticky;
    mr_str key; /* of the header, in lower case, or the parameter */
    mr_str salt;
    size_t variant_count;
    const struct mr_variant_config *variants;
    const struct mr_ramp *ramp;            /* NULL: none */
    const struct mr_shadow_config *shadow; /* NULL: none */
    mr_str text;                           /* the whole entry; equal texts: nothing has changed */
};

struct mr_service_case {
    uint32_t line;
    mr_str value;
    mr_str model;
};

/** A name whose requests go to the model, workflow or endpoint that a parameter chooses. */
struct mr_service_config {
    uint32_t line;
    mr_str name;
    mr_str parameter;
    size_t case_count;
    const struct mr_service_case *cases;
    mr_str otherwise; /* "": refused */
};

struct mr_service_file {
    struct mr_arena arena;
    size_t endpoint_count;
    const struct mr_endpoint_config *endpoints;
    size_t service_count;
    const struct mr_service_config *services;
};

/** Errors: MR_E_INVALID: what is wrong, with line and column for the syntax, otherwise with line, endpoint and variant;
 *  MR_E_TOO_LARGE; MR_E_EXHAUSTED. */
int mr_service_file_parse(mr_str text, struct mr_service_file **out, struct mr_err *err);
void mr_service_file_free(struct mr_service_file **f);

/** "header:NAME" or "parameter:NAME" as workflows and endpoints spell keys. `name` refers to the text. Errors:
 *  MR_E_INVALID. */
int mr_sticky_parse(mr_str text, enum mr_sticky_kind *out, mr_str *name, struct mr_err *err);
/** "", "equal" or "tolerance:NUMBER". Errors: MR_E_INVALID. */
int mr_compare_parse(mr_str text, enum mr_compare_kind *out, double *tolerance, struct mr_err *err);
/** The ramp of variant `variant` of those with these tags and weights. Errors: MR_E_INVALID; *out is then undefined. */
int mr_ramp_read(struct mr_ramp *out, const Millrace__RampConfig *c, unsigned variant,
                 const mr_str *tags, const double *weights, size_t count, struct mr_err *err);
/** A tag may be used in a header and a file name: 1 to 64 letters, digits, '-', '_' and '.'. Errors: MR_E_INVALID. */
int mr_variant_tag_check(mr_str tag, struct mr_err *err);

#endif
