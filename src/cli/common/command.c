/* Shared by the sub-commands: options, the form of error messages, the heap. */
#include "cli.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "term.h"

#ifndef MR_VERSION
#    define MR_VERSION "0"
#endif

const char *mr_cli_version(void)
{
    return MR_VERSION;
}

int mr_cli_fail(const char *program, int code, const char *message)
{
    struct mr_term term = mr_term_of(stderr);
    struct mr_buf clean; /* may contain text from a host */

    mr_buf_init(&clean, 0);
    for (const char *at = message, *end; *at; at = end) {
        end = at + strcspn(at, "\n");
        mr_text_clean(&clean, mr_str_n(at, (size_t)(end - at)));
        if (*end) {
            mr_buf_char(&clean, '\n');
            end++;
        }
    }
    fprintf(stderr, "%s: %s%s%s\n", program, mr_term_on(term, MR_STYLE_BAD), mr_buf_cstr(&clean),
            mr_term_off(term));
    mr_buf_fini(&clean);
    return code;
}

static int print_help(const struct mr_options *o, const char *usage, const char *notes)
{
    struct mr_buf out;

    mr_buf_init(&out, 0);
    mr_options_help(o, &out);
    printf("%s%s", usage, mr_buf_cstr(&out));
    if (notes) {
        printf("\n%s", notes);
    }
    mr_buf_fini(&out);
    return MR_EXIT_OK;
}

int mr_cli_parse(struct mr_options *o, int argc, char **argv, char **env, const char *usage,
                 const char *notes)
{
    struct mr_err err;
    int rc = mr_options_parse(o, argc, argv, env, &err);

    if (rc < 0) {
        return mr_cli_fail(o->program, MR_EXIT_USAGE, err.msg);
    }
    if (o->wants_help) {
        return print_help(o, usage, notes);
    }
    for (size_t i = 0; i < o->warnings.len; i++) {
        struct mr_term term = mr_term_of(stderr);
        fprintf(stderr, "%s: %swarning:%s %s\n", o->program, mr_term_on(term, MR_STYLE_WARN),
                mr_term_off(term), o->warnings.at[i]);
    }
    return -1;
}

/* By default glibc maps large allocations separately only until the first of them is freed; after that the weights of
 * models are in heaps, which keep their memory after an unload: the fourth load of 200 MB ended at a gigabyte. With
 * fixed bounds, weights above the first bound are mapped and returned to the system whole. Tensors of requests are
 * mostly below it, so that no execution pays for fresh pages.
 *
 * Threads that load and run models share a heap per CPU instead of eight: each heap grows to its own peak and keeps
 * it, which over hours looks like a leak. */
void mr_cli_heap_bounds(int kept_bytes)
{
#ifdef __GLIBC__
    if (!getenv("MALLOC_MMAP_THRESHOLD_") && !getenv("MALLOC_ARENA_MAX") &&
        !getenv("GLIBC_TUNABLES")) {
        mallopt(M_MMAP_THRESHOLD, kept_bytes);
        mallopt(M_TRIM_THRESHOLD, 2 * kept_bytes);
        mallopt(M_ARENA_MAX, MR_MAX(2, (int)mr_cpu_count()));
    }
#else
    (void)kept_bytes;
#endif
}
