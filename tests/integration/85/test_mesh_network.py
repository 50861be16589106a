"""Three servers and an etcd, each on a machine of its own as far as they can tell (lib/services/network.py): machines that are cut off, slow, stopped
and killed, an etcd that goes and comes back empty, clocks that jump. Clients ask all servers all the time, and none of their requests fails."""
import shutil
import signal

import pytest

from lib import faults, repo, wait
from lib.rest import Rest
from lib.server import Server
from lib.services import network
from lib.services.authority import Authority
from lib.services.etcd import Etcd
from lib.services.mesh import Clients, answers, joined, see_each_other

WHY_NOT = network.why_not() if shutil.which("etcd") else "there is no etcd here"
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
NAMES = [f"m{i}" for i in range(12)]
SLOW = repo.config(parameters={"execute_delay_ms": 10}, extra="instance_group [ { count: 4 kind: KIND_CPU } ]")  # so that there are requests under way


class Fleet:
    def __init__(self, folder, net):
        self.folder, self.net, self.count = folder, net, 0
        self.authority = Authority(folder / "authority")
        self.certificates = [self.authority.sign(f"s{n.number}", subject=f"IP:{n.ip}") for n in net.nodes[:3]]
        self.etcd = Etcd(net.nodes[3])
        (folder / "models").mkdir()
        for name in NAMES:
            repo.add(folder / "models", name, SLOW)
        self.servers = [self.begin(i) for i in range(3)]
        for s in self.servers:
            joined(s)
        see_each_other(self.servers)

    def begin(self, i):
        """Server i, again if there was one."""
        self.count += 1
        folder, node, (cert, key) = self.folder / f"server{self.count}", self.net.nodes[i], self.certificates[i]
        folder.mkdir()
        clocks = faults.Faults(folder)
        server = Server(folder, [self.folder / "models"], f"--mesh=etcd://{self.net.nodes[3].ip}:2379", f"--mesh-id=s{i}", f"--mesh-address={node.ip}:9000",
                        f"--mesh-tls-cert={cert}", f"--mesh-tls-key={key}", f"--mesh-tls-ca={self.authority.cert}", f"--mesh-journal={self.folder}/j{i}",
                        f"--http-address=unix:{self.folder}/http{self.count}", "--allow-grpc=false", "--mesh-start-timeout=0",
                        # a request that a clock's jump finds half sent has taken as long
                        "--header-timeout=3600s", "--body-timeout=3600s",
                        mode=None, prefix=node.prefix, program=faults.PROGRAM, env=clocks.env)
        server.clocks = clocks
        return server.wait_ready()

    @staticmethod
    def known(server):
        """{model: what a server says of it}."""
        with Rest(server.http) as r:
            return {m["id"]: m for m in r.get("/v2/mesh/models").json().get("models", [])}

    def copies(self, server):
        """{model: the servers that have it}, as one server sees it."""
        known = self.known(server)
        return {name: {c["instance"] for c in known.get(name, {}).get("copies", []) if c["state"] == "LOADED"} for name in NAMES}

    def agrees(self):
        """All servers see the same copies, at least one of each model, and each copy is where they say."""
        seen = [self.copies(s) for s in self.servers]
        there = {f"s{i}": self.loaded(s) for i, s in enumerate(self.servers)}
        return all(seen[0].values()) and seen[0] == seen[1] == seen[2] and all((name in there[s]) == (s in seen[0][name]) for s in there for name in NAMES)

    @staticmethod
    def loaded(server):
        with Rest(server.http) as r:
            return {m["name"] for m in r.post("/v2/repository/index").json() if m.get("state") == "READY"}

    def end(self):
        for s in self.servers:
            s.signal(signal.SIGCONT)
        problems = []
        for s in self.servers:
            try:
                s.stop()
            except AssertionError as e:
                problems.append(str(e))
                s.end_anyhow()
        self.etcd.kill()
        shutil.rmtree(self.etcd.folder)
        assert not problems, "\n".join(problems)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    net = network.Network(4)
    try:
        fleet = Fleet(tmp_path_factory.mktemp("net"), net)
        yield fleet
        net.heal()
        fleet.end()
    finally:
        net.end()


@pytest.fixture
def fleet(made):
    """All is well at first: every model answers everywhere."""
    for s in made.servers:
        joined(s)
        for name in NAMES:
            answers(s, name)
    yield made
    made.net.heal()


@pytest.fixture
def clients(fleet):
    clients = Clients(fleet.servers, NAMES, count=6)
    clients.more(10)
    yield clients
    clients.end()


def none_failed(clients, fleet):
    clients.more(20)
    clients.end()
    assert clients.failures == [], fleet.servers[0].describe()
    wait.until(fleet.agrees, "the servers to see the same copies")


def sees_etcd(server, is_there):
    def check():
        with Rest(server.http) as r:
            return r.get("/v2/mesh").json().get("registry_ready", False) == is_there
    wait.until(check, f"the server to {'see' if is_there else 'miss'} etcd\n{server.describe()}")


def test_server_that_is_cut_off_goes_on_and_so_do_the_others(fleet, clients):
    fleet.net.cut(fleet.net.nodes[0])
    clients.more(2 * len(NAMES))
    for name in NAMES:
        answers(fleet.servers[0], name)  # by itself: it knows all models
        answers(fleet.servers[1], name)
    fleet.etcd.end_leases()  # as after a long time: its records are gone
    clients.more(10)
    lost = fleet.net.lost
    assert lost > 0
    fleet.net.heal()
    sees_etcd(fleet.servers[0], True)
    none_failed(clients, fleet)


def test_slow_network(fleet, clients):
    fleet.net.delay_s = 0.05
    clients.more(len(NAMES))
    fleet.net.heal()
    none_failed(clients, fleet)


def test_server_that_is_stopped(fleet, clients):
    clients.leave(fleet.servers[1])
    clients.more(1)  # a request that it has itself waits as long as it does
    fleet.servers[1].signal(signal.SIGSTOP)
    clients.more(2 * len(NAMES))
    fleet.servers[1].signal(signal.SIGCONT)
    joined(fleet.servers[1])
    clients.join(fleet.servers[1])
    none_failed(clients, fleet)


def test_server_that_is_killed(fleet, clients):
    old = fleet.servers[2]
    clients.leave(old)
    old.signal(signal.SIGKILL)
    old.wait_exit()
    old.end_anyhow()
    clients.more(2 * len(NAMES))
    fleet.servers[2] = fleet.begin(2)
    joined(fleet.servers[2])
    clients.join(fleet.servers[2])
    none_failed(clients, fleet)


@pytest.mark.few
@pytest.mark.parametrize("keeps", [True, False], ids=["keeps-its-data", "is-empty"])
def test_etcd_that_goes_and_comes_back(fleet, clients, keeps):
    fleet.etcd.kill()
    for s in fleet.servers:
        sees_etcd(s, False)
    new = f"new-{keeps}"
    repo.add(fleet.folder / "models", new, repo.config())
    with Rest(fleet.servers[0].http) as r:
        assert r.post(f"/v2/mesh/models/{new}/register", {"type": "millrace"}).status == 202
    answers(fleet.servers[0], new)
    clients.more(len(NAMES))
    wait.until(lambda: fleet.etcd.start(keeps), "etcd to come back")
    for s in fleet.servers:
        sees_etcd(s, True)
    none_failed(clients, fleet)
    wait.until(lambda: {f"mesh/m/{n}" for n in (*NAMES, new)} <= fleet.etcd.keys(), "all models in etcd")
    for s in fleet.servers:
        wait.until(lambda: new in Fleet.known(s), "the new model everywhere")
        answers(s, new)


def test_clocks_that_jump(fleet, clients):
    for seconds in (3600, -3600, 0):
        fleet.servers[0].clocks.wall_offset_ns = int(seconds * 1e9)
        clients.more(5)
    for seconds in (30, 90):  # as after a machine was asleep; this clock does not go back
        fleet.servers[1].clocks.steady_offset_ns = int(seconds * 1e9)
        clients.more(len(NAMES))
    none_failed(clients, fleet)


@pytest.mark.more
def test_rolling_restart(fleet, clients):
    for i in range(3):
        old = fleet.servers[i]
        clients.leave(old)
        old.stop()
        fleet.servers[i] = fleet.begin(i)
        joined(fleet.servers[i])
        clients.join(fleet.servers[i])
        clients.more(5)
    none_failed(clients, fleet)
