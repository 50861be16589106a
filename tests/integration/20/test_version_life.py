"""What the server tells of each load of a version: states, times, reasons, sizes."""
import re

import pytest

from lib import repo, wait
from lib.control import Control
from lib.metrics import value

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


@pytest.fixture
def explicit(models, start):
    made = []

    def make(*args):
        server = start(models, *args, mode="explicit")
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


def versions(c, model):
    return c.rest.get(f"/v2/models/{model}/versions").ok().json()


def states(c, model):
    return [(v["version"], v["state"]) for v in versions(c, model)["versions"]]


def test_from_load_to_unload(models, explicit):
    repo.add(models, "m", files={"1/model.bin": b"x" * 1000})
    server, c = explicit()
    assert versions(c, "m") == {"model_name": "m", "versions": []}
    c.load("m").ok()
    (life,) = versions(c, "m")["versions"]
    assert life["version"] == "1" and life["state"] == "READY" and "reason" not in life
    assert life["file_bytes"] == 1000
    assert list(life["entered"]) == ["START", "LOADING", "WARMING", "READY"] == list(life["spent_ns"])
    assert all(TIME.match(t) for t in life["entered"].values())
    assert sorted(life["entered"].values()) == list(life["entered"].values())
    assert life["spent_ns"]["LOADING"] > 0
    c.unload("m").ok()
    wait.until(lambda: states(c, "m") == [("1", "UNLOADED")], "the end of the version")
    (life,) = versions(c, "m")["versions"]
    assert list(life["entered"]) == ["START", "LOADING", "WARMING", "READY", "DRAINING", "UNLOADED"]
    assert value(server, "millrace_model_loads_total", outcome="ready") == 1
    assert value(server, "millrace_model_phase_seconds_count", state="DRAINING") == 1
    assert value(server, "millrace_model_phase_seconds_sum", state="LOADING") > 0


def test_a_version_that_loads_and_one_that_drains(models, explicit):
    folder = repo.add(models, "m", backend="fault")
    _, c = explicit("--load-model=m")
    (folder / "2").mkdir()
    repo.write(folder / "config.pbtxt", repo.config(backend="fault", parameters={"open_delay_ms": 500}))
    import threading
    loading = threading.Thread(target=lambda: c2.load("m").ok())
    c2 = Control(type("At", (), {"http": c.rest.connection.port})())
    loading.start()
    wait.until(lambda: ("2", "LOADING") in states(c, "m"), "the second version to load")
    assert ("1", "READY") in states(c, "m")
    loading.join()
    c2.close()
    wait.until(lambda: states(c, "m") == [("1", "UNLOADED"), ("2", "READY")], "the switch")


def test_failures_are_kept_with_their_reasons(models, explicit):
    repo.add(models, "bad", backend="fault", parameters={"fail_open": 1, "fail_message": "no such weights"})
    repo.add(models, "worse", "max_batch_size: ")
    server, c = explicit()
    for _ in range(20):
        assert c.load("bad").status == 400
    lives = versions(c, "bad")["versions"]
    assert len(lives) == 16, "the past of a model is bounded"
    assert {v["state"] for v in lives} == {"FAILED"}
    assert all("no such weights" in v["reason"] for v in lives)
    assert value(server, "millrace_model_loads_total", outcome="failed") == 20
    assert c.load("worse").status in (400, 500)
    worse = versions(c, "worse")
    assert worse["versions"] == [] and "line 1" in worse["error"]


def test_unknown_models(models, explicit):
    _, c = explicit()
    reply = c.rest.get("/v2/models/nope/versions")
    assert reply.status == 404 and "'nope' is not found" in reply.error
    assert c.rest.post("/v2/models/nope/versions").status == 405


def test_details_of_the_index_are_for_those_who_ask(models, explicit):
    repo.add(models, "m", files={"1/model.bin": b"x" * 10})
    _, c = explicit("--load-model=m")
    assert c.index("m") == [{"name": "m", "version": "1", "state": "READY"}]
    (row,) = c.rest.post("/v2/repository/index", {"details": True}).ok().json()
    assert row["file_bytes"] == 10 and row["load_ns"] > 0 and TIME.match(row["since"])


def test_log_lines(models, explicit):
    repo.add(models, "m", files={"1/model.bin": b"x" * 10})
    server, c = explicit()
    c.load("m").ok()
    c.unload("m").ok()

    def lines():
        return {e["event"]: e["msg"] for e in server.events() if e["event"].startswith("model.")}

    wait.until(lambda: "model.unloaded" in lines(), "the line about the end")
    assert re.fullmatch(r'model="m" version=1 load_s=\d+\.\d{3} warm_s=\d+\.\d{3} bytes=10', lines()["model.ready"].strip())
    assert re.fullmatch(r'model="m" version=1 served_s=\d+\.\d{3} drain_s=\d+\.\d{3}', lines()["model.unloaded"].strip())
    assert {"model.loading", "model.draining"} <= set(lines())
