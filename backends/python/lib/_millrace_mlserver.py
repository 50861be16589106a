"""Models of MLServer, by the package `mlserver` of the interpreter.

A model is run as one of Triton's with an input and an output, which are messages of the protocol: what the client sent and
what it gets. Types, codecs and their conversions are the package's."""
import asyncio
import logging
import os

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
# By statuses of HTTP; others below 500 are the caller's errors.
CODES = {404: TritonError.NOT_FOUND, 429: TritonError.UNAVAILABLE, 501: TritonError.UNSUPPORTED, 503: TritonError.UNAVAILABLE}


def runtime(file, model):
    """The class of the model whose settings are in the file."""
    settings = load_model_settings(file)
    settings.name = model.name  # the file's, or that of the folder
    implementation = settings.implementation
    attributes = {"settings": settings, "services": model.services, "implementation": implementation,
                  "streams": implementation.predict_stream is not MLModel.predict_stream,
                  "signature": ([("request", BYTES, [1], False)], [("response", BYTES, [-1], False)], 0, 0, 0)}
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
    """The methods of TritonPythonModel."""

    def initialize(self, _):
        logger.handlers = [LogHandler(self.services)]
        logger.setLevel(logging.INFO)
        self.events = CloudEventsMiddleware(Settings(parallel_workers=0))
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self.model = self.implementation(self.settings)
        self.model.ready = self._wait(self.model.load())
        if not self.model.ready:
            raise RuntimeError(f"load() returned {self.model.ready!r}: True says that the model is ready")

    def finalize(self):
        self._wait(self.model.unload())
        self.loop.close()

    def execute(self, requests):
        return self._wait(self._answer_all(requests))

    def _wait(self, coroutine):
        with model_context(self.settings):
            return self.loop.run_until_complete(coroutine)

    async def _answer_all(self, requests):
        answers = [await self._answer(request) for request in requests]
        if not is_decoupled(requests[0]):
            return answers
        for request, answer in zip(requests, answers):
            if answer is not None:
                request.get_response_sender().send(answer, FINAL)

    async def _answer(self, request):
        """The response to a request; None: several were sent."""
        headers = request._parameters
        kind = headers.pop(":kind")
        headers.pop(":version")
        message = memoryview(request._raw[5][0][3])[4:]
        try:
            if kind in STREAMS:
                return await self._send_all(request, getattr(self, "_" + kind)(message, headers))
            return response(*await getattr(self, "_" + kind)(message, headers))
        except MLServerError as e:
            logger.exception(e)
            other = TritonError.INTERNAL if e.status_code >= 500 else TritonError.INVALID_ARG
            return failure(CODES.get(e.status_code, other), str(e))
        except pydantic.ValidationError as e:
            return failure(TritonError.INVALID_ARG, "; ".join(f"{'.'.join(map(str, d['loc']))}: {d['msg']}" for d in e.errors()[:3]))
        except orjson.JSONDecodeError as e:
            return failure(TritonError.INVALID_ARG, f"JSON decode error: {e}")
        except Exception as e:
            logger.exception(e)
            return failure(TritonError.INTERNAL, f"{type(e).__module__}.{type(e).__qualname__}: {e}")

    async def _send_all(self, request, messages):
        sender = request.get_response_sender() if is_decoupled(request) else None
        try:
            async for message in messages:
                if sender is None:
                    return response(message, {})  # the only one: predict_stream is MLModel's
                if request.is_cancelled():
                    break
                sender.send(response(message, {}))
        finally:
            await messages.aclose()
        sender.send(flags=FINAL)

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
        return answer, extract_headers(answer) or {}

    async def _predict_stream(self, payload, headers):
        async def payloads():
            yield self._prepare(payload, headers)

        answers = self.model.predict_stream(payloads())
        try:
            async for answer in answers:
                yield self._finish(answer, payload)
        finally:
            await answers.aclose()

    async def _infer(self, message, headers):
        answer, headers = await self._predict(rest_payload(message), headers)
        return encode_to_json_bytes(as_dict(answer)), headers

    async def _stream(self, message, headers):
        async for answer in self._predict_stream(rest_payload(message), headers):
            yield b"data: " + encode_to_json_bytes(as_dict(answer)) + b"\n\n"

    async def _grpc(self, message, headers):
        payload, is_raw = grpc_payload(message)
        answer, headers = await self._predict(payload, headers)
        return grpc_message(answer, is_raw), headers

    async def _grpc_stream(self, message, headers):
        payload, is_raw = grpc_payload(message)
        async for answer in self._predict_stream(payload, headers):
            extract_headers(answer)
            yield grpc_message(answer, is_raw)

    async def _metadata(self, message, headers):
        return encode_to_json_bytes((await self.model.metadata()).model_dump(exclude_unset=False)), {}


def is_decoupled(request):
    return request._reply.run.is_decoupled


def rest_payload(message):
    payload = InferenceRequest.model_validate(orjson.loads(message))
    if payload.id is None:
        payload.id = generate_uuid()
    return payload


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
    return None if parameters is None else parameters.model_dump()


def without_none(members):
    for key in [k for k, v in members.items() if v is None]:
        del members[key]
    return members


def response(message, headers):
    texts = [message, *(text for pair in headers.items() for text in pair)]
    data = pb_utils._services["bytes_join"](texts)
    return pb_utils.InferenceResponse([pb_utils.Tensor._received("response", (0, BYTES, (len(texts),), data))])


def failure(code, text):
    return pb_utils.InferenceResponse(error=TritonError(text, code))
