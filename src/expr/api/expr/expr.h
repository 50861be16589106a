/* Expressions: small conditions and numbers from a configuration, such as `rows(BOXES) > 0 && LANG == "en"`.
 *
 * A text is compiled once into a program with static types, which has no loop, calls nothing and ends after at most as many
 * steps as it has operators. The caller says at compile time what each name is (`struct mr_expr_names`) and hands over the
 * values when the program runs (`struct mr_expr_source`). docs/workflows.md has the language.
 *
 *   types       BOOL, INT (64 bits, an overflow is an error), FLOAT (double), STRING (UTF-8)
 *   operands    NAME, NAME[i], NAME[i,j], `odd name`, parameter("x"), parameter("x", default), header("x"),
 *               header("x", default), status(node), variant(node), rows(T), size(T), min max sum any all(T), present(X)
 *   operators   or || · and && · not ! · == != < <= > >= in [..] not in [..] · + - · * / % · unary -
 *   functions   prefix(s, p) = startswith(s, p), suffix(s, p) = endswith(s, p), abs(x)
 *
 * A value may be null: a tensor that its node did not produce, or min() of nothing. What is computed from null is null, except
 * present(), `null and false` = false and `null or true` = true. A condition that is null does not hold.
 *
 * Bounds: text of MR_EXPR_TEXT_MAX bytes, MR_EXPR_DEPTH_MAX levels of brackets, MR_EXPR_OPERANDS_MAX names; values are read
 * from tensors of at most MR_EXPR_TENSOR_MAX bytes.
 *
 * Thread: a program is immutable; any number of threads may run it. */
#ifndef MR_EXPR_EXPR_H
#define MR_EXPR_EXPR_H

#include "base/err.h"
#include "base/str.h"
#include "millrace/tensor.h"

#define MR_EXPR_TEXT_MAX     4096
#define MR_EXPR_DEPTH_MAX    64
#define MR_EXPR_OPERANDS_MAX 64
#define MR_EXPR_TENSOR_MAX   65536

enum mr_expr_type { MR_EXPR_BOOL, MR_EXPR_INT, MR_EXPR_FLOAT, MR_EXPR_STRING };
/** "bool", "int", "float", "string". Static. */
const char *mr_expr_type_name(enum mr_expr_type type);

/** How the text refers to an operand. */
enum mr_expr_form {
    MR_EXPR_NAME,      /* NAME or `name`: a tensor, or a value that the caller knows */
    MR_EXPR_PARAMETER, /* parameter("x") of the request */
    MR_EXPR_HEADER,    /* header("x") of the request, the name in lower case */
    MR_EXPR_STATUS,    /* status(node): a string */
    MR_EXPR_VARIANT    /* variant(node): a string */
};

/** What a name is; filled by the caller's `resolve`. */
struct mr_expr_symbol {
    bool is_tensor; /* MR_EXPR_NAME only */
    /* of a value; not read for tensors, parameters (their default decides) and the other forms */
    enum mr_expr_type type;
    int dtype; /* of a tensor: enum mr_dtype */
    int rank;  /* of a tensor; -1: not known */
    /* `rank` entries, -1 = not known; read during compilation only; may be NULL */
    const int64_t *shape;
    uint32_t id; /* the caller's; handed back in `struct mr_expr_operand` */
};

/** Says what a name is. Not asked for parameters and headers.
 *  Errors: any; the column is put before the message. */
struct mr_expr_names {
    int (*resolve)(void *ctx, enum mr_expr_form form, mr_str name, struct mr_expr_symbol *out,
                   struct mr_err *err);
    void *ctx;
};

/** One name of a program. Each (form, name) occurs once. */
struct mr_expr_operand {
    enum mr_expr_form form;
    bool is_tensor;
    bool is_required; /* false: only present() asks for it */
    int dtype;        /* of a tensor */
    uint32_t id;      /* of its symbol; 0 for parameters and headers */
    mr_str name;
};

/** A value with its type. is_null: there is none, and only `type` is defined. */
struct mr_expr_value {
    enum mr_expr_type type;
    bool is_null;
    union {
        bool b;
        int64_t i;
        double f;
        mr_str s;
    };
};

/** Values of a program's operands. Each function is called on the thread that runs the program, at most once per operand and
 *  run; what it hands over is borrowed until the run ends.
 *  tensor  *out = NULL: null. Its type and shape are checked.
 *  value   of the forms that are no tensors. A parameter may have any type: it is converted to that of its default. A value of a
 *          name, status or variant must have the symbol's type. */
struct mr_expr_source {
    int (*tensor)(void *ctx, const struct mr_expr_operand *operand, const struct mr_tensor **out,
                  struct mr_err *err);
    int (*value)(void *ctx, const struct mr_expr_operand *operand, struct mr_expr_value *out,
                 struct mr_err *err);
    void *ctx;
};

struct mr_expr_options {
    bool want_bool; /* refuse a program whose result is no BOOL */
    bool by_row;    /* the program is for mr_expr_run_rows: NAME is the row's own element */
};

struct mr_expr;

/** Compiles `text`, which is copied. *out is freed with mr_expr_free.
 *  Errors: MR_E_INVALID: "column N: …" with what is wrong; whatever `names` returns; MR_E_NOMEM. */
int mr_expr_compile(mr_str text, const struct mr_expr_options *options,
                    const struct mr_expr_names *names, struct mr_expr **out, struct mr_err *err);
/** *expr may be NULL. */
void mr_expr_free(struct mr_expr **expr);

enum mr_expr_type mr_expr_result_type(const struct mr_expr *expr);
const struct mr_expr_operand *mr_expr_operands(const struct mr_expr *expr, size_t *out_count);

/** Runs a program that was compiled without by_row. A STRING in *out points into the program or into what `source` handed over.
 *  Errors: MR_E_INVALID, with the column: a tensor that is too large, not in host memory or of a shape that the text does not
 *  suit, an index out of range, integer overflow, division of an integer by zero; whatever `source` returns. */
int mr_expr_run(const struct mr_expr *expr, const struct mr_expr_source *source,
                struct mr_expr_value *out, struct mr_err *err);

/** Runs a by_row program of type BOOL for each of `rows` rows: out_mask[r] = 1 where it holds, else 0. A tensor gives row r its
 *  part r of dim 0, if dim 0 is `rows`; one of rank 0 or of a single row gives all rows the same.
 *  Long work: calls mr_turn_spend.
 *  Errors: as mr_expr_run, the row is named; MR_E_CANCELLED. out_mask is undefined then. */
int mr_expr_run_rows(const struct mr_expr *expr, const struct mr_expr_source *source, uint64_t rows,
                     uint8_t *out_mask, struct mr_err *err);

#endif
