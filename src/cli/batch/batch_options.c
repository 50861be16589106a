/* Words of the command line as options of a job. */
#include "batch_options.h"

#include <stdlib.h>
#include <string.h>

const char *const mr_cli_batch_protocols[] = {"binary", "rest", "grpc", NULL};

void mr_cli_batch_list_fini(struct mr_cli_batch_list *w)
{
    for (size_t i = 0; i < w->at.len; i++) {
        mr_free(w->at.at[i]);
    }
    MR_VEC_FINI(&w->at);
}

/* Takes a word up to the next comma, which it skips; a comma after a backslash is part of the word. */
static char *word_take(const char **io)
{
    const char *s = *io;
    char *word = mr_alloc(strlen(s) + 1);
    size_t n = 0;

    for (; *s && *s != ','; s++) {
        s += *s == '\\' && s[1] == ',';
        word[n++] = *s;
    }
    word[n] = '\0';
    *io = s + (*s == ',');
    return word;
}

const char *const *mr_cli_batch_cut(struct mr_cli_batch_list *w, const struct mr_option_list *list,
                                    size_t *out_count)
{
    for (size_t i = 0; i < list->len; i++) {
        for (const char *s = list->at[i]; *s;) {
            char *word = word_take(&s);
            if (*word) {
                MR_VEC_PUSH(&w->at, word);
            } else {
                mr_free(word);
            }
        }
    }
    *out_count = w->at.len;
    return (const char *const *)w->at.at;
}

void mr_cli_batch_parsed_fini(struct mr_cli_batch_parsed *p)
{
    mr_cli_batch_list_fini(&p->hosts);
    mr_cli_batch_list_fini(&p->columns);
    mr_cli_batch_list_fini(&p->carried);
    mr_cli_batch_list_fini(&p->outputs);
    mr_cli_batch_list_fini(&p->map_names);
    MR_VEC_FINI(&p->maps);
    mr_cli_batch_api_fini(&p->api);
}

static int maps_read(struct mr_batch_options *o, struct mr_cli_batch_parsed *p,
                     const struct mr_option_list *list, struct mr_err *err)
{
    for (size_t i = 0; i < list->len; i++) {
        const char *equals = strchr(list->at[i], '=');
        if (!equals || equals == list->at[i]) {
            return MR_FAIL(err, MR_E_INVALID, "--map %s: expected INPUT=FROM", list->at[i]);
        }
        char *name = mr_strndup(list->at[i], (size_t)(equals - list->at[i]));
        MR_VEC_PUSH(&p->map_names.at, name);
        MR_VEC_PUSH(&p->maps, ((struct mr_batch_map){name, equals + 1}));
    }
    o->model.maps = p->maps.at;
    o->model.map_count = p->maps.len;
    return MR_OK;
}

int mr_cli_batch_number(const char *option, const char *text, double least, double most,
                        double *out, struct mr_err *err)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && !*end && *out >= least && *out <= most
               ? MR_OK
               : MR_FAIL(err, MR_E_INVALID, "--%s %s: expected a number from %g to %g", option,
                         text, least, most);
}

int mr_cli_batch_words_read(struct mr_batch_options *o, struct mr_cli_batch_parsed *p,
                            const struct mr_cli_batch_words *words, struct mr_err *err)
{
    double null_value;
    int rc;

    o->hosts.list = mr_cli_batch_cut(&p->hosts, &words->hosts, &o->hosts.count);
    o->results.carried = mr_cli_batch_cut(&p->carried, &words->carried, &o->results.carried_count);
    o->results.outputs = mr_cli_batch_cut(&p->outputs, &words->outputs, &o->results.output_count);
    o->model.inputs = words->model_inputs.at;
    o->model.input_count = words->model_inputs.len;
    o->model.outputs = words->model_outputs.at;
    o->model.output_count = words->model_outputs.len;
    o->hosts.protocol = (enum mr_batch_protocol)words->protocol;
    o->model.null_value = words->null_value;
    if (words->delimiter && strlen(words->delimiter) != 1) {
        return MR_FAIL(err, MR_E_INVALID, "--delimiter '%s': expected one character",
                       words->delimiter);
    }
    o->source.delimiter = words->delimiter ? words->delimiter[0] : 0;
    MR_TRY(maps_read(o, p, &words->maps, err));
    MR_TRY(mr_cli_batch_api_read(o, &p->api, &words->api, err));
    if (words->null_value) {
        MR_TRY(mr_cli_batch_number("null-value", words->null_value, -1.7e308, 1.7e308, &null_value,
                                   err));
    }
out:
    return rc;
}
