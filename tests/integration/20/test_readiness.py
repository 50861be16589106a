"""Readiness while a new version fails beside one that serves, and while it is tried again; health of single models."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.services.health import NOT_SERVING, SERVING, Status, watched
from lib.metrics import value

BAD_SAMPLES = b"\xff\xff\xff\xff\xff"
SLOW_STEPS = ["--repository-poll-secs=1", "--model-load-retry-pause=50ms"]


def bad_file(folder):
    repo.write(folder / "model.onnx", b"this is no model")


def bad_warmup(folder):
    repo.write(folder / "model.onnx", onnxgen.adder(2))
    repo.write(folder / "warmup_requests.pb", BAD_SAMPLES)


def no_memory(folder):
    repo.write(folder / "model.onnx", onnxgen.adder(2))
    with open(folder / "weights.bin", "wb") as f:
        f.truncate(64 << 20)


WAYS = [bad_file, bad_warmup, no_memory]


@pytest.fixture
def adder(models):
    return repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})


def add_version(folder, number, spoil):
    """It appears whole."""
    part = folder / f".{number}"
    part.mkdir()
    spoil(part)
    part.rename(folder / str(number))


def check(server, service):
    with grpc.insecure_channel(server.url("grpc")) as channel:
        try:
            return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=wait.PATIENCE).status
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.NOT_FOUND
            return None


def failed(server):
    return value(server, "millrace_model_loads_total", outcome="failed")


@pytest.mark.few
@pytest.mark.parametrize("spoil", WAYS)
def test_a_bad_version_in_a_followed_folder(models, adder, start, spoil):
    server = start(models, *SLOW_STEPS, "--model-memory-budget=32MiB", mode="poll")
    with Control(server) as c, watched(server) as heard, watched(server, "adder") as model_heard:
        add_version(adder, 2, spoil)
        for tries in range(1, 4):
            wait.until(lambda: failed(server) >= tries, "a load to fail")
            assert c.ready() and c.answer("adder")[0] == [2, 3]
        assert c.states("adder") in [{"1": "READY", "2": state} for state in ("UNAVAILABLE", "LOADING")]
        assert heard == model_heard == [SERVING]
        add_version(adder, 3, lambda folder: repo.write(folder / "model.onnx", onnxgen.adder(5)))
        wait.until(lambda: c.answer("adder")[0] == [6, 7], "a good version")
        assert heard == model_heard == [SERVING]


@pytest.mark.parametrize("spoil", WAYS)
def test_a_bad_version_that_a_client_loads(adder, explicit, spoil):
    server, c = explicit("--load-model=adder", "--model-memory-budget=32MiB")
    with watched(server) as heard:
        add_version(adder, 2, spoil)
        for _ in range(2):
            assert c.load("adder").status == 400
            assert c.ready() and c.model_ready("adder") and c.answer("adder")[0] == [2, 3]
            assert check(server, "") == check(server, "adder") == SERVING
        assert heard == [SERVING]
    assert c.states("adder") == {"1": "READY", "2": "UNAVAILABLE"}


def test_strictness_about_versions(models, adder, start):
    """With the option a version that failed counts, also while it is tried again: two changes and no more."""
    server = start(models, *SLOW_STEPS, "--strict-version-readiness", mode="poll")
    with Control(server) as c, watched(server) as heard, watched(server, "adder") as model_heard:
        add_version(adder, 2, bad_file)
        wait.until(lambda: failed(server) >= 3, "two more attempts")
        assert not c.ready() and c.model_ready("adder") and c.answer("adder")[0] == [2, 3]
        wait.equal(lambda: heard, [SERVING, NOT_SERVING])
        repo.write(adder / "2" / "model.onnx", onnxgen.adder(5))
        wait.until(lambda: c.answer("adder")[0] == [6, 7], "the repaired version")
        wait.equal(lambda: heard, [SERVING, NOT_SERVING, SERVING])
        assert c.ready() and model_heard == [SERVING]


def test_a_version_given_up_does_not_count(adder, explicit):
    server, c = explicit("--load-model=adder", "--strict-version-readiness")
    add_version(adder, 2, bad_file)
    assert c.load("adder").status == 400 and not c.ready()
    (adder / "2").rename(adder / ".2")
    assert c.load("adder").status == 200 and c.ready()


@pytest.mark.parametrize("how", ["version", "config"])
def test_a_model_without_a_version_that_serves(models, adder, start, how):
    """It makes the server unready, tried again or not, and its own health is known."""
    text = repo.config(backend="fault", parameters={"fail_open": 1}) if how == "version" else "this is no config"
    bad = repo.add(models, "bad", text)
    server = start(models, *SLOW_STEPS, "--exit-on-error=false", mode="poll")
    with Control(server) as c, watched(server) as heard, watched(server, "bad") as bad_heard:
        if how == "version":
            wait.until(lambda: failed(server) >= 3, "two more attempts")
        assert not c.ready() and check(server, "bad") == NOT_SERVING and check(server, "adder") == SERVING
        assert check(server, "nosuch") is None
        assert c.rest.get("/v2/health/ready").json() == {"ready": False, "live": True}
        assert c.rest.get("/v2/health/live").ok().json() == {"live": True}
        assert heard == bad_heard == [NOT_SERVING]
        repo.write(bad / "config.pbtxt", repo.config())
        wait.until(c.ready, "the repaired model")
        wait.equal(lambda: bad_heard, [NOT_SERVING, SERVING])
        wait.equal(lambda: heard, [NOT_SERVING, SERVING])


def test_health_of_a_model_that_a_client_unloads(models, explicit):
    repo.add(models, "m")
    server, c = explicit()
    assert check(server, "m") is None, "nobody has asked for it"
    with watched(server, "m") as heard:
        assert c.load("m").status == 200 and check(server, "m") == SERVING
        wait.until(lambda: heard[-1] == SERVING, "the watcher to hear of the load")
        assert c.unload("m").status == 200 and check(server, "m") == NOT_SERVING
        wait.until(lambda: heard[-1] == NOT_SERVING, "the watcher to hear of the unload")
        assert heard[0] == Status.SERVICE_UNKNOWN
