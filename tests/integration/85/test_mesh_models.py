"""Models that are registered with a path: where they are, and what they are by their type."""
import hashlib
import json
import shutil
import subprocess
import tarfile

import numpy as np
import pytest

from lib import pymodels, repo, wait
from lib.models import trees
from lib.rest import Rest
from lib.server import BIN
from lib.services import s3
from lib.services.mesh import answers, ask
from lib.services.web import serving


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    repo.add(folder, "files", repo.config())
    repo.add(tmp_path / "elsewhere", "secret", repo.config())
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    return folder


def registered(rest, name, path, kind="mt:onnx", key=""):
    return rest.post(f"/v2/mesh/models/{name}/register", {"type": kind, "path": str(path), "key": key, "load_now": True, "sync": True}).ok().json()


def reason(got):
    assert got["status"] == "LOADING_FAILED", got
    return got["copies"][0]["reason"]


def test_models_by_path(fleet, store):
    servers = fleet([], [], options=[f"--mesh-models={store}"])
    with Rest(servers[0].http) as rest:
        assert registered(rest, "isvc-1", "files")["status"] == "LOADED"
        assert registered(rest, "isvc-2", store / "files")["status"] == "LOADED"
        for name in ("isvc-1", "isvc-2"):
            for server in servers:
                wait.until(lambda: ask(server, name).status == 200, f"{name} to answer")
                answers(server, name)
        for name, path in (("gone", "nonesuch"), ("out", "out/secret"), ("up", "../elsewhere/secret"), ("abs", "/etc/passwd")):
            got = registered(rest, name, path)
            assert got["status"] == "LOADING_FAILED", name
            assert all(name in c["reason"] for c in got["copies"])
            assert ask(servers[1], name).status >= 400
        rest.post("/v2/mesh/models/isvc-1/unregister")
        wait.until(lambda: ask(servers[0], "isvc-1").status == 404, "it to be gone")
        assert registered(rest, "isvc-1", "files")["status"] == "LOADED"


def test_model_by_path_stays_away_when_it_is_unregistered(fleet, models, store):
    """Models of the repositories are registered again, every few seconds."""
    repo.add(models, "own", repo.config())
    server, = fleet(models, options=[f"--mesh-models={store}"])
    with Rest(server.http) as rest:
        assert registered(rest, "by-path", "files")["status"] == "LOADED"
        for name in ("by-path", "own"):
            rest.post(f"/v2/mesh/models/{name}/unregister").ok()
        wait.until(lambda: rest.get("/v2/mesh/models/own").status == 200, "the model of the repository to be registered again")
        assert [m["id"] for m in rest.get("/v2/mesh/models").ok().json()["models"]] == ["own"]
        assert registered(rest, "by-path", "files")["status"] == "LOADED"


def test_model_by_path_is_that_of_the_repository_later(fleet, models, store):
    server, = fleet(models, options=[f"--mesh-models={store}"])
    with Rest(server.http) as rest:
        assert registered(rest, "m", "files")["status"] == "LOADED"
        rest.post("/v2/mesh/models/m/unregister").ok()
        shutil.rmtree(store / "files")
        repo.add(models, "m", repo.config())
        wait.until(lambda: rest.get("/v2/mesh/models/m").status == 200, "the model to be registered")
        assert rest.get("/v2/mesh/models/m").json()["path"] == ""
        answers(server, "m")


def test_path_at_servers_without_a_folder_says_so(fleet, models):
    server, = fleet(models)
    with Rest(server.http) as rest:
        assert "--mesh-models" in reason(registered(rest, "p", "files"))


SIMPLE = [(f"INPUT{i}", "INT32", [1, 16], [i] * 16) for i in range(2)]
ECHO = """
import triton_python_backend_utils as pb


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "x", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "y", "data_type": "TYPE_FP32", "dims": [-1]})
        return config

    def execute(self, requests):
        return [pb.InferenceResponse([pb.Tensor("y", pb.get_input_tensor_by_name(r, "x").as_numpy() + 1)]) for r in requests]
"""


def test_the_type_says_the_backend(fleet, store):
    """Of files and folders, by whatever names and in whatever form."""
    stock = repo.STOCK / "simple" / "1" / "model.onnx"
    shutil.copy(stock, store / "net.bin")
    for version in (1, 3):
        (store / "versions" / str(version)).mkdir(parents=True)
        shutil.copy(stock, store / "versions" / str(version) / "model.onnx")
    (store / "echo.txt").write_text(ECHO)
    (store / "both").mkdir()
    (store / "both" / "model.py").write_text(ECHO)
    shutil.copy(stock, store / "both" / "model.onnx")  # the files alone would say ONNX
    trees.xgboost("regression").save_model(str(store / "trees.ubj"))
    trees.lightgbm("regression").save_model(str(store / "trees.txt"))
    server, = fleet([], options=[f"--mesh-models={store}", *pymodels.options(), *trees.options()])
    x = [("x", "FP32", [2], [1, 2])]
    rows = trees.rows(3)
    with Rest(server.http) as rest:
        def outputs(name, inputs):
            return rest.infer(name, inputs).ok().json()["outputs"]

        for name, path, kind in (("a", "net.bin", "onnx"), ("b", "net.bin", "mt:onnx:1|pv:v2"), ("c", "versions", "onnx")):
            assert registered(rest, name, path, kind)["status"] == "LOADED", (name, server.err())
            assert outputs(name, SIMPLE)[0]["data"] == [1] * 16
        for name, path in (("d", "echo.txt"), ("e", "both")):
            assert registered(rest, name, path, "python")["status"] == "LOADED", server.err()
            assert outputs(name, x)[0]["data"] == [2, 3]
        for name, path, kind in (("f", "trees.ubj", "xgboost"), ("g", "trees.txt", "mt:lightgbm:4")):
            got = registered(rest, name, path, kind)
            assert got["status"] == "LOADED", got
            backend = rest.get(f"/v2/models/{name}/config").ok().json()["backend"]
            assert backend == kind.removeprefix("mt:").split(":")[0]
            meta = rest.get(f"/v2/models/{name}").ok().json()["inputs"][0]
            data = [float(v) for v in np.nan_to_num(rows).ravel()]
            assert len(outputs(name, [(meta["name"], meta["datatype"], list(rows.shape), data)])[0]["data"]) == len(rows)


def test_a_configuration_counts_more_than_the_type(fleet, store):
    server, = fleet([], options=[f"--mesh-models={store}"])
    with Rest(server.http) as rest:
        assert registered(rest, "m", "files", "python")["status"] == "LOADED"
    answers(server, "m")


def test_key_of_kserve_says_what_the_type_does_not(fleet, store):
    """With a runtime of its choice KServe's controller registers the type rt:RUNTIME, and the format in the key."""
    shutil.copy(repo.STOCK / "simple" / "1" / "model.onnx", store / "net.bin")
    (store / "echo").write_text(ECHO)
    server, = fleet([], options=[f"--mesh-models={store}", "--mesh-label=rt:millrace-1",
                                 '--mesh-constraints={"rt:millrace-1": {"required": ["rt:millrace-1"]}, "_default": {"required": ["_none"]}}', *pymodels.options()])
    key = '{"storage_key": "s", "storage_params": {"bucket": "b", "model_type": 1}, "model_type": %s, "disk_size_bytes": 7}'
    with Rest(server.http) as rest:
        for name, kind in (("a", '"onnx"'), ("b", '{"name": "onnx", "version": "1"}'), ("c", '{"version": "1", "name": "onnx"}')):
            assert registered(rest, name, "net.bin", "rt:millrace-1", key % kind)["status"] == "LOADED", server.err()
        assert registered(rest, "d", "net.bin", "rt:millrace-1", key % '"python"')["status"] == "LOADING_FAILED"
        assert registered(rest, "e", "echo", "rt:millrace-1", key % '"python"')["status"] == "LOADED", server.err()
        for name, k in (("f", key % '"keras"'), ("g", key % "[1"), ("h", "onnx"), ("i", "")):
            assert "type 'rt:millrace-1', which is none of onnx" in reason(registered(rest, name, "net.bin", "rt:millrace-1", k))


def test_types_that_are_not_known(fleet, store):
    """They are for rules; only what the files do not say either fails, with those that are known."""
    shutil.copy(repo.STOCK / "simple" / "1" / "model.onnx", store / "net.onnx")
    (store / "data.bin").write_bytes(b"x")
    (store / "folder").mkdir()
    (store / "folder" / "weights.dat").write_bytes(b"x")
    server, = fleet([], options=[f"--mesh-models={store}"])
    with Rest(server.http) as rest:
        assert registered(rest, "m", "net.onnx", "vision")["status"] == "LOADED"
        for name, path in (("a", "data.bin"), ("b", "folder")):
            assert "type 'mt:keras:2', which is none of onnx, python, xgboost, lightgbm, sklearn" in reason(registered(rest, name, path, "mt:keras:2"))
        assert "not a valid ONNX model" in reason(registered(rest, "c", "data.bin", "onnx"))


SKLEARN = """
import joblib, numpy, sys
from sklearn.linear_model import LogisticRegression
joblib.dump(LogisticRegression().fit(numpy.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]), sys.argv[1])
"""


@pytest.mark.more
def test_sklearn_is_a_model_of_mlserver(fleet, store):
    """A file, a folder with one, and versions."""
    for folder in (store / "folder", store / "versions" / "2"):
        folder.mkdir(parents=True)
    subprocess.run([pymodels.MLSERVER, "-c", SKLEARN, store / "net.joblib"], check=True)
    shutil.copy(store / "net.joblib", store / "folder" / "model.joblib")
    shutil.copy(store / "net.joblib", store / "versions" / "2" / "model.joblib")
    server, = fleet([], options=[f"--mesh-models={store}", *pymodels.options(pymodels.MLSERVER)])
    with Rest(server.http) as rest:
        for name, path in (("a", "net.joblib"), ("b", "folder"), ("c", "versions")):
            assert registered(rest, name, path, "mt:sklearn:1|pv:v2")["status"] == "LOADED", server.err()
            output, = rest.infer(name, [("x", "FP64", [2, 1], [0.1, 2.9])]).ok().json()["outputs"]
            assert (output["name"], output["data"]) == ("predict", [0, 1])


@pytest.mark.more
def test_folder_of_mlserver_takes_the_id_as_name(fleet, store):
    """Two models of one folder, whose settings have a name that counts for neither; a version; and an archive of it."""
    pymodels.add_mlserver(store / "sum", "runtimes.Sum", name="its-own", parameters={"version": "v7"}, max_batch_size=4, max_batch_time=0.01)
    packed(store / "sum.tar.gz", (store / "sum", "."))
    (store / "torn").mkdir()
    (store / "torn" / "model-settings.json").write_text('{"name": ')
    server, = fleet([], options=[f"--mesh-models={store}", *pymodels.options(pymodels.MLSERVER)])
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], "parameters": {"content_type": "np"}}]}
    with Rest(server.http) as rest:
        for name, path, kind in (("isvc-1", "sum", "mt:sklearn:1"), ("isvc-2", "sum", "rt:mlserver-1"), ("isvc-3", "sum.tar.gz", "mlserver")):
            assert registered(rest, name, path, kind)["status"] == "LOADED", server.err()
            got = rest.post(f"/v2/models/{name}/infer", json.dumps(body)).ok().json()
            assert (got["model_name"], got["outputs"][0]["data"]) == (name, [6.0])
            assert rest.get(f"/v2/models/{name}/config").ok().json()["max_batch_size"] == 4
        rest.post("/v2/mesh/models/isvc-1/unregister").ok()
        wait.until(lambda: ask(server, "isvc-1").status == 404, "it to be gone")
        rest.post("/v2/models/isvc-2/infer", json.dumps(body)).ok()
        assert ask(server, "its-own").status == 404
        assert "torn/model-settings.json" in reason(registered(rest, "bad", "torn"))


# ---- archives ----


def packed(target, *members):
    """An archive of (path, name in it), and its checksum."""
    with tarfile.open(target, "w:gz") as t:
        for path, name in members:
            t.add(path, name)
    return target.read_bytes(), hashlib.sha256(target.read_bytes()).hexdigest()


def test_archives_by_path(fleet, store):
    """A model by any name: at the top, in a folder, in `models`; among several, the one by the id; without a configuration by its type."""
    model, net = store / "files", repo.STOCK / "simple" / "1" / "model.onnx"
    repo.add(store / "many", "by-id", repo.config(), extra='name: "whatever"')
    repo.add(store / "many", "other", repo.config())
    for name, *members in (("top", (model, ".")), ("folder", (model, "some-name")), ("models", (model, "project/models/m"), (net, "project/assets/a")),
                           ("several", (store / "many", "models")), ("net", (net, "model.onnx")), ("empty", (net, "assets/a"))):
        packed(store / f"{name}.tar.gz", *members)
    server, = fleet([], options=[f"--mesh-models={store}"])
    with Rest(server.http) as rest:
        for name, path in (("a", "top"), ("b", "folder"), ("c", "models"), ("by-id", "several")):
            assert registered(rest, name, f"{path}.tar.gz", "vision")["status"] == "LOADED", server.err()
            answers(server, name)
        for name, kind in (("d", "onnx"), ("e", "vision")):
            assert registered(rest, name, f"file://{store}/net.tar.gz", kind)["status"] == "LOADED", server.err()
            assert rest.infer(name, SIMPLE).ok().json()["outputs"][0]["data"] == [1] * 16
        assert "none of onnx, python" in reason(registered(rest, "f", "empty.tar.gz", "vision"))
        (store / "late.tar.gz").write_bytes(b"no archive")
        assert "late.tar.gz" in reason(registered(rest, "g", "late.tar.gz"))
        assert reason(registered(rest, "h", f"file:{store.parent}/elsewhere")) and "h" not in rest.post("/v2/repository/index", "{}").ok().body.decode()


def test_addresses(fleet, store, tmp_path):
    """Below what --allow-model-url says, and nowhere else; by any server."""
    content, sha256 = packed(tmp_path / "m.tar.gz", (store / "files", "files"))
    with serving() as web, s3.storage() as storage:
        storage.client.create_bucket(Bucket="models")
        storage.put("models", "in/m.tar.gz", content)
        web.files["/in/m.tar.gz"] = web.files["/secret/m.tar.gz"] = content
        options = ["--allow-model-url=s3://models/in/", f"--allow-model-url={web.url}/in/"]
        servers = fleet([], [], options=options, env=storage.environment())
        with Rest(servers[0].http) as rest:
            for name, path in (("a", "s3://models/in/m.tar.gz"), ("b", f"{web.url}/in/m.tar.gz#sha256={sha256}"),
                               ("c", f"{web.url}/in/m.tar.gz?token=1#sha256={sha256}")):
                assert registered(rest, name, path)["status"] == "LOADED", servers[0].err()
                for server in servers:
                    wait.until(lambda: ask(server, name).status == 200, f"{name} to answer")
            count = len(web.asked)
            for name, path, text in (("d", "s3://models/other/m.tar.gz", "is below no address of --allow-model-url"),
                                     ("e", "s3://models-of-others/in/m.tar.gz", "is below no address"),
                                     ("f", f"{web.url}/secret/m.tar.gz#sha256={sha256}", "is below no address"),
                                     ("g", f"{web.url}/in/../secret/m.tar.gz#sha256={sha256}", "has '/../' in it"),
                                     ("h", f"{web.url}/in/%2e%2e/secret/m.tar.gz#sha256={sha256}", "has '%' in it"),
                                     ("i", f"{web.url}/in/m.tar.gz", "has no checksum"),
                                     ("j", f"{web.url}/in/n.tar.gz#sha256={'0' * 64}", "HTTP status 404"),
                                     ("k", f"file:{store}/files", "leads out of"),
                                     ("l", "files", "no --mesh-models")):
                assert text in reason(registered(rest, name, path)), name
            assert [p for p in web.asked[count:] if "secret" in p] == []
            load = rest.post("/v2/repository/models/m/load", {"parameters": {"url": "s3://models/in/m.tar.gz"}})
            assert load.status == 403 and "registered with their addresses" in load.error
            rest.post("/v2/mesh/models/a/unregister").ok()
            wait.until(lambda: ask(servers[0], "a").status == 404, "it to be gone")
            assert registered(rest, "a", "s3://models/in/m.tar.gz")["status"] == "LOADED"
        assert "token" not in servers[0].err() + servers[1].err()


@pytest.mark.parametrize("has_folder", [True, False])
def test_addresses_only_where_they_are_allowed(fleet, store, models, has_folder):
    server, = fleet(models, options=[f"--mesh-models={store}"] if has_folder else [])
    with Rest(server.http) as rest:
        assert "--allow-model-url" in reason(registered(rest, "a", "s3://models/in/m.tar.gz"))


@pytest.mark.parametrize("url", ["s3://models", "s3:///", "https://host", "https://", "file:/", "file:models/", "https://user@host/", "host/"])
def test_address_that_is_none(tmp_path, url):
    done = subprocess.run([BIN, "serve", f"--mesh=file:{tmp_path}/r", f"--allow-model-url={url}"], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 2 and "allow-model-url" in done.stderr and "end with '/'" in done.stderr
