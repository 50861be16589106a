/* Which tensors a model has, from its configuration in a repository. */
#ifndef IMPORT_SIGNATURE_H
#define IMPORT_SIGNATURE_H

#include "flow.h"

struct signature {
    struct flow_tensor *inputs, *outputs;
    int64_t max_batch_size;
    bool is_known; /* false: one tensor INPUT and one OUTPUT stand for what is not known */
};

/** The tensors of a model of `repository` (NULL: none is known). Blocks on the file system. Errors: MR_E_INVALID (the
 *  configuration cannot be read, or the name is no name of a folder), MR_E_EXHAUSTED. */
int signature_of(const char *repository, mr_str model, struct mr_arena *arena,
                 struct signature *out, struct mr_err *err);

/** The content of a file of at most 16 MiB, in the arena. Errors: those of mr_file_read. */
int import_read_file(const char *path, struct mr_arena *arena, mr_str *out, struct mr_err *err);

#endif
