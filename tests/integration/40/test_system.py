"""The system refuses: threads, descriptors, disk space, files."""
import errno
import json
import os
import resource
import shutil
import socket
import time

import grpc
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.grpcraw import Grpc
from lib.held import cpu_seconds, descriptors
from lib.metrics import value
from lib.rest import Rest
from lib.server import SANITIZER_ENV

ONE = [("INPUT0", "INT32", [1], [1])]


# ---- threads ----

def test_no_thread_for_a_model(models, start, tmp_path):
    """Its requests are refused at once, not kept waiting; with threads to be had again they are answered."""
    repo.add(models, "m", max_batch_size=4, extra="dynamic_batching { }")
    faults = Faults(tmp_path)
    server = start(models, program=PROGRAM, env=faults.env)
    request = [("INPUT0", "INT32", [1, 1], [1])]
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client:
        faults.threads_fail = 1
        for _ in range(3):
            reply = rest.infer("m", request)
            assert reply.status == 503 and "no thread to run the model on" in reply.error and "retry-after" in reply.headers
            with pytest.raises(grpc.RpcError) as e:
                client.infer(grpcraw.int32("m", [1], shape=[1, 1]))
            assert e.value.code().name == "UNAVAILABLE"
        assert value(server, "nv_inference_request_failure", reason="REJECTED") == 6
        assert "sched.thread" in {e["event"] for e in server.events()}
        faults.threads_fail = 0
        assert rest.infer("m", request).ok().json()["outputs"][0]["data"] == [1]


@pytest.mark.more
def test_more_busy_models_than_the_server_has_slots(models, start):
    """Each has a thread that holds blocks."""
    for i in range(300):
        repo.add(models, f"m{i}", max_batch_size=1, extra="dynamic_batching { }")
    server = start(models)
    blob = bytes(80_000)
    with Rest(server.http) as rest:
        for i in range(300):
            reply = rest.infer_binary(f"m{i}", [("INPUT0", "INT32", [1, 20_000])], [blob], parameters={"binary_data_output": True})
            assert reply.ok().parts()[1]["OUTPUT0"] == blob
    wait.equal(lambda: value(server, "millrace_block_bytes", use="requests"), 0, "the blocks in use")


def test_no_thread_at_start(models, start, tmp_path):
    """A server that cannot start its threads reports that and ends."""
    repo.add(models, "m")
    faults = Faults(tmp_path)
    faults.threads_fail = 1
    server = start(models, program=PROGRAM, env=faults.env, ready=False)
    server.checked = True
    assert server.wait_exit() == 1
    assert "cannot start thread" in server.err()


# ---- descriptors ----

class Scarce:
    """The server may have `spare` descriptors more than it has."""

    def __init__(self, server, spare):
        self.pid, self.most = server.process.pid, descriptors(server) + spare
        self.before = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)

    def __enter__(self):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (self.most, self.before[1]))
        return self

    def __exit__(self, *_):
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, self.before)


def test_connections_without_descriptors(models, start):
    """Connected clients are served; new ones wait, without using the CPU; nothing leaks."""
    repo.add(models, "m")
    server = start(models)
    with Rest(server.http) as early, Grpc(server.url("grpc")) as client:
        assert early.infer("m", ONE).status == 200
        before = descriptors(server)
        with Scarce(server, 10) as scarce:
            held = [socket.create_connection(("127.0.0.1", server.http), timeout=wait.PATIENCE) for _ in range(60)]
            wait.until(lambda: descriptors(server) >= scarce.most, "no descriptor to be left")
            used = cpu_seconds(server)
            for _ in range(100):
                assert early.infer("m", ONE).status == 200
                client.infer(grpcraw.int32("m", [1]))
                time.sleep(0.01)
            # A loop that asked again and again would have used all of that second on each of its threads.
            assert cpu_seconds(server) - used < 0.5 * wait.SLOW, "accepting does not spin"
            [s.close() for s in held]
            with Rest(server.http) as late:
                assert late.infer("m", ONE).status == 200
        wait.until(lambda: descriptors(server) <= before, "the descriptors to come back")


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_start_with_few_descriptors(models, start, mode):
    """It starts completely or reports why it does not; in both cases it ends on request."""
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    whole = start(models, mode=mode)
    most = descriptors(whole) + 3
    whole.stop()
    outcomes = set()
    # The leak checker needs descriptors of its own at the end.
    env = {"ASAN_OPTIONS": SANITIZER_ENV["ASAN_OPTIONS"] + ":detect_leaks=0"}
    for limit in range(most, 8, -2):  # with fewer libuv ends the process
        server = start(models, mode=mode, ready=False, most_descriptors=limit, env=env)
        server.checked = True
        wait.until(lambda: "ready" in server.out() or not server.running, "it to start or to end")
        if server.running:
            server.signal()
            assert server.wait_exit() == 0
            outcomes.add("started")
        else:
            assert server.wait_exit() == 1
            assert "many open files" in server.err() or "descriptors" in server.err(), server.describe()
            outcomes.add("refused")
    assert outcomes == {"started", "refused"}


def test_load_without_descriptors(models, start):
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    repo.add(models, "m")
    server = start(models, "--load-model=adder", mode="explicit")
    with Control(server) as c:
        assert c.answer("adder", [100])[0] == [101]
        repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(2))
        with Scarce(server, 0):
            for model in ("adder", "m"):
                reply = c.load(model)
                assert reply.status in (400, 500, 503) and os.strerror(errno.EMFILE) in reply.error, reply.body
            assert c.answer("adder", [100])[0] == [101]
            assert c.model_ready("adder")
        assert c.load("adder").status == 200 and c.answer("adder", [100])[0] == [102]
        assert c.load("m").status == 200


# ---- disks ----

def test_full_log_disk(models, start, tmp_path):
    """What cannot be logged is lost, and nothing else; /dev/full is a disk that is always full."""
    repo.add(models, "m")
    server = start(models, "--log-file=/dev/full", "--log-verbose=1")
    with Rest(server.http) as rest:
        for _ in range(50):
            assert rest.infer("m", ONE).status == 200
    server.stop()


def test_log_disk_with_room_again(models, start, small_disk):
    """A line that was cut by the end of the disk does not spoil the next."""
    repo.add(models, "m")
    log, ballast = small_disk / "log", small_disk / "ballast"
    server = start(models, f"--log-file={log}", "--log-verbose=1")
    with Rest(server.http) as rest:
        ballast.write_bytes(bytes(4096))
        with open(small_disk / "rest", "wb", buffering=0) as f:
            try:
                while f.write(bytes(4096)):
                    pass
            except OSError:
                pass
        for _ in range(100):
            assert rest.infer("m", ONE, id="x" * 150).status == 200
            time.sleep(0.001)
        ballast.unlink()

        def logged():
            assert rest.infer("m", ONE, id="afterwards").status == 200
            return b"afterwards" in log.read_bytes()

        wait.until(logged, "lines to be written again")
    lines = log.read_bytes().splitlines()
    assert all(line.count(b'{"ts"') <= 1 for line in lines)
    assert any(not line.endswith(b"}") for line in lines), "one was cut"


def test_file_size_limit(models, start, tmp_path):
    """The limit that kills others by a signal."""
    repo.add(models, "m")
    log = tmp_path / "log"
    server = start(models, f"--log-file={log}", "--log-verbose=1", mode="explicit")
    with Control(server) as c:
        assert c.load("m").status == 200
        size = log.stat().st_size
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 100, resource.RLIM_INFINITY))
        for _ in range(20):
            assert c.infer("m").status == 200
        reply = c.load("m", {"backend": "identity"}, files={"1/data": bytes(1 << 20)})
        assert reply.status in (400, 500, 503) and os.strerror(errno.EFBIG) in reply.error, reply.body
        assert c.infer("m").status == 200
        assert log.stat().st_size <= size + 100
        assert c.load("m").status == 200
    server.stop()


def test_load_with_files_onto_a_full_disk(models, start, small_disk):
    repo.add(models, "m")
    server = start(models, "--load-model=m", mode="explicit", env={"TMPDIR": str(small_disk)})
    config = json.loads('{"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],'
                        ' "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}')
    with Control(server) as c:
        for _ in range(3):
            reply = c.load("m", config, files={"1/data": bytes(2 << 20)})
            assert reply.status in (400, 500, 503) and os.strerror(errno.ENOSPC) in reply.error, reply.body
            assert not list(small_disk.iterdir()), "nothing is left on the disk"
            assert c.answer("m")[0] == [1, 2]
        assert c.load("m", config, files={"1/data": bytes(100)}).status == 200


def test_requests_recorded_onto_a_full_disk(start, small_disk):
    """It is reported, and the served versions stay."""
    version = repo.add(small_disk, "m", files={"1/warmup_requests.pb": b""}) / "1"
    with Control(start([small_disk], "--load-model=m", mode="explicit")) as c:
        path = "/v2/repository/models/m/record-warmup"
        c.rest.post(path, {"requests": 1}).ok()
        c.rest.infer_binary("m", [("INPUT0", "INT32", [400000])], [bytes(1600000)]).ok()
        wait.equal(lambda: c.rest.get(path).ok().json()["state"], "failed")
        assert os.strerror(errno.ENOSPC) in c.rest.get(path).ok().json()["reason"]
        assert [(f.name, f.stat().st_size) for f in version.iterdir()] == [("warmup_requests.pb", 0)]
        assert c.answer("m")[0] == [1, 2]


@pytest.mark.parametrize("where", ["absent", "a file"])
def test_load_with_files_to_nowhere(models, start, tmp_path, where):
    repo.add(models, "m")
    target = tmp_path / "nowhere"
    if where == "a file":
        target.write_text("")
    server = start(models, "--load-model=m", mode="explicit", env={"TMPDIR": str(target)})
    with Control(server) as c:
        reply = c.load("m", {"backend": "identity"}, files={"1/data": b"x"})
        assert reply.status in (400, 500, 503) and str(target) in reply.error
        assert c.answer("m")[0] == [1, 2]


# ---- repositories ----

def test_repository_that_vanishes(models, start):
    """Served versions stay; loads report why they fail; when it is back all is as before."""
    repo.add(models, "m")
    repo.add(models, "other")
    server = start(models, "--load-model=m", mode="explicit")
    away = models.with_name("away")
    with Control(server) as c:
        models.rename(away)
        assert c.answer("m")[0] == [1, 2] and c.ready()
        reply = c.load("other")
        assert reply.status in (400, 404, 500) and reply.error
        assert [r["name"] for r in c.index()] == ["m"] or c.index()
        assert c.answer("m")[0] == [1, 2]
        away.rename(models)
        assert c.load("other").status == 200 and c.answer("other")[0] == [1, 2]


def test_polled_repository_that_vanishes(models, start):
    """An absence of the disk unloads no model, and the log reports it once."""
    repo.add(models, "m")
    server = start(models, "--repository-poll-secs=1", mode="poll")
    away = models.with_name("away")
    with Control(server) as c:
        models.rename(away)
        wait.until(lambda: [e for e in server.events() if e["event"] == "model.repository"], "a line in the log")
        assert c.answer("m")[0] == [1, 2]
        away.rename(models)
        repo.add(models, "new")
        wait.until(lambda: c.model_ready("new"), "the new model")
        assert c.answer("m")[0] == [1, 2]


def test_folder_that_vanishes_during_a_load(models, start):
    """Whole or not at all."""
    server = start(models, mode="explicit")
    with Control(server) as c:
        for i in range(20):
            folder = repo.add(models, "m", files={f"1/part{n}": bytes(1000) for n in range(20)})
            with Control(server) as other:
                other.rest.connection.request("POST", "/v2/repository/models/m/load", b"")
                shutil.rmtree(folder)
                status = other.rest.connection.getresponse().status
            assert status in (200, 400, 404, 500)
            if status == 200:
                assert c.answer("m")[0] == [1, 2]
        repo.add(models, "m")
        assert c.load("m").status == 200 and c.answer("m")[0] == [1, 2]


def test_files_that_may_not_be_read(models, start, tmp_path):
    """As another user than the owner of the files: the errors name them, the others load."""
    repo.add(models, "good")
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    repo.add(models, "closed")
    (models / "adder" / "1" / "model.onnx").chmod(0)
    (models / "closed" / "config.pbtxt").chmod(0)
    server = start(models, "--exit-on-error=false", without_privileges=True)
    with Control(server) as c:
        assert c.answer("good")[0] == [1, 2]
        rows = {r["name"]: r for r in c.index()}
        for model, file in (("adder", "model.onnx"), ("closed", "config.pbtxt")):
            assert os.strerror(errno.EACCES) in rows[model]["reason"] and file in rows[model]["reason"], rows[model]


def test_repository_that_may_not_be_written(models, start):
    """Nothing is ever written there."""
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    for path in [models, *models.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(models.rglob("*"))
    server = start(models, "--load-model=adder", mode="explicit", without_privileges=True)
    with Control(server) as c:
        assert c.answer("adder", [100])[0] == [101]
        assert c.load("adder").status == 200 and c.unload("adder").status == 200
    assert sorted(models.rglob("*")) == before
    for path in [models, *models.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
