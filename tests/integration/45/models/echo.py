"""Sends its input back, and keeps the arrays of all requests but those whose id is "forget"."""
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = []

    def execute(self, requests):
        responses = []
        for request in requests:
            array = request.inputs()[0].as_numpy()
            if request.request_id() == "recall":
                array = self.kept[0]
            if request.request_id() != "forget":
                self.kept.append(array)
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", array)]))
        return responses
