/* report.json: what a start of the job did, host by host and stage by stage. On the loop's thread, when all others have
 * ended. */
#include "report.h"

#include "base/clock.h"
#include "batch/calls/calls.h"
#include "batch/calls/reader.h"
#include "batch/common/waits.h"
#include "batch/results/committer.h"
#include "batch/results/results.h"
#include "codec/json.h"
#include "view.h"

static void put_seconds(struct mr_buf *b, const char *key, int64_t ns)
{
    mr_buf_printf(b, "\"%s\":%.6f", key, (double)ns / 1e9);
}

static void put_tokens(struct mr_buf *b, uint64_t prompt, uint64_t completion)
{
    mr_buf_printf(b, "\"prompt_tokens\":%llu,\"completion_tokens\":%llu",
                  (unsigned long long)prompt, (unsigned long long)completion);
}

static void put_host(struct mr_buf *b, const struct host *h)
{
    static const struct mr_hist none;
    const struct host_figures *f = &h->figures;
    const struct mr_hist *answers = f->answer_ns ? f->answer_ns : &none;

    MR_BUF_LIT(b, "{\"address\":");
    mr_json_put_string(b, mr_str_c(h->transport.address));
    MR_BUF_LIT(b, ",\"version\":");
    mr_json_put_string(b, mr_str_c(h->version));
    if (h->is_quarantined) {
        MR_BUF_LIT(b, ",\"quarantined\":");
        mr_json_put_string(b, mr_str_c(h->trouble));
    }
    mr_buf_printf(b,
                  ",\"rows\":%llu,\"calls\":%llu,\"failures\":%llu,\"throttled\":%llu,"
                  "\"retries\":%llu,\"dead_letters\":%llu,",
                  (unsigned long long)h->rows, (unsigned long long)h->calls,
                  (unsigned long long)h->failures,
                  (unsigned long long)f->outcomes[MR_BALANCE_THROTTLED],
                  (unsigned long long)f->retries, (unsigned long long)f->dead);
    if (h->model->openai) {
        put_tokens(b, f->prompt_tokens, f->completion_tokens);
        mr_buf_char(b, ',');
    }
    put_seconds(b, "p50_s", (int64_t)mr_hist_quantile(answers, 0.5));
    mr_buf_char(b, ',');
    put_seconds(b, "p95_s", (int64_t)mr_hist_quantile(answers, 0.95));
    mr_buf_char(b, ',');
    put_seconds(b, "p99_s", (int64_t)mr_hist_quantile(answers, 0.99));
    MR_BUF_LIT(b, ",\"stages\":{");
    put_seconds(b, "encode_s", f->encode_ns);
    mr_buf_char(b, ',');
    put_seconds(b, "answer_s", (int64_t)mr_count_get(&answers->sum));
    mr_buf_char(b, ',');
    put_seconds(b, "judge_s", f->judge_ns);
    MR_BUF_LIT(b, "}}");
}

static void put_dead(struct mr_buf *b, const struct figures *f)
{
    MR_BUF_LIT(b, "\"dead_causes\":[");
    for (size_t i = 0; i < f->dead_count; i++) {
        mr_buf_printf(b, "%s{\"kind\":\"%s\",\"cause\":", i ? "," : "", f->dead[i].kind);
        mr_json_put_string(b, mr_str_c(f->dead[i].text));
        mr_buf_printf(b, ",\"count\":%llu}", (unsigned long long)f->dead[i].count);
    }
    mr_buf_printf(b, "],\"dead_other_causes\":%llu", (unsigned long long)f->dead_other);
}

static void put_stages(struct mr_buf *b, const struct job_parts *parts)
{
    const struct {
        const char *key;
        int64_t ns;
    } stages[] = {
        {"read_s", atomic_load(&parts->reader->read_ns)},
        {"reader_waited_s", waits_ns(&parts->reader->waits)},
        {"write_s", atomic_load(&parts->results->committer->write_ns)},
        {"commit_s", atomic_load(&parts->results->committer->commit_ns)},
        {"writer_idle_s", waits_ns(&parts->results->committer->waits)},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        mr_buf_char(b, ',');
        put_seconds(b, stages[i].key, stages[i].ns);
    }
}

static void put_left_out_item(struct mr_buf *b, bool *io_is_next, const char *file,
                              const struct bad_input *bad, const char *why)
{
    mr_buf_c(b, *io_is_next ? ",{\"file\":" : "{\"file\":");
    mr_json_put_string(b, mr_str_c(file));
    mr_buf_printf(b, ",\"first_row\":%llu,\"rows\":", bad ? (unsigned long long)bad->first : 0);
    if (bad && bad->end < UINT64_MAX) {
        mr_buf_printf(b, "%llu", (unsigned long long)(bad->end - bad->first));
    } else {
        MR_BUF_LIT(b, "null");
    }
    MR_BUF_LIT(b, ",\"why\":");
    mr_json_put_string(b, mr_str_c(why));
    mr_buf_char(b, '}');
    *io_is_next = true;
}

/* What of the input has no outcome, as it cannot be read. */
static void put_left_out(struct mr_buf *b, const struct job_parts *parts)
{
    bool is_next = false;

    MR_BUF_LIT(b, "\"left_out\":[");
    for (size_t i = 0; i < mr_source_file_count(parts->results->input->source); i++) {
        const struct mr_source_file f = mr_source_file(parts->results->input->source, i);
        if (f.bad) {
            put_left_out_item(b, &is_next, f.path, NULL, f.bad);
        }
    }
    for (size_t i = 0; i < parts->reader->bad.len; i++) {
        const struct bad_input *bad = &parts->reader->bad.at[i];
        put_left_out_item(b, &is_next, mr_source_path(parts->results->input->source, bad->file),
                          bad, bad->why);
    }
    mr_buf_char(b, ']');
}

static void put_all_tokens(struct mr_buf *b, const struct job_parts *parts)
{
    const double seconds = (double)(mr_now_ns() - parts->calls->state->begin_ns) / 1e9;
    uint64_t prompt = 0;
    uint64_t completion = 0;

    if (!parts->calls->model->openai) {
        return;
    }
    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        prompt += parts->calls->hosts->list.at[i]->figures.prompt_tokens;
        completion += parts->calls->hosts->list.at[i]->figures.completion_tokens;
    }
    mr_buf_char(b, ',');
    put_tokens(b, prompt, completion);
    mr_buf_printf(b, ",\"completion_tokens_per_s\":%.1f",
                  (double)completion / MR_MAX(seconds, 1e-3));
}

void report_put(const struct job_parts *parts, struct mr_buf *b)
{
    const struct mr_manifest_totals t = mr_manifest_totals(parts->results->manifest);

    MR_BUF_LIT(b, "{\"model\":");
    mr_json_put_string(b, mr_str_c(parts->calls->o->model.name));
    mr_buf_printf(
        b,
        ",\"rows\":%llu,\"results\":%llu,\"dead_letters\":%llu,\"files\":%llu,"
        "\"bytes\":%llu,\"starts\":%u,\"this_start\":{\"rows\":%llu,\"seconds\":%.3f,"
        "\"calls\":%llu,\"failed_calls\":%llu,\"hedged_calls\":%llu",
        (unsigned long long)(t.rows + t.dead), (unsigned long long)t.rows,
        (unsigned long long)t.dead, (unsigned long long)t.parts, (unsigned long long)t.bytes,
        mr_manifest_epoch(parts->results->manifest), (unsigned long long)parts->calls->read_rows,
        (double)(mr_now_ns() - parts->calls->state->begin_ns) / 1e9,
        (unsigned long long)parts->calls->sent, (unsigned long long)parts->calls->policy.failed,
        (unsigned long long)parts->calls->hedged);
    put_all_tokens(b, parts);
    put_stages(b, parts);
    mr_buf_char(b, ',');
    put_dead(b, &parts->calls->figures);
    MR_BUF_LIT(b, "},");
    put_left_out(b, parts);
    MR_BUF_LIT(b, ",\"hosts\":[");
    for (size_t i = 0; i < parts->calls->hosts->list.len; i++) {
        mr_buf_c(b, i ? "," : "");
        put_host(b, parts->calls->hosts->list.at[i]);
    }
    MR_BUF_LIT(b, "]}");
}
