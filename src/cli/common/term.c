/* Terminals, tables and readable numbers. Text from a server or a file is cleaned before it is shown, so that an
 * escape sequence in a model's name cannot control the terminal. */
#include "term.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define CELL_GAP "  "

struct mr_term mr_term_of(FILE *stream)
{
    struct winsize size;
    const char *no_color = getenv("NO_COLOR");
    const char *name = getenv("TERM");
    struct mr_term term = {.width = 100, .height = 24};

    term.is_terminal = isatty(fileno(stream)) == 1;
    term.has_color =
        term.is_terminal && !(no_color && *no_color) && !(name && strcmp(name, "dumb") == 0);
    if (term.is_terminal && ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) {
        term.width = size.ws_col;
        term.height = size.ws_row > 0 ? size.ws_row : term.height;
    }
    return term;
}

const char *mr_term_on(struct mr_term term, enum mr_style style)
{
    static const char *const codes[] = {"",         "\033[1m",  "\033[2m",
                                        "\033[32m", "\033[33m", "\033[31m"};

    return term.has_color ? codes[style] : "";
}

const char *mr_term_off(struct mr_term term)
{
    return term.has_color ? "\033[0m" : "";
}

size_t mr_text_columns(mr_str text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.len; i++) {
        n += ((unsigned char)text.ptr[i] & 0xC0) != 0x80;
    }
    return n;
}

/* Bytes of the first character of a text; 0: not UTF-8. */
static size_t character_bytes(mr_str text)
{
    for (size_t n = 1; n <= 4 && n <= text.len; n++) {
        if (mr_utf8_valid(mr_str_sub(text, 0, n))) {
            return n;
        }
    }
    return 0;
}

void mr_text_clean(struct mr_buf *out, mr_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        /* C1 controls are two bytes in UTF-8: C2 80..9F. */
        bool is_c1 = c == 0xC2 && i + 1 < text.len && (unsigned char)text.ptr[i + 1] < 0xA0;
        if (c < 0x20 || c == 0x7F) {
            mr_buf_char(out, c == '\n' || c == '\t' || c == '\r' ? ' ' : '?');
        } else if (is_c1) {
            mr_buf_char(out, '?');
            i++;
        } else {
            const size_t n = character_bytes(mr_str_sub(text, i, text.len));
            mr_buf_append(out, n > 0 ? text.ptr + i : "?", n > 0 ? n : 1);
            i += n > 0 ? n - 1 : 0;
        }
    }
}

/* ---- tables ---- */

void mr_grid_init(struct mr_grid *t, const char *const *head)
{
    *t = (struct mr_grid){.head = head};
    while (head[t->columns]) {
        t->columns++;
    }
}

void mr_grid_fini(struct mr_grid *t)
{
    for (size_t i = 0; i < t->cells.len; i++) {
        mr_free(t->cells.at[i].text);
    }
    MR_VEC_FINI(&t->cells);
}

void mr_grid_add_str(struct mr_grid *t, enum mr_style style, mr_str text)
{
    struct mr_grid_cell cell = {.style = style};
    struct mr_buf clean;

    mr_buf_init(&clean, 0);
    mr_text_clean(&clean, text);
    cell.text = mr_strndup(mr_buf_cstr(&clean), clean.len);
    mr_buf_fini(&clean);
    MR_VEC_PUSH(&t->cells, cell);
}

void mr_grid_add(struct mr_grid *t, enum mr_style style, const char *fmt, ...)
{
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    mr_grid_add_str(t, style, mr_str_c(text));
}

static bool looks_like_number(const char *s)
{
    if (*s == '\0' || strcmp(s, "-") == 0) {
        return true; /* compatible with numbers */
    }
    return (*s >= '0' && *s <= '9') || (strchr("-.<", *s) && s[1] >= '0' && s[1] <= '9');
}

static void measure(const struct mr_grid *t, size_t *width, bool *right)
{
    size_t rows = t->columns ? t->cells.len / t->columns : 0;

    for (size_t c = 0; c < t->columns; c++) {
        width[c] = mr_text_columns(mr_str_c(t->head[c]));
        right[c] = rows > 0;
        for (size_t r = 0; r < rows; r++) {
            const char *text = t->cells.at[r * t->columns + c].text;
            width[c] = MR_MAX(width[c], mr_text_columns(mr_str_c(text)));
            right[c] = right[c] && looks_like_number(text);
        }
    }
}

/* Prints one line without trailing empty cells, so that no line ends in blanks. */
static void print_row(FILE *out, struct mr_term term, const struct mr_grid_cell *cells,
                      const size_t *width, const bool *right, size_t columns, int indent)
{
    while (columns > 0 && cells[columns - 1].text[0] == '\0') {
        columns--;
    }
    fprintf(out, "%*s", columns ? indent : 0, "");
    for (size_t c = 0; c < columns; c++) {
        const char *text = cells[c].text;
        size_t have = mr_text_columns(mr_str_c(text));
        int pad = (int)(width[c] > have ? width[c] - have : 0);
        bool last = c + 1 == columns;
        bool plain = cells[c].style == MR_STYLE_PLAIN || *text == '\0';
        fprintf(out, "%*s%s%s%s%*s%s", right[c] ? pad : 0, "",
                plain ? "" : mr_term_on(term, cells[c].style), text, plain ? "" : mr_term_off(term),
                right[c] || last ? 0 : pad, "", last ? "" : CELL_GAP);
    }
    fputc('\n', out);
}

/* A header line only if some column has a name. */
static void print_head(const struct mr_grid *t, FILE *out, struct mr_term term, const size_t *width,
                       const bool *right, int indent)
{
    struct mr_grid_cell *cells = MR_NEW_ARRAY(struct mr_grid_cell, t->columns);
    bool has_names = false;

    for (size_t c = 0; c < t->columns; c++) {
        cells[c].text = (char *)(uintptr_t)t->head[c];
        cells[c].style = MR_STYLE_DIM;
        has_names |= t->head[c][0] != '\0';
    }
    if (has_names) {
        print_row(out, term, cells, width, right, t->columns, indent);
    }
    mr_free(cells);
}

static void print_aligned(const struct mr_grid *t, FILE *out, int indent)
{
    size_t *width = MR_NEW_ARRAY(size_t, t->columns);
    bool *right = MR_NEW_ARRAY(bool, t->columns);
    struct mr_term term = mr_term_of(out);

    measure(t, width, right);
    print_head(t, out, term, width, right, indent);
    for (size_t i = 0; i + t->columns <= t->cells.len; i += t->columns) {
        print_row(out, term, &t->cells.at[i], width, right, t->columns, indent);
    }
    mr_free(width);
    mr_free(right);
}

void mr_grid_print(const struct mr_grid *t, FILE *out, bool aligned, int indent)
{
    if (t->columns == 0) {
        return;
    }
    if (aligned) {
        print_aligned(t, out, indent);
        return;
    }
    for (size_t i = 0; i < t->cells.len; i++) {
        bool last = i % t->columns + 1 == t->columns;
        fprintf(out, "%s%c", t->cells.at[i].text, last ? '\n' : '\t');
    }
}

/* ---- numbers ---- */

void mr_text_duration(char out[32], double ns)
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    size_t i = 0;

    if (ns <= 0) {
        snprintf(out, 32, "0");
        return;
    }
    while (i < 3 && ns < units[i].ns) {
        i++;
    }
    double v = ns / units[i].ns;
    snprintf(out, 32, v >= 100 ? "%.0f %s" : v >= 10 ? "%.1f %s" : "%.2f %s", v, units[i].name);
}

void mr_text_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    size_t i = 0;

    while (i < 4 && v >= 1024) {
        v /= 1024;
        i++;
    }
    snprintf(out, 32, i == 0 || v >= 100 ? "%.0f %s" : "%.1f %s", v, units[i]);
}
