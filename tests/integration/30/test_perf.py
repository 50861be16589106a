"""millrace perf against a real server: what it counts is what the server counted."""
import json
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from lib import repo, wait
from lib.services import other
from lib.rest import Rest
from lib.server import BIN, clean_environment


def perf(*args, code=0):
    """The JSON report, or the texts when the run is to fail."""
    command = [BIN, "perf", *map(str, args)]
    if code == 0:
        command += ["--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code == 0 else done.stdout + done.stderr


@pytest.fixture(params=["rest", "binary", "grpc", "grpc-stream", "http2"])
def target(server, request):
    if request.param == "http2":
        return ["--protocol", "binary", "--http2", "-u", server.url("http")]
    return ["--protocol", request.param, "-u", server.url("grpc" if "grpc" in request.param else "http")]


def successes(server, model):
    with Rest(server.http) as rest:
        return sum(s["inference_stats"]["success"]["count"] for s in rest.get(f"/v2/models/{model}/stats").ok().json()["model_stats"])


def check_sums(run):
    assert run["sent"] == run["answered"] + run["failed"]
    assert run["latency_ns"]["count"] == sum(n for _, n in run["histogram"])
    for member in ("answered", "failed"):
        assert sum(s[member] for s in run["series"]) == run[member]


@pytest.mark.parametrize("protocol", [[], ["--protocol", "grpc-stream"]], ids=["usual", "stream"])
def test_a_grpc_url_is_spoken_to_by_grpc(server, protocol):
    report = perf("-m", "simple", "-u", f"grpc://{server.url('grpc')}", *protocol, "--requests", 5)
    assert report["protocol"] == (protocol or ["", "grpc"])[1] and report["runs"][0]["answered"] == 5
    text = perf("-m", "simple", "-u", f"grpc://{server.url('grpc')}", "--protocol", "binary", code=2)
    assert "asks for gRPC" in text and "--protocol binary" in text


def test_a_range_goes_up(server):
    for option in ("--rate", "--concurrency"):
        assert "FROM is larger than TO" in perf("-m", "simple", option, "5:1", code=2)


def test_closed_loop_counts_as_the_server(server, target):
    before = successes(server, "simple")
    report = perf("-m", "simple", *target, "--concurrency", 4, "--requests", 300, "--warmup", "50ms")
    (run,) = report["runs"]
    check_sums(run)
    assert (run["answered"], run["failed"]) == (300, 0)
    assert successes(server, "simple") - before == 300 + run["warmup_sent"]
    assert report["variants"] == 16
    quantiles = [run["latency_ns"][k] for k in ("min", "p50", "p90", "p95", "p99", "p99.9", "p99.99", "max")]
    assert quantiles == sorted(quantiles) and quantiles[0] > 0


def test_open_loop_sends_every_slot(server, target):
    before = successes(server, "simple")
    (run,) = perf("-m", "simple", *target, "--rate", 200, "--duration", "500ms", "--warmup", "100ms")["runs"]
    check_sums(run)
    assert (run["sent"], run["answered"], run["warmup_sent"]) == (100, 100, 20)
    assert successes(server, "simple") - before == 120


def test_poisson_with_threads(server, target):
    (run,) = perf("-m", "simple", *target, "--rate", 1000, "--poisson", "--requests", 150, "--warmup", 0, "--threads", 3)["runs"]
    check_sums(run)
    assert run["answered"] == 150 and run["load"]["threads"] == 3


@pytest.mark.few(2)
def test_ramp(server, target):
    """100 a second, evenly up to 300 within a second, which is 200 slots; the warm-up is like the beginning."""
    args = ["-m", "simple", *target, "--rate", "100..300", "--duration", "1s", "--warmup", "100ms"]
    (run,) = perf(*args)["runs"]
    check_sums(run)
    assert (run["sent"], run["answered"], run["warmup_sent"]) == (200, 200, 10)
    assert (run["load"]["rate"], run["load"]["rate_to"]) == (100, 300)
    (run,) = perf(*args, "--poisson", "--threads", 2)["runs"]
    check_sums(run)
    assert 100 < run["sent"] < 300


def test_a_ramp_has_no_row_behind_its_end(models, start):
    """Answers that come after the last request is due are no rate of their own."""
    repo.add(models, "slow", backend="fault", parameters={"delay_ms": "200"}, extra="instance_group [ { count: 40 kind: KIND_CPU } ]")
    server = start(models)
    command = [BIN, "perf", "-m", "slow", "-u", server.url(), "--rate", "20..60", "--duration", "1s", "--warmup", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    rows = done.stdout.split("along the ramp:")[1].splitlines()[2:]
    assert done.returncode == 0 and [r.split()[0] for r in rows] == ["0"], done.stdout


def test_ramp_in_words(server, tmp_path):
    before = tmp_path / "before.json"
    command = [BIN, "perf", "-m", "simple", "-u", server.url(), "--rate", "100..20", "--duration", "1s", "--warmup", "0"]
    for more in (["--json", before], ["--against", before]):
        done = subprocess.run(command + more, capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
        assert done.returncode == 0 and "100..20/s: 60 sent, 60 answered" in done.stdout and "along the ramp:" in done.stdout, done.stdout
    assert "confidence" in done.stdout, done.stdout


def test_levels(server):
    runs = perf("-m", "simple", "-u", server.url(), "--concurrency", "1:5:2", "-n", 20, "--warmup", 0)["runs"]
    assert [r["load"]["concurrency"] for r in runs] == [1, 3, 5]
    assert [r["answered"] for r in runs] == [20, 20, 20]
    runs = perf("-m", "simple", "-u", server.url(), "--rate", "100:300:100", "-n", 20, "--warmup", 0)["runs"]
    assert [r["load"]["rate"] for r in runs] == [100, 200, 300]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "fp16", "bf16", "fp64", "string"])
def test_made_up_inputs_of_each_type(server, dtype):
    from lib.dtypes import DTYPES
    names = [d.name.lower() for d in DTYPES]
    name = next(n for n in names if n == dtype or (dtype == "string" and n in ("bytes", "string")))
    for data in ("random", "zeros"):
        (run,) = perf("-m", f"batch_{name}", "-u", server.url(), "--shape", "INPUT0:5", "-b", 3, "-n", 10, "--warmup", 0, "--data", data)["runs"]
        assert run["answered"] == 10, run["errors"]


def test_given_inputs(server, target, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(16, dtype=np.int32).reshape(1, 16))
    report = perf("-m", "simple", *target, "-i", f"INPUT0=@{tmp_path}/a.npy", "-i", f"INPUT1={[1] * 16}", "-n", 20, "--warmup", 0)
    assert report["runs"][0]["answered"] == 20 and report["variants"] == 1


def test_open_dimensions_ask_for_a_shape(server):
    assert "--shape INPUT0:DIM" in perf("-m", "grid", "-u", server.url(), code=2)
    assert perf("-m", "grid", "-u", server.url(), "--shape", "INPUT0:2,3", "-n", 5, "--warmup", 0)["runs"][0]["answered"] == 5
    assert "--shape 'x:1'" in perf("-m", "grid", "-u", server.url(), "--shape", "x:1", code=2)
    assert "--shape '2,x'" in perf("-m", "grid", "-u", server.url(), "--shape", "INPUT0:2,x", code=2)


def test_errors_are_counted_and_told(server, target):
    """A model that refuses whatever has other than 16 columns: each request is an error with the server's words."""
    text = perf("-m", "simple", *target, "-i", f"INPUT0={[[1] * 16] * 9}", "-i", f"INPUT1={[[1] * 16] * 9}", "-n", 30, "--warmup", 0, code=1)
    assert "30 x " in text and "no request was answered" in text and "batch" in text
    (run,) = perf("-m", "simple", *target, "-n", 30, "--warmup", 0, "--max-errors", 0)["runs"]
    assert run["failed"] == 0 and run["errors"] == []


def test_some_failures_and_max_errors(models, start, tmp_path):
    """One request at a time in the queue of a slow model, all others refused."""
    repo.add(models, "slow", backend="fault", parameters={"delay_ms": "20"},
             extra="dynamic_batching { default_queue_policy { max_queue_size: 1 } }", max_batch_size=1)
    server = start(models)
    args = ["-m", "slow", "-u", server.url(), "--shape", "INPUT0:1", "-c", 8, "-n", 80, "--warmup", 0]
    (run,) = perf(*args)["runs"]
    check_sums(run)
    assert run["answered"] >= 1 and run["failed"] >= 1
    assert sum(e["count"] for e in run["errors"]) == run["failed"]
    assert {e["kind"] for e in run["errors"]} <= {"HTTP 503", "HTTP 429"}
    assert run["latency_ns"]["count"] == run["answered"]
    assert "--max-errors allows 0" in perf(*args, "--max-errors", 0, code=1)


def test_wrong_command_lines(server):
    for args, word in (
        ([], "-m MODEL"),
        (["-m", "simple", "--rate", "0"], "0.001 to 10000000"),
        (["-m", "simple", "--rate", "0..5"], "0.001 to 10000000"),
        (["-m", "simple", "--rate", "5..x"], "FROM..TO"),
        (["-m", "simple", "--rate", "5..9", "-n", "7"], "--duration"),
        (["-m", "simple", "--rate", "5..9", "--objective", "p99=1s"], "range to search"),
        (["-m", "simple", "--concurrency", "1:2:1:1"], "FROM:TO[:STEP]"), (["-m", "simple", "--rate", "2:1"], "FROM is larger than TO"),
        (["-m", "simple", "--concurrency", "2", "--rate", "2"], "exclude"),
        (["-m", "simple", "--poisson"], "--rate"),
        (["-m", "simple", "--http2", "--protocol", "grpc"], "--http2"),
        (["-m", "simple", "--connections", "2", "--concurrency", "4"], "--connections 2"),
        (["-m", "simple", "--connections", "9", "--max-connections", "8", "--rate", "4"], "--max-connections 8"),
        (["-m", "simple", "--duration", "0"], "--duration"),
        (["-m", "simple", "-i", "x=1"], "no input 'x'"),
    ):
        assert word in perf("-u", server.url(), *args, code=2)
    assert "nowhere" in perf("-u", server.url(), "-m", "nowhere", code=1)
    assert "cannot connect" in perf("-u", "127.0.0.1:1", "-m", "simple", code=1)
    assert "percentile and a time" in perf("-u", "127.0.0.1:1", "-m", "simple", "--rate", "1:2:1", "--objective", "p99=x", code=2)


def test_socket_file(models, start, tmp_path):
    repo.add(models, "m")
    path = tmp_path / "s"
    start(models, f"--http-address=unix:{path}")
    (run,) = perf("-m", "m", "-u", f"unix:{path}", "--shape", "INPUT0:4", "-n", 50, "-c", 2, "--warmup", 0)["runs"]
    assert run["answered"] == 50


def test_text(server, tmp_path):
    """The report for people, and the JSON file beside it."""
    done = subprocess.run([BIN, "perf", "-m", "simple", "-u", server.url(), "-n", "50", "--warmup", "0", "--json", tmp_path / "x.json"],
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0 and "p99.99" in done.stdout and "50 sent, 50 answered, 0 failed" in done.stdout
    assert json.loads((tmp_path / "x.json").read_text())["runs"][0]["answered"] == 50


def test_a_server_that_stands_still_shows_in_every_slot(models, start):
    """Slots lie 5 ms apart, so half a second of stop keeps (500 - 100) / 5 of them for more than 100 ms."""
    repo.stock(models, "simple")
    server = start(models)
    assert any(is_stall_shown(server, slots) for slots in (600, 1200, 2400, 4800, 9600, 19200)), "no stop ended within a run of 96 s"


def is_stall_shown(server, slots):
    """False: the stop came too late or was too long for all that it kept to be among the slots."""
    begun, before = time.monotonic(), successes(server, "simple")
    process = subprocess.Popen([BIN, "perf", "-m", "simple", "-u", server.url(), "-r", "200", "-n", str(slots), "--warmup", "0", "--json", "-"],
                               stdout=subprocess.PIPE, text=True, env=clean_environment())
    wait.until(lambda: successes(server, "simple") > before + 50, "the load to run")
    server.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    time.sleep(0.5)
    continued = time.monotonic()
    server.process.send_signal(signal.SIGCONT)
    (run,) = json.loads(process.communicate(timeout=wait.PATIENCE)[0])["runs"]
    check_sums(run)
    assert (run["sent"], run["answered"]) == (slots, slots)
    if continued - begun > slots * 0.005:
        return False
    assert sum(n for upper, n in run["histogram"] if upper > 100e6) >= int((continued - stopped - 0.1) / 0.005) - 2
    return True


# ---- the server's own statistics ----


def test_split_of_the_server(server, target):
    """Its counts are those of all that was sent; the time it names lies within the client's."""
    (run,) = perf("-m", "simple", *target, "-c", 3, "-n", 200, "--warmup", "50ms")["runs"]
    told = run["server"]
    assert told["succeeded"] == told["inferences"] == run["answered"] + run["warmup_sent"]
    assert told["failed"] == told["of_others"] == 0 and 0 < told["executions"] <= told["inferences"]
    assert 0 <= told["queue_ns"] and 0 < told["compute_ns"]


# ---- checked answers ----


def test_check(server, target):
    (run,) = perf("-m", "simple", *target, "-c", 4, "-n", 200, "--warmup", 0, "--check")["runs"]
    assert (run["answered"], run["failed"]) == (200, 0)
    (run,) = perf("-m", "simple_string", *target, "-n", 50, "--warmup", 0, "--check")["runs"]
    assert (run["answered"], run["failed"]) == (50, 0)


def test_expect(server, target, tmp_path):
    given = ["-i", f"INPUT0={list(range(16))}", "-i", f"INPUT1={[1] * 16}", "-n", 20, "--warmup", 0]
    right = np.arange(1, 17, dtype=np.int64)
    np.save(tmp_path / "right.npy", right)
    (run,) = perf("-m", "simple", *target, *given, "--expect", f"OUTPUT0=@{tmp_path}/right.npy", "--expect", f"OUTPUT1={list(range(-1, 15))}")["runs"]
    assert (run["answered"], run["failed"]) == (20, 0)
    right[7] = 0
    text = perf("-m", "simple", *target, *given, "--expect", f"OUTPUT0={right.tolist()}", code=1)
    assert "20 x wrong answer: output OUTPUT0 differs, first at element 7" in text
    assert "--expect 'x=1'" in perf("-m", "simple", *target, *given, "--expect", "x=1", code=2)
    assert "--expect needs one request" in perf("-m", "simple", *target, "--expect", "OUTPUT0=1", code=2)


class Liar(other.Handler):
    """Every tenth answer to the same request is another one, in turn by a value, a shape and text that is no answer."""

    def do_POST(self):
        self.body()
        with self.server.lock:
            self.server.count += 1
            n = self.server.count
        output = {"name": "y", "datatype": "FP32", "shape": [2], "data": [0.5, 1.5]}
        if n % 10 == 0:
            if n % 30 == 20:
                output = {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}
            output["data"][1] = 1.25
        self.say(200, b"no JSON" if n % 30 == 0 else {"model_name": "m", "outputs": [output]})


@pytest.fixture
def liar():
    with other.serving(Liar) as server:
        server.count = 0
        yield server


class Listener(other.Handler):
    """Writes down what it is asked."""
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}, {"name": "s", "datatype": "BYTES", "shape": [-1]},
              {"name": "fixed", "datatype": "FP32", "shape": [2]}]

    def do_POST(self):
        asked = json.loads(self.body())["inputs"]
        with self.server.lock:
            self.server.asked.append({i["name"]: (i["shape"], i["data"]) for i in asked})
        self.say(200, {"model_name": "m", "outputs": []})


@pytest.fixture
def listener():
    with other.serving(Listener) as server:
        server.asked = []
        yield server


def test_rows_of_a_table(listener, tmp_path):
    """Each request has the next rows; a rest that is too short is left out."""
    np.save(tmp_path / "x.npy", np.arange(10, dtype=np.float32).reshape(5, 2))
    (tmp_path / "s.json").write_text('["a", "bb", "", "dddd", "e"]')
    report = perf("-m", "m", "-u", f"127.0.0.1:{listener.server_port}", "--warmup", 0, "-n", 3, "--rows", "-b", 2,
                  "-i", f"x=@{tmp_path}/x.npy", "-i", f"s=@{tmp_path}/s.json", "--data", "zeros")
    assert report["variants"] == 2 and report["runs"][0]["answered"] == 3
    first = {"x": ([2, 2], [0, 1, 2, 3]), "s": ([2], ["a", "bb"]), "fixed": ([2], [0, 0])}
    second = {"x": ([2, 2], [4, 5, 6, 7]), "s": ([2], ["", "dddd"]), "fixed": ([2], [0, 0])}
    assert listener.asked == [first, second, first]


@pytest.mark.parametrize("args, text", [
    (["-i", "x=[[1,2]]", "-i", 's=["a","b"]'], "input s has 2 rows, expected 1"),
    (["-i", "x=[[1,2]]", "-b", 2], "input x has 1 rows, expected at least 2"),
    (["-i", "fixed=[1,2]"], "the first dimension of input fixed is not open"), ([], "no input is given")], ids=str)
def test_rows_that_are_none(listener, args, text):
    assert text in perf("-m", "m", "-u", f"127.0.0.1:{listener.server_port}", "-n", 1, "--rows", *args, code=2)


def test_wrong_answers_are_failures(liar):
    args = ["-m", "m", "-u", f"127.0.0.1:{liar.server_port}", "--warmup", 0, "--data", "zeros", "-n", 60]
    (run,) = perf(*args)["runs"]
    assert run["answered"] == 60 and "server" not in run
    (run,) = perf(*args, "--check")["runs"]
    assert (run["answered"], run["failed"]) == (54, 6)
    (error,) = run["errors"]
    assert (error["kind"], error["count"]) == ("wrong answer", 6)
    assert error["text"] == "output y differs, first at element 1"
    assert "6 requests failed; --max-errors allows 5" in perf(*args, "--check", "--max-errors", 5, code=1)


# ---- streams of other servers ----


class Streams(service_pb2_grpc.GRPCInferenceServiceServicer):
    """grpcio's server, which answers the requests of a stream by `way`."""

    def __init__(self, way):
        self.way, self.ids, self.streams = way, [], 0

    def ServerLive(self, request, context):
        return pb.ServerLiveResponse(live=True)

    def ModelMetadata(self, request, context):
        tensor = pb.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[2])
        return pb.ModelMetadataResponse(name="m", inputs=[tensor])

    def ModelStreamInfer(self, requests, context):
        self.streams += 1
        for n, request in enumerate(requests):
            self.ids.append(request.id)
            yield from getattr(self, self.way)(n, request)
            if self.way == "ends" and n == 9:
                return

    @staticmethod
    def answer(request, value, final=None):
        m = pb.ModelInferResponse(model_name="m", id=request.id)
        if value is not None:
            m.outputs.add(name="y", datatype="FP32", shape=[1])
            m.raw_output_contents.append(np.float32(value).tobytes())
        if final is not None:
            m.parameters["triton_final_response"].bool_param = final
        return pb.ModelStreamInferResponse(infer_response=m)

    def one(self, n, request):
        yield self.answer(request, 1)

    def many(self, n, request):
        assert request.parameters["triton_enable_empty_final_response"].bool_param
        for i in range(3):
            yield self.answer(request, i % 2, final=False)
        yield self.answer(request, None, final=True)

    def errors(self, n, request):
        """Every second one, half of them without saying whose error it is."""
        if n % 2 == 0:
            yield self.answer(request, 1)
        else:
            yield pb.ModelStreamInferResponse(error_message="no luck", infer_response=pb.ModelInferResponse(id=request.id if n % 4 == 1 else ""))

    ends = one

    def silent(self, n, request):
        if n % 10 != 9:
            yield self.answer(request, 1)

    def foreign(self, n, request):
        yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(id="0.999"))
        yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(id="x"))
        yield self.answer(request, 1)


@pytest.fixture
def streams():
    servers = []

    def make(way):
        server = grpc.server(ThreadPoolExecutor(8))
        servicer = Streams(way)
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return servicer, ["-m", "m", "-u", f"127.0.0.1:{port}", "--protocol", "grpc-stream", "--warmup", 0, "--data", "zeros"]
    yield make
    for server in servers:
        server.stop(None)


@pytest.mark.parametrize("way", ["one", "many", "foreign"])
def test_streams(streams, way):
    """Each request once, by an id of its own, on one stream per connection; a request ends with its last answer."""
    servicer, args = streams(way)
    (run,) = perf(*args, "-c", 6, "--connections", 2, "-n", 120, *(["--check"] if way != "many" else []))["runs"]
    check_sums(run)
    assert (run["answered"], run["failed"]) == (120, 0)
    assert len(set(servicer.ids)) == len(servicer.ids) == 120 and servicer.streams == 2


def test_streams_that_fail(streams):
    servicer, args = streams("errors")
    (run,) = perf(*args, "-c", 1, "-n", 40)["runs"]
    assert (run["answered"], run["failed"]) == (20, 20)
    assert [(e["count"], e["text"]) for e in run["errors"]] == [(20, "no luck")]
    servicer, args = streams("ends")
    (run,) = perf(*args, "-c", 4, "--connections", 1, "-n", 60)["runs"]
    check_sums(run)
    assert run["answered"] == 60 - run["failed"] and run["answered"] >= 40 and servicer.streams >= 5
    assert {e["text"] for e in run["errors"]} <= {"the server has ended the stream"}
    servicer, args = streams("silent")
    (run,) = perf(*args, "-c", 1, "-n", 20, "--timeout", "1s")["runs"]
    # If the machine stalls for a second, it gives up others too.
    assert run["gave_up"] >= 2 and run["answered"] == 20 - run["gave_up"] and servicer.streams == 1


def test_wrong_answers_on_streams(streams):
    """Of many answers each is compared with the first one that came to such a request."""
    _, args = streams("many")
    text = perf(*args, "-c", 1, "-n", 10, "--check", code=1)
    assert "10 x wrong answer: output y differs" in text


# ---- searches ----


def test_objective(server):
    report = perf("-m", "simple", "-u", server.url(), "--rate", "50:100:10", "-n", 10, "--warmup", 0, "--objective", "p99=60s", "--windows", 1)
    assert report["objective"] == {"percentile": "p99", "limit_ns": 60_000_000_000, "best": 100}
    text = perf("-m", "simple", "-u", server.url(), "--concurrency", "1:4:1", "-n", 10, "--warmup", 0, "--objective", "p50=1ns", code=1)
    assert "no load of the range holds" in text
    assert "range to search" in perf("-m", "simple", "-u", server.url(), "--objective", "p99=1ms", code=2)


# ---- comparison, page ----


def test_against(server, tmp_path):
    """An equal run is not reported as a difference; one that is a thousand times slower is."""
    args = ["-m", "simple", "-u", server.url(), "-c", "1:2:1", "-n", 300, "--warmup", 0]
    first = perf(*args)
    for run in first["runs"]:
        assert all(low <= run["latency_ns"][k] for k, (low, _) in run["intervals_ns"].items() if low is not None)
        assert all(run["latency_ns"][k] <= high for k, (_, high) in run["intervals_ns"].items() if high is not None)
        assert run["intervals_ns"]["p99.99"][1] is None  # 300 samples are too few
        for k in run["latency_ns"]:
            run["latency_ns"][k] *= 1000
        run["intervals_ns"] = {k: [low and low * 1000, high and high * 1000] for k, (low, high) in run["intervals_ns"].items()}
    (tmp_path / "slow.json").write_text(json.dumps(first))
    done = subprocess.run([BIN, "perf", *map(str, args), "--against", tmp_path / "slow.json"], capture_output=True, text=True, timeout=wait.PATIENCE,
                          env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("faster") >= 2 and "slower" not in done.stdout and "less than five seconds" in done.stdout
    first["runs"][0]["intervals_ns"] = {k: [None, None] for k in first["runs"][0]["intervals_ns"]}
    first["runs"].pop()
    (tmp_path / "open.json").write_text(json.dumps(first))
    done = subprocess.run([BIN, "perf", *map(str, args), "--against", tmp_path / "open.json"], capture_output=True, text=True, timeout=wait.PATIENCE,
                          env=clean_environment())
    assert done.stdout.count("no difference beyond noise") == 6 and "has no run with this load" in done.stdout
    (tmp_path / "bad.json").write_text("{}")
    assert "--against" in perf(*args, "--against", tmp_path / "bad.json", code=2)
    assert "--against" in perf(*args, "--against", tmp_path / "nowhere.json", code=2)


def check_page(text):
    """Numbers within the frame, nothing to be fetched."""
    assert not re.search(r"https?:|src=|href=|url\(|<script|@import|nan|inf\b", text)
    assert "prefers-color-scheme:dark" in text
    for points in re.findall(r'points="([^"]*)"', text):
        for x, y in (map(float, p.split(",")) for p in points.split()):
            assert 0 <= x <= 860 and 0 <= y <= 240
    for x, width in re.findall(r'<rect x="([^"]*)" y="[^"]*" width="([^"]*)"', text):
        assert 0 <= float(x) and float(x) + float(width) <= 861


def test_page(server, tmp_path):
    """Plots of each run."""
    page = tmp_path / "x.html"
    perf("-m", "simple", "-u", server.url(), "-r", "100:200:100", "-d", "1500ms", "--warmup", 0, "--html", page)
    text = page.read_text()
    assert text.count("<svg") == 6 and text.count("<polyline") == 2 * (3 + 2 + 1)
    check_page(text)
    assert ">p99</text>" in text and ">p90</text>" in text


def test_page_of_updates(models, start, tmp_path):
    """Two plots with the phases in the background, and the counts of the server's threads."""
    repo.add(models, "m", versions=(1, 2))
    server = start(models, "--load-model=m", mode="explicit")
    page = tmp_path / "x.html"
    done = subprocess.run([BIN, "perf", "update", "-m", "m", "-u", server.url(), "-r", "200", "--shape", "INPUT0:4", "--warmup", "0", "--window", "200ms",
                           "--versions", "1,2", "--updates", "1", "--pid", str(server.process.pid), "--html", page],
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    check_page(text)
    assert text.count("<svg") == 2 and text.count("<polyline") == 4 + 3 and "loop-0" in text
    for k, phase in enumerate(("load", "warm", "publish", "drain", "release", "after"), 1):
        assert text.count(f'class="s{k}"') == 4 and text.count(f">{phase}</text>") == 2  # in each plot a stretch and its key


# ---- TLS, the end ----


def test_tls(start, tmp_path):
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30", "-subj",
                           "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key", "-out", tmp_path / "cert"],
                          capture_output=True, text=True, timeout=wait.PATIENCE)
    assert made.returncode == 0, made.stderr
    options = [f"--{side}-{what}" for side in ("http", "grpc") for what in ("use-ssl", f"server-cert={tmp_path}/cert", f"server-key={tmp_path}/key")]
    server = start(repo.TOP / "tests/models/repo", "--load-model=simple", *options, mode="explicit")
    for protocol in (["--protocol", "binary"], ["--protocol", "rest", "--http2"], ["--protocol", "grpc"]):
        url = ("grpcs://" if "grpc" in protocol else "https://") + server.url("grpc" if "grpc" in protocol else "http")
        args = ["-m", "simple", *protocol, "-u", url, "-c", 3, "-n", 60, "--warmup", 0]
        (run,) = perf(*args, "--tls-ca", tmp_path / "cert", "--check", "--threads", 2)["runs"]
        assert (run["answered"], run["failed"]) == (60, 0)
        assert "certificate" in perf(*args, code=1)


def test_interrupt_ends_with_a_report(server, tmp_path):
    process = subprocess.Popen([BIN, "perf", "-m", "simple", "-u", server.url(), "-r", "100", "-d", "1h", "--warmup", "0", "--json", "-"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
    before = successes(server, "simple")
    wait.until(lambda: successes(server, "simple") > before + 20, "the load to run")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=wait.PATIENCE)
    (run,) = json.loads(out)["runs"]
    check_sums(run)
    assert process.returncode == 0 and run["answered"] > 20 and run["failed"] == 0, err
