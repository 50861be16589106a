/* Requests between their loops and the core. What a loop says is a message that goes back to the loop when it has been worked off; the last event
 * of a ticket is held there until all of them are back, so that none is about a ticket that is gone. */
#include "live.h"
#include "runtime.h"

/* To the mesh's thread, and back. */
struct saying {
    struct mr_mail mail;
    struct mr_mesh_ticket *ticket;
    bool is_cancel;
    unsigned attempt;
    enum mr_mesh_result result;
    int status;
    size_t len;
    char text[];
};

/* To the ticket's thread. */
struct telling {
    struct mr_mail mail;
    struct mr_mesh_ticket *ticket;
    struct mr_mesh_event event;
    char address[300];
    char text[300];
    char id[];
};

static void put_text(char *to, size_t size, mr_str s)
{
    size_t len = mr_utf8_whole(mr_str_sub(s, 0, size - 1));

    memcpy(to, len ? s.ptr : "", len);
    to[len] = '\0';
}

static bool is_last(const struct telling *t)
{
    return t->event.kind == MR_MESH_REPLY || t->event.kind == MR_MESH_CLOSED;
}

/* Thread: the ticket's. */
static void run_told(struct mr_mail *mail)
{
    struct telling *t = MR_CONTAINER_OF(mail, struct telling, mail);

    if (is_last(t) && t->ticket->sayings > 0) {
        t->ticket->held = mail;
        return;
    }
    t->event.address = t->address;
    t->event.text = t->text;
    t->ticket->event(t->ticket, &t->event);
    mr_mesh_copy_unref(&t->event.copy);
    mr_free(t);
}

static void post(struct mr_mesh_ticket *t, struct mr_mail *mail)
{
    if (t->post) {
        t->post(t->post_ctx, mail);
    } else {
        mail->run(mail);
    }
}

static void tell(struct mr_mesh_ticket *ticket, const struct mr_mesh_event *e, mr_str address,
                 mr_str text)
{
    struct telling *t = mr_alloc(sizeof *t + e->id.len);

    t->mail.run = run_told;
    t->ticket = ticket;
    t->event = *e;
    mr_mesh_copy_ref(e->copy);
    t->event.id.ptr = e->id.len ? memcpy(t->id, e->id.ptr, e->id.len) : NULL;
    put_text(t->address, sizeof t->address, address);
    put_text(t->text, sizeof t->text, text);
    post(ticket, &t->mail);
}

static void unlink_ticket(struct mr_mesh_ticket *t)
{
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->request = 0;
    t->is_final = true;
}

static void close_ticket(struct mr_mesh_ticket *t)
{
    unlink_ticket(t);
    tell(t, &(struct mr_mesh_event){.kind = MR_MESH_CLOSED}, (mr_str){0}, (mr_str){0});
}

void live_tickets_act(struct mr_mesh *m, const struct mesh_action *a)
{
    static const enum mr_mesh_event_kind kinds[] = {[MESH_ACT_RUN] = MR_MESH_RUN,
                                                    [MESH_ACT_FORWARD] = MR_MESH_FORWARD,
                                                    [MESH_ACT_CANCEL] = MR_MESH_CANCEL,
                                                    [MESH_ACT_REPLY] = MR_MESH_REPLY};
    struct mr_mesh_ticket *t = a->user;
    struct mr_mesh_event e = {.kind = kinds[a->kind],
                              .attempt = a->attempt,
                              .load_here = a->load_here,
                              .is_plain = a->is_plain,
                              .status = a->status,
                              .why = (enum mr_mesh_why)a->why,
                              .retry_ns = a->retry_ns,
                              .id = a->id,
                              .names = a->names};

    if (a->kind == MESH_ACT_RUN && m->runtime) {
        e.copy = live_runtime_copy(m->runtime, a->id);
    }
    if (a->kind == MESH_ACT_REPLY) {
        unlink_ticket(t);
    } else {
        t->request = a->request;
    }
    tell(t, &e, a->address, a->text);
}

static void begin(struct mr_mesh *m, struct mr_mesh_ticket *t)
{
    struct mesh_ask ask = {.id = t->id,
                           .is_from_peer = t->is_from_peer,
                           .is_local = t->is_local,
                           .load_here = t->load_here,
                           .sent_to = t->sent_to,
                           .is_safe = t->is_safe,
                           .is_vmodel = t->is_vmodel,
                           .may_be_vmodel = t->may_be_vmodel,
                           .is_sequence = t->is_sequence,
                           .user = t};

    t->next = &m->tickets;
    t->prev = m->tickets.prev;
    t->prev->next = t;
    m->tickets.prev = t;
    uint64_t request = mesh_core_request(m->core, &ask, live_now(m));
    if (!t->is_final) {
        t->request = request;
    }
    live_acted(m);
}

static void run_begin(struct mr_mail *mail)
{
    struct mr_mesh_ticket *t = MR_CONTAINER_OF(mail, struct mr_mesh_ticket, mail);

    if (atomic_load(&t->mesh->is_stopping)) {
        t->is_final = true;
        tell(t, &(struct mr_mesh_event){.kind = MR_MESH_REPLY, .status = MR_E_UNAVAILABLE},
             (mr_str){0}, MR_STR("the server ends"));
        return;
    }
    begin(t->mesh, t);
}

void mr_mesh_begin(struct mr_mesh *m, struct mr_mesh_ticket *t)
{
    t->mesh = m;
    t->mail.run = run_begin;
    t->request = 0;
    t->is_final = false;
    t->held = NULL;
    mr_loop_post(m->loop, &t->mail);
}

/* ---- what a loop says ---- */

/* Thread: the ticket's. */
static void run_back(struct mr_mail *mail)
{
    struct saying *s = MR_CONTAINER_OF(mail, struct saying, mail);
    struct mr_mesh_ticket *t = s->ticket;

    mr_free(s);
    if (--t->sayings == 0 && t->held) {
        run_told(t->held);
    }
}

static void run_said(struct mr_mail *mail)
{
    struct saying *s = MR_CONTAINER_OF(mail, struct saying, mail);
    struct mr_mesh_ticket *t = s->ticket;
    struct mr_mesh *m = t->mesh;
    uint64_t request = t->request;

    if (!t->is_final && s->is_cancel) {
        close_ticket(t);
        mesh_core_cancel(m->core, request, live_now(m));
    } else if (!t->is_final) {
        bool ends = s->result == MR_MESH_ENDED;
        if (ends) {
            close_ticket(t);
        }
        if (s->result == MR_MESH_ANSWERING) {
            mesh_core_answering(m->core, request, s->attempt, live_now(m));
        } else {
            mesh_core_result(m->core, request, s->attempt, (enum mesh_result)s->result, s->status,
                             mr_str_n(s->text, s->len), live_now(m));
        }
    }
    if (!atomic_load(&m->is_stopping)) {
        live_acted(m);
    }
    mail->run = run_back;
    post(t, mail);
}

/* The ticket stays until it has been posted and come back. */
static struct saying *saying_new(struct mr_mesh_ticket *t, bool is_cancel, unsigned attempt,
                                 enum mr_mesh_result result, mr_str text)
{
    struct saying *s = mr_alloc(sizeof *s + text.len);

    s->mail.run = run_said;
    s->ticket = t;
    s->is_cancel = is_cancel;
    s->attempt = attempt;
    s->result = result;
    s->len = text.len;
    memcpy(s->text, text.len ? text.ptr : "", text.len);
    t->sayings++;
    return s;
}

void mr_mesh_result(struct mr_mesh_ticket *t, unsigned attempt, enum mr_mesh_result result,
                    int status, mr_str text)
{
    struct saying *s = saying_new(t, false, attempt, result, mr_str_sub(text, 0, MESH_TEXT_MAX));

    s->status = status;
    mr_loop_post(t->mesh->loop, &s->mail);
}

void mr_mesh_cancel(struct mr_mesh_ticket *t)
{
    struct saying *s = saying_new(t, true, 0, MR_MESH_ENDED, (mr_str){0});

    mr_loop_post(t->mesh->loop, &s->mail);
}

void live_tickets_fini(struct mr_mesh *m)
{
    while (m->tickets.next != &m->tickets) {
        struct mr_mesh_ticket *t = m->tickets.next;
        unlink_ticket(t);
        tell(t, &(struct mr_mesh_event){.kind = MR_MESH_REPLY, .status = MR_E_UNAVAILABLE},
             (mr_str){0}, MR_STR("the server ends"));
    }
}

/* ---- for others in this process: streams, nodes of workflows ---- */

struct wait {
    struct mr_mesh_ticket ticket;
    struct mr_engine_wait *wait;
    size_t len;
    char id[];
};

/* Thread: that of the request. */
static void on_seen(void *ctx)
{
    struct saying *s = ctx;

    mr_loop_post(s->ticket->mesh->loop, &s->mail);
}

/* A client may have unloaded it. */
static bool is_here(const struct mr_mesh_ticket *t)
{
    uint64_t ignored;

    return t->mesh->runtime || mr_models_size(t->mesh->models, t->id, &ignored);
}

static void on_wait_event(struct mr_mesh_ticket *t, const struct mr_mesh_event *e)
{
    struct wait *w = MR_CONTAINER_OF(t, struct wait, ticket);
    struct mr_err err;

    if (e->kind == MR_MESH_RUN && !is_here(t)) {
        mr_mesh_result(t, e->attempt, MR_MESH_NOT_HERE, MR_OK, (mr_str){0});
        return;
    }
    if (e->kind == MR_MESH_RUN) {
        mr_engine_resolved_until(&w->wait, on_seen,
                                 saying_new(t, false, e->attempt, MR_MESH_ENDED, (mr_str){0}));
        return;
    }
    if (e->kind == MR_MESH_REPLY && w->wait) {
        int status = e->why == MR_MESH_IS_NOT_HERE ? MR_E_NOT_FOUND : e->status;
        MR_FAIL(&err, status, "model '%.*s': %s", MR_STR_ARG(t->id), e->text);
        mr_engine_resolved(&w->wait, status, &err);
    }
    if (e->kind == MR_MESH_REPLY || e->kind == MR_MESH_CLOSED) {
        mr_free(w);
    }
}

/* Loads it here whatever others have: what asks cannot be sent on. */
static int resolve(void *ctx, mr_str model, mr_str version, struct mr_engine_wait *wait,
                   struct mr_err *err)
{
    struct mr_mesh *m = ctx;

    (void)version;
    if (!mr_mesh_is_joined(m) || atomic_load(&m->is_stopping)) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, "the server has not joined its mesh yet");
    }
    struct wait *w = mr_alloc(sizeof *w + model.len);
    memcpy(w->id, model.len ? model.ptr : "", model.len);
    w->wait = wait;
    w->ticket.id = mr_str_n(w->id, model.len);
    w->ticket.is_from_peer = w->ticket.load_here = w->ticket.is_local = true;
    w->ticket.event = on_wait_event;
    mr_mesh_begin(m, &w->ticket);
    return MR_PENDING;
}

struct mr_resolver mr_mesh_resolver(struct mr_mesh *m)
{
    return (struct mr_resolver){.resolve = resolve, .ctx = m};
}
