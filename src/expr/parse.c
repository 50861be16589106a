/* Compiles an expression: recursive descent, one function per level of precedence, straight to steps. The recursion is bounded by
 * MR_EXPR_DEPTH_MAX, all tables by the length of the text. */
#include "parse.h"

int expr_advance(struct expr_parse *p)
{
    return expr_lex_next(&p->lex, &p->token, p->err);
}

int expr_expect(struct expr_parse *p, int kind, const char *what)
{
    if (p->token.kind != kind) {
        return expr_fail_at(p->x->text, p->token.at, p->err, "expected %s, found '%.*s'", what,
                            MR_STR_ARG(mr_str_sub(p->token.text, 0, 100)));
    }
    return expr_advance(p);
}

int expr_enter(struct expr_parse *p)
{
    if (++p->depth > MR_EXPR_DEPTH_MAX) {
        return expr_fail_at(p->x->text, p->token.at, p->err,
                            "more than %d levels of brackets and operators", MR_EXPR_DEPTH_MAX);
    }
    return MR_OK;
}

int expr_emit(struct expr_parse *p, struct expr_step step, uint32_t pops)
{
    p->height = p->height - pops + 1;
    if (p->height > EXPR_STACK_MAX) {
        return expr_fail_at(p->x->text, step.at, p->err,
                            "more than %d values at once; simplify the expression", EXPR_STACK_MAX);
    }
    MR_VEC_PUSH(&p->x->steps, step);
    return MR_OK;
}

void expr_constant(struct expr_parse *p, struct mr_expr_value value, uint32_t *out)
{
    *out = (uint32_t)p->x->constants.len;
    MR_VEC_PUSH(&p->x->constants, value);
}

static int parse_number(struct expr_parse *p, bool is_negative, struct mr_expr_value *out)
{
    if (p->token.kind == EXPR_T_INT && p->token.i == INT64_MIN) {
        if (!is_negative) {
            return expr_fail_at(p->x->text, p->token.at, p->err, "'%.*s' is no number of 64 bits",
                                MR_STR_ARG(p->token.text));
        }
        *out = (struct mr_expr_value){.type = MR_EXPR_INT, .i = INT64_MIN};
    } else if (p->token.kind == EXPR_T_INT) {
        *out = (struct mr_expr_value){.type = MR_EXPR_INT,
                                      .i = is_negative ? -p->token.i : p->token.i};
    } else if (p->token.kind == EXPR_T_FLOAT) {
        *out = (struct mr_expr_value){.type = MR_EXPR_FLOAT,
                                      .f = is_negative ? -p->token.f : p->token.f};
    } else {
        return expr_fail_at(p->x->text, p->token.at, p->err, "expected a number, found '%.*s'",
                            MR_STR_ARG(mr_str_sub(p->token.text, 0, 100)));
    }
    return expr_advance(p);
}

int expr_parse_literal(struct expr_parse *p, struct mr_expr_value *out)
{
    int kind = p->token.kind;
    int rc;

    if (kind == '-') {
        rc = expr_advance(p);
        return rc < 0 ? rc : parse_number(p, true, out);
    }
    if (kind == EXPR_T_STRING) {
        *out = (struct mr_expr_value){.type = MR_EXPR_STRING, .s = p->token.text};
        return expr_advance(p);
    }
    if (kind == EXPR_T_TRUE || kind == EXPR_T_FALSE) {
        *out = (struct mr_expr_value){.type = MR_EXPR_BOOL, .b = kind == EXPR_T_TRUE};
        return expr_advance(p);
    }
    if (kind != EXPR_T_INT && kind != EXPR_T_FLOAT) {
        return expr_fail_at(p->x->text, p->token.at, p->err,
                            "expected a number, a string, true or false, found '%.*s'",
                            MR_STR_ARG(mr_str_sub(p->token.text, 0, 100)));
    }
    return parse_number(p, false, out);
}

static int emit_constant(struct expr_parse *p, struct mr_expr_value value, size_t at,
                         enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_CONST, .type = (uint8_t)value.type, .at = (uint16_t)at};

    expr_constant(p, value, &step.constant);
    *out = value.type;
    return expr_emit(p, step, 0);
}

static int parse_primary(struct expr_parse *p, enum mr_expr_type *out)
{
    size_t at = p->token.at;
    struct mr_expr_value value;
    int rc;

    if (p->token.kind == EXPR_T_NAME) {
        return expr_parse_name(p, out);
    }
    if (p->token.kind == '(') {
        MR_TRY(expr_enter(p));
        MR_TRY(expr_advance(p));
        MR_TRY(expr_parse_or(p, out));
        expr_leave(p);
        return expr_expect(p, ')', "')'");
    }
    if (p->token.kind == EXPR_T_END || p->token.kind == '-') {
        return expr_fail_at(p->x->text, p->token.at, p->err, "expected a value, found '%.*s'",
                            MR_STR_ARG(p->token.text));
    }
    MR_TRY(expr_parse_literal(p, &value));
    return emit_constant(p, value, at, out);
out:
    return rc;
}

static bool is_number(enum mr_expr_type type)
{
    return type == MR_EXPR_INT || type == MR_EXPR_FLOAT;
}

static int parse_unary(struct expr_parse *p, enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_NEGATE, .at = (uint16_t)p->token.at};
    struct mr_expr_value value;
    int rc;

    if (p->token.kind != '-') {
        return parse_primary(p, out);
    }
    MR_TRY(expr_enter(p));
    MR_TRY(expr_advance(p));
    if (p->token.kind == EXPR_T_INT) {
        MR_TRY(parse_number(p, true, &value));
        expr_leave(p);
        return emit_constant(p, value, step.at, out);
    }
    MR_TRY(parse_unary(p, out));
    expr_leave(p);
    if (!is_number(*out)) {
        return expr_fail_at(p->x->text, step.at, p->err, "- needs a number, not a %s",
                            mr_expr_type_name(*out));
    }
    step.type = (uint8_t)*out;
    return expr_emit(p, step, 1);
out:
    return rc;
}

/* Two operands of `a` and `b` become of one type, *out; `at`: of the operator. */
static int unify(struct expr_parse *p, size_t at, enum mr_expr_type a, enum mr_expr_type b,
                 enum mr_expr_type *out)
{
    if (a == b) {
        *out = a;
        return MR_OK;
    }
    if (!is_number(a) || !is_number(b)) {
        return expr_fail_at(p->x->text, at, p->err, "the left side is a %s, the right side a %s",
                            mr_expr_type_name(a), mr_expr_type_name(b));
    }
    *out = MR_EXPR_FLOAT;
    struct expr_step step = {.op = a == MR_EXPR_INT ? EXPR_TO_FLOAT_UNDER : EXPR_TO_FLOAT,
                             .type = MR_EXPR_FLOAT,
                             .at = (uint16_t)at};
    return expr_emit(p, step, 1);
}

/* After the right operand of + - * / %. */
static int emit_arithmetic(struct expr_parse *p, int sign, struct expr_step step,
                           enum mr_expr_type a, enum mr_expr_type b, enum mr_expr_type *out)
{
    int rc = MR_OK;

    if (!is_number(a) || !is_number(b)) {
        return expr_fail_at(p->x->text, step.at, p->err, "%c needs numbers, not a %s", sign,
                            mr_expr_type_name(is_number(a) ? b : a));
    }
    MR_TRY(unify(p, step.at, a, b, out));
    if (sign == '%' && *out != MR_EXPR_INT) {
        return expr_fail_at(p->x->text, step.at, p->err, "%% needs whole numbers");
    }
    if (sign == '/' && *out == MR_EXPR_INT) {
        *out = MR_EXPR_FLOAT;
        struct expr_step convert = {.op = EXPR_TO_FLOAT, .type = MR_EXPR_FLOAT, .at = step.at};
        MR_TRY(expr_emit(p, convert, 1));
        convert.op = EXPR_TO_FLOAT_UNDER;
        MR_TRY(expr_emit(p, convert, 1));
    }
    step.type = (uint8_t)*out;
    return expr_emit(p, step, 2);
out:
    return rc;
}

static int parse_product(struct expr_parse *p, enum mr_expr_type *out)
{
    enum mr_expr_type right;
    int rc;

    MR_TRY(parse_unary(p, out));
    while (p->token.kind == '*' || p->token.kind == '/' || p->token.kind == '%') {
        int sign = p->token.kind;
        struct expr_step step = {.op = sign == '*'   ? EXPR_MULTIPLY
                                       : sign == '/' ? EXPR_DIVIDE
                                                     : EXPR_MODULO,
                                 .at = (uint16_t)p->token.at};
        MR_TRY(expr_advance(p));
        MR_TRY(parse_unary(p, &right));
        MR_TRY(emit_arithmetic(p, sign, step, *out, right, out));
    }
out:
    return rc;
}

static int parse_sum(struct expr_parse *p, enum mr_expr_type *out)
{
    enum mr_expr_type right;
    int rc;

    MR_TRY(parse_product(p, out));
    while (p->token.kind == '+' || p->token.kind == '-') {
        int sign = p->token.kind;
        struct expr_step step = {.op = sign == '+' ? EXPR_ADD : EXPR_SUBTRACT,
                                 .at = (uint16_t)p->token.at};
        MR_TRY(expr_advance(p));
        MR_TRY(parse_product(p, &right));
        MR_TRY(emit_arithmetic(p, sign, step, *out, right, out));
    }
out:
    return rc;
}

/* A literal of a list: of the type of what is looked for; a whole number may stand among floats. */
static int parse_list_item(struct expr_parse *p, enum mr_expr_type type)
{
    size_t at = p->token.at;
    struct mr_expr_value value;
    uint32_t index;
    int rc = expr_parse_literal(p, &value);

    if (rc < 0) {
        return rc;
    }
    if (value.type == MR_EXPR_INT && type == MR_EXPR_FLOAT) {
        value = (struct mr_expr_value){.type = type, .f = (double)value.i};
    }
    if (value.type != type) {
        return expr_fail_at(p->x->text, at, p->err, "a %s in a list for a %s",
                            mr_expr_type_name(value.type), mr_expr_type_name(type));
    }
    expr_constant(p, value, &index);
    return MR_OK;
}

/* "in [a, b]", from its bracket; the value of `type` is on the stack. */
static int parse_list(struct expr_parse *p, struct expr_step step, enum mr_expr_type type)
{
    int rc;

    step.op = EXPR_IN;
    step.type = (uint8_t)type;
    step.constant = (uint32_t)p->x->constants.len;
    MR_TRY(expr_expect(p, '[', "'[' with a list"));
    MR_TRY(parse_list_item(p, type));
    while (p->token.kind == ',') {
        MR_TRY(expr_advance(p));
        MR_TRY(parse_list_item(p, type));
    }
    MR_TRY(expr_expect(p, ']', "',' or ']'"));
    step.n = (uint16_t)(p->x->constants.len - step.constant);
    return expr_emit(p, step, 1);
out:
    return rc;
}

/* The step of a comparison sign; false if `kind` is none. */
static bool comparison_of(int kind, uint8_t *out)
{
    switch (kind) {
    case EXPR_T_EQ: *out = EXPR_EQ; return true;
    case EXPR_T_NE: *out = EXPR_NE; return true;
    case '<': *out = EXPR_LT; return true;
    case EXPR_T_LE: *out = EXPR_LE; return true;
    case '>': *out = EXPR_GT; return true;
    case EXPR_T_GE: *out = EXPR_GE; return true;
    default: return false;
    }
}

static int parse_compare(struct expr_parse *p, struct expr_step step, enum mr_expr_type left)
{
    enum mr_expr_type right, type;
    uint8_t next;
    int rc;

    MR_TRY(expr_advance(p));
    MR_TRY(parse_sum(p, &right));
    MR_TRY(unify(p, step.at, left, right, &type));
    if (type == MR_EXPR_BOOL && step.op != EXPR_EQ && step.op != EXPR_NE) {
        return expr_fail_at(p->x->text, step.at, p->err, "bools have no order");
    }
    step.type = (uint8_t)type;
    MR_TRY(expr_emit(p, step, 2));
    if (comparison_of(p->token.kind, &next) || p->token.kind == EXPR_T_IN) {
        return expr_fail_at(p->x->text, p->token.at, p->err,
                            "comparisons do not chain; write (a < b) and (b < c)");
    }
out:
    return rc;
}

static int parse_comparison(struct expr_parse *p, enum mr_expr_type *out)
{
    int rc = parse_sum(p, out);
    struct expr_step step = {.at = (uint16_t)p->token.at};
    enum mr_expr_type left = *out;

    if (rc < 0) {
        return rc;
    }
    if (comparison_of(p->token.kind, &step.op)) {
        *out = MR_EXPR_BOOL;
        return parse_compare(p, step, left);
    }
    bool is_not = p->token.kind == EXPR_T_NOT;
    if (!is_not && p->token.kind != EXPR_T_IN) {
        return MR_OK;
    }
    *out = MR_EXPR_BOOL;
    MR_TRY(expr_advance(p));
    if (is_not) {
        MR_TRY(expr_expect(p, EXPR_T_IN, "'in' after 'not'"));
    }
    MR_TRY(parse_list(p, step, left));
    if (is_not) {
        step.op = EXPR_NOT;
        rc = expr_emit(p, step, 1);
    }
out:
    return rc;
}

static int need_bool(struct expr_parse *p, size_t at, const char *word, enum mr_expr_type type)
{
    if (type == MR_EXPR_BOOL) {
        return MR_OK;
    }
    return expr_fail_at(p->x->text, at, p->err,
                        "%s needs a bool, not a %s (compare it with a value)", word,
                        mr_expr_type_name(type));
}

static int parse_not(struct expr_parse *p, enum mr_expr_type *out)
{
    struct expr_step step = {.op = EXPR_NOT, .at = (uint16_t)p->token.at};
    int rc;

    if (p->token.kind != EXPR_T_NOT) {
        return parse_comparison(p, out);
    }
    MR_TRY(expr_enter(p));
    MR_TRY(expr_advance(p));
    MR_TRY(parse_not(p, out));
    expr_leave(p);
    MR_TRY(need_bool(p, step.at, "not", *out));
    rc = expr_emit(p, step, 1);
out:
    return rc;
}

/* One "and x" or "or x", its left side on the stack: jumps over x if the left side decides. */
static int parse_logic(struct expr_parse *p, bool is_and, enum mr_expr_type left,
                       int (*operand)(struct expr_parse *, enum mr_expr_type *))
{
    const char *word = is_and ? "and" : "or";
    size_t at = p->token.at;
    size_t jump = p->x->steps.len;
    enum mr_expr_type right;
    int rc;

    MR_TRY(need_bool(p, at, word, left));
    struct expr_step step = {.op = is_and ? EXPR_JUMP_IF_FALSE : EXPR_JUMP_IF_TRUE,
                             .at = (uint16_t)at};
    MR_TRY(expr_emit(p, step, 1));
    MR_TRY(expr_advance(p));
    MR_TRY(operand(p, &right));
    MR_TRY(need_bool(p, at, word, right));
    step.op = is_and ? EXPR_AND : EXPR_OR;
    MR_TRY(expr_emit(p, step, 2));
    p->x->steps.at[jump].constant = (uint32_t)p->x->steps.len;
out:
    return rc;
}

static int parse_and(struct expr_parse *p, enum mr_expr_type *out)
{
    int rc = parse_not(p, out);

    while (rc == MR_OK && p->token.kind == EXPR_T_AND) {
        rc = parse_logic(p, true, *out, parse_not);
    }
    return rc;
}

int expr_parse_or(struct expr_parse *p, enum mr_expr_type *out)
{
    int rc = parse_and(p, out);

    while (rc == MR_OK && p->token.kind == EXPR_T_OR) {
        rc = parse_logic(p, false, *out, parse_and);
    }
    return rc;
}

static int check_text(mr_str text, struct mr_err *err)
{
    if (text.len > MR_EXPR_TEXT_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "an expression of %zu bytes; at most %d are allowed",
                       text.len, MR_EXPR_TEXT_MAX);
    }
    if (!mr_utf8_valid(text)) {
        return MR_FAIL(err, MR_E_INVALID, "an expression that is no valid UTF-8");
    }
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\r') {
            return expr_fail_at(text, i, err, "a control character");
        }
    }
    return MR_OK;
}

static int parse_all(struct expr_parse *p, const struct mr_expr_options *options)
{
    struct mr_expr *x = p->x;
    int rc;

    MR_TRY(expr_advance(p));
    if (p->token.kind == EXPR_T_END) {
        return MR_FAIL(p->err, MR_E_INVALID, "an empty expression");
    }
    MR_TRY(expr_parse_or(p, &x->type));
    MR_TRY(expr_expect(p, EXPR_T_END, "an operator or the end"));
    if (options->want_bool && x->type != MR_EXPR_BOOL) {
        return MR_FAIL(p->err, MR_E_INVALID, "column 1: a condition must be a bool, this is a %s%s",
                       mr_expr_type_name(x->type),
                       x->type == MR_EXPR_STRING ? "" : "; write … != 0");
    }
out:
    return rc;
}

int mr_expr_compile(mr_str text, const struct mr_expr_options *options,
                    const struct mr_expr_names *names, struct mr_expr **out, struct mr_err *err)
{
    int rc = check_text(text, err);

    if (rc < 0) {
        return rc;
    }
    struct mr_expr *x = MR_NEW(struct mr_expr);
    mr_arena_init(&x->arena, 0, (size_t)1 << 20);
    x->by_row = options->by_row;
    x->text = mr_arena_str(&x->arena, text);
    struct expr_parse p = {
        .x = x, .lex = {.text = x->text, .arena = &x->arena}, .names = names, .err = err};
    rc = x->text.ptr ? parse_all(&p, options)
                     : MR_FAIL(err, MR_E_NOMEM, "no memory for an expression");
    if (rc < 0) {
        mr_expr_free(&x);
        return rc;
    }
    *out = x;
    return MR_OK;
}
