/* The servers as a table that is drawn again every interval. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "cli/common/term.h"
#include "mesh.h"

void mesh_pause(const struct mesh_run *r)
{
    const struct timespec t = {r->opt.interval_ns / MR_NS_PER_S, r->opt.interval_ns % MR_NS_PER_S};

    nanosleep(&t, NULL);
}

static bool pause_until_next(const struct mesh_run *r, uint32_t done)
{
    fflush(stdout);
    if (ferror(stdout) || (r->opt.count && done >= r->opt.count)) {
        return false;
    }
    mesh_pause(r);
    return true;
}

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
