/* What a hostile worker writes, and when, between the steps of the server (tests/unit/shm/hostile.h). */
#include "fuzz.h"

#include "hostile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hostile_run("input", data, size);
    return 0;
}
