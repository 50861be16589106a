/* conformance <backend>: runs one backend through the cases that every backend has to pass, and then
 * through those of its own. */
#include "harness.h"

#include <stdio.h>

const char *subject;
struct mr_plugin *plugin;

/* ThreadSanitizer asks for this. ONNX Runtime is not built with it, so how its threads synchronise is
 * invisible; what our code does around it stays checked. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libonnxruntime.so\n";
}

static int start(void **state)
{
    struct mr_err err = {0};
    (void)state;
    if (plugin_open(subject, NULL, 0, &plugin, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return -1;
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    mr_plugin_close(&plugin);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        const struct CMUnitTest *cases;
        const size_t *count;
    } own[] = {{"identity", identity_cases, &identity_case_count},
               {"fault", fault_cases, &fault_case_count},
               {"onnxruntime", onnxruntime_cases, &onnxruntime_case_count},
               {"onnxruntime", parameters_cases, &parameters_case_count}};
    struct CMUnitTest all[128];
    size_t n = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: conformance <backend>\n");
        return 2;
    }
    subject = argv[1];
    for (size_t i = 0; i < common_case_count; i++) {
        all[n++] = common_cases[i];
    }
    for (size_t i = 0; i < parallel_case_count; i++) {
        all[n++] = parallel_cases[i];
    }
    for (size_t b = 0; b < sizeof own / sizeof *own; b++) {
        for (size_t i = 0; subject_is(own[b].name) && i < *own[b].count; i++) {
            all[n++] = own[b].cases[i];
        }
    }
    /* cmocka_run_group_tests needs an array of known size */
    return _cmocka_run_group_tests(subject, all, n, start, stop);
}
