/* CRC-32C (Castagnoli), the checksum of journals and files that Millrace writes. */
#ifndef MR_BASE_CRC32C_H
#define MR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Continues a checksum over `len` more bytes; `crc` is 0 at first. The value does not depend on how the data is cut
 *  into pieces. Uses the CPU's instruction if it has one. Thread: any.
 *  Source: RFC 3720 section 12.1, appendix B.4. */
uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len);

#endif
