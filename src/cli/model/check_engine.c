#include "check_engine.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cli/serve/opt_serve.h"
#include "engine/wire.h"
#include "flow/flow.h"
#include "process/confine.h"

#define STOP_MOST_NS (60 * MR_NS_PER_S)

int check_engine_start(struct mr_engine **out, struct mr_models_options *models, struct mr_err *err)
{
    /* backends that would run in this process */
    static const char *const placements[] = {"fault=process", "identity=process",
                                             "lightgbm=process", "onnxruntime=process",
                                             "xgboost=process"};
    struct mr_engine_options o = {.sched = {.max_queue_size = 16, .records = &mr_wire_records}};
    const char **dirs = mr_default_backend_dirs();
    char *worker = mr_default_worker_program();
    size_t failed;
    int rc;

    models->control = MR_MODEL_CONTROL_EXPLICIT;
    models->retry_pause_ns = 0;
    models->backend_dirs = dirs;
    while (dirs[models->backend_dir_count]) {
        models->backend_dir_count++;
    }
    models->backend_placements = placements;
    models->backend_placement_count = sizeof placements / sizeof *placements;
    models->worker_program = worker;
    models->worker_confine = MR_CONFINE_ALL;
    models->maker.open = models->maker.open ? models->maker.open : mr_flow_open;
    o.models = *models;
    MR_TRY(mr_engine_new(out, &o, err));
    MR_TRY(mr_models_start(mr_engine_models(*out), &failed, err));
out:
    mr_free(worker);
    mr_free(dirs);
    return rc;
}

void check_engine_stop(struct mr_engine **e)
{
    if (*e) {
        mr_engine_stop(*e, STOP_MOST_NS);
        mr_engine_free(e);
    }
}
