/* Option tables: a row gives an option's name, type, range, default and meaning. The command line, environment,
 * config file, --help, --dump-options and error texts are derived from it.
 *
 * Precedence: command line, environment, config file, default. A list is taken whole from one source. Values of all
 * sources are checked, also those that are overridden.
 *
 *   command line   --name=value, --name value, -m value; bools as --name, --name=false, --name false
 *   environment    MILLRACE_NAME; the members of a list separated by ';'
 *   config file    name = value, one per line; '#' begins a comment; "..." keeps blanks and '#';
 *                  name = """ begins a value of several lines, which a line of """ alone ends;
 *                  a list option is repeated
 *
 * Thread: one at a time; meant for start-up. */
#ifndef MR_BASE_OPTIONS_H
#define MR_BASE_OPTIONS_H

#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

enum mr_option_kind {
    /* not an option: a title in --help with the text `name`; `help` is a remark or NULL */
    MR_OPTION_GROUP,
    MR_OPTION_BOOL,     /* bool */
    MR_OPTION_INT,      /* an integer type of 1, 2, 4 or 8 bytes; value * scale is stored */
    MR_OPTION_BYTES,    /* as INT; also 64KiB, 16MB, 2G */
    MR_OPTION_DURATION, /* int64_t ns; a plain number counts in `scale` ns; also 10s, 5ms, 2h */
    MR_OPTION_STRING,   /* const char *; NULL if not given and without default */
    MR_OPTION_CHOICE,   /* int or enum: the index in `choices` */
    MR_OPTION_LIST      /* struct mr_option_list; may be repeated */
};

/* Accepted with a warning, has no effect; `help` says why. */
#define MR_OPTION_IGNORED 1u
/* Not available: any value but the `fallback` is an error; `help` names the feature ("TLS is"). */
#define MR_OPTION_REFUSED 2u
#define MR_OPTION_SECRET  4u /* masked in dumps */
#define MR_OPTION_HIDDEN  8u /* not in --help */
#define MR_OPTION_CLI_ONLY                                                                         \
    16u                      /* not in the environment, nor in config files unless files_take_all */
#define MR_OPTION_CONFIG 32u /* a LIST of config files to read */
#define MR_OPTION_OLD    64u /* deprecated: works with a warning; `help` names the replacement */

struct mr_option {
    const char *name; /* "http-port" */
    enum mr_option_kind kind;
    uint32_t flags;
    size_t offset;        /* of the member of the target struct */
    size_t size;          /* of the member */
    const char *fallback; /* default as on the command line; NULL: the target is not changed */
    int64_t min;          /* INT, BYTES, DURATION: allowed range in the unit of a plain number; */
    int64_t max;          /* both 0: from 0 to what the type holds */
    int64_t scale;        /* 0 = 1 */
    const char *const *choices; /* NULL-terminated */
    const char *value;          /* what --help calls the value, "PORT"; NULL for bools */
    const char *help;           /* a sentence in lower case without period */
    char letter;                /* 'm' for -m, 0 = none */
    /** (may be NULL) Checks one value further; the option's name is put before its message. */
    int (*check)(mr_str value, struct mr_err *err);
};

/** Offset and size of a member, for rows: {.name = "port", MR_OPTION_AT(struct s, port), ...}. */
#define MR_OPTION_AT(type, member)                                                                 \
    .offset = offsetof(type, member), .size = sizeof(((type *)0)->member)

/** Values of a LIST option; strings and array live as long as the struct mr_options. */
struct mr_option_list {
    const char *const *at;
    size_t len;
};

enum mr_option_source {
    MR_OPTION_FROM_DEFAULT = 0,
    MR_OPTION_FROM_FILE,
    MR_OPTION_FROM_ENVIRONMENT,
    MR_OPTION_FROM_COMMAND_LINE
};

/** The state of one table row after parse. */
struct mr_option_state {
    enum mr_option_source source;
    const char *where;          /* "FILE:LINE", the variable's name, NULL */
    const char *file;           /* NULL unless FROM_FILE */
    MR_VEC(const char *) texts; /* values as given; more than one for a LIST only */
};

/** What mr_options_give was given. */
struct mr_option_foreign {
    const struct mr_option *row;
    const char *where, *value;
};

/** A set of options: the input of parse and its results. */
struct mr_options {
    /* set by init */
    const struct mr_option *table;
    size_t count;
    void *target;
    const char *program; /* for texts: "millrace serve" */
    /* may be set before parse */
    size_t max_args;        /* 0: arguments other than options are errors */
    const char *env_prefix; /* of variables; NULL: "MILLRACE_" */
    bool files_take_all;    /* config files may set CLI_ONLY options */
    /* The table of another program that shares config files with this one (may be NULL): names and values of a file
     * that only that table accepts are checked by it and have no effect here. */
    const struct mr_option *sibling;
    size_t sibling_count;
    /* read after parse */
    struct mr_option_state *states; /* [count] */
    MR_VEC(const char *) args;      /* arguments other than options, in order */
    MR_VEC(const char *) warnings;  /* one sentence each */
    bool wants_help;                /* --help or -h was given; nothing else was parsed */
    /* private */
    MR_VEC(char *) owned;
    MR_VEC(struct mr_option_foreign) foreign;
};

/** Caller's memory. table, target and program are borrowed until fini. table has `count` rows. */
void mr_options_init(struct mr_options *o, const char *program, const struct mr_option *table,
                     size_t count, void *target);
/** Frees all strings that parse stored in the target. */
void mr_options_fini(struct mr_options *o);

/** A variable of another program's, `where`, that means this option: has it come from the environment, unless the option's own variable
 *  is there. The members of a list are separated by ';'. Before parse; name must be in the table; where is borrowed until fini, value is copied. */
void mr_options_give(struct mr_options *o, const char *name, const char *where, const char *value);

/** Writes defaults, config files, environment and command line to the target. argv[0] is the first argument (not the
 *  program); argv and env are borrowed until fini. env: as environ; NULL = none.
 *  Errors: MR_E_INVALID with one sentence that names the option, the allowed range or the nearest valid name, and the
 *  place; MR_E_UNSUPPORTED for a refused option; MR_E_IO for a config file. The target is then partly filled. */
int mr_options_parse(struct mr_options *o, int argc, char *const *argv, char *const *env,
                     struct mr_err *err);

/** The source of the effective value. name must be in the table. */
enum mr_option_source mr_options_source(const struct mr_options *o, const char *name);

/** --help: one line per option and its sentence, in groups. */
void mr_options_help(const struct mr_options *o, struct mr_buf *out);
/** --dump-options: the effective values and their sources, in the form of a config file. */
void mr_options_dump(const struct mr_options *o, struct mr_buf *out);

/** The word of `words` (NULL-terminated) that is nearest to `word`; NULL when none is near. */
const char *mr_nearest_word(mr_str word, const char *const *words);

#endif
