"""Answers with all numbers of the sequence so far, and with their count."""
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.numbers = {}

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        numbers = pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy().ravel().tolist()
        id, start = request.correlation_id(), request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
        self.numbers[id] = numbers if start else self.numbers[id] + numbers
        outputs = {"OUTPUT0": self.numbers[id], "OUTPUT1": [len(self.numbers[id])]}
        return pb_utils.InferenceResponse([pb_utils.Tensor(n, np.array([outputs[n]], np.int32)) for n in request.requested_output_names()])
