"""Any server says for the fleet whether a model is ready; metadata comes from where a copy is, and statistics are of the server that is asked."""
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from lib import repo, wait
from lib.grpcraw import Grpc
from lib.rest import Rest
from lib.services.mesh import answers, loads, own_repositories


def rest_ready(server, model, version=""):
    with Rest(server.http) as r:
        answer = r.get(f"/v2/models/{model}{version and f'/versions/{version}'}/ready")
    assert answer.status in (200, 400), answer.body
    assert answer.status == 400 or answer.json() == {"name": model, "ready": True}
    return answer.status == 200


def grpc_ready(server, model, version="", metadata=()):
    with Grpc(server.url("grpc")) as g:
        return g.stub.ModelReady(pb.ModelReadyRequest(name=model, version=version), metadata=metadata, timeout=wait.PATIENCE).ready


def health(server, name):
    """The status, or the code of the error."""
    with grpc.insecure_channel(server.url("grpc")) as channel:
        try:
            return health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=wait.PATIENCE).status
        except grpc.RpcError as e:
            return e.code()


def ready(server, *args):
    return rest_ready(server, *args) and grpc_ready(server, *args)


def unready(server, *args):
    return not rest_ready(server, *args) and not grpc_ready(server, *args)


@pytest.fixture
def servers(fleet, tmp_path):
    """A model of each, and one that nobody can load."""
    repos = own_repositories(tmp_path, 2, models=1)
    repo.add(repos[0], "bad", repo.config(backend="nonesuch"))
    return fleet(*repos)


def make_vmodel(server, name, target):
    with Rest(server.http) as r:
        r.post(f"/v2/mesh/vmodels/{name}/set", {"target": target}).ok()


def test_a_model_is_ready_at_any_server_and_stays_cold(servers):
    for server in servers:
        for model in ("of0-0", "of1-0"):
            wait.until(lambda: ready(server, model), f"{server.command} to know {model}")
        assert unready(server, "nobody")
    assert [loads(s, f"of{i}-0") for i, s in enumerate(servers)] == [0, 0]
    answers(servers[0], "of1-0")
    assert all(ready(s, "of1-0") for s in servers)
    assert loads(servers[1], "of1-0") == 1


def test_a_model_that_cannot_be_loaded_is_not_ready(servers):
    with Rest(servers[1].http) as r:
        r.post("/v2/mesh/models/bad/load").ok()
    for server in servers:
        wait.until(lambda: unready(server, "bad"), f"{server.command} to know of the failure")


def test_a_vmodel_is_ready_as_its_active_model_is(servers):
    make_vmodel(servers[0], "v", "of1-0")
    for server in servers:
        wait.until(lambda: ready(server, "v"), f"{server.command} to know the vmodel")
        assert grpc_ready(server, "", metadata=[("mm-vmodel-id", "v")])
        assert not grpc_ready(server, "", metadata=[("mm-vmodel-id", "of0-0")]), "a model"
        assert grpc_ready(server, "nobody", metadata=[("mm-model-id", "of0-0")])
        with pytest.raises(grpc.RpcError) as e:
            grpc_ready(server, "", metadata=[("mm-model-id", "of0-0"), ("mm-model-id", "of1-0")])
        assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_health_of_a_model_is_that_of_the_fleet(servers):
    make_vmodel(servers[0], "v", "of1-0")
    with Rest(servers[1].http) as r:
        r.post("/v2/mesh/models/bad/load").ok()
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    for server in servers:
        for name, status in (("of0-0", serving), ("of1-0", serving), ("v", serving), ("bad", not_serving)):
            wait.equal(lambda: health(server, name), status)
        assert health(server, "nobody") == grpc.StatusCode.NOT_FOUND
    assert [loads(s, f"of{i}-0") for i, s in enumerate(servers)] == [0, 0]


def test_a_version_is_ready_as_a_copy_says(servers):
    for server in servers:
        for model in ("of0-0", "of1-0"):
            assert ready(server, model, "1")
            assert unready(server, model, "7")
        assert unready(server, "nobody", "1")


def statistics(server, model):
    """The number of inferences, or None: it is not loaded there."""
    with Rest(server.http) as r:
        reply = r.get(f"/v2/models/{model}/stats")
    with Grpc(server.url("grpc")) as g:
        if reply.status == 400:
            with pytest.raises(grpc.RpcError):
                g.stub.ModelStatistics(pb.ModelStatisticsRequest(name=model), timeout=wait.PATIENCE)
            return None
        [of_grpc] = g.stub.ModelStatistics(pb.ModelStatisticsRequest(name=model), timeout=wait.PATIENCE).model_stats
    [of_rest] = reply.ok().json()["model_stats"]
    assert (of_rest["name"], int(of_rest["inference_count"])) == (of_grpc.name, of_grpc.inference_count) == (model, of_grpc.inference_count)
    return of_grpc.inference_count


def test_metadata_comes_from_where_the_copy_is_and_statistics_do_not(servers):
    make_vmodel(servers[0], "v", "of1-0")
    for _ in range(3):
        answers(servers[0], "of1-0")
    for server in servers:
        for name in ("of1-0", "v"):
            wait.until(lambda: rest_ready(server, name), f"{server.command} to know {name}")
            with Rest(server.http) as r:
                assert r.get(f"/v2/models/{name}").ok().json()["name"] == "of1-0"
    assert [statistics(s, "of1-0") for s in servers] == [None, 3]
    assert [statistics(s, "of0-0") for s in servers] == [None, None], "nothing is loaded for it"
