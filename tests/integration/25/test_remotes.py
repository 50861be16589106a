"""Models of other servers: nodes of workflows, variants of splits, fallbacks, and models of their own."""
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.metrics import value
from lib.models.graphs import Clients, adders, node, op, vector, workflow
from lib.rest import Rest, as_input, infer_path
from lib.services.ports import quiet_port

INPUT = [("INPUT0", "INT32", [1], [1])]
MIXED = [repo.tensor("A", "TYPE_UINT8"), repo.tensor("B"), repo.tensor("C", "TYPE_STRING")]
ENDLESS = {"async": 1, "max_pending": 64, "until_cancelled": "true"}


def far(name, model, address, extra="", version="", **kw):
    """A node whose model is that of another server."""
    text = node(name, model, extra=extra, **kw)
    return text.replace(f'model {{ name: "{model}" }}', f'model {{ name: "{model}" remote: "{address}" {version} }}')


def remote(address, model):
    return f'platform: "remote" parameters {{ key: "remote" value {{ string_value: "{address}" }} }} ' \
           f'parameters {{ key: "model" value {{ string_value: "{model}" }} }}'


@pytest.fixture
def there(models, start, tmp_path):
    """The other server: models that add 1 and 10, one that batches, one that fails, one that ends when it is cancelled."""
    folder = tmp_path / "there"
    adders(folder, one=1, ten=10)
    repo.add(folder, "same", max_batch_size=4)
    repo.add(folder, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    repo.add(folder, "endless", backend="fault", parameters={**ENDLESS, "trace": str(tmp_path / "trace")})
    repo.add(folder, "chain", workflow(node("x", "one")))
    repo.add(folder, "asked", workflow(node("x", "ten", extra="when: 'parameter(\"p99\", 0) == 99'"), extra='default { tensor: "OUTPUT0" int64: -1 }'))
    repo.add(folder, "mixed", inputs=MIXED, outputs=MIXED)
    return start(folder, "--default-warmup-time=0")


def addresses(server):
    return [f"http://{server.url('http')}", f"grpc://{server.url('grpc')}"]


def test_nodes_of_another_server(there, models, start):
    adders(models, two=2)
    rest, grpc = addresses(there)
    for name, address in (("rest", rest), ("grpc", grpc), ("list", f"list://{there.url('http')}")):
        repo.add(models, name, workflow(far("a", "one", address, outputs={"OUTPUT0": "t"}), node("b", "two", {"INPUT0": "t"}, {"OUTPUT0": "u"}),
                                        far("c", "ten", address, inputs={"INPUT0": "u"})))
    repo.add(models, "version", workflow(far("a", "one", grpc, version="version: 1")))
    repo.add(models, "inner", workflow(far("a", "chain", rest)))
    repo.add(models, "fallback", workflow(far("a", "bad", rest, extra=f'fallback {{ model {{ name: "ten" remote: "{grpc}" }} }}')))
    repo.add(models, "own", remote(rest, "ten"))
    repo.add(models, "asked", remote(grpc, "asked"))
    repo.add(models, "patient", workflow(far("a", "one", rest), extra="deadline_ms: 172800000"))  # more than the other server takes
    served = start(models, "--default-warmup-time=0")
    clients = Clients(served)
    wanted = {"patient": 2, "rest": 14, "grpc": 14, "list": 14, "version": 2, "inner": 2, "fallback": 11, "own": 11}
    for name, number in wanted.items():
        assert clients.ask(name, {"INPUT0": vector(1)})["OUTPUT0"].tolist() == [number], name
    metadata = clients.http.get_model_metadata("own")
    assert metadata["platform"] == "remote" and metadata["inputs"] == [{"name": "INPUT0", "datatype": "INT32", "shape": [-1]}]
    assert clients.http.get_model_config("own")["max_batch_size"] == 0
    with Rest(served.http) as rest:
        assert rest.infer("asked", INPUT, parameters={f"p{i}": i for i in range(100)}).ok().json()["outputs"][0]["data"] == [11]
        trace = json.loads(rest.infer("grpc", INPUT, parameters={"workflow.trace": True}).ok().json()["parameters"]["workflow.trace"])
    assert [n["model"] for n in trace["nodes"]] == [f"one@{grpc}".replace("/", "%2F"), "two", f"ten@{grpc}".replace("/", "%2F")]


def test_rows_and_batches(there, models, start):
    """A call of a node with `foreach` has as many rows as the other server's model takes; its tensors are divided and joined here."""
    rest, grpc = addresses(there)
    wide = repo.tensor("INPUT0", dims=(-1, 2)), repo.tensor("OUTPUT0", dims=(-1, 2))
    repo.add(models, "rows", workflow(far("a", "same", grpc, extra='foreach { over: "INPUT0" }'), inputs=[wide[0]], outputs=[wide[1]]))
    repo.add(models, "batch", workflow(far("a", "same", rest), max_batch_size=4))
    repo.add(models, "too_many", workflow(far("a", "same", rest), max_batch_size=8))
    served = start(models, "--default-warmup-time=0", "--exit-on-error=false")
    clients = Clients(served)
    rows = np.arange(18, dtype=np.int32).reshape(9, 2)
    assert np.array_equal(clients.ask("rows", {"INPUT0": rows})["OUTPUT0"], rows)
    assert clients.ask("batch", {"INPUT0": rows[:3]})["OUTPUT0"].tolist() == rows[:3].tolist()
    with Rest(there.http) as rest_there:
        stats = rest_there.get("/v2/models/same/stats").ok().json()["model_stats"][0]
    assert stats["execution_count"] == 2 * (3 + 1), "nine rows are three calls of four at most"
    reasons = {r["name"]: r["reason"] for r in Control(served).index() if r["name"] == "too_many"}
    assert "which only allows maximum batch size to be 4" in reasons["too_many"]


def test_requests_that_are_joined(there, models, start):
    """A model folder with dynamic batching: requests that come together become one on the other server."""
    rest, _ = addresses(there)
    repo.add(models, "own", remote(rest, "same") + " dynamic_batching { max_queue_delay_microseconds: 100000 }")
    served = start(models, "--default-warmup-time=0")

    def ask(i):
        with Rest(served.http) as client:
            return client.infer("own", [("INPUT0", "INT32", [1, 2], [i, -i])]).ok().json()["outputs"][0]["data"]

    def are_joined():
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(4))) == [[i, -i] for i in range(4)]
        with Rest(there.http) as client:
            stats = client.stats("same")[0]
        return stats["execution_count"] < stats["inference_count"]

    wait.until(are_joined, "requests to be joined")


def test_tensors_that_lie_anywhere(there, models, start):
    """What is received at an odd place is read as any other tensor."""
    for name, address in zip(("rest", "grpc"), addresses(there)):
        same = {n: n for n in "ABC"}
        repo.add(models, name, workflow(far("a", "mixed", address, inputs=same, outputs={"A": "A1", "B": "t", "C": "C1"}),
                                        op("b", "cast", {"x": "t"}, {"x": "B1"}, dtype="INT64"), inputs=MIXED,
                                        outputs=[repo.tensor("A1", "TYPE_UINT8"), repo.tensor("B1", "TYPE_INT64"), repo.tensor("C1", "TYPE_STRING")]))
    served = start(models, "--default-warmup-time=0")
    with Rest(served.http) as client:
        for name in ("rest", "grpc"):
            for count in range(1, 9):
                bytes_, texts = list(range(count)), ["x" * i for i in range(count)]
                answer = client.infer(name, [("A", "UINT8", [count], bytes_), ("B", "INT32", [3], [1, -2, 3]), ("C", "BYTES", [count], texts)]).ok().json()
                assert {o["name"]: o["data"] for o in answer["outputs"]} == {"A1": bytes_, "B1": [1, -2, 3], "C1": texts}


def test_a_server_that_is_cut_off(there, models, start):
    adders(models, two=2)
    rest, grpc = addresses(there)
    for name, address in (("rest", rest), ("grpc", grpc)):
        repo.add(models, f"fail_{name}", workflow(far("a", "one", address)))
        repo.add(models, f"skip_{name}", workflow(far("a", "one", address, extra="on_error: SKIP"), extra='default { tensor: "OUTPUT0" int64: -1 }'))
        repo.add(models, f"default_{name}", workflow(far("a", "one", address, extra='default { tensor: "OUTPUT0" int64: 7 }')))
        repo.add(models, f"fallback_{name}", workflow(far("a", "one", address, extra='fallback { model { name: "two" } }')))
    served = start(models, "--default-warmup-time=0")
    clients = Clients(served)
    for name in ("rest", "grpc"):
        assert clients.ask(f"fail_{name}", {"INPUT0": vector(1)})["OUTPUT0"].tolist() == [2]
    there.process.kill()
    there.process.wait()
    there.checked = True
    for name in ("rest", "grpc"):
        with Rest(served.http) as rest:
            reply = rest.infer(f"fail_{name}", INPUT)
        assert reply.status == 503 and f"in workflow 'fail_{name}', node 'a': model 'one' of {addresses(there)[name == 'grpc']}: " in reply.error
        for kind, number in (("skip", -1), ("default", 7), ("fallback", 3)):
            assert clients.ask(f"{kind}_{name}", {"INPUT0": vector(1)})["OUTPUT0"].tolist() == [number], (kind, name)


class Broken(BaseHTTPRequestHandler):
    """A server whose model is in order, and whose answers are none."""
    protocol_version = "HTTP/1.1"
    tensor = {"datatype": "INT32", "shape": [-1]}
    metadata = {"name": "one", "platform": "", "inputs": [{"name": "INPUT0", **tensor}], "outputs": [{"name": "OUTPUT0", **tensor}]}

    def say(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.say({"name": "one", "max_batch_size": 0} if self.path.endswith("/config") else self.metadata)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.say([])

    def log_message(self, *_):
        pass


def test_a_broken_answer_is_no_fault_of_the_client(models, start):
    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as host:
        threading.Thread(target=host.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{host.server_port}"
        repo.add(models, "w", workflow(far("a", "one", url)))
        served = start(models, "--default-warmup-time=0")
        with Rest(served.http) as rest:
            reply = rest.infer("w", INPUT)
        assert reply.status == 500 and f"in workflow 'w', node 'a': model 'one' of {url}: the answer of {url}: " in reply.error, reply.body
        served.stop()
        host.shutdown()


def test_time_and_cancel(there, models, start):
    """A node's time, and the client's going away, cancel what runs on the other server."""
    rest, grpc = addresses(there)
    for name, address in (("rest", rest), ("grpc", grpc)):
        repo.add(models, f"late_{name}", workflow(far("a", "endless", address, extra="timeout_ms: 1000")))
        repo.add(models, f"waits_{name}", workflow(far("a", "endless", address)))
    served = start(models, "--default-warmup-time=0")
    trace = models.parent / "trace"

    def cancelled(count):
        wait.equal(lambda: value(there, "nv_inference_request_failure", model="endless", reason="CANCELED"), count, "cancelled requests")

    for i, name in enumerate(("rest", "grpc")):
        with Rest(served.http) as client:
            reply = client.infer(f"late_{name}", INPUT)
        assert reply.status == 504 and f"in workflow 'late_{name}', node 'a'" in reply.error, reply.body
        cancelled(i + 1)
    for i, name in enumerate(("rest", "grpc")):
        begun = len(trace.read_text().splitlines())
        with Rest(served.http) as client:
            client.connection.request("POST", infer_path(f"waits_{name}"), body=json.dumps({"inputs": [as_input(x) for x in INPUT]}))
            wait.until(lambda: len(trace.read_text().splitlines()) == begun + 1, "the call to arrive")
        cancelled(i + 3)


def test_variants_shadows_and_second_calls(there, models, start):
    rest, grpc = addresses(there)
    maps = 'input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" }'
    adders(models, two=2)
    halves = "".join(f'variant {{ name: "{tag}" model {{ name: "{model}" {more} }} weight: 50 }} '
                     for tag, model, more in (("here", "two", ""), ("there", "ten", f'remote: "{rest}"')))
    repo.add(models, "split", workflow(f'node {{ name: "a" split {{ key: "parameter:who" {halves} }} {maps} }}'))
    repo.add(models, "shadow", workflow(node("a", "two", extra=f'shadow {{ name: "s" model {{ name: "ten" remote: "{grpc}" }} percent: 100 compare: "equal" }}')))
    repo.add(models, "hedge", workflow(far("a", "one", grpc, extra="hedge { after_ms: 1 max_extra_percent: 100 }")))
    served = start(models, "--default-warmup-time=0")
    seen = {}
    with Rest(served.http) as client:
        for i in range(32):
            answer = client.infer("split", INPUT, parameters={"who": str(i)}).ok().json()
            seen.setdefault(answer["parameters"]["variant.a"], set()).add(answer["outputs"][0]["data"][0])
        assert seen == {"here": {3}, "there": {11}}
        assert client.infer("shadow", INPUT).ok().json()["outputs"][0]["data"] == [3]
        for _ in range(8):
            assert client.infer("hedge", INPUT).ok().json()["outputs"][0]["data"] == [2]
    wait.until(lambda: value(served, "millrace_workflow_node_events_total", model="shadow", event="shadow_different") == 1, "the shadow to have run")


def test_a_server_that_comes_later(there, models, start, tmp_path):
    """In mode `poll` a workflow whose other server is not there is tried again."""
    there.stop()
    port = quiet_port()
    repo.add(models, "w", workflow(far("a", "one", f"http://127.0.0.1:{port}")))
    served = start(models, "--default-warmup-time=0", "--exit-on-error=false", "--repository-poll-secs=1", mode="poll")
    with Control(served) as control:
        wait.until(lambda: any("which has no loaded version" in (r.get("reason") or "") for r in control.index("w")), "the load to fail")
        start(tmp_path / "there", f"--http-port={port}")
        wait.until(lambda: control.model_ready("w"), "the workflow to be ready")
        assert control.infer("w", (1,)).ok().json()["outputs"][0]["data"] == [2]


def test_clients_choose_no_hosts(there, models, start):
    """The configuration of a load request may not name other servers; nor can their models be loaded by name."""
    rest, _ = addresses(there)
    adders(models, two=2)
    repo.add(models, "w", workflow(far("a", "one", rest)))
    served = start(models, "--load-overrides=all", mode="explicit")
    config = {"platform": "remote", "parameters": {"remote": {"string_value": rest}, "model": {"string_value": "one"}}}
    maps = {"input_map": {"INPUT0": "INPUT0"}, "output_map": {"OUTPUT0": "OUTPUT0"}}
    io = {"input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}], "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
    graph = {"platform": "workflow", **io, "workflow_scheduling": {"node": [{"name": "a", "model": {"name": "one", "remote": rest}, **maps}]}}
    with Control(served) as control:
        for asked in (config, graph):
            reply = control.load("w", asked)
            assert reply.status >= 400 and "may not name other servers" in reply.error
        assert [row["name"] for row in control.index() if row.get("state") == "READY"] == []  # and nothing was connected to
        assert "may not name other servers" in control.load("new", config, files={"1/x": b""}).error
        assert control.load(f"one@{rest.replace('/', '%252F')}").status >= 400
        control.load("w").ok()
        assert control.answer("w", (1,)) == ([2], "1")
        control.unload("w").ok()


@pytest.mark.parametrize("text, wanted", [
    ("ftp://h", "ftp"), ("http://127.0.0.1:1", "model 'one' of http://127.0.0.1:1"), ("consul://x", "consul"), ("", "has to give an address")])
def test_what_is_wrong_with_an_address(models, start, text, wanted):
    repo.add(models, "own", remote(text, "one"))
    served = start(models, "--exit-on-error=false")
    with Control(served) as control:
        (row,) = control.index("own")
        assert wanted in row["reason"], row


def test_variants_of_endpoints(there, models, start, tmp_path):
    rest, grpc = addresses(there)
    adders(models, two=2)
    path = tmp_path / "endpoints.pbtxt"

    def write(*variants):
        repo.write(path, "endpoint { name: \"e\" " + " ".join(f'variant {{ tag: "{t}" model: "{m}" weight: {w} {more} }}' for t, m, w, more in variants) + " }")

    write(("here", "two", 50, ""), ("far", "ten", 50, f'remote: "{rest}" remote: "{grpc}"'))
    served = start(models, f"--endpoints={path}", "--default-warmup-time=0")
    with Rest(served.http) as client:
        wait.until(lambda: client.get("/v2/models/e/ready").status == 200, "the endpoint to be ready")
        seen = {}
        for _ in range(16):
            answer = client.infer("e", INPUT).ok()
            assert answer.json()["model_name"] == "e"
            seen.setdefault(answer.headers["millrace-variant"], set()).add(answer.json()["outputs"][0]["data"][0])
        assert seen == {"here": {3}, "far": {11}}
        assert client.get("/v2/models/e/versions/far").ok().json()["inputs"][0]["shape"] == [-1]
        write(("far", "one", 1, f'remote: "{grpc}" version: 1'))
        wait.until(lambda: client.infer("e", INPUT).body.find(b"[2]") > 0, "the new file to be read")
    there.stop()
    with Rest(served.http) as client:
        assert client.infer("e", INPUT).status == 503


@pytest.mark.few
@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_no_request_is_lost_when_the_other_server_dies(there, models, start, kind):
    """It is killed while requests are under way on it; each is answered, by its model or by the fallback."""
    adders(models, two=2)
    repo.add(models, "w", workflow(far("a", "one", f"{kind}://{there.url(kind)}", extra='fallback { model { name: "two" } }')))
    served = start(models, "--default-warmup-time=0")
    seen, is_over = [], threading.Event()

    def ask():
        with Rest(served.http) as client:
            while not is_over.is_set():
                seen.append(client.infer("w", INPUT).ok().json()["outputs"][0]["data"])

    with ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(ask) for _ in range(8)]
        try:
            wait.until(lambda: len(seen) > 200, "answers of the other server")
            assert [2] in seen and [3] not in seen
            there.process.kill()
            there.process.wait()
            there.checked = True
            wait.until(lambda: seen.count([3]) > 200, "answers of the fallback")
        finally:
            is_over.set()
        [a.result() for a in asking]
    assert {tuple(s) for s in seen} == {(2,), (3,)}
