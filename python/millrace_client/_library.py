"""libmillrace.so by ctypes: the structs and functions of millrace/client.h."""
import ctypes
import ctypes.util
import operator
import os
from pathlib import Path

c = ctypes
STATUS_OK = 0
DONE = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_void_p, c.c_void_p)
NOTIFY = c.CFUNCTYPE(None, c.c_void_p)


class Err(c.Structure):
    _fields_ = [("status", c.c_int32), ("flags", c.c_uint32), ("where", c.c_char * 40), ("msg", c.c_char * 464)]


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **members):
        super().__init__(size=c.sizeof(self), **members)


class Options(Sized):
    _fields_ = [("size", c.c_uint32), ("delivery", c.c_uint32), ("config", c.c_char_p), ("config_file", c.c_char_p),
                ("urls", c.POINTER(c.c_char_p)), ("url_count", c.c_uint32), ("attempts", c.c_uint32), ("strategy", c.c_char_p),
                ("protocol", c.c_char_p), ("timeout_ms", c.c_int64), ("connect_timeout_ms", c.c_int64), ("attempt_timeout_ms", c.c_int64),
                ("hedge_after_ms", c.c_int64), ("max_connections", c.c_uint32), ("header_count", c.c_uint32),
                ("headers", c.POINTER(c.c_char_p)), ("tls_ca_file", c.c_char_p), ("tls_cert_file", c.c_char_p), ("tls_key_file", c.c_char_p),
                ("tls_server_name", c.c_char_p), ("tls_insecure", c.c_uint32), ("reserved", c.c_uint32), ("compression", c.c_char_p),
                ("package_size", c.c_uint32), ("max_channel_per_request", c.c_uint32)]


class Tensor(Sized):
    _fields_ = [("size", c.c_uint32), ("dtype", c.c_int32), ("name", c.c_char_p), ("shape", c.POINTER(c.c_int64)), ("rank", c.c_int32),
                ("flags", c.c_uint32), ("data", c.c_void_p), ("bytes", c.c_uint64)]


class Param(Sized):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_int32), ("name", c.c_char_p), ("i", c.c_int64), ("d", c.c_double), ("s", c.c_char_p)]


class Request(Sized):
    _fields_ = [("size", c.c_uint32), ("flags", c.c_uint32), ("model", c.c_char_p), ("version", c.c_char_p), ("id", c.c_char_p),
                ("inputs", c.POINTER(Tensor)), ("input_count", c.c_uint32), ("output_count", c.c_uint32), ("outputs", c.POINTER(c.c_char_p)),
                ("params", c.POINTER(Param)), ("param_count", c.c_uint32), ("header_count", c.c_uint32), ("headers", c.POINTER(c.c_char_p)),
                ("timeout_ms", c.c_int64), ("key", c.c_char_p), ("variant", c.c_char_p), ("sequence_id", c.c_uint64), ("priority", c.c_uint64),
                ("memory", c.c_void_p), ("places", c.POINTER(Tensor))]


class Question(Sized):
    _fields_ = [("size", c.c_uint32), ("kind", c.c_int32), ("model", c.c_char_p), ("version", c.c_char_p), ("key", c.c_char_p),
                ("variant", c.c_char_p), ("headers", c.POINTER(c.c_char_p)), ("header_count", c.c_uint32), ("reserved", c.c_uint32),
                ("timeout_ms", c.c_int64)]


class StreamOptions(Sized):
    _fields_ = [("size", c.c_uint32), ("header_count", c.c_uint32), ("model", c.c_char_p), ("headers", c.POINTER(c.c_char_p)),
                ("key", c.c_char_p), ("variant", c.c_char_p), ("timeout_ms", c.c_int64), ("max_unread_bytes", c.c_uint64),
                ("max_unsent_bytes", c.c_uint64), ("notify", NOTIFY), ("ctx", c.c_void_p)]


class Answer(Sized):
    _fields_ = [("size", c.c_uint32), ("status", c.c_int32), ("result", c.c_void_p), ("message", c.c_char_p), ("is_final", c.c_uint32),
                ("reserved", c.c_uint32)]


class ShadowStats(Sized):
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32), *((n, c.c_uint64) for n in ("requests", "dropped", "failed", "compared", "different"))]


FUNCTIONS = {
    "mr_sdk_create": (c.c_int, c.POINTER(c.c_void_p), c.POINTER(Options), c.POINTER(Err)),
    "mr_sdk_free": (None, c.POINTER(c.c_void_p)),
    "mr_sdk_warning": (c.c_char_p, c.c_void_p),
    "mr_sdk_version": (c.c_char_p,),
    "mr_sdk_memory_new": (c.c_int, c.POINTER(c.c_void_p), c.c_uint64, c.POINTER(Err)),
    "mr_sdk_memory_data": (c.c_void_p, c.c_void_p),
    "mr_sdk_memory_is_lost": (c.c_uint32, c.c_void_p),
    "mr_sdk_memory_free": (None, c.POINTER(c.c_void_p)),
    "mr_sdk_infer_start": (c.c_int, c.c_void_p, c.POINTER(Request), DONE, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(Err)),
    "mr_sdk_call_wait": (c.c_int, c.c_void_p, c.c_int64, c.POINTER(c.c_void_p), c.POINTER(Err)),
    "mr_sdk_call_cancel": (None, c.c_void_p),
    "mr_sdk_call_free": (None, c.POINTER(c.c_void_p)),
    "mr_sdk_fd": (c.c_int, c.c_void_p),
    "mr_sdk_process": (c.c_int, c.c_void_p),
    "mr_sdk_ask_start": (c.c_int, c.c_void_p, c.POINTER(Question), DONE, c.c_void_p, c.POINTER(c.c_void_p), c.POINTER(Err)),
    "mr_sdk_result_text": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_is_yes": (c.c_uint32, c.c_void_p),
    "mr_sdk_shadow_stats": (c.c_int, c.c_void_p, c.c_char_p, c.POINTER(ShadowStats), c.POINTER(Err)),
    "mr_sdk_stream_open": (c.c_int, c.c_void_p, c.POINTER(StreamOptions), c.POINTER(c.c_void_p), c.POINTER(Err)),
    "mr_sdk_stream_send": (c.c_int, c.c_void_p, c.POINTER(Request), c.c_int64, c.POINTER(Err)),
    "mr_sdk_stream_done": (None, c.c_void_p),
    "mr_sdk_stream_read": (c.c_int, c.c_void_p, c.c_int64, c.POINTER(Answer), c.POINTER(Err)),
    "mr_sdk_stream_cancel": (None, c.c_void_p),
    "mr_sdk_stream_free": (None, c.POINTER(c.c_void_p)),
    "mr_sdk_stream_host": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_output_count": (c.c_uint32, c.c_void_p),
    "mr_sdk_result_output": (c.c_int, c.c_void_p, c.c_uint32, c.POINTER(Tensor)),
    "mr_sdk_result_model": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_version": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_id": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_variant": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_host": (c.c_char_p, c.c_void_p),
    "mr_sdk_result_attempts": (c.c_uint32, c.c_void_p),
    "mr_sdk_result_free": (None, c.POINTER(c.c_void_p)),
    "mr_sdk_dtype_name": (c.c_char_p, c.c_int32),
    "mr_sdk_status_text": (c.c_char_p, c.c_int),
}


def load():
    """MILLRACE_LIBRARY, the library beside this file, or that of the system."""
    beside = Path(__file__).with_name("libmillrace.so.1")
    name = os.environ.get("MILLRACE_LIBRARY") or (str(beside) if beside.exists() else ctypes.util.find_library("millrace") or "libmillrace.so.1")
    library = c.CDLL(name)
    for function, (result, *arguments) in FUNCTIONS.items():
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    return library


def strings(texts):
    """An array of C strings, and its length; NULL for none."""
    encoded = [text(t) for t in texts]
    return (c.c_char_p * len(encoded))(*encoded) if encoded else None, len(encoded)


def text(value):
    """A C string, which ends at its first NUL."""
    encoded = None if value is None else str(value).encode()
    if encoded is not None and b"\0" in encoded:
        raise ValueError(f"{value!r} has a NUL character")
    return encoded


def whole(name, value, most, least=0):
    """A number of C, of which ctypes cuts what does not fit."""
    number = operator.index(value)
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, possible are {least} to {most}")
    return number


def milliseconds(seconds):
    """0, which stands for the usual time, for None."""
    if seconds is None:
        return 0
    if not 0 <= seconds <= 86400:
        raise ValueError(f"timeout is {seconds}, possible are 0 to 86400 seconds")
    return max(1, round(seconds * 1000))


_WITH_OTHERS = ("size", "delivery", "config", "config_file", "urls", "url_count", "timeout_ms", "headers", "header_count", "reserved")
OPTIONS = {name: kind for name, kind in Options._fields_ if name not in _WITH_OTHERS}


def option(name, value):
    """The member of Options of that name."""
    kind = OPTIONS[name]
    if kind is c.c_char_p:
        return text(value)
    return whole(name, value, 2**32 - 1) if kind is c.c_uint32 else whole(name, value, 2**63 - 1, -2**63)
