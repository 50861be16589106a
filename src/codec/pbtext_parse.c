/* The protobuf text format into a new message, by recursive descent over the descriptor, at most
 * MR_PBMSG_DEPTH_MAX levels deep.
 *
 * It follows the C++ parser, so that a config.pbtxt means the same to both, and is looser in one place: ':' may also
 * be missing before '['. Extensions and Any, which a model configuration does not use, are errors that name them. */
#include "codec/pbtext.h"

#include "codec/json.h"
#include "codec/pbtext_lines.h"
#include "pbmsg.h"
#include "pbtext_lex.h"

struct parser {
    struct pbtext_lex lex;
    struct mr_buf text; /* the string being assembled */
    int depth;
    struct mr_pbtext_lines *lines; /* NULL: not wanted */
};

static int no_memory(struct parser *p)
{
    return mr_pbtext_lex_fail(&p->lex, MR_E_NOMEM, "no memory");
}

/* ---- scalars ---- */

/* An unsigned integer as C writes it: decimal, 0x…, or octal with a leading 0. */
static bool integer_read(mr_str s, uint64_t *out)
{
    unsigned base = 10;
    size_t at = 0;
    if (s.len > 2 && s.ptr[0] == '0' && (s.ptr[1] | 0x20) == 'x') {
        base = 16;
        at = 2;
    } else if (s.len > 1 && s.ptr[0] == '0') {
        base = 8;
        at = 1;
    }
    uint64_t value = 0;
    for (; at < s.len; at++) {
        int c = (unsigned char)s.ptr[at];
        int lower = c | 0x20;
        unsigned digit = c >= '0' && c <= '9'           ? (unsigned)(c - '0')
                         : lower >= 'a' && lower <= 'f' ? (unsigned)(lower - 'a' + 10)
                                                        : 99;
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value)) {
            return false;
        }
    }
    *out = value;
    return true;
}

static int parse_integer(struct parser *p, const ProtobufCFieldDescriptor *field, void *slot)
{
    struct pbtext_lex *l = &p->lex;
    bool negative = mr_pbtext_lex_take(l, '-');
    uint64_t magnitude;
    if (l->kind != PBTEXT_NUMBER) {
        return mr_pbtext_lex_expected(l, "an integer");
    }
    mr_str shown = mr_str_sub(l->text, 0, 60);
    if (!integer_read(l->text, &magnitude)) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "'%.*s' is not an integer of 64 bits",
                                  MR_STR_ARG(shown));
    }
    if (!mr_pbmsg_put_integer(field->type, negative, magnitude, slot)) {
        bool is_signed = mr_pbmsg_is_signed(field->type);
        return mr_pbtext_lex_fail(
            l, MR_E_INVALID, "'%s%.*s' is out of range for '%s' (%s %zu bits)", negative ? "-" : "",
            MR_STR_ARG(shown), field->name, is_signed ? "signed" : "unsigned",
            mr_pbmsg_value_size(field->type) * 8);
    }
    mr_pbtext_lex_next(l);
    return MR_OK;
}

static int parse_float(struct parser *p, const ProtobufCFieldDescriptor *field, void *slot)
{
    struct pbtext_lex *l = &p->lex;
    bool negative = mr_pbtext_lex_take(l, '-');
    mr_str text = l->text;
    float f = 0;
    double d = 0;
    if (l->kind == PBTEXT_NUMBER && text.len > 1 && (text.ptr[text.len - 1] | 0x20) == 'f') {
        text.len--;
    }
    bool is_float = field->type == PROTOBUF_C_TYPE_FLOAT;
    bool ok = (l->kind == PBTEXT_NUMBER || l->kind == PBTEXT_IDENT) &&
              (is_float ? mr_text_float(text, &f) : mr_text_double(text, &d));
    if (!ok) {
        return mr_pbtext_lex_expected(l, "a number");
    }
    /* A NaN has no sign in text. */
    f = negative && f == f ? -f : f;
    d = negative && d == d ? -d : d;
    memcpy(slot, is_float ? (const void *)&f : (const void *)&d, is_float ? sizeof f : sizeof d);
    mr_pbtext_lex_next(l);
    return MR_OK;
}

static int parse_bool(struct parser *p, void *slot)
{
    static const struct {
        const char *word;
        protobuf_c_boolean value;
    } words[] = {{"true", 1},  {"True", 1},  {"t", 1}, {"1", 1},
                 {"false", 0}, {"False", 0}, {"f", 0}, {"0", 0}};
    struct pbtext_lex *l = &p->lex;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if ((l->kind == PBTEXT_IDENT || l->kind == PBTEXT_NUMBER) &&
            mr_str_eq_c(l->text, words[i].word)) {
            memcpy(slot, &words[i].value, sizeof words[i].value);
            mr_pbtext_lex_next(l);
            return MR_OK;
        }
    }
    return mr_pbtext_lex_expected(l, "true or false");
}

static int unknown_enum(struct parser *p, const ProtobufCFieldDescriptor *field)
{
    struct pbtext_lex *l = &p->lex;
    mr_str shown = mr_str_sub(l->text, 0, 60);
    const char *near = mr_pbmsg_near_enum(field->descriptor, l->text);
    return mr_pbtext_lex_fail(l, MR_E_INVALID, "'%.*s' is no value of '%s'%s%s%s",
                              MR_STR_ARG(shown), field->name, near ? "; did you mean '" : "",
                              near ? near : "", near ? "'?" : "");
}

static int parse_enum(struct parser *p, const ProtobufCFieldDescriptor *field, void *slot)
{
    struct pbtext_lex *l = &p->lex;
    int value = 0;
    if (l->kind == PBTEXT_IDENT) {
        if (!mr_pbmsg_enum_named(field->descriptor, l->text, false, &value)) {
            return unknown_enum(p, field);
        }
    } else {
        uint64_t magnitude;
        bool negative = mr_pbtext_lex_take(l, '-');
        if (l->kind != PBTEXT_NUMBER || !integer_read(l->text, &magnitude)) {
            return mr_pbtext_lex_expected(l, "the name or number of an enum value");
        }
        if (!mr_pbmsg_put_integer(PROTOBUF_C_TYPE_INT32, negative, magnitude, &value) ||
            !mr_pbmsg_enum_known(field->descriptor, value)) {
            return unknown_enum(p, field);
        }
    }
    memcpy(slot, &value, sizeof value);
    mr_pbtext_lex_next(l);
    return MR_OK;
}

static void note_line(struct parser *p, const void *value, long line)
{
    if (p->lines) {
        mr_pbtext_lines_add(p->lines, value, line);
    }
}

/* The last value of a field that has one. */
static const char *last_string(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    const void *first;
    const size_t count = mr_pbmsg_values(m, field, &first);

    return mr_pbmsg_string((const char *const *)first + (count - 1)).ptr;
}

/* One or more string tokens in a row make one value. */
static int parse_text(struct parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    struct pbtext_lex *l = &p->lex;
    struct pbtext_lex first = *l;
    if (l->kind != PBTEXT_STRING) {
        return mr_pbtext_lex_expected(l, "a string");
    }
    mr_buf_reset(&p->text);
    while (l->kind == PBTEXT_STRING) {
        if (mr_pbtext_lex_string(l, &p->text) < 0) {
            return l->status;
        }
    }
    const char *why = "";
    int rc =
        l->status != MR_OK ? l->status : mr_pbmsg_add_text(m, field, mr_buf_view(&p->text), &why);
    if (rc < 0 && l->status == MR_OK) {
        /* The value is wrong, not the token after it. */
        l->text_line = first.text_line;
        l->text_column = first.text_column;
        return mr_pbtext_lex_fail(l, rc, "the value of '%s' %s", field->name, why);
    }
    if (rc == MR_OK && field->type == PROTOBUF_C_TYPE_STRING) {
        note_line(p, last_string(m, field), first.text_line);
    }
    return rc;
}

/* ---- fields ---- */

static int parse_fields(struct parser *p, ProtobufCMessage *m, char close);

static int parse_message(struct parser *p, ProtobufCMessage *m,
                         const ProtobufCFieldDescriptor *field)
{
    struct pbtext_lex *l = &p->lex;
    char close = pbtext_at(l, '<') ? '>' : '}';
    if (!pbtext_at(l, '{') && !pbtext_at(l, '<')) {
        return mr_pbtext_lex_expected(l, "'{'");
    }
    if (p->depth >= MR_PBMSG_DEPTH_MAX) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "nested deeper than %d levels",
                                  MR_PBMSG_DEPTH_MAX);
    }
    const long line = l->text_line;
    mr_pbtext_lex_next(l);
    ProtobufCMessage *inner = mr_pbmsg_add_message(m, field);
    if (!inner) {
        return no_memory(p);
    }
    note_line(p, inner, line);
    p->depth++;
    int rc = parse_fields(p, inner, close);
    p->depth--;
    return rc;
}

static int parse_value(struct parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return parse_message(p, m, field);
    }
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES) {
        return parse_text(p, m, field);
    }
    void *slot = mr_pbmsg_slot(m, field);
    if (!slot) {
        return no_memory(p);
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE: return parse_float(p, field, slot);
    case PROTOBUF_C_TYPE_BOOL: return parse_bool(p, slot);
    case PROTOBUF_C_TYPE_ENUM: return parse_enum(p, field, slot);
    default: return parse_integer(p, field, slot);
    }
}

/* [ value, … ], standing at the bracket. */
static int parse_list(struct parser *p, ProtobufCMessage *m, const ProtobufCFieldDescriptor *field)
{
    struct pbtext_lex *l = &p->lex;
    if (!mr_pbmsg_is_list(field)) {
        return mr_pbtext_lex_fail(l, MR_E_INVALID, "'%s' takes one value, not a list", field->name);
    }
    mr_pbtext_lex_next(l);
    if (mr_pbtext_lex_take(l, ']')) {
        return l->status;
    }
    do {
        if (parse_value(p, m, field) < 0) {
            return l->status;
        }
    } while (mr_pbtext_lex_take(l, ','));
    if (!mr_pbtext_lex_take(l, ']')) {
        return mr_pbtext_lex_expected(l, "',' or ']'");
    }
    return l->status;
}

static int unknown_field(struct parser *p, const ProtobufCMessageDescriptor *desc)
{
    struct pbtext_lex *l = &p->lex;
    mr_str shown = mr_str_sub(l->text, 0, 60);
    const char *near = mr_pbmsg_near_field(desc, l->text);
    return mr_pbtext_lex_fail(l, MR_E_INVALID, "%s has no field '%.*s'%s%s%s", desc->name,
                              MR_STR_ARG(shown), near ? "; did you mean '" : "", near ? near : "",
                              near ? "'?" : "");
}

/* The field that the current token names, allowed to be given here; NULL with the error set. */
static const ProtobufCFieldDescriptor *field_open(struct parser *p, ProtobufCMessage *m,
                                                  struct mr_pbmsg_seen *seen)
{
    struct pbtext_lex *l = &p->lex;
    if (pbtext_at(l, '[')) {
        mr_pbtext_lex_fail(l, MR_E_INVALID, "extensions and Any are not supported");
        return NULL;
    }
    if (l->kind != PBTEXT_IDENT) {
        mr_pbtext_lex_expected(l, "a field name");
        return NULL;
    }
    const ProtobufCFieldDescriptor *field = mr_pbmsg_find(m->descriptor, l->text);
    if (!field) {
        unknown_field(p, m->descriptor);
        return NULL;
    }
    const ProtobufCFieldDescriptor *clash =
        mr_pbmsg_is_list(field) ? NULL : mr_pbmsg_claim(m, field, seen);
    if (clash == field) {
        mr_pbtext_lex_fail(l, MR_E_INVALID, "'%s' is given twice", field->name);
        return NULL;
    }
    if (clash) {
        mr_pbtext_lex_fail(l, MR_E_INVALID, "'%s' cannot be given together with '%s'", field->name,
                           clash->name);
        return NULL;
    }
    mr_pbtext_lex_next(l);
    return field;
}

static int parse_field(struct parser *p, ProtobufCMessage *m, struct mr_pbmsg_seen *seen)
{
    struct pbtext_lex *l = &p->lex;
    const ProtobufCFieldDescriptor *field = field_open(p, m, seen);
    if (!field) {
        return l->status;
    }
    bool colon = mr_pbtext_lex_take(l, ':');
    if (!colon && !pbtext_at(l, '[') && field->type != PROTOBUF_C_TYPE_MESSAGE) {
        return mr_pbtext_lex_expected(l, "':'");
    }
    int rc = pbtext_at(l, '[') ? parse_list(p, m, field) : parse_value(p, m, field);
    if (rc == MR_OK && !mr_pbtext_lex_take(l, ',')) {
        mr_pbtext_lex_take(l, ';');
    }
    return rc;
}

/* Fields up to the closing bracket, or up to the end of the text if `close` is 0. */
static int parse_fields(struct parser *p, ProtobufCMessage *m, char close)
{
    struct pbtext_lex *l = &p->lex;
    struct mr_pbmsg_seen seen = {0};
    while (close ? !pbtext_at(l, close) : l->kind != PBTEXT_END) {
        if (l->kind == PBTEXT_END) {
            return mr_pbtext_lex_expected(l, close == '>' ? "a field name or '>'"
                                                          : "a field name or '}'");
        }
        if (parse_field(p, m, &seen) < 0) {
            return l->status;
        }
    }
    if (l->status != MR_OK) {
        return l->status;
    }
    if (!mr_pbmsg_finish_maps(m)) {
        return no_memory(p);
    }
    if (close) {
        mr_pbtext_lex_next(l);
    }
    return l->status;
}

int mr_pbtext_parse(const ProtobufCMessageDescriptor *desc, mr_str text, ProtobufCMessage **out,
                    struct mr_err *err)
{
    return mr_pbtext_parse_lines(desc, text, NULL, out, err);
}

int mr_pbtext_parse_lines(const ProtobufCMessageDescriptor *desc, mr_str text,
                          struct mr_pbtext_lines *lines, ProtobufCMessage **out, struct mr_err *err)
{
    struct parser p = {.lines = lines};
    ProtobufCMessage *m = mr_pbmsg_new(desc);
    if (!m) {
        return MR_FAIL(err, MR_E_NOMEM, "no memory for a %s", desc->name);
    }
    mr_buf_init(&p.text, text.len + 1);
    mr_pbtext_lex_init(&p.lex, text, err);
    int rc = parse_fields(&p, m, 0);
    mr_buf_fini(&p.text);
    if (rc < 0) {
        protobuf_c_message_free_unpacked(m, NULL);
        return rc;
    }
    *out = m;
    return MR_OK;
}
