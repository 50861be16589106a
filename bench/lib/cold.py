"""Models of a mesh that are not loaded when they are asked for. Each takes 100 ms to load (the fault backend waits so long), and 64
clients ask one server, which loads 16 at once: no more than 160 can be loaded in a second."""
import http.client
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path

from . import machine, servers

LOAD_S, LOADERS, CLIENTS, BYTES = 0.1, 16, 64, 1 << 20
CONFIG = f"""backend: "fault"
max_batch_size: 0
input [ {{ name: "INPUT0" data_type: TYPE_INT32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_INT32 dims: [ -1 ] }} ]
parameters {{ key: "open_delay_ms" value {{ string_value: "{1000 * LOAD_S:.0f}" }} }}
parameters {{ key: "deaf" value {{ string_value: "1" }} }}
"""  # deaf: one sleep, without a look each millisecond at whether it is wanted
BODY = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()


def repository(folder, count):
    for i in range(count):
        version = folder / f"m{i}" / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        with open(version / "weights", "wb") as f:
            f.truncate(BYTES)
    return folder


class Clients:
    """As many as ask at once, each for the model that `following` gives next; None: it ends."""

    def __init__(self, port, following):
        self.port, self.following, self.lock = port, following, threading.Lock()
        self.times, self.failed = [], 0
        started = time.perf_counter()
        threads = [threading.Thread(target=self.ask) for _ in range(CLIENTS)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.seconds = time.perf_counter() - started

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while True:
            with self.lock:
                model = self.following()
            if model is None:
                return connection.close()
            started = time.perf_counter()
            try:
                connection.request("POST", f"/v2/models/{model}/infer", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                is_right = b'"data":[7]' in answer.read() and answer.status == 200
            except OSError:
                is_right = False
                connection.close()
            with self.lock:
                self.times.append(time.perf_counter() - started)
                self.failed += not is_right

    def figures(self):
        cuts = statistics.quantiles(self.times, n=100, method="inclusive")
        return {"rate": len(self.times) / self.seconds, "p50": 1e6 * cuts[49], "p99": 1e6 * cuts[98], "failed": self.failed}


def loading_seconds(server):
    """What its loads took together, and their number."""
    connection = http.client.HTTPConnection("127.0.0.1", server.metrics, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    value = lambda what: float(text.split(f"\nmodelmesh_loadmodel_milliseconds_{what} ")[1].split()[0])
    return value("sum") / 1000, value("count")


def with_server(count, capacity, run):
    """A contender: a new server each time."""
    def measure(bench):
        backend = servers.MILLRACE.parents[1] / "lib/millrace/libmillrace_fault.so"
        if not backend.exists():
            raise machine.Missing(f"{backend} is not built (make build)")
        folder = Path(tempfile.mkdtemp(prefix="mesh", dir="/tmp"))  # the path of the registry's socket must be short
        server = None
        try:
            server = bench.begin("millrace", repository(folder / "models", count), f"--mesh=file:{folder}/registry", f"--mesh-loaders={LOADERS}",
                                 f"--mesh-capacity={capacity}", cpus=2)
            return run(bench, server)
        finally:
            if server:
                server.stop()
            shutil.rmtree(folder)
    return measure


def once(count):
    """Each of the models once."""
    def run(_, server):
        left = iter(f"m{i}" for i in range(count))
        return Clients(server.http, lambda: next(left, None)).figures()
    return with_server(count, 2 * count * BYTES, run)


def churn(count):
    """Any of the models at any time, of which a tenth fit; begun when it is full."""
    def run(bench, server):
        pick, seconds = random.Random(7), max(10, bench.seconds)
        first = iter([f"m{i}" for i in range(count // 5)])
        Clients(server.http, lambda: next(first, None))
        before, loads = loading_seconds(server)
        end = time.perf_counter() + seconds
        clients = Clients(server.http, lambda: f"m{pick.randrange(count)}" if time.perf_counter() < end else None)
        busy, total = loading_seconds(server)
        return {**clients.figures(), "loads": (total - loads) / clients.seconds, "loaders": 100 * (busy - before) / LOADERS / clients.seconds}
    return with_server(count, count // 10 * BYTES, run)
