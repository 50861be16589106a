/* Results as objects of S3, in the order of these steps:
 *
 *   1. rows go to a file without a name, and from there in pieces to an upload, which is not visible
 *   2. the file is complete, and so is the object, under a name that only this job uses and that was free (If-None-Match)
 *   3. the manifest has its line, with the object's name and size
 *
 * A kill leaves an upload or an object that no line names: the next start removes it. The other way round, a
 * line whose object is missing or of another size is damage, and reported.
 *
 * The place is this job's alone: _job.json there has the job's id, and who comes second is refused, as is who finds
 * anything else there.
 *
 * At the end manifest.json, with the objects that count in the order of the input, and _SUCCESS are put beside them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "batch/common/extent.h"
#include "batch/common/storage.h"
#include "batch/files/file.h"
#include "batch/protocols/oip/answer.h"
#include "codec/json.h"
#include "committer.h"
#include "disk.h"
#include "results.h"
#include "sink.h"

#define CLAIM       "_job.json"
#define SUCCESS     "_SUCCESS"
#define MANIFEST    "manifest.json"
#define ID_BYTES    16 /* of the id, in names */
#define CLAIM_MOST  4096
#define PREFIX_MOST 800
#define LAST_NS     (30 * MR_NS_PER_S)
#define LARGEST     (UINT64_C(1) << 42) /* an object may have 5 TiB */

struct objects {
    struct mr_s3 *s3; /* NULL: the job is finished, and so far there is nothing to add */
    mr_str bucket;    /* of the options */
    char *prefix;     /* with its slash */
    const char *id;   /* the manifest's */
    /* a stop ends waiting; not while rows are committed. Relaxed: it orders nothing */
    _Atomic bool may_stop;
    const struct job_state *state;
};

/* The part that is open. */
struct object_part {
    int fd;
    struct mr_s3_upload *upload;
    char *key;
};

/* After a stop, what is settled is still brought there, but not for as long as an outage may last. */
static bool is_stopped(void *ctx)
{
    const struct objects *o = ctx;

    if (atomic_load_explicit(o->state->stops, memory_order_relaxed) == 0) {
        return false;
    }
    if (o->s3) { /* else it is being made, and asks for credentials */
        mr_s3_set_patience(o->s3, LAST_NS);
    }
    return atomic_load_explicit(&o->may_stop, memory_order_relaxed);
}

static struct mr_s3_place place(const struct objects *o, mr_str key)
{
    return (struct mr_s3_place){o->bucket, key};
}

/* prefix + name, the caller's. */
static char *key_of(const struct objects *o, const char *name)
{
    const size_t room = strlen(o->prefix) + strlen(name) + 1;
    char *key = mr_alloc(room);

    snprintf(key, room, "%s%s", o->prefix, name);
    return key;
}

/* Part "p-000001-000002.parquet" is the object "p-000001-000002-<id>.parquet". */
static char *key_of_part(const struct objects *o, const char *part)
{
    const size_t stem = strcspn(part, ".");
    char name[MR_MANIFEST_NAME_BYTES + ID_BYTES + 2];

    snprintf(name, sizeof name, "%.*s-%.*s%s", (int)stem, part, ID_BYTES, o->id, part + stem);
    return key_of(o, name);
}

/* Of keys that begin with the prefix: below it there may be places of other jobs. */
static bool key_is_ours(const void *ctx, mr_str key)
{
    const struct objects *o = ctx;
    const mr_str name = mr_str_sub(key, strlen(o->prefix), key.len);
    const ptrdiff_t at = mr_str_find_str(name, mr_str_n(o->id, ID_BYTES));

    return at > 1 && name.ptr[at - 1] == '-' && mr_str_find(name, '/') < 0;
}

/* ---- what is there ---- */

/* A look at the place. */
struct survey {
    const struct objects *o;
    struct mr_map wanted; /* keys that the manifest names -> their bytes + 1 */
    MR_VEC(char *) orphans;
    bool has_claim;
    bool has_success;
    char other[MR_S3_KEY_MOST + 1]; /* that is not the job's; "": nothing */
    char claim_etag[MR_S3_ETAG_ROOM];
    uint64_t claim_bytes;
};

static void survey_fini(struct survey *s)
{
    for (size_t i = 0; i < s->orphans.len; i++) {
        mr_free(s->orphans.at[i]);
    }
    MR_VEC_FINI(&s->orphans);
    mr_map_fini(&s->wanted);
}

static int survey_object(void *ctx, const struct mr_s3_object *found, struct mr_err *err)
{
    struct survey *s = ctx;
    const mr_str name = mr_str_sub(found->key, strlen(s->o->prefix), found->key.len);
    const uintptr_t bytes = (uintptr_t)mr_map_remove(&s->wanted, found->key);

    if (bytes && bytes - 1 != found->bytes) {
        return MR_FAIL(err, MR_E_IO, "s3://%.*s/%.*s has %llu bytes, and %llu were committed",
                       MR_STR_ARG(s->o->bucket), MR_STR_ARG(found->key),
                       (unsigned long long)found->bytes, (unsigned long long)(bytes - 1));
    }
    if (bytes) {
        return MR_OK;
    }
    s->has_success |= mr_str_eq_c(name, SUCCESS);
    if (mr_str_eq_c(name, CLAIM)) {
        s->has_claim = true;
        s->claim_bytes = found->bytes;
        memcpy(s->claim_etag, found->etag, sizeof s->claim_etag);
    } else if (key_is_ours(s->o, found->key)) {
        MR_VEC_PUSH(&s->orphans, mr_strndup(found->key.ptr, found->key.len));
    } else if (!s->other[0]) {
        snprintf(s->other, sizeof s->other, "%.*s", MR_STR_ARG(found->key));
    }
    return MR_OK;
}

static int survey_make(const struct results *rs, struct survey *s, struct mr_err *err)
{
    for (size_t i = 0; i < mr_manifest_item_count(rs->manifest); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(rs->manifest, i);
        char *key = item->part ? key_of_part(s->o, item->part) : NULL;
        if (key) {
            mr_map_put(&s->wanted, mr_str_c(key), (void *)(item->part_bytes + 1)); /* NOLINT */
        }
        mr_free(key);
    }
    return mr_s3_list(s->o->s3, s->o->bucket, mr_str_c(s->o->prefix), survey_object, s, err);
}

/* All that was committed is there, and nothing that was not. */
static int survey_settle(struct survey *s, struct mr_err *err)
{
    size_t at = 0;
    const struct mr_map_slot *missing = mr_map_next(&s->wanted, &at);
    int rc = MR_OK;

    if (missing) {
        return MR_FAIL(err, MR_E_NOT_FOUND, "s3://%.*s/%.*s was committed and is missing",
                       MR_STR_ARG(s->o->bucket), MR_STR_ARG(missing->key));
    }
    for (size_t i = 0; i < s->orphans.len && rc == MR_OK; i++) {
        rc = mr_s3_delete(s->o->s3, place(s->o, mr_str_c(s->orphans.at[i])), err);
    }
    return rc;
}

/* ---- whose the place is ---- */

static int claim_refuse(const struct objects *o, const char *why, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_EXISTS,
                   "s3://%.*s/%s %s: the results of a job need a place of their own",
                   MR_STR_ARG(o->bucket), o->prefix, why);
}

static int claim_make(const struct survey *s, struct mr_err *err)
{
    const struct objects *o = s->o;
    char text[MR_MANIFEST_ID_BYTES + 16];
    char why[300];
    char *key = key_of(o, CLAIM);

    if (s->other[0]) {
        snprintf(why, sizeof why, "holds other things (%.200s)", s->other);
        mr_free(key);
        return claim_refuse(o, why, err);
    }
    const int n = snprintf(text, sizeof text, "{\"id\":\"%s\"}\n", o->id);
    int rc = mr_s3_put(o->s3, place(o, mr_str_c(key)), (mr_bytes){(const uint8_t *)text, (size_t)n},
                       true, err);
    mr_free(key);
    return rc == MR_E_EXISTS ? claim_refuse(o, "was taken by another job just now", err) : rc;
}

static int claim_check(const struct survey *s, struct mr_err *err)
{
    const struct objects *o = s->o;
    const size_t most = (size_t)MR_MIN(MR_MAX(s->claim_bytes, UINT64_C(1)), (uint64_t)CLAIM_MOST);
    struct mr_block *block = NULL;
    char *key = key_of(o, CLAIM);
    struct mr_s3_fetch *f =
        mr_s3_fetch_begin(o->s3, place(o, mr_str_c(key)), s->claim_etag, 0, most);
    mr_bytes text;
    int rc = mr_s3_fetch_end(&f, &block, &text, err);

    mr_free(key);
    if (rc == MR_OK &&
        mr_str_find_str(mr_str_n((const char *)text.ptr, text.len), mr_str_c(o->id)) < 0) {
        rc = claim_refuse(o, "belongs to another job", err);
    }
    mr_block_unref(&block);
    return rc;
}

/* An abandoned upload only costs space. */
static int uploads_end(const struct objects *o, struct mr_err *err)
{
    int rc = mr_s3_uploads_abort(o->s3, o->bucket, mr_str_c(o->prefix), key_is_ours, o, err);

    if (rc < 0 && rc != MR_E_CANCELLED && rc != MR_E_UNAVAILABLE) {
        mr_log(MR_LOG_WARN, "batch.storage", "uploads that were cut off are left: %s", err->msg);
        rc = MR_OK;
    }
    return rc;
}

static int place_take(struct results *rs, bool *out_has_success, struct mr_err *err)
{
    struct objects *o = rs->objects;
    struct survey s = {.o = o};
    int rc;

    MR_TRY(survey_make(rs, &s, err));
    MR_TRY(s.has_claim ? claim_check(&s, err) : claim_make(&s, err));
    MR_TRY(survey_settle(&s, err));
    MR_TRY(s.has_claim ? uploads_end(o, err) : MR_OK);
    *out_has_success = s.has_success;
out:
    survey_fini(&s);
    return rc;
}

/* While rows are being added, the place is not complete. */
static int success_remove(const struct objects *o, struct mr_err *err)
{
    char *key = key_of(o, SUCCESS);
    int rc = mr_s3_delete(o->s3, place(o, mr_str_c(key)), err);

    mr_free(key);
    return rc;
}

/* ---- the sink ---- */

/* Before the first change, unless that was done. The folder says first that the job is not finished, so that whatever
 * happens a later start puts _SUCCESS back. */
static int place_open(struct results *rs, struct mr_err *err)
{
    struct objects *o = rs->objects;
    struct mr_s3_options s3 = storage_options(rs->o, rs->state);
    bool has_success;
    int rc;

    if (o->s3) {
        return MR_OK;
    }
    s3.is_stopped = is_stopped;
    s3.ctx = o;
    MR_TRY(mr_s3_new(&o->s3, &s3, err));
    MR_TRY(place_take(rs, &has_success, err));
    MR_TRY(mr_manifest_unfinish(rs->manifest, err));
    MR_TRY(has_success ? success_remove(o, err) : MR_OK); /* a new job deletes nothing */
    atomic_store_explicit(&o->may_stop, false, memory_order_relaxed);
out:
    return rc;
}

/* A shard has a place of its own within that of the job, named as its folder is. */
static int prefix_make(struct results *rs, mr_str prefix, struct mr_err *err)
{
    const char *slash = prefix.len > 0 && !mr_str_ends(prefix, MR_STR("/")) ? "/" : "";
    const char *shard = rs->o->shard_count ? strrchr(rs->folder, '/') + 1 : "";
    const size_t room = prefix.len + strlen(shard) + 3;

    if (prefix.len > PREFIX_MOST) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s…': more than %d bytes of a prefix",
                       rs->o->results.objects, PREFIX_MOST);
    }
    rs->objects->prefix = mr_alloc(room);
    snprintf(rs->objects->prefix, room, "%.*s%s%s%s", MR_STR_ARG(prefix), slash, shard,
             shard[0] ? "/" : "");
    return MR_OK;
}

static int objects_open(struct results *rs, struct mr_err *err)
{
    struct objects *o = MR_NEW(struct objects);
    mr_str prefix;
    int rc;

    rs->objects = o;
    o->state = rs->state;
    atomic_init(&o->may_stop, true);
    o->id = mr_manifest_id(rs->manifest);
    MR_TRY(mr_s3_uri_parse(rs->o->results.objects, &o->bucket, &prefix, err));
    MR_TRY(prefix_make(rs, prefix, err));
    if (!mr_manifest_is_finished(rs->manifest) || rs->o->start.retries_dead) {
        rc = place_open(rs, err);
    }
out:
    return rc;
}

static void objects_close(struct results *rs)
{
    struct objects *o = rs->objects;

    rs->objects = NULL;
    if (o) {
        struct mr_s3 *s3 = o->s3; /* which is_stopped uses until the end */
        mr_s3_free(&s3);
        mr_free(o->prefix);
        mr_free(o);
    }
}

/* In the job's folder, without a name: its space is free again whatever ends the process. */
static int data_open(const struct results *rs, struct mr_err *err)
{
    const size_t room = strlen(rs->folder) + 32;
    char *path = mr_alloc(room);

    snprintf(path, room, "%s/" MR_FILE_TMP "object-XXXXXX", rs->folder);
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) {
        unlink(path);
    }
    const int rc = fd < 0 ? batch_file_fail(err, "make a file in", rs->folder) : fd;
    mr_free(path);
    return rc;
}

static int objects_begin(struct results *rs, struct open_part *p, const struct extent *e,
                         struct mr_err *err)
{
    struct mr_writer_options writer = rs->o->results.writer;
    struct objects *o = rs->objects;
    int rc = place_open(rs, err);

    if (rc == MR_OK) {
        rc = rs->o->results.order == MR_BATCH_UNORDERED
                 ? mr_manifest_part_begin_elsewhere(rs->manifest, rs->o->results.suffix,
                                                    &p->results, err)
                 : mr_manifest_part_begin_elsewhere_at(rs->manifest, e->file, e->first,
                                                       rs->o->results.suffix, &p->results, err);
    }
    if (rc < 0) {
        return rc;
    }
    p->has_results = true;
    int fd;
    do {
        fd = data_open(rs, err);
    } while (fd < 0 && disk_wait(rs->committer, err));
    if (fd < 0) {
        return fd;
    }
    p->object = MR_NEW(struct object_part);
    *p->object = (struct object_part){.fd = fd, .key = key_of_part(o, p->results.name)};
    p->object->upload = mr_s3_upload_new(o->s3, place(o, mr_str_c(p->object->key)), fd,
                                         MR_MIN(rs->o->results.part_bytes, LARGEST));
    writer.on_no_room = (struct mr_no_room){disk_wait_fn, rs->committer};
    return mr_writer_new(&p->writer, fd, batch_outputs_schema(rs->model->outputs), &writer, err);
}

static int data_bytes(const struct object_part *d, uint64_t *out, struct mr_err *err)
{
    struct stat st;

    if (fstat(d->fd, &st) < 0) {
        return batch_file_fail(err, "look at", d->key);
    }
    *out = (uint64_t)st.st_size;
    return MR_OK;
}

static int objects_put(struct results *rs, struct open_part *p, const struct extent *e,
                       const struct extent_answer *a, struct mr_err *err)
{
    uint64_t bytes = 0;
    int rc = mr_writer_put(p->writer, a->rows, 0, a->rows->count, err);

    (void)rs;
    (void)e;
    rc = rc < 0 ? rc : data_bytes(p->object, &bytes, err);
    return rc < 0 ? rc : mr_s3_upload_more(p->object->upload, bytes, err);
}

static uint64_t objects_bytes(const struct open_part *p)
{
    return p->writer ? mr_writer_bytes(p->writer) : 0;
}

static uint64_t objects_most_bytes(const struct results *rs)
{
    return MR_MIN(rs->o->results.part_bytes, LARGEST);
}

static int objects_finish(struct results *rs, struct open_part *p, struct mr_err *err)
{
    uint64_t bytes = 0;
    int rc;

    (void)rs;
    MR_TRY(mr_writer_finish(p->writer, err));
    MR_TRY(data_bytes(p->object, &bytes, err));
    MR_TRY(mr_s3_upload_finish(p->object->upload, bytes, err));
    p->results.bytes = bytes;
out:
    return rc;
}

static void objects_drop(struct open_part *p)
{
    mr_writer_free(&p->writer);
    if (p->object) {
        mr_s3_upload_free(&p->object->upload);
        close(p->object->fd);
        mr_free(p->object->key);
        mr_freep(&p->object);
    }
}

/* ---- the end ---- */

static int items_cmp(const void *a, const void *b)
{
    const struct mr_manifest_extent *x = (*(const struct mr_manifest_item *const *)a)->extents;
    const struct mr_manifest_extent *y = (*(const struct mr_manifest_item *const *)b)->extents;

    return x->file != y->file     ? (x->file < y->file ? -1 : 1)
           : x->first != y->first ? (x->first < y->first ? -1 : 1)
                                  : 0;
}

/* {"id":…,"rows":…,"dead":…,"objects":[{"key":"p-…","rows":…,"bytes":…},…]} */
static void manifest_put(const struct results *rs, struct mr_buf *b)
{
    const size_t count = mr_manifest_item_count(rs->manifest);
    const struct mr_manifest_totals totals = mr_manifest_totals(rs->manifest);
    const struct mr_manifest_item **items =
        MR_NEW_ARRAY(const struct mr_manifest_item *, count + 1);
    bool is_first = true;

    for (size_t i = 0; i < count; i++) {
        items[i] = mr_manifest_item(rs->manifest, i);
    }
    qsort(items, count, sizeof *items, items_cmp);
    mr_buf_printf(b, "{\"id\":\"%s\",\"rows\":%llu,\"dead\":%llu,\"objects\":[", rs->objects->id,
                  (unsigned long long)totals.rows, (unsigned long long)totals.dead);
    for (size_t i = 0; i < count; i++) {
        char *key = items[i]->part ? key_of_part(rs->objects, items[i]->part) : NULL;
        if (key) {
            mr_buf_c(b, is_first ? "\n{\"key\":" : ",\n{\"key\":");
            mr_json_put_string(b, mr_str_c(key));
            mr_buf_printf(b, ",\"rows\":%llu,\"bytes\":%llu}", (unsigned long long)items[i]->rows,
                          (unsigned long long)items[i]->part_bytes);
            is_first = false;
        }
        mr_free(key);
    }
    MR_BUF_LIT(b, "\n]}\n");
    mr_free(items);
}

static int text_put(const struct objects *o, const char *name, mr_str text, struct mr_err *err)
{
    char *key = key_of(o, name);
    int rc = mr_s3_put(o->s3, place(o, mr_str_c(key)),
                       (mr_bytes){(const uint8_t *)text.ptr, text.len}, false, err);

    mr_free(key);
    return rc;
}

static int objects_publish(struct results *rs, struct mr_err *err)
{
    struct objects *o = rs->objects;
    struct survey s = {.o = o};
    struct mr_buf text;
    int rc;

    mr_buf_init(&text, 0);
    MR_TRY(place_open(rs, err)); /* all that was added may be dead letters */
    atomic_store_explicit(&o->may_stop, true, memory_order_relaxed);
    MR_TRY(survey_make(rs, &s, err)); /* a start that was taken for dead may have added some */
    MR_TRY(survey_settle(&s, err));
    MR_TRY(uploads_end(o, err)); /* one whose begin was lost and made again */
    manifest_put(rs, &text);
    if (text.failed) {
        rc = MR_FAIL(err, MR_E_EXHAUSTED, "no memory for " MANIFEST);
        goto out;
    }
    MR_TRY(text_put(o, MANIFEST, mr_buf_view(&text), err));
    MR_TRY(text_put(o, SUCCESS, MR_STR(""), err));
out:
    survey_fini(&s);
    mr_buf_fini(&text);
    return rc;
}

const struct sink_ops sink_objects = {
    .open = objects_open,
    .close = objects_close,
    .begin = objects_begin,
    .put = objects_put,
    .bytes = objects_bytes,
    .most_bytes = objects_most_bytes,
    .finish = objects_finish,
    .drop = objects_drop,
    .publish = objects_publish,
};
