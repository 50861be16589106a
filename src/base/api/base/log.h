/* The process log: one line per event on standard error or a file, as text or JSON.
 *
 *   mr_log(MR_LOG_INFO, "model.ready", "model=%s version=%ld", name, v);
 *
 * The event is a stable dotted name; the rest is key=value text, with free words allowed at the end. In JSON, the
 * pairs at the beginning of the format become members, with numbers as numbers, and the words become `msg`. A pair
 * must not be named ts, level, event, msg, src or dropped.
 * Values that come from outside go through MR_LOG_STR, which quotes and escapes. Layers below
 * `model` do not log: they return errors. Lines of one call site that repeat are limited to 20 a
 * second; the first line after a flood says how many were dropped. Thread: any. */
#ifndef MR_BASE_LOG_H
#define MR_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum mr_log_level { MR_LOG_ERROR = 0, MR_LOG_WARN = 1, MR_LOG_INFO = 2, MR_LOG_DEBUG = 3 };
/* The last two are Triton's formats, for tools that parse its logs:
 *   DEFAULT   I1121 14:03:01.123456 4711 file.c:12] "model.ready model=a version=1"
 *   ISO8601   2026-11-21T14:03:01Z I 4711 file.c:12] "model.ready model=a version=1" */
enum mr_log_format { MR_LOG_TEXT, MR_LOG_JSON, MR_LOG_DEFAULT, MR_LOG_ISO8601, MR_LOG_FORMATS };

/** Rate limit of one call site; static in the macro. */
struct mr_log_site {
    _Atomic int64_t window_ns;
    _Atomic uint32_t count;
    _Atomic uint32_t dropped;
};

/** Called through mr_log. Keeps errno. A message is cut at 2 KiB. site NULL: no rate limit. */
void mr_log_line(struct mr_log_site *site, enum mr_log_level level, const char *where,
                 const char *event, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool mr_log_enabled(enum mr_log_level level);

#define mr_log(level, event, ...)                                                                  \
    do {                                                                                           \
        static struct mr_log_site mr_site_;                                                        \
        if (mr_log_enabled(level))                                                                 \
            mr_log_line(&mr_site_, (level), MR_HERE, (event), __VA_ARGS__);                        \
    } while (0)

/** A quoted, escaped copy of up to 200 bytes of `s` in a buffer of the calling expression:
 *  mr_log(..., "model=%s", MR_LOG_STR(name)). */
struct mr_log_text {
    char text[256];
};
struct mr_log_text mr_log_quote(mr_str s);
#define MR_LOG_STR(s) (mr_log_quote(s).text)

/** Settings that may change at any time; each is atomic. By default errors, warnings and information are on. A
 *  verbose level above 0 turns MR_LOG_DEBUG on as well. */
void mr_log_set_enabled(enum mr_log_level level, bool on);
void mr_log_set_verbose(unsigned level);
unsigned mr_log_verbose(void);
void mr_log_set_format(enum mr_log_format format);
enum mr_log_format mr_log_get_format(void);
/** "text", "json", "default", "ISO8601": the format's name in options and requests. Static. */
const char *mr_log_format_name(enum mr_log_format format);
/** Later lines are appended to that file; NULL or "" = standard error. Setting the same path again reopens the file (log
 *  rotation). Errors: MR_E_IO; the log then keeps its file. */
int mr_log_set_file(const char *path, struct mr_err *err);
/** The current path, "" for standard error. Static. */
const char *mr_log_file(void);

#endif
