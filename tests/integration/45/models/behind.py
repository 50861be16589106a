"""Sends more answers than a client may have unread, and behind them a call to the model `copy` whose answer it does not wait for. Then its process
ends, or, if INPUT0 is the name of a pipe, it says so by opening it, and calls the model once more. Without a text it does nothing."""
import os

import numpy as np
import triton_python_backend_utils as pb_utils


def copy(**options):
    return pb_utils.InferenceRequest(model_name="copy", requested_output_names=["OUTPUT0"],
                                     inputs=[pb_utils.Tensor("INPUT0", np.zeros(1, np.float32))]).exec(**options)


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            self.one(request.inputs()[0].as_numpy()[0].decode(), request.get_response_sender())

    def one(self, text, sender):
        if text:
            for unread in range(68):
                if unread == 60:  # the server has read so many: the rest, and the call behind them, have room where it does not read them
                    assert not copy().has_error()
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([b"x"], np.object_))]))
            assert copy(execution_timeout=0.01).has_error()
            assert pb_utils.is_model_ready("copy")  # the server has read that the call has ended
            if text == "abort":
                os.abort()
            open(text, "w").close()
            assert not copy().has_error()
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
