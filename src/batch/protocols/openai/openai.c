/* Jobs whose hosts speak OpenAI's API: templates and columns, before there is a call. */
#include "openai.h"
#include "openai_ask.h"
#include "openai_rows.h"
#include "openai_send.h"
#include "openai_tokens.h"

#include <stdio.h>

#include "batch/common/dialect.h"
#include "batch/protocols/oip/answer.h"
#include "codec/json.h"
#include "openai.h"

#define EXTENT_ROWS     16   /* of chat: what an extent costs is done again after a crash */
#define VECTOR_ROWS     1024 /* of all else */
#define ROW_BYTES       64
#define TOKEN_BYTES     5
#define ANSWER_TOKENS   256    /* before the first answer */
#define TOKENS_BELIEVED 100000 /* of what a parameter allows */
#define PARAM_DEPTH     64

static bool is_chat(const struct openai *a)
{
    return a->o->api == MR_BATCH_API_CHAT;
}

static bool has_vectors(const struct openai *a)
{
    return a->o->api == MR_BATCH_API_EMBEDDINGS;
}

/* ---- options ---- */

/* Members that are made here, or would change what an answer looks like. */
static const char *const reserved[] = {"model",  "messages", "prompt", "input",
                                       "stream", "n",        "best_of"};

static int param_check(const struct mr_batch_param *p, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_err why;
    struct mr_json j;

    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        if (strcmp(p->name, reserved[i]) == 0) {
            return MR_FAIL(err, MR_E_INVALID, "parameter '%s' is not for --param", p->name);
        }
    }
    mr_arena_init(&arena, 1024, SIZE_MAX);
    mr_json_init(&j, mr_str_c(p->json), &arena, PARAM_DEPTH, &why);
    mr_json_skip(&j, NULL);
    int rc = mr_json_finish(&j);
    mr_arena_fini(&arena);
    return rc < 0 ? MR_FAIL(err, MR_E_INVALID,
                            "parameter '%s': '%.100s' is no JSON value (a text has quotes): %s",
                            p->name, p->json, why.msg)
                  : MR_OK;
}

/* It is sent with each call, as one may need more. */
static bool is_max_tokens(struct openai *a, const struct mr_batch_param *p)
{
    if (strcmp(p->name, "max_tokens") != 0 && strcmp(p->name, "max_completion_tokens") != 0) {
        return false;
    }
    a->max_tokens_name = p->name;
    return mr_str_to_u64(mr_str_c(p->json), &a->max_tokens) && a->max_tokens > 0;
}

static int params_put(struct openai *a, struct mr_err *err)
{
    for (size_t i = 0; i < a->o->param_count; i++) {
        const struct mr_batch_param *p = &a->o->params[i];
        int rc = param_check(p, err);
        if (rc < 0) {
            return rc;
        }
        if (a->o->schema && strcmp(p->name, "response_format") == 0) {
            return MR_FAIL(err, MR_E_INVALID, "--response-schema and --param response_format");
        }
        if (!a->max_tokens && is_max_tokens(a, p)) {
            continue;
        }
        mr_buf_char(&a->tail, ',');
        mr_json_put_string(&a->tail, mr_str_c(p->name));
        mr_buf_char(&a->tail, ':');
        mr_buf_c(&a->tail, p->json);
    }
    if (a->o->schema) {
        MR_BUF_LIT(&a->tail, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
                             "\"name\":\"answer\",\"strict\":true,\"schema\":");
        mr_buf_c(&a->tail, a->o->schema);
        MR_BUF_LIT(&a->tail, "}}");
    }
    if (!a->max_tokens && a->o->on_length == MR_BATCH_LENGTH_MORE) {
        return MR_FAIL(err, MR_E_INVALID, "--on-length more needs --param max_tokens=N");
    }
    return MR_OK;
}

static int options_check(const struct mr_batch_options *o, struct mr_err *err)
{
    const struct mr_batch_openai *a = o->openai;
    const bool is_chat = a->api == MR_BATCH_API_CHAT;
    const bool is_file = a->api == MR_BATCH_API_FILE;
    const struct {
        bool is_wrong;
        const char *text;
    } checks[] = {
        {is_file &&
             (a->prompt || a->messages || a->param_count > 0 || a->text_column || a->null_text ||
              a->on_length || o->results.carried_count > 0 || o->results.output_count > 0),
         "a batch file's lines say all: --prompt, --messages, --param, --keep, --outputs and the "
         "like are not for it"},
        {is_file && (o->results.writer.format != MR_TABLE_JSONL || o->filter),
         "the results of a batch file are JSON lines"},
        {!is_file && !a->prompt == !a->messages,
         "a job of this API needs either --prompt or --messages"},
        {a->messages && !is_chat, "--messages is for --api chat"},
        {a->system && !is_chat, "--system is for --api chat"},
        {a->schema && !is_chat, "--response-schema is for --api chat"},
        {a->on_length == MR_BATCH_LENGTH_MORE && !is_chat, "--on-length more is for --api chat"},
        {o->hosts.repository, "--local runs models of the Open Inference Protocol, without --api"},
        {o->model.version, "--model-version is of the Open Inference Protocol, without --api"},
        {o->model.map_count > 0, "--map is of the Open Inference Protocol; --prompt names columns"},
        {o->model.null_value,
         "--null-value is of the Open Inference Protocol; --null-text says what "
         "a null is in a prompt"},
        {o->hosts.protocol == MR_BATCH_GRPC, "--protocol grpc is of the Open Inference Protocol"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].is_wrong) {
            return MR_FAIL(err, MR_E_INVALID, "%s", checks[i].text);
        }
    }
    return MR_OK;
}

static int text_new(struct template **out, const char *option, const char *text, struct mr_err *err)
{
    int rc = text ? template_new(out, text, err) : MR_OK;
    return rc < 0 ? MR_WRAP(err, rc, "--%s", option) : MR_OK;
}

static void openai_free(struct openai **openai)
{
    struct openai *a = *openai;

    if (a) {
        for (size_t i = 0; a->outputs && i < a->output_count; i++) {
            mr_column_builder_fini(&a->outputs[i].builder);
        }
        mr_free(a->outputs);
        json_schema_free(&a->schema);
        template_free(&a->system);
        template_free(&a->prompt);
        mr_buf_fini(&a->tail);
        mr_free(a->authorization);
        mr_freep(openai);
    }
}

int openai_new(struct openai **out, const struct mr_batch_options *o, struct mr_err *err)
{
    struct openai *a = MR_NEW(struct openai);
    int rc;

    a->o = o->openai;
    a->messages = -1;
    openai_tokens_init(&a->tokens);
    mr_buf_init(&a->tail, 0);
    MR_TRY(options_check(o, err));
    MR_TRY(text_new(&a->system, "system", a->o->system, err));
    MR_TRY(text_new(&a->prompt, "prompt", a->o->prompt, err));
    if (a->o->schema) {
        rc = json_schema_new(&a->schema, mr_str_c(a->o->schema), err);
        MR_TRY(rc < 0 ? MR_WRAP(err, rc, "--response-schema") : MR_OK);
    }
    MR_TRY(params_put(a, err));
    if (a->o->key) {
        struct mr_buf b;
        mr_buf_init(&b, 0);
        mr_buf_printf(&b, "Bearer %s", a->o->key);
        a->authorization = mr_strndup(mr_buf_cstr(&b), b.len);
        mr_buf_fini(&b);
    }
    *out = a;
out:
    if (rc < 0) {
        openai_free(&a);
    }
    return rc;
}

void openai_drop(struct dialect_model *model)
{
    openai_free(&model->openai);
}

/* ---- columns of the input ---- */

static int want(struct dialect_model *model, struct mr_err *err)
{
    const struct openai *a = model->openai;
    const char *messages = a->o->messages;

    (void)err;
    if (messages) {
        mr_schema_add(&model->wanted, &(struct mr_field){.name = (char *)(uintptr_t)messages,
                                                         .type = MR_COLUMN_STRING,
                                                         .is_json = true,
                                                         .is_nullable = true});
    }
    if (a->prompt) {
        template_want(a->prompt, &model->wanted);
    }
    if (a->system) {
        template_want(a->system, &model->wanted);
    }
    return MR_OK;
}

static int messages_bind(struct openai *a, const struct mr_schema *table, struct mr_err *err)
{
    char text[128];

    a->messages = mr_schema_find(table, mr_str_c(a->o->messages));
    if (a->messages < 0) {
        return MR_FAIL(err, MR_E_INVALID, "--messages: the table has no column '%s'",
                       a->o->messages);
    }
    const struct mr_field *f = &table->fields[a->messages];
    if (f->type != MR_COLUMN_STRING) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "--messages: column '%s' is %s, and must be text: a list of messages as JSON", f->name,
            mr_field_text(f, text, sizeof text));
    }
    return MR_OK;
}

/* ---- columns of the results ---- */

static const char *const column_names[OPENAI_COLUMNS] = {
    [OPENAI_FINISH_REASON] = "finish_reason",
    [OPENAI_PROMPT_TOKENS] = "prompt_tokens",
    [OPENAI_COMPLETION_TOKENS] = "completion_tokens",
    [OPENAI_MODEL] = "model",
};

/* Tokens are reported per call, and only a chat call has one row. */
static bool has_column(const struct openai *a, enum openai_column c)
{
    return c == OPENAI_TEXT || c == OPENAI_MODEL || is_chat(a) ||
           (c == OPENAI_FINISH_REASON && !has_vectors(a));
}

static const char *first_name(const struct openai *a)
{
    return has_vectors(a) ? "embedding" : "text";
}

static const char *column_name(const struct openai *a, enum openai_column c)
{
    return c == OPENAI_TEXT ? first_name(a) : column_names[c];
}

/* By its name, first among the properties of answers. */
static int output_find(const struct openai *a, const char *name, struct openai_output *out,
                       struct mr_err *err)
{
    struct mr_field f;
    struct mr_buf names;

    mr_buf_init(&names, 0);
    for (size_t i = 0; a->schema && i < json_schema_property_count(a->schema); i++) {
        json_schema_property(a->schema, i, &f);
        if (strcmp(f.name, name) == 0) {
            *out = (struct openai_output){.column = OPENAI_PROPERTY, .property = i};
            mr_buf_fini(&names);
            return MR_OK;
        }
        mr_buf_printf(&names, "%s, ", f.name);
    }
    for (enum openai_column c = 0; c < OPENAI_COLUMNS; c++) {
        if (has_column(a, c) && strcmp(column_name(a, c), name) == 0) {
            *out = (struct openai_output){.column = c};
            mr_buf_fini(&names);
            return MR_OK;
        }
        mr_buf_printf(&names, "%s%s", has_column(a, c) && c ? ", " : "",
                      has_column(a, c) ? column_name(a, c) : "");
    }
    mr_err_set(err, MR_E_INVALID, MR_HERE, "--outputs: there is no '%s', but %s", name,
               mr_buf_cstr(&names));
    mr_buf_fini(&names);
    return MR_E_INVALID;
}

static void output_add(struct openai *a, struct openai_output output, struct mr_schema *io)
{
    struct mr_field item = {.name = (char *)(uintptr_t) "element", .type = MR_COLUMN_F32};
    struct mr_field f = {.type = MR_COLUMN_STRING, .is_nullable = true};

    if (output.column == OPENAI_PROPERTY) {
        json_schema_property(a->schema, output.property, &f);
    } else {
        const bool is_renamed = output.column == OPENAI_TEXT && a->o->text_column;
        f.name =
            (char *)(uintptr_t)(is_renamed ? a->o->text_column : column_name(a, output.column));
    }
    if (output.column == OPENAI_TEXT && has_vectors(a)) {
        f.type = MR_COLUMN_FIXED_LIST;
        f.is_nullable = false;
        f.width = a->width;
        f.item = &item;
    } else if (output.column == OPENAI_PROMPT_TOKENS || output.column == OPENAI_COMPLETION_TOKENS) {
        f.type = MR_COLUMN_I64;
    }
    mr_schema_add(io, &f);
    a->outputs[a->output_count++] = output;
}

/* An answer that is an object is its properties, any other one is its text. */
static void outputs_default(struct openai *a, struct mr_schema *io)
{
    const size_t properties = a->schema ? json_schema_property_count(a->schema) : 0;

    for (size_t i = 0; i < properties; i++) {
        output_add(a, (struct openai_output){.column = OPENAI_PROPERTY, .property = i}, io);
    }
    for (enum openai_column c = properties > 0 ? OPENAI_TEXT + 1 : OPENAI_TEXT; c < OPENAI_COLUMNS;
         c++) {
        if (has_column(a, c) && !(has_vectors(a) && c == OPENAI_MODEL)) {
            output_add(a, (struct openai_output){.column = c}, io);
        }
    }
}

static int outputs_choose(struct openai *a, const struct mr_batch_options *o, struct mr_schema *io,
                          struct mr_err *err)
{
    const size_t properties = a->schema ? json_schema_property_count(a->schema) : 0;

    a->outputs =
        MR_NEW_ARRAY(struct openai_output, o->results.output_count + properties + OPENAI_COLUMNS);
    if (o->results.output_count == 0) {
        outputs_default(a, io);
    }
    for (size_t i = 0; i < o->results.output_count; i++) {
        struct openai_output output;
        int rc = output_find(a, o->results.outputs[i], &output, err);
        if (rc < 0) {
            return rc;
        }
        output_add(a, output, io);
    }
    return MR_OK;
}

static int bind(struct dialect_model *model, const struct mr_schema *table,
                const struct mr_schema *all, struct mr_err *err)
{
    const struct mr_batch_options *o = model->o;
    struct openai *a = model->openai;
    const struct batch_outputs_options options = {.columns = all,
                                                  .carried = o->results.carried,
                                                  .carried_count = o->results.carried_count,
                                                  .error =
                                                      o->filter ? o->filter->error_column : NULL};
    struct mr_schema columns = {0};
    int rc;

    MR_TRY(a->o->messages ? messages_bind(a, table, err) : MR_OK);
    MR_TRY(a->system ? template_bind(a->system, table, all, err) : MR_OK);
    MR_TRY(a->prompt ? template_bind(a->prompt, table, all, err) : MR_OK);
    MR_TRY(outputs_choose(a, o, &columns, err));
    MR_TRY(batch_outputs_of(&model->outputs, &columns, table, &options, err));
    for (size_t i = 0; i < a->output_count; i++) {
        mr_column_builder_init(
            &a->outputs[i].builder,
            &batch_outputs_schema(model->outputs)->fields[o->results.carried_count + i]);
    }
out:
    if (rc < 0) {
        a->output_count = 0; /* without builders */
    }
    mr_schema_fini(&columns);
    return rc;
}

/* ---- rows ---- */

static bool are_good(const struct dialect_model *model, const struct mr_rows *rows)
{
    const struct openai *a = model->openai;

    return a->messages < 0 &&
           (a->o->null_text || (template_has_all(a->prompt, rows) &&
                                (!a->system || template_has_all(a->system, rows))));
}

/* Are the messages a list that has something in it? */
static bool messages_are_bad(const struct openai *a, const struct mr_rows *rows, uint64_t row,
                             char *why)
{
    const struct mr_column *c = &rows->columns[a->messages];
    struct mr_arena arena;
    struct mr_buf text;
    struct mr_json j;
    bool is_first = true;
    bool has_item = false;

    if (mr_column_is_null(c, row)) {
        snprintf(why, 256, "column '%s' is null", a->o->messages);
        return true;
    }
    mr_buf_init(&text, 0);
    mr_arena_init(&arena, 1024, SIZE_MAX);
    mr_value_put_text(&text, &rows->schema->fields[a->messages], c, row);
    mr_json_init(&j, mr_buf_view(&text), &arena, 0, NULL);
    mr_json_enter_array(&j);
    while (mr_json_next_item(&j, &is_first)) {
        has_item = mr_json_peek(&j) == MR_JSON_OBJECT;
        mr_json_skip(&j, NULL);
    }
    const bool is_bad = mr_json_finish(&j) < 0 || !has_item;
    if (is_bad) {
        snprintf(why, 256, "column '%s' is no list of messages as JSON", a->o->messages);
    }
    mr_arena_fini(&arena);
    mr_buf_fini(&text);
    return is_bad;
}

static bool is_bad(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                   char *why)
{
    const struct openai *a = model->openai;
    const char *name = NULL;

    if (!a->o->null_text) {
        name = a->prompt ? template_null_in(a->prompt, rows, row) : NULL;
        name = !name && a->system ? template_null_in(a->system, rows, row) : name;
    }
    if (name) {
        snprintf(why, 256, "column '%s' is null (--null-text says what it is in a prompt)", name);
        return true;
    }
    return a->messages >= 0 && messages_are_bad(a, rows, row, why);
}

static bool takes_rows(const struct dialect_model *model)
{
    return !is_chat(model->openai);
}

static uint64_t together(const struct dialect_model *model, const struct mr_rows *rows,
                         uint64_t first, uint64_t most)
{
    (void)rows;
    (void)first;
    return takes_rows(model) ? most : 1;
}

static bool joins(const struct dialect_model *model, const struct mr_rows *rows, uint64_t row,
                  const struct mr_rows *others, uint64_t other)
{
    (void)rows;
    (void)row;
    (void)others;
    (void)other;
    return takes_rows(model);
}

static uint64_t extent_rows(const struct dialect_model *model)
{
    return takes_rows(model) ? VECTOR_ROWS : EXTENT_ROWS;
}

static uint64_t answer_bytes(const struct dialect_model *model)
{
    const struct openai *a = model->openai;
    const uint64_t text =
        a->max_tokens ? MR_MIN(a->max_tokens, (uint64_t)TOKENS_BELIEVED) : ANSWER_TOKENS;

    return ROW_BYTES + (has_vectors(a) ? a->width * sizeof(float) : text * TOKEN_BYTES);
}

static bool knows_bytes(const struct dialect_model *model)
{
    return has_vectors(model->openai) || model->openai->max_tokens > 0;
}

/* ---- identity of the job ---- */

static size_t identity(const struct dialect_model *model, const char **keys, struct mr_buf *texts)
{
    const struct mr_batch_openai *o = model->openai->o;
    const struct {
        const char *key;
        const char *text;
    } words[] = {{"api", openai_path(o->api)},
                 {"prompt", o->prompt},
                 {"system prompt", o->system},
                 {"column of messages", o->messages},
                 {"null text", o->null_text}};
    size_t n = 0;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].text) {
            keys[n] = words[i].key;
            mr_json_put_string(&texts[n++], mr_str_c(words[i].text));
        }
    }
    keys[n] = "parameters";
    mr_buf_char(&texts[n], '{');
    mr_buf_str(&texts[n], mr_str_sub(mr_buf_view(&model->openai->tail), 1, SIZE_MAX));
    if (model->openai->max_tokens > 0) {
        mr_buf_printf(&texts[n], "%s\"%s\":%llu", model->openai->tail.len > 0 ? "," : "",
                      model->openai->max_tokens_name,
                      (unsigned long long)model->openai->max_tokens);
    }
    mr_buf_char(&texts[n++], '}');
    return n;
}

const struct dialect openai_dialect = {
    .ask = openai_ask,
    .want = want,
    .bind = bind,
    .identity = identity,
    .extent_rows = extent_rows,
    .answer_bytes = answer_bytes,
    .knows_bytes = knows_bytes,
    .takes_rows = takes_rows,
    .are_good = are_good,
    .is_bad = is_bad,
    .together = together,
    .size = openai_size,
    .joins = joins,
    .send = openai_send,
    .judge = openai_judge,
    .rows = openai_rows,
    .free = openai_drop,
};
