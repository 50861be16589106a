/* Parameters in memory of their own: weights mapped from a file, and their packed forms in a range of addresses per
 * version. Private to the backend.
 *
 *   pace.c        rate, progress and cancellation of a load
 *   tensors.c     the tensors of a model file that can be mapped
 *   compose.c     a model file without its tensors
 *   kept.c        memory that later processes of a model find again
 *   cache.c       files with all weights inside, rewritten once so that their tensors can be mapped
 *   seen.c        the file with which such a copy was compared
 *   pool.c        ranges of addresses, kept for the next version
 *   packed.c      packed weights that later processes of a model find again
 *   parameters.c  selection of models, and making sessions */
#ifndef MR_ONNX_PARAMETERS_H
#define MR_ONNX_PARAMETERS_H

#include <pthread.h>

#include "onnxruntime/file/fields.h"
#include "onnxruntime/session/onnx.h"

/* ---- tensors.c ---- */

#define ONNX_TENSOR_RANK  16
#define ONNX_TENSOR_ALIGN 4096 /* of tensors in a file of the cache */

struct onnx_tensor {
    char *name;
    ONNXTensorElementDataType type;
    uint32_t rank;
    int64_t dims[ONNX_TENSOR_RANK];
    uint64_t offset; /* of its bytes in the file that has them */
    uint64_t bytes;
    struct onnx_slice whole; /* the field in the model file */
};

/* Large initializers of the main graph, as they come in the file. */
struct onnx_tensors {
    struct onnx_tensor *at;
    size_t count;
    size_t cap;
    uint64_t bytes;
    char *location;           /* file with the bytes, relative to the model; NULL: the model file */
    struct onnx_slice graph;  /* its content in the model file */
    struct onnx_slice around; /* the same with its tag */
};

/* Those of at least `least` bytes that lie in the file itself, or in the first other file that one names. False if
 * the file is invalid, has no or several graphs, or memory is out. */
int onnx_tensors_list(int fd, uint64_t file_bytes, int is_external, uint64_t least,
                      struct onnx_tensors *out);
void onnx_tensors_free(struct onnx_tensors *t);

/* ---- compose.c ---- */

struct onnx_bytes {
    uint8_t *at;
    size_t len;
    size_t cap;
    int is_bad; /* no memory, or the file became shorter */
};

/* The model in `fd` with its tensors `t` in the file `location`, one after the other, each at a page; *out_data becomes the
 * size of that file. The caller frees `at`. */
struct onnx_bytes onnx_compose(int fd, uint64_t file_bytes, const struct onnx_tensors *t,
                               const char *location, uint64_t *out_data);
/* Where the tensor after this one lies, which is at `offset`. */
uint64_t onnx_tensor_next(uint64_t offset, const struct onnx_tensor *t);
/* Reads exactly this number of bytes; false if there are fewer. */
int onnx_read_all(int fd, void *to, uint64_t bytes, uint64_t at);
/* Writes all of them; false with errno set. */
int onnx_write_all(int fd, const uint8_t *from, uint64_t bytes, uint64_t at);

/* ---- pace.c ---- */

struct onnx_pace {
    struct mr_loading *loading;
    int64_t bytes_per_second; /* limit of the rate, 0 = none */
    int64_t begin_ns;
    uint64_t bytes;
    const char *step; /* the current step; static */
    uint64_t done;    /* bytes, over all steps */
    uint64_t total;
};

/* Begins a step; sets the remaining bytes, later steps included. */
void onnx_pace_plan(struct onnx_pace *p, const char *step, uint64_t left);
/* Reports more bytes as done. */
void onnx_pace_done(struct onnx_pace *p, uint64_t bytes);
/* The same after `moved` bytes were read or written: waits if that was too fast. False: the model is no longer
 * wanted. */
int onnx_pace_step(struct onnx_pace *p, uint64_t moved, uint64_t done);

/* ---- cache.c ---- */

struct onnx_cache {
    char *folder; /* NULL: no cache */
    int64_t limit;
};

/* Brings a file into the page cache. Errors: MR_E_IO, MR_E_NOMEM, MR_E_CANCELLED. */
int onnx_pace_read(struct onnx_pace *p, int fd, uint64_t bytes, struct mr_err *err);
/* Folder and limit from the backend's settings and the environment. Errors: MR_E_INVALID, MR_E_NOMEM. */
int onnx_cache_init(struct onnx_cache *c, const struct mr_setting *settings, uint32_t count,
                    struct mr_err *err);
void onnx_cache_fini(struct onnx_cache *c);
/* The model in `fd`, all of whose tensors `t` lie in it, as a model whose tensors lie in a file of their own: created
 * if missing, otherwise compared byte by byte. Returns the path of that model and the file of the tensors, locked
 * against removal while it is open. Errors: those of the disk, MR_E_CANCELLED. */
int onnx_cache_get(const struct onnx_cache *c, int fd, uint64_t file_bytes, struct onnx_tensors *t,
                   struct onnx_pace *pace, char *out_path, size_t room, int *out_weights,
                   struct mr_err *err);

/* ---- kept.c ---- */

/* What the host keeps of the model; NULL: it keeps nothing. */
struct mr_model_kept *onnx_kept(const struct mr_model_desc *desc);
/* That of packed weights among them, borrowed; -1: none. */
int onnx_kept_packed(const struct mr_model_kept *kept);
/* Adds it, and takes it. */
void onnx_kept_packed_add(struct mr_model_kept *kept, int file);
/* Fills `out` with the model in `model`, whose tensors `t` lie in `weights` (the same, or another file). Errors:
 * MR_E_EXHAUSTED, MR_E_UNSUPPORTED, MR_E_IO, MR_E_CANCELLED. */
int onnx_kept_make(int model, uint64_t model_bytes, int weights, const struct onnx_tensors *t,
                   struct onnx_pace *pace, struct mr_model_kept *out, struct mr_err *err);
/* The model without its tensors, which the caller frees; the list of its tensors; and a descriptor of the file of these. */
int onnx_kept_open(const struct mr_model_kept *kept, struct onnx_bytes *out_graph,
                   struct onnx_tensors *out_tensors, int *out_weights, struct mr_err *err);
/* For a session of such a model. */
int onnx_kept_options(OrtSessionOptions *options, struct mr_err *err);

/* ---- seen.c ---- */

/* Identifies the unchanged content of a file. No padding. */
struct onnx_identity {
    uint64_t device;
    uint64_t number;
    uint64_t bytes;
    int64_t modified_ns;
    int64_t changed_ns;
};

/* Files that were compared with each other, or made from each other. */
struct onnx_seen {
    struct onnx_identity source; /* the model */
    uint64_t tensor_bytes;       /* of it, in tensors that lie apart */
    struct onnx_identity model;  /* the entry's files */
    struct onnx_identity data;
};

/* False: not available from the system. */
int onnx_identity_read(int fd, struct onnx_identity *out);
int onnx_identity_is(int fd, const struct onnx_identity *wanted);
/* The entry of the folder with a note of seen->source and seen->tensor_bytes: fills the rest, and its name. */
int onnx_seen_find(int folder, struct onnx_seen *seen, char *out_entry, size_t room);
/* Writes a note into an entry, unless the source has changed just now. A failure costs the next load a comparison. */
void onnx_seen_write(int entry, const struct onnx_seen *seen);
void onnx_seen_remove(int entry);

/* ---- pool.c ---- */

struct onnx_range {
    struct onnx_range *next;
    char *owner; /* name of the model that has or last had it */
    uint8_t *base;
    uint64_t bytes;
    _Atomic uint64_t used;
    int in_use;
};

struct onnx_pool {
    pthread_mutex_t lock; /* guards the list and in_use; held for a walk and for mmap of a range */
    struct onnx_range *ranges;
};

void onnx_pool_init(struct onnx_pool *p);
/* All ranges must have been given back. */
void onnx_pool_fini(struct onnx_pool *p);
/* A range with room for `bytes`, empty. NULL: no address space or no memory. */
struct onnx_range *onnx_pool_take(struct onnx_pool *p, const char *owner, uint64_t bytes);
/* Memory from the range, aligned to 64 bytes; NULL when it is full. Thread: any. */
void *onnx_range_alloc(struct onnx_range *r, uint64_t bytes);
static inline int onnx_range_has(const struct onnx_range *r, const void *p)
{
    return (uintptr_t)p - (uintptr_t)r->base < r->bytes;
}
/* Returns the pages to the system and keeps the addresses. Nothing in the range may be used afterwards. */
void onnx_pool_give(struct onnx_pool *p, struct onnx_range **r);
/* Bytes of pages that are in memory now. */
uint64_t onnx_range_resident(const struct onnx_range *r);

/* ---- packed.c ---- */

struct onnx_packed;

/* Room for `bytes`. `found` is the file that an earlier process has made, borrowed; -1: this one makes it. NULL on
 * failure, with *err set. */
struct onnx_packed *onnx_packed_new(int found, uint64_t bytes, struct mr_err *err);
/* A block, aligned to 64 bytes, with any content; NULL when there is no room. */
void *onnx_packed_alloc(struct onnx_packed *p, uint64_t bytes);
/* All blocks have been written. Returns the file that this process has made, sealed, which the caller closes; -1: it has
 * made none. */
int onnx_packed_finish(struct onnx_packed *p);
/* Where the blocks are. */
struct onnx_range *onnx_packed_range(struct onnx_packed *p);
/* Bytes of blocks whose pages are those of the file. */
uint64_t onnx_packed_shared(const struct onnx_packed *p);
void onnx_packed_free(struct onnx_packed **p);

/* ---- parameters.c ---- */

struct onnx_parameters;

/* What the backend keeps for all models. */
struct onnx_parameters_host {
    int is_plain; /* setting parameter_memory */
    int64_t min_bytes;
    int64_t bytes_per_second; /* for loads in the background, 0 = no limit */
    int64_t yield_s;          /* how long these yield, 0 = never */
    struct onnx_cache cache;
    struct onnx_pool pool;
    /* serialises the sessions made with the environment's allocator */
    pthread_mutex_t session_lock;
};

/* NULL on failure, with *err set. */
struct onnx_parameters_host *onnx_parameters_host_new(const struct mr_setting *settings,
                                                      uint32_t count, struct mr_err *err);
void onnx_parameters_host_free(struct onnx_parameters_host *h);

/* Finds out whether and how the model's parameters can be mapped; NULL: not possible, with the reason in the log.
 * Errors: a wrong setting. */
int onnx_parameters_find(struct onnx_model *m, const struct mr_model_desc *desc, const char *path,
                         uint64_t file_bytes, uint32_t external, struct onnx_parameters **out,
                         struct mr_err *err);
/* Makes m->session with them. Afterwards, even on failure, the parameters cannot be used for another session. */
int onnx_parameters_session(struct onnx_parameters *p, struct onnx_model *m,
                            const struct mr_model_desc *desc, OrtSessionOptions *options,
                            struct mr_err *err);
/* Records in the model's report and the log why it is loaded in the plain way. */
void onnx_parameters_plain(struct onnx_model *m, const struct mr_model_desc *desc, uint64_t bytes,
                           const struct mr_err *why);
/* Bytes of the weights and of their packed forms that lie in memory which the host keeps, and counts. */
uint64_t onnx_parameters_shared(const struct onnx_parameters *p);
/* The session must have been released. */
void onnx_parameters_free(struct onnx_parameters **p);

#endif
