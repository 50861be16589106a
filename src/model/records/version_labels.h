/* Names for versions. */
#ifndef MR_MODEL_VERSION_LABELS_H
#define MR_MODEL_VERSION_LABELS_H

#include "model/model.h"

struct mr_model;

struct mr_version_label {
    char *name;
    int64_t number;
};
struct mr_label_list {
    struct mr_version_label *at;
    size_t len;
    size_t cap;
};

/** True for a letter or '_', followed by letters, digits and "_-.". */
bool mr_label_is_name(mr_str s);
/** "stable=3,canary=4" */
int mr_label_list_parse(mr_str text, struct mr_label_list *out, struct mr_err *err);
void mr_label_list_fini(struct mr_label_list *list);
/** Lock held, as for those below: true if that version has a label and keeps it when `next` is the configuration's list.
 *  NULL: the list does not change. */
bool mr_labels_keep(const struct mr_model *model, const struct mr_label_list *next, int64_t number);
/** True if the labels of a configuration, by their text (NULL: none), differ from those that were applied last. */
bool mr_labels_are_new(const struct mr_model *model, const char *given);
/** Applies the labels of `list`, and removes those that only the previous configuration had. All or none: not before
 *  all versions that they name are ready. given: the text of `list`, NULL = none. */
void mr_labels_take(struct mr_model *model, const struct mr_label_list *list, const char *given);
/** Removes the labels of a version that is gone. */
void mr_labels_drop(struct mr_model *model, int64_t number);
void mr_labels_clear(struct mr_model *model);

#endif
