"""Weights of a model in processes stay in memory that the server keeps: a worker that replaces another one maps them, all
workers of the model share them, and none can change them. The same holds for what ONNX Runtime has packed."""
import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal

import numpy as np
import pytest

from lib import onnxgen, repo, wait
from lib.metrics import value
from lib.rest import Rest
from lib.workers import PROCESS, group, pids

ROWS, SIZE = 65536, 256  # a table of 64 MiB that is used in place, and a matrix that is packed
TABLE = ROWS * SIZE * 4
NAME, PACKED = "/memfd:mr-weights", "/memfd:mr-packed"
LAYERS, WIDTH = 12, 1024  # 48 MiB of matrices
MATRICES = LAYERS * WIDTH * WIDTH * 4
SEALS = 0xF  # against new seals, shrinking, growing and writing


def ask(server):
    with Rest(server.http) as rest:
        reply = rest.infer_binary("m", [("INPUT0", "INT64", [3])], [b"".join(n.to_bytes(8, "little") for n in (0, 1, ROWS - 1))],
                                  parameters={"binary_data_output": True})
        return bytes(reply.ok().parts()[1]["OUTPUT0"])


def inode(pid):
    """Of the memory that the process has mapped, with the rights to it."""
    with open(f"/proc/{pid}/maps") as f:
        found = {(line.split()[1], line.split()[4]) for line in f if NAME in line}
    assert len(found) == 1, found
    return found.pop()


def mapped(pid, name):
    """Of memory with that name that the process has mapped: inode, bytes, and how many of these are its own."""
    with open(f"/proc/{pid}/smaps") as f:
        areas = re.findall(r"^\S+-\S+ \S+ \S+ \S+ (\d+) +(\S*).*\n((?:\w+:.*\n)+)", f.read(), re.M)
    found = [(inode, details) for inode, path, details in areas if path == name]
    total = lambda key: sum(int(re.search(rf"^{key}: +(\d+) kB", details, re.M)[1]) << 10 for _, details in found)
    return {inode for inode, _ in found}, total("Size"), total("Anonymous")


def replace(server, model):
    """Kills the workers of a model; the process ids of those that replace them."""
    first = pids(server, model)
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    return wait.until(lambda: (lambda p: len(p) == len(first) and not set(p) & set(first) and p)(pids(server, model)), "new workers")


def descriptors(pid, name=NAME):
    found, folder = [], f"/proc/{pid}/fd"
    for n in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it has been closed
            if os.readlink(f"{folder}/{n}").startswith(name):
                found.append(f"{folder}/{n}")
    return found


@pytest.fixture
def served(models, start):
    """The model in two workers. Its files have been removed."""
    folder = repo.add(models, "m", backend="onnxruntime", inputs=[], outputs=[], extra=group(2), parameters=PROCESS,
                      files={"1/model.onnx": onnxgen.lookup(ROWS, SIZE)})
    server = start(models, "--backend-config=onnxruntime,parameter_pool_min_bytes=65536", "--model-control-mode=explicit",
                   "--load-model=m")
    shutil.rmtree(folder / "1")
    return server


@pytest.mark.release
def test_workers_map_what_the_first_one_read(served):
    before, first = ask(served), pids(served, "m")
    rights, number = inode(first[0])
    assert rights == "r--p" and {inode(pid) for pid in first} == {(rights, number)}
    assert {inode(pid) for pid in replace(served, "m")} == {(rights, number)}
    assert ask(served) == before


@pytest.mark.release
def test_packed_ones_are_shared(models, start):
    """Each worker has packed the same bytes as the first one, so it uses the pages of that. The answers are equal, bit by bit.
    One that has no other beside it has them in memory of its own."""
    for name, count in (("m", 2), ("alone", 1)):
        repo.add(models, name, backend="onnxruntime", inputs=[], outputs=[], extra=group(count), parameters=PROCESS,
                 files={"1/model.onnx": onnxgen.dense(LAYERS, WIDTH, 7)})
    server = start(models)
    row = np.random.default_rng(1).standard_normal((1, WIDTH), np.float32)

    def answers():
        with Rest(server.http) as rest:
            replies = [rest.infer_binary("m", [("INPUT0", "FP32", [1, WIDTH])], [row.tobytes()], parameters={"binary_data_output": True})
                       for _ in range(20)]  # of both workers
            return {bytes(reply.ok().parts()[1]["OUTPUT0"]) for reply in replies}

    before, bytes_before = answers(), value(server, "millrace_model_bytes", model="m")
    assert len(before) == 1 and 2 * MATRICES <= bytes_before < 3 * MATRICES, "once for both"
    files = set()
    for workers in (pids, replace, replace):
        for pid in workers(server, "m"):
            inodes, size, own = mapped(pid, PACKED)
            assert MATRICES <= size < MATRICES * 5 // 4 and own == 0
            files |= inodes
        assert answers() == before
    assert len(files) == 1 and len(descriptors(server.process.pid, PACKED)) == 1
    assert not mapped(*pids(server, "alone"), PACKED)[0]


@pytest.mark.few
@pytest.mark.parametrize("name", [NAME, PACKED])
def test_nobody_can_change_them(served, name):
    path, = descriptors(served.process.pid, name)
    fd = os.open(path, os.O_RDWR)
    try:
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
        with pytest.raises(PermissionError) as e:
            os.pwrite(fd, b"x", 0)
        assert e.value.errno == errno.EPERM
    finally:
        os.close(fd)
    assert not descriptors(pids(served, "m")[0], name)  # a worker has the mapping only


def test_they_are_counted_once(served):
    assert TABLE <= value(served, "millrace_model_bytes", model="m") < 2 * TABLE


def test_an_unloaded_model_gives_them_back(served):
    with Rest(served.http) as rest:
        rest.post("/v2/repository/models/m/unload", b"{}").ok()
    wait.until(lambda: not descriptors(served.process.pid, "/memfd:mr-"), "the memory to be given back")
