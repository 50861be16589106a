/* GET /: a page about the job. page.html is its frame with the plots; the figures are written here, so that they are there
 * without scripts too. With them, the page asks for GET /figures and /status once a second. */
#include "page.h"

#include <stdio.h>

#include "batch/calls/calls.h"
#include "page_html.h" /* page_html[], made of page.html by CMake */
#include "view.h"

#define HOSTS_SHOWN 200

static void put_host(struct mr_buf *b, const struct mr_batch_host_view *h)
{
    MR_BUF_LIT(b, "<tr><td>");
    mr_buf_html(b, mr_str_c(h->address));
    mr_buf_printf(b, "<td class=\"text%s\">%s", strcmp(h->state, "ready") == 0 ? "" : " bad",
                  h->state);
    mr_buf_printf(b, "<td>%llu<td>%llu<td>%llu<td>%u<td>%u<td>%.1f<td>%.1f<td class=\"text dim\">",
                  (unsigned long long)h->rows, (unsigned long long)h->calls,
                  (unsigned long long)h->failures, h->in_flight, h->limit, (double)h->p50_ns / 1e6,
                  (double)h->p95_ns / 1e6);
    mr_buf_html(b, mr_str_c(h->reason));
    MR_BUF_LIT(b, "</tr>\n");
}

static void put_hosts(struct mr_buf *b, const struct mr_batch_view *v)
{
    MR_BUF_LIT(b, "<h2>Hosts</h2><div class=\"wide\"><table><tr><th>host<th class=\"text\">state"
                  "<th>rows<th>calls<th>failed<th>in flight<th>limit<th>p50, ms<th>p95, ms<th></tr>"
                  "\n");
    for (size_t i = 0; i < v->host_count && i < HOSTS_SHOWN; i++) {
        put_host(b, &v->hosts[i]);
    }
    MR_BUF_LIT(b, "</table></div>\n");
    if (v->host_count > HOSTS_SHOWN) {
        mr_buf_printf(b, "<p class=\"dim\">and %zu more, in <a href=\"status\">status</a></p>\n",
                      v->host_count - HOSTS_SHOWN);
    }
}

static void put_failures(struct mr_buf *b, const struct mr_batch_view *v)
{
    if (v->failure_count == 0) {
        return;
    }
    MR_BUF_LIT(b, "<h2>What failed lately</h2><div class=\"wide\"><table><tr><th>host<th>calls"
                  "<th>s ago<th class=\"text\">cause</tr>\n");
    for (size_t i = 0; i < v->failure_count; i++) {
        const struct mr_batch_failure_view *f = &v->failures[i];
        MR_BUF_LIT(b, "<tr><td>");
        mr_buf_html(b, mr_str_c(f->host));
        mr_buf_printf(b, "<td>%llu<td>%.0f<td class=\"text\">", (unsigned long long)f->count,
                      (double)f->ago_ns / 1e9);
        mr_buf_html(b, mr_str_c(f->cause));
        MR_BUF_LIT(b, "</tr>\n");
    }
    MR_BUF_LIT(b, "</table></div>\n");
}

void page_figures(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v)
{
    const unsigned long long done = v->rows + v->dead;

    MR_BUF_LIT(b, "<h1>");
    mr_buf_html(b, mr_str_c(parts->calls->o->model.name));
    mr_buf_printf(b, "</h1>\n<p>%s for %.0f s, bound by the %s</p>\n",
                  v->is_paused || v->held[0] ? "<b>paused</b>" : v->phase, (double)v->ran_ns / 1e9,
                  v->bottleneck);
    if (v->held[0]) {
        MR_BUF_LIT(b, "<p><b>");
        mr_buf_html(b, mr_str_c(v->held));
        MR_BUF_LIT(b, "</b></p>\n");
    }
    if (v->total_rows > 0) {
        mr_buf_printf(b, "<progress max=\"%lld\" value=\"%llu\"></progress>\n",
                      (long long)v->total_rows, done);
    }
    mr_buf_printf(b, "<p>%llu", done);
    if (v->total_rows >= 0) {
        mr_buf_printf(b, " of %lld", (long long)v->total_rows);
    }
    mr_buf_printf(b,
                  " rows done, %llu of them dead letters; %llu under way in %.1f of %.0f MiB; "
                  "%.0f rows/s; calls of %u rows, at most %u at a time per host</p>\n",
                  (unsigned long long)v->dead, (unsigned long long)v->under_way,
                  (double)v->memory_bytes / 1048576,
                  (double)parts->calls->o->memory_bytes / 1048576, v->rows_per_s, v->most_rows,
                  v->max_in_flight);
    put_hosts(b, v);
    put_failures(b, v);
}

void page_put(struct mr_buf *b, const struct job_parts *parts, const struct mr_batch_view *v)
{
    static const char mark[] = "<!--figures-->";
    const char *at = strstr(page_html, mark);

    mr_buf_append(b, page_html, (size_t)(at - page_html));
    page_figures(b, parts, v);
    mr_buf_c(b, at + sizeof mark - 1);
}
