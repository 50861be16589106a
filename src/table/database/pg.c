/* Connections to PostgreSQL and their statements.
 *
 * One function does all waiting, for the socket and for cancellation. Any failure other than that of a statement
 * closes the connection at once; the caller opens another.
 *
 * Messages never contain passwords: the library's do not, except those about an address that it cannot parse, which
 * are not repeated. */
#include "pg.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "database.h"

#define CONNECT_NS (30 * MR_NS_PER_S)
#define SLICE_MS   200 /* of waiting, between checks for its end */
#define TEXT_MOST  ((size_t)64 << 10)

/* ---- waiting ---- */

static int wait_for(const struct pg *p, short events, int64_t deadline_ns, struct mr_err *err)
{
    struct pollfd fds[2] = {{p->api->socket(p->conn), events, 0}, {p->cancel_fd, POLLIN, 0}};

    for (;;) {
        const int n = poll(fds, 2, SLICE_MS); /* poll ignores a negative descriptor */
        const int64_t now_ns = mr_now_ns();
        if (n < 0 && errno != EINTR) {
            return MR_FAIL(err, MR_E_IO, "cannot wait for PostgreSQL: %s", strerror(errno));
        }
        if ((n > 0 && fds[1].revents) || (n == 0 && p->is_stopped && p->is_stopped(p->ctx))) {
            return MR_FAIL(err, MR_E_CANCELLED, "stopped");
        }
        if (n > 0) {
            return MR_OK;
        }
        /* Relaxed: only a time, it orders nothing. */
        if (now_ns >= deadline_ns ||
            (p->until_ns && now_ns >= atomic_load_explicit(p->until_ns, memory_order_relaxed))) {
            return MR_FAIL(err, MR_E_UNAVAILABLE, "PostgreSQL does not answer");
        }
    }
}

/* ---- errors ---- */

static const struct {
    const char *state; /* or its first two characters, the class */
    int status;
} states[] = {
    {"08", MR_E_UNAVAILABLE},
    {"40", MR_E_UNAVAILABLE},
    {"57", MR_E_UNAVAILABLE},
    {"55P03", MR_E_UNAVAILABLE},
    {"53300", MR_E_UNAVAILABLE},
    {"53", MR_E_EXHAUSTED},
    {"28", MR_E_FORBIDDEN},
    {"42501", MR_E_FORBIDDEN},
    {"25006", MR_E_FORBIDDEN},
    {"3D", MR_E_NOT_FOUND},
    {"3F", MR_E_NOT_FOUND},
    {"42P01", MR_E_NOT_FOUND},
    {"58", MR_E_IO},
    {"XX", MR_E_IO},
};

static int status_of(const char *state)
{
    for (size_t i = 0; state && i < sizeof states / sizeof *states; i++) {
        if (strncmp(state, states[i].state, strlen(states[i].state)) == 0) {
            return states[i].status;
        }
    }
    return MR_E_INVALID;
}

/* The library's texts have several lines. */
static int fail_text(int status, const char *text, struct mr_err *err)
{
    char line[400];
    size_t n = 0;

    for (; text && *text && n < sizeof line - 1; text++) {
        const bool is_space = *text == '\n' || *text == '\t' || *text == '\r';
        if (!is_space || (n > 0 && line[n - 1] != ' ' && text[1])) {
            line[n++] = is_space ? ' ' : *text;
        }
    }
    line[n] = '\0';
    return MR_FAIL(err, status, "PostgreSQL: %s", line);
}

static int lost(struct pg *p, struct mr_err *err)
{
    int rc = fail_text(MR_E_UNAVAILABLE, p->api->errorMessage(p->conn), err);

    mr_pg_close(p);
    return rc;
}

/* Sets the error of a failed result. Takes the result. */
static int result_fail(struct pg *p, void *result, struct mr_err *err)
{
    const char *state = p->api->resultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = p->api->resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    int rc = state ? fail_text(status_of(state), text, err) : MR_E_UNAVAILABLE;

    p->api->clear(result);
    if (!state || p->api->status(p->conn) != PG_CONNECTION_OK) {
        rc = state ? MR_E_UNAVAILABLE : lost(p, err);
        mr_pg_close(p);
    }
    return rc;
}

/* ---- addresses ---- */

static const char *option_of(const struct pg_option *options, const char *keyword)
{
    for (; options->keyword; options++) {
        if (strcmp(options->keyword, keyword) == 0) {
            return options->val;
        }
    }
    return NULL;
}

/* An unescaped password may end up in any of these parts, which messages would show. */
static bool is_plain(const struct pg_option *options)
{
    const char *host = option_of(options, "host");
    const char *port = option_of(options, "port");
    const char *name = option_of(options, "dbname");

    return !(host && strchr(host, '@')) && !(name && strchr(name, '@')) &&
           !(port && port[strspn(port, "0123456789,")]);
}

int mr_pg_label(const char *database, struct mr_buf *out, struct mr_err *err)
{
    const struct pg_api *api;
    char *message = NULL;
    int rc = mr_pg_load(&api, err);

    if (rc < 0) {
        return rc;
    }
    struct pg_option *options = api->conninfoParse(database, &message);
    const char *host = options ? option_of(options, "host") : NULL;
    const char *hostaddr = options ? option_of(options, "hostaddr") : NULL;
    api->freemem(message);
    if (!options || !is_plain(options)) {
        rc = MR_FAIL(err, MR_E_INVALID,
                     "the address of PostgreSQL cannot be understood: expected "
                     "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %%XX for special "
                     "characters in the password");
    } else {
        const char *port = option_of(options, "port");
        const char *name = option_of(options, "dbname");
        const char *service = option_of(options, "service");
        mr_buf_printf(out, "postgresql://%s%s%s/%s%s%s",
                      host       ? host
                      : hostaddr ? hostaddr
                                 : "",
                      port ? ":" : "", port ? port : "", name ? name : "",
                      service ? "?service=" : "", service ? service : "");
    }
    api->conninfoFree(options);
    return rc;
}

void mr_pg_quote_table(struct mr_buf *b, const char *table)
{
    const char *dot = strchr(table, '.');

    if (dot) {
        mr_database_quote(b, mr_str_n(table, (size_t)(dot - table)));
        mr_buf_char(b, '.');
    }
    mr_database_quote(b, mr_str_c(dot ? dot + 1 : table));
}

/* ---- connections ---- */

static void notice_drop(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
}

static int connect_now(struct pg *p, const char *database, struct mr_err *err)
{
    /* The address overrides the keywords before it; those after it override the address. */
    static const char *const keywords[] = {
        "fallback_application_name", "keepalives_idle", "keepalives_interval", "keepalives_count",
        "tcp_user_timeout",          "dbname",          "client_encoding",     NULL};
    const char *const values[] = {"millrace", "30", "10", "3", "60000", database, "UTF8", NULL};
    const int64_t deadline_ns = mr_now_ns() + CONNECT_NS;
    int step = PG_POLLING_WRITING;

    p->conn = p->api->connectStartParams(keywords, values, 1);
    if (!p->conn) {
        return MR_FAIL(err, MR_E_EXHAUSTED, "no memory for a connection");
    }
    if (p->api->status(p->conn) == 1) { /* CONNECTION_BAD */
        return lost(p, err);
    }
    while (step != PG_POLLING_OK) {
        int rc = wait_for(p, step == PG_POLLING_WRITING ? POLLOUT : POLLIN, deadline_ns, err);
        if (rc < 0) {
            mr_pg_close(p);
            return rc;
        }
        step = p->api->connectPoll(p->conn);
        if (step == PG_POLLING_FAILED) {
            return lost(p, err);
        }
    }
    p->api->setNoticeProcessor(p->conn, notice_drop, NULL);
    if (p->api->setnonblocking(p->conn, 1) != 0) {
        return lost(p, err);
    }
    return MR_OK;
}

int mr_pg_open(struct pg *p, const char *database, struct mr_err *err)
{
    struct mr_buf label;
    int rc;

    mr_buf_init(&label, TEXT_MOST);
    MR_TRY(mr_pg_load(&p->api, err));
    MR_TRY(mr_pg_label(database, &label, err)); /* also for addresses that it refuses */
    MR_TRY(connect_now(p, database, err));
    MR_TRY(mr_pg_query(p,
                       "SELECT set_config(name, value, false) FROM (VALUES "
                       "('statement_timeout', '0'), ('idle_in_transaction_session_timeout', '0')) "
                       "AS s (name, value)",
                       NULL, 0, false, NULL, err));
out:
    mr_buf_fini(&label);
    return rc;
}

void mr_pg_close(struct pg *p)
{
    if (p->conn) {
        p->api->finish(p->conn);
        p->conn = NULL;
    }
}

/* ---- statements ---- */

static int flush(struct pg *p, struct mr_err *err)
{
    int left;

    while ((left = p->api->flush(p->conn)) > 0) {
        /* A server that is sending does not read before its data is read. */
        int rc = wait_for(p, POLLIN | POLLOUT, INT64_MAX, err);
        if (rc < 0) {
            mr_pg_close(p);
            return rc;
        }
        if (!p->api->consumeInput(p->conn)) {
            return lost(p, err);
        }
    }
    return left < 0 ? lost(p, err) : MR_OK;
}

static int result_next(struct pg *p, void **out, struct mr_err *err)
{
    while (p->api->isBusy(p->conn)) {
        int rc = wait_for(p, POLLIN, INT64_MAX, err);
        if (rc < 0) {
            mr_pg_close(p);
            return rc;
        }
        if (!p->api->consumeInput(p->conn)) {
            return lost(p, err);
        }
    }
    *out = p->api->getResult(p->conn);
    return MR_OK;
}

/* Fails with an error result; drops all later results. */
static int results_fail(struct pg *p, void *result, struct mr_err *err)
{
    const int rc = result_fail(p, result, err);
    void *rest = NULL;

    while (p->conn && result_next(p, &rest, NULL) == MR_OK && rest) {
        p->api->clear(rest);
    }
    return rc;
}

/* Takes the results of a statement: returns the first one, or an error among them. */
static int results_take(struct pg *p, void **out, struct mr_err *err)
{
    void *first = NULL;
    void *result;
    int rc;

    while ((rc = result_next(p, &result, err)) == MR_OK && result) {
        const int status = p->api->resultStatus(result);
        if (status != PG_COMMAND_OK && status != PG_TUPLES_OK && status != PG_COPY_IN) {
            p->api->clear(first);
            return results_fail(p, result, err);
        }
        if (first) {
            p->api->clear(result);
        } else {
            first = result;
        }
        if (status == PG_COPY_IN) {
            break; /* further results follow the data */
        }
    }
    if (rc < 0 || !out) {
        p->api->clear(first);
    } else {
        *out = first;
    }
    return rc;
}

static int query_send(struct pg *p, const char *sql, const char *const *values, int count,
                      bool is_binary, struct mr_err *err)
{
    if (!p->conn) {
        return MR_FAIL(err, MR_E_UNAVAILABLE, "the connection to PostgreSQL was lost");
    }
    return p->api->sendQueryParams(p->conn, sql, count, NULL, values, NULL, NULL, is_binary)
               ? MR_OK
               : lost(p, err);
}

int mr_pg_query(struct pg *p, const char *sql, const char *const *values, int count, bool is_binary,
                void **out, struct mr_err *err)
{
    int rc;

    MR_TRY(query_send(p, sql, values, count, is_binary, err));
    MR_TRY(flush(p, err));
    rc = results_take(p, out, err);
out:
    return rc;
}

int mr_pg_rows_ask(struct pg *p, const char *sql, struct mr_err *err)
{
    int rc = query_send(p, sql, NULL, 0, true, err);

    if (rc < 0) {
        return rc;
    }
    return p->api->setSingleRowMode(p->conn) ? flush(p, err) : lost(p, err);
}

int mr_pg_row_take(struct pg *p, void **out, struct mr_err *err)
{
    void *result;
    int rc;

    *out = NULL;
    while ((rc = result_next(p, &result, err)) == MR_OK && result) {
        switch (p->api->resultStatus(result)) {
        case PG_SINGLE_TUPLE: *out = result; return MR_OK;
        case PG_COMMAND_OK:
        case PG_TUPLES_OK: p->api->clear(result); break; /* the end, which has no row */
        default: return results_fail(p, result, err);
        }
    }
    return rc;
}

int mr_pg_copy_put(struct pg *p, const char *data, size_t bytes, struct mr_err *err)
{
    while (bytes > 0) {
        const int piece = (int)MR_MIN(bytes, TEXT_MOST);
        if (p->api->putCopyData(p->conn, data, piece) != 1) {
            return lost(p, err);
        }
        int rc = flush(p, err);
        if (rc < 0) {
            return rc;
        }
        data += piece;
        bytes -= (size_t)piece;
    }
    return MR_OK;
}

int mr_pg_copy_end(struct pg *p, struct mr_err *err)
{
    if (p->api->putCopyEnd(p->conn, NULL) != 1) {
        return lost(p, err);
    }
    int rc = flush(p, err);
    return rc < 0 ? rc : results_take(p, NULL, err);
}

mr_str mr_pg_value(const struct pg *p, const void *result, int row, int column)
{
    return row < p->api->ntuples(result) ? mr_str_n(p->api->getvalue(result, row, column),
                                                    (size_t)p->api->getlength(result, row, column))
                                         : MR_STR("");
}

unsigned mr_pg_item_of(unsigned type)
{
    static const unsigned types[][2] = {
        {1000, PG_BOOL},   {1001, PG_BYTEA},       {1005, PG_INT2},    {1007, PG_INT4},
        {1009, PG_TEXT},   {1014, PG_BPCHAR},      {1015, PG_VARCHAR}, {1016, PG_INT8},
        {1021, PG_FLOAT4}, {1022, PG_FLOAT8},      {1028, PG_OID},     {1115, PG_TIMESTAMP},
        {1182, PG_DATE},   {1185, PG_TIMESTAMPTZ}, {1231, PG_NUMERIC}};

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i][0] == type) {
            return types[i][1];
        }
    }
    return 0;
}
