"""What the clients of the soak do. Each actor is a method of Actor named do_*: one step, its answer checked; AssertionError
when the server is wrong. The models that go are named in GOING, and only there may a model be away. Beside them an Updater
gives a large model new versions all the time."""
import base64
import gzip
import random
import socket
import struct
import threading
import time
import zlib

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, onnxgen, repo
from lib.control import Control
from lib.grpcraw import Grpc
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import Rest, binary_body
from lib.updated import LAYERS, SIZE, Dense, ask

GOING = ("going", "going_onnx")
AWAY = (400, 404, 503)
RESET = struct.pack("ii", 1, 0)
# (path, body, status): faulty requests and the status of the answer.
BAD = (
    ("/v2/models/m/infer", b"", 400), ("/v2/models/m/infer", b"{", 400), ("/v2/models/m/infer", b"[" * 500, 400),
    ("/v2/models/m/infer", b'{"inputs":[]}', 400), ("/v2/models/m/infer", b"\xff\xfe", 400),
    ("/v2/models/m/infer", b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[3],"data":[1,2]}]}', 400),
    ("/v2/models/m/infer", b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1],"data":[1]}]}', 400),
    ("/v2/models/m/infer", b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[4294967296,4294967296],"data":[1]}]}', 400),
    ("/v2/models/m/infer", b'{"inputs":[{"name":"OTHER","datatype":"INT32","shape":[1],"data":[1]}]}', 400),
    ("/v2/models/m/infer", b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[1.5]}]}', 400),
    ("/v2/models/absent/infer", b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}', 404), ("/v2/nowhere", b"", 404),
    ("/v2/repository/models/absent/load", b"", 500), ("/v2/repository/models/going/load", b"no json", 400),
    ("/v2/repository/models/going/load", b'{"parameters":{"config":"{"}}', 400),
)
REPORTS = ("/v2", "/v2/models/m", "/v2/models/m/config", "/v2/models/simple/stats", "/v2/models/stats", "/v2/health/live",
           "/v2/models/batch/ready", "/v2/logging", "/v2/models/simple/versions/1")


def fill(folder):
    """The repository of the soak; the model that gets updates."""
    repo.add(folder, "m")
    repo.add(folder, "batch", max_batch_size=8, extra="dynamic_batching { max_queue_delay_microseconds: 500 }")
    repo.add(folder, "text", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    repo.add(folder, "fault", backend="fault")
    repo.add(folder, "going", max_batch_size=4, versions=(1, 2), extra="version_policy { all { } }")
    repo.add(folder, "going_onnx", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    repo.stock(folder, "simple", "mlp")
    return Dense(folder)


class Updater(threading.Thread):
    """Each second another version of the model `dense`, of two contents by turns; `answers` are those of both."""

    def __init__(self, server, model):
        super().__init__()
        self.server, self.model, self.failures, self.updates = server, model, [], 0
        self.contents = [onnxgen.dense(LAYERS, SIZE, seed) for seed in (1, 2)]
        self.end = threading.Event()
        self.answers = {self.update() for _ in range(4)}
        assert len(self.answers) == 2

    def update(self):
        self.model.write(self.contents[self.model.number % 2])
        with Control(self.server) as control:
            control.load("dense").ok()
            self.model.remove(self.model.number - 1)
            self.updates += 1
            return ask(control.rest, "dense")

    def run(self):
        try:
            while not self.end.wait(1):
                assert self.update() in self.answers, "another answer after an update"
        except Exception as e:
            self.failures.append(f"updates: {type(e).__name__}: {str(e)[:500]}")

    def stop(self):
        self.end.set()
        self.join()


class Actor:
    def __init__(self, server, seed, answers):
        self.server, self.seed, self.rng, self.answers = server, seed, random.Random(seed), answers
        self.steps = {name[3:]: getattr(self, name) for name in dir(self) if name.startswith("do_")}
        self.counts = dict.fromkeys(self.steps, 0)
        self.open()

    def open(self):
        self.rest = Rest(self.server.http)
        self.grpc = Grpc(self.server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),))

    def close(self):
        self.rest.close()
        self.grpc.close()

    def step(self):
        name = self.rng.choice(sorted(self.steps))
        self.steps[name]()
        self.counts[name] += 1
        if self.rng.random() < 0.002:
            self.close()
            self.open()

    def vector(self, *sizes):
        return np.arange(self.rng.choice(sizes or (1, 16, 700, 5000)), dtype="<i4") + self.rng.randrange(1 << 20)

    # ---- REST ----

    def do_rest_json(self):
        x = self.vector().tolist()
        model, shape = self.rng.choice((("m", [len(x)]), ("batch", [1, len(x)])))
        reply = self.rest.infer(model, [("INPUT0", "INT32", shape, x)], id="i" * self.rng.randrange(50)).ok()
        assert reply.json()["outputs"][0]["data"] == x

    def do_rest_binary(self, *sizes):
        x = self.vector(*sizes or (1, 16, 5000, 20_000)).tobytes()
        reply = self.rest.infer_binary("m", [("INPUT0", "INT32", [len(x) // 4])], [x], parameters={"binary_data_output": True})
        assert reply.ok().parts()[1]["OUTPUT0"] == x

    def do_rest_large(self):
        """One at a time: otherwise the memory would only show how many meet by chance."""
        self.do_rest_binary(*((100_000, 400_000, 1_000_000) if self.seed == 0 else ()))

    def do_rest_onnx(self):
        x = [self.rng.randrange(1000) for _ in range(16)]
        reply = self.rest.infer("simple", [(f"INPUT{i}", "INT32", [1, 16], x) for i in range(2)]).ok()
        assert reply.json()["outputs"][0]["data"] == [2 * v for v in x]

    def do_rest_text(self):
        x = ["ä" * self.rng.choice((0, 1, 2000)) for _ in range(self.rng.choice((1, 40)))]
        assert self.rest.infer("text", [("INPUT0", "BYTES", [len(x)], x)]).ok().json()["outputs"][0]["data"] == x

    def do_rest_compressed(self):
        x = self.vector().tolist()
        coding = self.rng.choice(("gzip", "deflate"))
        pack, unpack = (gzip.compress, gzip.decompress) if coding == "gzip" else (zlib.compress, zlib.decompress)
        body = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d],"data":%s}]}' % (len(x), str(x).encode())
        reply = self.rest.post("/v2/models/m/infer", pack(body), headers={"Content-Encoding": coding, "Accept-Encoding": coding}).ok()
        text = unpack(reply.body) if reply.headers.get("content-encoding") else reply.body
        assert b'"data":[%d' % x[0] in text

    def do_rest_bad(self):
        path, body, status = self.rng.choice(BAD)
        reply = self.rest.post(path, body)
        assert reply.status == status and reply.error, (path, body, reply)

    def do_rest_failing_model(self):
        fault = self.rng.choice(("fail_status", "wrong_size", "missing_output", "wrong_rank"))
        reply = self.rest.infer("fault", [("INPUT0", "INT32", [1], [1])], parameters={fault: "INTERNAL" if fault == "fail_status" else True})
        assert reply.status == 500 and reply.error

    def do_rest_reports(self):
        assert self.rest.get(self.rng.choice(REPORTS)).status == 200
        if self.rng.random() < 0.05:
            with Rest(self.server.metrics) as client:
                assert b"nv_inference_count" in client.get("/metrics").ok().body

    def do_rest_index(self):
        assert len(self.rest.post("/v2/repository/index", b"{}").ok().json()) >= 8

    def do_rest_pipelined(self):
        with Http1(self.server.http) as wire:
            wire.send(request("GET", "/v2/models/m") * 20)
            assert all(wire.response().status == 200 for _ in range(20))

    def do_rest_over_http2(self):
        with Http2(self.server.http) as wire:
            streams = [wire.headers("GET", self.rng.choice(REPORTS)) for _ in range(10)]
            assert all(wire.response(s).status == 200 for s in streams)

    def do_connections(self):
        wires = [Http1(self.server.http) for _ in range(30)]
        for wire in wires:
            wire.send(request("GET", "/v2/health/live"))
        assert all(wire.response().status == 200 for wire in wires)
        [wire.close() for wire in wires]

    # ---- gRPC ----

    def do_grpc_raw(self):
        x = self.vector(1, 16, 5000, 20_000)
        answer = self.grpc.infer(grpcraw.int32("m", x))
        assert answer.raw_output_contents[0] == x.tobytes()

    def do_grpc_16_at_once(self):
        asked = [self.vector(16) for _ in range(16)]
        futures = [self.grpc.stub.ModelInfer.future(grpcraw.int32("batch", x, shape=[1, 16]), timeout=60) for x in asked]
        assert all(f.result().raw_output_contents[0] == x.tobytes() for f, x in zip(futures, asked))

    def do_grpc_contents(self):
        x = self.vector(16, 700).tolist()
        answer = self.grpc.infer(grpcraw.int32("m", x, raw=False), compression=self.rng.choice((None, grpc.Compression.Gzip)))
        assert np.frombuffer(answer.raw_output_contents[0], "<i4").tolist() == x

    def do_grpc_stream(self):
        sent = [self.vector(16, 700) for _ in range(20)]
        messages = [grpcraw.int32("batch", x, shape=[1, len(x)]) for x in sent]
        bad = self.rng.randrange(20)
        messages[bad].inputs[0].name = "OTHER"
        answers = list(self.grpc.stub.ModelStreamInfer(iter(messages), timeout=60))
        assert len(answers) == 20 and bool(answers[bad].error_message)
        assert all(a.infer_response.raw_output_contents[0] == x.tobytes() for i, (a, x) in enumerate(zip(answers, sent)) if i != bad)

    def do_grpc_cancelled_stream(self):
        answers = self.grpc.stub.ModelStreamInfer((grpcraw.int32("m", [n]) for n in range(1000)), timeout=60)
        for _ in range(self.rng.randrange(5)):
            next(answers)
        answers.cancel()

    def do_grpc_deadline(self):
        future = self.grpc.stub.ModelInfer.future(grpcraw.int32("fault", [1], parameters={"delay_ms": 20}), timeout=0.005)
        error = future.exception()  # None: this process was held up for longer than the server
        assert error is None or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED

    def do_grpc_bad(self):
        message = self.rng.choice((grpcraw.int32("absent", [1]), grpcraw.int32("m", [1], shape=[2]), pb.ModelInferRequest(),
                                   grpcraw.int32("m", [1], name="OTHER"), grpcraw.int32("m", [1], outputs=["OTHER"])))
        try:
            self.grpc.infer(message)
        except grpc.RpcError as e:
            assert e.code().name in ("NOT_FOUND", "INVALID_ARGUMENT"), e
        else:
            raise AssertionError(f"no error for {message}")

    def do_grpc_reports(self):
        stub = self.grpc.stub
        assert stub.ModelReady(pb.ModelReadyRequest(name="m")).ready
        assert stub.ModelMetadata(pb.ModelMetadataRequest(name="simple")).platform
        assert stub.ModelConfig(pb.ModelConfigRequest(name="batch")).config.max_batch_size == 8
        assert stub.ModelStatistics(pb.ModelStatisticsRequest(name="m")).model_stats
        assert len(stub.RepositoryIndex(pb.RepositoryIndexRequest()).models) >= 8

    # ---- clients that go, and nonsense ----

    def do_vanish(self):
        body, length = binary_body([("INPUT0", "INT32", [50_000])], [bytes(200_000)])
        data = request("POST", self.rng.choice(("/v2/models/m/infer", "/v2/models/absent/infer")),
                       f"Inference-Header-Content-Length: {length}\r\n", body)
        with Http1(self.server.http) as wire:
            wire.send_until_refused(data[: self.rng.randrange(len(data) + 1)])
            self.go(wire.sock)

    def do_vanish_with_calls(self):
        wire = Http2(self.server.grpc)
        message = grpc_frame(grpcraw.int32("batch", list(range(200)), shape=[1, 200]))
        for _ in range(16):
            stream = wire.headers("POST", grpc_path(self.rng.choice(("ModelInfer", "ModelStreamInfer"))), GRPC_HEADERS, end=False)
            wire.h2.send_data(stream, message[: self.rng.randrange(len(message) + 1)])
        wire.flush()
        self.go(wire.sock)

    def go(self, sock):
        if self.rng.random() < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()

    def do_nonsense(self):
        with Http1(self.rng.choice((self.server.http, self.server.grpc))) as wire:
            wire.send_until_refused(self.rng.choice((b"", b"GET ", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")) + self.rng.randbytes(200))
            wire.sock.shutdown(socket.SHUT_WR)
            try:
                while wire.sock.recv(65536):
                    pass
            except OSError:
                pass

    # ---- models that come and go ----

    def do_updated(self):
        assert ask(self.rest, "dense") in self.answers, "an answer of neither version"

    def do_going(self):
        model = self.rng.choice(GOING)
        reply = self.rest.infer(model, [("INPUT0", "INT32", [1, 1] if model == "going" else [1], [5])])
        assert reply.status in AWAY or reply.ok().json()["outputs"][0]["data"] == [6 if model == "going_onnx" else 5], reply

    def do_load(self):
        model = self.rng.choice(GOING)
        path = f"/v2/repository/models/{model}/"
        kind = self.rng.random()
        if kind < 0.5:
            reply = self.rest.post(path + "load", b"")
        elif kind < 0.8:
            reply = self.rest.post(path + "unload", b"")
        else:
            files = {"file:1/model.onnx": base64.b64encode(onnxgen.adder(1)).decode()}
            config = '{"backend":"onnxruntime","max_batch_size":0}'
            reply = self.rest.post("/v2/repository/models/going_onnx/load", {"parameters": {"config": config, **files}})
        assert reply.status in (200, 400), reply
        time.sleep(0.02)
