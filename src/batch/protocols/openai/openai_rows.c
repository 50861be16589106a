/* Answers: what is wrong with them, and their rows.
 *
 * A body that violates the API is the host's fault, and is treated as any failure. A well-formed answer without a
 * result (cut off, refused) is the row's: the host works, and the row is sent again or becomes a dead letter. */
#include "openai_rows.h"

#include <stdio.h>

#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "batch/protocols/oip/answer.h"
#include "codec/json.h"
#include "openai.h"
#include "openai_tokens.h"

#define CAUSE_ROOM     400
#define NOTE_MOST      65536 /* bytes of an answer that are quoted back */
#define DOUBLINGS_MOST 3

static bool is_reason(const struct openai_choice *c, const char *reason)
{
    return mr_str_eq_c(c->finish_reason, reason);
}

/* The messages that ask again: what was said, and why it will not do. */
static const char *schema_note(struct call *k, mr_str said, const char *why)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    MR_BUF_LIT(&b, ",{\"role\":\"assistant\",\"content\":");
    mr_json_put_string(&b, mr_str_sub(said, 0, NOTE_MOST));
    MR_BUF_LIT(&b, "},{\"role\":\"user\",\"content\":");
    const mr_str text = mr_arena_printf(&k->arena,
                                        "That does not fit the JSON schema: %s. Answer again, with "
                                        "nothing but JSON that fits it.",
                                        why);
    mr_json_put_string(&b, text);
    mr_buf_char(&b, '}');
    const mr_str note = mr_arena_str(&k->arena, mr_buf_view(&b));
    mr_buf_fini(&b);
    return note.ptr;
}

static bool schema_fault(struct call *k, const struct openai_choice *c, struct row_fault *f)
{
    const struct work *w = k->work;
    struct mr_err err;

    if (json_schema_check(k->model->openai->schema, c->text, &k->arena, &err) == MR_OK) {
        return false;
    }
    f->kind = "schema";
    f->raw = c->text;
    f->cause = mr_arena_printf(&k->arena, "the answer does not fit the schema: %s", err.msg).ptr;
    f->cause = f->cause ? f->cause : "no memory";
    f->may_ask = w->asks - w->doublings < k->model->openai->o->reasks;
    f->note = f->may_ask ? schema_note(k, c->text, err.msg) : NULL;
    f->doublings = w->doublings;
    return true;
}

/* What keeps an answer from being a result; false: nothing. */
static bool choice_fault(struct call *k, const struct openai_choice *c, struct row_fault *f)
{
    const struct mr_batch_openai *o = k->model->openai->o;
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
        f->may_ask = o->on_length == MR_BATCH_LENGTH_MORE && k->work->doublings < DOUBLINGS_MOST;
        f->note = k->work->note;
        f->doublings = k->work->doublings + 1;
        cause = MR_STR("the answer was cut off at its length (--on-length, --param max_tokens=N)");
    } else if (k->model->openai->schema) {
        return schema_fault(k, c, f);
    }
    f->cause = cause.ptr ? cause.ptr : "no memory";
    return f->kind != NULL;
}

static void faults_find(struct call *k, const struct openai_answer *answer,
                        struct transport_answer *a)
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
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "no memory for an answer");
    }
}

void openai_judge(struct call *k, const struct transport_reply *reply, struct transport_answer *a)
{
    const struct openai *openai = k->model->openai;
    const bool has_vectors = openai->o->api == MR_BATCH_API_EMBEDDINGS;
    struct mr_err err;

    if (!transport_judge_status(reply, a)) {
        openai_hide(openai, a->cause, strlen(a->cause));
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
        rc = has_vectors ? openai_answer_vectors(body, count, k->model->o->model.allows_nan,
                                                 &k->arena, answer, &err)
                         : openai_answer_text(body, count, &k->arena, answer, &err);
    }
    if (rc < 0) {
        a->outcome = MR_BALANCE_FAILED;
        snprintf(a->cause, sizeof a->cause, "wrong answer: %s", err.msg);
        return;
    }
    a->openai = answer;
    a->size = openai_count(k, answer);
    if (!k->work->is_settled && !has_vectors) {
        faults_find(k, answer, a);
    }
}

/* ---- values ---- */

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
    if (n >= 0) {
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

/* ---- properties of an answer ---- */

static void add_json(struct mr_column_builder *b, struct mr_json *j);

static void add_items(struct mr_column_builder *b, struct mr_json *j)
{
    bool is_first = true;

    mr_json_enter_array(j);
    while (mr_json_next_item(j, &is_first)) {
        add_json(b->item, j);
    }
    mr_column_end_list(b);
}

/* 5.0 and 1e3 are integers to a schema. */
static int64_t whole_of(mr_str text)
{
    int64_t v = 0;
    double d = 0;

    if (!mr_str_to_i64(text, &v) && mr_text_double(text, &d)) {
        v = (int64_t)d;
    }
    return v;
}

/* A value that fits the schema is of the column's type, or null. */
static void add_json(struct mr_column_builder *b, struct mr_json *j)
{
    bool truth = false;
    double number = 0;
    mr_str text = {0};

    if (mr_json_peek(j) == MR_JSON_NULL) {
        mr_json_null(j);
        mr_column_add_null(b);
        return;
    }
    switch (b->field->type) {
    case MR_COLUMN_BOOL:
        mr_json_bool(j, &truth);
        mr_column_add(b, &(uint8_t){truth});
        break;
    case MR_COLUMN_I64:
        mr_json_number_text(j, &text);
        mr_column_add(b, &(int64_t){whole_of(text)});
        break;
    case MR_COLUMN_F64:
        mr_json_double(j, &number);
        mr_column_add(b, &number);
        break;
    case MR_COLUMN_LIST: add_items(b, j); break;
    default:
        if (b->field->is_json) {
            mr_json_skip(j, &text);
        } else {
            mr_json_string(j, &text);
        }
        mr_column_add_bytes(b, text);
        break;
    }
}

static struct openai_output *output_of(struct openai *a, mr_str name, uint64_t rows)
{
    for (size_t i = 0; i < a->output_count; i++) {
        struct openai_output *o = &a->outputs[i];
        /* A name that comes again is passed over: the row has its value. */
        if (o->column == OPENAI_PROPERTY && o->builder.count == rows &&
            mr_str_eq_c(name, o->builder.field->name)) {
            return o;
        }
    }
    return NULL;
}

/* `rows` are there already. */
static void properties_add(struct openai *a, mr_str text, struct mr_arena *arena, uint64_t rows)
{
    bool is_first = true;
    struct mr_json j;
    mr_str name;

    mr_json_init(&j, text, arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &is_first, &name)) {
        struct openai_output *o = output_of(a, name, rows);
        if (o) {
            add_json(&o->builder, &j);
        } else {
            mr_json_skip(&j, NULL);
        }
    }
    for (size_t i = 0; i < a->output_count; i++) {
        struct openai_output *o = &a->outputs[i];
        if (o->column == OPENAI_PROPERTY && o->builder.count == rows) {
            mr_column_add_null(&o->builder);
        }
    }
}

/* ---- rows ---- */

static void value_add(struct openai_output *o, const struct openai_answer *answer,
                      const struct openai_choice *c)
{
    struct mr_column_builder *b = &o->builder;

    switch (o->column) {
    case OPENAI_FINISH_REASON: add_text(b, c->finish_reason); break;
    case OPENAI_PROMPT_TOKENS: add_count(b, answer->prompt_tokens); break;
    case OPENAI_COMPLETION_TOKENS: add_count(b, answer->completion_tokens); break;
    case OPENAI_MODEL: add_text(b, answer->model); break;
    case OPENAI_PROPERTY: break;
    default:
        if (c->vector) {
            add_vector(b, c->vector, answer->width);
        } else {
            add_text(b, c->text);
        }
        break;
    }
}

int openai_rows(struct call *k, const struct transport_answer *a, uint64_t first,
                const struct row_range *of, struct mr_rows **out, struct mr_err *err)
{
    struct openai *openai = k->model->openai;
    struct mr_column_builder **builders =
        MR_ARENA_ARRAY(&k->arena, struct mr_column_builder *, openai->output_count + 1);

    if (!builders) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    for (uint64_t i = 0; i < of->count; i++) {
        const struct openai_choice *choice = &a->openai->choices[first + i];
        for (size_t o = 0; o < openai->output_count; o++) {
            value_add(&openai->outputs[o], a->openai, choice);
        }
        if (openai->schema) {
            properties_add(openai, choice->text, &k->arena, i);
        }
    }
    for (size_t o = 0; o < openai->output_count; o++) {
        builders[o] = &openai->outputs[o].builder;
    }
    return batch_answer_built(k->model->outputs, of->extent->rows, of->first, of->count, builders,
                              openai->output_count, out, err);
}
