"""Answers with the parameters that its input says, as JSON: an object for each answer, one or, if it is decoupled, any number."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        if not self.is_decoupled:
            return [self.answer(self.said(request)[0], len(requests)) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            for parameters in self.said(request):
                sender.send(self.answer(parameters, 1))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def said(self, request):
        return json.loads(request.inputs()[0].as_numpy().ravel()[0])

    def answer(self, parameters, count):
        """With the number of requests that were executed at once."""
        try:
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[count]], np.int32))], parameters=parameters)
        except pb_utils.TritonModelException as e:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(e)))
