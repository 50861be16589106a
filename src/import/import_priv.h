/* The object that import.h hands out, and what the readers of all formats share. */
#ifndef IMPORT_IMPORT_PRIV_H
#define IMPORT_IMPORT_PRIV_H

#include "base/vec.h"
#include "doc.h"
#include "import/import.h"
#include "signature.h"

struct mr_import {
    struct mr_arena arena; /* of all that follows, and of what is read */
    const char *file;
    const char *repository;
    mr_import_check_fn *check; /* NULL: none */
    size_t tensors;            /* see import_count */
    MR_VEC(struct mr_import_model) models;
    MR_VEC(const char *) warnings;
};

/** Adds a model; `config` is copied, `model_file` is in the arena, "" if there ought to be one. Errors, without the place:
 *  MR_E_INVALID (two models of that name), MR_E_TOO_LARGE. */
int import_add(struct mr_import *im, mr_str name, const struct emit *config, const char *model_file,
               struct mr_err *err);
/** Adds a workflow that the check takes and that does not ask itself. Errors: MR_E_INVALID with file, line and node, those of the check. */
int import_add_flow(struct mr_import *im, const struct flow *f, struct mr_err *err);
int import_warn(struct mr_import *im, struct mr_err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** Whether a document is none, or one of the models that stand beside graphs, which is warned of. */
int import_skip(struct mr_import *im, const struct doc *doc, const char *kind, bool *out_skip,
                struct mr_err *err);
/** The tensors of a model. Those that are not known are warned of, once for each model. */
int import_signature(struct mr_import *im, mr_str model, struct signature *out, struct mr_err *err);
int import_no_memory(struct mr_err *err);
/** Counts `count` more tensors that steps take or give: a file has at most 10000, as each is looked up among the others, and a
 *  graph of a few lines can double them with each of its nodes. Errors: MR_E_TOO_LARGE. */
int import_count(struct mr_import *im, size_t count, const struct doc_at *at,
                 const struct doc *value, struct mr_err *err);
/** Keeps the name for this node's output, before any node gives out what it has, unless another node's output has it already.
 *  Clients of the foreign server ask for outputs by these names. */
int import_answer(struct mr_import *im, struct flow *f, mr_str node, mr_str name,
                  struct mr_err *err);
/** A tensor name that no tensor of `f` has yet, and no answer of another node: `name`, or else `node`_`name`. ptr NULL: no memory. */
mr_str import_tensor_name(struct mr_import *im, const struct flow *f, mr_str node, mr_str name);
/** Checks a name that becomes a folder's. */
int import_check_name(const struct doc_at *at, const struct doc *value, mr_str name,
                      struct mr_err *err);

/* The readers of formats. `doc`: the first document of the file, or NULL for Paddle's. */
int import_kserve(struct mr_import *im, const struct doc *doc, struct mr_err *err);
int import_seldon(struct mr_import *im, const struct doc *doc, struct mr_err *err);
int import_ovms(struct mr_import *im, const struct doc *doc, struct mr_err *err);
int import_paddle(struct mr_import *im, mr_str text, struct mr_err *err);

#endif
