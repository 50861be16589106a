"""Clients that mean harm, by table: claims of sizes that never come, floods of frames, requests that are no requests.

Each gets its answer or the end of its connection, the next request is served, and the server holds what it held before.
"""
import functools
import gzip
import os
import json
import re
import select
import socket
import struct

import pytest
from h2.errors import ErrorCodes

from lib import repo, wait
from lib.held import in_flight, resident
from lib.raw import GRPC_HEADERS, Http1, Http2, frame, grpc_frame, grpc_path, request
from lib.rest import Rest, binary_body, infer_path
from lib.server import Server
from lib.services.runtime import varint

pytestmark = pytest.mark.release

INFER = infer_path("m")
MIB = 1 << 20
SANITIZED = wait.SLOW > 1  # sanitizers keep freed memory


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """A server of this module's own, so that all that it holds comes from these tests."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "repo").mkdir()
    repo.add(folder / "repo", "m")
    repo.add(folder / "repo", "text", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    server = Server(folder / "server", [folder / "repo"]).wait_ready()
    serves(server)
    yield server
    server.stop()


def serves(server):
    with Rest(server.http) as rest, Http2(server.http) as wire:
        assert rest.infer("m", [("INPUT0", "INT32", [1], [7])]).ok().json()["outputs"][0]["data"] == [7]
        assert wire.ask().status == 200


class Held:
    """What a server holds, to be the same again."""

    def __init__(self, server):
        self.server, self.before = server, resident(server)

    def check(self, room):
        assert SANITIZED or resident(self.server) - self.before < room

    def check_end(self, room):
        serves(self.server)
        wait.equal(lambda: in_flight(self.server), (0, 0), "what is in flight")
        self.check(room)


# ---- claims ----

def claim_length(server, count):
    """60 MiB in a header, ten bytes in the body."""
    wires = [Http1(server.http) for _ in range(count)]
    for wire in wires:
        wire.send(request("POST", INFER, f"Content-Length: {60 * MIB}\r\n") + b'{"inputs":')
    return wires


def claim_chunk(server, count):
    wires = [Http1(server.http) for _ in range(count)]
    for wire in wires:
        wire.send(request("POST", INFER, "Transfer-Encoding: chunked\r\n") + b"3c00000\r\n" + b'{"inputs":')
    return wires


def claim_streams(path, headers, data):
    def claim(server, count):
        wire = Http2(server.http)
        for _ in range(count):
            wire.send(wire.headers("POST", path, headers, end=False), data, end=False)
        return [wire]

    return claim


CLAIMS = {
    "length": claim_length,
    "chunk": claim_chunk,
    "length over HTTP/2": claim_streams(INFER, [("content-length", str(60 * MIB))], b"0123456789"),
    "gRPC message of 1 GiB": claim_streams(grpc_path("ModelInfer"), GRPC_HEADERS, b"\0\x40\0\0\0" + b"01234"),
    "message of 1 GiB in a stream": claim_streams(grpc_path("ModelStreamInfer"), GRPC_HEADERS, b"\0\x40\0\0\0" + b"01234"),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_claims_cost_what_has_come(target, claim):
    held = Held(target)
    wires = claim(target, 100)
    serves(target)
    held.check(24 * MIB)
    for wire in wires:
        wire.close()
    held.check_end(24 * MIB)


# ---- floods over HTTP/2 ----

DATA, HEADERS, PRIORITY, RST, SETTINGS, PING, WINDOW, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
GET = b"\x82\x86\x84\x41\x09localhost"  # GET http://localhost/
POST = b"\x83\x86\x84\x41\x09localhost"


def streams(make):
    """make(stream) for one new stream after the other."""
    return lambda i: b"".join(make(2 * k + 1) for k in range(20 * i, 20 * i + 20))


def on_one_stream(begin, data):
    return lambda i: (begin if i == 0 else b"") + data


def repeated(data):
    return on_one_stream(b"", data * 100)


def table_entries(i):
    """A request with 50 new header fields for the server's dynamic table."""
    fields = (b"\x40\x02" + bytes([97 + k % 26, 97 + i % 26]) + b"\x7f\x01" + b"v" * 128 for k in range(50))
    return frame(HEADERS, 5, 2 * i + 1, GET + b"".join(fields))


def table_references(i):
    """One large header field, and then only its index, 4000 times in a request."""
    return frame(HEADERS, 5, 2 * i + 1, GET + (b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000 if i == 0 else b"\xbe" * 4000))


CALM, PROTOCOL, CLOSED = ErrorCodes.ENHANCE_YOUR_CALM, ErrorCodes.PROTOCOL_ERROR, ErrorCodes.STREAM_CLOSED
# The error code of the GOAWAY; "cut": the connection ends, not always with a word; None: it is no harm and may go on.
FLOODS = {
    "PING": (repeated(frame(PING, 0, 0, b"12345678")), "cut"),
    "SETTINGS": (repeated(frame(SETTINGS, 0, 0, b"")), "cut"),
    "SETTINGS with values": (repeated(frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff" * 10)), "cut"),
    "PRIORITY": (streams(lambda s: frame(PRIORITY, 0, s, b"\0\0\0\0\x10") * 10), CALM),
    "WINDOW_UPDATE": (repeated(frame(WINDOW, 0, 0, b"\0\0\0\1")), None),
    "unknown frames": (repeated(frame(0x55, 0, 0, b"x" * 100)), CALM),
    "unknown frames of a stream": (on_one_stream(frame(HEADERS, 4, 1, POST), frame(0xff, 0xff, 1, b"") * 100), CALM),
    "ALTSVC": (repeated(frame(0xa, 0, 0, b"\0\1xh2=\":1\"")), CALM),
    "ORIGIN": (repeated(frame(0xc, 0, 0, b"\0\1x")), CALM),
    "PRIORITY_UPDATE": (repeated(frame(0x10, 0, 0, b"\0\0\0\1u=1")), CALM),
    "empty DATA": (on_one_stream(frame(HEADERS, 4, 1, POST), frame(DATA, 0, 1, b"") * 100), CALM),
    "DATA of padding": (on_one_stream(frame(HEADERS, 4, 1, POST), frame(DATA, 8, 1, b"\xff" + b"\0" * 255) * 20), None),
    "empty CONTINUATION": (on_one_stream(frame(HEADERS, 0, 1, GET), frame(CONTINUATION, 0, 1, b"") * 100), "cut"),
    "requests that are reset": (streams(lambda s: frame(HEADERS, 5, s, GET) + frame(RST, 0, s, b"\0\0\0\x08")), CALM),
    "requests that are malformed": (streams(lambda s: frame(HEADERS, 5, s, b"\x82\x86")), CALM),
    "resets provoked by a window of 0": (streams(lambda s: frame(HEADERS, 4, s, POST) + frame(WINDOW, 0, s, b"\0\0\0\0")), PROTOCOL),
    "resets provoked by late DATA": (streams(lambda s: frame(HEADERS, 5, s, GET) + frame(DATA, 0, s, b"x")), CLOSED),
    "resets provoked by a circle": (streams(lambda s: frame(HEADERS, 4, s, POST) + frame(PRIORITY, 0, s, struct.pack(">IB", s, 1))),
                                    PROTOCOL),
    "header table": (table_entries, None),
    "header table by reference": (table_references, None),
}


def flood(server, data, reads):
    """The output of the server and whether it closed the connection, for a client that reads all along or only at the end."""
    said = b""
    with socket.create_connection(("127.0.0.1", server.http), timeout=wait.PATIENCE) as s:
        try:
            s.sendall(PREFACE)
            for i in range(1500):
                s.sendall(data(i))
                if reads:
                    said += received(s)
            s.shutdown(socket.SHUT_WR)
        except ConnectionError:
            pass
        try:
            while more := s.recv(65536):
                said += more
        except ConnectionResetError:
            return said, True
    return said, i < 1499 or goaway(said) is not None


def received(s):
    return s.recv(65536) if select.select([s], [], [], 0)[0] else b""


def goaway(said):
    """Error code of the last GOAWAY."""
    code, at = None, 0
    while at + 9 <= len(said):
        if said[at + 3] == 7:
            code = ErrorCodes(int.from_bytes(said[at + 13 : at + 17], "big"))
        at += 9 + int.from_bytes(said[at : at + 3], "big")
    return code


@pytest.mark.parametrize("data, end", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("reads", [True, False], ids=["reading", "deaf"])
def test_floods(target, data, end, reads):
    held = Held(target)
    said, ended = flood(target, data, reads)
    held.check(24 * MIB)
    if end is not None:
        assert ended
        # A reset of the connection may overtake the GOAWAY.
        assert end == "cut" or goaway(said) in (end, None)
    held.check_end(24 * MIB)


# ---- requests ----

def body(**fields):
    return json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [1, 2], **fields}]}).encode()


def binary(inputs, blobs):
    data, length = binary_body(inputs, blobs)
    return data, {"Inference-Header-Content-Length": str(length)}


@functools.cache
def bomb():
    return gzip.compress(bytes(65 * MIB), 1)


@functools.cache
def large():
    return gzip.compress(b"".join(os.urandom(24) + bytes(1000) for _ in range(65 * 1024)), 1)


PARSE = r"^failed to parse the request JSON buffer: "
OPTION = r"exceeds the maximum allowed value of \d+ bytes\. Use --http-max-input-size"
DEPTH = r"JSON nesting depth exceeds maximum allowed limit \(100\) \(--json-max-depth\)"
RATIO = r"unpacks to more than \d+ times its size .*--max-decompression-ratio"
GZIP = {"Content-Encoding": "gzip"}
REST = {
    "nothing": (b"", {}, PARSE),
    "deep objects": (b'{"a":' * 50_000, {}, PARSE + DEPTH),
    "deep data": (b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":' + b"[" * 50_000, {}, "'data': " + DEPTH),
    "bytes behind the JSON": (body() + b"x", {}, PARSE + "expected the end of the text"),
    "NUL behind the JSON": (body() + b"\0", {}, PARSE + "expected the end of the text"),
    "two documents": (body() * 2, {}, PARSE + "expected the end of the text"),
    "a member twice": (b'{"inputs":[],"inputs":[]}', {}, "'inputs': the member appears twice"),
    "name that is not UTF-8": (body().replace(b"INPUT0", b"\xff\xfe"), {}, "'name': string is not valid UTF-8"),
    "id that is not UTF-8": (b'{"id":"\xed\xa0\x80","inputs":[]}', {}, "'id': string is not valid UTF-8"),
    "half a surrogate": (b'{"id":"\\ud800","inputs":[]}', {}, "'id': malformed escape"),
    "negative dimension": (body(shape=[-2]), {}, "'shape': attempt to access JSON non-unsigned-integer"),
    "dimension beyond 63 bits": (body(shape=[1 << 63]), {}, "'shape': integer does not fit"),
    "dimension with a point": (body(shape=[2.0]), {}, "'shape': expected an integer"),
    "1 GiB of two numbers": (body(shape=[1 << 28]), {}, "Shape does not match true shape of 'data' field"),
    "number that does not fit": (body(data=[1, 1 << 31]), {}, "'data': value 2147483648 does not fit int32"),
    "1 GiB of ten bytes": (*binary([{"name": "INPUT0", "datatype": "INT32", "shape": [1 << 28],
                                     "parameters": {"binary_data_size": 1 << 30}}, ("INPUT1", "INT32", [2])], [b"0123456789"]),
                           "unexpected size for input 'INPUT0', expecting 1073741814 additional bytes for model 'm'"),
    "JSON longer than the body": (body(), {"Inference-Header-Content-Length": str(1 << 30)},
                                  r"inference header size should be in range \(0, \d+\), got: 1073741824"),
    "length of JSON beyond 64 bits": (body(), {"Inference-Header-Content-Length": "18446744073709551621"},
                                      "Unable to parse Inference-Header-Content-Length"),
    "3000 inputs": (json.dumps({"inputs": [{"name": "a", "datatype": "INT32", "shape": [1], "data": [1]}] * 3000}).encode(), {},
                    "more than 1024 inputs"),
    "3000 parameters": (json.dumps({"parameters": {str(i): 1 for i in range(3000)}, "inputs": []}).encode(), {},
                        "more than 1024 parameters"),
    "bomb": (bomb, GZIP, RATIO),
    "large once unpacked": (large, GZIP, OPTION),
    "damaged gzip": (gzip.compress(body())[:-4], GZIP, "compressed data is damaged or cut short"),
    "bytes behind gzip": (gzip.compress(body()) + b"x", GZIP, "bytes after the compressed data"),
}


def check_rest(rest, data, headers, text):
    reply = rest.post(INFER, data() if callable(data) else data, headers=headers)
    assert reply.status == 400 and re.search(text, reply.error), (reply.status, reply.error)


def field(number, data):
    data = data if isinstance(data, bytes) else data.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def infer(name=b"m", tensor=b"INPUT0", shape=(2,), rest=field(7, b"12345678")):
    tensors = field(1, tensor) + field(2, "INT32") + field(3, b"".join(varint(n) for n in shape))
    return field(1, name) + field(5, tensors) + rest


INVALID, EXHAUSTED, INTERNAL = 3, 8, 13
MESSAGE = "failed to parse the protobuf message"
GRPC = {
    "no message": (b"", INVALID, "holds no gRPC message"),
    "message of 1 GiB in ten bytes": (b"\0\x40\0\0\0" + b"01234", INVALID, "cut short"),
    "message of 4 GiB": (b"\0\xff\xff\xff\xff" + b"01234", EXHAUSTED, "--grpc-max-message-size"),
    "two messages": (grpc_frame(infer()) * 2, INVALID, "more than one gRPC message"),
    "odd flag": (b"\2\0\0\0\0", INVALID, "invalid gRPC message flag 2"),
    "compressed without coding": (grpc_frame(b"x", compressed=1), INTERNAL, "without a grpc-encoding"),
    "tensor of 1 GiB in ten bytes": (grpc_frame(infer(rest=varint(7 << 3 | 2) + varint(1 << 30) + b"0123456789")), INVALID, MESSAGE),
    "length beyond 63 bits": (grpc_frame(infer(rest=varint(7 << 3 | 2) + b"\xff" * 9 + b"\1")), INVALID, MESSAGE),
    "groups": (grpc_frame(b"\x0b" * 10_000), INVALID, MESSAGE),
    "field number 0": (grpc_frame(b"\2\0"), INVALID, MESSAGE),
    "odd wire type": (grpc_frame(b"\x0f"), INVALID, MESSAGE),
    "id that is not UTF-8": (grpc_frame(infer() + field(3, b"\xff")), INVALID, "a string is not valid UTF-8"),
    "name that is not UTF-8": (grpc_frame(infer(name=b"\xff")), INVALID, "a string is not valid UTF-8"),
    "input that is not UTF-8": (grpc_frame(infer(tensor=b"\xff")), INVALID, "a string is not valid UTF-8"),
    "negative dimension": (grpc_frame(infer(shape=[2**64 - 2])), INVALID, r"dimension 0 of shape \[-2\] is negative"),
    "shape beyond 64 bits": (grpc_frame(infer(shape=[1 << 62, 8])), INVALID, "exceed maximum size of 2.64 - 1"),
    "damaged string": (grpc_frame(field(1, "text") + field(5, field(1, "INPUT0") + field(2, "BYTES") + field(3, b"\1")) +
                                  field(7, b"\0\0\0\x40abcdef")), INVALID, "expecting string of length 1073741824 bytes but only 6"),
}


def check_grpc(wire, data, status, text):
    answer = wire.ask("POST", grpc_path("ModelInfer"), data, GRPC_HEADERS)
    assert int(answer.headers["grpc-status"]) == status, answer.headers
    assert re.search(text, answer.headers["grpc-message"]), answer.headers
    assert answer.body == b""


@pytest.mark.parametrize("row", REST.values(), ids=REST)
def test_rest(target, row):
    with Rest(target.http) as rest:
        check_rest(rest, *row)
        rest.infer("m", [("INPUT0", "INT32", [1], [7])]).ok()


@pytest.mark.parametrize("row", GRPC.values(), ids=GRPC)
def test_grpc(target, row):
    with Http2(target.grpc) as wire:
        check_grpc(wire, *row)
        answer = wire.ask("POST", grpc_path("ModelInfer"), grpc_frame(infer()), GRPC_HEADERS)
        assert answer.headers["grpc-status"] == "0"


def test_all_of_them_many_times(target):
    def rounds(count):
        with Rest(target.http) as rest, Http2(target.http) as wire:
            for _ in range(count):
                for row in REST.values():
                    if row[2] not in (OPTION, RATIO):  # takes its time
                        check_rest(rest, *row)
                for row in GRPC.values():
                    check_grpc(wire, *row)

    rounds(5)
    held = Held(target)
    rounds(2 if SANITIZED else 25)
    held.check_end(4 * MIB)
