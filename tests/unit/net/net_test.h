/* What the tests of net share. */
#ifndef NET_TEST_H
#define NET_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

#define assert_str(slice, text)                                                                    \
    do {                                                                                           \
        assert_int_equal((slice).len, strlen(text));                                               \
        assert_memory_equal((slice).ptr, (text), (slice).len);                                     \
    } while (0)

/* A heap copy of exactly n bytes, so that ASan detects a read past them. */
static inline char *exact_copy(const void *p, size_t n)
{
    char *copy = malloc(n ? n : 1);
    if (n) {
        memcpy(copy, p, n);
    }
    return copy;
}

#endif
