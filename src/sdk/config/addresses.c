/* Addresses of hosts as configurations write them: one, or brpc's list://, each with a share after a blank. */
#include <stdio.h>

#include "client/url.h"
#include "codec/json.h"
#include "config.h"
#include "net/client.h"
#include "sdk/hosts.h"

#define TEXT_MAX  512
#define SHARE_MAX 1e6

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int name_check(const char *text, struct mr_err *err)
{
    struct mr_url url;
    int rc = mr_url_parse(text + strlen("dns://"), &url, err);

    if (rc == MR_OK && (!url.has_port || starts(url.address, "unix:") || url.path[0])) {
        rc = MR_FAIL(err, MR_E_INVALID, "'%.100s' is not dns://[SCHEME://]NAME:PORT", text);
    }
    return rc < 0 ? rc : mr_client_address_check(url.address, err);
}

static int url_check(const char *text, struct mr_err *err)
{
    struct mr_url url;
    int rc;

    MR_TRY(mr_url_parse(text, &url, err));
    MR_TRY(mr_url_default_port(&url, 8000, err));
    rc = mr_client_address_check(url.address, err);
out:
    return rc;
}

static int address_check(const char *text, struct mr_err *err)
{
    static const char *const missing[] = {"bns://", "consul://", "nacos://", "remotefile://",
                                          "discovery://"};

    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++) {
        if (starts(text, missing[i])) {
            return MR_FAIL(err, MR_E_UNSUPPORTED,
                           "'%.100s': hosts cannot be found by %s; possible are list://, file:// "
                           "and dns://",
                           text, missing[i]);
        }
    }
    if (starts(text, "file://")) {
        return text[7] ? MR_OK : MR_FAIL(err, MR_E_INVALID, "file:// without a path");
    }
    return starts(text, "dns://") ? name_check(text, err) : url_check(text, err);
}

static int share_parse(mr_str text, double *out, struct mr_err *err)
{
    *out = 1;
    if (text.len > 0 && !(mr_text_double(text, out) && *out > 0 && *out <= SHARE_MAX)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "share '%.*s' of a host: possible are numbers up to 1000000",
                       MR_STR_ARG(mr_str_sub(text, 0, 31)));
    }
    return MR_OK;
}

static int one_read(struct config *c, mr_str item, struct config_host *out, struct mr_err *err)
{
    char text[TEXT_MAX];
    ptrdiff_t blank;
    int rc;

    item = mr_str_trim(item);
    blank = mr_str_find(item, ' ');
    const mr_str url = mr_str_sub(item, 0, blank < 0 ? item.len : (size_t)blank);
    if (url.len == 0 || url.len >= sizeof text || memchr(url.ptr, '\0', url.len)) {
        return MR_FAIL(err, MR_E_INVALID, "'%.*s' is not the address of a host",
                       MR_STR_ARG(mr_str_sub(url, 0, 80)));
    }
    snprintf(text, sizeof text, "%.*s", MR_STR_ARG(url));
    MR_TRY(address_check(text, err));
    MR_TRY(
        share_parse(blank < 0 ? MR_STR("") : mr_str_trim(mr_str_sub(item, (size_t)blank, item.len)),
                    &out->share, err));
    rc = config_copy(c, url, &out->url, err);
out:
    return rc;
}

static size_t items_in(mr_str text)
{
    size_t n = 1;

    for (size_t i = 0; i < text.len; i++) {
        n += text.ptr[i] == ',';
    }
    return n;
}

int config_hosts_read(struct config *c, const mr_str *texts, size_t count,
                      const struct config_host **out, size_t *out_count, struct mr_err *err)
{
    const mr_str prefix = MR_STR("list://");
    struct config_host *list;
    size_t room = 0, n = 0;

    for (size_t i = 0; i < count; i++) {
        room += items_in(texts[i]);
    }
    if (room > CONFIG_HOSTS_MAX) {
        return MR_FAIL(err, MR_E_INVALID, "%zu hosts, possible are %u", room, CONFIG_HOSTS_MAX);
    }
    list = MR_ARENA_ARRAY(&c->arena, struct config_host, room + 1);
    if (!list) {
        return config_no_memory(err);
    }
    for (size_t i = 0; i < count; i++) {
        const bool is_list = mr_str_starts(texts[i], prefix);
        mr_str rest = is_list ? mr_str_sub(texts[i], prefix.len, texts[i].len) : texts[i], item;
        while (mr_str_split(&rest, ',', &item)) {
            if (mr_str_trim(item).len == 0 && n > 0) {
                continue;
            }
            int rc = one_read(c, item, &list[n], err);
            if (rc < 0) {
                return rc;
            }
            n++;
        }
    }
    *out = list;
    *out_count = n;
    return MR_OK;
}

int mr_hosts_check(mr_str text, struct mr_err *err)
{
    const struct config_host *hosts;
    struct config c = {.host_count = 0};
    size_t count;

    mr_arena_init(&c.arena, 0, 1u << 20);
    const int rc = config_hosts_read(&c, &text, 1, &hosts, &count, err);
    mr_arena_fini(&c.arena);
    return rc;
}
