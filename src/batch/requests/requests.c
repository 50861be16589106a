/* See batch/requests.h. One loop, and as many workers on it as there may be calls at a time; a worker is not a thread but
 * what is known of one call:
 *
 *   take     lines that go together, decoded; those that are no requests become errors at once
 *   call     to a host; a failure is repeated by the same worker, a second later or on another host
 *   cut      the answer, a line for each request
 *
 * A call of several lines that is refused, or whose answer cannot be cut, is made again line by line, so that a line is
 * answered for by itself only. Memory: lines and answers of the calls under way.
 *
 * src/balance, which finds out how many calls a host takes and waits for hosts to come back, is not used: here the number
 * of calls is said, and a host that stays away makes errors, as the users of such files expect. */
#include "batch/requests.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/vec.h"
#include "batch/files/file.h"
#include "batch/files/lines.h"
#include "client/endpoint.h"
#include "codec/json.h"
#include "join.h"
#include "requests_hosts.h"

#define LINE_MOST    ((size_t)64 << 20)
#define ARENA_MOST   ((size_t)1 << 30)
#define OUTPUT_BYTES ((size_t)256 << 10) /* held at most */
#define OUTPUT_NS    (MR_NS_PER_S / 5)   /* for so long */
#define RETRY_NS     MR_NS_PER_S

struct item {
    uint64_t line;
    int64_t rows;
    struct mr_oip_request request;
};

struct worker {
    struct requests_run *run;
    struct mr_timer timer;
    struct mr_arena arena; /* of the lines */
    struct mr_arena call;  /* of one call */
    struct mr_buf head;
    MR_VEC(struct item) items;
    size_t first; /* of the call under way */
    size_t count;
    uint32_t attempt;
    struct requests_host *host; /* of the last call */
    mr_str id;
    int64_t begin_ns;
};

struct requests_run {
    const struct mr_requests_options *o;
    struct mr_loop *loop;
    struct mr_timer start;
    struct mr_timer flush;
    struct requests_host *hosts;
    struct worker *workers;
    size_t active; /* workers that have not come to the end */
    struct lines lines;
    char *model; /* as a part of a path */
    int fd;
    uint64_t written;
    struct mr_buf out;
    struct mr_rng rng;
    struct mr_requests_done done;
    bool joins_not; /* an answer to several lines could not be cut */
    bool is_over;
    int rc;
    struct mr_err err;
};

static void run_fail(struct requests_run *r, int rc, const struct mr_err *err)
{
    if (r->rc == MR_OK) {
        r->rc = rc;
        r->err = *err;
    }
    r->is_over = true;
    mr_loop_stop(r->loop);
}

/* ---- output ---- */

static void output_flush(struct requests_run *r)
{
    struct mr_err err;

    if (r->out.len > 0 && r->rc == MR_OK) {
        int rc = batch_file_write(r->fd, r->out.ptr, r->out.len, r->written, r->o->output, &err);
        if (rc < 0) {
            run_fail(r, rc, &err);
        }
        r->written += r->out.len;
        mr_buf_reset(&r->out);
        if (r->o->on_progress) {
            r->o->on_progress(r->o->ctx, r->done.lines);
        }
    }
}

static void on_flush(struct mr_timer *t)
{
    output_flush(MR_CONTAINER_OF(t, struct requests_run, flush));
}

/* A line of it is complete. */
static void output_line(struct requests_run *r)
{
    struct mr_err err;

    mr_buf_char(&r->out, '\n');
    r->done.lines++;
    if (r->out.failed) {
        run_fail(r, MR_FAIL(&err, MR_E_EXHAUSTED, "no memory for a line of %s", r->o->output),
                 &err);
    } else if (r->out.len >= OUTPUT_BYTES) {
        output_flush(r);
    }
}

static void failure_report(struct requests_run *r, const struct mr_requests_failure *f)
{
    if (r->o->on_failure) {
        r->o->on_failure(r->o->ctx, f);
    }
}

/* The status is the one that `mlserver infer` gives to any error. */
static void error_put(struct requests_run *r, uint64_t line, mr_str text)
{
    mr_buf_printf(&r->out,
                  "{\"parameters\":{\"batch_index\":%llu},\"error\":{\"status\":\"preprocessing "
                  "error\",\"msg\":",
                  (unsigned long long)line);
    mr_json_put_string(&r->out, text);
    MR_BUF_LIT(&r->out, "}}");
    r->done.errors++;
    output_line(r);
}

/* ---- lines ---- */

static mr_str id_new(struct requests_run *r, struct mr_arena *arena)
{
    const uint64_t a = mr_rng_u64(&r->rng);
    const uint64_t b = mr_rng_u64(&r->rng);

    /* RFC 9562, version 4 */
    return mr_arena_printf(arena, "%08x-%04x-4%03x-%04x-%012llx", (unsigned)(a >> 32),
                           (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff),
                           (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                           (unsigned long long)(b & 0xffffffffffff));
}

static int line_decode(struct worker *w, const struct line *line, struct item *out,
                       struct mr_err *err)
{
    const struct mr_oip_limits limits = {.max_json_bytes = LINE_MOST};

    if (line->is_too_long) {
        return MR_FAIL(err, MR_E_TOO_LARGE, "the line has more than %zu MiB", LINE_MOST >> 20);
    }
    const mr_str text = mr_arena_str(&w->arena, line->text);
    if (!text.ptr) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for the line");
    }
    *out = (struct item){.line = line->number};
    int rc = mr_oip_rest_decode_request((mr_bytes){(const uint8_t *)text.ptr, text.len}, -1,
                                        mr_str_c(w->run->o->model), &limits, &w->arena,
                                        &out->request, err);
    if (rc < 0) {
        return rc;
    }
    out->rows = join_rows(&out->request);
    if (out->request.id.len == 0) {
        out->request.id = id_new(w->run, &w->arena);
    }
    return MR_OK;
}

/* Lines for the next call. */
static int lines_take(struct worker *w, struct mr_err *err)
{
    struct requests_run *r = w->run;
    size_t bytes = 0;

    mr_arena_reset(&w->arena);
    w->items.len = 0;
    while (w->items.len < (r->joins_not ? 1 : r->o->batch_lines) && bytes < LINE_MOST) {
        struct line line;
        struct item item;
        struct mr_err why;
        bool is_there;
        int rc = lines_next(&r->lines, &line, &is_there, err);
        if (rc < 0) {
            return rc;
        }
        if (!is_there) {
            break;
        }
        bytes += line.text.len;
        rc = line_decode(w, &line, &item, &why);
        if (w->items.len > 0 &&
            (rc == MR_E_EXHAUSTED ||
             (rc == MR_OK && !join_fits(&w->items.at[0].request, &item.request)))) {
            lines_return(&r->lines);
            break;
        }
        if (rc < 0) {
            failure_report(r, &(struct mr_requests_failure){.line = line.number,
                                                            .count = 1,
                                                            .is_final = true,
                                                            .text = mr_str_c(why.msg)});
            error_put(r, line.number, mr_str_c(why.msg));
            if (w->items.len == 0) {
                mr_arena_reset(&w->arena);
                bytes = 0;
            }
            continue;
        }
        MR_VEC_PUSH(&w->items, item);
    }
    return MR_OK;
}

/* ---- answers ---- */

/* What the server says of an error: Open Inference Protocol has "error", others have "detail". */
static mr_str error_text(mr_bytes body, struct mr_arena *arena)
{
    const mr_str all = mr_str_n((const char *)body.ptr, body.len);
    struct mr_json j;
    bool first = true;
    mr_str key;
    mr_str found = {0};

    mr_json_init(&j, all, arena, 0, NULL);
    mr_json_enter_object(&j);
    while (mr_json_next_key(&j, &first, &key)) {
        const bool is_it = mr_str_eq_c(key, "error") || mr_str_eq_c(key, "detail");
        if (is_it && mr_json_peek(&j) == MR_JSON_STRING) {
            mr_json_string(&j, &found);
        } else {
            mr_json_skip(&j, is_it ? &found : NULL);
        }
    }
    return mr_json_finish(&j) == MR_OK && found.len > 0 ? found : mr_str_sub(all, 0, 4096);
}

/* The line for one request of a call. */
static int answer_put(struct worker *w, const struct item *item, struct mr_oip_response *part,
                      struct mr_buf *head, struct mr_err *err)
{
    struct mr_oip_param *params =
        MR_ARENA_ARRAY(&w->call, struct mr_oip_param, part->param_count + 2);
    struct mr_oip_encoded encoded;
    size_t n = 2;

    if (!params) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for an answer");
    }
    params[0] = (struct mr_oip_param){MR_STR("batch_index"), MR_OIP_UINT, .u = item->line};
    params[1] = (struct mr_oip_param){MR_STR("inference_id"), MR_OIP_STRING, .s = w->id};
    for (size_t i = 0; i < part->param_count; i++) {
        if (!mr_str_eq(part->params[i].key, params[0].key) &&
            !mr_str_eq(part->params[i].key, params[1].key)) {
            params[n++] = part->params[i];
        }
    }
    part->params = params;
    part->param_count = n;
    part->id = item->request.id;
    int rc = mr_oip_rest_encode_response(part, head, &w->call, &encoded, err);
    for (size_t i = 0; rc == MR_OK && i < encoded.piece_count; i++) {
        mr_buf_append(&w->run->out, encoded.pieces[i].ptr, encoded.pieces[i].len);
    }
    return rc;
}

/* All lines of the call, or none of them. */
static int answer_cut(struct worker *w, const struct mr_oip_response *answer, struct mr_err *err)
{
    struct requests_run *r = w->run;
    const size_t out_before = r->out.len;
    int64_t all = 0;
    int64_t at = 0;
    struct mr_buf head;
    int rc = MR_OK;

    for (size_t i = 0; i < w->count; i++) {
        all += w->items.at[w->first + i].rows;
    }
    mr_buf_init(&head, 0);
    for (size_t i = 0; i < w->count && rc == MR_OK; i++) {
        const struct item *item = &w->items.at[w->first + i];
        struct mr_oip_response part;
        rc = join_cut(answer, all, at, item->rows, &w->call, &part, err);
        rc = rc < 0 ? rc : answer_put(w, item, &part, &head, err);
        mr_buf_char(&r->out, '\n');
        at += item->rows;
    }
    mr_buf_fini(&head);
    if (rc < 0) {
        r->out.len = out_before;
        return rc;
    }
    r->out.len--; /* the last line's end is output_line's */
    r->done.lines += w->count - 1;
    output_line(r);
    return MR_OK;
}

struct verdict {
    bool is_ok;
    bool may_repeat;  /* it may be another time */
    bool is_of_lines; /* it may be due to some of the lines */
    mr_str text;      /* in the call's arena */
};

static void response_judge(struct worker *w, const struct mr_client_response *response,
                           struct verdict *v)
{
    struct mr_oip_response answer;
    struct mr_err err;
    const struct mr_endpoint e = {.is_grpc = false};
    int rc = mr_endpoint_decode(&e, response, NULL, &w->call, &answer, &err);

    if (rc == MR_OK) {
        rc = answer_cut(w, &answer, &err);
        /* A model that does not answer row by row will not do so the next time. */
        v->may_repeat = false;
        v->is_of_lines = true;
        w->run->joins_not = w->run->joins_not || (rc == MR_E_INVALID && w->count > 1);
    }
    v->is_ok = rc == MR_OK;
    v->text = mr_arena_printf(&w->call, "wrong answer: %s", rc < 0 ? err.msg : "");
}

static struct verdict judge(struct worker *w, int rc, const struct mr_err *err,
                            const struct mr_client_response *response)
{
    struct verdict v = {.may_repeat = true};

    mr_arena_reset(&w->call);
    if (rc < 0) {
        v.is_of_lines = rc == MR_E_TOO_LARGE;
        v.may_repeat = !v.is_of_lines;
        v.text = mr_arena_str(&w->call, mr_str_c(err->msg));
    } else if (response->status == 200) {
        response_judge(w, response, &v);
    } else {
        const int status = response->status;
        v.may_repeat = status >= 500 || status == 408 || status == 429;
        v.is_of_lines = status != 429 && status != 503;
        v.text = mr_arena_str(&w->call, error_text(response->body, &w->call));
    }
    return v;
}

/* ---- calls ---- */

static void worker_go(struct worker *w);

static void on_timer(struct mr_timer *t)
{
    worker_go(MR_CONTAINER_OF(t, struct worker, timer));
}

/* What is left is done line by line. */
static void call_part(struct worker *w)
{
    w->count = 1;
    w->attempt = 0;
    w->host = NULL;
}

/* The call has an outcome for good: the next one, if there is a line left. */
static void call_next(struct worker *w)
{
    w->first += w->count;
    call_part(w);
}

/* True: the call is made once more. */
static bool call_failed(struct worker *w, const struct verdict *v)
{
    struct requests_run *r = w->run;
    const bool is_last = !v->may_repeat || w->attempt >= r->o->attempts;
    const bool is_parted = is_last && w->count > 1 && v->is_of_lines;
    const struct mr_requests_failure f = {.line = w->items.at[w->first].line,
                                          .count = w->count,
                                          .attempt = w->attempt,
                                          .is_final = is_last && !is_parted,
                                          .host = w->host ? w->host->address : NULL,
                                          .text = v->text};

    failure_report(r, &f);
    if (is_parted) {
        call_part(w);
    } else if (is_last) {
        for (size_t i = 0; i < w->count; i++) {
            error_put(r, w->items.at[w->first + i].line, v->text);
        }
        call_next(w);
    }
    return !is_last;
}

static void on_done(void *ctx, int rc, const struct mr_err *err,
                    const struct mr_client_response *response)
{
    struct worker *w = ctx;
    struct requests_run *r = w->run;

    if (r->is_over) {
        return;
    }
    const struct verdict v = judge(w, rc, err, response);
    w->host->under_way--;
    requests_host_report(w->host, v.is_ok || !v.may_repeat);
    if (v.is_ok) {
        call_next(w);
    } else if (call_failed(w, &v) && w->attempt % r->o->host_count == 0) {
        /* All hosts were asked: they have a second to come to themselves. */
        mr_timer_start(r->loop, &w->timer, RETRY_NS, 0, on_timer);
        return;
    }
    worker_go(w);
}

static int request_make(struct worker *w, struct mr_oip_request *out, struct mr_err *err)
{
    const struct mr_oip_request **requests =
        MR_ARENA_ARRAY(&w->call, const struct mr_oip_request *, w->count);
    int rc = MR_OK;

    if (!requests) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a call");
    }
    for (size_t i = 0; i < w->count; i++) {
        requests[i] = &w->items.at[w->first + i].request;
    }
    *out = *requests[0];
    if (w->count > 1) {
        rc = join_requests(requests, w->count, &w->call, out, err);
        out->id = w->id;
    }
    for (size_t i = 0; rc == MR_OK && i < out->input_count && w->run->o->is_binary; i++) {
        out->inputs[i].binary = !out->inputs[i].shm.region.ptr;
    }
    for (size_t i = 0; rc == MR_OK && i < out->output_count && w->run->o->is_binary; i++) {
        out->outputs[i].binary_data = 1;
    }
    out->binary_data_output = w->run->o->is_binary && out->output_count == 0;
    return rc;
}

/* A header's value: of what a peer may say, nothing but this goes into one. */
static bool is_plain(mr_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < ' ' || s.ptr[i] > '~') {
            return false;
        }
    }
    return s.len > 0 && s.len <= 1024;
}

static int call_send(struct worker *w, struct mr_err *err)
{
    struct requests_run *r = w->run;
    struct mr_oip_request request;
    int rc;

    mr_arena_reset(&w->call);
    /* In the arena of the lines, as the answer is written with it. */
    w->id = w->count > 1 ? id_new(r, &w->arena) : w->items.at[w->first].request.id;
    w->host = requests_host_pick(r->hosts, r->o->host_count, w->host);
    MR_TRY(request_make(w, &request, err));
    const struct mr_header ids[] = {{MR_STR("seldon-puid"), w->id},
                                    {MR_STR("x-request-id"), w->id}};
    const struct mr_endpoint e = {
        .client = w->host->client, .prefix = w->host->prefix, .model = r->model};
    const struct mr_endpoint_infer infer = {.request = &request,
                                            .more = ids,
                                            .more_count = is_plain(w->id) ? 2 : 0,
                                            .timeout_ns = r->o->timeout_ns};
    if (!mr_endpoint_infer(&e, &infer, &w->head, &w->call, NULL, on_done, w, err)) {
        return err->status;
    }
    r->done.calls++;
    w->host->under_way++;
out:
    return rc;
}

/* ---- workers ---- */

/* True: the worker's next call comes later. */
static bool worker_waits(struct worker *w)
{
    const struct mr_requests_options *o = w->run->o;

    if (w->begin_ns == 0 || o->interval_ns + o->jitter_ns == 0) {
        return false;
    }
    const int64_t gap_ns =
        o->interval_ns + (int64_t)(mr_rng_unit(&w->run->rng) * (double)o->jitter_ns);
    const int64_t left_ns = w->begin_ns + gap_ns - mr_now_ns();
    w->begin_ns = 0;
    if (left_ns > 0) {
        mr_timer_start(w->run->loop, &w->timer, left_ns, 0, on_timer);
    }
    return left_ns > 0;
}

/* True: there are lines to be done. */
static bool worker_take(struct worker *w)
{
    struct requests_run *r = w->run;
    struct mr_err err;
    int rc = lines_take(w, &err);

    if (rc < 0) {
        run_fail(r, rc, &err);
        return false;
    }
    w->first = 0;
    w->count = w->items.len;
    w->attempt = 0;
    w->host = NULL;
    w->begin_ns = mr_now_ns();
    if (w->items.len == 0 && --r->active == 0) {
        mr_loop_stop(r->loop);
    }
    return w->items.len > 0;
}

/* Until a call is under way, or nothing is left. */
static void worker_go(struct worker *w)
{
    struct mr_err err;

    while (!w->run->is_over) {
        if (w->first == w->items.len && (worker_waits(w) || !worker_take(w))) {
            return;
        }
        w->attempt++;
        if (call_send(w, &err) == MR_OK) {
            return;
        }
        const struct verdict v = {.is_of_lines = true, .text = mr_str_c(err.msg)};
        call_failed(w, &v);
    }
}

static void on_start(struct mr_timer *t)
{
    struct requests_run *r = MR_CONTAINER_OF(t, struct requests_run, start);

    for (uint32_t i = 0; i < r->o->workers; i++) {
        worker_go(&r->workers[i]);
    }
}

/* ---- setting up ---- */

static char *path_part(const char *name)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    mr_buf_percent(&b, mr_str_c(name), "");
    char *part = mr_strndup(mr_buf_cstr(&b), b.len);
    mr_buf_fini(&b);
    return part;
}

static int options_check(const struct mr_requests_options *o, struct mr_err *err)
{
    const struct {
        bool is_wrong;
        const char *text;
    } checks[] = {
        {o->host_count == 0, "there is no host"},
        {!o->model || !o->model[0] || strlen(o->model) > 256,
         "the model has no name, or one of more than 256 bytes"},
        {!o->input || !o->output, "there is no input or no output"},
        {o->workers == 0 || o->attempts == 0 || o->batch_lines == 0,
         "workers, attempts and lines of a call are 1 at least"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (checks[i].is_wrong) {
            return MR_FAIL(err, MR_E_INVALID, "%s", checks[i].text);
        }
    }
    return MR_OK;
}

/* Emptied only when it is known to be another file than the input. */
static int output_open(struct requests_run *r, struct mr_err *err)
{
    const char *path = r->o->output;
    struct stat in;
    struct stat out;

    r->fd = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (r->fd < 0) {
        return batch_file_fail(err, "make", path);
    }
    if (fstat(r->lines.fd, &in) < 0 || fstat(r->fd, &out) < 0) {
        return batch_file_fail(err, "look at", path);
    }
    if (!S_ISREG(out.st_mode)) {
        return MR_OK;
    }
    if (in.st_dev == out.st_dev && in.st_ino == out.st_ino) {
        return MR_FAIL(err, MR_E_INVALID, "the output %s is the input", path);
    }
    return ftruncate(r->fd, 0) < 0 ? batch_file_fail(err, "empty", path) : MR_OK;
}

static int run_open(struct requests_run *r, struct mr_err *err)
{
    const struct mr_requests_options *o = r->o;
    uint64_t seed;
    int rc;

    mr_rng_system(&seed, sizeof seed);
    mr_rng_seed(&r->rng, seed);
    r->model = path_part(o->model);
    MR_TRY(mr_loop_new(&r->loop, NULL, err));
    r->hosts = MR_NEW_ARRAY(struct requests_host, o->host_count);
    for (size_t i = 0; i < o->host_count; i++) {
        MR_TRY(requests_host_open(&r->hosts[i], r->loop, o->hosts[i], o, ARENA_MOST, err));
    }
    MR_TRY(lines_open(&r->lines, o->input, LINE_MOST, err));
    MR_TRY(output_open(r, err));
    r->workers = MR_NEW_ARRAY(struct worker, o->workers);
    for (uint32_t i = 0; i < o->workers; i++) {
        struct worker *w = &r->workers[i];
        w->run = r;
        mr_arena_init(&w->arena, 16384, ARENA_MOST);
        mr_arena_init(&w->call, 16384, ARENA_MOST);
        mr_buf_init(&w->head, 0);
    }
    r->active = o->workers;
out:
    return rc;
}

static void run_close(struct requests_run *r)
{
    r->is_over = true; /* calls cancelled after this belong to no line */
    mr_timer_stop(&r->flush);
    for (size_t i = 0; r->hosts && i < r->o->host_count; i++) {
        if (r->hosts[i].client) {
            mr_client_free(&r->hosts[i].client);
        }
    }
    for (uint32_t i = 0; r->workers && i < r->o->workers; i++) {
        mr_timer_stop(&r->workers[i].timer);
    }
    if (r->loop) {
        mr_loop_free(&r->loop);
    }
    for (uint32_t i = 0; r->workers && i < r->o->workers; i++) {
        mr_arena_fini(&r->workers[i].arena);
        mr_arena_fini(&r->workers[i].call);
        mr_buf_fini(&r->workers[i].head);
        MR_VEC_FINI(&r->workers[i].items);
    }
    for (size_t i = 0; r->hosts && i < r->o->host_count; i++) {
        mr_tls_client_free(&r->hosts[i].tls);
    }
    if (r->fd >= 0) {
        close(r->fd);
    }
    lines_close(&r->lines);
    mr_buf_fini(&r->out);
    mr_free(r->workers);
    mr_free(r->hosts);
    mr_free(r->model);
}

int mr_requests_run(const struct mr_requests_options *o, struct mr_requests_done *out,
                    struct mr_err *err)
{
    struct requests_run run = {.o = o, .fd = -1, .lines.fd = -1};
    int rc;

    MR_TRY(options_check(o, err));
    mr_buf_init(&run.out, 0);
    rc = run_open(&run, err);
    if (rc == MR_OK) {
        mr_timer_start(run.loop, &run.start, 0, 0, on_start);
        mr_timer_start(run.loop, &run.flush, OUTPUT_NS, OUTPUT_NS, on_flush);
        mr_loop_run(run.loop);
        output_flush(&run);
        rc = run.rc;
        if (rc < 0) {
            *err = run.err;
        } else {
            *out = run.done;
        }
    }
    run_close(&run);
out:
    return rc;
}
