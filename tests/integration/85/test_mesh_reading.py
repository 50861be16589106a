"""What a server says of a mesh while it does not know yet what is registered there: never that it is not there."""
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from lib import grpcraw, metrics, repo, wait
from lib.reflected import Reflected
from lib.rest import Rest
from lib.services.held import Held
from lib.services.mesh import X, answers, joined


@pytest.fixture
def held(registry, fleet, tmp_path):
    """A server that has the registry's file, and what stands before it."""
    repo.add(tmp_path / "repo", "m", repo.config())
    [first] = fleet(tmp_path / "repo")
    with Rest(first.http) as r:
        r.post("/v2/mesh/vmodels/v/set", {"target": "m"}).ok()
    held = Held(f"unix:{registry.removeprefix('file:')}.sock")
    held.first = first
    yield held
    held.close()


def begin(held, start, tmp_path, *options):
    repo.add(tmp_path / "other", "own", repo.config())
    server = start(tmp_path / "other", f"--mesh=etcd://127.0.0.1:{held.port}", "--mesh-id=late", *options, mode=None, ready=False)
    return server.wait_ready()


def rest(server, path):
    with Rest(server.http) as r:
        return r.get(path)


def code(call):
    with pytest.raises(grpc.RpcError) as e:
        call()
    return e.value.code()


def test_nothing_is_missing_while_the_registry_is_read(held, start, tmp_path):
    held.pages.clear()
    server = begin(held, start, tmp_path, "--mlserver-errors=true")  # where a model that is unknown is a 404
    assert held.is_asked.wait(wait.PATIENCE)
    for path in ("models", "vmodels", "models/m", "vmodels/v", "watch"):
        assert rest(server, f"/v2/mesh/{path}").status == 503, path
    for name in ("m", "v"):
        assert rest(server, f"/v2/models/{name}/ready").status == 400
        assert rest(server, f"/v2/models/{name}").status == 503
        with Rest(server.http) as r:
            assert r.infer(name, X).status == 503
    with grpcraw.Grpc(server.url("grpc")) as g:
        assert code(lambda: g.stub.ModelInfer(grpcraw.int32("v", [1, 2, 3]), timeout=wait.PATIENCE)) == grpc.StatusCode.UNAVAILABLE
        stream = g.stub.ModelStreamInfer(iter([grpcraw.int32("m", [1])]), timeout=wait.PATIENCE)
        assert code(lambda: list(stream)) == grpc.StatusCode.UNAVAILABLE
        refused = {labels["protocol"]: n for labels, n in metrics.samples(server, "millrace_inference_refused_total") if labels["reason"] == "UNAVAILABLE"}
        assert refused == {"rest": 2, "grpc": 2}
        assert not g.stub.ModelReady(pb.ModelReadyRequest(name="m"), timeout=wait.PATIENCE).ready
        assert not g.stub.ServerReady(pb.ServerReadyRequest(), timeout=wait.PATIENCE).ready
    with grpc.insecure_channel(server.url("grpc")) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        assert check(health_pb2.HealthCheckRequest(service="m"), timeout=wait.PATIENCE).status == health_pb2.HealthCheckResponse.NOT_SERVING
    mesh = Reflected(server.url("grpc"))
    assert code(lambda: mesh.call("mmesh.ModelMesh/getModelStatus", modelId="m")) == grpc.StatusCode.UNAVAILABLE
    assert code(lambda: mesh.call("mmesh.ModelMesh/getVModelStatus", vModelId="v")) == grpc.StatusCode.UNAVAILABLE
    mesh.close()
    state = rest(server, "/v2/mesh").ok().json()
    assert not state.get("joined")
    of_fleet = ("millrace_mesh_models", "millrace_mesh_instances", "millrace_mesh_fleet_lru_age_seconds", "modelmesh_models_managed_total")
    assert [metrics.value(server, name) for name in of_fleet] == [None] * 4 and metrics.value(server, "millrace_mesh_capacity_bytes") is not None

    held.pages.set()
    joined(server)
    assert [rest(server, f"/v2/models/{name}/ready").status for name in ("m", "v")] == [200, 200]
    answers(server, "v")
    assert metrics.value(server, "millrace_mesh_models") == 2 and metrics.value(server, "millrace_mesh_fleet_lru_age_seconds") > 0


def test_lists_have_what_the_watch_has_not_brought_yet(held, start, tmp_path):
    server = begin(held, start, tmp_path)
    joined(server)
    held.changes.clear()
    with Rest(held.first.http) as r:
        r.post("/v2/mesh/models/new/register", {"type": "t"}).ok()
        r.post("/v2/mesh/vmodels/w/set", {"target": "new"}).ok()
    listed = {m["id"]: m for m in rest(server, "/v2/mesh/models").ok().json()["models"]}
    assert (set(listed), listed["new"]["type"], listed["new"]["status"]) == ({"m", "own", "new"}, "t", "NOT_LOADED")
    assert {v["id"]: v["active"] for v in rest(server, "/v2/mesh/vmodels").ok().json()["vmodels"]} == {"v": "m", "w": "new"}
    held.changes.set()
