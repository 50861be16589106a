/* The log.
 *
 * A line is formatted on the caller's stack and written by one write(2) to a file opened O_APPEND,
 * so that lines of many threads (and of a process that shares the file) do not mix, without a lock. A disabled level
 * costs one relaxed load. The content of a line is not trusted: control characters and broken UTF-8 are escaped, so
 * that a peer can neither forge a line nor control a terminal.
 *
 * Changing the file: the first file gets a descriptor of its own; later ones replace it under the same number by
 * dup3, which is atomic, so that a thread in the middle of a write never uses a closed or foreign descriptor. Setting
 * the same path again reopens it (rotation). Paths are never freed, as mr_log_file returns them.
 *
 * The mutex guards the change of file only. */
#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base_priv.h"

#define LINES_PER_WINDOW 20
#define WINDOW_NS        MR_NS_PER_S
#define MESSAGE_BYTES    2048
/* Escapes make a message up to six times as long; past this it is cut. */
#define BODY_BYTES ((size_t)MESSAGE_BYTES * 3)
/* The tail after the message always fits. */
#define TAIL_BYTES       ((size_t)512)
#define QUOTE_INPUT_MOST 200

struct path {
    struct path *next;
    char text[];
};

static _Atomic bool is_enabled[4] = {true, true, true, false};
static _Atomic unsigned verbose;
static _Atomic int log_format;
static _Atomic int log_fd = STDERR_FILENO;
/* The file ends with part of a line, as its disk was full. Relaxed: a newline more or less does no harm. */
static _Atomic bool is_torn;
static _Atomic(const char *) log_path;
static pthread_mutex_t file_lock = PTHREAD_MUTEX_INITIALIZER;
static int own_fd = -1;
static struct path *paths;

/* ---- settings ------------------------------------------------------------------------------- */

/* Levels may come from a backend. */
static unsigned known_level(unsigned level)
{
    return MR_MIN(level, (unsigned)MR_LOG_DEBUG);
}

bool mr_log_enabled(enum mr_log_level level)
{
    if (atomic_load_explicit(&is_enabled[known_level(level)], memory_order_relaxed)) {
        return true;
    }
    return known_level(level) == MR_LOG_DEBUG && mr_log_verbose() > 0;
}

void mr_log_set_enabled(enum mr_log_level level, bool on)
{
    atomic_store_explicit(&is_enabled[known_level(level)], on, memory_order_relaxed);
}

void mr_log_set_verbose(unsigned level)
{
    atomic_store_explicit(&verbose, level, memory_order_relaxed);
}

unsigned mr_log_verbose(void)
{
    return atomic_load_explicit(&verbose, memory_order_relaxed);
}

void mr_log_set_format(enum mr_log_format format)
{
    atomic_store_explicit(&log_format, (int)format, memory_order_relaxed);
}

enum mr_log_format mr_log_get_format(void)
{
    return (enum mr_log_format)atomic_load_explicit(&log_format, memory_order_relaxed);
}

const char *mr_log_format_name(enum mr_log_format format)
{
    static const char *const names[MR_LOG_FORMATS] = {
        [MR_LOG_TEXT] = "text",
        [MR_LOG_JSON] = "json",
        [MR_LOG_DEFAULT] = "default",
        [MR_LOG_ISO8601] = "ISO8601",
    };

    return names[format];
}

/* Under the lock. A copy of the path that is never freed. */
static const char *path_keep(const char *text)
{
    for (struct path *p = paths; p; p = p->next) {
        if (strcmp(p->text, text) == 0) {
            return p->text;
        }
    }
    size_t bytes = strlen(text) + 1;
    struct path *p = mr_alloc(sizeof *p + bytes);
    memcpy(p->text, text, bytes);
    p->next = paths;
    paths = p;
    return p->text;
}

/* Under the lock. Takes fd. */
static void file_use(int fd, const char *path)
{
    if (own_fd < 0) {
        own_fd = fd;
    } else {
        dup3(fd, own_fd, O_CLOEXEC);
        close(fd);
    }
    /* Release: pairs with the acquires in line_write and mr_log_file. */
    atomic_store_explicit(&log_path, path, memory_order_release);
    atomic_store_explicit(&log_fd, own_fd, memory_order_release);
}

int mr_log_set_file(const char *path, struct mr_err *err)
{
    bool is_file = path && path[0];
    int fd = -1;

    if (is_file) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (fd < 0) {
            return MR_FAIL(err, MR_E_IO, "cannot open log file %s: %m", path);
        }
    }
    pthread_mutex_lock(&file_lock);
    if (is_file) {
        file_use(fd, path_keep(path));
    } else {
        atomic_store_explicit(&log_path, NULL, memory_order_release);
        atomic_store_explicit(&log_fd, STDERR_FILENO, memory_order_release);
        if (own_fd >= 0) {
            /* Closes the file; a writer that has just read the number still has a valid descriptor. */
            dup3(STDERR_FILENO, own_fd, O_CLOEXEC);
        }
    }
    pthread_mutex_unlock(&file_lock);
    return MR_OK;
}

const char *mr_log_file(void)
{
    const char *path = atomic_load_explicit(&log_path, memory_order_acquire);

    return path ? path : "";
}

/* ---- a line --------------------------------------------------------------------------------- */

/* A fixed buffer that drops text that does not fit. The message may use it up to `end`, the tail up to `full`. */
struct line {
    char *at;
    char *end;
    char *full;
};

static void line_bytes(struct line *l, const char *p, size_t n)
{
    size_t room = (size_t)(l->end - l->at);

    n = MR_MIN(n, room);
    memcpy(l->at, p, n);
    l->at += n;
}

static void line_c(struct line *l, const char *s)
{
    line_bytes(l, s, strlen(s));
}

static void line_u64(struct line *l, uint64_t v)
{
    char text[24];

    line_bytes(l, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)v));
}

enum escape { ESCAPE_TEXT, ESCAPE_QUOTED, ESCAPE_JSON };

/* Sets out to the escape for the character of n bytes at p; "" if it needs none. */
static void escape_char(enum escape kind, const char *p, size_t n, char out[8])
{
    unsigned c = (unsigned char)p[0];
    bool is_broken = n == 0;
    bool is_control = c < 0x20 || c == 0x7F || (n == 2 && c == 0xC2 && (unsigned char)p[1] < 0xA0);

    out[0] = '\0';
    if (kind == ESCAPE_JSON && is_broken) {
        memcpy(out, "\\ufffd", 7);
    } else if (kind != ESCAPE_TEXT && (c == '"' || c == '\\')) {
        snprintf(out, 8, "\\%c", (char)c);
    } else if (!is_control && !is_broken) {
        return;
    } else if (c == '\n' || c == '\r' || c == '\t') {
        snprintf(out, 8, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    } else if (kind == ESCAPE_JSON) {
        snprintf(out, 8, "\\u%04x", n == 2 ? (unsigned)(unsigned char)p[1] : c);
    } else {
        snprintf(out, 8, "\\x%02x", n == 2 ? (unsigned)(unsigned char)p[1] : c);
    }
}

/* Append `s` escaped; stops where the next character does not fit. Returns the rest of `s`. */
static mr_str line_escaped(struct line *l, enum escape kind, mr_str s)
{
    while (s.len > 0) {
        char escaped[8];
        size_t n = mr_utf8_step(s);
        escape_char(kind, s.ptr, n, escaped);
        n = MR_MAX(n, (size_t)1);
        const char *p = escaped[0] ? escaped : s.ptr;
        size_t width = escaped[0] ? strlen(escaped) : n;
        if (width > (size_t)(l->end - l->at)) {
            break;
        }
        line_bytes(l, p, width);
        s.ptr += n;
        s.len -= n;
    }
    return s;
}

struct mr_log_text mr_log_quote(mr_str s)
{
    struct mr_log_text out;
    mr_str head = mr_str_sub(s, 0, QUOTE_INPUT_MOST);
    /* Room for the closing `..."` and the NUL is kept. */
    struct line l = {
        .at = out.text,
        .end = out.text + sizeof out.text - sizeof "...\"",
        .full = out.text + sizeof out.text - 1,
    };

    if (head.len < s.len) {
        head.len = mr_utf8_whole(head);
    }
    line_c(&l, "\"");
    bool is_cut = line_escaped(&l, ESCAPE_QUOTED, head).len > 0 || head.len < s.len;
    l.end = l.full;
    line_c(&l, is_cut ? "...\"" : "\"");
    *l.at = '\0';
    return out;
}

const char *mr_wall_text(int64_t wall_ns, char out[32])
{
    time_t seconds = (time_t)(wall_ns / MR_NS_PER_S);
    struct tm tm;

    gmtime_r(&seconds, &tm);
    size_t n = strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 32 - n, ".%06dZ", (int)(wall_ns % MR_NS_PER_S / MR_NS_PER_US));
    return out;
}

/* True if the line may be written. *out_dropped: lines dropped in earlier windows. */
static bool site_admits(struct mr_log_site *site, uint32_t *out_dropped)
{
    int64_t now = mr_now_ns();
    int64_t begin;

    *out_dropped = 0;
    if (!site) {
        return true;
    }
    /* Relaxed: only numbers, and a line more or less when two threads meet at a window's edge does no harm. */
    begin = atomic_load_explicit(&site->window_ns, memory_order_relaxed);
    if (begin == 0 || now - begin >= WINDOW_NS) {
        if (atomic_compare_exchange_strong_explicit(&site->window_ns, &begin, now,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            atomic_store_explicit(&site->count, 1, memory_order_relaxed);
            *out_dropped = atomic_exchange_explicit(&site->dropped, 0, memory_order_relaxed);
            return true;
        }
    }
    if (atomic_fetch_add_explicit(&site->count, 1, memory_order_relaxed) < LINES_PER_WINDOW) {
        return true;
    }
    atomic_fetch_add_explicit(&site->dropped, 1, memory_order_relaxed);
    return false;
}

struct event {
    enum mr_log_level level;
    const char *where;
    const char *name;
    const char *fmt; /* of the message */
    mr_str message;
    bool is_cut; /* the message was longer */
    uint32_t dropped;
    enum mr_log_format format; /* read once: it may change while the line is written */
};

/* Appends the message, cut if necessary, and opens the room for the tail. */
static void line_message(struct line *l, enum escape kind, const struct event *e)
{
    mr_str rest = line_escaped(l, kind, e->message);

    l->end = l->full;
    if (e->is_cut || rest.len > 0) {
        line_c(l, "...");
    }
}

/* 2026-11-21T14:03:01.123456Z I model.ready model=a version=1 (file.c:12) */
static void line_text(struct line *l, const struct event *e)
{
    char ts[32];

    mr_wall_text(mr_wall_ns(), ts);
    line_c(l, ts);
    line_bytes(l, " ", 1);
    line_bytes(l, &"EWID"[e->level], 1);
    line_bytes(l, " ", 1);
    line_c(l, e->name);
    line_bytes(l, " ", e->message.len > 0);
    line_message(l, ESCAPE_TEXT, e);
    if (e->dropped) {
        line_c(l, " dropped=");
        line_u64(l, e->dropped);
    }
    line_c(l, " (");
    line_c(l, e->where);
    line_c(l, ")\n");
}

/* Time in UTC, process and message as a JSON string, as Triton writes them. */
static void line_triton(struct line *l, const struct event *e)
{
    int64_t now_ns = mr_wall_ns();
    time_t seconds = (time_t)(now_ns / MR_NS_PER_S);
    char level = "EWII"[e->level]; /* Triton's verbose lines are I */
    char head[64];
    char ts[32];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    if (e->format == MR_LOG_ISO8601) {
        strftime(ts, sizeof ts, "%Y-%m-%dT%H:%M:%SZ", &tm);
        snprintf(head, sizeof head, "%s %c %d ", ts, level, (int)getpid());
    } else {
        strftime(ts, sizeof ts, "%m%d %H:%M:%S", &tm);
        snprintf(head, sizeof head, "%c%s.%06d %d ", level, ts,
                 (int)(now_ns % MR_NS_PER_S / MR_NS_PER_US), (int)getpid());
    }
    line_c(l, head);
    line_c(l, e->where);
    line_c(l, "] \"");
    line_c(l, e->name);
    line_bytes(l, " ", e->message.len > 0);
    line_message(l, ESCAPE_JSON, e);
    if (e->dropped) {
        line_c(l, " dropped=");
        line_u64(l, e->dropped);
    }
    line_c(l, "\"\n");
}

/* Cuts the value of a pair off the front of *io_rest. False: it has no end. */
static bool value_take(mr_str *io_rest, mr_str *out)
{
    const char *p = io_rest->ptr;
    const char *end = p + io_rest->len;

    if (p < end && *p == '"') {
        for (p++; p < end && *p != '"'; p += *p == '\\' ? 2 : 1) {
        }
        if (p >= end) {
            return false;
        }
        p++;
    }
    while (p < end && *p != ' ') {
        p++;
    }
    *out = mr_str_n(io_rest->ptr, (size_t)(p - io_rest->ptr));
    *io_rest = mr_str_sub(*io_rest, out->len + (p < end), io_rest->len);
    return true;
}

/* True for a number in JSON; "nan" and "" are none. */
static bool is_number(mr_str s)
{
    size_t i = s.len > 0 && s.ptr[0] == '-';
    size_t digits = 0;
    size_t points = 0;

    for (; i < s.len; i++) {
        digits += s.ptr[i] >= '0' && s.ptr[i] <= '9';
        points += s.ptr[i] == '.' && digits > 0;
    }
    return digits > 0 && points < 2 && digits + points + (s.ptr[0] == '-') == s.len &&
           s.ptr[s.len - 1] != '.';
}

/* Appends text quoted by MR_LOG_STR or by the format, with its escapes turned into JSON's. */
static void line_requoted(struct line *l, mr_str s)
{
    mr_str rest = mr_str_sub(s, 1, s.len - 1);

    line_c(l, "\"");
    while (rest.len > 0) {
        const char *slash = memchr(rest.ptr, '\\', rest.len);
        size_t run = slash ? (size_t)(slash - rest.ptr) : rest.len;
        line_escaped(l, ESCAPE_JSON, mr_str_sub(rest, 0, run));
        rest = mr_str_sub(rest, run, rest.len);
        if (rest.len == 0) {
            break;
        }
        bool is_hex = rest.len > 3 && rest.ptr[1] == 'x' && isxdigit((unsigned char)rest.ptr[2]) &&
                      isxdigit((unsigned char)rest.ptr[3]);
        bool is_json = rest.len > 1 && rest.ptr[1] != '\0' && strchr("\"\\nrt", rest.ptr[1]);
        if (is_hex) {
            line_c(l, "\\u00");
            line_bytes(l, rest.ptr + 2, 2);
        } else {
            line_bytes(l, is_json ? rest.ptr : "\\\\", 2);
        }
        rest = mr_str_sub(rest, is_hex ? 4 : is_json ? 2 : 1, rest.len);
    }
    line_c(l, "\"");
}

static void line_value(struct line *l, mr_str value, bool is_numeric)
{
    bool is_plain = (is_numeric && is_number(value)) || mr_str_eq_c(value, "true") ||
                    mr_str_eq_c(value, "false");

    if (is_plain) {
        line_bytes(l, value.ptr, value.len);
    } else if (value.len > 1 && value.ptr[0] == '"' && value.ptr[value.len - 1] == '"') {
        line_requoted(l, value);
    } else {
        line_c(l, "\"");
        line_escaped(l, ESCAPE_JSON, value);
        line_c(l, "\"");
    }
}

/* Turns the pairs at the beginning into members; returns the free words after them. The keys are read from the
 * format, never from the message, so that outside data cannot add a member. Pairs take at most half of the line's
 * room. */
static mr_str line_members(struct line *l, const struct event *e)
{
    const char *fmt = e->fmt;
    mr_str rest = e->message;

    for (;;) {
        size_t key = strspn(fmt, "abcdefghijklmnopqrstuvwxyz_");
        size_t token = strcspn(fmt, " ");
        mr_str after = mr_str_sub(rest, key + 1, rest.len);
        mr_str value;
        if (key == 0 || fmt[key] != '=' || rest.len <= key || memcmp(rest.ptr, fmt, key + 1) != 0 ||
            !value_take(&after, &value)) {
            return rest;
        }
        line_c(l, ",\"");
        line_bytes(l, fmt, key);
        line_c(l, "\":");
        line_value(l, value, strchr("diufg", fmt[token - 1]) != NULL);
        rest = after;
        if (fmt[token] == '\0') {
            return rest;
        }
        fmt += token + 1;
    }
}

static void line_json(struct line *l, const struct event *e)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char ts[32];

    mr_wall_text(mr_wall_ns(), ts);
    line_c(l, "{\"ts\":\"");
    line_c(l, ts);
    line_c(l, "\",\"level\":\"");
    line_c(l, names[e->level]);
    line_c(l, "\",\"event\":\"");
    line_escaped(l, ESCAPE_JSON, mr_str_c(e->name));
    line_c(l, "\"");
    struct event words = *e;
    words.message = line_members(l, e);
    line_c(l, ",\"msg\":\"");
    line_message(l, ESCAPE_JSON, &words);
    if (e->dropped) {
        line_c(l, "\",\"dropped\":");
        line_u64(l, e->dropped);
        line_c(l, ",\"src\":\"");
    } else {
        line_c(l, "\",\"src\":\"");
    }
    line_escaped(l, ESCAPE_JSON, mr_str_c(e->where));
    line_c(l, "\"}\n");
}

typedef void line_fn(struct line *l, const struct event *e);

static line_fn *const lines[MR_LOG_FORMATS] = {
    [MR_LOG_TEXT] = line_text,
    [MR_LOG_JSON] = line_json,
    [MR_LOG_DEFAULT] = line_triton,
    [MR_LOG_ISO8601] = line_triton,
};

/* Number of bytes written. An error cannot be reported anywhere. */
static size_t write_all(int fd, const char *p, size_t n)
{
    size_t at = 0;

    while (at < n) {
        ssize_t done = write(fd, p + at, n - at);
        if (done <= 0 && !(done < 0 && errno == EINTR)) {
            break;
        }
        at += done > 0 ? (size_t)done : 0;
    }
    return at;
}

static void line_write(const char *p, size_t n)
{
    /* Acquire: pairs with the release in file_use. */
    int fd = atomic_load_explicit(&log_fd, memory_order_acquire);

    if (atomic_load_explicit(&is_torn, memory_order_relaxed) && write_all(fd, "\n", 1) == 1) {
        atomic_store_explicit(&is_torn, false, memory_order_relaxed);
    }
    size_t done = write_all(fd, p, n);
    if (done > 0 && done < n) {
        atomic_store_explicit(&is_torn, true, memory_order_relaxed);
    }
}

void mr_log_line(struct mr_log_site *site, enum mr_log_level level, const char *where,
                 const char *event, const char *fmt, ...)
{
    char message[MESSAGE_BYTES];
    char text[BODY_BYTES + TAIL_BYTES];
    struct line l = {.at = text, .end = text + BODY_BYTES, .full = text + sizeof text};
    struct event e = {.level = known_level(level), .where = where, .name = event, .fmt = fmt};
    int saved_errno = errno;
    va_list ap;

    if (!site_admits(site, &e.dropped)) {
        return;
    }
    va_start(ap, fmt);
    int n = vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    e.message = mr_str_n(message, n < 0 ? 0 : MR_MIN((size_t)n, sizeof message - 1));
    e.is_cut = n >= (int)sizeof message;
    if (e.is_cut) {
        e.message.len = mr_utf8_whole(e.message);
    }
    e.format = mr_log_get_format();
    lines[e.format](&l, &e);
    line_write(text, (size_t)(l.at - text));
    errno = saved_errno;
}
