/* main() of the unit tests of a module: `unit_<module> <file> [pattern]` runs the tests of a file, or those of them whose names
 * match a pattern of * and ?. The main() of the file itself is main_of_<file> (mr_unit_test in cmake/modules.cmake).
 * One file at a time, so that each starts in a new process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define UNIT(file) int main_of_##file(void);
#include UNIT_FILES
#undef UNIT

static const struct {
    const char *name;
    int (*run)(void);
} files[] = {
#define UNIT(file) {#file, main_of_##file},
#include UNIT_FILES
};

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof files / sizeof *files && argc > 1; i++) {
        if (strcmp(files[i].name, argv[1]) == 0) {
            cmocka_set_test_filter(argc > 2 ? argv[2] : NULL);
            return files[i].run();
        }
    }
    fprintf(stderr, "%s <file> [pattern]; files:\n", argv[0]);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        fprintf(stderr, "  %s\n", files[i].name);
    }
    return 2;
}
