"""Folders of MLServer as models."""
import json
import os
import subprocess

import grpc as raw
import numpy as np
import pytest
import tritonclient.grpc as grpc
import tritonclient.http as http
from tritonclient.grpc import service_pb2 as pb

from lib import pymodels, repo, wait
from lib.pymodels import add_mlserver
from lib.raw import Http1, request
from lib.rest import Rest, infer_path
from lib.server import BIN, Server
from lib.workers import pids


def tensor(name, datatype, shape, data, content_type=None):
    found = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return {**found, "parameters": {"content_type": content_type}} if content_type else found


ROWS = tensor("x", "FP32", [2, 3], [1, 2, 3, 4, 5, 6], "np")


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(pymodels.MLSERVER), *args[1:], **kw)
    return make


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """kept(name): a server whose model m, version v1, is of that class, for tests that leave it as it is."""
    servers = {}

    def make(name):
        if name not in servers:
            folder = tmp_path_factory.mktemp(name)
            add_mlserver(folder / "models" / "m", f"runtimes.{name}", parameters={"version": "v1"})
            servers[name] = Server(folder / "server", [folder / "models"], *pymodels.options(pymodels.MLSERVER)).wait_ready()
        return servers[name]

    yield make
    [server.stop() for server in servers.values()]


def ask(rest, model, *inputs, **fields):
    return rest.post(infer_path(model), json.dumps({"inputs": list(inputs), **fields}))


def test_answers(kept):
    """The shape of MLServer's answers, over REST."""
    with Rest(kept("Sum").http) as rest:
        reply = ask(rest, "m", ROWS, id="seven").ok()
        assert reply.json() == {"model_name": "m", "model_version": "v1", "id": "seven", "parameters": {}, "outputs": [
            {"name": "loaded", "shape": [2, 1], "datatype": "FP32", "parameters": {"content_type": "np"}, "data": [6.0, 15.0]}]}
        assert list(reply.json()) == ["model_name", "model_version", "id", "parameters", "outputs"]
        assert reply.headers["ce-id"] == "seven" and reply.headers["content-type"] == "application/json"
        assert len(ask(rest, "m", ROWS).ok().json()["id"]) == 36
        assert rest.get("/v2/models/m/ready").ok().body == b""


def test_metadata(models, start):
    """The values of the settings; nothing is checked against them."""
    declared = [{"name": "y", "datatype": "FP32", "shape": [-1, 64], "parameters": {"content_type": "np"}}]
    add_mlserver(models / "m", "runtimes.Sum", platform="sums", versions=["sum/1"], inputs=declared)
    server = start(models)
    with Rest(server.http) as rest:
        assert rest.get("/v2/models/m").ok().json() == {
            "name": "m", "versions": ["sum/1"], "platform": "sums", "inputs": declared, "outputs": [], "parameters": {}}
        assert ask(rest, "m", ROWS).ok().json()["outputs"][0]["data"] == [6.0, 15.0]


@pytest.mark.parametrize("word,status,text", [
    ("mine", 404, "no such thing"),
    ("raise", 500, "builtins.ValueError: no good"),
    ("none", 400, "Model 'm' returned no predictions after inference"),
])
def test_failures(kept, word, status, text):
    server = kept("Commanded")
    first = pids(server, "m")
    with Rest(server.http) as rest:
        reply = ask(rest, "m", tensor("x", "BYTES", [1], [word]))
        assert (reply.status, reply.error) == (status, text)
        assert ask(rest, "m", tensor("x", "BYTES", [1], ["grüße"])).ok().json()["outputs"][0]["data"] == ["GRÜSSE"]
    assert pids(server, "m") == first


def test_headers(kept):
    """Those of the request reach the model."""
    server = kept("Commanded")
    body = json.dumps({"inputs": [tensor("x", "BYTES", [1], ["header"])]})
    with Rest(server.http) as rest:
        reply = rest.post(infer_path("m"), body, headers={"X-Word": "told"})
        assert reply.ok().json()["outputs"][0]["data"] == ["TOLD"]
    with Http1(server.http) as wire:  # as MLServer reads it
        wire.send(request("POST", infer_path("m"), "X-Word: to\xebd\r\n", body.encode()))
        assert json.loads(wire.response().body)["outputs"][0]["data"] == ["TO\u00cbD"]


@pytest.mark.more
def test_codecs(models, start):
    add_mlserver(models / "args", "runtimes.Args")
    add_mlserver(models / "frame", "runtimes.Frame")
    server = start(models)
    with Rest(server.http) as rest:
        reply = ask(rest, "args", tensor("array", "INT32", [2], [7, 8]), tensor("words", "BYTES", [2], ["a", "b"]))
        assert reply.ok().json()["outputs"] == [{"name": "output-0", "shape": [2, 1], "datatype": "BYTES",
                                                 "parameters": {"content_type": "str"}, "data": ["a7", "b8"]}]
        reply = ask(rest, "frame", tensor("a", "INT64", [2], [1, 2]), tensor("b", "INT64", [2], [3, 4]), parameters={"content_type": "pd"})
        assert [(o["name"], o["data"]) for o in reply.ok().json()["outputs"]] == [("a", [1, 2]), ("b", [3, 4]), ("total", [4, 6])]


@pytest.mark.parametrize("client", [http, grpc], ids=["http", "grpc"])
def test_clients(kept, client):
    server = kept("Sum")
    with client.InferenceServerClient(server.url("http" if client is http else "grpc")) as c:
        array = np.arange(6, dtype="f4").reshape(2, 3)
        x = client.InferInput("x", array.shape, "FP32")
        if client is http:
            x.set_data_from_numpy(array, binary_data=False)
        else:
            x.set_data_from_numpy(array)
        assert c.infer("m", [x]).as_numpy("loaded").tolist() == [[3], [12]]


@pytest.mark.more
def test_crash(models, start):
    add_mlserver(models / "m", "runtimes.Commanded")
    server = start(models)
    with Rest(server.http) as rest:
        assert "ended while it ran this request (crash: signal 11" in ask(rest, "m", tensor("x", "BYTES", [1], ["crash"])).error
        wait.until(lambda: pids(server, "m"), "another worker")
        assert ask(rest, "m", tensor("x", "BYTES", [1], ["a"])).ok().json()["outputs"][0]["data"] == ["A"]
    server.checked = True  # sanitizers report the crash that was asked for


@pytest.mark.more
def test_names(models, start):
    """Names are those of the files, or else of the folders, at any depth."""
    add_mlserver(models / "a", "runtimes.Sum", name="one")
    add_mlserver(models / "deep" / "er" / "two", "runtimes.Sum")
    add_mlserver(models / "three" / "7", "runtimes.Sum", parameters={"version": "7"})
    add_mlserver(models, "runtimes.Sum", name="root")
    (models / "broken").mkdir()
    (models / "broken" / "model-settings.json").write_text("{")
    repo.add(models, "other")
    server = start(models, "--exit-on-error=false")
    with Rest(server.http) as rest:
        index = {(m["name"], m.get("version"), m["state"]) for m in rest.post("/v2/repository/index").ok().json()}
        assert index == {("one", "1", "READY"), ("two", "1", "READY"), ("three", "7", "READY"), ("root", "1", "READY"),
                         ("other", "1", "READY"), ("broken", "1", "UNAVAILABLE")}
        for name in ("one", "two", "three", "root"):
            assert ask(rest, name, ROWS).ok().json()["model_name"] == name


@pytest.mark.more
def test_versions(models, start):
    """All versions of a name are served, wherever their folders are, and those of other names than numbers by these names."""
    for folder, version in (("x", "1.0.0"), ("y", "v2"), ("z", "3"), ("3/deep", "10")):
        add_mlserver(models / folder, "runtimes.Sum", name="m", parameters={"version": version})
    server = start(models)
    with Rest(server.http) as rest:
        for version in ("3", "10", "1.0.0", "v2"):
            reply = rest.post(f"/v2/models/m/versions/{version}/infer", json.dumps({"inputs": [ROWS]}))
            assert reply.ok().json()["model_version"] == version
        assert ask(rest, "m", ROWS).ok().json()["model_version"] == "v2"
        assert rest.get("/v2/models/m/versions/1.0/ready").status == 400
    with grpc.InferenceServerClient(server.url("grpc")) as client:
        assert client.is_model_ready("m", "1.0.0")


@pytest.mark.more
def test_a_version_in_two_folders(models, start):
    """The first folder by path has it, and the log says that there is another one; also of a version without a name."""
    for folder, kind, name, version in (("b", "Commanded", "m", {}), ("a", "Sum", "m", {}),
                                        ("d", "Commanded", "n", {"version": "v1"}), ("c", "Sum", "n", {"version": "v1"})):
        add_mlserver(models / folder, f"runtimes.{kind}", name=name, parameters=version)
    server = start(models)
    with Rest(server.http) as rest:
        index = rest.post("/v2/repository/index").ok().json()
        assert sorted((m["name"], m["version"]) for m in index) == [("m", "1"), ("n", "1")]
        for name in ("m", "n"):
            assert ask(rest, name, ROWS).ok().json()["outputs"][0]["name"] == "loaded"
    assert {e["path"].split("/")[-1] for e in server.events() if e["event"] == "model.settings"} == {"b", "d"}


@pytest.mark.more
def test_changes(models, start):
    """A load takes what the folder holds now, which other models do not notice."""
    folder = add_mlserver(models / "m", "runtimes.Sum")
    add_mlserver(models / "n", "runtimes.Sum")
    server = start(models, "--load-model=*", mode="explicit")
    before = pids(server, "n")
    (folder / "runtimes.py").write_text((folder / "runtimes.py").read_text().replace('"loaded"', '"again"'))
    add_mlserver(models / "late", "runtimes.Sum")
    with Rest(server.http) as rest:
        for model, output in (("m", "again"), ("late", "loaded")):
            rest.post(f"/v2/repository/models/{model}/load").ok()
            assert ask(rest, model, ROWS).ok().json()["outputs"][0]["name"] == output
        rest.post("/v2/repository/models/m/unload").ok()
        assert ask(rest, "m", ROWS).status == 404
    assert pids(server, "n") == before


@pytest.mark.more
def test_configuration(models, start):
    """What config.pbtxt says of a model of MLServer holds."""
    add_mlserver(models / "m", "runtimes.Sum", parameters={"version": "v1"})
    (models / "m" / "config.pbtxt").write_text("instance_group [ { count: 2 } ]")
    server = start(models)
    assert len(pids(server, "m")) == 2
    with Rest(server.http) as rest:
        assert ask(rest, "m", ROWS).ok().json()["model_version"] == "v1"


def events(reply):
    return [json.loads(line[6:]) for line in reply.body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("word", ["infer_stream", "generate_stream"])
def test_stream(kept, word):
    body = {"id": "x", "inputs": [tensor("text", "BYTES", [1], ["a bc d"])]}
    with Rest(kept("Words").http) as rest, Rest(kept("Commanded").http) as other:
        reply = rest.post(f"/v2/models/m/{word}", body).ok()
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert [e["outputs"][0]["data"] for e in events(reply)] == [["a"], ["bc"], ["d"]]
        assert {e["id"] for e in events(reply)} == {"x"} and events(reply)[0]["parameters"]["headers"]["Ce-Id"] == "x"
        for path in ("infer", "generate"):
            assert rest.post(f"/v2/models/m/{path}", body).ok().json()["outputs"][0]["data"] == ["a bc d"]
        one = events(other.post(f"/v2/models/m/{word}", body))
        assert [e["outputs"][0]["data"] for e in one] == [["A BC D"]]


def test_stream_failure(kept):
    """Before the first answer it is the call's, then an event."""
    with Rest(kept("Words").http) as rest:
        reply = rest.post("/v2/models/m/infer_stream", {"inputs": [tensor("text", "BYTES", [1], ["bad"])]})
        assert (reply.status, reply.error) == (500, "builtins.ValueError: a bad word")
        reply = rest.post("/v2/models/m/infer_stream", {"inputs": [tensor("text", "BYTES", [1], ["a bad"])]}).ok()
        assert events(reply)[0]["outputs"][0]["data"] == ["a"] and events(reply)[1:] == [{"error": "builtins.ValueError: a bad word"}]


@pytest.mark.more
def test_event_loop(models, start):
    """A model's coroutines run in one loop, as tasks; what it has started there goes on while requests run, also those that wait for
    nothing, and its end does not change the requests after it."""
    add_mlserver(models / "m", "runtimes.Tasks")
    server = start(models)
    with Rest(server.http) as rest:
        def say(word):
            return ask(rest, "m", tensor("x", "BYTES", [1], [word]))

        def word(word):
            return say(word).ok().json()["outputs"][0]["data"][0]
        before = int(word("turns"))
        wait.until(lambda: int(word("turns")) > before + 3, "turns of the task")
        for _ in range(2):
            assert [word(w) for w in ("now", "wait", "thread", "now")] == ["True"] * 4
            late = say("late")
            assert late.status == 500 and "TimeoutError" in late.error
            assert word("stop") == "True"
        count = word("turns")
        assert count == word("turns")


def test_no_stream(models, start):
    repo.add(models, "other")
    server = start(models)
    with Rest(server.http) as rest:
        assert "infer_stream is for models of MLServer" in rest.post("/v2/models/other/infer_stream", {}).error


SERVICE = "/inference.GRPCInferenceService/ModelStreamInfer"


def test_grpc_stream(kept):
    """MLServer's: of ModelInferRequest and ModelInferResponse; all messages are payloads of one call."""
    server = kept("Words")

    def requests(*texts):
        for i, text in enumerate(texts):
            q = pb.ModelInferRequest(model_name="m", id=str(i))
            q.inputs.add(name="text", datatype="BYTES", shape=[1]).contents.bytes_contents.append(text)
            yield q

    with raw.insecure_channel(server.url("grpc")) as channel:
        call = channel.stream_stream(SERVICE, pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
        assert [list(a.outputs[0].contents.bytes_contents) for a in call(requests(b"a bc"))] == [[b"a"], [b"bc"]]
        assert [(a.id, list(a.outputs[0].contents.bytes_contents)) for a in call(requests(b"a bc", b"d"))] == [
            ("0", [b"a"]), ("0", [b"bc"])]
        with pytest.raises(raw.RpcError) as e:
            list(call(requests(b"bad")))
        assert (e.value.code(), e.value.details()) == (raw.StatusCode.INTERNAL, "builtins.ValueError: a bad word")


def started(start, folder, settings, *args, env=None):
    """`millrace mlserver start`"""
    (folder / "settings.json").write_text(json.dumps({"http_port": 0, "grpc_port": 0, "metrics_port": 0, "host": "127.0.0.1", **settings}))
    return start([], "--print-ports=json", *args, command=["mlserver", "start", folder], mode=None, ports=False, env=env)


def test_start(models, start):
    """A folder of MLServer whose root is a model, which imports a module of the root."""
    add_mlserver(models, "runtimes.Sum", name="root")
    add_mlserver(models / "sub", "other.Imported")
    (models / "shared.py").write_text("word = 'shared'")
    (models / "sub" / "other.py").write_text("import shared, runtimes\nclass Imported(runtimes.Sum): assert shared.word == 'shared'")
    server = started(start, models, {"server_name": "of the file", "parallel_workers": 2, "grpc_max_message_length": None, "cors_settings": {}},
                     env={"MLSERVER_SERVER_NAME": "of the variable", "MLSERVER_LOAD_MODELS_AT_STARTUP": "1", "MLSERVER_KAFKA_ENABLED": "No",
                          "MLSERVER_MODEL_VERSION": "7"})
    assert len(pids(server, "sub")) == 2
    with Rest(server.http) as rest:
        assert rest.get("/v2/health/ready").ok().body == b""
        assert rest.get("/v2").ok().json()["name"] == "of the file"
        reply = ask(rest, "root", ROWS).ok()
        assert reply.json()["outputs"][0]["data"] == [6.0, 15.0]
        assert reply.headers["ce-source"] == "io.seldon.serving.deployment.of the file"
        assert ask(rest, "sub", ROWS).ok() and rest.get("/v2/models/sub/versions/7/ready").ok()
        rest.post("/v2/repository/models/sub/unload").ok()
        assert rest.get("/v2/health/ready").ok() and ask(rest, "sub", ROWS).status == 404
    with Rest(server.metrics) as rest:
        assert b"nv_inference_request_success" in rest.get("/metrics").ok().body


@pytest.mark.more
def test_start_empty(models, start):
    add_mlserver(models / "m", "runtimes.Sum")
    server = started(start, models, {"metrics_endpoint": None, "grpc_max_message_length": -1}, env={"MLSERVER_LOAD_MODELS_AT_STARTUP": "false"})
    assert "metrics" not in server.ports
    with Rest(server.http) as rest:
        assert ask(rest, "m", ROWS).status == 404
        rest.post("/v2/repository/models/m/load").ok()
        assert ask(rest, "m", ROWS).ok()


@pytest.mark.parametrize("settings,text", [
    ('{"kafka_enabled": true}', "'kafka_enabled' is not supported"),
    ('{"http_port": "many"}', "http-port"),
    ('{', "settings.json"),
])
def test_start_refused(models, settings, text):
    (models / "settings.json").write_text(settings)
    done = subprocess.run([BIN, "mlserver", "start", models], capture_output=True, text=True)
    assert done.returncode == 2 and text in done.stderr


def test_start_without_a_file(models):
    """A model of variables alone is refused."""
    done = subprocess.run([BIN, "mlserver", "start", models, "--http-port=many"], capture_output=True, text=True,
                          env={**os.environ, "MLSERVER_MODEL_IMPLEMENTATION": "runtimes.Sum", "MLSERVER_MODEL_NAME": "m"})
    assert done.returncode == 2 and "has no model-settings.json" in done.stderr


SKLEARN = """
import joblib, numpy, sys
from sklearn.linear_model import LogisticRegression
joblib.dump(LogisticRegression().fit(numpy.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]), sys.argv[1])
"""


@pytest.mark.more
def test_sklearn(models, start):
    """A runtime of MLServer's own."""
    folder = add_mlserver(models / "m", "mlserver_sklearn.SKLearnModel", parameters={"uri": "./model.joblib"})
    subprocess.run([pymodels.MLSERVER, "-c", SKLEARN, folder / "model.joblib"], check=True)
    server = start(models)
    with Rest(server.http) as rest:
        reply = ask(rest, "m", tensor("x", "FP64", [2, 1], [0.1, 2.9]), outputs=[{"name": "predict"}, {"name": "predict_proba"}])
        predicted, likely = reply.ok().json()["outputs"]
        assert predicted == {"name": "predict", "shape": [2, 1], "datatype": "INT64", "parameters": {"content_type": "np"}, "data": [0, 1]}
        assert likely["shape"] == [2, 2] and likely["datatype"] == "FP64"
        reply = ask(rest, "m", tensor("x", "FP64", [1, 1], [1]), outputs=[{"name": "other"}])
        assert reply.status == 400 and reply.error.startswith("SKLearnModel only supports")
