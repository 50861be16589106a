"""Which version requests get: switch policies, labels, rollback; over REST and gRPC."""
import os
import signal
import threading

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.reflected import Reflected
from lib.rest import Rest
from lib.workers import PROCESS, is_alive

ALL = "version_policy { all { } }"


def label(c, name, version="", model="m"):
    return c.rest.post(f"/v2/repository/models/{model}/label", {"label": name, "version": version})


def rollback(c, model="m", **body):
    return c.rest.post(f"/v2/repository/models/{model}/rollback", body)


def ready(c, model="m"):
    return {int(r["version"]) for r in c.index(model) if r["state"] == "READY"}


def test_labels_stand_for_versions(models, explicit):
    repo.add(models, "m", versions=(1, 2, 3), extra=ALL)
    server, c = explicit("--load-model=m")
    assert c.infer("m/versions/stable").status == 400
    assert label(c, "stable", "1").status == 200 and label(c, "canary", 3).status == 200
    assert c.answer("m/versions/stable")[1] == "1"
    assert c.answer("m/versions/canary")[1] == "3"
    assert c.rest.get("/v2/models/m/versions/stable/ready").status == 200
    assert c.rest.get("/v2/models/m/versions/stable").ok().json()["versions"] == ["1"]
    assert c.rest.get("/v2/models/m/versions/stable/stats").ok().json()["model_stats"][0]["version"] == "1"
    with Grpc(server.url("grpc")) as client:
        assert client.infer(grpcraw.int32("m", [1], version="stable")).model_version == "1"
        with pytest.raises(grpc.RpcError) as e:
            client.infer(grpcraw.int32("m", [1], version="nosuch"))
        assert e.value.code().name == "INVALID_ARGUMENT" and "no label 'nosuch'" in e.value.details()
    assert label(c, "stable", "2").status == 200
    assert c.answer("m/versions/stable")[1] == "2"
    loads = c.rest.get("/v2/models/m/versions").ok().json()["versions"]
    assert {v["version"]: v["labels"] for v in loads} == {"1": [], "2": ["stable"], "3": ["canary"]}
    assert label(c, "stable").status == 200
    assert c.infer("m/versions/stable").status == 400


def workers_of(c, version):
    return [w["pid"] for w in c.rest.get(f"/v2/models/m/versions/{version}/workers").ok().json()["workers"] if w["state"] == "ready"]


def test_labels_of_models_in_processes(models, explicit):
    """A label keeps its version and its process, through the death of the process and through newer versions."""
    repo.add(models, "m", parameters=PROCESS)
    _, c = explicit("--load-model=m")
    label(c, "stable", "1").ok()
    first, = workers_of(c, 1)
    for version in ("2", "3"):
        (models / "m" / version).mkdir()
        c.load("m").ok()
        assert c.answer("m")[1] == version and c.answer("m/versions/stable")[1] == "1"
        assert workers_of(c, 1) == [first]
    wait.until(lambda: ready(c) == {1, 3}, "the second version to be gone")
    os.kill(first, signal.SIGKILL)
    assert c.answer("m/versions/stable")[1] == "1" and c.answer("m")[1] == "3"
    second, = wait.until(lambda: workers_of(c, 1), "another worker")
    last, = workers_of(c, 3)
    assert first != second != last
    label(c, "stable", "3").ok()
    assert c.answer("m/versions/stable")[1] == "3"
    label(c, "stable").ok()
    assert c.infer("m/versions/stable").status == 400 and c.answer("m")[1] == "3"
    c.load("m").ok()
    wait.until(lambda: ready(c) == {3} and not is_alive(second), "the version without a label, and its process, to be gone")
    assert workers_of(c, 3) == [last]


@pytest.mark.parametrize("body, status, text", [
    ({"label": "x", "version": "9"}, 404, "no version 9"), ({"label": "1", "version": "1"}, 400, "no label"),
    ({"label": "x", "version": "stable"}, 400, "no version number"), ({"lable": "x"}, 400, "no member"),
    ({"label": "x", "version": True}, 400, ""), ([], 400, "")], ids=str)
def test_labels_that_cannot_be_put(models, explicit, body, status, text):
    repo.add(models, "m")
    _, c = explicit("--load-model=m")
    reply = c.rest.post("/v2/repository/models/m/label", body)
    assert reply.status == status and text in reply.error


def test_a_label_moves_under_load(models, explicit):
    """No request fails, and no connection sees the old version after the new one."""
    repo.add(models, "m", versions=(1, 2), extra=ALL)
    server, c = explicit("--load-model=m")
    label(c, "live", "1").ok()
    end, seen, wrong = threading.Event(), [0, 0], []

    def ask(slot):
        with Rest(server.http) as client:
            last, moves = 0, 0
            while not end.is_set():
                reply = client.infer("m/versions/live", [("INPUT0", "INT32", [1], [100])])
                version = reply.json()["model_version"] if reply.status == 200 else reply.error
                moves += version != last
                last = version
                seen[slot] += 1
                if version not in ("1", "2"):
                    wrong.append(version)
            if moves > 42:
                wrong.append(f"{moves} changes")

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(2)]
    [t.start() for t in threads]
    for i in range(40):
        before = list(seen)
        label(c, "live", str(1 + (i + 1) % 2)).ok()
        wait.until(lambda: wrong or all(s > b for s, b in zip(seen, before)), "answers")
    end.set()
    [t.join(wait.PATIENCE) for t in threads]
    assert not wrong


def test_rollback_and_the_way_forward(models, explicit):
    folder = repo.add(models, "m")
    _, c = explicit("--load-model=m")
    (folder / "2").mkdir()
    c.load("m").ok()
    assert c.answer("m")[1] == "2"
    assert rollback(c).status == 200
    assert c.answer("m")[1] == "1"
    wait.until(lambda: ready(c) == {1}, "the end of version 2")
    report = c.rest.get("/v2/models/m/versions").ok().json()
    assert report["default_version"] == "1" == report["rolled_back_to"]
    reply = rollback(c)
    assert reply.status == 404 and "no version to go back to" in reply.error
    assert rollback(c, version="2").status == 200 and c.answer("m")[1] == "2"
    c.load("m").ok()
    assert "rolled_back_to" not in c.rest.get("/v2/models/m/versions").ok().json()


def test_resource_policy_never_has_two(models, explicit, hold):
    folder = repo.add(models, "m", backend="fault")
    server, c = explicit("--load-model=m", "--switch-policy=resource")
    (folder / "2").mkdir()
    repo.write(folder / "config.pbtxt", repo.config(backend="fault", parameters=hold.loading))
    other = Control(server)
    loading = threading.Thread(target=lambda: other.load("m").ok())
    loading.start()
    wait.until(lambda: c.states("m") == {"1": "UNAVAILABLE", "2": "LOADING"}, "the load")
    assert c.infer("m").status == 404
    hold.end()
    loading.join()
    other.close()
    assert c.answer("m")[1] == "2"


def test_over_grpc(models, explicit):
    repo.add(models, "m", versions=(1, 2), extra=ALL)
    server, c = explicit("--load-model=m")
    with Reflected(server.url("grpc")) as client:
        def call(name, **fields):
            method, request = client.method(f"millrace.ModelControl/{name}")
            return method(request(model_name="m", **fields))

        call("ModelLabel", label="stable", version="1")
        assert c.answer("m/versions/stable")[1] == "1"
        call("ModelRollback", version="1")
        assert c.answer("m")[1] == "1"
        report = call("ModelVersions")
        assert (report.model_name, report.default_version, report.rolled_back_to) == ("m", "1", "1")
        assert list(report.loads[0].labels) == ["stable"] and report.loads[0].state == "READY"
        assert [p.state for p in report.loads[0].phases] == ["START", "LOADING", "WARMING", "READY"]
        assert all(p.entered_unix_ns > 1e18 for p in report.loads[0].phases)
        with pytest.raises(grpc.RpcError) as e:
            call("ModelLabel", label="x", version="7")
        assert e.value.code().name == "NOT_FOUND"
        with pytest.raises(grpc.RpcError) as e:
            call("ModelRollback", version="7")
        assert e.value.code().name == "NOT_FOUND"


def test_these_calls_are_for_explicit_mode_and_can_be_restricted(models, start):
    repo.add(models, "m")
    with Control(start(models)) as c:
        assert label(c, "x", "1").status == 503 == rollback(c).status
    server = start(models, "--http-restricted-api=model-repository:key=secret",
                   "--grpc-restricted-protocol=model-repository:key=secret", mode="explicit")
    with Control(server) as c:
        for path, ask in (("label", c.rest.post), ("rollback", c.rest.post)):
            assert ask(f"/v2/repository/models/m/{path}").status == 403
        assert c.rest.get("/v2/models/m/versions").status == 403
        assert c.rest.get("/v2/models/m/versions", headers={"key": "secret"}).status == 200
    with grpc.insecure_channel(str(server.url("grpc"))) as channel:
        for name in ("ModelVersions", "ModelLabel", "ModelRollback"):
            with pytest.raises(grpc.RpcError) as e:
                channel.unary_unary(f"/millrace.ModelControl/{name}")(b"")
            assert "restricted" in e.value.details()
