/* Start of a job, for the first time or again.
 *
 *     look     what is in the folder; a new job takes none that holds other things
 *     lock     one process at a time, on this machine; a file system without locks has the epoch alone
 *     read     job.json against what the caller wants, manifest.log, the files that it names
 *     epoch    a number that no start had before
 *     log      rewritten (journal.c), which locks out a process that lost the lock; syncs the folder too,
 *              before anything is named after the epoch
 *     job.json last of what a new job writes: where it is, a log must be
 *     sweep    whatever no record names
 *
 * Until the epoch nothing is changed but for LOCK and empty folders, so that a refused start does no harm. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rng.h"
#include "batch/files/file.h"
#include "manifest_priv.h"

#define EPOCH_FRONT "epoch-"
#define VALUE_SHOWN 96 /* bytes of a field's value in a message */

/* What a start finds in the folder. */
struct folder_scan {
    uint32_t last_epoch;
    bool has_job;
    char other[MR_MANIFEST_NAME_BYTES]; /* something that is not ours; "" = nothing */
};

static uint32_t epoch_of(const char *name)
{
    const mr_str all = mr_str_c(name);
    uint64_t number;

    if (!mr_str_starts(all, MR_STR(EPOCH_FRONT)) ||
        !mr_str_to_u64(mr_str_sub(all, strlen(EPOCH_FRONT), all.len), &number) ||
        number >= UINT32_MAX) {
        return 0;
    }
    return (uint32_t)number;
}

static void name_see(void *ctx, const char *name)
{
    static const char *const ours[] = {MR_MANIFEST_LOCK, "parts", "dlq", MR_MANIFEST_LOG,
                                       MR_MANIFEST_CONTROL};
    struct folder_scan *scan = ctx;
    const uint32_t epoch = epoch_of(name);

    if (epoch) {
        scan->last_epoch = MR_MAX(scan->last_epoch, epoch);
        return;
    }
    if (strcmp(name, MR_MANIFEST_JOB) == 0) {
        scan->has_job = true;
        return;
    }
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++) {
        if (strcmp(name, ours[i]) == 0) {
            return;
        }
    }
    if (strncmp(name, MR_FILE_TMP, strlen(MR_FILE_TMP)) != 0) {
        snprintf(scan->other, sizeof scan->other, "%s", name);
    }
}

static int folder_scan(struct mr_manifest *m, struct folder_scan *scan, struct mr_err *err)
{
    *scan = (struct folder_scan){0};
    int rc = batch_file_each(m->dir, m->folder, name_see, scan, err);
    if (rc == MR_OK && !scan->has_job && scan->other[0]) {
        rc =
            MR_FAIL(err, MR_E_EXISTS, "%s holds other things (%s): a job needs a folder of its own",
                    m->folder, scan->other);
    }
    return rc;
}

/* ---- lock ---- */

static int refuse_locked(struct mr_manifest *m, struct mr_err *err)
{
    char pid[16] = "";
    const ssize_t n = pread(m->lock, pid, sizeof pid - 1, 0);
    const mr_str text = mr_str_trim(mr_str_n(pid, n > 0 ? (size_t)n : 0));

    return MR_FAIL(err, MR_E_UNAVAILABLE, "process %.*s works on the job in %s",
                   MR_STR_ARG(text.len ? text : MR_STR("?")), m->folder);
}

static int take_lock(struct mr_manifest *m, struct mr_err *err)
{
    char pid[16];
    int rc;

    m->lock = openat(m->dir, MR_MANIFEST_LOCK, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (m->lock < 0) {
        return batch_file_fail(err, "make", MR_MANIFEST_LOCK);
    }
    do {
        rc = flock(m->lock, LOCK_EX | LOCK_NB);
    } while (rc < 0 && errno == EINTR);
    if (rc < 0 && (errno == ENOSYS || errno == EOPNOTSUPP || errno == ENOLCK)) {
        mr_log(
            MR_LOG_WARN, "batch.no_lock",
            "folder=%s reason=%s; a second process that works on the job is found at a commit only",
            MR_LOG_STR(mr_str_c(m->folder)), strerror(errno));
    } else if (rc < 0) {
        return errno == EWOULDBLOCK ? refuse_locked(m, err)
                                    : batch_file_fail(err, "lock", MR_MANIFEST_LOCK);
    }
    /* For people; a full disk is no reason not to go on. */
    snprintf(pid, sizeof pid, "%-10ld\n", (long)getpid());
    batch_file_write(m->lock, pid, strlen(pid), 0, MR_MANIFEST_LOCK, NULL);
    return MR_OK;
}

/* ---- job.json ---- */

static void choose_id(char out[MR_MANIFEST_ID_BYTES])
{
    uint64_t random[2];

    mr_rng_system(random, sizeof random);
    snprintf(out, MR_MANIFEST_ID_BYTES, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

static void put_job(struct mr_buf *b, const char *id, const struct mr_identity_field *identity,
                    size_t count)
{
    mr_buf_printf(b, "{\"format\":%d,\"id\":\"%s\",\"facts\":{", MR_MANIFEST_FORMAT, id);
    for (size_t i = 0; i < count; i++) {
        mr_buf_c(b, i ? ",\n" : "\n");
        mr_json_put_string(b, mr_str_c(identity[i].key));
        mr_buf_char(b, ':');
        mr_buf_c(b, identity[i].json);
    }
    MR_BUF_LIT(b, "\n}}\n");
}

/* The fields of job.json, key and text of the value. */
struct stored {
    struct mr_buf text;
    struct mr_arena arena;
    MR_VEC(mr_str) keys;
    MR_VEC(mr_str) values;
    mr_str id;
};

static int read_stored(struct mr_json *j, struct stored *out)
{
    bool first = true;
    bool first_field = true;
    uint64_t format = 0;
    mr_str key;
    mr_str value;

    mr_json_enter_object(j);
    while (mr_json_next_key(j, &first, &key)) {
        if (mr_str_eq_c(key, "format")) {
            mr_json_u64(j, &format);
        } else if (mr_str_eq_c(key, "id")) {
            mr_json_string(j, &out->id);
        } else if (mr_str_eq_c(key, "facts")) {
            mr_json_enter_object(j);
            while (mr_json_next_key(j, &first_field, &key)) {
                if (mr_json_skip(j, &value) == MR_OK) {
                    MR_VEC_PUSH(&out->keys, key);
                    MR_VEC_PUSH(&out->values, value);
                }
            }
        } else {
            mr_json_skip(j, NULL);
        }
    }
    mr_json_finish(j);
    if (j->status == MR_OK && format != MR_MANIFEST_FORMAT) {
        return mr_json_fail(j, MR_E_UNSUPPORTED, "format %" PRIu64 ", this program knows %d",
                            format, MR_MANIFEST_FORMAT);
    }
    return j->status;
}

/* "inputs", but not "place of results" */
static bool is_plural(mr_str key)
{
    return mr_str_ends(key, MR_STR("s")) && mr_str_find_str(key, MR_STR(" of ")) < 0;
}

/* field: NULL for one that is not there any more. */
static int field_differs(const struct mr_manifest *m, mr_str key, mr_str was, mr_str is,
                         const struct mr_identity_field *field, struct mr_err *err)
{
    const mr_str was_cut = mr_str_sub(was, 0, VALUE_SHOWN);
    const mr_str is_cut = mr_str_sub(is, 0, VALUE_SHOWN);

    return MR_FAIL(
        err, MR_E_INVALID, "the job in %.96s was begun with %s %.*s: %.*s%s, now %.*s%s%s",
        m->folder, is_plural(key) ? "other" : "another",
        MR_STR_ARG(mr_str_sub(key, 0, VALUE_SHOWN)), MR_STR_ARG(was.len ? was_cut : MR_STR("none")),
        was_cut.len < was.len ? "…" : "", MR_STR_ARG(is.len ? is_cut : MR_STR("none")),
        is_cut.len < is.len ? "…" : "",
        field && field->is_input ? " (--accept-changed-input goes on with it as it is now)"
        : field && field->is_model
            ? " (--accept-changed-model goes on with it, beside the results that there are)"
            : "");
}

/* Index of a key, or keys.len. There may be many inputs, in the same order as a rule. */
static size_t find_stored(const struct stored *stored, const char *key, size_t likely)
{
    size_t i;

    if (likely < stored->keys.len && mr_str_eq_c(stored->keys.at[likely], key)) {
        return likely;
    }
    for (i = 0; i < stored->keys.len && !mr_str_eq_c(stored->keys.at[i], key); i++) {
    }
    return i;
}

/* The ways to say where the inputs are: the first that is not as it was, and whether another is. */
struct places {
    const struct mr_identity_field *misplaced;
    mr_str was;
    bool is_found;
};

static int places_check(const struct mr_manifest *m, const struct places *p, struct mr_err *err)
{
    return !p->misplaced || p->is_found
               ? MR_OK
               : field_differs(m, mr_str_c(p->misplaced->key), p->was, mr_str_c(p->misplaced->json),
                               p->misplaced, err);
}

static int compare(struct mr_manifest *m, const struct stored *stored,
                   const struct mr_identity_field *identity, size_t count,
                   const struct mr_manifest_options *options, bool *out_changed, struct mr_err *err)
{
    bool *seen = MR_NEW_ARRAY(bool, stored->keys.len);
    struct places places = {0};
    bool changed = false;
    int rc = MR_OK;

    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        const size_t k = find_stored(stored, identity[i].key, i);
        const bool is_known = k < stored->keys.len;
        const mr_str was = is_known ? stored->values.at[k] : (mr_str){0};
        if (is_known) {
            seen[k] = true;
        }
        rc = identity[i].is_place ? MR_OK : places_check(m, &places, err);
        if (rc < 0) {
            break;
        }
        if (mr_str_eq_c(was, identity[i].json)) {
            places.is_found |= identity[i].is_place;
            continue;
        }
        if (identity[i].is_place) {
            places.was = places.misplaced ? places.was : was;
            places.misplaced = places.misplaced ? places.misplaced : &identity[i];
            continue;
        }
        if (!(identity[i].is_input && options->accept_changed_input) &&
            !(identity[i].is_model && options->accept_changed_model)) {
            rc = field_differs(m, mr_str_c(identity[i].key), was, mr_str_c(identity[i].json),
                               &identity[i], err);
        }
        changed = true;
    }
    rc = rc < 0 ? rc : places_check(m, &places, err);
    for (size_t k = 0; k < stored->keys.len && rc == MR_OK; k++) {
        if (!seen[k]) {
            rc = field_differs(m, stored->keys.at[k], stored->values.at[k], (mr_str){0}, NULL, err);
        }
    }
    mr_free(seen);
    if (rc < 0) {
        return rc;
    }
    *out_changed = changed;
    return MR_OK;
}

static int stored_open(const struct mr_manifest *m, struct stored *out, struct mr_err *err)
{
    struct mr_json j;

    *out = (struct stored){0};
    mr_arena_init(&out->arena, 0, 64u << 20);
    mr_buf_init(&out->text, 0);
    int rc = batch_file_read(m->dir, MR_MANIFEST_JOB, &out->text, err);
    if (rc < 0) {
        return rc;
    }
    mr_json_init(&j, mr_buf_view(&out->text), &out->arena, 0, err);
    rc = read_stored(&j, out);
    return rc < 0 ? MR_WRAP(err, rc, MR_MANIFEST_JOB) : MR_OK;
}

static void stored_fini(struct stored *s)
{
    MR_VEC_FINI(&s->keys);
    MR_VEC_FINI(&s->values);
    mr_buf_fini(&s->text);
    mr_arena_fini(&s->arena);
}

static int compare_job(struct mr_manifest *m, const struct mr_identity_field *identity,
                       size_t count, const struct mr_manifest_options *options, bool *out_changed,
                       struct mr_err *err)
{
    struct stored stored;
    int rc = stored_open(m, &stored, err);

    if (rc == MR_OK && stored.id.len < sizeof m->id) {
        memcpy(m->id, stored.id.ptr ? stored.id.ptr : "", stored.id.len);
        m->id[stored.id.len] = '\0';
    }
    rc = rc < 0 ? rc : compare(m, &stored, identity, count, options, out_changed, err);
    stored_fini(&stored);
    return rc;
}

int mr_manifest_identity_put(const struct mr_manifest *m, const char *key, struct mr_buf *out_one,
                             struct mr_buf *out_others, struct mr_err *err)
{
    struct stored stored;
    int rc = stored_open(m, &stored, err);

    for (size_t i = 0; rc == MR_OK && i < stored.keys.len; i++) {
        const mr_str value = stored.values.at[i];
        if (mr_str_eq_c(stored.keys.at[i], key)) {
            mr_buf_str(out_one, value);
        } else if (!mr_str_eq_c(stored.keys.at[i], MR_MANIFEST_PLACES)) {
            mr_buf_printf(out_others, "%.*s\n%.*s\n", MR_STR_ARG(stored.keys.at[i]),
                          MR_STR_ARG(value));
        }
    }
    stored_fini(&stored);
    return rc;
}

static int write_job(struct mr_manifest *m, const struct mr_identity_field *identity, size_t count,
                     struct mr_err *err)
{
    struct mr_buf job;

    mr_buf_init(&job, 0);
    put_job(&job, m->id, identity, count);
    const int rc = job.failed ? MR_FAIL(err, MR_E_NOMEM, "no memory for " MR_MANIFEST_JOB)
                              : batch_file_put(m->dir, MR_MANIFEST_JOB, mr_buf_view(&job), err);
    mr_buf_fini(&job);
    return rc;
}

static int identity_check(const struct mr_identity_field *identity, size_t count,
                          struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    int rc = MR_OK;

    mr_arena_init(&arena, 0, 64u << 20);
    for (size_t i = 0; i < count; i++) {
        mr_json_init(&j, mr_str_c(identity[i].json), &arena, 0, err);
        mr_json_skip(&j, NULL);
        rc = mr_json_finish(&j);
        if (rc < 0) {
            rc = MR_WRAP(err, rc, "%s", identity[i].key);
            break;
        }
    }
    mr_arena_fini(&arena);
    return rc;
}

/* ---- committed files ---- */

static int check_file(struct mr_manifest *m, enum mr_manifest_kind kind, const char *name,
                      uint64_t bytes, uint32_t crc, bool verify, struct mr_err *err)
{
    uint64_t found_bytes;
    uint32_t found_crc;
    struct stat st;

    if (!name) {
        return MR_OK;
    }
    const int dir = kind == MR_MANIFEST_RESULTS ? m->parts : m->dlq;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return batch_file_fail(err, "find the committed file", name);
    }
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes) {
        return MR_FAIL(err, MR_E_IO,
                       "the committed file %s has %lld bytes, %" PRIu64 " were written", name,
                       (long long)st.st_size, bytes);
    }
    if (!verify) {
        return MR_OK;
    }
    const int fd = mr_manifest_file_open(m, kind, name, err);
    if (fd < 0) {
        return fd;
    }
    const int rc = batch_file_checksum(fd, name, &found_bytes, &found_crc, err);
    close(fd);
    if (rc == MR_OK && found_crc != crc) {
        return MR_FAIL(err, MR_E_IO,
                       "the committed file %s is damaged: CRC-32C %08x, %08x was written", name,
                       found_crc, crc);
    }
    return rc;
}

static int check_files(struct mr_manifest *m, bool verify, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; i < m->items.len && rc == MR_OK; i++) {
        const struct mr_manifest_item *item = m->items.at[i];
        rc = item->is_elsewhere ? MR_OK
                                : check_file(m, MR_MANIFEST_RESULTS, item->part, item->part_bytes,
                                             item->part_crc, verify, err);
        if (rc == MR_OK) {
            rc = check_file(m, MR_MANIFEST_DEAD_LETTERS, item->dlq, item->dlq_bytes, item->dlq_crc,
                            verify, err);
        }
    }
    return rc;
}

/* ---- epoch and sweep ---- */

static void epoch_name(uint32_t epoch, char out[32])
{
    snprintf(out, 32, EPOCH_FRONT "%06u", epoch);
}

static int refuse_late(struct mr_manifest *m, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_UNAVAILABLE, "another process takes the job in %s just now",
                   m->folder);
}

static int take_epoch(struct mr_manifest *m, uint32_t last, struct mr_err *err)
{
    char name[32];
    const uint32_t epoch = MR_MAX(last, m->epoch) + 1;

    epoch_name(epoch, name);
    const int fd = openat(m->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        return errno == EEXIST ? refuse_late(m, err) : batch_file_fail(err, "make", name);
    }
    close(fd);
    m->epoch = epoch;
    return MR_OK;
}

int mr_manifest_check_epoch(struct mr_manifest *m, struct mr_err *err)
{
    struct folder_scan scan;
    const int rc = folder_scan(m, &scan, err);

    return rc == MR_OK && scan.last_epoch != m->epoch ? refuse_late(m, err) : rc;
}

struct sweep {
    struct mr_manifest *m;
    int dir;
    enum mr_manifest_kind kind;
    uint32_t last; /* start whose files may go */
    int rc;        /* of the first that did not */
    struct mr_err *err;
};

static void sweep_top(void *ctx, const char *name)
{
    const struct sweep *s = ctx;
    const uint32_t epoch = epoch_of(name);

    if ((epoch && epoch < s->m->epoch) || strncmp(name, MR_FILE_TMP, strlen(MR_FILE_TMP)) == 0) {
        unlinkat(s->dir, name, 0);
    }
}

static void sweep_files(void *ctx, const char *name)
{
    struct sweep *s = ctx;
    const uint32_t epoch = mr_manifest_name_epoch(s->kind, mr_str_c(name));

    /* Never what a later start may have made. */
    if (epoch > 0 && epoch <= s->last && !mr_map_find(&s->m->by_name, mr_str_c(name)) &&
        unlinkat(s->dir, name, 0) < 0 && errno != ENOENT && s->rc == MR_OK) {
        s->rc = batch_file_fail(s->err, "remove", name);
    }
}

int mr_manifest_sweep(struct mr_manifest *m, uint32_t last, struct mr_err *err)
{
    struct sweep parts = {m, m->parts, MR_MANIFEST_RESULTS, last, MR_OK, err};
    struct sweep dlq = {m, m->dlq, MR_MANIFEST_DEAD_LETTERS, last, MR_OK, err};
    int rc;

    MR_TRY(batch_file_each(m->parts, "parts", sweep_files, &parts, err));
    MR_TRY(parts.rc);
    MR_TRY(batch_file_each(m->dlq, "dlq", sweep_files, &dlq, err));
    rc = dlq.rc;
out:
    return rc;
}

static int sweep(struct mr_manifest *m, struct mr_err *err)
{
    struct sweep top = {.m = m, .dir = m->dir};
    int rc;

    MR_TRY(batch_file_each(m->dir, m->folder, sweep_top, &top, err));
    MR_TRY(mr_manifest_sweep(m, m->epoch - 1, err));
out:
    return rc;
}

/* ---- open ---- */

static int open_subfolder(struct mr_manifest *m, const char *name, struct mr_err *err)
{
    if (mkdirat(m->dir, name, 0777) < 0 && errno != EEXIST) {
        return batch_file_fail(err, "make the folder", name);
    }
    const int fd = openat(m->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    return fd < 0 ? batch_file_fail(err, "open the folder", name) : fd;
}

static int read_state(struct mr_manifest *m, const struct folder_scan *scan,
                      const struct mr_identity_field *identity, size_t identity_count,
                      const struct mr_manifest_options *options, bool *out_changed,
                      struct mr_err *err)
{
    bool has_log = false;
    int rc;

    if (options->takes_any_job && !scan->has_job) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "there is no job in %s", m->folder);
        goto out;
    }
    if (scan->has_job && !options->takes_any_job) {
        MR_TRY(compare_job(m, identity, identity_count, options, out_changed, err));
    }
    MR_TRY(mr_journal_read(m, &has_log, err));
    if (scan->has_job ? !has_log : m->items.len > 0) {
        rc = MR_FAIL(err, MR_E_IO, "%s is damaged: %s is missing", m->folder,
                     has_log ? MR_MANIFEST_JOB : MR_MANIFEST_LOG);
        goto out;
    }
    MR_TRY(check_files(m, options->verify_content, err));
    MR_TRY(batch_file_exists(m->dir, MR_MANIFEST_SUCCESS, &m->is_finished, err));
out:
    return rc;
}

static int start(struct mr_manifest *m, const struct mr_identity_field *identity,
                 size_t identity_count, const struct mr_manifest_options *options,
                 struct mr_err *err)
{
    struct folder_scan scan;
    bool changed = false;
    int rc;

    MR_TRY(identity_check(identity, identity_count, err));
    MR_TRY(m->dir = batch_file_make_folders(m->folder, err));
    MR_TRY(folder_scan(m, &scan, err));
    MR_TRY(take_lock(m, err));
    MR_TRY(folder_scan(m, &scan, err)); /* under the lock it does not change */
    MR_TRY(m->parts = open_subfolder(m, "parts", err));
    MR_TRY(m->dlq = open_subfolder(m, "dlq", err));
    MR_TRY(read_state(m, &scan, identity, identity_count, options, &changed, err));
    MR_TRY(take_epoch(m, scan.last_epoch, err));
    if (!scan.has_job) {
        choose_id(m->id);
    }
    if (changed) {
        mr_manifest_keep_note(m, MR_STR("{\"event\":\"changed input or model accepted\"}"));
    }
    MR_TRY(mr_journal_rewrite(m, err));
    if (!scan.has_job || changed) {
        MR_TRY(write_job(m, identity, identity_count, err));
    }
    MR_TRY(sweep(m, err));
out:
    return rc < 0 ? rc : MR_OK;
}

int mr_manifest_open(struct mr_manifest **out, const char *folder,
                     const struct mr_identity_field *identity, size_t identity_count,
                     const struct mr_manifest_options *options, struct mr_err *err)
{
    struct mr_manifest *m = MR_NEW(struct mr_manifest);

    m->folder = mr_strndup(folder, strlen(folder));
    m->dir = m->parts = m->dlq = m->lock = m->log = -1;
    m->history_most = MR_MANIFEST_HISTORY_MOST;
    atomic_init(&m->next_number, 1);
    const int rc = start(m, identity, identity_count, options, err);
    if (rc < 0) {
        mr_manifest_close(&m);
        return rc;
    }
    *out = m;
    return MR_OK;
}

void mr_manifest_forget(struct mr_manifest **pm)
{
    struct mr_manifest *m = *pm;
    char epoch[32];

    if (m->epoch == 1 && m->items.len == 0) {
        /* The log after job.json: the other way round would be damage. The lock goes last. */
        epoch_name(m->epoch, epoch);
        unlinkat(m->dir, MR_MANIFEST_JOB, 0);
        unlinkat(m->dir, MR_MANIFEST_LOG, 0);
        unlinkat(m->dir, epoch, 0);
        unlinkat(m->dir, "parts", AT_REMOVEDIR);
        unlinkat(m->dir, "dlq", AT_REMOVEDIR);
        unlinkat(m->dir, MR_MANIFEST_LOCK, 0);
    }
    mr_manifest_close(pm);
}

void mr_manifest_close(struct mr_manifest **pm)
{
    struct mr_manifest *m = *pm;

    if (!m) {
        return;
    }
    const int fds[] = {m->log, m->parts, m->dlq, m->dir, m->lock};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    for (size_t i = 0; i < m->items.len; i++) {
        mr_manifest_item_free(&m->items.at[i]);
    }
    for (size_t i = 0; i < m->done.len; i++) {
        mr_ranges_fini(&m->done.at[i]);
    }
    for (size_t i = 0; i < m->notes.len; i++) {
        mr_free(m->notes.at[i]);
    }
    MR_VEC_FINI(&m->items);
    MR_VEC_FINI(&m->done);
    MR_VEC_FINI(&m->notes);
    mr_map_fini(&m->by_name);
    mr_free(m->folder);
    mr_freep(pm);
}
