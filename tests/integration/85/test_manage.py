"""mmesh.ModelMesh: models and vmodels managed as a controller of ModelMesh does it."""
import contextlib
import http.client
import json
import socket
import time

import grpc
import pytest

from lib import repo, wait
from lib.reflected import Reflected
from lib.rest import Rest
from lib.services.mesh import X, answers, ask

NOT_FOUND, NOT_LOADED, LOADING, LOADED, FAILED = range(5)
DEFINED, TRANSITIONING, TRANSITION_FAILED = 1, 2, 3
GRPC_X = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "contents": {"int_contents": [1, 2, 3]}}]}
INFO = {"type": "millrace", "path": "", "key": ""}


class Manager:
    def __init__(self, server):
        self.grpc = Reflected(server.url("grpc"))

    def close(self):
        self.grpc.close()

    def __call__(self, method, **fields):
        return self.grpc.call(f"mmesh.ModelMesh/{method}", **fields)

    def refused(self, method, **fields):
        with pytest.raises(grpc.RpcError) as e:
            self(method, **fields)
        return e.value.code(), e.value.details()

    def status(self, model):
        return self("getModelStatus", modelId=model).status

    def vmodel(self, name, **fields):
        return self("getVModelStatus", vModelId=name, **fields)


@pytest.fixture
def servers(fleet, models):
    for name in ("a", "b", "c"):
        repo.add(models, name, repo.config())
    repo.add(models, "bad", repo.config(backend="nonesuch"))
    return fleet(models, models)


@pytest.fixture
def managers(servers):
    made = [Manager(s) for s in servers]
    yield made
    [m.close() for m in made]


def test_reflection_lists_the_service(managers):
    assert "mmesh.ModelMesh" in managers[0].grpc.database.get_services()


def test_calls_without_an_id_are_invalid(managers):
    for fields in ({"registerModel": {"modelInfo": INFO}}, {"getModelStatus": {}}, {"ensureLoaded": {}}, {"unregisterModel": {}},
                   {"setVModel": {"vModelId": "v", "modelInfo": INFO}}, {"setVModel": {"targetModelId": "a"}}, {"getVModelStatus": {}}, {"deleteVModel": {}}):
        [(method, given)] = fields.items()
        code, text = managers[0].refused(method, **given)
        assert code == grpc.StatusCode.INVALID_ARGUMENT and "empty" in text, (method, text)


def test_states_of_a_model_from_both_servers(servers, managers):
    one, other = managers
    before_ms = int(time.time() * 1000)
    assert one.status("a") == NOT_LOADED and one.status("never") == NOT_FOUND
    got = one("ensureLoaded", modelId="a", sync=True)
    assert got.status == LOADED
    copy, = got.modelCopyInfos
    assert copy.copyStatus == LOADED
    assert before_ms <= copy.time <= time.time() * 1000
    wait.until(lambda: other.status("a") == LOADED, "the other server to see the copy")
    seen, = other("getModelStatus", modelId="a").modelCopyInfos
    assert (seen.location, seen.time) == (copy.location, copy.time)
    answers(servers[1], "a")


def test_load_that_fails_says_why(managers):
    got = managers[0]("ensureLoaded", modelId="bad", sync=True)
    assert got.status == FAILED and len(got.errors) >= 1
    assert all(c.copyStatus == FAILED and c.time > 1e12 for c in got.modelCopyInfos)
    assert all("nonesuch" in e for e in got.errors)
    assert managers[0].refused("ensureLoaded", modelId="never")[0] == grpc.StatusCode.NOT_FOUND


def test_registrations(managers):
    one, other = managers
    assert one("registerModel", modelId="new", modelInfo=INFO).status == NOT_LOADED
    assert one("registerModel", modelId="new", modelInfo=INFO).status == NOT_LOADED  # the same again
    wait.until(lambda: other.status("new") == NOT_LOADED, "the other server to know it")
    assert other.refused("registerModel", modelId="new", modelInfo={"type": "other"}) == (
        grpc.StatusCode.ALREADY_EXISTS, "Model already exists with different attribute values")
    assert other.refused("registerModel", modelId="new2")[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert other.refused("registerModel", modelInfo=INFO)[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert other.refused("setVModel", targetModelId="a") == (grpc.StatusCode.INVALID_ARGUMENT, "vmodel: the id is empty")
    assert other.refused("setVModel", vModelId="v") == (grpc.StatusCode.INVALID_ARGUMENT, "target of the vmodel: the id is empty")
    assert other.refused("getModelStatus") == (grpc.StatusCode.INVALID_ARGUMENT, "model: the id is empty")
    assert other.refused("ensureLoaded", modelId="never") == (grpc.StatusCode.NOT_FOUND, "model not found")
    code, text = other.refused("registerModel", modelId="x" * 513, modelInfo=INFO)
    assert code == grpc.StatusCode.INVALID_ARGUMENT and "512" in text
    other("unregisterModel", modelId="new")
    other("unregisterModel", modelId="new")  # is no error
    wait.until(lambda: one.status("new") == NOT_FOUND, "it to be gone everywhere")


@pytest.mark.parametrize("service", ["mmesh.ModelMesh", "com.ibm.watson.tas.proto.TasRuntime"])
def test_names_of_older_clients(managers, service):
    one = managers[0].grpc
    _, request = one.method("mmesh.ModelMesh/registerModel")
    _, named = one.method("mmesh.ModelMesh/unregisterModel")

    def call(method, message):
        return one.channel.unary_unary(f"/{service}/{method}", request_serializer=lambda m: m.SerializeToString())(message, timeout=wait.PATIENCE)

    call("addModel", request(modelId="old", modelInfo=INFO))
    assert managers[0].status("old") == NOT_LOADED
    call("deleteModel", named(modelId="old"))
    wait.until(lambda: managers[0].status("old") == NOT_FOUND, "it to be gone")


def test_unregistered_model_is_unloaded(servers, managers):
    assert managers[0]("registerModel", modelId="c", modelInfo=INFO, loadNow=True, sync=True).status == LOADED
    managers[0]("unregisterModel", modelId="c")
    wait.until(lambda: all(m.status("c") == NOT_FOUND for m in managers), "it to be gone everywhere")


def test_vmodel_moves_to_another_model(managers):
    one, other = managers
    got = one("setVModel", vModelId="v", targetModelId="a", loadNow=True, sync=True)
    assert (got.status, got.activeModelId, got.targetModelId) == (DEFINED, "a", "a")
    assert got.activeModelStatus.status == LOADED and [c.copyStatus for c in got.activeModelStatus.modelCopyInfos] == [LOADED]
    assert other.refused("unregisterModel", modelId="a")[0] == grpc.StatusCode.FAILED_PRECONDITION
    got = one("setVModel", vModelId="v", targetModelId="b", sync=True)
    assert (got.status, got.activeModelId, got.targetModelId) == (DEFINED, "b", "b")
    assert one.status("b") == LOADED
    wait.until(lambda: other.vmodel("v").activeModelId == "b", "the other server to see it")
    other("deleteVModel", vModelId="v")
    wait.until(lambda: one.vmodel("v").status == NOT_FOUND, "the vmodel to be gone")
    other("deleteVModel", vModelId="v")


def test_vmodel_with_a_target_that_fails_keeps_its_model(managers):
    one, other = managers
    one("setVModel", vModelId="v", targetModelId="a")
    one("ensureLoaded", modelId="a", sync=True)
    got = one("setVModel", vModelId="v", targetModelId="bad", sync=True)
    assert (got.status, got.activeModelId, got.targetModelId) == (TRANSITION_FAILED, "a", "bad")
    assert got.activeModelStatus.status == LOADED and got.targetModelStatus.status == FAILED
    assert not got.activeModelStatus.errors and "nonesuch" in got.targetModelStatus.errors[0]
    copies = got.targetModelStatus.modelCopyInfos
    assert len(copies) == 2 and all(c.copyStatus == FAILED for c in copies), "it was tried on both"
    assert copies[0].time >= copies[1].time > 1e12
    wait.until(lambda: other.vmodel("v").targetModelStatus.errors == got.targetModelStatus.errors, "the other server to say the same")
    got = one("setVModel", vModelId="v", targetModelId="b", sync=True)
    assert (got.status, got.activeModelId) == (DEFINED, "b")


def test_vmodel_set_again_loads_its_model(managers):
    """As KServe's controller does for a model that is not loaded."""
    one, other = managers
    assert one("setVModel", vModelId="v", targetModelId="a").activeModelStatus.status == NOT_LOADED
    wait.until(lambda: other.vmodel("v").status == DEFINED, "the other server to see it")
    other("setVModel", vModelId="v", targetModelId="a", loadNow=True)
    wait.until(lambda: one.status("a") == LOADED, "the load")
    got = other("setVModel", vModelId="w", targetModelId="bad", loadNow=True, sync=True)
    assert (got.status, got.activeModelStatus.status) == (DEFINED, FAILED) and "nonesuch" in got.activeModelStatus.errors[0]


def test_rules_of_vmodels(managers):
    one, other = managers
    one("setVModel", vModelId="v", targetModelId="a", owner="me")
    wait.until(lambda: other.vmodel("v").status == DEFINED, "the other server to see it")
    assert other.vmodel("v", owner="me").status == DEFINED
    assert other.vmodel("v", owner="you").status == NOT_FOUND
    refused = lambda **fields: other.refused("setVModel", vModelId="v", **fields)  # noqa: E731
    code = grpc.StatusCode
    assert refused(targetModelId="b", owner="you") == (code.ALREADY_EXISTS, 'vmodel v already exists with different owner "me"')
    assert refused(targetModelId="b", expectedTargetModelId="c") == (code.FAILED_PRECONDITION, "Existing target model a does not match expected c")
    assert refused(targetModelId="a", modelInfo={"type": "other"}) == (
        code.ALREADY_EXISTS, "Target model a already exists with different attribute values")
    assert other("setVModel", vModelId="v", targetModelId="a", expectedTargetModelId="c").status == DEFINED  # it is a already
    assert refused(targetModelId="never") == (code.NOT_FOUND, "Target model never not found")
    assert one.refused("setVModel", vModelId="w", targetModelId="a", updateOnly=True) == (code.NOT_FOUND, "vmodel w not found")
    other("deleteVModel", vModelId="v", owner="you")
    assert other.vmodel("v").status == DEFINED


def test_vmodels_without_an_owner_get_that_of_the_server(fleet, models):
    """As with MM_DEFAULT_VMODEL_OWNER of a ModelMesh: when they are made, and only then."""
    for name in ("a", "b"):
        repo.add(models, name, repo.config())
    [server] = fleet(models, options=["--mesh-vmodel-owner=all"])
    with contextlib.closing(Manager(server)) as one:
        assert one("setVModel", vModelId="v", targetModelId="a").owner == "all"
        assert one("setVModel", vModelId="w", targetModelId="a", owner="me").owner == "me"
        assert one.refused("setVModel", vModelId="v", targetModelId="b", owner="me")[0] == grpc.StatusCode.ALREADY_EXISTS
        assert one.vmodel("v", owner="me").status == NOT_FOUND
        assert one("setVModel", vModelId="w", targetModelId="b").owner == "me"  # calls without one are not checked
        assert one.vmodel("w").activeModelId == "b"
        one("deleteVModel", vModelId="w")
        assert one.vmodel("w").status == NOT_FOUND and one.vmodel("v").status == DEFINED


def test_model_of_a_vmodel_goes_with_it(managers):
    one, _ = managers
    one("setVModel", vModelId="v", targetModelId="mine", modelInfo=INFO, autoDeleteTargetModel=True)
    wait.until(lambda: one.status("mine") == NOT_LOADED, "the target to be registered")
    one("setVModel", vModelId="v", targetModelId="a", force=True)
    wait.until(lambda: one.status("mine") == NOT_FOUND, "the target to be gone")
    assert one.vmodel("v").activeModelId == "a"


def test_server_without_a_mesh_says_so(server):
    manager = Manager(server)
    code, text = manager.refused("getModelStatus", modelId="a")
    assert code == grpc.StatusCode.UNIMPLEMENTED and "--mesh" in text
    manager.close()


@pytest.fixture
def rests(servers):
    made = [Rest(s.http) for s in servers]
    yield made
    [r.close() for r in made]


def page(rest, kind, query):
    body = rest.get(f"/v2/mesh/{kind}?{query}").ok().json()
    return [m["id"] for m in body[kind]], body["next"]


def test_servers_in_a_report(rests):
    state = rests[0].get("/v2/mesh").ok().json()
    assert state["joined"] and state["registry_ready"] and int(state["models"]) == 4
    wait.until(lambda: len(rests[0].get("/v2/mesh").json()["peers"]) == 2, "both servers to see each other")
    assert state["id"] in [p["id"] for p in state["peers"]]
    assert all(int(p["capacity_bytes"]) > 0 for p in state["peers"])


def test_models_in_pages(rests):
    assert page(rests[0], "models", "") == (["a", "b", "bad", "c"], "")
    assert page(rests[1], "models", "limit=2") == (["a", "b"], "b")
    assert page(rests[1], "models", "limit=2&after=b") == (["bad", "c"], "")
    assert page(rests[1], "models", "prefix=b") == (["b", "bad"], "")
    for wrong in ("0", "1001", "x"):
        assert rests[0].get(f"/v2/mesh/models?limit={wrong}").status == 400


def test_a_model_by_rest(rests):
    one, other = rests
    assert one.get("/v2/mesh/models/r").status == 404
    body = {"type": "millrace", "path": "p", "min_copies": 0, "max_copies": 2, "pinned": True}
    got = one.post("/v2/mesh/models/r%2F1/register", body).ok().json()
    assert (got["id"], got["status"], got["path"], got["max_copies"], got["pinned"]) == ("r/1", "NOT_LOADED", "p", 2, True)
    wait.until(lambda: other.get("/v2/mesh/models/r%2F1").status == 200, "the other server to know it")
    for wrong in ({"type": ""}, {"type": "x", "min_copies": 300}, {"type": "x", "min_copies": 3, "max_copies": 2}, {"type": "x", "nonesuch": 1}):
        reply = one.post("/v2/mesh/models/s/register", wrong)
        assert reply.status == 400 and reply.error
    assert other.post("/v2/mesh/models/r%2F1/register", {"type": "other"}).status == 409
    assert other.post("/v2/mesh/models/r%2F1/unregister").status == 200
    got = one.post("/v2/mesh/models/a/load").ok().json()
    assert got["status"] == "LOADED" and [c["state"] for c in got["copies"]] == ["LOADED"]
    assert one.post("/v2/mesh/models/never/load").status == 404


def test_vmodels_by_rest(rests):
    one, other = rests
    got = one.post("/v2/mesh/vmodels/v/set", {"target": "a", "load_now": True, "sync": True}).ok().json()
    assert (got["status"], got["active"], got["target"]) == ("DEFINED", "a", "a")
    wait.until(lambda: other.get("/v2/mesh/vmodels/v").status == 200, "the other server to know it")
    assert page(other, "vmodels", "") == (["v"], "")
    assert other.post("/v2/mesh/models/a/unregister").status == 409
    assert other.post("/v2/mesh/vmodels/v/set", {"target": "b", "expected": "c"}).status == 409
    for attribute in ("path", "key"):
        assert "type of the model is empty" in other.post("/v2/mesh/vmodels/v/set", {"target": "b", attribute: "/x"}).error
    assert other.post("/v2/mesh/vmodels/v/delete").status == 200
    wait.until(lambda: one.get("/v2/mesh/vmodels/v").status == 404, "the vmodel to be gone")


def test_owners_of_vmodels_by_rest(rests):
    """That of another owner is not there, and deleting it does nothing, as over gRPC."""
    one, _ = rests
    one.post("/v2/mesh/vmodels/v/set", {"target": "a", "owner": "m/e"}).ok()
    assert one.get("/v2/mesh/vmodels/v?owner=you").status == 404
    assert one.post("/v2/mesh/vmodels/v/delete?owner=you").status == 200
    assert one.get("/v2/mesh/vmodels/v?owner=m%2Fe").ok().json()["owner"] == "m/e"
    assert one.post("/v2/mesh/vmodels/v/delete?owner=m%2Fe").status == 200
    wait.until(lambda: one.get("/v2/mesh/vmodels/v").status == 404, "the vmodel to be gone")


def named(reply):
    assert reply.status == 200, reply.body[:300]
    return reply.json()["model_name"], reply.json()["outputs"][0]["data"]


def test_requests_name_a_vmodel(servers, rests):
    one, other = rests
    one.post("/v2/mesh/vmodels/c/set", {"target": "a"}).ok()
    one.post("/v2/mesh/vmodels/v/set", {"target": "a"}).ok()
    for rest in rests:
        wait.until(lambda r=rest: r.get("/v2/mesh/vmodels/v").status == 200, "the server to know the vmodel")
        assert named(rest.infer("v", X)) == ("a", [1, 2, 3])
        assert named(rest.infer("c", X)) == ("c", [1, 2, 3])  # a model of the same name counts more
        assert named(rest.infer("v", X, headers={"mm-model-id": "b"})) == ("a", [1, 2, 3])
        assert rest.get("/v2/models/v").ok().json()["name"] == "a"
        assert rest.infer("nonesuch", X).status == 404
    for server in servers:
        with Reflected(server.url("grpc")) as g:
            assert g.infer("ModelMetadata", name="v").name == "a"
            assert g.infer("ModelInfer", **GRPC_X, model_name="v").model_name == "a"
            assert g.infer("ModelInfer", **GRPC_X, model_name="c").model_name == "c"
    one.post("/v2/mesh/vmodels/v/set", {"target": "b", "sync": True}).ok()
    for rest in rests:
        wait.until(lambda r=rest: named(r.infer("v", X))[0] == "b", "requests to go to the new model")


def test_no_request_fails_while_a_vmodel_moves(servers, rests):
    rests[0].post("/v2/mesh/vmodels/v/set", {"target": "a", "load_now": True, "sync": True}).ok()
    for rest in rests:
        wait.until(lambda r=rest: r.get("/v2/mesh/vmodels/v").status == 200, "the server to know the vmodel")
    seen = set()
    for target in ("b", "c", "a", "b"):
        rests[0].post("/v2/mesh/vmodels/v/set", {"target": target}).ok()
        for name in iter(lambda: rests[0].get("/v2/mesh/vmodels/v").json()["active"], target):
            seen |= {named(r.infer("v", X))[0] for r in rests} | {name}
    assert seen <= {"a", "b", "c"}


class Watch:
    def __init__(self, server, query=""):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=wait.PATIENCE)
        self.connection.request("GET", f"/v2/mesh/watch{query}")
        self.reply = self.connection.getresponse()
        assert self.reply.status == 200 and self.reply.getheader("content-type").startswith("text/event-stream")
        assert self.reply.readline() == b":\n"  # from here on nothing is missed

    def until(self, is_it):
        """The data of the first event that is_it(name, data)."""
        name = None
        for line in iter(self.reply.readline, b""):
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data" and is_it(name, json.loads(value)):
                return json.loads(value)
        raise AssertionError("the watch has ended")

    def close(self):
        self.connection.close()


def test_watch_of_changes(servers, rests):
    everything, some = Watch(servers[1]), Watch(servers[0], "?prefix=b")
    rests[0].post("/v2/mesh/models/a/load").ok()
    got = everything.until(lambda name, m: name == "model" and m["id"] == "a" and m["status"] == "LOADED")
    assert [c["state"] for c in got["copies"]] == ["LOADED"]
    rests[0].post("/v2/mesh/vmodels/v/set", {"target": "a"}).ok()
    assert everything.until(lambda name, v: name == "vmodel")["active"] == "a"
    rests[1].post("/v2/mesh/vmodels/v/delete").ok()
    assert everything.until(lambda name, v: name == "vmodel" and v["status"] == "NOT_FOUND")["id"] == "v"
    rests[1].post("/v2/mesh/models/b/load").ok()
    assert some.until(lambda name, m: True)["id"] == "b"  # no event of the others came
    some.close()  # a client that goes while the server ends
    servers[0].stop()
    everything.close()


def test_server_that_ends_ends_its_watches(servers):
    watch = Watch(servers[0])
    servers[0].signal()
    while watch.reply.readline():
        pass
    watch.close()


def test_watches_are_bounded(servers):
    open_ones = [Watch(servers[0]) for _ in range(256)]
    assert b" 503 " in one_more(servers[0])
    [w.close() for w in open_ones]


def one_more(server):
    with socket.create_connection(("127.0.0.1", server.http)) as s:
        s.sendall(b"GET /v2/mesh/watch HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return s.recv(100)


def test_drained_server_leaves_and_serves_on(servers, rests):
    rests[0].post("/v2/mesh/models/a/load").ok()
    rests[0].post("/v2/mesh/drain").ok()
    name = rests[0].get("/v2/mesh").json()["id"]
    wait.until(lambda: name not in [p["id"] for p in rests[1].get("/v2/mesh").json()["peers"]], "it to leave")
    answers(servers[1], "a")
    answers(servers[1], "b")


def test_rest_of_a_server_without_a_mesh_says_so(rest):
    reply = rest.get("/v2/mesh")
    assert reply.status == 501 and "--mesh" in reply.error
