/* Growable typed arrays: MR_VEC(int) v = {0}; MR_VEC_PUSH(&v, 3); MR_VEC_FINI(&v).
 * Aborts without memory, so not for counts that a peer chooses without a limit. */
#ifndef MR_BASE_VEC_H
#define MR_BASE_VEC_H

#include "base/mem.h"

#define MR_VEC(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t len;                                                                                \
        size_t cap;                                                                                \
    }

#define MR_VEC_PUSH(v, item)                                                                       \
    do {                                                                                           \
        if ((v)->len == (v)->cap) {                                                                \
            (v)->cap = (v)->cap ? (v)->cap * 2 : 8;                                                \
            (v)->at = mr_realloc_array((v)->at, (v)->cap, sizeof *(v)->at);                        \
        }                                                                                          \
        (v)->at[(v)->len++] = (item);                                                              \
    } while (0)

#define MR_VEC_FINI(v) (mr_free((v)->at), (v)->at = NULL, (v)->len = (v)->cap = 0)

#endif
