"""Clients that disconnect, by FIN and by RST: before, in the middle of and after their requests, with many in flight. Their
requests do not run, and nothing of them stays."""
import random
import socket
import struct
import threading

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.held import descriptors, in_flight, threads
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import Rest, binary_body

RESET = struct.pack("ii", 1, 0)
MANY = 400 if wait.SLOW == 1 else 100


@pytest.fixture
def visited(models, start):
    repo.add(models, "m")
    repo.add(models, "batch", max_batch_size=8, extra="dynamic_batching { max_queue_delay_microseconds: 2000 }")
    repo.add(models, "slow", backend="fault")
    server = start(models)
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client:  # everything has its threads and buffers
        assert rest.infer("m", [("INPUT0", "INT32", [1], [1])]).status == 200
        assert rest.infer("slow", [("INPUT0", "INT32", [1], [1])]).status == 200
        client.infer(grpcraw.int32("batch", [1], shape=[1, 1]))
    wait.until(lambda: value(server, "millrace_connections") <= 1, "the connections to be closed")
    before = descriptors(server)
    yield server
    wait.equal(lambda: in_flight(server), (0, 0), "what is in flight")
    wait.until(lambda: value(server, "millrace_connections") <= 1, "the connections to be closed")
    wait.until(lambda: descriptors(server) <= before, f"the descriptors to be {before} again")
    with Rest(server.http) as rest:
        assert rest.infer("batch", [("INPUT0", "INT32", [1, 1], [1])]).status == 200


def vanish(sock, rng):
    if rng.random() < 0.7:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


def by_many(count, function, workers=4):
    """function(rng) that many times, by a few threads."""
    failures = []

    def run(seed):
        rng = random.Random(seed)
        try:
            for _ in range(count // workers):
                function(rng)
        except Exception as e:
            failures.append(repr(e))

    all_ = [threading.Thread(target=run, args=(i,)) for i in range(workers)]
    [t.start() for t in all_]
    [t.join(wait.PATIENCE) for t in all_]
    assert not failures, failures[:3]


def test_anywhere_in_a_request(visited):
    """Cut at every place of small requests, and at some of a large one."""
    blob, length = binary_body([("INPUT0", "INT32", [60_000])], [bytes(240_000)])
    small = request("POST", "/v2/models/m/infer", body='{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[1,2]}]}')
    batched = small.replace(b"models/m/", b"models/batch/").replace(b"[2]", b"[1,2]").replace(b"Length: 73", b"Length: 75")
    large = request("POST", "/v2/models/m/infer", f"Inference-Header-Content-Length: {length}\r\n", blob)

    def visit(rng):
        data = rng.choice((small, batched, large))
        data = data[:rng.choice((rng.randrange(len(data) + 1), len(data)))]
        wire = Http1(visited.http)
        wire.send_until_refused(data)
        if rng.random() < 0.2:
            wire.sock.recv(rng.choice((1, 50, 5000))) if data == small else None
        vanish(wire.sock, rng)

    by_many(4 * MANY, visit)


def calls_in_flight(server, rng, model, count, stream=False):
    """A connection with that many calls whose answers have not been read; not all of them are complete."""
    wire = Http2(server.grpc)
    message = grpc_frame(payload(rng, model))
    for _ in range(count):
        method = "ModelStreamInfer" if stream else "ModelInfer"
        id = wire.headers("POST", grpc_path(method), GRPC_HEADERS, end=False)
        room = wire.h2.local_flow_control_window(id)
        data = message[: rng.choice((len(message), len(message), rng.randrange(len(message))))][:room]
        for at in range(0, len(data), 16_384):
            wire.h2.send_data(id, data[at:at + 16_384])
        if not stream and len(data) == len(message):
            wire.h2.end_stream(id)
    wire.flush()
    return wire


def payload(rng, model):
    count = rng.choice((1, 1500))
    return grpcraw.int32(model, list(range(count)), shape=[1, count] if model == "batch" else [count])


@pytest.mark.more
@pytest.mark.parametrize("stream", [False, True], ids=["calls", "streams"])
@pytest.mark.parametrize("model", ["m", "batch"])
def test_with_16_calls_in_flight(visited, model, stream):
    def visit(rng):
        wire = calls_in_flight(visited, rng, model, 16, stream)
        if rng.random() < 0.3:
            wire.read()
        vanish(wire.sock, rng)

    by_many(MANY, visit)


def test_real_clients_with_16_calls_in_flight(visited):
    """grpcio's own way of going."""
    def visit(rng):
        channel = grpc.insecure_channel(visited.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),))
        stub = grpcraw.service_pb2_grpc.GRPCInferenceServiceStub(channel)
        futures = [stub.ModelInfer.future(payload(rng, "batch"), timeout=wait.PATIENCE, wait_for_ready=True) for _ in range(16)]
        if rng.random() < 0.5:
            futures[rng.randrange(16)].result()
        for f in futures[:8]:
            f.cancel()
        channel.close()

    by_many(MANY // 4, visit)


def test_queued_work_is_not_run(visited, hold):
    """After a long one, all queued requests of disconnected clients are removed before they run."""
    with Grpc(visited.url("grpc")) as client:
        before = value(visited, "nv_inference_exec_count", model="slow")
        held = client.stub.ModelInfer.future(grpcraw.int32("slow", [1], parameters=hold.parameters), timeout=wait.PATIENCE)
        hold.wait_held()
        rng = random.Random(1)
        wires = []
        for _ in range(4):
            wires.append(Http2(visited.grpc))
            for _ in range(16):
                id = wires[-1].headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
                wires[-1].h2.send_data(id, grpc_frame(grpcraw.int32("slow", [1])), end_stream=True)
            wires[-1].flush()
        for _ in range(10):
            wires.append(Http1(visited.http))
            wires[-1].send(request("POST", "/v2/models/slow/infer",
                                   body='{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}'))
        wait.equal(lambda: value(visited, "nv_inference_pending_request_count", model="slow"), 74, "the queue's length")
        [vanish(w.sock, rng) for w in wires]
        wait.equal(lambda: value(visited, "nv_inference_pending_request_count", model="slow"), 0, "the queue's length")
        hold.end()
        held.result()
        wait.equal(lambda: value(visited, "nv_inference_request_failure", model="slow", reason="CANCELED"), 74, "the cancelled")
        assert value(visited, "nv_inference_exec_count", model="slow") == before + 1


def test_answers_that_nobody_reads(visited):
    """In the middle of large answers."""
    body, length = binary_body([("INPUT0", "INT32", [500_000])], [bytes(2_000_000)], parameters={"binary_data_output": True})
    data = request("POST", "/v2/models/m/infer", f"Inference-Header-Content-Length: {length}\r\n", body)

    def visit(rng):
        wire = Http1(visited.http, receive_buffer=4096)
        wire.send_until_refused(data)
        wire.sock.recv(rng.choice((1, 4000)))
        vanish(wire.sock, rng)

    by_many(MANY // 8, visit)


def test_half_closed(visited):
    """Who closes the sending side counts as gone: what runs is answered, what waits is cancelled, what is not whole ends
    the connection."""
    whole = request("POST", "/v2/models/slow/infer", "Connection: close\r\n", '{"inputs":[{"name":"INPUT0","datatype":"INT32",'
                    '"shape":[1],"data":[5]}],"parameters":{"delay_ms":50}}')
    with Http1(visited.http) as wire:
        wire.send(whole)
        wire.sock.shutdown(socket.SHUT_WR)
        answer = wire.response()
        assert (answer.status, b'"data":[5]' in answer.body) == (200, True) or b"cancelled" in answer.body
        wire.expect_close()
    for at in (1, 30, len(whole) - 1):
        with Http1(visited.http) as wire:
            wire.send(whole[:at])
            wire.sock.shutdown(socket.SHUT_WR)
            while wire.sock.recv(4096):
                pass


def test_cancelled_streams(visited):
    """Streams of a client that cancels them while their requests run and wait."""
    with Grpc(visited.url("grpc")) as client:
        for i in range(10):
            def messages():
                for n in range(20):
                    yield grpcraw.int32("slow", [n], parameters={"delay_ms": 5})
            answers = client.stub.ModelStreamInfer(messages(), timeout=wait.PATIENCE)
            got = [next(answers) for _ in range(i % 3)]
            assert all(not g.error_message for g in got)
            answers.cancel()
    assert threads(visited) < 60
