#include "extent.h"

void extent_free(struct extent **extent)
{
    struct extent *e = *extent;

    for (size_t i = 0; i < e->answers.len; i++) {
        mr_rows_unref(&e->answers.at[i].rows);
    }
    for (size_t i = 0; i < e->dead.len; i++) {
        mr_free(e->dead.at[i].cause);
        mr_free(e->dead.at[i].answer.text);
    }
    MR_VEC_FINI(&e->answers);
    MR_VEC_FINI(&e->dead);
    mr_rows_unref(&e->rows);
    mr_freep(extent);
}
