/* A file of recorded requests: any bytes. What the messages are is for fuzz_pb_infer. */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/pool.h"
#include "sched/warmup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct warmup_records f;
    struct mr_block *record;
    uint64_t bytes, sum = 0;
    struct mr_err err = {0};
    char path[64];
    int fd = memfd_create("records", MFD_CLOEXEC), rc;

    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    REQUIRE(warmup_records_open(&f, path, &err) == MR_OK);
    while ((rc = warmup_records_next(&f, &record, &bytes, &err)) == MR_OK && record) {
        REQUIRE(bytes <= MR_RECORD_BYTES_MAX && bytes <= record->cap);
        sum += bytes;
        mr_block_unref(&record);
    }
    REQUIRE(sum <= size && f.at <= size && f.count <= MR_RECORDS_MAX);
    REQUIRE((rc < 0) == (err.status < 0) && (rc < 0 || f.at == size));
    warmup_records_close(&f);
    close(fd);
    REQUIRE(mr_block_get_stats().out_bytes == 0);
    return 0;
}
