"""Registrations and vmodels while etcd is away: kept in the journal of the server that took them, and made when etcd is back."""
import shutil
import signal

import grpc
import pytest

from lib import repo, wait
from lib.reflected import Reflected
from lib.rest import Rest
from lib.services.mesh import answers, joined, see_each_other

pytestmark = pytest.mark.skipif(not shutil.which("etcd"), reason="there is no etcd here")


@pytest.fixture
def folder(tmp_path):
    """Models that are registered by their paths."""
    for name in ("a", "b", "c", "old"):
        repo.add(tmp_path / "by-path", name, repo.config())
    return tmp_path / "by-path"


@pytest.fixture
def serve(etcd, start, models, folder, tmp_path):
    """serve(i): server i, whose journal stays from one to the next."""
    repo.add(models, "own", repo.config())

    def make(i, *options):
        return start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}/prod", f"--mesh-id=s{i}", f"--mesh-journal={tmp_path}/journal{i}",
                     f"--mesh-models={folder}", "--mesh-start-timeout=0", *options, mode=None, ready=False)
    return make


@pytest.fixture
def servers(serve):
    made = [serve(i) for i in range(2)]
    for s in made:
        s.wait_ready()
        joined(s)
    see_each_other(made)
    return made


def post(server, model, what, body=None):
    with Rest(server.http) as r:
        return r.post(f"/v2/mesh/models/{model}/{what}", body or {})


def register(server, model, path):
    return post(server, model, "register", {"type": "millrace", "path": path})


def vmodel(server, id, what, body=None):
    with Rest(server.http) as r:
        return r.post(f"/v2/mesh/vmodels/{id}/{what}", body or {})


def state(server, model=None, kind="models"):
    with Rest(server.http) as r:
        reply = r.get(f"/v2/mesh/{kind}/{model}" if model else "/v2/mesh")
    return reply.json() if reply.status == 200 else None


def target_of(server, id):
    known = state(server, id, "vmodels")
    return known and known["target"]


def path_of(server, model):
    known = state(server, model)
    return known and known["path"]


def etcd_goes(etcd, servers):
    etcd.kill()
    for s in servers:
        wait.until(lambda: not state(s).get("registry_ready"), "the server to miss etcd")


def settled(servers):
    """Nothing waits any more; deletions are repeated for a minute in an etcd that was empty."""
    for s in servers:
        wait.until(lambda: state(s).get("pending", 0) == 0, f"the journal to be empty\n{s.describe()}")


def change_all(server):
    """While etcd is away: one is registered, over REST and over gRPC, and one unregistered."""
    reply = register(server, "a", "a")
    assert reply.status == 202 and reply.json()["pending"] is True, reply.body
    assert register(server, "a", "a").status == 202  # the same again
    assert register(server, "a", "b").status == 409
    client = Reflected(server.url("grpc"))
    said = client.call("mmesh.ModelMesh/registerModel", modelId="b", modelInfo={"type": "millrace", "path": "b"})
    client.close()
    assert len(said.errors) == 1 and "registry is away" in said.errors[0]
    reply = post(server, "old", "unregister")
    assert reply.status == 202 and reply.json()["pending"] is True, reply.body
    change_vmodels(server)
    assert state(server)["pending"] == 7


def change_vmodels(server):
    """One is given another model, one that is new brings its model along, over gRPC, and one is deleted."""
    reply = vmodel(server, "v", "set", {"target": "a"})
    assert reply.status == 202 and reply.json()["pending"] is True and reply.json()["target"] == "a", reply.body
    assert vmodel(server, "x", "set", {"target": "nonesuch"}).status == 404
    client = Reflected(server.url("grpc"))
    said = client.call("mmesh.ModelMesh/setVModel", vModelId="new", targetModelId="c", modelInfo={"type": "millrace", "path": "c"}, sync=True)
    assert said.activeModelId == "c" and "registry is away" in said.activeModelStatus.errors[0]
    with pytest.raises(grpc.RpcError) as e:
        client.call("mmesh.ModelMesh/unregisterModel", modelId="c")
    assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    client.close()
    reply = vmodel(server, "gone", "delete")
    assert reply.status == 202 and reply.json()["pending"] is True, reply.body
    answers(server, "new")
    assert post(server, "c", "load", {"sync": True}).ok().json()["status"] == "LOADED"  # here; etcd cannot say so


def all_is_made(servers):
    for s in servers:
        wait.until(lambda: target_of(s, "v") == "a" and target_of(s, "new") == "c" and target_of(s, "gone") is None, f"the vmodels\n{s.describe()}")
        wait.until(lambda: not any(state(s, v, "vmodels").get("pending") for v in ("v", "new")), "the vmodels in etcd")
        wait.until(lambda: state(s, "a").get("vmodels") == 1 and state(s, "c").get("vmodels") == 1 and not state(s, "own").get("vmodels"), "the references")
        wait.until(lambda: path_of(s, "a") == "a" and path_of(s, "b") == "b" and path_of(s, "old") is None, f"the changes\n{s.describe()}")
        wait.until(lambda: not state(s, "a").get("pending"), "the registration in etcd")
        answers(s, "a")
        answers(s, "b")
        answers(s, "own")


@pytest.mark.parametrize("keeps", [True, False], ids=["etcd-keeps-its-data", "etcd-is-empty"])
def test_changes_are_made_when_etcd_is_back(etcd, servers, keeps):
    assert register(servers[1], "old", "old").status == 200
    for v in ("v", "gone"):
        assert vmodel(servers[1], v, "set", {"target": "own"}).status == 200
    wait.until(lambda: path_of(servers[0], "old") and target_of(servers[0], "gone"), "the other server to know them")
    answers(servers[1], "old")
    etcd_goes(etcd, servers)
    change_all(servers[0])
    answers(servers[0], "a")  # at once, where they were registered
    answers(servers[0], "b")
    wait.until(lambda: etcd.start(keeps), "etcd to start again on its ports")
    all_is_made(servers)
    settled(servers[1:])
    if keeps:
        settled(servers)
    assert "prod/mesh/m/a" in etcd.keys()


@pytest.mark.few
@pytest.mark.parametrize("keeps", [True, False], ids=["etcd-keeps-its-data", "etcd-is-empty"])
def test_changes_outlive_their_server(etcd, servers, serve, keeps):
    assert register(servers[1], "old", "old").status == 200
    for v in ("v", "gone"):
        assert vmodel(servers[1], v, "set", {"target": "own"}).status == 200
    wait.until(lambda: path_of(servers[0], "old") and target_of(servers[0], "gone"), "the other server to know them")
    etcd_goes(etcd, servers)
    change_all(servers[0])
    servers[0].signal(signal.SIGKILL)
    servers[0].wait_exit()
    servers[0].end_anyhow()
    again = serve(0)  # before etcd is back
    again.wait_ready()
    wait.until(lambda: etcd.start(keeps), "etcd to start again on its ports")
    joined(again)
    all_is_made([again, servers[1]])


def test_newer_registration_in_etcd_stays(etcd, servers, serve):
    etcd_goes(etcd, servers)
    assert register(servers[0], "a", "a").status == 202
    servers[0].signal(signal.SIGKILL)
    servers[0].wait_exit()
    servers[0].end_anyhow()
    wait.until(lambda: etcd.start(True), "etcd to start again on its ports")
    wait.until(lambda: state(servers[1])["registry_ready"], "the server to see etcd")
    wait.until(lambda: register(servers[1], "a", "b").status == 200, "another registration")
    again = serve(0)
    again.wait_ready()
    joined(again)
    wait.until(lambda: any(e["event"] == "mesh.journal" and "newer" in e["msg"] for e in again.events()), "the log to say so")
    settled([again])
    assert path_of(again, "a") == path_of(servers[1], "a") == "b"


def test_journal_on_a_full_disk_says_no(etcd, start, models, small_disk):
    repo.add(models, "own", repo.config())
    server = start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}/prod", f"--mesh-journal={small_disk}/j", mode=None, ready=False)
    server.wait_ready()
    joined(server)
    wait.until(lambda: (small_disk / "j").exists(), "the journal")
    etcd_goes(etcd, [server])
    assert register(server, "a", "a").status == 202
    fill = small_disk / "fill"
    with open(fill, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass
    replies = [register(server, f"b{i}", "b" * 4000) for i in range(3)]
    assert replies[-1].status == 503 and "the journal does not take the change" in replies[-1].error
    assert "No space left on device" in replies[-1].error
    fill.unlink()
    wait.until(lambda: register(server, "c", "a").status == 202, "the journal to take changes again")
    wait.until(lambda: etcd.start(True), "etcd to start again on its ports")
    wait.until(lambda: {"prod/mesh/m/a", "prod/mesh/m/c"} <= etcd.keys(), "the changes in etcd")
    settled([server])
