"""Bytes on sockets: an HTTP/1 reader that takes nothing for granted, and a small HTTP/2 client over `h2`."""
import re
import socket
import struct
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings

from lib import wait


@dataclass
class Response:
    status: int
    headers: dict
    body: bytes
    version: str = "HTTP/1.1"
    interim: list = field(default_factory=list)  # statuses of 1xx answers before it


class Closed(Exception):
    """The server closed the connection; `.rest` is what came before."""

    def __init__(self, rest=b""):
        super().__init__(f"closed by the server after {rest[:200]!r}")
        self.rest = rest


class Http1:
    def __init__(self, port, receive_buffer=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(wait.PATIENCE)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, data):
        self.sock.sendall(data if isinstance(data, bytes) else data.encode("latin-1"))

    def send_until_refused(self, data):
        """For servers that answer and close before everything is sent."""
        try:
            self.send(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def _more(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(self.buffer)
        self.buffer += data

    def _until(self, mark):
        while mark not in self.buffer:
            self._more()
        found, _, self.buffer = self.buffer.partition(mark)
        return found

    def _exactly(self, count):
        while len(self.buffer) < count:
            self._more()
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def response(self, head=False):
        interim = []
        while True:
            lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
            version, status = lines[0].split(" ")[:2]
            headers = {}
            for line in lines[1:]:
                key, value = line.split(":", 1)
                headers[key.lower()] = value.strip()
            if not 100 <= int(status) < 200:
                break
            interim.append(int(status))
        body = b""
        if head or int(status) in (204, 304):
            pass
        elif headers.get("transfer-encoding") == "chunked":
            while size := int(self._until(b"\r\n"), 16):
                body += self._exactly(size)
                assert self._exactly(2) == b"\r\n"
            assert self._until(b"\r\n") == b""
        elif "content-length" in headers:
            body = self._exactly(int(headers["content-length"]))
        else:
            raise AssertionError(f"an answer without length: {lines}")
        return Response(int(status), headers, body, version, interim)

    def expect_close(self):
        """Nothing more comes, and the server closes."""
        try:
            while True:
                self._more()
        except Closed as e:
            assert e.rest == b"", f"more came: {e.rest[:300]!r}"


def request(method, path, headers="", body=b"", host=True, version="HTTP/1.1"):
    """Bytes of a request; headers as lines with CRLF; a Content-Length is added for a body."""
    body = body if isinstance(body, bytes) else body.encode()
    head = f"{method} {path} {version}\r\n" + ("Host: localhost\r\n" if host else "") + headers
    head += f"Content-Length: {len(body)}\r\n" if body and not re.search("^content-length:", headers, re.I | re.M) else ""
    return head.encode("latin-1") + b"\r\n" + body


@dataclass
class Goaway:
    last_stream: int
    error_code: int
    text: bytes


class Http2:
    """One connection. Events of each stream are kept in order; nothing is acknowledged unless `auto` is set.

    GOAWAY frames are taken out here: h2 would not go on with the streams that the server still answers.
    """

    def __init__(self, port, settings=None, auto=True, unchecked=False, context=None):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=wait.PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            self.sock = context.wrap_socket(self.sock)
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8", validate_outbound_headers=not unchecked,
                                           normalize_outbound_headers=not unchecked)
        self.h2 = h2.connection.H2Connection(config)
        if settings:
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        self.auto = auto
        self.events = []
        self.goaways = []
        self.unread = b""
        self.ended = False
        self.h2.initiate_connection()
        self.flush()

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def headers(self, method="GET", path="/v2", extra=(), end=True, stream=None):
        stream = stream or self.h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        self.h2.send_headers(stream, pseudo + list(extra), end_stream=end)
        self.flush()
        return stream

    def send(self, stream, data, end=True):
        """Within the flow control that the server grants."""
        sent = 0
        while sent < len(data) or (end and not data):
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data) - sent)
            if room > 0 or not data:
                piece = data[sent : sent + room]
                sent += len(piece)
                self.h2.send_data(stream, piece, end_stream=end and sent == len(data))
                self.flush()
                if not data:
                    break
            else:
                self.read()
                if self.ended or self.reset_of(stream) is not None:
                    raise Closed()

    def read(self):
        """One read from the socket; False at the end of the connection."""
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended = True
            return False
        for event in self.h2.receive_data(self._without_goaway(data)):
            self.events.append(event)
            if isinstance(event, h2.events.DataReceived) and self.auto and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        try:
            self.flush()
        except (BrokenPipeError, ConnectionResetError):
            self.ended = True
        return True

    def _without_goaway(self, data):
        kept, self.unread = b"", self.unread + data
        while len(self.unread) >= 9:
            size = 9 + int.from_bytes(self.unread[:3], "big")
            if len(self.unread) < size:
                break
            frame, self.unread = self.unread[:size], self.unread[size:]
            if frame[3] == 7:
                last, code = struct.unpack(">II", frame[9:17])
                self.goaways.append(Goaway(last & 0x7FFFFFFF, code, frame[17:]))
            else:
                kept += frame
        return kept

    def of(self, stream, kind=None):
        return [e for e in self.events if getattr(e, "stream_id", None) == stream and (kind is None or isinstance(e, kind))]

    def data_of(self, stream):
        return b"".join(e.data for e in self.of(stream, h2.events.DataReceived))

    def reset_of(self, stream):
        resets = self.of(stream, h2.events.StreamReset)
        return resets[0].error_code if resets else None

    def terminated(self):
        return self.goaways[-1] if self.goaways else None

    def wait(self, condition, what):
        while not condition():
            if not self.read() and not condition():
                raise AssertionError(f"the connection ended before {what}: {self.events}")

    def response(self, stream):
        self.wait(lambda: self.of(stream, h2.events.StreamEnded) or self.reset_of(stream) is not None, f"the end of stream {stream}")
        # A whole answer may be followed by a reset without error: "send me no more of this body".
        done = self.of(stream, h2.events.StreamEnded)
        assert done or self.reset_of(stream) is None, f"stream {stream} was reset: {self.reset_of(stream)!r}"
        headers = dict(self.of(stream, h2.events.ResponseReceived)[0].headers)
        trailers = self.of(stream, h2.events.TrailersReceived)
        return Response(int(headers[":status"]), {**headers, **(dict(trailers[0].headers) if trailers else {})},
                        self.data_of(stream), "HTTP/2")

    def ask(self, method="GET", path="/v2", body=None, extra=()):
        stream = self.headers(method, path, extra, end=body is None)
        if body is not None:
            self.send(stream, body)
        return self.response(stream)


def frame(kind, flags, stream, payload=b""):
    """A frame of HTTP/2."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


GRPC_HEADERS = (("content-type", "application/grpc"), ("te", "trailers"))


def grpc_frame(message, compressed=0):
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return bytes([compressed]) + len(data).to_bytes(4, "big") + data


def grpc_path(method):
    return f"/inference.GRPCInferenceService/{method}"
