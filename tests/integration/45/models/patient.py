"""Waits until nobody waits for its answer, and then until a file is there: INPUT0 is the name of a folder in which the files `begun` and
`cancelled` say how far it is. `go` in it ends the wait, too. Any other text is answered. If the model is decoupled, it waits in a thread."""
import json
import os
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
PAUSE = threading.Event()


def write(folder, name):
    open(os.path.join(folder, name), "w").close()


def wait(folder, is_cancelled):
    write(folder, "begun")
    while not os.path.exists(os.path.join(folder, "go")):
        if is_cancelled():
            write(folder, "cancelled")
            break
        PAUSE.wait(0.01)


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([text.encode()], np.object_))])


class TritonPythonModel:
    def initialize(self, args):
        self.done = []
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        if not self.is_decoupled:
            return [self.one(request) for request in requests]
        for request in requests:
            threading.Thread(target=self.send, args=(request.get_response_sender(), self.text(request))).start()

    def text(self, request):
        return request.inputs()[0].as_numpy().ravel()[0].decode()

    def one(self, request):
        text = self.text(request)
        self.done.append(request.request_id())
        if os.path.isdir(text):
            wait(text, request.is_cancelled)
        return answer(" ".join(self.done))

    def send(self, sender, text):
        if os.path.isdir(text):
            sender.send(answer("begun"))
            wait(text, sender.is_cancelled)
        sender.send(answer(text), FINAL)
