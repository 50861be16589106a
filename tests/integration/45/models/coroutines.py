"""A decoupled model whose execute is a coroutine: it answers when as many requests are open as the request says. A
number below 0 is an exception."""
import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.open = []

    async def execute(self, requests):
        for request in requests:
            count = int(request.inputs()[0].as_numpy()[0])
            if count < 0:
                raise ValueError("below 0")
            event = asyncio.Event()
            self.open.append(event)
            if len(self.open) >= count:
                for waiting in self.open:
                    waiting.set()
                self.open = []
            await event.wait()
            sender = request.get_response_sender()
            for i in range(3):
                await asyncio.sleep(0)
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([i], np.int32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
