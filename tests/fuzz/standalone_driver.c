/* Replays files through a fuzz target without libFuzzer, so that every build kind and compiler runs
 * the corpus: each argument is a file or a folder of files. The empty input is always run first.
 * Exit status 0 if every input returned; a crash or a sanitizer report ends the process, and the name
 * of the input is then the last line printed. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static unsigned long input_count;

static void die(const char *what, const char *path)
{
    fprintf(stderr, "%s: %s: %s\n", what, path, strerror(errno));
    exit(2);
}

static void run_file(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        die("open", path);
    }
    /* Exactly as large as the input, so that ASan sees one byte too many. */
    uint8_t *data = malloc(size ? size : 1);
    if (!data) {
        die("malloc", path);
    }
    if (fread(data, 1, size, file) != size) {
        die("read", path);
    }
    fclose(file);
    printf("%s\n", path);
    fflush(stdout);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    input_count++;
}

static void run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        die("stat", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path, (size_t)st.st_size);
        return;
    }
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        die("scandir", path);
    }
    for (int i = 0; i < n; i++) {
        char child[4096];
        int len = snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && len < (int)sizeof child) {
            run_path(child);
        }
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    if (LLVMFuzzerInitialize) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        run_path(argv[i]);
    }
    printf("%lu inputs replayed\n", input_count);
    if (argc > 1 && input_count == 0) {
        fprintf(stderr, "no inputs found: a fuzz target needs a corpus\n");
        return 1;
    }
    return 0;
}
