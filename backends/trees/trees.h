/* Boosted trees: what the backends "xgboost" and "lightgbm" share (trees.c, library.c), and what each of them does with its C
 * library (xgboost.c, lightgbm.c, of which a backend links one).
 *
 * A model reads one matrix, [rows, features], in which NaN is a missing value, and predicts one matrix, of which its
 * outputs are forms. */
#ifndef TREES_TREES_H
#define TREES_TREES_H

#include "millrace/backend_util.h"

#define TREES_OUTPUTS_MAX 4
#define TREES_THREADS_MAX 1024

/** The host's services. Set before anything else is called. */
extern const struct mr_host *trees_host;

/** Threads that a prediction uses, 1..TREES_THREADS_MAX. Set by init. */
extern int64_t trees_threads;

struct trees_model {
    struct mr_signature signature;
    struct mr_io_desc input;
    struct mr_io_desc outputs[TREES_OUTPUTS_MAX];
    int64_t input_dims[2];
    int64_t output_dims[TREES_OUTPUTS_MAX][2];
    int kinds[TREES_OUTPUTS_MAX]; /* what an output is; the numbers are the library's file's own */
    int is_mlserver; /* the outputs that MLServer's runtime for such models has, and no others */
    uint64_t file_bytes;
    void *booster;
    int64_t columns;       /* of a prediction */
    char settings[2][160]; /* of predictions, as the library takes them */
};

/* ---- library.c ---- */

/** Opens a shared library, for good: `path`, if not NULL; or by its file names (ended by NULL), first those that the dynamic
 *  loader finds, then `wheel`, a path within the packages of the Pythons that PATH leads to. Thread: init. Errors:
 *  MR_E_NOT_FOUND (the message lists the places), MR_E_IO (there, but it cannot be opened). */
int trees_library_open(const char *path, const char *const *names, const char *wheel, void **out,
                       struct mr_err *err);

/** A function of it; NULL and *err with MR_E_UNSUPPORTED if it has none of this name. */
void *trees_symbol(void *library, const char *name, struct mr_err *err);

/** Fails with what the library says of its last error, in one line, without addresses. */
int trees_fail(struct mr_err *err, int status, const char *what, const char *said);

/* ---- trees.c ---- */

/** Adds an output [rows, columns] while the model is opened. The first one is there for every model, others for those whose
 *  configuration names them, or for all of MLServer. */
void trees_output_add(struct trees_model *m, const char *name, enum mr_dtype dtype, int64_t columns,
                      int kind);

/** Room for output `index` of an execution. */
int trees_output(const struct trees_model *m, struct mr_exec *exec, uint32_t index, void **out,
                 struct mr_err *err);

/* ---- xgboost.c, lightgbm.c ---- */

/** The backend's name, the library's file names and its path in a wheel. */
extern const char trees_name[];
extern const char *const trees_files[];
extern const char trees_wheel[];

/** Finds the functions of an opened library, and writes its version. Thread: init. */
int trees_bind(void *library, char *version, size_t room, struct mr_err *err);

/** Opens the content of a model's file, which a zero byte follows, in a model that is all zero but for is_mlserver: sets
 *  booster, the input's type and features (input_dims[1]), columns and settings, and adds outputs. Thread: a loader. On
 *  failure nothing is left. */
int trees_open(struct trees_model *m, const char *content, size_t bytes, struct mr_err *err);
void trees_close(struct trees_model *m);

/** What an instance has of its own; NULL if nothing. */
int trees_instance_open(struct trees_model *m, void **out, struct mr_err *err);
void trees_instance_close(void *own);

/** Predicts `rows` rows and sets the wanted outputs; rows >= 1, as many as the input has. Only computes. Thread: one at a time for an
 *  instance. */
int trees_predict(const struct trees_model *m, void *own, struct mr_exec *exec, int64_t rows,
                  struct mr_err *err);

#endif
