"""What a running server does, counted: heap and mutex calls (count_calls.c), system calls (strace), and how
often each of its threads went to sleep."""
import collections
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from lib import wait

class Counted:
    """`environment` makes a server report to this object. `with counted: ...` counts."""

    def __init__(self, folder, source, words):
        library, path = Path(folder) / f"lib{source}.so", Path(folder) / source
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, Path(__file__).with_name(f"{source}.c")], check=True)
        path.write_bytes(bytes(8 * len(words)))
        self.environment = {"LD_PRELOAD": str(library), "MR_TEST_COUNTS": str(path)}
        self.words = words
        with open(path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 8 * len(words))

    def __enter__(self):
        self.map[:] = struct.pack("<q", 1) + bytes(8 * (len(self.words) - 1))
        return self

    def __exit__(self, *_):
        self.map[:8] = bytes(8)

    def __getattr__(self, name):
        return struct.unpack_from("<q", self.map, 8 * self.words.index(name))[0]


class Calls(Counted):
    """Heap and mutex calls."""

    def __init__(self, folder):
        super().__init__(folder, "count_calls", ("on", "allocations", "locks", "foreign_allocations", "foreign_locks"))


class Copies(Counted):
    """Bytes that network threads copy in pieces of a kilobyte and more, and the largest piece."""

    def __init__(self, folder):
        super().__init__(folder, "count_copies", ("on", "bytes", "largest"))


class SystemCalls(collections.Counter):
    """System calls of all threads of a process while the block runs, by name."""

    def __init__(self, pid, folder):
        super().__init__()
        self.pid, self.path = pid, Path(folder) / "strace"

    def __enter__(self):
        self.tracer = subprocess.Popen(["strace", "-f", "-c", "-o", self.path, "-p", str(self.pid)],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        wait.until(self._attached, "strace to hold all threads")
        return self

    def _attached(self):
        assert self.tracer.poll() is None, f"strace: {self.tracer.stderr.read().decode()}"
        return all(re.search(rf"^TracerPid:\t{self.tracer.pid}$", Path(f"/proc/{self.pid}/task/{t}/status").read_text(), re.M)
                   for t in os.listdir(f"/proc/{self.pid}/task"))

    def __exit__(self, *_):
        self.tracer.send_signal(signal.SIGINT)
        self.tracer.communicate(timeout=wait.PATIENCE)
        for line in self.path.read_text().splitlines():
            if found := re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line):
                if found[2] != "total":
                    self[found[2]] += int(found[1])


def can_trace():
    """Some containers forbid it."""
    if not shutil.which("strace"):
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode == 0


needs_tracing = pytest.mark.skipif(not can_trace(), reason="processes may not be traced here")


def sleeps(pid):
    """How often each thread gave up its CPU of its own accord."""
    tasks = Path(f"/proc/{pid}/task")
    return {t: int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (tasks / t / "status").read_text(), re.M)[1])
            for t in os.listdir(tasks)}
