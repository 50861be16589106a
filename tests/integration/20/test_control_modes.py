"""The control modes none, explicit and poll; the index; readiness."""
import os
import shutil

import grpc
import pytest
from tritonclient.grpc import service_pb2

from lib import onnxgen, repo, wait
from lib.control import Control, GrpcControl
from lib.grpcraw import Grpc

GUARD = "explicit model load / unload is not allowed if polling is enabled"


@pytest.fixture
def control(start):
    """control(server): a client that is closed in the end."""
    made = []

    def make(server):
        made.append(Control(server))
        return made[-1]

    yield make
    [c.close() for c in made]


# ---- none ----

def test_none_loads_all(models, start, control):
    repo.add(models, "a")
    repo.add(models, "b")
    c = control(start(models))
    assert c.states("a") == c.states("b") == {"1": "READY"}
    assert c.ready() and c.answer("a") == ([1, 2], "1")


def test_statistics_of_all_models_are_in_order(models, start, control):
    """By name, then by number."""
    for name in ("d", "b", "a", "c"):
        repo.add(models, name, versions=(2, 10, 1), extra="version_policy { all { } }")
    all_models = control(start(models)).rest.get("/v2/models/stats").ok().json()["model_stats"]
    assert [(m["name"], m["version"]) for m in all_models] == [(name, v) for name in "abcd" for v in ("1", "2", "10")]


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_load_and_unload_are_for_explicit_mode(models, start, control, mode):
    repo.add(models, "a")
    server = start(models, mode=mode)
    c = control(server)
    option = f"the server runs with --model-control-mode={mode}, this needs explicit"
    for reply in (c.load("a"), c.unload("a"), c.load("nosuch")):
        assert reply.status == 503 and reply.error == f"{GUARD}: {option}"
    g = GrpcControl(server)
    assert [g.load("a"), g.unload("a")] == [("UNAVAILABLE", f"{GUARD}: {option}")] * 2
    g.close()
    for call, instead in ("label", "millrace.version_labels"), ("rollback", "version_policy"):
        reply = c.rest.post(f"/v2/repository/models/a/{call}", {"label": "x", "version": "1"} if call == "label" else {})
        assert reply.status == 503 and option in reply.error and (instead in reply.error) == (mode == "poll")
    assert c.answer("a")[0] == [1, 2]


def test_none_ends_when_a_model_fails(models, start):
    repo.add(models, "good")
    repo.add(models, "bad", backend="fault", parameters={"fail_open": "true"})
    server = start(models, ready=False)
    assert server.wait_exit() == 1
    server.checked = True
    assert "bad" in server.err() and "failed as configured" in server.err()


def test_none_goes_on_when_told_so(models, start, control):
    repo.add(models, "good")
    repo.add(models, "bad", backend="fault", parameters={"fail_open": "true"})
    c = control(start(models, "--exit-on-error=false"))
    assert c.answer("good")[0] == [1, 2]
    (row,) = c.index("bad")
    assert row["state"] == "UNAVAILABLE" and "failed as configured" in row["reason"]
    assert not c.ready() and c.model_ready("good") and not c.model_ready("bad")
    assert c.index("bad", ready=True) == []
    reply = c.infer("bad")
    assert reply.status in (404, 503) and "'bad'" in reply.error


@pytest.mark.parametrize("mode", ["none", "poll", "explicit"])
def test_a_repository_that_is_missing(models, tmp_path, start, control, mode):
    """With --exit-on-error=false the server is live and serves the other repository; it takes the missing one when it comes."""
    repo.add(models, "here")
    later = tmp_path / "later"
    args = ["--load-model=*"] if mode == "explicit" else []
    c = control(start([models, later], "--exit-on-error=false", "--repository-poll-secs=1", *args, mode=mode))
    assert c.rest.get("/v2/health/live").status == 200 and not c.ready()
    assert c.answer("here")[0] == [1, 2]
    repo.add(later, "there")
    if mode == "poll":  # the model answers first, then the server counts it
        wait.until(lambda: c.model_ready("there") and c.ready(), "the repository that came")
    elif mode == "explicit":
        assert c.load("there").status == 200
    assert c.ready() == (mode != "none") == c.model_ready("there")


@pytest.mark.parametrize("args", [[], ["--exit-on-error=true"]])
def test_a_repository_that_is_missing_is_an_error(models, tmp_path, start, args):
    server = start([models, tmp_path / "nowhere"], *args, ready=False)
    assert server.wait_exit() == 1
    server.checked = True
    assert "nowhere" in server.err()


def test_poll_takes_models_of_every_repository(tmp_path, start, control):
    """Also one that moves from one repository to another."""
    one, two = tmp_path / "one", tmp_path / "two"
    repo.add(one, "a")
    repo.add(two, "b")
    c = control(start([one, two], "--repository-poll-secs=1", mode="poll"))
    assert c.answer("a")[0] == c.answer("b")[0] == [1, 2]
    (one / "a").rename(two / "a")
    repo.add(two, "c")
    wait.until(lambda: c.model_ready("c"), "a model that is new in the second repository")
    wait.until(lambda: c.model_ready("a"), "the model that moved")
    assert c.answer("a")[0] == [1, 2]


def test_readiness_that_is_not_strict(models, start, control):
    repo.add(models, "bad", backend="fault", parameters={"fail_open": "true"})
    c = control(start(models, "--exit-on-error=false", "--strict-readiness=false"))
    assert c.ready() and not c.model_ready("bad")


def test_empty_repository(models, start, control):
    c = control(start(models))
    assert c.ready() and c.index() == []


def test_repository_that_is_not_there(models, start):
    server = start(models / "nothing", ready=False)
    assert server.wait_exit() == 1
    server.checked = True
    assert "nothing" in server.err()


def test_no_repository_given(start):
    server = start([], ready=False)
    assert server.wait_exit() == 2
    server.checked = True
    assert "--model-repository" in server.err()


def test_files_beside_models_are_no_models(models, start, control):
    repo.add(models, "a")
    (models / "README.md").write_text("hello")
    (models / ".hidden").mkdir()
    c = control(start(models))
    assert [r["name"] for r in c.index()] == ["a"]


# ---- explicit ----

def test_explicit_starts_empty(models, start, control):
    repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    assert c.ready()
    assert c.index() == [{"name": "a"}], "never loaded: just the name"
    assert c.index(ready=True) == []
    assert c.infer("a").status == 404


def test_explicit_load_unload_load(models, start, control):
    repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    reply = c.load("a")
    assert (reply.status, reply.body) == (200, b"")
    assert c.index() == [{"name": "a", "version": "1", "state": "READY"}]
    assert c.answer("a") == ([1, 2], "1")
    reply = c.unload("a")
    assert (reply.status, reply.body) == (200, b"")
    wait.until(lambda: c.states("a") == {"1": "UNAVAILABLE"}, "the end of the model")
    assert c.index("a")[0]["reason"] == "unloaded"
    assert c.ready(), "what was unloaded on purpose does not count"
    assert c.infer("a").status in (404, 503) and not c.model_ready("a")
    assert c.load("a").status == 200
    assert c.answer("a") == ([1, 2], "1")


def test_explicit_over_grpc(models, start, control):
    repo.add(models, "a")
    server = start(models, mode="explicit")
    c, g = control(server), GrpcControl(server)
    assert g.load("a") is None and c.model_ready("a")
    assert g.unload("a") is None
    wait.until(lambda: not c.model_ready("a"), "the end of the model")
    code, text = g.load("nosuch")
    assert code == "INTERNAL" and text == "failed to load 'nosuch', failed to poll from model repository"
    g.close()


@pytest.mark.parametrize("names, loaded", [("a", "a"), ("ac", "ac"), ("*", "abc")])
def test_explicit_with_models_at_start(models, start, control, names, loaded):
    for name in "abc":
        repo.add(models, name)
    c = control(start(models, *(f"--load-model={n}" for n in names), mode="explicit"))
    assert {r["name"] for r in c.index(ready=True)} == set(loaded)


def test_explicit_with_an_unknown_model_at_start(models, start):
    server = start(models, "--load-model=nosuch", mode="explicit", ready=False)
    assert server.wait_exit() == 1
    server.checked = True
    assert "nosuch" in server.err()


def test_unknown_model(models, start, control):
    c = control(start(models, mode="explicit"))
    reply = c.load("nosuch")
    assert (reply.status, reply.error) == (500, "failed to load 'nosuch', failed to poll from model repository")
    assert c.unload("nosuch").status == 200, "as Triton: silently"


@pytest.mark.parametrize("name", ["..", ".", "%2e%2e", "a%2Fb", "..%2Fa", "a%00", " ", "%20", "-", "a\\b"])
def test_names_that_could_leave_the_repository(models, start, control, name):
    repo.add(models, "a")
    repo.add(models.parent, "outside")
    c = control(start(models, mode="explicit"))
    reply = c.load(name.replace(" ", "%20"))
    assert 400 <= reply.status <= 501 and reply.error
    assert c.index() == [{"name": "a"}]
    assert c.load("a").status == 200


@pytest.mark.parametrize("name", ["", " ", "..", "../outside", "/etc", "a/b", "a\0b", "x" * 5000], ids=lambda n: repr(n[:20]))
def test_the_same_names_over_grpc(models, start, control, name):
    repo.add(models, "a")
    repo.add(models.parent, "outside")
    server = start(models, mode="explicit")
    g = GrpcControl(server)
    code, text = g.load(name)
    assert code in ("INVALID_ARGUMENT", "INTERNAL") and text
    assert g.load("a") is None
    g.close()


def test_repository_name_in_the_url(models, start, control):
    repo.add(models, "a")
    server = start(models, mode="explicit")
    c = control(server)
    for what in ("load", "unload"):
        reply = c.rest.post(f"/v2/repository/mine/models/a/{what}")
        assert reply.status == 501 and "'repository_name' specification is not supported" in reply.error
    with Grpc(server.url("grpc")) as client, pytest.raises(grpc.RpcError) as error:
        client.stub.RepositoryIndex(service_pb2.RepositoryIndexRequest(repository_name="mine"))
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("parameter", [{"string_param": "false"}, {"int64_param": 256}, {}], ids=str)
def test_unload_dependents_of_another_type(models, start, control, parameter):
    """It is not read as the truth, and nothing is unloaded."""
    repo.add(models, "a")
    server = start(models, mode="explicit")
    c = control(server)
    c.load("a").ok()
    with Grpc(server.url("grpc")) as client, pytest.raises(grpc.RpcError) as error:
        client.stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name="a", parameters={
            "unload_dependents": service_pb2.ModelRepositoryParameter(**parameter)}))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "expected bool_param" in error.value.details()
    assert c.model_ready("a")


@pytest.mark.parametrize("body, status", [
    (b"{", 400), (b"[]", 400), (b'{"parameters":[]}', 400), (b'{"parameters":{"config":1}}', 400), (b"{}", 200), (b"", 200),
    (b'{"parameters":{}}', 200), (b'{"unknown":1}', 200)], ids=repr)
def test_bodies_of_load(models, start, control, body, status):
    repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    reply = c.rest.post("/v2/repository/models/a/load", body)
    assert reply.status == status
    assert status == 200 or reply.error


def test_unknown_parameter_of_load(models, start, control):
    repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    reply = c.load("a", nosuch="1")
    assert reply.status == 400 and "unexpected error on creating Triton parameter" in reply.error


def test_unchanged_model_is_not_loaded_again(models, start, control):
    repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    c.load("a")
    c.answer("a")
    assert c.load("a").status == 200
    assert c.stats("a")[0]["inference_count"] == 1, "the same version with its statistics"


def test_new_folder_is_found(models, start, control):
    c = control(start(models, mode="explicit"))
    repo.add(models, "late")
    assert c.load("late").status == 200
    assert c.answer("late")[0] == [1, 2]


def test_unload_of_a_model_whose_folder_is_gone(models, start, control):
    folder = repo.add(models, "a")
    c = control(start(models, mode="explicit"))
    c.load("a")
    shutil.rmtree(folder)
    assert c.answer("a")[0] == [1, 2]
    assert c.unload("a").status == 200
    wait.until(lambda: not c.model_ready("a"), "the end of the model")
    assert c.load("a").status == 500


def test_loading_takes_its_time(models, start, control, hold):
    """A slow load delays no other one, and the index and readiness are correct during it."""
    repo.add(models, "a")
    repo.add(models, "slow", backend="fault", parameters=hold.loading)
    server = start(models, "--load-model=a", mode="explicit")
    c, other = control(server), control(server)
    c.rest.connection.request("POST", "/v2/repository/models/slow/load", body=b"")
    wait.until(lambda: other.states("slow") == {"1": "LOADING"}, "the load to begin")
    assert other.answer("a")[0] == [1, 2]
    assert not other.model_ready("slow") and not other.ready()
    assert other.infer("slow").status in (404, 503)
    hold.end()
    assert c.rest.connection.getresponse().status == 200
    assert other.states("slow") == {"1": "READY"} and other.ready()


# ---- poll ----

@pytest.fixture
def polled(models, start, control):
    repo.add(models, "a")
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    server = start(models, "--repository-poll-secs=1", mode="poll")
    made = control(server)
    made.server = server
    return made


def test_poll_finds_a_new_model(models, polled):
    repo.add(models, "late")
    wait.until(lambda: polled.model_ready("late"), "the new model")
    assert polled.answer("late")[0] == [1, 2]


def test_poll_follows_a_changed_file(models, polled):
    assert polled.answer("adder")[0] == [2, 3]
    repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(10))
    wait.until(lambda: polled.answer("adder")[0] == [11, 12], "the changed model")


def test_poll_follows_a_changed_config(models, polled):
    repo.write(models / "a" / "config.pbtxt", repo.config(max_batch_size=4))
    wait.until(lambda: polled.rest.get("/v2/models/a/config").json().get("max_batch_size") == 4, "the changed config")


def test_poll_finds_a_new_version(models, polled):
    (models / "a" / "2").mkdir()
    wait.until(lambda: polled.answer("a")[1] == "2", "version 2")
    wait.until(lambda: polled.states("a") == {"1": "UNAVAILABLE", "2": "READY"}, "the end of version 1")


def test_poll_sees_what_inotify_does_not_tell(models, start, control):
    """A file that is a link: its target changes in another folder. Each scan checks such a model."""
    shared = models / "a" / "shared"
    repo.add(models, "a", files={"shared/model.onnx": onnxgen.adder(1)})
    repo.add(models, "adder", onnxgen.ADDER_CONFIG)
    (models / "adder" / "1" / "model.onnx").symlink_to(shared / "model.onnx")
    c = control(start(models, "--repository-poll-secs=1", mode="poll"))
    assert c.answer("adder")[0] == [2, 3]
    repo.write(shared / "model.onnx", onnxgen.adder(10))
    wait.until(lambda: c.answer("adder")[0] == [11, 12], "the changed model")


def test_poll_drops_a_removed_model(models, polled):
    shutil.rmtree(models / "a")
    wait.until(lambda: not polled.model_ready("a"), "the end of the model")
    assert polled.ready() and polled.answer("adder")[0] == [2, 3]


def test_poll_keeps_what_serves_when_a_change_is_bad(models, polled):
    repo.write(models / "adder" / "1" / "model.onnx", b"this is no model")
    wait.until(lambda: any(e["event"] == "model.reload_failed" and "adder" in str(e) for e in polled.server.events()),
               "the failure to be told")
    assert polled.answer("adder")[0] == [2, 3]
    repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(5))
    wait.until(lambda: polled.answer("adder")[0] == [6, 7], "the repaired model")


def test_poll_takes_no_half_written_model(models, polled):
    """A model that grows in steps is loaded when it is whole, without a failure in between."""
    data = onnxgen.adder(3)
    folder = models / "growing" / "1"
    folder.mkdir(parents=True)
    (models / "growing" / "config.pbtxt").write_text(onnxgen.ADDER_CONFIG)
    with open(folder / "model.onnx", "wb") as f:
        f.write(data[: len(data) // 2])
        f.flush()
        os.fsync(f.fileno())
        f.write(data[len(data) // 2:])
    wait.until(lambda: polled.model_ready("growing"), "the whole model")
    assert polled.answer("growing")[0] == [4, 5]
