/* The output of a server when it is ready: a table, or a line of JSON, or log events. */
#include "serve_print.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/common/term.h"
#include "codec/json.h"

struct listener {
    const char *what;
    bool is_on;
    const char *address;
    uint16_t port;
    const char *prefix;
    const char *suffix;
    const struct mr_serve_tls *tls;
    bool is_whole; /* the address includes the port */
};

#define LISTENERS 4

static bool is_on(const struct mr_serve_tls *tls)
{
    return tls && (tls->on || tls->mutual);
}

static void find_listeners(const struct mr_serve_options *s, struct mr_server *server,
                           struct listener out[LISTENERS])
{
    const struct mr_server_options *o = &s->server;
    const struct mr_serve_tls *metrics_tls = o->metrics_use_tls ? &o->http_tls : NULL;
    out[0] = (struct listener){"http",
                               o->allow_http,
                               o->http_address,
                               mr_server_http_port(server),
                               is_on(&o->http_tls) ? "https://" : "http://",
                               "",
                               &o->http_tls,
                               false};
    out[1] = (struct listener){"grpc",
                               o->allow_grpc,
                               o->grpc_address,
                               mr_server_grpc_port(server),
                               is_on(&o->grpc_tls) ? "grpcs://" : "",
                               "",
                               &o->grpc_tls,
                               false};
    out[2] = (struct listener){"metrics",
                               o->allow_metrics,
                               mr_server_metrics_address(o),
                               mr_server_metrics_port(server),
                               is_on(metrics_tls) ? "https://" : "http://",
                               "/metrics",
                               metrics_tls,
                               false};
    out[3] = (struct listener){"mesh",
                               o->mesh.registry != NULL,
                               mr_server_mesh_address(server),
                               mr_server_mesh_port(server),
                               "",
                               "",
                               &o->mesh_tls,
                               true};
}

const char *mr_serve_audience(const char *address, const struct mr_serve_tls *tls)
{
    if (strncmp(address, "unix:", 5) == 0) {
        return "whoever may open the file";
    }
    if (strncmp(address, "127.", 4) == 0 || strcmp(address, "localhost") == 0 ||
        strcmp(address, "::1") == 0 || strncmp(address, "[::1]", 5) == 0) {
        return "this machine only";
    }
    if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, "::") == 0 ||
        strcmp(address, "[::]") == 0 || *address == '\0') {
        return tls && tls->mutual ? "holders of a certificate who can reach this machine"
               : is_on(tls)       ? "EVERYONE who can reach this machine, without password"
                            : "EVERYONE who can reach this machine, without password or encryption";
    }
    return tls && tls->mutual ? "holders of a certificate who can reach this address"
           : is_on(tls)       ? "everyone who can reach this address, without password"
                        : "everyone who can reach this address, without password or encryption";
}

static void put_url(const struct listener *l, char out[512])
{
    bool bare_v6 = strchr(l->address, ':') && l->address[0] != '[';

    if (l->is_whole || strncmp(l->address, "unix:", 5) == 0) {
        snprintf(out, 512, "%s", l->address);
    } else {
        snprintf(out, 512, bare_v6 ? "%s[%s]:%u%s" : "%s%s:%u%s", l->prefix, l->address, l->port,
                 l->suffix);
    }
}

static void print_listeners(const struct mr_serve_options *s, struct mr_server *server,
                            bool aligned)
{
    static const char *const head[] = {"", "ADDRESS", "OPEN TO", NULL};
    struct listener list[LISTENERS];
    struct mr_grid t;
    char url[512];

    mr_grid_init(&t, head);
    find_listeners(s, server, list);
    for (size_t i = 0; i < LISTENERS; i++) {
        if (list[i].is_on) {
            const char *audience = mr_serve_audience(list[i].address, list[i].tls);
            put_url(&list[i], url);
            mr_grid_add(&t, MR_STYLE_PLAIN, "%s", list[i].what);
            mr_grid_add(&t, MR_STYLE_BOLD, "%s", url);
            mr_grid_add(&t, strstr(audience, "without") ? MR_STYLE_WARN : MR_STYLE_PLAIN, "%s",
                        audience);
        }
    }
    mr_grid_print(&t, stdout, aligned, 2);
    mr_grid_fini(&t);
}

/* ---- models ---- */

static enum mr_style style_of(const struct mr_model_report *r)
{
    switch (r->state) {
    case MR_VERSION_READY: return MR_STYLE_GOOD;
    case MR_VERSION_FAILED: return MR_STYLE_BAD;
    default: return MR_STYLE_DIM;
    }
}

static void add_ready_cells(struct mr_grid *t, const struct mr_model_report *r)
{
    char took[32] = "-";
    const Inference__ModelConfig *c = r->v ? r->v->config : NULL;

    mr_grid_add(t, MR_STYLE_PLAIN, "%s", c && c->backend && *c->backend ? c->backend : "-");
    if (c && c->max_batch_size > 0) {
        mr_grid_add(t, MR_STYLE_PLAIN, "%d", c->max_batch_size);
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "-");
    }
    if (r->load_ns > 0) {
        mr_text_duration(took, (double)r->load_ns);
    }
    mr_grid_add(t, MR_STYLE_PLAIN, "%s", took);
}

static void add_model(void *ctx, const struct mr_model_report *r)
{
    struct mr_grid *t = ctx;

    mr_grid_add_str(t, MR_STYLE_BOLD, r->name);
    if (r->version > 0) {
        mr_grid_add(t, MR_STYLE_PLAIN, "%lld", (long long)r->version);
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "-");
    }
    mr_grid_add(t, style_of(r), "%s",
                r->never_loaded ? "not loaded" : mr_version_state_name(r->state));
    add_ready_cells(t, r);
    mr_grid_add_str(t, MR_STYLE_PLAIN, r->reason);
}

static void print_models(struct mr_server *server, bool aligned)
{
    static const char *const head[] = {"MODEL",     "VERSION",   "STATE", "BACKEND",
                                       "MAX BATCH", "LOADED IN", "",      NULL};
    struct mr_grid t;

    mr_grid_init(&t, head);
    mr_models_report(mr_server_models(server), add_model, &t);
    if (t.cells.len) {
        mr_grid_print(&t, stdout, aligned, 2);
    } else {
        printf(aligned ? "  no models yet\n" : "no models yet\n");
    }
    mr_grid_fini(&t);
}

void mr_serve_print(const struct mr_serve_options *s, struct mr_server *server)
{
    bool aligned = mr_term_of(stdout).is_terminal;

    if (aligned) {
        printf("\n  millrace %s\n\n", MR_VERSION);
    }
    print_listeners(s, server, aligned);
    if (aligned) {
        printf("\n");
    }
    print_models(server, aligned);
    if (aligned) {
        printf("\n  Ctrl-C finishes what is under way and stops; a second one stops at once.\n\n");
    }
    fflush(stdout);
}

/* ---- for programs ---- */

void mr_serve_log_ready(const struct mr_serve_options *s, struct mr_server *server,
                        int64_t start_ns)
{
    struct listener list[LISTENERS];

    find_listeners(s, server, list);
    for (size_t i = 0; i < LISTENERS; i++) {
        if (list[i].is_on) {
            mr_log(MR_LOG_INFO, "serve.listen", "what=%s address=%s port=%u tls=%d", list[i].what,
                   MR_LOG_STR(mr_str_c(list[i].address)), list[i].port, is_on(list[i].tls));
        }
    }
    mr_log(MR_LOG_INFO, "serve.ready", "version=%s pid=%d after_ms=%lld", MR_VERSION, (int)getpid(),
           (long long)((mr_now_ns() - start_ns) / MR_NS_PER_MS));
}

void mr_serve_print_ports(const struct mr_serve_options *s, struct mr_server *server)
{
    struct listener list[LISTENERS];
    struct mr_buf out;

    mr_buf_init(&out, 0);
    find_listeners(s, server, list);
    mr_buf_printf(&out, "{\"event\":\"ready\",\"pid\":%d", (int)getpid());
    for (size_t i = 0; i < LISTENERS; i++) {
        if (list[i].is_on) {
            mr_buf_printf(&out, ",\"%s\":{\"address\":", list[i].what);
            mr_json_put_string(&out, mr_str_c(list[i].address));
            mr_buf_printf(&out, ",\"port\":%u}", list[i].port);
        }
    }
    MR_BUF_LIT(&out, "}\n");
    fwrite(out.ptr, 1, out.len, stdout);
    fflush(stdout);
    mr_buf_fini(&out);
}
