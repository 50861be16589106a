/* The file of endpoints, from protobuf text to checked structs in an arena of their own. */
#include "variant/config.h"

#include "base/clock.h"
#include "base/map.h"
#include "codec/json.h"
#include "codec/pbtext_lines.h"
#include "service.pb-c.h"

#define ARENA_MAX    ((size_t)64 << 20)
#define NAME_MAX_LEN 255u

struct reader {
    struct mr_arena *a;
    struct mr_pbtext_lines lines;
    const void *at; /* the message or string that is being read, for the line of an error */
    struct mr_err *err;
};

/* Its line. */
static uint32_t go_to(struct reader *r, const void *at)
{
    r->at = at;
    return mr_pbtext_line_of(&r->lines, at);
}

static int no_memory(struct reader *r)
{
    return MR_FAIL(r->err, MR_E_EXHAUSTED, "the file of endpoints needs more than %zu MiB",
                   ARENA_MAX >> 20);
}

static int copy(struct reader *r, const char *text, mr_str *out)
{
    *out = mr_arena_str(r->a, mr_str_c(text));
    return out->ptr ? MR_OK : no_memory(r);
}

/* ---- words ---- */

static bool is_tag(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        const char c = s.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              strchr("-_.", c))) {
            return false;
        }
    }
    return s.len > 0 && s.len <= 64;
}

int mr_variant_tag_check(mr_str tag, struct mr_err *err)
{
    if (!is_tag(tag)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "tag '%.*s': possible are 1 to 64 letters, digits, '-', '_' and '.'",
                       MR_STR_ARG(mr_str_sub(tag, 0, 80)));
    }
    return MR_OK;
}

int mr_sticky_parse(mr_str text, enum mr_sticky_kind *out, mr_str *name, struct mr_err *err)
{
    const mr_str header = MR_STR("header:"), parameter = MR_STR("parameter:");
    const bool is_header = mr_str_starts(text, header);

    if ((is_header || mr_str_starts(text, parameter)) &&
        text.len > (is_header ? header.len : parameter.len) && text.len <= NAME_MAX_LEN) {
        *name = mr_str_sub(text, is_header ? header.len : parameter.len, text.len);
        *out = is_header ? MR_STICKY_HEADER : MR_STICKY_PARAMETER;
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID,
                   "key '%.*s': possible are header:NAME and parameter:NAME, of up to 255 bytes",
                   MR_STR_ARG(mr_str_sub(text, 0, 80)));
}

int mr_compare_parse(mr_str text, enum mr_compare_kind *out, double *tolerance, struct mr_err *err)
{
    const mr_str prefix = MR_STR("tolerance:");
    bool is_number;

    *tolerance = 0;
    if (text.len == 0 || mr_str_eq(text, MR_STR("equal"))) {
        *out = text.len ? MR_COMPARE_EQUAL : MR_COMPARE_NONE;
        return MR_OK;
    }
    is_number = mr_str_starts(text, prefix) &&
                mr_text_double(mr_str_sub(text, prefix.len, text.len), tolerance);
    if (!is_number || !(*tolerance >= 0 && *tolerance <= 1e30)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "compare '%.*s': possible are 'equal' and 'tolerance:NUMBER'",
                       MR_STR_ARG(mr_str_sub(text, 0, 80)));
    }
    *out = MR_COMPARE_TOLERANCE;
    return MR_OK;
}

/* ---- targets ---- */

static int read_name(struct reader *r, const char *name, const char *what, mr_str *out)
{
    const size_t len = strlen(name);

    if (len == 0 || len > NAME_MAX_LEN) {
        return MR_FAIL(r->err, MR_E_INVALID, "%s: a name of 1 to 255 bytes is needed, not of %zu",
                       what, len);
    }
    return copy(r, name, out);
}

static int read_version(struct reader *r, bool has_number, int64_t number, const char *label,
                        mr_str *out)
{
    char text[MR_I64_TEXT + 1];

    *out = MR_STR("");
    if (has_number && number < -1) {
        return MR_FAIL(r->err, MR_E_INVALID, "version: %lld, possible is -1 or a number from 0 on",
                       (long long)number);
    }
    if (has_number && number >= 0) {
        *mr_i64_put(text, number) = '\0';
        return copy(r, text, out);
    }
    return label ? read_name(r, label, "label", out) : MR_OK;
}

static int read_remotes(struct reader *r, char *const *remotes, size_t count,
                        struct mr_variant_target *out)
{
    mr_str *list;

    if (count == 0) {
        return MR_OK;
    }
    if (count > MR_REMOTES_MAX) {
        return MR_FAIL(r->err, MR_E_INVALID, "%zu times remote, possible are %u", count,
                       MR_REMOTES_MAX);
    }
    list = MR_ARENA_ARRAY(r->a, mr_str, count);
    if (!list) {
        return no_memory(r);
    }
    for (size_t i = 0; i < count; i++) {
        r->at = remotes[i];
        int rc = read_name(r, remotes[i], "remote", &list[i]);
        if (rc < 0) {
            return rc;
        }
    }
    out->remotes = list;
    out->remote_count = count;
    return MR_OK;
}

static int read_variant(struct reader *r, const Millrace__VariantConfig *c,
                        struct mr_variant_config *out)
{
    const bool has_number = c->which_case == MILLRACE__VARIANT_CONFIG__WHICH_VERSION;
    const char *label = c->which_case == MILLRACE__VARIANT_CONFIG__WHICH_LABEL ? c->label : NULL;
    int rc;

    out->line = go_to(r, c);
    MR_TRY(mr_variant_tag_check(mr_str_c(c->tag), r->err));
    MR_TRY(copy(r, c->tag, &out->tag));
    MR_TRY(read_name(r, c->model, "model", &out->target.model));
    MR_TRY(read_version(r, has_number, c->version, label, &out->target.version));
    MR_TRY(read_remotes(r, c->remote, c->n_remote, &out->target));
    out->weight = c->weight == 0 ? 0 : c->weight; /* not -0 */
out:
    return rc;
}

/* ---- parts of an endpoint ---- */

int mr_ramp_read(struct mr_ramp *out, const Millrace__RampConfig *c, unsigned variant,
                 const mr_str *tags, const double *weights, size_t count, struct mr_err *err)
{
    int rc;

    *out = (struct mr_ramp){
        .variant = variant,
        .to = c->to,
        .step = c->step,
        .every_ns = (int64_t)c->every_s * MR_NS_PER_S,
        .min_samples = c->min_samples ? c->min_samples : 100,
        .on_breach = c->on_breach == MILLRACE__RAMP_CONFIG__ON_BREACH__HOLD ? MR_RAMP_HOLD
                                                                            : MR_RAMP_ROLLBACK,
        .has_guard = c->guard[0] != '\0',
    };
    rc = mr_ramp_check(out, weights, count, err);
    if (rc == MR_OK && out->has_guard) {
        rc = mr_guard_parse(&out->guard, mr_str_c(c->guard), tags, count, variant, err);
    }
    return rc;
}

static int read_ramp(struct reader *r, const Millrace__RampConfig *c, unsigned variant,
                     const mr_str *tags, const double *weights, size_t count,
                     const struct mr_ramp **out)
{
    struct mr_ramp *ramp = MR_ARENA_NEW(r->a, struct mr_ramp);

    if (!ramp) {
        return no_memory(r);
    }
    *out = ramp;
    return mr_ramp_read(ramp, c, variant, tags, weights, count, r->err);
}

static int read_shadow(struct reader *r, const Millrace__ShadowConfig *c,
                       const struct mr_shadow_config **out)
{
    const bool has_number = c->which_case == MILLRACE__SHADOW_CONFIG__WHICH_VERSION;
    const char *label = c->which_case == MILLRACE__SHADOW_CONFIG__WHICH_LABEL ? c->label : NULL;
    struct mr_shadow_config *s = MR_ARENA_NEW(r->a, struct mr_shadow_config);
    char percent[32];
    int rc;

    if (!s) {
        return no_memory(r);
    }
    s->line = go_to(r, c);
    MR_TRY(copy(r, c->tag[0] ? c->tag : "shadow", &s->tag));
    MR_TRY(mr_variant_tag_check(s->tag, r->err));
    MR_TRY(read_name(r, c->model, "model", &s->target.model));
    MR_TRY(read_version(r, has_number, c->version, label, &s->target.version));
    MR_TRY(read_remotes(r, c->remote, c->n_remote, &s->target));
    r->at = c;
    MR_TRY(mr_compare_parse(mr_str_c(c->compare), &s->compare, &s->tolerance, r->err));
    s->percent = c->percent;
    s->max_queue = c->max_queue ? c->max_queue : 64;
    if (!(s->percent >= 0 && s->percent <= 100)) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "percent: %.*s, possible is 0 to 100",
                     (int)mr_double_text(s->percent, percent), percent);
    } else if (s->max_queue > 4096) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "max_queue: %u, possible is 1 to 4096", s->max_queue);
    }
    *out = s;
out:
    return rc;
}

static int read_sticky(struct reader *r, const Millrace__StickyConfig *c,
                       struct mr_endpoint_config *out)
{
    mr_str name = {0};
    int rc;

    r->at = c;
    MR_TRY(mr_sticky_parse(mr_str_c(c->key), &out->sticky, &name, r->err));
    MR_TRY(copy(r, name.ptr, &out->key));
    MR_TRY(copy(r, c->salt, &out->salt));
    if (out->sticky == MR_STICKY_HEADER) {
        char *p = (char *)(uintptr_t)out->key.ptr;
        for (size_t i = 0; i < out->key.len; i++) {
            p[i] = (char)(p[i] >= 'A' && p[i] <= 'Z' ? p[i] + ('a' - 'A') : p[i]);
        }
    }
out:
    return rc;
}

static int read_variants(struct reader *r, const Millrace__EndpointConfig *c,
                         struct mr_variant_config *list, mr_str *tags, double *weights)
{
    for (size_t i = 0; i < c->n_variant; i++) {
        int rc = read_variant(r, c->variant[i], &list[i]);
        if (rc < 0) {
            return MR_WRAP(r->err, rc, "variant %zu", i + 1);
        }
        tags[i] = list[i].tag;
        weights[i] = list[i].weight;
        r->at = c->variant[i];
        for (size_t k = 0; k < i; k++) {
            if (mr_str_eq(tags[k], tags[i])) {
                return MR_FAIL(r->err, MR_E_INVALID, "variants %zu and %zu have the same tag '%s'",
                               k + 1, i + 1, tags[i].ptr);
            }
        }
    }
    r->at = c;
    return mr_variant_weights_check(weights, tags, c->n_variant, r->err);
}

static int read_ramps(struct reader *r, const Millrace__EndpointConfig *c, const mr_str *tags,
                      const double *weights, struct mr_endpoint_config *out)
{
    for (size_t i = 0; i < c->n_variant; i++) {
        if (!c->variant[i]->ramp) {
            continue;
        }
        r->at = c->variant[i]->ramp;
        if (out->ramp) {
            return MR_FAIL(r->err, MR_E_INVALID,
                           "variants '%s' and '%s' have a ramp, but only one at a time may change",
                           tags[out->ramp->variant].ptr, tags[i].ptr);
        }
        int rc =
            read_ramp(r, c->variant[i]->ramp, (unsigned)i, tags, weights, c->n_variant, &out->ramp);
        if (rc < 0) {
            return MR_WRAP(r->err, rc, "variant '%s'", tags[i].ptr);
        }
    }
    return MR_OK;
}

static int keep_text(struct reader *r, const ProtobufCMessage *m, mr_str *out)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_pbtext_print(m, &b);
    *out = b.failed ? (mr_str){NULL, 0} : mr_arena_str(r->a, mr_buf_view(&b));
    mr_buf_fini(&b);
    return out->ptr ? MR_OK : no_memory(r);
}

static int read_endpoint(struct reader *r, const Millrace__EndpointConfig *c,
                         struct mr_endpoint_config *out)
{
    mr_str tags[MR_VARIANTS_MAX] = {0};
    double weights[MR_VARIANTS_MAX] = {0};
    struct mr_variant_config *list;
    int rc;

    if (c->n_variant == 0 || c->n_variant > MR_VARIANTS_MAX) {
        return mr_variant_weights_check(weights, tags, c->n_variant, r->err);
    }
    list = MR_ARENA_ARRAY(r->a, struct mr_variant_config, c->n_variant);
    if (!list) {
        return no_memory(r);
    }
    MR_TRY(read_variants(r, c, list, tags, weights));
    out->variants = list;
    out->variant_count = c->n_variant;
    MR_TRY(read_ramps(r, c, tags, weights, out));
    if (c->sticky) {
        MR_TRY(read_sticky(r, c->sticky, out));
    }
    if (c->shadow) {
        rc = read_shadow(r, c->shadow, &out->shadow);
        MR_TRY(rc < 0 ? MR_WRAP(r->err, rc, "shadow") : MR_OK);
    }
    MR_TRY(keep_text(r, &c->base, &out->text));
out:
    return rc;
}

/* ---- services ---- */

static int read_cases(struct reader *r, const Millrace__ServiceRouteConfig *c,
                      struct mr_service_config *out)
{
    struct mr_service_case *list =
        MR_ARENA_ARRAY(r->a, struct mr_service_case, c->n_value_mapped_workflows + 1);
    int rc = MR_OK;

    if (!list) {
        return no_memory(r);
    }
    for (size_t i = 0; i < c->n_value_mapped_workflows; i++) {
        const Millrace__ServiceRouteConfig__Case *m = c->value_mapped_workflows[i];
        list[i].line = go_to(r, m);
        MR_TRY(copy(r, m->request_field_value, &list[i].value));
        MR_TRY(read_name(r, m->workflow, "workflow", &list[i].model));
    }
    out->cases = list;
    out->case_count = c->n_value_mapped_workflows;
out:
    return rc;
}

static int read_service(struct reader *r, const Millrace__ServiceRouteConfig *c,
                        struct mr_service_config *out)
{
    int rc;

    if (c->n_value_mapped_workflows > 256) {
        return MR_FAIL(r->err, MR_E_INVALID, "%zu values, possible are 256",
                       c->n_value_mapped_workflows);
    }
    MR_TRY(read_name(r, c->request_field_key, "request_field_key", &out->parameter));
    MR_TRY(copy(r, c->default_, &out->otherwise));
    if (c->n_value_mapped_workflows == 0 && out->otherwise.len == 0) {
        rc = MR_FAIL(r->err, MR_E_INVALID, "neither value_mapped_workflows nor default");
        goto out;
    }
    rc = read_cases(r, c, out);
out:
    return rc;
}

/* ---- the file ---- */

static bool is_name(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if ((unsigned char)s.ptr[i] <= ' ' || s.ptr[i] == '/' || s.ptr[i] == 0x7f) {
            return false;
        }
    }
    return s.len > 0 && s.len <= NAME_MAX_LEN && mr_utf8_valid(s);
}

/* Of the i-th entry: names are those of models to a client, so they are unique. */
static int take_name(struct reader *r, struct mr_map *names, const char *name, const char *what,
                     size_t i, mr_str *out)
{
    int rc;

    if (!is_name(mr_str_c(name))) {
        return MR_FAIL(r->err, MR_E_INVALID,
                       "%s %zu: name '%.80s': possible are 1 to 255 bytes of UTF-8 without blanks "
                       "and '/'",
                       what, i + 1, name);
    }
    rc = copy(r, name, out);
    if (rc == MR_OK && mr_map_put(names, *out, r)) {
        return MR_FAIL(r->err, MR_E_INVALID, "%s '%s': there are two of this name", what, name);
    }
    return rc;
}

static int read_all(struct reader *r, const Millrace__ServiceConfig *c, struct mr_map *names,
                    struct mr_service_file *out)
{
    struct mr_endpoint_config *e;
    struct mr_service_config *s;
    int rc = MR_OK;

    if (c->n_endpoint > MR_ENDPOINTS_MAX || c->n_service > MR_ENDPOINTS_MAX) {
        return MR_FAIL(r->err, MR_E_INVALID, "%zu endpoints and %zu services, possible are %u each",
                       c->n_endpoint, c->n_service, MR_ENDPOINTS_MAX);
    }
    e = MR_ARENA_ARRAY(r->a, struct mr_endpoint_config, c->n_endpoint + 1);
    s = MR_ARENA_ARRAY(r->a, struct mr_service_config, c->n_service + 1);
    if (!e || !s) {
        return no_memory(r);
    }
    for (size_t i = 0; i < c->n_endpoint; i++) {
        e[i].line = go_to(r, c->endpoint[i]);
        MR_TRY(take_name(r, names, c->endpoint[i]->name, "endpoint", i, &e[i].name));
        rc = read_endpoint(r, c->endpoint[i], &e[i]);
        MR_TRY(rc < 0 ? MR_WRAP(r->err, rc, "endpoint '%s'", e[i].name.ptr) : MR_OK);
    }
    for (size_t i = 0; i < c->n_service; i++) {
        s[i].line = go_to(r, c->service[i]);
        MR_TRY(take_name(r, names, c->service[i]->name, "service", i, &s[i].name));
        rc = read_service(r, c->service[i], &s[i]);
        MR_TRY(rc < 0 ? MR_WRAP(r->err, rc, "service '%s'", s[i].name.ptr) : MR_OK);
    }
    out->endpoints = e;
    out->endpoint_count = c->n_endpoint;
    out->services = s;
    out->service_count = c->n_service;
out:
    return rc;
}

int mr_service_file_parse(mr_str text, struct mr_service_file **out, struct mr_err *err)
{
    struct reader r = {.err = err};
    struct mr_service_file *f;
    ProtobufCMessage *m = NULL;
    struct mr_map names = {0};
    int rc;

    if (text.len > MR_SERVICE_FILE_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%zu bytes, a file of endpoints may have %zu", text.len,
                       MR_SERVICE_FILE_MAX);
    }
    f = MR_NEW(struct mr_service_file);
    mr_arena_init(&f->arena, 4096, ARENA_MAX);
    r.a = &f->arena;
    MR_TRY(mr_pbtext_parse_lines(&millrace__service_config__descriptor, text, &r.lines, &m, err));
    rc = read_all(&r, (const Millrace__ServiceConfig *)m, &names, f);
    MR_TRY(rc < 0 ? MR_WRAP(err, rc, "line %u", go_to(&r, r.at)) : MR_OK);
    *out = f;
    f = NULL;
out:
    mr_pbtext_lines_fini(&r.lines);
    mr_map_fini(&names);
    if (m) {
        protobuf_c_message_free_unpacked(m, NULL);
    }
    mr_service_file_free(&f);
    return rc;
}

void mr_service_file_free(struct mr_service_file **f)
{
    if (*f) {
        mr_arena_fini(&(*f)->arena);
    }
    mr_freep(f);
}
