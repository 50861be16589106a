/* Hosts, and the check that they serve the job's model.
 *
 * Hosts come from lists (discover.c), which may change while the job runs. A host that no list names any more gets no more
 * calls and is closed after the last of them; it keeps its place, for its figures and for its return.
 *
 * A host takes part once it has reported the model's metadata and these equal those of the first host. A host that does not
 * answer is asked again every few seconds; a host with other metadata is cordoned, with the difference as reason. Servers
 * may also report the version in answers: a host whose model is replaced while the job runs is cordoned at the first answer
 * of the new version, which is not used. */
#include "hosts.h"

#include <stdio.h>

#include "base/clock.h"
#include "batch/common/figures.h"
#include "batch/manifest/manifest.h"
#include "discover.h"
#include "quarantine.h"

#define ASK_AGAIN_NS   (2 * MR_NS_PER_S)
#define ASK_TIMEOUT_NS (10 * MR_NS_PER_S)
#define HOSTS_MOST     MR_BALANCE_HOSTS_MAX
#define LOCAL_LIST     SIZE_MAX
#define ANSWER_FIRST   ((int64_t)16 << 20) /* bytes; of what hosts say of the model */
#define ANSWER_LEAST   ((int64_t)1 << 20)
#define ANSWER_HEAD    ((uint64_t)64 << 10)
#define ANSWER_TEXT    16 /* bytes of JSON for one of a tensor, at most: a BOOL on a line of its own */
#define LASTING_NS     (10 * MR_NS_PER_S)
#define LASTING_TIMES  2
#define LASTING_TOLD   3 /* hosts in the message */

struct host *host_of(struct hosts *hs, uint32_t id)
{
    for (size_t i = 0; i < hs->list.len; i++) {
        if (hs->list.at[i]->id == id) {
            return hs->list.at[i];
        }
    }
    return NULL;
}

size_t hosts_listed(const struct hosts *hs)
{
    size_t n = 0;

    for (size_t i = 0; i < hs->list.len; i++) {
        n += hs->list.at[i]->is_listed;
    }
    return n;
}

void hosts_count_dead(struct hosts *hs, const char *address)
{
    for (size_t i = 0; i < hs->list.len; i++) {
        struct host *h = hs->list.at[i];
        h->figures.dead += h->transport.address == address;
    }
}

/* ---- what a host says ---- */

static void trouble(struct host *h, const char *text)
{
    snprintf(h->trouble, sizeof h->trouble, "%s", text);
}

void host_cordon(struct host *h, const char *why, int64_t now_ns)
{
    mr_balance_cordon(h->hosts->balance, now_ns, h->id, mr_str_c(why));
    h->is_cordoned = true;
    h->ask_at_ns = mr_ns_after(now_ns, ASK_AGAIN_NS);
    trouble(h, why);
}

/* What does not pass by itself: no such model, server or name, no right to it, another protocol. */
static bool is_lasting(int rc)
{
    return rc == MR_E_UNAVAILABLE || rc == MR_E_INVALID || rc == MR_E_NOT_FOUND ||
           rc == MR_E_UNSUPPORTED || rc == MR_E_FORBIDDEN;
}

void host_lasts(struct host *h, const char *why)
{
    h->lasting += h->lasting < UINT32_MAX;
    snprintf(h->lasting_text, sizeof h->lasting_text, "%.*s", (int)sizeof h->lasting_text - 1, why);
}

/* Rows of an earlier start show that hosts can serve the job; a finished job does not wait for hosts. */
static bool has_rows(const struct hosts *hs)
{
    struct mr_manifest_totals totals = {0};
    bool is_finished = false;
    uint32_t epoch;
    int64_t pid;

    return hs->folder &&
           mr_manifest_summary(hs->folder, &totals, &is_finished, &epoch, &pid, NULL, NULL) ==
               MR_OK &&
           totals.rows > 0 && !is_finished;
}

static int no_host_serves(struct hosts *hs, struct mr_buf *why, struct mr_err *err)
{
    size_t listed = 0;

    for (size_t i = 0; i < hs->list.len; i++) {
        const struct host *h = hs->list.at[i];
        if (h->is_listed && listed++ < LASTING_TOLD) {
            mr_buf_printf(why, "%s%s: %s", why->len ? "; " : "", h->transport.address,
                          h->lasting_text);
        }
    }
    if (listed > LASTING_TOLD) {
        mr_buf_printf(why, "; and %zu more", listed - LASTING_TOLD);
    }
    return MR_FAIL(err, MR_E_UNAVAILABLE,
                   "no host serves the job, and that will hardly change by itself: %.400s "
                   "(--wait-for-hosts waits for them)",
                   mr_buf_cstr(why));
}

int hosts_check(struct hosts *hs, int64_t now_ns, struct mr_err *err)
{
    const int64_t since_ns = MR_MAX(hs->state->begin_ns, hs->state->resumed_ns);
    struct mr_buf why;
    int rc = MR_OK;

    if (hs->o->hosts.waits || hs->state->has_answers || now_ns - since_ns < LASTING_NS) {
        return MR_OK;
    }
    for (size_t i = 0; i < hs->list.len; i++) {
        if (hs->list.at[i]->is_listed && hs->list.at[i]->lasting < LASTING_TIMES) {
            return MR_OK;
        }
    }
    mr_buf_init(&why, 4096);
    if (!discover_may_report(hs, &why) && (why.len > 0 || hosts_listed(hs) > 0) && !has_rows(hs)) {
        rc = no_host_serves(hs, &why, err);
    }
    mr_buf_fini(&why);
    return rc;
}

static void on_reported(struct host *h, int rc, const struct mr_err *err)
{
    struct hosts *hs = h->hosts;
    const int64_t now_ns = mr_now_ns();

    h->is_asking = false;
    h->ask_at_ns = mr_ns_after(now_ns, ASK_AGAIN_NS);
    if (!h->is_listed || !h->transport.client) {
        return; /* closed in between */
    }
    if (rc < 0) {
        trouble(h, err->msg);
        if (is_lasting(rc)) {
            host_lasts(h, err->msg);
        } else {
            h->lasting = 0;
        }
        return;
    }
    h->trouble[0] = '\0';
    h->lasting = h->is_cordoned ? h->lasting : 0; /* by a call, which says more */
    h->heard_ns = now_ns;
    if (h->id) {
        mr_balance_uncordon(hs->balance, now_ns, h->id);
    } else {
        h->id = mr_balance_add(hs->balance, now_ns);
    }
    h->is_cordoned = false;
    job_advance(hs->state);
}

/* ---- which there are ---- */

static int host_open(struct host *h, const char *tls_name, struct mr_err *err)
{
    int rc = h->transport.client ? MR_OK
                                 : transport_open(&h->transport, h->hosts->state->loop, h->hosts->o,
                                                  h->url, tls_name, err);

    if (rc == MR_OK) {
        const char *why = quarantine_reason(h->hosts->quarantine, h->hosts->o, h);
        transport_bound(&h->transport,
                        h->hosts->answer_most ? h->hosts->answer_most : ANSWER_FIRST);
        h->is_listed = true;
        h->ask_at_ns = 0;
        h->heard_ns = mr_now_ns();
        h->is_cordoned = h->is_quarantined = why != NULL;
        trouble(h, why ? why : "no answer yet");
    }
    return rc;
}

/* Notes whether the list names the host. */
static void list_note(struct host *h, size_t list, bool is_named)
{
    size_t i = 0;

    while (i < h->lists.len && h->lists.at[i] != list) {
        i++;
    }
    if (is_named && i == h->lists.len) {
        MR_VEC_PUSH(&h->lists, list);
    } else if (!is_named && i < h->lists.len) {
        h->lists.at[i] = h->lists.at[--h->lists.len];
    }
}

static int host_put(struct hosts *hs, const char *url, const char *tls_name, struct mr_err *err)
{
    struct host *h = NULL;
    bool is_first = false;

    for (size_t i = 0; i < hs->list.len && !h; i++) {
        h = strcmp(hs->list.at[i]->url, url) == 0 ? hs->list.at[i] : NULL;
    }
    if (!h) {
        if (hs->list.len >= HOSTS_MOST) {
            return MR_FAIL(err, MR_E_EXHAUSTED, "there are more than %d hosts", HOSTS_MOST);
        }
        h = MR_NEW(struct host);
        *h = (struct host){.hosts = hs, .model = hs->model, .url = mr_strndup(url, strlen(url))};
        MR_VEC_PUSH(&hs->list, h);
        is_first = true;
    }
    h->is_wanted = true;
    h->is_new |= !h->is_listed;
    const int rc = h->is_listed ? MR_OK : host_open(h, tls_name, err);
    if (rc < 0 && is_first) {
        hs->list.len--;
        transport_fini(&h->transport);
        mr_free(h->url);
        mr_free(h);
    }
    return rc;
}

int hosts_set(struct hosts *hs, size_t list, const char *const *urls, size_t count,
              const char *tls_name, struct mr_err *err)
{
    int rc = MR_OK;

    for (size_t i = 0; i < hs->list.len; i++) {
        hs->list.at[i]->is_wanted = hs->list.at[i]->is_new = false;
    }
    for (size_t i = 0; i < count && rc == MR_OK; i++) {
        rc = host_put(hs, urls[i], tls_name, err);
    }
    for (size_t i = 0; i < hs->list.len; i++) {
        struct host *h = hs->list.at[i];
        if (rc == MR_OK) {
            list_note(h, list, h->is_wanted);
        }
        if (h->is_listed && (rc == MR_OK ? h->lists.len == 0 : h->is_new)) {
            mr_balance_remove(hs->balance, mr_now_ns(), h->id);
            h->is_listed = h->is_cordoned = false;
            h->id = 0;
            trouble(h, "not in the list any more");
        }
    }
    return rc;
}

int hosts_add_local(struct hosts *hs, struct mr_err *err)
{
    struct host *h;
    int rc;

    MR_TRY(local_new(&hs->local, hs->state->loop, hs->o, err));
    MR_TRY(local_metadata(hs->local, &hs->model->arena, &hs->model->metadata, err));
    hs->model->has_metadata = true;
    h = MR_NEW(struct host);
    *h = (struct host){.hosts = hs, .model = hs->model, .is_listed = true, .heard_ns = mr_now_ns()};
    list_note(h, LOCAL_LIST, true);
    h->url = mr_strndup("", 0);
    transport_open_local(&h->transport, hs->o, hs->local);
    const char *why = quarantine_reason(hs->quarantine, hs->o, h);
    if (why) {
        h->is_cordoned = h->is_quarantined = true;
        trouble(h, why);
    } else {
        h->id = mr_balance_add(hs->balance, mr_now_ns());
    }
    snprintf(h->version, sizeof h->version, "%.*s", MR_STR_ARG(hs->model->metadata.version));
    MR_VEC_PUSH(&hs->list, h);
out:
    return rc;
}

/* If the model's metadata do not bound it, an answer may take all of the memory. */
void hosts_bound(struct hosts *hs, uint64_t call_rows)
{
    const uint64_t memory = MR_MIN(hs->o->memory_bytes, (uint64_t)INT64_MAX / 2);
    uint64_t most = memory;

    if (hs->model->dialect->knows_bytes && hs->model->dialect->knows_bytes(hs->model)) {
        const uint64_t rows =
            hs->model->dialect->takes_rows(hs->model) ? MR_MAX(call_rows, (uint64_t)1) : 1;
        const uint64_t row = hs->model->dialect->answer_bytes(hs->model);
        const uint64_t bytes =
            row > UINT64_MAX / 4 / ANSWER_TEXT / rows ? UINT64_MAX / 4 : rows * row;
        most = MR_MIN(bytes * (bytes < UINT64_MAX / 4 ? ANSWER_TEXT : 1) + ANSWER_HEAD,
                      MR_MAX(memory, bytes + ANSWER_HEAD));
    }
    hs->answer_most = MR_MAX((int64_t)most, ANSWER_LEAST);
    for (size_t i = 0; i < hs->list.len; i++) {
        transport_bound(&hs->list.at[i]->transport, hs->answer_most);
    }
}

void hosts_tick(struct hosts *hs, int64_t now_ns)
{
    for (size_t i = 0; i < hs->list.len; i++) {
        struct host *h = hs->list.at[i];
        if (!h->is_listed && h->transport.client && h->in_flight == 0) {
            transport_close(&h->transport);
        }
        if (h->is_listed && (!h->id || h->is_cordoned) && !h->is_quarantined && !h->is_asking &&
            now_ns >= h->ask_at_ns) {
            h->is_asking = true;
            h->reported = on_reported;
            hs->model->dialect->ask(h, ASK_TIMEOUT_NS);
        }
    }
}

void hosts_close(struct hosts *hs)
{
    for (size_t i = 0; i < hs->list.len; i++) {
        transport_close(&hs->list.at[i]->transport);
    }
}

void hosts_free(struct hosts *hs)
{
    for (size_t i = 0; i < hs->list.len; i++) {
        transport_fini(&hs->list.at[i]->transport);
        figures_fini(&hs->list.at[i]->figures);
        MR_VEC_FINI(&hs->list.at[i]->lists);
        mr_free(hs->list.at[i]->url);
        mr_free(hs->list.at[i]);
    }
    MR_VEC_FINI(&hs->list);
}
