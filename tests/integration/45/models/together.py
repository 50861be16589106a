"""A decoupled model. Of the requests that run together all but the last one get the sum of their numbers at once; the last one gets
the sums of all of them when the file `go` is in the folder of the model."""
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
PAUSE = threading.Event()


def answer(*arrays):
    sums = np.array([[a.sum() for a in arrays]], np.int32)
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", sums)])


class TritonPythonModel:
    def initialize(self, args):
        self.go = os.path.join(args["model_repository"], "go")

    def execute(self, requests):
        arrays = [request.inputs()[0].as_numpy() for request in requests]
        *senders, last = [request.get_response_sender() for request in requests]
        for array, sender in zip(arrays, senders):
            sender.send(answer(array), FINAL)
        threading.Thread(target=self.answer_last, args=(last, arrays)).start()

    def answer_last(self, sender, arrays):
        while not os.path.exists(self.go) and not sender.is_cancelled():
            PAUSE.wait(0.01)
        sender.send(answer(*arrays), FINAL)
