"""The mesh over an etcd of three nodes: leaders die, nodes restart one after the other, two of three hang."""
import shutil
import signal

import pytest

from lib import repo, wait
from lib.rest import Rest
from lib.services.mesh import answers, joined

pytestmark = pytest.mark.skipif(not shutil.which("etcd"), reason="there is no etcd here")


@pytest.fixture
def servers(etcds, start, models):
    for i in range(6):
        repo.add(models, f"m{i}", repo.config())
    made = [start(models, f"--mesh={etcds.address()}/prod", f"--mesh-id=s{i}", mode=None, ready=False) for i in range(2)]
    for s in made:
        s.wait_ready()
        joined(s)
    return made


def register(server, name):
    with Rest(server.http) as r:
        reply = r.post(f"/v2/mesh/models/{name}/register", {"type": "millrace", "path": "/nowhere"})
    assert reply.status == 200 or reply.status >= 500, f"{reply.status} {reply.body[:300]}"  # no leader, or an answer that was lost with it
    return reply.status == 200


def knows(server, name):
    with Rest(server.http) as r:
        return r.get(f"/v2/mesh/models/{name}").json().get("status") != "NOT_FOUND"


def registers(servers, name):
    """At one server, so that the other knows of it: the registry takes changes and brings them."""
    wait.until(lambda: register(servers[0], name), f"the registration of {name}")
    wait.until(lambda: knows(servers[1], name), f"the other server to know {name}")


def ask_all(servers, numbers):
    for i in numbers:
        for server in servers:
            answers(server, f"m{i}")


def test_leader_that_dies_stops_nobody(etcds, servers):
    ask_all(servers, range(2))
    first = wait.until(lambda: (etcds.leader() is not None) and etcds.leader() + 1, "a leader") - 1
    etcds.kill(first)
    ask_all(servers, range(6))  # loaded and not loaded yet, whether there is a new leader or not
    registers(servers, "after-the-leader")
    assert etcds.leader() != first
    etcds.start(first)
    ask_all(servers, range(6))


@pytest.mark.more
def test_nodes_that_restart_one_by_one_lose_nothing(etcds, servers):
    for i in range(3):
        etcds.kill(i)
        ask_all(servers, range(2 * i, 2 * i + 2))
        registers(servers, f"while-{i}-is-away")
        etcds.start(i)
    ask_all(servers, range(6))
    for server in servers:
        assert all(knows(server, f"while-{i}-is-away") for i in range(3))


def test_majority_that_hangs_stops_nobody(etcds, servers):
    ask_all(servers, range(2))
    for i in range(2):
        etcds.processes[i].send_signal(signal.SIGSTOP)
    ask_all(servers, range(6))
    for i in range(2):
        etcds.processes[i].send_signal(signal.SIGCONT)
    registers(servers, "after-they-hung")
    ask_all(servers, range(6))
