/* The name of a registry. If the first byte is 0, what follows is the JSON file that it names. */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "kv/etcd/config.h"
#include "kv/open.h"

static void require_usable(const struct kv_etcd_config *c)
{
    REQUIRE(c->endpoints.len >= 1 && c->endpoints.len <= KV_ETCD_ENDPOINTS_MAX);
    REQUIRE(c->root && c->name);
    REQUIRE(!c->root[0] || c->root[strlen(c->root) - 1] == '/');
    REQUIRE(!c->password || !c->password[0] || !c->user || c->user[0]);
    REQUIRE(c->is_tls || (!c->ca_file && !c->cert_file && !c->key_file));
}

static void read_json(const uint8_t *data, size_t size)
{
    struct kv_etcd_config c;
    struct mr_err err = {0};
    char name[64];
    int fd = memfd_create("json", MFD_CLOEXEC);

    REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(name, sizeof name, "etcd:/proc/self/fd/%d", fd);
    int rc = kv_etcd_config_read(&c, mr_str_c(name), &err);
    REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0]));
    if (rc == MR_OK) {
        require_usable(&c);
        kv_etcd_config_fini(&c);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_err err = {0};

    if (size < 1) {
        return 0;
    }
    if (data[0] == 0) {
        read_json(data + 1, size - 1);
        return 0;
    }
    /* Not the name of a file, which might be there. */
    mr_str text = mr_str_n((const char *)data, size);
    if (!mr_str_starts(text, MR_STR("etcd:")) || mr_str_starts(text, MR_STR("etcd://"))) {
        int rc = mr_kv_check(text, &err);
        REQUIRE(rc == MR_OK || (rc == err.status && err.msg[0]));
    }
    return 0;
}
