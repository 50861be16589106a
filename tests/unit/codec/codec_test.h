/* cmocka in the order of includes that it needs, and the few helpers that the codec tests share. */
#ifndef MR_TEST_CODEC_TEST_H
#define MR_TEST_CODEC_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/** Fails the test, naming the row of a table. */
#define CHECK_ROW(cond, row, ...)                                                                  \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("row %zu: ", (size_t)(row));                                               \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail_msg("%s", #cond);                                                                 \
        }                                                                                          \
    } while (0)

/** A copy of exactly the text's size on the heap, so that AddressSanitizer sees a read past the
 *  end. */
static inline char *exact_copy(mr_str s)
{
    char *copy = malloc(s.len ? s.len : 1);
    assert_non_null(copy);
    if (s.len > 0) {
        memcpy(copy, s.ptr, s.len);
    }
    return copy;
}

#endif
