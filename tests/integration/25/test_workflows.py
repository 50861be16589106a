"""Workflows: conditions, orders, what happens when nodes fail, and what is refused at load."""
import re

import numpy as np
import pytest
import tritonclient.http as httpclient

from lib import repo, wait
from lib.control import Control
from lib.models.graphs import Clients, adders, ensemble, node, step, vector, workflow


FAILS = {"fail_status": "UNAVAILABLE", "fail_message": "no luck"}
DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'


@pytest.fixture
def served(models, start):
    """One server with a model that adds 1, one that adds 10, one that fails, and workflows of them."""
    adders(models, one=1, ten=10)
    repo.add(models, "bad", backend="fault", parameters=FAILS)
    repo.add(models, "ended", backend="fault", parameters={"fail_status": "CANCELLED"})
    texts = {
        "chain": workflow(node("a", "one", outputs={"OUTPUT0": "t"}), node("b", "ten", {"INPUT0": "t"})),
        "when": workflow(node("a", "one", extra='when: "INPUT0[0] > 5"'), extra=DEFAULT),
        "parameter": workflow(node("a", "one", extra="when: 'parameter(\"mode\") == \"on\"'"), extra=DEFAULT),
        "nulls": workflow(node("a", "one", outputs={"OUTPUT0": "t"}, extra='when: "INPUT0[0] > 5"'),
                          node("b", "ten", {"INPUT0": "t"}), extra=DEFAULT),
        "fail": workflow(node("a", "bad")),
        "skip": workflow(node("a", "bad", outputs={"OUTPUT0": "t"}, extra="on_error: SKIP"), node("b", "ten", {"INPUT0": "t"}),
                         extra=DEFAULT),
        "default": workflow(node("a", "bad", outputs={"OUTPUT0": "t"}, extra='default { tensor: "t" int64: 7 }'),
                            node("b", "ten", {"INPUT0": "t"})),
        "by_model": workflow(node("a", "bad", extra='fallback { model { name: "ten" } }')),
        # that a model gives up is a failure like any other: the client is still there
        "by_ended": workflow(node("a", "ended", extra='fallback { model { name: "ten" } }')),
        "by_branch": workflow(node("a", "ended", extra='fallback { model { name: "ten" } }'), node("b", "one"),
                              extra='switch { name: "s" per: ROW input: "INPUT0" case { when: "INPUT0 > 5" node: "b" } else { node: "a" } }'),
        "by_node": workflow(node("a", "bad", extra='fallback { node: "spare" }'), node("spare", "one")),
        # a fallback's own policy, and what it lacks
        "by_default": workflow(node("a", "bad", extra='fallback { node: "spare" }'), node("spare", "bad", extra='default { tensor: "OUTPUT0" int64: 7 }')),
        "by_skip": workflow(node("a", "bad", extra='fallback { node: "spare" }'), node("spare", "bad", extra="on_error: SKIP"), extra=DEFAULT),
        "by_null": workflow(node("m", "one", outputs={"OUTPUT0": "m"}, extra='when: "INPUT0[0] > 5"'),
                            node("a", "bad", extra='fallback { node: "spare" }'), node("spare", "ten", {"INPUT0": "m"}), extra=DEFAULT),
        "wrong": workflow(node("a", "one", extra="when: 'parameter(\"most\", 1) > 0' fallback { model { name: \"ten\" } }"), extra=DEFAULT),
        "by_bad": workflow(node("a", "bad", extra='fallback { model { name: "bad" } }')),
        "retry": workflow(node("a", "bad", extra="retry { attempts: 3 budget_percent: 100 }")),
        "header": workflow(node("a", "one", extra="when: 'header(\"X-Mode\") == \"on\"'"), extra=DEFAULT),
        "within": workflow(node("n", "header")),
        "status": workflow(node("a", "bad", outputs={"OUTPUT0": "t"}, extra='default { tensor: "t" int64: 7 }'),
                           node("b", "ten", extra="when: 'status(a) == \"default\"'"), extra=DEFAULT),
        "no_status": workflow(node("a", "one", outputs={"OUTPUT0": "t"}, extra='default { tensor: "t" int64: 7 }'),
                              node("b", "ten", extra="when: 'status(a) == \"default\"'"), extra=DEFAULT),
        "after": workflow(node("b", "ten", extra='after: "a"'), node("a", "one", outputs={"OUTPUT0": "OUTPUT1"}),
                          outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]),
    }
    def pairs(*dims):
        return {"inputs": [repo.tensor("INPUT0", dims=(*dims, 2))], "outputs": [repo.tensor("OUTPUT0", dims=(*dims, 2))]}

    # one model has a batch dimension and the other has not, and so has the workflow
    for name, batch, io in (("batch", 8, pairs()), ("plain", 0, pairs(-1))):
        repo.add(models, name, max_batch_size=batch, **io)
        repo.add(models, f"bad_{name}", backend="fault", parameters=FAILS, max_batch_size=batch, **io)
    for name, bad, good, batch, io in (("mixed_batch", "bad_plain", "batch", 8, pairs()), ("mixed_plain", "bad_batch", "plain", 0, pairs(-1))):
        texts[name] = workflow(node("a", bad, outputs={"OUTPUT0": "t"}, extra='default { tensor: "t" int64: 7 }'), node("b", good, {"INPUT0": "t"}),
                               max_batch_size=batch, **io)
    for name, text in texts.items():
        repo.add(models, name, text)
    return Clients(start(models, "--default-warmup-time=0"))


def test_what_workflows_give(served):
    wanted = [("chain", 1, 12), ("when", 6, 7), ("when", 5, -1), ("nulls", 6, 17), ("nulls", 5, -1), ("skip", 1, -1), ("default", 1, 17),
              ("by_model", 1, 11), ("by_ended", 1, 11), ("by_branch", 1, 11), ("by_node", 1, 2), ("by_default", 1, 7), ("by_skip", 1, -1), ("by_null", 1, -1), ("by_null", 6, 17),
              ("after", 1, 11), ("parameter", 1, -1), ("header", 1, -1), ("status", 1, 11), ("no_status", 1, -1)]
    for name, x, y in wanted:
        assert served.ask(name, {"INPUT0": vector(x)})["OUTPUT0"].tolist() == [y], name
    assert served.ask("parameter", {"INPUT0": vector(1)}, parameters={"mode": "on"})["OUTPUT0"].tolist() == [2]
    for name in ("header", "within"):
        for headers in ({"x-mode": "on"}, {"x-mode": "off"}):
            wanted = 2 if headers["x-mode"] == "on" else -1
            assert served.ask(name, {"INPUT0": vector(1)}, headers=headers)["OUTPUT0"].tolist() == [wanted]
    for name in ("fail", "by_bad"):
        with pytest.raises(Exception, match=f"in workflow '{name}', node 'a': .*no luck"):
            served.ask(name, {"INPUT0": vector(1)})
    # what a condition is about is the client's, not the node's
    with pytest.raises(Exception, match="in workflow 'wrong', node 'a', 'when': column 1: parameter 'most' of the request is a string that is no int"):
        served.ask("wrong", {"INPUT0": vector(1)}, parameters={"most": "x"})
    for name, rows in (("mixed_batch", 3), ("mixed_plain", 1)):
        assert served.ask(name, {"INPUT0": np.zeros((rows, 2), np.int32)})["OUTPUT0"].tolist() == [[7, 7]] * rows, name
    metadata = served.http.get_model_metadata("chain")
    assert metadata["platform"] == "workflow" and metadata["outputs"][0]["name"] == "OUTPUT0"


def test_retries(served):
    def failures():
        return served.http.get_inference_statistics("bad")["model_stats"][0]["inference_stats"]["fail"]["count"]

    before = failures()
    with pytest.raises(Exception, match="no luck"):
        served.http.infer("retry", [_input(1)])
    assert failures() - before == 3
    with pytest.raises(Exception, match="no luck"):
        served.http.infer("retry", [_input(1)], sequence_id=7, sequence_start=True)
    assert failures() - before == 4


def _input(x):
    return httpclient.InferInput("INPUT0", [1], "INT32").set_data_from_numpy(vector(x))


TENSOR = {"data_type": "TYPE_INT32", "dims": [-1]}
REFUSED = [
    (workflow(node("a", "one", {"INPUT0": "x"})), "node 'a' reads tensor 'x', which nothing writes"),
    (workflow(node("a", "one", {"INPUT0": "y"}, {"OUTPUT0": "x"}), node("b", "one", {"INPUT0": "x"}, {"OUTPUT0": "y"}), node("c", "one")),
     "waits for itself"),
    (workflow(node("a", "one"), node("b", "ten")), "tensor 'OUTPUT0' is written by node 'b' and by a"),
    (workflow(node("a", "one", outputs={"OUTPUT0": "INPUT0"}), node("b", "ten")), "tensor 'INPUT0' is written by node 'a' and by the client"),
    (workflow(node("a", "one"), node("a", "one")), "two nodes are named 'a'"),
    (workflow(node("a", "one", extra='after: "z"')), "node 'a' names 'z' in 'after', and no node has that name"),
    (workflow(node("a", "one", extra='when: "z > 1"')), "node 'a', 'when': .*'z' is no tensor of the workflow"),
    (workflow(node("a", "one", extra='when: "INPUT0[0] >"')), "node 'a', 'when': "),
    (workflow(node("a", "one", extra="when: 'status(a) == \"ran\"'"), extra=DEFAULT), "node 'a' waits for itself"),
    (workflow(node("a", "one", extra="when: 'status(z) == \"ran\"'"), extra=DEFAULT), "'z' is no node of the workflow, or a fallback"),
    (workflow(node("a", "one", extra='fallback { node: "b" }'), node("b", "ten"), node("c", "one", outputs={"OUTPUT0": "t"},
                                                                                       extra="when: 'status(b) == \"ran\"'")),
     "'b' is no node of the workflow, or a fallback"),
    (workflow(node("a", "one", extra='when: "INPUT0[0] > 1"')), "output 'OUTPUT0' of node 'a' may have no value, and has no 'default'"),
    (workflow(node("a", "one", extra="on_error: SKIP")), "output 'OUTPUT0' of node 'a' may have no value"),
    (workflow(node("m", "one", outputs={"OUTPUT0": "m"}, extra='when: "INPUT0[0] > 5"'), node("a", "one", extra='fallback { node: "b" }'),
              node("b", "ten", {"INPUT0": "m"})), "output 'OUTPUT0' of node 'a' may have no value"),
    (workflow(node("a", "one", extra='fallback { node: "b" }'), node("b", "ten", extra="on_error: SKIP")), "output 'OUTPUT0' of node 'a' may have no value"),
    (workflow(node("a", "one", extra='fallback { node: "b" }'), node("b", "ten", extra='fallback { model { name: "one" } }')),
     "node 'b' is a fallback and has one itself"),
    (workflow(node("a", "one", extra='default { tensor: "OUTPUT0" string: "x" }')), "the default of node 'a' for tensor 'OUTPUT0' is no INT32"),
    (workflow(node("a", "one", extra='default { tensor: "OUTPUT0" int64: 2147483648 }')), "the default of node 'a' for tensor 'OUTPUT0' is no INT32, or not in its range"),
    (workflow(node("a", "one"), extra='default { tensor: "OUTPUT0" double: 1.5 }'), "the default of the workflow for tensor 'OUTPUT0' is no INT32"),
    (workflow(node("a", "one", extra="on_error: FALLBACK")), "node 'a' must specify 'fallback'"),
    (workflow(node("a", "one", extra='fallback { node: "b" }'), node("b", "ten", outputs={"OUTPUT0": "t"})),
     "'b', the fallback of node 'a', has to write the same tensors"),
    (workflow(node("a", "one", extra='default { tensor: "INPUT0" int64: 1 }')), "node 'a' has a default of 'INPUT0', which it does not write"),
    (workflow(node("a", "one", {"NOTHING": "INPUT0"})), "node 'a': .*workflow tensor INPUT0 is mapping to non-existing input NOTHING in model one"),
    (workflow(node("a", "absent")), "node 'a': .*contains models that are not available or ambiguous: absent"),
    (workflow(node("a", "one"), outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")]), "node 'a': .*inconsistent data type: TYPE_FP32 is inferred from model w"),
    (workflow(node("a", "one", extra="retry { attempts: 0 }")), "retry of node 'a' has attempts 0"),
    (workflow(node("a", "one").replace('"one"', '"one" version: -5')), "node 'a': model 'one' has version -5"),
    (workflow(node("a", "one", extra='fallback { model { name: "ten" version: -2 } }')), "node 'a': model 'ten' has version -2"),
    (workflow(node("a", "one", extra='shadow { model { name: "ten" version: -2 } percent: 1 }')), "node 'a': model 'ten' has version -2"),
    (workflow(node("a", "one").replace('model { name: "one" }', 'split { variant { name: "v" weight: 1 model { name: "one" version: -2 } } }')),
     "split of node 'a': model 'one' has version -2"),
    (workflow(node("a", "one"), extra=DEFAULT + DEFAULT), "a default of the workflow names 'OUTPUT0', and another one does as well"),
    (workflow(node("a", "one", extra=DEFAULT + DEFAULT)), "a default of node 'a' names 'OUTPUT0', and another one does as well"),
    (workflow(node("a", "one"), node("b", "ten"), extra='switch { name: "a" case { when: "INPUT0[0] > 1" node: "a" } else { node: "b" } }'),
     "switch 'a' has the name of a node"),
    (workflow(node("a", "one"), extra='gather { name: "a" from: "OUTPUT0" into: "t" }'), "gather 'a' has the name of a node"),
    (workflow(node("a", "one"), extra='gather { name: "g" from: "OUTPUT0" into: "t" } gather { name: "g" from: "OUTPUT0" into: "u" }'),
     "gather 'g' has the name of another switch or gather"),
]


def test_what_is_refused(models, start):
    adders(models, one=1, ten=10)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", text)
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400
            assert re.search(error, reply.json()["error"]), (error, reply.json()["error"])
            assert re.search(rf"state: \S+/w{i}/config.pbtxt:\d+: ", reply.json()["error"]), reply.json()["error"]
        asked = {"platform": "workflow", "input": [TENSOR | {"name": "INPUT0"}], "output": [TENSOR | {"name": "OUTPUT0"}],
                 "workflow_scheduling": {"node": [{"name": "q", "model": {"name": "absent"}, "input_map": {"INPUT0": "INPUT0"},
                                                   "output_map": {"OUTPUT0": "OUTPUT0"}}]}}
        error = control.load("w0", config=asked).json()["error"]
        assert "node 'q'" in error and "config.pbtxt" not in error  # it is not the file that is wrong


def test_a_model_that_a_workflow_asks_stays(models, start):
    """Also if an ensemble asks it, which would go with it. It goes with the workflow, if no client has loaded it again since."""
    adders(models, one=1)
    repo.add(models, "w", workflow(node("a", "one")))
    repo.add(models, "v", workflow(node("a", "one")))
    repo.add(models, "e", ensemble(step("one", {"INPUT0": "INPUT0"}, {"OUTPUT0": "OUTPUT0"})))
    repo.add(models, "of_e", workflow(node("a", "e")))
    with Control(start(models, mode="explicit")) as control:
        for again in (True, False):
            control.load("w").ok()
            control.load("e").ok()
            assert "failed to unload 'one', versions that are still available: 1" in control.unload("one").error
            assert control.answer("e")[0] == control.answer("w")[0] == [2, 3]
            control.unload("e").ok()
            if again:
                control.load("one").ok()
            control.load("v").ok()
            control.unload("w").ok()
            control.unload("v").ok()
            if again:
                assert control.model_ready("one")
            else:
                wait.until(lambda: not control.model_ready("one"), "the model that a client has unloaded to go")
        control.load("of_e").ok()
        assert "failed to unload 'one'" in control.unload("one").error
        assert control.answer("of_e")[0] == [2, 3]
