/* An archive into a folder.
 *
 * libarchive reads; the files are made here, with descriptors: each part of a path is opened by openat without following
 * links, so that an entry is never written through a link that the archive has made before. Links are made as the archive
 * has them, and when everything is there each is resolved: one that leads out fails the archive, one that leads to nothing is
 * removed. The folder is not in use until then. Names in the archive are judged before anything is made of them.
 *
 * The formats that are read are tar and zip, the compressions gzip and zstd; libarchive's programs for others are not
 * asked for. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "archive/archive.h"
#include "base/mem.h"
#include "base/vec.h"
#include "gzip.h"
#include "names.h"

#define READ_AT_ONCE ((size_t)256 << 10)
#define RATIO_FREE   (UINT64_C(64) << 20)

struct unpacking {
    const char *name; /* of the archive */
    const char *dir;
    const struct mr_archive_rules *rules;
    struct archive *in;
    struct gzip *gzip; /* what `in` reads; NULL: the file itself */
    int root;          /* descriptor of dir */
    uint64_t bytes;
    uint64_t files;
    MR_VEC(char *) links; /* their paths */
    struct mr_err *err;
};

bool mr_archive_is_name(mr_str name, mr_str *out_stem)
{
    static const mr_str ends[] = {MR_STR_INIT(".tar"), MR_STR_INIT(".tar.gz"), MR_STR_INIT(".tgz"),
                                  MR_STR_INIT(".tar.zst"), MR_STR_INIT(".zip")};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (name.len > ends[i].len && mr_str_ends(name, ends[i])) {
            if (out_stem) {
                *out_stem = mr_str_sub(name, 0, name.len - ends[i].len);
            }
            return true;
        }
    }
    return false;
}

static int fail_errno(const struct unpacking *u, const char *path)
{
    char text[128];
    const int error = errno;

    return MR_FAIL(u->err, error == ENOMEM ? MR_E_NOMEM : MR_E_IO, "%.200s: '%.200s': %s", u->name,
                   path, strerror_r(error, text, sizeof text));
}

static int fail_entry(const struct unpacking *u, const char *path, const char *why)
{
    return MR_FAIL(u->err, MR_E_INVALID, "%.200s: entry '%.200s' %s", u->name, path, why);
}

static int fail_damaged(const struct unpacking *u, const char *why)
{
    return MR_FAIL(u->err, MR_E_INVALID,
                   "%.200s is no whole archive (.tar, .tar.gz, .tar.zst, .zip): %.200s", u->name,
                   why ? why : "it is damaged");
}

static int fail_format(const struct unpacking *u)
{
    return fail_damaged(u, archive_error_string(u->in));
}

/* ---- limits ---- */

/* Of the archive, so far. */
static int64_t packed_bytes(const struct unpacking *u)
{
    return u->gzip ? gzip_packed(u->gzip) : archive_filter_bytes(u->in, -1);
}

static int bytes_count(struct unpacking *u, const char *path, uint64_t more)
{
    const struct mr_archive_limits *most = &u->rules->limits;
    const int64_t packed = packed_bytes(u);

    if (more > most->bytes - u->bytes) {
        return MR_FAIL(u->err, MR_E_TOO_LARGE,
                       "%.200s: with '%.200s' it unpacks to more than %llu bytes", u->name, path,
                       (unsigned long long)most->bytes);
    }
    u->bytes += more;
    if (u->bytes > RATIO_FREE && u->bytes / most->ratio > (packed > 0 ? (uint64_t)packed : 1)) {
        return MR_FAIL(u->err, MR_E_TOO_LARGE,
                       "%.200s: with '%.200s' it unpacks to more than %u times its size", u->name,
                       path, most->ratio);
    }
    return MR_OK;
}

static int entry_count(struct unpacking *u)
{
    const struct mr_archive_rules *r = u->rules;
    const int64_t packed = packed_bytes(u);

    if (u->files++ >= r->limits.files) {
        return MR_FAIL(u->err, MR_E_TOO_LARGE, "%.200s: more than %llu files", u->name,
                       (unsigned long long)r->limits.files);
    }
    return !r->on_progress || r->on_progress(r->ctx, packed > 0 ? (uint64_t)packed : 0)
               ? MR_OK
               : MR_FAIL(u->err, MR_E_CANCELLED, "%.200s: no longer wanted", u->name);
}

/* ---- names ---- */

/* The entry's path without "." and empty parts, on the heap; "" is the folder itself. */
static int path_clean(const struct unpacking *u, const char *given, char **out)
{
    const size_t len = strlen(given);
    mr_str rest = mr_str_c(given), part;
    uint32_t depth = 0;
    size_t used = 0;

    if (name_has_control(given)) {
        return MR_FAIL(u->err, MR_E_INVALID, "%.200s: an entry's name has control characters",
                       u->name);
    }
    if (given[0] == '/') {
        return fail_entry(u, given, "has an absolute name");
    }
    if (len >= PATH_MAX / 2) {
        return fail_entry(u, given, "has too long a name");
    }
    char *path = mr_alloc(len + 1);
    while (mr_str_split(&rest, '/', &part)) {
        if (part.len == 0 || mr_str_eq_c(part, ".")) {
            continue;
        }
        if (mr_str_eq_c(part, "..") || part.len > NAME_MAX || ++depth > u->rules->limits.depth) {
            mr_free(path);
            return fail_entry(u, given,
                              depth > u->rules->limits.depth ? "lies too deep"
                              : part.len > NAME_MAX          ? "has too long a name"
                                                             : "leads out of the archive by '..'");
        }
        used += (size_t)snprintf(path + used, len + 1 - used, "%s%.*s", used ? "/" : "",
                                 MR_STR_ARG(part));
    }
    *out = path;
    return MR_OK;
}

/* ---- folders ---- */

/* One part of a path as a descriptor; the folder is made if it is not there. */
static int folder_enter(int at, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags);

    if (fd < 0 && errno == ENOENT && (mkdirat(at, name, 0755) == 0 || errno == EEXIST)) {
        fd = openat(at, name, flags);
    }
    return fd;
}

/* Opens the folder that `path` lies in. *out_name: its last part. */
static int parent_open(const struct unpacking *u, const char *path, int *out, const char **out_name)
{
    char part[NAME_MAX + 1];
    const char *slash;
    int fd = dup(u->root);

    while (fd >= 0 && (slash = strchr(path, '/'))) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        const int next = folder_enter(fd, part);
        const int error = errno;
        close(fd);
        errno = error;
        fd = next;
        path = slash + 1;
    }
    if (fd < 0) {
        return errno == ELOOP || errno == ENOTDIR
                   ? fail_entry(u, path, "lies in something that is no folder")
                   : fail_errno(u, path);
    }
    *out = fd;
    *out_name = path;
    return MR_OK;
}

/* ---- entries ---- */

/* size: of the entry, as far as the archive says it; a sparse file may end with a hole, of which no data come. */
static int data_write(struct unpacking *u, const char *path, int fd, int64_t size)
{
    const void *data;
    size_t len;
    la_int64_t offset = 0, end = 0;
    int got, rc = MR_OK;

    while (rc == MR_OK &&
           (got = archive_read_data_block(u->in, &data, &len, &offset)) != ARCHIVE_EOF) {
        if (got != ARCHIVE_OK || offset < end || len > (size_t)INT64_MAX - (uint64_t)offset) {
            return fail_format(u);
        }
        rc = bytes_count(u, path, (uint64_t)(offset - end) + len);
        end = offset + (la_int64_t)len;
        for (const char *p = data; rc == MR_OK && len > 0;) {
            const ssize_t n = pwrite(fd, p, len, offset);
            if (n < 0 && errno != EINTR) {
                rc = fail_errno(u, path);
            } else if (n > 0) {
                p += n;
                offset += n;
                len -= (size_t)n;
            }
        }
    }
    if (rc == MR_OK && size > end) {
        rc = bytes_count(u, path, (uint64_t)(size - end));
        end = size;
    }
    return rc == MR_OK && ftruncate(fd, end) != 0 ? fail_errno(u, path) : rc;
}

static int make_error(const struct unpacking *u, const char *path)
{
    return errno == EEXIST ? fail_entry(u, path, "is in the archive twice") : fail_errno(u, path);
}

/* Of an environment the later one of two files counts: venv-pack puts pyvenv.cfg into each of its archives twice. */
static bool is_replaced(const struct unpacking *u, int at, const char *name)
{
    struct stat st;

    return (u->rules->flags & MR_ARCHIVE_ENVIRONMENT) &&
           fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           unlinkat(at, name, 0) == 0;
}

static int file_make(struct unpacking *u, struct archive_entry *e, const char *path, int at,
                     const char *name)
{
    const mode_t mode = archive_entry_perm(e) & 0111 ? 0755 : 0644;
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags, mode);

    if (fd < 0 && errno == EEXIST && is_replaced(u, at, name)) {
        fd = openat(at, name, flags, mode);
    }
    if (fd < 0) {
        return make_error(u, path);
    }
    int rc = data_write(u, path, fd, archive_entry_size(e));
    if (rc == MR_OK && archive_entry_mtime_is_set(e)) {
        const struct timespec times[2] = {
            {.tv_nsec = UTIME_OMIT},
            {archive_entry_mtime(e), MR_MIN(MR_MAX(archive_entry_mtime_nsec(e), 0L), 999999999L)}};
        (void)futimens(fd,
                       times); /* a time that the file system cannot have is no reason to fail */
    }
    if (close(fd) != 0 && rc == MR_OK) {
        rc = fail_errno(u, path);
    }
    return rc;
}

/* Python environments lie elsewhere than the interpreter that they were made for. */
static bool is_interpreter(const struct unpacking *u, const char *path)
{
    return (u->rules->flags & MR_ARCHIVE_ENVIRONMENT) && strncmp(path, "bin/python", 10) == 0 &&
           !strchr(path + 4, '/');
}

/* By its words alone: whether the link's target is above the archive. What they lead to is looked at when all is there. */
static bool is_above(const char *path, const char *to)
{
    mr_str rest = mr_str_c(to), part;
    long depth = 0;

    for (; (path = strchr(path, '/')); path++) {
        depth++;
    }
    while (depth >= 0 && mr_str_split(&rest, '/', &part)) {
        depth += mr_str_eq_c(part, "..") ? -1 : part.len > 0 && !mr_str_eq_c(part, ".");
    }
    return depth < 0;
}

static int link_make(struct unpacking *u, struct archive_entry *e, const char *path, int at,
                     const char *name)
{
    const char *to = archive_entry_symlink(e);

    const bool is_absolute = to && to[0] == '/';

    if (!to || !to[0] || strlen(to) >= PATH_MAX ||
        (is_absolute ? !is_interpreter(u, path) : is_above(path, to))) {
        return fail_entry(u, path, "is a link that leads out of the archive");
    }
    if (symlinkat(to, at, name) != 0) {
        return make_error(u, path);
    }
    if (!is_interpreter(u, path)) {
        MR_VEC_PUSH(&u->links, mr_strndup(path, strlen(path)));
    }
    return MR_OK;
}

/* A second name of a file. */
static int name_make(struct unpacking *u, const char *given, const char *path, int at,
                     const char *name)
{
    const char *old_name;
    char *old = NULL;
    struct stat st;
    int old_at = -1;
    int rc;

    MR_TRY(path_clean(u, given, &old));
    MR_TRY(parent_open(u, old, &old_at, &old_name));
    if (!old_name[0] || fstatat(old_at, old_name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(st.st_mode)) {
        rc = fail_entry(u, path, "is a hard link to a file that does not exist");
    } else if (linkat(old_at, old_name, at, name, 0) != 0) {
        rc = make_error(u, path);
    }
out:
    if (old_at >= 0) {
        close(old_at);
    }
    mr_free(old);
    return rc;
}

static int entry_make(struct unpacking *u, struct archive_entry *e, const char *path)
{
    const mode_t type = archive_entry_filetype(e);
    const char *second = archive_entry_hardlink(e);
    const char *name;
    int at, rc;

    MR_TRY(parent_open(u, path, &at, &name));
    if (second) {
        rc = name_make(u, second, path, at, name);
    } else if (type == AE_IFDIR) {
        const int fd = folder_enter(at, name);
        rc = fd >= 0 ? MR_OK : fail_entry(u, path, "is a folder, and something else before");
        if (fd >= 0) {
            close(fd);
        }
    } else if (type == AE_IFREG) {
        rc = file_make(u, e, path, at, name);
    } else if (type == AE_IFLNK) {
        rc = link_make(u, e, path, at, name);
    } else {
        rc = fail_entry(u, path, "is neither file, folder nor link");
    }
    close(at);
out:
    return rc;
}

static int entry_unpack(struct unpacking *u, struct archive_entry *e)
{
    const char *given = archive_entry_pathname(e);
    char *path = NULL;
    int rc;

    given = given ? given : archive_entry_pathname_utf8(e);
    MR_TRY(entry_count(u));
    if (!given) {
        rc = MR_FAIL(u->err, MR_E_INVALID, "%.200s: an entry has no readable name", u->name);
        goto out;
    }
    if (archive_entry_is_encrypted(e)) {
        rc = fail_entry(u, given, "is encrypted");
        goto out;
    }
    MR_TRY(path_clean(u, given, &path));
    if (path[0]) {
        MR_TRY(entry_make(u, e, path));
    } else if (archive_entry_filetype(e) != AE_IFDIR) {
        rc = fail_entry(u, given, "has no name");
    }
out:
    mr_free(path);
    return rc;
}

/* ---- links, when all is there ---- */

static int link_check(const struct unpacking *u, const char *root, const char *path)
{
    char full[PATH_MAX], real[PATH_MAX];
    const size_t len = strlen(root);

    if ((size_t)snprintf(full, sizeof full, "%s/%s", root, path) >= sizeof full) {
        return fail_entry(u, path, "has too long a name");
    }
    if (!realpath(full, real)) {
        return unlink(full) == 0 ? MR_OK : fail_errno(u, path);
    }
    return strncmp(real, root, len) == 0 && (real[len] == '/' || real[len] == '\0')
               ? MR_OK
               : fail_entry(u, path, "is a link that leads out of the archive");
}

static int links_check(const struct unpacking *u)
{
    char root[PATH_MAX];
    int rc = realpath(u->dir, root) ? MR_OK : fail_errno(u, u->dir);

    for (size_t i = 0; i < u->links.len && rc == MR_OK; i++) {
        rc = link_check(u, root, u->links.at[i]);
    }
    return rc;
}

/* ---- the whole ---- */

static int archive_open(struct unpacking *u, int fd)
{
    u->in = archive_read_new();
    if (!u->in) {
        return MR_FAIL(u->err, MR_E_NOMEM, "no memory to read %.200s", u->name);
    }
    archive_read_support_format_tar(u->in);
    archive_read_support_format_zip(u->in);
    archive_read_support_filter_gzip(u->in);
    archive_read_support_filter_zstd(u->in);
    if (gzip_is(fd) && !(u->gzip = gzip_new(fd))) {
        return fail_errno(u, "");
    }
    const int got =
        u->gzip ? gzip_open(u->gzip, u->in) : archive_read_open_fd(u->in, fd, READ_AT_ONCE);
    return got == ARCHIVE_OK ? MR_OK : fail_format(u);
}

/* The checksum of a gzip file stands at its end, which is after that of the archive in it. */
static int rest_check(struct unpacking *u)
{
    const char *why;
    int n = 0, rc = MR_OK;

    while (u->gzip && rc == MR_OK && (n = gzip_rest(u->gzip, &why)) != 0) {
        rc = n < 0 ? fail_damaged(u, why) : bytes_count(u, "", (uint64_t)n);
    }
    return rc;
}

static int entries_unpack(struct unpacking *u)
{
    struct archive_entry *e;
    int got, rc = MR_OK;

    while (rc == MR_OK && (got = archive_read_next_header(u->in, &e)) != ARCHIVE_EOF) {
        rc = got == ARCHIVE_OK || got == ARCHIVE_WARN ? entry_unpack(u, e) : fail_format(u);
    }
    return rc;
}

int mr_archive_unpack(int fd, const char *name, const char *dir,
                      const struct mr_archive_rules *rules, struct mr_err *err)
{
    struct unpacking u = {.name = name, .dir = dir, .rules = rules, .err = err};
    int rc = MR_OK;

    u.root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (u.root < 0) {
        return fail_errno(&u, dir);
    }
    locale_t before = names_begin();
    MR_TRY(archive_open(&u, fd));
    MR_TRY(entries_unpack(&u));
    MR_TRY(rest_check(&u));
    MR_TRY(links_check(&u));
out:
    for (size_t i = 0; i < u.links.len; i++) {
        mr_free(u.links.at[i]);
    }
    MR_VEC_FINI(&u.links);
    archive_read_free(u.in);
    gzip_free(&u.gzip);
    names_end(before);
    close(u.root);
    return rc;
}
