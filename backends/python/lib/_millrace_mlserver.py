"""Models of MLServer, by the package `mlserver` of the interpreter.

A model is run as one of Triton's with an input and an output, which are messages of the protocol: what the client sent and
what it gets. Types, codecs and their conversions are the package's."""
import asyncio
import concurrent.futures
import functools
import itertools
import logging
import sys
import threading

import _millrace_calls as calls
import _millrace_mlserver_batch as batching
import _millrace_mlserver_more as more
import orjson
import pydantic
import triton_python_backend_utils as pb_utils
from mlserver import MLModel
from mlserver.cloudevents import CloudEventsMiddleware
from mlserver.codecs.json import encode_to_json_bytes
from mlserver.context import model_context
from mlserver.errors import MLServerError
from mlserver.logging import logger
from mlserver.repository.load import load_model_settings
from mlserver.settings import Settings
from mlserver.types import InferenceRequest
from mlserver.utils import extract_headers, generate_uuid, insert_headers
from triton_python_backend_utils import TritonError

BYTES = pb_utils._NAMES.index("STRING")
FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
STREAMS = ("stream", "grpc_stream")
NOT_OURS = ("content-length", "transfer-encoding", "connection")  # headers that the server makes
# By statuses of HTTP; others below 500 are the caller's errors.
CODES = {404: TritonError.NOT_FOUND, 429: TritonError.UNAVAILABLE, 501: TritonError.UNSUPPORTED, 503: TritonError.UNAVAILABLE}
PENDING_MAX = 128  # executions of a model at once, of which streams of clients are three quarters at most
LOOK_S = 0.5  # how long a model that waits for something else goes on after its client has gone
EXACT = (400, 404, 500, 501, 503)  # which the server gives for these codes; others are in the answer


def runtime(file, model):
    """The class of the model whose settings are in the file."""
    settings = load_model_settings(file)
    settings.name = model.name  # the file's, or that of the folder
    metrics = more.Metrics(settings)
    implementation = settings.implementation
    batches = model.desc["max_batch_size"] > 0
    inputs = [("request", 1, False), *((route, 1, True) for route in more.routes_of(implementation))]
    lead = [-1] if batches else []
    signature = ([(name, BYTES, [*lead, size], is_optional) for name, size, is_optional in inputs],
                 [("response", BYTES, [*lead, -1], False)], 1 if batches else 0, 0, 0)
    attributes = {"settings": settings, "services": model.services, "implementation": implementation, "metrics": metrics,
                  "millrace_max_pending": max(2, PENDING_MAX // instances_of(model.config)),
                  "streams": implementation.predict_stream is not MLModel.predict_stream, "signature": signature,
                  "batches": batches and batching.batch_size(settings) > 0, "row": (1,) if batches else ()}
    return type(settings.name, (Runtime,), attributes)


class LogHandler(logging.Handler):
    """Lines of the package's logger become lines of the server's log."""

    def __init__(self, services):
        super().__init__()
        self.services = services

    def emit(self, record):
        level = 0 if record.levelno >= logging.ERROR else 1 if record.levelno >= logging.WARNING else 2
        self.services["log"](level if record.levelno >= logging.INFO else 3, self.format(record))


class Runtime:
    """The methods of TritonPythonModel.

    The event loop runs while a request does. With the first stream of a client's messages it gets a thread of its own, on which all
    later requests run beside each other, as they do in MLServer."""

    def initialize(self, _):
        logger.handlers = [LogHandler(self.services)]
        logger.setLevel(logging.INFO)
        self.events = CloudEventsMiddleware(Settings(parallel_workers=0))
        self.app = None  # of custom handlers, made for the first request of one
        self.thread, self.threads, self.stream_count = None, None, 0
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.model = self.implementation(self.settings)
        self.model.ready = self._wait(self.model.load())
        if not self.model.ready:
            raise RuntimeError(f"load() returned {self.model.ready!r}: True says that the model is ready")

    def finalize(self):
        if self.thread:
            asyncio.run_coroutine_threadsafe(self.model.unload(), self.loop).result()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join()
            self.threads.shutdown()
        else:
            self._wait(self.model.unload())
        self.loop.close()

    def execute(self, requests):
        if self.streams and not self.thread and any(r._parameters[":kind"] == "grpc_stream" for r in requests):
            self.thread = threading.Thread(target=self.loop.run_forever, name="events", daemon=True)
            self.threads = concurrent.futures.ThreadPoolExecutor(PENDING_MAX, "stream")
            self.thread.start()
        if not self.thread:
            return self._wait(self._answer_all(requests))
        for request in requests:
            request.get_response_sender()
        has_begun = threading.Event()
        asyncio.run_coroutine_threadsafe(self._answer_beside(requests, has_begun), self.loop)
        has_begun.wait()  # while the loop is blocked, this thread stands still, which the server takes for a hang
        return None

    async def _answer_beside(self, requests, has_begun):
        has_begun.set()
        try:
            with model_context(self.settings):
                await self._answer_all(requests)
        except BaseException as e:  # of all kinds, or the loop ends
            for request in requests:
                if not request._reply.is_final:
                    is_left = isinstance(e, asyncio.CancelledError) and request.is_cancelled()
                    request.get_response_sender().send(None if is_left else self._response(*failed(e, "grpc")), FINAL)

    def _wait(self, coroutine):
        with model_context(self.settings):
            return run(self.loop, coroutine)

    async def _answer_all(self, requests):
        if self.batches and len(requests) > 1:
            answers = await self._answer_joined(requests)
        else:
            answers = [await self._answer(request) for request in requests]
        if is_decoupled(requests[0]):
            for request, answer in zip(requests, answers):
                if answer is not None:
                    request.get_response_sender().send(self._response(*answer), FINAL)
            return None
        longest = max(len(answer[1]) for answer in answers)
        return [self._response(*answer, longest) for answer in answers]

    def _response(self, message, headers, pairs=0):
        """Of an answer: message and pairs of headers, or None and an error. Answers of a batch have the same number of pairs, of
        which those without a name are skipped."""
        if message is None:
            return headers[0]
        texts = [message, *itertools.chain.from_iterable(headers), *[b""] * (2 * (pairs - len(headers)))]
        data = pb_utils._services["bytes_join"](texts)
        return pb_utils.InferenceResponse([pb_utils._received_tensor("response", (0, BYTES, (*self.row, len(texts)), data))])

    async def _answer(self, request):
        """(message, headers); (None, [an error's response]); None: several were sent."""
        headers = request._parameters
        kind = headers.pop(":kind")
        headers.pop(":version")
        message = memoryview(request._raw[5][0][3])[4:]
        try:
            if kind in STREAMS and self.thread:
                return await self._send_beside(request, kind, message, headers)
            if kind in STREAMS:
                return await self._send_all(request, getattr(self, "_" + kind)(message, headers))
            return await getattr(self, "_" + kind)(message, headers)
        except Exception as e:
            return failed(e, kind)

    async def _answer_joined(self, requests):
        answers, joinable = [None] * len(requests), []
        for index, request in enumerate(requests):
            kind = request._parameters[":kind"]
            try:
                message = memoryview(request._raw[5][0][3])[4:]
                headers = {k: v for k, v in request._parameters.items() if k not in (":kind", ":version")}
                payload, *how = ONE[kind](message)
                joinable.append((index, kind, self._prepare(payload, headers), how))
            except Exception as e:
                answers[index] = failed(e, kind)
        for group in batching.groups_of([payload for _, _, payload, _ in joinable]):
            members = [joinable[i] for i in group]
            for (index, kind, _, _), answer in zip(members, await self._predict_joined(members)):
                answers[index] = answer
        return answers

    async def _predict_joined(self, members):
        """Answers to requests that fit together. If the model cannot answer them as one, each gets an answer of its own."""
        payloads = [payload for _, _, payload, _ in members]
        found = None
        if len(members) > 1:
            try:
                found = batching.split(await self.model.predict(batching.join(payloads)), payloads)
            except Exception as e:
                logger.debug(f"a batch of {len(members)} requests failed, each is run alone: {e}")
        answers = []
        for i, (_, kind, payload, how) in enumerate(members):
            try:
                answer = self._finish(found[i] if found else await self.model.predict(payload), payload)
                headers = list((extract_headers(answer) or {}).items())
                answers.append((WRITE[kind](answer, *how), headers))
            except Exception as e:
                answers.append(failed(e, kind))
        return answers

    async def _send_all(self, request, messages):
        sender = request.get_response_sender() if is_decoupled(request) else None
        try:
            async for message, headers in messages:
                if sender is None:
                    return message, headers  # the only one: predict_stream is MLModel's
                if request.is_cancelled():
                    break
                sender.send(self._response(message, headers))
        finally:
            await messages.aclose()
        sender.send(flags=FINAL)

    async def _send_beside(self, request, kind, message, headers):
        """As _send_all, while other requests run: those do not wait when the client does not read."""
        is_long = kind == "grpc_stream"
        if is_long and self.stream_count >= self.millrace_max_pending * 3 // 4:
            raise MLServerError(f"model '{self.settings.name}' has too many streams", 503)
        send = functools.partial(self.loop.run_in_executor, self.threads, request.get_response_sender().send)
        further = (self._further(request),) if is_long else ()
        messages, last = getattr(self, "_" + kind)(message, headers, *further), None
        self.stream_count += is_long
        watch = self.loop.create_task(self._watch(request, asyncio.current_task()))
        try:
            async for message, headers in messages:
                await send(self._response(message, headers), 0)
        except Exception as e:
            last = self._response(*failed(e, kind))
        finally:
            self.stream_count -= is_long
            watch.cancel()
            await messages.aclose()
        await send(last, FINAL)

    async def _watch(self, request, task):
        while not request.is_cancelled():
            await asyncio.sleep(LOOK_S)
        task.cancel()

    async def _further(self, request):
        """The client's messages after the first, each when the model asks for it."""
        while (message := await calls.next_message(self.loop, self.threads, request._reply.run.handle)) is not None:
            yield message

    def _prepare(self, payload, headers):
        insert_headers(payload, headers)
        self.events.request_middleware(payload, self.settings)
        return payload

    def _finish(self, answer, payload):
        if answer is None:
            raise MLServerError(f"Model '{self.settings.name}' returned no predictions after inference")
        answer.id = payload.id
        self.events.response_middleware(answer, self.settings)
        return answer

    async def _predict(self, payload, headers):
        """The model's answer, and the headers that go with it."""
        answer = self._finish(await self.model.predict(self._prepare(payload, headers)), payload)
        return answer, list((extract_headers(answer) or {}).items())

    async def _predict_stream(self, payload, headers, further=None):
        async def payloads():
            yield self._prepare(payload, dict(headers))
            if further:
                async for message in further:
                    later = grpc_payload(message)[0]
                    later.id = payload.id
                    yield self._prepare(later, dict(headers))

        answers = self.model.predict_stream(payloads())
        try:
            async for answer in answers:
                yield self._finish(answer, payload)
        finally:
            await answers.aclose()

    async def _infer(self, message, headers):
        answer, headers = await self._predict(*rest_payload(message), headers)
        return rest_message(answer), headers

    async def _stream(self, message, headers):
        async for answer in self._predict_stream(*rest_payload(message), headers):
            yield b"data: " + rest_message(answer) + b"\n\n", []

    async def _grpc(self, message, headers):
        payload, is_raw = grpc_payload(message)
        answer, headers = await self._predict(payload, headers)
        return grpc_message(answer, is_raw), headers

    async def _grpc_stream(self, message, headers, further=None):
        payload, is_raw = grpc_payload(message)
        async for answer in self._predict_stream(payload, headers, further):
            headers = list((extract_headers(answer) or {}).items())
            yield grpc_message(answer, is_raw), headers

    async def _metadata(self, message, headers):
        return encode_to_json_bytes((await self.model.metadata()).model_dump(exclude_unset=False)), []

    async def _grpc_metadata(self, message, headers):
        from mlserver.grpc import converters

        return converters.ModelMetadataResponseConverter.from_types(await self.model.metadata()).SerializeToString(), []

    async def _custom(self, message, headers):
        """A handler of the model's own."""
        method, path, query = (headers.pop(key) for key in (":method", ":path", ":query"))
        if self.app is None:
            self.app = more.app_of(self.model)
        status, found, body = await more.run_app(self.app, method, path, query, headers, message)
        return body, [(":status", str(status)), *(pair for pair in found if pair[0] not in NOT_OURS)]


def run(loop, coroutine):
    """As run_until_complete. A coroutine that waits for nothing, while nothing else is in the loop, is spared a turn of the loop,
    which costs more than the server's part of a small request. Loops that are not asyncio's take their turn."""
    task = loop.create_task(coroutine)
    ready = getattr(loop, "_ready", None)
    if ready is not None and len(ready) == 1 and not loop._scheduled and len(loop._selector.get_map()) == 1:  # its own pipe
        sys.set_asyncgen_hooks(loop._asyncgen_firstiter_hook, loop._asyncgen_finalizer_hook)
        asyncio._set_running_loop(loop)
        try:
            ready.popleft()._run()  # the first step of the task
        finally:
            asyncio._set_running_loop(None)
        if task.done() and not ready:
            return task.result()
    return loop.run_until_complete(task)


def instances_of(config):
    return sum(group.get("count") or 1 for group in config.get("instance_group", ())) or 1


def is_decoupled(request):
    return request._reply.run.is_decoupled


def rest_payload(message):
    """The request, as the only one."""
    found = orjson.loads(message) if message else None
    if found is None:
        raise Unprocessable([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])
    payload = InferenceRequest.model_validate(found, from_attributes=True)
    if payload.id is None:
        payload.id = generate_uuid()
    return (payload,)


def rest_message(answer):
    return encode_to_json_bytes(as_dict(answer))


def grpc_payload(message):
    """The request, and whether its tensors are bytes, as those of the answer are then to be."""
    from mlserver.grpc import converters, dataplane_pb2

    request = dataplane_pb2.ModelInferRequest.FromString(message)
    return converters.ModelInferRequestConverter.to_types(request), bool(request.raw_input_contents)


def grpc_message(answer, is_raw):
    from mlserver.grpc import converters

    return converters.ModelInferResponseConverter.from_types(answer, use_raw=is_raw).SerializeToString()


def as_dict(answer):
    """As model_dump, but data are not visited element by element."""
    found = {"model_name": answer.model_name, "model_version": answer.model_version, "id": answer.id,
             "parameters": dump(answer.parameters), "outputs": [
                 {"name": o.name, "shape": o.shape, "datatype": o.datatype, "parameters": dump(o.parameters),
                  "data": getattr(o.data, "root", o.data)} for o in answer.outputs]}
    for output in found["outputs"]:
        without_none(output)
    return without_none(found)


def dump(parameters):
    """As model_dump, which takes longer for what most have."""
    if parameters is None:
        return None
    if parameters.model_extra or parameters.headers:
        return parameters.model_dump()
    return {} if parameters.content_type is None else {"content_type": parameters.content_type}


def without_none(members):
    for key in [k for k, v in members.items() if v is None]:
        del members[key]
    return members


# How requests of a kind are read and their answers written, of kinds that may be joined.
ONE = {"infer": rest_payload, "grpc": grpc_payload}
WRITE = {"infer": rest_message, "grpc": grpc_message}


class Unprocessable(Exception):
    """A request over REST that is not of the protocol; its argument is a list, as pydantic makes it."""


def failed(e, kind):
    """An answer with the status and the text that MLServer gives for an exception."""
    is_rest = not kind.startswith("grpc")
    if isinstance(e, MLServerError):
        logger.exception(e)
        if is_rest and e.status_code not in EXACT and 400 <= e.status_code <= 599:
            return encode_to_json_bytes({"error": str(e)}), [(":status", str(e.status_code))]
        other = TritonError.INTERNAL if e.status_code >= 500 else TritonError.INVALID_ARG
        return failure(CODES.get(e.status_code, other), str(e))
    if isinstance(e, orjson.JSONDecodeError) and is_rest:
        return unprocessable([{"type": "json_invalid", "loc": ["body", e.pos], "msg": "JSON decode error", "input": {},
                               "ctx": {"error": e.msg}}])
    if isinstance(e, Unprocessable):
        return unprocessable(e.args[0])
    if isinstance(e, pydantic.ValidationError) and e.title == InferenceRequest.__name__:
        if is_rest:
            return unprocessable([{**d, "loc": ["body", *d["loc"]]} for d in e.errors(include_url=False)])
        return failure(TritonError.INVALID_ARG, "; ".join(f"{'.'.join(map(str, d['loc']))}: {d['msg']}" for d in e.errors()[:3]))
    logger.exception(e)
    return failure(TritonError.INTERNAL, f"{type(e).__module__}.{type(e).__qualname__}: {e}")


def unprocessable(details):
    return orjson.dumps({"detail": details}, default=str), [(":status", "422")]


def failure(code, text):
    return None, [pb_utils.InferenceResponse(error=TritonError(text, code))]
