/* From parsed options to struct mr_server_options: lists to arrays, settings grouped by backend, the folders of
 * backends. */
#include "opt_serve.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/http.h"
#include "process/cgroup.h"
#include "process/confine.h"
#include "process/user.h"

#ifndef MR_BACKEND_DIR
#    define MR_BACKEND_DIR "/usr/local/lib/millrace"
#endif

/* <folder of the program>/../lib/millrace, as built and as installed; false when unknown. */
static bool beside_program(char out[PATH_MAX])
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    if (n <= 0) {
        return false;
    }
    path[n] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        if (!slash) {
            return false;
        }
        *slash = '\0';
    }
    return (size_t)snprintf(out, PATH_MAX, "%s/lib/millrace", path) < PATH_MAX;
}

const char **mr_default_backend_dirs(void)
{
    static const char *const system_dirs[] = {MR_BACKEND_DIR, "/usr/lib/millrace"};
    char beside[PATH_MAX] = "";
    size_t text = beside_program(beside) ? strlen(beside) + 1 : 0;
    size_t n = 0;
    const char **dirs = mr_alloc(4 * sizeof *dirs + text);

    if (text) {
        char *copy = (char *)(dirs + 4);
        memcpy(copy, beside, text);
        dirs[n++] = copy;
    }
    for (size_t i = 0; i < sizeof system_dirs / sizeof *system_dirs; i++) {
        if (strcmp(system_dirs[i], beside) != 0) {
            dirs[n++] = system_dirs[i];
        }
    }
    return dirs;
}

char *mr_default_worker_program(void)
{
    static const char name[] = "millrace-worker";
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    path[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + sizeof name > sizeof path) {
        return NULL;
    }
    memcpy(slash + 1, name, sizeof name);
    return mr_strndup(path, strlen(path));
}

static void join_repositories(struct mr_serve_options *s, struct mr_serve_arrays *a)
{
    size_t n = 0;

    a->repositories = MR_NEW_ARRAY(const char *, s->repositories.len + s->stores.len + 1);
    for (size_t i = 0; i < s->repositories.len; i++) {
        a->repositories[n++] = s->repositories.at[i];
    }
    for (size_t i = 0; i < s->stores.len; i++) {
        a->repositories[n++] = s->stores.at[i];
    }
    s->server.models.repositories = a->repositories;
    s->server.models.repository_count = n;
}

static void join_backend_dirs(struct mr_serve_options *s, struct mr_serve_arrays *a)
{
    const char **usual = mr_default_backend_dirs();
    size_t n = 0;

    a->own_dirs = (char *)usual;
    a->backend_dirs = MR_NEW_ARRAY(const char *, s->backend_dirs.len + 4);
    for (size_t i = 0; i < s->backend_dirs.len; i++) {
        a->backend_dirs[n++] = s->backend_dirs.at[i];
    }
    for (size_t i = 0; usual[i]; i++) {
        a->backend_dirs[n++] = usual[i];
    }
    s->server.models.backend_dirs = a->backend_dirs;
    s->server.models.backend_dir_count = n;
}

static struct mr_serve_backend *backend_of(struct mr_serve_arrays *a, mr_str name)
{
    for (size_t i = 0; i < a->backend_count; i++) {
        if (mr_str_eq_c(name, a->backends[i].name)) {
            return &a->backends[i];
        }
    }
    a->backends = mr_realloc_array(a->backends, a->backend_count + 1, sizeof *a->backends);
    struct mr_serve_backend *b = &a->backends[a->backend_count++];
    memset(b, 0, sizeof *b);
    b->name = mr_strndup(name.ptr, name.len);
    return b;
}

static int set_global(struct mr_serve_options *s, const char *text, mr_str key, mr_str value,
                      struct mr_err *err)
{
    int64_t n;

    if (!mr_str_eq_c(key, "default-max-batch-size")) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--backend-config=%s: the only setting without a backend's name is "
                       "default-max-batch-size; others are given as NAME,KEY=VALUE",
                       text);
    }
    if (!mr_str_to_i64(value, &n) || n < 0 || n > INT32_MAX) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--backend-config=%s: %.*s is out of range; allowed: 0 to %d", text,
                       MR_STR_ARG(value), INT32_MAX);
    }
    s->server.models.default_max_batch = (int32_t)n;
    return MR_OK;
}

/* "onnxruntime,intra_op_thread_count=2" */
static int add_backend_config(struct mr_serve_options *s, struct mr_serve_arrays *a,
                              const char *text, struct mr_err *err)
{
    mr_str rest = mr_str_c(text);
    ptrdiff_t equals = mr_str_find(rest, '=');
    ptrdiff_t comma = mr_str_find(rest, ',');

    if (comma > equals) {
        comma = -1; /* part of the value */
    }
    mr_str name = comma > 0 ? mr_str_trim(mr_str_sub(rest, 0, (size_t)comma)) : (mr_str){"", 0};
    mr_str key = equals < 0 ? (mr_str){"", 0}
                            : mr_str_trim(mr_str_sub(rest, (size_t)(comma + 1), (size_t)equals));
    if (key.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "--backend-config=%s: expected NAME,KEY=VALUE", text);
    }
    mr_str value = mr_str_trim(mr_str_sub(rest, (size_t)equals + 1, rest.len));
    if (name.len == 0) {
        return set_global(s, text, key, value, err);
    }
    struct mr_serve_backend *b = backend_of(a, name);
    b->texts = mr_realloc_array(b->texts, b->text_count + 2, sizeof *b->texts);
    char *k = b->texts[b->text_count++] = mr_strndup(key.ptr, key.len);
    char *v = b->texts[b->text_count++] = mr_strndup(value.len ? value.ptr : "", value.len);
    struct mr_setting setting = {k, v};
    MR_VEC_PUSH(&b->settings, setting);
    return MR_OK;
}

static void hand_over_settings(struct mr_serve_options *s, struct mr_serve_arrays *a)
{
    size_t n = a->backend_count;

    a->names = MR_NEW_ARRAY(const char *, n + 1);
    a->settings = MR_NEW_ARRAY(const struct mr_setting *, n + 1);
    a->setting_counts = MR_NEW_ARRAY(size_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        a->names[i] = a->backends[i].name;
        a->settings[i] = a->backends[i].settings.at;
        a->setting_counts[i] = a->backends[i].settings.len;
    }
    s->server.models.backend_setting_names = a->names;
    s->server.models.backend_settings = a->settings;
    s->server.models.backend_setting_counts = a->setting_counts;
    s->server.models.backend_setting_name_count = n;
}

/* One pattern serves both protocols. */
static int compile_pattern(struct mr_serve_options *s, struct mr_serve_arrays *a,
                           struct mr_err *err)
{
    const char *h = s->http_forward;
    const char *g = s->grpc_forward;
    const char *pattern = h ? h : g;
    char text[80];

    if (h && g && strcmp(h, g) != 0) {
        return MR_FAIL(
            err, MR_E_INVALID,
            "--http-header-forward-pattern and --grpc-header-forward-pattern differ, but "
            "one pattern serves both");
    }
    if (!pattern || !*pattern) {
        return MR_OK;
    }
    /* Triton's expressions may begin so; POSIX has no such flags. */
    const bool minds_case = strncmp(pattern, "(?-i)", 5) == 0;
    const size_t flags_len = minds_case ? 5 : strncmp(pattern, "(?i)", 4) == 0 ? 4 : 0;
    const int rc =
        regcomp(&a->forward, pattern + flags_len, REG_EXTENDED | (minds_case ? 0 : REG_ICASE));
    if (rc != 0) {
        regerror(rc, &a->forward, text, sizeof text);
        return MR_FAIL(err, MR_E_INVALID, "--%s-header-forward-pattern: '%.100s': %s",
                       h ? "http" : "grpc", pattern, text);
    }
    a->has_forward = true;
    s->server.http.keep_head_case = minds_case;
    s->server.header_forward = &a->forward;
    return MR_OK;
}

static int restrict_all(struct mr_restrictions *r, const char *option, struct mr_option_list groups,
                        struct mr_err *err)
{
    for (size_t i = 0; i < groups.len; i++) {
        int rc = mr_restrictions_add(r, groups.at[i], err);
        if (rc < 0) {
            return MR_WRAP(err, rc, "--%s", option);
        }
    }
    return MR_OK;
}

/* By its name, or by what implies it. */
static bool is_mode_explicit(const struct mr_serve_options *s)
{
    return s->server.models.control == MR_MODEL_CONTROL_EXPLICIT || s->model_runtime ||
           s->server.mesh.registry;
}

static int check_mesh(const struct mr_serve_options *s, struct mr_err *err)
{
    const struct mr_server_options *o = &s->server;

    if (o->mesh.models && (!o->mesh.registry || s->model_runtime)) {
        return MR_FAIL(err, MR_E_INVALID, "--mesh-models needs --mesh, and no --model-runtime");
    }
    if (s->model_urls.len && (s->model_runtime || !is_mode_explicit(s))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--allow-model-url needs --model-control-mode=explicit or --mesh, and no "
                       "--model-runtime");
    }
    if (o->mesh.runtime && (!o->mesh.registry || !o->allow_grpc)) {
        return MR_FAIL(err, MR_E_INVALID, "--mesh-runtime needs --mesh, and gRPC");
    }
    if (o->mesh.runtime_inference && !o->mesh.runtime) {
        return MR_FAIL(err, MR_E_INVALID, "--mesh-runtime-inference needs --mesh-runtime");
    }
    return MR_OK;
}

static int check_together(const struct mr_serve_options *s, struct mr_err *err)
{
    const struct mr_server_options *o = &s->server;

    if (o->models.repository_count == 0 && s->paddle_services.len == 0 && !s->model_runtime &&
        !o->mesh.models && !s->model_urls.len && !o->mesh.runtime) {
        return MR_FAIL(err, MR_E_INVALID, "no models: give --model-repository=DIR");
    }
    if (s->load_models.len && !is_mode_explicit(s)) {
        return MR_FAIL(err, MR_E_INVALID, "--load-model needs --model-control-mode=explicit");
    }
    if (s->model_runtime && (!o->allow_grpc || o->models.control == MR_MODEL_CONTROL_POLL)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--model-runtime needs gRPC, and --model-control-mode=explicit");
    }
    if (!o->allow_http && !o->allow_grpc) {
        return MR_FAIL(err, MR_E_INVALID,
                       "neither --allow-http nor --allow-grpc: no request could reach the server");
    }
    return check_mesh(s, err);
}

/* A listener, by the options with its name. */
struct place {
    const char *name;
    const char *address;
    unsigned port;
    bool is_on;
    bool is_shared;
};

static bool is_unix(const struct place *p)
{
    return strncmp(p->address, "unix:", 5) == 0;
}

/* Names are looked up when the server listens. */
static int check_address(const struct place *p, struct mr_err *err)
{
    if (!is_unix(p) && strchr(p->address, ':') && !mr_http_is_address(mr_str_c(p->address))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "--%s-address: '%s' is not an address; --%s-port says the port", p->name,
                       p->address, p->name);
    }
    return MR_OK;
}

/* Two listeners of this server in one place, which the start would report as if another server were there. */
static int check_pair(const struct place *a, const struct place *b, struct mr_err *err)
{
    if (strcmp(a->address, b->address) != 0) {
        return MR_OK;
    }
    if (is_unix(a)) {
        return MR_FAIL(err, MR_E_INVALID, "--%s-address and --%s-address are both %s", a->name,
                       b->name, a->address);
    }
    if (a->port != 0 && a->port == b->port && !(a->is_shared && b->is_shared)) {
        return MR_FAIL(err, MR_E_INVALID, "--%s-port and --%s-port are both %u (0: any free one)",
                       a->name, b->name, a->port);
    }
    return MR_OK;
}

static int check_places(const struct mr_server_options *o, struct mr_err *err)
{
    const struct place places[] = {
        {"http", o->http_address, o->http_port, o->allow_http, o->reuse_http_port},
        {"grpc", o->grpc_address, o->grpc_port, o->allow_grpc, o->reuse_grpc_port},
        {"metrics", mr_server_metrics_address(o), o->metrics_port, o->allow_metrics, false},
    };
    int rc = MR_OK;

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i].is_on) {
            continue;
        }
        MR_TRY(check_address(&places[i], err));
        for (size_t j = 0; j < i; j++) {
            MR_TRY(places[j].is_on ? check_pair(&places[j], &places[i], err) : MR_OK);
        }
    }
out:
    return rc;
}

/* Opens the cgroup once, so that one that cannot be used ends the start, and not only loads. */
static int cgroup_check(struct mr_serve_options *s, struct mr_err *err)
{
    struct mr_models_options *o = &s->server.models;
    struct mr_cgroups *g = NULL;

    if (s->worker_cpus && !o->worker_cgroup) {
        return MR_FAIL(err, MR_E_INVALID, "--worker-cpus needs --worker-cgroup");
    }
    if (s->worker_cpus &&
        mr_cgroup_parse_cpus(s->worker_cpus, &o->worker_cpu_hundredths, err) < 0) {
        return MR_WRAP(err, MR_E_INVALID, "--worker-cpus");
    }
    const struct mr_cgroup_limits limits = {o->worker_memory, o->worker_cpu_hundredths, 1};
    if (o->worker_cgroup && mr_cgroups_open(&g, o->worker_cgroup, &limits, err) < 0) {
        return MR_WRAP(err, MR_E_INVALID, "--worker-cgroup");
    }
    mr_cgroups_close(&g);
    return MR_OK;
}

static int workers_check(struct mr_serve_options *s, struct mr_err *err)
{
    const char *user = s->server.models.worker_user;
    struct stat st;

    for (size_t i = 0; i < s->worker_dirs.len; i++) {
        if (stat(s->worker_dirs.at[i], &st) < 0) {
            return MR_FAIL(err, MR_E_INVALID, "--worker-directory: %.300s: %s",
                           s->worker_dirs.at[i], strerror(errno));
        }
    }
    if (user && mr_process_user_check(user, err) < 0) {
        return MR_WRAP(err, MR_E_INVALID, "--worker-user");
    }
    return cgroup_check(s, err);
}

/* The host's name may have characters that an id may not have. */
static void name_instance(struct mr_serve_options *s)
{
    char host[48] = "server";

    if (s->server.mesh.id) {
        return;
    }
    gethostname(host, sizeof host - 1);
    for (char *p = host; *p; p++) {
        if (!isalnum((unsigned char)*p) && *p != '-') {
            *p = '-';
        }
    }
    snprintf(s->mesh_id, sizeof s->mesh_id, "%s-%d", host, (int)getpid());
    s->server.mesh.id = s->mesh_id;
}

/* Variables of ModelMesh, for what no option says. */
static void read_modelmesh_environment(struct mr_serve_options *s)
{
    struct mr_mesh_options *o = &s->server.mesh;

    if (o->registry && !o->dataplane) {
        o->dataplane = getenv("MM_DATAPLANE_CONFIG");
    }
    if (o->registry && (!o->dataplane || !*o->dataplane)) {
        o->dataplane = getenv("MM_DATAPLANE_CONFIG_PATH");
    }
    if (o->dataplane && !*o->dataplane) {
        o->dataplane = NULL;
    }
}

int mr_serve_options_finish(struct mr_serve_options *s, struct mr_serve_arrays *a,
                            struct mr_err *err)
{
    int rc = MR_OK;

    memset(a, 0, sizeof *a);
    join_repositories(s, a);
    join_backend_dirs(s, a);
    s->server.op_dirs = s->op_dirs.at;
    name_instance(s);
    read_modelmesh_environment(s);
    s->server.mesh_tls.mutual =
        s->server.mesh.registry &&
        (s->server.mesh_tls.cert || s->server.mesh_tls.key || s->server.mesh_tls.ca);
    s->server.models.allowed_urls = s->model_urls.at;
    s->server.models.allowed_url_count = s->model_urls.len;
    s->server.models.loads_urls = s->model_urls.len > 0 && !s->server.mesh.registry;
    s->server.mesh.labels = s->mesh_labels.at;
    s->server.mesh.label_count = s->mesh_labels.len;
    s->server.op_dir_count = s->op_dirs.len;
    s->server.models.load_models = s->load_models.at;
    s->server.models.load_model_count = s->load_models.len;
    s->server.models.auto_complete = !s->disable_auto_complete && !s->strict_model_config;
    s->server.http.allowed_hosts = s->allowed_hosts.at;
    s->server.http.allowed_host_count = s->allowed_hosts.len;
    s->server.http.allowed_origins = s->allowed_origins.at;
    s->server.http.allowed_origin_count = s->allowed_origins.len;
    s->server.models.link_dirs = s->link_dirs.at;
    s->server.models.link_dir_count = s->link_dirs.len;
    s->server.models.allowed_backends = s->allowed_backends.at;
    s->server.models.allowed_backend_count = s->allowed_backends.len;
    s->server.models.backend_placements = s->backend_placements.at;
    s->server.models.backend_placement_count = s->backend_placements.len;
    s->server.models.worker_dirs = s->worker_dirs.at;
    s->server.models.worker_dir_count = s->worker_dirs.len;
    s->server.models.worker_confine_is_chosen = s->worker_confinement != NULL;
    MR_TRY(mr_confine_parse(s->worker_confinement ? s->worker_confinement : "all",
                            &s->server.models.worker_confine, err) < 0
               ? MR_WRAP(err, MR_E_INVALID, "--worker-confinement")
               : MR_OK);
    MR_TRY(workers_check(s, err));
    if (!s->server.models.worker_program) {
        s->server.models.worker_program = a->worker_program = mr_default_worker_program();
    }
    MR_TRY(compile_pattern(s, a, err));
    MR_TRY(
        restrict_all(&s->server.http_restricted, "http-restricted-api", s->http_restricted, err));
    MR_TRY(restrict_all(&s->server.grpc_restricted, "grpc-restricted-protocol", s->grpc_restricted,
                        err));
    for (size_t i = 0; i < s->backend_configs.len; i++) {
        MR_TRY(add_backend_config(s, a, s->backend_configs.at[i], err));
    }
    hand_over_settings(s, a);
    MR_TRY(check_together(s, err));
    MR_TRY(check_places(&s->server, err));
    MR_TRY(mr_server_tls_check(&s->server, err));
out:
    return rc;
}

void mr_serve_arrays_fini(struct mr_serve_arrays *a)
{
    for (size_t i = 0; i < a->backend_count; i++) {
        struct mr_serve_backend *b = &a->backends[i];
        for (size_t j = 0; j < b->text_count; j++) {
            mr_free(b->texts[j]);
        }
        mr_free(b->texts);
        mr_free(b->name);
        MR_VEC_FINI(&b->settings);
    }
    if (a->has_forward) {
        regfree(&a->forward);
    }
    mr_free(a->worker_program);
    mr_free(a->backends);
    mr_free(a->repositories);
    mr_free(a->backend_dirs);
    mr_free(a->own_dirs);
    mr_free(a->settings);
    mr_free(a->setting_counts);
    mr_free(a->names);
    memset(a, 0, sizeof *a);
}
