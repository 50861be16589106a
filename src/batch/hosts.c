/* Hosts: clients, and the question whether they serve the model that the job is about.
 *
 * A host takes part when it has told the model's metadata and these equal what the first host told. One that does not
 * answer is asked again every few seconds; one that says something else is fenced, with the difference for all to see. */
#include <stdio.h>

#include "base/clock.h"
#include "job.h"
#include "tensor/tensor.h"

#define ASK_AGAIN_NS   (2 * MR_NS_PER_S)
#define ASK_TIMEOUT_NS (10 * MR_NS_PER_S)
#define DEFAULT_PORT   8000

struct host *host_of(struct job *j, uint32_t id)
{
    for (size_t i = 0; i < j->host_count; i++) {
        if (j->hosts[i].id == id) {
            return &j->hosts[i];
        }
    }
    return NULL;
}

/* ---- the model's metadata ---- */

static int io_compare(const struct mr_oip_io *a, const struct mr_oip_io *b, const char *what,
                      struct mr_err *err)
{
    char one[128];
    char two[128];

    if (mr_str_eq(a->name, b->name) && a->dtype == b->dtype && a->rank == b->rank &&
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0) {
        return MR_OK;
    }
    return MR_FAIL(err, MR_E_INVALID, "%s '%.*s' %s%s instead of '%.*s' %s%s", what,
                   (int)b->name.len, b->name.ptr, mr_dtype_name(b->dtype),
                   mr_shape_text(b->shape, b->rank, two, sizeof two), (int)a->name.len, a->name.ptr,
                   mr_dtype_name(a->dtype), mr_shape_text(a->shape, a->rank, one, sizeof one));
}

static int metadata_compare(const struct mr_oip_metadata *a, const struct mr_oip_metadata *b,
                            struct mr_err *err)
{
    if (a->input_count != b->input_count || a->output_count != b->output_count) {
        return MR_FAIL(err, MR_E_INVALID, "%zu inputs and %zu outputs instead of %zu and %zu",
                       b->input_count, b->output_count, a->input_count, a->output_count);
    }
    int rc = MR_OK;
    for (size_t i = 0; i < a->input_count && rc == MR_OK; i++) {
        rc = io_compare(&a->inputs[i], &b->inputs[i], "input", err);
    }
    for (size_t i = 0; i < a->output_count && rc == MR_OK; i++) {
        rc = io_compare(&a->outputs[i], &b->outputs[i], "output", err);
    }
    if (rc == MR_OK && !mr_str_eq(a->version, b->version)) {
        rc = MR_FAIL(err, MR_E_INVALID, "version '%.*s' instead of '%.*s'", (int)b->version.len,
                     b->version.ptr, (int)a->version.len, a->version.ptr);
    }
    return rc;
}

static void trouble(struct host *h, const char *text)
{
    snprintf(h->trouble, sizeof h->trouble, "%s", text);
}

static int metadata_take(struct host *h, mr_bytes body, struct mr_err *err)
{
    struct job *j = h->job;
    struct mr_oip_metadata m = {0};
    struct mr_arena arena;
    int rc;

    if (!j->has_metadata) {
        rc = mr_oip_rest_decode_metadata(body, &j->arena, &j->metadata, err);
        j->has_metadata = rc == MR_OK;
        snprintf(h->version, sizeof h->version, "%.*s", (int)j->metadata.version.len,
                 j->metadata.version.ptr);
        return rc;
    }
    mr_arena_init(&arena, 4096, 16 << 20);
    rc = mr_oip_rest_decode_metadata(body, &arena, &m, err);
    if (rc == MR_OK) {
        snprintf(h->version, sizeof h->version, "%.*s", (int)m.version.len, m.version.ptr);
        rc = metadata_compare(&j->metadata, &m, err);
        rc = rc < 0 ? MR_WRAP(err, rc, "another model") : rc;
    }
    mr_arena_fini(&arena);
    return rc;
}

static void on_metadata(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct host *h = ctx;
    struct job *j = h->job;
    struct mr_err why;
    const int64_t now_ns = mr_now_ns();

    h->is_asking = false;
    h->ask_at_ns = mr_ns_after(now_ns, ASK_AGAIN_NS);
    if (rc < 0) {
        trouble(h, err->msg);
    } else if (response->status != 200) {
        char text[200];
        snprintf(text, sizeof text, "metadata: HTTP status %d: %.*s", response->status,
                 (int)MR_MIN(response->body.len, (size_t)80), (const char *)response->body.ptr);
        trouble(h, text);
    } else if (metadata_take(h, response->body, &why) < 0) {
        trouble(h, why.msg);
    } else {
        h->trouble[0] = '\0';
        if (h->id) {
            mr_route_unfence(j->route, now_ns, h->id);
        } else {
            h->id = mr_route_add(j->route, now_ns);
        }
        h->is_fenced = false;
    }
    job_look(j);
}

static void host_ask(struct host *h)
{
    struct job *j = h->job;
    char path[600];
    const int n = j->o->version ? snprintf(path, sizeof path, "/v2/models/%s/versions/%s",
                                           j->o->model, j->o->version)
                                : snprintf(path, sizeof path, "/v2/models/%s", j->o->model);
    const struct mr_client_request request = {
        .method = "GET", .path = {path, (size_t)n}, .timeout_ns = ASK_TIMEOUT_NS};

    h->is_asking = true;
    mr_client_send(h->client, &request, on_metadata, h);
}

void hosts_ask(struct job *j, int64_t now_ns)
{
    for (size_t i = 0; i < j->host_count; i++) {
        struct host *h = &j->hosts[i];
        if ((!h->id || h->is_fenced) && !h->is_asking && now_ns >= h->ask_at_ns) {
            host_ask(h);
        }
    }
}

/* ---- addresses ---- */

static int host_open(struct host *h, const char *url, struct mr_err *err)
{
    const struct mr_batch_options *o = h->job->o;
    struct mr_client_options options = {.never_repeat = true,
                                        .max_connections = MR_MIN(o->max_in_flight, 1024u)};
    const bool is_tls = strncmp(url, "https://", 8) == 0;
    const char *rest = is_tls ? url + 8 : strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    int rc;

    if (strstr(rest, "://")) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "host '%.100s': http:// and https:// are what jobs speak", url);
    }
    const char *bracket = strrchr(rest, ']');
    const bool has_port = strrchr(bracket ? bracket : rest, ':') || strncmp(rest, "unix:", 5) == 0;
    const size_t len = strlen(rest) - (strlen(rest) > 1 && rest[strlen(rest) - 1] == '/');
    int n = has_port
                ? snprintf(h->address, sizeof h->address, "%.*s", (int)len, rest)
                : snprintf(h->address, sizeof h->address, "%.*s:%d", (int)len, rest, DEFAULT_PORT);
    if (len == 0 || n <= 0 || (size_t)n >= sizeof h->address) {
        return MR_FAIL(err, MR_E_INVALID, "'%.100s' is not the address of a host", url);
    }
    if (is_tls) {
        MR_TRY(mr_tls_client_new(&h->tls, &o->tls, err));
        options.tls = h->tls;
    }
    MR_TRY(mr_client_new(&h->client, h->job->loop, h->address, &options, err));
    trouble(h, "no answer yet");
out:
    return rc;
}

int hosts_open(struct job *j, struct mr_err *err)
{
    int rc = MR_OK;

    j->hosts = MR_NEW_ARRAY(struct host, j->o->host_count);
    for (size_t i = 0; i < j->o->host_count && rc == MR_OK; i++) {
        j->hosts[i].job = j;
        j->host_count++;
        rc = host_open(&j->hosts[i], j->o->hosts[i], err);
    }
    return rc;
}

void hosts_close(struct job *j)
{
    for (size_t i = 0; i < j->host_count; i++) {
        mr_client_free(&j->hosts[i].client);
    }
}
