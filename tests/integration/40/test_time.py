"""The wall clock jumps, the process stops for a while, signals arrive at the wrong moment."""
import json
import signal
import threading
import time
from pathlib import Path

import grpc
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.faults import PROGRAM, Faults
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import Http1, request
from lib.rest import Rest

DAY = 86_400 * 10**9
ONE = [("INPUT0", "INT32", [1], [1])]


@pytest.fixture
def clocked(models, start, tmp_path):
    repo.add(models, "m")
    repo.add(models, "slow", backend="fault", extra="dynamic_batching { default_queue_policy { "
             "default_timeout_microseconds: 3600000000 allow_timeout_override: true } }", max_batch_size=1)
    faults = Faults(tmp_path)
    return start(models, "--header-timeout=3600s", "--idle-timeout=3600s", program=PROGRAM, env=faults.env), faults


@pytest.mark.parametrize("step", [DAY, -DAY, 3650 * DAY, -365 * DAY], ids=["day", "day back", "10 years", "year back"])
def test_clock_steps(clocked, hold, step):
    """No deadline passes early, and none is extended."""
    server, faults = clocked
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client, Http1(server.http) as half:
        half.send(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\n")
        held = client.stub.ModelInfer.future(grpcraw.int32("slow", [1], shape=[1, 1], parameters=hold.parameters), timeout=wait.PATIENCE)
        queued = client.stub.ModelInfer.future(grpcraw.int32("slow", [2], shape=[1, 1]), timeout=wait.PATIENCE)
        wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="slow"), 1, "the queue's length")
        faults.wall_offset_ns = step
        assert rest.infer("m", ONE).status == 200
        late = client.stub.ModelInfer.future(grpcraw.int32("slow", [3], shape=[1, 1], parameters={"timeout": 1000}), timeout=wait.PATIENCE)
        with pytest.raises(grpc.RpcError) as e:
            late.result()
        assert "timeout expired" in e.value.details(), "a limit of a millisecond is one still"
        half.send(b"Content-Length: 0\r\n\r\n")
        assert half.response().status == 400
        hold.end()
        assert held.result() and queued.result()
        for _ in range(20):
            assert rest.infer("m", ONE).status == 200
        reply = rest.get("/v2/models/m/stats").ok().json()["model_stats"][0]["inference_stats"]
        assert 0 < reply["success"]["ns"] < DAY // 24
        assert json.loads(server.err().splitlines()[-1])


@pytest.mark.parametrize("step", [DAY, -DAY], ids=["day", "day back"])
def test_polling_after_a_clock_step(models, start, tmp_path, step):
    """Files are newer than now, or very old: both are loaded once they have stopped changing."""
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    faults = Faults(tmp_path)
    server = start(models, "--repository-poll-secs=1", mode="poll", program=PROGRAM, env=faults.env)
    with Control(server) as c:
        faults.wall_offset_ns = step
        repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(2))
        wait.until(lambda: c.answer("adder", [100])[0] == [102], "the new file")


def stands_still(server):
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/stat")
    return all(task.read_text().rpartition(")")[2].split()[0] == "T" for task in tasks)


def test_standing_still(models, start, hold, tmp_path):
    """Stopped and continued: requests that arrived in between are answered, late ones are refused, and nothing else happens."""
    repo.add(models, "m")
    repo.add(models, "slow", backend="fault")
    faults = Faults(tmp_path)
    server = start(models, "--header-timeout=3600s", "--body-timeout=3600s", "--idle-timeout=10000s", "--loop-threads=1",
                   program=PROGRAM, env=faults.env)
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client, Http1(server.http) as whole:
        assert rest.infer("m", ONE).status == 200
        held = client.stub.ModelInfer.future(grpcraw.int32("slow", [1], parameters=hold.parameters), timeout=wait.PATIENCE)
        hold.wait_held()
        for _ in range(2):
            server.signal(signal.SIGSTOP)
            wait.until(lambda: stands_still(server), "all threads to stop")
            # Whole before anybody's time is over, but unread until long after.
            whole.send(request("POST", "/v2/models/m/infer", body=json.dumps({"inputs": [dict(zip(("name", "datatype", "shape", "data"), ONE[0]))]})))
            late = client.stub.ModelInfer.future(grpcraw.int32("m", [1]), timeout=0.3)
            patient = [client.stub.ModelInfer.future(grpcraw.int32("m", [n]), timeout=wait.PATIENCE) for n in range(20)]
            assert late.exception().code() == grpc.StatusCode.DEADLINE_EXCEEDED
            faults.steady_offset_ns += 3601 * 10**9
            server.signal(signal.SIGCONT)
            assert whole.response().status == 200, "its bytes were there in time"
            assert all(f.result() for f in patient)
            assert rest.infer("m", ONE).status == 200
        hold.end()
        assert held.result()


# ---- signals ----

def test_hangups_under_load(models, start, tmp_path):
    """A storm of SIGHUP: the log file is reopened each time, and no line and no request is lost."""
    repo.add(models, "m")
    log = tmp_path / "log"
    server = start(models, f"--log-file={log}", "--log-verbose=1")
    count, end = [0], threading.Event()

    def ask():
        with Rest(server.http) as rest:
            while not end.is_set():
                assert rest.infer("m", ONE, id=str(count[0])).status == 200
                count[0] += 1
                time.sleep(0.06)  # lines are limited to 20 a second

    asking = threading.Thread(target=ask)
    asking.start()
    for i in range(200):
        if i % 50 == 0:
            log.rename(tmp_path / f"log.{i}")
        server.signal(signal.SIGHUP)
        time.sleep(0.005)
    end.set()
    asking.join()
    server.stop()
    text = "".join(p.read_text() for p in tmp_path.glob("log*"))
    lines = [json.loads(line) for line in text.splitlines()]
    assert sum(e["event"] == "request.done" for e in lines) == count[0]


@pytest.mark.parametrize("number", [signal.SIGPIPE, signal.SIGXFSZ])
def test_signals_that_mean_nothing(models, start, number):
    repo.add(models, "m")
    server = start(models)
    server.signal(number)
    with Rest(server.http) as rest:
        assert rest.infer("m", ONE).status == 200


def test_end_during_a_storm_of_loads(models, start):
    """SIGTERM while many loads run and wait: it ends by itself, with 0."""
    for i in range(20):
        repo.add(models, f"m{i}", backend="fault", parameters={"open_delay_ms": 30})
    server = start(models, mode="explicit")
    loads = [threading.Thread(target=load_until_gone, args=(server, i)) for i in range(8)]
    [t.start() for t in loads]
    wait.until(lambda: value(server, "millrace_model_loads_total", outcome="ready"), "a load that is over")
    server.stop()
    [t.join(wait.PATIENCE) for t in loads]


def load_until_gone(server, seed):
    try:
        with Control(server) as c:
            for i in range(1000):
                c.load(f"m{(seed + i) % 20}")
                c.unload(f"m{(seed + i) % 20}")
    except Exception:
        assert not server.running or server.signalled
