"""Reports of each load of a version: states, times, reasons, sizes, progress, memory."""
import os
import pty
import re
import subprocess
import threading

import pytest

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.metrics import value
from lib.reflected import Reflected
from lib.server import BIN, clean_environment

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")


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
    assert 0 < life["release_ns"] <= life["spent_ns"]["DRAINING"]
    assert value(server, "millrace_model_loads_total", outcome="ready") == 1
    assert value(server, "millrace_model_phase_seconds_count", state="DRAINING") == 1
    assert value(server, "millrace_model_phase_seconds_sum", state="LOADING") > 0


def test_a_version_that_loads_and_one_that_drains(models, explicit, hold):
    folder = repo.add(models, "m", backend="fault")
    _, c = explicit("--load-model=m")
    (folder / "2").mkdir()
    repo.write(folder / "config.pbtxt", repo.config(backend="fault", parameters=hold.loading))
    loading = threading.Thread(target=lambda: c2.load("m").ok())
    c2 = Control(type("At", (), {"http": c.rest.connection.port})())
    loading.start()
    wait.until(lambda: ("2", "LOADING") in states(c, "m"), "the second version to load")
    assert ("1", "READY") in states(c, "m")
    hold.end()
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


def cli(server, *args, **kw):
    return subprocess.Popen([BIN, "model", *args, "-u", server.url()], stdin=subprocess.DEVNULL, text=True,
                            env=clean_environment(), **kw)


def over_grpc(server, model):
    with Reflected(server.url("grpc")) as client:
        method, request = client.method("millrace.ModelControl/ModelVersions")
        return method(request(model_name=model)).loads


@pytest.mark.parametrize("placement", ["thread", "process"])
def test_progress(models, explicit, placement):
    """The fault backend reports a kilobyte in each millisecond."""
    folder = repo.add(models, "m", backend="fault", parameters={"open_delay_ms": 3_600_000, "execution_placement": placement})
    server, c = explicit()
    loading = cli(server, "load", "m", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait.until(lambda: versions(c, "m")["versions"] and "left_ns" in versions(c, "m")["versions"][0].get("progress", {}), "progress")
    (first,), (later,) = (versions(c, "m")["versions"] for _ in range(2))
    assert first["state"] == "LOADING" and first["progress"]["step"] == "sleep"
    assert 0 < first["progress"]["done_bytes"] <= later["progress"]["done_bytes"] < later["progress"]["total_bytes"] == 3_600_000 << 10
    p = later["progress"]
    assert p["bytes_per_second"] > 0
    expected = (p["total_bytes"] - p["done_bytes"]) / p["bytes_per_second"]
    assert p["left_ns"] / 1e9 == pytest.approx(expected, rel=0.01)
    (load,) = over_grpc(server, "m")
    assert load.progress.step == "sleep" and load.progress.done_bytes >= p["done_bytes"] and load.progress.left_ns > 0
    assert not load.HasField("memory")
    out, _ = cli(server, "versions", "m", stdout=subprocess.PIPE).communicate(timeout=wait.PATIENCE)
    assert re.search(r"\tsleep .* of 3\.4 GiB, .*/s, .* left$", out.rstrip("\n")), out
    c.unload("m").ok()
    assert loading.communicate(timeout=wait.PATIENCE)[0] == "" and loading.returncode == 1
    (life,) = versions(c, "m")["versions"]
    assert "progress" not in life and "memory" not in life
    repo.write(folder / "config.pbtxt", repo.config(backend="fault"))
    done = cli(server, "load", "m", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.communicate(timeout=wait.PATIENCE)
    assert re.fullmatch(r"m loaded, .*\n", out) and err == "", "on a pipe there is the last line only"


def test_progress_on_a_terminal(models, explicit):
    repo.add(models, "m", backend="fault", parameters={"open_delay_ms": 3_600_000})
    server, c = explicit()
    ours, theirs = pty.openpty()
    loading = cli(server, "load", "m", stdout=subprocess.PIPE, stderr=theirs)
    seen = b""
    while b" left" not in seen:
        seen += os.read(ours, 4096)
    assert re.search(rb"\rm version 1 LOADING sleep .* of 3\.4 GiB, .*/s, .* left", seen), seen
    c.unload("m").ok()
    loading.communicate(timeout=wait.PATIENCE)
    os.close(theirs)
    os.close(ours)


@pytest.mark.release
def test_memory(models, explicit, tmp_path):
    """The place of the parameters, and the result."""
    layers, size = 8, 1024
    weights = layers * size * size * 4
    folder = repo.add(models, "dense", files={"1/model.onnx": onnxgen.dense(layers, size, 1)}, backend="onnxruntime", max_batch_size=1,
                      inputs=[repo.tensor("INPUT0", "TYPE_FP32", (size,))], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (size,))])
    config = (folder / "config.pbtxt").read_text()
    repo.add(models, "other")
    server, c = explicit(f"--backend-config=onnxruntime,parameter_cache={tmp_path / 'cache'}", "--load-model=other")
    (other,) = versions(c, "other")["versions"]
    assert "parameters" not in other["memory"] and other["memory"].keys() <= {"grown_bytes"}
    c.load("dense").ok()
    m = versions(c, "dense")["versions"][0]["memory"]
    assert m["parameters"] == "pool" and "reason" not in m
    assert m["mapped_bytes"] == weights and m["kept_bytes"] == m["heap_bytes"] == 0
    assert weights <= m["pool_bytes"] < weights + (1 << 20)
    assert weights <= m["resident_bytes"] < weights + (4 << 20)
    (load,) = over_grpc(server, "dense")
    assert (load.memory.parameters, load.memory.pool_bytes) == ("pool", m["pool_bytes"])
    out, _ = cli(server, "versions", "dense", stdout=subprocess.PIPE).communicate(timeout=wait.PATIENCE)
    assert re.search(r"\tpool 32(\.\d)? MiB\n$", out), out
    if wait.SLOW == 1:
        # the system counts resident pages of each CPU for itself, and adds them up now and then
        assert 0.9 * weights <= m["grown_bytes"] < 2 * weights and load.memory.grown_is_known
    repo.write(folder / "config.pbtxt", config + 'parameters { key: "parameter_memory" value { string_value: "plain" } }\n')
    c.load("dense").ok()
    wait.until(lambda: states(c, "dense") == [("1", "UNLOADED"), ("1", "READY")], "the end of the first")
    first, second = (v["memory"] for v in versions(c, "dense")["versions"])
    assert second["parameters"] == "plain" and "pool_bytes" not in second
    if wait.SLOW == 1:
        assert first["released_bytes"] >= 0.9 * weights, "the pool's pages are back"
        assert second["grown_bytes"] >= 0.9 * weights


def test_memory_of_a_model_that_cannot_have_a_pool(models, explicit, tmp_path):
    repo.add(models, "dense", files={"1/model.onnx": onnxgen.dense(2, 1024, 1)}, backend="onnxruntime", max_batch_size=1,
             inputs=[repo.tensor("INPUT0", "TYPE_FP32", (1024,))], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (1024,))])
    (tmp_path / "file").touch()
    server, c = explicit(f"--backend-config=onnxruntime,parameter_cache={tmp_path / 'file'}",
                         "--backend-config=onnxruntime,parameter_pool_min_bytes=1000", "--load-model=dense")
    m = versions(c, "dense")["versions"][0]["memory"]
    assert m["parameters"] == "plain" and "cache folder" in m["reason"]
    (load,) = over_grpc(server, "dense")
    assert load.memory.reason == m["reason"]
    out, _ = cli(server, "versions", "dense", stdout=subprocess.PIPE).communicate(timeout=wait.PATIENCE)
    assert re.search(r"\tplain, grew .*: .*cache folder", out), out


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
        return {e["event"]: e for e in server.events() if e["event"].startswith("model.")}

    wait.until(lambda: "model.unloaded" in lines(), "the line about the end")
    ready, gone = lines()["model.ready"], lines()["model.unloaded"]
    assert (ready["model"], ready["version"], ready["bytes"], ready["msg"]) == (gone["model"], gone["version"], 10, "") == ("m", 1, 10, "")
    assert all(isinstance(n, float) for n in (ready["load_s"], ready["warm_s"], gone["served_s"], gone["drain_s"]))
    assert {"model.loading", "model.draining"} <= set(lines())
