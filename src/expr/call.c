/* Compiles names: operands, what is asked of tensors, and functions. */
#include "parse.h"

#include <limits.h>

/* The tensor or value `name`; *out: its operand. */
static int find_operand(struct expr_parse *p, enum mr_expr_form form, mr_str name, uint16_t *out)
{
    for (size_t i = 0; i < p->x->operands.len; i++) {
        if (p->x->operands.at[i].form == form && mr_str_eq(p->x->operands.at[i].name, name)) {
            *out = (uint16_t)i;
            return MR_OK;
        }
    }
    return MR_E_NOT_FOUND;
}

static int add_operand(struct expr_parse *p, size_t at, struct mr_expr_operand operand,
                       uint16_t *out)
{
    if (p->x->operands.len == MR_EXPR_OPERANDS_MAX) {
        return expr_fail_at(p->x->text, at, p->err, "more than %d names", MR_EXPR_OPERANDS_MAX);
    }
    *out = (uint16_t)p->x->operands.len;
    MR_VEC_PUSH(&p->x->operands, operand);
    return MR_OK;
}

/* Asks the caller what the name is, each time that the text has it: the shape is not kept. */
static int resolve(struct expr_parse *p, size_t at, enum mr_expr_form form, mr_str name,
                   struct mr_expr_symbol *out)
{
    int rc = p->names->resolve(p->names->ctx, form, name, out, p->err);

    if (rc < 0) {
        return MR_WRAP(p->err, rc, "column %u", expr_column(p->x->text, at));
    }
    return MR_OK;
}

static int operand_of(struct expr_parse *p, size_t at, enum mr_expr_form form, mr_str name,
                      struct mr_expr_symbol *out_symbol, uint16_t *out)
{
    *out_symbol = (struct mr_expr_symbol){.type = MR_EXPR_STRING};
    if (form != MR_EXPR_PARAMETER && form != MR_EXPR_HEADER) {
        int rc = resolve(p, at, form, name, out_symbol);
        if (rc < 0) {
            return rc;
        }
    }
    if (find_operand(p, form, name, out) == MR_OK) {
        return MR_OK;
    }
    struct mr_expr_operand operand = {.form = form,
                                      .is_tensor = form == MR_EXPR_NAME && out_symbol->is_tensor,
                                      .dtype = out_symbol->dtype,
                                      .id = out_symbol->id,
                                      .name = name};
    return add_operand(p, at, operand, out);
}

/* A name in brackets after a function's name: the token of a tensor, node … */
static int parse_name_argument(struct expr_parse *p, const char *what, struct expr_token *out)
{
    *out = p->token;
    return expr_expect(p, EXPR_T_NAME, what);
}

/* Elements that the shape promises from dimension `from` on; -1: not known. */
static int64_t known_elements(const struct mr_expr_symbol *s, int from)
{
    int64_t n = 1;

    if (s->rank < 0 || !s->shape) {
        return s->rank == 0 ? 1 : -1;
    }
    for (int i = from; i < s->rank; i++) {
        if (s->shape[i] < 0 || __builtin_mul_overflow(n, s->shape[i], &n)) {
            return -1;
        }
    }
    return n;
}

/* NAME alone must be one element. */
static int check_single(struct expr_parse *p, const struct expr_token *name,
                        const struct mr_expr_symbol *s)
{
    int64_t n = known_elements(s, p->x->by_row ? 1 : 0);

    if (n < 0 || n == 1) {
        return MR_OK;
    }
    return expr_fail_at(p->x->text, name->at, p->err,
                        "tensor '%.*s' has %lld elements%s; write %.*s[0], max(%.*s) …",
                        MR_STR_ARG(mr_str_sub(name->text, 0, 80)), (long long)n,
                        p->x->by_row ? " per row" : "", MR_STR_ARG(mr_str_sub(name->text, 0, 40)),
                        MR_STR_ARG(mr_str_sub(name->text, 0, 40)));
}

/* "[i, j]" from its bracket; *out: how many. */
static int parse_indices(struct expr_parse *p, uint16_t *out)
{
    enum mr_expr_type type;
    uint16_t n = 0;
    int rc;

    MR_TRY(expr_enter(p));
    do {
        MR_TRY(expr_advance(p)); /* '[' or ',' */
        size_t at = p->token.at;
        MR_TRY(expr_parse_or(p, &type));
        if (type != MR_EXPR_INT) {
            return expr_fail_at(p->x->text, at, p->err, "an index must be an int, not a %s",
                                mr_expr_type_name(type));
        }
        if (++n > MR_MAX_RANK) {
            return expr_fail_at(p->x->text, at, p->err, "more than %d indices", MR_MAX_RANK);
        }
    } while (p->token.kind == ',');
    expr_leave(p);
    MR_TRY(expr_expect(p, ']', "',' or ']'"));
    *out = n;
out:
    return rc;
}

/* An element of a tensor: NAME, NAME[i] in row-major order, NAME[i,j]. */
static int parse_element(struct expr_parse *p, const struct expr_token *name,
                         const struct mr_expr_symbol *s, struct expr_step step)
{
    int rc = MR_OK;

    step.op = EXPR_ELEMENT;
    step.type = (uint8_t)expr_type_of_dtype(s->dtype);
    if (p->token.kind != '[') {
        MR_TRY(check_single(p, name, s));
        return expr_emit(p, step, 0);
    }
    MR_TRY(parse_indices(p, &step.n));
    int dims = s->rank - (p->x->by_row && s->rank > 0 ? 1 : 0);
    if (step.n > 1 && s->rank >= 0 && step.n != dims) {
        return expr_fail_at(p->x->text, name->at, p->err,
                            "%d indices of tensor '%.*s', which has %d dimensions%s", step.n,
                            MR_STR_ARG(mr_str_sub(name->text, 0, 80)), dims,
                            p->x->by_row ? " per row" : "");
    }
    rc = expr_emit(p, step, step.n);
out:
    return rc;
}

/* A name that is no function. */
static int parse_operand(struct expr_parse *p, const struct expr_token *name,
                         enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_VALUE, .at = (uint16_t)name->at, .constant = UINT32_MAX};
    struct mr_expr_symbol s;
    int rc = operand_of(p, name->at, MR_EXPR_NAME, name->text, &s, &step.operand);

    if (rc < 0) {
        return rc;
    }
    p->x->operands.at[step.operand].is_required = true;
    *out = s.is_tensor ? expr_type_of_dtype(s.dtype) : s.type;
    if (s.is_tensor) {
        return parse_element(p, name, &s, step);
    }
    step.type = (uint8_t)s.type;
    return expr_emit(p, step, 0);
}

/* parameter("x"[, default]) and header(…), from the name of what is asked for. */
static int parse_request_value(struct expr_parse *p, enum mr_expr_form form, size_t at,
                               enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_VALUE, .at = (uint16_t)at};
    struct mr_expr_value value = {.type = MR_EXPR_STRING, .s = MR_STR("")};
    struct expr_token name = p->token;
    struct mr_expr_symbol s;
    int rc;

    MR_TRY(expr_expect(p, EXPR_T_STRING, "a name in quotes"));
    MR_TRY(operand_of(p, name.at, form, name.text, &s, &step.operand));
    if (p->token.kind == ',') {
        MR_TRY(expr_advance(p));
        MR_TRY(expr_parse_literal(p, &value));
    }
    p->x->operands.at[step.operand].is_required = true;
    expr_constant(p, value, &step.constant);
    step.type = (uint8_t)value.type;
    *out = value.type;
    rc = expr_emit(p, step, 0);
out:
    return rc;
}

static int call_request(struct expr_parse *p, const struct expr_token *f, int which,
                        enum mr_expr_type *out)
{
    return parse_request_value(p, (enum mr_expr_form)which, f->at, out);
}

/* status(node), variant(node). */
static int call_node(struct expr_parse *p, const struct expr_token *f, int form,
                     enum mr_expr_type *out)
{
    struct expr_step step = {
        .op = EXPR_VALUE, .type = MR_EXPR_STRING, .at = (uint16_t)f->at, .constant = UINT32_MAX};
    struct mr_expr_symbol s;
    struct expr_token name;
    int rc;

    MR_TRY(parse_name_argument(p, "the name of a node", &name));
    MR_TRY(operand_of(p, name.at, (enum mr_expr_form)form, name.text, &s, &step.operand));
    p->x->operands.at[step.operand].is_required = true;
    *out = MR_EXPR_STRING;
    rc = expr_emit(p, step, 0);
out:
    return rc;
}

/* The tensor that a function of tensors is about. */
static int parse_tensor(struct expr_parse *p, const struct expr_token *f,
                        struct mr_expr_symbol *out_symbol, uint16_t *out)
{
    struct expr_token name;
    int rc;

    MR_TRY(parse_name_argument(p, "the name of a tensor", &name));
    MR_TRY(operand_of(p, name.at, MR_EXPR_NAME, name.text, out_symbol, out));
    if (!out_symbol->is_tensor) {
        return expr_fail_at(p->x->text, name.at, p->err, "%.*s() needs a tensor, '%.*s' is none",
                            MR_STR_ARG(f->text), MR_STR_ARG(mr_str_sub(name.text, 0, 80)));
    }
    p->x->operands.at[*out].is_required = true;
out:
    return rc;
}

/* rows(T), size(T). */
static int call_extent(struct expr_parse *p, const struct expr_token *f, int op,
                       enum mr_expr_type *out)
{
    struct expr_step step = {.op = (uint8_t)op, .type = MR_EXPR_INT, .at = (uint16_t)f->at};
    struct mr_expr_symbol s;
    int rc = parse_tensor(p, f, &s, &step.operand);

    if (rc < 0) {
        return rc;
    }
    if (op == EXPR_ROWS && s.rank == 0) {
        return expr_fail_at(p->x->text, f->at, p->err, "rows() of a tensor without dimensions");
    }
    *out = MR_EXPR_INT;
    return expr_emit(p, step, 0);
}

/* min, max, sum, any, all of a tensor's elements. */
static int call_aggregate(struct expr_parse *p, const struct expr_token *f, int kind,
                          enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_AGGREGATE, .at = (uint16_t)f->at, .n = (uint16_t)kind};
    struct mr_expr_symbol s;
    int rc = parse_tensor(p, f, &s, &step.operand);

    if (rc < 0) {
        return rc;
    }
    enum mr_expr_type element = expr_type_of_dtype(s.dtype);
    bool is_logic = kind == EXPR_ANY || kind == EXPR_ALL;
    bool is_order = kind == EXPR_MIN || kind == EXPR_MAX;
    if (element == MR_EXPR_STRING || (element == MR_EXPR_BOOL && is_order)) {
        return expr_fail_at(p->x->text, f->at, p->err, "%.*s() of a tensor of %ss",
                            MR_STR_ARG(f->text), mr_expr_type_name(element));
    }
    *out = is_logic ? MR_EXPR_BOOL : element == MR_EXPR_BOOL ? MR_EXPR_INT : element;
    step.type = (uint8_t)*out;
    return expr_emit(p, step, 0);
}

/* present(NAME), present(parameter("x")), present(header("x")). */
static int call_present(struct expr_parse *p, const struct expr_token *f, int unused,
                        enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_PRESENT, .type = MR_EXPR_BOOL, .at = (uint16_t)f->at};
    enum mr_expr_form form = MR_EXPR_NAME;
    struct mr_expr_symbol s;
    struct expr_token name;
    int rc;

    (void)unused;
    MR_TRY(parse_name_argument(p, "the name of a tensor, parameter(…) or header(…)", &name));
    if (p->token.kind == '(' && !name.is_quoted) {
        if (!mr_str_eq(name.text, MR_STR("parameter")) && !mr_str_eq(name.text, MR_STR("header"))) {
            return expr_fail_at(p->x->text, name.at, p->err, "present() of '%.*s(…)'",
                                MR_STR_ARG(mr_str_sub(name.text, 0, 80)));
        }
        form = name.text.ptr[0] == 'p' ? MR_EXPR_PARAMETER : MR_EXPR_HEADER;
        MR_TRY(expr_advance(p));
        name = p->token;
        MR_TRY(expr_expect(p, EXPR_T_STRING, "a name in quotes"));
        MR_TRY(expr_expect(p, ')', "')'"));
    }
    MR_TRY(operand_of(p, name.at, form, name.text, &s, &step.operand));
    *out = MR_EXPR_BOOL;
    rc = expr_emit(p, step, 0);
out:
    return rc;
}

/* prefix(s, p), suffix(s, p). */
static int call_affix(struct expr_parse *p, const struct expr_token *f, int op,
                      enum mr_expr_type *out)
{
    struct expr_step step = {.op = (uint8_t)op, .type = MR_EXPR_BOOL, .at = (uint16_t)f->at};
    enum mr_expr_type a, b;
    int rc;

    MR_TRY(expr_parse_or(p, &a));
    MR_TRY(expr_expect(p, ',', "',' and a second string"));
    MR_TRY(expr_parse_or(p, &b));
    if (a != MR_EXPR_STRING || b != MR_EXPR_STRING) {
        return expr_fail_at(p->x->text, f->at, p->err, "%.*s() needs two strings",
                            MR_STR_ARG(f->text));
    }
    *out = MR_EXPR_BOOL;
    rc = expr_emit(p, step, 2);
out:
    return rc;
}

static int call_abs(struct expr_parse *p, const struct expr_token *f, int op,
                    enum mr_expr_type *out)
{
    struct expr_step step = {.op = (uint8_t)op, .at = (uint16_t)f->at};
    int rc = expr_parse_or(p, out);

    if (rc < 0) {
        return rc;
    }
    if (*out != MR_EXPR_INT && *out != MR_EXPR_FLOAT) {
        return expr_fail_at(p->x->text, f->at, p->err, "abs() needs a number");
    }
    step.type = (uint8_t)*out;
    return expr_emit(p, step, 1);
}

static const struct function {
    const char *name;
    /* from the token after '(' to before ')' */
    int (*call)(struct expr_parse *, const struct expr_token *, int, enum mr_expr_type *);
    int which;
} functions[] = {
    {"parameter", call_request, MR_EXPR_PARAMETER},
    {"header", call_request, MR_EXPR_HEADER},
    {"status", call_node, MR_EXPR_STATUS},
    {"variant", call_node, MR_EXPR_VARIANT},
    {"rows", call_extent, EXPR_ROWS},
    {"size", call_extent, EXPR_SIZE},
    {"min", call_aggregate, EXPR_MIN},
    {"max", call_aggregate, EXPR_MAX},
    {"sum", call_aggregate, EXPR_SUM},
    {"any", call_aggregate, EXPR_ANY},
    {"all", call_aggregate, EXPR_ALL},
    {"present", call_present, 0},
    {"prefix", call_affix, EXPR_PREFIX},
    {"startswith", call_affix, EXPR_PREFIX},
    {"suffix", call_affix, EXPR_SUFFIX},
    {"endswith", call_affix, EXPR_SUFFIX},
    {"abs", call_abs, EXPR_ABS},
};

static const struct function *function_of(mr_str name)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        if (mr_str_eq_c(name, functions[i].name)) {
            return &functions[i];
        }
    }
    return NULL;
}

int expr_parse_name(struct expr_parse *p, enum mr_expr_type *out)
{
    struct expr_token name = p->token;
    int rc;

    MR_TRY(expr_advance(p));
    if (p->token.kind != '(' || name.is_quoted) {
        return parse_operand(p, &name, out);
    }
    const struct function *f = function_of(name.text);
    if (!f) {
        return expr_fail_at(p->x->text, name.at, p->err, "there is no function '%.*s'",
                            MR_STR_ARG(mr_str_sub(name.text, 0, 80)));
    }
    MR_TRY(expr_enter(p));
    MR_TRY(expr_advance(p));
    MR_TRY(f->call(p, &name, f->which, out));
    expr_leave(p);
    rc = expr_expect(p, ')', "')'");
out:
    return rc;
}
