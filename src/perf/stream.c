/* Requests on gRPC streams (ModelStreamInfer): one stream per connection, opened by its first request, and
 * again when it has ended. A request is identified by its id, which is appended to the prepared message: of a
 * repeated field the last one counts.
 *
 * A model may give many answers to a request. Each request asks for the parameter `triton_final_response`; an answer
 * with the value false is not the last one. Servers without that parameter give one answer. All on the worker's
 * thread. */
#include <stdio.h>

#include "base/clock.h"
#include "codec/pb.h"
#include "worker.h"

/* Fields of ModelStreamInferResponse, ModelInferResponse, its map of parameters, and InferParameter. */
enum { FIELD_ERROR = 1, FIELD_RESPONSE = 2 };
enum { FIELD_ID = 3, FIELD_PARAMETERS = 4 };
enum { FIELD_KEY = 1, FIELD_VALUE = 2 };
enum { FIELD_BOOL = 1 };

struct answer {
    mr_str error;
    mr_bytes response;
    mr_str id;
    bool is_final;
    bool has_outputs; /* something besides names and parameters */
};

static mr_str text_of(mr_bytes b)
{
    return mr_str_n((const char *)b.ptr, b.len);
}

/* An entry of the parameters. */
static bool read_parameter(mr_bytes entry, struct answer *out)
{
    struct mr_pb_field f;
    struct mr_pb_field v;
    mr_str key = {NULL, 0};
    mr_bytes value = {NULL, 0};
    bool is_true = false; /* proto3 omits false, except in members of a oneof */
    int rc;

    while ((rc = mr_pb_next(&entry, &f)) > 0) {
        if (f.wire == MR_PB_LEN && f.number == FIELD_KEY) {
            key = text_of(f.bytes);
        } else if (f.wire == MR_PB_LEN && f.number == FIELD_VALUE) {
            value = f.bytes;
        }
    }
    if (rc < 0 || !mr_str_eq_c(key, "triton_final_response")) {
        return rc == 0;
    }
    while ((rc = mr_pb_next(&value, &v)) > 0) {
        is_true = v.wire == MR_PB_VARINT && v.number == FIELD_BOOL ? v.value != 0 : is_true;
    }
    out->is_final = is_true;
    return rc == 0;
}

static bool read_response(mr_bytes message, struct answer *out)
{
    struct mr_pb_field f;
    int rc;

    while ((rc = mr_pb_next(&message, &f)) > 0) {
        if (f.wire == MR_PB_LEN && f.number == FIELD_ID) {
            out->id = text_of(f.bytes);
        } else if (f.wire == MR_PB_LEN && f.number == FIELD_PARAMETERS) {
            if (!read_parameter(f.bytes, out)) {
                return false;
            }
        } else if (f.number > FIELD_PARAMETERS) {
            out->has_outputs = true;
        }
    }
    return rc == 0;
}

static bool read_answer(mr_bytes message, struct answer *out)
{
    struct mr_pb_field f;
    int rc;

    *out = (struct answer){.is_final = true};
    while ((rc = mr_pb_next(&message, &f)) > 0) {
        if (f.wire == MR_PB_LEN && f.number == FIELD_ERROR) {
            out->error = text_of(f.bytes);
        } else if (f.wire == MR_PB_LEN && f.number == FIELD_RESPONSE) {
            out->response = f.bytes;
            if (!read_response(f.bytes, out)) {
                return false;
            }
        }
    }
    return rc == 0;
}

/* ---- ids ---- */

/* "FLIGHT.TURN"; a flight's turn distinguishes a late answer from the current one. */
static size_t write_id(const struct perf_flight *f, char out[48])
{
    return (size_t)snprintf(out, 48, "%zu.%llu", f->index, (unsigned long long)f->turn);
}

/* The flight of an answer; NULL: none waits for it on this stream. */
static struct perf_flight *find_flight(const struct perf_conn *conn, mr_str id)
{
    const struct perf_worker *w = conn->w;
    uint64_t index;
    uint64_t turn;
    mr_str first;

    if (!mr_str_split(&id, '.', &first) || !mr_str_to_u64(first, &index) ||
        !mr_str_to_u64(id, &turn) || index >= w->flights.len) {
        return NULL;
    }
    struct perf_flight *f = w->flights.at[index];
    return f->is_active && f->turn == turn && f->conn == conn ? f : NULL;
}

/* An error without an id is taken for the flight that waits longest. */
static struct perf_flight *oldest_flight(const struct perf_conn *conn)
{
    struct perf_flight *oldest = NULL;

    for (size_t i = 0; i < conn->w->flights.len; i++) {
        struct perf_flight *f = conn->w->flights.at[i];
        if (f->is_active && f->conn == conn && (!oldest || f->due_ns < oldest->due_ns)) {
            oldest = f;
        }
    }
    return oldest;
}

/* ---- answers ---- */

static void done(struct perf_flight *f, int rc, const struct mr_err *err,
                 const struct mr_client_response *response)
{
    mr_timer_stop(&f->timer);
    f->turn++;
    perf_flight_done(f, rc, err, response);
}

/* In memory that the checker may keep. */
static void check(struct perf_flight *f, mr_bytes response)
{
    struct mr_block *block = mr_block_new(response.len);

    if (block) {
        memcpy(block->data, response.ptr, response.len);
        const struct mr_client_response copy = {
            .status = 200, .body = {block->data, response.len}, .body_block = block};
        perf_flight_check(f, &copy);
        mr_block_unref(&block);
    }
}

static void on_message(void *ctx, mr_bytes message)
{
    struct perf_conn *conn = ctx;
    struct mr_err err = {0};
    struct answer a;

    if (conn->w->is_over) {
        return;
    }
    if (!read_answer(message, &a)) {
        a = (struct answer){.error = MR_STR("an answer that is no ModelStreamInferResponse")};
    }
    struct perf_flight *f = a.id.len      ? find_flight(conn, a.id)
                            : a.error.len ? oldest_flight(conn)
                                          : NULL;
    if (!f) {
        return;
    }
    if (a.error.len) {
        done(f, MR_FAIL(&err, MR_E_UNKNOWN, "%.*s", MR_STR_ARG(a.error)), &err, NULL);
        return;
    }
    /* The final one of many answers may be empty. */
    if (a.has_outputs && conn->w->run->target->check && !f->why[0]) {
        check(f, a.response);
    }
    if (a.is_final) {
        const struct mr_client_response response = {.status = 200, .body = a.response};
        done(f, MR_OK, &err, &response);
    }
}

static void on_end(void *ctx, int rc, const struct mr_err *err,
                   const struct mr_client_response *response)
{
    struct perf_conn *conn = ctx;
    struct mr_err own = *err;
    uint64_t number =
        conn->stream_number; /* a closed loop sends again at once, on the next stream */

    (void)response;
    conn->stream = NULL;
    if (rc == MR_OK) {
        rc = MR_FAIL(&own, MR_E_UNAVAILABLE, "the server has ended the stream");
    }
    for (size_t i = 0; i < conn->w->flights.len && !conn->w->is_over; i++) {
        struct perf_flight *f = conn->w->flights.at[i];
        if (f->is_active && f->conn == conn && f->stream_number == number) {
            done(f, rc, &own, NULL);
        }
    }
}

static void on_timeout(struct mr_timer *t)
{
    struct perf_flight *f = MR_CONTAINER_OF(t, struct perf_flight, timer);
    const struct perf_worker *w = f->conn->w;
    struct mr_err err;

    if (!w->is_over) {
        mr_err_set(&err, MR_E_DEADLINE, MR_HERE, "no answer from %s within %.3g s",
                   w->run->target->address, (double)w->run->target->timeout_ns / 1e9);
        done(f, MR_E_DEADLINE, &err, NULL);
    }
}

/* ---- sending ---- */

void perf_stream_send(struct perf_flight *f, const struct mr_piece *body)
{
    static const struct mr_client_stream_events events = {on_message, on_end};
    struct perf_conn *conn = f->conn;
    const struct mr_perf_target *t = conn->w->run->target;
    char text[48];
    uint8_t id[50] = {FIELD_ID << 3 | MR_PB_LEN};

    size_t len = write_id(f, text);
    id[1] = (uint8_t)len;
    memcpy(id + 2, text, len);
    if (!conn->stream) {
        conn->stream = mr_client_grpc_stream(
            conn->client, &(struct mr_client_grpc_request){.path = t->path}, &events, conn);
        conn->stream_number++;
    }
    f->stream_number = conn->stream_number;
    mr_timer_start(conn->w->loop, &f->timer, t->timeout_ns, 0, on_timeout);
    const struct mr_piece pieces[] = {*body, {.ptr = id, .len = len + 2}};
    /* The bodies of a run are small enough, and nothing here ends the stream. */
    mr_client_stream_send(conn->stream, pieces, 2, NULL);
}
