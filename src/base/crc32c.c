/* CRC-32C: polynomial 0x1EDC6F41, reflected, complemented before and after. x86-64 has an instruction for
 * it (SSE4.2); elsewhere eight tables, built by the first call, process eight bytes a step. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#include "base_priv.h"

#define POLYNOMIAL 0x82f63b78u

static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        tables[0][i] = crc;
    }
    for (uint32_t i = 0; i < 256; i++) {
        for (int k = 1; k < 8; k++) {
            const uint32_t before = tables[k - 1][i];
            tables[k][i] = before >> 8 ^ tables[0][before & 255];
        }
    }
}

static inline uint32_t load_u32le(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t mr_crc32c_by_table(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;

    pthread_once(&tables_once, make_tables);
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        const uint32_t low = crc ^ load_u32le(p);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
              tables[4][low >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
              tables[0][p[7]];
    }
    for (; len > 0; len--, p++) {
        crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
    }
    return ~crc;
}

#ifdef __x86_64__

bool mr_crc32c_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

__attribute__((target("sse4.2"))) uint32_t mr_crc32c_by_instruction(uint32_t crc, const void *data,
                                                                    size_t len)
{
    const uint8_t *p = data;
    uint64_t wide = (uint32_t)~crc;

    for (; len >= 8; len -= 8, p += 8) {
        uint64_t eight;
        memcpy(&eight, p, sizeof eight);
        wide = __builtin_ia32_crc32di(wide, eight);
    }
    crc = (uint32_t)wide;
    for (; len > 0; len--, p++) {
        crc = __builtin_ia32_crc32qi(crc, *p);
    }
    return ~crc;
}

#else

bool mr_crc32c_has_instruction(void)
{
    return false;
}

uint32_t mr_crc32c_by_instruction(uint32_t crc, const void *data, size_t len)
{
    return mr_crc32c_by_table(crc, data, len);
}

#endif

uint32_t mr_crc32c(uint32_t crc, const void *data, size_t len)
{
    return mr_crc32c_has_instruction() ? mr_crc32c_by_instruction(crc, data, len)
                                       : mr_crc32c_by_table(crc, data, len);
}
