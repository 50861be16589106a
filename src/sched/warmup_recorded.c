/* Recorded requests: the file MR_WARMUP_REQUESTS in a version's folder, ModelInferRequest messages, each preceded by
 * its length as a varint (as protobuf libraries write and read delimited messages).
 *
 * All records are read and checked against the model on the first instance, and run on every instance until the
 * time is over. A damaged file, or a record that does not fit the model or fails, fails the load. The file may come
 * from any program, so everything is bounded; a record's names of model and version are ignored. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "codec/pb.h"
#include "warmup.h"

#define VARINT_MAX 10

static int cannot_read(const struct warmup_records *f, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_IO, "cannot be read: %s", f->error ? strerror(f->error) : "it ends");
}

/* Reads exactly this many bytes at the current position. */
static int read_at(struct warmup_records *f, void *to, uint64_t bytes, struct mr_err *err)
{
    uint8_t *at = to;

    for (uint64_t got = 0; got < bytes;) {
        ssize_t n = pread(f->fd, at + got, bytes - got, (off_t)(f->at + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            f->error = n < 0 ? errno : 0;
            return cannot_read(f, err);
        }
        got += (uint64_t)n;
    }
    return MR_OK;
}

int warmup_records_open(struct warmup_records *f, const char *path, struct mr_err *err)
{
    struct stat st;
    int rc = MR_OK;

    *f = (struct warmup_records){.fd = -1};
    /* O_NONBLOCK: a FIFO in the place of a file must not stop a loader */
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0) {
        return MR_FAIL(err, MR_E_IO, "cannot be opened: %s", strerror(errno));
    }
    if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        rc = MR_FAIL(err, MR_E_INVALID, "is not a regular file");
    } else if ((uint64_t)st.st_size > WARMUP_FILE_BYTES_MAX) {
        rc = MR_FAIL(err, MR_E_TOO_LARGE, "is larger than 256 MiB");
    } else {
        f->size = (uint64_t)st.st_size;
    }
    if (rc < 0) {
        warmup_records_close(f);
    }
    return rc;
}

void warmup_records_close(struct warmup_records *f)
{
    if (f->fd >= 0) {
        close(f->fd);
    }
    f->fd = -1;
}

int warmup_records_next(struct warmup_records *f, struct mr_block **out, uint64_t *out_bytes,
                        struct mr_err *err)
{
    uint8_t head[VARINT_MAX];
    uint64_t bytes, left = f->size - f->at;
    int rc;

    *out = NULL;
    *out_bytes = 0;
    if (left == 0) {
        return MR_OK;
    }
    if (f->count >= MR_RECORDS_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "has more than %d records", MR_RECORDS_MAX);
    }
    f->count++;
    mr_bytes rest = {head, MR_MIN(left, sizeof head)};
    MR_TRY(read_at(f, head, rest.len, err));
    if (!mr_pb_varint(&rest, &bytes)) {
        return MR_FAIL(err, MR_E_INVALID, "has no length");
    }
    f->at += (uint64_t)(rest.ptr - head);
    left = f->size - f->at;
    if (bytes > left) {
        return MR_FAIL(err, MR_E_INVALID, "should have %llu bytes, %llu are left in the file",
                       (unsigned long long)bytes, (unsigned long long)left);
    }
    if (bytes > MR_RECORD_BYTES_MAX) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "has more than 64 MiB");
    }
    struct mr_block *b = mr_block_new(MR_MAX(bytes, 1));
    if (!b) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "has no room in memory (--memory-budget)");
    }
    rc = read_at(f, b->data, bytes, err);
    if (rc < 0) {
        mr_block_unref(&b);
        return rc;
    }
    f->at += bytes;
    *out = b;
    *out_bytes = bytes;
out:
    return rc;
}

/* ---- one record ---- */

static int bind_record(struct warmup_sample *sm, const struct mr_record_format *format,
                       mr_bytes message, struct mr_err *err)
{
    struct mr_infer *r = &sm->infer;
    struct mr_infer_args args;
    int rc;

    r->arena = &sm->arena;
    MR_TRY(format->read(message, &sm->arena, &args, err));
    MR_TRY(mr_infer_validate(r, &args, err));
    r->arena = &sm->scratch;
out:
    return rc;
}

static int run_record(struct warmup *w, void *instance, mr_bytes message, int64_t until_ns,
                      bool *out_ran, struct mr_err *err)
{
    struct warmup_sample sm;
    int rc;

    warmup_sample_init(&sm, w->s->version);
    MR_TRY(bind_record(&sm, w->s->options.records, message, err));
    *out_ran = mr_now_ns() < until_ns;
    if (*out_ran) {
        MR_TRY(warmup_sample_run(&sm, w->s, instance, err));
    }
out:
    warmup_sample_fini(&sm);
    return rc;
}

/* ---- all of them ---- */

static int run_all(struct warmup *w, void *instance, struct warmup_records *f, int64_t until_ns,
                   struct mr_err *err)
{
    struct mr_block *record;
    unsigned ran = 0;
    uint64_t bytes;
    int rc;

    for (;;) {
        bool did_run = false;
        MR_TRY(warmup_records_next(f, &record, &bytes, err));
        if (!record) {
            break;
        }
        rc = run_record(w, instance, (mr_bytes){record->data, bytes}, until_ns, &did_run, err);
        mr_block_unref(&record);
        if (rc < 0) {
            goto out;
        }
        if (mr_version_is_unwanted(w->s->version)) {
            rc = MR_FAIL(err, MR_E_CANCELLED, "the version is not wanted any more");
            goto out;
        }
        ran += did_run;
        if (!did_run && w->records > 0) {
            break; /* the others were checked */
        }
    }
    w->records = MR_MAX(w->records, f->count);
    mr_log(ran < w->records ? MR_LOG_INFO : MR_LOG_DEBUG, "model.warmup",
           "model=%s version=%lld records=%u ran=%u", MR_LOG_STR(w->s->version->model_name),
           (long long)w->s->version->number, w->records, ran);
out:
    return rc;
}

int warmup_recorded_run(struct warmup *w, void *instance, uint32_t instances, struct mr_err *err)
{
    const struct mr_version *v = w->s->version;
    int64_t begin = mr_now_ns();
    struct warmup_records f = {.fd = -1};
    char name[64], *path = NULL;
    int rc;

    snprintf(name, sizeof name, "%lld/" MR_WARMUP_REQUESTS, (long long)v->number);
    rc = mr_version_file(v, mr_str_c(name), &path, err);
    if (rc == MR_E_NOT_FOUND) {
        return MR_OK; /* taken away since the folder was read */
    }
    if (rc == MR_OK) {
        rc = warmup_records_open(&f, path, err);
    }
    if (rc == MR_OK) {
        rc = run_all(w, instance, &f,
                     mr_ns_after(begin, w->recorded_left_ns / MR_MAX(1u, instances)), err);
    }
    unsigned count = f.count;
    warmup_records_close(&f);
    mr_free(path);
    w->recorded_left_ns = MR_MAX(0, w->recorded_left_ns - (mr_now_ns() - begin));
    if (rc < 0 && count > 0) {
        return MR_WRAP(err, rc, "%s, record %u", name, count);
    }
    return rc < 0 ? MR_WRAP(err, rc, "%s", name) : rc;
}
