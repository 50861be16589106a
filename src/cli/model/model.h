/* Shared by the files of `millrace model`. */
#ifndef MR_CLI_MODEL_H
#define MR_CLI_MODEL_H

#include <limits.h>

#include "base/options.h"
#include "cli/common/remote.h"

enum model_form { MODEL_AUTO, MODEL_TABLE, MODEL_PLAIN, MODEL_JSON };

struct model_options {
    const char *url;
    struct mr_remote_access access;
    int64_t timeout_ns;
    int form; /* enum model_form */
    bool json;
    bool ready;
    const char *version;
    const char *config;
    const char *from, *sha256;
    struct mr_option_list files;
    bool dependents;
    uint32_t requests;
    uint32_t every;
    int64_t record_ns;
    bool stop;
    bool wait;
    const char *to;
    const char *python;
    const char *archive_cache;
};

struct model_run {
    struct model_options opt;
    struct mr_remote remote;
    const char *name;        /* NULL: all */
    const char *const *more; /* arguments after the name, NULL-terminated */
    int form;                /* never MODEL_AUTO */
};

/* The progress of a load, from the server. */
struct model_progress {
    mr_str version;
    mr_str state;
    mr_str step; /* "" = not reported by the backend */
    uint64_t done;
    uint64_t total;
    uint64_t per_second; /* 0 = unknown so far */
    uint64_t left_ns;
};

/* model_print.c: the server's answer as a table, lines or unchanged */
int model_print_list(const struct model_run *m, mr_bytes body, struct mr_err *err);
int model_print_stats(const struct model_run *m, mr_bytes body, struct mr_err *err);

/* model_workers.c */
int model_print_workers(const struct model_run *m, mr_bytes body, struct mr_err *err);

/* model_versions.c: the verbs for versions, and the progress of a load; its texts are in the arena or the body */
int model_read_progress(mr_bytes body, struct mr_arena *arena, struct model_progress *out,
                        struct mr_err *err);
void model_text_progress(char out[200], const struct model_progress *p);
int model_run_versions(struct model_run *m, struct mr_err *err);
int model_run_label(struct model_run *m, struct mr_err *err);
int model_run_rollback(struct model_run *m, struct mr_err *err);

/* model_watch.c: shows the progress of a load on a terminal, until it is stopped */
struct model_watch;
struct model_watch *model_watch_start(const struct model_run *m); /* NULL: no terminal */
void model_watch_stop(struct model_watch **w);

/* model_record.c */
int model_run_record(struct model_run *m, struct mr_err *err);

/* What a path on this machine holds. */
struct model_folder {
    char path[PATH_MAX];   /* resolved */
    char parent[PATH_MAX]; /* the folder that it lies in */
    char name[NAME_MAX + 1];
    bool is_file;
    bool is_project; /* a folder with `models`, and what they share */
};
/* model_pack.c: pack, and what it and check begin with. Errors: MR_E_NOT_FOUND, MR_E_INVALID. */
int model_folder_inspect(const char *path, struct model_folder *out, struct mr_err *err);
int model_run_pack(struct model_run *m, struct mr_err *err);

/* model_check.c */
int model_run_check(struct model_run *m, struct mr_err *err);

/* model.c */
/** POST /v2/repository/models/NAME/VERB. Errors: MR_E_TOO_LARGE, and the server's. */
int model_post(struct model_run *m, const char *verb, const struct mr_buf *body,
               int64_t *out_took_ns, struct mr_err *err);
/** Prints one line that says what was `done`. */
void model_say(const struct model_run *m, const char *verb, const char *done, int64_t took_ns);

#endif
