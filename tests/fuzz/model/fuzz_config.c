/* A model's configuration on its way to READY, from any text: as config.pbtxt and as the JSON of a load
 * request; completed from a model with and without signature, normalised, checked. What passes the
 * check must survive printing and pass again. */
#include "fuzz.h"

#include "model/config/config_priv.h"
#include "plugin/plugin.h"

static void copies(Inference__ModelConfig *c)
{
    struct mr_buf text;
    Inference__ModelConfig *again = NULL;
    struct mr_config_warning warnings[4];
    size_t count = 0;

    mr_buf_init(&text, 0);
    mr_config_json(c, &text);
    REQUIRE(!text.failed);
    /* What the server prints for GET …/config loads again: `millrace model load --config` sends it. */
    if (text.len <= MR_CONFIG_MAX_BYTES) {
        struct mr_err err = {0};
        REQUIRE(mr_config_parse_json(mr_buf_view(&text), &again, &err) == MR_OK);
        REQUIRE(mr_config_check(again, true, warnings, 4, &count, &err) == MR_OK);
        mr_config_free(&again);
    }
    REQUIRE(mr_config_copy(c, &again, NULL) == MR_OK);
    mr_config_free(&again);
    mr_buf_fini(&text);
}

/* The steps of model/version/version.c without a folder and a backend. */
static void through(Inference__ModelConfig *c, bool has_batch)
{
    static const struct mr_signature nothing;
    struct mr_config_warning warnings[4];
    struct mr_err err = {0};
    size_t count = 0;

    if (mr_config_basics(c, MR_STR("m"), NULL, &err) < 0 ||
        mr_config_check_features(c, warnings, 4, &count, &err) < 0 ||
        mr_config_complete(c, &nothing, has_batch, has_batch, 4, &err) < 0 ||
        mr_config_normalize(c, &err) < 0 ||
        mr_config_check(c, true, warnings, 4, &count, &err) < 0) {
        REQUIRE(err.status < 0 && err.msg[0]);
        return;
    }
    REQUIRE(c->max_batch_size >= 0);
    copies(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_str text = mr_str_n((const char *)data, size);

    for (int json = 0; json < 2; json++) {
        for (int has_batch = 0; has_batch < 2; has_batch++) {
            Inference__ModelConfig *c = NULL;
            struct mr_err err = {0};
            int rc = json ? mr_config_parse_json(text, &c, &err)
                          : mr_config_parse_text(text, "f", &c, &err);
            REQUIRE(rc == err.status && (rc == MR_OK) == (c != NULL));
            if (rc < 0) {
                break;
            }
            (void)(json ? mr_config_json_has(text, MR_STR("max_batch_size"))
                        : mr_config_text_has(text, MR_STR("max_batch_size")));
            through(c, has_batch);
            mr_config_free(&c);
        }
    }
    return 0;
}
