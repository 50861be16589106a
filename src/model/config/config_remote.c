/* Names of models of other servers. Thread: any. */
#include <stdio.h>

#include "base/buf.h"
#include "base/mem.h"
#include "model/remote.h"

static void put_part(struct mr_buf *b, mr_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        const char c = text.ptr[i];
        if (strchr("%/@", c) || c < ' ') {
            mr_buf_printf(b, "%%%02X", (unsigned char)c);
        } else {
            mr_buf_append(b, &c, 1);
        }
    }
}

static void put_model(struct mr_buf *b, mr_str text)
{
    for (ptrdiff_t at; (at = mr_str_find(text, ':')) >= 0;) {
        put_part(b, mr_str_sub(text, 0, (size_t)at));
        MR_BUF_LIT(b, "%3A");
        text = mr_str_sub(text, (size_t)at + 1, text.len);
    }
    put_part(b, text);
}

char *mr_remote_name(const struct mr_remote_model *r)
{
    struct mr_buf b;
    char *name;

    mr_buf_init(&b, 0);
    put_model(&b, r->model);
    if (r->version.len) {
        MR_BUF_LIT(&b, ":");
        put_part(&b, r->version);
    }
    MR_BUF_LIT(&b, "@");
    put_part(&b, r->hosts);
    name = mr_strndup(b.ptr, b.len);
    mr_buf_fini(&b);
    return name;
}

bool mr_remote_of(const Millrace__WorkflowModel *m, char number[24], struct mr_remote_model *out)
{
    if (!m || !m->remote[0]) {
        return false;
    }
    snprintf(number, 24, "%lld", (long long)m->version);
    *out = (struct mr_remote_model){.model = mr_str_c(m->name),
                                    .version = m->version > 0 ? mr_str_c(number) : MR_STR(""),
                                    .hosts = mr_str_c(m->remote)};
    return true;
}
