/* `millrace mesh`: a mesh of servers, through any one of them, over REST. Answers are messages of proto/mesh.proto as JSON. */
#include "mesh.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/common/cli.h"
#include "cli/common/term.h"

static const char usage[] =
    "usage: millrace mesh status [MODEL] [options]\n"
    "       millrace mesh list [PREFIX] [options]\n"
    "       millrace mesh register MODEL --type TYPE [--path PATH] [--key KEY] [--load [--wait]] "
    "[options]\n"
    "       millrace mesh unregister MODEL [options]\n"
    "       millrace mesh load MODEL [options]\n"
    "       millrace mesh vmodel list [PREFIX] [options]\n"
    "       millrace mesh vmodel show VMODEL [options]\n"
    "       millrace mesh vmodel set VMODEL MODEL [options]\n"
    "       millrace mesh vmodel delete VMODEL [options]\n"
    "       millrace mesh watch [PREFIX] [options]\n"
    "       millrace mesh top [--interval TIME] [options]\n"
    "       millrace mesh drain [options]\n\n"
    "Shows and changes a mesh of servers (millrace serve --mesh), through any one of them. status "
    "shows the servers,\n"
    "or a model and its copies; list the models whose ids begin with PREFIX. load has a model "
    "loaded "
    "that is loaded\n"
    "nowhere. vmodel set makes a vmodel, or gives it another model, which takes over once it is "
    "loaded. watch shows\n"
    "models as they change, top the servers as they do. drain has the server's models loaded "
    "elsewhere; it goes on\n"
    "serving what comes, and gets no new ones.\n";

static const char notes[] = MR_REMOTE_NOTES(", of lists a page a line");

#define AT(member) MR_OPTION_AT(struct mesh_options, member)
#define TEXT(n, member, what, text)                                                                \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_STRING, .flags = MR_OPTION_CLI_ONLY, AT(member),              \
        .value = what, .help = text                                                                \
    }
#define FLAG(n, member, text)                                                                      \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_BOOL, .flags = MR_OPTION_CLI_ONLY, AT(member), .help = text   \
    }
#define NUMBER(n, member, def, lo, hi, text)                                                       \
    {                                                                                              \
        .name = n, .kind = MR_OPTION_INT, .flags = MR_OPTION_CLI_ONLY, AT(member),                 \
        .fallback = def, .min = lo, .max = hi, .value = "N", .help = text                          \
    }

static const char *const forms[] = {"auto", "table", "plain", "json", NULL};

static const struct mr_option table[] = {
    {.name = "Server", .kind = MR_OPTION_GROUP},
    MR_REMOTE_URL_ROW(struct mesh_options, "8000"),
    MR_REMOTE_TIMEOUT_ROW(struct mesh_options, "0", "time limit of a call; 0 is none"),
    MR_REMOTE_ACCESS_ROWS(struct mesh_options),
    {.name = "Answer", .kind = MR_OPTION_GROUP},
    {.name = "output",
     .kind = MR_OPTION_CHOICE,
     .flags = MR_OPTION_CLI_ONLY,
     AT(form),
     .fallback = "auto",
     .choices = forms,
     .value = "FORM",
     .help = "auto is a table on a terminal, plain lines otherwise"},
    FLAG("json", json, "as --output json"),
    {.name = "interval",
     .kind = MR_OPTION_DURATION,
     .flags = MR_OPTION_CLI_ONLY,
     AT(interval_ns),
     .fallback = "1s",
     .max = 86400,
     .scale = MR_NS_PER_S,
     .value = "TIME",
     .help = "time between two updates of top, and before watch tries a lost connection again"},
    NUMBER("count", count, "0", 0, 4294967295,
           "end after N updates of top, or N models of watch; 0 does not end"),
    {.name = "Models", .kind = MR_OPTION_GROUP},
    TEXT("type", type, "TYPE",
         "register: what decides where it may be loaded; vmodel set: of a "
         "model that is not registered yet"),
    TEXT("path", path, "PATH", "where its files are"),
    TEXT("key", key, "TEXT", "what the runtime needs to load it beside its path"),
    {.name = "size",
     .kind = MR_OPTION_BYTES,
     .flags = MR_OPTION_CLI_ONLY,
     AT(size_bytes),
     .fallback = "0",
     .value = "BYTES",
     .help = "register: of the loaded model; 0 is measured"},
    NUMBER("min-copies", min_copies, "0", 0, 255, "register: kept loaded, and not evicted"),
    NUMBER("max-copies", max_copies, "0", 0, 255, "register: the most; 0 no limit"),
    FLAG("pinned", pinned, "register: its copies are not evicted"),
    FLAG("load", load, "register, vmodel set: load the model now"),
    FLAG("wait", wait, "register, vmodel set: until the load, or the change, has ended"),
    {.name = "Vmodels", .kind = MR_OPTION_GROUP},
    TEXT("owner", owner, "NAME",
         "set: others cannot change the vmodel; show, delete: only if it is its owner"),
    TEXT("expected", expected, "MODEL", "set: only if this is the target now"),
    FLAG("update-only", update_only, "set: only if the vmodel exists"),
    FLAG("force", force, "set: the model takes over at once, loaded or not"),
    FLAG("auto-delete", auto_delete, "set: the model goes when no vmodel has it any more"),
};

/* ---- what is asked, and printed ---- */

enum answer { ANSWER_NONE, ANSWER_STATE, ANSWER_MODEL, ANSWER_VMODEL };

static bool is_not_loaded(const struct mesh_run *r, Millrace__MeshStatus s)
{
    return s == MILLRACE__MESH_STATUS__LOADING_FAILED ||
           (r->opt.load && s == MILLRACE__MESH_STATUS__NOT_LOADED);
}

/* Of what was waited for. */
static int judge(const struct mesh_run *r, enum answer kind, const ProtobufCMessage *m,
                 struct mr_err *err)
{
    const Millrace__MeshModel *model = (const Millrace__MeshModel *)m;
    const Millrace__MeshVModel *vmodel = (const Millrace__MeshVModel *)m;

    if (kind == ANSWER_MODEL && is_not_loaded(r, model->status)) {
        return MR_FAIL(err, MR_E_INTERNAL, "the model '%s' could not be loaded", model->id);
    }
    if (kind == ANSWER_VMODEL && vmodel->status == MILLRACE__MESH_VMODEL__STATUS__DEFINED &&
        r->opt.load && is_not_loaded(r, vmodel->active_status)) {
        return MR_FAIL(err, MR_E_INTERNAL, "the model '%s' could not be loaded", vmodel->active);
    }
    if (kind == ANSWER_VMODEL &&
        vmodel->status == MILLRACE__MESH_VMODEL__STATUS__TRANSITION_FAILED) {
        return MR_FAIL(err, MR_E_INTERNAL, "the model '%s' could not be loaded, '%s' answers on",
                       vmodel->target, vmodel->active);
    }
    return MR_OK;
}

static void print_message(const struct mesh_run *r, enum answer kind, const ProtobufCMessage *m)
{
    switch (kind) {
    case ANSWER_STATE: mesh_print_state(r, (const Millrace__MeshState *)m); break;
    case ANSWER_MODEL: mesh_print_model(r, (const Millrace__MeshModel *)m); break;
    default: mesh_print_vmodel(r, (const Millrace__MeshVModel *)m); break;
    }
}

static int print_answer(const struct mesh_run *r, enum answer kind, mr_bytes body,
                        struct mr_err *err)
{
    static const ProtobufCMessageDescriptor *const kinds[] = {
        [ANSWER_STATE] = &millrace__mesh_state__descriptor,
        [ANSWER_MODEL] = &millrace__mesh_model__descriptor,
        [ANSWER_VMODEL] = &millrace__mesh_vmodel__descriptor};
    ProtobufCMessage *m;

    if (r->form == MESH_JSON) {
        printf("%.*s\n", body.len ? (int)body.len : 2, body.len ? (const char *)body.ptr : "{}");
    }
    if (kind == ANSWER_NONE || (r->form == MESH_JSON && !r->waits)) {
        return MR_OK;
    }
    int rc = mesh_read(body, kinds[kind], &m, err);
    if (rc < 0) {
        return rc;
    }
    if (r->form != MESH_JSON) {
        print_message(r, kind, m);
    }
    rc = r->waits ? judge(r, kind, m, err) : MR_OK;
    protobuf_c_message_free_unpacked(m, NULL);
    return rc;
}

static int ask(struct mesh_run *r, struct mr_buf *path, const ProtobufCMessage *body,
               enum answer kind, struct mr_err *err)
{
    struct mr_remote_reply reply;
    int rc = mesh_ask(r, path, body, &reply, err);

    mr_buf_fini(path);
    if (rc == MR_OK) {
        r->is_pending = reply.status == 202;
        rc = print_answer(r, kind, reply.body, err);
        mr_remote_reply_fini(&reply);
    }
    return rc;
}

static struct mr_buf path_of(const char *what, const char *id, const char *verb)
{
    struct mr_buf path;

    mr_buf_init(&path, 0);
    mesh_path(&path, what, id, verb);
    return path;
}

static char *text_of(const char *given)
{
    return (char *)(uintptr_t)(given ? given : "");
}

/* One line that says what was done, for people. */
static int said(const struct mesh_run *r, int rc, const char *what, const char *id)
{
    if (rc == MR_OK && r->form != MESH_JSON) {
        mesh_print_text(id);
        printf(" %s%s\n", what,
               r->is_pending ? " at this server; everywhere when the registry is back" : "");
    }
    return rc;
}

/* ---- verbs ---- */

static const Millrace__MeshRegister nothing = MILLRACE__MESH_REGISTER__INIT;

static int run_status(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path =
        path_of(r->arg_count ? "models" : NULL, r->arg_count ? r->args[0] : NULL, NULL);

    return ask(r, &path, NULL, r->arg_count ? ANSWER_MODEL : ANSWER_STATE, err);
}

static int print_page(void *ctx, const ProtobufCMessage *page, mr_bytes json)
{
    const struct mesh_run *r = ctx;

    if (r->form == MESH_JSON) {
        printf("%.*s\n", (int)json.len, (const char *)json.ptr);
    } else if (page->descriptor == &millrace__mesh_models__descriptor) {
        mesh_print_models(r, (const Millrace__MeshModels *)page);
    } else {
        mesh_print_vmodels(r, (const Millrace__MeshVModels *)page);
    }
    return MR_OK;
}

static int run_list(struct mesh_run *r, struct mr_err *err)
{
    return mesh_pages(r, true, r->arg_count ? r->args[0] : "", print_page, r, err);
}

static int run_register(struct mesh_run *r, struct mr_err *err)
{
    Millrace__MeshRegister m = MILLRACE__MESH_REGISTER__INIT;
    struct mr_buf path = path_of("models", r->args[0], "register");

    m.type = text_of(r->opt.type);
    m.path = text_of(r->opt.path);
    m.key = text_of(r->opt.key);
    m.size_bytes = r->opt.size_bytes;
    m.min_copies = r->opt.min_copies;
    m.max_copies = r->opt.max_copies;
    m.pinned = r->opt.pinned;
    m.load_now = r->opt.load;
    m.sync = r->waits = r->opt.wait;
    return ask(r, &path, &m.base, ANSWER_MODEL, err);
}

static int run_unregister(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path = path_of("models", r->args[0], "unregister");

    return said(r, ask(r, &path, &nothing.base, ANSWER_NONE, err), "unregistered", r->args[0]);
}

static int run_load(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path = path_of("models", r->args[0], "load");

    r->waits = r->opt.load = true;
    return ask(r, &path, &nothing.base, ANSWER_MODEL, err);
}

static int vmodel_list(struct mesh_run *r, struct mr_err *err)
{
    return mesh_pages(r, false, r->arg_count > 1 ? r->args[1] : "", print_page, r, err);
}

static struct mr_buf owned_path(const struct mesh_run *r, const char *verb)
{
    struct mr_buf path = path_of("vmodels", r->args[1], verb);

    if (r->opt.owner) {
        mesh_path_query(&path, "owner", r->opt.owner);
    }
    return path;
}

static int vmodel_show(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path = owned_path(r, NULL);

    return ask(r, &path, NULL, ANSWER_VMODEL, err);
}

static int vmodel_set(struct mesh_run *r, struct mr_err *err)
{
    Millrace__MeshVModelSet m = MILLRACE__MESH_VMODEL_SET__INIT;
    struct mr_buf path = path_of("vmodels", r->args[1], "set");

    m.target = text_of(r->args[2]);
    m.type = text_of(r->opt.type);
    m.path = text_of(r->opt.path);
    m.key = text_of(r->opt.key);
    m.auto_delete = r->opt.auto_delete;
    m.update_only = r->opt.update_only;
    m.load_now = r->opt.load;
    m.force = r->opt.force;
    m.sync = r->waits = r->opt.wait;
    m.expected = text_of(r->opt.expected);
    m.owner = text_of(r->opt.owner);
    return ask(r, &path, &m.base, ANSWER_VMODEL, err);
}

static int vmodel_delete(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path = owned_path(r, "delete");

    return said(r, ask(r, &path, &nothing.base, ANSWER_NONE, err), "deleted", r->args[1]);
}

static int run_drain(struct mesh_run *r, struct mr_err *err)
{
    struct mr_buf path = path_of(NULL, NULL, "drain");

    return said(r, ask(r, &path, &nothing.base, ANSWER_NONE, err), "drains", r->remote.address);
}

/* ---- the command ---- */

static const struct verb {
    const char *name;
    const char *second; /* vmodel's own verbs */
    size_t args_min, args_max;
    const char *args;
    int (*run)(struct mesh_run *r, struct mr_err *err);
} verbs[] = {
    {"status", NULL, 0, 1, "a model, or nothing", run_status},
    {"list", NULL, 0, 1, "what ids begin with, or nothing", run_list},
    {"register", NULL, 1, 1, "a model", run_register},
    {"unregister", NULL, 1, 1, "a model", run_unregister},
    {"load", NULL, 1, 1, "a model", run_load},
    {"vmodel", "list", 1, 2, "what ids begin with, or nothing", vmodel_list},
    {"vmodel", "show", 2, 2, "a vmodel", vmodel_show},
    {"vmodel", "set", 3, 3, "a vmodel and a model", vmodel_set},
    {"vmodel", "delete", 2, 2, "a vmodel", vmodel_delete},
    {"watch", NULL, 0, 1, "what ids begin with, or nothing", mesh_run_watch},
    {"top", NULL, 0, 0, "nothing", mesh_run_top},
    {"drain", NULL, 0, 0, "nothing", run_drain},
};
#define VERB_COUNT (sizeof verbs / sizeof *verbs)

static const struct verb *find_verb(const struct mr_options *o, char text[300])
{
    static const char all[] = "status, list, register, unregister, load, vmodel list, vmodel show, "
                              "vmodel set, vmodel delete, watch, top and drain";

    if (o->args.len == 0) {
        snprintf(text, 300, "what? One of %s", all);
        return NULL;
    }
    for (size_t i = 0; i < VERB_COUNT; i++) {
        const struct verb *v = &verbs[i];
        const size_t count = o->args.len - 1;
        if (strcmp(v->name, o->args.at[0]) != 0 ||
            (v->second && (count == 0 || strcmp(v->second, o->args.at[1]) != 0))) {
            continue;
        }
        if (count >= v->args_min && count <= v->args_max) {
            return v;
        }
        snprintf(text, 300, "%s%s%s takes %s", v->name, v->second ? " " : "",
                 v->second ? v->second : "", v->args);
        return NULL;
    }
    const char *second = o->args.len > 1 ? o->args.at[1] : "";
    snprintf(text, 300, "'%.40s%s%.40s' is not one of %s", o->args.at[0], *second ? " " : "",
             second, all);
    return NULL;
}

static int run(struct mesh_run *r, const struct mr_options *o, const struct verb *v)
{
    struct mr_err err = {0};

    r->args = &o->args.at[1];
    r->arg_count = o->args.len - 1;
    r->form = r->opt.json ? MESH_JSON : r->opt.form;
    if (r->form == MESH_AUTO) {
        r->form = mr_term_of(stdout).is_terminal ? MESH_TABLE : MESH_PLAIN;
    }
    int rc = mr_remote_open(&r->remote, r->opt.url, 8000, false, r->opt.timeout_ns, &r->opt.access,
                            &err);
    const int code = rc < 0 ? MR_EXIT_USAGE : MR_EXIT_FAILED;
    rc = rc < 0 ? rc : v->run(r, &err);
    mr_remote_close(&r->remote);
    return rc < 0 ? mr_cli_fail(o->program, code, err.msg) : MR_EXIT_OK;
}

int mr_cli_mesh(int argc, char **argv, char **env)
{
    struct mesh_run r = {0};
    struct mr_options o;
    char text[300];

    mr_options_init(&o, "millrace mesh", table, sizeof table / sizeof *table, &r.opt);
    o.max_args = 4;
    int code = mr_cli_parse(&o, argc, argv, env, usage, notes);
    if (code < 0) {
        const struct verb *v = find_verb(&o, text);
        code = v ? run(&r, &o, v) : mr_cli_fail(o.program, MR_EXIT_USAGE, text);
    }
    mr_options_fini(&o);
    return code;
}
