"""What a model asks of the server: other models' answers, their control, metrics."""
import asyncio
import contextvars
import os
import time

CODES = {-1: 0, -7: 1, -3: 2, -2: 3, -5: 4, -6: 5, -4: 6, -8: 7}  # of TritonError, by status; all others: INTERNAL
CANCELLED, TIMED_OUT = -8, -9
KINDS = {str: 0, int: 1, bool: 2, float: 3}  # of parameters, by the types of their values
READ = (str, int, lambda text: text == "true", float)  # by the kind
CALLS_MAX = 256  # of a worker

services = pb_utils = None  # set by _millrace_host

# Executions that have begun and not ended, the newest last. Calls of other models are made for one of them: that of the
# calling code, or, on a thread of the model's own, the newest.
running = []
current = contextvars.ContextVar("current", default=None)


def _handle():
    run = current.get()
    if run is not None and run.handle is not None:
        return run.handle
    if running and running[-1].handle is not None:
        return running[-1].handle
    raise pb_utils.TritonModelException("a request to another model is made while a request is executed, or its response "
                                        "sender is open")


def _begin(request):
    """A call, for the execution that runs now, or the one whose response sender is open."""
    handle, part = _handle(), pb_utils._part
    inputs = [part(tensor._name, tensor) for tensor in request._inputs]
    parameters, kinds = packed(request._parameters) if request._parameters else ([], b"")
    correlation = request._correlation
    is_text = isinstance(correlation, str)
    version = request._version
    try:
        return services["call"](
            handle, request._model, "" if version in (-1, "", None) else str(version), request._id, inputs,
            request._outputs, parameters, kinds, 0, int(request._timeout), 0 if is_text else correlation,
            correlation if is_text else "", int(request._flags))
    except RuntimeError as e:
        raise pb_utils.TritonModelException(str(e)) from None


def packed(parameters):
    """As the backend takes them: keys and values in turn, and kinds."""
    texts = [text for key, value in parameters.items() for text in (key, text_of(value))]
    return texts, bytes(KINDS[type(value)] for value in parameters.values())


def text_of(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def _response(answer):
    status, message, _, outputs, _, parameters = answer
    if status < 0:
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(message, CODES.get(status, pb_utils.TritonError.INTERNAL)))
    return pb_utils._received_response(outputs, {key: READ[kind](text) for key, text, kind in parameters} if parameters else {})


def _timed_out(seconds):
    return (TIMED_OUT, f"no answer of the other model within {seconds} s", True, [], 0, [])


class Responses:
    """The answers of a decoupled model, as they come."""

    def __init__(self, request, timeout):
        self._call, self._timeout, self._is_over = _begin(request), timeout, False

    def __iter__(self):
        return self

    def __next__(self):
        if self._is_over:
            raise StopIteration
        answer = services["call_next"](self._call, int((self._timeout or 0) * 1e9))
        if answer is None:
            answer = _timed_out(self._timeout)
        self._is_over = answer[2]
        if self._is_over:
            self._call = None
            if answer[0] == 0 and not answer[3]:
                raise StopIteration  # the end, without another answer
        return _response(answer)

    def cancel(self):
        """Answers that have not come are not wanted."""
        self._is_over, self._call = True, None


def run(request, decoupled, execution_timeout):
    """execution_timeout: in seconds, None for none."""
    if decoupled:
        return Responses(request, execution_timeout)
    call = _begin(request)
    until = time.monotonic() + execution_timeout if execution_timeout else None
    found = None
    while True:
        left = max(1, int((until - time.monotonic()) * 1e9)) if until else 0
        answer = services["call_next"](call, left) or _timed_out(execution_timeout)
        if answer[2]:
            return _response(_last(answer, found))
        found = _first(request, answer, found)


def _last(answer, found):
    """Which of the last answer and an earlier one is the only one: a decoupled model ends with one that is empty."""
    return answer if found is None or answer[0] < 0 or answer[3] else found


def _first(request, answer, found):
    if found is not None:
        raise pb_utils.TritonModelException(f"model '{request._model}' gives several answers: exec(decoupled=True)")
    return answer


class Notes:
    """Tells an event loop which of its calls have answers, by a pipe that it polls. No thread waits for them."""

    def __init__(self, loop):
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.waiting = {}  # futures by tokens, which are numbers
        self.last = 0
        self.room = asyncio.Semaphore(CALLS_MAX)
        loop.add_reader(self.reader, self._read)

    def __del__(self):
        os.close(self.reader)
        os.close(self.writer)

    def _read(self):
        for token in memoryview(os.read(self.reader, 8 * CALLS_MAX)).cast("Q"):
            future = self.waiting.get(token)
            if future is not None and not future.done():
                future.set_result(None)

    async def next(self, call, seconds):
        """As call_next; None: no limit."""
        self.last = token = self.last + 1
        if not services["call_notify"](call, self, self.writer, token):
            self.waiting[token] = future = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(future, seconds)
            except asyncio.TimeoutError:
                return None
            finally:
                del self.waiting[token]
        return services["call_next"](call, 1)


def notes_of(loop):
    """They are kept by the event loop: what waits for room in them refers to it, and ends with it."""
    notes = getattr(loop, "_millrace_notes", None)
    if notes is None:
        notes = loop._millrace_notes = Notes(loop)
    return notes


async def run_async(loop, request, decoupled, execution_timeout):
    if decoupled:
        return Responses(request, execution_timeout)
    notes = notes_of(loop)
    until = time.monotonic() + execution_timeout if execution_timeout else None
    found = None
    async with notes.room:
        call = _begin(request)
        while True:
            left = max(0, until - time.monotonic()) if until else None
            answer = await notes.next(call, left) or _timed_out(execution_timeout)
            if answer[2]:
                return _response(_last(answer, found))
            found = _first(request, answer, found)


async def next_message(loop, threads, handle):
    """The next message of the stream whose first one the execution has, as a memoryview; None: none follows. The thread of the loop does
    not wait where the call has to, while the client leaves answers unread. Errors: CancelledError, the client has gone."""
    call = await loop.run_in_executor(threads, services["call"], handle, ":feed", "", "", [], [], [], b"", 0, 0, 0, "", 0)
    status, message, _, outputs, _, _ = await notes_of(loop).next(call, None)
    if status == CANCELLED:
        raise asyncio.CancelledError
    if status < 0:
        raise pb_utils.TritonModelException(message)
    return memoryview(outputs[0][3]) if outputs else None


LOAD, UNLOAD, READY = 1, 2, 3


def _control(kind, model, version="", config=None, files=(), flags=0):
    """What the server answers."""
    try:
        call = services["control"](kind, pb_utils._text(model, "the name of a model"), version, config, list(files), flags)
        answer = services["call_next"](call, 0)
    except (RuntimeError, ValueError) as e:
        raise pb_utils.TritonModelException(str(e)) from None
    if answer is None:
        raise pb_utils.TritonModelException(f"the server does not answer about model '{model}': this one is being unloaded")
    if answer[0] < 0:
        raise pb_utils.TritonModelException(answer[1])
    return answer[4]


def load_model(model_name, config=None, files=None):
    """Loads a model, or loads it again. config: ModelConfig as JSON in place of that of its folder; files: contents by
    "file:1/model.onnx", in place of its folder's. Returns when it is ready."""
    _control(LOAD, model_name, config=config or None,
             files=[(k.removeprefix("file:"), v) for k, v in (files or {}).items()])


def unload_model(model_name, unload_dependents=False):
    _control(UNLOAD, model_name, flags=1 if unload_dependents else 0)


def is_model_ready(model_name, model_version=""):
    return bool(_control(READY, model_name, "" if model_version in (-1, None) else str(model_version)))


# ---- metrics ----

COUNTER, GAUGE, HISTOGRAM = range(3)


class Metric:
    """A time series of the server's /metrics, made by MetricFamily.Metric. One of the same family and labels is the same in
    all instances and models."""

    def __init__(self, family, labels, buckets):
        texts = [str(text) for pair in (labels or {}).items() for text in pair]
        try:
            self._metric = services["metric"](family._kind, family._name, family._description, texts,
                                              [float(b) for b in buckets or ()])
        except RuntimeError as e:
            raise pb_utils.TritonModelException(str(e)) from None
        self._family, self._services = family, services

    def _check(self, what, is_allowed):
        if not is_allowed:
            raise pb_utils.TritonModelException(f"metric '{self._family._name}' is a {self._family._kind_name()}: {what}")

    def increment(self, value):
        self._check("it is not incremented, but observes values", self._family._kind != HISTOGRAM)
        self._check("its increment is 0 or more", self._family._kind == GAUGE or value >= 0)
        self._services["metric_add"](self._metric, value)

    def set(self, value):
        self._check("only a gauge is set", self._family._kind == GAUGE)
        self._services["metric_set"](self._metric, value)

    def observe(self, value):
        self._check("only a histogram observes values", self._family._kind == HISTOGRAM)
        self._services["metric_add"](self._metric, value)

    def value(self):
        self._check("it has no single value", self._family._kind != HISTOGRAM)
        return self._services["metric_value"](self._metric)


class MetricFamily:
    """A name, a description, and a kind of metrics."""

    COUNTER, GAUGE, HISTOGRAM = COUNTER, GAUGE, HISTOGRAM

    def __init__(self, name, description, kind):
        if kind not in (COUNTER, GAUGE, HISTOGRAM):
            raise pb_utils.TritonModelException(f"metric family '{name}' is COUNTER, GAUGE or HISTOGRAM, not {kind!r}")
        self._name, self._description, self._kind = name, description, kind

    def _kind_name(self):
        return ("counter", "gauge", "histogram")[self._kind]

    def Metric(self, labels=None, buckets=None):
        return Metric(self, labels, buckets)
