"""Inferences on servers of the Open Inference Protocol, by the client library of Millrace; numpy in and out.

    with Client("http://10.0.0.1:8000", "grpc://10.0.0.2:8001") as client:
        result = client.infer("mlp", {"INPUT": x}, timeout=0.5)
        y = result["OUTPUT"]                      # an array on the bytes that were received

    async with AsyncClient(config_file="endpoints.pbtxt") as client:
        result = await client.infer("ranker", {"INPUT": x}, key="user-17")

docs/sdk.md says what hosts, endpoints and options are. Inputs are read where they are; do not change an array while its call is
under way.
"""
from __future__ import annotations

import asyncio
import ctypes
import functools
import json
import struct
import warnings
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

import numpy

from . import _library as lib

__all__ = ["Answer", "AsyncClient", "AsyncStream", "Client", "InferenceError", "Memory", "Result", "Stream"]

# By the numbers of enum mr_dtype. BF16 has no numpy type: its outputs are the raw 16 bits.
_TYPES = {1: numpy.bool_, 2: numpy.uint8, 3: numpy.uint16, 4: numpy.uint32, 5: numpy.uint64, 6: numpy.int8, 7: numpy.int16,
          8: numpy.int32, 9: numpy.int64, 10: numpy.float16, 11: numpy.float32, 12: numpy.float64, 14: numpy.uint16}
_NUMBERS = {numpy.dtype(t): n for n, t in reversed(_TYPES.items())}
_NUMBERS[numpy.dtype(numpy.uint16)] = 3
_BYTES = 13
_SEQUENCE_START, _SEQUENCE_END, _ONCE, _FAIL_FAST = 1, 2, 4, 8
_PACK_ON = 1


@functools.lru_cache(maxsize=1)
def _api() -> Any:
    return lib.load()


class InferenceError(RuntimeError):
    """`status` is a number of enum mr_status, `reason` its words, such as "unavailable"."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = _api().mr_sdk_status_text(status).decode()


def _raise(status: int, err: lib.Err) -> None:
    raise InferenceError(status, err.msg.decode(errors="replace"))


def _array(value: Any) -> numpy.ndarray:
    """As numpy.asarray, but texts and bytes keep the NULs at their ends, which the types of fixed width that it makes of them drop."""
    array = numpy.asarray(value)
    return numpy.asarray(value, object) if array.dtype.kind in "SU" and not isinstance(value, numpy.ndarray) else array


def _encode(array: numpy.ndarray) -> numpy.ndarray:
    """Texts and bytes as the elements of a BYTES tensor."""
    parts = []
    for element in array.ravel():
        data = element if isinstance(element, bytes) else str(element).encode()
        parts += [struct.pack("<I", len(data)), data]
    return numpy.frombuffer(b"".join(parts), numpy.uint8)


def _decode(data: bytes, shape: Sequence[int]) -> numpy.ndarray:
    elements, at = numpy.empty(int(numpy.prod(shape, dtype=numpy.int64)), object), 0
    for i in range(len(elements)):
        (length,) = struct.unpack_from("<I", data, at)
        elements[i] = data[at + 4:at + 4 + length]
        at += 4 + length
    return elements.reshape(shape)


class Memory:
    """Memory that servers on this host share: arrays in it are inputs and places of outputs without a copy (`memory` of Client.infer)."""

    def __init__(self, bytes: int) -> None:
        self._handle, err = ctypes.c_void_p(), lib.Err()
        self._bytes, self._used = lib.whole("bytes", bytes, 2**64 - 1), 0
        status = _api().mr_sdk_memory_new(self._handle, bytes, err)
        if status < 0:
            _raise(status, err)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _api().mr_sdk_memory_free(self._handle)

    @property
    def is_lost(self) -> bool:
        """A call was given up whose server may still write to its places: such memory is not shared any more."""
        return bool(_api().mr_sdk_memory_is_lost(self._handle))

    def array(self, shape: Union[int, Sequence[int]], dtype: Any) -> numpy.ndarray:
        """The next free part of it, as an array that keeps it. MemoryError: there is not so much left."""
        kind, shape = numpy.dtype(dtype), (shape,) if isinstance(shape, int) else tuple(shape)
        bytes = kind.itemsize * int(numpy.prod(shape, dtype=numpy.int64))
        if kind not in _NUMBERS or not 0 <= bytes <= self._bytes - self._used:
            raise (MemoryError if kind in _NUMBERS else TypeError)(f"{bytes} bytes of {kind}, {self._bytes - self._used} are left")
        part = (ctypes.c_ubyte * bytes).from_address(_api().mr_sdk_memory_data(self._handle) + self._used)
        part.memory = self  # the array keeps the part, the part this
        self._used = min(self._bytes, (self._used + bytes + 63) // 64 * 64)
        return numpy.frombuffer(part, kind, count=bytes // kind.itemsize).reshape(shape) if bytes else numpy.empty(shape, kind)


class _Request:
    """A request of the C interface with all that it points to."""

    def __init__(self, model: str, inputs: Mapping[str, Any], outputs: Union[Sequence[str], Mapping[str, Optional[numpy.ndarray]]], parameters: Mapping[str, Any], headers: Mapping[str, str],
                 timeout: Optional[float], once: bool, sequence: int, start: bool, end: bool, pack_on: Any,
                 memory: Optional[Memory], priority: int, fail_fast: bool, **texts: Any) -> None:
        if isinstance(outputs, str):
            raise TypeError(f"outputs is the text {outputs!r}: a list of names is needed")
        self.kept: list = [memory]
        packed = inputs if pack_on is True else pack_on or ()
        if not all(name in inputs for name in packed):
            raise ValueError(f"pack_on: {[name for name in packed if name not in inputs]} are no inputs")
        tensors = [self._tensor(name, _array(value), _PACK_ON * (name in packed)) for name, value in inputs.items()]
        names, name_count = lib.strings(outputs)
        lines, line_count = lib.strings([f"{k}: {v}" for k, v in headers.items()])
        params = [self._param(name, value) for name, value in parameters.items()]
        places = [self._place(outputs[name]) for name in outputs] if isinstance(outputs, Mapping) else []
        self.has_places = bool(places)
        self.kept += [names, lines]
        self.c = lib.Request(
            model=lib.text(model), inputs=(lib.Tensor * len(tensors))(*tensors), input_count=len(tensors), outputs=names, output_count=name_count,
            params=(lib.Param * len(params))(*params), param_count=len(params), headers=lines, header_count=line_count,
            timeout_ms=lib.milliseconds(timeout), sequence_id=lib.whole("sequence", sequence, 2**64 - 1),
            priority=lib.whole("priority", priority, 2**64 - 1),
            flags=_SEQUENCE_START * start | _SEQUENCE_END * end | _ONCE * once | _FAIL_FAST * fail_fast, memory=memory._handle if memory else None,
            places=(lib.Tensor * len(places))(*places) if places else None, **{k: lib.text(v) for k, v in texts.items()})

    def _place(self, array: Optional[numpy.ndarray]) -> lib.Tensor:
        if array is None:
            return lib.Tensor()
        if not array.flags.c_contiguous:
            raise ValueError("the place of an output is not contiguous")
        self.kept.append(array)
        return lib.Tensor(data=array.ctypes.data, bytes=array.nbytes)

    def _tensor(self, name: str, array: numpy.ndarray, flags: int) -> lib.Tensor:
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        if array.dtype.kind in "OSU":
            number, data = _BYTES, _encode(array)
        elif array.dtype in _NUMBERS:
            number, data = _NUMBERS[array.dtype], numpy.require(array, requirements=["C", "ALIGNED"])
        else:
            raise TypeError(f"input {name!r}: arrays of {array.dtype} are not tensors")
        self.kept += [shape, data]
        return lib.Tensor(name=lib.text(name), dtype=number, shape=shape, rank=array.ndim, flags=flags,
                          data=data.ctypes.data if data.size else None, bytes=data.nbytes)

    @staticmethod
    def _param(name: str, value: Any) -> lib.Param:
        value = value.item() if isinstance(value, numpy.generic) else value
        if isinstance(value, bool):
            return lib.Param(kind=0, name=lib.text(name), i=value)
        if isinstance(value, int):
            return lib.Param(kind=1, name=lib.text(name), i=lib.whole(f"parameter {name!r}", value, 2**63 - 1, -2**63))
        if isinstance(value, float):
            return lib.Param(kind=2, name=lib.text(name), d=value)
        if isinstance(value, str):
            return lib.Param(kind=3, name=lib.text(name), s=lib.text(value))
        raise TypeError(f"parameter {name!r}: possible are bool, int, float and str, not {type(value).__name__}")


class Result(Mapping[str, numpy.ndarray]):
    """Outputs by name. Arrays other than those of BYTES lie where the answer was received, read-only, and keep it."""

    def __init__(self, handle: ctypes.c_void_p, request: Optional[_Request] = None) -> None:
        self._handle, self._request = handle, request  # outputs may lie in its memory
        api = _api()
        self._index = {}
        for i in range(api.mr_sdk_result_output_count(self._handle)):
            tensor = lib.Tensor()
            api.mr_sdk_result_output(self._handle, i, tensor)
            self._index[tensor.name.decode()] = tensor
        self.model: str = api.mr_sdk_result_model(self._handle).decode()
        self.version: str = api.mr_sdk_result_version(self._handle).decode()
        self.id: str = api.mr_sdk_result_id(self._handle).decode()
        self.variant: str = api.mr_sdk_result_variant(self._handle).decode()
        self.host: str = api.mr_sdk_result_host(self._handle).decode()
        self.attempts: int = api.mr_sdk_result_attempts(self._handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            _api().mr_sdk_result_free(self._handle)

    def __getitem__(self, name: str) -> numpy.ndarray:
        tensor = self._index[name]
        shape = tensor.shape[:tensor.rank]
        if tensor.dtype == _BYTES:
            return _decode(ctypes.string_at(tensor.data, tensor.bytes) if tensor.bytes else b"", shape)
        if not tensor.bytes:
            return numpy.empty(shape, _TYPES[tensor.dtype])
        part = (ctypes.c_ubyte * tensor.bytes).from_address(tensor.data)
        part.result = self  # the array keeps the part, the part this
        array = numpy.frombuffer(part, _TYPES[tensor.dtype]).reshape(shape)
        array.flags.writeable = False
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


class Answer(Result):
    """An answer of a stream. `final`: its request has no further one. `error`: why its request has failed, or None; an answer with an error
    has no outputs."""

    def __init__(self, answer: lib.Answer) -> None:
        super().__init__(ctypes.c_void_p(answer.result))
        self.final = bool(answer.is_final)
        self.error = InferenceError(answer.status, answer.message.decode(errors="replace")) if answer.status < 0 else None

    def __getitem__(self, name: str) -> numpy.ndarray:
        if self.error is not None:
            raise self.error
        return super().__getitem__(name)


_CLOSED, _EXHAUSTED = -15, -10
_SLICE_MS = 100  # so that signals of the interpreter are seen


_LIVE, _READY, _MODEL_READY, _SERVER, _MODEL, _CONFIG = range(1, 7)


def _question(kind: int, model: Optional[str] = None, version: Optional[str] = None, headers: Mapping[str, str] = {}, timeout: Optional[float] = None,
              key: Optional[str] = None, variant: Optional[str] = None) -> lib.Question:
    lines, line_count = lib.strings([f"{k}: {v}" for k, v in headers.items()])
    return lib.Question(kind=kind, model=lib.text(model), version=lib.text(version), key=lib.text(key), variant=lib.text(variant), headers=lines,
                        header_count=line_count, timeout_ms=lib.milliseconds(timeout))


def _told(kind: int, result: ctypes.c_void_p) -> Any:
    """The answer to a question: a bool, or a dict."""
    try:
        return bool(_api().mr_sdk_result_is_yes(result)) if kind <= _MODEL_READY else json.loads(_api().mr_sdk_result_text(result))
    finally:
        _api().mr_sdk_result_free(result)


class _StreamBase:
    _notify = lib.NOTIFY()

    def __init__(self, client: _Base, model: str, headers: Mapping[str, str] = {}, timeout: Optional[float] = None, key: Optional[str] = None,
                 variant: Optional[str] = None, max_unread_bytes: int = 0, max_unsent_bytes: int = 0) -> None:
        self._handle, self._client = ctypes.c_void_p(), client
        lines, line_count = lib.strings([f"{k}: {v}" for k, v in headers.items()])
        options = lib.StreamOptions(model=lib.text(model), headers=lines, header_count=line_count, key=lib.text(key), variant=lib.text(variant),
                                    timeout_ms=lib.milliseconds(timeout), max_unread_bytes=lib.whole("max_unread_bytes", max_unread_bytes, 2**64 - 1),
                                    max_unsent_bytes=lib.whole("max_unsent_bytes", max_unsent_bytes, 2**64 - 1), notify=self._notify)
        err = lib.Err()
        status = _api().mr_sdk_stream_open(client._opened(), options, self._handle, err)
        if status < 0:
            _raise(status, err)

    def __del__(self) -> None:
        self.close()

    def _opened(self) -> ctypes.c_void_p:
        if not self._handle:
            raise InferenceError(_CLOSED, "the stream is closed")
        return self._handle

    @property
    def host(self) -> str:
        """The address of the host, "" before one was chosen."""
        return _api().mr_sdk_stream_host(self._opened()).decode()

    def done(self) -> None:
        """No more requests: the host answers what it has, and ends the stream."""
        _api().mr_sdk_stream_done(self._opened())

    def cancel(self) -> None:
        """The stream ends, with an error "cancelled" after the answers that came before."""
        _api().mr_sdk_stream_cancel(self._opened())

    def close(self) -> None:
        """Cancels a stream that is not over."""
        if getattr(self, "_handle", None):
            _api().mr_sdk_stream_free(self._handle)

    @staticmethod
    def _message(inputs: Mapping[str, Any], model: str = "", **request: Any) -> _Request:
        return _Base._request(model, inputs, **request)

    def _send(self, request: _Request, wait_ms: int) -> bool:
        """False: there is no room within the time."""
        err = lib.Err()
        status = _api().mr_sdk_stream_send(self._opened(), request.c, wait_ms, err)
        if status < 0 and status != _EXHAUSTED:
            _raise(status, err)
        return status != _EXHAUSTED

    def _read(self, wait_ms: int) -> Optional[Answer]:
        """None: there is none within the time. Raises StopIteration at the end."""
        answer, err = lib.Answer(), lib.Err()
        got = _api().mr_sdk_stream_read(self._opened(), wait_ms, answer, err)
        if got == _CLOSED:
            raise StopIteration
        if got < 0:
            _raise(got, err)
        return Answer(answer) if got else None


class Stream(_StreamBase):
    """Requests to one host, each with one answer or many, which an iteration gives as they come. Made by Client.stream. A thread may send
    while another one reads."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def send(self, inputs: Mapping[str, Any], **request: Any) -> None:
        """Waits for room. Arguments: model (another one of the same host), and those of Client.infer but headers, key and variant; timeout is how
        long the request may wait in the queue of its model. Arrays are copied."""
        message = self._message(inputs, **request)
        while not self._send(message, _SLICE_MS):
            pass

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Answer:
        answer = None
        while answer is None:
            answer = self._read(_SLICE_MS)
        return answer


class AsyncStream(_StreamBase):
    """The same in an event loop: `async for answer in stream`. Made by AsyncClient.stream."""

    def __init__(self, client: AsyncClient, model: str, **options: Any) -> None:
        self._changed = asyncio.Event()
        client._attach()
        changed = self._changed  # not self: the stream goes with its last reference
        self._notify = lib.NOTIFY(lambda _: changed.set())
        super().__init__(client, model, **options)

    def close(self) -> None:
        super().close()
        self._changed.set()  # for a task that waits

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    async def send(self, inputs: Mapping[str, Any], **request: Any) -> None:
        """As Stream.send."""
        message = self._message(inputs, **request)
        while not self._send(message, 0):
            await self._change()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Answer:
        try:
            while (answer := self._read(0)) is None:
                await self._change()
        except StopIteration:
            raise StopAsyncIteration from None
        return answer


class _Base:
    _delivery = 0

    def __init__(self, *urls: str, config: Optional[str] = None, config_file: Optional[str] = None, headers: Mapping[str, str] = {},
                 timeout: Optional[float] = None, **options: Any) -> None:
        """Options are the members of struct mr_sdk_options: attempts, strategy, protocol, hedge_after_ms, tls_ca_file and so on."""
        self._handle = ctypes.c_void_p()
        unknown = options.keys() - lib.OPTIONS.keys()
        if unknown:
            raise TypeError(f"no such option: {', '.join(sorted(unknown))}")
        addresses, count = lib.strings(urls)
        lines, line_count = lib.strings([f"{k}: {v}" for k, v in headers.items()])
        members = {name: lib.option(name, value) for name, value in options.items() if value is not None}
        o = lib.Options(delivery=self._delivery, urls=addresses, url_count=count, headers=lines, header_count=line_count, config=lib.text(config),
                        config_file=lib.text(config_file), timeout_ms=lib.milliseconds(timeout), **members)
        err = lib.Err()
        status = _api().mr_sdk_create(self._handle, o, err)
        if status < 0:
            _raise(status, err)
        warning = _api().mr_sdk_warning(self._handle).decode()
        if warning:
            warnings.warn(warning, stacklevel=2)

    def close(self) -> None:
        """Calls that are under way fail."""
        if self._handle:
            _api().mr_sdk_free(self._handle)

    def _opened(self) -> ctypes.c_void_p:
        if not self._handle:
            raise InferenceError(_CLOSED, "the client is closed")
        return self._handle

    def shadow_stats(self, endpoint: str) -> dict:
        """Numbers of the shadow of an endpoint: requests, dropped, failed, compared, different."""
        stats, err = lib.ShadowStats(), lib.Err()
        status = _api().mr_sdk_shadow_stats(self._opened(), lib.text(endpoint), stats, err)
        if status < 0:
            _raise(status, err)
        return {name: getattr(stats, name) for name, _ in stats._fields_[2:]}

    @staticmethod
    def _request(model: str, inputs: Mapping[str, Any], outputs: Union[Sequence[str], Mapping[str, Optional[numpy.ndarray]]] = (),
                 parameters: Mapping[str, Any] = {},
                 headers: Mapping[str, str] = {}, timeout: Optional[float] = None, version: Optional[str] = None, id: Optional[str] = None,
                 key: Optional[str] = None, variant: Optional[str] = None, once: bool = False, sequence: int = 0, sequence_start: bool = False,
                 sequence_end: bool = False, pack_on: Any = False, memory: Optional[Memory] = None, priority: int = 0,
                 fail_fast: bool = False) -> _Request:
        return _Request(model, inputs, outputs, parameters, headers, timeout, once, sequence, sequence_start, sequence_end, pack_on, memory, priority, fail_fast,
                        version=version, id=id, key=key, variant=variant)


class Client(_Base):
    """Calls that wait; any number of threads may call."""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def infer(self, model: str, inputs: Mapping[str, Any], **request: Any) -> Result:
        """Arguments: outputs, parameters, headers, timeout (seconds), version, id, key, variant, priority (0: the model's default), once (one
        attempt), fail_fast (no wait for hosts that are busy), sequence, sequence_start, sequence_end, pack_on (names of inputs whose rows may be divided among hosts; True: all), memory (in which inputs, and arrays that `outputs` as
        a dict names as places of outputs, are shared with the server)."""
        q = self._request(model, inputs, **request)
        return self._call(_api().mr_sdk_infer_start, q.c, lambda handle: Result(handle, q if q.has_places else None))

    def _call(self, start: Any, request: Any, read: Any) -> Any:
        """Waits in slices: an exception that a signal raises in between, such as KeyboardInterrupt, cancels the call."""
        err, call, handle = lib.Err(), ctypes.c_void_p(), ctypes.c_void_p()
        try:
            status = start(self._opened(), request, lib.DONE(), None, call, err)
            while status == 0:
                status = _api().mr_sdk_call_wait(call, _SLICE_MS, handle, err)
            if status > 0:
                return read(handle)
        except BaseException:
            if call:
                _api().mr_sdk_call_cancel(call)
                _api().mr_sdk_call_wait(call, -1, handle, err)  # it reads the inputs until then
            _api().mr_sdk_result_free(handle)
            raise
        finally:
            _api().mr_sdk_call_free(call)
        _raise(status, err)

    def _ask(self, kind: int, *names: Optional[str], **question: Any) -> Any:
        return self._call(_api().mr_sdk_ask_start, _question(kind, *names, **question), functools.partial(_told, kind))

    def is_live(self, **question: Any) -> bool:
        """Of one host. Arguments of questions: headers, timeout (seconds), key, variant, and model where the client has endpoints only."""
        return self._ask(_LIVE, **question)

    def is_ready(self, **question: Any) -> bool:
        return self._ask(_READY, **question)

    def is_model_ready(self, model: str, version: Optional[str] = None, **question: Any) -> bool:
        return self._ask(_MODEL_READY, model, version, **question)

    def server_metadata(self, **question: Any) -> dict:
        return self._ask(_SERVER, **question)

    def model_metadata(self, model: str, version: Optional[str] = None, **question: Any) -> dict:
        return self._ask(_MODEL, model, version, **question)

    def model_config(self, model: str, version: Optional[str] = None, **question: Any) -> dict:
        return self._ask(_CONFIG, model, version, **question)

    def stream(self, model: str, **options: Any) -> Stream:
        """Arguments: headers, timeout (seconds, of the whole stream), key, variant, max_unread_bytes, max_unsent_bytes."""
        return Stream(self, model, **options)


class AsyncClient(_Base):
    """Calls of one event loop, that in which it is first used."""

    _delivery = 1

    def __init__(self, *urls: str, **options: Any) -> None:
        super().__init__(*urls, **options)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._open: dict = {}
        self._next = 0
        self._on_done = lib.DONE(self._done)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self._handle and self._loop and not self._loop.is_closed():
            self._loop.remove_reader(_api().mr_sdk_fd(self._handle))
        super().close()

    def _done(self, ctx: int, status: int, err: int, handle: int) -> None:
        future, _, read = self._open.pop(ctx)
        result, error = None, None
        if status < 0:
            error = InferenceError(status, lib.Err.from_address(err).msg.decode(errors="replace"))
        else:
            try:
                result = read(ctypes.c_void_p(handle))
            except Exception as why:  # such as a number that Python refuses: the task is not left waiting
                error = why
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def _attach(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(_api().mr_sdk_fd(self._opened()), _api().mr_sdk_process, self._handle)
        return self._loop

    async def infer(self, model: str, inputs: Mapping[str, Any], **request: Any) -> Result:
        """As Client.infer. A task that is cancelled cancels its call."""
        q = self._request(model, inputs, **request)
        return await self._call(_api().mr_sdk_infer_start, q.c, q, lambda handle: Result(handle, q if q.has_places else None))

    async def _call(self, start: Any, request: Any, kept: Any, read: Any) -> Any:
        handle, future = self._opened(), self._attach().create_future()
        err, call = lib.Err(), ctypes.c_void_p()
        self._next += 1
        self._open[self._next] = (future, kept, read)
        status = start(handle, request, self._on_done, self._next, call, err)
        if status < 0:
            del self._open[self._next]
            _raise(status, err)
        try:
            return await future
        except asyncio.CancelledError:
            _api().mr_sdk_call_cancel(call)
            raise
        finally:
            _api().mr_sdk_call_free(call)

    async def _ask(self, kind: int, *names: Optional[str], **question: Any) -> Any:
        q = _question(kind, *names, **question)
        return await self._call(_api().mr_sdk_ask_start, q, q, functools.partial(_told, kind))

    async def is_live(self, **question: Any) -> bool:
        """As of Client; so are those that follow."""
        return await self._ask(_LIVE, **question)

    async def is_ready(self, **question: Any) -> bool:
        return await self._ask(_READY, **question)

    async def is_model_ready(self, model: str, version: Optional[str] = None, **question: Any) -> bool:
        return await self._ask(_MODEL_READY, model, version, **question)

    async def server_metadata(self, **question: Any) -> dict:
        return await self._ask(_SERVER, **question)

    async def model_metadata(self, model: str, version: Optional[str] = None, **question: Any) -> dict:
        return await self._ask(_MODEL, model, version, **question)

    async def model_config(self, model: str, version: Optional[str] = None, **question: Any) -> dict:
        return await self._ask(_CONFIG, model, version, **question)

    def stream(self, model: str, **options: Any) -> AsyncStream:
        """As Client.stream; within the event loop."""
        return AsyncStream(self, model, **options)
