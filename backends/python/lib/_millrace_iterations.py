"""Requests that a model gives back to get them again (TRITONSERVER_REQUEST_RELEASE_RESCHEDULE), of one instance of a model with
`sequence_batching { iterative_sequence: true }`.

Executions of such a model last until their requests have their answers, and 32 of them are open at once. Each new request waits
here with those that came back, and `execute` gets as many of them as a batch may have, the one that has waited longest first. It runs
on a thread of its own, one call at a time."""
import collections
import inspect
import itertools
import threading

import triton_python_backend_utils as pb_utils

CANCELLED = -8  # a status of the backend's interface
START = pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START


class Iterations:
    def __init__(self, instance):
        self.instance, self.most = instance, max(1, instance.model.config.get("max_batch_size", 0))
        self.waiting, self.changed = collections.deque(), threading.Condition()
        self.numbers = itertools.count(1)
        self.is_closed = False
        self.thread = threading.Thread(target=self._work, name="execute", daemon=True)
        self.thread.start()

    def add(self, requests):
        """New ones. Each is a sequence of its own, whose number is made up if it has none."""
        for request in requests:
            request._flags |= START
            request._correlation = request._correlation or next(self.numbers)
        self._queue(requests)

    def close(self):
        with self.changed:
            self.is_closed = True
            self.changed.notify()
        self.thread.join()

    def _queue(self, requests):
        with self.changed:
            self.waiting.extend(requests)
            self.changed.notify()

    def _work(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.waiting or self.is_closed)
                if not self.waiting:
                    return
                batch = [self.waiting.popleft() for _ in range(min(self.most, len(self.waiting)))]
            self._queue(self._run(batch))
            del batch  # what the model drops is noticed by its reply

    def _run(self, batch):
        """Those that come back."""
        instance, again = self.instance, []
        before = instance.enter(batch[0]._reply.run)
        try:
            answers = instance.run(batch)
            if inspect.iscoroutine(answers):
                answers = instance._await(answers)
            again = [request for request in batch if request._comes_back]
            self._take(batch, answers)
        except BaseException as e:
            instance._fail(batch, e)
            again = []
        finally:
            instance.leave(before)
        instance._end([request for request in batch if request not in again])
        return [request for request in again if self._comes_back(request)]

    def _comes_back(self, request):
        request._comes_back, request._flags = False, 0
        if request.is_cancelled():
            request._reply.fail(CANCELLED, "the request was cancelled")
            return False
        return True

    def _take(self, batch, answers):
        for request, answer in zip(batch, self.instance.answers_of(batch, answers)):
            if request._comes_back and (answer is not None or request._reply.is_final):
                raise pb_utils.TritonModelException("a request that is to be scheduled again has no final response")
            if answer is not None:
                request._reply.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
