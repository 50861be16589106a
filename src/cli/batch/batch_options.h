/* Options shared by `batch run` and `map`. */
#ifndef MR_CLI_BATCH_OPTIONS_H
#define MR_CLI_BATCH_OPTIONS_H

#include "base/options.h"
#include "base/vec.h"
#include "batch/batch.h"
#include "batch_api.h"

extern const char *const mr_cli_batch_protocols[];

/* The options of `batch run` and those of `map`; a job file may be for both. */
extern const struct mr_option mr_cli_batch_table[];
extern const size_t mr_cli_batch_table_count;
extern const struct mr_option mr_cli_map_table[];
extern const size_t mr_cli_map_table_count;

/** Options given as words. */
struct mr_cli_batch_words {
    struct mr_option_list hosts;
    struct mr_option_list carried;
    struct mr_option_list outputs;
    struct mr_option_list model_inputs;
    struct mr_option_list model_outputs;
    struct mr_option_list maps;
    struct mr_option_list job_files;
    struct mr_cli_batch_api api;
    const char *null_value; /* NULL: nothing */
    const char *delimiter;
    int protocol;
};

/* Rows of an option table for a struct with a struct mr_batch_options `job` and a struct mr_cli_batch_words `words`. */

/** The file with further options, read by the parser. */
#define MR_BATCH_JOB_FILE_ROW(type)                                                                \
    {                                                                                              \
        .name = "job", .kind = MR_OPTION_LIST, .flags = MR_OPTION_CONFIG | MR_OPTION_CLI_ONLY,     \
        MR_OPTION_AT(type, words.job_files), .value = "FILE",                                      \
        .help = "options from a file of 'name = value' lines; those of the command line win"       \
    }

/** Options for reading text. */
#define MR_BATCH_TEXT_ROWS(type)                                                                   \
    {.name = "delimiter",                                                                          \
     .kind = MR_OPTION_STRING,                                                                     \
     .flags = MR_OPTION_CLI_ONLY,                                                                  \
     MR_OPTION_AT(type, words.delimiter),                                                          \
     .value = "CHARACTER",                                                                         \
     .help = "between the cells of CSV; a comma, or a tab for .tsv, if not given"},                \
        {.name = "no-header",                                                                      \
         .kind = MR_OPTION_BOOL,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.source.has_no_header),                                             \
         .help = "CSV without names: columns are column0, column1 and so on"},                     \
    {                                                                                              \
        .name = "max-cell-bytes", .kind = MR_OPTION_BYTES, .flags = MR_OPTION_CLI_ONLY,            \
        MR_OPTION_AT(type, job.source.max_cell_bytes), .fallback = "64MiB", .min = 1024,           \
        .max = INT64_C(1) << 31, .value = "SIZE",                                                  \
        .help = "a row with a larger cell becomes a dead letter"                                   \
    }

/** Options for the model, the hosts and the calls. */
#define MR_BATCH_MODEL_ROWS(type)                                                                  \
    {.name = "model",                                                                              \
     .letter = 'm',                                                                                \
     .kind = MR_OPTION_STRING,                                                                     \
     .flags = MR_OPTION_CLI_ONLY,                                                                  \
     MR_OPTION_AT(type, job.model),                                                                \
     .value = "MODEL",                                                                             \
     .help = "as the hosts name it"},                                                              \
        MR_BATCH_API_ROWS(type),                                                                   \
        {.name = "model-version",                                                                  \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.model.version),                                                    \
         .value = "N",                                                                             \
         .help = "the one that hosts serve by default if not given"},                              \
        {.name = "hosts",                                                                          \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.hosts),                                                          \
         .value = "HOST,...",                                                                      \
         .help =                                                                                   \
             "host:port, also with https://, grpc:// and grpcs://, with --api also "               \
             "https://host/v1; dns:NAME:PORT for all "                                             \
             "addresses of a name; @FILE for a file of hosts that is read again when it changes; " \
             "the port is 8000, for gRPC 8001, if not given"},                                     \
        {.name = "local",                                                                          \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.hosts.repository),                                                 \
         .value = "REPOSITORY",                                                                    \
         .help = "the model runs in this process, from a model repository; hosts may help"},       \
        {.name = "protocol",                                                                       \
         .kind = MR_OPTION_CHOICE,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.protocol),                                                       \
         .fallback = "binary",                                                                     \
         .choices = mr_cli_batch_protocols,                                                        \
         .value = "PROTOCOL",                                                                      \
         .help = "binary is REST with tensors as bytes, or as JSON where a host does not take "    \
                 "them, rest REST with JSON; an address with a scheme goes before"},               \
        {.name = "model-input",                                                                    \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.model_inputs),                                                   \
         .value = "NAME=TYPE[DIMS]",                                                               \
         .help = "an input of the model, such as x=FP32[-1,64], where hosts do not say it"},       \
        {.name = "model-output",                                                                   \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.model_outputs),                                                  \
         .value = "NAME=TYPE[DIMS]",                                                               \
         .help = "the same of an output"},                                                         \
        {.name = "map",                                                                            \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.maps),                                                           \
         .value = "INPUT=FROM",                                                                    \
         .help = "an input of the model comes from COLUMN, stack(COLUMN,...), const(NUMBER) or "   \
                 "mask(COLUMN,...), which is 0 for nulls and 1 for all else; "                     \
                 "from the "                                                                       \
                 "column of its name if not given"},                                               \
        {.name = "null-value",                                                                     \
         .kind = MR_OPTION_STRING,                                                                 \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.null_value),                                                     \
         .value = "NUMBER",                                                                        \
         .help = "what nulls are sent as; a row with a null becomes a dead letter if not given"},  \
        {.name = "timeout",                                                                        \
         .letter = 't',                                                                            \
         .kind = MR_OPTION_DURATION,                                                               \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.calls.max_timeout_ns),                                             \
         .fallback = "1h",                                                                         \
         .min = 1,                                                                                 \
         .max = 86400,                                                                             \
         .scale = MR_NS_PER_S,                                                                     \
         .value = "TIME",                                                                          \
         .help = "the longest that a call may take; ten times what its host usually takes ends "   \
                 "it before"},                                                                     \
        {.name = "max-in-flight-per-host",                                                         \
         .kind = MR_OPTION_INT,                                                                    \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, job.calls.max_in_flight),                                              \
         .fallback = "256",                                                                        \
         .min = 1,                                                                                 \
         .max = 65535,                                                                             \
         .value = "N",                                                                             \
         .help = "calls at a time; how many there are is found out by their latency"},             \
    {                                                                                              \
        .name = "max-attempts", .kind = MR_OPTION_INT, .flags = MR_OPTION_CLI_ONLY,                \
        MR_OPTION_AT(type, job.calls.max_attempts), .fallback = "5", .min = 1, .max = 1000,        \
        .value = "N",                                                                              \
        .help = "failures of a row, while others succeed, before it becomes a dead letter"         \
    }

/** Options for the columns of results. */
#define MR_BATCH_COLUMN_ROWS(type)                                                                 \
    {.name = "keep",                                                                               \
     .kind = MR_OPTION_LIST,                                                                       \
     .flags = MR_OPTION_CLI_ONLY,                                                                  \
     MR_OPTION_AT(type, words.carried),                                                            \
     .value = "COLUMN,...",                                                                        \
     .help = "columns of the input that the results have as well; a comma in a name is written "   \
             "\\,; batch run keeps filename and file_row_number if not given, '' keeps none"},     \
        {.name = "outputs",                                                                        \
         .kind = MR_OPTION_LIST,                                                                   \
         .flags = MR_OPTION_CLI_ONLY,                                                              \
         MR_OPTION_AT(type, words.outputs),                                                        \
         .value = "OUTPUT,...",                                                                    \
         .help = "those of the model that are wanted; all if not given"},                          \
    {                                                                                              \
        .name = "allow-nan", .kind = MR_OPTION_BOOL, .flags = MR_OPTION_CLI_ONLY,                  \
        MR_OPTION_AT(type, job.model.allows_nan),                                                  \
        .help = "NaN and infinity are answers; without this a host that sends them has failed"     \
    }

struct mr_cli_batch_list {
    MR_VEC(char *) at;
};

/** A parsed command line; options point into it. */
struct mr_cli_batch_parsed {
    struct mr_cli_batch_list hosts;
    struct mr_cli_batch_list columns;
    struct mr_cli_batch_list carried;
    struct mr_cli_batch_list outputs;
    struct mr_cli_batch_list map_names;
    MR_VEC(struct mr_batch_map) maps;
    struct mr_cli_batch_api_parsed api;
};
/** *p must be zero. Errors: MR_E_INVALID; p must be ended even then. */
int mr_cli_batch_words_read(struct mr_batch_options *o, struct mr_cli_batch_parsed *p,
                            const struct mr_cli_batch_words *words, struct mr_err *err);
/** The words of all values, split at commas without a backslash before them; valid as long as the list. */
const char *const *mr_cli_batch_cut(struct mr_cli_batch_list *to, const struct mr_option_list *list,
                                    size_t *out_count);
void mr_cli_batch_list_fini(struct mr_cli_batch_list *list);
void mr_cli_batch_parsed_fini(struct mr_cli_batch_parsed *p);
/** Errors: MR_E_INVALID. */
int mr_cli_batch_number(const char *option, const char *text, double least, double most,
                        double *out, struct mr_err *err);

#endif
