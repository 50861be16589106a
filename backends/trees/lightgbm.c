/* LightGBM's C API, from version 3.2 on (LightGBM/c_api.h; declared here as far as it is used).
 *
 * Rows are read where they were received, and predictions, FP64, are written where they are sent from. An instance has
 * its own predictor for single rows, which spares the reading of parameters; instances predict side by side. */
#include <limits.h>

#include "trees.h"
#include "whole.h"

const char trees_name[] = "lightgbm";
const char *const trees_files[] = {"lib_lightgbm.so", "liblightgbm.so", NULL};
const char trees_wheel[] = "lightgbm/lib/lib_lightgbm.so";

/* Of the API: C_API_DTYPE_…, C_API_PREDICT_NORMAL, row-major, from the first iteration to the last. */
enum { FLOAT32 = 0, FLOAT64 = 1, NORMAL = 0, ROW_MAJOR = 1, FIRST = 0, LAST = -1 };

static const char *(*last_error)(void);
static int (*log_callback_set)(void (*callback)(const char *text));
static int (*booster_load)(const char *content, int *out_iterations, void **out);
static int (*booster_free)(void *booster);
static int (*booster_features)(void *booster, int *out);
static int (*predict_count)(void *booster, int rows, int type, int first, int last, int64_t *out);
static int (*predict_rows)(void *booster, const void *data, int data_type, int32_t rows,
                           int32_t columns, int is_row_major, int type, int first, int last,
                           const char *parameters, int64_t *out_count, double *out);
static int (*single_init)(void *booster, int type, int first, int last, int data_type,
                          int32_t columns, const char *parameters, void **out);
static int (*single_predict)(void *single, const void *data, int64_t *out_count, double *out);
static int (*single_free)(void *single);

int trees_bind(void *library, char *version, size_t room, struct mr_err *err)
{
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"LGBM_GetLastError", &last_error},
                     {"LGBM_RegisterLogCallback", &log_callback_set},
                     {"LGBM_BoosterLoadModelFromString", &booster_load},
                     {"LGBM_BoosterFree", &booster_free},
                     {"LGBM_BoosterGetNumFeature", &booster_features},
                     {"LGBM_BoosterCalcNumPredict", &predict_count},
                     {"LGBM_BoosterPredictForMat", &predict_rows},
                     {"LGBM_BoosterPredictForMatSingleRowFastInit", &single_init},
                     {"LGBM_BoosterPredictForMatSingleRowFast", &single_predict},
                     {"LGBM_FastConfigFree", &single_free}};

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = trees_symbol(library, functions[i].name, err);
        if (!found) {
            return err->status;
        }
        memcpy(functions[i].to, &found, sizeof found);
    }
    snprintf(version, room, "LightGBM"); /* the library does not report its version */
    return MR_OK;
}

/* ---- one prediction ---- */

static int data_type(const struct trees_model *m)
{
    return m->input.dtype == MR_DTYPE_FP64 ? FLOAT64 : FLOAT32;
}

static int predict(const struct trees_model *m, void *single, const void *data, int64_t rows,
                   double *out, struct mr_err *err)
{
    int64_t count = 0;
    int failed;

    if (rows > INT32_MAX) {
        return mr_backend_fail(err, MR_E_INVALID, "%lld rows, LightGBM takes at most %d",
                               (long long)rows, INT32_MAX);
    }
    failed = rows == 1 ? single_predict(single, data, &count, out)
                       : predict_rows(m->booster, data, data_type(m), (int32_t)rows,
                                      (int32_t)m->input_dims[1], ROW_MAJOR, NORMAL, FIRST, LAST,
                                      m->settings[0], &count, out);
    if (failed) {
        return trees_fail(err, MR_E_INTERNAL, "LightGBM cannot predict", last_error());
    }
    if (count != rows * m->columns) {
        return mr_backend_fail(err, MR_E_INTERNAL, "LightGBM predicted a tensor of another shape");
    }
    return MR_OK;
}

/* Outputs differ by their names only. */
int trees_predict(const struct trees_model *m, void *own, struct mr_exec *exec, int64_t rows,
                  struct mr_err *err)
{
    const void *first = NULL;
    int rc = MR_OK;

    for (uint32_t i = 0; i < m->signature.output_count && rc == MR_OK; i++) {
        void *to = NULL;
        rc = exec->output_wanted[i] ? trees_output(m, exec, i, &to, err) : MR_OK;
        if (to && first) {
            memcpy(to, first, (size_t)(rows * m->columns) * sizeof(double));
        } else if (to) {
            rc = predict(m, own, exec->inputs[0].data, rows, to, err);
            first = to;
        }
    }
    return rc;
}

/* ---- models ---- */

static void log_line(const char *text)
{
    const size_t len = strcspn(text, "\n"); /* it comes in pieces, of which some are only that */
    char line[512];

    if (len > 0) {
        snprintf(line, sizeof line, "%.*s", (int)len, text);
        trees_host->log(trees_host, strstr(line, "[Info]") ? 3 : 1, line);
    }
}

static int describe(struct trees_model *m, struct mr_err *err)
{
    int features = 0;

    if (booster_features(m->booster, &features) != 0 ||
        predict_count(m->booster, 1, NORMAL, FIRST, LAST, &m->columns) != 0) {
        return trees_fail(err, MR_E_INVALID, "LightGBM cannot describe the model", last_error());
    }
    if (features < 1 || m->columns < 1 || m->columns > INT32_MAX) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "the model has %d features and predicts %lld numbers, both of which "
                               "must be 1 or more",
                               features, (long long)m->columns);
    }
    m->input_dims[1] = features;
    m->input.dtype = m->is_mlserver ? MR_DTYPE_FP64 : MR_DTYPE_FP32;
    if (!m->is_mlserver) {
        trees_output_add(m, "output__0", MR_DTYPE_FP64, m->columns, 0);
    }
    trees_output_add(m, "predict", MR_DTYPE_FP64, m->columns, 0);
    return MR_OK;
}

int trees_open(struct trees_model *m, const char *content, size_t bytes, struct mr_err *err)
{
    int iterations = 0;
    int rc;

    if (!whole_lightgbm(content, bytes)) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "LightGBM cannot open the model: the file is not whole");
    }

    snprintf(m->settings[0], sizeof m->settings[0], "num_threads=%lld verbosity=-1",
             (long long)trees_threads);
    log_callback_set(log_line); /* of this thread */
    if (booster_load(content, &iterations, &m->booster) != 0) {
        return trees_fail(err, MR_E_INVALID, "LightGBM cannot open the model", last_error());
    }
    rc = describe(m, err);
    if (rc < 0) {
        booster_free(m->booster);
    }
    return rc;
}

void trees_close(struct trees_model *m)
{
    booster_free(m->booster);
}

int trees_instance_open(struct trees_model *m, void **out, struct mr_err *err)
{
    return single_init(m->booster, NORMAL, FIRST, LAST, data_type(m), (int32_t)m->input_dims[1],
                       m->settings[0], out) == 0
               ? MR_OK
               : trees_fail(err, MR_E_INTERNAL, "LightGBM", last_error());
}

void trees_instance_close(void *own)
{
    single_free(own);
}
