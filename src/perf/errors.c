/* A small table of failures by kind, with the text of the first of each. */
#include "errors.h"

#include <stdio.h>

static struct mr_perf_error *find(struct mr_perf_errors *e, int status, int http)
{
    for (size_t i = 0; i < e->count; i++) {
        if (e->kinds[i].status == status && e->kinds[i].http == http) {
            return &e->kinds[i];
        }
    }
    if (e->count < MR_PERF_ERRORS_MAX) {
        e->kinds[e->count] = (struct mr_perf_error){.status = status, .http = http};
        return &e->kinds[e->count++];
    }
    return &e->kinds[MR_PERF_ERRORS_MAX - 1];
}

/* Text from a server may be printed on a terminal. */
static void copy_printable(char *out, size_t size, mr_str text)
{
    size_t n = MR_MIN(text.len, size - 1);

    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        out[i] = (char)(c < ' ' || c >= 0x7f ? ' ' : c);
    }
    out[n] = '\0';
}

void perf_errors_add(struct mr_perf_errors *e, int status, int http, mr_str text, uint64_t n)
{
    if (n == 0) {
        return;
    }
    struct mr_perf_error *kind = find(e, status, http);
    if (kind->count == 0) {
        copy_printable(kind->text, sizeof kind->text, text);
    }
    kind->count += n;
}

void perf_errors_merge(struct mr_perf_errors *into, const struct mr_perf_errors *from)
{
    for (size_t i = 0; i < from->count; i++) {
        const struct mr_perf_error *k = &from->kinds[i];
        perf_errors_add(into, k->status, k->http, mr_str_c(k->text), k->count);
    }
}

void mr_perf_error_name(const struct mr_perf_error *e, char out[32])
{
    if (e->http == MR_PERF_WRONG) {
        snprintf(out, 32, "wrong answer");
    } else if (e->http) {
        snprintf(out, 32, "HTTP %d", e->http);
    } else {
        snprintf(out, 32, "%s", mr_status_name(e->status));
    }
}
