/* Hosts in quarantine, whose rows are done again. Files with committed rows of them are removed; results elsewhere cannot
 * be, and then the job is not finished. The manifest records hosts for each item, not for single rows, so all rows of an
 * item are done again. On the loop's thread. */
#include "quarantine.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "batch/manifest/provenance.h"
#include "batch/results/committer.h"
#include "batch/results/sink.h"
#include "hosts.h"

static void quarantine_add(struct quarantine *q, const char *address, const char *reason)
{
    for (size_t i = 0; i < q->hosts.len; i++) {
        if (strcmp(q->hosts.at[i].address, address) == 0) {
            return;
        }
    }
    MR_VEC_PUSH(&q->hosts, ((struct quarantined){mr_strndup(address, strlen(address)),
                                                 mr_strndup(reason, strlen(reason)), true}));
}

static void all_are_recorded(struct quarantine *q)
{
    for (size_t i = 0; i < q->hosts.len; i++) {
        q->hosts.at[i].is_unrecorded = false;
    }
}

const char *quarantine_reason(const struct quarantine *q, const struct mr_batch_options *o,
                              const struct host *h)
{
    for (size_t i = 0; i < q->hosts.len; i++) {
        const struct quarantined *d = &q->hosts.at[i];
        if (strcmp(d->address, h->transport.address) == 0) {
            return d->reason;
        }
    }
    for (size_t i = 0; i < o->start.recompute_count; i++) {
        if (strcmp(o->start.recompute[i], h->transport.address) == 0 ||
            strcmp(o->start.recompute[i], h->url) == 0) {
            return "what it answered is done again by others";
        }
    }
    return NULL;
}

void host_quarantine(struct host *h, const char *why, struct committer *committer)
{
    struct job_state *s = h->hosts->state;
    struct mr_err err;

    quarantine_add(h->hosts->quarantine, h->transport.address, why);
    mr_err_set(&err, MR_E_INVALID, MR_HERE, "%s answers wrongly: %s", h->transport.address, why);
    mr_log(MR_LOG_WARN, "batch.host_wrong",
           "host=%s reason=%s; what it answered is done again without it",
           MR_LOG_STR(mr_str_c(h->transport.address)), MR_LOG_STR(mr_str_c(why)));
    committer_drop(committer);
    s->begins_again = s->rc == MR_OK || s->begins_again;
    job_fail(s, err.status, &err);
}

static uint64_t rows_of(const struct mr_manifest *m, const char *address)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        rows += provenance_rows(mr_manifest_item(m, i)->hosts, mr_str_c(address));
    }
    return rows;
}

bool quarantine_is_left(const struct quarantine *q, const struct results *rs, struct mr_err *err)
{
    for (size_t i = 0; rs->manifest && i < q->hosts.len; i++) {
        const struct quarantined *d = &q->hosts.at[i];
        const uint64_t rows = rows_of(rs->manifest, d->address);
        if (rows > 0) {
            mr_err_set(err, MR_E_INVALID, MR_HERE,
                       "%" PRIu64
                       " rows that are committed were answered by %s, wrongly: %s; they are in "
                       "the %s, where they have to be removed by hand",
                       rows, d->address, d->reason, rs->o->results.objects ? "objects" : "table");
            return true;
        }
    }
    return false;
}

/* Items know the addresses of hosts, which may be asked for as --hosts has them, too. */
static bool is_asked_for(const struct hosts *hs, const struct mr_manifest_item *item)
{
    for (size_t i = 0; i < hs->o->start.recompute_count; i++) {
        const char *asked = hs->o->start.recompute[i];
        if (provenance_may_be(item->hosts, mr_str_c(asked))) {
            return true;
        }
        for (size_t k = 0; k < hs->list.len; k++) {
            const struct host *h = hs->list.at[k];
            if (strcmp(h->url, asked) == 0 &&
                provenance_may_be(item->hosts, mr_str_c(h->transport.address))) {
                return true;
            }
        }
    }
    return false;
}

static bool is_to_go(const struct hosts *hs, const struct mr_manifest_item *item, bool is_asked)
{
    for (size_t i = 0; item->part && i < hs->quarantine->hosts.len; i++) {
        if (provenance_may_be(item->hosts, mr_str_c(hs->quarantine->hosts.at[i].address))) {
            return true;
        }
    }
    return is_asked && item->part && is_asked_for(hs, item);
}

int quarantine_recompute(const struct hosts *hs, struct results *rs, bool is_asked,
                         struct mr_err *err)
{
    struct quarantine *q = hs->quarantine;
    MR_VEC(const struct mr_manifest_item *) items = {0};
    uint64_t rows = 0;
    bool may_reopen;
    int rc = MR_OK;

    is_asked = is_asked && rs->o->start.recompute_count > 0;
    if (!is_asked && (q->hosts.len == 0 || !rs->sink->is_in_folder)) {
        all_are_recorded(q); /* quarantine_is_left says what stays elsewhere */
        return MR_OK;
    }
    if (!rs->sink->is_in_folder) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "--recompute-host takes back files in the job's folder; results that went "
                       "elsewhere stay there");
    }
    for (size_t i = 0; i < mr_manifest_item_count(rs->manifest); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(rs->manifest, i);
        if (is_to_go(hs, item, is_asked)) {
            MR_VEC_PUSH(&items, item);
            rows += item->rows + item->dead;
        }
    }
    if (items.len > 0) {
        /* In one record: from then on these rows have no outcome, whatever happens. */
        rc = mr_manifest_replace(rs->manifest, NULL, 0, items.at, items.len, err);
    }
    q->has_taken_back = q->has_taken_back || (rc == MR_OK && items.len > 0);
    /* A manifest that must be opened again may have more items than are known here. */
    if (rc == MR_OK && mr_manifest_is_sound(rs->manifest, &may_reopen)) {
        all_are_recorded(q);
    }
    if (rc == MR_OK && (items.len > 0 || is_asked)) {
        mr_log(MR_LOG_INFO, "batch.recompute", "files=%zu rows=%" PRIu64, items.len, rows);
    }
    MR_VEC_FINI(&items);
    return rc;
}

void quarantine_report(const struct quarantine *q)
{
    for (size_t i = 0; i < q->hosts.len; i++) {
        const struct quarantined *d = &q->hosts.at[i];
        if (d->is_unrecorded) {
            mr_log(MR_LOG_WARN, "batch.recompute_failed",
                   "host=%s; what it answered wrongly counts as done: name it as --recompute-host "
                   "at the next start",
                   MR_LOG_STR(mr_str_c(d->address)));
        }
    }
}

void quarantine_fini(struct quarantine *q)
{
    for (size_t i = 0; i < q->hosts.len; i++) {
        mr_free(q->hosts.at[i].address);
        mr_free(q->hosts.at[i].reason);
    }
    MR_VEC_FINI(&q->hosts);
}
