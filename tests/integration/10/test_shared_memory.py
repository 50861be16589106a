"""Tensors in memory of a client on the same host: a sealed memfd that is passed on the connection, and clients that misuse it."""
import ctypes
import fcntl
import http.client
import json
import mmap
import os
import signal
import socket
import struct
import threading

import numpy as np
import pytest

from lib import repo, wait
from lib.held import descriptors
from lib.rest import Rest, infer_path

SIZE = 1 << 20
LIBC = ctypes.CDLL(None)
PUNCH_HOLE = 3  # and keep the size
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class Memory:
    """A memfd and its mapping."""

    def __init__(self, size=SIZE, seals=SEALS, flags=os.MFD_ALLOW_SEALING):
        self.fd = os.memfd_create("test", flags)
        os.ftruncate(self.fd, size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)
        self.map = mmap.mmap(self.fd, min(size, SIZE))

    def close(self):
        self.map.close()
        os.close(self.fd)


class Client(Rest):
    """REST over a socket file, which passes descriptors."""

    def __init__(self, path):
        super().__init__(unix=str(path))
        self.connection.connect()

    def pass_(self, *fds):
        # An empty line in front of a request is skipped; others pass it with the first bytes of the request.
        socket.send_fds(self.connection.sock, [b"\r\n"], fds)

    def infer(self, model, inputs, outputs=(), **parameters):
        return self.request("POST", infer_path(model), {"inputs": inputs, "outputs": list(outputs), "parameters": parameters})


def placed(offset, size, region="descriptor"):
    return {"shared_memory_region": region, "shared_memory_offset": offset, "shared_memory_byte_size": size}


def input_(offset, size, count, name="INPUT0", datatype="INT32", **kw):
    return {"name": name, "datatype": datatype, "shape": [count], "parameters": placed(offset, size, **kw)}


def output(offset, size, name="OUTPUT0", **kw):
    return {"name": name, "parameters": placed(offset, size, **kw)}


@pytest.fixture
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("s") / "http"


@pytest.fixture
def served(models, start, path):
    repo.add(models, "flat_int32")
    repo.add(models, "flat_bytes", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    return start(models, f"--http-address=unix:{path}", "--http-shared-memory=true")


@pytest.fixture
def client(served, path):
    with Client(path) as c:
        yield c


@pytest.fixture
def memory():
    m = Memory()
    yield m
    m.close()


def still_good(path):
    with Client(path) as c:
        assert c.infer("flat_int32", [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [1, 2]}]).ok().json()["outputs"][0]["data"] == [1, 2]


@pytest.mark.parametrize("count", [1, 16, 100_000])
def test_inputs_and_outputs(client, memory, count):
    client.pass_(memory.fd)
    bytes_, at = 4 * count, 512 * 1024
    for turn in range(3):
        x = np.arange(turn, turn + count, dtype=np.int32)
        memory.map[:bytes_] = x.tobytes()
        answer = client.infer("flat_int32", [input_(0, bytes_, count)], [output(at, bytes_ + 4)]).ok()
        assert len(answer.body) < 512
        assert answer.json()["outputs"][0]["parameters"] == placed(at, bytes_)
        assert memory.map[at:at + bytes_] == x.tobytes()


def test_empty_tensors(client, memory):
    client.pass_(memory.fd)
    answer = client.infer("flat_int32", [input_(SIZE, 0, 0)], [output(SIZE, 0)]).ok().json()["outputs"][0]
    assert answer["shape"] == [0]


def test_texts(client, memory):
    client.pass_(memory.fd)
    data = b"\x03\0\0\0abc\0\0\0\0"
    memory.map[:len(data)] = data
    answer = client.infer("flat_bytes", [input_(0, len(data), 2, datatype="BYTES")])
    assert answer.ok().json()["outputs"][0]["data"] == ["abc", ""]
    for damaged in (b"\x04\0\0\0abc\0\0\0\0", b"\xff\xff\xff\xffabc\0\0\0\0"):
        memory.map[:len(data)] = damaged
        assert "INPUT0" in client.infer("flat_bytes", [input_(0, len(data), 2, datatype="BYTES")]).error


def test_outputs_that_do_not_fit(client, memory):
    client.pass_(memory.fd)
    before = memory.map[:]
    answer = client.infer("flat_int32", [input_(0, 64, 16)], [output(1024, 63)]).ok()
    assert answer.json()["outputs"][0]["data"] == [0] * 16
    _, blobs = client.infer("flat_int32", [input_(0, 64, 16)], [output(1024, 63)], binary_data_output=True).ok().parts()
    assert blobs["OUTPUT0"] == bytes(64) and memory.map[:] == before


def test_outputs_that_cannot_be_written(client):
    """They stay in the answer."""
    memory = Memory()
    fcntl.fcntl(memory.fd, fcntl.F_ADD_SEALS, 0x10)  # F_SEAL_FUTURE_WRITE: by the mapping of before alone
    client.pass_(memory.fd)
    assert client.infer("flat_int32", [input_(0, 64, 16)], [output(64, 64)]).ok().json()["outputs"][0]["data"] == [0] * 16


@pytest.mark.parametrize("offset, size", [
    (SIZE, 64), (SIZE - 63, 64), (0, SIZE + 1), (SIZE + 1, 0), (2**64 - 1, 64), (64, 2**64 - 1), (2**63, 2**63), (2**64 - 64, 64)])
def test_places_outside(client, memory, path, offset, size):
    client.pass_(memory.fd)
    answer = client.infer("flat_int32", [input_(offset, size, 16)])
    assert answer.status == 400 and "INPUT0" in answer.error and str(SIZE) in answer.error
    answer = client.infer("flat_int32", [input_(0, 64, 16)], [output(offset, size)])
    assert answer.status == 400 and "OUTPUT0" in answer.error
    still_good(path)


def test_wrong_sizes(client, memory):
    client.pass_(memory.fd)
    assert client.infer("flat_int32", [input_(0, 60, 16)]).status == 400
    assert client.infer("flat_int32", [input_(0, 64, 16, region="r")]).status == 404
    client.infer("flat_int32", [input_(0, 64, 16)]).ok()


def test_more_than_a_request_may_have(models, start, path, memory):
    repo.add(models, "flat_int32")
    start(models, f"--http-address=unix:{path}", "--http-shared-memory=true", "--http-max-input-size=1MiB")
    with Client(path) as client:
        client.pass_(memory.fd)
        inputs = [input_(0, SIZE // 2, SIZE // 8, name=f"I{i}") for i in range(1000)]
        answer = client.infer("flat_int32", inputs)
        assert answer.status in (400, 413) and "--http-max-input-size" in answer.error


def unfit(kind, tmp_path):
    if kind == "file":
        return os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    if kind == "pipe":
        return os.pipe()[0]
    if kind == "directory":
        return os.open("/", os.O_RDONLY)
    return {"no seals": lambda: Memory(seals=0), "may grow": lambda: Memory(seals=fcntl.F_SEAL_SHRINK),
            "may shrink": lambda: Memory(seals=fcntl.F_SEAL_GROW), "too large": lambda: Memory(size=(1 << 30) + 1)}[kind]().fd


@pytest.mark.parametrize("kind", ["no seals", "may grow", "may shrink", "too large", "file", "pipe", "directory"])
def test_unfit_descriptors(served, client, memory, tmp_path, path, kind):
    client.pass_(memory.fd)
    client.infer("flat_int32", [input_(0, 64, 16)]).ok()
    before = descriptors(served)
    client.pass_(unfit(kind, tmp_path))
    answer = client.infer("flat_int32", [input_(0, 64, 16)])
    assert answer.status == 501 and "memfd" in answer.error
    wait.until(lambda: descriptors(served) == before - 1, "both to be closed")
    still_good(path)


def test_connections_have_their_own(client, memory, path):
    client.pass_(memory.fd)
    client.infer("flat_int32", [input_(0, 64, 16)]).ok()
    with Client(path) as other:
        assert other.infer("flat_int32", [input_(0, 64, 16)]).status == 501
        mine = Memory()
        other.pass_(mine.fd)
        memory.map[:4], mine.map[:4] = b"\1\0\0\0", b"\2\0\0\0"
        for c, n in ((client, 1), (other, 2)):
            assert c.infer("flat_int32", [input_(0, 4, 1)]).ok().json()["outputs"][0]["data"] == [n]


def test_off_by_default(models, start, path, memory):
    repo.add(models, "flat_int32")
    server = start(models, f"--http-address=unix:{path}")
    with Client(path) as client:
        client.request("GET", "/v2").ok()
        before = descriptors(server)
        client.pass_(memory.fd)
        answer = client.infer("flat_int32", [input_(0, 64, 16)])
        assert answer.status == 501 and "--http-shared-memory" in answer.error
        assert descriptors(server) == before


def test_thousands_of_descriptors(served, path, memory):
    """Faster than the server closes them, which may end the connection, all are closed."""
    before = descriptors(served)
    client = Client(path)
    for count in [1] * 2000 + [250] * 20:
        try:
            client.pass_(*[memory.fd] * count)
        except ConnectionError:
            client.close()
            client = Client(path)
    client.close()
    wait.until(lambda: descriptors(served) == before, "all to be closed")
    memory.map[:4] = b"\7\0\0\0"
    with Client(path) as client:
        client.pass_(memory.fd)
        assert client.infer("flat_int32", [input_(0, 4, 1)]).ok().json()["outputs"][0]["data"] == [7]
        wait.equal(lambda: descriptors(served), before + 2)
    wait.until(lambda: descriptors(served) == before, "the connection to be gone")


class Lingering:
    """Connections whose close waits, as their peer does not read what they have sent."""

    def __init__(self, count):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.peers, self.ours = [], []
        for _ in range(count):
            self.ours.append(socket.create_connection(self.listener.getsockname()))
            self.peers.append(self.listener.accept()[0])
            self.ours[-1].setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    self.ours[-1].send(bytes(65536))
            self.ours[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, int(wait.PATIENCE)))

    def end(self):
        for s in (*self.peers, self.listener):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()


def test_descriptors_whose_close_takes_long(served, client, memory, path):
    """Further ones are not taken: the connection ends, and no request meets the memory that came before."""
    client.pass_(memory.fd)
    memory.map[:4] = b"\1\0\0\0"
    client.infer("flat_int32", [input_(0, 4, 1)]).ok()
    before = descriptors(served)
    slow = Lingering(64)
    try:
        with Client(path) as other:
            served.signal(signal.SIGSTOP)  # so that the last copies are the server's
            for s in slow.ours:
                other.pass_(s.fileno())
                s.close()
            served.process.send_signal(signal.SIGCONT)
            other.request("GET", "/v2").ok()
        mine = Memory()
        mine.map[:4] = b"\2\0\0\0"
        client.pass_(mine.fd)
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            client.infer("flat_int32", [input_(0, 4, 1)])
        still_good(path)
    finally:
        slow.end()
    wait.until(lambda: descriptors(served) == before - 2, "all to be closed")
    with Client(path) as other:
        other.pass_(mine.fd)
        assert other.infer("flat_int32", [input_(0, 4, 1)]).ok().json()["outputs"][0]["data"] == [2]


@pytest.mark.parametrize("ending", ["in the head", "during the call"])
def test_clients_that_die(served, path, ending):
    before = descriptors(served)
    for _ in range(30):
        memory = Memory()
        client = Client(path)
        client.pass_(memory.fd)
        count = SIZE // 4
        body = json.dumps({"inputs": [input_(0, SIZE, count)], "outputs": [output(0, SIZE)]}).encode()
        head = f"POST {infer_path('flat_int32')} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        client.connection.sock.sendall(head + body if ending == "during the call" else head)
        client.close()
        memory.close()
    wait.until(lambda: descriptors(served) == before, "all to be closed")
    still_good(path)


def test_a_client_that_scribbles(served, client, memory, path):
    """It writes, and takes pages away, while its calls run: what is answered was checked as it was read."""
    text = b"\x04\0\0\0abcd" * 32768
    ended = threading.Event()

    def scribble():
        rng = np.random.default_rng(0)
        while not ended.is_set():
            at = int(rng.integers(0, len(text) // 8)) * 8
            memory.map[at:at + 4] = rng.bytes(4) if rng.integers(2) else b"\x04\0\0\0"
            if rng.integers(8) == 0:
                LIBC.fallocate(memory.fd, PUNCH_HOLE, ctypes.c_long(at & ~4095), ctypes.c_long(4096))
                memory.map[:len(text)] = text

    client.pass_(memory.fd)
    memory.map[:len(text)] = text
    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        seen = set()
        for _ in range(200):
            answer = client.infer("flat_bytes", [input_(0, len(text), 32768, datatype="BYTES")], [output(len(text), len(text))])
            seen.add(answer.status)
    finally:
        ended.set()
        thread.join()
    assert seen <= {200, 400}, seen
    still_good(path)
