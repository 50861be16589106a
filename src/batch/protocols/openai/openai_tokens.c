/* Tokens: what calls will probably take, before they are sent, and what they did.
 *
 * A prompt's tokens are its bytes by what hosts have counted for others; an answer's are what 95 % of answers need, and at
 * most what it may have. The tokens in flight to a host are limited (--max-tokens-in-flight), and latency is taken by token of an
 * answer, so that long answers do not look like hosts that make calls wait. */
#include "openai_tokens.h"

#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "openai.h"

#define BYTES_A_TOKEN  4.0 /* before a host has counted */
#define BYTES_LEAST    0.5
#define BYTES_MOST     16.0
#define BYTES_WEIGHT   0.05
#define ANSWER_GUESS   256 /* tokens, if no parameter and no answer gives a number */
#define ANSWERS_ENOUGH 20  /* before their lengths are believed */
#define OUTPUT_SHARE   0.95

static bool has_answers(const struct openai *a)
{
    return a->o->api != MR_BATCH_API_EMBEDDINGS;
}

static uint64_t prompt_bytes(const struct openai *a, const struct row_range *s, uint64_t row)
{
    uint64_t bytes = 0;

    if (a->prompt) {
        bytes += template_bytes(a->prompt, s->extent->rows, row);
    }
    if (a->system) {
        bytes += template_bytes(a->system, s->extent->rows, row);
    }
    const int column = a->o->api == MR_BATCH_API_FILE ? a->file_columns[3] : a->messages;
    if (column >= 0 && !mr_column_is_null(&s->extent->rows->columns[column], row)) {
        bytes += mr_column_bytes(&s->extent->rows->columns[column], row).len;
    }
    return bytes;
}

/* Of one row. */
static uint64_t answer_tokens(const struct openai *a, uint32_t doublings)
{
    const uint64_t most = (a->max_tokens ? a->max_tokens : ANSWER_GUESS) << doublings;

    if (!has_answers(a)) {
        return 0;
    }
    if (a->tokens.answers < ANSWERS_ENOUGH) {
        return most;
    }
    const uint64_t usual = mr_hist_quantile(&a->tokens.lengths, OUTPUT_SHARE);
    return a->max_tokens ? MR_MIN(usual, most) : usual;
}

uint64_t openai_size(const struct dialect_model *model, const struct work *w, uint64_t *out_weight)
{
    const struct openai *a = model->openai;
    const uint64_t answer = answer_tokens(a, w->doublings);
    uint64_t bytes = w->note ? strlen(w->note) : 0;

    for (size_t i = 0; i < w->range_count && a->o->max_tokens_in_flight > 0; i++) {
        for (uint64_t k = 0; k < w->ranges[i].count; k++) {
            bytes += prompt_bytes(a, &w->ranges[i], w->ranges[i].first + k);
        }
    }
    *out_weight = (uint64_t)((double)bytes / a->tokens.bytes_each) + w->count * answer;
    return has_answers(a) ? MR_MAX(w->count * answer, w->count) : w->count;
}

uint64_t openai_count(struct call *k, const struct openai_answer *answer)
{
    struct openai_tokens *t = &k->model->openai->tokens;
    const uint64_t prompt = (uint64_t)MR_MAX(answer->prompt_tokens, INT64_C(0));
    const uint64_t completion = (uint64_t)MR_MAX(answer->completion_tokens, INT64_C(0));

    t->used += prompt + completion;
    k->host->figures.prompt_tokens += prompt;
    k->host->figures.completion_tokens += completion;
    if (prompt > 0) {
        /* With what is around the prompts, which is in each call alike. */
        const double bytes = (double)k->head.len / (double)prompt;
        t->bytes_each += BYTES_WEIGHT * (bytes - t->bytes_each);
        t->bytes_each = MR_MIN(MR_MAX(t->bytes_each, BYTES_LEAST), BYTES_MOST);
    }
    if (completion > 0 && has_answers(k->model->openai)) {
        t->answers += k->work->count;
        mr_hist_add(&t->lengths, completion / k->work->count);
        return completion;
    }
    return k->work->count;
}

bool openai_is_spent(const struct dialect_model *model)
{
    const struct openai *a = model->openai;
    return a && a->o->max_total_tokens > 0 && a->tokens.used >= a->o->max_total_tokens;
}

void openai_tokens_init(struct openai_tokens *t)
{
    t->bytes_each = BYTES_A_TOKEN;
}
