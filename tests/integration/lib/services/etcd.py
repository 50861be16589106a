"""An etcd of one node."""
import base64
import socket
import subprocess
import tempfile
from pathlib import Path

from lib import wait
from lib.rest import Rest


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
