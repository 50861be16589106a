"""A load yields to other work, but not for ever, and the loaded model does not."""
import os
import subprocess
import threading
from pathlib import Path

import pytest

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.rest import Rest
from lib.server import BIN, clean_environment

LAYERS, SIZE = 36, 512
LOWEST = 19


@pytest.fixture
def loading(models, start, tmp_path):
    """A server that serves one model, with another that is worth a load in the background."""
    made = []

    def make(*options, parameters=None):
        repo.add(models, "served", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
        repo.add(models, "dense", files={"1/model.onnx": onnxgen.dense(LAYERS, SIZE, 1)}, backend="onnxruntime", max_batch_size=1,
                 parameters=parameters, inputs=[repo.tensor("INPUT0", "TYPE_FP32", (SIZE,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (SIZE,))])
        server = start(models, "--load-model=served", f"--backend-config=onnxruntime,parameter_cache={tmp_path / 'cache'}",
                       *(f"--backend-config=onnxruntime,{o}" for o in options), mode="explicit")
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


NICE = os.getpriority(os.PRIO_PROCESS, 0)  # which the server inherits


def threads(server):
    """(name, scheduling class, nice value) of the threads."""
    found = []
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            found.append(((task / "comm").read_text().strip(), int(fields[38]), int(fields[16])))
        except OSError:
            pass  # it has ended
    return found


class Load(subprocess.Popen):
    def __init__(self, server):
        super().__init__([BIN, "model", "load", "dense", "-u", server.url()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env=clean_environment())


def test_only_the_load_is_low(loading):
    server, c = loading("load_bytes_per_second=1000")
    load = Load(server)
    wait.until(lambda: ("mr-load-low", os.SCHED_BATCH, LOWEST) in threads(server), "the thread that loads")
    others = [t for t in threads(server) if t[0] != "mr-load-low"]
    assert len(others) > 3 and all(nice == NICE for _, _, nice in others), others
    c.unload("dense").ok()
    load.communicate(timeout=wait.PATIENCE)
    assert not [t for t in threads(server) if t[0] == "mr-load-low"]


def test_threads_that_a_load_makes_are_ordinary(loading):
    """A model with threads of its own: they serve, and must not have what the thread had that made the session."""
    server, c = loading(parameters={"intra_op_thread_count": 4})
    before = threads(server)
    c.load("dense").ok()
    pool = lambda found: sum(t[0] == "mr-onnx" for t in found)
    wait.equal(lambda: pool(threads(server)), pool(before) + 3)  # a thread has its name when it runs
    mine = threads(server)
    assert {t[1:] for t in mine if t[0] == "mr-onnx"} == {(os.SCHED_OTHER, NICE)}, mine
    assert not [t for t in mine if t[2] != NICE], mine


def test_a_load_ends_where_requests_take_all(loading, models):
    """On one CPU that they keep busy."""
    repo.add(models, "busy", backend="fault", parameters={"spin_ms": 300}, extra="instance_group { count: 2 kind: KIND_CPU }")
    server, c = loading("load_yield_seconds=1")
    c.load("busy").ok()
    for task in os.listdir(f"/proc/{server.process.pid}/task"):
        os.sched_setaffinity(int(task), {min(os.sched_getaffinity(0))})
    is_over = threading.Event()

    def ask():
        with Rest(server.http) as rest:
            while not is_over.is_set():
                rest.infer("busy", [("INPUT0", "INT32", [1], [1])]).ok()

    asking = [threading.Thread(target=ask) for _ in range(4)]
    [t.start() for t in asking]
    wait.until(lambda: sum(t[0].startswith("run:") for t in threads(server)) == 2, "two threads that compute")
    code = Load(server).wait(timeout=wait.PATIENCE)
    is_over.set()
    [t.join(wait.PATIENCE) for t in asking]
    assert code == 0
    assert any("others leave its load no time" in e["msg"] for e in server.events())
    assert c.rest.get("/v2/models/dense/versions").json()["versions"][-1]["memory"]["parameters"] == "pool"
