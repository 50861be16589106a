"""Large bodies over HTTP/2 in frames of any size: the server reads frames of equal length straight to their place, and must
not take frames between them for a part of the body."""
import random
import socket
import ssl
import subprocess

import numpy as np
import pytest
from h2.events import PingAckReceived

from lib import grpcraw, repo, wait
from lib.counts import counting
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path
from lib.rest import binary_body

REST = "/v2/models/m/infer"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "tls.crt", folder / "tls.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3",
                    "-subj", "/CN=localhost", "-out", files[0], "-keyout", files[1]], check=True, capture_output=True)
    return files


@pytest.fixture(params=["plain", "tls"])
def wire(request, models, start, certificate):
    repo.add(models, "m")
    tls = ["--grpc-use-ssl", f"--grpc-server-cert={certificate[0]}", f"--grpc-server-key={certificate[1]}"]
    server = start(models, *(tls if request.param == "tls" else []))
    context = None
    if request.param == "tls":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
    with Http2(server.grpc, context=context) as wire:
        yield wire


class Body:
    """One request on its way, in frames."""

    def __init__(self, wire, dice, kind, count=None):
        self.wire, self.dice, self.kind = wire, dice, kind
        self.values = np.frombuffer(dice.randbytes(4 * (count or dice.choice([3000, 100_000, 300_000]))), "<i4")
        if kind == "grpc":
            self.left = grpc_frame(grpcraw.int32("m", self.values))
            self.stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
        else:
            self.left, length = binary_body([("INPUT0", "INT32", [len(self.values)])], [self.values.tobytes()],
                                            parameters={"binary_data_output": True})
            head = [("inference-header-content-length", str(length))]
            head += [("content-length", str(len(self.left)))] if kind == "sized" else []
            self.stream = wire.headers("POST", REST, head, end=False)
        self.usual = dice.choice([1000, 5000, 16384, 16384, 16384])

    def send_one(self, size=None):
        """One frame; mostly as long as the one before."""
        h, dice = self.wire.h2, self.dice
        pad = dice.choice([0, 1, 200]) if dice.random() < 0.05 and not size else None
        size = size or (self.usual if dice.random() < 0.9 else dice.randrange(1, 16000))
        while (room := h.local_flow_control_window(self.stream)) < min(size, len(self.left)) + 300:
            if room >= len(self.left) + 300:
                break
            assert self.wire.read()
        size = min(size, len(self.left), h.max_outbound_frame_size - (pad + 1 if pad is not None else 0))
        h.send_data(self.stream, self.left[:size], end_stream=size == len(self.left), pad_length=pad)
        self.left = self.left[size:]

    def check(self):
        answer = self.wire.response(self.stream)
        if self.kind == "grpc":
            assert answer.headers["grpc-status"] == "0", answer.headers
            got = grpcraw.pb.ModelInferResponse.FromString(answer.body[5:]).raw_output_contents[0]
        else:
            assert answer.status == 200, answer.body[:300]
            got = answer.body[int(answer.headers["inference-header-content-length"]):]
        assert got == self.values.tobytes()


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(6))
def test_frames_of_all_lengths(wire, seed):
    """Bodies on several streams, frames of one length and of others, padded ones, pings and resets between."""
    dice = random.Random(seed)
    for _ in range(4):
        bodies = [Body(wire, dice, dice.choice(["grpc", "grpc", "sized", "unsized"])) for _ in range(dice.choice([1, 1, 2, 3]))]
        lost = Body(wire, dice, "grpc") if dice.random() < 0.3 else None
        under_way = list(bodies)
        while under_way:
            body = dice.choice(under_way)
            for _ in range(dice.choice([1, 1, 20])):
                if body.left:
                    body.send_one()
            if not body.left:
                under_way.remove(body)
            if dice.random() < 0.05:
                wire.h2.ping(b"12345678")
            if lost and dice.random() < 0.2:
                if len(lost.left) > 400_000:
                    lost.send_one()
                else:
                    wire.h2.reset_stream(lost.stream, 8)
                    lost = None
            if dice.random() < 0.7 or not under_way:
                wire.flush()
        [b.check() for b in bodies]
        wire.events.clear()


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["grpc", "sized"])
def test_peers_that_stop_within_a_body(wire, kind):
    """Frames after a part of a large body are read although the rest of the body does not arrive."""
    body = Body(wire, random.Random(1), kind, 1_000_000)
    for left in (3_900_000, 3_899_000, 3_600_000, 1_000_000, 70_000, 20_000, 10):
        while len(body.left) > left:
            body.send_one(min(body.usual, len(body.left) - left))
        wire.h2.ping(b"within a")
        wire.flush()
        wire.wait(lambda: any(isinstance(e, PingAckReceived) for e in wire.events), "the answer to a ping")
        assert wire.ask("GET", "/v2/health/live").status == 200
        wire.events.clear()
    body.send_one(10)
    wire.flush()
    body.check()


@pytest.mark.parametrize("kind", ["grpc", "sized", "unsized"])
def test_windows_smaller_than_the_body(models, start, kind):
    """The peer sends as much as it may and then waits for the server."""
    repo.add(models, "m")
    server = start(models, "--h2-window=65535")
    with Http2(server.grpc) as wire:
        for _ in range(3):
            body = Body(wire, random.Random(2), kind, 1_000_000)
            wire.send(body.stream, body.left)
            body.check()
            wire.events.clear()


def test_http1_bodies_in_parts(models, start):
    """A body arrives in parts of all sizes; later requests are answered, and a client that disconnects within one is released."""
    repo.add(models, "m")
    server = start(models)
    values = np.arange(1_000_000, dtype="<i4").tobytes()
    body, length = binary_body([("INPUT0", "INT32", [1_000_000])], [values], parameters={"binary_data_output": True})
    head = f"POST {REST} HTTP/1.1\r\nhost: localhost\r\ninference-header-content-length: {length}\r\n"
    head = (head + f"content-length: {len(body)}\r\n\r\n").encode()
    dice = random.Random(3)
    with Http1(server.http) as wire:
        for _ in range(3):
            wire.send(head)
            at = 0
            while at < len(body):
                step = dice.choice([100, 20_000, 70_000, 300_000, 1_000_000])
                wire.send(body[at : at + step])
                at += step
            answer = wire.response()
            assert answer.status == 200
            assert answer.body.endswith(values)
        wire.send(head + body[:700_000])
        wire.sock.shutdown(socket.SHUT_WR)
        assert wire.sock.recv(1) == b""


@pytest.mark.release_only("a sanitizer has functions of its own for copies")
@pytest.mark.parametrize("kind", ["grpc", "sized"])
def test_bytes_that_network_threads_copy(models, start, tmp_path, kind):
    """Of 4 MiB in and out a network thread copies only the part that arrives with the head."""
    repo.add(models, "m")
    copies = counting.Copies(tmp_path)
    server = start(models, "--inline-threshold-us=0", env=copies.environment)
    values = np.arange(1 << 20, dtype="<i4")
    with Http2(server.grpc) as wire:
        def ask():
            if kind == "grpc":
                stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
                wire.send(stream, grpc_frame(grpcraw.int32("m", values)))
                assert wire.response(stream).headers["grpc-status"] == "0"
            else:
                body, length = binary_body([("INPUT0", "INT32", [1 << 20])], [values.tobytes()],
                                           parameters={"binary_data_output": True})
                stream = wire.headers("POST", REST, [("inference-header-content-length", str(length)),
                                                     ("content-length", str(len(body)))], end=False)
                wire.send(stream, body)
                assert wire.response(stream).status == 200
            wire.events.clear()
        ask()  # from then on the client is known to send such bodies
        with copies:
            for _ in range(10):
                ask()
        assert copies.bytes / 10 < 64 << 10, "bytes copied for each request"
