/* JSON (RFC 8259): a pull reader that never builds a tree, and a writer into a buffer.
 *
 * The reader walks the text once; the caller asks for what it expects. Strings come as slices of
 * the text when they hold no escape, otherwise unescaped into the arena. The text need not be
 * NUL-terminated. Invalid UTF-8, control characters in strings, lone surrogates, leading zeros,
 * trailing commas, and depth beyond the limit are errors with the byte offset. Only the float readers, mr_json_peek
 * and mr_json_skip accept NaN, Infinity and -Infinity as numbers (Triton's clients send them).
 *
 * Errors are sticky: after the first one every call returns it again, and `err` keeps its text. */
#ifndef MR_CODEC_JSON_H
#define MR_CODEC_JSON_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#define MR_JSON_DEPTH_DEFAULT 100

enum mr_json_type {
    MR_JSON_END = 0, /* no more value here, or an error */
    MR_JSON_OBJECT,
    MR_JSON_ARRAY,
    MR_JSON_STRING,
    MR_JSON_NUMBER,
    MR_JSON_BOOL,
    MR_JSON_NULL
};

struct mr_json {
    const char *pos;
    const char *begin;
    const char *end;
    struct mr_arena *arena;
    struct mr_err *err; /* where the first error is written; may be NULL */
    int status;         /* MR_OK or the first error */
    int depth;
    int max_depth;
    /* appended to the text of a depth error, for example the option; may be NULL */
    const char *depth_hint;
    /* What mr_json_fill does beside numbers; false after mr_json_init. */
    bool null_is_nan;    /* null for a float is NaN */
    bool overflow_fails; /* a number beyond its float type is an error, not an infinity */
};

/** max_depth 0 = the default; at most 1000. Borrows text and arena for as long as the reader is
 *  used. */
void mr_json_init(struct mr_json *j, mr_str text, struct mr_arena *arena, int max_depth,
                  struct mr_err *err);
/** Type of the next value, without consuming it. */
enum mr_json_type mr_json_peek(struct mr_json *j);
/** '{' or '['. Then loop with mr_json_next_key / mr_json_next_item until false. */
int mr_json_enter_object(struct mr_json *j);
int mr_json_enter_array(struct mr_json *j);
/** Next member: key unescaped, the caller must then consume its value. False at '}' (consumed) or on error (check
 *  j->status). io_first must be true before the first call. */
bool mr_json_next_key(struct mr_json *j, bool *io_first, mr_str *out_key);
/** Next element; false at ']' (consumed) or on error. */
bool mr_json_next_item(struct mr_json *j, bool *io_first);
int mr_json_string(struct mr_json *j, mr_str *out);
int mr_json_bool(struct mr_json *j, bool *out);
int mr_json_null(struct mr_json *j);
/** Whole numbers only ("1", "-3", "-0"; "1.0" and "1e3" are refused). MR_E_INVALID when out of
 *  range. */
int mr_json_i64(struct mr_json *j, int64_t *out);
int mr_json_u64(struct mr_json *j, uint64_t *out);
/** Any number, also NaN, Infinity, -Infinity. Correctly rounded, so that 1e999 is infinity. */
int mr_json_double(struct mr_json *j, double *out);
int mr_json_float(struct mr_json *j, float *out);
/** The next number as text, also NaN, Infinity, -Infinity (not checked beyond this grammar). */
int mr_json_number_text(struct mr_json *j, mr_str *out);
/** Skip one value, checking it; *out_text (may be NULL) gets its exact text. */
int mr_json_skip(struct mr_json *j, mr_str *out_text);

/** Element types of mr_json_fill: bool (one byte, 0 or 1), integers and floats in host byte
 *  order. */
enum mr_json_fill {
    MR_JSON_FILL_BOOL,
    MR_JSON_FILL_U8,
    MR_JSON_FILL_U16,
    MR_JSON_FILL_U32,
    MR_JSON_FILL_U64,
    MR_JSON_FILL_I8,
    MR_JSON_FILL_I16,
    MR_JSON_FILL_I32,
    MR_JSON_FILL_I64,
    MR_JSON_FILL_F32,
    MR_JSON_FILL_F64
};

/** Read an array of numbers or bools, flat or nested in any way, straight into `out`, in the order
 *  of the text (row-major). The fast way for tensor data.
 *  out        aligned for the element type, room for `capacity` elements; holds the elements read so
 *             far after an error
 *  out_count  elements read, perhaps fewer than `capacity`: the caller compares with its shape
 *  Integers follow mr_json_i64 and must fit the type; floats follow mr_json_double / mr_json_float;
 *  BOOL takes true and false only.
 *  Errors: MR_E_INVALID: not an array, an element of another type, out of range, or "more than N
 *  elements". */
int mr_json_fill(struct mr_json *j, enum mr_json_fill kind, void *out, uint64_t capacity,
                 uint64_t *out_count);

/** Walk the leaves of a flat or nested array in the order of the text, where mr_json_fill does not
 *  serve (strings): `int level = 0; while (mr_json_next_leaf(&j, &level)) mr_json_string(&j, &s);`
 *  After true, the caller must consume the value, which is not an array. False after the end of the outermost array,
 *  or on error (not an array: MR_E_INVALID). */
bool mr_json_next_leaf(struct mr_json *j, int *io_level);

/** After the top value: only white space may follow. */
int mr_json_finish(struct mr_json *j);
/** Set an error at the current position (for callers): "... at offset N". Returns the status. After an earlier error
 *  it returns that one and has no effect. */
int mr_json_fail(struct mr_json *j, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- writer: append straight to a buffer, the caller places commas and braces ---- */

/** Quoted and escaped. Bytes that are not UTF-8 are replaced by U+FFFD. */
void mr_json_put_string(struct mr_buf *b, mr_str s);
/** The same without quotes, for a string in parts, each of whole characters. */
void mr_json_put_part(struct mr_buf *b, const char *p, const char *end);
/** Shortest text that reads back to the same value; NaN, Infinity, -Infinity as those words
 *  (which Triton's clients read back), never null. */
void mr_json_put_double(struct mr_buf *b, double v);
void mr_json_put_float(struct mr_buf *b, float v);

/** Number text, also used outside JSON. Returns bytes written (out has room for 32). */
size_t mr_float_text(float v, char out[32]);
size_t mr_double_text(double v, char out[32]);
/** As "%.17g", whatever the locale of the program is. */
size_t mr_double_text_17(double v, char out[32]);
/** Parse a decimal float (no leading/trailing blanks, no "+"): false if the whole slice is not one.
 *  Accepts nan, inf, infinity in any case. Overflow gives infinity, underflow the nearest value. */
bool mr_text_float(mr_str s, float *out);
bool mr_text_double(mr_str s, double *out);

/** Base64 (RFC 4648, padding required, unused bits zero). decode: out has room for s.len / 4 * 3
 *  bytes. */
bool mr_base64_decode(mr_str s, uint8_t *out, size_t *out_len);
void mr_base64_encode(mr_bytes in, struct mr_buf *out);

#endif
