"""The number of answers in its input, from a thread, after execute has returned."""
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            count = int(request.inputs()[0].as_numpy()[0])
            threading.Thread(target=self.send, args=(request.get_response_sender(), count)).start()

    def send(self, sender, count):
        for i in range(count):
            if sender.is_cancelled():
                break
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([i], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
