"""Fixtures for servers of a mesh."""
import shutil
import signal
import tempfile

import pytest

from lib import repo
from lib.services.etcd import Cluster, Etcd
from lib.services.mesh import joined, see_each_other
from lib.services.runtime import Runtime


@pytest.fixture
def registry():
    """The address of a registry in a file. The path of its socket must be short."""
    folder = tempfile.mkdtemp(prefix="mr", dir="/tmp")
    yield f"file:{folder}/r"
    shutil.rmtree(folder)


@pytest.fixture
def fleet(registry, start):
    """fleet(repository…): as many servers that have joined one mesh. options_of(i): further options of one."""

    def make(*repos, options=(), options_of=lambda i: (), **kw):
        servers = [start(r, f"--mesh={registry}", f"--mesh-id=s{i}", *options, *options_of(i), mode=None, ready=False, **kw) for i, r in enumerate(repos)]
        for s in servers:
            s.wait_ready()
            joined(s)
        see_each_other(servers)
        return servers

    return make


@pytest.fixture
def runtime():
    """runtime(**options): a Runtime."""
    made = []

    def make(**options):
        made.append(Runtime(**options))
        return made[-1]

    yield make
    for r in made:
        r.server.stop(0)


@pytest.fixture
def under(registry, start, models):
    """under(runtime…): a server for each of them, over the same models, that have joined one mesh."""
    for i in range(8):
        repo.add(models, f"m{i}", repo.config())

    def make(*runtimes, options=(), last=()):
        servers = [start(models, f"--mesh={registry}", f"--mesh-id=s{i}", f"--mesh-runtime={r.target}", *options, *(last if r is runtimes[-1] else ()), mode=None, ready=False)
                   for i, r in enumerate(runtimes)]
        for s in servers:
            joined(s.wait_ready())
        return servers

    return make


@pytest.fixture
def etcd():
    etcd = Etcd()
    yield etcd
    etcd.process.send_signal(signal.SIGCONT)
    etcd.kill()
    shutil.rmtree(etcd.folder)


@pytest.fixture
def etcds():
    cluster = Cluster()
    yield cluster
    cluster.end()
    shutil.rmtree(cluster.folder)
