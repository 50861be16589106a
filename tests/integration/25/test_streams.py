"""Ensembles with models that give several answers: each flows on through what follows, in order."""
import json

import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.metrics import value
from lib.models.graphs import adders, ensemble, node, op, step, workflow
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


@pytest.mark.few(2)
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


@pytest.mark.few
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



# ---- workflows ----

NULL = 'default { tensor: "OUTPUT0" int64: -1 }'
T = {"OUTPUT0": "t"}


def parameter(response, key):
    p = response.infer_response.parameters
    return p[key].string_param if key in p else None


@pytest.fixture
def graphs(models, start):
    adders(models, one=1, ten=10, hundred=100)
    for name in ("many", "twice"):
        repo.add(models, name, extra=DECOUPLED)
    bad = {"fail_status": "UNAVAILABLE", "fail_message": "no luck"}
    for name, more in (("bad", bad), ("late", {"async": 1, "until_cancelled": "true", "max_pending": 8}), ("first", {**bad, "fail_every": 2, "responses": 2})):
        repo.add(models, name, backend="fault", extra=DECOUPLED, parameters=more)
    repo.add(models, "broken", backend="fault", parameters=bad)
    repo.add(models, "odd", backend="fault", parameters={**bad, "fail_every": 2})
    texts = {
        "plain": workflow(node("m", "many")),
        "long": workflow(node("a", "one", outputs=T), node("m", "many", {"INPUT0": "t"}, {"OUTPUT0": "u"}), op("double", "scale", {"x": "u"}, {"x": "v"}, multiply=2),
                         node("z", "ten", {"INPUT0": "v"})),
        "both": workflow(node("m", "many", outputs=T), node("n", "twice", {"INPUT0": "t"})),
        # what does not follow the model is there once; what follows it and fails has its policy for each answer
        "policies": workflow(node("m", "many", outputs=T), node("b", "broken", {"INPUT0": "t"}, {"OUTPUT0": "d"}, 'default { tensor: "d" int64: 7 }'),
                             node("once", "hundred", outputs={"OUTPUT0": "o"}, extra='when: "INPUT0[0] > 50"'), node("z", "ten", {"INPUT0": "d"}),
                             outputs=[repo.tensor("OUTPUT0"), repo.tensor("o")], extra='default { tensor: "o" int64: -5 }'),
        "rows": workflow(node("m", "many", outputs=T), node("z", "one", {"INPUT0": "t"}, extra='foreach { over: "t" }')),
        "route": workflow(node("m", "many", outputs={"OUTPUT0": "b"}), node("o", "ten", outputs={"OUTPUT0": "b"}), node("z", "one", {"INPUT0": "b"}),
                          extra="switch { name: \"s\" case { when: 'INPUT0[0] > 10' node: \"m\" } else { node: \"o\" } }"),
        "behind": workflow(node("m", "many", outputs=T), node("p", "one", {"INPUT0": "t"}, {"OUTPUT0": "b"}), node("q", "ten", {"INPUT0": "t"}, {"OUTPUT0": "b"}),
                           node("z", "hundred", {"INPUT0": "b"}), extra="switch { name: \"s\" case { when: 't[0] > 10' node: \"p\" } else { node: \"q\" } }"),
        "skipped": workflow(node("m", "many", outputs=T, extra='when: "INPUT0[0] > 10"'), node("z", "one", {"INPUT0": "t"}), extra=NULL),
        "fails": workflow(node("m", "bad", outputs=T), node("z", "one", {"INPUT0": "t"})),
        "skips": workflow(node("m", "bad", outputs=T, extra="on_error: SKIP"), node("z", "one", {"INPUT0": "t"}), extra=NULL),
        "spare": workflow(node("m", "bad", outputs=T, extra='fallback { model { name: "many" } }'), node("z", "one", {"INPUT0": "t"})),
        "single": workflow(node("m", "bad", outputs=T, extra='fallback { model { name: "ten" } }'), node("z", "one", {"INPUT0": "t"})),
        "nested_skip": workflow(node("m", "many", outputs=T), node("n", "bad", {"INPUT0": "t"}, extra="on_error: SKIP"), extra=NULL),
        "again": workflow(node("m", "first", outputs=T, extra="retry { attempts: 3 budget_percent: 100 }"), node("z", "one", {"INPUT0": "t"})),
        "timed": workflow(node("m", "late", outputs=T, extra="timeout_ms: 50 on_error: SKIP"), node("z", "one", {"INPUT0": "t"}), extra=NULL),
        "outer": workflow(node("w", "long", outputs=T), node("z", "hundred", {"INPUT0": "t"})),
        "limited": workflow(node("m", "many"), extra="admission { max_inflight: 1 max_queue: 100 }"),
    }
    for name, text in texts.items():
        repo.add(models, name, text)
    def split(model, inputs=IN):
        variants = "".join(f' variant {{ name: "{v}" model {{ name: "{m}" }} weight: {w} }}' for v, m, w in (("a", "one", 0), ("b", model, 1)))
        return node("s", "X", inputs).replace('model { name: "X" }', f"split {{{variants} }}")

    repo.add(models, "split", workflow(split("many")))
    repo.add(models, "sometimes", workflow(node("m", "many", outputs=T), node("b", "odd", {"INPUT0": "t"}, {"OUTPUT0": "d"}, "on_error: SKIP"),
                                           split("ten", {"INPUT0": "d"}), extra=NULL))
    return start(models, "--default-warmup-time=0")


def test_workflows_with_several_answers(graphs):
    with Stream(graphs.url("grpc")) as s:
        for model, x, y, count in (("plain", 5, 5, 3), ("long", 5, 22, 3), ("both", 5, 5, 9), ("rows", 5, 6, 3), ("route", 50, 51, 3), ("route", 5, 16, 1),
                                   ("behind", 50, 151, 3), ("behind", 5, 115, 3), ("skipped", 50, 51, 3), ("skipped", 5, -1, 1), ("skips", 5, -1, 1),
                                   ("spare", 5, 6, 3), ("single", 5, 16, 1), ("nested_skip", 5, -1, 3), ("timed", 5, -1, 1), ("outer", 5, 122, 3), ("split", 5, 5, 3)):
            s.send(ask(model, numbers=(x,), id=model))
            answers = s.take(count)
            assert [values(a) for a in answers] == [[y]] * count, (model, answers)
            assert [flag(a) for a in answers] == [False] * (count - 1) + [True], model
        s.send(ask("plain", repeat=0, empty=True))
        assert flag(s.take(1)[0])
        s.send(ask("fails", numbers=(5,)))
        assert "in workflow 'fails', node 'm': no luck" in s.take(1)[0].error_message
        s.send(*[ask("limited", numbers=(5,), repeat=50) for _ in range(10)])
        assert all(values(a) == [5] for a in s.take(500))
        for _ in range(4):  # each second execution fails, and is repeated
            s.send(ask("again", numbers=(5,)))
            assert [values(a) for a in s.take(2)] == [[6], [6]]


def test_what_each_answer_says(graphs):
    with Stream(graphs.url("grpc")) as s:
        s.send(ask("policies", numbers=(5,), repeat=3, **{"workflow.trace": True}))
        for answer in s.take(3):
            assert [list(memoryview(raw).cast("i")) for raw in answer.infer_response.raw_output_contents] == [[17], [-5]]
            assert json.loads(parameter(answer, "workflow.status")) == {"b": "default", "once": "skipped"}
            nodes = {n["name"]: n for n in json.loads(parameter(answer, "workflow.trace"))["nodes"]}
            assert [nodes[n]["outcome"] for n in ("m", "b", "once", "z")] == ["ran", "default", "skipped", "ran"] and nodes["b"]["calls"] == 1
        s.send(ask("split", numbers=(5,), repeat=2))
        assert [parameter(a, "variant.s") for a in s.take(2)] == ["b", "b"]
        s.send(ask("sometimes", numbers=(5,), repeat=4))
        assert [(values(a), parameter(a, "variant.s")) for a in s.take(4)] == [([15], "b"), ([-1], None)] * 2
        s.send(ask("outer", numbers=(5,), repeat=200, **{"workflow.trace": True}))
        assert all(values(a) == [122] for a in s.take(200))
    counted = {n: value(graphs, "millrace_workflow_node_events_total", model="policies", node=n, event=e) for n, e in (("b", "default"), ("once", "skipped"))}
    assert counted == {"b": 3, "once": 1}


def test_workflows_asked_otherwise(graphs):
    with Rest(graphs.http) as rest:
        reply = rest.infer("long", [("INPUT0", "INT32", [1], [1])])
        assert reply.status >= 400 and "decoupled transaction policy" in reply.body.decode()
        reply = rest.post("/v2/models/policies/generate_stream", {"INPUT0": [1], "repeat": 3})
        assert reply.status == 200 and reply.body.decode().count("data: ") == 3
        assert rest.get("/v2/models/long/config").ok().json()["model_transaction_policy"] == {"decoupled": True}


ROWS = 'switch { name: "s" per: ROW input: "INPUT0" case { when: "INPUT0 > 1" node: "a" } else { node: "b" } }'
SIDE = node("a", "many", outputs={"OUTPUT0": "t"}), node("b", "many", outputs={"OUTPUT0": "u"}), op("z", "concat", {"0": "t", "1": "u"}, {"x": "OUTPUT0"})
REFUSED = {
    "side": (ensemble(step("many", IN, T), step("many", IN, {"OUTPUT0": "u"}), step("both", {"INPUT0": "t", "INPUT1": "u"}, OUT)),
             "in ensemble side, step of model 'both' receives inputs originated from different decoupled models"),
    "ends": (ensemble(step("many", IN, OUT), step("many", IN, {"OUTPUT0": "OUTPUT1"}), outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]),
             "in ensemble ends, step of model 'ends' receives inputs originated from different decoupled models"),
    "w_side": (workflow(*SIDE), "in workflow w_side, node 'z' receives inputs originated from different decoupled models"),
    "w_hedge": (workflow(node("a", "many", extra="hedge { after_ms: 5 }")), "node 'a' has 'hedge', and model 'many' is decoupled"),
    "w_shadow": (workflow(node("a", "many", extra='shadow { model { name: "one" } percent: 5 }')), "node 'a' has 'shadow', and model 'many' is decoupled"),
    "w_rows": (workflow(node("a", "many", extra='foreach { over: "INPUT0" }')), "node 'a' runs for rows, and model 'many' is decoupled"),
    "w_branch": (workflow(node("a", "one"), node("b", "many"), extra=ROWS), "node 'b' runs for rows, and model 'many' is decoupled"),
}


def test_what_is_refused(models, start):
    adders(models, one=1)
    repo.add(models, "many", extra=DECOUPLED)
    repo.add(models, "both", inputs=[repo.tensor("INPUT0"), repo.tensor("INPUT1")])
    for name, (text, _) in REFUSED.items():
        repo.add(models, name, text)
    # of two of which one reaches no output, nothing is asked together
    repo.add(models, "unused", ensemble(step("many", IN, OUT), step("many", IN, T), step("one", {"INPUT0": "t"}, {"OUTPUT0": "u"})))
    with Control(start(models, mode="explicit")) as control:
        for name, (_, text) in REFUSED.items():
            assert text in control.load(name).error, name
        control.load("unused").ok()
