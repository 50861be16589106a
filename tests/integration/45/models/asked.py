"""Evaluates the Python text in its input: the expression, or what the statements leave in `out`."""
import asyncio
import json
import os
import subprocess
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils


def call(model, text, names=("OUTPUT0",), **options):
    """What a model of this kind answers, or its error."""
    execution = {k: options.pop(k) for k in ("execution_timeout",) if k in options}
    response = pb_utils.InferenceRequest(model_name=model, requested_output_names=list(names), **options,
                                         inputs=[pb_utils.Tensor("INPUT0", np.array([text.encode()], np.object_))]).exec(**execution)
    if response.has_error():
        return f"{response.error().code()}: {response.error().message()}"
    return response.output_tensors()[0].as_numpy()[0].decode()


class TritonPythonModel:
    def initialize(self, args):
        self.args, self.config = args, json.loads(args["model_config"])
        self.loop = asyncio.get_event_loop()

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        text = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().ravel()[0].decode()
        names = {**globals(), "request": request, "self": self}
        try:
            out = eval(text, names)
        except SyntaxError:
            exec(text, names)
            out = names.get("out")
        except pb_utils.TritonModelException as e:
            out = f"refused: {e}"
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([str(out).encode()], np.object_))])
