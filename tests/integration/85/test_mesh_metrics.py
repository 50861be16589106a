"""Times and sizes by the names of a ModelMesh: of calls of clients where they came in, of runs, loads and unloads where the model is."""
import json

import grpc
import pytest

from lib import grpcraw, metrics, repo, wait
from lib.grpcraw import Grpc
from lib.rest import Rest, as_input
from lib.services.mesh import X, answers, ask

API, INVOKE = "modelmesh_api_request_milliseconds", "modelmesh_invoke_model_milliseconds"


def counts(server, name):
    """{(method, code): calls}"""
    return {(labels["method"], labels["code"]): value for labels, value in metrics.samples(server, f"{name}_count")}


def test_calls_count_where_they_came_in_and_runs_where_the_model_is(fleet, models):
    repo.add(models, "m", repo.config())
    servers = fleet(models, models)
    for _ in range(5):
        for s in servers:
            answers(s, "m")
    assert ask(servers[0], "nonesuch").status == 404
    with Rest(servers[0].http) as r:
        assert r.post("/v2/models/m/infer", {"inputs": 7}).status == 400
        r.get("/v2/models/m").ok()
        r.get("/v2/health/ready").ok()
    assert counts(servers[0], API) == {("ModelInfer", "OK"): 5, ("ModelInfer", "NOT_FOUND"): 1, ("ModelInfer", "INVALID_ARGUMENT"): 1}
    assert counts(servers[1], API) == {("ModelInfer", "OK"): 5}
    runs = [counts(s, INVOKE) for s in servers]
    assert sorted(sum(r.values()) for r in runs) == [0, 10] and all(r.keys() <= {("ModelInfer", "OK")} for r in runs)
    assert sum(metrics.value(s, "modelmesh_req_queue_delay_milliseconds_count") for s in servers) == 10
    for s in servers:
        assert metrics.value(s, f"{API}_sum", code="OK") > 0
        last = metrics.value(s, f"{API}_bucket", code="OK", le="+Inf")
        assert last == 5 and metrics.value(s, f"{API}_bucket", code="OK", le="0.5") <= metrics.value(s, f"{API}_bucket", code="OK", le="300000.0") <= last


def test_calls_over_grpc_have_their_own_status(fleet, models):
    repo.add(models, "m", repo.config())
    servers = fleet(models, models)
    for s in servers:
        with Grpc(s.url("grpc")) as g:
            for _ in range(3):
                g.infer(grpcraw.int32("m", [1, 2, 3]))
            with pytest.raises(grpc.RpcError) as e:
                g.infer(grpcraw.int32("nonesuch", [1]))
            assert e.value.code() == grpc.StatusCode.NOT_FOUND
    for s in servers:
        assert counts(s, API) == {("ModelInfer", "OK"): 3, ("ModelInfer", "NOT_FOUND"): 1}
        assert metrics.value(s, "millrace_grpc_responses_total", status="OK") >= 3, "those that another server ran, too"
        assert metrics.value(s, "millrace_grpc_responses_total", status="NOT_FOUND") == 1


def test_sizes_of_calls_and_of_models(fleet, models):
    repo.add(models, "m", repo.config())
    s, = fleet(models)
    body = json.dumps({"inputs": [as_input(x) for x in X]}).encode()
    with Rest(s.http) as r:
        answered = [len(r.post("/v2/models/m/infer", body).ok().body) for _ in range(3)]
        assert r.post("/v2/models/m/infer", b"{}").status == 400
    sizes = {kind: {m["code"]: v for m, v in metrics.samples(s, f"modelmesh_{kind}_size_bytes_sum")} for kind in ("request", "response")}
    assert sizes == {"request": {"OK": 3 * len(body), "INVALID_ARGUMENT": 2}, "response": {"OK": sum(answered)}}
    assert counts(s, "modelmesh_request_size_bytes") == counts(s, API)
    assert counts(s, "modelmesh_response_size_bytes") == {("ModelInfer", "OK"): 3}
    read = lambda name: metrics.value(s, f"modelmesh_{name}")  # noqa: E731
    assert read("loadmodel_milliseconds_count") == read("loaded_model_size_bytes_count") == 1
    wait.until(lambda: 0 <= read("instance_used_bytes") - read("loaded_model_size_bytes_sum") < 8192, "its size, in units")
    assert read("unloadmodel_milliseconds_count") == read("model_sizing_milliseconds_count") == 0
    with Rest(s.http) as r:
        r.post("/v2/mesh/models/m/unregister", {}).ok()
    wait.until(lambda: read("unloadmodel_milliseconds_count") == 1, "it to be unloaded")
    assert read("unloadmodel_failure") == read("unloadmodel_attempt_failure") == 0
