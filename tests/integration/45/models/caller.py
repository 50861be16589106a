"""Calls other models, in the way that its input selects."""
import asyncio
import os
import tempfile
import threading

import numpy as np
import triton_python_backend_utils as pb_utils


def add_sub(value, model="add_sub", **options):
    inputs = [pb_utils.Tensor(f"INPUT{i}", np.full((1, 4), v, np.float32)) for i, v in enumerate((value, 2))]
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"], inputs=inputs, **options)


def first(response):
    if response.has_error():
        return f"{response.error().code()}: {response.error().message()}"
    return float(response.output_tensors()[0].as_numpy().ravel()[0])


class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(getattr(self, request.inputs()[0].as_numpy()[0].decode())(request)) for request in requests]

    def answer(self, value):
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([str(value)], np.object_))])

    def sync(self, request):
        return first(add_sub(1).exec())

    def several(self, request):
        async def ask():
            return await asyncio.gather(*[add_sub(i).async_exec() for i in range(20)])
        return [first(r) for r in asyncio.run(ask())]

    def many(self, request):
        """Calls that are open at once, in two event loops, take one thread together, at most."""
        async def ask(i):
            value = first(await add_sub(i).async_exec())
            return value, len(os.listdir("/proc/self/task"))

        async def ask_all():
            return await asyncio.gather(*[ask(i) for i in range(400)])
        before = len(os.listdir("/proc/self/task"))
        found = [asyncio.run(ask_all()) for _ in range(2)]
        assert all([value for value, _ in answers] == [i + 2 for i in range(400)] for answers in found)
        return max(threads for answers in found for _, threads in answers) - before <= 1

    def coroutines(self, request):
        """Answers of several kinds, by coroutines beside each other."""
        def ask(model, array):
            return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)])

        async def refused():
            return first(await add_sub(1, "nobody").async_exec())

        async def large():
            array = np.arange(3 << 20, dtype=np.float32)
            return bool(((await ask("copy", array).async_exec()).output_tensors()[0].as_numpy() == array).all())

        async def decoupled():
            return [int(first(r)) for r in await ask("countdown", np.array([3], np.int32)).async_exec(decoupled=True)]

        async def several():
            try:
                await ask("countdown", np.array([3], np.int32)).async_exec()
            except pb_utils.TritonModelException as e:
                return str(e)

        async def all_of_them():
            return await asyncio.gather(refused(), large(), decoupled(), several())
        return asyncio.run(all_of_them())

    def large(self, request):
        """Tensors beyond a slot's room, there and back."""
        array = np.arange(3 << 20, dtype=np.float32)
        response = pb_utils.InferenceRequest(model_name="copy", requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)]).exec()
        found = response.output_tensors()[0].as_numpy()
        found += 1  # it is the model's own
        return bool((found == array + 1).all())

    def deep(self, request):
        """As many dimensions as a model may have."""
        array = np.arange(6, dtype=np.float32).reshape((1,) * 30 + (2, 3))
        response = pb_utils.InferenceRequest(model_name="deep", requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)]).exec()
        found = response.output_tensors()[0].as_numpy()
        return found.shape == array.shape and bool((found == array).all())

    def strings(self, request):
        array = np.array(["a", "", "ü" * 1000], np.object_)
        response = pb_utils.InferenceRequest(model_name="texts", requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", array)]).exec()
        return [len(t.decode()) for t in response.output_tensors()[0].as_numpy()]

    def unknown(self, request):
        return first(add_sub(1, "nobody").exec())

    def refused(self, request):
        return first(pb_utils.InferenceRequest(model_name="add_sub", requested_output_names=["OUTPUT0"],
                                               inputs=[pb_utils.Tensor("INPUT0", np.zeros((1, 4), np.float32))]).exec())

    def itself(self, request):
        return first(pb_utils.InferenceRequest(model_name="m", requested_output_names=["OUTPUT0"],
                                               inputs=[pb_utils.Tensor("INPUT0", np.array([b"sync"], np.object_))]).exec())

    def round_trip(self, request):
        """Through another model, back to this one."""
        response = pb_utils.InferenceRequest(model_name="other", requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", np.array([b"back"], np.object_))]).exec()
        return response.output_tensors()[0].as_numpy()[0].decode()

    def back(self, request):
        response = pb_utils.InferenceRequest(model_name="m", requested_output_names=["OUTPUT0"],
                                             inputs=[pb_utils.Tensor("INPUT0", np.array([b"sync"], np.object_))]).exec()
        return first(response)

    def decoupled(self, request):
        ask = pb_utils.InferenceRequest(model_name="countdown", requested_output_names=["OUTPUT0"],
                                        inputs=[pb_utils.Tensor("INPUT0", np.array([300], np.int32))])
        return [int(first(r)) for r in ask.exec(decoupled=True)] == list(range(300))

    def stopped(self, request):
        """Takes three answers of very many."""
        responses = self.endless()
        found = [int(first(next(responses))) for _ in range(3)]
        responses.cancel()
        return found

    def behind(self, text):
        return pb_utils.InferenceRequest(model_name="behind", requested_output_names=["OUTPUT0"],
                                         inputs=[pb_utils.Tensor("INPUT0", np.array([text.encode()], np.object_))]
                                         ).exec(decoupled=True)

    def call_of_the_dead(self, request):
        responses = self.behind("abort")
        next(responses)
        list(self.behind(""))  # by the next process
        return [r.error().message() for r in responses if r.has_error()]

    def ended_call(self, request):
        with tempfile.TemporaryDirectory() as folder:
            ended = os.path.join(folder, "ended")
            os.mkfifo(ended)
            responses = self.behind(ended)
            next(responses)
            open(ended).close()  # when the other one opens it
        return [r.error().message() for r in responses if r.has_error()]

    def forgetful(self, request):
        """Leaves the answers of a stream unread, and stands still; the next process answers."""
        mark = __file__ + ".forgotten"
        if os.path.exists(mark):
            return "again"
        open(mark, "w").close()
        responses = self.endless()
        next(responses)
        threading.Event().wait()

    def endless(self):
        ask = pb_utils.InferenceRequest(model_name="countdown", requested_output_names=["OUTPUT0"],
                                        inputs=[pb_utils.Tensor("INPUT0", np.array([1 << 30], np.int32))])
        return ask.exec(decoupled=True)

    def patient(self, request):
        return first(self.held().exec(execution_timeout=0.01))

    def patient_coroutine(self, request):
        return first(asyncio.run(self.held().async_exec(execution_timeout=0.01)))

    def queued(self, request):
        return first(self.held(timeout=1000).exec())

    def held(self, **options):
        return pb_utils.InferenceRequest(model_name="held", requested_output_names=["OUTPUT0"], parameters={},
                                         inputs=[pb_utils.Tensor("INPUT0", np.zeros(1, np.int32))], **options)
