/* Models of MLServer in a repository: the files model-settings.json at any depth, and what the server itself reads of them.
 * Blocks on the file system. Thread: any. */
#ifndef MR_MODEL_FOLDER_SETTINGS_H
#define MR_MODEL_FOLDER_SETTINGS_H

#include "base/err.h"
#include "base/vec.h"

/** One file. */
struct settings_file {
    char *dir;     /* its folder */
    char *name;    /* of the model: the file's, or that of the folder */
    char *version; /* parameters.version; NULL: none */
    int64_t max_batch_size;
    double max_batch_time_s;
};
typedef MR_VEC(struct settings_file) settings_list;

/** True if the folder has such a file. */
bool settings_are_in(const char *dir);
/** True for a model's folder in Triton's layout: with a configuration, or with versions that are none of MLServer's. */
bool settings_are_foreign(const char *dir);
/** Appends the files in a folder and below it, in no order, except below folders that are foreign, hidden, or links in
 *  folders of the folder. A file that cannot be read is a model of its folder's name. Errors: the folder cannot be read. */
int settings_find(const char *dir, settings_list *out, struct mr_err *err);
/** Sorts by version: numbers, other texts, none; those of one version by their folders. */
void settings_sort(settings_list *list);
void settings_free(settings_list *list);
/** The Python environment that the file in a version's folder names, or a variable MLSERVER_MODEL_ENVIRONMENT_*: a folder, or
 *  an archive whose path is relative to that folder. *out on the heap; NULL: none. */
void settings_environment(const char *dir, char **out);

#endif
