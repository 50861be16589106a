/* What Python answers. Thread: holder of the GIL. */
#ifndef PYTHON_OUTPUTS_H
#define PYTHON_OUTPUTS_H

#include "millrace/backend.h"
#include "py.h"

/** A model's outputs: those that are filled in for a request of a batch that failed. */
struct output_desc {
    int32_t dtype, rank;
    int64_t dims[MR_MAX_RANK];
};

/** Sets the outputs of an execution that is not decoupled. results: a list with, for each request, a tuple
 *  (status, message) of one that failed, or a list of its outputs (index, dtype, shape, buffer), all that are wanted, in
 *  the order of the model. Rows of a batch
 *  are joined. Errors: MR_E_INVALID (rows that do not fit together, named), the host's, that of the only request. */
int outputs_set(const struct mr_host *host, struct mr_exec *exec, const struct output_desc *descs,
                PyObject *results, struct mr_err *err);
/** Sends one of several answers: `outputs` as above, or None for an end without an answer; parameters as below, or None. The
 *  GIL is given up while the client has too many unread ones. */
int outputs_respond(const struct mr_host *host, struct mr_exec *exec, uint32_t request,
                    PyObject *outputs, PyObject *parameters, uint32_t flags, struct mr_err *err);
/** Parameters of an answer (response NULL: of the only one to the request): a tuple of a list of names and values in turn,
 *  and bytes with the kind of each. */
int outputs_parameters(const struct mr_host *host, struct mr_exec *exec, uint32_t request,
                       struct mr_response *response, PyObject *parameters, struct mr_err *err);
/** What str() makes of an object, in UTF-8, with escapes for what has none: a new reference to bytes. NULL: an exception is set. */
PyObject *outputs_text(PyObject *o);
/** Takes the exception that is set as an error, and clears it. */
int outputs_fail(struct mr_err *err);

#endif
