/* A host of a job, as its parts see it. On the loop's thread. */
#ifndef MR_BATCH_HOST_H
#define MR_BATCH_HOST_H

#include "base/vec.h"
#include "batch/policy/retry_policy.h"
#include "batch/transport/transport.h"
#include "figures.h"

struct dialect_model;
struct hosts;

/** When a host is compared with others. */
struct cross_check_clock {
    uint64_t answers;
    uint64_t checks;
    uint64_t check_at;  /* answers */
    uint64_t sample_at; /* the same */
    uint64_t checked;   /* the same, when it was compared last */
    bool is_compared;   /* with another host, once at least */
    uint32_t silences;  /* at the end: trials that it gave no answer to */
};

struct host {
    struct hosts *hosts; /* it is one of */
    struct dialect_model *model;
    char *url;            /* as its lists have it */
    MR_VEC(size_t) lists; /* that name it */
    bool is_listed;       /* it may get calls */
    bool is_wanted;       /* while a list is taken over: that names it */
    bool is_new;          /* the same; it was not listed before */
    struct transport transport;
    uint32_t id;         /* in `balance`; 0: its metadata has not come yet */
    bool is_cordoned;    /* it gets no calls: it does not serve the model */
    bool is_quarantined; /* nor is it asked again */
    bool is_asking;
    void (*reported)(struct host *h, int rc,
                     const struct mr_err *err); /* the end of a dialect.ask */
    int64_t ask_at_ns;
    int64_t ask_timeout_ns;
    bool sends_floats; /* openai_ask.c: it does not know base64 */
    uint32_t in_flight;
    char trouble[560]; /* why it is not used */
    int64_t heard_ns;  /* the last answer of any use, or when it was listed */
    struct retry_host retry;
    uint32_t lasting; /* consecutive answers of a lasting kind, before the host served a row */
    char lasting_text[160];
    uint64_t rows;
    uint64_t calls;
    uint64_t failures;
    char version[32]; /* as it reported */
    struct cross_check_clock cross_check;
    struct host_figures figures;
};

#endif
