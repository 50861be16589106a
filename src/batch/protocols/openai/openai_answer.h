/* Answers of OpenAI's API as text: what chat/completions, completions, embeddings and models send. Nothing in them is
 * believed: a choice for each row, each once, of the right kind. Thread: any. */
#ifndef MR_BATCH_OPENAI_ANSWER_H
#define MR_BATCH_OPENAI_ANSWER_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

/** What was answered to one row. */
struct openai_choice {
    bool is_there;
    mr_str text; /* ptr NULL: there is none */
    mr_str refusal;
    mr_str finish_reason;
    const float *vector; /* embeddings */
};

struct openai_answer {
    mr_str model;
    int64_t prompt_tokens; /* of the whole call; -1: not reported */
    int64_t completion_tokens;
    struct openai_choice *choices; /* by row */
    mr_str id;                     /* openai_answer_any: as reported, or "" */
    mr_str body;
    size_t width; /* of vectors */
};

/** Text answers to `count` rows, in the arena or the body. Choices go by their index; without one, by their place.
 *  Errors: MR_E_INVALID (says what is wrong), MR_E_EXHAUSTED. */
int openai_answer_text(mr_str body, size_t count, struct mr_arena *arena, struct openai_answer *out,
                       struct mr_err *err);
/** The same for vectors, as lists of numbers or base64. out->width: 0, then it is what the first has, or what all must
 *  have. A NaN or an infinity is an error unless allows_nan. */
int openai_answer_vectors(mr_str body, size_t count, bool allows_nan, struct mr_arena *arena,
                          struct openai_answer *out, struct mr_err *err);
/** An answer of any kind: a JSON object, whose body, id, model and tokens are returned. Errors: as above. */
int openai_answer_any(mr_str body, struct mr_arena *arena, struct openai_answer *out,
                      struct mr_err *err);
/** Does a list of models have this one? model NULL: any will do. Errors: MR_E_NOT_FOUND (names those there are), MR_E_INVALID. */
int openai_answer_models(mr_str body, const char *model, struct mr_err *err);

#endif
