/* Option tables: one row says an option's name, type, range, default and meaning, and everything else
 * follows from it: command line, environment, config file, --help, --dump-options, and the texts of
 * errors.
 *
 * Where a value comes from, the first that says something wins: command line, environment, config
 * file, default. A list is taken whole from one source. Values of every source are checked, used or not.
 *
 *   command line   --name=value, --name value, -m value; bools as --name, --name=false, --name false
 *   environment    MILLRACE_NAME; the members of a list separated by ';'
 *   config file    name = value, one per line; '#' begins a comment; "..." keeps blanks and '#';
 *                  name = """ begins a value of several lines, which a line of """ alone ends;
 *                  a list's option is repeated
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
    MR_OPTION_GROUP, /* no option: a title in --help; `name` is its text, `help` a remark or NULL */
    MR_OPTION_BOOL,  /* bool */
    MR_OPTION_INT,   /* an integer type of 1, 2, 4 or 8 bytes; value * scale is stored */
    MR_OPTION_BYTES, /* as INT; also 64KiB, 16MB, 2G */
    MR_OPTION_DURATION, /* int64_t ns; a plain number counts in `scale` ns; also 10s, 5ms, 2h */
    MR_OPTION_STRING,   /* const char *; NULL when never given and without default */
    MR_OPTION_CHOICE,   /* int or enum: the index in `choices` */
    MR_OPTION_LIST      /* struct mr_option_list; may be given several times */
};

/* Accepted, but has no effect: warned about; `help` says why. */
#define MR_OPTION_IGNORED 1u
/* Not available: an error, unless the value is the `fallback`; `help` names the feature ("TLS is"). */
#define MR_OPTION_REFUSED  2u
#define MR_OPTION_SECRET   4u  /* masked in dumps */
#define MR_OPTION_HIDDEN   8u  /* not in --help */
#define MR_OPTION_CLI_ONLY 16u /* neither environment nor, unless files_take_all, config file */
#define MR_OPTION_CONFIG   32u /* a LIST of config files to read */
#define MR_OPTION_OLD      64u /* works, and is warned about; `help` names what to give instead */

struct mr_option {
    const char *name; /* "http-port" */
    enum mr_option_kind kind;
    uint32_t flags;
    size_t offset;        /* of the member in the target struct */
    size_t size;          /* of the member */
    const char *fallback; /* default as it would be typed; NULL: the target stays as it is */
    int64_t min;          /* INT, BYTES, DURATION: allowed range in the unit of a plain number; */
    int64_t max;          /* both 0: from 0 to what the type holds */
    int64_t scale;        /* 0 = 1 */
    const char *const *choices; /* NULL-terminated */
    const char *value;          /* what --help calls the value, "PORT"; NULL for bools */
    const char *help;           /* a sentence without period, starting in lower case */
    char letter;                /* 'm' for -m, 0 = none */
    /** (may be NULL) A further check of one value; the option's name is put before the message. */
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

/** What is known about one row of the table after parse. */
struct mr_option_state {
    enum mr_option_source source;
    const char *where;          /* "FILE:LINE", the variable's name, NULL */
    const char *file;           /* NULL unless FROM_FILE */
    MR_VEC(const char *) texts; /* values as given; more than one for a LIST only */
};

/** A set of options: what to parse and, afterwards, what was found. */
struct mr_options {
    /* set by init */
    const struct mr_option *table;
    size_t count;
    void *target;
    const char *program; /* for texts: "millrace serve" */
    /* may be set before parse */
    size_t max_args;        /* 0: anything that is no option is an error */
    const char *env_prefix; /* of variables; NULL: "MILLRACE_" */
    bool files_take_all;    /* a config file may also say what is CLI_ONLY */
    /* Of a program that the same config file may be for (may be NULL): a name or a value there that only its table
     * knows is checked by that, and has no effect here. */
    const struct mr_option *sibling;
    size_t sibling_count;
    /* read after parse */
    struct mr_option_state *states; /* [count] */
    MR_VEC(const char *) args;      /* what was no option, in order */
    MR_VEC(const char *) warnings;  /* one sentence each */
    bool wants_help;                /* --help or -h was given; nothing else was looked at */
    /* private */
    MR_VEC(char *) owned;
};

/** Caller's memory. table, target and program are borrowed until fini. table has `count` rows. */
void mr_options_init(struct mr_options *o, const char *program, const struct mr_option *table,
                     size_t count, void *target);
/** All strings that parse stored in the target go. */
void mr_options_fini(struct mr_options *o);

/** Defaults, config files, environment and command line into the target. argv[0] is the first argument
 *  (not the program); argv and env are borrowed until fini. env: as environ; NULL = none.
 *  Errors: MR_E_INVALID with one sentence that names the option, the allowed range or the nearest valid
 *  name, and where it stands; MR_E_UNSUPPORTED for a refused option; MR_E_IO for a config file. The
 *  target is then partly filled. */
int mr_options_parse(struct mr_options *o, int argc, char *const *argv, char *const *env,
                     struct mr_err *err);

/** Where the value in force comes from. name must be in the table. */
enum mr_option_source mr_options_source(const struct mr_options *o, const char *name);

/** --help: one line per option and its sentence, in groups. */
void mr_options_help(const struct mr_options *o, struct mr_buf *out);
/** --dump-options: what is in force and where it came from, in the form of a config file. */
void mr_options_dump(const struct mr_options *o, struct mr_buf *out);

/** The word of `words` (NULL-terminated) that is nearest to `word`; NULL when none is near. */
const char *mr_nearest_word(mr_str word, const char *const *words);

#endif
