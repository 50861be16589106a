/* Archives of files (.tar, .tar.gz, .tgz, .tar.zst, .zip) into folders and back, by libarchive.
 *
 * An archive is foreign: what it unpacks to is limited, and nothing in it, whatever its names and links say, is
 * written or leads outside of the folder it is unpacked into. Everything here blocks. Thread: any. */
#ifndef MR_ARCHIVE_ARCHIVE_H
#define MR_ARCHIVE_ARCHIVE_H

#include "base/err.h"
#include "base/str.h"

/** Limits of one archive. */
struct mr_archive_limits {
    uint64_t bytes; /* of all files together, unpacked */
    uint64_t files; /* files, folders and links */
    uint32_t depth; /* parts of a path */
    uint32_t ratio; /* unpacked bytes per packed byte, beyond the first 64 MiB */
};
#define MR_ARCHIVE_LIMITS                                                                          \
    {                                                                                              \
        .bytes = UINT64_C(1) << 40, .files = 1000000, .depth = 32, .ratio = 500                    \
    }

/** The file is a Python environment: bin/python… may be links to an interpreter elsewhere, by an absolute path, and of two
 *  files by one name the later one counts. */
#define MR_ARCHIVE_ENVIRONMENT 1u

struct mr_archive_rules {
    struct mr_archive_limits limits;
    uint32_t flags; /* MR_ARCHIVE_* */
    /** (may be NULL) Called now and then with the packed bytes read so far. False: unpacking ends with MR_E_CANCELLED. */
    bool (*on_progress)(void *ctx, uint64_t done);
    void *ctx;
};

/** Whether a file name ends as an archive's does; *out_stem (may be NULL): the name without that end, not empty. */
bool mr_archive_is_name(mr_str name, mr_str *out_stem);

/** Unpacks the archive that is open for reading in `fd`, from its position on, into the empty folder `dir`. `name`: for
 *  error texts. Regular files, folders, and links to what is in the archive; permissions are 0755 and 0644, less the
 *  umask; times are the archive's. After an error the folder has a part of it. Errors: MR_E_INVALID (no archive; damaged;
 *  an entry that may not be there), MR_E_TOO_LARGE (a limit), MR_E_CANCELLED, MR_E_IO, MR_E_NOMEM. */
int mr_archive_unpack(int fd, const char *name, const char *dir,
                      const struct mr_archive_rules *rules, struct mr_err *err);

/** Writes the folder's files into a new archive of the kind that the name `path` says. The same files give the same
 *  bytes: entries are sorted, without times and owners. Hidden files and __pycache__ are left out. `prefix`: a folder that
 *  all entries are put in, "" = none. *out_files (may be NULL): their number. Errors: MR_E_INVALID (no such kind; a link
 *  out of the folder; a file that is neither file, folder nor link), MR_E_EXISTS, MR_E_NOT_FOUND, MR_E_IO. */
int mr_archive_pack(const char *folder, const char *prefix, const char *path, uint64_t *out_files,
                    struct mr_err *err);

/** SHA-256 of a file's rest, in hexadecimal. Errors: MR_E_IO. */
#define MR_SHA256_TEXT 65
int mr_sha256_fd(int fd, const char *name, char out[MR_SHA256_TEXT], struct mr_err *err);
/** Of several texts, one after the other, each with its length before it. */
struct mr_sha256;
struct mr_sha256 *mr_sha256_new(void);
void mr_sha256_add(struct mr_sha256 *s, mr_str text);
/** Ends it and frees it. */
void mr_sha256_end(struct mr_sha256 **s, char out[MR_SHA256_TEXT]);

/** Removes a folder or file with all that is in it; links are not followed. Nothing there is no error. Errors: MR_E_IO. */
int mr_tree_remove(const char *path, struct mr_err *err);
/** Bytes on the disk of all that is in a folder. */
uint64_t mr_tree_bytes(const char *path);

#endif
