"""Answers n with n times n; a number below 0 with an error."""
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.count, self.changed = 0, threading.Condition()

    def execute(self, requests):
        for request in requests:
            with self.changed:
                self.count += 1
            number = int(request.inputs()[0].as_numpy()[0])
            threading.Thread(target=self.send, args=(request.get_response_sender(), number)).start()

    def send(self, sender, number):
        if number < 0:
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("a number below 0")), FINAL)
        for i in range(number):
            answer = pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))])
            sender.send(answer, FINAL if i == number - 1 else 0)
        if number == 0:
            sender.send(flags=FINAL)
        with self.changed:
            self.count -= 1
            self.changed.notify_all()

    def finalize(self):
        with self.changed:
            self.changed.wait_for(lambda: self.count == 0)
