"""Adds up the numbers of each sequence. OUTPUT0 has the sum and the process; OUTPUT1 what the request says of its sequence, by its
control inputs, if the configuration has any, and by itself."""
import json
import os

import numpy as np
import triton_python_backend_utils as pb_utils

START, END = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}
        batching = json.loads(args["model_config"])["sequence_batching"]
        self.controls = [c["name"] for c in batching["control_input"]]

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        number = int(pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().ravel()[0])
        id, flags = request.correlation_id(), request.flags()
        self.sums[id] = number + (0 if flags & START else self.sums[id])
        said = {name: self.value(request, name) for name in self.controls} | {"id": id, "flags": flags}
        answer = [self.sums[id], os.getpid()]
        if flags & END:
            del self.sums[id]
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([answer], np.int64)),
                                           pb_utils.Tensor("OUTPUT1", np.array([[json.dumps(said).encode()]], np.object_))])

    def value(self, request, name):
        value = pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]
        return value.decode() if isinstance(value, bytes) else value.item()
