"""A runtime of ModelMesh by script: mmesh.ModelRuntime, and a service of its own whose messages only it knows."""
import contextlib
import os
import socket
import threading
from concurrent import futures

import grpc

PREFIX = "/mmesh.ModelRuntime/"


def varint(n):
    out = b""
    while n >= 0x80:
        out += bytes([n & 0x7F | 0x80])
        n >>= 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n)


def data(field, b):
    b = b.encode() if isinstance(b, str) else b
    return varint(field << 3 | 2) + varint(len(b)) + b


def fields(b):
    """{number: last value} of a message: int or bytes."""
    out, at = {}, 0

    def take():
        nonlocal at
        n = shift = 0
        while True:
            n |= (b[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
            if b[at - 1] < 0x80:
                return n

    while at < len(b):
        tag = take()
        value = take()
        if tag & 7 == 2:
            at, value = at + value, b[at:at + value]
        out[tag >> 3] = value
    return out


class Runtime:
    """What it does can be changed while it runs: `load`, `answer`, `size` … are called for each call."""

    def __init__(self, capacity=1 << 30, default=1 << 20, loaders=4, timeout_ms=60000, methods=None, allow_any=False, address="127.0.0.1:0", concurrency=0):
        self.status = {"capacity": capacity, "default": default, "loaders": loaders, "timeout_ms": timeout_ms}
        self.methods, self.allow_any = methods or {}, allow_any
        self.lock = threading.Lock()
        self.loaded, self.calls, self.seen = {}, [], []
        self.size = lambda id: 1 << 20
        self.predict = None
        self.load = lambda id, path, context: None
        self.concurrency = concurrency  # of each model; 0: not limited
        self.answer = self.echo
        self.state = 1
        self.port = None
        self.start(address)

    def start(self, address=None):
        self.server = grpc.server(futures.ThreadPoolExecutor(32), options=[("grpc.so_reuseport", 0), ("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
        self.server.add_generic_rpc_handlers([self])
        self.port = self.server.add_insecure_port(address or f"127.0.0.1:{self.port}") or self.port
        self.server.start()

    @property
    def target(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        """As if it were killed: what it had is gone."""
        self.server.stop(0).wait()
        with self.lock:
            self.loaded.clear()

    def cut(self):
        """Its connections end, and no call of them is answered."""
        for fd in os.listdir("/proc/self/fd"):
            if "socket:" in os.path.realpath(f"/proc/self/fd/{fd}"):
                with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as s:
                    if s.getpeername() and s.getsockname()[1:2] == (self.port,):
                        s.shutdown(socket.SHUT_RDWR)

    # ---- the calls

    def service(self, details):
        name = details.method
        if name.startswith(PREFIX):
            return grpc.unary_unary_rpc_method_handler(lambda m, c: self.manage(name[len(PREFIX):], m, c))
        return grpc.stream_stream_rpc_method_handler(lambda it, c: self.infer(name, it, c, details.invocation_metadata))

    def manage(self, name, message, context):
        f = fields(message)
        id = f.get(1, b"").decode()
        with self.lock:
            self.calls.append((name, id))
        return getattr(self, "_" + name)(id, f, context)

    def _runtimeStatus(self, id, f, context):
        with self.lock:
            self.loaded.clear()
        s = self.status
        out = number(1, self.state) + number(2, s["capacity"]) + number(3, s["loaders"]) + number(4, s["timeout_ms"]) + number(5, s["default"]) + data(6, "script")
        for method, path in self.methods.items():
            out += data(8, data(1, method) + data(2, data(1, b"".join(varint(p) for p in path)) if path else b""))
        return out + number(9, int(self.concurrency > 0)) + number(10, int(self.allow_any))

    def _loadModel(self, id, f, context):
        path = f.get(3, b"").decode()
        self.load(id, path, context)
        with self.lock:
            self.loaded[id] = path
        return (number(1, self.size(id)) if self.size(id) else b"") + number(2, self.concurrency)

    def _unloadModel(self, id, f, context):
        with self.lock:
            if self.loaded.pop(id, None) is None:
                context.abort(grpc.StatusCode.NOT_FOUND, "not loaded")
        return b""

    def _modelSize(self, id, f, context):
        return number(1, 3 << 20)

    def _predictModelSize(self, id, f, context):
        if self.predict is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no predictions")
        return number(1, self.predict(id))

    def infer(self, name, messages, context, metadata):
        metadata = [(k, v) for k, v in metadata]
        id = dict(metadata).get("mm-model-id-bin", b"").decode()
        with self.lock:
            self.seen.append((name, id, metadata))
            is_there = id in self.loaded
        if not is_there:
            context.abort(grpc.StatusCode.NOT_FOUND, f"{id} is not loaded")
        yield from self.answer(name, id, messages, context)

    def echo(self, name, id, messages, context):
        for m in messages:
            yield m

    def count(self, name, id=None):
        with self.lock:
            return sum(n == name and id in (None, i) for n, i in self.calls)
