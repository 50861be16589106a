/* Graphs of other servers as models of this one: Paddle Serving's server files, KServe's InferenceGraph, the pipelines of
 * OpenVINO Model Server, and Pipeline and Experiment of Seldon Core 2 become workflows in the form of config.pbtxt.
 *
 * What such a file says and a workflow cannot do is refused, with the file, the line and the name of the node; nothing is
 * left out silently. Thread: any, one at a time per object. */
#ifndef MR_IMPORT_IMPORT_H
#define MR_IMPORT_IMPORT_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct mr_import;

/** Checks the text of a workflow's config.pbtxt. Errors name its nodes and variants in single quotes. */
typedef int(mr_import_check_fn)(mr_str config, struct mr_err *err);

struct mr_import_options {
    /** "paddle", "kserve", "ovms" or "seldon"; NULL: found from the file. */
    const char *from;
    /** (may be NULL) A model repository: the configurations in it say which tensors the models of a graph have. */
    const char *repository;
    /** (may be NULL) What is asked about each workflow; what it refuses is refused with the line of the node. */
    mr_import_check_fn *check;
};

/** One model that was made of a file. */
struct mr_import_model {
    const char *name;
    mr_str config; /* the text of its config.pbtxt */
    /** The model file of its version 1, as a path; NULL: a workflow, which has none; "": it is not there. */
    const char *model_file;
};

/** Reads a file, and those that it refers to. Blocks on the file system. Errors: MR_E_INVALID ("FILE:LINE: …"),
 *  MR_E_UNSUPPORTED (what has no counterpart here), MR_E_NOT_FOUND, MR_E_IO, MR_E_TOO_LARGE (more than 16 MiB, 100,000 values
 *  or a nesting of 64). */
int mr_import_read(struct mr_import **out, const char *path, const struct mr_import_options *o,
                   struct mr_err *err);
void mr_import_free(struct mr_import **im);
/** Its models: those that a workflow uses before it. NULL: there are no more. */
const struct mr_import_model *mr_import_model_at(const struct mr_import *im, size_t index);
/** What a reader of the result should know, a sentence each. NULL: there are no more. */
const char *mr_import_warning_at(const struct mr_import *im, size_t index);
/** Makes a folder for each model in `folder`, which is made as well if it is not there: config.pbtxt, and a folder for
 *  version 1 with the model's file if it has one: a symbolic link to it with_links, otherwise the file under a second name, or a copy
 *  where that is not possible. Errors: MR_E_EXISTS (a folder of that name is there), MR_E_NOT_FOUND
 *  (there is no file for a model that needs one), MR_E_IO. */
int mr_import_write(const struct mr_import *im, const char *folder, bool with_links,
                    struct mr_err *err);

#endif
