/* The options of `millrace serve`. */
#ifndef MR_CLI_OPT_SERVE_H
#define MR_CLI_OPT_SERVE_H

#include "base/options.h"
#include "serve/server.h"

/** The options as parsed, before mr_serve_options_finish. */
struct mr_serve_options {
    struct mr_server_options server;
    struct mr_option_list configs;
    struct mr_option_list repositories;
    struct mr_option_list stores; /* --model-store, the older name */
    struct mr_option_list paddle_services;
    const char *model_runtime; /* NULL: none */
    struct mr_option_list load_models;
    struct mr_option_list link_dirs;
    struct mr_option_list backend_dirs;
    struct mr_option_list op_dirs;
    struct mr_option_list mesh_labels;
    struct mr_option_list model_urls;
    char mesh_id[80]; /* if none is given */
    struct mr_option_list backend_configs;
    struct mr_option_list allowed_backends;
    struct mr_option_list backend_placements;
    struct mr_option_list worker_dirs;
    const char *worker_confinement;
    const char *worker_cpus;
    bool disable_auto_complete;
    bool strict_model_config; /* the older name */
    const char *http_forward;
    struct mr_option_list http_restricted;
    struct mr_option_list grpc_restricted;
    struct mr_option_list allowed_hosts;
    struct mr_option_list allowed_origins;
    const char *grpc_forward;
    int log_level; /* enum mr_log_level */
    unsigned log_verbose;
    bool log_error;
    bool log_warning;
    bool log_info;
    const char *log_file;
    int log_format; /* enum mr_log_format */
    int print_ports;
    bool dump_options;
};

extern const struct mr_option mr_serve_table[];
extern const size_t mr_serve_table_len;

/** Arrays that struct mr_server_options borrows. */
struct mr_serve_arrays {
    const char **repositories;
    const char **backend_dirs;
    size_t backend_dir_count;
    char *own_dirs; /* found next to the program */
    char *worker_program;
    regex_t forward; /* if has_forward */
    bool has_forward;
    /* per backend, in order of first mention */
    struct mr_serve_backend {
        char *name;
        MR_VEC(struct mr_setting) settings;
        char **texts; /* memory of the keys and values */
        size_t text_count;
    } * backends;
    size_t backend_count;
    const struct mr_setting **settings;
    size_t *setting_counts;
    const char **names;
};

/** Combines the parsed options into s->server; *arrays must be valid as long. Errors: MR_E_INVALID. */
int mr_serve_options_finish(struct mr_serve_options *s, struct mr_serve_arrays *arrays,
                            struct mr_err *err);
void mr_serve_arrays_fini(struct mr_serve_arrays *arrays);

/** The default folders of backends: next to the program, then the system's. NULL-terminated, one allocation to be
 *  freed by mr_free. */
const char **mr_default_backend_dirs(void);
/** millrace-worker beside the program, to be freed by mr_free; NULL: unknown. */
char *mr_default_worker_program(void);

#endif
