"""What a workflow says of a request: its trace, the nodes that did not simply run, the variants of splits."""
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ElementTree

import grpc
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient
from tritonclient.grpc import service_pb2_grpc

from lib import grpcraw, repo
from lib.metrics import value
from lib.models.graphs import adders, ensemble, node, op, step, vector, workflow
from lib.rest import Rest
from lib.stream import Stream

MILLRACE = os.environ["MR_BIN"]
FAILS = {"fail_status": "UNAVAILABLE", "fail_message": "no luck"}
DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'
SPLIT = 'split { variant { name: "stable" model { name: "one" } weight: 1 } variant { name: "off" model { name: "ten" } weight: 0 } }'


@pytest.fixture
def served(models, start):
    adders(models, one=1, ten=10)
    repo.add(models, "bad", backend="fault", parameters=FAILS)
    texts = {
        "chain": workflow(node("a", "one", outputs={"OUTPUT0": "t"}), node("b", "ten", {"INPUT0": "t"})),
        "outer": workflow(node("n", "chain", outputs={"OUTPUT0": "t"}), node("b", "ten", {"INPUT0": "t"})),
        "steps": ensemble(step("one", {"INPUT0": "INPUT0"}, {"OUTPUT0": "t"}), step("ten", {"INPUT0": "t"}, {"OUTPUT0": "OUTPUT0"})),
        "op": workflow(node("a", "one", outputs={"OUTPUT0": "t"}), op("c", "cast", {"x": "t"}, {"x": "OUTPUT0"}, dtype="INT32")),
        "odd": workflow(node("f", "bad", outputs={"OUTPUT0": "t"}, extra='fallback { model { name: "ten" } }'),
                        node("d", "bad", outputs={"OUTPUT0": "u"}, extra='default { tensor: "u" int64: 7 }', inputs={"INPUT0": "t"}),
                        node("k", "bad", outputs={"OUTPUT0": "v"}, extra="on_error: SKIP", inputs={"INPUT0": "u"}),
                        node("s", "one", {"INPUT0": "v"}), extra=DEFAULT),
        "split": workflow(node("p", "", outputs={"OUTPUT0": "t"}).replace('model { name: "" }', SPLIT), node("b", "ten", {"INPUT0": "t"})),
        "retry": workflow(node("a", "bad", extra='retry { attempts: 3 budget_percent: 100 } fallback { node: "spare" }'), node("spare", "one")),
        "unused": workflow(node("a", "one"), node("b", "ten", outputs={"OUTPUT0": "OUTPUT1"}),
                           outputs=[repo.tensor("OUTPUT0"), repo.tensor("OUTPUT1")]),
    }
    for name, text in texts.items():
        repo.add(models, name, text)
    return start(models, "--default-warmup-time=0")


def parameters(server, model, x=1, outputs=None, **asked):
    """Those of the answer, which both protocols give alike but for times."""
    found = []
    for kit, url in ((httpclient, server.url("http")), (grpcclient, server.url("grpc"))):
        with kit.InferenceServerClient(url) as client:
            made = kit.InferInput("INPUT0", [1], "INT32").set_data_from_numpy(vector(x))
            wanted = [kit.InferRequestedOutput(o) for o in outputs] if outputs else None
            answer = client.infer(model, [made], outputs=wanted, parameters=asked).get_response()
            if kit is httpclient:
                found.append(answer.get("parameters", {}))
            else:
                found.append({k: v.string_param for k, v in answer.parameters.items()})
    assert found[0].keys() == found[1].keys()
    return found[0]


def trace(server, model, **kw):
    given = parameters(server, model, **{"workflow.trace": True}, **kw)
    return json.loads(given["workflow.trace"])


def outcomes(nodes):
    return {n["name"]: n["outcome"] for n in nodes}


def test_the_times_of_nodes(served):
    t = trace(served, "chain")
    assert t["name"] == "chain" and outcomes(t["nodes"]) == {"a": "ran", "b": "ran"}
    a, b = t["nodes"]
    assert 0 <= a["start"] <= a["end"] <= b["start"] <= b["end"] <= t["ns"]
    assert (a["model"], b["model"], a["calls"]) == ("one", "ten", 1)
    assert [n["name"] for n in trace(served, "steps")["nodes"]] == ["one", "ten"]
    assert trace(served, "op")["nodes"][1]["op"] == "cast"
    # only what runs for the outputs that are asked for
    assert outcomes(trace(served, "unused", outputs=["OUTPUT1"])["nodes"]) == {"b": "ran"}


def test_runs_of_operators(served):
    assert value(served, "millrace_workflow_node_events_total", model="op") is None
    trace(served, "op")
    assert value(served, "millrace_workflow_node_events_total", model="op", node="c", event="operator") == 2  # over both protocols


def test_a_workflow_within_a_workflow(served):
    nodes = trace(served, "outer")["nodes"]
    assert outcomes(nodes[0]["workflow"]["nodes"]) == {"a": "ran", "b": "ran"} and "workflow" not in nodes[1]


def test_nodes_that_did_not_simply_run(served):
    wanted = {"f": "fallback", "d": "default", "k": "failed", "s": "skipped"}
    assert json.loads(parameters(served, "odd")["workflow.status"]) == wanted
    nodes = trace(served, "odd")["nodes"]
    assert outcomes(n for n in nodes if "for" not in n) == wanted
    spare = next(n for n in nodes if "for" in n)
    assert (spare["for"], spare["model"], spare["outcome"]) == ("f", "ten", "ran")
    assert "start" not in nodes[3]
    first, second = trace(served, "retry")["nodes"]
    assert first["calls"] == 3 and first["by"] == "spare" and second["for"] == "a"


def test_clients_that_want_no_less(served):
    with pytest.raises(Exception, match="in workflow 'odd', node 'f': .*no luck"):
        parameters(served, "odd", **{"workflow.strict": True})
    assert parameters(served, "odd", **{"workflow.strict": False}).keys() == {"workflow.status"}
    assert parameters(served, "chain", **{"workflow.strict": True}) == {}


def test_the_variant_of_a_split(served):
    assert parameters(served, "split") == {"variant.p": "stable"}
    assert trace(served, "split")["nodes"][0]["variant"] == "stable"


def test_what_is_not_asked_for(served):
    assert parameters(served, "chain") == {}
    assert parameters(served, "chain", **{"workflow.trace": False}) == {}
    with pytest.raises(Exception, match="parameter 'workflow.trace' is 'maybe', allowed are true and false"):
        parameters(served, "chain", **{"workflow.trace": "maybe"})


def test_a_trace_is_bounded(models, start):
    adders(models, one=1)
    count, long = 150, "x" * 900
    nodes = [node(f"{i}{long}", "one", {"INPUT0": f"t{i}" if i else "INPUT0"}, {"OUTPUT0": f"t{i + 1}" if i + 1 < count else "OUTPUT0"})
             for i in range(count)]
    repo.add(models, "many", workflow(*nodes))
    text = parameters(start(models, "--default-warmup-time=0"), "many", **{"workflow.trace": True})["workflow.trace"]
    assert len(text) <= 65536
    t = json.loads(text)
    assert t["omitted"] > 0 and len(t["nodes"]) + t["omitted"] == count


# ---- millrace workflow trace ----

def command(server, *args, code=0, protocol="http"):
    url = server.url("http") if protocol == "http" else "grpc://" + server.url("grpc")
    done = subprocess.run([MILLRACE, "workflow", "trace", *map(str, args), "-u", url], capture_output=True, text=True, timeout=300)
    assert done.returncode == code, f"{done.returncode}: {done.stdout}{done.stderr}"
    return done


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_command(served, protocol, tmp_path):
    out = command(served, "odd", "-i", "INPUT0=[3]", protocol=protocol).stdout
    lines = out.splitlines()
    assert re.match(r"odd: \d", lines[0])
    assert [line.split()[0] for line in lines[1:] if not line.startswith(" ")] == ["f", "d", "k", "s", "f"]
    assert re.search(r"^f +fallback .*█?", out, re.M) and re.search(r"^s +skipped", out, re.M)
    picture = tmp_path / "t.svg"
    command(served, "outer", "--svg", picture, protocol=protocol)
    root = ElementTree.fromstring(picture.read_text())
    texts = ["".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(t.startswith("chain") or t == "n" for t in texts) and "b" in texts


def test_the_command_with_zeros_and_as_json(served):
    assert json.loads(command(served, "split", "--json").stdout)["nodes"][0]["variant"] == "stable"


def test_the_command_fails(served):
    assert "no trace" in command(served, "one", code=1).stderr
    assert "no luck" in command(served, "odd", "-p", "workflow.strict=true", code=1).stderr
    assert "absent" in command(served, "absent", code=1).stderr
    assert command(served, code=2).stderr


def test_a_request_that_fails(models, start):
    """The error comes with the trace, if it was asked for: beside it, in trailing metadata or, of a stream, as a parameter. The command shows it,
    and fails."""
    adders(models, one=1)
    repo.add(models, "bad", backend="fault", parameters=FAILS)
    repo.add(models, "inner", workflow(node("b", "bad")))
    repo.add(models, "w", workflow(node("a", "one", outputs={"OUTPUT0": "t"}), node("n", "inner", {"INPUT0": "t"})))
    server = start(models, "--default-warmup-time=0")
    with Rest(server.http) as rest:
        reply = rest.infer("w", [("INPUT0", "INT32", [1], [1])], parameters={"workflow.trace": True})
        assert reply.status == 503 and reply.headers["retry-after"] == "1"
        assert "no luck" in reply.json()["error"]
        found = json.loads(reply.json()["parameters"]["workflow.trace"])
        assert "no luck" in rest.infer("w", [("INPUT0", "INT32", [1], [1])]).error
    request = grpcraw.int32("w", [1], parameters={"workflow.trace": True})
    with grpc.insecure_channel(server.url("grpc")) as channel, pytest.raises(grpc.RpcError) as failed:
        service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request)
    assert failed.value.code() == grpc.StatusCode.UNAVAILABLE and "no luck" in failed.value.details()
    with Stream(server.url("grpc")) as stream:
        stream.send(request)
        (answer,) = stream.take(1)
    assert "no luck" in answer.error_message
    for trace in found, json.loads(dict(failed.value.trailing_metadata())["workflow.trace-bin"]), \
            json.loads(answer.infer_response.parameters["workflow.trace"].string_param):
        assert outcomes(trace["nodes"]) == {"a": "ran", "n": "failed"}
        assert outcomes(trace["nodes"][1]["workflow"]["nodes"]) == {"b": "failed"}
    for url in server.url("http"), "grpc://" + server.url("grpc"):
        done = subprocess.run([MILLRACE, "workflow", "trace", "w", "-u", url], capture_output=True, text=True, timeout=300)
        assert done.returncode == 1 and "no luck" in done.stderr and re.search(r"^n +failed", done.stdout, re.M), done
