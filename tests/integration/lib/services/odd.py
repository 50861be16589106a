"""Hosts that answer in bytes of the test's choice: over HTTP/1.1, or over HTTP/2 in frames."""
import contextlib
import json
import socket
import struct
import threading

import hpack
from tritonclient.grpc import service_pb2 as pb

from lib.raw import frame

CLOSE = object()  # the connection, in place of bytes
VALUES = list(range(4))


def http(body=b"", status="200 OK", headers=""):
    """An answer of HTTP/1.1; headers as lines with CRLF."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def output(shape=(4,), name="OUTPUT0"):
    return {"name": name, "datatype": "INT32", "shape": list(shape), "data": VALUES}


def head(*pairs, end=False):
    """A frame of an answer, for a stream that is not known yet, as all that follow: HEADERS."""
    return lambda stream: frame(1, 4 | end, stream, hpack.Encoder().encode(pairs))


def data(content, end=False):
    return lambda stream: frame(0, int(end), stream, content)


def reset(code):
    return lambda stream: frame(3, 0, stream, struct.pack(">I", code))


def message(content, compressed=0):
    """A message of gRPC with its prefix."""
    content = content if isinstance(content, bytes) else content.SerializeToString()
    return bytes([compressed]) + struct.pack(">I", len(content)) + content


GRPC = head((":status", "200"), ("content-type", "application/grpc"))


def inferred():
    answer = pb.ModelInferResponse(model_name="m", model_version="1", raw_output_contents=[struct.pack("<4i", *VALUES)])
    answer.outputs.add(name="OUTPUT0", datatype="INT32", shape=[4])
    return answer


def trailers(status=0, *more):
    return head(("grpc-status", str(status)), *more, end=True)


# What the client library's tests ask for.
GOOD = {"http": [http({"model_name": "m", "outputs": [output()]})],
        "grpc": [GRPC, data(message(inferred())), trailers()]}


class Host:
    """`answers` are for the requests in turn, the last one for all that follow: bytes, or frames, or CLOSE."""

    def __init__(self, kind, answers):
        self.kind, self.answers, self.asked, self.lock = kind, answers, 0, threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.url = f"{kind}://{self.address}"
        self.thread = threading.Thread(target=self._accept)
        self.connections = []
        self.thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as file, contextlib.suppress(OSError):
            for stream in self._http(file) if self.kind == "http" else self._frames(file, connection):
                with self.lock:
                    self.asked += 1
                    answer = self.answers[min(self.asked, len(self.answers)) - 1]
                for part in answer:
                    if part is CLOSE:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    connection.sendall(part if isinstance(part, bytes) else part(stream))

    @staticmethod
    def _http(file):
        while line := file.readline():
            length = 0
            while (line := file.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            file.read(length)
            yield 0

    @staticmethod
    def _frames(file, connection):
        """Each stream once its first bytes of a body, or its end, are there: the requests of these tests are small."""
        begun = set()
        connection.sendall(frame(4, 0, 0))
        file.read(24)
        while len(start := file.read(9)) == 9:
            size, kind, flags, stream = int.from_bytes(start[:3], "big"), start[3], start[4], int.from_bytes(start[5:], "big")
            file.read(size)
            if kind == 4 and not flags & 1:
                connection.sendall(frame(4, 1, 0))
            if stream not in begun and (kind == 0 or kind == 1 and flags & 1):
                begun.add(stream)
                yield stream

    def end(self):
        for s in (self.listener, *self.connections):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()


@contextlib.contextmanager
def serving(kind, *answers):
    """A host of kind "http" or "grpc" (HTTP/2); each answer is a list."""
    host = Host(kind, answers)
    try:
        yield host
    finally:
        host.end()
