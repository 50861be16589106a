"""Sends IN element by element, each as OUT with its position as IDX: from a thread, or, if WAIT is set, before execute returns."""
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            thread = threading.Thread(target=self.send, args=(request.get_response_sender(), self.array(request, "IN")))
            thread.start()
            if self.array(request, "WAIT")[0]:
                thread.join()

    def array(self, request, name):
        return pb_utils.get_input_tensor_by_name(request, name).as_numpy()

    def send(self, sender, numbers):
        for i, number in enumerate(numbers):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("IDX", np.array([i], np.uint32)),
                                                    pb_utils.Tensor("OUT", np.array([number], np.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
