"""Many clients of all kinds at once: each gets the answer to its own request. And a server that receives thousands of
damaged requests keeps serving.

Random, but the same at every run.
"""
import random
import socket
import threading

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, wait
from lib.grpcraw import Grpc
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import Rest, binary_body

INFER = "/v2/models/flat_int32/infer"
SIZES = (0, 1, 3, 100, 5_000, 70_000)


def vector(rng):
    return np.arange(rng.choice(SIZES), dtype="<i4") + rng.randrange(1 << 20)


def rest_json(server, rng, count):
    with Rest(server.http) as client:
        for _ in range(count):
            x = vector(rng)[:5000]
            yield x, client.infer("flat_int32", [("INPUT0", "INT32", [len(x)], x.tolist())]).ok().json()["outputs"][0]["data"]


def rest_binary(server, rng, count):
    with Rest(server.grpc) as client:
        for _ in range(count):
            x = vector(rng)
            reply = client.infer_binary("flat_int32", [("INPUT0", "INT32", [len(x)])], [x.tobytes()],
                                        parameters={"binary_data_output": True})
            yield x, np.frombuffer(reply.ok().parts()[1]["OUTPUT0"], "<i4").tolist()


def rest_batch(server, rng, count):
    """Rows through a model of ONNX Runtime."""
    with Rest(server.http) as client:
        for _ in range(count):
            x = np.array([rng.randrange(1000) for _ in range(64)], "<i4")
            reply = client.infer_binary("simple", [("INPUT0", "INT32", [4, 16]), ("INPUT1", "INT32", [4, 16])], [x.tobytes()] * 2,
                                        outputs=[{"name": "OUTPUT0"}])
            yield x * 2, reply.ok().json()["outputs"][0]["data"]


def grpc_unary(server, rng, count):
    with Grpc(server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
        for _ in range(count):
            x = vector(rng)
            yield x, np.frombuffer(client.infer(grpcraw.int32("flat_int32", x)).raw_output_contents[0], "<i4").tolist()


def grpc_stream(server, rng, count):
    with Grpc(server.url("http"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
        sent = [vector(rng) for _ in range(count)]
        answers = client.stub.ModelStreamInfer((grpcraw.int32("flat_int32", x) for x in sent), timeout=wait.PATIENCE)
        for x, answer in zip(sent, answers, strict=True):
            yield x, np.frombuffer(answer.infer_response.raw_output_contents[0], "<i4").tolist()


def http2_streams(server, rng, count):
    with Http2(server.http) as wire:
        for _ in range(count // 5):
            sent = {}
            for _ in range(5):
                stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
                sent[stream] = vector(rng)
                wire.send(stream, grpc_frame(grpcraw.int32("flat_int32", sent[stream])))
            for stream, x in sent.items():
                m = pb.ModelInferResponse.FromString(wire.response(stream).body[5:])
                yield x, np.frombuffer(m.raw_output_contents[0], "<i4").tolist()


def errors(server, rng, count):
    """Bad requests in between."""
    with Rest(server.http) as client:
        for _ in range(count):
            reply = client.infer("flat_int32", [("INPUT0", "INT32", [2], [1])])
            yield np.array([400]), [400 if reply.error else 0]


KINDS = (rest_json, rest_binary, rest_batch, grpc_unary, grpc_stream, http2_streams, errors)


def test_everybody_gets_his_own_answer(server):
    problems = []

    def run(kind, seed):
        try:
            for x, got in kind(server, random.Random(seed), 100):
                if x.tolist() != got:
                    problems.append((kind.__name__, x[:5], got[:5]))
        except BaseException as e:
            problems.append((kind.__name__, repr(e)))

    threads = [threading.Thread(target=run, args=(kind, seed)) for seed, kind in enumerate(KINDS * 2)]
    [t.start() for t in threads]
    [t.join(wait.PATIENCE) for t in threads]
    assert not any(t.is_alive() for t in threads)
    assert not problems, problems[:5]


# ---- damage ----

def damage(rng, data):
    """A few bytes changed, cut out, doubled or put in."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + rng.randint(1, 30)]
        elif kind == 3:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        else:
            data[at:at] = rng.choice([b"\r\n", b"\0", b"99999999999", b"-1", b"[[[[", b"\xff\xff\xff\xff", b"true", b'"'])
        if not data:
            return b"\0"
    return bytes(data)


def good(server):
    with Rest(server.http) as client:
        return client.infer("flat_int32", [("INPUT0", "INT32", [2], [1, 2])]).ok().json()["outputs"][0]["data"] == [1, 2]


def let_go(sock):
    """Read what comes; the server either answers or closes."""
    sock.settimeout(wait.PATIENCE)
    try:
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65536):
            pass
    except OSError as e:
        assert not isinstance(e, TimeoutError)


BLOB = np.arange(20, dtype="<i4").tobytes()
JSON = (b'{"id":"x","parameters":{"a":1.5},"inputs":[{"name":"INPUT0","shape":[2],"datatype":"INT32","data":[1,2]}],'
        b'"outputs":[{"name":"OUTPUT0"}]}')


@pytest.mark.parametrize("seed", range(4))
def test_damaged_http(server, seed):
    rng = random.Random(seed)
    body, length = binary_body([("INPUT0", "INT32", [20])], [BLOB])
    whole = [request("POST", INFER, "", JSON), request("POST", INFER, f"Inference-Header-Content-Length: {length}\r\n", body),
             request("GET", "/v2/models/simple/config") * 2,
             b"POST /v2/models/flat_int32/infer HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(JSON), JSON)]
    for _ in range(100):
        with Http1(server.http) as wire:
            wire.send_until_refused(damage(rng, rng.choice(whole)))
            let_go(wire.sock)
    assert good(server)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_bodies(rest, seed):
    """The framing is sound, what it holds is not."""
    rng = random.Random(seed)
    body, length = binary_body([("INPUT0", "INT32", [20])], [BLOB])
    for _ in range(400):
        bad = damage(rng, JSON)
        assert rest.post(INFER, bad).status in (200, 400, 500, 501)
        bad = damage(rng, body)
        assert rest.post(INFER, bad, headers={"Inference-Header-Content-Length": str(length)}).status in (200, 400, 500, 501)
    assert rest.infer("flat_int32", [("INPUT0", "INT32", [1], [1])]).status == 200


@pytest.mark.parametrize("seed", range(2))
def test_damaged_grpc_messages(server, grpc_, seed):
    rng = random.Random(seed)
    contents = grpcraw.request("flat_int32", [("INPUT0", "INT32", [2], {"int_contents": [1, 2]})], outputs=["OUTPUT0"],
                               id="x", parameters={"a": 1})
    raw = grpcraw.int32("flat_int32", [1, 2, 3], outputs=[("OUTPUT0", {"classification": 1})])
    as_bytes = dict(request_serializer=bytes, response_deserializer=bytes)
    call = grpc_.channel.unary_unary(grpc_path("ModelInfer"), **as_bytes)
    stream = grpc_.channel.stream_stream(grpc_path("ModelStreamInfer"), **as_bytes)
    futures = [call.future(damage(rng, rng.choice([contents, raw]).SerializeToString()), timeout=wait.PATIENCE) for _ in range(400)]
    [f.exception() for f in futures]
    for _ in range(20):
        messages = [damage(rng, contents.SerializeToString()) for _ in range(10)]
        try:
            list(stream(iter(messages), timeout=wait.PATIENCE))
        except Exception:
            pass
    assert good(server)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_http2(server, seed):
    """A recorded conversation with a few bytes changed."""
    rng = random.Random(seed)
    recorded = []
    with Http2(server.http) as wire:
        plain = wire.sock

        class Recorder:
            def __getattr__(self, name):
                return getattr(plain, name)

            def sendall(self, data):
                recorded.append(data)
                plain.sendall(data)

        wire.sock = Recorder()
        wire.ask("POST", INFER, JSON)
        wire.ask("POST", grpc_path("ModelInfer"), grpc_frame(grpcraw.int32("flat_int32", [1])), GRPC_HEADERS)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    whole = b"".join(recorded)
    for _ in range(100):
        with Http1(server.grpc) as wire:
            wire.send_until_refused(preface + damage(rng, whole))
            let_go(wire.sock)
    assert good(server)
