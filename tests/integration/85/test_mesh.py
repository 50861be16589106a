"""Servers that share a registry: any of them answers for any model."""
import json
import signal
import time

import grpc
import numpy as np
import pytest
from h2.events import TrailersReceived

from lib import grpcraw, metrics, pymodels, repo, wait
from lib.raw import GRPC_HEADERS, Http1, Http2, grpc_frame, grpc_path, request
from lib.rest import Rest
from lib.services.mesh import Clients, X, answers, ask, joined, loads, mesh_port, own_repositories, see_each_other
from lib.tclients import Triton


def test_any_server_answers_for_models_that_one_has(fleet, tmp_path):
    servers = fleet(*own_repositories(tmp_path, 3))
    for server in servers:
        for i in range(3):
            for k in range(2):
                answers(server, f"of{i}-{k}")
    for i, server in enumerate(servers):  # each was loaded where its files are, on demand
        assert loads(server, f"of{i}-0") == 1
        assert loads(server, f"of{(i + 1) % 3}-0") == 0
    with Rest(servers[0].http) as page:  # a web page of one server is foreign to the others
        page.infer("of1-0", X, headers={"Origin": f"http://127.0.0.1:{servers[0].http}"}).ok()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_bytes_pass_through_unchanged(fleet, tmp_path, kind):
    servers = fleet(*own_repositories(tmp_path, 2, models=1))
    client = Triton(kind, servers[0])
    data = np.arange(300_000, dtype=np.int32)
    tensor = client.module.InferInput("INPUT0", [len(data)], "INT32")
    tensor.set_data_from_numpy(data)
    result = client.call("infer", "of1-0", [tensor], request_id="7")
    assert (result.as_numpy("OUTPUT0") == data).all()
    if kind == "grpc":
        assert client.call("get_model_metadata", "of1-0").name == "of1-0"
        assert client.call("get_model_config", "of1-0").config.name == "of1-0"
    else:
        assert client.call("get_model_metadata", "of1-0")["name"] == "of1-0"
    client.close()


@pytest.mark.parametrize("kind", ["http", "grpc"])
def test_errors_of_the_model_pass_through(fleet, tmp_path, kind):
    servers = fleet(*own_repositories(tmp_path, 2, models=1))
    said = []
    for server in servers:
        client = Triton(kind, server)
        tensor = client.module.InferInput("WRONG", [1], "INT32")
        tensor.set_data_from_numpy(np.zeros(1, dtype=np.int32))
        with pytest.raises(Exception) as e:
            client.call("infer", "of1-0", [tensor])
        said.append((e.value.status(), e.value.message()))
        client.close()
    assert said[0] == said[1] and "WRONG" in said[0][1]
    for server in servers if kind == "grpc" else ():
        with Http2(server.grpc) as wire:
            stream = wire.headers("POST", grpc_path("ModelInfer"), GRPC_HEADERS, end=False)
            wire.send(stream, grpc_frame(grpcraw.int32("of1-0", [1], name="WRONG")))
            assert wire.response(stream).headers["grpc-status"] == "3"
            assert not wire.of(stream, TrailersReceived), "one block of headers: clients repeat only such calls"


@pytest.mark.parametrize("headers", [{f"x-{i}": "v" for i in range(96)}, {"x": "v" * 65200}], ids=["many", "large"])
def test_headers_that_a_server_takes_reach_the_other_one(fleet, tmp_path, headers):
    repos = own_repositories(tmp_path, 2, models=1)
    servers = fleet(*repos)
    with Rest(servers[0].http) as r:
        for model in ("of0-0", "of1-0"):
            assert r.infer(model, X, headers=headers).ok().json()["outputs"][0]["data"] == [1, 2, 3]
    message = grpcraw.int32("of1-0", [1, 2, 3])
    with grpc.insecure_channel(servers[0].url("grpc"), options=grpcraw.NO_LIMIT) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", request_serializer=lambda m: m.SerializeToString())
        fewer = dict(list(headers.items())[:94]) if len(headers) > 1 else {"x": "v" * 64000}
        assert call(message, metadata=list(fewer.items()), timeout=wait.PATIENCE)


def test_requests_go_straight_to_where_the_model_is(fleet, tmp_path):
    servers = fleet(*own_repositories(tmp_path, 2, models=1))
    with Rest(servers[0].http) as r:
        def went_straight():
            for _ in range(20):
                r.infer("of1-0", X).ok()
            return metrics.value(servers[0], "millrace_mesh_direct_total") > 10
        wait.until(went_straight, "requests that do not ask the mesh")
    assert metrics.value(servers[0], "millrace_mesh_requests_total") >= metrics.value(servers[0], "millrace_mesh_direct_total")
    servers[1].stop()  # and they notice that it has gone
    assert ask(servers[0], "of1-0").status >= 500


def test_unknown_model_is_not_found(fleet, models):
    repo.add(models, "m", repo.config())
    servers = fleet(models, models)
    assert ask(servers[1], "nobody").status == 404
    answers(servers[1], "m")


def test_model_that_does_not_load_says_why_everywhere(fleet, models):
    repo.add(models, "bad", repo.config(backend="nonesuch"))
    servers = fleet(models, models)
    replies = [ask(s, "bad") for s in servers]
    for reply in replies:
        assert reply.status >= 500
        assert "nonesuch" in reply.error


def test_killed_server_is_replaced(fleet, models):
    for i in range(6):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models, models)
    for i in range(6):
        answers(servers[i % 3], f"m{i}")
    servers[0].signal(signal.SIGKILL)  # it had the registry as well
    servers[0].wait_exit()
    servers[0].end_anyhow()
    for server in servers[1:]:
        for i in range(6):
            answers(server, f"m{i}")


def test_hung_server_holds_up_nobody(fleet, models):
    for i in range(6):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models, models)
    for i in range(6):
        answers(servers[i % 3], f"m{i}")
    servers[2].signal(signal.SIGSTOP)
    for server in servers[:2]:
        for i in range(6):
            answers(server, f"m{i}")
    servers[2].signal(signal.SIGCONT)
    for i in range(6):
        answers(servers[2], f"m{i}")


def test_end_of_a_server_fails_no_request(fleet, models):
    for i in range(6):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models, models)
    for i in range(6):
        answers(servers[i % 3], f"m{i}")
    servers[0].signal()
    while servers[0].running:
        for server in servers[1:]:
            for i in range(6):
                answers(server, f"m{i}")
    servers[0].stop()
    for server in servers[1:]:
        for i in range(6):
            answers(server, f"m{i}")


def test_more_models_than_room(fleet, models):
    for i in range(12):
        repo.add(models, f"m{i}", repo.config())
    servers = fleet(models, models, options=["--mesh-capacity=4M"])  # three models of an unknown size each
    for _ in range(3):
        for i in range(12):
            answers(servers[i % 2], f"m{i}")
    assert any(e["event"] == "model.unloaded" for s in servers for e in s.events())


def test_server_that_comes_later_takes_part(fleet, registry, start, tmp_path):
    repos = own_repositories(tmp_path, 2, models=1)
    [first] = fleet(repos[0])
    answers(first, "of0-0")
    late = start(repos[1], f"--mesh={registry}", "--mesh-id=late", mode=None)
    joined(late)
    answers(late, "of0-0")
    answers(first, "of1-0")


@pytest.mark.parametrize("option, says", [("--mesh-id=a/b", "--mesh-id"), ("--mesh-address=0.0.0.0:0", "loopback"),
                                          ("--mesh-address=127.0.0.1.example:0", "loopback"), ("--mesh=nowhere", "--mesh: 'nowhere' is no registry")])
def test_wrong_options_are_refused(registry, start, models, option, says):
    repo.add(models, "m", repo.config())
    server = start(models, f"--mesh={registry}", option, mode=None, ready=False)
    assert server.wait_exit() != 0
    server.end_anyhow()
    assert says in server.err()


def fill(folder):
    """Returns the file that takes all the room there is."""
    file = folder / "fill"
    with open(file, "wb", buffering=0) as f:
        for size in (65536, 512):
            try:
                while True:
                    f.write(bytes(size))
            except OSError:
                pass
    return file


@pytest.mark.more
def test_registry_on_a_full_disk_stops_nobody(start, models, small_disk):
    names = [f"m{i}" for i in range(8)]
    for name in names:
        repo.add(models, name, repo.config())
    servers = [start(models, f"--mesh=file:{small_disk}/r", f"--mesh-id=s{i}", mode=None) for i in range(2)]
    [joined(s) for s in servers]
    see_each_other(servers)
    for name in names[:4]:
        answers(servers[0], name)
    clients = Clients(servers, names)  # half of them are cold
    try:
        full = fill(small_disk)
        clients.more(2 * len(names))

        def change():
            with Rest(servers[1].http) as r:
                return r.post("/v2/mesh/vmodels/v/set", {"target": "m0", "owner": "x" * 3000})

        for server in servers:  # each of them says why
            with Rest(server.http) as r:
                refused = r.post("/v2/mesh/models/another/register", {"type": "t", "key": "x" * 3000})
            assert refused.status == 503
            assert refused.json()["error"].startswith(f"the registry does not take the change: {small_disk}/r: cannot write")
            assert "No space left on device" in refused.json()["error"]
        assert change().status >= 500 and "No space left on device" in change().json()["error"]
        clients.more(len(names))
        full.unlink()
        wait.until(lambda: change().status == 200, "the change")
        clients.more(len(names))
    finally:
        clients.end()
    assert clients.failures == []
    for server in servers:  # it is in the file
        server.stop()
    again = start(models, f"--mesh=file:{small_disk}/r", "--mesh-id=s0", mode=None)
    joined(again)
    with Rest(again.http) as r:
        assert r.get("/v2/mesh/vmodels/v").json()["active"] == "m0"
    answers(again, "v")


SAYS_SPENT = """
import json
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        spent = [json.loads(r.parameters()).get("mr-mesh-spent", -1) for r in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", np.array([int(s)], np.int32))]) for s in spent]
"""


def test_time_at_the_first_server_is_told_to_the_next(fleet, tmp_path):
    """It begins with the first byte, however long the client takes for the rest; what a client says of it does not count."""
    repos = own_repositories(tmp_path, 2, models=1)
    pymodels.add(repos[1], "spent", SAYS_SPENT)
    servers = fleet(*repos, options=["--http-header-forward-pattern=mr-mesh-spent", *pymodels.options()])
    body = json.dumps({"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1], "data": [7]}]}).encode()
    head = f"Expect: 100-continue\r\nmr-mesh-spent: 1\r\nContent-Length: {len(body)}\r\n"
    for _ in range(2):  # it is loaded for the first one
        with Http1(servers[0].http) as wire:
            before = time.monotonic()
            wire.send(request("POST", "/v2/models/spent/infer", head))
            while b"100 Continue" not in wire.buffer:
                wire._more()
            there = time.monotonic()
            wait.until(lambda: time.monotonic() - there >= 0.05, "time to pass")
            spent_there = time.monotonic() - there
            wire.send(body)
            answer = wire.response()
            assert answer.status == 200, answer
            [spent] = json.loads(answer.body)["outputs"][0]["data"]
            assert spent_there * 1e6 - 1 <= spent <= (time.monotonic() - before) * 1e6, answer


def test_time_on_the_way_counts_for_a_timeout(fleet, models, hold):
    """What another server sends on waits for its model no longer than the rest of its timeout."""
    repo.add(models, "m", backend="fault", max_batch_size=1,
             extra="dynamic_batching { default_queue_policy { allow_timeout_override: true } }")
    [server] = fleet(models)
    body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 1], "data": [7]}]}
    with grpcraw.Grpc(server.url("grpc")) as client, Rest(mesh_port(server)) as peer:
        running = client.stub.ModelInfer.future(grpcraw.int32("m", [1], shape=[1, 1], parameters=hold.parameters), timeout=wait.PATIENCE)
        hold.wait_held()
        an_hour = 3_600_000_000
        reply = peer.post("/v2/models/m/infer", {**body, "parameters": {"timeout": an_hour}}, headers={"mr-mesh-spent": str(an_hour - 1)})
        assert reply.status == 503 and "Request timeout expired" in reply.json()["error"], reply
        hold.end()
        running.result()
        assert peer.post("/v2/models/m/infer", {**body, "parameters": {"timeout": an_hour}}, headers={"mr-mesh-spent": "1"}).status == 200
