"""Models that are registered with a path: where they are, and what they are by their type."""
import shutil
import subprocess

import numpy as np
import pytest

from lib import pymodels, repo, wait
from lib.models import trees
from lib.rest import Rest
from lib.services.mesh import answers, ask


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    repo.add(folder, "files", repo.config())
    repo.add(tmp_path / "elsewhere", "secret", repo.config())
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    return folder


def registered(rest, name, path, kind="mt:onnx"):
    return rest.post(f"/v2/mesh/models/{name}/register", {"type": kind, "path": str(path), "load_now": True, "sync": True}).ok().json()


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
