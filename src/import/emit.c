#include "emit.h"

#include <stdio.h>

#define TEXT_MAX (64u << 20)

void emit_init(struct emit *e)
{
    *e = (struct emit){.depth = 0};
    mr_buf_init(&e->buf, TEXT_MAX);
}

void emit_fini(struct emit *e)
{
    mr_buf_fini(&e->buf);
}

static void begin(struct emit *e, const char *name)
{
    for (int i = 0; i < e->depth; i++) {
        MR_BUF_LIT(&e->buf, "  ");
    }
    mr_buf_c(&e->buf, name);
}

void emit_open(struct emit *e, const char *name)
{
    begin(e, name);
    MR_BUF_LIT(&e->buf, " {\n");
    e->depth++;
}

void emit_close(struct emit *e)
{
    e->depth--;
    begin(e, "}\n");
}

size_t emit_control_bytes(mr_str s)
{
    const unsigned char c = (unsigned char)s.ptr[0];

    if (c == 0xc2 && s.len > 1 && (unsigned char)s.ptr[1] < 0xa0) {
        return 2; /* U+0080 to U+009F */
    }
    return c < 0x20 || c == 0x7f;
}

static void quoted(struct emit *e, mr_str s)
{
    mr_buf_char(&e->buf, '"');
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char c = (unsigned char)s.ptr[i];
        const size_t controls = emit_control_bytes(mr_str_sub(s, i, s.len));
        if (c == '"' || c == '\\') {
            mr_buf_char(&e->buf, '\\');
            mr_buf_char(&e->buf, (char)c);
        } else if (controls > 0) {
            mr_buf_printf(&e->buf, "\\%03o", c);
            if (controls > 1) {
                mr_buf_printf(&e->buf, "\\%03o", (unsigned char)s.ptr[++i]);
            }
        } else {
            mr_buf_char(&e->buf, (char)c);
        }
    }
    mr_buf_char(&e->buf, '"');
}

void emit_str(struct emit *e, const char *name, mr_str value)
{
    begin(e, name);
    MR_BUF_LIT(&e->buf, ": ");
    quoted(e, value);
    mr_buf_char(&e->buf, '\n');
}

void emit_word(struct emit *e, const char *name, const char *word)
{
    begin(e, name);
    mr_buf_printf(&e->buf, ": %s\n", word);
}

void emit_int(struct emit *e, const char *name, int64_t value)
{
    begin(e, name);
    MR_BUF_LIT(&e->buf, ": ");
    mr_buf_i64(&e->buf, value);
    mr_buf_char(&e->buf, '\n');
}

void emit_pair(struct emit *e, const char *name, mr_str key, mr_str value)
{
    begin(e, name);
    MR_BUF_LIT(&e->buf, " { key: ");
    quoted(e, key);
    MR_BUF_LIT(&e->buf, " value: ");
    quoted(e, value);
    MR_BUF_LIT(&e->buf, " }\n");
}

void emit_comment(struct emit *e, mr_str text)
{
    mr_str line;

    while (mr_str_split(&text, '\n', &line)) {
        begin(e, "# ");
        mr_buf_str(&e->buf, line);
        mr_buf_char(&e->buf, '\n');
    }
}
