#include "client/events.h"

#include "base/mem.h"
#include "net/loop.h"

#define EVENT_BYTES ((size_t)64 << 20)
#define ERROR_BYTES ((size_t)64 << 10)

/* ---- the text ---- */

void mr_event_text_init(struct mr_event_text *t, size_t max_bytes)
{
    *t = (struct mr_event_text){.has_data = false};
    mr_buf_init(&t->line, max_bytes);
    mr_buf_init(&t->name, max_bytes);
    mr_buf_init(&t->data, max_bytes);
}

void mr_event_text_fini(struct mr_event_text *t)
{
    mr_buf_fini(&t->line);
    mr_buf_fini(&t->name);
    mr_buf_fini(&t->data);
}

static void line_take(struct mr_event_text *t, mr_str line)
{
    const ptrdiff_t colon = mr_str_find(line, ':');
    const mr_str field = colon < 0 ? line : mr_str_sub(line, 0, (size_t)colon);
    mr_str value = colon < 0 ? MR_STR("") : mr_str_sub(line, (size_t)colon + 1, line.len);

    if (mr_str_starts(value, MR_STR(" "))) {
        value = mr_str_sub(value, 1, value.len);
    }
    if (mr_str_eq_c(field, "event")) {
        mr_buf_reset(&t->name);
        mr_buf_str(&t->name, value);
    } else if (mr_str_eq_c(field, "data")) {
        if (t->has_data) {
            mr_buf_char(&t->data, '\n');
        }
        t->has_data = true;
        mr_buf_str(&t->data, value);
    }
}

static void line_end(struct mr_event_text *t, void (*on_event)(void *ctx, mr_str name, mr_str data),
                     void *ctx)
{
    const mr_str line = mr_buf_view(&t->line);

    if (line.len == 0) {
        if (t->has_data) {
            on_event(ctx, t->name.len ? mr_buf_view(&t->name) : MR_STR("message"),
                     mr_buf_view(&t->data));
        }
        t->has_data = false;
        mr_buf_reset(&t->name);
        mr_buf_reset(&t->data);
    } else if (line.ptr[0] == ':') {
        on_event(ctx, MR_STR(""), mr_str_sub(line, 1, line.len));
    } else {
        line_take(t, line);
    }
    mr_buf_reset(&t->line);
}

int mr_event_text_feed(struct mr_event_text *t, mr_bytes bytes,
                       void (*on_event)(void *ctx, mr_str name, mr_str data), void *ctx,
                       struct mr_err *err)
{
    const char *at = (const char *)bytes.ptr, *const end = at + bytes.len;

    while (at < end) {
        if (t->ends_in_cr && *at == '\n') {
            at++;
        }
        t->ends_in_cr = false;
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r') {
            stop++;
        }
        mr_buf_append(&t->line, at, (size_t)(stop - at));
        at = stop;
        if (stop < end && !t->line.failed) {
            t->ends_in_cr = *stop == '\r';
            line_end(t, on_event, ctx);
            at++;
        }
        if (t->line.failed || t->data.failed || t->name.failed) {
            return MR_FAIL(err, MR_E_TOO_LARGE, "an event is larger than %zu bytes", t->line.max);
        }
    }
    return MR_OK;
}

/* ---- the stream ---- */

struct mr_events {
    struct mr_client_stream *stream;
    struct mr_loop *loop;
    struct mr_events_listener listener;
    void *ctx;
    struct mr_event_text text;
    struct mr_buf body; /* of an answer that is none of events */
    struct mr_timer timer;
    int64_t silence_ns;
    int status;
    int rc; /* why it was cancelled from here */
    struct mr_err err;
};

static void stop(struct mr_events *e)
{
    mr_client_stream_cancel(e->stream);
}

static void on_silence(struct mr_timer *t)
{
    struct mr_events *e = MR_CONTAINER_OF(t, struct mr_events, timer);

    e->rc = MR_FAIL(&e->err, MR_E_UNAVAILABLE, "nothing came from the server for %lld s",
                    (long long)(e->silence_ns / 1000000000));
    stop(e);
}

static void listen(struct mr_events *e)
{
    if (e->silence_ns) {
        mr_timer_start(e->loop, &e->timer, e->silence_ns, 0, on_silence);
    }
}

static void on_head(void *ctx, const struct mr_client_response *head)
{
    struct mr_events *e = ctx;

    e->status = head->status;
    listen(e);
}

static void on_data(void *ctx, mr_bytes data)
{
    struct mr_events *e = ctx;

    listen(e);
    if (e->status != 200) {
        mr_buf_append(&e->body, data.ptr, MR_MIN(data.len, ERROR_BYTES - e->body.len));
    } else if (e->rc == MR_OK) {
        e->rc = mr_event_text_feed(&e->text, data, e->listener.on_event, e->ctx, &e->err);
        if (e->rc < 0) {
            stop(e);
        }
    }
}

static void on_end(void *ctx, int rc, const struct mr_err *err,
                   const struct mr_client_response *response)
{
    struct mr_events *e = ctx;

    (void)response;
    mr_timer_stop(&e->timer);
    if (e->rc == MR_OK && rc < 0) {
        e->rc = rc;
        e->err = *err;
    } else if (e->rc == MR_OK && e->status == 200) {
        e->rc = MR_FAIL(&e->err, MR_E_UNAVAILABLE, "the server has ended the events");
    }
    e->listener.on_end(e->ctx, e->rc, &e->err, e->status,
                       (mr_bytes){(const uint8_t *)e->body.ptr, e->body.len});
    mr_event_text_fini(&e->text);
    mr_buf_fini(&e->body);
    mr_free(e);
}

struct mr_events *mr_events_open(struct mr_client *c, struct mr_loop *loop, mr_str path,
                                 int64_t silence_ns, const struct mr_events_listener *listener,
                                 void *ctx)
{
    static const struct mr_client_pass_events events = {on_head, on_data, on_end, NULL};
    const struct mr_header accept = {MR_STR("accept"), MR_STR("text/event-stream")};
    const struct mr_client_request request = {
        .method = "GET", .path = path, .headers = &accept, .header_count = 1};
    struct mr_events *e = MR_NEW(struct mr_events);

    e->loop = loop;
    e->listener = *listener;
    e->ctx = ctx;
    e->silence_ns = silence_ns;
    mr_event_text_init(&e->text, EVENT_BYTES);
    mr_buf_init(&e->body, ERROR_BYTES);
    e->stream = mr_client_pass(c, &request, false, &events, e);
    listen(e);
    return e;
}
