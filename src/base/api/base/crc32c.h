/* CRC-32C (Castagnoli), the checksum of journals and files that Millrace writes. */
#ifndef MR_BASE_CRC32C_H
#define MR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Checksum of what `crc` stands for followed by `len` bytes; begin with 0. In pieces or at once, the
 *  value is the same. Uses the CPU's instruction where it has one. Thread: any.
 *  Source: RFC 3720 section 12.1, appendix B.4. */
uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len);

#endif
