"""Loads with a config and files of the request: over REST, gRPC and tritonclient."""
import json

import pytest

from lib import onnxgen, repo
from lib.control import Control, GrpcControl
from lib.tclients import KINDS, Triton, error_of

ADDER = {"backend": "onnxruntime", "max_batch_size": 0,
         "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
         "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
IDENTITY = {**ADDER, "backend": "identity"}


@pytest.fixture
def server(models, start):
    repo.add(models, "m")
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    return start(models, mode="explicit")


@pytest.fixture
def control(server):
    with Control(server) as c:
        yield c


class Loader:
    """load() of REST and gRPC with one kind of answer: "" or the text of the error."""

    def __init__(self, kind, server):
        self.made = GrpcControl(server) if kind == "grpc" else Control(server)

    def load(self, *args, **kw):
        answer = self.made.load(*args, **kw)
        if answer is None or not isinstance(answer, tuple) and answer.status == 200:
            return ""
        return answer[1] if isinstance(answer, tuple) else answer.error


@pytest.fixture(params=["rest", "grpc"])
def loader(request, server):
    loader = Loader(request.param, server)
    yield loader
    loader.made.close()


def batch_size(control, model="m"):
    return control.rest.get(f"/v2/models/{model}/config").ok().json()["max_batch_size"]


def test_config(loader, control):
    assert loader.load("m", {**IDENTITY, "max_batch_size": 6}) == ""
    assert batch_size(control) == 6
    assert loader.load("m", IDENTITY) == ""
    assert batch_size(control) == 0


@pytest.mark.parametrize("change", ["config", "version", "unload", "none"])
def test_a_plain_load_keeps_the_config(models, loader, control, change):
    """Until the files of the model change, or it is unloaded."""
    assert loader.load("m", {**IDENTITY, "max_batch_size": 6}) == ""
    before = len(control.rest.get("/v2/models/m/versions").ok().json()["versions"])
    for _ in range(2):
        assert loader.load("m") == ""
        assert batch_size(control) == 6
    assert len(control.rest.get("/v2/models/m/versions").ok().json()["versions"]) == before, "nothing was loaded again"
    if change == "config":
        repo.add(models, "m", max_batch_size=3)
    elif change == "version":
        repo.add(models, "m", versions=(1, 2))
    elif change == "unload":
        control.unload("m").ok()
    assert loader.load("m") == ""
    assert batch_size(control) == {"config": 3, "version": 0, "unload": 0, "none": 6}[change]
    assert loader.load("m") == ""
    assert batch_size(control) == {"config": 3, "version": 0, "unload": 0, "none": 6}[change]


def test_a_config_that_fails_is_not_kept(loader, control):
    assert loader.load("m", {**IDENTITY, "max_batch_size": 6}) == ""
    assert loader.load("m", {**IDENTITY, "backend": "nosuchbackend"}) != ""
    assert loader.load("m") == ""
    assert batch_size(control) == 6


def test_config_of_a_loaded_model(loader, control):
    assert loader.load("m") == ""
    assert loader.load("m", {**IDENTITY, "max_batch_size": 2}) == ""
    assert batch_size(control) == 2


def test_config_is_completed(loader, control):
    assert loader.load("adder", {"backend": "onnxruntime", "max_batch_size": 0}) == ""
    assert control.answer("adder")[0] == [2, 3]


def test_a_list_of_one_needs_no_brackets(loader, control):
    one = {**IDENTITY, "input": IDENTITY["input"][0], "output": IDENTITY["output"][0], "instance_group": {"count": 3}}
    one["input"] = {**one["input"], "dims": -1}
    assert loader.load("m", one) == ""
    document = control.rest.get("/v2/models/m/config").ok().json()
    assert [g["count"] for g in document["instance_group"]] == [3]
    assert [i["dims"] for i in document["input"]] == [[-1]]


@pytest.mark.parametrize("config, text", [
    ("{", ""), ("[]", ""), ("", ""), ('"x"', ""), ({"no_such_field": 1}, "no_such_field"), ({**IDENTITY, "max_batch_size": "x"}, ""),
    ({**IDENTITY, "backend": "nosuchbackend"}, "nosuchbackend"), ({**IDENTITY, "name": "another"}, "another"),
    ({**IDENTITY, "max_batch_size": -3}, "max_batch_size"), ("[" * 10000, ""), ({**IDENTITY, "input": [{"name": 1}]}, "")], ids=lambda v: repr(v)[:40])
def test_bad_config_keeps_what_serves(loader, control, config, text):
    assert loader.load("m") == ""
    error = loader.load("m", config)
    assert error and text in error
    assert control.answer("m")[0] == [1, 2] and batch_size(control) == 0


def test_files(loader, control):
    assert loader.load("adder", ADDER, {"1/model.onnx": onnxgen.adder(7)}) == ""
    assert control.answer("adder") == ([8, 9], "1")
    assert loader.load("adder", ADDER, {"5/model.onnx": onnxgen.adder(70)}) == ""
    assert control.answer("adder") == ([71, 72], "5")
    assert loader.load("adder") == ""
    assert control.answer("adder") == ([2, 3], "1")


def test_files_of_a_model_that_no_repository_has(loader, control):
    assert loader.load("fresh", ADDER, {"3/model.onnx": onnxgen.adder(3)}) == ""
    assert control.answer("fresh") == ([4, 5], "3")
    assert control.unload("fresh").status == 200


def test_files_with_labels(loader, control):
    config = {**ADDER, "output": [{**ADDER["output"][0], "label_filename": "labels.txt"}]}
    assert loader.load("fresh", config, {"1/model.onnx": onnxgen.adder(0), "labels.txt": b"zero\none\n"}) == ""
    reply = control.infer("fresh", [1, 5], outputs=[{"name": "OUTPUT0", "parameters": {"classification": 1}}])
    assert reply.ok().json()["outputs"][0]["data"] == ["5:1:one"]


def test_files_need_a_config(loader, control):
    error = loader.load("adder", None, {"1/model.onnx": onnxgen.adder(7)})
    assert error and "config" in error


@pytest.mark.few(6)
@pytest.mark.parametrize("path", ["../1/model.onnx", "/etc/x", "1/../../x", "1//../../../x", "", "1/", "./../x", "1/a\0b", "1/" + "x" * 5000])
def test_paths_that_leave_the_folder(loader, control, path, tmp_path):
    error = loader.load("adder", ADDER, {path: b"data", "1/model.onnx": onnxgen.adder(7)})
    assert error
    assert not list(tmp_path.glob("x*"))
    assert loader.load("adder") == ""
    assert control.answer("adder")[0] == [2, 3]


def test_damaged_file(loader, control):
    assert loader.load("adder") == ""
    error = loader.load("adder", ADDER, {"1/model.onnx": b"no model"})
    assert "load failed for model 'adder'" in error
    # Files are named as the request did: of the temporary folder a client knows nothing.
    assert "adder/1/model.onnx" in error and "/tmp" not in error and "millrace-model" not in error
    assert not [e for e in control.index() if "millrace-model" in str(e)]
    error = loader.load("adder", ADDER, {"1/other.onnx": b"no model"})
    assert "load failed" in error and "/tmp" not in error and "millrace-model" not in error
    assert control.answer("adder")[0] == [2, 3]


def test_more_files_than_a_load_may_have(server, control):
    files = {f"1/{i}": b"" for i in range(1025)}
    reply = control.load("adder", ADDER, files)
    assert reply.status == 400 and "1024 files" in reply.error
    over_grpc = GrpcControl(server)
    assert over_grpc.load("adder", ADDER, files)[0] == "INVALID_ARGUMENT"
    over_grpc.close()


@pytest.mark.parametrize("text", ["!!!", "YQ=", "YQ", "Y Q = =", "YQ==YQ=="])
def test_files_must_be_base64(control, text):
    body = {"parameters": {"config": json.dumps(ADDER), "file:1/model.onnx": text}}
    reply = control.rest.post("/v2/repository/models/adder/load", body)
    assert reply.status == 400 and reply.error


def test_large_file(loader, control):
    assert loader.load("adder", ADDER, {"1/model.onnx": onnxgen.adder(2), "1/extra.bin": b"\0" * 20_000_000}) == ""
    assert control.answer("adder")[0] == [3, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_tritonclient(server, control, kind):
    client = Triton(kind, server)
    client.call("load_model", "m")
    assert client.call("is_model_ready", "m")
    client.call("load_model", "m", config=json.dumps({**IDENTITY, "max_batch_size": 5}))
    assert batch_size(control) == 5
    client.call("load_model", "adder", config=json.dumps(ADDER), files={"file:1/model.onnx": onnxgen.adder(9)})
    assert control.answer("adder")[0] == [10, 11]
    client.call("unload_model", "adder")
    client.call("unload_model", "m", unload_dependents=True)
    e = error_of(client.call, "load_model", "nosuch")
    assert "failed to load 'nosuch', failed to poll from model repository" in e.message()
    client.close()


@pytest.mark.parametrize("allowed", ["config", "none"])
@pytest.mark.parametrize("kind", ["rest", "grpc"])
def test_overrides_that_are_not_allowed(models, start, kind, allowed):
    repo.add(models, "m")
    server = start(models, f"--load-overrides={allowed}", mode="explicit")
    loader = Loader(kind, server)
    assert loader.load("m") == "", "what the repository has can be loaded"
    error = loader.load("m", IDENTITY, {"1/x": b"data"})
    assert "--load-overrides" in error
    error = loader.load("m", {**IDENTITY, "max_batch_size": 6})
    assert error == "" if allowed == "config" else "--load-overrides" in error
    with Control(server) as control:
        assert batch_size(control) == (6 if allowed == "config" else 0)
        if kind == "rest":
            assert control.load("m", IDENTITY, {"1/x": b"data"}).status == 403
    loader.made.close()
