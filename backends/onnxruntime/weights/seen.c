/* Notes from which model file a cache entry was made, or with which it was compared, so that the next load of an
 * unchanged file need not read all of it.
 *
 * A file with unchanged device, inode number, size and times has not been written to, as programs cannot set the time
 * of the last change. The exception is a change so recent that a further one could have the same time; no note is
 * made for such a file. The note also identifies the entry's own files and the boot of the machine: they are not
 * synced, so after a power loss their content may be incomplete. A note only saves the comparison of every byte.
 *
 * Thread: loaders, of any number of servers. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "parameters.h"

#define NOTE_NAME "seen"
#define NOTE_NEW  "seen.new"
#define NOTE_KIND UINT64_C(0x316e656573726d) /* identifies this layout */
#define NS_PER_S  INT64_C(1000000000)
#define SETTLED   (2 * NS_PER_S) /* the coarsest clock of a file system in use */

struct note {
    uint64_t kind;
    char boot[40]; /* boot id, as text */
    struct onnx_seen seen;
    uint64_t sum; /* checksum of the members above: detects an incomplete note */
};

int onnx_identity_read(int fd, struct onnx_identity *out)
{
    struct stat st;

    if (fstat(fd, &st) != 0) {
        return 0;
    }
    *out = (struct onnx_identity){.device = st.st_dev,
                                  .number = st.st_ino,
                                  .bytes = (uint64_t)st.st_size,
                                  .modified_ns = st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec,
                                  .changed_ns = st.st_ctim.tv_sec * NS_PER_S + st.st_ctim.tv_nsec};
    return 1;
}

int onnx_identity_is(int fd, const struct onnx_identity *wanted)
{
    struct onnx_identity now;

    return onnx_identity_read(fd, &now) && memcmp(&now, wanted, sizeof now) == 0;
}

/* The boot id of the system. */
static int boot_read(char out[40])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(out, 0, 40);
    int ok = fd >= 0 && read(fd, out, 36) == 36;
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

static uint64_t note_sum(const struct note *n)
{
    const uint8_t *at = (const uint8_t *)n;
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

    for (size_t i = 0; i < offsetof(struct note, sum); i++) {
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static int note_read(int folder, const char *entry, struct note *out)
{
    char path[NAME_MAX + sizeof "/" NOTE_NAME];

    snprintf(path, sizeof path, "%s/" NOTE_NAME, entry);
    int fd = openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int ok = fd >= 0 && read(fd, out, sizeof *out) == sizeof *out && out->kind == NOTE_KIND &&
             out->sum == note_sum(out);
    if (fd >= 0) {
        close(fd);
    }
    return ok;
}

int onnx_seen_find(int folder, struct onnx_seen *seen, char *out_entry, size_t room)
{
    int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = copy >= 0 ? fdopendir(copy) : NULL;
    struct note note;
    char boot[sizeof note.boot];
    int found = 0;

    if (!d || !boot_read(boot)) {
        if (d) {
            closedir(d);
        } else if (copy >= 0) {
            close(copy);
        }
        return 0;
    }
    for (struct dirent *it; !found && (it = readdir(d));) {
        if (it->d_name[0] != '.' && strlen(it->d_name) < room &&
            note_read(folder, it->d_name, &note) && memcmp(note.boot, boot, sizeof boot) == 0 &&
            memcmp(&note.seen.source, &seen->source, sizeof seen->source) == 0 &&
            note.seen.tensor_bytes == seen->tensor_bytes) {
            *seen = note.seen;
            snprintf(out_entry, room, "%s", it->d_name);
            found = 1;
        }
    }
    closedir(d);
    return found;
}

void onnx_seen_write(int entry, const struct onnx_seen *seen)
{
    struct note note = {.kind = NOTE_KIND, .seen = *seen};
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (seen->source.changed_ns > now.tv_sec * NS_PER_S + now.tv_nsec - SETTLED ||
        !boot_read(note.boot)) {
        return;
    }
    note.sum = note_sum(&note);
    int fd = openat(entry, NOTE_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int ok = fd >= 0 && write(fd, &note, sizeof note) == sizeof note;
    if (fd >= 0) {
        close(fd);
    }
    if (!ok || renameat(entry, NOTE_NEW, entry, NOTE_NAME) != 0) {
        unlinkat(entry, NOTE_NEW, 0);
    }
}

void onnx_seen_remove(int entry)
{
    unlinkat(entry, NOTE_NAME, 0);
    unlinkat(entry, NOTE_NEW, 0);
}
