"""Loads, unloads and measures, in the way that its input says."""
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        if os.path.exists(os.path.join(args["model_repository"], "needs_other")):
            assert not pb_utils.is_model_ready("other")
            pb_utils.load_model(model_name="other")
            assert pb_utils.is_model_ready("other", "1")
            self.loaded = "other"
        family = pb_utils.MetricFamily("steps_total", "Steps that models take", pb_utils.MetricFamily.COUNTER)
        self.steps = family.Metric({"stage": 'a "b"'})
        self.level = pb_utils.MetricFamily("level", "Fill", pb_utils.MetricFamily.GAUGE).Metric()
        self.sizes = pb_utils.MetricFamily("sizes", "Sizes", pb_utils.MetricFamily.HISTOGRAM).Metric({"of": "x"}, [1, 2.5])

    def finalize(self):
        if getattr(self, "loaded", None):
            pb_utils.unload_model(model_name=self.loaded)

    def execute(self, requests):
        return [self.answer(request.inputs()[0].as_numpy()[0].decode()) for request in requests]

    def answer(self, word):
        verb, _, rest = word.partition(" ")
        try:
            text = getattr(self, verb)(*rest.split(" ", 1) if rest else ())
        except pb_utils.TritonModelException as e:
            text = f"refused: {e}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([str(text)], np.object_))])

    def ready(self, model, version=""):
        return pb_utils.is_model_ready(model, version)

    def load(self, model, config=""):
        pb_utils.load_model(model, config)
        return "loaded"

    def load_files(self, model, config):
        with open(__file__, "rb") as f:
            pb_utils.load_model(model_name=model, config=config, files={"file:1/model.py": f.read()})
        return "loaded"

    def unload(self, model):
        pb_utils.unload_model(model)
        return "unloaded"

    def count(self, by):
        self.steps.increment(float(by))
        return self.steps.value()

    def fill(self, to):
        self.level.set(float(to))
        self.level.increment(-1)
        return self.level.value()

    def observe(self, *values):
        for value in " ".join(values).split():
            self.sizes.observe(float(value))
        return "observed"

    def set_counter(self):
        self.steps.set(1)

    def bad(self, name):
        pb_utils.MetricFamily(name, "", pb_utils.MetricFamily.GAUGE).Metric()

    def other_kind(self):
        pb_utils.MetricFamily("level", "Fill", pb_utils.MetricFamily.COUNTER).Metric()

    def die(self):
        os._exit(3)
