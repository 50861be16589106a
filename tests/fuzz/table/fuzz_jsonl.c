/* Tables of JSON lines. */
#define FORMAT MR_TABLE_JSONL
#include "fuzz_table.h"
