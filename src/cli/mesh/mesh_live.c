/* What goes on until it is interrupted: the servers as a table that is drawn again, and the models that change. The server is asked
 * every interval; both end with --count answers. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/map.h"
#include "cli/common/term.h"
#include "mesh.h"

static bool pause_until_next(const struct mesh_run *r, uint32_t done)
{
    const struct timespec t = {r->opt.interval_ns / MR_NS_PER_S, r->opt.interval_ns % MR_NS_PER_S};

    fflush(stdout);
    if (ferror(stdout) || (r->opt.count && done >= r->opt.count)) {
        return false;
    }
    nanosleep(&t, NULL);
    return true;
}

/* ---- top ---- */

static int show_state(struct mesh_run *r, bool clears, struct mr_err *err)
{
    struct mr_remote_reply reply;
    ProtobufCMessage *m;
    struct mr_buf path;

    mr_buf_init(&path, 0);
    mesh_path(&path, NULL, NULL, NULL);
    int rc = mesh_ask(r, &path, NULL, &reply, err);
    mr_buf_fini(&path);
    if (rc < 0) {
        return rc;
    }
    if (r->form == MESH_JSON) {
        printf("%.*s\n", (int)reply.body.len, (const char *)reply.body.ptr);
    } else if ((rc = mesh_read(reply.body, &millrace__mesh_state__descriptor, &m, err)) == MR_OK) {
        fputs(clears ? "\033[H\033[2J" : "", stdout);
        mesh_print_state(r, (const Millrace__MeshState *)m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    mr_remote_reply_fini(&reply);
    return rc;
}

int mesh_run_top(struct mesh_run *r, struct mr_err *err)
{
    const bool clears = mr_term_of(stdout).is_terminal && r->form == MESH_TABLE;
    uint32_t done = 0;
    int rc;

    do {
        rc = show_state(r, clears, err);
    } while (rc == MR_OK && pause_until_next(r, ++done));
    return rc;
}

/* ---- watch ---- */

struct known {
    Millrace__MeshStatus status;
    uint64_t copies; /* a sum over them */
    uint32_t round;
};

struct watch {
    struct mesh_run *run;
    struct mr_map known; /* id -> struct known */
    uint32_t round;
};

static uint64_t sum_of(const Millrace__MeshModel *m)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_copies; i++) {
        uint64_t h = 1469598103934665603u; /* FNV-1a; copies in any order */
        for (const char *p = m->copies[i]->instance; *p; p++) {
            h = (h ^ (unsigned char)*p) * 1099511628211u;
        }
        for (const char *p = m->copies[i]->state; *p; p++) {
            h = (h ^ (unsigned char)*p) * 1099511628211u;
        }
        sum += h;
    }
    return sum;
}

static void tell(const struct watch *w, const Millrace__MeshModel *m)
{
    struct mr_buf b;

    if (w->run->form == MESH_JSON) {
        mr_buf_init(&b, 0);
        mr_pbjson_print(&m->base, true, &b);
        printf("%s\n", mr_buf_cstr(&b));
        mr_buf_fini(&b);
        return;
    }
    char at[32];
    printf("%s\t", mr_wall_text(mr_wall_ns(), at));
    mesh_print_text(m->id);
    printf("\t%s\t", mesh_status_name(m->status));
    for (size_t i = 0; i < m->n_copies; i++) {
        printf("%s", i ? " " : "");
        mesh_print_text(m->copies[i]->instance);
        printf("=");
        mesh_print_text(m->copies[i]->state);
    }
    printf("%s\n", m->n_copies ? "" : "-");
}

static int see_page(void *ctx, const ProtobufCMessage *page, mr_bytes json)
{
    struct watch *w = ctx;
    const Millrace__MeshModels *m = (const Millrace__MeshModels *)page;

    (void)json;
    for (size_t i = 0; i < m->n_models; i++) {
        const Millrace__MeshModel *one = m->models[i];
        struct known *k = mr_map_find(&w->known, mr_str_c(one->id));
        struct known now = {one->status, sum_of(one), w->round};
        bool is_new = !k;
        if (is_new) {
            k = MR_NEW(struct known);
            mr_map_put(&w->known, mr_str_c(one->id), k);
        }
        if (is_new || k->status != now.status || k->copies != now.copies) {
            tell(w, one);
        }
        *k = now;
    }
    return MR_OK;
}

/* Those that the last round has not seen: they were unregistered. */
static void tell_gone(struct watch *w)
{
    struct mr_map left = {0};
    struct mr_map_slot *slot;

    for (size_t i = 0; (slot = mr_map_next(&w->known, &i));) {
        struct known *k = slot->value;
        if (k->round == w->round) {
            mr_map_put(&left, slot->key, k);
            continue;
        }
        struct mr_buf id;
        mr_buf_init(&id, 0);
        mr_buf_str(&id, slot->key);
        Millrace__MeshModel gone = MILLRACE__MESH_MODEL__INIT;
        gone.id = (char *)(uintptr_t)mr_buf_cstr(&id);
        tell(w, &gone);
        mr_buf_fini(&id);
        mr_free(k);
    }
    mr_map_fini(&w->known);
    w->known = left;
}

int mesh_run_watch(struct mesh_run *r, struct mr_err *err)
{
    struct watch w = {.run = r};
    struct mr_map_slot *slot;
    int rc;

    do {
        w.round++;
        rc = mesh_pages(r, true, r->arg_count ? r->args[0] : "", see_page, &w, err);
        if (rc == MR_OK) {
            tell_gone(&w);
        }
    } while (rc == MR_OK && pause_until_next(r, w.round));
    for (size_t i = 0; (slot = mr_map_next(&w.known, &i));) {
        mr_free(slot->value);
    }
    mr_map_fini(&w.known);
    return rc;
}
