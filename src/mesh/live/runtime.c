/* Loads and unloads as calls of mmesh.ModelRuntime.
 *
 * The runtime's state is asked for when the server starts, every two seconds until it is ready, and again after it was away: a runtime
 * unloads everything before it says that it is ready, so the question must not come while it works. That it is away is seen by calls that do not
 * get through; everything that it had is then lost, and is loaded again when it is asked for.
 *
 * What it says is bounded: each call has a deadline, sizes are checked by the core, and a load that failed is followed by an unload. */
#include "runtime.h"

#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/pb.h"

#define SERVICE     "/mmesh.ModelRuntime/"
#define POLL_NS     (2 * MR_NS_PER_S)
#define STATUS_NS   (10 * MR_NS_PER_S)
#define PREDICT_NS  (500 * MR_NS_PER_MS)
#define SIZE_NS     (30 * MR_NS_PER_S)
#define UNLOAD_NS   (60 * MR_NS_PER_S)
#define LEAVE_NS    (120 * MR_NS_PER_S) /* most that an unload waits for requests */
#define UNLOADS_MAX 3                   /* attempts to unload a model */
#define AWAY_NS     (5 * MR_NS_PER_S)   /* how long a load waits for a runtime that is away */
#define LONG_NS     (180 * MR_NS_PER_S)
#define LOADERS_MAX 256
#define RUNNING_MAX 65536     /* requests of a model at once */
#define ANSWER_MAX  (1 << 20) /* bytes */

struct live_runtime {
    struct mr_mesh *m;
    struct mr_client *client;
    struct mr_timer poll;
    struct mr_timer wait; /* of loads that came while it was away */
    struct load *waiting; /* the newest first */
    LIST_HEAD(, leaving) leaving;
    struct mr_map loaded; /* id -> struct loaded: what is lost with it */
    int64_t away_ns;      /* since when it is waited for */
    struct mr_err why;    /* the same: what it answered last */
    bool is_there, has_joined, has_no_predictions, is_asked, is_ending;
    bool limits_concurrency; /* of models */
    uint64_t default_bytes;
    int64_t load_ns; /* most time for a load */
};

struct loaded {
    struct mr_mesh_copy *copy;
    uint64_t uses; /* that the core knows of */
    bool has_running;
    bool is_limited; /* all requests pass through the mesh, which counts them */
};

/* A load or an unload under way. */
struct load {
    struct live_runtime *r;
    struct mr_mesh *mesh;
    struct load *next;
    bool is_unload;
    unsigned unloads; /* attempts */
    int64_t since_ns;
    int64_t sent_ns; /* the last call of the runtime */
    uint64_t bytes;
    uint32_t max_running; /* as struct mesh_loaded */
    int rc;               /* of the load, while it is followed by an unload */
    struct mr_err err;
    mr_str id, type, path, key;
    char text[];
};

/* An unload that waits for requests. It lives until the last of them has ended, even if the unload has begun without them. */
struct leaving {
    LIST_ENTRY(leaving) link;
    struct mr_mesh *mesh;
    struct load *o; /* NULL: it has begun */
};

static void away(struct live_runtime *r, const struct mr_err *err);

/* ---- calls ---- */

static void call(struct live_runtime *r, const char *method, const struct mr_buf *message,
                 int64_t timeout_ns, mr_client_done_fn *done, void *ctx)
{
    struct mr_piece piece = {message->ptr, message->len, NULL};
    struct mr_client_grpc_request q = {.path = method,
                                       .pieces = &piece,
                                       .piece_count = message->len > 0,
                                       .timeout_ns = timeout_ns};

    mr_client_grpc(r->client, &q, done, ctx);
}

static void call_load(struct load *o, const char *method, bool is_whole, int64_t timeout_ns,
                      mr_client_done_fn *done)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_pb_put_str(&b, 1, o->id);
    if (is_whole) {
        mr_pb_put_str(&b, 2, o->type);
        mr_pb_put_str(&b, 3, o->path);
        mr_pb_put_str(&b, 4, o->key);
    }
    o->sent_ns = live_now(o->mesh);
    call(o->r, method, &b, timeout_ns, done, o);
    mr_buf_fini(&b);
}

static void count_time(const struct load *o, struct mr_hist *h)
{
    mr_hist_add(h, (uint64_t)(live_now(o->mesh) - o->sent_ns));
}

/* Field 1 of the answers about sizes; 0: not said. */
static uint64_t number_in(mr_bytes message, uint32_t field)
{
    struct mr_pb_field f;
    uint64_t number = 0;

    while (mr_pb_next(&message, &f) > 0) {
        if (f.number == field && f.wire == MR_PB_VARINT) {
            number = f.value;
        }
    }
    return number;
}

/* Of answers that begin with one. */
static uint64_t size_in(mr_bytes message)
{
    return number_in(message, 1);
}

/* False: the call was cut off by the end of the server. */
static bool heard(struct live_runtime *r, int rc, const struct mr_err *err,
                  const struct mr_client_response *response)
{
    if (!r->is_ending && rc == MR_E_UNAVAILABLE && !response) {
        away(r, err);
    }
    return !r->is_ending;
}

/* ---- what it has ---- */

struct mr_mesh_copy *live_runtime_copy(struct live_runtime *r, mr_str id)
{
    struct loaded *known = mr_map_find(&r->loaded, id);

    return known && !known->is_limited ? known->copy : NULL;
}

/* Requests ask the mesh from then on. False: some are under way, and `idle` is called. */
static bool close_loaded(struct loaded *known, void (*idle)(void *ctx), void *ctx)
{
    bool is_idle = !known || live_copy_close(known->copy, idle, ctx);

    if (known) {
        mr_mesh_copy_unref(&known->copy);
        mr_free(known);
    }
    return is_idle;
}

static void add_loaded(struct live_runtime *r, mr_str id, bool is_limited)
{
    struct loaded *known = MR_NEW(struct loaded);

    known->is_limited = is_limited;
    known->copy = live_copy_new(r->m);
    close_loaded(mr_map_put(&r->loaded, id, known), NULL, NULL);
}

/* All of it; the map is empty then. lost: the core has to hear of it. */
static void close_all(struct live_runtime *r, bool lost)
{
    struct mr_map all = r->loaded;
    struct mr_map_slot *slot;

    r->loaded = (struct mr_map){0};
    for (size_t i = 0; (slot = mr_map_next(&all, &i));) {
        close_loaded(slot->value, NULL, NULL);
        if (lost) {
            mesh_core_lost(r->m->core, slot->key, live_now(r->m));
        }
    }
    mr_map_fini(&all);
}

/* ---- the end of loads and unloads ---- */

static void fail(struct load *o, int rc, const struct mr_err *err)
{
    o->rc = rc;
    o->err = *err;
}

static void fail_away(struct load *o)
{
    const char *why = o->r->why.msg;
    struct mr_err err;
    int rc =
        MR_FAIL(&err, MR_E_UNAVAILABLE, "the runtime does not answer%s%s", why[0] ? ": " : "", why);

    fail(o, rc, &err);
}

static void end(struct load *o)
{
    struct live_runtime *r = o->r;
    struct mr_mesh *m = r->m;
    struct mesh_loaded loaded = {.bytes = o->bytes, .max_running = o->max_running};

    if (o->rc == MR_OK && !r->is_there) {
        fail_away(o); /* what it had is lost already */
    }
    if (o->is_unload) {
        mesh_core_unloaded(m->core, o->id, live_now(m));
    } else if (o->rc == MR_OK) {
        add_loaded(r, o->id, o->max_running > 0);
        mesh_core_loaded(m->core, o->id, &loaded, live_now(m));
        mr_log(MR_LOG_INFO, "mesh.runtime", "loaded model=%s bytes=%llu", MR_LOG_STR(o->id),
               (unsigned long long)o->bytes);
    } else {
        m->load_failures++;
        mesh_core_load_failed(m->core, o->id, live_fail_of(o->rc), mr_str_c(o->err.msg),
                              live_now(m));
        live_ready_failed(m, o->id);
    }
    mr_free(o);
    live_acted(m);
}

static void unload(struct load *o);

static void on_unloaded(void *ctx, int rc, const struct mr_err *err,
                        const struct mr_client_response *response)
{
    struct load *o = ctx;
    struct live_runtime *r = o->r;

    if (!heard(r, rc, err, response)) {
        mr_free(o);
        return;
    }
    bool is_done = rc == MR_OK || rc == MR_E_NOT_FOUND;
    bool is_gone = is_done || !r->is_there;
    if (is_done) {
        count_time(o, &r->m->unload_ns);
    }
    r->m->unload_attempt_failures += !is_gone;
    if (!is_gone && o->unloads < UNLOADS_MAX) {
        unload(o);
        return;
    }
    if (!is_gone) {
        r->m->unload_failures++;
        mr_log(MR_LOG_WARN, "mesh.runtime",
               "model=%s cannot be unloaded, and is treated as unloaded: %s", MR_LOG_STR(o->id),
               err->msg);
    }
    end(o);
}

static void unload(struct load *o)
{
    o->unloads++;
    call_load(o, SERVICE "unloadModel", false, UNLOAD_NS, on_unloaded);
}

/* ---- loads ---- */

static void on_wait(struct mr_timer *t);

static void park(struct load *o)
{
    struct live_runtime *r = o->r;

    if (!r->waiting) {
        mr_timer_start(r->m->loop, &r->wait, MR_NS_PER_S, 0, on_wait);
    }
    o->next = r->waiting;
    r->waiting = o;
}

/* A load that finds the runtime away waits for it as those do that come later, unless it has taken AWAY_NS already: the model may be
 * what crashes the runtime. */
static bool waits(struct load *o, int rc, const struct mr_client_response *response)
{
    bool does = rc == MR_E_UNAVAILABLE && !response && live_now(o->mesh) - o->since_ns < AWAY_NS;

    if (does) {
        park(o);
    }
    return does;
}

static void on_size(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    struct load *o = ctx;

    if (!heard(o->r, rc, err, response)) {
        mr_free(o);
        return;
    }
    if (waits(o, rc, response)) {
        return;
    }
    if (rc == MR_OK) {
        o->bytes = size_in(response->body);
        count_time(o, &o->r->m->sizing_ns);
    }
    o->bytes = o->bytes ? o->bytes : o->r->default_bytes;
    end(o);
}

static void on_loaded(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct load *o = ctx;

    if (!heard(o->r, rc, err, response)) {
        mr_free(o);
        return;
    }
    if (rc == MR_OK && o->r->limits_concurrency) {
        o->max_running = (uint32_t)MR_MIN(number_in(response->body, 2), RUNNING_MAX);
    }
    if (waits(o, rc, response)) {
        return;
    }
    if (rc < 0) {
        fail(o, rc, err);
        unload(o); /* it may have loaded something */
        return;
    }
    count_time(o, &o->r->m->load_ns);
    if ((o->bytes = size_in(response->body)) == 0) {
        call_load(o, SERVICE "modelSize", false, SIZE_NS, on_size);
    } else {
        end(o);
    }
}

static void load(struct load *o)
{
    call_load(o, SERVICE "loadModel", true, o->r->load_ns, on_loaded);
}

static void on_predicted(void *ctx, int rc, const struct mr_err *err,
                         const struct mr_client_response *response)
{
    struct load *o = ctx;
    struct mr_mesh *m = o->r->m;

    if (!heard(o->r, rc, err, response)) {
        mr_free(o);
        return;
    }
    if (waits(o, rc, response)) {
        return;
    }
    o->r->has_no_predictions |= rc == MR_E_UNSUPPORTED;
    uint64_t bytes = rc == MR_OK ? size_in(response->body) : 0;
    enum mesh_room room =
        bytes ? mesh_core_predicted(m->core, o->id, bytes, live_now(m)) : MESH_ROOM_NOW;
    if (room == MESH_ROOM_NEVER) {
        MR_FAIL(&o->err, MR_E_TOO_LARGE,
                "the runtime predicts %llu bytes, more than the capacity of the instance",
                (unsigned long long)bytes);
        o->rc = MR_E_TOO_LARGE;
        end(o);
        return;
    }
    if (room == MESH_ROOM_NOW) {
        load(o);
    } else {
        mr_free(o);
    }
    live_acted(m);
}

static void predict(struct load *o)
{
    if (o->r->has_no_predictions) {
        load(o);
    } else {
        call_load(o, SERVICE "predictModelSize", true, PREDICT_NS, on_predicted);
    }
}

/* A model that the runtime seems to have lost is unloaded first, as it may have it after all. */
static void on_cleared(void *ctx, int rc, const struct mr_err *err,
                       const struct mr_client_response *response)
{
    struct load *o = ctx;

    if (!heard(o->r, rc, err, response)) {
        mr_free(o);
    } else if (!waits(o, rc, response)) {
        predict(o);
    }
}

static void begin_load(struct load *o)
{
    if (live_plane_reloads(o->r->m, o->id)) {
        call_load(o, SERVICE "unloadModel", false, UNLOAD_NS, on_cleared);
    } else {
        predict(o);
    }
}

static struct load *new_load(struct mr_mesh *m, const struct mesh_action *a)
{
    struct load *o = mr_alloc(sizeof *o + a->id.len + a->type.len + a->path.len + a->key.len);
    const mr_str from[] = {a->id, a->type, a->path, a->key};
    mr_str *to[] = {&o->id, &o->type, &o->path, &o->key};
    char *at = o->text;

    o->r = m->runtime;
    o->mesh = m;
    o->since_ns = live_now(m);
    for (size_t i = 0; i < sizeof from / sizeof *from; i++) {
        *to[i] = mr_str_n(memcpy(at, from[i].len ? from[i].ptr : "", from[i].len), from[i].len);
        at += from[i].len;
    }
    return o;
}

/* Those that have waited too long fail; all of them go on once the runtime is there. */
static void on_wait(struct mr_timer *t)
{
    struct live_runtime *r = MR_CONTAINER_OF(t, struct live_runtime, wait);
    struct load *all = r->waiting, *next;

    r->waiting = NULL;
    for (struct load *o = all; o; o = next) {
        next = o->next;
        if (r->is_there) {
            begin_load(o);
        } else if (live_now(r->m) - o->since_ns >= AWAY_NS) {
            fail_away(o);
            end(o);
        } else {
            o->next = r->waiting;
            r->waiting = o;
        }
    }
    if (r->waiting) {
        mr_timer_start(r->m->loop, &r->wait, MR_NS_PER_S, 0, on_wait);
    }
}

static void runtime_load(struct mr_mesh *m, const struct mesh_action *a)
{
    struct live_runtime *r = m->runtime;
    struct load *o = new_load(m, a);

    close_loaded(mr_map_remove(&r->loaded, a->id), NULL, NULL); /* it was taken for lost */
    if (r->is_there) {
        begin_load(o);
        return;
    }
    park(o);
}

/* The last request has ended. */
static void on_idle(void *ctx)
{
    struct leaving *w = ctx;
    bool is_there = w->mesh->runtime != NULL; /* the mesh may have stopped */

    if (is_there) {
        LIST_REMOVE(w, link);
    }
    if (is_there && w->o) {
        unload(w->o);
    } else {
        mr_free(w->o);
    }
    mr_free(w);
}

static void leave_late(struct live_runtime *r)
{
    struct leaving *w;

    LIST_FOREACH (w, &r->leaving, link) {
        if (w->o && live_now(r->m) - w->o->since_ns >= LEAVE_NS) {
            unload(w->o);
            w->o = NULL;
        }
    }
}

static void runtime_unload(struct mr_mesh *m, const struct mesh_action *a)
{
    struct load *o = new_load(m, a);

    o->is_unload = true;
    live_plane_forget(m, o->id);
    struct leaving *w = MR_NEW(struct leaving);
    *w = (struct leaving){.mesh = m, .o = o};
    if (close_loaded(mr_map_remove(&m->runtime->loaded, o->id), on_idle, w)) {
        mr_free(w);
        unload(o);
    } else {
        LIST_INSERT_HEAD(&m->runtime->leaving, w, link);
    }
}

static void runtime_sample(struct mr_mesh *m)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&m->runtime->loaded, &i));) {
        struct loaded *known = slot->value;
        uint32_t running;
        uint64_t uses = live_copy_uses(known->copy, &running);
        uint64_t more = uses - known->uses;
        if (more || running || known->has_running) {
            mesh_core_used(m->core, slot->key, (uint32_t)MR_MIN(more, UINT32_MAX), running,
                           live_now(m));
        }
        known->uses = uses;
        known->has_running = running > 0;
    }
    leave_late(m->runtime);
}

const struct live_loader live_runtime_loader = {runtime_load, runtime_unload, runtime_sample};

/* ---- the state ---- */

struct status {
    uint64_t state, capacity, loaders, timeout_ms, default_bytes, limits, allows_any;
    mr_str version;
    struct mesh_methods methods;
};

static void read_path(mr_bytes info, struct mr_splice_path *out)
{
    struct mr_pb_field f;

    while (mr_pb_next(&info, &f) > 0) {
        mr_bytes packed = f.bytes;
        uint64_t field = f.value;
        bool is_more = f.number == 1 && f.wire == MR_PB_VARINT;
        if (f.number == 1 && f.wire == MR_PB_LEN) {
            is_more = mr_pb_varint(&packed, &field);
        }
        for (; is_more && out->depth < MR_SPLICE_DEPTH_MAX && field > 0 && field < 1u << 29;
             is_more = f.wire == MR_PB_LEN && mr_pb_varint(&packed, &field)) {
            out->field[out->depth++] = (uint32_t)field;
        }
    }
}

static void read_method(mr_bytes entry, struct mesh_methods *to)
{
    struct mesh_method method = {0};
    mr_str name = {0};
    struct mr_pb_field f;

    while (mr_pb_next(&entry, &f) > 0) {
        if (f.number == 1 && f.wire == MR_PB_LEN) {
            name = mr_str_n((const char *)f.bytes.ptr, f.bytes.len);
        } else if (f.number == 2 && f.wire == MR_PB_LEN) {
            read_path(f.bytes, &method.path);
        }
    }
    if (name.len > 0 && name.len <= 1024) {
        mesh_methods_add(to, name, &method);
    }
}

static void read_status(mr_bytes message, struct status *s)
{
    struct mr_pb_field f;

    while (mr_pb_next(&message, &f) > 0) {
        uint64_t *to = f.number == 1    ? &s->state
                       : f.number == 2  ? &s->capacity
                       : f.number == 3  ? &s->loaders
                       : f.number == 4  ? &s->timeout_ms
                       : f.number == 5  ? &s->default_bytes
                       : f.number == 9  ? &s->limits
                       : f.number == 10 ? &s->allows_any
                                        : NULL;
        if (to && f.wire == MR_PB_VARINT) {
            *to = f.value;
        } else if (f.number == 6 && f.wire == MR_PB_LEN) {
            s->version = mr_str_n((const char *)f.bytes.ptr, MR_MIN(f.bytes.len, (size_t)128));
        } else if (f.number == 8 && f.wire == MR_PB_LEN) {
            read_method(f.bytes, &s->methods);
        }
    }
}

static int check_status(const struct status *s, struct mr_err *err)
{
    enum { STARTING, READY };

    if (s->state != READY) {
        return s->state == STARTING ? MR_FAIL(err, MR_E_UNAVAILABLE, "it is starting")
                                    : MR_FAIL(err, MR_E_INTERNAL, "it says that it is failing");
    }
    if (s->capacity / 2 < MR_MAX(s->default_bytes, 1)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "capacityInBytes is %llu, less than two models of defaultModelSizeInBytes, "
                       "%llu",
                       (unsigned long long)s->capacity, (unsigned long long)s->default_bytes);
    }
    if (s->loaders < 1 || s->timeout_ms < 100) {
        return MR_FAIL(err, MR_E_INVALID,
                       "maxLoadingConcurrency is %llu, 1 at least, and modelLoadingTimeoutMs %llu, "
                       "100 at least",
                       (unsigned long long)s->loaders, (unsigned long long)s->timeout_ms);
    }
    return MR_OK;
}

/* The capacity and the number of loads are those of the first time: the other servers know them. */
static int take(struct live_runtime *r, struct status *s, struct mr_err *err)
{
    struct mr_mesh *m = r->m;

    r->default_bytes = s->default_bytes;
    r->limits_concurrency = s->limits != 0;
    r->load_ns = (int64_t)MR_MIN(s->timeout_ms, 86400000u) * MR_NS_PER_MS;
    r->has_no_predictions = false;
    s->methods.allows_others = s->allows_any || s->methods.all.len == 0;
    live_plane_set_runtime(m, &s->methods);
    if (r->has_joined) {
        return MR_OK;
    }
    m->o.capacity_bytes =
        m->o.capacity_bytes ? MR_MIN(m->o.capacity_bytes, s->capacity) : s->capacity;
    m->o.loaders = (uint32_t)MR_MIN(s->loaders, LOADERS_MAX);
    m->default_bytes = s->default_bytes;
    r->has_joined = true;
    return live_join(m, err);
}

static void on_status(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response);

static void on_poll(struct mr_timer *t)
{
    struct live_runtime *r = MR_CONTAINER_OF(t, struct live_runtime, poll);
    struct mr_buf none;

    if (!r->is_asked) {
        r->is_asked = true;
        mr_buf_init(&none, 0);
        call(r, SERVICE "runtimeStatus", &none, STATUS_NS, on_status, r);
    }
}

/* That it starts, or cannot be reached yet, is usual; what else is wrong is said at once. */
static void not_ready(struct live_runtime *r, const struct mr_err *why)
{
    bool is_usual = why->status == MR_E_UNAVAILABLE || why->status == MR_E_DEADLINE;
    bool is_new = strcmp(why->msg, r->why.msg) != 0;

    if (is_new && !is_usual) {
        mr_log(MR_LOG_ERROR, "mesh.runtime", "not ready, asked again every two seconds: %s",
               why->msg);
    } else if (r->away_ns && live_now(r->m) - r->away_ns >= LONG_NS) {
        mr_log(MR_LOG_WARN, "mesh.runtime", "not ready for three minutes: %s", why->msg);
        r->away_ns = live_now(r->m);
    }
    r->why = *why;
}

const char *live_runtime_why(const struct live_runtime *r)
{
    return r->why.msg;
}

static void on_status(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct live_runtime *r = ctx;
    struct status s = {0};
    struct mr_err why;

    r->is_asked = false;
    if (r->is_ending) {
        return;
    }
    if (rc < 0) {
        MR_FAIL(&why, rc, "%s", err->msg);
    } else {
        read_status(response->body, &s);
        rc = check_status(&s, &why);
    }
    if (rc == MR_OK) {
        mr_timer_stop(&r->poll);
        mr_log(MR_LOG_INFO, "mesh.runtime", "ready version=%s capacity=%llu loaders=%llu",
               MR_LOG_STR(s.version), (unsigned long long)s.capacity,
               (unsigned long long)s.loaders);
        r->is_there = true;
        r->why = (struct mr_err){0};
        if (take(r, &s, &why) < 0) {
            mr_log(MR_LOG_ERROR, "mesh.runtime", "the mesh cannot be joined: %s", why.msg);
        }
        on_wait(&r->wait);
    } else {
        not_ready(r, &why);
    }
    mesh_methods_fini(&s.methods);
}

static void ask_state(struct live_runtime *r)
{
    r->away_ns = live_now(r->m);
    mr_timer_start(r->m->loop, &r->poll, 1, POLL_NS, on_poll);
}

static void away(struct live_runtime *r, const struct mr_err *err)
{
    struct mr_mesh *m = r->m;

    if (!r->is_there) {
        return;
    }
    mr_log(MR_LOG_WARN, "mesh.runtime", "away: %s; %zu models are lost", err->msg, r->loaded.len);
    r->is_there = false;
    live_plane_forget(m, (mr_str){0});
    close_all(r, true);
    ask_state(r);
    live_acted(m);
}

/* ---- what network threads say ---- */

static void on_alive(void *ctx, int rc, const struct mr_err *err,
                     const struct mr_client_response *response)
{
    struct live_runtime *r = ctx;

    r->is_asked = false;
    if (heard(r, rc, err, response) && rc == MR_E_DEADLINE && !response) {
        away(r, err);
    }
}

void live_runtime_check(struct mr_mesh *m)
{
    struct live_runtime *r = m->runtime;
    struct mr_buf none;

    if (r->is_there && !r->is_asked) {
        r->is_asked = true;
        mr_buf_init(&none, 0);
        call(r, SERVICE "modelSize", &none, STATUS_NS, on_alive, r);
    }
}

/* ---- life ---- */

static int new_client(struct mr_client **out, struct mr_mesh *m, const char *option,
                      const char *address, struct mr_err *err)
{
    struct mr_client_options o = {
        .http2 = true, .never_repeat = true, .max_response_bytes = ANSWER_MAX};

    if (!mr_http_is_local(address)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "%s '%s': calls of a runtime are not encrypted, so it must be a loopback "
                       "address with a port, or unix:/path",
                       option, address);
    }
    int rc = mr_client_new(out, m->loop, address, &o, err);
    return rc < 0 ? MR_WRAP(err, rc, "%s", option) : MR_OK;
}

int live_runtime_new(struct live_runtime **out, struct mr_mesh *m, const char *address,
                     struct mr_err *err)
{
    struct live_runtime *r = MR_NEW(struct live_runtime);
    struct mr_client *other = NULL; /* network threads have their own: this checks the address */
    int rc;

    MR_TRY(new_client(&r->client, m, "--mesh-runtime", address, err));
    MR_TRY(new_client(&other, m, "--mesh-runtime-inference", mr_mesh_runtime(m), err));
    r->m = m;
    *out = r;
    r = NULL;
out:
    mr_client_free(&other);
    if (r) {
        mr_client_free(&r->client);
        mr_free(r);
    }
    return rc;
}

void live_runtime_start(struct live_runtime *r)
{
    ask_state(r);
}

void live_runtime_free(struct live_runtime **io_r)
{
    struct live_runtime *r = *io_r;

    if (!r) {
        return;
    }
    r->is_ending = true;
    mr_timer_stop(&r->poll);
    mr_timer_stop(&r->wait);
    mr_client_free(&r->client);
    for (struct load *o = r->waiting, *next; o; o = next) {
        next = o->next;
        mr_free(o);
    }
    close_all(r, false);
    mr_freep(io_r);
}
