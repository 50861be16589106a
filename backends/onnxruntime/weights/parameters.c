/* Sessions with parameters in memory of their own, so that an update of a large model does not affect requests.
 *
 * By default ONNX Runtime copies weights to the heap, packs them into further heap memory, and frees all of it with
 * the session. Here a session gets its weights as tensors over one mapping of a file (which takes no memory of the
 * process once they are packed), and packs them into a range of the pool through an allocator for read-only memory.
 * Such an allocator belongs to the environment: it is registered while one session is made and unregistered
 * afterwards; the session keeps using it. Tensors of requests are never allocated there: later allocations come from
 * the heap.
 *
 * Weights read while the session was made have been packed, folded or copied: their pages of the mapping are released
 * (a later access reads them from the page cache again). Weights not read are needed by requests: the loading thread
 * reads their pages now.
 *
 * In a worker process the mapping is of memory that the server keeps (kept.c): there is no cache, and a process that
 * replaces another one finds the weights there. If the model has several processes, packed weights are kept there, too
 * (packed.c).
 *
 * Which models: those with at least `min_bytes` in large tensors of numbers in the main graph. Others, and those for
 * which this fails, load in the plain way, with the reason in the log.
 *
 * Thread: loaders. */
#include "parameters.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_ONLY_ALLOCATOR 2  /* OrtReadOnlyAllocator, in headers since 1.23 */
#define DATA_ALIGN          64 /* for tensors in files of other writers */
#define SPARSE_BYTES        (128 << 10)
#define TENSOR_LEAST        (64 << 10)
#define TOUCH_BYTES         (4 << 20) /* between two checks whether the model is still wanted */

/* The allocator of one session. ONNX Runtime calls it through its first member. */
struct allocator {
    OrtAllocator table;
    OrtMemoryInfo *info;
    struct onnx_pace *pace; /* while loading */
    struct onnx_range *range;
    struct onnx_packed *packed; /* that has the range; NULL: the pool has it */
    _Atomic int is_loading;     /* allocates from the range */
    _Atomic uint64_t escaped;   /* bytes from the heap while loading */
};

struct onnx_parameters {
    struct onnx_backend *backend;
    struct onnx_pace pace;
    char *path;                 /* of the model for the session */
    struct onnx_bytes graph;    /* the model itself; at NULL: it is in `path` */
    struct mr_model_kept *kept; /* where the weights are from; NULL: a file. During model_open */
    int is_alone;               /* the model has one process at a time */
    int weights;
    uint8_t *map;
    uint64_t map_bytes;
    uint64_t kept_bytes; /* of the mapping: read by requests */
    struct onnx_tensors tensors;
    OrtValue **values;
    struct allocator allocator;
};

/* ---- the allocator ---- */

/* Reports the progress. Weights are packed one after the other; packed forms are about as large. */
static void packed_report(const struct allocator *a)
{
    const struct onnx_pace *p = a->pace;
    const uint64_t used = atomic_load_explicit(&a->range->used, memory_order_relaxed);
    const uint64_t left = p->total - p->done;

    onnx_host->load_progress(p->loading, p->step, p->done + (used < left ? used : left), p->total);
}

static void *ORT_API_CALL memory_get(OrtAllocator *table, size_t bytes)
{
    struct allocator *a = (struct allocator *)table;
    void *p = NULL;

    if (bytes == 0) {
        return NULL;
    }
    /* Relaxed: set before and after the session is made; ONNX Runtime synchronises the threads that help to make it. */
    if (atomic_load_explicit(&a->is_loading, memory_order_relaxed)) {
        p = a->packed ? onnx_packed_alloc(a->packed, bytes) : onnx_range_alloc(a->range, bytes);
        packed_report(a);
        if (!p) {
            atomic_fetch_add_explicit(&a->escaped, bytes, memory_order_relaxed);
        }
    }
    return p || bytes > SIZE_MAX - 64 ? p : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void ORT_API_CALL memory_free(OrtAllocator *table, void *p)
{
    struct allocator *a = (struct allocator *)table;

    if (p && !onnx_range_has(a->range, p)) {
        free(p);
    }
}

static const OrtMemoryInfo *ORT_API_CALL memory_info(const OrtAllocator *table)
{
    return ((const struct allocator *)table)->info;
}

/* ---- settings ---- */

/* "pool" or "plain". */
static int way_read(const struct mr_setting *settings, uint32_t count, int *out_is_plain,
                    struct mr_err *err)
{
    const char *way = mr_setting_find(settings, count, "parameter_memory");

    if (way && strcmp(way, "plain") != 0 && strcmp(way, "pool") != 0) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "parameter 'parameter_memory' is '%s', expected pool or plain", way);
    }
    *out_is_plain = way ? strcmp(way, "plain") == 0 : *out_is_plain;
    return MR_OK;
}

struct onnx_parameters_host *onnx_parameters_host_new(const struct mr_setting *settings,
                                                      uint32_t count, struct mr_err *err)
{
    struct onnx_parameters_host *h = calloc(1, sizeof *h);

    if (!h) {
        mr_backend_fail(err, MR_E_NOMEM, "out of memory");
        return NULL;
    }
    onnx_pool_init(&h->pool);
    pthread_mutex_init(&h->session_lock, NULL);
    h->min_bytes = 8 << 20;
    h->bytes_per_second = INT64_C(2) << 30;
    h->yield_s = 60;
    if (way_read(settings, count, &h->is_plain, err) < 0 ||
        mr_setting_i64(settings, count, "parameter_pool_min_bytes", 0, INT64_MAX, &h->min_bytes,
                       err) < 0 ||
        mr_setting_i64(settings, count, "load_bytes_per_second", 0, INT64_MAX, &h->bytes_per_second,
                       err) < 0 ||
        mr_setting_i64(settings, count, "load_yield_seconds", 0, 86400, &h->yield_s, err) < 0 ||
        onnx_cache_init(&h->cache, settings, count, err) < 0) {
        onnx_parameters_host_free(h);
        return NULL;
    }
    return h;
}

void onnx_parameters_host_free(struct onnx_parameters_host *h)
{
    onnx_cache_fini(&h->cache);
    onnx_pool_fini(&h->pool);
    pthread_mutex_destroy(&h->session_lock);
    free(h);
}

/* ---- a model's weights ---- */

static void report(const struct onnx_model *m, int64_t version, int level, const char *what)
{
    char line[700];

    snprintf(line, sizeof line, "model=%s version=%lld %s", m->name, (long long)version, what);
    onnx_host->log(onnx_host, level, line);
}

void onnx_parameters_plain(struct onnx_model *m, const struct mr_model_desc *desc, uint64_t bytes,
                           const struct mr_err *why)
{
    char what[600];

    m->memory = (struct mr_model_memory){.size = sizeof m->memory, .reason = m->memory_reason};
    snprintf(m->memory_reason, sizeof m->memory_reason, "%s", why->msg);
    snprintf(what, sizeof what, "parameters=plain bytes=%llu: %s", (unsigned long long)bytes,
             why->msg);
    /* A failure of the machine is a warning; a small model with little to map is not. */
    const int is_large = bytes >= (uint64_t)m->backend->parameters->min_bytes;
    report(m, desc->version, why->status != MR_E_UNSUPPORTED ? 1 : is_large ? 2 : 3, what);
}

static void apart_report(struct onnx_model *m, const struct onnx_parameters *p, int64_t version)
{
    char what[200];

    m->memory_reason[0] = '\0';
    m->memory = (struct mr_model_memory){.size = sizeof m->memory,
                                         .is_apart = 1,
                                         .mapped_bytes = p->tensors.bytes,
                                         .kept_bytes = p->kept_bytes,
                                         .packed_bytes = p->allocator.range->used,
                                         .heap_bytes = p->allocator.escaped,
                                         .resident_bytes = p->kept_bytes +
                                                           onnx_range_resident(p->allocator.range),
                                         .reason = m->memory_reason};
    snprintf(what, sizeof what,
             "parameters=pool mapped_bytes=%llu kept_bytes=%llu packed_bytes=%llu heap_bytes=%llu",
             (unsigned long long)m->memory.mapped_bytes, (unsigned long long)m->memory.kept_bytes,
             (unsigned long long)m->memory.packed_bytes, (unsigned long long)m->memory.heap_bytes);
    report(m, version, 2, what);
}

static int bytes_fail(struct mr_err *err, uint64_t have, uint64_t of)
{
    return mr_backend_fail(err, MR_E_UNSUPPORTED,
                           "%llu of %llu bytes are in large tensors of numbers in the main graph",
                           (unsigned long long)have, (unsigned long long)of);
}

/* Removes tensors that are not in the file, or not aligned for use in place. */
static void tensors_choose(struct onnx_tensors *t, uint64_t file_bytes)
{
    size_t kept = 0;

    t->bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct onnx_tensor *it = &t->at[i];
        if (it->offset % DATA_ALIGN != 0 || it->bytes > file_bytes ||
            it->offset > file_bytes - it->bytes) {
            free(it->name);
            continue;
        }
        t->bytes += it->bytes;
        t->at[kept++] = *it;
    }
    t->count = kept;
}

/* Maps p->weights and selects its aligned tensors. */
static int weights_map(struct onnx_parameters *p, struct mr_err *err)
{
    struct stat st;

    if (fstat(p->weights, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        return mr_backend_fail(err, MR_E_IO, "cannot read the file of the weights");
    }
    p->map_bytes = (uint64_t)st.st_size;
    p->map = mmap(NULL, p->map_bytes, PROT_READ, MAP_PRIVATE, p->weights, 0);
    if (p->map == MAP_FAILED) {
        p->map = NULL;
        return mr_backend_fail(err, MR_E_NOMEM, "cannot map the file of the weights: %s",
                               strerror(errno));
    }
    tensors_choose(&p->tensors, p->map_bytes);
    return MR_OK;
}

/* Smaller tensors stay in the model. */
static uint64_t tensor_least(const struct onnx_parameters *p)
{
    const int64_t least = p->backend->parameters->min_bytes;

    return least < TENSOR_LEAST ? (uint64_t)least : TENSOR_LEAST;
}

/* Lists the tensors that p->path keeps in another file. */
static int external_list(struct onnx_parameters *p, struct mr_err *err)
{
    struct stat st;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    int ok = fd >= 0 && fstat(fd, &st) == 0 &&
             onnx_tensors_list(fd, (uint64_t)st.st_size, 1, tensor_least(p), &p->tensors);

    if (fd >= 0) {
        close(fd);
    }
    return ok ? MR_OK : mr_backend_fail(err, MR_E_UNSUPPORTED, "the tensors cannot be listed");
}

/* The file that `path` names as that of its tensors. */
static int location_open(const char *path, const char *location)
{
    char weights[PATH_MAX];
    const char *slash = strrchr(path, '/');

    snprintf(weights, sizeof weights, "%.*s%s", slash ? (int)(slash - path) + 1 : 0, path,
             location);
    return open(weights, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* Weights in a file next to the model. external.c has checked its path. */
static int external_find(struct onnx_parameters *p, struct mr_err *err)
{
    const uint64_t least = (uint64_t)p->backend->parameters->min_bytes;
    int rc = external_list(p, err);

    if (rc < 0 || p->tensors.count == 0 || p->tensors.bytes < least) {
        return rc < 0 ? rc : bytes_fail(err, p->tensors.bytes, p->tensors.bytes);
    }
    p->weights = location_open(p->path, p->tensors.location);
    if ((rc = weights_map(p, err)) < 0) {
        return rc;
    }
    if (p->tensors.count == 0 || p->tensors.bytes < least) {
        return bytes_fail(err, p->tensors.bytes, p->map_bytes);
    }
    onnx_pace_plan(&p->pace, "read", p->map_bytes + p->tensors.bytes);
    return onnx_pace_read(&p->pace, p->weights, p->map_bytes, err);
}

/* Weights in the model file: a cache entry has them in a file of their own. */
static int inside_find(struct onnx_parameters *p, uint64_t file_bytes, struct mr_err *err)
{
    char path[PATH_MAX];
    struct onnx_tensors inside;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    int rc;

    if (fd < 0 || !onnx_tensors_list(fd, file_bytes, 0, tensor_least(p), &inside)) {
        rc = mr_backend_fail(err, MR_E_UNSUPPORTED, "the tensors cannot be listed");
        goto out;
    }
    rc = inside.count == 0 || inside.bytes < (uint64_t)p->backend->parameters->min_bytes
             ? bytes_fail(err, inside.bytes, file_bytes)
             : onnx_cache_get(&p->backend->parameters->cache, fd, file_bytes, &inside, &p->pace,
                              path, sizeof path, &p->weights, err);
    onnx_tensors_free(&inside);
    if (rc == MR_OK) {
        free(p->path);
        p->path = strdup(path);
        rc = p->path ? external_list(p, err) : mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    rc = rc == MR_OK ? weights_map(p, err) : rc;
out:
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* Makes what the host is to keep. All that lies in other files must be in one of them. */
static int kept_make(struct onnx_parameters *p, uint64_t file_bytes, uint32_t external,
                     struct mr_model_kept *kept, struct mr_err *err)
{
    struct onnx_tensors t = {0};
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    int weights = fd;
    int rc;

    if (fd < 0 ||
        !onnx_tensors_list(fd, file_bytes, external > 0, external ? 0 : tensor_least(p), &t)) {
        rc = mr_backend_fail(err, MR_E_UNSUPPORTED, "the tensors cannot be listed");
    } else if (t.count == 0 || t.bytes < (uint64_t)p->backend->parameters->min_bytes) {
        rc = bytes_fail(err, t.bytes, file_bytes);
    } else if (external && t.count != external) {
        rc = mr_backend_fail(err, MR_E_UNSUPPORTED, "not all tensors in other files can be mapped");
    } else if (external && (weights = location_open(p->path, t.location)) < 0) {
        rc = mr_backend_fail(err, MR_E_IO, "cannot read the file of the weights");
    } else {
        rc = onnx_kept_make(fd, file_bytes, weights, &t, &p->pace, kept, err);
    }
    onnx_tensors_free(&t);
    if (weights >= 0 && weights != fd) {
        close(weights);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

/* Weights in memory that the host keeps. */
static int kept_find(struct onnx_parameters *p, uint64_t file_bytes, uint32_t external,
                     struct mr_model_kept *kept, struct mr_err *err)
{
    int rc = kept->count > 0 ? MR_OK : kept_make(p, file_bytes, external, kept, err);

    if (rc < 0 || (rc = onnx_kept_open(kept, &p->graph, &p->tensors, &p->weights, err)) < 0) {
        return rc;
    }
    rc = weights_map(p, err);
    close(p->weights); /* the mapping is enough */
    p->weights = -1;
    return rc;
}

uint64_t onnx_parameters_shared(const struct onnx_parameters *p)
{
    return (p->kept ? p->kept_bytes : 0) +
           (p->allocator.packed ? onnx_packed_shared(p->allocator.packed) : 0);
}

static int64_t number(const struct mr_model_desc *desc, const char *key)
{
    struct mr_err ignored;
    int64_t n = 0;

    return mr_setting_i64(desc->settings, desc->setting_count, key, 0, INT64_MAX, &n, &ignored) < 0
               ? 0
               : n;
}

/* Without a number of instances the host chooses it. */
static int is_alone(const struct mr_model_desc *desc)
{
    return number(desc, "instance_group.count") == 1 && number(desc, "worker_standby") == 0;
}

int onnx_parameters_find(struct onnx_model *m, const struct mr_model_desc *desc, const char *path,
                         uint64_t file_bytes, uint32_t external, struct onnx_parameters **out,
                         struct mr_err *err)
{
    struct onnx_parameters_host *h = m->backend->parameters;
    struct mr_model_kept *kept = onnx_kept(desc);
    struct mr_err why = {0};
    int is_plain = h->is_plain;
    int rc = way_read(desc->settings, desc->setting_count, &is_plain, err);

    *out = NULL;
    if (rc < 0 || is_plain ||
        (!external && file_bytes < (uint64_t)h->min_bytes && !(kept && kept->count > 0))) {
        return rc;
    }
    struct onnx_parameters *p = calloc(1, sizeof *p);
    if (!p || !(p->path = strdup(path))) {
        free(p);
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    p->backend = m->backend;
    p->pace.loading = onnx_loading(desc);
    p->pace.bytes_per_second = onnx_in_background(desc) ? h->bytes_per_second : 0;
    p->weights = -1;
    p->kept = kept;
    p->is_alone = is_alone(desc);
    rc = !m->backend->has_read_only_memory
             ? mr_backend_fail(&why, MR_E_UNSUPPORTED, "it takes ONNX Runtime 1.23 or newer")
         : kept     ? kept_find(p, file_bytes, external, kept, &why)
         : external ? external_find(p, &why)
                    : inside_find(p, file_bytes, &why);
    if (rc == MR_E_CANCELLED) {
        *err = why;
        onnx_parameters_free(&p);
        return rc;
    }
    if (rc < 0) {
        onnx_parameters_plain(m, desc, file_bytes > p->map_bytes ? file_bytes : p->map_bytes, &why);
        onnx_parameters_free(&p);
    }
    *out = p;
    return MR_OK;
}

/* ---- the session ---- */

/* A tensor over the mapping for each of the weights. */
static int values_make(struct onnx_parameters *p, OrtSessionOptions *options, struct mr_err *err)
{
    int rc;

    p->values = calloc(p->tensors.count, sizeof *p->values);
    if (!p->values) {
        return mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    }
    for (size_t i = 0; i < p->tensors.count; i++) {
        const struct onnx_tensor *t = &p->tensors.at[i];
        ONNX_TRY(CreateTensorWithDataAsOrtValue(p->backend->cpu, p->map + t->offset, t->bytes,
                                                t->dims, t->rank, t->type, &p->values[i]));
        ONNX_TRY(AddInitializer(options, t->name, p->values[i]));
    }
    rc = MR_OK;
out:
    return rc;
}

/* Packed forms may be larger than the weights; unused addresses cost nothing. */
static int range_make(struct onnx_parameters *p, const char *owner, struct mr_err *err)
{
    const uint64_t bytes = 2 * p->tensors.bytes + ((uint64_t)16 << 20);
    struct allocator *a = &p->allocator;

    /* Comparing packed weights takes about what the memory for them takes: for one process it gains nothing. */
    if (p->kept && !p->is_alone) {
        a->packed = onnx_packed_new(onnx_kept_packed(p->kept), bytes, err);
        a->range = a->packed ? onnx_packed_range(a->packed) : NULL;
        return a->packed ? MR_OK : err->status;
    }
    a->range = onnx_pool_take(&p->backend->parameters->pool, owner, bytes);
    return a->range ? MR_OK
                    : mr_backend_fail(err, MR_E_EXHAUSTED, "no addresses for packed weights");
}

static int allocator_make(struct onnx_parameters *p, const char *owner, struct mr_err *err)
{
    struct allocator *a = &p->allocator;
    int rc;

    if ((rc = range_make(p, owner, err)) < 0) {
        return rc;
    }
    a->table = (OrtAllocator){.version = ONNX_API_VERSION,
                              .Alloc = memory_get,
                              .Free = memory_free,
                              .Info = memory_info,
                              .Reserve = memory_get};
    ONNX_TRY(CreateMemoryInfo("Cpu", (enum OrtAllocatorType)READ_ONLY_ALLOCATOR, 0,
                              OrtMemTypeDefault, &a->info));
out:
    return rc;
}

/* True if the page is in this process's page tables. */
static int is_present(int pagemap, const uint8_t *at)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t entry = 0;

    return pread(pagemap, &entry, sizeof entry, (off_t)((uintptr_t)at / page * sizeof entry)) ==
               sizeof entry &&
           entry >> 63;
}

static int pages_touch(struct onnx_parameters *p, const volatile uint8_t *at, uint64_t bytes,
                       struct mr_err *err)
{
    for (uint64_t i = 0; i < bytes; i += 4096) {
        (void)at[i];
        if (i % TOUCH_BYTES == 0 && !onnx_pace_step(&p->pace, 0, 0)) {
            return mr_backend_fail(err, MR_E_CANCELLED, "the model is not wanted any more");
        }
    }
    return MR_OK;
}

/* Releases the pages of weights that were read while the session was made, and reads those of the others. For small
 * tensors this is unknown, as the kernel also maps the pages around an accessed one. */
static int pages_settle(struct onnx_parameters *p, struct mr_err *err)
{
    int rc = MR_OK;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    onnx_pace_plan(&p->pace, "settle", 0);
    for (size_t i = 0; i < p->tensors.count && rc == MR_OK; i++) {
        const struct onnx_tensor *t = &p->tensors.at[i];
        uint8_t *at = p->map + t->offset;
        if (t->bytes >= SPARSE_BYTES && pagemap >= 0 && is_present(pagemap, at + t->bytes / 2)) {
            uint8_t *first = at + (page - (uintptr_t)at % page) % page;
            uint64_t bytes = (t->bytes - (uint64_t)(first - at)) / page * page;
            madvise(first, bytes, MADV_DONTNEED);
        } else {
            rc = pages_touch(p, at, t->bytes, err);
            p->kept_bytes += t->bytes;
        }
    }
    if (pagemap >= 0) {
        close(pagemap);
    }
    return rc;
}

/* Ends the packing in memory that the host keeps, and brings it into the page tables. */
static int packed_settle(struct onnx_parameters *p, struct mr_err *err)
{
    const int made = onnx_packed_finish(p->allocator.packed);

    if (made < 0) {
        return MR_OK;
    }
    onnx_kept_packed_add(p->kept, made);
    return pages_touch(p, p->allocator.range->base, p->allocator.range->used, err);
}

static int session_create(struct onnx_parameters *p, struct onnx_model *m,
                          OrtSessionOptions *options, struct mr_err *err)
{
    struct onnx_backend *b = p->backend;
    struct allocator *a = &p->allocator;

    onnx_pace_plan(&p->pace, "pack", p->tensors.bytes);
    a->pace = &p->pace;
    pthread_mutex_lock(&b->parameters->session_lock);
    int rc = onnx_check(onnx_api->RegisterAllocator(b->env, &a->table), err);
    if (rc == MR_OK) {
        atomic_store_explicit(&a->is_loading, 1, memory_order_relaxed);
        const struct onnx_source source = {p->path, p->graph.at, p->graph.len};
        rc = onnx_session_create(b, &source, options, p->pace.loading, &m->session, err);
        atomic_store_explicit(&a->is_loading, 0, memory_order_relaxed);
        OrtStatus *status = onnx_api->UnregisterAllocator(b->env, a->info);
        if (status) {
            onnx_api->ReleaseStatus(status);
        }
    }
    pthread_mutex_unlock(&b->parameters->session_lock);
    onnx_pace_done(&p->pace, p->tensors.bytes);
    return rc;
}

int onnx_parameters_session(struct onnx_parameters *p, struct onnx_model *m,
                            const struct mr_model_desc *desc, OrtSessionOptions *options,
                            struct mr_err *err)
{
    int rc;

    if ((rc = values_make(p, options, err)) < 0 || (rc = allocator_make(p, m->name, err)) < 0) {
        return rc;
    }
    ONNX_TRY(AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
    if (p->kept && (rc = onnx_kept_options(options, err)) < 0) {
        return rc;
    }
    if ((rc = session_create(p, m, options, err)) < 0) {
        return rc;
    }
    rc = pages_settle(p, err);
    if (rc == MR_OK && p->allocator.packed) {
        rc = packed_settle(p, err);
    }
    if (rc == MR_OK) {
        apart_report(m, p, desc->version);
    }
out:
    return rc;
}

void onnx_parameters_free(struct onnx_parameters **parameters)
{
    struct onnx_parameters *p = *parameters;

    if (!p) {
        return;
    }
    for (size_t i = 0; p->values && i < p->tensors.count; i++) {
        if (p->values[i]) {
            onnx_api->ReleaseValue(p->values[i]);
        }
    }
    free(p->values);
    if (p->allocator.info) {
        onnx_api->ReleaseMemoryInfo(p->allocator.info);
    }
    if (p->allocator.packed) {
        onnx_packed_free(&p->allocator.packed);
    } else if (p->allocator.range) {
        onnx_pool_give(&p->backend->parameters->pool, &p->allocator.range);
    }
    if (p->map) {
        /* Unmapping memory without pages is fast. */
        madvise(p->map, p->map_bytes, MADV_DONTNEED);
        munmap(p->map, p->map_bytes);
    }
    if (p->weights >= 0) {
        close(p->weights);
    }
    onnx_tensors_free(&p->tensors);
    free(p->graph.at);
    free(p->path);
    free(p);
    *parameters = NULL;
}
