"""Folders of MLServer's runtimes for XGBoost and LightGBM, which run without Python."""
import json

import numpy as np
import pytest
import tritonclient.grpc as grpc

from lib import repo
from lib.control import Control
from lib.models import trees
from lib.rest import Rest, infer_path

XGBOOST = "mlserver_xgboost.XGBoostModel"
LIGHTGBM = "mlserver_lightgbm.LightGBMModel"


def add(model, folder, implementation, file, **settings):
    """A folder of MLServer's with the model's file and its settings."""
    folder.mkdir(parents=True)
    model.save_model(str(folder / file))
    (folder / "model-settings.json").write_text(json.dumps({"name": folder.name, "implementation": implementation, **settings}))


@pytest.fixture
def start(start):
    """Without an interpreter that could run any of the models."""
    def make(*args, named=True, **kw):
        return start(args[0], "--python=/nowhere/python3", *(trees.options() if named else []), *args[1:], **kw)
    return make


def ask(server, model, *inputs, **fields):
    with Rest(server.http) as rest:
        return rest.post(infer_path(model), json.dumps({"inputs": list(inputs), **fields}))


def tensor(x, name="anything", datatype="FP32"):
    """With missing values as null, and the rows nested."""
    data = [[None if np.isnan(v) else float(v) for v in row] for row in x]
    return {"name": name, "datatype": datatype, "shape": list(x.shape), "data": data}


def native(server):
    """For each model: whether it runs without Python, as the log says."""
    return {e["model"]: "without Python" in e["msg"] for e in server.events() if e["event"] == "model.native"}


def assert_same(output, expected):
    assert output["shape"] == list(expected.shape)
    np.testing.assert_allclose(np.array(output["data"]).reshape(expected.shape), expected, rtol=1e-6, atol=0)


def test_xgboost_classifier(models, start):
    """Labels; probabilities when they are asked for; a version by its name; any number of rows."""
    model = trees.xgboost("binary", estimator="classifier")
    add(model, models / "m", XGBOOST, "mine.json", parameters={"uri": "./mine.json", "version": "v0.1.0"})
    server = start(models)
    assert native(server) == {"m": True}
    x = trees.rows(50)
    p = trees.predicted(model, x)
    answer = ask(server, "m", tensor(x)).ok().json()
    assert answer["model_version"] == "v0.1.0" and [o["name"] for o in answer["outputs"]] == ["predict"]
    assert answer["outputs"][0]["datatype"] == "INT64" and answer["outputs"][0]["parameters"] == {"content_type": "np"}
    assert_same(answer["outputs"][0], (p > 0.5).astype(int))
    answer = ask(server, "m", tensor(x, name="other"), outputs=[{"name": "predict_proba"}]).ok().json()
    assert [o["datatype"] for o in answer["outputs"]] == ["FP32"]
    assert_same(answer["outputs"][0], np.hstack([1 - p, p]))
    with Rest(server.http) as rest:
        answer = rest.post("/v2/models/m/generate", json.dumps({"inputs": [tensor(x)]})).ok().json()
    assert_same(answer["outputs"][0], (p > 0.5).astype(int))


@pytest.mark.parametrize("kind", ("regression", "binary", "classes"))
def test_lightgbm(models, start, kind):
    model = trees.lightgbm(kind)
    add(model, models / "m", LIGHTGBM, "model.bst")
    server = start(models)
    x = trees.rows(9)
    for datatype in ("FP32", "FP64"):
        output, = ask(server, "m", tensor(x, datatype=datatype)).ok().json()["outputs"]
        assert output["datatype"] == "FP64" and output["name"] == "predict"
        assert_same(output, trees.predicted(model, x))


def test_numbers_of_a_double(models, start):
    """LightGBM compares with doubles: those that FP32 cannot tell apart are told apart."""
    import lightgbm as lgb

    low, high = 1.0, 1.0 + 2.0 ** -40
    x = np.array([[low], [high]] * 20)
    model = lgb.train({"objective": "regression", "verbosity": -1, "num_threads": 1, "min_data_in_leaf": 1, "min_data_in_bin": 1},
                      lgb.Dataset(x, x[:, 0] > 1), 3)
    assert model.predict([[low]])[0] != model.predict([[high]])[0]
    add(model, models / "m", LIGHTGBM, "model.bst")
    server = start(models)
    output, = ask(server, "m", {"name": "x", "datatype": "FP64", "shape": [2, 1], "data": [low, high]}).ok().json()["outputs"]
    assert_same(output, model.predict([[low], [high]]).reshape(2, 1))


@pytest.mark.few(4)
@pytest.mark.parametrize("datatype", ("BOOL", "UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "UINT64", "INT64", "FP16", "FP32", "FP64"))
def test_types(models, start, datatype):
    """Numbers of any type are the same numbers, over REST and gRPC, of few rows and of many."""
    model = trees.xgboost("regression")
    add(model, models / "m", XGBOOST, "model.ubj")
    server = start(models)
    numpy = np.dtype({"BOOL": "bool"}.get(datatype, datatype.lower().replace("fp", "float")))
    with grpc.InferenceServerClient(server.url("grpc")) as client:
        for rows in (2, 5000):
            x = np.arange(rows * trees.FEATURES).reshape(rows, -1) % 2
            given = grpc.InferInput("x", list(x.shape), datatype)
            given.set_data_from_numpy(x.astype(numpy))
            found = client.infer("m", [given]).as_numpy("predict")
            np.testing.assert_allclose(found, trees.predicted(model, x.astype(np.float32)), rtol=1e-6)
    data = (x[:2] > 0 if datatype == "BOOL" else x[:2]).ravel().tolist()
    output, = ask(server, "m", {"name": "x", "datatype": datatype, "shape": [2, trees.FEATURES], "data": data}).ok().json()["outputs"]
    assert_same(output, trees.predicted(model, x[:2].astype(np.float32)))


def test_refused(models, start):
    add(trees.xgboost("regression"), models / "m", XGBOOST, "model.json")
    server = start(models)
    x = tensor(trees.rows(1))
    for inputs, fields, says in [
        ((x, {**x, "name": "y"}), {}, "The 'np' codec only supports a single input tensor (2 were received)"),
        ((tensor(trees.rows(1)[:, :4]),), {}, f"Expected [-1,{trees.FEATURES}], got [1,4]"),
        (({"name": "x", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]},), {}, "BYTES"),
        ((x,), {"outputs": [{"name": "predict_proba"}]}, "predict_proba"),
    ]:
        reply = ask(server, "m", *inputs, **fields)
        assert reply.status == 400 and says in reply.error, reply.error


def test_versions(models, start):
    """Some of them in folders, beside models of Triton's."""
    made = {v: trees.xgboost("regression", seed=v, subsample=0.5) for v in (1, 2)}
    for v, model in made.items():
        add(model, models / "m" / str(v), XGBOOST, "model.json", name="m", parameters={"version": str(v)})
    trees.save(trees.xgboost("binary"), models, "plain", "model.json")
    server = start(models)
    x = trees.rows(3)
    for v, model in made.items():
        answer = ask(server, f"m/versions/{v}", tensor(x)).ok().json()
        assert answer["model_version"] == str(v)
        assert_same(answer["outputs"][0], trees.predicted(model, x))
    assert ask(server, "plain", tensor(x, name="x")).status == 400


def test_interface_of_a_plain_model(models, start):
    """Triton's layout, asked as MLServer's."""
    model = trees.xgboost("classes", estimator="classifier")
    text = 'max_batch_size: 0\nparameters { key: "interface" value { string_value: "mlserver" } }'
    trees.save(model, models, "m", "model.json", text)
    server = start(models)
    x = trees.rows(6)
    output, = ask(server, "m", tensor(x, datatype="FP64")).ok().json()["outputs"]
    assert_same(output, trees.predicted(model, x).argmax(axis=1).reshape(-1, 1))
    # sizes of which only the lowest bits would be those of the data
    for shape, binary in (([1 << 62, 2], b""), ([(1 << 62) + 512, 2], bytes(2048)), ([1 << 61, 4], b"")):
        with Rest(server.http) as rest:
            reply = rest.infer_binary("m", [{"name": "x", "datatype": "INT16", "shape": shape}], [binary])
            assert reply.status == 400 and "exceed" in reply.error, reply.error


def left_to_python(folder, way, model):
    settings = json.loads((folder / "model-settings.json").read_text())
    if way == "code":
        (folder / "helper.py").write_text("")
    elif way == "subclass":
        settings["implementation"] = "runtimes.Mine"
    elif way == "content type":
        settings["parameters"] = {"content_type": "pd"}
    elif way == "content type of an input":
        settings["inputs"] = [{"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type" : "str"}}]
    elif way == "file elsewhere":
        settings["parameters"] = {"uri": "../model.json"}
    elif way == "no file":
        (folder / "model.json").unlink()
    elif way == "chosen":
        (folder / "config.pbtxt").write_text('backend: "python"')
    (folder / "model-settings.json").write_text(json.dumps(settings))


@pytest.mark.parametrize("way", ("code", "subclass", "content type", "content type of an input", "file elsewhere", "no file", "chosen"))
def test_left_to_python(models, start, way):
    """What uses more of MLServer, or says so, is not tried."""
    model = trees.xgboost("regression")
    add(model, models / "m", XGBOOST, "model.json")
    model.save_model(str(models / "model.json"))
    left_to_python(models / "m", way, model)
    server = start(models, mode="explicit")
    with Control(server) as control:
        assert "/nowhere/python3" in control.load("m").error
    assert native(server) == {}


@pytest.mark.parametrize("way", ("linear", "broken", "no library"))
def test_what_cannot_run_without_python(models, start, way):
    """The log says why, and Python is asked."""
    model = trees.xgboost("regression", booster="gblinear" if way == "linear" else "gbtree")
    add(model, models / "m", XGBOOST, "model.json")
    if way == "broken":
        repo.write(models / "m" / "model.json", "no model")
    server = start(models, mode="explicit", named=way != "no library", env={"PATH": "/usr/bin"})
    with Control(server) as control:
        assert "/nowhere/python3" in control.load("m").error
    assert native(server) == {"m": False}
