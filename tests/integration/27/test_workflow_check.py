"""`millrace workflow check`, and Paddle Serving's files served as they are."""
import json
import os
import subprocess

import pytest

from lib import onnxgen, repo
from lib.rest import Rest, infer_path

MILLRACE = os.environ["MR_BIN"]


def check(*args, code=0):
    done = subprocess.run([MILLRACE, "workflow", "check", *map(str, args)], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


ENSEMBLE = """
name: "{name}"
platform: "ensemble"
input {{ name: "IN" data_type: TYPE_INT32 dims: -1 }}
output {{ name: "OUT" data_type: {dtype} dims: -1 }}
ensemble_scheduling {{
  step {{ model_name: "a" model_version: -1 input_map {{ key: "INPUT0" value: "IN" }} output_map {{ key: "OUTPUT0" value: "t" }} }}
  step {{ model_name: "b" model_version: -1 input_map {{ key: "INPUT0" value: "t" }} output_map {{ key: "OUTPUT0" value: "OUT" }} }}
}}
"""


@pytest.fixture
def models(tmp_path):
    folder = tmp_path / "models"
    for name, number in (("a", 1), ("b", 10)):
        repo.add(folder, name, onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(number)})
    return folder


def put(models, name, text):
    (models / name / "1").mkdir(parents=True)
    (models / name / "config.pbtxt").write_text(text)
    return models / name


def test_proven(models):
    folder = put(models, "both", ENSEMBLE.format(name="both", dtype="TYPE_INT32"))
    for path in (folder, folder / "config.pbtxt", models):
        assert "2 nodes in 2 steps, all checks passed" in check(path).stdout


def test_a_file_alone(models, tmp_path):
    path = tmp_path / "x.pbtxt"
    path.write_text(ENSEMBLE.format(name="both", dtype="TYPE_INT32"))
    assert "all checks passed" in check(path, "--model-repository", models).stdout
    assert len(check(path, code=1).stderr.splitlines()) == 1


def test_refused(models):
    folder = put(models, "both", ENSEMBLE.format(name="both", dtype="TYPE_FP32"))
    done = check(folder, code=1)
    assert done.stderr.startswith(f"millrace workflow: {folder}/config.pbtxt:") and len(done.stderr.splitlines()) == 1
    assert "OUT" in done.stderr


def test_no_graph(models):
    assert "holds no ensemble and no workflow" in check(models, code=1).stderr
    assert "has neither" in check(models / "a", code=1).stderr


def test_a_service_of_paddle(tmp_path, start):
    """infer_service.prototxt and its files, two engines in a workflow of Paddle Serving."""
    conf = tmp_path / "conf"
    conf.mkdir()
    for name, number in (("first", 1), ("second", 10)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.onnx").write_bytes(onnxgen.adder(number))
    texts = {
        "infer_service": 'port: 8010 services { name: "Sum" workflows: "w" }',
        "workflow": '''workflows { name: "w" workflow_type: "Sequence"
            nodes { name: "read" type: "GeneralReaderOp" }
            nodes { name: "first" type: "GeneralInferOp" dependencies { name: "read" mode: "RO" } }
            nodes { name: "second" type: "GeneralInferOp" dependencies { name: "first" mode: "RO" } }
            nodes { name: "answer" type: "GeneralResponseOp" dependencies { name: "second" mode: "RO" } } }''',
        "resource": '''model_toolkit_path: "./conf/" model_toolkit_file: "model_toolkit.prototxt"
            general_model_path: "./conf/" general_model_file: "general.prototxt"
            general_model_path: "./conf/" general_model_file: "general.prototxt"''',
        "model_toolkit": '''engines { name: "first" type: "PADDLE_INFER" model_dir: "./first" }
            engines { name: "second" type: "PADDLE_INFER" model_dir: "./second" }''',
        "general": '''feed_var { name: "INPUT0" alias_name: "x" feed_type: 2 }
            fetch_var { name: "OUTPUT0" alias_name: "y" fetch_type: 2 }''',
    }
    for name, text in texts.items():
        (conf / f"{name}.prototxt").write_text(text)
    empty = tmp_path / "models"
    empty.mkdir()
    server = start(empty, "--paddle-service", str(conf / "infer_service.prototxt"), "--archive-cache", str(tmp_path / "cache"))
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}]}
        output = rest.post(infer_path("Sum"), json.dumps(body)).ok().json()["outputs"][0]
    assert output["data"] == [12, 13, 14]
