/* The checks whether a file of boosted trees is whole: they stay within it, and what is cut off a whole value of UBJSON
 * makes it no whole one. */
#include "fuzz.h"

#include "trees/whole.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    uint8_t *exact = malloc(size + !size); /* so that a byte too far is noticed */

    REQUIRE(text && exact);
    memcpy(text, data, size);
    text[size] = '\0';
    memcpy(exact, data, size);
    whole_lightgbm(text, size);
    REQUIRE(!whole_ubjson(exact, size) || !whole_ubjson(exact, size - 1));
    free(exact);
    free(text);
    return 0;
}
