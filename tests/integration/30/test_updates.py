"""The cost of updates of a large model for concurrent requests, counted: system calls that change memory and page faults of
the threads that serve, and the memory that the process keeps. The plain way of loading shows that there is something to
count."""
import collections
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import onnxgen, repo, wait
from lib.counts.counting import needs_tracing
from lib.held import resident
from lib.rest import Rest
from lib.updated import LAYERS, SERVING, SIZE, WEIGHTS, Updated, ask

pytestmark = pytest.mark.release_only("sanitizers have a heap of their own")

UPDATES = 5
MEMORY_CALLS = ("mmap", "munmap", "brk", "mprotect", "madvise", "mremap")


@pytest.fixture
def updated(tmp_path, start):
    def make(way="pool", *options, **kw):
        return Updated(tmp_path / way, start, way, options, **kw)
    return make


def new_faults(before, after):
    """Of threads that were there all the time."""
    return sum(n - before[t] for t, n in after.items() if t in before)


def test_page_faults(updated):
    """A thread that serves takes no page fault because of an update. What it takes now and then of its own accord is
    seen in quiet times beside; on a busy machine an update lasts longer, and a thread takes a few more in it. Weights
    that came to it by faults would be thousands."""
    with updated() as u:
        u.update()  # the first makes what later ones use again
        quiet, busy = 0, 0
        for _ in range(UPDATES):
            first = u.faults()
            u.some_more(60)
            second = u.faults()
            quiet += new_faults(first, second)
            u.update()
            busy += new_faults(second, u.faults())
        pages = WEIGHTS // os.sysconf("SC_PAGESIZE")
        assert busy <= quiet + UPDATES * pages // 100, f"{busy} page faults in {UPDATES} updates, {quiet} in quiet times"


class Traced(collections.Counter):
    """These system calls, while the block runs, as (name of the thread, call); a wait for a futex as FUTEX_WAIT."""

    def __init__(self, updated, folder, calls):
        super().__init__()
        self.updated, self.path, self.calls = updated, Path(folder) / "strace", calls

    def __enter__(self):
        self.names = self.updated.threads()
        self.tracer = subprocess.Popen(
            ["strace", "-f", "-q", "-e", "trace=" + ",".join(self.calls), "-o", self.path, "-p", str(self.updated.pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        tasks = Path(f"/proc/{self.updated.pid}/task")
        wait.until(lambda: all(re.search(rf"^TracerPid:\t{self.tracer.pid}$", (tasks / t / "status").read_text(), re.M)
                               for t in os.listdir(tasks)), "strace to hold all threads")
        return self

    def __exit__(self, *_):
        self.names |= self.updated.threads()
        self.tracer.send_signal(signal.SIGINT)
        self.tracer.communicate(timeout=wait.PATIENCE)
        made = collections.defaultdict(list)
        for number, rest in re.findall(r"^(\d+) +(.*)$", self.path.read_text(), re.M):
            if rest.startswith("+++ exited") and made[number][-1:] == ["madvise"]:
                made[number].pop()  # an ending thread gives its stack back
            elif call := re.match(r"(\w+)\((?:\w+, (FUTEX_WAIT))?", rest):
                made[number].append(call[2] or call[1])
        for number, names in made.items():
            self.update((self.names.get(number, "others"), name) for name in names)


def growth(u, updates):
    """Resident bytes after the first update and after each of the others."""
    sizes = []
    for _ in range(1 + updates):
        u.update()
        sizes.append(resident(u.server))
    return sizes


@pytest.mark.parametrize("updates", [6, pytest.param(50, marks=pytest.mark.more)])
def test_memory(updated, updates):
    """After many updates the server has what it had after one, and of versions that have gone no page is left. In the plain
    way the heap keeps them. Answers are the same."""
    contents = [onnxgen.dense(2 * LAYERS, SIZE, seed) for seed in (1, 2)]
    with updated(contents=contents) as u:
        u.update()
        maps = u.maps()
        sizes = growth(u, updates)
        ranges, used = u.pool()
        assert max(sizes) <= 1.05 * sizes[0], sizes
        assert u.maps() <= maps + 4, "a thread more or less has two areas"
        assert ranges == 2, "one for the version and one for the next"
        assert 2 * WEIGHTS <= used <= 2 * WEIGHTS + (2 << 20), "one version's packed weights"
        answer = u.models["dense"].number % 2, ask(u.control.rest, "dense")
    with updated("plain", contents=contents) as u:
        plain = growth(u, 3)
        assert u.pool() == (0, 0)
        assert (u.models["dense"].number % 2, ask(u.control.rest, "dense")) == answer
    assert max(plain) >= sizes[-1] + 2 * WEIGHTS, (plain, sizes)


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


@pytest.fixture
def one_busy_cpu():
    """Puts all threads of a process on one CPU, beside a program that computes."""
    cpu, programs = min(os.sched_getaffinity(0)), []

    def put(pid):
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setaffinity(int(task), {cpu})
        programs.append(subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]))
    yield put
    for p in programs:
        p.kill()
        p.wait()


@needs_tracing
def test_no_network_thread_waits_for_a_lock_of_a_load(updated, tmp_path, one_busy_cpu):
    """A load of the lowest priority that loses its CPU while it holds a lock gets it back late."""
    with updated() as u:
        u.update()
        one_busy_cpu(u.pid)
        asked = u.askers[0].asked
        with Traced(u, tmp_path, ("futex",)) as calls:
            for _ in range(3):
                u.update()
        asked = u.askers[0].asked - asked
    assert calls["loop-0", "futex"] > asked / 2, "it wakes those who compute: something was seen"
    assert calls["loop-0", "FUTEX_WAIT"] <= 3, calls


@needs_tracing
def test_loads_in_the_background(updated, tmp_path):
    """The loader does not take the CPU from others when it wakes up, threads that it makes are ordinary ones, and it pauses
    when it is faster than it may."""
    with updated("pool", f"--backend-config=onnxruntime,load_bytes_per_second={3 * WEIGHTS}") as u:
        with Traced(u, tmp_path, ("clock_nanosleep",)) as calls:
            u.update()
        classes = u.classes()
    assert calls["others", "clock_nanosleep"] > 0, calls  # its thread has ended, and the name with it
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


def bytes_read(u):
    return int(re.search(r"^rchar: (\d+)$", Path(f"/proc/{u.pid}/io").read_text(), re.M)[1])


def test_what_was_compared_is_not_compared_again(updated):
    """The copy in the cache is compared with the model's file, byte by byte, unless neither has changed since. A file that has
    changed just now may change again without being seen."""
    with updated() as u:
        file, number = u.models["dense"].file(), u.models["dense"].number
        read = []
        wait.until(lambda: time.time() > file.stat().st_ctime + 2.5, "the file to grow old")
        [a.is_over.set() or a.join() for a in u.askers]
        before = ask(u.control.rest, "dense")
        for _ in range(3):
            u.control.unload("dense")
            u.settle()
            begin = bytes_read(u)
            assert u.control.load("dense").status == 200
            read.append(bytes_read(u) - begin)
        copy, = (u.folder / "cache").glob("*/weights.bin")
        with open(copy, "r+b") as f:
            f.write(b"damaged!")
        u.control.unload("dense")
        u.settle()
        assert u.control.load("dense").status == 200
        assert ask(u.control.rest, "dense") == before and u.versions()[number] == "READY"
        # overwritten in place, with the same length and the old time: only the time of the change differs
        was, other = file.stat(), onnxgen.dense(LAYERS, SIZE, 1)
        with open(file, "r+b") as f:
            f.write(other)
        os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
        now = file.stat()
        assert (now.st_ino, now.st_size, now.st_mtime_ns) == (was.st_ino, was.st_size, was.st_mtime_ns)
        u.control.unload("dense")
        u.settle()
        assert u.control.load("dense").status == 200
        changed = ask(u.control.rest, "dense")
        u.models["dense"].write(other)
        assert u.control.load("dense").status == 200
        assert before != changed == ask(u.control.rest, "dense")
    assert read[0] > 3 * WEIGHTS > 2 * WEIGHTS > read[1] and 2 * WEIGHTS > read[2], read
