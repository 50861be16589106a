/* Registrations and vmodels: calls of an administrator, as transactions over what the view has. One that finds the registry changed since
 * is made again from the newer view, for ten seconds; then the answer is to try again. What would change nothing, or be refused,
 * by what the view has is a transaction too, of compares alone, as the view may be older than the registry.
 *
 * The owner of a vmodel, by hash as for models, moves it on: it has the target loaded as many times as the active model, and then makes it
 * the active one. */
#include "core_priv.h"

#include <stdio.h>

#define MANAGES_MAX 10000
#define AGAIN_NS    20000000      /* the watch brings what was newer; longer after each try */
#define AGAIN_MAX   8             /* times as long at most */
#define AWAY_NS     10000000000ll /* how long a call waits for a registry that is away */
#define SEE_NS      2000000000ll  /* the same of a question: then what is known is the answer */
#define SEEN_NS     5000000000ll  /* and for the watch, once it has taken the change */
#define LOOK_NS     200000000

struct manage {
    struct mesh_call call; /* texts in `text` */
    char *text;
    bool is_internal; /* no client waits for its answer: a step of a transition */
    enum { STEP_NONE, STEP_PROMOTE, STEP_FAILED } step;
    bool is_done;          /* written: it is answered once the watch has brought it */
    int64_t revision;      /* that what is written replaces; 0: it was not there */
    struct intent *staged; /* NULL, or: token is that of the journal */
    bool is_pending;       /* it is in the journal */
    bool was_sent;         /* the registry may have taken it */
    bool is_checking;      /* token is that of compares alone */
    bool is_checked;       /* the registry had it as the view */
    bool is_refused;       /* the registry or the journal does not take it */
    unsigned tries;
    uint64_t token; /* of its transaction; 0: it waits to be tried again */
    int64_t again_ns;
    int64_t until_ns; /* it does not wait longer for the registry */
};

static bool is_question(const struct mesh_call *call)
{
    return call->kind == MESH_CALL_SEE_MODEL || call->kind == MESH_CALL_SEE_VMODEL;
}

/* The id is that of a vmodel. */
static bool names_vmodel(const struct mesh_call *call)
{
    return call_changes_vmodel(call) || call->kind == MESH_CALL_SEE_VMODEL;
}

static mr_str keep(char **at, mr_str s)
{
    mr_str copy = {*at, s.len};

    memcpy(*at, s.len ? s.ptr : "", s.len);
    *at += s.len;
    return copy;
}

static struct manage *manage_new(struct mesh_core *c, const struct mesh_call *call)
{
    struct manage *m = MR_NEW(struct manage);
    mr_str *texts[] = {&m->call.id,     &m->call.def.type, &m->call.def.path, &m->call.def.key,
                       &m->call.target, &m->call.expected, &m->call.owner};
    size_t bytes = 1;

    m->call = *call;
    m->until_ns = c->now + (is_question(call) ? SEE_NS : AWAY_NS);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bytes += texts[i]->len;
    }
    char *at = m->text = mr_alloc(bytes);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = keep(&at, *texts[i]);
    }
    MR_VEC_PUSH(&c->manages, m);
    return m;
}

static void manage_end(struct mesh_core *c, struct manage *m, int status, bool is_precondition,
                       const char *text)
{
    for (size_t i = 0; i < c->manages.len; i++) {
        if (c->manages.at[i] == m) {
            c->manages.at[i] = c->manages.at[--c->manages.len];
            break;
        }
    }
    if (!m->is_internal) {
        mr_str copy = core_text(c, mr_str_c(text));
        struct mesh_action *a = core_act(c, MESH_ACT_ANSWER);
        a->user = m->call.user;
        a->status = status;
        a->is_precondition = is_precondition;
        a->is_pending = m->is_pending;
        a->is_refused = m->is_refused;
        a->text = copy;
    }
    intent_drop(&m->staged);
    mr_free(m->text);
    mr_free(m);
}

#define NOT_TAKEN "the registry does not take the change"

/* With what the registry or the journal said. */
static void end_refused(struct mesh_core *c, struct manage *m, int status, const char *what)
{
    char text[300];

    m->is_refused = true;
    snprintf(text, sizeof text, "%s%s%s", what, c->why[0] ? ": " : "", c->why);
    manage_end(c, m, status, false, text);
}

struct vmodel_model manage_model_of(const struct mesh_core *c, mr_str id)
{
    const struct view_model *m = view_find(&c->view, id);
    struct vmodel_model r = {.id = id};

    if (m && m->revision) {
        r.revision = m->revision;
        r.def = (struct mesh_def){.type = view_type(m),
                                  .path = view_path(m),
                                  .key = view_model_key(m),
                                  .size_bytes = (uint64_t)m->units_declared * MESH_UNIT,
                                  .device_bytes = (uint64_t)view_device(m) * MESH_UNIT,
                                  .min_copies = m->min_copies,
                                  .max_copies = m->max_copies,
                                  .refs = m->refs,
                                  .pinned = m->pinned,
                                  .auto_delete = m->auto_delete,
                                  .restored = m->restored};
    }
    return r;
}

static uint32_t loaded_copies(const struct mesh_core *c, mr_str id)
{
    const struct view_model *m = view_find(&c->view, id);
    uint32_t n = 0;

    for (size_t i = 0; m && i < m->copy_count; i++) {
        n += m->copies[i].state == MESH_LOADED &&
             core_peer_is_good(c, c->view.peers[m->copies[i].peer]);
    }
    return n;
}

static struct vmodel_state state_of(const struct mesh_core *c, mr_str id, mr_str wanted)
{
    const struct view_vmodel *vm = view_vmodel_find(&c->view, id);
    struct vmodel_state s = {.id = id};

    if (vm) {
        s.revision = vm->revision;
        s.v = (struct mesh_vmodel){vm->active, vm->target, vm->owner, vm->failed, vm->restored};
        s.active = manage_model_of(c, vm->active);
        s.target = manage_model_of(c, vm->target);
        s.active_copies = loaded_copies(c, vm->active);
    }
    if (wanted.len) {
        s.wanted = manage_model_of(c, wanted);
        s.wanted_is_loaded = loaded_copies(c, wanted) > 0;
    }
    return s;
}

/* ---- transactions ---- */

uint64_t manage_send(struct mesh_core *c, const struct vmodel_plan *p)
{
    struct mesh_compare *compares =
        MR_ARENA_ARRAY(&c->arena, struct mesh_compare, VMODEL_WRITES_MAX);
    struct mesh_op *ops = MR_ARENA_ARRAY(&c->arena, struct mesh_op, 2 * VMODEL_WRITES_MAX);
    size_t count = 0;

    if (!compares || !ops) {
        return 0;
    }
    for (size_t i = 0; i < p->count; i++) {
        mr_str key = core_key(c, p->write[i].kind, p->write[i].id, (mr_str){0});
        struct mr_buf b;
        mr_buf_init(&b, 0);
        if (p->write[i].kind == MESH_KEY_MODEL) {
            mesh_def_put(&b, &p->write[i].def);
        } else {
            mesh_vmodel_put(&b, &p->write[i].v);
        }
        mr_str value = core_text(c, mr_buf_view(&b));
        mr_buf_fini(&b);
        compares[i] = (struct mesh_compare){key, p->write[i].revision};
        ops[count++] =
            (struct mesh_op){.kind = p->write[i].is_delete ? MESH_OP_DELETE : MESH_OP_PUT,
                             .key = key,
                             .value = {(const uint8_t *)(value.ptr ? value.ptr : ""), value.len}};
        if (p->write[i].is_delete && p->write[i].kind == MESH_KEY_MODEL) {
            mr_str stat = core_key(c, MESH_KEY_STAT, p->write[i].id, (mr_str){0});
            ops[count++] = (struct mesh_op){.kind = MESH_OP_DELETE, .key = stat};
        }
    }
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = ++c->seq;
    a->compares = compares;
    a->compare_count = p->count;
    a->then = ops;
    a->then_count = count;
    return a->token;
}

static void send_plan(struct mesh_core *c, struct manage *m, const struct vmodel_plan *p)
{
    m->revision = p->write[0].revision; /* of the call's own record */
    m->token = manage_send(c, p);
    if (!m->token) {
        manage_end(c, m, MR_E_NOMEM, false, "no memory for the transaction");
    }
}

/* Whether what the call was decided by is still so. False: there is nothing to be asked. */
static bool send_check(struct mesh_core *c, struct manage *m)
{
    bool is_set = m->call.kind == MESH_CALL_SET_VMODEL, is_vmodel = names_vmodel(&m->call);
    struct mesh_compare *compares = MR_ARENA_ARRAY(&c->arena, struct mesh_compare, 2);
    size_t count = 0;

    if (!compares || !c->registry_is_there || m->is_checked || !m->call.user) {
        return false;
    }
    if (is_vmodel && intent_find_vmodel(c, m->call.id)) {
        return false;
    }
    if (is_vmodel) {
        const struct view_vmodel *vm = view_vmodel_find(&c->view, m->call.id);
        mr_str key = core_key(c, MESH_KEY_VMODEL, m->call.id, (mr_str){0});
        compares[count++] = (struct mesh_compare){key, vm ? vm->revision : 0};
    }
    if (is_set || !is_vmodel) {
        mr_str id = is_set ? m->call.target : m->call.id;
        mr_str key = core_key(c, MESH_KEY_MODEL, id, (mr_str){0});
        if (intent_find(c, id)) {
            return false; /* what waits for the registry counts here */
        }
        compares[count++] = (struct mesh_compare){key, manage_model_of(c, id).revision};
    }
    for (size_t i = 0; i < count; i++) {
        if (compares[i].revision == VIEW_REVISION_PENDING) {
            return false;
        }
    }
    m->is_checking = true;
    m->token = ++c->seq;
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = m->token;
    a->compares = compares;
    a->compare_count = count;
    return true;
}

static int plan_register(const struct mesh_core *c, const struct manage *m, struct vmodel_plan *p,
                         struct mr_err *err)
{
    struct vmodel_model known = manage_model_of(c, m->call.id);

    if (known.revision && !vmodel_def_is_same(&known.def, &m->call.def)) {
        return MR_FAIL(err, MR_E_EXISTS, /* the text is ModelMesh's */
                       "Model already exists with different attribute values");
    }
    if (known.revision == 0) {
        p->write[0].kind = MESH_KEY_MODEL;
        p->write[0].id = m->call.id;
        p->write[0].def = m->call.def;
        p->write[0].def.refs = 0;
        p->count = 1;
    }
    return MR_OK;
}

static int plan_unregister(const struct mesh_core *c, const struct manage *m, struct vmodel_plan *p,
                           struct mr_err *err)
{
    struct vmodel_model known = manage_model_of(c, m->call.id);

    if (known.def.refs > 0) {
        p->is_precondition = true;
        return MR_FAIL(err, MR_E_INVALID, "the model '%.*s' is in use: references of vmodels: %u",
                       MR_STR_ARG(m->call.id), known.def.refs);
    }
    if (intent_refers(c, m->call.id)) {
        p->is_precondition = true;
        return MR_FAIL(err, MR_E_INVALID,
                       "the model '%.*s' is that of a vmodel, whose change waits for the registry",
                       MR_STR_ARG(m->call.id));
    }
    if (known.revision) {
        p->write[0].kind = MESH_KEY_MODEL;
        p->write[0].id = m->call.id;
        p->write[0].revision = known.revision;
        p->write[0].is_delete = true;
        p->count = 1;
    }
    return MR_OK;
}

static int plan_vmodel(const struct mesh_core *c, const struct manage *m, struct vmodel_plan *p,
                       struct mr_err *err)
{
    bool sets = m->call.kind == MESH_CALL_SET_VMODEL && m->step == STEP_NONE;
    struct vmodel_state s = state_of(c, m->call.id, sets ? m->call.target : (mr_str){0});

    if (sets) {
        struct vmodel_set set = {.target = m->call.target,
                                 .has_def = m->call.has_def,
                                 .def = m->call.def,
                                 .update_only = m->call.update_only,
                                 .force = m->call.force,
                                 .expected = m->call.expected,
                                 .owner = m->call.owner,
                                 .new_owner = c->o.vmodel_owner};
        return vmodel_plan_set(&set, &s, p, err);
    }
    if (m->step == STEP_PROMOTE) {
        vmodel_plan_promote(&s, p);
    } else if (m->step == STEP_FAILED) {
        vmodel_plan_failed(&s, m->call.force, p);
    } else {
        vmodel_plan_delete(m->call.owner, &s, p);
    }
    return MR_OK;
}

int manage_plan_intent(const struct mesh_core *c, const struct intent *i,
                       const struct mesh_vmodel *known, int64_t revision, struct vmodel_plan *out,
                       struct mr_err *err)
{
    mr_str wanted = i->what.is_delete ? (mr_str){0} : i->what.v.target;
    struct vmodel_state s = state_of(c, i->id, wanted);

    s.revision = revision;
    if (revision) {
        s.v = *known;
        s.active = manage_model_of(c, known->active);
        s.target = manage_model_of(c, known->target);
        s.active_copies = loaded_copies(c, known->active);
    }
    if (i->what.is_delete) {
        vmodel_plan_delete(i->what.v.owner, &s, out);
        return MR_OK;
    }
    struct vmodel_set set = {
        .target = i->what.v.target, .force = i->what.force, .owner = i->what.v.owner};
    return vmodel_plan_set(&set, &s, out, err);
}

static mr_str loaded_by(const struct manage *m)
{
    return m->call.kind == MESH_CALL_SET_VMODEL ? m->call.target : m->call.id;
}

static void end_well(struct mesh_core *c, struct manage *m)
{
    if (m->call.load_now || m->call.kind == MESH_CALL_ENSURE) {
        want_load(c, loaded_by(m));
    }
    manage_end(c, m, MR_OK, false, "");
}

/* Without a journal: the registry may be back soon. A registration that it may have taken all the same is compared with what it has then. */
static void put_off(struct mesh_core *c, struct manage *m)
{
    if (!m->call.user || c->now >= m->until_ns) {
        end_refused(c, m, MR_E_UNAVAILABLE, NOT_TAKEN);
        return;
    }
    m->again_ns = c->registry_is_there ? c->now + LOOK_NS : m->until_ns;
    timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
}

/* A target that is to be registered, and is not, is a registration before the change of the vmodel. */
static bool stages_target(const struct mesh_core *c, const struct manage *m)
{
    return m->call.kind == MESH_CALL_SET_VMODEL && m->call.has_def &&
           !manage_model_of(c, m->call.target).revision;
}

static const struct mesh_vmodel *shown_by(const struct vmodel_plan *p)
{
    for (size_t i = 0; i < p->count; i++) {
        if (p->write[i].kind == MESH_KEY_VMODEL && !p->write[i].is_delete) {
            return &p->write[i].v;
        }
    }
    return NULL;
}

/* The registry is away: the change, which p plans, is made when it is back, if the journal takes it. */
static void to_journal(struct mesh_core *c, struct manage *m, const struct vmodel_plan *p)
{
    struct mesh_call call = m->call;
    struct mr_err err;

    if (!intent_can(c, &m->call)) {
        put_off(c, m);
        return;
    }
    if (stages_target(c, m)) {
        call.kind = MESH_CALL_REGISTER;
        call.id = m->call.target;
    }
    int rc = intent_stage(c, &call, shown_by(p), m->was_sent, &m->staged, &m->token, &err);
    if (rc < 0) {
        manage_end(c, m, rc, false, err.msg);
    }
}

static bool is_change(const struct manage *m)
{
    return m->call.kind != MESH_CALL_ENSURE && !is_question(&m->call);
}

bool manage_replaces(const struct mesh_core *c, const struct intent *i)
{
    for (size_t n = 0; n < c->manages.len; n++) {
        const struct intent *staged = c->manages.at[n]->staged;
        if (staged && staged->is_vmodel == i->is_vmodel && mr_str_eq(staged->id, i->id)) {
            return true;
        }
    }
    return false;
}

/* A change of what the call changes is about to be in the journal. */
static bool waits_for_staged(const struct mesh_core *c, const struct manage *m, mr_str model)
{
    for (size_t n = 0; n < c->manages.len; n++) {
        const struct manage *other = c->manages.at[n];
        const struct intent *i = other != m ? other->staged : NULL;
        if (i && (i->is_vmodel ? call_changes_vmodel(&m->call) && mr_str_eq(i->id, m->call.id)
                               : mr_str_eq(i->id, model))) {
            return true;
        }
    }
    return false;
}

static bool is_being_made(const struct mesh_core *c, const struct intent *i)
{
    return i && (i->list != INTENT_WAITS || c->registry_is_there);
}

/* A change of the same model or vmodel is being written to the journal, or from there to the registry: it comes first. */
static bool waits_for_intent(struct mesh_core *c, const struct manage *m)
{
    mr_str model = call_changes_vmodel(&m->call) ? m->call.target : m->call.id;
    struct intent *i = intent_find(c, model);

    if (i && i->forget_ns && m->call.kind == MESH_CALL_REGISTER) {
        intent_forget(c, i); /* it is wanted again */
    }
    if (is_being_made(c, i) ||
        (call_changes_vmodel(&m->call) && is_being_made(c, intent_find_vmodel(c, m->call.id)))) {
        return is_change(m);
    }
    return waits_for_staged(c, m, model);
}

static int plan(const struct mesh_core *c, const struct manage *m, struct vmodel_plan *p,
                struct mr_err *err)
{
    switch (m->call.kind) {
    case MESH_CALL_REGISTER: return plan_register(c, m, p, err);
    case MESH_CALL_UNREGISTER: return plan_unregister(c, m, p, err);
    case MESH_CALL_ENSURE:
        return manage_model_of(c, m->call.id).revision
                   ? MR_OK
                   : MR_FAIL(err, MR_E_NOT_FOUND, "model not found");
    case MESH_CALL_SEE_MODEL:
    case MESH_CALL_SEE_VMODEL: return MR_OK;
    default: return plan_vmodel(c, m, p, err);
    }
}

/* Whether the answer can do without the registry. */
static bool is_sure(const struct mesh_core *c, const struct manage *m, const struct vmodel_plan *p)
{
    if (m->call.kind == MESH_CALL_SEE_VMODEL) {
        return view_vmodel_find(&c->view, m->call.id) != NULL;
    }
    return p->count > 0 || (!is_change(m) && manage_model_of(c, m->call.id).revision);
}

static bool is_in_journal(const struct mesh_core *c, const struct manage *m)
{
    return (call_changes_vmodel(&m->call) ? intent_find_vmodel(c, m->call.id)
                                          : intent_find(c, m->call.id)) != NULL;
}

/* What the view, or the journal, says of it. */
static bool is_known(const struct mesh_core *c, const struct manage *m)
{
    if (names_vmodel(&m->call)) {
        return view_vmodel_find(&c->view, m->call.id) || intent_find_vmodel(c, m->call.id);
    }
    return manage_model_of(c, m->call.id).revision || intent_find(c, m->call.id);
}

/* A registry that is away may have what this server does not know yet. False: what is known is the answer. */
static bool waits_for_registry(struct mesh_core *c, struct manage *m)
{
    bool makes_it = m->call.kind == MESH_CALL_REGISTER || m->call.kind == MESH_CALL_SET_VMODEL;

    bool is_late = c->now >= m->until_ns;

    if (c->registry_is_there || makes_it || is_known(c, m) || (is_late && is_question(&m->call))) {
        return false;
    }
    if (is_late) {
        manage_end(c, m, MR_E_UNAVAILABLE, false,
                   "it is not known here, and the registry cannot be asked");
        return true;
    }
    m->again_ns = m->until_ns;
    timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
    return true;
}

static void attempt(struct mesh_core *c, struct manage *m)
{
    struct vmodel_plan p = {0};
    struct mr_err err;

    if (waits_for_intent(c, m)) {
        if (m->is_internal || c->now >= m->until_ns) {
            manage_end(c, m, MR_E_UNAVAILABLE, false,
                       "an earlier change of the model waits for the registry");
        } else {
            m->again_ns = c->now + AGAIN_NS;
            timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
        }
        return;
    }
    if (waits_for_registry(c, m)) {
        return;
    }
    int rc = plan(c, m, &p, &err);
    if (!is_sure(c, m, &p) && send_check(c, m)) {
        return;
    }
    if (rc < 0) {
        manage_end(c, m, rc, p.is_precondition, err.msg);
    } else if (p.count == 0) {
        m->is_pending = is_change(m) && is_in_journal(c, m);
        end_well(c, m);
    } else if (!c->registry_is_there) {
        to_journal(c, m, &p);
    } else {
        send_plan(c, m, &p);
    }
}

/* Written: it is answered once the view has it, or what came after it. */
static void finish_done(struct mesh_core *c, struct manage *m)
{
    const struct view_vmodel *vm =
        names_vmodel(&m->call) ? view_vmodel_find(&c->view, m->call.id) : NULL;
    int64_t now_has =
        names_vmodel(&m->call) ? (vm ? vm->revision : 0) : manage_model_of(c, m->call.id).revision;

    if (now_has == m->revision && c->now < m->until_ns) {
        m->again_ns = c->now + AGAIN_NS;
        timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
    } else {
        end_well(c, m);
    }
}

/* The journal has written it. */
static void staged(struct mesh_core *c, struct manage *m, int status)
{
    if (status < 0) {
        end_refused(c, m, MR_E_UNAVAILABLE,
                    "the registry is away, and the journal does not take the change");
        intent_wake(c);
        return;
    }
    bool is_target = call_changes_vmodel(&m->call) && !m->staged->is_vmodel;
    intent_commit(c, &m->staged);
    if (is_target) {
        attempt(c, m);
        return;
    }
    m->is_pending = is_in_journal(c, m);
    end_well(c, m);
}

/* Not a step of a transition: what it was decided for may be another target now. manage_transitions decides anew. */
static void try_again(struct mesh_core *c, struct manage *m)
{
    m->tries++;
    m->is_checked = false;
    if (m->is_internal || c->now >= m->until_ns) {
        manage_end(c, m, is_question(&m->call) ? MR_OK : MR_E_UNAVAILABLE, false,
                   "the registry has a record of it that cannot be read, or changes too quickly");
        return;
    }
    m->again_ns = c->now + MR_MIN(m->tries, AGAIN_MAX) * AGAIN_NS;
    timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
}

/* A registry that goes away now says nothing against what the view has. */
static void checked(struct mesh_core *c, struct manage *m, int status, bool succeeded)
{
    m->is_checking = false;
    if (succeeded || (status < 0 && is_known(c, m))) {
        m->is_checked = true;
        attempt(c, m);
    } else {
        try_again(c, m);
    }
}

static bool is_away(int status)
{
    return status == MR_E_UNAVAILABLE || status == MR_E_DEADLINE || status == MR_E_CLOSED;
}

/* The registry may have taken it. */
static void lost_answer(struct mesh_core *c, struct manage *m)
{
    struct vmodel_plan p = {0};
    struct mr_err err;

    m->was_sent = true;
    int rc = plan(c, m, &p, &err);
    if (rc < 0) { /* by what the view has learned since, as below */
        manage_end(c, m, rc, p.is_precondition, err.msg);
    } else if (p.count == 0) {
        end_well(c, m);
    } else {
        to_journal(c, m, &p);
    }
}

/* What was written comes back by the watch; a call is answered after that, so that a second one from the same caller sees it. */
bool manage_written(struct mesh_core *c, uint64_t token, int status, bool succeeded)
{
    for (size_t i = 0; i < c->manages.len; i++) {
        struct manage *m = c->manages.at[i];
        if (m->token != token || token == 0) {
            continue;
        }
        m->token = 0;
        if (m->is_checking) {
            checked(c, m, status, succeeded);
        } else if (m->staged) {
            staged(c, m, status);
        } else if (is_away(status) && intent_can(c, &m->call)) {
            lost_answer(c, m);
        } else if (status < 0 && m->call.kind == MESH_CALL_REGISTER) {
            put_off(c, m);
        } else if (status < 0) {
            end_refused(c, m, status, NOT_TAKEN);
        } else if (!succeeded) {
            try_again(c, m);
        } else if (m->is_internal) {
            manage_end(c, m, MR_OK, false, "");
        } else {
            m->again_ns = c->now + AGAIN_NS;
            m->until_ns = c->now + SEEN_NS;
            m->is_done = true;
            timers_add(&c->timers, m->again_ns, TIMER_MANAGE, 0, 0);
        }
        return true;
    }
    return false;
}

void manage_tick(struct mesh_core *c)
{
    for (size_t i = c->manages.len; i > 0; i--) {
        struct manage *m = c->manages.at[i - 1];
        if (m->token || m->again_ns > c->now) {
            continue;
        }
        if (m->is_done) {
            finish_done(c, m);
        } else {
            attempt(c, m);
        }
    }
    intent_pump(c);
    restore_tick(c);
}

void manage_wake(struct mesh_core *c)
{
    for (size_t i = 0; i < c->manages.len; i++) {
        struct manage *m = c->manages.at[i];
        m->again_ns = m->is_done ? m->again_ns : c->now;
    }
    timers_add(&c->timers, c->now, TIMER_MANAGE, 0, 0);
}

static int check_id(mr_str id, const char *of, struct mr_err *err)
{
    int rc = mesh_id_check(id, err);

    return rc < 0 ? MR_WRAP(err, rc, "%s", of) : MR_OK;
}

static int check_call(const struct mesh_call *call, struct mr_err *err)
{
    bool is_set = call->kind == MESH_CALL_SET_VMODEL;
    int rc;

    MR_TRY(check_id(call->id, names_vmodel(call) ? "vmodel" : "model", err));
    if (is_set) {
        MR_TRY(check_id(call->target, "target of the vmodel", err));
        MR_TRY(mesh_owner_check(call->owner, err));
    }
    if ((call->kind == MESH_CALL_REGISTER || (is_set && call->has_def)) &&
        call->def.type.len == 0) {
        return MR_FAIL(err, MR_E_INVALID, "the type of the model is empty");
    }
    MR_TRY(mesh_def_check(&call->def, err));
out:
    return rc;
}

void manage_call(struct mesh_core *c, const struct mesh_call *call)
{
    struct mr_err err;
    struct manage *m = manage_new(c, call);
    int rc = check_call(&m->call, &err);

    if (rc == MR_OK && c->manages.len > MANAGES_MAX) {
        rc = MR_FAIL(&err, MR_E_EXHAUSTED, "too many calls are under way");
    }
    if (rc == MR_OK && !c->is_read) {
        rc = MR_FAIL(&err, MR_E_UNAVAILABLE, "the registry is still being read");
    }
    if (rc < 0) {
        manage_end(c, m, rc, false, err.msg);
        return;
    }
    attempt(c, m);
}

/* ---- transitions ---- */

static bool has_step(const struct mesh_core *c, mr_str id)
{
    for (size_t i = 0; i < c->manages.len; i++) {
        if (c->manages.at[i]->is_internal && mr_str_eq(c->manages.at[i]->call.id, id)) {
            return true;
        }
    }
    return false;
}

static void add_step(struct mesh_core *c, const struct view_vmodel *vm, int step, bool flag)
{
    struct mesh_call call = {.kind = MESH_CALL_SET_VMODEL, .id = vm->id, .force = flag};

    if (!has_step(c, vm->id)) {
        struct manage *m = manage_new(c, &call);
        m->is_internal = true;
        m->step = step;
        attempt(c, m);
    }
}

static void advance(struct mesh_core *c, const struct view_vmodel *vm)
{
    struct view_model *target = view_find(&c->view, vm->target);
    uint32_t want = MR_MAX(loaded_copies(c, vm->active), 1);
    uint32_t have = loaded_copies(c, vm->target);

    if (!target || target->revision == 0) {
        return;
    }
    struct mesh_local *l = core_local(c, target);
    l->holds++;
    if (have >= want || (have > 0 && !place_may_grow(c, l, have))) {
        add_step(c, vm, STEP_PROMOTE, false);
    } else if (!place_is_hopeless(c, l)) {
        place_more(c, l, MESH_FOR_SCALE, want);
    } else if (!vm->failed) {
        add_step(c, vm, STEP_FAILED, true);
    }
    l->holds--;
    core_local_release(c, l);
}

void manage_transitions(struct mesh_core *c)
{
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&c->view.vmodels, &i));) {
        const struct view_vmodel *vm = slot->value;
        if (!mr_str_eq(vm->active, vm->target) && !vm->is_pending &&
            core_owner(c, vm->id, NULL) == c->me) {
            advance(c, vm);
        }
    }
}

void manage_fini(struct mesh_core *c)
{
    for (size_t i = 0; i < c->manages.len; i++) {
        intent_drop(&c->manages.at[i]->staged);
        mr_free(c->manages.at[i]->text);
        mr_free(c->manages.at[i]);
    }
    MR_VEC_FINI(&c->manages);
}
