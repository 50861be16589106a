/* XGBoost's C API, from version 1.7 on (xgboost/c_api.h; declared here as far as it is used).
 *
 * Predictions are made in place, from the tensor as it was received; that is safe on many threads at once for tree boosters
 * and is the only kind that is. The result lies in memory that the library keeps for each thread, so it is copied
 * once. A linear booster has no such prediction and is refused when it is opened, by a prediction of one row that also has
 * the library finish what it puts off until then.
 *
 * Outputs: what Booster.predict answers, and what the classes of XGBoost for scikit-learn answer, which know labels and stop
 * at the best iteration. */
#include <math.h>

#include "trees.h"
#include "whole.h"

const char trees_name[] = "xgboost";
const char *const trees_files[] = {"libxgboost.so", "libxgboost.so.0", NULL};
const char trees_wheel[] = "xgboost/lib/libxgboost.so";

/* Predictions: with all trees, and with those up to the best iteration. */
enum { ALL = 0, BEST = 1 };

/* Outputs. All but VALUE are of BEST. */
enum kind { VALUE, BEST_VALUE, LABEL_ABOVE_HALF, LABEL_LARGEST, LABEL_AS_IT_IS, PROBABILITY_PAIR };

static void (*version_get)(int *major, int *minor, int *patch);
static const char *(*last_error)(void);
static int (*log_callback_set)(void (*callback)(const char *text));
static int (*booster_create)(void *const *matrices, uint64_t count, void **out);
static int (*booster_free)(void *booster);
static int (*booster_load)(void *booster, const void *content, uint64_t bytes);
static int (*booster_set)(void *booster, const char *name, const char *value);
static int (*booster_attribute)(void *booster, const char *name, const char **out, int *out_found);
static int (*booster_config)(void *booster, uint64_t *out_length, const char **out);
static int (*booster_features)(void *booster, uint64_t *out);
static int (*predict_dense)(void *booster, const char *array, const char *settings, void *matrix,
                            const uint64_t **out_shape, uint64_t *out_rank, const float **out);

int trees_bind(void *library, char *version, size_t room, struct mr_err *err)
{
    const struct {
        const char *name;
        void *to;
    } functions[] = {{"XGBoostVersion", &version_get},
                     {"XGBGetLastError", &last_error},
                     {"XGBRegisterLogCallback", &log_callback_set},
                     {"XGBoosterCreate", &booster_create},
                     {"XGBoosterFree", &booster_free},
                     {"XGBoosterLoadModelFromBuffer", &booster_load},
                     {"XGBoosterSetParam", &booster_set},
                     {"XGBoosterGetAttr", &booster_attribute},
                     {"XGBoosterSaveJsonConfig", &booster_config},
                     {"XGBoosterGetNumFeature", &booster_features},
                     {"XGBoosterPredictFromDense", &predict_dense}};
    int major = 0;
    int minor = 0;
    int patch = 0;

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = trees_symbol(library, functions[i].name, err);
        if (!found) {
            return err->status;
        }
        memcpy(functions[i].to, &found, sizeof found);
    }
    version_get(&major, &minor, &patch);
    snprintf(version, room, "XGBoost %d.%d.%d", major, minor, patch);
    return MR_OK;
}

/* ---- one prediction ---- */

/* The result is valid until this thread's next prediction. */
static int predict(const struct trees_model *m, int range, const float *data, int64_t rows,
                   const float **out, int64_t *out_columns, struct mr_err *err)
{
    const uint64_t *shape = NULL;
    uint64_t rank = 0;
    char array[160];

    snprintf(array, sizeof array,
             "{\"data\":[%llu,true],\"shape\":[%lld,%lld],\"typestr\":\"<f4\",\"version\":3}",
             (unsigned long long)(uintptr_t)data, (long long)rows, (long long)m->input_dims[1]);
    if (predict_dense(m->booster, array, m->settings[range], NULL, &shape, &rank, out) != 0) {
        return trees_fail(err, MR_E_INTERNAL, "XGBoost cannot predict", last_error());
    }
    if (rank != 2 || shape[0] != (uint64_t)rows || shape[1] == 0 || shape[1] > INT32_MAX) {
        return mr_backend_fail(err, MR_E_INTERNAL, "XGBoost predicted a tensor of another shape");
    }
    *out_columns = (int64_t)shape[1];
    return MR_OK;
}

static int64_t largest(const float *row, int64_t columns)
{
    int64_t at = 0;

    for (int64_t i = 1; i < columns; i++) {
        at = row[i] > row[at] ? i : at;
    }
    return at;
}

static void output_write(int kind, const float *from, int64_t rows, int64_t columns, void *to)
{
    float *pairs = to;
    int64_t *labels = to;

    if (kind == VALUE || kind == BEST_VALUE) {
        memcpy(to, from, (size_t)(rows * columns) * sizeof *from);
    }
    for (int64_t i = 0; kind == LABEL_ABOVE_HALF && i < rows; i++) {
        labels[i] = from[i] > 0.5f;
    }
    for (int64_t i = 0; kind == LABEL_LARGEST && i < rows; i++) {
        labels[i] = largest(from + i * columns, columns);
    }
    for (int64_t i = 0; kind == LABEL_AS_IT_IS && i < rows; i++) {
        ((int32_t *)to)[i] = (int32_t)from[i];
    }
    for (int64_t i = 0; kind == PROBABILITY_PAIR && i < rows; i++) {
        pairs[2 * i] = 1.0f - from[i];
        pairs[2 * i + 1] = from[i];
    }
}

static int range_of(const struct trees_model *m, uint32_t output)
{
    return m->kinds[output] == VALUE || !m->settings[BEST][0] ? ALL : BEST;
}

int trees_predict(const struct trees_model *m, void *own, struct mr_exec *exec, int64_t rows,
                  struct mr_err *err)
{
    int rc = MR_OK;

    (void)own;
    for (int range = ALL; range <= BEST; range++) {
        const float *predicted = NULL;
        int64_t columns = 0;
        for (uint32_t i = 0; i < m->signature.output_count && rc == MR_OK; i++) {
            void *to = NULL;
            if (!exec->output_wanted[i] || range_of(m, i) != range) {
                continue;
            }
            if (!predicted) {
                rc = predict(m, range, exec->inputs[0].data, rows, &predicted, &columns, err);
            }
            rc = rc < 0 ? rc : trees_output(m, exec, i, &to, err);
            if (rc == MR_OK) {
                output_write(m->kinds[i], predicted, rows, m->columns, to);
            }
        }
    }
    return rc;
}

/* ---- models ---- */

static void log_line(const char *text)
{
    trees_host->log(trees_host, strstr(text, "WARNING") ? 1 : 2, text);
}

/* Settings of a prediction with the first `iterations`, 0 for all. */
static void settings_write(struct trees_model *m, int range, long long iterations)
{
    snprintf(m->settings[range], sizeof m->settings[range],
             "{\"type\":0,\"training\":false,\"iteration_begin\":0,\"iteration_end\":%lld,"
             "\"strict_shape\":true,\"cache_id\":0,\"missing\":NaN}",
             iterations);
}

static const char *attribute(struct trees_model *m, const char *name)
{
    const char *value = NULL;
    int found = 0;

    return booster_attribute(m->booster, name, &value, &found) == 0 && found && value ? value : "";
}

/* The model's own configuration is JSON without spaces, its members in order: "num_class" comes first in the parameters of
 * the learner, "name" is the first member of "objective" that has this name. */
static const char *config_value(const char *config, const char *object, const char *member)
{
    const char *at = strstr(config, object);

    at = at ? strstr(at, member) : NULL;
    return at ? at + strlen(member) : "";
}

static int is_text(const char *value, const char *text)
{
    return strncmp(value, text, strlen(text)) == 0 && value[strlen(text)] == '"';
}

/* What a classifier of scikit-learn's interface answers; nothing of one that has several targets. */
static void classifier_outputs_add(struct trees_model *m, long classes, int is_classifier,
                                   const char *objective)
{
    const int is_softmax = is_text(objective, "multi:softmax");
    const int is_pair = m->columns == 1 && classes < 2;
    const int has_each = m->columns == classes && classes > 1;
    const int is_many = has_each && classes > 2; /* of two, predict answers both columns */
    const int has_probability =
        is_classifier || (!m->is_mlserver && (is_text(objective, "binary:logistic") ||
                                              is_text(objective, "multi:softprob")));

    if (is_classifier && is_softmax && m->columns == 1) {
        trees_output_add(m, "predict", MR_DTYPE_INT32, 1, LABEL_AS_IT_IS);
    } else if (is_classifier && (is_pair || is_many)) {
        trees_output_add(m, "predict", MR_DTYPE_INT64, 1,
                         is_pair ? LABEL_ABOVE_HALF : LABEL_LARGEST);
    }
    if (has_probability && !is_softmax && (is_pair || has_each)) {
        trees_output_add(m, "predict_proba", MR_DTYPE_FP32, is_pair ? 2 : m->columns,
                         is_pair ? PROBABILITY_PAIR : BEST_VALUE);
    }
}

static int outputs_describe(struct trees_model *m, struct mr_err *err)
{
    const int is_classifier = strstr(attribute(m, "scikit_learn"), "\"classifier\"") != NULL;
    const char *best = attribute(m, "best_iteration");
    const char *config = NULL;
    uint64_t length = 0;

    if (*best) {
        settings_write(m, BEST, strtoll(best, NULL, 10) + 1);
    }
    if (booster_config(m->booster, &length, &config) != 0) {
        return trees_fail(err, MR_E_INVALID, "XGBoost cannot describe the model", last_error());
    }
    if (!m->is_mlserver) {
        trees_output_add(m, "output__0", MR_DTYPE_FP32, m->columns, VALUE);
    }
    if (!is_classifier) {
        trees_output_add(m, "predict", MR_DTYPE_FP32, m->columns, BEST_VALUE);
    }
    classifier_outputs_add(
        m, strtol(config_value(config, "\"learner_model_param\":{", "\"num_class\":\""), NULL, 10),
        is_classifier, config_value(config, "\"objective\":{", "\"name\":\""));
    if (m->is_mlserver && m->signature.output_count != (is_classifier ? 2 : 1)) {
        return mr_backend_fail(err, MR_E_UNSUPPORTED,
                               "XGBoost's classifiers of several targets, or with the objective "
                               "multi:softmax, do not run as MLServer's");
    }
    return MR_OK;
}

static int features_check(struct trees_model *m, struct mr_err *err)
{
    uint64_t features = 0;

    if (booster_features(m->booster, &features) != 0) {
        return trees_fail(err, MR_E_INVALID, "XGBoost cannot describe the model", last_error());
    }
    if (features == 0 || features > INT32_MAX) {
        return mr_backend_fail(err, MR_E_INVALID, "the model has %llu features, allowed are 1..%d",
                               (unsigned long long)features, INT32_MAX);
    }
    m->input_dims[1] = (int64_t)features;
    return MR_OK;
}

/* One row, all of it missing. */
static int first_predict(struct trees_model *m, struct mr_err *err)
{
    const float *ignored = NULL;
    float *row = malloc((size_t)m->input_dims[1] * sizeof *row);

    for (int64_t i = 0; row && i < m->input_dims[1]; i++) {
        row[i] = NAN;
    }
    int rc = row ? predict(m, ALL, row, 1, &ignored, &m->columns, err)
                 : mr_backend_fail(err, MR_E_NOMEM, "out of memory");
    free(row);
    if (rc == MR_E_INTERNAL) {
        err->status = MR_E_INVALID;
    }
    return rc < 0 ? err->status : rc;
}

int trees_open(struct trees_model *m, const char *content, size_t bytes, struct mr_err *err)
{
    const int is_text = content[0] != '{' || strchr("\" \t\r\n", content[1]);
    char threads[24];
    int rc;

    if (!is_text && !whole_ubjson(content, bytes)) {
        return mr_backend_fail(err, MR_E_INVALID,
                               "XGBoost cannot open the model: the file is not whole");
    }
    snprintf(threads, sizeof threads, "%lld", (long long)trees_threads);
    log_callback_set(log_line); /* of this thread */
    if (booster_create(NULL, 0, &m->booster) != 0) {
        return trees_fail(err, MR_E_INTERNAL, "XGBoost", last_error());
    }
    m->input.dtype = MR_DTYPE_FP32;
    settings_write(m, ALL, 0);
    rc = booster_load(m->booster, content, bytes) == 0 &&
                 booster_set(m->booster, "nthread", threads) == 0
             ? MR_OK
             : trees_fail(err, MR_E_INVALID, "XGBoost cannot open the model", last_error());
    rc = rc < 0 ? rc : features_check(m, err);
    rc = rc < 0 ? rc : first_predict(m, err);
    rc = rc < 0 ? rc : outputs_describe(m, err);
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
    (void)m;
    (void)err;
    *out = NULL;
    return MR_OK;
}

void trees_instance_close(void *own)
{
    (void)own;
}
