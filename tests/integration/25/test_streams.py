"""Ensembles with models that give several answers: each flows on through what follows, in order."""
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.metrics import value
from lib.models.graphs import adders, ensemble, node, step, workflow
from lib.rest import Rest
from lib.stream import DECOUPLED, Stream, flag, values

MIB = 1 << 20
IN, OUT = {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"}


def chain(*names, **kw):
    """An ensemble of models one after the other."""
    last = len(names) - 1
    return ensemble(*(step(n, {"INPUT0": f"t{i}" if i else "INPUT0"}, {"OUTPUT0": "OUTPUT0" if i == last else f"t{i + 1}"})
                      for i, n in enumerate(names)), **kw)


def ask(model, numbers=(1, 2, 3), repeat=3, id="", empty=False, **parameters):
    more = {"triton_enable_empty_final_response": True} if empty else {}
    return grpcraw.int32(model, list(numbers), id=id, parameters={"repeat": repeat, **parameters, **more})


@pytest.fixture(params=["thread", "process"])
def served(models, start, request):
    placed = {"execution_placement": request.param}
    adders(models, one=1, ten=10)
    repo.add(models, "many", extra=DECOUPLED, parameters=placed)
    repo.add(models, "twice", extra=DECOUPLED, parameters=placed)
    repo.add(models, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    for name, names in (("alone", ["many"]), ("before", ["many", "one"]), ("behind", ["one", "many"]), ("between", ["one", "many", "ten"]),
                        ("nested", ["before", "ten"]), ("both", ["many", "one", "twice", "ten"]), ("fails", ["many", "bad"])):
        repo.add(models, name, chain(*names))
    repo.add(models, "joined", ensemble(step("one", IN, {"OUTPUT0": "a"}), step("many", IN, {"OUTPUT0": "b"}), step("ten", {"INPUT0": "b"}, OUT),
                                        step("ten", {"INPUT0": "a"}, {"OUTPUT0": "OUTPUT1"}), outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]))
    return start(models, "--default-warmup-time=0")


@pytest.fixture
def stream(served):
    with Stream(served.url("grpc")) as s:
        yield s


@pytest.mark.parametrize("repeat", [1, 3, 200])
def test_answers_in_order(stream, repeat):
    for model, more in (("alone", 0), ("before", 1), ("behind", 1), ("between", 11), ("nested", 11)):
        stream.send(ask(model, repeat=repeat, id=model))
        answers = stream.take(repeat)
        assert [flag(a) for a in answers] == [False] * (repeat - 1) + [True], model
        assert all(values(a) == [1 + more, 2 + more, 3 + more] and a.infer_response.id == model for a in answers), model
    assert stream.end() == []


def test_several_answers_for_each_of_several(stream):
    stream.send(ask("both", numbers=(1,), repeat=4))
    answers = stream.take(16)
    assert all(values(a) == [12] for a in answers) and [flag(a) for a in answers] == [False] * 15 + [True]


def test_tensors_beside_the_stream(stream):
    stream.send(ask("joined", numbers=(1,), repeat=3))
    for answer in stream.take(3):
        outputs = {o.name: list(memoryview(raw).cast("i")) for o, raw in
                   zip(answer.infer_response.outputs, answer.infer_response.raw_output_contents)}
        assert outputs == {"OUTPUT0": [11], "OUTPUT1": [12]}


def test_an_output_that_needs_no_stream(stream):
    request = ask("joined", numbers=(1,), repeat=3)
    request.outputs.add(name="OUTPUT1")
    stream.send(request)
    (answer,) = stream.take(1)
    assert values(answer) == [12] and flag(answer)


def test_no_answer(stream):
    for model in ("before", "both"):
        stream.send(ask(model, repeat=0, id=model, empty=True))
        (answer,) = stream.take(1)
        assert flag(answer) and answer.infer_response.id == model and not answer.infer_response.outputs


def test_a_failure_after_the_stream(stream):
    """The first answer fails; the model that gives the others is cancelled."""
    stream.send(ask("fails", repeat=1000, id="f"), ask("before", repeat=1, id="g"))
    failed, good = stream.take(2)
    if good.error_message:
        failed, good = good, failed
    assert "in ensemble 'fails', no luck" in failed.error_message and failed.infer_response.id == "f"
    assert values(good) == [2, 3, 4]


def test_large_answers_to_a_client_that_does_not_read(served, stream):
    """Of 300 answers of 1 MiB a few are on their way; all come in the end."""
    stream.send(ask("before", numbers=range(MIB // 4), repeat=300))
    first = stream.take(1)
    assert values(first[0])[:2] == [1, 2]
    rest = stream.take(299)
    assert [flag(a) for a in rest] == [False] * 298 + [True]


def test_a_client_that_goes_away(models, start, tmp_path):
    trace = tmp_path / "trace"
    adders(models, one=1)
    repo.add(models, "many", backend="fault", extra=DECOUPLED, parameters={"async": 1, "max_pending": 64, "until_cancelled": "true", "trace": trace})
    repo.add(models, "e", chain("many", "one"))
    server = start(models, "--default-warmup-time=0")
    with Stream(server.url("grpc")) as s:
        s.send(ask("e"))
        wait.until(lambda: trace.exists() and trace.read_text(), "the request to run")
    wait.equal(lambda: value(server, "nv_inference_request_failure", model="many", reason="CANCELED"), 1, "cancelled requests")


def test_other_ways_to_ask(served):
    with Rest(served.http) as rest:
        reply = rest.infer("before", [("INPUT0", "INT32", [1], [1])])
        assert reply.status >= 400 and "decoupled transaction policy" in reply.body.decode()
        reply = rest.post("/v2/models/before/generate_stream", {"INPUT0": [1], "repeat": 3})
        assert reply.status == 200 and reply.body.decode().count("data: ") == 3
        assert rest.get("/v2/models/before/config").ok().json()["model_transaction_policy"] == {"decoupled": True}


def test_what_is_refused(models, start):
    adders(models, one=1)
    repo.add(models, "many", extra=DECOUPLED)
    repo.add(models, "two", ensemble(step("many", IN, OUT), step("many", IN, {"OUTPUT0": "OUTPUT1"}), outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]))
    repo.add(models, "w", workflow(node("a", "many")))
    with Control(start(models, mode="explicit")) as control:
        assert "models many and many are decoupled and side by side" in control.load("two").error
        assert "in workflow w, model many is decoupled" in control.load("w").error
