"""What a small request costs on a warm connection, counted, for the whole server: nothing from the heap, no mutex,
one read and one write beside the poll, no other thread woken. Instructions are compared by bench/. And what a
connection costs that does nothing."""
import struct
import time

import pytest

from lib import grpcraw, repo, wait
from lib.counts.counting import Calls, SystemCalls, needs_tracing, sleeps
from lib.held import resident
from lib.metrics import value
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import binary_body

pytestmark = pytest.mark.release_only("sanitizers have a heap of their own")

COUNT = 400
TIMERS_A_SECOND = 20  # the network thread sets its timer now and then, however many requests there are
VALUES = list(range(16))
INPUTS = [("INPUT0", "INT32", [1, 16], VALUES), ("INPUT1", "INT32", [1, 16], VALUES)]
RAW = struct.pack("<16i", *VALUES)


@pytest.fixture
def calls(tmp_path):
    return Calls(tmp_path)


@pytest.fixture
def server(models, start, calls):
    ports = [repo.tensor(name, dims=(16,)) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]
    repo.add(models, "passthrough", max_batch_size=8, inputs=ports[:2], outputs=ports[2:])
    repo.stock(models, "simple")
    # However slow the machine is just now, the models stay on the network thread.
    return start(models, "--loop-threads=1", "--inline-threshold-us=1000000", env=calls.environment)


class JsonClient:
    def __init__(self, server, model):
        self.wire = Http1(server.http)
        self.bytes = self.request(model)

    def request(self, model):
        tensors = ",".join('{"name":"%s","shape":[1,16],"datatype":"INT32","data":%s}' % (name, VALUES)
                           for name in ("INPUT0", "INPUT1"))
        return request("POST", f"/v2/models/{model}/infer", "Content-Type: application/json\r\n", '{"inputs":[%s]}' % tensors)

    def ask(self, times=1):
        """That many requests in one write."""
        self.wire.send(self.bytes * times)
        for _ in range(times):
            response = self.wire.response()
            assert response.status == 200, response


class BinaryClient(JsonClient):
    def request(self, model):
        body, length = binary_body([i[:3] for i in INPUTS], [RAW, RAW])
        return request("POST", f"/v2/models/{model}/infer", f"Inference-Header-Content-Length: {length}\r\n", body)


class GrpcClient:
    def __init__(self, server, model):
        self.wire = Http2(server.grpc, auto=False)
        self.message = grpc_frame(grpcraw.request(model, [(*i[:3], None) for i in INPUTS], raw=[RAW, RAW]))
        self.unread = 0

    def ask(self, times=1):
        h2 = self.wire.h2
        self.wire.events.clear()
        if self.unread:
            h2.increment_flow_control_window(self.unread)
        streams = []
        for _ in range(times):
            streams.append(h2.get_next_available_stream_id())
            head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", grpc_path("ModelInfer")), *GRPC_HEADERS]
            h2.send_headers(streams[-1], head)
            h2.send_data(streams[-1], self.message, end_stream=True)
        self.wire.flush()
        responses = [self.wire.response(s) for s in streams]
        assert all(r.headers["grpc-status"] == "0" for r in responses), responses
        self.unread = sum(len(r.body) for r in responses)


CLIENTS = {"json": JsonClient, "binary": BinaryClient, "grpc": GrpcClient}


@pytest.fixture(params=CLIENTS)
def client(request, server, model):
    client = CLIENTS[request.param](server, model)
    for _ in range(50):
        client.ask()
    client.ask(16)
    yield client
    client.wire.close()


@pytest.mark.parametrize("model", ["passthrough", "simple"])
def test_heap_and_mutexes(server, calls, client, model):
    # What a thread does that ends, or that looks at the memory now and then, may fall into a window; where the machine is so busy that it
    # falls into each, into each long one.
    for window in [COUNT] * 4 + [COUNT // 4] * 16:
        with calls:
            for _ in range(window):
                client.ask()
        if (calls.allocations, calls.locks) == (0, 0):
            break
    assert (calls.allocations, calls.locks) == (0, 0)
    if model == "passthrough":
        assert (calls.foreign_allocations, calls.foreign_locks) == (0, 0)
    else:
        assert calls.foreign_allocations > 0, "ONNX Runtime is known to allocate: nothing was counted"


def take_timers(made, begin):
    """How often a timer was set since `begin`: that depends on the time, not on the requests. Each also wakes the thread and is read."""
    timers = made.pop("timerfd_settime", 0)
    assert timers <= COUNT // 20 + TIMERS_A_SECOND * (time.monotonic() - begin), timers
    return timers


@needs_tracing
@pytest.mark.parametrize("model", ["passthrough", "simple"])
def test_system_calls(server, client, model, tmp_path):
    few = COUNT // 20  # what a request does would be COUNT
    for _ in range(5):
        begin = time.monotonic()
        with SystemCalls(server.process.pid, tmp_path) as made:
            for _ in range(COUNT):
                client.ask()
        timers = take_timers(made, begin)
        made.pop("restart_syscall", 0)  # goes on with what strace has interrupted
        # Where the machine is so busy that a model of microseconds takes long, it is given to another thread.
        if made["futex"] <= few:
            break
    reads, writes, polls = (sum(made.pop(name, 0) for name in names) for names in
                            (("recvfrom", "recvmsg", "read", "readv"), ("sendto", "sendmsg", "write", "writev"), ("epoll_wait", "epoll_pwait")))
    assert COUNT - few <= reads <= COUNT + few + timers, made  # strace misses what ends as it lets go
    assert COUNT - few <= writes <= COUNT + few, made
    assert polls <= COUNT + few + timers, made
    assert sum(made.values()) <= few, made


@needs_tracing
@pytest.mark.parametrize("model", ["passthrough"])
def test_system_calls_of_pipelined_requests(server, client, model, tmp_path):
    begin = time.monotonic()
    with SystemCalls(server.process.pid, tmp_path) as made:
        for _ in range(COUNT // 16):
            client.ask(16)
    timers = take_timers(made, begin)
    # Sixteen requests come in a few segments at most.
    assert sum(made.values()) <= COUNT + 2 * timers, made


@pytest.mark.parametrize("model", ["passthrough", "simple"])
def test_threads(server, client, model):
    before = sleeps(server.process.pid)
    for _ in range(COUNT):
        client.ask()
    after = sleeps(server.process.pid)
    woken = {t: n - before.get(t, 0) for t, n in after.items() if n - before.get(t, 0) > COUNT // 20}
    assert len(woken) <= 1, f"threads that slept and woke, of {len(after)}: {woken}"


def test_busy_polling(models, start):
    """With --busy-poll-us the network thread hardly ever sleeps between the requests of one client."""
    repo.add(models, "m")
    server = start(models, "--loop-threads=1", "--busy-poll-us=10000")

    def most_sleeps(wire):
        before = sleeps(server.process.pid)
        for _ in range(COUNT):
            wire.send(request("GET", "/v2/health/live"))
            assert wire.response().status == 200
        return max(n - before.get(t, 0) for t, n in sleeps(server.process.pid).items())

    with Http1(server.http) as wire:  # again where the client is late each time
        assert min(most_sleeps(wire) for _ in range(5)) < COUNT // 2


def http1(server):
    return Http1(server.http)


def http2(server):
    wire = Http2(server.grpc)
    wire.read()  # the server's settings
    return wire


def http2_after_a_call(server):
    wire = Http2(server.grpc)
    assert wire.ask(path="/v2/health/live").status == 200
    return wire


@pytest.mark.parametrize("connect, kilobytes", [(http1, 2), (http2, 9.5), (http2_after_a_call, 9.5)])
def test_memory_of_idle_connections(models, start, connect, kilobytes):
    """Ten thousand take less than 100 MB, once they have been idle for some seconds."""
    repo.add(models, "m")
    server = start(models, "--loop-threads=1")

    def opened(count):
        wires = [connect(server) for _ in range(count)]
        wait.until(lambda: value(server, "millrace_connections") >= count, "the connections to be there")
        return wires

    for wire in opened(50):
        wire.close()
    before = resident(server)
    wires = opened(400)
    wait.until(lambda: resident(server) - before <= 400 * kilobytes * 1024,
               f"less than {kilobytes} KB each")
    [wire.close() for wire in wires]
    wait.until(lambda: value(server, "millrace_connections") <= 1, "the connections to be closed")
    assert resident(server) - before <= 400 * 4 * 1024, "kept when the connections had gone"
