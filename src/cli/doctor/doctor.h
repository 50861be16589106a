/* Shared by the files of `millrace doctor`. */
#ifndef MR_CLI_DOCTOR_H
#define MR_CLI_DOCTOR_H

#include "base/buf.h"
#include "base/options.h"
#include "base/vec.h"

enum finding_level {
    FINDING_INFO, /* a fact */
    FINDING_OK,   /* a fact without a problem */
    FINDING_WARN, /* works, but slower or with less room */
    FINDING_BAD   /* does not work */
};

struct finding {
    enum finding_level level;
    const char *name; /* "memory" */
    char *text;       /* what was found */
    char *advice;     /* a remedy, or NULL */
};

struct doctor {
    MR_VEC(struct finding) list;
};

/** Adds a finding; advice may be NULL. */
void doctor_say(struct doctor *d, enum finding_level level, const char *name, const char *advice,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* doctor_machine.c: processor, memory, kernel, limits */
void doctor_machine(struct doctor *d);
/* doctor_cache.c: the cache of large models' weights */
void doctor_cache(struct doctor *d);
/* doctor_python.c: the interpreter of Python models; runs it */
void doctor_python(struct doctor *d);
/* doctor_server.c: backends, ports */
void doctor_backends(struct doctor *d, const struct mr_option_list *dirs);
void doctor_ports(struct doctor *d, const int *ports, size_t count);

#endif
