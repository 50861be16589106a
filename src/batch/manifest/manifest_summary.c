/* Reads a job's folder from outside of the job. Takes no lock and writes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch/files/file.h"
#include "manifest_priv.h"

/* The holder of LOCK. Does not try to take it, as that would refuse a start at the same moment. A pid in an unlocked file
 * is that of a process that was killed. */
static int64_t lock_holder(const struct mr_manifest *m)
{
    char line[256];
    struct stat st;
    int64_t holder = 0;

    if (fstatat(m->dir, MR_MANIFEST_LOCK, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return 0;
    }
    /* "1: FLOCK  ADVISORY  WRITE 4711 08:02:131 0 EOF". The device is left out: on some file systems it is another
     * than the file's. The pid in the file says enough. */
    FILE *locks = fopen("/proc/locks", "re");
    struct mr_buf text;
    mr_buf_init(&text, 1 << 20);
    const bool has_pid = batch_file_read(m->dir, MR_MANIFEST_LOCK, &text, NULL) == MR_OK;
    int64_t pid = 0;
    if (has_pid && mr_str_to_i64(mr_str_trim(mr_buf_view(&text)), &pid) && pid > 0) {
        while (locks && holder == 0 && fgets(line, sizeof line, locks)) {
            int64_t owner;
            uint64_t inode;
            if (sscanf(line, "%*s FLOCK %*s WRITE %" SCNd64 " %*x:%*x:%" SCNu64, &owner, &inode) ==
                    2 &&
                owner == pid && inode == (uint64_t)st.st_ino) {
                holder = pid;
            }
        }
    }
    mr_buf_fini(&text);
    if (locks) {
        fclose(locks);
    }
    return holder;
}

/* {"event":"stopped","reason":"…"}, unless another start follows it. */
static void stop_find(const struct mr_manifest *m, struct mr_buf *out)
{
    struct mr_arena arena;
    struct mr_json j;
    bool is_first = true;
    mr_str key;
    mr_str text;

    for (size_t i = m->notes.len; i > 0 && out; i--) {
        const mr_str note = mr_str_c(m->notes.at[i - 1]);
        if (mr_str_starts(note, MR_STR(MR_MANIFEST_WENT_ON))) {
            return;
        }
        if (mr_str_starts(note, MR_STR(MR_MANIFEST_STOPPED))) {
            mr_arena_init(&arena, 0, 1u << 20);
            mr_json_init(&j, note, &arena, 0, NULL);
            mr_json_enter_object(&j);
            while (mr_json_next_key(&j, &is_first, &key) && mr_json_string(&j, &text) == MR_OK) {
                if (mr_str_eq_c(key, "reason")) {
                    mr_buf_str(out, text);
                }
            }
            mr_arena_fini(&arena);
            return;
        }
    }
}

int mr_manifest_stop(struct mr_manifest *m, const char *why, struct mr_err *err)
{
    struct mr_buf was;
    struct mr_buf note;
    int rc = MR_OK;

    mr_buf_init(&was, 0);
    mr_buf_init(&note, 0);
    stop_find(m, &was);
    mr_buf_c(&note, why ? MR_MANIFEST_STOPPED : MR_MANIFEST_WENT_ON);
    if (why) {
        MR_BUF_LIT(&note, ",\"reason\":");
        mr_json_put_string(&note, mr_str_c(why));
    }
    mr_buf_char(&note, '}');
    if (why ? strcmp(mr_buf_cstr(&was), why) != 0 : was.len > 0) {
        rc = mr_manifest_note(m, mr_buf_view(&note), err);
    }
    mr_buf_fini(&was);
    mr_buf_fini(&note);
    return rc;
}

static int summary_read(struct mr_manifest *m, struct mr_manifest_totals *out_totals,
                        bool *out_finished, uint32_t *out_epoch, int64_t *out_pid,
                        struct mr_buf *out_stop, struct mr_err *err)
{
    bool has_job;
    bool has_log;
    bool is_finished;
    int rc;

    m->dir = openat(AT_FDCWD, m->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (m->dir < 0) {
        return batch_file_fail(err, "open the folder", m->folder);
    }
    MR_TRY(batch_file_exists(m->dir, MR_MANIFEST_JOB, &has_job, err));
    MR_TRY(mr_journal_read(m, &has_log, err));
    if (!has_job || !has_log) {
        rc = MR_FAIL(err, MR_E_NOT_FOUND, "there is no job in %s", m->folder);
        goto out;
    }
    MR_TRY(batch_file_exists(m->dir, MR_MANIFEST_SUCCESS, &is_finished, err));
    *out_totals = m->totals;
    *out_finished = is_finished;
    *out_epoch = m->epoch;
    *out_pid = lock_holder(m);
    stop_find(m, out_stop);
out:
    return rc;
}

int mr_manifest_summary(const char *folder, struct mr_manifest_totals *out_totals,
                        bool *out_finished, uint32_t *out_epoch, int64_t *out_pid,
                        struct mr_buf *out_stop, struct mr_err *err)
{
    struct mr_manifest *m = MR_NEW(struct mr_manifest);

    m->folder = mr_strndup(folder, strlen(folder));
    m->dir = m->parts = m->dlq = m->lock = m->log = -1;
    m->history_most = MR_MANIFEST_HISTORY_MOST;
    const int rc = summary_read(m, out_totals, out_finished, out_epoch, out_pid, out_stop, err);
    mr_manifest_close(&m);
    return rc;
}
