/* What the conformance cases share: which backend is tried, models of the test repository, calls. */
#ifndef MR_CONFORMANCE_HARNESS_H
#define MR_CONFORMANCE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>

#include <stdlib.h>
#include <string.h>

#include "plugin/plugin.h"
#include "tensor/tensor.h"

#define IO_MAX 8

/* The backend of this run, opened before the cases and closed after them. */
extern const char *subject;
extern struct mr_plugin *plugin;

static inline bool subject_is(const char *name)
{
    return strcmp(subject, name) == 0;
}

int plugin_open(const char *name, const struct mr_setting *settings, size_t count,
                struct mr_plugin **out, struct mr_err *err);
/* Path below tests/models/repo; static memory, two calls may be alive. */
const char *repo_path(const char *model, const char *rest);

struct loaded {
    struct mr_executor *model;
    const struct mr_signature *signature;
    void *instance;
};

/* Input and output of the progress of the loads below; NULL = none. */
extern struct mr_loading *loading;

/* Opens `model` of the repository with settings, and one instance. Backends without an opinion get
 * the signature `shape` (NULL: only for those that have their own). */
int model_try(const char *model, const struct mr_setting *settings, size_t count,
              const struct mr_signature *shape, struct loaded *out, struct mr_err *err);
int instance_open(struct mr_executor *model, uint32_t index, void **out, struct mr_err *err);
struct loaded model_load(const char *model, const struct mr_signature *shape);
void model_drop(struct loaded *l);

/* A model of the subject that copies INPUT0 to OUTPUT0, [rows, n] of this type. */
struct loaded identity_load(int dtype);
/* The signature of that, for backends that take it from the config; static memory. */
const struct mr_signature *identity_signature(int dtype);

/* One execution. */
struct call {
    struct mr_execution x;
    struct mr_arena arena;
    struct mr_tensor in[IO_MAX];
    int64_t shapes[IO_MAX][8];
    struct mr_exec_output out[IO_MAX];
    uint8_t wanted[IO_MAX];
    struct mr_exec_request request;
    struct mr_err err;
    pthread_mutex_t mutex; /* guards is_over, of an execution that ends later */
    pthread_cond_t ended;
    bool is_over;
};

/* All outputs wanted, no input sent, no batch. */
void call_init(struct call *c, const struct loaded *l);
/* data is borrowed until the run. */
void call_input(struct call *c, uint32_t index, int dtype, const void *data, uint64_t bytes,
                int rank, const int64_t *shape);
int call_run(struct call *c, const struct loaded *l);
/* Frees the outputs, so that the call can run again. */
void call_clear(struct call *c);
void call_fini(struct call *c);
void assert_no_outputs(const struct call *c);
/* Runs and fails the test with the backend's sentence if that goes wrong. */
void call_must(struct call *c, const struct loaded *l);
/* Runs and expects this status and text. */
void call_must_fail(struct call *c, const struct loaded *l, int status, const char *says);
/* Compares one output. */
void assert_output(const struct call *c, uint32_t index, int dtype, const void *data,
                   uint64_t bytes, int rank, const int64_t *shape);

/* Bytes of a tensor of `elements` of this type, deterministic, valid for the type; mr_free it. */
uint8_t *sample(int dtype, uint64_t elements, uint64_t *out_bytes);

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

/* Lists of cases, each in its file. */
extern const struct CMUnitTest common_cases[];
extern const size_t common_case_count;
extern const struct CMUnitTest parallel_cases[];
extern const size_t parallel_case_count;
extern const struct CMUnitTest identity_cases[];
extern const size_t identity_case_count;
extern const struct CMUnitTest fault_cases[];
extern const size_t fault_case_count;
extern const struct CMUnitTest onnxruntime_cases[];
extern const size_t onnxruntime_case_count;
extern const struct CMUnitTest parameters_cases[];
extern const size_t parameters_case_count;

#endif
