/* A job whose hosts speak OpenAI's API: what its files share. Private.
 *
 * Thread: the loop's, but for openai_new. */
#ifndef MR_BATCH_OPENAI_H
#define MR_BATCH_OPENAI_H

#include "base/vec.h"
#include "batch/common/call.h"
#include "batch/common/dialect.h"
#include "json_schema.h"
#include "openai_answer.h"
#include "template.h"

enum openai_column {
    OPENAI_TEXT, /* or the vector */
    OPENAI_FINISH_REASON,
    OPENAI_PROMPT_TOKENS,
    OPENAI_COMPLETION_TOKENS,
    OPENAI_MODEL,
    OPENAI_COLUMNS,
    OPENAI_PROPERTY = OPENAI_COLUMNS /* of an answer that is an object */
};

/** A column of the results, after the carried ones. */
struct openai_output {
    enum openai_column column;
    size_t property;                  /* of the schema */
    struct mr_column_builder builder; /* empty between calls */
};

/** Sizes of past calls, for estimates of further ones. */
struct openai_tokens {
    uint64_t used; /* in this start */
    double bytes_each;
    uint64_t answers;
    struct mr_hist lengths; /* of answers */
};

struct openai {
    const struct mr_batch_openai *o;
    struct template *system;    /* NULL: none */
    struct template *prompt;    /* NULL: there is a column of messages */
    int messages;               /* the column; -1: none */
    int file_columns[4];        /* openai_file.c */
    char *authorization;        /* NULL: none. Never shown */
    struct mr_buf tail;         /* of each call: its parameters, with a comma before each */
    size_t width;               /* of vectors, as reported by the first host; 0: unknown */
    struct json_schema *schema; /* that answers fit; NULL: any text */
    uint64_t max_tokens;        /* of an answer, as a parameter says; 0: none does */
    const char *max_tokens_name;
    struct openai_tokens tokens;
    struct openai_output *outputs;
    size_t output_count;
};

/** Reads templates and parameters. Errors: MR_E_INVALID, MR_E_UNSUPPORTED. */
int openai_new(struct openai **out, const struct mr_batch_options *o, struct mr_err *err);

/** Blots out the key where a server quotes it back, also what is left of it at the end of a text that was cut: it stays
 *  out of logs, reports and dead letters. */
void openai_hide(const struct openai *a, char *text, size_t len);

/** dialect.free */
void openai_drop(struct dialect_model *model);

#endif
