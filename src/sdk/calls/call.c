/* The life of a call:
 *
 *   start -> [waits for a host] -> attempt -> answer
 *                 ^                   |
 *                 +---- again <-------+   what may be different elsewhere, within the budget of retries
 *
 * After hedge_after_ms a second attempt may run beside the first one; the first good answer counts, and the other one is given up.
 *
 * Tensors of more than COPY_MOST bytes are sent from where the caller has them. The network may hold on to them for a moment
 * after the answer (a connection that is being closed), so that `done` waits for the release of all blocks around them. It is
 * called from a mail then, as a release happens in the middle of the network's own work. */
#include "call.h"

#include <stdio.h>

#include "base/clock.h"
#include "client/endpoint.h"
#include "shards.h"

#define COPY_MOST     ((uint64_t)32 * 1024)
#define QUESTION_MOST ((size_t)48 << 20) /* bytes of an answer as JSON */

static void call_try(struct call *c);

/* ---- the end ---- */

static bool is_idle(const struct call *c)
{
    return !c->at[0].host && !c->at[1].host;
}

/* Calls `done` and `freed` when it is time for them. The call may be gone afterwards. */
static void settle(struct call *c)
{
    if (c->is_over && !c->is_reported && c->borrowed == 0) {
        c->is_reported = true;
        c->done(c);
    }
    if (c->is_reported && is_idle(c) && !c->is_posted) {
        mr_block_unref(&c->body);
        c->freed(c);
    }
}

static void on_mail(struct mr_mail *mail)
{
    struct call *c = MR_CONTAINER_OF(mail, struct call, mail);

    c->is_posted = false;
    settle(c);
}

static void post(struct call *c)
{
    if (!c->is_posted) {
        c->is_posted = true;
        c->mail.run = on_mail;
        mr_loop_post(c->cluster->o->loop, &c->mail);
    }
}

/* The last reference to a tensor's block. Thread: the loop's, as blocks of requests do not leave it. */
static void on_released(void *ctx, void *data)
{
    struct call *c = ctx;

    (void)data;
    c->borrowed--;
    if (c->is_over) {
        post(c);
    }
}

static void borrow(struct call *c)
{
    for (size_t i = 0; i < c->request.input_count; i++) {
        struct mr_oip_tensor *t = &c->request.inputs[i];
        if (t->tensor.bytes > COPY_MOST) {
            t->block = mr_block_wrap(t->tensor.data, (size_t)t->tensor.bytes, on_released, c);
            c->borrowed += t->block != NULL;
        }
    }
}

static void give_back(struct call *c)
{
    for (size_t i = 0; i < c->request.input_count; i++) {
        if (c->request.inputs[i].block) {
            mr_block_unref(&c->request.inputs[i].block);
        }
    }
}

/* The attempt's host was not waited for. */
static void attempt_leave(struct call *c, const struct call_attempt *a)
{
    if (a->has_places) {
        atomic_store(&c->memory->is_lost, true);
    }
}

static void over(struct call *c, int rc)
{
    mr_timer_stop(&c->deadline);
    mr_timer_stop(&c->hedge);
    mr_timer_stop(&c->again);
    cluster_wait_end(c->cluster, &c->wait);
    c->rc = rc;
    c->is_over = true;
    give_back(c);
    for (size_t i = 0; i < 2; i++) {
        if (c->at[i].host && c->at[i].net) {
            attempt_leave(c, &c->at[i]);
            mr_client_cancel(c->at[i].net);
        }
    }
}

/* ---- attempts ---- */

static int64_t now_of(const struct call *c)
{
    return mr_loop_now_ns(c->cluster->o->loop);
}

static bool is_avoided(const struct call *c, uint32_t host)
{
    for (uint32_t i = 0; i < c->avoid_count; i++) {
        if (c->avoid[i] == host) {
            return true;
        }
    }
    return false;
}

/* A host that takes calls, and has not had this one. */
static bool others_left(const struct call *c)
{
    const struct cluster *cluster = c->cluster;

    for (size_t i = 0; i < cluster->hosts.len; i++) {
        const uint32_t id = cluster->hosts.at[i]->id;
        if (!is_avoided(c, id) && mr_balance_is_working(cluster->balance, id)) {
            return true;
        }
    }
    return false;
}

static void on_again(struct mr_timer *t)
{
    call_try(MR_CONTAINER_OF(t, struct call, again));
}

/* An attempt has failed; is there another one? */
static bool goes_on(struct call *c, const struct judgement *j)
{
    struct mr_balance *b = c->cluster->balance;
    const bool is_no = judge_is_no(j);

    c->failures++;
    if (!j->may_retry || c->is_once || c->deadline_ns <= mr_now_ns() ||
        c->attempts >= c->cluster->policy.attempts || c->cluster->is_closed ||
        (is_no && c->fails_fast && !others_left(c))) {
        return false;
    }
    return is_no || mr_balance_may_retry(b, now_of(c), NULL);
}

static void try_again(struct call *c)
{
    c->is_retry = true;
    if (others_left(c)) {
        call_try(c);
    } else {
        mr_timer_start(c->cluster->o->loop, &c->again,
                       mr_balance_backoff_ns(c->cluster->balance, c->failures), 0, on_again);
    }
}

static int question_decode(struct call *c, const struct mr_endpoint *e, mr_bytes body)
{
    struct mr_buf text;

    mr_buf_init(&text, QUESTION_MOST);
    int rc = mr_endpoint_ask_decode(e, c->ask, body, c->arena, &text, &c->is_yes, &c->err);
    if (rc == MR_OK && text.len > 0) {
        c->text = mr_arena_str(c->arena, mr_buf_view(&text));
        rc = c->text.ptr ? MR_OK : MR_FAIL(&c->err, MR_E_TOO_LARGE, "%zu bytes", text.len);
    }
    mr_buf_fini(&text);
    return rc;
}

/* The loop's time is that of its iteration, which a long answer can make old. */
static void take_answer(struct call *c, struct call_attempt *a, struct judgement *j,
                        const struct mr_client_response *response)
{
    const struct mr_endpoint e = {.is_grpc = a->host->is_grpc};
    int rc = c->is_question
                 ? question_decode(c, &e, response->body)
                 : mr_endpoint_decode(&e, response, NULL, c->arena, &c->response, &c->err);

    rc = rc < 0 ? rc : memory_resolve(&c->response, a->has_places ? c : NULL, &c->err);
    if (rc < 0) {
        rc = rc == MR_E_INVALID ? MR_E_INTERNAL : rc; /* nothing is wrong with the request */
        MR_WRAP(&c->err, rc, "the answer of %s", a->host->url);
        *j = (struct judgement){.outcome = MR_BALANCE_FAILED, .status = rc};
        return;
    }
    if (!c->is_question) {
        c->body = response->body_block ? mr_block_ref(response->body_block) : NULL;
    }
}

static struct judgement judge(struct call *c, struct call_attempt *a, int rc,
                              const struct mr_err *err, const struct mr_client_response *response)
{
    struct judgement j = {.outcome = MR_BALANCE_OK, .status = MR_OK};

    if (c->is_question && mr_endpoint_ask_is_no(c->ask, rc, response)) {
        c->is_yes = false;
    } else {
        j = judge_answer(rc, err, response, c->arena, &c->err);
        if (j.status == MR_OK) {
            take_answer(c, a, &j, response);
        }
    }
    /* A question says nothing of how long inferences take. */
    if (c->is_question && j.outcome == MR_BALANCE_OK) {
        j.outcome = MR_BALANCE_REJECTED;
    }
    return j;
}

static void on_answer(void *ctx, int rc, const struct mr_err *err,
                      const struct mr_client_response *response)
{
    struct call_attempt *a = ctx;
    struct call *c = a->call;
    struct host *h = a->host;
    const uint64_t ticket = a->ticket.ticket;
    struct judgement j;

    if (c->is_over) { /* the other attempt was first, or the call was given up */
        a->host = NULL;
        cluster_ended(c->cluster, h, ticket, MR_BALANCE_CANCELLED, 0);
        post(c);
        return;
    }
    if (rc == MR_E_DEADLINE || rc == MR_E_CANCELLED) {
        attempt_leave(c, a);
    }
    j = judge(c, a, rc, err, response);
    c->host = mr_arena_str(c->arena, mr_str_c(h->url)).ptr;
    if (c->avoid_count < CONFIG_ATTEMPTS_MAX) {
        c->avoid[c->avoid_count++] = h->id;
    }
    a->host = NULL;
    a->net = NULL;
    if (j.status == MR_OK) {
        over(c, MR_OK);
    } else if (is_idle(c) && !goes_on(c, &j)) {
        over(c, j.status);
    }
    cluster_ended(c->cluster, h, ticket, j.outcome, j.retry_after_ns);
    if (c->is_over) {
        post(c);
    } else if (is_idle(c)) {
        try_again(c);
    }
}

static void form_set(struct call *c)
{
    struct mr_oip_request *r = &c->request;
    const bool is_binary = !c->cluster->policy.is_json;

    for (size_t i = 0; i < r->input_count; i++) {
        r->inputs[i].binary = is_binary;
    }
    for (size_t i = 0; i < r->output_count; i++) {
        r->outputs[i].binary_data = is_binary;
    }
    r->binary_data_output = is_binary && r->output_count == 0;
    r->may_spill = true;
}

static bool attempt_send(struct call *c, struct call_attempt *a)
{
    struct mr_buf *buf = mr_loop_scratch(c->cluster->o->loop);
    const struct config_policy *p = &c->cluster->policy;
    const int64_t now_ns = mr_now_ns();
    const int64_t most_ns =
        p->attempt_timeout_ms ? p->attempt_timeout_ms * MR_NS_PER_MS : a->ticket.timeout_ns;
    const struct mr_endpoint e = {.client = a->host->client,
                                  .is_grpc = a->host->is_grpc,
                                  .prefix = a->host->prefix,
                                  .model = c->model,
                                  .version = c->version};
    const bool is_shared = c->memory && a->host->shares_memory && !atomic_load(&c->memory->is_lost);
    const struct mr_endpoint_infer in = {
        .request = &c->request,
        .more = c->headers,
        .more_count = c->header_count,
        .coding = p->coding,
        .memory = is_shared ? c->memory->net : (struct mr_client_memory){0},
        .never_repeat = c->is_once,
        .timeout_ns = MR_MAX(MR_MIN(most_ns, c->deadline_ns - now_ns), INT64_C(1))};

    c->attempts++;
    a->call = c;
    if (mr_endpoint_names_check(&e, &c->err) < 0) {
        return false;
    }
    if (c->is_question) {
        a->net = mr_endpoint_ask(&e, c->ask, c->headers, c->header_count, in.timeout_ns, c->arena,
                                 on_answer, a, &c->err);
        return a->net != NULL;
    }
    if (c->memory) {
        a->has_places = is_shared && c->places && !c->was_placed;
        c->was_placed |= a->has_places;
        memory_name(c, is_shared, a->has_places);
    }
    mr_buf_reset(buf);
    a->net = mr_endpoint_infer(&e, &in, buf, c->arena, NULL, on_answer, a, &c->err);
    return a->net != NULL;
}

static void on_hedge(struct mr_timer *t)
{
    struct call *c = MR_CONTAINER_OF(t, struct call, hedge);
    struct call_attempt *first = &c->at[c->at[0].host ? 0 : 1], *second = &c->at[first == c->at];
    uint32_t avoid[CONFIG_ATTEMPTS_MAX + 1];

    if (!first->host || second->host) {
        return;
    }
    memcpy(avoid, c->avoid, c->avoid_count * sizeof *avoid);
    avoid[c->avoid_count] = first->ticket.host;
    const struct mr_balance_ask ask = {
        .rows = 1, .avoid = avoid, .avoid_count = c->avoid_count + 1, .key = c->key};
    if (cluster_hedge(c->cluster, first->ticket.ticket, &ask, &second->ticket, &second->host) &&
        !attempt_send(c, second)) {
        struct host *h = second->host;
        second->host = NULL;
        cluster_ended(c->cluster, h, second->ticket.ticket, MR_BALANCE_CANCELLED, 0);
    }
}

/* True: a host has the call, or it is over. */
static bool call_pick(struct call *c)
{
    struct call_attempt *a = &c->at[c->at[0].host ? 1 : 0];
    const struct mr_balance_ask ask = {.rows = 1,
                                       .avoid = c->avoid,
                                       .avoid_count = c->avoid_count,
                                       .is_retry = c->is_retry,
                                       .takes_throttled = c->fails_fast,
                                       .key = c->key,
                                       .is_sticky = c->request.sequence_id != 0};
    struct host *h;

    if (!cluster_pick(c->cluster, &ask, &a->ticket, &a->host)) {
        return false;
    }
    if (attempt_send(c, a)) {
        if (c->cluster->policy.hedge_after_ms > 0 && !c->is_once) {
            mr_timer_start(c->cluster->o->loop, &c->hedge,
                           c->cluster->policy.hedge_after_ms * MR_NS_PER_MS, 0, on_hedge);
        }
        return true;
    }
    h = a->host;
    a->host = NULL;
    over(c, c->err.status);
    cluster_ended(c->cluster, h, a->ticket.ticket, MR_BALANCE_CANCELLED, 0);
    post(c);
    return true;
}

/* True: a host has the call, or it is over. A call that has met a failure keeps that as its error: it says more. */
static bool pick_or_give_up(struct call *c)
{
    struct mr_err none;

    if (call_pick(c)) {
        return true;
    }
    if (cluster_has_hope(c->cluster, &none)) {
        return false;
    }
    if (c->failures == 0) {
        c->err = none;
    }
    over(c, c->err.status);
    post(c);
    return true;
}

static bool on_wake(struct cluster_wait *w)
{
    return !pick_or_give_up(MR_CONTAINER_OF(w, struct call, wait));
}

static void call_try(struct call *c)
{
    if (!pick_or_give_up(c)) {
        c->wait.wake = on_wake;
        c->wait.is_picky = c->avoid_count > 0;
        cluster_wait(c->cluster, &c->wait);
    }
}

/* ---- life ---- */

static void on_deadline(struct mr_timer *t)
{
    struct call *c = MR_CONTAINER_OF(t, struct call, deadline);

    if (c->at[0].host || c->at[1].host) {
        return; /* the attempts' own limits end then as well, and say more */
    }
    if (c->failures == 0) {
        MR_FAIL(&c->err, MR_E_DEADLINE, "no host had room for the call before its deadline");
    } else {
        MR_WRAP(&c->err, MR_E_DEADLINE, "the deadline has passed after %u attempts, the last",
                c->attempts);
        c->err.status = MR_E_DEADLINE;
    }
    over(c, MR_E_DEADLINE);
    post(c);
}

/* True: it was done. */
static bool start_in_parts(struct call *c)
{
    const uint32_t count = shards_count(c);

    if (count > 1 && !shards_start(c, count)) {
        over(c, c->err.status);
        post(c);
    }
    return count > 1;
}

void call_start(struct call *c)
{
    if (start_in_parts(c)) {
        return;
    }
    borrow(c);
    form_set(c);
    mr_timer_start(c->cluster->o->loop, &c->deadline,
                   MR_MAX(c->deadline_ns - now_of(c), INT64_C(0)), 0, on_deadline);
    call_try(c);
}

void call_cancel(struct call *c)
{
    if (c->shards) {
        shards_cancel(c);
        return;
    }
    if (c->is_over) {
        return;
    }
    MR_FAIL(&c->err, MR_E_CANCELLED, "the call was cancelled");
    over(c, MR_E_CANCELLED);
    post(c);
}
