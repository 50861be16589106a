/* manifest.log: one record per line, "<JSON> <CRC-32C of the JSON, 8 hex digits>\n".
 *
 * One append is one record and one sync, and the next append begins when the sync is done. So only the last
 * line may be torn, whatever a crash or a power loss leaves of it; a bad line in front of a good one is
 * damage, of which nothing good can be guessed.
 *
 * Each start writes the state as a new file, brings it to disk and renames it over the log. That cuts a torn
 * end, drops history, makes sure that what was read is on disk (after a kill it may have been in memory
 * only), and locks out a process that believes it still has the job: its descriptor leads to a file without
 * a name. It notices, as the file of that name is another one, and believes none of its appends since. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "batch/files/file.h"
#include "manifest_priv.h"

#define CRC_BYTES 9 /* " " and eight digits */

static void put_line(struct mr_buf *b, mr_str json)
{
    mr_buf_str(b, json);
    mr_buf_printf(b, " %08x\n", mr_crc32c(0, json.ptr, json.len));
}

/* The record of a line (without its end) when the checksum is right. */
static bool check_line(mr_str line, mr_str *out_json)
{
    char text[CRC_BYTES + 1];
    const size_t len = line.len - CRC_BYTES;

    if (line.len <= CRC_BYTES) {
        return false;
    }
    snprintf(text, sizeof text, " %08x", mr_crc32c(0, line.ptr, len));
    *out_json = mr_str_n(line.ptr, len);
    return memcmp(text, line.ptr + len, CRC_BYTES) == 0;
}

static int replay_lines(struct mr_manifest *m, mr_str text, struct mr_err *err)
{
    uint64_t bad_line = 0;
    mr_str rest = text;
    mr_str json;

    for (uint64_t number = 1; rest.len > 0; number++) {
        const ptrdiff_t end = mr_str_find(rest, '\n');
        const mr_str line = mr_str_sub(rest, 0, end < 0 ? rest.len : (size_t)end);
        rest = mr_str_sub(rest, line.len + 1, rest.len);
        if (end < 0 || !check_line(line, &json)) {
            bad_line = bad_line ? bad_line : number;
            continue;
        }
        if (bad_line) {
            return MR_FAIL(err, MR_E_IO,
                           MR_MANIFEST_LOG
                           " is damaged: line %llu is not what was written, and good ones follow",
                           (unsigned long long)bad_line);
        }
        const int rc = mr_record_replay(m, json, err);
        if (rc < 0) {
            return MR_WRAP(err, rc, MR_MANIFEST_LOG " line %llu", (unsigned long long)number);
        }
    }
    return MR_OK;
}

int mr_journal_read(struct mr_manifest *m, bool *out_exists, struct mr_err *err)
{
    struct mr_buf text;
    bool exists;
    int rc;

    mr_buf_init(&text, MR_MANIFEST_LOG_MOST);
    MR_TRY(batch_file_exists(m->dir, MR_MANIFEST_LOG, &exists, err));
    if (exists) {
        MR_TRY(batch_file_read(m->dir, MR_MANIFEST_LOG, &text, err));
        MR_TRY(replay_lines(m, mr_buf_view(&text), err));
        if (m->epoch == 0) {
            rc = MR_FAIL(err, MR_E_IO,
                         MR_MANIFEST_LOG " is damaged: its first line is not what was written");
            goto out;
        }
    }
    *out_exists = exists;
out:
    mr_buf_fini(&text);
    return rc;
}

static int refuse(struct mr_manifest *m, struct mr_err *err)
{
    return MR_FAIL(err, MR_E_CLOSED, "%s", m->broken.msg);
}

/* Is it the file that the name leads to? *out is left as it is if that cannot be told. */
static int is_named(const struct mr_manifest *m, int fd, bool *out, struct mr_err *err)
{
    struct stat named = {0};
    struct stat ours;

    if (fstat(fd, &ours) < 0 ||
        (fstatat(m->dir, MR_MANIFEST_LOG, &named, 0) < 0 && errno != ENOENT)) {
        return batch_file_fail(err, "look at", MR_MANIFEST_LOG);
    }
    *out = ours.st_nlink > 0 && ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
    return MR_OK;
}

int mr_journal_check(struct mr_manifest *m, struct mr_err *err)
{
    bool is_ours;

    if (m->broken.status < 0) {
        return refuse(m, err);
    }
    const int rc = is_named(m, m->log, &is_ours, err);
    if (rc < 0) {
        return rc;
    }
    if (!is_ours) {
        MR_FAIL(&m->broken, MR_E_CLOSED,
                "another process has taken over the job in %s, or its " MR_MANIFEST_LOG
                " was replaced",
                m->folder);
        return refuse(m, err);
    }
    return MR_OK;
}

/* The disk has left a state that is known only when the job is opened again. */
static int must_reopen(struct mr_manifest *m, const char *why, struct mr_err *err)
{
    m->may_reopen = true;
    MR_FAIL(&m->broken, MR_E_CLOSED, "the job in %s must be opened again: %s", m->folder, why);
    return refuse(m, err);
}

static int replace_log(struct mr_manifest *m, mr_str text, struct mr_err *err)
{
    bool is_placed = true; /* assumed if it cannot be told */
    const int fd = batch_file_prepare(m->dir, MR_MANIFEST_LOG, text, err);

    if (fd < 0) {
        return fd;
    }
    /* As late as can be. In the instant that is left only the lock keeps others away. */
    int rc = m->log < 0 ? mr_manifest_check_epoch(m, err) : mr_journal_check(m, err);
    if (rc == MR_OK) {
        rc = batch_file_place(m->dir, MR_MANIFEST_LOG, err);
        if (rc < 0 && m->log >= 0) {
            is_named(m, fd, &is_placed, NULL);
            rc =
                is_placed
                    ? must_reopen(
                          m, "the new " MR_MANIFEST_LOG " may not keep its name after a crash", err)
                    : rc;
        }
    }
    if (rc < 0) {
        close(fd);
        return rc;
    }
    if (m->log >= 0) {
        close(m->log);
    }
    m->log = fd;
    return MR_OK;
}

int mr_journal_rewrite(struct mr_manifest *m, struct mr_err *err)
{
    struct mr_buf log;
    struct mr_buf record;

    mr_buf_init(&log, MR_MANIFEST_LOG_MOST);
    mr_buf_init(&record, MR_MANIFEST_LOG_MOST);
    mr_record_begin(&record, m->epoch);
    put_line(&log, mr_buf_view(&record));
    for (size_t i = 0; i < m->items.len; i++) {
        mr_buf_reset(&record);
        mr_record_change(&record, &m->items.at[i], 1, NULL, 0);
        put_line(&log, mr_buf_view(&record));
    }
    for (size_t i = 0; i < m->notes.len; i++) {
        mr_buf_reset(&record);
        mr_record_note(&record, mr_str_c(m->notes.at[i]));
        put_line(&log, mr_buf_view(&record));
    }
    int rc = log.failed || record.failed
                 ? MR_FAIL(err, MR_E_NOMEM, "no memory for " MR_MANIFEST_LOG)
                 : replace_log(m, mr_buf_view(&log), err);
    if (rc == MR_OK) {
        m->log_bytes = log.len;
        m->log_lines = 1 + m->items.len + m->notes.len;
    }
    mr_buf_fini(&log);
    mr_buf_fini(&record);
    return rc;
}

/* A failed append left a part of the record. */
static int cut_back(struct mr_manifest *m, int status, struct mr_err *err)
{
    if (ftruncate(m->log, (off_t)m->log_bytes) < 0 || fdatasync(m->log) < 0) {
        char why[256];
        snprintf(why, sizeof why, MR_MANIFEST_LOG " could not be written, nor cut: %s",
                 strerror(errno));
        return must_reopen(m, why, err);
    }
    return status;
}

int mr_journal_append(struct mr_manifest *m, mr_str json, struct mr_err *err)
{
    struct mr_buf line;
    int rc = mr_journal_check(m, err);

    if (rc < 0) {
        return rc;
    }
    mr_buf_init(&line, MR_MANIFEST_LOG_MOST);
    put_line(&line, json);
    if (line.failed) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for a record");
        goto out;
    }
    rc = batch_file_write(m->log, line.ptr, line.len, m->log_bytes, MR_MANIFEST_LOG, err);
    if (rc == MR_OK && fdatasync(m->log) < 0) {
        rc = batch_file_fail(err, "bring to disk", MR_MANIFEST_LOG);
    }
    if (rc < 0) {
        rc = cut_back(m, rc, err);
        goto out;
    }
    m->log_bytes += line.len;
    m->log_lines++;
    /* The process that took over may or may not have seen this record, and decides. */
    rc = mr_journal_check(m, err);
    if (rc < 0 && m->broken.status == MR_OK) {
        rc = must_reopen(m, "cannot look at " MR_MANIFEST_LOG, err);
    }
out:
    mr_buf_fini(&line);
    return rc;
}
