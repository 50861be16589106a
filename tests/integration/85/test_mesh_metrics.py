"""Times of calls by the names of a ModelMesh: of those of clients where they came in, of runs where the model is."""
import grpc
import pytest

from lib import grpcraw, metrics, repo
from lib.grpcraw import Grpc
from lib.rest import Rest
from lib.services.mesh import answers, ask

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
