"""Switches per row: the rows of a request are divided among branches, and come together in their order."""
import json
import re

import numpy as np
import pytest
import tritonclient.http as httpclient

from lib import repo
from lib.control import Control
from lib.models.graphs import Clients, adders, node, op, vector, workflow

DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'
T = {"OUTPUT0": "t"}
BRANCHES = node("hundreds", "hundred", outputs=T), node("tens", "ten", outputs=T), node("ones", "one", outputs=T)
AFTER = node("last", "thousand", {"INPUT0": "t"})
CASES = ('INPUT0 > 100', "hundreds"), ('INPUT0 > 10', "tens")


def switch(*cases, last="ones", extra='merge { into: "t" }', over=("INPUT0",)):
    text = "".join(f" case {{ when: '{when}' node: \"{name}\" }}" for when, name in cases)
    text += "".join(f' input: "{name}"' for name in over)
    return f'switch {{ name: "size" per: ROW{text} {f"else {{ node: {chr(34)}{last}{chr(34)} }}" if last else ""} {extra} }}'


def io(*names, dtype="TYPE_INT32", dims=(-1,)):
    return [repo.tensor(name, dtype, dims) for name in names]


SPLIT = 'split { variant { name: "on" model { name: "ten" } weight: 1 } variant { name: "off" model { name: "one" } weight: 0 } }'
BATCH = {"max_batch_size": 64, "inputs": io("INPUT0", "INPUT1", dims=(2,)), "outputs": io("OUTPUT0", dims=(2,))}


def one_of(model, name=None, inputs=None, outputs=None, extra=""):
    return node(name or model, model, inputs, outputs, extra)


def lists():
    """Workflows whose rows have lists, of which each branch does something else with each item."""
    inner = 'foreach { over: "INPUT0" dim: 1 %s }'
    kw = {"max_batch_size": 64, "inputs": [repo.tensor("INPUT0", dims=(-1, 2)), repo.tensor("KEY", dims=(1,))],
          "outputs": [repo.tensor("OUTPUT0", dims=(-1, 2))]}
    few, tens = node("few", "few", extra=inner % ""), node("tens", "ten", extra=inner % "max: 100")
    double = {"x": "INPUT0"}, {"x": "OUTPUT0"}

    def fails(policy=""):
        return workflow(few, node("fails", "bad_pair", extra=inner % "" + policy), extra=odd("fails"), **kw)

    def odd(name, last="few"):
        return switch(("KEY % 2 == 1", name), last=last, extra="")

    return {
        "lists": workflow(few, tens, extra=odd("tens"), **kw),
        "lists_op": workflow(few, op("twice", "scale", *double, multiply=2), extra=odd("twice"), **kw),
        "lists_op_each": workflow(few, op("twice", "scale", *double, inner % "", multiply=2), extra=odd("twice"), **kw),
        "lists_no_else": workflow(tens, extra=odd("tens", None) + DEFAULT, **kw),
        "lists_defaults": fails('default { tensor: "OUTPUT0" int64: 7 }'),
        "lists_spare": fails('fallback { model { name: "ten" } }'),
        "lists_fail": fails(),
        "lists_max": workflow(few, op("tens", "scale", *double, inner % "max: 3" + 'fallback { node: "twice" }', multiply=10), op("twice", "scale", *double, multiply=2),
                              extra=odd("tens"), **kw),
        "lists_texts": workflow(node("a", "first_text", {"A": "INPUT0", "B": "INPUT1"}, {"A": "OUTPUT0"}, inner % 'over: "INPUT1"'),
                                node("b", "second_text", {"A": "INPUT0", "B": "INPUT1"}, {"B": "OUTPUT0"}, inner % 'over: "INPUT1"'),
                                extra=switch(("KEY % 2 == 1", "b"), last="a", extra="", over=("INPUT0", "INPUT1")), max_batch_size=64,
                                inputs=io("INPUT0", "INPUT1", dtype="TYPE_STRING", dims=(-1, 1)) + io("KEY", dims=(1,)),
                                outputs=io("OUTPUT0", dtype="TYPE_STRING", dims=(-1, 1))),
    }


@pytest.fixture
def served(models, start):
    repo.add(models, "bad_pair", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"}, inputs=io("INPUT0", dims=(2,)),
             outputs=io("OUTPUT0", dims=(2,)))
    adders(models, one=1, ten=10, hundred=100, thousand=1000)
    repo.add(models, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    repo.add(models, "copy", max_batch_size=64, inputs=io("INPUT0", dims=(2,)), outputs=io("OUTPUT0", dims=(2,)))
    repo.add(models, "few", max_batch_size=3, inputs=io("INPUT0", dims=(2,)), outputs=io("OUTPUT0", dims=(2,)))
    # gives its second input
    repo.add(models, "second", max_batch_size=64, inputs=io("A", "B", dims=(2,)), outputs=io("B", dims=(2,)))
    repo.add(models, "first_text", max_batch_size=64, inputs=io("A", "B", dtype="TYPE_STRING", dims=(1,)), outputs=io("A", dtype="TYPE_STRING", dims=(1,)))
    repo.add(models, "second_text", max_batch_size=4, inputs=io("A", "B", dtype="TYPE_STRING", dims=(1,)), outputs=io("B", dtype="TYPE_STRING", dims=(1,)))
    two = ("INPUT0", "INPUT1")
    ab = {"A": "INPUT0", "B": "INPUT1"}
    texts = {
        "size": workflow(*BRANCHES, AFTER, extra=switch(*CASES)),
        "no_else": workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None) + 'default { tensor: "t" int64: 7 }'),
        "broken": workflow(node("fails", "bad", outputs=T), *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "batch": workflow(one_of("copy"), node("other", "second", ab, {"B": "OUTPUT0"}),
                          extra=switch(("INPUT0[0] % 2 == 1", "other"), last="copy", extra="", over=two), **BATCH),
        # a model that takes less rows than there are is asked several times
        "several": workflow(one_of("copy"), one_of("few"), extra=switch(("INPUT0[0] % 2 == 1", "few"), last="copy", extra="", over=two[:1]),
                            max_batch_size=64, inputs=io("INPUT0", dims=(2,)), outputs=io("OUTPUT0", dims=(2,))),
        "texts": workflow(node("a", "first_text", ab, {"A": "OUTPUT0"}), node("b", "second_text", ab, {"B": "OUTPUT0"}),
                          extra=switch(('prefix(INPUT0, "x")', "b"), last="a", extra="", over=two), max_batch_size=64,
                          inputs=io(*two, dtype="TYPE_STRING", dims=(1,)), outputs=io("OUTPUT0", dtype="TYPE_STRING", dims=(1,))),
        "text_default": workflow(node("b", "second_text", ab, {"B": "OUTPUT0"}),
                                 extra=switch(('prefix(INPUT0, "x")', "b"), last=None, extra="", over=two) + 'default { tensor: "OUTPUT0" string: "none" }',
                                 max_batch_size=64, inputs=io(*two, dtype="TYPE_STRING", dims=(1,)), outputs=io("OUTPUT0", dtype="TYPE_STRING", dims=(1,))),
        # a condition may read what is one for all rows, and parameters
        "level": workflow(node("high", "ten"), node("low", "one"), inputs=io("INPUT0") + [repo.tensor("LEVEL", dims=(1,))],
                          extra=switch(("INPUT0 > LEVEL", "high"), last="low", extra="")),
        # of each crop its own reader: a foreach before and after
        "crops": workflow(node("kind", "ten", outputs={"OUTPUT0": "k"}, extra='foreach { over: "INPUT0" }'),
                          node("odd", "hundred", {"INPUT0": "k"}, T), node("even", "one", {"INPUT0": "k"}, T),
                          node("last", "thousand", {"INPUT0": "t"}, extra='foreach { over: "t" }'),
                          extra=switch(("k % 2 == 1", "odd"), last="even", over=("k",))),
        "null": workflow(node("maybe", "one", outputs={"OUTPUT0": "m"}, extra="when: 'parameter(\"on\", false)'"),
                         node("tens", "ten", {"INPUT0": "m"}), node("ones", "one", {"INPUT0": "m"}),
                         extra=switch(("m > 10", "tens"), extra="", over=("m",)) + DEFAULT),
        "split": workflow(node("tens", "", outputs=T).replace('model { name: "" }', SPLIT), *BRANCHES[2:], AFTER, extra=switch(CASES[1])),
        "retried": workflow(node("fails", "bad", outputs=T, extra="retry { attempts: 3 budget_percent: 100 }"), *BRANCHES[2:], AFTER,
                            extra=switch(("INPUT0 > 10", "fails"))),
        "ops": workflow(op("tens", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=10), op("ones", "scale", {"x": "INPUT0"}, {"x": "t"}), AFTER,
                        extra=switch(CASES[1])),
        "mixed": workflow(op("tens", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=10), *BRANCHES[2:], AFTER, extra=switch(CASES[1])),
        "op_spare": workflow(node("fails", "bad", outputs=T, extra='fallback { node: "tens" }'), op("tens", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=10),
                             *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "op_texts": workflow(op("a", "concat", {"0": "INPUT0"}, {"x": "OUTPUT0"}), op("b", "concat", {"0": "INPUT1"}, {"x": "OUTPUT0"}),
                             extra=switch(('prefix(INPUT0, "x")', "b"), last="a", extra="", over=two), max_batch_size=64,
                             inputs=io(*two, dtype="TYPE_STRING", dims=(1,)), outputs=io("OUTPUT0", dtype="TYPE_STRING", dims=(1,))),
        # what happens to the rows of a branch that fails is the branch's own
        "skips": workflow(node("fails", "bad", outputs=T, extra="on_error: SKIP"), *BRANCHES[2:], AFTER,
                          extra=switch(("INPUT0 > 10", "fails")) + 'default { tensor: "t" int64: 3 }'),
        "defaults": workflow(node("fails", "bad", outputs=T, extra='default { tensor: "t" int64: 7 }'), *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "by_model": workflow(node("fails", "bad", outputs=T, extra='fallback { model { name: "ten" } }'), *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "by_node": workflow(node("fails", "bad", outputs=T, extra='fallback { node: "hundreds" }'), *BRANCHES[::2], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "by_bad": workflow(node("fails", "bad", outputs=T, extra='fallback { model { name: "bad" } }'), *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "fails"))),
        "text_fails": workflow(node("b", "bad_text", {"A": "INPUT0"}, {"A": "OUTPUT0"}, 'default { tensor: "OUTPUT0" string: "lost" }'),
                               node("a", "first_text", ab, {"A": "OUTPUT0"}), extra=switch(('prefix(INPUT0, "x")', "b"), last="a", extra="", over=two),
                               max_batch_size=64, inputs=io(*two, dtype="TYPE_STRING", dims=(1,)), outputs=io("OUTPUT0", dtype="TYPE_STRING", dims=(1,))),
    }
    texts |= lists()
    repo.add(models, "bad_text", backend="fault", parameters={"fail_status": "UNAVAILABLE"}, max_batch_size=64,
             inputs=io("A", dtype="TYPE_STRING", dims=(1,)), outputs=io("A", dtype="TYPE_STRING", dims=(1,)))
    for name, text in texts.items():
        repo.add(models, name, text)
    return Clients(start(models, "--default-warmup-time=0"))


def plus(x):
    return x + (100 if x > 100 else 10 if x > 10 else 1)


def ran(served, *names):
    stats = [served.http.get_inference_statistics(m)["model_stats"][0]["inference_stats"]["success"] for m in names]
    return np.array([s.get("count", 0) for s in stats])


def test_rows_keep_their_order(served):
    rng = np.random.default_rng(7)
    cases = [vector(5), vector(500, 50, 5), vector(1, 2, 300, 20, 400, 3), vector(*range(95, 106)), vector(), rng.integers(0, 150, 1000).astype(np.int32)]
    for numbers in cases:
        got = served.ask("size", {"INPUT0": numbers})["OUTPUT0"].tolist()
        assert got == [plus(x) + 1000 for x in numbers.tolist()]
    assert served.ask("no_else", {"INPUT0": vector(5, 50, 6, 500)})["OUTPUT0"].tolist() == [1007, 1060, 1007, 1600]
    assert served.ask("no_else", {"INPUT0": vector(5, 6)})["OUTPUT0"].tolist() == [1007, 1007]
    assert served.ask("split", {"INPUT0": vector(5, 50, 6)})["OUTPUT0"].tolist() == [1006, 1060, 1007]
    assert served.ask("crops", {"INPUT0": vector(1, 2, 3, 4)})["OUTPUT0"].tolist() == [1111, 1013, 1113, 1015]


def test_each_branch_is_asked_once(served):
    names = "one", "ten", "hundred", "thousand"
    for numbers, runs in ((vector(1, 200, 20, 2, 300), (2, 2, 2, 2)), (vector(1, 2, 3), (2, 0, 0, 2)), (vector(200), (0, 0, 2, 2)), (vector(), (0, 0, 0, 2))):
        before = ran(served, *names)
        served.ask("size", {"INPUT0": numbers})
        assert (ran(served, *names) - before).tolist() == list(runs)  # each protocol asks once


def test_rows_of_a_batch(served):
    for rows in (1, 2, 7, 64):
        a = np.arange(2 * rows, dtype=np.int32).reshape(rows, 2) // 3
        b = a + 1000
        got = served.ask("batch", {"INPUT0": a, "INPUT1": b})["OUTPUT0"]
        assert np.array_equal(got, np.where(a[:, :1] % 2 == 1, b, a))
        before = ran(served, "few")
        assert np.array_equal(served.ask("several", {"INPUT0": a})["OUTPUT0"], a)
        odd = int((a[:, 0] % 2 == 1).sum())
        assert ran(served, "few") - before == 2 * ((odd + 2) // 3)


def test_foreach_in_a_branch(served):
    """Each row has a list: its items are the rows of the branch's foreach."""
    for rows, items in ((1, 1), (1, 3), (5, 4), (64, 7), (6, 0)):
        x = np.arange(rows * items * 2, dtype=np.int32).reshape(rows, items, 2)
        for key in (np.arange(rows), np.zeros(rows), np.ones(rows), np.arange(rows) // 3):
            key = key.astype(np.int32).reshape(rows, 1)
            odd, count = (key % 2 == 1)[:, :, None], int((key % 2 == 1).sum()) * items
            wanted = {"lists_op": 2 * x, "lists_op_each": 2 * x, "lists_defaults": 0 * x + 7, "lists_spare": x + 10, "lists_max": x * (2 if count > 3 else 10)}
            wanted |= {"lists": x + 10, "lists_no_else": x + 10} if count <= 100 else {}
            for name, other in wanted.items():
                got = served.ask(name, {"INPUT0": x, "KEY": key})["OUTPUT0"]
                assert np.array_equal(got, np.where(odd, other, -1 if name == "lists_no_else" else x)), (name, rows, items)
            if count > 100:
                with pytest.raises(Exception, match=f"node 'tens': tensor 'INPUT0' has {count} rows, and foreach has a 'max' of 100"):
                    served.ask("lists", {"INPUT0": x, "KEY": key})
    with pytest.raises(Exception, match="in workflow 'lists_fail', node 'fails': .*no luck"):
        served.ask("lists_fail", {"INPUT0": np.zeros((2, 2, 2), np.int32), "KEY": np.array([[0], [1]], np.int32)})
    texts, others = (np.array([[[f"{c * (i % 4)}{i}{k}".encode()] for k in range(5)] for i in range(9)], dtype=np.object_) for c in "ab")
    key = np.arange(9, dtype=np.int32).reshape(9, 1)
    got = served.ask("lists_texts", {"INPUT0": texts, "INPUT1": others, "KEY": key})["OUTPUT0"]
    assert np.array_equal(got, np.where((key % 2 == 1)[:, :, None], others, texts))


def test_texts(served):
    rows = 23
    a = np.array([[("x" if i % 3 == 0 else "") + "a" * (i % 5)] for i in range(rows)], dtype=np.object_)
    b = np.array([[f"{'b' * (i % 7)}{i}"] for i in range(rows)], dtype=np.object_)
    for name, other in (("texts", None), ("text_default", "none")):
        got = [r[0].decode() for r in served.ask(name, {"INPUT0": a, "INPUT1": b})["OUTPUT0"].tolist()]
        assert got == [y if x.startswith("x") else (x if other is None else other) for (x,), (y,) in zip(a.tolist(), b.tolist())]


def test_conditions(served):
    for level in (0, 10, 90):
        got = served.ask("level", {"INPUT0": vector(1, 50), "LEVEL": vector(level)})["OUTPUT0"]
        assert got.tolist() == [x + (10 if x > level else 1) for x in (1, 50)]
    assert served.ask("null", {"INPUT0": vector(5, 50)})["OUTPUT0"].tolist() == [-1]
    assert served.ask("null", {"INPUT0": vector(5, 50)}, parameters={"on": True})["OUTPUT0"].tolist() == [7, 61]


def test_a_branch_that_fails_fails_the_request(served):
    assert served.ask("broken", {"INPUT0": vector(5, 6)})["OUTPUT0"].tolist() == [1006, 1007]
    with pytest.raises(Exception, match="in workflow 'broken', node 'fails': .*no luck"):
        served.ask("broken", {"INPUT0": vector(5, 50, 6)})

    def failures():
        return served.http.get_inference_statistics("bad")["model_stats"][0]["inference_stats"]["fail"]["count"]

    before = failures()
    with pytest.raises(Exception, match="no luck"):
        served.ask("retried", {"INPUT0": vector(5, 50, 6)})
    assert failures() - before == 3
    with pytest.raises(Exception, match="no luck"):
        served.ask("by_bad", {"INPUT0": vector(5, 50, 6)})


def test_operators_as_branches(served):
    big = np.resize(vector(1, 20, 3), 50000)  # in turns of the loop
    for numbers in (vector(5, 50, 6), vector(50), vector(5), vector(), big):
        for name, small in (("ops", 0), ("mixed", 1), ("op_spare", 1)):
            got = served.ask(name, {"INPUT0": numbers})["OUTPUT0"]
            assert np.array_equal(got, np.where(numbers > 10, numbers * 10, numbers + small) + 1000), name
    a = np.array([["x1"], ["y2"], ["x3"], ["x4"]], dtype=np.object_)
    b = np.array([[f"b{i}"] for i in range(4)], dtype=np.object_)
    assert [r[0].decode() for r in served.ask("op_texts", {"INPUT0": a, "INPUT1": b})["OUTPUT0"].tolist()] == ["b0", "y2", "b2", "b3"]


def test_what_happens_to_the_rows_of_a_branch_that_fails(served):
    for name, big in (("skips", lambda x: 3), ("defaults", lambda x: 7), ("by_model", lambda x: x + 10), ("by_node", lambda x: x + 100)):
        for numbers in ([5, 50, 6], [50, 5, 60], [50, 60], [5], [], [1, 99] * 500):
            got = served.ask(name, {"INPUT0": vector(*numbers)})["OUTPUT0"].tolist()
            assert got == [1000 + (big(x) if x > 10 else x + 1) for x in numbers], (name, numbers)
    answer = served.http.infer("defaults", [httpclient.InferInput("INPUT0", [2], "INT32").set_data_from_numpy(vector(5, 50))])
    assert json.loads(answer.get_response()["parameters"]["workflow.status"]) == {"fails": "default"}
    with pytest.raises(Exception, match="in workflow 'skips', node 'fails': .*no luck"):
        served.ask("skips", {"INPUT0": vector(50)}, parameters={"workflow.strict": True})
    texts = np.array([["xa"], ["b"], ["xccc"], ["dd"]], dtype=np.object_)
    got = served.ask("text_fails", {"INPUT0": texts, "INPUT1": texts})["OUTPUT0"]
    assert [r[0].decode() for r in got.tolist()] == ["lost", "b", "lost", "dd"]


def test_hostile_requests(served):
    with pytest.raises(Exception, match="node 'size': tensor 'INPUT0' has 65537 rows, a switch divides up to 65536"):
        served.ask("size", {"INPUT0": np.zeros(65537, np.int32)})
    # all rows switch at each row
    numbers = np.resize(vector(1, 20, 200), 16000)
    assert served.ask("size", {"INPUT0": numbers})["OUTPUT0"].tolist() == [plus(x) + 1000 for x in numbers.tolist()]


REFUSED = [
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, over=())), "switch 'size' is per: ROW and must specify 'input'"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, over=("x",))), "node 'hundreds' reads no tensor that 'input' of switch 'size' names"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, over=("INPUT0", "x"))), "node 'size' reads tensor 'x', which nothing writes"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES).replace("per: ROW", "")), "switch 'size' has 'input', which belongs to per: ROW"),
    (workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None)), "switch 'size': rows of tensor 't' may have no value, as there is no 'else', and the workflow has no 'default'"),
    (workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None) + DEFAULT), "switch 'size': rows of tensor 't' may have no value"),
    (workflow(node("maybe", "one", outputs={"OUTPUT0": "m"}, extra='when: "INPUT0[0] > 1"'), node("tens", "both", {"A": "INPUT0", "B": "m"}, {"A": "t"}),
              *BRANCHES[2:], AFTER, extra=switch(("INPUT0 > 10", "tens")) + DEFAULT), "rows of tensor 't' may have no value, as what a branch reads may have none"),
    (workflow(*BRANCHES, AFTER, extra=switch(("z > 1", "tens"), ("INPUT0 > 2", "hundreds"))), "node 'tens', 'when': .*'z' is no tensor"),
    (workflow(*BRANCHES, AFTER, extra=switch(("t > 1", "tens"), ("INPUT0 > 2", "hundreds"))), "waits for itself"),
    (workflow(*BRANCHES[:2], op("ones", "threshold", {"x": "INPUT0"}, {"count": "t"}, value=1), AFTER, extra=switch(*CASES)),
     "rows of tensor 't': operator 'threshold' does not give one for each"),
    (workflow(*BRANCHES[:2], op("ones", "cast", {"x": "INPUT0"}, {"x": "t"}, dtype="FP32"), AFTER, extra=switch(*CASES)), "node 'ones' makes tensor 't' as FP32"),
    (workflow(*BRANCHES[:2], node("ones", "one", outputs=T, extra="on_error: SKIP"), AFTER, extra=switch(*CASES)),
     "rows of tensor 't' may have no value, as a branch that fails gives none"),
    (workflow(*BRANCHES[1:], node("spare", "both", {"A": "x", "B": "x"}, {"A": "t"}), node("fails", "one", outputs=T, extra='fallback { node: "spare" }'), AFTER,
              extra=switch(("INPUT0 > 100", "fails"), *CASES[1:])), "node 'spare' reads no tensor that 'input' of switch 'size' names"),
    (workflow(*BRANCHES[:2], node("ones", "one", outputs=T, extra='foreach { over: "INPUT0" empty: SKIP }'), AFTER, extra=switch(*CASES)),
     "node 'ones' has foreach with 'empty: SKIP' and is a branch of switch 'size' per row, whose rows need a value"),
    (workflow(node("a", "pair", {"A": "INPUT0", "B": "INPUT1"}, {"A": "OUTPUT0"}, 'foreach { over: "INPUT0" }'), node("b", "copy"),
              extra=switch(("INPUT0[0] > 1", "a"), last="b", extra="", over=("INPUT0", "INPUT1")), **BATCH),
     "node 'a': tensor 'INPUT1' is in 'input' of its switch and not in 'over': of a branch, foreach is over what 'input' of the switch divides"),
    (workflow(node("a", "pair", {"A": "INPUT0", "B": "INPUT1"}, {"A": "OUTPUT0"}, 'foreach { over: "INPUT0" over: "INPUT1" }'), node("b", "copy"),
              extra=switch(("INPUT0[0] > 1", "a"), last="b", extra=""), **BATCH), "tensor 'INPUT1' is in 'over' and not in 'input' of its switch"),
    (workflow(*BRANCHES[:2], node("ones", "floats", outputs=T), AFTER, extra=switch(*CASES)), "inconsistent data type"),
    (workflow(*BRANCHES[:2], node("ones", "three", outputs=T), AFTER, extra=switch(*CASES)), "rows of tensor 'INPUT0': model 'three' takes 3 at a time"),
    (workflow(*BRANCHES[:2], node("ones", "sum", outputs=T), AFTER, extra=switch(*CASES)),
     "rows of tensor 't': output 'OUTPUT0' of model 'sum' does not have one for each that the model gets"),
    (workflow(node("a", "copy"), node("b", "pair", {"A": "INPUT0", "B": "INPUT1"}, {"A": "OUTPUT0"}),
              extra=switch(("INPUT0[0] > 1", "b"), last="a", extra=""), **BATCH),
     "rows of tensor 'INPUT1': the model 'pair' batches, and 'input' of the switch does not name it"),
]


def test_what_is_refused(models, start):
    adders(models, one=1, ten=10, hundred=100, thousand=1000)
    repo.add(models, "floats", inputs=io("INPUT0", dtype="TYPE_FP32"), outputs=io("OUTPUT0", dtype="TYPE_FP32"))
    repo.add(models, "three", inputs=io("INPUT0", dims=(3,)), outputs=io("OUTPUT0", dims=(3,)))
    repo.add(models, "sum", outputs=io("OUTPUT0", dims=(2,)))
    repo.add(models, "both", inputs=io("A", "B"), outputs=io("A"))
    repo.add(models, "copy", max_batch_size=64, inputs=io("INPUT0", dims=(2,)), outputs=io("OUTPUT0", dims=(2,)))
    repo.add(models, "pair", max_batch_size=64, inputs=io("A", "B", dims=(2,)), outputs=io("A", dims=(2,)))
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", text)
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400
            assert re.search(error, reply.json()["error"]), (error, reply.json()["error"])
