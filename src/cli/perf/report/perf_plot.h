/* Self-contained pages, with plots as SVG. */
#ifndef MR_CLI_PERF_PLOT_H
#define MR_CLI_PERF_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct perf_curve {
    const char *name;
    const char *color; /* a class of the page: "red", "orange", "blue", "grey" */
    const double *y;
};

/** A range of x with a background. */
struct perf_shade {
    double from;
    double to;
    size_t kind; /* in `shade_names` */
};
#define PERF_SHADES 7 /* kinds at most */

struct perf_plot {
    const char *title;
    const double *x;
    const char *x_name;
    size_t count;
    const struct perf_curve *curves;
    size_t curve_count;
    /* y in ns on a logarithmic scale, without the points at 0; otherwise a number from 0 */
    bool is_time;
    bool is_nines; /* x is the number of nines of a percentile; otherwise seconds */
    const struct perf_shade *shades;
    size_t shade_count;
    const char *const *shade_names;
    size_t shade_kinds;
};

void perf_plot_put(struct mr_buf *b, const struct perf_plot *p);
/** The page before and after its content. */
void perf_page_begin(struct mr_buf *b, const char *title);
void perf_page_end(struct mr_buf *b);

#endif
