/* Changes of models and vmodels that this server took while the registry was away. Each is in the journal before it is answered, is seen in the view at
 * once, and is made in the registry when that is back: the definition is read, and written with its revision as compare if the intent
 * still means it. Then the journal forgets it.
 *
 * One intent for each model: a later change of the same model takes the place of the one before. A model whose registration waits is
 * known here alone, so this instance decides about it and loads it itself (core_model_owner). */
#include "core_priv.h"

#define PARALLEL 64         /* intents whose calls to the registry are under way */
#define AGAIN_NS 1000000000 /* after a call that failed */
#define FORGET_NS                                                                                  \
    60000000000 /* how long a model is deleted again in a registry that has lost its data */

static void intent_free(struct intent **io_i)
{
    struct intent *i = *io_i;

    *io_i = NULL;
    if (i) {
        mr_free(i->text);
        mr_free(i);
    }
}

/* NULL: the value cannot be read. */
static struct intent *intent_new(bool is_vmodel, mr_str id, mr_bytes value)
{
    struct intent *i = MR_NEW(struct intent);

    i->is_vmodel = is_vmodel;
    i->bytes = id.len + value.len;
    i->text = mr_alloc(i->bytes + 1);
    memcpy(i->text, id.ptr, id.len);
    memcpy(i->text + id.len, value.len ? value.ptr : (const uint8_t *)"", value.len);
    i->id = (mr_str){i->text, id.len};
    mr_bytes kept = {(const uint8_t *)i->text + id.len, value.len};
    if (mesh_intent_get(&i->what, kept, NULL) < 0 || is_vmodel != (i->what.v.target.len > 0)) {
        intent_free(&i);
    }
    return i;
}

struct intent *intent_find(const struct mesh_core *c, mr_str id)
{
    return mr_map_find(&c->intents, id);
}

void intent_init(struct mesh_core *c)
{
    for (int n = 0; n < INTENT_LISTS; n++) {
        TAILQ_INIT(&c->intent_lists[n]);
    }
}

static void take_from_list(struct mesh_core *c, struct intent *i)
{
    TAILQ_REMOVE(&c->intent_lists[i->list], i, link);
    c->intents_run -= i->list == INTENT_RUNS;
}

static void put_in_list(struct mesh_core *c, struct intent *i, enum intent_list list)
{
    i->list = list;
    c->intents_run += list == INTENT_RUNS;
    if (i->again_ns) {
        TAILQ_INSERT_TAIL(&c->intent_lists[list], i, link);
    } else {
        TAILQ_INSERT_HEAD(&c->intent_lists[list], i, link);
    }
}

static struct mr_map *map_of(struct mesh_core *c, const struct intent *i)
{
    return i->is_vmodel ? &c->vmodel_intents : &c->intents;
}

static struct intent *find(const struct mesh_core *c, bool is_vmodel, mr_str id)
{
    return is_vmodel ? intent_find_vmodel(c, id) : intent_find(c, id);
}

static void put_in(struct mesh_core *c, struct intent *i)
{
    c->intent_bytes += i->bytes;
    mr_map_put(map_of(c, i), i->id, i);
    i->again_ns = c->now; /* after those that are there */
    put_in_list(c, i, INTENT_WAITS);
}

static void take_out(struct mesh_core *c, struct intent *i)
{
    mr_map_remove(map_of(c, i), i->id);
    take_from_list(c, i);
    c->intent_bytes -= i->bytes;
    intent_free(&i);
}

void intent_runs(struct mesh_core *c, struct intent *i, uint64_t token)
{
    i->token = token;
    if (i->list != INTENT_RUNS) {
        take_from_list(c, i);
        put_in_list(c, i, INTENT_RUNS);
    }
}

/* It waits until then; 0: it is the next one. */
static void waits(struct mesh_core *c, struct intent *i, int64_t until_ns)
{
    i->token = 0;
    i->again_ns = until_ns;
    take_from_list(c, i);
    put_in_list(c, i, i->is_done ? INTENT_ENDS : INTENT_WAITS);
}

static mr_str key_of(struct mesh_core *c, const struct intent *i)
{
    return core_key(c, i->is_vmodel ? MESH_KEY_VMODEL : MESH_KEY_MODEL, i->id, (mr_str){0});
}

/* value ptr NULL: it is deleted. 0: no memory. */
static uint64_t write_journal(struct mesh_core *c, const struct intent *i, mr_str value)
{
    struct mesh_op *op = MR_ARENA_NEW(&c->arena, struct mesh_op);

    if (!op) {
        return 0;
    }
    *op = (struct mesh_op){.kind = value.ptr ? MESH_OP_PUT : MESH_OP_DELETE,
                           .key = key_of(c, i),
                           .value = {(const uint8_t *)value.ptr, value.len}};
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->is_journal = true;
    a->token = ++c->seq;
    a->then = op;
    a->then_count = 1;
    return a->token;
}

/* ---- a change is taken ---- */

bool intent_can(const struct mesh_core *c, const struct mesh_call *call)
{
    return c->journal_is_there && call->user &&
           (call->kind == MESH_CALL_REGISTER || call->kind == MESH_CALL_UNREGISTER ||
            call_changes_vmodel(call));
}

static struct mesh_def known_def(const struct view_model *m)
{
    return (struct mesh_def){.type = view_type(m), .path = view_path(m), .key = view_model_key(m)};
}

/* What is to be in the journal, after what is there. False: nothing. */
static bool fold(const struct mesh_core *c, const struct mesh_call *call, bool was_sent,
                 struct mesh_intent *out)
{
    const struct intent *before = intent_find(c, call->id);
    const struct view_model *m = view_find(&c->view, call->id);
    struct mesh_intent i = {.is_delete = call->kind == MESH_CALL_UNREGISTER,
                            .was_sent = was_sent,
                            .epoch = {c->epoch, c->epoch_len}};

    if (before) {
        bool may_be_there = !before->what.is_delete && before->what.was_sent;
        i.base = before->what.base;
        i.epoch = before->what.epoch;
        i.was_sent |= before->what.was_sent;
        i.was = may_be_there ? before->what.def : before->what.was;
    } else if (m && m->revision) {
        i.base = m->revision;
        i.was = known_def(m);
    }
    if (!i.is_delete) {
        i.def = call->def;
        i.def.refs = 0;
    }
    *out = i;
    return !i.is_delete || i.base || i.was_sent;
}

static int check_room(const struct mesh_core *c, const struct intent *i, struct mr_err *err)
{
    size_t count = c->intents.len + c->vmodel_intents.len;

    if (count >= c->o.max_intents || c->intent_bytes + i->bytes > c->o.max_intent_bytes) {
        return MR_FAIL(err, MR_E_UNAVAILABLE,
                       "the registry is away, and the journal is full: %zu changes of "
                       "%u, %zu bytes of %zu",
                       count, c->o.max_intents, c->intent_bytes, c->o.max_intent_bytes);
    }
    return MR_OK;
}

int intent_stage(struct mesh_core *c, const struct mesh_call *call, const struct mesh_vmodel *shown,
                 bool was_sent, struct intent **out, uint64_t *out_token, struct mr_err *err)
{
    bool is_vmodel = call_changes_vmodel(call);
    struct mesh_intent what;
    struct mr_buf b;
    bool is_there = is_vmodel ? intent_fold_vmodel(c, call, shown, was_sent, &what)
                              : fold(c, call, was_sent, &what);
    int rc = MR_OK;

    mr_buf_init(&b, 0);
    mesh_intent_put(&b, &what);
    mr_str value = core_text(c, mr_buf_view(&b));
    mr_buf_fini(&b);
    struct intent *i =
        intent_new(is_vmodel, call->id, (mr_bytes){(const uint8_t *)value.ptr, value.len});
    if (!i) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for the change");
    }
    i->is_nothing = !is_there;
    i->is_sent = was_sent;
    if (is_there && !find(c, is_vmodel, call->id)) {
        rc = check_room(c, i, err);
    }
    if (rc == MR_OK && !(*out_token = write_journal(c, i, is_there ? value : (mr_str){0}))) {
        rc = MR_FAIL(err, MR_E_NOMEM, "no memory for the change");
    }
    if (rc < 0) {
        intent_free(&i);
        return rc;
    }
    *out = i;
    return MR_OK;
}

/* The view has what is to be. */
static void show(struct mesh_core *c, const struct intent *i)
{
    struct mr_buf key, value;
    struct view_model *m;

    if (i->is_vmodel) {
        intent_show_vmodel(c, i);
        return;
    }
    mr_buf_init(&key, 0);
    mr_buf_init(&value, 0);
    mesh_key_put(&key, MESH_KEY_MODEL, i->id, (mr_str){0});
    if (i->what.is_delete) {
        core_apply(c, mr_buf_view(&key), (mr_bytes){0}, 0);
    } else {
        mesh_def_put(&value, &i->what.def);
        core_apply(c, mr_buf_view(&key), (mr_bytes){(const uint8_t *)value.ptr, value.len},
                   VIEW_REVISION_PENDING);
        m = view_find(&c->view, i->id);
        if (m && m->revision == VIEW_REVISION_PENDING) {
            m->is_pending = true;
        }
    }
    mr_buf_fini(&key);
    mr_buf_fini(&value);
}

void intent_commit(struct mesh_core *c, struct intent **io_staged)
{
    struct intent *i = *io_staged;
    struct intent *before = find(c, i->is_vmodel, i->id);

    *io_staged = NULL;
    if (before) {
        take_out(c, before);
    }
    if (i->is_nothing) {
        i->what.is_delete = true;
        show(c, i);
        intent_free(&i);
        return;
    }
    put_in(c, i);
    show(c, i);
    intent_wake(c);
}

void intent_drop(struct intent **io_staged)
{
    intent_free(io_staged);
}

void intent_add(struct mesh_core *c, bool is_vmodel, mr_str id, mr_bytes value)
{
    struct intent *i = intent_new(is_vmodel, id, value);

    if (i && !find(c, is_vmodel, id)) {
        i->what.was_sent = i->is_sent = true; /* perhaps, before the process ended */
        put_in(c, i);
        if (!i->what.is_delete) {
            show(c, i);
        }
        intent_wake(c);
    } else {
        intent_free(&i);
    }
}

/* ---- the registry is back ---- */

void intent_wake(struct mesh_core *c)
{
    timers_add(&c->timers, c->now, TIMER_MANAGE, 0, 0);
}

void intent_again_later(struct mesh_core *c, struct intent *i)
{
    waits(c, i, c->now + AGAIN_NS);
    timers_add(&c->timers, i->again_ns, TIMER_MANAGE, 0, 0);
}

/* Nothing of it is left to be done but that the journal forgets it. */
static void forget(struct mesh_core *c, struct intent *i)
{
    uint64_t token = write_journal(c, i, (mr_str){0});

    i->is_done = true;
    if (token) {
        intent_runs(c, i, token);
    } else {
        intent_again_later(c, i);
    }
}

void intent_end(struct mesh_core *c, struct intent *i, const char *why_not)
{
    const char *what = i->is_vmodel        ? i->what.is_delete ? "deleted" : "set"
                       : i->what.is_delete ? "unregistered"
                                           : "registered";
    mr_str id = core_text(c, i->id), text = core_text(c, mr_str_c(why_not ? why_not : what));
    struct mesh_action *a = core_act(c, MESH_ACT_RECONCILED);

    a->id = id;
    a->is_vmodel = i->is_vmodel;
    a->status = why_not ? MR_E_EXISTS : MR_OK;
    a->text = text;
    forget(c, i);
}

static void write_registry(struct mesh_core *c, struct intent *i,
                           const struct mesh_intent_known *known)
{
    struct mesh_compare *compare = MR_ARENA_NEW(&c->arena, struct mesh_compare);
    struct mesh_op *ops = MR_ARENA_ARRAY(&c->arena, struct mesh_op, 2);
    struct mesh_def def = i->what.def;
    struct mr_buf b;

    if (!compare || !ops) {
        intent_again_later(c, i);
        return;
    }
    mr_buf_init(&b, 0);
    def.refs = known->def.refs;
    mesh_def_put(&b, &def);
    mr_str value = core_text(c, mr_buf_view(&b));
    mr_buf_fini(&b);
    mr_str key = core_key(c, MESH_KEY_MODEL, i->id, (mr_str){0});
    *compare = (struct mesh_compare){key, known->revision};
    ops[0] = (struct mesh_op){.kind = i->what.is_delete ? MESH_OP_DELETE : MESH_OP_PUT,
                              .key = key,
                              .value = {(const uint8_t *)value.ptr, value.len}};
    ops[1] = (struct mesh_op){.kind = MESH_OP_DELETE,
                              .key = core_key(c, MESH_KEY_STAT, i->id, (mr_str){0})};
    i->what.was_sent = true;
    i->is_writing = true;
    struct mesh_action *a = core_act(c, MESH_ACT_TXN);
    a->token = ++c->seq;
    intent_runs(c, i, a->token);
    a->compares = compare;
    a->compare_count = 1;
    a->then = ops;
    a->then_count = i->what.is_delete || known->revision ? 2 : 1;
}

/* It is in the registry. One that has lost its data may get it again from a server that comes later. */
void intent_made(struct mesh_core *c, struct intent *i)
{
    bool is_lost = !mr_str_eq(i->what.epoch, (mr_str){c->epoch, c->epoch_len});

    i->forget_ns = i->forget_ns ? i->forget_ns : c->now + FORGET_NS;
    if (i->what.is_delete && is_lost && c->now < i->forget_ns) {
        intent_again_later(c, i);
    } else {
        intent_end(c, i, NULL);
    }
}

void intent_forget(struct mesh_core *c, struct intent *i)
{
    if (i->list == INTENT_WAITS) {
        intent_end(c, i, NULL);
    }
}

/* What the registry has counts: the view shows it, whatever it showed. */
static void show_known(struct mesh_core *c, const struct intent *i, mr_bytes value,
                       int64_t revision)
{
    struct mr_buf key;

    mr_buf_init(&key, 0);
    mesh_key_put(&key, MESH_KEY_MODEL, i->id, (mr_str){0});
    intent_meet(c, mr_buf_view(&key), value);
    core_apply(c, mr_buf_view(&key), value, revision);
    mr_buf_fini(&key);
}

static void proceed(struct mesh_core *c, struct intent *i, mr_bytes value,
                    const struct mesh_intent_known *known)
{
    switch (mesh_intent_step(&i->what, known)) {
    case MESH_INTENT_WRITE: write_registry(c, i, known); break;
    case MESH_INTENT_OUTDATED:
        show_known(c, i, value, known->revision);
        intent_end(c, i,
                   known->def.refs && i->what.is_delete
                       ? "is that of vmodels, and stays"
                       : "has a newer definition in the registry, which stays");
        break;
    case MESH_INTENT_DONE:
        if (known->revision) {
            show_known(c, i, value, known->revision);
        }
        intent_made(c, i);
        break;
    }
}

static struct intent *with_token(const struct mesh_core *c, uint64_t token)
{
    struct intent *i;

    TAILQ_FOREACH (i, &c->intent_lists[INTENT_RUNS], link) {
        if (i->token == token) {
            return i;
        }
    }
    return NULL;
}

bool intent_got(struct mesh_core *c, uint64_t token, int status, mr_bytes value, int64_t revision)
{
    struct intent *i = with_token(c, token);
    struct mesh_intent_known known = {.revision = value.ptr ? revision : 0,
                                      .epoch = {c->epoch, c->epoch_len}};

    if (!i) {
        return false;
    }
    if (status < 0) {
        intent_again_later(c, i);
    } else if (i->is_vmodel) {
        intent_proceed_vmodel(c, i, value, revision);
    } else if (value.ptr && mesh_def_get(&known.def, value, NULL) < 0) {
        intent_end(c, i, "has a definition in the registry that cannot be read, which stays");
    } else {
        proceed(c, i, value, &known);
    }
    intent_pump(c);
    return true;
}

bool intent_written(struct mesh_core *c, uint64_t token, int status, bool succeeded)
{
    struct intent *i = with_token(c, token);

    if (!i) {
        return false;
    }
    bool was_writing = i->is_writing;
    i->is_writing = false;
    if (i->is_done && status == MR_OK) {
        take_out(c, i);
    } else if (status < 0) {
        intent_again_later(c, i);
    } else if (was_writing && succeeded) {
        intent_made(c, i);
    } else if (i->is_vmodel) {
        intent_again_later(c, i); /* the watch may have to bring what it was planned by */
    } else {                      /* another server was quicker: it is read again */
        waits(c, i, 0);
    }
    intent_pump(c);
    return true;
}

static struct intent *next_due(const struct mesh_core *c)
{
    struct intent *i = TAILQ_FIRST(&c->intent_lists[INTENT_ENDS]);

    if (i && i->again_ns <= c->now) {
        return i;
    }
    i = TAILQ_FIRST(&c->intent_lists[INTENT_WAITS]);
    while (i && manage_replaces(c, i)) {
        i = TAILQ_NEXT(i, link);
    }
    return i && i->again_ns <= c->now && c->registry_is_there && c->is_read ? i : NULL;
}

void intent_pump(struct mesh_core *c)
{
    struct intent *i;

    while (c->intents_run < PARALLEL && (i = next_due(c))) {
        if (i->is_done) {
            forget(c, i);
            continue;
        }
        mr_str key = key_of(c, i);
        struct mesh_action *a = core_act(c, MESH_ACT_GET);
        a->token = ++c->seq;
        a->key = key;
        intent_runs(c, i, a->token);
    }
}

/* ---- the registry is read ---- */

static void read_again(struct mesh_core *c, const struct intent *i)
{
    struct view_model *m = view_find(&c->view, i->id);
    bool is_known = m && m->revision && m->is_seen;

    if (i->what.is_delete) {
        if (is_known && m->revision == i->what.base) {
            show(c, i);
        }
    } else if (!is_known) {
        show(c, i);
        m = view_find(&c->view, i->id);
        if (m && m->is_pending) {
            m->is_seen = true;
        }
    }
}

void intent_read(struct mesh_core *c)
{
    struct mr_map_slot *slot;

    for (size_t n = 0; (slot = mr_map_next(&c->intents, &n));) {
        const struct intent *i = slot->value;
        if (!i->is_done) {
            read_again(c, i);
        }
    }
    for (size_t n = 0; (slot = mr_map_next(&c->vmodel_intents, &n));) {
        const struct intent *i = slot->value;
        if (!i->is_done) {
            intent_read_vmodel(c, i);
        }
    }
}

void intent_meet(struct mesh_core *c, mr_str key, mr_bytes value)
{
    struct mesh_key k = mesh_key_parse(key);
    struct view_model *m =
        c->intents.len && k.kind == MESH_KEY_MODEL ? view_find(&c->view, k.id) : NULL;
    struct mesh_def def;

    if (m && m->revision && m->is_pending && value.ptr &&
        mesh_def_get(&def, value, NULL) == MR_OK) {
        struct mesh_def pending = known_def(m);
        if (!vmodel_def_is_same(&pending, &def)) {
            core_apply(c, key, (mr_bytes){0}, 0);
        }
    }
}

static void map_free(struct mr_map *map)
{
    struct mr_map_slot *slot;

    for (size_t n = 0; (slot = mr_map_next(map, &n));) {
        struct intent *i = slot->value;
        intent_free(&i);
    }
    mr_map_fini(map);
}

void intent_fini(struct mesh_core *c)
{
    map_free(&c->intents);
    map_free(&c->vmodel_intents);
}
