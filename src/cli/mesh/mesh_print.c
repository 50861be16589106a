/* Answers as tables, or lines of fields. */
#include <stdio.h>

#include "cli/common/term.h"
#include "mesh.h"

static bool is_table(const struct mesh_run *r)
{
    return r->form == MESH_TABLE;
}

void mesh_print_text(const char *text)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_text_clean(&b, mr_str_c(text));
    fputs(mr_buf_cstr(&b), stdout);
    mr_buf_fini(&b);
}

static const char *name_of(const ProtobufCEnumDescriptor *d, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);

    return v ? v->name : "?";
}

const char *mesh_status_name(Millrace__MeshStatus s)
{
    return name_of(&millrace__mesh_status__descriptor, (int)s);
}

const char *mesh_copy_name(Millrace__MeshCopy__State s)
{
    return name_of(&millrace__mesh_copy__state__descriptor, (int)s);
}

static enum mr_style style_of(Millrace__MeshStatus s)
{
    switch (s) {
    case MILLRACE__MESH_STATUS__LOADED: return MR_STYLE_GOOD;
    case MILLRACE__MESH_STATUS__LOADING: return MR_STYLE_WARN;
    case MILLRACE__MESH_STATUS__LOADING_FAILED: return MR_STYLE_BAD;
    default: return MR_STYLE_DIM;
    }
}

static void add_bytes(struct mr_grid *t, const struct mesh_run *r, uint64_t bytes)
{
    char text[32];

    if (is_table(r)) {
        mr_text_bytes(text, bytes);
        mr_grid_add(t, MR_STYLE_PLAIN, "%s", text);
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "%llu", (unsigned long long)bytes);
    }
}

/* ---- servers ---- */

static void add_peer(struct mr_grid *t, const struct mesh_run *r, const Millrace__MeshPeer *p)
{
    mr_grid_add_str(t, MR_STYLE_BOLD, mr_str_c(p->id));
    mr_grid_add_str(t, MR_STYLE_PLAIN, mr_str_c(p->address));
    mr_grid_add_str(t, MR_STYLE_PLAIN, mr_str_c(p->zone[0] ? p->zone : "-"));
    mr_grid_add(t,
                p->silent     ? MR_STYLE_BAD
                : p->draining ? MR_STYLE_WARN
                              : MR_STYLE_GOOD,
                "%s",
                p->silent     ? "silent"
                : p->draining ? "draining"
                              : "there");
    mr_grid_add(t, MR_STYLE_PLAIN, "%u", p->models);
    mr_grid_add(t, MR_STYLE_PLAIN, "%u", p->loading);
    mr_grid_add(t, MR_STYLE_PLAIN, "%u", p->queued);
    mr_grid_add(t, MR_STYLE_PLAIN, "%u", p->requests);
    add_bytes(t, r, p->used_bytes);
    add_bytes(t, r, p->capacity_bytes);
    if (p->age_s == UINT32_MAX || p->silent) {
        mr_grid_add(t, MR_STYLE_DIM, "-");
    } else {
        mr_grid_add(t, MR_STYLE_PLAIN, "%u s", p->age_s);
    }
}

void mesh_print_state(const struct mesh_run *r, const Millrace__MeshState *m)
{
    static const char *const head[] = {"SERVER", "ADDRESS",  "ZONE",   "STATE",
                                       "MODELS", "LOADING",  "QUEUED", "REQUESTS",
                                       "USED",   "CAPACITY", "EVICTS", NULL};
    struct mr_grid t;

    if (is_table(r)) {
        mesh_print_text(m->id);
        printf(", registry ");
        mesh_print_text(m->registry);
        printf("%s%s; models %llu, vmodels %llu, loads since its start %llu, evictions %llu\n",
               m->joined ? "" : ", not joined yet", m->registry_ready ? "" : ", which is away",
               (unsigned long long)m->models, (unsigned long long)m->vmodels,
               (unsigned long long)m->loads, (unsigned long long)m->evictions);
    }
    mr_grid_init(&t, head);
    for (size_t i = 0; i < m->n_peers; i++) {
        add_peer(&t, r, m->peers[i]);
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
}

/* ---- models ---- */

/* "a b" of those that have it loaded, with the state of others in brackets. */
static void put_copies(struct mr_buf *out, const Millrace__MeshModel *m)
{
    for (size_t i = 0; i < m->n_copies; i++) {
        const Millrace__MeshCopy *c = m->copies[i];
        bool is_loaded = c->state == MILLRACE__MESH_COPY__STATE__LOADED;
        mr_buf_printf(out, is_loaded ? "%s%s" : "%s%s[%s]", i ? " " : "", c->instance,
                      mesh_copy_name(c->state));
    }
    if (m->n_copies == 0) {
        mr_buf_char(out, '-');
    }
}

static void put_limits(struct mr_buf *out, const Millrace__MeshModel *m)
{
    if (m->min_copies || m->max_copies) {
        mr_buf_printf(out, "%u..", m->min_copies);
    }
    if (m->max_copies) {
        mr_buf_printf(out, "%u", m->max_copies);
    }
    mr_buf_c(out, m->pinned ? (out->len ? " pinned" : "pinned") : out->len ? "" : "-");
}

void mesh_print_models(const struct mesh_run *r, const Millrace__MeshModels *m)
{
    static const char *const head[] = {"MODEL", "STATUS", "TYPE", "SIZE", "LIMITS", "COPIES", NULL};
    struct mr_grid t;
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_grid_init(&t, head);
    for (size_t i = 0; i < m->n_models; i++) {
        const Millrace__MeshModel *one = m->models[i];
        mr_grid_add_str(&t, MR_STYLE_BOLD, mr_str_c(one->id));
        mr_grid_add(&t, style_of(one->status), "%s%s", mesh_status_name(one->status),
                    one->pending ? ",pending" : "");
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(one->type));
        add_bytes(&t, r, one->size_bytes);
        mr_buf_reset(&b);
        put_limits(&b, one);
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_buf_view(&b));
        mr_buf_reset(&b);
        put_copies(&b, one);
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_buf_view(&b));
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
    mr_buf_fini(&b);
}

void mesh_print_model(const struct mesh_run *r, const Millrace__MeshModel *m)
{
    static const char *const head[] = {"SERVER", "STATE", "SIZE", "REASON", NULL};
    const Millrace__MeshModel *one[] = {m};
    Millrace__MeshModels list = MILLRACE__MESH_MODELS__INIT;
    struct mr_grid t;

    list.models = (Millrace__MeshModel **)(uintptr_t)one;
    list.n_models = 1;
    mesh_print_models(r, &list);
    if (m->n_copies == 0 && !m->reason[0]) {
        return;
    }
    mr_grid_init(&t, head);
    if (m->reason[0]) { /* of all servers */
        mr_grid_add_str(&t, MR_STYLE_BOLD, MR_STR("-"));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, MR_STR("-"));
        add_bytes(&t, r, 0);
        mr_grid_add_str(&t, MR_STYLE_BAD, mr_str_c(m->reason));
    }
    for (size_t i = 0; i < m->n_copies; i++) {
        const Millrace__MeshCopy *c = m->copies[i];
        mr_grid_add_str(&t, MR_STYLE_BOLD, mr_str_c(c->instance));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(mesh_copy_name(c->state)));
        add_bytes(&t, r, c->size_bytes);
        mr_grid_add_str(&t, MR_STYLE_BAD, mr_str_c(c->reason));
    }
    if (is_table(r)) {
        printf("\n");
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
}

/* ---- vmodels ---- */

void mesh_print_vmodels(const struct mesh_run *r, const Millrace__MeshVModels *m)
{
    static const char *const head[] = {"VMODEL", "STATUS", "ACTIVE", "TARGET", "OWNER", NULL};
    struct mr_grid t;

    mr_grid_init(&t, head);
    for (size_t i = 0; i < m->n_vmodels; i++) {
        const Millrace__MeshVModel *v = m->vmodels[i];
        const ProtobufCEnumValue *name = protobuf_c_enum_descriptor_get_value(
            &millrace__mesh_vmodel__status__descriptor, (int)v->status);
        bool is_bad = v->status == MILLRACE__MESH_VMODEL__STATUS__TRANSITION_FAILED;
        mr_grid_add_str(&t, MR_STYLE_BOLD, mr_str_c(v->id));
        mr_grid_add(&t, is_bad ? MR_STYLE_BAD : MR_STYLE_GOOD, "%s", name ? name->name : "?");
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(v->active));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(v->target));
        mr_grid_add_str(&t, MR_STYLE_PLAIN, mr_str_c(v->owner[0] ? v->owner : "-"));
    }
    mr_grid_print(&t, stdout, is_table(r), 0);
    mr_grid_fini(&t);
}

void mesh_print_vmodel(const struct mesh_run *r, const Millrace__MeshVModel *m)
{
    const Millrace__MeshVModel *one[] = {m};
    Millrace__MeshVModels list = MILLRACE__MESH_VMODELS__INIT;

    list.vmodels = (Millrace__MeshVModel **)(uintptr_t)one;
    list.n_vmodels = 1;
    mesh_print_vmodels(r, &list);
}
