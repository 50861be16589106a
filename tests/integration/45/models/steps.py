"""Sends what its input says, word by word: an answer, an error, the flag for the last response. `said` is an answer with what the
last refused step raised."""
import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([text], dtype=object))])


class TritonPythonModel:
    def initialize(self, args):
        self.said = "nothing"

    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for word in request.inputs()[0].as_numpy()[0].decode().split():
                try:
                    self.step(sender, word)
                except pb_utils.TritonModelException as e:
                    self.said = str(e)

    def step(self, sender, word):
        if word == "answer":
            sender.send(answer("given"))
        elif word == "error":
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("failed")))
        elif word == "said":
            sender.send(answer(self.said))
            self.said = "nothing"
        else:
            sender.send(flags=FINAL)
