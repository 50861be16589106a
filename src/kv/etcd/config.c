/* The members of the JSON file are those that ModelMesh documents; others are passed over, as it does. A file that
 * is named in it is looked for in the folder of the JSON file. Certificates that stand in the JSON file itself
 * become files without a name, since TLS settings are made of files. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "codec/json.h"
#include "kv/kv.h"

#define JSON_BYTES_MAX (1024 * 1024)

static char *copy(mr_str s)
{
    return mr_strndup(s.ptr ? s.ptr : "", s.len);
}

static void set(char **at, mr_str s)
{
    mr_free(*at);
    *at = copy(s);
}

void kv_etcd_config_fini(struct kv_etcd_config *c)
{
    for (size_t i = 0; i < c->endpoints.len; i++) {
        mr_free(c->endpoints.at[i]);
    }
    for (size_t i = 0; i < c->files.len; i++) {
        close(c->files.at[i]);
    }
    MR_VEC_FINI(&c->endpoints);
    MR_VEC_FINI(&c->files);
    char *texts[] = {c->root,    c->user,      c->password, c->authority,
                     c->ca_file, c->cert_file, c->key_file, c->name};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mr_free(texts[i]);
    }
    *c = (struct kv_etcd_config){0};
}

/* ---- endpoints ---- */

/** [http://|https://]HOST:PORT or unix:PATH. */
static int add_endpoint(struct kv_etcd_config *c, mr_str text, struct mr_err *err)
{
    mr_str at = mr_str_trim(text);
    bool is_tls = mr_str_starts(at, MR_STR("https://"));
    mr_str scheme = is_tls ? MR_STR("https://") : MR_STR("http://");
    uint64_t port = 0;

    at = mr_str_starts(at, scheme) ? mr_str_sub(at, scheme.len, at.len) : at;
    at = mr_str_ends(at, MR_STR("/")) ? mr_str_sub(at, 0, at.len - 1) : at;
    const char *colon = at.len ? memrchr(at.ptr, ':', at.len) : NULL;
    bool is_port = colon && colon > at.ptr &&
                   mr_str_to_u64(mr_str_n(colon + 1, (size_t)(at.ptr + at.len - colon - 1)), &port);
    if ((!is_port || port < 1 || port > 65535) && !mr_str_starts(at, MR_STR("unix:/"))) {
        return MR_FAIL(err, MR_E_INVALID,
                       "etcd endpoint '%.*s': must be host:port, with a port of 1 to 65535",
                       MR_STR_ARG(mr_str_sub(text, 0, 100)));
    }
    if (c->endpoints.len == KV_ETCD_ENDPOINTS_MAX || at.len > 250) {
        return MR_FAIL(err, MR_E_INVALID,
                       "etcd endpoints: more than %d, or one of more than 250 bytes",
                       KV_ETCD_ENDPOINTS_MAX);
    }
    if (c->endpoints.len && c->is_tls != is_tls) {
        return MR_FAIL(err, MR_E_INVALID, "etcd endpoints: some are https:// and others are not");
    }
    c->is_tls = is_tls;
    MR_VEC_PUSH(&c->endpoints, copy(at));
    return MR_OK;
}

static int add_endpoints(struct kv_etcd_config *c, mr_str list, struct mr_err *err)
{
    mr_str one;
    int rc = list.len ? MR_OK : MR_FAIL(err, MR_E_INVALID, "etcd endpoints: there is none");
    while (rc == MR_OK && mr_str_split(&list, ',', &one)) {
        rc = add_endpoint(c, one, err);
    }
    return rc;
}

/** "a//" becomes "a/", "" stays. */
static int set_root(struct kv_etcd_config *c, mr_str root, struct mr_err *err)
{
    struct mr_buf b;

    if (root.len > 1024) {
        return MR_FAIL(err, MR_E_INVALID, "etcd prefix: %zu bytes, must have 0 to 1024", root.len);
    }
    while (mr_str_ends(root, MR_STR("/"))) {
        root = mr_str_sub(root, 0, root.len - 1);
    }
    mr_buf_init(&b, 0);
    mr_buf_str(&b, root);
    if (root.len) {
        mr_buf_char(&b, '/');
    }
    set(&c->root, mr_buf_view(&b));
    mr_buf_fini(&b);
    return MR_OK;
}

static void set_name(struct kv_etcd_config *c)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    MR_BUF_LIT(&b, "etcd://");
    for (size_t i = 0; i < c->endpoints.len; i++) {
        mr_buf_printf(&b, "%s%s", i ? "," : "", c->endpoints.at[i]);
    }
    if (c->root[0]) {
        mr_buf_printf(&b, "/%s", c->root);
    }
    set(&c->name, mr_buf_view(&b));
    mr_buf_fini(&b);
}

int kv_etcd_config_below(struct kv_etcd_config *c, mr_str prefix, struct mr_err *err)
{
    struct mr_buf root;

    while (mr_str_starts(prefix, MR_STR("/"))) {
        prefix = mr_str_sub(prefix, 1, prefix.len);
    }
    mr_buf_init(&root, 0);
    mr_buf_c(&root, c->root);
    mr_buf_str(&root, prefix);
    int rc = set_root(c, mr_buf_view(&root), err);
    mr_buf_fini(&root);
    if (rc == MR_OK) {
        set_name(c);
    }
    return rc;
}

/* ---- the JSON file ---- */

struct member {
    const char *name;
    size_t offset; /* of a char * in the configuration */
    enum { TEXT, FILE_NAME, FILE_CONTENT } kind;
};
#define MEMBER(name, field, kind)                                                                  \
    {                                                                                              \
        name, offsetof(struct kv_etcd_config, field), kind                                         \
    }

static const struct member members[] = {
    MEMBER("userid", user, TEXT),
    MEMBER("password", password, TEXT),
    MEMBER("override_authority", authority, TEXT),
    MEMBER("certificate", ca_file, FILE_CONTENT),
    MEMBER("certificate_file", ca_file, FILE_NAME),
    MEMBER("client_key", key_file, FILE_CONTENT),
    MEMBER("client_key_file", key_file, FILE_NAME),
    MEMBER("client_certificate", cert_file, FILE_CONTENT),
    MEMBER("client_certificate_file", cert_file, FILE_NAME),
};

/** A file without a name that has this content; its path is valid in this process as long as the descriptor. */
static int set_content(struct kv_etcd_config *c, char **at, mr_str content, struct mr_err *err)
{
    char path[64];
    int fd = memfd_create("millrace-etcd", MFD_CLOEXEC);

    if (fd < 0 || write(fd, content.ptr, content.len) != (ssize_t)content.len) {
        int e = errno;
        if (fd >= 0) {
            close(fd);
        }
        return MR_FAIL(err, MR_E_IO, "cannot keep a certificate for etcd: %s", strerror(e));
    }
    MR_VEC_PUSH(&c->files, fd);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    set(at, mr_str_c(path));
    return MR_OK;
}

static void set_file(char **at, mr_str folder, mr_str path)
{
    struct mr_buf b;

    mr_buf_init(&b, 0);
    if (!mr_str_starts(path, MR_STR("/"))) {
        mr_buf_str(&b, folder);
    }
    mr_buf_str(&b, path);
    set(at, mr_buf_view(&b));
    mr_buf_fini(&b);
}

static int set_member(struct kv_etcd_config *c, const struct member *m, mr_str folder, mr_str value,
                      struct mr_err *err)
{
    char **at = (char **)((char *)c + m->offset);

    if (value.len == 0) {
        return MR_OK;
    }
    if (m->kind == FILE_CONTENT) {
        return set_content(c, at, value, err);
    }
    if (memchr(value.ptr, '\0', value.len)) {
        return MR_FAIL(err, MR_E_INVALID, "member \"%s\" holds a NUL character", m->name);
    }
    if (m->kind == FILE_NAME) {
        set_file(at, folder, value);
    } else {
        set(at, value);
    }
    return MR_OK;
}

static int read_member(struct kv_etcd_config *c, struct mr_json *j, mr_str key, mr_str folder,
                       struct mr_err *err)
{
    const struct member *m = NULL;
    mr_str value;

    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        m = mr_str_eq_c(key, members[i].name) ? &members[i] : m;
    }
    bool is_list = mr_str_eq_c(key, "endpoints"), is_root = mr_str_eq_c(key, "root_prefix");
    if (!m && !is_list && !is_root) {
        return mr_json_skip(j, NULL);
    }
    int rc = mr_json_string(j, &value);
    if (rc < 0) {
        return rc;
    }
    if (is_list) {
        return c->endpoints.len ? MR_OK : add_endpoints(c, value, err);
    }
    return is_root ? set_root(c, value, err) : set_member(c, m, folder, value, err);
}

static int read_json(struct kv_etcd_config *c, mr_str text, mr_str folder, struct mr_err *err)
{
    struct mr_arena arena;
    struct mr_json j;
    bool first = true;
    mr_str key;

    mr_arena_init(&arena, 0, 4 * JSON_BYTES_MAX);
    mr_json_init(&j, text, &arena, 0, err);
    int rc = mr_json_enter_object(&j);
    while (rc == MR_OK && mr_json_next_key(&j, &first, &key)) {
        rc = read_member(c, &j, key, folder, err);
    }
    if (rc == MR_OK) {
        rc = j.status < 0 ? j.status : mr_json_finish(&j);
    }
    mr_arena_fini(&arena);
    if (rc == MR_OK && !c->endpoints.len) {
        rc = MR_FAIL(err, MR_E_INVALID, "member \"endpoints\" is missing");
    }
    return rc;
}

static int read_named(struct kv_etcd_config *c, mr_str path, struct mr_err *err)
{
    char *name = copy(path);
    const char *slash = strrchr(name, '/');
    char *text;
    size_t len;

    int rc = mr_file_read(name, JSON_BYTES_MAX, &text, &len, err);
    if (rc == MR_OK) {
        mr_str folder = mr_str_n(name, slash ? (size_t)(slash + 1 - name) : 0);
        rc = read_json(c, mr_str_n(text, len), folder, err);
        rc = rc < 0 ? MR_WRAP(err, rc, "%s", name) : rc;
        explicit_bzero(text, len);
        mr_free(text);
    }
    mr_free(name);
    return rc;
}

static int check_tls(const struct kv_etcd_config *c, struct mr_err *err)
{
    if ((c->ca_file || c->cert_file || c->key_file) && !c->is_tls) {
        return MR_FAIL(err, MR_E_INVALID,
                       "etcd: there are certificates, but no endpoint is https://");
    }
    if (c->key_file && !c->cert_file) {
        return MR_FAIL(err, MR_E_INVALID, "etcd: there is a client key without client certificate");
    }
    if (c->user && !c->password) {
        return MR_FAIL(err, MR_E_INVALID, "etcd: there is a userid without password");
    }
    return MR_OK;
}

/** URLs, or HOST:PORT with a number for the port, as KV_STORE has them beside the name of a file. */
static bool is_endpoint(mr_str text)
{
    struct kv_etcd_config scratch = {0};
    if (mr_str_starts(text, MR_STR("http://")) || mr_str_starts(text, MR_STR("https://"))) {
        return true;
    }
    int rc = mr_str_find(text, '/') < 0 ? add_endpoints(&scratch, text, NULL) : MR_E_INVALID;
    kv_etcd_config_fini(&scratch);
    return rc == MR_OK;
}

int kv_etcd_config_read(struct kv_etcd_config *out, mr_str text, struct mr_err *err)
{
    struct kv_etcd_config c = {0};
    mr_str rest = mr_str_sub(text, strlen("etcd:"), text.len);
    int rc;

    if (!rest.len || memchr(text.ptr, '\0', text.len)) {
        return MR_FAIL(err, MR_E_INVALID,
                       "etcd: names no endpoint and no file, or holds a NUL character");
    }
    if (mr_str_starts(rest, MR_STR("//"))) {
        rest = mr_str_sub(rest, 2, rest.len);
        ptrdiff_t slash = mr_str_find(rest, '/');
        size_t end = slash < 0 ? rest.len : (size_t)slash;
        rc = add_endpoints(&c, mr_str_sub(rest, 0, end), err);
        rc = rc < 0 ? rc : set_root(&c, mr_str_sub(rest, end + 1, rest.len), err);
    } else {
        rc = is_endpoint(rest) ? add_endpoints(&c, rest, err) : read_named(&c, rest, err);
    }
    if (rc == MR_OK && !c.root) {
        rc = set_root(&c, MR_STR(""), err);
    }
    rc = rc < 0 ? rc : check_tls(&c, err);
    if (rc < 0) {
        kv_etcd_config_fini(&c);
        return rc;
    }
    set_name(&c);
    *out = c;
    return MR_OK;
}
