/* Shared by the files of the option parser. Private. */
#ifndef MR_BASE_OPTIONS_PRIV_H
#define MR_BASE_OPTIONS_PRIV_H

#include "base/options.h"

/* One value as given, not yet checked. Strings are borrowed or owned by the options. */
struct option_given {
    const struct mr_option *row;
    const char *text;
    enum mr_option_source source;
    const char *where; /* "FILE:LINE" or the variable's name */
    const char *file;
};

struct option_givens {
    MR_VEC(struct option_given) list;
};

/** The row of this name, or NULL. */
const struct mr_option *mr_option_find(const struct mr_options *o, mr_str name);
/** A copy that lives until mr_options_fini. */
const char *mr_option_keep(struct mr_options *o, mr_str text);
/** printf into such a copy. */
const char *mr_option_keepf(struct mr_options *o, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** MR_E_INVALID for a name that is in no row; `where` as "FILE:LINE: ", `dashes` as "--". */
int mr_option_unknown(const struct mr_options *o, const char *where, const char *dashes,
                      mr_str name, struct mr_err *err);

/** Check one value and store it at the target (LIST: check only). `label` begins the text of errors. */
int mr_option_store(const struct mr_option *row, void *target, const char *label, const char *text,
                    struct mr_err *err);
/** true, on, 1, false, off, 0 in any case, as Triton's options take them. False: none of these. */
bool mr_option_bool(mr_str text, bool *out);
/** "0 to 65535", "0 s to 1 h"; empty when the row has no bounds worth showing. */
void mr_option_range(const struct mr_option *row, struct mr_buf *out);

/** Appends the values of the config file. */
int mr_option_read_file(struct mr_options *o, const char *path, struct option_givens *out,
                        struct mr_err *err);

#endif
