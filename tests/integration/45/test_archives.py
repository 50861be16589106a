"""Models in archives: both layouts of batch workers' models, and what is refused."""
import io
import json
import tarfile
import zipfile

import pytest

from lib import pymodels, repo, wait
from lib.rest import Rest, infer_path

TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
# Answers each word with the number of its line in a file that the models of the archive share.
LOOKUP = '''
import os
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.dirname(os.path.abspath(__file__))
        with open(os.path.join(folder, "..", "..", "..", "assets", "words.txt"), "rb") as f:
            self.words = f.read().split()

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array(
            [str(self.words.index(w)) for w in pb_utils.get_input_tensor_by_name(r, "INPUT0").as_numpy()], dtype=object))])
            for r in requests]
'''


def pack(folder, target):
    """An archive of the folder's content, replaced in one step."""
    part = target.parent / ("." + target.name)
    if target.name.endswith(".zip"):
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as z:
            for file in sorted(folder.rglob("*")):
                z.write(file, file.relative_to(folder))
    else:
        with tarfile.open(part, "w:gz" if target.name.endswith("gz") else "w") as t:
            for file in sorted(folder.iterdir()):
                t.add(file, file.name)
    part.replace(target)


def ask(server, model, word):
    with Rest(server.http) as rest:
        return rest.post(infer_path(model), json.dumps({"inputs": [
            {"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]})).ok().json()["outputs"][0]["data"]


@pytest.fixture
def bundle(tmp_path):
    """assets/ and models/, as batch workers get them."""
    folder = tmp_path / "bundle"
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "words.txt").write_text("zero one two")
    pymodels.add(folder / "models", "lookup", LOOKUP, **TEXT)
    repo.add(folder / "models", "plain")
    return folder


@pytest.mark.few
@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz", "b.zip"])
def test_bundle(models, start, bundle, name):
    pack(bundle, models / name)
    server = start(models, *pymodels.options())
    assert ask(server, "lookup", "two") == ["2"]
    with Rest(server.http) as rest:
        index = rest.post("/v2/repository/index", "{}").ok().json()
    assert [(m["name"], m["state"]) for m in index] == [("lookup", "READY"), ("plain", "READY")]


def test_update(models, start, bundle):
    """A new archive by the same name is an update of its models."""
    pack(bundle, models / "b.tar")
    server = start(models, *pymodels.options(), "--repository-poll-secs=1", mode="poll")
    wait.until(lambda: ready(server, "lookup"), "the model to be ready")
    assert ask(server, "lookup", "two") == ["2"]
    (bundle / "assets" / "words.txt").write_text("two one zero")
    pack(bundle, models / "b.tar")
    wait.until(lambda: ask(server, "lookup", "two") == ["0"], "the new archive")


def ready(server, model):
    with Rest(server.http) as rest:
        return rest.get(f"/v2/models/{model}/ready").status == 200


def test_refused(models, start):
    """A hostile archive is one model's failure, and writes nothing."""
    info = tarfile.TarInfo("../outside")
    info.size = 1
    with tarfile.open(models / "bad.tar", "w") as t:
        t.addfile(info, io.BytesIO(b"1"))
    repo.add(models, "good")
    server = start(models, "--exit-on-error=false")
    with Rest(server.http) as rest:
        index = {m["name"]: m for m in rest.post("/v2/repository/index", "{}").ok().json()}
    assert index["good"]["state"] == "READY"
    assert "bad.tar: entry '../outside' leads out of the archive by '..'" in index["bad"]["reason"]
    assert not list(models.parent.rglob("outside"))


@pytest.mark.parametrize("file", ["", "model.py", "models/README"])
def test_no_model(models, start, tmp_path, file):
    """An archive without a model is a failure as well, so that it is seen."""
    folder = tmp_path / "folder"
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    if file:
        (folder / file).write_text("")
    pack(folder, models / "b.tar")
    server = start(models, "--exit-on-error=false")
    with Rest(server.http) as rest:
        assert "b.tar has no model" in rest.post("/v2/repository/index", "{}").ok().json()[0]["reason"]


def test_mlserver(models, start, tmp_path):
    """MLServer's folder in an archive of that layout; its model is named as its settings say."""
    pymodels.add_mlserver(tmp_path / "bundle" / "models" / "spam", "runtimes.Sum", name="spam")
    pack(tmp_path / "bundle", models / "b.tar")
    server = start(models, *pymodels.options(pymodels.MLSERVER))
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3], "parameters": {"content_type": "np"}}]}
        assert rest.post(infer_path("spam"), json.dumps(body)).ok().json()["outputs"][0]["data"] == [6.0]
