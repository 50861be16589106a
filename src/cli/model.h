/* `millrace model`, between its files. */
#ifndef MR_CLI_MODEL_H
#define MR_CLI_MODEL_H

#include "base/options.h"
#include "remote.h"

enum model_form { MODEL_AUTO, MODEL_TABLE, MODEL_PLAIN, MODEL_JSON };

struct model_options {
    const char *url;
    struct mr_tls_client_options tls;
    int64_t timeout_ns;
    int form; /* enum model_form */
    bool json;
    bool ready;
    const char *version;
    const char *config;
    struct mr_option_list files;
    bool dependents;
};

struct model_run {
    struct model_options opt;
    struct mr_remote remote;
    const char *name;        /* NULL: all */
    const char *const *more; /* what stands behind the name, NULL-terminated */
    int form;                /* never MODEL_AUTO */
};

/* model_print.c: what the server answered, as table, lines or as it is */
int model_print_list(const struct model_run *m, mr_bytes body, struct mr_err *err);
int model_print_stats(const struct model_run *m, mr_bytes body, struct mr_err *err);

/* model_versions.c: the verbs about versions */
int model_run_versions(struct model_run *m, struct mr_err *err);
int model_run_label(struct model_run *m, struct mr_err *err);
int model_run_rollback(struct model_run *m, struct mr_err *err);

/* model.c: POST /v2/repository/models/NAME/VERB, and one line that says it was `done` */
int model_post(struct model_run *m, const char *verb, const char *done, const struct mr_buf *body,
               struct mr_err *err);

#endif
