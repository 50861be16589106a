/* Hosts that are not believed, and what becomes of the rows that they have answered: they are done again. For those that
 * are committed, files are taken back; results that went elsewhere are not, and then the job is not finished. The manifest
 * knows of each item whose answers it has, but not of single rows, so all rows of an item are done again. On the loop's
 * thread. */
#include "quarantine.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "batch/common/job.h"
#include "batch/manifest/provenance.h"
#include "batch/results/committer.h"
#include "batch/results/sink.h"

static void quarantine_add(struct mr_batch *b, const char *address, const char *reason)
{
    for (size_t i = 0; i < b->quarantined.len; i++) {
        if (strcmp(b->quarantined.at[i].address, address) == 0) {
            return;
        }
    }
    MR_VEC_PUSH(&b->quarantined, ((struct quarantine){mr_strndup(address, strlen(address)),
                                                      mr_strndup(reason, strlen(reason))}));
}

const char *quarantine_reason(const struct job *j, const struct host *h)
{
    const struct mr_batch_options *o = j->o;

    for (size_t i = 0; i < j->batch->quarantined.len; i++) {
        const struct quarantine *d = &j->batch->quarantined.at[i];
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

void host_quarantine(struct host *h, const char *why)
{
    struct job *j = h->job;
    struct mr_err err;

    quarantine_add(j->batch, h->transport.address, why);
    mr_err_set(&err, MR_E_INVALID, MR_HERE, "%s answers wrongly: %s", h->transport.address, why);
    mr_log(MR_LOG_WARN, "batch.host_wrong",
           "host=%s reason=%s; what it answered is done again without it",
           MR_LOG_STR(mr_str_c(h->transport.address)), MR_LOG_STR(mr_str_c(why)));
    committer_drop(j->committer);
    j->begins_again = j->rc == MR_OK || j->begins_again;
    job_fail(j, err.status, &err);
}

static uint64_t rows_of(const struct mr_manifest *m, const char *address)
{
    uint64_t rows = 0;

    for (size_t i = 0; i < mr_manifest_item_count(m); i++) {
        rows += provenance_rows(mr_manifest_item(m, i)->hosts, mr_str_c(address));
    }
    return rows;
}

bool quarantine_is_left(struct job *j, struct mr_err *err)
{
    for (size_t i = 0; j->manifest && i < j->batch->quarantined.len; i++) {
        const struct quarantine *d = &j->batch->quarantined.at[i];
        const uint64_t rows = rows_of(j->manifest, d->address);
        if (rows > 0) {
            mr_err_set(err, MR_E_INVALID, MR_HERE,
                       "%" PRIu64
                       " rows that are committed were answered by %s, wrongly: %s; they are in "
                       "the %s, where they have to be removed by hand",
                       rows, d->address, d->reason, j->o->results.objects ? "objects" : "table");
            return true;
        }
    }
    return false;
}

/* Items know the addresses of hosts, which may be asked for as --hosts has them, too. */
static bool is_asked_for(const struct job *j, const struct mr_manifest_item *item)
{
    for (size_t i = 0; i < j->o->start.recompute_count; i++) {
        const char *asked = j->o->start.recompute[i];
        if (provenance_may_be(item->hosts, mr_str_c(asked))) {
            return true;
        }
        for (size_t k = 0; k < j->hosts.len; k++) {
            const struct host *h = j->hosts.at[k];
            if (strcmp(h->url, asked) == 0 &&
                provenance_may_be(item->hosts, mr_str_c(h->transport.address))) {
                return true;
            }
        }
    }
    return false;
}

static bool is_to_go(const struct job *j, const struct mr_manifest_item *item, bool is_asked)
{
    for (size_t i = 0; item->part && i < j->batch->quarantined.len; i++) {
        if (provenance_may_be(item->hosts, mr_str_c(j->batch->quarantined.at[i].address))) {
            return true;
        }
    }
    return is_asked && item->part && is_asked_for(j, item);
}

int quarantine_recompute(struct job *j, bool is_asked, struct mr_err *err)
{
    MR_VEC(const struct mr_manifest_item *) items = {0};
    uint64_t rows = 0;
    int rc = MR_OK;

    is_asked = is_asked && j->o->start.recompute_count > 0;
    if (!is_asked && (j->batch->quarantined.len == 0 || !j->sink->is_in_folder)) {
        return MR_OK;
    }
    if (!j->sink->is_in_folder) {
        return MR_FAIL(err, MR_E_UNSUPPORTED,
                       "--recompute-host takes back files in the job's folder; results that went "
                       "elsewhere stay there");
    }
    for (size_t i = 0; i < mr_manifest_item_count(j->manifest); i++) {
        const struct mr_manifest_item *item = mr_manifest_item(j->manifest, i);
        if (is_to_go(j, item, is_asked)) {
            MR_VEC_PUSH(&items, item);
            rows += item->rows + item->dead;
        }
    }
    if (items.len > 0) {
        /* In one record: from then on these rows have no outcome, whatever happens. */
        rc = mr_manifest_replace(j->manifest, NULL, 0, items.at, items.len, err);
    }
    j->batch->has_taken_back = j->batch->has_taken_back || (rc == MR_OK && items.len > 0);
    if (rc == MR_OK && (items.len > 0 || is_asked)) {
        mr_log(MR_LOG_INFO, "batch.recompute", "files=%zu rows=%" PRIu64, items.len, rows);
    }
    MR_VEC_FINI(&items);
    return rc;
}

void quarantine_free(struct mr_batch *b)
{
    for (size_t i = 0; i < b->quarantined.len; i++) {
        mr_free(b->quarantined.at[i].address);
        mr_free(b->quarantined.at[i].reason);
    }
    MR_VEC_FINI(&b->quarantined);
}
