"""TLS between the servers of a mesh: who has no certificate of its authority gets nothing from them."""
import http.client
import shutil
import signal
import ssl

import pytest

from lib import repo, wait
from lib.services.mesh import answers, ask, joined, loads, mesh_port, own_repositories
from lib.services.authority import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("mesh") / "a")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("mesh") / "b", name="other")


def options(pair, ca):
    return f"--mesh-tls-cert={pair[0]}", f"--mesh-tls-key={pair[1]}", f"--mesh-tls-ca={ca}"


def post(server, authority, pair=None, path="/v2/mesh/message", body=b"x", host="127.0.0.1"):
    """The status of a message that a program sends as another server would."""
    c = ssl.create_default_context(cafile=str(authority.cert))
    if pair:
        c.load_cert_chain(*map(str, pair))
    to = http.client.HTTPSConnection("127.0.0.1", mesh_port(server), context=c, timeout=wait.PATIENCE)
    try:
        to.request("POST", path, body, {"mr-mesh-from": "s0", "Host": host})
        return to.getresponse().status
    finally:
        to.close()


def test_servers_with_certificates_are_a_mesh(fleet, authority, tmp_path):
    servers = fleet(*own_repositories(tmp_path, 3), options_of=lambda i: options(authority.sign(f"s{i}"), authority.cert))
    for server in servers:
        for i in range(3):
            answers(server, f"of{i}-0")
    assert all(loads(s, f"of{i}-0") == 1 for i, s in enumerate(servers))


def test_strangers_are_refused(fleet, authority, other, models):
    repo.add(models, "m", repo.config())
    [server] = fleet(models, options=options(authority.sign("server"), authority.cert))
    infer = {"path": "/v2/models/m/infer", "body": b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}'}
    for pair in (None, other.sign("stranger"), authority.sign("expired", days=0)):
        for what in ({}, infer):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
                post(server, authority, pair, **what)
    assert loads(server, "m") == 0
    assert post(server, authority, authority.sign("friend")) == 204
    assert post(server, authority, authority.sign("friend"), host="models.example.org") == 204, "that of --mesh-address may be any"
    plain = http.client.HTTPConnection("127.0.0.1", mesh_port(server), timeout=wait.PATIENCE)
    plain.request("POST", "/v2/mesh/message", b"x")
    assert plain.getresponse().status == 400
    plain.close()


@pytest.mark.parametrize("why", ["authority", "expired", "name"])
def test_server_with_a_wrong_certificate_gets_no_requests(fleet, registry, start, authority, other, tmp_path, why):
    repos = own_repositories(tmp_path, 2, models=1)
    good, bad = authority.sign("good"), {
        "authority": lambda: other.sign("bad"), "expired": lambda: authority.sign("bad", days=0),
        "name": lambda: authority.sign("bad", subject="DNS:elsewhere.example")}[why]()
    servers = fleet(*repos, options_of=lambda i: options((good, bad)[i], authority.cert))
    answers(servers[0], "of0-0")
    reply = ask(servers[0], "of1-0")
    assert reply.status >= 500, reply.body
    assert loads(servers[1], "of1-0") == 0
    answers(servers[1], "of1-0")  # its own clients get what is its own


def test_certificates_and_authorities_are_replaced_while_it_runs(fleet, registry, start, authority, other, tmp_path):
    repos = own_repositories(tmp_path, 2, models=1)
    files = [tmp_path / n for n in ("m.crt", "m.key", "m.ca")]

    def put(of):
        for source, to in zip((*of.sign("first"), of.cert), files):
            shutil.copy(source, to)

    put(authority)
    servers = fleet(*repos, options_of=lambda i: options(files[:2], files[2]) if i == 0 else options(authority.sign("second"), authority.cert))
    answers(servers[0], "of1-0")
    servers[1].stop()
    put(other)
    servers[0].signal(signal.SIGHUP)
    wait.until(lambda: any(e["event"] == "tls.reloaded" and e["listener"] == "mesh" for e in servers[0].events()), "the new certificate")
    third = start(repos[1], f"--mesh={registry}", "--mesh-id=third", *options(other.sign("third"), other.cert), mode=None)
    joined(third)
    wait.until(lambda: ask(servers[0], "of1-0").status == 200, "the first server to hear of the third")
    answers(third, "of0-0")
    with pytest.raises(ssl.SSLError):
        post(servers[0], other, authority.sign("late"))


@pytest.mark.parametrize("drop", [0, 1, 2])
def test_all_three_files_are_needed(registry, start, authority, models, drop):
    repo.add(models, "m", repo.config())
    given = options(authority.sign("server"), authority.cert)
    server = start(models, f"--mesh={registry}", *(o for i, o in enumerate(given) if i != drop), mode=None, ready=False)
    assert server.wait_exit() != 0
    server.end_anyhow()
    assert given[drop].split("=")[0] in server.err()


def test_addresses(registry, start, authority, models, tmp_path):
    repo.add(models, "m", repo.config())
    tls = options(authority.sign("server"), authority.cert)
    server = start(models, f"--mesh={registry}", "--mesh-address=0.0.0.0:0", *tls, mode=None, ready=False)
    assert server.wait_exit() != 0
    server.end_anyhow()
    assert "one of this machine's own" in server.err()


def test_unix_sockets(fleet, tmp_path, registry):
    folder = registry.removeprefix("file:")
    servers = fleet(*own_repositories(tmp_path, 2, models=1), options_of=lambda i: [f"--mesh-address=unix:{folder}{i}"])
    for server in servers:
        for i in range(2):
            answers(server, f"of{i}-0")
