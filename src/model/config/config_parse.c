/* Configurations in and out: text, JSON, copies, and the tools that build the generated structs.
 *
 * One thing gets lost when a config becomes a proto3 message: whether a scalar was given as its
 * default or not given at all. For max_batch_size the difference matters (0 says "no batching",
 * silence says "find out"), so the text is asked once more (mr_config_text_has,
 * mr_config_json_has). Thread: any. */
#include "base/arena.h"
#include "base/mem.h"
#include "codec/json.h"
#include "codec/pbtext.h"
#include "config_priv.h"

static int size_check(mr_str text, const char *what, struct mr_err *err)
{
    if (text.len > MR_CONFIG_MAX_BYTES) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "%s has %zu bytes, allowed are %zu", what, text.len,
                       MR_CONFIG_MAX_BYTES);
    }
    return MR_OK;
}

int mr_config_parse_text(mr_str text, const char *file, Inference__ModelConfig **out,
                         struct mr_err *err)
{
    ProtobufCMessage *message = NULL;
    int rc = size_check(text, file, err);
    if (rc < 0) {
        return rc;
    }
    rc = mr_pbtext_parse(&inference__model_config__descriptor, text, &message, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "%s", file);
    }
    *out = (Inference__ModelConfig *)message;
    return MR_OK;
}

int mr_config_parse_json(mr_str text, Inference__ModelConfig **out, struct mr_err *err)
{
    ProtobufCMessage *message = NULL;
    int rc = size_check(text, "the model configuration", err);
    if (rc < 0) {
        return rc;
    }
    rc = mr_pbjson_parse(&inference__model_config__descriptor, text, &message, err);
    if (rc < 0) {
        return MR_WRAP(err, rc, "model configuration");
    }
    *out = (Inference__ModelConfig *)message;
    return MR_OK;
}

void mr_config_free(Inference__ModelConfig **c)
{
    if (*c) {
        inference__model_config__free_unpacked(*c, NULL);
    }
    *c = NULL;
}

Inference__ModelConfig *mr_config_new(void)
{
    Inference__ModelConfig *c = MR_NEW(Inference__ModelConfig);

    inference__model_config__init(c);
    return c;
}

int mr_config_copy(const Inference__ModelConfig *c, Inference__ModelConfig **out,
                   struct mr_err *err)
{
    size_t bytes = inference__model_config__get_packed_size(c);
    uint8_t *packed = mr_try_alloc(bytes ? bytes : 1);
    Inference__ModelConfig *copy = NULL;

    if (packed) {
        inference__model_config__pack(c, packed);
        copy = inference__model_config__unpack(NULL, bytes, packed);
    }
    mr_free(packed);
    if (!copy) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a copy of the model configuration");
    }
    *out = copy;
    return MR_OK;
}

void mr_config_json(const Inference__ModelConfig *c, struct mr_buf *out)
{
    mr_pbjson_print(&c->base, true, out);
}

/* ---- was it said at all? ---- */

/* After blanks and comments. */
static size_t skip_blank(mr_str s, size_t i)
{
    while (i < s.len) {
        if (s.ptr[i] == '#') {
            while (i < s.len && s.ptr[i] != '\n') {
                i++;
            }
        } else if (strchr(" \t\r\n\v\f", s.ptr[i]) && s.ptr[i] != '\0') {
            i++;
        } else {
            break;
        }
    }
    return i;
}

/* After the string literal that begins at i. */
static size_t skip_string(mr_str s, size_t i)
{
    char quote = s.ptr[i++];

    while (i < s.len && s.ptr[i] != quote) {
        i += s.ptr[i] == '\\' ? 2 : 1;
    }
    return i + 1;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The text is known to parse, so this need not judge it, only keep its place in it. */
bool mr_config_text_has(mr_str text, mr_str field)
{
    int depth = 0;
    size_t i = skip_blank(text, 0);

    while (i < text.len) {
        char c = text.ptr[i];
        size_t begin = i;
        if (c == '"' || c == '\'') {
            i = skip_string(text, i);
        } else if (is_word(c)) {
            while (i < text.len && is_word(text.ptr[i])) {
                i++;
            }
            size_t next = skip_blank(text, i);
            if (depth == 0 && next < text.len && text.ptr[next] == ':' &&
                mr_str_eq(mr_str_sub(text, begin, i), field)) {
                return true;
            }
        } else {
            depth += c == '{' || c == '<' || c == '[';
            depth -= c == '}' || c == '>' || c == ']';
            i++;
        }
        i = skip_blank(text, i);
    }
    return false;
}

/* "max_batch_size" is "maxBatchSize" in JSON's own spelling. */
static bool json_key_is(mr_str key, mr_str field)
{
    size_t k = 0;

    for (size_t f = 0; f < field.len; f++, k++) {
        char c = field.ptr[f];
        if (c == '_' && f + 1 < field.len) {
            char next = field.ptr[++f];
            c = next >= 'a' && next <= 'z' ? (char)(next - 'a' + 'A') : next;
        }
        if (k >= key.len || key.ptr[k] != c) {
            return mr_str_eq(key, field);
        }
    }
    return k == key.len || mr_str_eq(key, field);
}

bool mr_config_json_has(mr_str text, mr_str field)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    bool has = false;
    mr_str key;

    mr_arena_init(&arena, 4096, MR_CONFIG_MAX_BYTES * 2);
    mr_json_init(&j, text, &arena, 0, NULL);
    if (mr_json_enter_object(&j) == MR_OK) {
        while (mr_json_next_key(&j, &is_first, &key)) {
            if (json_key_is(key, field)) {
                has = mr_json_peek(&j) != MR_JSON_NULL;
            }
            mr_json_skip(&j, NULL);
        }
    }
    mr_arena_fini(&arena);
    return has;
}

/* ---- building ---- */

void mr_config_set_string(char **field, const char *value)
{
    char *copy = mr_strndup(value, strlen(value));

    if (*field != (char *)protobuf_c_empty_string) {
        mr_free(*field);
    }
    *field = copy;
}

void mr_config_set_i64s(int64_t **field, size_t *count, const int64_t *values, size_t n)
{
    int64_t *copy = n ? MR_NEW_ARRAY(int64_t, n) : NULL;

    if (n) {
        memcpy(copy, values, n * sizeof *copy);
    }
    mr_free(*field);
    *field = copy;
    *count = n;
}

void mr_config_set_i32s(int32_t **field, size_t *count, const int32_t *values, size_t n)
{
    int32_t *copy = n ? MR_NEW_ARRAY(int32_t, n) : NULL;

    if (n) {
        memcpy(copy, values, n * sizeof *copy);
    }
    mr_free(*field);
    *field = copy;
    *count = n;
}

Inference__ModelInput *mr_config_add_input(Inference__ModelConfig *c)
{
    Inference__ModelInput *in = MR_NEW(Inference__ModelInput);

    inference__model_input__init(in);
    c->input = mr_realloc_array(c->input, c->n_input + 1, sizeof(void *));
    c->input[c->n_input++] = in;
    return in;
}

Inference__ModelOutput *mr_config_add_output(Inference__ModelConfig *c)
{
    Inference__ModelOutput *out = MR_NEW(Inference__ModelOutput);

    inference__model_output__init(out);
    c->output = mr_realloc_array(c->output, c->n_output + 1, sizeof(void *));
    c->output[c->n_output++] = out;
    return out;
}

Inference__ModelInstanceGroup *mr_config_add_group(Inference__ModelConfig *c)
{
    Inference__ModelInstanceGroup *group = MR_NEW(Inference__ModelInstanceGroup);

    inference__model_instance_group__init(group);
    c->instance_group =
        mr_realloc_array(c->instance_group, c->n_instance_group + 1, sizeof(void *));
    c->instance_group[c->n_instance_group++] = group;
    return group;
}

void mr_config_add_dynamic_batching(Inference__ModelConfig *c)
{
    MR_ASSERT(c->scheduling_choice_case == INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE__NOT_SET);
    c->dynamic_batching = MR_NEW(Inference__ModelDynamicBatching);
    inference__model_dynamic_batching__init(c->dynamic_batching);
    c->scheduling_choice_case = INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
}

struct mr_config_io mr_config_input_io(Inference__ModelInput *in)
{
    return (struct mr_config_io){"input",     in->name,  &in->data_type,
                                 &in->n_dims, &in->dims, &in->reshape};
}

struct mr_config_io mr_config_output_io(Inference__ModelOutput *out)
{
    return (struct mr_config_io){"output",     out->name,  &out->data_type,
                                 &out->n_dims, &out->dims, &out->reshape};
}

const char *mr_config_parameter(const Inference__ModelConfig *c, const char *key)
{
    for (size_t i = 0; i < c->n_parameters; i++) {
        if (strcmp(c->parameters[i]->key, key) == 0 && c->parameters[i]->value) {
            return c->parameters[i]->value->string_value;
        }
    }
    return NULL;
}
