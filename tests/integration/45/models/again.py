"""Gets its requests several times: as often as INPUT0 says; below 0, until so many requests are in one execution. OUTPUT0 is how often it
was, the most requests that there were in one execution of it, and the flags of the first and the last time. A decoupled model answers each time
with the number of the time."""
import json

import numpy as np
import triton_python_backend_utils as pb_utils

START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.seen = {}
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        answers = [self.one(request, len(requests)) for request in requests]
        return None if self.is_decoupled else answers

    def one(self, request, together):
        id, wanted = request.correlation_id(), int(request.inputs()[0].as_numpy().ravel()[0])
        if request.flags() & START:
            self.seen[id] = [0, 0, request.flags()]
        seen = self.seen[id]
        seen[0], seen[1] = seen[0] + 1, max(seen[1], together)
        if wanted == 0:
            raise ValueError("zero times")
        is_last = seen[0] >= wanted if wanted > 0 else together >= -wanted
        answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([[*seen, request.flags()]], np.int32))])
        if self.is_decoupled:
            request.get_response_sender().send(answer, FINAL if is_last else 0)
        if is_last:
            del self.seen[id]
            return answer
        request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return answer if wanted == 99 else None
