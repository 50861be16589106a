/* The part of XML in S3's answers: elements, text, entities of one character, and comments and processing
 * instructions, which are skipped. A document type, which could define entities, is refused. */
#include "s3_priv.h"

void s3_xml_init(struct s3_xml *x, mr_bytes document)
{
    memset(x, 0, sizeof *x);
    x->at = (const char *)document.ptr;
    x->end = x->at + document.len;
}

static bool fail(struct s3_xml *x)
{
    x->depth = S3_XML_DEPTH + 1;
    x->at = x->end;
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static mr_str left(const struct s3_xml *x)
{
    return mr_str_n(x->at, (size_t)(x->end - x->at));
}

/* Skips past the next `mark`. */
static bool pass(struct s3_xml *x, mr_str mark)
{
    const ptrdiff_t n = mr_str_find_str(left(x), mark);

    x->at += n < 0 ? 0 : (size_t)n + mark.len;
    return n >= 0;
}

static mr_str name_read(struct s3_xml *x)
{
    const char *begin = x->at;

    while (x->at < x->end && !is_space(*x->at) && *x->at != '>' && *x->at != '/' && *x->at != '<') {
        x->at++;
    }
    return mr_str_n(begin, (size_t)(x->at - begin));
}

/* Skips attributes to the end of a tag; *out_is_empty: it was <a/>. */
static bool tag_end(struct s3_xml *x, bool *out_is_empty)
{
    char quote = 0;

    *out_is_empty = false;
    for (; x->at < x->end; x->at++) {
        const char c = *x->at;
        if (quote) {
            quote = c == quote ? 0 : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '>') {
            x->at++;
            return true;
        } else if (c == '<') {
            return false;
        }
        *out_is_empty = !quote && c == '/';
    }
    return false;
}

static bool close_top(struct s3_xml *x, mr_str text)
{
    x->depth--;
    x->is_close = true;
    x->name = x->open[x->depth];
    x->text = text;
    return true;
}

static bool open_tag(struct s3_xml *x)
{
    const mr_str name = name_read(x);
    bool is_empty;

    if (name.len == 0 || x->depth == S3_XML_DEPTH || !tag_end(x, &is_empty)) {
        return fail(x);
    }
    x->has_begun = true;
    x->open[x->depth++] = name;
    x->is_pending_close = is_empty;
    x->is_close = false;
    x->name = name;
    x->text = mr_str_n(NULL, 0);
    return true;
}

static bool close_tag(struct s3_xml *x, mr_str text)
{
    const mr_str name = name_read(x);
    bool is_empty;

    if (x->depth == 0 || !mr_str_eq(name, x->open[x->depth - 1]) || !tag_end(x, &is_empty)) {
        return fail(x);
    }
    return close_top(x, text);
}

bool s3_xml_next(struct s3_xml *x)
{
    if (x->depth > S3_XML_DEPTH) {
        return false;
    }
    if (x->is_pending_close) {
        x->is_pending_close = false;
        return close_top(x, mr_str_n(NULL, 0));
    }
    const char *text = x->at;
    while (pass(x, MR_STR("<"))) {
        const mr_str before = mr_str_n(text, (size_t)(x->at - 1 - text));
        if (mr_str_starts(left(x), MR_STR("!--")) || mr_str_starts(left(x), MR_STR("?"))) {
            if (!pass(x, *x->at == '?' ? MR_STR("?>") : MR_STR("-->"))) {
                return fail(x);
            }
            text = x->at;
        } else if (mr_str_starts(left(x), MR_STR("/"))) {
            x->at++;
            return close_tag(x, before);
        } else if (mr_str_starts(left(x), MR_STR("!"))) {
            return fail(x);
        } else {
            return open_tag(x);
        }
    }
    x->at = x->end;
    return false;
}

bool s3_xml_is_whole(const struct s3_xml *x)
{
    return x->has_begun && x->depth == 0 && x->at == x->end;
}

/* Appends a character as UTF-8. */
static bool character_put(struct mr_buf *out, uint64_t c)
{
    if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
        return false;
    }
    if (c < 0x80) {
        mr_buf_char(out, (char)c);
        return true;
    }
    const unsigned more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const uint8_t heads[] = {0, 0xc0, 0xe0, 0xf0};
    mr_buf_char(out, (char)(heads[more] | c >> (6 * more)));
    for (unsigned i = more; i-- > 0;) {
        mr_buf_char(out, (char)(0x80 | (c >> (6 * i) & 0x3f)));
    }
    return true;
}

static bool number_read(mr_str digits, unsigned base, uint64_t *out)
{
    uint64_t v = 0;

    for (size_t i = 0; i < digits.len; i++) {
        const char c = digits.ptr[i];
        const unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                  : 99;
        if (d >= base || v > 0x10ffff) {
            return false;
        }
        v = v * base + d;
    }
    *out = v;
    return digits.len > 0;
}

static bool entity_put(struct mr_buf *out, mr_str name)
{
    static const struct {
        mr_str name;
        char c;
    } known[] = {{MR_STR_INIT("amp"), '&'},
                 {MR_STR_INIT("lt"), '<'},
                 {MR_STR_INIT("gt"), '>'},
                 {MR_STR_INIT("quot"), '"'},
                 {MR_STR_INIT("apos"), '\''}};
    uint64_t c;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (mr_str_eq(name, known[i].name)) {
            mr_buf_char(out, known[i].c);
            return true;
        }
    }
    const bool is_hex = mr_str_starts(name, MR_STR("#x"));
    return mr_str_starts(name, MR_STR("#")) &&
           number_read(mr_str_sub(name, is_hex ? 2 : 1, name.len), is_hex ? 16 : 10, &c) &&
           character_put(out, c);
}

bool s3_xml_text(mr_str text, struct mr_buf *out)
{
    while (text.len > 0) {
        const ptrdiff_t amp = mr_str_find(text, '&');
        mr_buf_str(out, mr_str_sub(text, 0, amp < 0 ? text.len : (size_t)amp));
        text = mr_str_sub(text, amp < 0 ? text.len : (size_t)amp + 1, text.len);
        if (amp >= 0) {
            const ptrdiff_t end = mr_str_find(text, ';');
            if (end < 0 || !entity_put(out, mr_str_sub(text, 0, (size_t)end))) {
                return false;
            }
            text = mr_str_sub(text, (size_t)end + 1, text.len);
        }
    }
    return true;
}

bool s3_xml_find(mr_bytes document, const char *name, struct mr_buf *out)
{
    struct s3_xml x;

    s3_xml_init(&x, document);
    while (s3_xml_next(&x)) {
        if (x.is_close && mr_str_eq_c(x.name, name)) {
            return s3_xml_text(x.text, out);
        }
    }
    return false;
}
