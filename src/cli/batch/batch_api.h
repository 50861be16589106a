/* Options of `batch run` and `map` about hosts that speak OpenAI's API. */
#ifndef MR_CLI_BATCH_API_H
#define MR_CLI_BATCH_API_H

#include "base/options.h"
#include "base/vec.h"
#include "batch/batch.h"

extern const char *const mr_cli_batch_apis[];
extern const char *const mr_cli_batch_lengths[];

/** Options given as words. */
struct mr_cli_batch_api {
    int api; /* 0: the Open Inference Protocol */
    const char *prompt;
    const char *prompt_file;
    const char *system;
    const char *messages;
    const char *null_text;
    struct mr_option_list params;
    const char *text_column;
    const char *schema_file;
    int64_t reasks;
    int on_length;
    int64_t max_tokens_in_flight;
    int64_t max_total_tokens;
    const char *key_env;
    const char *key_file;
};

/** Rows of an option table; `words.api` is a struct mr_cli_batch_api. */
#define MR_BATCH_API_ROWS(type)                                                                    \
    {.name = "api",                                                                                \
     .kind = MR_OPTION_CHOICE,                                                                     \
     .flags = MR_OPTION_CLI_ONLY,                                                                  \
     MR_OPTION_AT(type, words.api.api),                                                            \
     .fallback = "oip",                                                                            \
     .choices = mr_cli_batch_apis,                                                                 \
     .value = "API",                                                                               \
     .help = "what hosts speak: the Open Inference Protocol, or a part of OpenAI's API"},          \
        {.name = "prompt",                                                                         \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.prompt),                                                     \
         .value = "TEXT",                                                                          \
         .help = "of each row, with {{column}}; \\{{ is {{ itself"},                               \
        {.name = "prompt-file",                                                                    \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.prompt_file),                                                \
         .value = "FILE",                                                                          \
         .help = "the same from a file, all of it"},                                               \
        {.name = "system",                                                                         \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.system),                                                     \
         .value = "TEXT",                                                                          \
         .help = "the system's message before it, also with {{column}}"},                          \
        {.name = "messages",                                                                       \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.messages),                                                   \
         .value = "COLUMN",                                                                        \
         .help = "instead of a prompt: a column with lists of messages, as JSON"},                 \
        {.name = "null-text",                                                                      \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.null_text),                                                  \
         .value = "TEXT",                                                                          \
         .help = "what a null is in a prompt; its row becomes a dead letter if not given"},        \
        {.name = "param",                                                                          \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.params),                                                     \
         .value = "NAME=JSON",                                                                     \
         .help = "of each request, as in max_tokens=64 or stop='[\"\\n\"]'; several times"},       \
        {.name = "output-column",                                                                  \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.text_column),                                                \
         .value = "NAME",                                                                          \
         .help = "of the column of answers; text, or embedding, if not given"},                    \
        {.name = "response-schema",                                                                \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.schema_file),                                                \
         .value = "FILE",                                                                          \
         .help = "a JSON Schema that answers of chat must fit; its properties become columns"},    \
        {.name = "reask",                                                                          \
         .kind = MR_OPTION_INT,                                                                    \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.reasks),                                                     \
         .fallback = "1",                                                                          \
         .max = 100,                                                                               \
         .value = "N",                                                                             \
         .help = "how often a row whose answer does not fit is asked for again"},                  \
        {.name = "on-length",                                                                      \
         .kind = MR_OPTION_CHOICE,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.on_length),                                                  \
         .fallback = "keep",                                                                       \
         .choices = mr_cli_batch_lengths,                                                          \
         .value = "POLICY",                                                                        \
         .help =                                                                                   \
             "an answer that was cut off at max_tokens is a result, a dead letter, or asked for "  \
             "again with more of them"},                                                           \
        {.name = "max-tokens-in-flight",                                                           \
         .kind = MR_OPTION_INT,                                                                    \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.max_tokens_in_flight),                                       \
         .fallback = "0",                                                                          \
         .max = INT64_MAX,                                                                         \
         .value = "N",                                                                             \
         .help = "of prompts and answers at a host at a time, estimated; 0 is any number"},        \
        {.name = "max-total-tokens",                                                               \
         .kind = MR_OPTION_INT,                                                                    \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.max_total_tokens),                                           \
         .fallback = "0",                                                                          \
         .max = INT64_MAX,                                                                         \
         .value = "N",                                                                             \
         .help = "end when hosts have counted N tokens in this start; it can be run again; "       \
                 "0 is any number"},                                                               \
        {.name = "api-key-env",                                                                    \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.api.key_env),                                                    \
         .value = "NAME",                                                                          \
         .help = "the variable of the environment that has the key for hosts"},                    \
    {                                                                                              \
        .name = "api-key-file", .kind = MR_OPTION_STRING, .flags = MR_OPTION_CLI_ONLY,             \
        MR_OPTION_AT(type, words.api.key_file), .value = "FILE",                                   \
        .help = "a file with the key for hosts"                                                    \
    }

/** A parsed command line; options point into it. */
struct mr_cli_batch_api_parsed {
    struct mr_batch_openai openai;
    MR_VEC(struct mr_batch_param) params;
    MR_VEC(char *) texts;
};
/** *p must be zero. Errors: MR_E_INVALID, MR_E_NOT_FOUND, MR_E_IO (files); p must be ended even then. */
int mr_cli_batch_api_read(struct mr_batch_options *o, struct mr_cli_batch_api_parsed *p,
                          const struct mr_cli_batch_api *words, struct mr_err *err);
void mr_cli_batch_api_fini(struct mr_cli_batch_api_parsed *p);

#endif
