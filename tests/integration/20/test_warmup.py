"""model_warmup: samples run on every instance before a model is ready, and are not the clients' business."""
import numpy as np
import pytest

from lib import repo
from lib.control import Control


def sample(name="sample", batch=1, count=0, data="zero_data: true", dims="[4]"):
    return (f'model_warmup {{ name: "{name}" batch_size: {batch} {f"count: {count}" if count else ""} '
            f'inputs {{ key: "INPUT0" value {{ data_type: TYPE_INT32 dims: {dims} {data} }} }} }}\n')


@pytest.fixture
def load(models, start):
    """load(extra, **config): a Control of a server whose model `m` has that config."""
    made = []

    def run(extra, files=None, **kw):
        repo.add(models, "m", repo.config(backend="fault", extra=extra, **{"max_batch_size": 8, **kw}), files=files)
        made.append(Control(start(models)))
        return made[-1]

    yield run
    [c.close() for c in made]


def ask(c):
    return c.rest.infer("m", [("INPUT0", "INT32", [1, 4], [1, 2, 3, 4])])


@pytest.mark.parametrize("extra, instances, runs", [
    (sample(), 1, 1), (sample(count=3), 1, 3), (sample("a") + sample("b", count=2), 1, 3), (sample(count=2), 3, 6)],
    ids=["one", "three times", "two samples", "three instances"])
def test_every_sample_runs_on_every_instance(load, extra, instances, runs):
    """The model fails at execution number runs + 1: the first one of a client."""
    c = load(extra + f"instance_group {{ count: {instances} kind: KIND_CPU }}",
             parameters={"fail_every": runs + 1, "fail_status": "NOT_FOUND"})
    assert ask(c).status == 404
    assert ask(c).status == 200


@pytest.mark.parametrize("data", ["zero_data: true", "random_data: true"])
def test_made_up_data(load, data):
    assert ask(load(sample(data=data, batch=8))).status == 200


def test_data_of_a_file(load):
    blob = np.arange(4, dtype="<i4").tobytes()
    assert ask(load(sample(data='input_data_file: "four.bin"'), files={"warmup/four.bin": blob})).status == 200


def test_model_without_batching(load):
    c = load(sample(batch=0), max_batch_size=0)
    assert c.rest.infer("m", [("INPUT0", "INT32", [4], [1, 2, 3, 4])]).status == 200


def test_warm_up_is_not_counted(load):
    c = load(sample(count=5))
    (s,) = c.stats("m")
    assert s["inference_count"] == s["execution_count"] == s["inference_stats"]["success"]["count"] == 0
    assert s["last_inference"] == 0


def test_strings(models, start):
    repo.add(models, "m", max_batch_size=2, inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")],
             extra='model_warmup { name: "s" batch_size: 2 inputs { key: "INPUT0" value { data_type: TYPE_STRING dims: [3] zero_data: true } } }')
    with Control(start(models)) as c:
        assert c.model_ready("m")


def test_onnx(models, start):
    repo.stock(models, "simple")
    config = models / "simple" / "config.pbtxt"
    config.write_text(config.read_text() + 'model_warmup { name: "s" batch_size: 8 ' + "".join(
        f'inputs {{ key: "INPUT{i}" value {{ data_type: TYPE_INT32 dims: [16] random_data: true }} }} ' for i in (0, 1)) + "}")
    with Control(start(models)) as c:
        assert c.model_ready("simple") and c.stats("simple")[0]["execution_count"] == 0
