/* Which model a request means: one that the view has, or that a vmodel stands for, or that the registry is asked for. */
#include "request_priv.h"

mr_str request_none_of(const struct mesh_req *r)
{
    return r->is_vmodel ? MR_STR("vmodel not found") : MR_STR("model not found");
}

/* False: it has been answered. */
static bool may_ask(struct mesh_core *c, struct mesh_req *r, mr_str key, bool asks_already)
{
    if (!c->is_read || (!c->registry_is_there && !asks_already)) {
        request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_NONE,
                      MR_STR("the model is not known here, and the registry cannot be asked"),
                      RETRY_NS);
        return false;
    }
    if (unknown_is_cached(c, key)) {
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NONE, request_none_of(r), 0);
        return false;
    }
    if (!asks_already && !unknown_may_ask(c)) {
        request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_NONE,
                      MR_STR("too many requests for unknown models"), RETRY_NS);
        return false;
    }
    return true;
}

/* is_counted: the registry was asked for a model of that name before, and has answered. */
static void ask_vmodel(struct mesh_core *c, struct mesh_req *r, mr_str id, bool is_counted)
{
    mr_str key = core_key(c, MESH_KEY_VMODEL, id, (mr_str){0});

    r->may_be_vmodel = false;
    if (intent_find_vmodel(c, id)) { /* its deletion waits for the registry */
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NONE, request_none_of(r), 0);
    } else if (may_ask(c, r, key, is_counted || unknown_is_asked(c, id))) {
        unknown_look_up(c, id, r->handle);
    }
}

static void ask_registry(struct mesh_core *c, struct mesh_req *r, mr_str id)
{
    struct view_model *m = view_find(&c->view, id);
    bool asks_already = m && m->local && m->local->asks_registry;
    mr_str key = core_key(c, MESH_KEY_MODEL, id, (mr_str){0});

    if (r->may_be_vmodel && unknown_is_cached(c, key)) {
        ask_vmodel(c, r, id, false);
        return;
    }
    if (!may_ask(c, r, key, asks_already)) {
        return;
    }
    struct mesh_local *l = r->local = core_local(c, view_hold(&c->view, id));
    l->holds++;
    request_wait_add(l, r);
    if (asks_already) {
        return;
    }
    l->asks_registry = true;
    struct mesh_action *a = core_act(c, MESH_ACT_GET);
    a->token = l->handle;
    a->key = key;
}

void request_unknown(struct mesh_core *c, struct mesh_local *l)
{
    l->holds++;
    while (l->first) {
        struct mesh_req *r = l->first;
        if (r->may_be_vmodel) {
            request_wait_remove(r);
            r->local = NULL;
            l->holds--;
            ask_vmodel(c, r, view_id(l->model), true);
        } else {
            request_give_up(c, r, MR_E_NOT_FOUND, request_none_of(r), 0);
        }
    }
    l->holds--;
}

/* By what the view has, or else the registry. */
static void find_model(struct mesh_core *c, struct mesh_req *r, mr_str id)
{
    struct view_model *m = view_find(&c->view, id);

    if (m && m->revision) {
        r->local = core_local(c, m);
        r->local->holds++;
        request_send_on(c, r);
    } else {
        ask_registry(c, r, id);
    }
}

void request_looked_up(struct mesh_core *c, uint64_t handle, mr_str vmodel, int status)
{
    struct mesh_req *r = slots_get(&c->reqs, handle);
    const struct view_vmodel *vm = view_vmodel_find(&c->view, vmodel);

    if (!r) {
        return;
    }
    if (vm) {
        r->is_vmodel = false;
        find_model(c, r, vm->active);
    } else if (status < 0) {
        request_reply(c, r, MR_E_UNAVAILABLE, MESH_WHY_NONE, MR_STR("the registry does not answer"),
                      RETRY_NS);
    } else {
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NONE, request_none_of(r), 0);
    }
}

/* It runs there, whatever has become of the model or vmodel since. */
static void adopt(struct mesh_core *c, struct mesh_req *r, mr_str id, mr_str address)
{
    r->local = core_local(c, view_hold(&c->view, id));
    r->local->holds++;
    request_adopt(c, r, address);
}

void request_find(struct mesh_core *c, struct mesh_req *r, const struct mesh_ask *ask)
{
    mr_str id = ask->id;
    struct mr_err err;

    if (mesh_id_check(id, &err) < 0) {
        request_reply(c, r, MR_E_INVALID, MESH_WHY_NONE, mr_str_c(err.msg), 0);
        return;
    }
    if (c->request_count > c->o.max_requests) {
        request_reply(c, r, MR_E_EXHAUSTED, MESH_WHY_REFUSED,
                      MR_STR("too many requests are under way"), RETRY_NS);
        return;
    }
    struct view_model *m = view_find(&c->view, id);
    if (ask->is_vmodel || (ask->may_be_vmodel && !(m && m->revision))) {
        const struct view_vmodel *vm = view_vmodel_find(&c->view, id);
        r->is_vmodel = !vm && ask->is_vmodel;
        r->may_be_vmodel = !vm && !ask->is_vmodel;
        id = vm ? vm->active : id;
        m = view_find(&c->view, id);
    }
    if (ask->sent_to.ptr) {
        adopt(c, r, id, ask->sent_to);
    } else if (r->is_vmodel && ask->is_from_peer) {
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NONE, request_none_of(r), 0);
    } else if (r->is_vmodel) {
        ask_vmodel(c, r, id, false);
    } else if (ask->is_from_peer && !(m && m->revision)) {
        request_reply(c, r, MR_E_NOT_FOUND, MESH_WHY_NOT_HERE,
                      MR_STR("the model is not known here"), 0);
    } else {
        find_model(c, r, id);
    }
}
