"""Switches: one of several nodes runs for a request, and the others do not."""
import re

import numpy as np
import pytest

from lib import repo
from lib.control import Control
from lib.models.graphs import Clients, adders, node, op, vector, workflow

DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'
CASES = ('INPUT0[0] > 100', "hundreds"), ('INPUT0[0] > 10', "tens")


def switch(*cases, last="ones", extra='merge { into: "t" }'):
    text = "".join(f" case {{ when: '{when}' node: \"{name}\" }}" for when, name in cases)
    return f'switch {{ name: "size"{text} {f"else {{ node: {chr(34)}{last}{chr(34)} }}" if last else ""} {extra} }}'


T = {"OUTPUT0": "t"}
BRANCHES = node("hundreds", "hundred", outputs=T), node("tens", "ten", outputs=T), node("ones", "one", outputs=T)
AFTER = node("last", "thousand", {"INPUT0": "t"})


@pytest.fixture
def served(models, start):
    adders(models, one=1, ten=10, hundred=100, thousand=1000)
    repo.add(models, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    texts = {
        "size": workflow(*BRANCHES, AFTER, extra=switch(*CASES)),
        "no_else": workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None) + DEFAULT),
        "exhaustive": workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None, extra="exhaustive: true")),
        # what a branch and a condition read is waited for, and a branch may be the last node
        "later": workflow(op("double", "scale", {"x": "INPUT0"}, {"x": "d"}, multiply=2), node("big", "ten", {"INPUT0": "d"}),
                          node("small", "one"), extra=switch(("d[0] > 10", "big"), last="small", extra="")),
        "broken": workflow(node("fails", "bad", outputs=T), *BRANCHES[2:], AFTER, extra=switch(("INPUT0[0] > 10", "fails"))),
        "null": workflow(node("maybe", "one", outputs={"OUTPUT0": "m"}, extra='when: "INPUT0[0] > 50"'),
                         node("tens", "ten", {"INPUT0": "m"}, T), *BRANCHES[2:], AFTER,
                         extra=switch(("INPUT0[0] > 10", "tens")) + DEFAULT),
        # branches that are operators, alone and beside a model; what one makes goes on to an operator
        "ops": workflow(op("twice", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=2), op("thrice", "scale", {"x": "d"}, {"x": "t"}, multiply=3),
                        op("first", "scale", {"x": "INPUT0"}, {"x": "d"}, add=1), op("last", "scale", {"x": "t"}, {"x": "OUTPUT0"}, add=1000),
                        extra=switch(("INPUT0[0] > 10", "twice"), last="thrice")),
        "mixed": workflow(op("twice", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=2), *BRANCHES[2:], AFTER,
                          extra=switch(("INPUT0[0] > 10", "twice"))),
        # what happens when a branch fails is the branch's own
        "skips": workflow(node("fails", "bad", outputs=T, extra="on_error: SKIP"), *BRANCHES[2:], AFTER,
                          extra=switch(("INPUT0[0] > 10", "fails")) + DEFAULT),
        "defaults": workflow(node("fails", "bad", outputs=T, extra='default { tensor: "t" int64: 7 }'), *BRANCHES[2:], AFTER,
                             extra=switch(("INPUT0[0] > 10", "fails"))),
        "by_model": workflow(node("fails", "bad", outputs=T, extra='fallback { model { name: "ten" } }'), *BRANCHES[2:], AFTER,
                             extra=switch(("INPUT0[0] > 10", "fails"))),
        "by_node": workflow(node("fails", "bad", outputs=T, extra='fallback { node: "spare" }'), node("spare", "ten", {"INPUT0": "d"}, T),
                            op("first", "scale", {"x": "INPUT0"}, {"x": "d"}, add=1), *BRANCHES[2:], AFTER, extra=switch(("INPUT0[0] > 10", "fails"))),
        "by_bad": workflow(node("fails", "bad", outputs=T, extra='fallback { model { name: "bad" } }'), *BRANCHES[2:], AFTER,
                           extra=switch(("INPUT0[0] > 10", "fails"))),
    }
    for name, text in texts.items():
        repo.add(models, name, text)
    return Clients(start(models, "--default-warmup-time=0"))


def test_what_switches_give(served):
    def ran():
        stats = [served.http.get_inference_statistics(m)["model_stats"][0]["inference_stats"]["success"] for m in ("one", "ten", "hundred")]
        return np.array([s.get("count", 0) for s in stats])

    wanted = [("size", 200, 1300, (0, 0, 2)), ("size", 20, 1030, (0, 2, 0)), ("size", 2, 1003, (2, 0, 0)), ("no_else", 101, 1201, (0, 0, 2)),
              ("no_else", 2, -1, (0, 0, 0)), ("later", 6, 22, (0, 2, 0)), ("later", 5, 6, (2, 0, 0)), ("broken", 3, 1004, (2, 0, 0)),
              ("null", 60, 1071, (2, 2, 0)), ("null", 20, -1, (0, 0, 0)), ("null", 3, 1004, (2, 0, 0))]
    for name, x, y, runs in wanted:
        before = ran()
        assert served.ask(name, {"INPUT0": vector(x)})["OUTPUT0"].tolist() == [y], (name, x)
        assert (ran() - before).tolist() == list(runs), (name, x)  # each protocol asks once
    with pytest.raises(Exception, match="in workflow 'broken', node 'fails': .*no luck"):
        served.ask("broken", {"INPUT0": vector(20)})
    assert served.ask("exhaustive", {"INPUT0": vector(20)})["OUTPUT0"].tolist() == [1030]
    with pytest.raises(Exception, match="in workflow 'exhaustive', node 'size': no case holds for this request"):
        served.ask("exhaustive", {"INPUT0": vector(2)})


def test_operators_and_failures_in_branches(served):
    wanted = [("ops", 20, 1040), ("ops", 5, 1018), ("mixed", 20, 1040), ("mixed", 5, 1006), ("skips", 20, -1), ("skips", 5, 1006),
              ("defaults", 20, 1007), ("by_model", 20, 1030), ("by_node", 20, 1031), ("by_node", 5, 1006), ("by_bad", 5, 1006)]
    for name, x, y in wanted:
        assert served.ask(name, {"INPUT0": vector(x)})["OUTPUT0"].tolist() == [y], (name, x)
    with pytest.raises(Exception, match="in workflow 'by_bad', node 'fails': .*no luck"):
        served.ask("by_bad", {"INPUT0": vector(20)})
    with pytest.raises(Exception, match="in workflow 'skips', node 'fails': .*no luck"):
        served.ask("skips", {"INPUT0": vector(20)}, parameters={"workflow.strict": True})


REFUSED = [
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, extra="exhaustive: true")),
     "switch 'size' is 'exhaustive', which is for switches per request without 'else'"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, last=None)), "tensor 't' is written by node 'size' and by ones"),
    (workflow(*BRANCHES[:2], AFTER, extra=switch(*CASES, last=None)), "output 'OUTPUT0' of node 'last' may have no value"),
    (workflow(*BRANCHES, AFTER, extra=switch(("INPUT0[0] > 1", "nothing"))), "'size' names 'nothing' in 'switch', and no node has that name"),
    (workflow(*BRANCHES, AFTER, extra=switch(("INPUT0[0] > 1", "tens"), ("INPUT0[0] > 2", "tens"))), "node 'tens' of switch 'size' is another branch"),
    (workflow(*BRANCHES, AFTER, extra=switch(("z > 1", "tens"), ("INPUT0[0] > 2", "hundreds"))), "node 'tens', 'when': .*'z' is no tensor"),
    (workflow(*BRANCHES, AFTER, extra=switch(("t[0] > 1", "tens"), ("INPUT0[0] > 2", "hundreds"))), "waits for itself"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, last="last")), "node 'last' of switch 'size' has to write the same tensors"),
    (workflow(*BRANCHES, AFTER, extra=switch(*CASES, extra='merge { into: "OUTPUT0" }')), "switch 'size' merges into 'OUTPUT0', which its nodes do not"),
    (workflow(*BRANCHES[:2], op("ones", "cast", {"x": "INPUT0"}, {"x": "t"}, dtype="FP32"), AFTER, extra=switch(*CASES)), "node 'ones' makes tensor 't' as FP32"),
    (workflow(*BRANCHES[:2], op("ones", "stack", {"0": "INPUT0", "1": "INPUT0"}, {"x": "t"}), AFTER, extra=switch(*CASES)), "node 'ones'.*'t'"),
    (workflow(op("ones", "scale", {"x": "INPUT0"}, {"x": "t"}), op("tens", "cast", {"x": "INPUT0"}, {"x": "t"}, dtype="INT64"),
              op("last", "cast", {"x": "t"}, {"x": "OUTPUT0"}, dtype="INT32"), extra=switch(CASES[1])), "node 'ones'.*another type or number of dimensions|makes tensor 't' as"),
    (workflow(*BRANCHES[:2], node("ones", "one", outputs=T, extra="on_error: SKIP"), AFTER, extra=switch(*CASES)), "output 'OUTPUT0' of node 'last' may have no value"),
    (workflow(*BRANCHES[:2], node("ones", "one", outputs=T, extra='when: "INPUT0[0] > 1"'), AFTER, extra=switch(*CASES)), "node 'ones' is a fallback or branch of a switch and has 'when'"),
]


def test_what_is_refused(models, start):
    adders(models, one=1, ten=10, hundred=100, thousand=1000)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", text)
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400
            assert re.search(error, reply.json()["error"]), (error, reply.json()["error"])
