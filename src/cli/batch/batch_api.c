/* Options for OpenAI's API as options of a job. A key comes from the environment or a file, as all users of the
 * machine can read command lines. */
#include "batch_api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MOST (16 << 20)

const char *const mr_cli_batch_apis[] = {"oip",        "chat",       "completions",
                                         "embeddings", "batch-file", NULL};
const char *const mr_cli_batch_lengths[] = {"keep", "dead", "more", NULL};

void mr_cli_batch_api_fini(struct mr_cli_batch_api_parsed *p)
{
    for (size_t i = 0; i < p->texts.len; i++) {
        mr_free(p->texts.at[i]);
    }
    MR_VEC_FINI(&p->texts);
    MR_VEC_FINI(&p->params);
}

/* Reads a whole file; its text is owned by p. */
static int file_read(struct mr_cli_batch_api_parsed *p, const char *option, const char *path,
                     const char **out, struct mr_err *err)
{
    FILE *f = fopen(path, "re");
    char *text = f ? mr_alloc(FILE_MOST + 1) : NULL;
    const size_t n = f ? fread(text, 1, FILE_MOST + 1, f) : 0;
    const bool is_wrong = !f || ferror(f);
    const int cause = errno;

    if (f) {
        fclose(f);
        MR_VEC_PUSH(&p->texts, mr_strndup(text, n));
        mr_free(text);
    }
    if (is_wrong) {
        return MR_FAIL(err, cause == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "--%s %s: %s", option, path,
                       strerror(cause));
    }
    *out = p->texts.at[p->texts.len - 1];
    return n <= FILE_MOST && strlen(*out) == n
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "--%s %s: more than %d bytes, or a NUL in it", option,
                         path, FILE_MOST);
}

static int params_read(struct mr_cli_batch_api_parsed *p, const struct mr_option_list *list,
                       struct mr_err *err)
{
    for (size_t i = 0; i < list->len; i++) {
        const char *equals = strchr(list->at[i], '=');
        if (!equals || equals == list->at[i]) {
            return MR_FAIL(err, MR_E_INVALID, "--param %s: expected NAME=JSON", list->at[i]);
        }
        char *name = mr_strndup(list->at[i], (size_t)(equals - list->at[i]));
        MR_VEC_PUSH(&p->texts, name);
        MR_VEC_PUSH(&p->params, ((struct mr_batch_param){name, equals + 1}));
    }
    p->openai.params = p->params.at;
    p->openai.param_count = p->params.len;
    return MR_OK;
}

static int key_read(struct mr_cli_batch_api_parsed *p, const struct mr_cli_batch_api *words,
                    struct mr_err *err)
{
    const char *key = NULL;
    int rc = MR_OK;

    if (words->key_env && words->key_file) {
        return MR_FAIL(err, MR_E_INVALID, "--api-key-env and --api-key-file are both given");
    }
    if (words->key_env && !(key = getenv(words->key_env))) {
        return MR_FAIL(err, MR_E_INVALID, "--api-key-env %s: there is no such variable",
                       words->key_env);
    }
    if (words->key_file) {
        rc = file_read(p, "api-key-file", words->key_file, &key, err);
    }
    if (rc < 0 || !key) {
        return rc;
    }
    const mr_str trimmed = mr_str_trim(mr_str_c(key));
    for (size_t i = 0; i < trimmed.len; i++) {
        if (trimmed.ptr[i] <= ' ' || trimmed.ptr[i] > '~') {
            return MR_FAIL(err, MR_E_INVALID, "the API key is not one word of ASCII");
        }
    }
    if (trimmed.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "the API key is empty");
    }
    MR_VEC_PUSH(&p->texts, mr_strndup(trimmed.ptr, trimmed.len));
    p->openai.key = p->texts.at[p->texts.len - 1];
    return MR_OK;
}

/* Refuses options that do not apply to the Open Inference Protocol. */
static int none_check(const struct mr_cli_batch_api *w, struct mr_err *err)
{
    const struct {
        const char *name;
        bool is_given;
    } options[] = {{"prompt", w->prompt},
                   {"prompt-file", w->prompt_file},
                   {"system", w->system},
                   {"messages", w->messages},
                   {"null-text", w->null_text},
                   {"param", w->params.len > 0},
                   {"output-column", w->text_column},
                   {"response-schema", w->schema_file},
                   {"on-length", w->on_length != 0},
                   {"max-tokens-in-flight", w->max_tokens_in_flight > 0},
                   {"max-total-tokens", w->max_total_tokens > 0},
                   {"api-key-env", w->key_env},
                   {"api-key-file", w->key_file}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (options[i].is_given) {
            return MR_FAIL(err, MR_E_INVALID,
                           "--%s is for hosts that speak OpenAI's API: --api chat, completions, "
                           "embeddings or batch-file",
                           options[i].name);
        }
    }
    return MR_OK;
}

int mr_cli_batch_api_read(struct mr_batch_options *o, struct mr_cli_batch_api_parsed *p,
                          const struct mr_cli_batch_api *words, struct mr_err *err)
{
    int rc;

    if (words->api == 0) {
        return none_check(words, err);
    }
    p->openai =
        (struct mr_batch_openai){.api = (enum mr_batch_api)(words->api - 1),
                                 .prompt = words->prompt,
                                 .system = words->system,
                                 .messages = words->messages,
                                 .null_text = words->null_text,
                                 .text_column = words->text_column,
                                 .max_tokens_in_flight = (uint64_t)words->max_tokens_in_flight,
                                 .max_total_tokens = (uint64_t)words->max_total_tokens,
                                 .reasks = (uint32_t)words->reasks,
                                 .on_length = (enum mr_batch_length)words->on_length};
    if (words->prompt && words->prompt_file) {
        MR_TRY(MR_FAIL(err, MR_E_INVALID, "--prompt and --prompt-file are both given"));
    }
    if (words->prompt_file) {
        MR_TRY(file_read(p, "prompt-file", words->prompt_file, &p->openai.prompt, err));
    }
    if (words->schema_file) {
        MR_TRY(file_read(p, "response-schema", words->schema_file, &p->openai.schema, err));
    }
    if (p->openai.api == MR_BATCH_API_FILE) {
        if (o->results.writer.compression != MR_COMPRESSION_NONE) {
            MR_TRY(MR_FAIL(err, MR_E_INVALID,
                           "--compression is not for --api batch-file, whose results are JSON "
                           "lines as they are"));
        }
        o->results.writer.format = MR_TABLE_JSONL;
        o->results.suffix = ".jsonl";
        o->source.format = o->source.stream ? o->source.format : MR_TABLE_JSONL;
    }
    MR_TRY(params_read(p, &words->params, err));
    MR_TRY(key_read(p, words, err));
    o->openai = &p->openai;
out:
    return rc;
}
