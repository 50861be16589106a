"""An etcd of one node, and one of three."""
import base64
import subprocess
import tempfile
from pathlib import Path

from lib import wait
from lib.rest import Rest
from lib.services.ports import quiet_port


class Etcd:
    """One node. Its ports are free when it starts, or others are tried; later ones of the same test keep them. With a node of
    lib.services.network it is there."""

    def __init__(self, node=None):
        self.folder = Path(tempfile.mkdtemp(prefix="mretcd", dir="/tmp"))
        self.process, self.ports, self.count = None, (2379, 2380) if node else None, 0
        self.host, self.prefix, self.within = (node.ip, node.prefix, node.within) if node else ("127.0.0.1", [], lambda f: f())
        wait.until(self.start, "an etcd with free ports")

    def start(self, keep=False):
        """Empty, unless it keeps what it had."""
        ports = self.ports or (quiet_port(), quiet_port())
        client, peer = (f"http://{self.host}:{p}" for p in ports)
        self.count += not keep
        with open(self.folder / f"log{self.count}", "wb") as log:  # says_ready reads what this start has written
            self.process = subprocess.Popen(
                [*self.prefix, "etcd", f"--data-dir={self.folder}/data{self.count}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                 f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"],
                stdout=log, stderr=log)
        serves = wait.until(lambda: self.process.poll() is not None and "ended" or self.says_ready() and self.within(lambda: self.healthy(ports[0], self.host)) and "serves",
                            "etcd to answer or to end") == "serves"
        if serves:
            self.ports = ports
        return serves

    def says_ready(self):
        """Its own log: another etcd may have got the port."""
        return b"ready to serve client requests" in (self.folder / f"log{self.count}").read_bytes()

    @staticmethod
    def healthy(port, host="127.0.0.1"):
        try:
            with Rest(port, host, timeout=5) as r:
                return r.get("/health").json().get("health") == "true"
        except OSError:
            return False

    def keys(self):
        every = base64.b64encode(b"\0").decode()
        kvs = self.ask("/v3/kv/range", {"key": every, "range_end": every, "keys_only": True}).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode() for kv in kvs}

    def ask(self, path, body):
        def there():
            with Rest(self.ports[0], self.host) as r:
                return r.post(path, body).json()
        return self.within(there)

    def put(self, key, value):
        self.ask("/v3/kv/put", {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()})

    def end_leases(self):
        """As if all their owners had been away for long."""
        for lease in self.ask("/v3/lease/leases", {}).get("leases", []):
            self.ask("/v3/lease/revoke", {"ID": lease["ID"]})

    def alarm(self, action):
        """ACTIVATE: as if it were full; it reads, and does not write. DEACTIVATE: it writes again."""
        self.ask("/v3/maintenance/alarm", {"action": action, "alarm": "NOSPACE"})

    def kill(self):
        self.process.kill()
        self.process.wait()


class Cluster:
    """Three nodes that elect a leader. Their times are long, as the disk of a busy machine keeps them waiting."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="mretcd", dir="/tmp"))
        self.processes, self.ports, self.peers, self.tries = [], [], [], 0
        wait.until(self.start_all, "an etcd of three nodes with free ports")

    def start_all(self):
        self.end()
        self.tries += 1
        self.ports, self.peers = ([quiet_port() for _ in range(3)] for _ in range(2))
        self.processes = [self.run(i) for i in range(3)]
        return wait.until(lambda: any(p.poll() is not None for p in self.processes) and "ended" or all(map(Etcd.healthy, self.ports)) and "serves",
                          "the nodes to answer or to end") == "serves"

    def run(self, i):
        client, peer = f"http://127.0.0.1:{self.ports[i]}", f"http://127.0.0.1:{self.peers[i]}"
        every = ",".join(f"n{k}=http://127.0.0.1:{p}" for k, p in enumerate(self.peers))
        with open(self.folder / f"log{i}", "ab") as log:
            return subprocess.Popen(
                ["etcd", f"--name=n{i}", f"--data-dir={self.folder}/{self.tries}-{i}", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
                 f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={every}",
                 "--heartbeat-interval=300", "--election-timeout=3000"], stdout=log, stderr=log)

    def leader(self):
        """Its number; None: those that answer know of none that does."""
        for i, port in enumerate(self.ports):
            if self.processes[i].poll() is None:
                with Rest(port) as r:
                    status = r.post("/v3/maintenance/status", {}).json()
                if status.get("leader") == status["header"]["member_id"]:
                    return i
        return None

    def kill(self, i):
        self.processes[i].kill()
        self.processes[i].wait()

    def start(self, i):
        self.processes[i] = self.run(i)
        wait.until(lambda: Etcd.healthy(self.ports[i]), f"node {i} to come back")

    def address(self):
        return "etcd://" + ",".join(f"127.0.0.1:{p}" for p in self.ports)

    def end(self):
        for p in self.processes:
            p.kill()
            p.wait()
