/* Answers: what is wrong with them, and their rows.
 *
 * A body that is not what the API says is the host's fault, and goes the way of all failures. An answer that is well
 * formed and no result (cut off, refused) is the row's: hosts are well, and the row is asked for again or dies. */
#include "openai.h"

#include <stdio.h>

#define CAUSE_ROOM 400

static bool is_reason(const struct openai_choice *c, const char *reason)
{
    return mr_str_eq_c(c->finish_reason, reason);
}

/* What keeps an answer from being a result; false: nothing. */
static bool choice_fault(struct call *k, const struct openai_choice *c, struct row_fault *f)
{
    const struct mr_batch_openai *o = k->job->openai->o;
    mr_str cause = {0};

    if (c->refusal.len > 0) {
        f->kind = "refused";
        f->raw = c->refusal;
        cause = mr_arena_printf(&k->arena, "the model refused: %.*s",
                                (int)MR_MIN(c->refusal.len, (size_t)CAUSE_ROOM), c->refusal.ptr);
    } else if (is_reason(c, "content_filter")) {
        f->kind = "filtered";
        f->raw = c->text;
        cause = MR_STR("a content filter stopped the answer");
    } else if (is_reason(c, "length") && o->on_length != MR_BATCH_LENGTH_KEEP) {
        f->kind = "length";
        f->raw = c->text;
        cause = MR_STR("the answer was cut off at its length (--on-length, --param max_tokens=…)");
    }
    f->cause = cause.ptr ? cause.ptr : "no memory";
    return f->kind != NULL;
}

static void faults_find(struct call *k, const struct openai_answer *answer, struct wire_answer *a)
{
    const uint64_t count = k->work->count;
    struct row_fault *faults = MR_ARENA_ARRAY(&k->arena, struct row_fault, count);

    for (uint64_t i = 0; faults && i < count; i++) {
        struct row_fault f = {.row = i};
        if (choice_fault(k, &answer->choices[i], &f)) {
            faults[a->fault_count++] = f;
        }
    }
    a->faults = faults;
    if (!faults) {
        a->outcome = MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "no memory for an answer");
    }
}

void openai_judge(struct call *k, const struct wire_reply *reply, struct wire_answer *a)
{
    const struct openai *openai = k->job->openai;
    const bool has_vectors = openai->o->api == MR_BATCH_API_EMBEDDINGS;
    struct mr_err err;

    if (!wire_judge_status(reply, a)) {
        openai_hide(openai, a->cause);
        return;
    }
    mr_arena_reset(&k->arena);
    struct openai_answer *answer = MR_ARENA_NEW(&k->arena, struct openai_answer);
    const mr_str body =
        mr_str_n((const char *)reply->response->body.ptr, reply->response->body.len);
    const size_t count = (size_t)k->work->count;
    int rc = MR_E_EXHAUSTED;
    mr_err_set(&err, rc, MR_HERE, "no memory");
    if (answer) {
        answer->width = openai->width;
        rc = has_vectors ? openai_answer_vectors(body, count, k->job->o->allows_nan, &k->arena,
                                                 answer, &err)
                         : openai_answer_text(body, count, &k->arena, answer, &err);
    }
    if (rc < 0) {
        a->outcome = MR_ROUTE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
        return;
    }
    a->openai = answer;
    if (!k->work->is_settled && !has_vectors) {
        faults_find(k, answer, a);
    }
}

/* ---- rows ---- */

static void add_text(struct mr_column_builder *b, mr_str s)
{
    if (s.ptr) {
        mr_column_add_bytes(b, s);
    } else {
        mr_column_add_null(b);
    }
}

static void add_count(struct mr_column_builder *b, int64_t n)
{
    if (n > 0) {
        mr_column_add(b, &n);
    } else {
        mr_column_add_null(b);
    }
}

static void add_vector(struct mr_column_builder *b, const float *v, size_t width)
{
    void *to = mr_column_room(b->item, width);

    if (to) {
        memcpy(to, v, width * sizeof *v);
        mr_column_took(b->item, width);
    }
    mr_column_end_list(b);
}

static void value_add(const struct openai *a, size_t column, struct mr_column_builder *b,
                      const struct openai_answer *answer, const struct openai_choice *c)
{
    switch (a->columns[column]) {
    case OPENAI_FINISH_REASON: add_text(b, c->finish_reason); break;
    case OPENAI_PROMPT_TOKENS: add_count(b, answer->prompt_tokens); break;
    case OPENAI_COMPLETION_TOKENS: add_count(b, answer->completion_tokens); break;
    case OPENAI_MODEL: add_text(b, answer->model); break;
    default:
        if (c->vector) {
            add_vector(b, c->vector, answer->width);
        } else {
            add_text(b, c->text);
        }
        break;
    }
}

int openai_rows(struct call *k, const struct wire_answer *a, uint64_t first, const struct span *of,
                struct mr_rows **out, struct mr_err *err)
{
    struct openai *openai = k->job->openai;

    for (uint64_t i = 0; i < of->count; i++) {
        for (size_t c = 0; c < openai->column_count; c++) {
            value_add(openai, c, &openai->builders[c], a->openai, &a->openai->choices[first + i]);
        }
    }
    return batch_answer_built(k->job->outputs, of->extent->rows, of->first, of->count,
                              openai->builders, openai->column_count, out, err);
}
