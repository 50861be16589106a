/* Tables of CSV. */
#define FORMAT MR_TABLE_CSV
#include "fuzz_table.h"
