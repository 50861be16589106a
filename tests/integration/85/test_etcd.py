"""The mesh over a real etcd, which hangs, and comes back without its data."""
import shutil
import signal

import pytest

from lib import repo, wait
from lib.rest import Rest

pytestmark = pytest.mark.skipif(not shutil.which("etcd"), reason="there is no etcd here")


@pytest.fixture
def servers(etcd, start, models):
    for i in range(8):
        repo.add(models, f"m{i}", repo.config())
    made = [start(models, f"--mesh=etcd://127.0.0.1:{etcd.ports[0]}/prod", f"--mesh-id=s{i}", mode=None, ready=False) for i in range(2)]
    for s in made:
        s.wait_ready()
        with Rest(s.http) as r:
            wait.until(lambda: r.get("/v2/health/ready").status == 200, f"the server to join\n{s.describe()}")
    return made


def answers(server, model):
    with Rest(server.http) as r:
        reply = r.infer(model, [("INPUT0", "INT32", [3], [1, 2, 3])])
    assert reply.status == 200, f"{model}: {reply.status} {reply.body[:300]}\n{server.describe()}"


def ask_all(servers, numbers):
    for i in numbers:
        for server in servers:
            answers(server, f"m{i}")


def status_of(server, model):
    with Rest(server.http) as r:
        return r.get(f"/v2/mesh/models/{model}").ok().json()["status"]


def in_registry(etcd, i):
    """The model, and a copy of it, whose record does not go with the time."""
    keys = etcd.keys()
    return f"prod/mesh/m/m{i}" in keys and any(k.startswith(f"prod/mesh/c/m{i}/") for k in keys)


def test_etcd_that_hangs_stops_nobody(etcd, servers):
    ask_all(servers, range(4))
    etcd.process.send_signal(signal.SIGSTOP)
    ask_all(servers, range(8))  # loaded and not loaded yet
    assert "LOADED" in [status_of(s, "m7") for s in servers]  # where it is, before the registry has it
    etcd.process.send_signal(signal.SIGCONT)
    ask_all(servers, range(8))
    for i in range(8):
        wait.until(lambda: in_registry(etcd, i), f"m{i} in the registry")


def test_etcd_without_its_data_gets_it_again(etcd, servers):
    ask_all(servers, range(4))
    etcd.kill()
    ask_all(servers, range(6))
    wait.until(etcd.start, "etcd to start again on its ports")
    for i in range(6):
        wait.until(lambda: in_registry(etcd, i), f"m{i} in the registry")
    ask_all(servers, range(8))
