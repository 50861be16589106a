/* gzip files as libarchive's input. libarchive unpacks them itself, but does not look at their checksums. */
#ifndef MR_ARCHIVE_GZIP_H
#define MR_ARCHIVE_GZIP_H

#include <archive.h>
#include <stdbool.h>
#include <stdint.h>

struct gzip;

/** Whether the file has gzip's first bytes at its position, which stays. */
bool gzip_is(int fd);
/** Reads the file from its position on. The descriptor stays the caller's. NULL: no memory or descriptor is left. */
struct gzip *gzip_new(int fd);
void gzip_free(struct gzip **g);
/** Has libarchive read what is unpacked. Its result. `g` outlives `a`. */
int gzip_open(struct gzip *g, struct archive *a);
/** Unpacks a part of what libarchive has left, as far as the end and the checksum there. The number of bytes; 0: all is read;
 *  negative: the file is damaged, *out_why says how. */
int gzip_rest(struct gzip *g, const char **out_why);
/** Bytes of the file that have been read. */
int64_t gzip_packed(const struct gzip *g);

#endif
