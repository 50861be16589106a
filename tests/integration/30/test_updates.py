"""What updates of a large model cost those who are being served meanwhile, counted: system calls that change memory
and page faults of the threads that serve, and what the process keeps. The plain way of loading beside it shows that
there is something to count."""
import collections
import os
import re
import signal
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.counting import needs_tracing
from lib.held import resident
from lib.rest import Rest

pytestmark = pytest.mark.skipif(wait.SLOW > 1, reason="sanitizers have a heap of their own")

LAYERS, SIZE = 8, 1024
WEIGHTS = LAYERS * SIZE * SIZE * 4
UPDATES = 10
SERVING = ("loop-", "run:", "mr-onnx")
MEMORY_CALLS = ("mmap", "munmap", "brk", "mprotect", "madvise", "mremap")
ROW = np.linspace(-1, 1, SIZE, dtype="<f4")


class Updated:
    """A server with a model that gets new versions while somebody asks it all the time."""

    def __init__(self, folder, models, start, way, options):
        self.folder, self.number = models / "dense", 0
        tensors = [repo.tensor(name, "TYPE_FP32", (SIZE,)) for name in ("INPUT0", "OUTPUT0")]
        repo.add(models, "dense", versions=(), backend="onnxruntime", max_batch_size=1, inputs=tensors[:1], outputs=tensors[1:],
                 extra="instance_group { count: 1 }")
        self.write()
        self.server = start(models, "--load-model=dense", "--loop-threads=1", "--inline-threshold-us=0", "--model-load-thread-count=1",
                            f"--backend-config=onnxruntime,parameter_cache={folder / 'cache'}",
                            f"--backend-config=onnxruntime,parameter_memory={way}", *options, mode="explicit")
        self.control = Control(self.server)
        self.answers, self.problems, self.asked = set(), [], 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.keep_asking)

    def write(self):
        """The next version."""
        self.number += 1
        folder = self.folder / str(self.number)
        folder.mkdir()
        repo.write(folder / "model.onnx", onnxgen.dense(LAYERS, SIZE, self.number))

    def __enter__(self):
        self.thread.start()
        wait.until(lambda: self.asked > 50, "the first answers")
        return self

    def __exit__(self, *_):
        self.is_over.set()
        self.thread.join()
        self.control.close()
        assert not self.problems, self.problems

    def ask(self, rest):
        reply = rest.infer_binary("dense", [("INPUT0", "FP32", [1, SIZE])], [ROW.tobytes()], parameters={"binary_data_output": True})
        return reply.ok().parts()[1]["OUTPUT0"]

    def keep_asking(self):
        try:
            with Rest(self.server.http) as rest:
                while not self.is_over.wait(0.002):
                    self.answers.add(self.ask(rest))
                    self.asked += 1
        except Exception as e:
            self.problems.append(repr(e))

    def some_more(self, count=50):
        """Until so many more have been answered."""
        goal = self.asked + count
        wait.until(lambda: self.asked >= goal or self.problems, "answers")

    def update(self):
        """A new version takes the place of the old one, which has gone when this returns. Every answer meanwhile was one
        of the two."""
        with Rest(self.server.http) as rest:
            before = self.ask(rest)
            self.answers.clear()
            self.write()
            assert self.control.load("dense").status == 200
            wait.until(lambda: set(self.control.states("dense").values()) <= {"READY", "UNAVAILABLE"} and
                       self.control.states("dense")[str(self.number)] == "READY", "the old version to end")
            wait.until(lambda: {v["state"] for v in rest.get("/v2/models/dense/versions").ok().json()["versions"]} <=
                       {"READY", "UNLOADED"}, "its memory to be given back")
            self.some_more()
            after = self.ask(rest)
        assert before != after and self.answers <= {before, after}
        (self.folder / str(self.number - 1) / "model.onnx").unlink()
        (self.folder / str(self.number - 1)).rmdir()

    # ---- what the system says ----

    def threads(self):
        """Names of the threads, by number."""
        folder = Path(f"/proc/{self.server.process.pid}/task")
        return {t: (folder / t / "comm").read_text().strip() for t in os.listdir(folder)}

    def stat(self, thread):
        """What the system counts for it: the fields from the third on."""
        return Path(f"/proc/{self.server.process.pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()

    def faults(self):
        """Page faults so far of each thread that serves."""
        fields = {t: self.stat(t) for t, name in self.threads().items() if name.startswith(SERVING)}
        return {t: int(f[7]) + int(f[9]) for t, f in fields.items()}

    def classes(self):
        """(name, scheduling class) of the threads."""
        return {(name, int(self.stat(t)[38])) for t, name in self.threads().items()}

    def maps(self):
        return len(Path(f"/proc/{self.server.process.pid}/maps").read_text().splitlines())

    def pool(self):
        """Bytes in memory of the ranges for packed weights: areas without reserve that asked for large pages."""
        areas = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{self.server.process.pid}/smaps").read_text(), flags=re.M)
        ranges = [a for a in areas if re.search(r"^VmFlags:.* nr\b.* hg\b", a, re.M)]
        return len(ranges), sum(int(re.search(r"^Rss:\s+(\d+) kB", a, re.M)[1]) for a in ranges) * 1024


@pytest.fixture
def updated(tmp_path, start):
    def make(way="pool", *options):
        (tmp_path / way / "models").mkdir(parents=True)
        return Updated(tmp_path / way, tmp_path / way / "models", start, way, options)
    return make


def new_faults(before, after):
    """Of threads that were there all the time."""
    return sum(n - before[t] for t, n in after.items() if t in before)


def test_page_faults(updated):
    """A thread that serves takes no page fault because of an update. What it takes now and then of its own accord is
    seen in quiet times beside."""
    with updated() as u:
        u.update()  # the first makes what later ones use again
        quiet, busy = 0, 0
        for _ in range(UPDATES):
            first = u.faults()
            u.some_more(100)
            second = u.faults()
            quiet += new_faults(first, second)
            u.update()
            busy += new_faults(second, u.faults())
        assert busy <= quiet + UPDATES, f"{busy} page faults in {UPDATES} updates, {quiet} in quiet times"


class Traced(collections.Counter):
    """These system calls, while the block runs, as (name of the thread, call)."""

    def __init__(self, updated, folder, calls):
        super().__init__()
        self.updated, self.path, self.calls = updated, Path(folder) / "strace", calls

    def __enter__(self):
        self.names = self.updated.threads()
        self.tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-e", "trace=" + ",".join(self.calls), "-o", self.path, "-p", str(self.updated.server.process.pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tasks = Path(f"/proc/{self.updated.server.process.pid}/task")
        wait.until(lambda: all(re.search(rf"^TracerPid:\t{self.tracer.pid}$", (tasks / t / "status").read_text(), re.M)
                               for t in os.listdir(tasks)), "strace to hold all threads")
        return self

    def __exit__(self, *_):
        self.names |= self.updated.threads()
        self.tracer.send_signal(signal.SIGINT)
        self.tracer.communicate(timeout=60)
        made = collections.defaultdict(list)
        for number, rest in re.findall(r"^(\d+) +(.*)$", self.path.read_text(), re.M):
            if rest.startswith("+++ exited") and made[number][-1:] == ["madvise"]:
                made[number].pop()  # an ending thread gives its stack back
            elif call := re.match(r"(\w+)\(", rest):
                made[number].append(call[1])
        for number, names in made.items():
            self.update((self.names.get(number, "others"), name) for name in names)


def growth(u, updates):
    """Resident bytes after the first update and after each of the others."""
    sizes = []
    for _ in range(1 + updates):
        u.update()
        sizes.append(resident(u.server))
    return sizes


def test_memory(updated):
    """After many updates the server has what it had after one, and of versions that have gone no page is left. In the plain
    way the heap keeps them."""
    with updated() as u:
        u.update()
        maps = u.maps()
        sizes = growth(u, UPDATES)
        ranges, used = u.pool()
        assert max(sizes) <= 1.05 * sizes[0], sizes
        assert u.maps() <= maps + 4, "a thread more or less has two areas"
        assert ranges == 2, "one for the version and one for the next"
        assert WEIGHTS <= used <= WEIGHTS + (2 << 20), "one version's packed weights"
    with updated("plain") as u:
        plain = growth(u, UPDATES // 2)
        assert u.pool() == (0, 0)
    assert plain[-1] >= sizes[-1] + WEIGHTS, (plain, sizes)


@needs_tracing
def test_system_calls(updated, tmp_path):
    """Threads that serve make no call that changes the process's memory, and weights are not unmapped, which would hold up
    those who do: the loader unmaps a file without pages, and that only."""
    with updated() as u:
        for _ in range(3):
            u.update()  # both ranges and all threads have been there once
        with Traced(u, tmp_path, MEMORY_CALLS) as calls:
            for _ in range(UPDATES):
                u.update()
    serving = {key: n for key, n in calls.items() if key[0].startswith(SERVING)}
    assert not serving, calls
    assert sum(n for (_, call), n in calls.items() if call == "madvise") >= UPDATES, "pages are given back: nothing was seen"


@needs_tracing
def test_loads_in_the_background(updated, tmp_path):
    """The loader does not take the CPU from others when it wakes up, threads that it makes are ordinary ones, and it pauses
    when it is faster than it may."""
    with updated("pool", f"--backend-config=onnxruntime,load_bytes_per_second={3 * WEIGHTS}") as u:
        with Traced(u, tmp_path, ("clock_nanosleep",)) as calls:
            u.update()
        classes = u.classes()
    assert calls["mr-load", "clock_nanosleep"] > 0, calls
    assert ("mr-load", os.SCHED_BATCH) in classes
    assert {number for name, number in classes if name != "mr-load"} == {os.SCHED_OTHER}, classes
    assert any(name.startswith("run:") for name, _ in classes)


def test_tables_are_kept(models, start, tmp_path):
    """Weights that requests read where they are mapped are in memory before the first of them; packed ones are given up."""
    rows, size = 8192, 1024
    repo.add(models, "lookup", files={"1/model.onnx": onnxgen.lookup(rows, size)}, backend="onnxruntime",
             inputs=[repo.tensor("INPUT0", "TYPE_INT64")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (-1, size))])
    server = start(models, f"--backend-config=onnxruntime,parameter_cache={tmp_path / 'cache'}", mode="none")
    told = [e["msg"] for e in server.events() if "model=lookup" in e["msg"] and "parameters=" in e["msg"]]
    assert re.search(rf"parameters=pool mapped_bytes={4 * (rows + size) * size} kept_bytes={4 * rows * size} "
                     rf"packed_bytes={4 * size * size + 64} heap_bytes=0", told[0]), told
    areas = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{server.process.pid}/smaps").read_text(), flags=re.M)
    kept = [int(re.search(r"^Rss:\s+(\d+) kB", a, re.M)[1]) * 1024 for a in areas if "weights.bin" in a.split("\n")[0]]
    assert 4 * rows * size <= sum(kept) < 4 * rows * size + (1 << 20), kept
    with Rest(server.http) as rest:
        answer = rest.infer("lookup", [("INPUT0", "INT64", [2], [rows - 1, 0])]).ok().json()["outputs"][0]
    assert answer["shape"] == [2, size]
