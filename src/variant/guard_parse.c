/* Text to the tree of a guard, by precedence climbing. The tree is a fixed array, depth and size are bounded, and each
 * node knows the text that it came from, for the reasons of mr_guard_eval. */
#include "guard_ops.h"
#include "variant/guard.h"

#define DEPTH_MAX 24u

struct parser {
    struct mr_guard *g;
    size_t at, len;
    const mr_str *tags;
    size_t tag_count;
    unsigned self;
    unsigned depth;
    struct mr_err *err;
};

static int fail_at(struct parser *p, size_t at, const char *what)
{
    return MR_FAIL(p->err, MR_E_INVALID, "guard \"%.120s\" column %zu: %s", p->g->text, at + 1,
                   what);
}

static void skip_blanks(struct parser *p)
{
    while (p->at < p->len && strchr(" \t\r\n", p->g->text[p->at])) {
        p->at++;
    }
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Of a node: its index. */
static int add_node(struct parser *p, struct mr_guard_node n)
{
    if (p->g->count >= MR_GUARD_NODES_MAX) {
        return fail_at(p, n.from, "too long, 96 numbers, metrics and operators are possible");
    }
    p->g->nodes[p->g->count] = n;
    return p->g->count++;
}

static bool is_condition(const struct parser *p, int node)
{
    return p->g->nodes[node].op >= GUARD_LT;
}

static int need(struct parser *p, int node, bool condition)
{
    if (is_condition(p, node) == condition) {
        return MR_OK;
    }
    return fail_at(p, p->g->nodes[node].from,
                   condition ? "a number, where a condition is needed, such as err < 0.01"
                             : "a condition, where a number is needed");
}

/* ---- numbers and metrics ---- */

static int parse_number(struct parser *p)
{
    const size_t from = p->at;
    double value = 0, unit = 1;
    bool has_point = false;

    for (; p->at < p->len; p->at++) {
        const char c = p->g->text[p->at];
        if (c == '.' && !has_point) {
            has_point = true;
        } else if (c >= '0' && c <= '9') {
            value = value * 10 + (c - '0');
            unit *= has_point ? 10 : 1;
        } else {
            break;
        }
    }
    if (p->at - from > 18 || is_word(p->g->text[p->at])) {
        return fail_at(p, from, "a number is up to 18 digits with a point, without an exponent");
    }
    return add_node(p, (struct mr_guard_node){.op = GUARD_NUMBER,
                                              .number = value / unit,
                                              .from = (uint16_t)from,
                                              .to = (uint16_t)p->at});
}

/* "p99_ms" is 0.99, "p999_ms" 0.999; "p100_ms" would be 0.1, which is not what it says. */
static bool read_quantile(mr_str name, double *out)
{
    double unit = 1;

    if (name.len < 6 || name.len > 10 || name.ptr[0] != 'p' || !mr_str_ends(name, MR_STR("_ms"))) {
        return false;
    }
    *out = 0;
    for (size_t i = 1; i < name.len - 3; i++) {
        if (name.ptr[i] < '0' || name.ptr[i] > '9') {
            return false;
        }
        *out = *out * 10 + (name.ptr[i] - '0');
        unit *= 10;
    }
    *out /= unit;
    return *out > 0 && (name.len == 6 || name.ptr[name.len - 4] != '0');
}

static bool read_metric(mr_str name, struct mr_guard_node *out)
{
    static const struct {
        const char *name;
        uint8_t op;
    } names[] = {{"err", GUARD_ERR},
                 {"server_err", GUARD_SERVER_ERR},
                 {"count", GUARD_COUNT},
                 {"mean_ms", GUARD_MEAN_MS}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (mr_str_eq_c(name, names[i].name)) {
            out->op = names[i].op;
            return true;
        }
    }
    out->op = GUARD_QUANTILE_MS;
    return read_quantile(name, &out->number);
}

/* A word, or what stands in quotes. ptr NULL: neither. */
static mr_str take_name(struct parser *p)
{
    const char *text = p->g->text;
    size_t from = p->at;

    if (from < p->len && text[from] == '\'') {
        const char *end = memchr(text + from + 1, '\'', p->len - from - 1);
        if (!end) {
            return (mr_str){NULL, 0};
        }
        p->at = (size_t)(end - text) + 1;
        return mr_str_n(text + from + 1, p->at - from - 2);
    }
    while (p->at < p->len && is_word(text[p->at])) {
        p->at++;
    }
    return p->at > from ? mr_str_n(text + from, p->at - from) : (mr_str){NULL, 0};
}

static int find_tag(struct parser *p, mr_str tag, size_t at, uint8_t *out)
{
    for (size_t i = 0; i < p->tag_count; i++) {
        if (mr_str_eq(p->tags[i], tag)) {
            *out = (uint8_t)i;
            return MR_OK;
        }
    }
    return fail_at(p, at, "there is no variant of this tag");
}

static int parse_metric(struct parser *p)
{
    struct mr_guard_node n = {.variant = (uint8_t)p->self, .from = (uint16_t)p->at};
    const bool is_quoted = p->g->text[p->at] == '\'';
    mr_str name = take_name(p);
    size_t at = n.from;

    if (!name.ptr) {
        return fail_at(p, at, "a number, a metric or '(' is needed here");
    }
    if (is_quoted || (p->at < p->len && p->g->text[p->at] == '.')) {
        int rc = find_tag(p, name, at, &n.variant);
        if (rc < 0) {
            return rc;
        }
        if (p->at >= p->len || p->g->text[p->at] != '.') {
            return fail_at(p, p->at, "'.' and a metric are needed after a tag");
        }
        at = ++p->at;
        name = take_name(p);
    }
    if (!name.ptr || !read_metric(name, &n)) {
        return fail_at(p, at,
                       "no such metric: there are err, server_err, count, mean_ms and quantiles "
                       "such as p50_ms, p99_ms, p999_ms");
    }
    p->g->uses |= UINT32_C(1) << n.variant;
    n.to = (uint16_t)p->at;
    return add_node(p, n);
}

/* ---- operators ---- */

static const struct operator_of {
    const char *text;
    uint8_t op;
    uint8_t strength;
    bool of_conditions;
} operators[] = {
    {"||", GUARD_OR, 1, true},  {"&&", GUARD_AND, 2, true}, {"<=", GUARD_LE, 3, false},
    {">=", GUARD_GE, 3, false}, {"==", GUARD_EQ, 3, false}, {"!=", GUARD_NE, 3, false},
    {"<", GUARD_LT, 3, false},  {">", GUARD_GT, 3, false},  {"+", GUARD_ADD, 4, false},
    {"-", GUARD_SUB, 4, false}, {"*", GUARD_MUL, 5, false}, {"/", GUARD_DIV, 5, false},
};

static const struct operator_of *next_operator(struct parser *p)
{
    skip_blanks(p);
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (mr_str_starts(mr_str_n(p->g->text + p->at, p->len - p->at),
                          mr_str_c(operators[i].text))) {
            return &operators[i];
        }
    }
    return NULL;
}

static int parse_above(struct parser *p, unsigned strength);

static int parse_sign(struct parser *p, uint8_t op)
{
    const size_t from = p->at++;
    /* "!" binds a whole comparison, "-" what follows at once */
    const int of = parse_above(p, op == GUARD_NOT ? 3 : 6);
    int rc;

    if (of < 0) {
        return of;
    }
    rc = need(p, of, op == GUARD_NOT);
    return rc < 0 ? rc
                  : add_node(p, (struct mr_guard_node){.op = op,
                                                       .left = (uint8_t)of,
                                                       .from = (uint16_t)from,
                                                       .to = p->g->nodes[of].to});
}

static int parse_group(struct parser *p)
{
    const size_t from = p->at++;
    const int of = parse_above(p, 1);

    if (of < 0) {
        return of;
    }
    skip_blanks(p);
    if (p->at >= p->len || p->g->text[p->at] != ')') {
        return fail_at(p, p->at, "')' is missing");
    }
    p->at++;
    p->g->nodes[of].from = (uint16_t)from;
    p->g->nodes[of].to = (uint16_t)p->at;
    return of;
}

static int parse_one(struct parser *p)
{
    skip_blanks(p);
    const char c = p->g->text[p->at];

    if (c == '(') {
        return parse_group(p);
    }
    if (c == '!' || c == '-') {
        return parse_sign(p, c == '!' ? GUARD_NOT : GUARD_NEG);
    }
    return (c >= '0' && c <= '9') || c == '.' ? parse_number(p) : parse_metric(p);
}

static int join(struct parser *p, const struct operator_of *o, int left, int right)
{
    int rc = need(p, left, o->of_conditions);

    if (rc == MR_OK) {
        rc = need(p, right, o->of_conditions);
    }
    return rc < 0 ? rc
                  : add_node(p, (struct mr_guard_node){.op = o->op,
                                                       .left = (uint8_t)left,
                                                       .right = (uint8_t)right,
                                                       .from = p->g->nodes[left].from,
                                                       .to = p->g->nodes[right].to});
}

/* Operators of at least this strength. Of a node: its index. */
static int parse_above(struct parser *p, unsigned strength)
{
    const struct operator_of *o;
    int left;

    if (++p->depth > DEPTH_MAX) {
        return fail_at(p, p->at, "nested deeper than 24");
    }
    left = parse_one(p);
    while (left >= 0 && (o = next_operator(p)) && o->strength >= strength) {
        p->at += strlen(o->text);
        const int right = parse_above(p, o->strength + 1u);
        left = right < 0 ? right : join(p, o, left, right);
    }
    p->depth--;
    return left;
}

int mr_guard_parse(struct mr_guard *out, mr_str text, const mr_str *tags, size_t count,
                   unsigned self, struct mr_err *err)
{
    struct mr_guard g = {.uses = UINT32_C(1) << self};
    struct parser p = {.g = &g, .tags = tags, .tag_count = count, .self = self, .err = err};
    int root, rc;

    text = mr_str_trim(text);
    if (text.len == 0 || text.len >= MR_GUARD_TEXT_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "a guard of %zu bytes, possible are 1 to %u", text.len,
                       MR_GUARD_TEXT_MAX - 1);
    }
    if (memchr(text.ptr, '\0', text.len)) {
        return MR_FAIL(err, MR_E_INVALID, "the guard has a byte 0");
    }
    memcpy(g.text, text.ptr, text.len);
    p.len = text.len;
    MR_TRY(root = parse_above(&p, 1));
    if (p.at < p.len) {
        rc = fail_at(&p, p.at, "an operator or the end is needed here");
        goto out;
    }
    MR_TRY(need(&p, root, true));
    g.root = (uint8_t)root;
    *out = g;
    rc = MR_OK;
out:
    return rc;
}
