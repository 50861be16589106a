/* Workers are not trusted: a file that one could write or truncate later could corrupt or crash its successors. */
#include "kept.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int file_check(int fd, uint64_t *out_bytes, struct mr_err *err)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct stat st;

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0) {
        return MR_FAIL(err, MR_E_INVALID, "what it keeps of the model is no sealed memory");
    }
    *out_bytes = (uint64_t)st.st_size;
    return MR_OK;
}

int kept_take(struct kept *k, struct mr_frame_fds *fds, struct mr_err *err)
{
    struct kept taken = {.files.count = fds->count};
    int rc = MR_OK;

    if (k->files.count > 0 || fds->count == 0) {
        rc = MR_FAIL(err, MR_E_INVALID, "it keeps nothing of the model, or a second time");
    }
    for (uint32_t i = 0; rc == MR_OK && i < fds->count; i++) {
        uint64_t bytes = 0;
        rc = file_check(fds->at[i], &bytes, err);
        taken.files.fds[i] = fds->at[i];
        taken.bytes += bytes;
    }
    if (rc < 0) {
        kept_fds_close(fds);
        return rc;
    }
    fds->count = 0;
    *k = taken;
    return MR_OK;
}

void kept_close(struct kept *k)
{
    for (uint32_t i = 0; i < k->files.count; i++) {
        close(k->files.fds[i]);
    }
    *k = (struct kept){0};
}

void kept_fds_close(struct mr_frame_fds *fds)
{
    for (uint32_t i = 0; i < fds->count; i++) {
        close(fds->at[i]);
    }
    fds->count = 0;
}
