"""The mesh over a real etcd, which hangs, and comes back without its data."""
import base64
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from lib import repo, wait
from lib.rest import Rest

pytestmark = pytest.mark.skipif(not shutil.which("etcd"), reason="there is no etcd here")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Etcd:
    """One node. Its ports are free when it starts, or others are tried; later ones of the same test keep them."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mretcd", dir="/tmp"))
        self.process, self.ports, self.count = None, None, 0
        wait.until(self.start, "an etcd with free ports")

    def start(self):
        ports = self.ports or (free_port(), free_port())
        client, peer = (f"http://127.0.0.1:{p}" for p in ports)
        self.count += 1
        with open(self.folder / f"log{self.count}", "wb") as log:
            self.process = subprocess.Popen(
                ["etcd", f"--data-dir={self.folder}/data{self.count}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                 f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"],
                stdout=log, stderr=log)
        serves = wait.until(lambda: self.process.poll() is not None and "ended" or self.says_ready() and self.healthy(ports[0]) and "serves",
                            "etcd to answer or to end") == "serves"
        if serves:
            self.ports = ports
        return serves

    def says_ready(self):
        """Its own log: another etcd may have got the port."""
        return b"ready to serve client requests" in (self.folder / f"log{self.count}").read_bytes()

    @staticmethod
    def healthy(port):
        try:
            with Rest(port, timeout=5) as r:
                return r.get("/health").json().get("health") == "true"
        except OSError:
            return False

    def keys(self):
        every = base64.b64encode(b"\0").decode()
        with Rest(self.ports[0]) as r:
            kvs = r.post("/v3/kv/range", {"key": every, "range_end": every, "keys_only": True}).json().get("kvs", [])
        return {base64.b64decode(kv["key"]).decode() for kv in kvs}

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def etcd():
    etcd = Etcd()
    yield etcd
    etcd.process.send_signal(signal.SIGCONT)
    etcd.kill()
    shutil.rmtree(etcd.folder)


@pytest.fixture
def servers(etcd, start, models):
    for i in range(8):
        repo.add(models, f"m{i}", repo.config())
    made = [start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}/prod", f"--mesh-id=s{i}", mode=None, ready=False) for i in range(2)]
    for s in made:
        s.wait_ready()
        with Rest(s.http) as r:
            wait.until(lambda: r.get("/v2/health/ready").status == 200, f"the server to join\n{s.describe()}")
    return made


def answers(server, model):
    with Rest(server.http) as r:
        reply = r.infer(model, [("INPUT0", "INT32", [3], [1, 2, 3])])
    assert reply.status == 200, f"{model}: {reply.status} {reply.body[:300]}\n{server.describe()}"


def ask_all(servers, numbers):
    for i in numbers:
        for server in servers:
            answers(server, f"m{i}")


def in_registry(etcd, i):
    """The model, and a copy of it, whose record does not go with the time."""
    keys = etcd.keys()
    return f"prod/mesh/m/m{i}" in keys and any(k.startswith(f"prod/mesh/c/m{i}/") for k in keys)


def test_etcd_that_hangs_stops_nobody(etcd, servers):
    ask_all(servers, range(4))
    etcd.process.send_signal(signal.SIGSTOP)
    ask_all(servers, range(8))  # loaded and not loaded yet
    etcd.process.send_signal(signal.SIGCONT)
    ask_all(servers, range(8))
    for i in range(8):
        wait.until(lambda: in_registry(etcd, i), f"m{i} in the registry")


def test_etcd_without_its_data_gets_it_again(etcd, servers):
    ask_all(servers, range(4))
    etcd.kill()
    ask_all(servers, range(6))
    wait.until(etcd.start, "etcd to start again on its ports")
    for i in range(6):
        wait.until(lambda: in_registry(etcd, i), f"m{i} in the registry")
    ask_all(servers, range(8))
