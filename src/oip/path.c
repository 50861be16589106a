/* The paths of the REST API, matched whole and by hand.
 *
 * Every route is a fixed number of segments, so the path is first cut at its slashes; an empty segment
 * (a doubled or a trailing slash) matches nothing, as names must not be empty. What the number of
 * segments leaves open is decided by the fixed words. Nothing is percent-decoded, and a query must
 * have been cut off before. Any thread. */
#include "oip/oip.h"

#define SEGMENTS_MAX 8

struct segments {
    mr_str at[SEGMENTS_MAX];
    size_t count;
};

struct word {
    mr_str name;
    enum mr_oip_route route;
};

static bool path_cut(mr_str path, struct segments *out)
{
    out->count = 0;
    if (path.len == 0 || path.ptr[0] != '/') {
        return false;
    }
    const char *begin = path.ptr + 1;
    const char *end = path.ptr + path.len;
    for (;;) {
        const char *slash = memchr(begin, '/', (size_t)(end - begin));
        const char *stop = slash ? slash : end;
        if (stop == begin || out->count == SEGMENTS_MAX) {
            return false;
        }
        out->at[out->count++] = mr_str_n(begin, (size_t)(stop - begin));
        if (!slash) {
            return true;
        }
        begin = slash + 1;
    }
}

static enum mr_oip_route word_find(const struct word *words, size_t count, mr_str name)
{
    for (size_t i = 0; i < count; i++) {
        if (mr_str_eq(words[i].name, name)) {
            return words[i].route;
        }
    }
    return MR_ROUTE_NONE;
}
#define WORD_FIND(words, name) word_find((words), sizeof(words) / sizeof *(words), (name))

/* Digits, or a label: it begins with a letter or '_'. Which there are, others know. */
static bool is_version(mr_str s)
{
    bool is_label = s.len > 0 && !(s.ptr[0] >= '0' && s.ptr[0] <= '9');

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!is_digit && !(is_label && (is_letter || (i > 0 && (c == '-' || c == '.'))))) {
            return false;
        }
    }
    return s.len > 0;
}

/* /v2/models/{m}[/versions/{n}][/word] and the two special forms. */
static void models_match(const struct segments *s, struct mr_oip_path *out)
{
    static const struct word words[] = {
        {MR_STR_INIT("infer"), MR_ROUTE_MODEL_INFER},
        {MR_STR_INIT("ready"), MR_ROUTE_MODEL_READY},
        {MR_STR_INIT("generate"), MR_ROUTE_MODEL_GENERATE},
        {MR_STR_INIT("generate_stream"), MR_ROUTE_MODEL_GENERATE_STREAM},
        {MR_STR_INIT("config"), MR_ROUTE_MODEL_CONFIG},
        {MR_STR_INIT("stats"), MR_ROUTE_MODEL_STATS},
    };
    size_t next = 3;
    if (s->count < 3) {
        return;
    }
    if (s->count == 3 && mr_str_eq(s->at[2], MR_STR("stats"))) {
        out->route = MR_ROUTE_ALL_STATS;
        return;
    }
    mr_str version = MR_STR("");
    if (s->count >= 5 && mr_str_eq(s->at[3], MR_STR("versions")) && is_version(s->at[4])) {
        version = s->at[4];
        next = 5;
    }
    enum mr_oip_route route = MR_ROUTE_NONE;
    if (s->count == 4 && mr_str_eq(s->at[3], MR_STR("versions"))) {
        route = MR_ROUTE_MODEL_VERSIONS;
    } else if (s->count == next) {
        route = MR_ROUTE_MODEL_METADATA;
    } else if (s->count == next + 1) {
        route = WORD_FIND(words, s->at[next]);
    } else if (s->count == 5 && next == 3 && mr_str_eq(s->at[3], MR_STR("trace")) &&
               mr_str_eq(s->at[4], MR_STR("setting"))) {
        route = MR_ROUTE_MODEL_TRACE;
    }
    if (route != MR_ROUTE_NONE) {
        out->route = route;
        out->model = s->at[2];
        out->version = version;
    }
}

/* /v2/repository[/{repo}]/index and /v2/repository[/{repo}]/models/{m}/{load,unload} */
static void repository_match(const struct segments *s, struct mr_oip_path *out)
{
    static const struct word words[] = {
        {MR_STR_INIT("load"), MR_ROUTE_REPO_LOAD},
        {MR_STR_INIT("label"), MR_ROUTE_REPO_LABEL},
        {MR_STR_INIT("rollback"), MR_ROUTE_REPO_ROLLBACK},
        {MR_STR_INIT("record-warmup"), MR_ROUTE_REPO_RECORD},
        {MR_STR_INIT("unload"), MR_ROUTE_REPO_UNLOAD},
    };
    bool has_repository = s->count == 4 || s->count == 6;
    size_t next = has_repository ? 3 : 2;
    enum mr_oip_route route = MR_ROUTE_NONE;
    if (s->count == next + 1 && mr_str_eq(s->at[next], MR_STR("index"))) {
        route = MR_ROUTE_REPO_INDEX;
    } else if (s->count == next + 3 && mr_str_eq(s->at[next], MR_STR("models"))) {
        route = WORD_FIND(words, s->at[next + 2]);
        out->model = route == MR_ROUTE_NONE ? MR_STR("") : s->at[next + 1];
    }
    if (route != MR_ROUTE_NONE && has_repository) {
        out->repository = s->at[2];
    }
    out->route = route;
}

/* /v2/…sharedmemory[/region/{r}]/{status,register,unregister} */
static void shm_match(const struct segments *s, enum mr_oip_route route, struct mr_oip_path *out)
{
    bool has_region = s->count == 5 && mr_str_eq(s->at[2], MR_STR("region"));
    if (!has_region && s->count != 3) {
        return;
    }
    mr_str action = s->at[s->count - 1];
    if (mr_str_eq(action, MR_STR("status")) || mr_str_eq(action, MR_STR("register")) ||
        mr_str_eq(action, MR_STR("unregister"))) {
        out->route = route;
        out->action = action;
        out->region = has_region ? s->at[3] : MR_STR("");
    }
}

/* /v2/docs[/openapi.json] */
static void docs_match(const struct segments *s, struct mr_oip_path *out)
{
    if (s->count == 2) {
        out->route = MR_ROUTE_DOCS;
    } else if (s->count == 3 && mr_str_eq(s->at[2], MR_STR("openapi.json"))) {
        out->route = MR_ROUTE_DOCS;
        out->action = s->at[2];
    }
}

static void two_match(mr_str a, mr_str b, struct mr_oip_path *out)
{
    if (mr_str_eq(a, MR_STR("health")) && mr_str_eq(b, MR_STR("live"))) {
        out->route = MR_ROUTE_LIVE;
    } else if (mr_str_eq(a, MR_STR("health")) && mr_str_eq(b, MR_STR("ready"))) {
        out->route = MR_ROUTE_READY;
    } else if (mr_str_eq(a, MR_STR("trace")) && mr_str_eq(b, MR_STR("setting"))) {
        out->route = MR_ROUTE_TRACE;
    }
}

struct mr_oip_path mr_oip_path_parse(mr_str path)
{
    struct mr_oip_path out = {MR_ROUTE_NONE, MR_STR(""), MR_STR(""),
                              MR_STR(""),    MR_STR(""), MR_STR("")};
    struct segments s;
    if (!path_cut(path, &s) || !mr_str_eq(s.at[0], MR_STR("v2"))) {
        return out;
    }
    if (s.count == 1) {
        out.route = MR_ROUTE_SERVER_METADATA;
    } else if (mr_str_eq(s.at[1], MR_STR("models"))) {
        models_match(&s, &out);
    } else if (mr_str_eq(s.at[1], MR_STR("repository"))) {
        repository_match(&s, &out);
    } else if (mr_str_eq(s.at[1], MR_STR("systemsharedmemory"))) {
        shm_match(&s, MR_ROUTE_SYSTEM_SHM, &out);
    } else if (mr_str_eq(s.at[1], MR_STR("cudasharedmemory"))) {
        shm_match(&s, MR_ROUTE_CUDA_SHM, &out);
    } else if (mr_str_eq(s.at[1], MR_STR("docs"))) {
        docs_match(&s, &out);
    } else if (s.count == 2 && mr_str_eq(s.at[1], MR_STR("logging"))) {
        out.route = MR_ROUTE_LOGGING;
    } else if (s.count == 3) {
        two_match(s.at[1], s.at[2], &out);
    }
    return out;
}
