"""Boosted trees by the C libraries of XGBoost and LightGBM: the answers of their Python packages, and what is refused."""
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from lib import repo
from lib.control import Control
from lib.models import trees
from lib.repo import tensor
from lib.rest import Rest
from lib.server import BIN, clean_environment

KINDS = ("regression", "binary", "classes")
TYPES = {"FP32": np.float32, "FP64": np.float64, "INT64": np.int64, "INT32": np.int32}


@pytest.fixture
def start(start):
    def make(*args, named=True, **kw):
        return start(args[0], *(trees.options() if named else []), *args[1:], **kw)
    return make


def ask(port, model, x, *outputs):
    """The outputs of an answer, as arrays by name."""
    with Rest(port) as rest:
        asked = {"outputs": [{"name": o} for o in outputs]} if outputs else {}
        reply = rest.infer_binary(model, [{"name": "input__0", "datatype": "FP32", "shape": list(x.shape)}], [x.tobytes()],
                                  parameters={"binary_data_output": True}, **asked)
        document, blobs = reply.ok().parts()
    return {o["name"]: np.frombuffer(blobs[o["name"]], TYPES[o["datatype"]]).reshape(o["shape"]) for o in document["outputs"]}


def assert_same(found, expected):
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("library,file", [("xgboost", "model.json"), ("xgboost", "model.ubj"), ("xgboost", "model.bst"),
                                          ("lightgbm", "model.txt"), ("lightgbm", "model.bst")])
def test_same_answers(models, start, library, file):
    """Batches of all sizes with missing values, with no configuration but what the file's name leaves open."""
    made = {kind: getattr(trees, library)(kind) for kind in KINDS}
    for kind, model in made.items():
        text = f'backend: "{library}"\n' if file == "model.bst" else ""
        trees.save(model, models, kind, file, text + "max_batch_size: 64" if kind == "binary" else text)
    server = start(models)
    for kind, model in made.items():
        for count in (1, 2, 3, 64) if kind == "binary" else (1, 4):
            x = trees.rows(count)
            answer = ask(server.http, kind, x)
            assert list(answer) == ["output__0"]
            assert_same(answer["output__0"], trees.predicted(model, x))


def test_what_is_completed(models, start):
    trees.save(trees.xgboost("classes"), models, "x", "model.json")
    trees.save(trees.lightgbm("binary"), models, "l", "model.txt", 'backend: "lightgbm"\noutput [ { name: "predict" } ]')
    server = start(models)
    with Rest(server.http) as rest:
        x, l = (rest.get(f"/v2/models/{m}").ok().json() for m in "xl")
        config = rest.get("/v2/models/x/config").ok().json()
    assert x["inputs"] == [{"name": "input__0", "datatype": "FP32", "shape": [-1, trees.FEATURES]}]
    assert x["outputs"] == [{"name": "output__0", "datatype": "FP32", "shape": [-1, trees.CLASSES]}]
    assert l["outputs"] == [{"name": "predict", "datatype": "FP64", "shape": [-1, 1]}]
    assert config["backend"] == "xgboost" and config["max_batch_size"] == 4 and "dynamic_batching" in config
    assert config["default_model_filename"] == "model.json"


NAMED = "max_batch_size: 16\noutput [ { name: \"output__0\" }, { name: \"predict\" }, { name: \"predict_proba\" } ]"


def test_classifiers_of_scikit_learn(models, start):
    """Labels and probabilities of both classes, as XGBClassifier answers them, up to the best iteration."""
    for kind in ("binary", "classes"):
        trees.save(trees.xgboost(kind, estimator="classifier", best=2), models, kind, "model.json", NAMED)
    softmax = trees.xgboost("classes", estimator="classifier", objective="multi:softmax")
    trees.save(softmax, models, "softmax", "model.json", 'output [ { name: "predict" } ]')
    server = start(models)
    x = trees.rows(16)
    for kind in ("binary", "classes"):
        answer = ask(server.http, kind, x)
        model = trees.xgboost(kind)
        best = trees.predicted(model, x, iteration_range=(0, 3))
        assert_same(answer["output__0"], trees.predicted(model, x))
        assert_same(answer["predict_proba"], best if kind == "classes" else np.hstack([1 - best, best]))
        labels = best.argmax(axis=1) if kind == "classes" else best[:, 0] > 0.5
        assert answer["predict"].dtype == np.int64
        assert_same(answer["predict"], labels.reshape(-1, 1).astype(np.int64))
        assert list(ask(server.http, kind, x, "predict")) == ["predict"]
    answer = ask(server.http, "softmax", x[:4])["predict"]
    assert answer.dtype == np.int32
    assert_same(answer, trees.predicted(softmax, x[:4]).astype(np.int32))


def test_probabilities_of_a_booster(models, start):
    """A model that no classifier wrote: probabilities by its objective, and what Booster.predict answers as its prediction."""
    trees.save(trees.xgboost("binary"), models, "x", "model.json", NAMED)
    server = start(models)
    x = trees.rows(5)
    answer = ask(server.http, "x", x)
    expected = trees.predicted(trees.xgboost("binary"), x)
    assert_same(answer["predict"], expected)
    assert_same(answer["predict_proba"], np.hstack([1 - expected, expected]))


def test_probabilities_of_two_classes(models, start):
    """Of multi:softprob, which has a column for each of them."""
    model = trees.xgboost("binary", objective="multi:softprob", num_class=2)
    trees.save(model, models, "x", "model.json", NAMED)
    server = start(models)
    x = trees.rows(5)
    answer = ask(server.http, "x", x)
    assert answer["predict_proba"].shape == (5, 2)
    assert_same(answer["predict_proba"], trees.predicted(model, x))


def test_other_boosters_and_categories(models, start):
    """Trees with dropout, and a model with a direct output of several targets."""
    dart = trees.xgboost("regression", booster="dart", rate_drop=0.3)
    trees.save(dart, models, "dart", "model.json")
    several = trees.xgboost_of_targets(2)
    trees.save(several, models, "several", "model.json")
    server = start(models)
    x = trees.rows(4)
    for name, model in (("dart", dart), ("several", several)):
        assert_same(ask(server.http, name, x)["output__0"], trees.predicted(model, x))


@pytest.mark.few
@pytest.mark.parametrize("library,threads,count", [("xgboost", 1, 12), ("lightgbm", 1, 12), ("xgboost", 2, 2), ("lightgbm", 2, 2)])
def test_many_at_once(models, start, library, threads, count):
    """Clients of two models, each with rows of its own, beside one another."""
    made = {kind: getattr(trees, library)(kind) for kind in ("regression", "classes")}
    for kind, model in made.items():
        text = f'backend: "{library}"\nmax_batch_size: 32\ndynamic_batching {{ }}\ninstance_group [ {{ count: 3 kind: KIND_CPU }} ]'
        trees.save(model, models, kind, "model.json" if library == "xgboost" else "model.txt", text)
    server = start(models, f"--backend-config={library},threads={threads}")

    def client(number):
        kind = ("regression", "classes")[number % 2]
        return [(kind, x, ask(server.http, kind, x)["output__0"])
                for x in (trees.rows(1 + (number + i) % 9, seed=100 * number + i) for i in range(count))]

    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(client, range(8)):
            for kind, x, found in answers:
                assert_same(found, trees.predicted(made[kind], x))


@pytest.mark.parametrize("library", trees.LIBRARIES)
def test_bad_requests(models, start, library):
    trees.save(getattr(trees, library)("regression"), models, "m", "model.json" if library == "xgboost" else "model.txt")
    server = start(models)

    def refused(shape, datatype="FP32", name="input__0", **fields):
        with Rest(server.http) as rest:
            reply = rest.infer("m", [(name, datatype, shape, [0] * int(np.prod(shape)))], **fields)
            assert reply.status == 400
            return reply.error

    for width in (trees.FEATURES - 1, trees.FEATURES + 1):
        assert f"unexpected shape for input 'input__0' for model 'm'. Expected [-1,{trees.FEATURES}], got [2,{width}]" in refused([2, width])
    assert "batch-size" in refused([5, trees.FEATURES])
    assert "FP64" in refused([1, trees.FEATURES], "FP64")
    assert "'x'" in refused([1, trees.FEATURES], name="x")
    assert "'probability'" in refused([1, trees.FEATURES], outputs=[{"name": "probability"}])
    assert ask(server.http, "m", trees.rows(1))["output__0"].shape == (1, 1)


def test_no_rows(models, start):
    for library, file in (("xgboost", "model.json"), ("lightgbm", "model.txt")):
        trees.save(getattr(trees, library)("classes"), models, library, file, "max_batch_size: 0")
    server = start(models)
    for library in trees.LIBRARIES:
        x = trees.rows(7)
        assert ask(server.http, library, x[:0])["output__0"].shape == (0, trees.CLASSES)
        assert ask(server.http, library, x)["output__0"].shape == (7, trees.CLASSES)


def broken(good, way):
    return {"empty": b"", "noise": bytes(range(256)) * 8, "text": b"no model\n", "half": good[:len(good) // 2],
            "beginning": good[:40], "json": b'{"learner": {}, "version": [3, 0, 0]}', "array": b"[1, 2]"}[way]


@pytest.mark.parametrize("library,file,says", [("xgboost", "model.json", "XGBoost cannot open the model"), ("xgboost", "model.ubj", "XGBoost cannot open the model"),
                                               ("lightgbm", "model.txt", "LightGBM cannot open the model")])
def test_broken_files(models, explicit, library, file, says):
    """Each is the reason of its model alone, in one line."""
    good = trees.save(getattr(trees, library)("binary"), models, "m", file)
    data = (good / "1" / file).read_bytes()
    server, control = explicit(*trees.options())
    for way in ("empty", "noise", "text", "half", "beginning", "json", "array"):
        repo.write(good / "1" / file, broken(data, way))
        reply = control.load("m")
        assert reply.status == 400, (way, reply.body)
        assert ("is empty" if way == "empty" else says) in reply.error, (way, reply.error)
        assert "Stack" not in reply.error and "\n" not in reply.error, reply.error
    repo.write(good / "1" / file, data)
    control.load("m").ok()
    assert ask(server.http, "m", trees.rows(3))["output__0"].shape == (3, 1)


@pytest.mark.parametrize("name,text,says", [
    ("linear", "", "Inplace predict is not supported by the current booster"),
    ("regression", 'output [ { name: "predict_proba" } ]', "unexpected inference output 'predict_proba', allowed outputs are: output__0, predict"),
    ("regression", 'input [ { name: "x" } ]', "unexpected inference input 'x', allowed inputs are: input__0"),
    ("regression", f"max_batch_size: 4\ninput [ {tensor('input__0', 'TYPE_FP32', (3,))} ]", "the model expects 2 dimensions (shape [-1,5])"),
    ("regression", f"max_batch_size: 4\noutput [ {tensor('output__0', 'TYPE_FP64', (1,))} ]", "model provides TYPE_FP32"),
    ("regression", 'default_model_filename: "model.ubj"', "cannot read the model file"),
])
def test_models_that_do_not_load(models, explicit, name, text, says):
    model = trees.xgboost("regression", booster="gblinear" if name == "linear" else "gbtree")
    trees.save(model, models, "m", "model.json", 'backend: "xgboost"\n' + text)
    _, control = explicit(*trees.options())
    assert says in control.load("m").error


def test_without_the_library(models, start):
    """The reason says what is missing, where it was looked for, and how to name it."""
    for library, file in (("xgboost", "model.json"), ("lightgbm", "model.txt")):
        trees.save(getattr(trees, library)("binary"), models, library, file)
    server = start(models, mode="explicit", env={"PATH": "/usr/bin"}, named=False)
    with Control(server) as control:
        for library, names in (("xgboost", ("libxgboost.so", "xgboost/lib/libxgboost.so")),
                               ("lightgbm", ("lib_lightgbm.so", "lightgbm/lib/lib_lightgbm.so"))):
            says = control.load(library).error
            assert all(words in says for words in (*names, f"--backend-config={library},library=PATH")), says


def test_a_library_that_is_none(models, explicit, tmp_path):
    trees.save(trees.xgboost("binary"), models, "x", "model.json")
    trees.save(trees.lightgbm("binary"), models, "l", "model.txt")
    (tmp_path / "no.so").write_text("nothing")
    _, control = explicit(f"--backend-config=xgboost,library={tmp_path}/no.so",
                          f"--backend-config=lightgbm,library={trees.library('xgboost')}")
    assert f"{tmp_path}/no.so" in control.load("x").error
    assert "it has no LGBM_" in control.load("l").error


def test_library_of_a_python_in_path(models, start, tmp_path):
    """An environment beside a folder of PATH is found without being named."""
    packages = tmp_path / "env" / "lib" / "python3.9" / "site-packages"
    packages.mkdir(parents=True)
    for library in trees.LIBRARIES:
        (packages / library).symlink_to(Path(trees.library(library)).parents[1])
        trees.save(getattr(trees, library)("binary"), models, library, "model.json" if library == "xgboost" else "model.txt")
    (tmp_path / "env" / "bin").mkdir()
    server = start(models, "--backend-config=xgboost,threads=1", env={"PATH": f"{tmp_path}/env/bin:/usr/bin"}, named=False)
    for library in trees.LIBRARIES:
        assert ask(server.http, library, trees.rows(2))["output__0"].shape == (2, 1)


def test_in_a_process(models, start):
    """A worker finds the library where it may read."""
    process = 'parameters { key: "execution_placement" value { string_value: "process" } }'
    model = trees.xgboost("classes")
    trees.save(model, models, "m", "model.json", process)
    server = start(models, "--worker-confinement=limits,seccomp")
    x = trees.rows(4)
    assert_same(ask(server.http, "m", x)["output__0"], trees.predicted(model, x))


@pytest.mark.parametrize("setting,says", [("threads=0", "1..1024"), ("threads=many", "'many'"), ("depth=3", "it has library and threads")])
def test_bad_settings(models, explicit, setting, says):
    trees.save(trees.xgboost("binary"), models, "m", "model.json")
    _, control = explicit(*trees.options(f"--backend-config=xgboost,{setting}"))
    assert says in control.load("m").error


def test_updates_under_way(models, start):
    """A model is replaced by another one while clients ask; each answer is that of one of the two."""
    made = [trees.xgboost("classes", seed=i, subsample=0.5) for i in range(2)]
    folder = trees.save(made[0], models, "m", "model.json")
    server = start(models, mode="explicit")
    x = trees.rows(4)
    expected = [trees.predicted(m, x) for m in made]
    with Control(server) as control, ThreadPoolExecutor(2) as pool:
        control.load("m").ok()
        for i in range(6):
            asked = pool.map(lambda _: ask(server.http, "m", x)["output__0"], range(10))
            made[(i + 1) % 2].save_model(str(folder / "1" / "new.json"))
            (folder / "1" / "new.json").replace(folder / "1" / "model.json")
            control.load("m").ok()
            for found in asked:
                assert any(np.allclose(found, e, rtol=1e-6, atol=0) for e in expected)
            assert_same(ask(server.http, "m", x)["output__0"], expected[(i + 1) % 2])


def test_doctor(tmp_path):
    """A library that is absent is no fault of the machine."""
    reply = subprocess.run([BIN, "doctor"], capture_output=True, text=True, env=clean_environment({"PATH": "/nowhere"}))
    lines = [line for line in reply.stdout.splitlines() if "xgboost" in line or "lightgbm" in line]
    assert len(lines) == 2 and all("not there" in line for line in lines), reply.stdout
