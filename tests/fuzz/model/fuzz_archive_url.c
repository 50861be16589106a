/* Addresses of archives, and where redirections lead: the text before the first line break is the address, the rest the target. */
#include "fuzz.h"

#include "base/mem.h"
#include "model/archives/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct archive_url first, next;
    char *text = mr_strndup((const char *)data, size);
    char *line = strchr(text, '\n');
    struct mr_err err;

    if (line) {
        *line = '\0';
    }
    if (archive_url_parse(text, &first, &err) == MR_OK) {
        REQUIRE(first.stem[0] && first.text[0]);
        REQUIRE(first.kind != ARCHIVE_HTTP || (first.target[0] == '/' && first.sha256[0]));
        if (line && archive_url_redirect(&first, mr_str_c(line + 1), &next, &err) == MR_OK) {
            REQUIRE(next.target[0] == '/' || next.kind != ARCHIVE_HTTP);
            REQUIRE(next.is_tls || !first.is_tls);
            REQUIRE(strcmp(first.sha256, next.sha256) == 0);
        }
    }
    mr_free(text);
    return 0;
}
