/* A job's folder, looked at by somebody who does not work on it. Takes no lock and writes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"
#include "manifest_priv.h"

/* Who holds LOCK. Not by trying to take it: a start at the same moment would be refused. A pid in a file that nobody
 * locks is that of a process which was killed. */
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

static int look(struct mr_manifest *m, struct mr_manifest_totals *out_totals, bool *out_finished,
                uint32_t *out_epoch, int64_t *out_pid, struct mr_err *err)
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
out:
    return rc;
}

int mr_manifest_look(const char *folder, struct mr_manifest_totals *out_totals, bool *out_finished,
                     uint32_t *out_epoch, int64_t *out_pid, struct mr_err *err)
{
    struct mr_manifest *m = MR_NEW(struct mr_manifest);

    m->folder = mr_strndup(folder, strlen(folder));
    m->dir = m->parts = m->dlq = m->lock = m->log = -1;
    m->history_most = MR_MANIFEST_HISTORY_MOST;
    const int rc = look(m, out_totals, out_finished, out_epoch, out_pid, err);
    mr_manifest_close(&m);
    return rc;
}
