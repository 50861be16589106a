/* Output for terminals and for programs: colours, tables, plain lines. */
#ifndef MR_CLI_TERM_H
#define MR_CLI_TERM_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/str.h"
#include "base/vec.h"

/** Properties of a stream, passed by value. */
struct mr_term {
    bool is_terminal;
    bool has_color;  /* a terminal, and NO_COLOR and TERM=dumb are not set */
    unsigned width;  /* columns; 100 if unknown */
    unsigned height; /* lines; 24 if unknown */
};
struct mr_term mr_term_of(FILE *stream);

enum mr_style {
    MR_STYLE_PLAIN,
    MR_STYLE_BOLD,
    MR_STYLE_DIM,
    MR_STYLE_GOOD,
    MR_STYLE_WARN,
    MR_STYLE_BAD
};
/** Escape sequences, "" without colour. Static. */
const char *mr_term_on(struct mr_term term, enum mr_style style);
const char *mr_term_off(struct mr_term term);

/** Columns that a UTF-8 text takes: one per code point. */
size_t mr_text_columns(mr_str text);
/** Appends text without control characters, so that outside text cannot control the terminal; invalid UTF-8 becomes
 *  '?'. */
void mr_text_clean(struct mr_buf *out, mr_str text);

/** A table: rows of cells, printed aligned with a header line, or as plain lines of tab-separated cells.
 *  Columns whose cells all look like numbers are aligned to the right. */
struct mr_grid_cell {
    char *text;
    enum mr_style style;
};
struct mr_grid {
    const char *const *head; /* NULL-terminated; borrowed */
    size_t columns;
    MR_VEC(struct mr_grid_cell) cells;
};
void mr_grid_init(struct mr_grid *t, const char *const *head);
void mr_grid_fini(struct mr_grid *t);
/** Cells are added row by row. */
void mr_grid_add(struct mr_grid *t, enum mr_style style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void mr_grid_add_str(struct mr_grid *t, enum mr_style style, mr_str text);
/** aligned: a table; otherwise plain lines. indent: columns before each aligned line. */
void mr_grid_print(const struct mr_grid *t, FILE *out, bool aligned, int indent);

/** "1.25 ms", "83 us", "2.1 s". */
void mr_text_duration(char out[32], double ns);
/** "512 B", "1.5 MiB". */
void mr_text_bytes(char out[32], uint64_t bytes);

#endif
