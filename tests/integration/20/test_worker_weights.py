"""Weights of a model in processes stay in memory that the server keeps: a worker that replaces another one maps them, all
workers of the model share them, and none can change them."""
import contextlib
import errno
import fcntl
import os
import shutil
import signal

import pytest

from lib import onnxgen, repo, wait
from lib.metrics import value
from lib.rest import Rest
from lib.workers import PROCESS, group, pids

ROWS, SIZE = 65536, 256  # a table of 64 MiB that is used in place, and a matrix that is packed
TABLE = ROWS * SIZE * 4
NAME = "/memfd:mr-weights"
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


def descriptors(pid):
    found, folder = [], f"/proc/{pid}/fd"
    for n in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it has been closed
            if os.readlink(f"{folder}/{n}").startswith(NAME):
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
    for pid in first:
        os.kill(pid, signal.SIGKILL)
    now = wait.until(lambda: (lambda p: len(p) == 2 and not set(p) & set(first) and p)(pids(served, "m")), "two new workers")
    assert {inode(pid) for pid in now} == {(rights, number)}
    assert ask(served) == before


def test_nobody_can_change_them(served):
    path, = descriptors(served.process.pid)
    fd = os.open(path, os.O_RDWR)
    try:
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) & SEALS == SEALS
        with pytest.raises(PermissionError) as e:
            os.pwrite(fd, b"x", 0)
        assert e.value.errno == errno.EPERM
    finally:
        os.close(fd)
    assert not descriptors(pids(served, "m")[0])  # a worker has the mapping only


def test_they_are_counted_once(served):
    assert TABLE <= value(served, "millrace_model_bytes", model="m") < 2 * TABLE


def test_an_unloaded_model_gives_them_back(served):
    with Rest(served.http) as rest:
        rest.post("/v2/repository/models/m/unload", b"{}").ok()
    wait.until(lambda: not descriptors(served.process.pid), "the memory to be given back")
