/* Recording requests of clients, so that later loads of the version can warm up with them.
 *
 * While nothing is recorded a request pays for one load of a pointer. While it is, one request of `every` is copied on
 * its own thread when it has been answered without an error, into blocks of bulk memory, which are counted against
 * the budget. A thread of the recording waits for the last one, for its timeout or for a stop, and writes the
 * file.
 *
 * A version that retires takes its recording along, and nothing is written: its successor may take other
 * inputs. The recorder lives as long as the scheduler, so that every thread that has seen it can finish with it. */
#include "record.h"

#include <stdio.h>

#include "base/log.h"
#include "base/thread.h"

/* Copies of one recording together. */
#define BUDGET_BYTES (UINT64_C(64) << 20)
/* Recordings, and their threads, of all versions. */
#define ACTIVE_MAX 16

static _Atomic int active; /* relaxed: only a count */

struct record {
    struct mr_block *block;
    uint64_t bytes;
};

struct recorder {
    struct mr_sched *sched;
    _Atomic uint64_t seen; /* relaxed: only a count */
    _Atomic uint32_t every;

    pthread_mutex_t mutex; /* guards everything below; held for lists only */
    pthread_cond_t change; /* for the thread */
    pthread_t thread;
    bool has_thread; /* there is one, or one to be joined */
    bool is_starting;
    bool is_stopped;   /* the records so far are requested */
    bool is_abandoned; /* the version ends */
    enum mr_record_state state;
    uint64_t number; /* of the recording: copies of an earlier one may end during it */
    uint32_t requests;
    uint32_t begun;   /* copies that are made or being made */
    uint32_t count;   /* made */
    uint64_t bytes;   /* of these */
    int64_t until_ns; /* end of its time */
    struct record *records;
    struct record_file file; /* the thread's own while there is one */
    char reason[200];
};

const char *mr_record_state_name(enum mr_record_state state)
{
    static const char *const names[MR_RECORD_STATES] = {"none", "recording", "writing", "written",
                                                        "failed"};

    return (unsigned)state < MR_RECORD_STATES ? names[state] : "unknown";
}

/* ---- on the threads of requests ---- */

/* A copy of the request's inputs. */
static int copy_inputs(const struct mr_infer *r, struct record *out, struct mr_err *err)
{
    struct sent {
        mr_str name;
        struct mr_tensor tensor;
    };
    const struct mr_version *v = r->version;
    const struct mr_sched *s = v->sched;
    struct mr_infer_args args = {.model = v->model_name, .input_stride = sizeof(struct sent)};
    struct mr_arena arena;
    int rc;

    mr_arena_init(&arena, 0, 4u << 20);
    struct sent *sent = MR_ARENA_ARRAY(&arena, struct sent, v->input_count + 1);
    for (uint32_t i = 0; sent && i < v->input_count; i++) {
        if (r->inputs[i].dtype != MR_DTYPE_INVALID) {
            sent[args.input_count++] = (struct sent){v->inputs[i].name, r->inputs[i]};
        }
    }
    if (sent) {
        args.input_names = &sent->name;
        args.input_tensors = &sent->tensor;
        rc = s->options.records->write(&args, MR_RECORD_BYTES_MAX, &out->block, &out->bytes, err);
    } else {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory to record a request");
    }
    mr_arena_fini(&arena);
    return rc;
}

/* Nothing more is taken. Holding the mutex. */
static void close_door(struct recorder *rec)
{
    /* relaxed: a thread that sees it reads the state under the mutex */
    atomic_store_explicit(&rec->sched->recording, NULL, memory_order_relaxed);
    pthread_cond_signal(&rec->change);
}

static bool begin_copy(struct recorder *rec, uint64_t *out_number)
{
    pthread_mutex_lock(&rec->mutex);
    bool may = rec->state == MR_RECORD_RECORDING && rec->begun < rec->requests;
    rec->begun += may;
    *out_number = rec->number;
    pthread_mutex_unlock(&rec->mutex);
    return may;
}

/* Takes the copy, or gives up a place when there is none. */
static void end_copy(struct recorder *rec, struct record *copy, uint64_t number)
{
    pthread_mutex_lock(&rec->mutex);
    bool is_recording = rec->state == MR_RECORD_RECORDING && rec->number == number;
    if (is_recording && !copy->block) {
        rec->begun--;
    } else if (is_recording && rec->bytes + copy->bytes > BUDGET_BYTES) {
        rec->is_stopped = true;
        close_door(rec);
    } else if (is_recording) {
        rec->bytes += copy->bytes;
        rec->records[rec->count++] = *copy;
        copy->block = NULL;
        if (rec->count == rec->requests) {
            close_door(rec);
        }
    }
    pthread_mutex_unlock(&rec->mutex);
    mr_block_unref(&copy->block);
}

void record_maybe(struct mr_sched *s, const struct mr_infer *r)
{
    /* acquire: with the release in launch */
    struct recorder *rec = atomic_load_explicit(&s->recording, memory_order_acquire);
    struct record copy = {NULL, 0};
    struct mr_err err = {0};

    if (!rec || r->status < 0) {
        return;
    }
    uint64_t number, n = atomic_fetch_add_explicit(&rec->seen, 1, memory_order_relaxed);
    if (n % atomic_load_explicit(&rec->every, memory_order_relaxed) != 0 ||
        !begin_copy(rec, &number)) {
        return;
    }
    if (copy_inputs(r, &copy, &err) < 0) {
        mr_log(MR_LOG_INFO, "model.record", "model=%s %s", MR_LOG_STR(r->version->model_name),
               err.msg);
    }
    end_copy(rec, &copy, number);
}

/* ---- the recording's thread ---- */

/* Until there is nothing more to wait for; the records are the thread's from then on. */
static void gather(struct recorder *rec)
{
    struct timespec until = {rec->until_ns / MR_NS_PER_S, rec->until_ns % MR_NS_PER_S};

    while (rec->count < rec->requests && !rec->is_stopped && !rec->is_abandoned &&
           mr_now_ns() < rec->until_ns) {
        pthread_cond_timedwait(&rec->change, &rec->mutex, &until);
    }
    rec->state = MR_RECORD_WRITING;
    close_door(rec);
}

static int write_records(struct recorder *rec, struct mr_err *err)
{
    const struct mr_version *v = rec->sched->version;
    int rc = MR_OK;

    if (rec->count == 0) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "no request came");
    }
    for (uint32_t i = 0; i < rec->count && rc == MR_OK; i++) {
        rc = record_file_add(&rec->file, rec->records[i].block->data, rec->records[i].bytes, err);
    }
    /* acquire: nothing in particular; it was set before anything was put in the version's place */
    if (rc == MR_OK && atomic_load_explicit(&v->retiring, memory_order_acquire)) {
        return MR_FAIL(err, MR_E_CANCELLED, "the version is on its way out");
    }
    return rc < 0 ? rc : record_file_publish(&rec->file, err);
}

static void drop_records(struct recorder *rec)
{
    for (uint32_t i = 0; i < rec->count; i++) {
        mr_block_unref(&rec->records[i].block);
    }
    mr_freep(&rec->records);
}

static void report_end(const struct recorder *rec, int rc, const struct mr_err *err)
{
    const struct mr_version *v = rec->sched->version;

    if (rc < 0) {
        mr_log(rc == MR_E_CANCELLED ? MR_LOG_INFO : MR_LOG_WARN, "model.record",
               "model=%s version=%lld nothing recorded: %s", MR_LOG_STR(v->model_name),
               (long long)v->number, err->msg);
    } else {
        mr_log(MR_LOG_INFO, "model.record", "model=%s version=%lld recorded=%u bytes=%llu",
               MR_LOG_STR(v->model_name), (long long)v->number, rec->count,
               (unsigned long long)rec->bytes);
    }
}

static void *record_main(void *arg)
{
    struct recorder *rec = arg;
    struct mr_err err = {0};
    int rc;

    pthread_mutex_lock(&rec->mutex);
    gather(rec);
    bool is_abandoned = rec->is_abandoned;
    pthread_mutex_unlock(&rec->mutex);
    rc = is_abandoned ? MR_FAIL(&err, MR_E_CANCELLED, "the version was unloaded")
                      : write_records(rec, &err);
    report_end(rec, rc, &err);
    record_file_close(&rec->file);
    drop_records(rec);
    atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
    pthread_mutex_lock(&rec->mutex);
    rec->state = rc < 0 ? MR_RECORD_FAILED : MR_RECORD_WRITTEN;
    snprintf(rec->reason, sizeof rec->reason, "%.190s", rc < 0 ? err.msg : "");
    pthread_mutex_unlock(&rec->mutex);
    return NULL;
}

/* ---- start and stop ---- */

/* The scheduler's recorder, made when it is first asked for. Two callers may come at once. */
static struct recorder *recorder_of(struct mr_sched *s)
{
    struct recorder *rec = atomic_load_explicit(&s->recorder, memory_order_acquire), *other = NULL;
    pthread_condattr_t attr;

    if (rec) {
        return rec;
    }
    rec = MR_NEW(struct recorder);
    rec->sched = s;
    pthread_mutex_init(&rec->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&rec->change, &attr);
    pthread_condattr_destroy(&attr);
    /* release: a thread that sees it sees all of it */
    if (atomic_compare_exchange_strong_explicit(&s->recorder, &other, rec, memory_order_release,
                                                memory_order_acquire)) {
        return rec;
    }
    pthread_cond_destroy(&rec->change);
    pthread_mutex_destroy(&rec->mutex);
    mr_free(rec);
    return other;
}

static int check_options(const struct mr_version *v, const struct mr_record_options *o,
                         struct mr_err *err)
{
    if (o->requests < 1 || o->requests > MR_RECORDS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "'requests' is %u, allowed are 1 to %d", o->requests,
                       MR_RECORDS_MAX);
    }
    if (o->every < 1) {
        return MR_FAIL(err, MR_E_INVALID, "'every' is 0, allowed are 1 and more");
    }
    if (o->time_ns < MR_NS_PER_S) {
        return MR_FAIL(err, MR_E_INVALID, "'seconds' is 0, allowed are 1 and more");
    }
    if (!mr_version_is_stored(v)) {
        return MR_FAIL(err, MR_E_UNAVAILABLE,
                       "the version's files came with a load request or in an archive; there is no "
                       "folder for the requests");
    }
    return MR_OK;
}

/* Whether this caller may go on; the others are kept out by is_starting. */
static int claim(struct recorder *rec, struct mr_err *err)
{
    int rc = MR_OK;

    pthread_mutex_lock(&rec->mutex);
    if (rec->is_starting || rec->state == MR_RECORD_RECORDING || rec->state == MR_RECORD_WRITING) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE, "requests for this version are being recorded already");
    } else {
        rec->is_starting = true;
    }
    pthread_mutex_unlock(&rec->mutex);
    return rc;
}

static int launch(struct recorder *rec, const struct mr_record_options *o, struct mr_err *err)
{
    int rc;

    if (rec->has_thread) {
        pthread_join(rec->thread, NULL); /* of an earlier recording, which is over */
    }
    rec->has_thread = false;
    rc = record_file_open(&rec->file, rec->sched->version, err);
    if (rc < 0) {
        return rc;
    }
    pthread_mutex_lock(&rec->mutex);
    rec->records = MR_NEW_ARRAY(struct record, o->requests);
    rec->number++;
    rec->requests = o->requests;
    rec->begun = rec->count = 0;
    rec->bytes = 0;
    rec->is_stopped = false;
    rec->reason[0] = '\0';
    rec->until_ns = mr_ns_after(mr_now_ns(), o->time_ns);
    atomic_store_explicit(&rec->seen, 0, memory_order_relaxed);
    atomic_store_explicit(&rec->every, o->every, memory_order_relaxed);
    rec->state = MR_RECORD_RECORDING;
    rc = mr_thread_start(&rec->thread, "mr-record", record_main, rec, err);
    rec->has_thread = rc == MR_OK;
    if (rc < 0) {
        rec->state = MR_RECORD_NONE;
        mr_freep(&rec->records);
        record_file_close(&rec->file);
    } else {
        /* release: with the acquire in record_maybe */
        atomic_store_explicit(&rec->sched->recording, rec, memory_order_release);
    }
    pthread_mutex_unlock(&rec->mutex);
    return rc;
}

int mr_sched_record_start(struct mr_version *v, const struct mr_record_options *o,
                          struct mr_err *err)
{
    const struct mr_sched *s = v->sched;
    struct recorder *rec;
    int rc;

    if (!s->options.records) {
        return MR_FAIL(err, MR_E_UNSUPPORTED, "requests cannot be recorded here");
    }
    MR_TRY(check_options(v, o, err));
    rec = recorder_of(v->sched);
    MR_TRY(claim(rec, err));
    if (atomic_fetch_add_explicit(&active, 1, memory_order_relaxed) >= ACTIVE_MAX) {
        rc = MR_FAIL(err, MR_E_UNAVAILABLE, "%d versions are being recorded already", ACTIVE_MAX);
    } else {
        rc = launch(rec, o, err);
    }
    if (rc < 0) {
        atomic_fetch_sub_explicit(&active, 1, memory_order_relaxed);
    }
    pthread_mutex_lock(&rec->mutex);
    rec->is_starting = false;
    pthread_mutex_unlock(&rec->mutex);
out:
    return rc;
}

int mr_sched_record_stop(struct mr_version *v, struct mr_err *err)
{
    struct mr_sched *s = v->sched;
    struct recorder *rec = atomic_load_explicit(&s->recorder, memory_order_acquire);
    bool is_recording = false;

    if (rec) {
        pthread_mutex_lock(&rec->mutex);
        is_recording = rec->state == MR_RECORD_RECORDING;
        rec->is_stopped |= is_recording;
        if (is_recording) {
            close_door(rec);
        }
        pthread_mutex_unlock(&rec->mutex);
    }
    return is_recording ? MR_OK : MR_FAIL(err, MR_E_UNAVAILABLE, "nothing is being recorded");
}

void mr_sched_record_view(const struct mr_version *v, struct mr_record_view *out)
{
    const struct mr_sched *s = v->sched;
    struct recorder *rec = atomic_load_explicit(&s->recorder, memory_order_acquire);

    *out = (struct mr_record_view){.state = MR_RECORD_NONE};
    if (!rec) {
        return;
    }
    pthread_mutex_lock(&rec->mutex);
    out->state = rec->state;
    out->requests = rec->requests;
    out->every = atomic_load_explicit(&rec->every, memory_order_relaxed);
    out->recorded = rec->count;
    out->seen = atomic_load_explicit(&rec->seen, memory_order_relaxed);
    out->bytes = rec->bytes;
    if (rec->state == MR_RECORD_RECORDING) {
        out->left_ns = MR_MAX(0, rec->until_ns - mr_now_ns());
    }
    memcpy(out->reason, rec->reason, sizeof out->reason);
    pthread_mutex_unlock(&rec->mutex);
}

void record_close(struct mr_sched *s)
{
    struct recorder *rec = atomic_load_explicit(&s->recorder, memory_order_acquire);

    if (!rec) {
        return;
    }
    pthread_mutex_lock(&rec->mutex);
    rec->is_abandoned = true;
    pthread_cond_signal(&rec->change);
    pthread_mutex_unlock(&rec->mutex);
    if (rec->has_thread) {
        pthread_join(rec->thread, NULL);
    }
    pthread_cond_destroy(&rec->change);
    pthread_mutex_destroy(&rec->mutex);
    mr_free(rec);
}
