"""Models in Python that ask other models (BLS): through the server's scheduler, by shared memory."""
import json
from pathlib import Path

import pytest

from lib import pymodels, repo, wait
from lib.metrics import value
from lib.rest import Rest, infer_path
from lib.server import Server
from lib.workers import asked, group, pids

MODELS = Path(__file__).parent / "models"
TEXT = {"inputs": [repo.tensor("INPUT0", "TYPE_STRING", (1,))], "outputs": [repo.tensor("OUTPUT0", "TYPE_STRING", (1,))]}
DECOUPLED = "model_transaction_policy { decoupled: true }"


@pytest.fixture
def start(start):
    def make(*args, **kw):
        return start(args[0], *pymodels.options(), *args[1:], **kw)
    return make


def add_countdown(models):
    pymodels.add(models, "countdown", MODELS / "countdown.py", inputs=[repo.tensor("INPUT0", "TYPE_INT32", (1,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_INT32", (1,))], extra=DECOUPLED)


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """ask(word): what the model m answers to it. One server for all tests."""
    folder = tmp_path_factory.mktemp("calls")
    models = folder / "models"
    pymodels.add(models, "m", MODELS / "caller.py", **TEXT)
    pymodels.add(models, "add_sub", MODELS / "add_sub.py", max_batch_size=8, extra="dynamic_batching { }",
                 **{k: [repo.tensor(f"{n}{i}", "TYPE_FP32", (4,)) for i in range(2)]
                    for k, n in (("inputs", "INPUT"), ("outputs", "OUTPUT"))})
    add_countdown(models)
    pymodels.add(models, "behind", MODELS / "behind.py", **TEXT, extra=DECOUPLED)
    repo.add(models, "copy", inputs=[repo.tensor("INPUT0", "TYPE_FP32")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")])
    repo.add(models, "deep", **{k: [repo.tensor(name, "TYPE_FP32", (1,) * 30 + (2, 3))] for k, name in (("inputs", "INPUT0"), ("outputs", "OUTPUT0"))})
    repo.add(models, "texts", inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")],
             parameters={"execution_placement": "process"})
    server = Server(folder / "server", [models], *pymodels.options()).wait_ready()
    with Rest(server.http) as rest:
        def make(word, model="m"):
            body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]}
            return rest.post(infer_path(model), json.dumps(body)).ok().json()["outputs"][0]["data"][0]
        make.server = server
        yield make
    server.stop()


@pytest.mark.few(4)
@pytest.mark.parametrize("word,answer", [
    ("sync", "3.0"),
    ("several", str([float(i + 2) for i in range(20)])),
    ("many", "True"),
    ("coroutines", str(["2: Request for unknown model: 'nobody' is not found", True, [0, 1, 2],
                        "model 'countdown' gives several answers: exec(decoupled=True)"])),
    ("large", "True"),
    ("deep", "True"),
    ("strings", "[1, 0, 1000]"),
    ("unknown", "2: Request for unknown model: 'nobody' is not found"),
    ("refused", "3: expected 2 inputs but got 1 inputs for model 'add_sub'. Got input(s) ['INPUT0'], but missing required "
                "input(s) ['INPUT1']. Please provide all required input(s)."),
    ("itself", "3: model 'm' would wait for itself: its 1 instance already waits for this call"),
    ("decoupled", "True"),
    ("stopped", "[0, 1, 2]"),
])
def test_calls(ask, word, answer):
    for _ in range(2):
        assert ask(word) == answer


def copies(ask):
    return value(ask.server, "nv_inference_request_success", model="copy")


def test_call_of_a_dead_process(ask):
    """It lies behind answers that nobody read while the process lived: it is not started, and its successor has no answer to it."""
    before = copies(ask)
    assert "the worker process ended while it was answering this request" in ask("call_of_the_dead")
    assert ask("sync") == "3.0" and copies(ask) == before + 1


def test_call_that_has_ended_before_it_is_read(ask):
    """It is not started."""
    before = copies(ask)
    assert ask("ended_call") == "[]" and copies(ask) == before + 2


def test_cycle(models, start):
    """Of two models that call each other, the second gets the error that it would wait for ever."""
    for name in ("m", "other"):
        pymodels.add(models, name, MODELS / "caller.py", **TEXT)
    server = start(models)
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["round_trip"]}]}
        answer = rest.post(infer_path("m"), json.dumps(body)).ok().json()["outputs"][0]["data"][0]
    assert answer.endswith("model 'm' would wait for itself: its 1 instance already waits for this call")


def test_timeout(models, start, hold):
    """A model that does not answer in time, and answers others later; a request's own limit in its queue, while it is busy."""
    pymodels.add(models, "m", MODELS / "caller.py", **TEXT)
    repo.add(models, "held", backend="fault", parameters={k: v for k, v in hold.parameters.items()}, inputs=[repo.tensor("INPUT0")],
             outputs=[repo.tensor("OUTPUT0")], extra="dynamic_batching { default_queue_policy { allow_timeout_override: true } }")
    server = start(models)
    with Rest(server.http) as rest:
        def say(word):
            body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": [word]}]}
            return rest.post(infer_path("m"), json.dumps(body)).ok().json()["outputs"][0]["data"][0]
        for word in ("patient", "patient_coroutine"):
            assert say(word) == "1: no answer of the other model within 0.01 s"
        thread, _ = asked(server, "held", [0])  # the calls above may have gone before it took them
        hold.wait_held()
        assert say("queued") == "4: Request timeout expired"
    hold.end()
    thread.join()


def test_unread_answers(models, start):
    """A worker that leaves them unread does not wait for the other model: it hangs."""
    pymodels.add(models, "m", MODELS / "caller.py", **TEXT)
    add_countdown(models)
    server = start(models, "--worker-hang-timeout=1s")
    with Rest(server.http) as rest:
        body = {"inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1], "data": ["forgetful"]}]}
        assert rest.post(infer_path("m"), json.dumps(body)).ok().json()["outputs"][0]["data"] == ["again"]


def test_killed_caller(ask):
    """Its calls end with it: another process serves, and the other model too."""
    import os
    import signal

    pid, = pids(ask.server, "m")
    assert ask("stopped") == "[0, 1, 2]"
    os.kill(pid, signal.SIGKILL)
    wait.until(lambda: pids(ask.server, "m") not in ([], [pid]), "another worker")
    assert ask("decoupled") == "True" and ask("sync") == "3.0"
