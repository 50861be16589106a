"""mmesh.ModelRuntime: what a ModelMesh asks of the server that holds its models."""
import json
import shutil
import subprocess
import tarfile

import grpc
import pytest

from lib import pymodels, repo, wait
from lib.control import Control
from lib.reflected import Reflected
from lib.server import BIN

RUNTIME = "mmesh.ModelRuntime"
READY, STARTING = 1, 0


class Mesh:
    def __init__(self, server):
        self.server, self.grpc, self.control = server, Reflected(server.url("grpc")), Control(server)

    def close(self):
        self.grpc.close()
        self.control.close()

    def __call__(self, method, **fields):
        return self.grpc.call(f"{RUNTIME}/{method}", **fields)

    def load(self, name, path):
        return self("loadModel", modelId=name, modelType="mt:onnx", modelPath=str(path), modelKey="{}")

    def refused(self, method, **fields):
        with pytest.raises(grpc.RpcError) as e:
            self(method, **fields)
        return e.value.code(), e.value.details()


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    return folder


@pytest.fixture
def mesh(start, store):
    made = Mesh(start([], f"--model-runtime={store}"))
    yield made
    made.close()


def answers(mesh, name):
    wait.until(lambda: mesh.control.rest.get(f"/v2/models/{name}/ready").status == 200, "the model to be ready")
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [2], "data": [7, 8]}]}
    got = mesh.control.rest.post(f"/v2/models/{name}/infer", body).ok().json()
    return got["model_name"] == name and got["outputs"][0]["data"] == [7, 8]


def test_state_of_a_new_runtime(mesh):
    state = mesh("runtimeStatus")
    assert state.status == READY and state.runtimeVersion.startswith("millrace ")
    assert state.capacityInBytes >= 2 * state.defaultModelSizeInBytes > 0
    assert state.maxLoadingConcurrency >= 1 and state.modelLoadingTimeoutMs == 90000
    assert not state.allowAnyMethod and not state.limitModelConcurrency
    infer = state.methodInfos["inference.GRPCInferenceService/ModelInfer"]
    assert list(infer.idInjectionPath) == [1]


def test_key_says_what_the_type_does_not(mesh, store):
    shutil.copy(repo.STOCK / "simple" / "1" / "model.onnx", store / "net.bin")
    code, text = mesh.refused("loadModel", modelId="m", modelType="rt:millrace", modelPath=str(store / "net.bin"), modelKey="{}")
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "type 'rt:millrace'" in text
    mesh("loadModel", modelId="m", modelType="rt:millrace", modelPath=str(store / "net.bin"), modelKey='{"model_type": {"name": "onnx"}}')


def test_a_model_from_its_load_to_its_unload(mesh, store):
    """Its files say another name; the id counts."""
    repo.add(store, "files-of-a-model", extra='name: "whatever"', files={"1/model.bin": b"x" * 100000})
    for _ in range(2):  # ids come again
        size = mesh.load("model__isvc-1a2b3c", store / "files-of-a-model").sizeInBytes
        assert size >= 100000
        assert answers(mesh, "model__isvc-1a2b3c")
        assert mesh("modelSize", modelId="model__isvc-1a2b3c").sizeInBytes >= 100000
        mesh("unloadModel", modelId="model__isvc-1a2b3c")
        assert mesh.control.rest.get("/v2/models/model__isvc-1a2b3c/ready").status == 400
    mesh("unloadModel", modelId="model__isvc-1a2b3c")
    mesh("unloadModel", modelId="never-there")
    assert mesh.refused("modelSize", modelId="never-there")[0] == grpc.StatusCode.NOT_FOUND
    assert mesh.control.index() == [] or all(m.get("state") != "READY" for m in mesh.control.index())


def test_what_a_path_may_be(mesh, store):
    stock = repo.STOCK / "simple" / "1" / "model.onnx"
    shutil.copy(stock, store / "net.onnx")
    (store / "folder").mkdir()
    shutil.copy(stock, store / "folder" / "model.onnx")
    repo.add(store, "packed", files={"1/x": b"x"})
    with tarfile.open(store / "packed.tar.gz", "w:gz") as archive:
        archive.add(store / "packed", ".")
    for name, path in (("of-file", "net.onnx"), ("of-folder", "folder")):
        mesh.load(name, store / path)
        body = {"inputs": [{"name": f"INPUT{i}", "datatype": "INT32", "shape": [1, 16], "data": [i] * 16} for i in range(2)]}
        assert mesh.control.rest.post(f"/v2/models/{name}/infer", body).ok().json()["outputs"][0]["data"] == [1] * 16
    mesh.load("of-archive", store / "packed.tar.gz")
    assert answers(mesh, "of-archive")


@pytest.mark.more
def test_folder_of_mlserver(start, store):
    """Its settings say another name; the id counts."""
    pymodels.add_mlserver(store / "sum", "runtimes.Sum", name="other")
    mesh = Mesh(start([], f"--model-runtime={store}", *pymodels.options(pymodels.MLSERVER)))
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], "parameters": {"content_type": "np"}}]}
    for _ in range(2):
        assert mesh.load("isvc", store / "sum").sizeInBytes > 0
        got = mesh.control.rest.post("/v2/models/isvc/infer", json.dumps(body)).ok().json()
        assert (got["model_name"], got["outputs"][0]["data"]) == ("isvc", [6.0])
        mesh("unloadModel", modelId="isvc")
    mesh.close()


def test_paths_that_are_refused(mesh, store, tmp_path):
    repo.add(tmp_path, "outside")
    (store / "link").symlink_to(tmp_path / "outside")
    for path, code in ((tmp_path / "outside", "PERMISSION_DENIED"), (store / "link", "PERMISSION_DENIED"),
                       (store / ".." / "outside", "PERMISSION_DENIED"), ("store/m", "INVALID_ARGUMENT"), ("", "INVALID_ARGUMENT"),
                       (store / "absent", "NOT_FOUND"), ("/" + "x" * 5000, "INVALID_ARGUMENT")):
        got, text = mesh.refused("loadModel", modelId="m", modelPath=str(path))
        assert got.name == code and "failed to load 'm'" in text, (path, got, text)
    for name in ("", "a/b", ".."):
        assert mesh.refused("loadModel", modelId=name, modelPath=str(store))[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert mesh.refused("predictModelSize", modelId="m", modelPath="/x")[0] == grpc.StatusCode.UNIMPLEMENTED


def test_path_that_is_a_link_to_a_volume(start, store, tmp_path):
    """As KServe's puller makes them for models on a PersistentVolumeClaim."""
    volume = tmp_path / "volume"
    volume.mkdir()
    shutil.copy(repo.STOCK / "simple" / "1" / "model.onnx", volume / "net.onnx")
    repo.add(volume, "folder")
    mesh = Mesh(start([], f"--model-runtime={store}", f"--allow-links-to={volume}"))
    for name in ("net.onnx", "folder"):
        (store / name).symlink_to(volume / name)
        assert mesh.load(name, store / name).sizeInBytes > 0
    assert answers(mesh, "folder")
    mesh.close()


def test_a_model_that_does_not_load(mesh, store):
    repo.add(store, "broken", backend="onnxruntime", files={"1/model.onnx": b"no model"})
    code, text = mesh.refused("loadModel", modelId="m", modelPath=str(store / "broken"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "not a valid ONNX model" in text
    mesh("unloadModel", modelId="m")
    repo.add(store, "good")
    mesh.load("m", store / "good")
    assert answers(mesh, "m")


def test_a_mesh_that_starts_anew_finds_nothing_loaded(mesh, store):
    repo.add(store, "files")
    for i in range(3):
        mesh.load(f"m{i}", store / "files")
    assert mesh("runtimeStatus").status == STARTING
    wait.until(lambda: mesh("runtimeStatus").status == READY, "the models to be unloaded")
    assert all(mesh.control.rest.get(f"/v2/models/m{i}/ready").status == 400 for i in range(3))


def test_only_when_asked_for(start, models):
    server = start(models)
    with Reflected(server.url("grpc")) as client:
        with pytest.raises(grpc.RpcError) as e:
            client.call(f"{RUNTIME}/runtimeStatus")
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED and "--model-runtime" in e.value.details()


def test_options_that_do_not_fit(tmp_path):
    for more, text in ((["--allow-grpc=false"], "needs gRPC"), (["--model-control-mode=poll"], "mode=explicit")):
        done = subprocess.run([BIN, "serve", f"--model-runtime={tmp_path}", *more], capture_output=True, text=True, timeout=wait.PATIENCE)
        assert done.returncode == 2 and text in done.stderr
    done = subprocess.run([BIN, "serve", f"--model-runtime={tmp_path}/absent", "--http-port=0", "--grpc-port=0", "--metrics-port=0"],
                          capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 1 and "absent" in done.stderr
