/* A folder into an archive, the same bytes for the same files: names in byte order, no times, no owners. */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"
#include "names.h"

#define CHUNK ((size_t)256 << 10)
#define DEPTH 32

struct packing {
    struct archive *out;
    const char *folder;
    const char *prefix;
    const char *path; /* of the archive */
    struct stat made; /* the archive itself, which may lie in the folder */
    char real[PATH_MAX];
    uint8_t *chunk;
    uint64_t files;
    struct mr_err *err;
};

static int fail_errno(const struct packing *p, const char *path)
{
    char text[128];

    return MR_FAIL(p->err, errno == ENOENT ? MR_E_NOT_FOUND : MR_E_IO, "%.300s: %s", path,
                   strerror_r(errno, text, sizeof text));
}

static int fail_write(const struct packing *p)
{
    const char *why = archive_error_string(p->out);

    return MR_FAIL(p->err, MR_E_IO, "%.300s: %.200s", p->path, why ? why : "it cannot be written");
}

static int data_copy(const struct packing *p, const char *full, int fd, uint64_t left)
{
    while (left > 0) {
        const ssize_t n = read(fd, p->chunk, MR_MIN(left, CHUNK));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n < 0 ? fail_errno(p, full)
                         : MR_FAIL(p->err, MR_E_IO, "%.300s: it became shorter while it was read",
                                   full);
        }
        if (archive_write_data(p->out, p->chunk, (size_t)n) < 0) {
            return fail_write(p);
        }
        left -= (uint64_t)n;
    }
    return MR_OK;
}

static int file_put(const struct packing *p, struct archive_entry *e, const char *full)
{
    struct stat st;
    const int fd = open(full, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int rc = fd < 0 || fstat(fd, &st) != 0 ? fail_errno(p, full) : MR_OK;

    if (rc == MR_OK) {
        archive_entry_set_size(e, st.st_size);
        rc = archive_write_header(p->out, e) == ARCHIVE_OK ? MR_OK : fail_write(p);
    }
    if (rc == MR_OK) {
        rc = data_copy(p, full, fd, (uint64_t)st.st_size);
    }
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static int link_put(const struct packing *p, struct archive_entry *e, const char *full)
{
    char to[PATH_MAX], real[PATH_MAX];
    const size_t root = strlen(p->real);
    const ssize_t n = readlink(full, to, sizeof to - 1);

    if (n < 0) {
        return fail_errno(p, full);
    }
    to[n] = '\0';
    if (to[0] == '/' || !realpath(full, real) || strncmp(real, p->real, root) != 0 ||
        (real[root] != '/' && real[root] != '\0')) {
        return MR_FAIL(p->err, MR_E_INVALID,
                       "%.300s is a link to '%.200s', which is not in the folder", full, to);
    }
    archive_entry_set_symlink(e, to);
    return archive_write_header(p->out, e) == ARCHIVE_OK ? MR_OK : fail_write(p);
}

static int folder_put(struct packing *p, const char *relative, int depth);

static int entry_put(struct packing *p, const char *relative, int depth)
{
    struct archive_entry *e = archive_entry_new();
    char full[PATH_MAX], name[PATH_MAX];
    struct stat st;
    int rc = MR_OK;

    if (!e || (size_t)snprintf(full, sizeof full, "%s/%s", p->folder, relative) >= sizeof full ||
        (size_t)snprintf(name, sizeof name, "%s%s%s", p->prefix, p->prefix[0] ? "/" : "",
                         relative) >= sizeof name) {
        rc = MR_FAIL(p->err, MR_E_INVALID, "%.300s: too long a name", relative);
    } else if (name_has_control(relative)) {
        rc = MR_FAIL(p->err, MR_E_INVALID, "%.300s: a name with control characters", relative);
    } else if (lstat(full, &st) != 0) {
        rc = fail_errno(p, full);
    } else if (st.st_ino != p->made.st_ino || st.st_dev != p->made.st_dev) {
        archive_entry_set_pathname(e, name);
        archive_entry_set_mtime(e, 0, 0);
        archive_entry_set_filetype(e, st.st_mode & AE_IFMT);
        archive_entry_set_perm(e, S_ISDIR(st.st_mode) || (st.st_mode & 0111) ? 0755 : 0644);
        p->files += !S_ISDIR(st.st_mode);
        if (S_ISDIR(st.st_mode)) {
            rc = archive_write_header(p->out, e) == ARCHIVE_OK ? folder_put(p, relative, depth + 1)
                                                               : fail_write(p);
        } else if (S_ISREG(st.st_mode)) {
            rc = file_put(p, e, full);
        } else if (S_ISLNK(st.st_mode)) {
            rc = link_put(p, e, full);
        } else {
            rc = MR_FAIL(p->err, MR_E_INVALID, "%.300s is neither file, folder nor link", full);
        }
    }
    archive_entry_free(e);
    return rc;
}

static int is_packed(const struct dirent *e)
{
    return e->d_name[0] != '.' && strcmp(e->d_name, "__pycache__") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int folder_put(struct packing *p, const char *relative, int depth)
{
    char path[PATH_MAX];
    struct dirent **list = NULL;
    int rc = MR_OK;

    if (depth > DEPTH) {
        return MR_FAIL(p->err, MR_E_TOO_LARGE, "%.300s: folders deeper than %d levels", relative,
                       DEPTH);
    }
    snprintf(path, sizeof path, "%s/%s", p->folder, relative);
    const int count = scandir(path, &list, is_packed, by_bytes);
    if (count < 0) {
        return fail_errno(p, path);
    }
    for (int i = 0; i < count; i++) {
        if (rc == MR_OK &&
            (size_t)snprintf(path, sizeof path, "%s%s%s", relative, relative[0] ? "/" : "",
                             list[i]->d_name) >= sizeof path) {
            rc = MR_FAIL(p->err, MR_E_INVALID, "%.300s: too long a name", relative);
        }
        if (rc == MR_OK) {
            rc = entry_put(p, path, depth);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

static int format_set(const struct packing *p)
{
    const mr_str name = mr_str_c(p->path);
    int got = ARCHIVE_OK;

    if (!mr_archive_is_name(name, NULL)) {
        return MR_FAIL(p->err, MR_E_INVALID,
                       "%.300s: an archive's name ends in .tar, .tar.gz, .tgz, .tar.zst or .zip",
                       p->path);
    }
    if (mr_str_ends(name, MR_STR(".zip"))) {
        got = archive_write_set_format_zip(p->out);
    } else {
        got = archive_write_set_format_pax_restricted(p->out);
    }
    if (got == ARCHIVE_OK && mr_str_ends(name, MR_STR("gz"))) {
        got = archive_write_add_filter_gzip(p->out);
        got = got == ARCHIVE_OK ? archive_write_set_options(p->out, "gzip:!timestamp") : got;
    } else if (got == ARCHIVE_OK && mr_str_ends(name, MR_STR(".zst"))) {
        got = archive_write_add_filter_zstd(p->out);
    }
    return got == ARCHIVE_OK ? MR_OK : fail_write(p);
}

static int prefix_put(const struct packing *p)
{
    struct archive_entry *e = p->prefix[0] ? archive_entry_new() : NULL;
    int rc = MR_OK;

    if (e) {
        archive_entry_set_pathname(e, p->prefix);
        archive_entry_set_mtime(e, 0, 0);
        archive_entry_set_filetype(e, AE_IFDIR);
        archive_entry_set_perm(e, 0755);
        rc = archive_write_header(p->out, e) == ARCHIVE_OK ? MR_OK : fail_write(p);
        archive_entry_free(e);
    }
    return rc;
}

int mr_archive_pack(const char *folder, const char *prefix, const char *path, uint64_t *out_files,
                    struct mr_err *err)
{
    struct packing p = {.folder = folder, .prefix = prefix, .path = path, .err = err};
    locale_t before = names_begin();
    int fd = -1;
    int rc;

    p.out = archive_write_new();
    p.chunk = mr_alloc(CHUNK);
    if (!p.out) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for an archive");
        goto out;
    }
    MR_TRY(format_set(&p));
    if (!realpath(folder, p.real)) {
        rc = fail_errno(&p, folder);
        goto out;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno == EEXIST) {
        rc = MR_FAIL(err, MR_E_EXISTS, "%.300s is there already", path);
        goto out;
    }
    if (fd < 0 || fstat(fd, &p.made) != 0) {
        rc = fail_errno(&p, path);
        goto out;
    }
    if (archive_write_open_fd(p.out, fd) != ARCHIVE_OK) {
        rc = fail_write(&p);
        goto out;
    }
    MR_TRY(prefix_put(&p));
    MR_TRY(folder_put(&p, "", 0));
    if (archive_write_close(p.out) != ARCHIVE_OK) {
        rc = fail_write(&p);
        goto out;
    }
    if (fsync(fd) != 0) {
        rc = fail_errno(&p, path);
        goto out;
    }
    if (out_files) {
        *out_files = p.files;
    }
out:
    archive_write_free(p.out);
    names_end(before);
    mr_free(p.chunk);
    if (fd >= 0) {
        close(fd);
        if (rc < 0) {
            unlink(path);
        }
    }
    return rc;
}
