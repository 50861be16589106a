/* The condition under which a canary goes on, such as "err < 0.002 && p99_ms < 1.2*stable.p99_ms".
 *
 *   condition   = term { "||" term };  term = factor { "&&" factor };  factor = "!" factor | "(" condition ")" | comparison
 *   comparison  = sum ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) sum
 *   sum         = product { ("+" | "-") product };  product = unary { ("*" | "/") unary }
 *   unary       = "-" unary | number | metric | "(" sum ")"
 *   metric      = [ tag "." ] name;  tag = word | "'" any characters "'"
 *   name        = "err" | "server_err" | "count" | "mean_ms" | "p" digits "_ms"
 *
 * A metric without a tag is that of the variant that the guard belongs to. err: share of the requests that failed,
 * server_err: that failed for another reason than what the client sent, p99_ms, p999_ms, …: latency of the answered ones
 * at the quantile 0.99, 0.999, …. */
#ifndef MR_VARIANT_GUARD_H
#define MR_VARIANT_GUARD_H

#include "base/err.h"
#include "base/str.h"
#include "variant/choice.h"
#include "variant/stats.h"

#define MR_GUARD_TEXT_MAX  512u
#define MR_GUARD_NODES_MAX 96u

struct mr_guard_node {
    double number; /* of a number; of a quantile, q */
    uint8_t op;
    uint8_t variant; /* of a metric */
    uint8_t left, right;
    uint16_t from, to; /* its text */
};

/** A compiled guard; read only once it is compiled, and may be copied. */
struct mr_guard {
    char text[MR_GUARD_TEXT_MAX];
    uint32_t uses; /* bit i: metrics of variant i; the guard's own always */
    uint8_t count;
    uint8_t root;
    struct mr_guard_node nodes[MR_GUARD_NODES_MAX];
};

/** Compiles `text` for variant `self` of those named by `tags`. Errors: MR_E_INVALID with the column: syntax, unknown tags
 *  and names, a number where a condition is needed, more than MR_GUARD_TEXT_MAX bytes or MR_GUARD_NODES_MAX parts. */
int mr_guard_parse(struct mr_guard *out, mr_str text, const mr_str *tags, size_t count,
                   unsigned self, struct mr_err *err);

enum mr_guard_verdict {
    MR_GUARD_HOLDS,
    MR_GUARD_BROKEN,
    MR_GUARD_UNKNOWN /* a number in it is not defined, such as 0/0 */
};
#define MR_GUARD_REASON 200

/** Judges `sums`, one for each variant. If it does not hold, `reason` says which comparison failed, with its numbers. */
enum mr_guard_verdict mr_guard_eval(const struct mr_guard *g, const struct mr_variant_sums *sums,
                                    char reason[MR_GUARD_REASON]);

#endif
