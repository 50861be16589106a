"""What models import as pb_utils: the interface of Triton's python backend.

Objects of one request may be used by any thread, one at a time. docs/python.md says what differs from Triton."""
import asyncio
import ctypes
import enum
import json

import numpy as np

import _millrace_calls
from _millrace_calls import Metric, MetricFamily, is_model_ready, load_model, unload_model  # noqa: F401

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2
TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_MEMORY_CPU_PINNED = 1
TRITONSERVER_MEMORY_GPU = 2

_services = {}  # functions of the backend, set by _millrace_host
_version_dir = ""

# Data types by their numbers, which are those of the model configuration.
_NAMES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32",
          "FP64", "STRING", "BF16")
_NUMPY = (None, np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16,
          np.float32, np.float64, np.object_, None)
_BYTES, _BF16 = 13, 14
TRITON_STRING_TO_NUMPY = {f"TYPE_{name}": bool if kind is np.bool_ else kind for name, kind in zip(_NAMES, _NUMPY) if kind}
_DTYPES = tuple(t and np.dtype(t) for t in _NUMPY)
_CODES = {d: code for code, d in enumerate(_DTYPES) if d is not None}
_new = object.__new__


class TritonModelException(Exception):
    """What this module raises."""


class TritonError:
    """Why a request failed."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS, CANCELLED = range(8)

    def __init__(self, message="", code=INTERNAL):
        self._message, self._code = _text(message, "") if isinstance(message, bytes) else str(message), code

    def message(self):
        return self._message

    def code(self):
        return self._code

    def __str__(self):
        return self._message


# ---- tensors ----

def _code_of(array):
    """Number of an array's data type."""
    code = _CODES.get(array.dtype)
    if code is None:
        kind = array.dtype.kind
        if kind in "SUO":
            return _BYTES
        if array.dtype.name == "bfloat16":
            return _BF16
        code = _CODES.get(array.dtype.newbyteorder("="))
        if code is None:
            raise TritonModelException(f"no tensor has the data type {array.dtype}")
    return code


def _text(value, what):
    """A text, which may be given as bytes: such as an element of a tensor of strings."""
    if isinstance(value, (bytes, bytearray)):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{what} is a str, got {type(value).__name__}")
    return value


class Tensor:
    """A name and an array. Of an input, the array is made when it is asked for, and can only be read."""

    __slots__ = ("_name", "_array", "_raw")

    def __init__(self, name, numpy_array):
        if not isinstance(numpy_array, np.ndarray):
            raise TritonModelException(f"tensor '{name}' needs a numpy array, got {type(numpy_array).__name__}")
        self._name = name if type(name) is str else _text(name, "the name of a tensor")
        self._array, self._raw = numpy_array, None
        if numpy_array.dtype not in _CODES:
            _code_of(numpy_array)

    def name(self):
        return self._name

    def shape(self):
        return list(self._raw[2] if self._array is None else self._array.shape)

    def triton_dtype(self):
        return self._raw[1] if self._array is None else _code_of(self._array)

    def as_numpy(self):
        if self._array is None:
            _, code, shape, data = self._raw
            if code == _BYTES:
                items = _services["bytes_split"](data)
                array = np.empty(len(items), np.object_)
                array[:] = items
                self._array = array.reshape(shape)
            elif code == _BF16:
                self._array = np.frombuffer(data, _bfloat16(self._name)).reshape(shape)
            else:
                self._array = np.ndarray(shape, _DTYPES[code], data)
        return self._array

    def is_cpu(self):
        return True

    def to_dlpack(self):
        return self.__dlpack__()

    def __dlpack__(self, **options):
        array = self.as_numpy()
        if not array.flags.writeable:
            array = array.copy()  # DLPack has no word for memory that can only be read
        options = {k: v for k, v in options.items() if v is not None}
        if _code_of(array) != _BF16:
            return array.__dlpack__(**options)
        capsule = array.view(np.uint16).__dlpack__(**options)
        _dlpack_kind(capsule).value = _DLPACK_BFLOAT
        return capsule

    def __dlpack_device__(self):
        return self.as_numpy().__dlpack_device__()

    @staticmethod
    def from_dlpack(name, tensor):
        if not hasattr(tensor, "__dlpack__"):
            tensor = _Capsule(tensor)
        try:
            return Tensor(name, np.from_dlpack(tensor))
        except (BufferError, RuntimeError):
            capsule = tensor.__dlpack__()
            kind = _dlpack_kind(capsule)
            if kind.value != _DLPACK_BFLOAT:
                raise
            kind.value = _DLPACK_UINT  # numpy has no BF16
            return Tensor(name, np.from_dlpack(_Capsule(capsule)).view(_bfloat16(name)))


class _Capsule:
    """A DLPack capsule by itself: of memory of the host."""

    def __init__(self, capsule):
        self._capsule = capsule

    def __dlpack__(self, **_):
        return self._capsule

    def __dlpack_device__(self):
        return (1, 0)


_DLPACK_UINT, _DLPACK_BFLOAT = 1, 4  # kinds of elements
_CAPSULES = {b"dltensor": 20, b"dltensor_versioned": 52}  # where the kind is in what the capsule has


def _dlpack_kind(capsule):
    """The kind of a capsule's elements, which can be set."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetPointer.restype = ctypes.c_char_p, ctypes.c_void_p
    name = api.PyCapsule_GetName(ctypes.py_object(capsule))
    return ctypes.c_uint8.from_address(api.PyCapsule_GetPointer(ctypes.py_object(capsule), ctypes.c_char_p(name)) + _CAPSULES[name])


def _bfloat16(name):
    try:
        import ml_dtypes
    except ImportError:
        raise TritonModelException(
            f"tensor '{name}' is BF16, which numpy has no type for: the package ml_dtypes has one") from None
    return np.dtype(ml_dtypes.bfloat16)


def _received_tensor(name, raw):
    """A tensor that has not been made an array: raw = (any, data type, shape, buffer)."""
    tensor = _new(Tensor)
    tensor._name, tensor._array, tensor._raw = name, None, raw
    return tensor


def _part(index, tensor):
    """An output as the backend takes it."""
    array = tensor._array
    if array is None:
        _, code, shape, data = tensor._raw  # an input that is sent back as it is
        return (index, code, shape, data)
    code = _CODES.get(array.dtype, _BYTES)
    if code != _BYTES and array.flags.c_contiguous:
        return (index, code, array.shape, array)
    code = _code_of(array)
    if code == _BYTES:
        return (index, code, array.shape, _services["bytes_join"](array.ravel().tolist()))
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    return (index, code, array.shape, array if code != _BF16 else array.view(np.uint16))


# ---- requests and responses ----

def _parameters_of(given):
    """A dict, given as one or as JSON, with values that a request can have."""
    parameters = dict(json.loads(given) if isinstance(given, str) else given or {})
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(f"Expect parameters keys to have type str, found type {type(key)}")
        if type(value) not in _millrace_calls.KINDS:
            raise TritonModelException(f"Expect parameters values to have type bool/int/str, found type {type(value)}")
    return parameters


class PreferredMemory:
    def __init__(self, preferred_memory_type, preferred_device_id=0):
        self.preferred_memory_type, self.preferred_device_id = preferred_memory_type, preferred_device_id


class InferenceTrace:
    """A request's trace. None is recorded here."""

    def __init__(self, *_):
        pass

    def get_context(self):
        return None


class InferenceRequest:
    """A request that came in, or one that the model makes for another model."""

    __slots__ = ("_id", "_correlation", "_flags", "_timeout", "_parameters", "_inputs", "_outputs", "_reply", "_raw",
                 "_model", "_version", "_memory", "_trace", "_sender", "_comes_back")

    def __init__(self, request_id="", correlation_id=0, inputs=(), requested_output_names=(), model_name="",
                 model_version=-1, flags=0, timeout=0, preferred_memory=None, trace=None, parameters=None):
        for tensor in inputs:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"inputs of a request are Tensors, got {type(tensor).__name__}")
        self._id, self._flags, self._timeout = _text(request_id, "a request's id"), flags, timeout
        self._correlation = correlation_id if isinstance(correlation_id, int) else _text(correlation_id, "a correlation id")
        self._inputs = list(inputs)
        self.set_requested_output_names(requested_output_names)
        self._model, self._version = _text(model_name, "the name of a model"), model_version
        self._memory, self._trace = preferred_memory, trace
        self._parameters = _parameters_of(parameters) if parameters else {}
        self._reply = self._raw = self._sender = None

    def inputs(self):
        if self._inputs is None:
            names, self._inputs = self._reply.run.instance.model.input_names, []
            for raw in self._raw[5]:
                tensor = _new(Tensor)
                tensor._name, tensor._array, tensor._raw = names[raw[0]], None, raw
                self._inputs.append(tensor)
        return self._inputs

    def request_id(self):
        return self._id

    def correlation_id(self):
        return self._correlation

    def requested_output_names(self):
        if self._reply is not None:
            return self._reply.run.wanted_names()
        return self._outputs

    def set_requested_output_names(self, names):
        self._outputs = [_text(name, "the name of an output") for name in names]

    def model_name(self):
        return self._reply.run.instance.model.name if self._reply is not None else self._model

    def model_version(self):
        return self._reply.run.instance.model.version if self._reply is not None else self._version

    def flags(self):
        return self._flags

    def set_flags(self, flags):
        self._flags = flags

    def timeout(self):
        return self._timeout

    def parameters(self):
        return json.dumps(self._parameters or {})

    def preferred_memory(self):
        return None if self._reply is not None else self._memory

    def trace(self):
        return InferenceTrace() if self._reply is not None or self._trace is None else self._trace

    def set_release_flags(self, flags):
        self._comes_back = bool(flags & TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        if self._comes_back and not (self._reply is not None and self._reply.run.instance.model.is_iterative):
            self._comes_back = False
            raise TritonModelException("TRITONSERVER_REQUEST_RELEASE_RESCHEDULE is for requests to a model with sequence_batching "
                                       "{ iterative_sequence: true }")

    def is_cancelled(self):
        return self._reply is not None and self._reply.is_cancelled()

    def get_response_sender(self):
        if self._reply is None:
            raise TritonModelException("a request for another model has no response sender")
        if self._sender is None:
            self._sender = InferenceResponseSender(self._reply)
            self._reply.take_sender()
        return self._sender

    def exec(self, decoupled=False, execution_timeout=None):
        """Runs the request on another model of the server, and waits for its answer; with `decoupled` for an iterator
        of answers."""
        return _millrace_calls.run(self, decoupled, execution_timeout)

    async def async_exec(self, decoupled=False, execution_timeout=None):
        return await _millrace_calls.run_async(asyncio.get_running_loop(), self, decoupled, execution_timeout)


def _received_request(reply, raw):
    request = _new(InferenceRequest)
    request._id, request._correlation, request._flags, _, request._parameters, _, request._timeout = raw
    request._inputs, request._raw, request._reply, request._sender = None, raw, reply, None
    request._comes_back = False
    return request


class InferenceResponse:
    __slots__ = ("_tensors", "_error", "_parameters")

    def __init__(self, output_tensors=(), error=None, parameters=None):
        for tensor in output_tensors:
            if not isinstance(tensor, Tensor):
                raise TritonModelException(f"outputs of a response are Tensors, got {type(tensor).__name__}")
        if error is not None and not isinstance(error, TritonError):
            error = TritonError(error)
        self._tensors, self._error = output_tensors, error
        self._parameters = _parameters_of(parameters) if parameters else {}

    def output_tensors(self):
        return list(self._tensors)

    def has_error(self):
        return self._error is not None

    def error(self):
        return self._error

    def parameters(self):
        return json.dumps(self._parameters)


def _received_response(outputs, parameters):
    """Of another model: an output is (name, data type, shape, buffer)."""
    response = _new(InferenceResponse)
    response._tensors, response._error, response._parameters = [], None, parameters
    for raw in outputs:
        tensor = _new(Tensor)
        tensor._name, tensor._array, tensor._raw = raw[0], None, raw
        response._tensors.append(tensor)
    return response


class InferenceResponseSender:
    """Sends answers to one request, from any thread, also after `execute` has returned. `send` waits while the client
    has too many unread answers."""

    __slots__ = ("_reply",)

    def __init__(self, reply):
        self._reply = reply

    def send(self, response=None, flags=0):
        self._reply.send(response, flags)

    def is_cancelled(self):
        return self._reply.is_cancelled()


# ---- logging ----

class LogLevel(enum.Enum):
    INFO, WARNING, ERROR, VERBOSE = range(4)


_LEVELS = {LogLevel.INFO: 2, LogLevel.WARNING: 1, LogLevel.ERROR: 0, LogLevel.VERBOSE: 3}  # of the backend's interface


class Logger:
    """Lines of the server's log."""

    LogLevel = LogLevel
    INFO, WARNING, ERROR, VERBOSE = LogLevel

    @staticmethod
    def log(message, level=LogLevel.INFO):
        _services["log"](_LEVELS[LogLevel(level)], str(message))

    @staticmethod
    def log_info(message):
        Logger.log(message, LogLevel.INFO)

    @staticmethod
    def log_warn(message):
        Logger.log(message, LogLevel.WARNING)

    @staticmethod
    def log_error(message):
        Logger.log(message, LogLevel.ERROR)

    @staticmethod
    def log_verbose(message):
        Logger.log(message, LogLevel.VERBOSE)


# ---- helpers ----

def get_input_tensor_by_name(inference_request, name):
    for tensor in inference_request._inputs or inference_request.inputs():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    for tensor in inference_response._tensors:
        if tensor._name == name:
            return tensor
    return None


def _config_named(model_config, kind, name):
    for entry in model_config.get(kind, ()):
        if entry["name"] == name:
            return entry
    return None


def get_input_config_by_name(model_config, name):
    return _config_named(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    return _config_named(model_config, "output", name)


def get_model_dir():
    """The folder of the model's version."""
    return _version_dir


def using_decoupled_model_transaction_policy(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type):
    return _NUMPY[data_type]


def numpy_to_triton_type(data_type):
    return _code_of(np.empty(0, data_type))


def _code_named(text):
    name = text.removeprefix("TYPE_")
    if name not in _NAMES or name == "INVALID":
        raise TritonModelException(f"no data type is called '{text}'")
    return _NAMES.index(name)


def triton_string_to_numpy(triton_type_string):
    return _NUMPY[_code_named(triton_type_string)]


def serialize_byte_tensor(input_tensor):
    """The elements of an array of strings, each after its length in four bytes, as bytes; None for another array."""
    if input_tensor.size == 0:
        return b""
    if input_tensor.dtype.kind not in "SUO":
        return None
    return _services["bytes_join"](input_tensor.ravel().tolist())


def deserialize_bytes_tensor(encoded_tensor):
    items = _services["bytes_split"](encoded_tensor)
    array = np.empty(len(items), np.object_)
    array[:] = items
    return array


class ModelConfig:
    """What auto_complete_config completes."""

    def __init__(self, model_config):
        self._config = json.loads(model_config) if isinstance(model_config, str) else model_config

    def as_dict(self):
        return self._config

    def set_max_batch_size(self, max_batch_size):
        """Without effect if the configuration has one; a smaller one than it has is an error."""
        now = self._config.get("max_batch_size", 0)
        if now > max_batch_size:
            raise ValueError(f"configuration specified max_batch_size {now}, but in auto-complete-config function for "
                             f"model '{self._config.get('name', '')}' specified max_batch_size {max_batch_size}")
        self._config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self):
        if self._config.get("sequence_batching"):
            raise ValueError("the configuration has sequence_batching: it cannot have dynamic_batching as well")
        self._config.setdefault("dynamic_batching", {})

    def set_model_transaction_policy(self, transaction_policy_dict):
        unknown = set(transaction_policy_dict) - {"decoupled"}
        if unknown:
            raise ValueError(f"model transaction policy has the unknown {sorted(unknown)}, known is 'decoupled'")
        now = self._config.get("model_transaction_policy", {}).get("decoupled")
        if now is not None and now != transaction_policy_dict.get("decoupled"):
            raise ValueError("the model transaction policy differs from that of the configuration")
        self._config["model_transaction_policy"] = dict(transaction_policy_dict)

    def add_input(self, entry):
        self._add("input", entry, {"name", "data_type", "dims", "optional"})

    def add_output(self, entry):
        self._add("output", entry, {"name", "data_type", "dims"})

    def _add(self, kind, entry, known):
        for key in entry:
            if key not in known:
                raise ValueError(f"{kind} of the configuration has the unknown property '{key}'")
        for key in ("name", "data_type", "dims"):
            if key not in entry:
                raise ValueError(f"{kind} without the property '{key}'")
        _code_named(entry["data_type"])
        there = _config_named(self._config, kind, entry["name"])
        if there is None:
            self._config.setdefault(kind, []).append(dict(entry))
            return
        if there.get("data_type", entry["data_type"]) not in (entry["data_type"], "TYPE_INVALID"):
            raise ValueError(f"{kind} '{entry['name']}' has data_type {there['data_type']} in the configuration and "
                             f"{entry['data_type']} in the model")
        if there.get("dims") and [int(d) for d in there["dims"]] != [int(d) for d in entry["dims"]]:
            raise ValueError(f"{kind} '{entry['name']}' has dims {there['dims']} in the configuration and "
                             f"{entry['dims']} in the model")
        there.update({k: v for k, v in entry.items() if not there.get(k) or there[k] == "TYPE_INVALID"})
