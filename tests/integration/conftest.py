"""Fixtures of the integration suites. Folders: 00 smoke, 10 protocol, 20 model life cycle, 30 operation,
40 faults, 50 tables, 75 the client library, 80 regressions.

`server` is one server for the whole session with the models of lib.repo.shared; tests leave it as they found
it. `start` makes servers of a test's own; each of them must end with 0 when the test is over, unless the test
has judged its end itself.
"""
import collections
import gc
import os
import subprocess

import pytest

from lib import repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.hold import Hold
from lib.rest import Rest
from lib.server import BIN, Server


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collected tests live to the end of the run, so the garbage collector does not look at them: a third of the time of collecting,
    in each worker."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Tests run against the ASan build, and those marked `release`, among them the folders 00 and 10, against both."""
    if not BIN.exists() and not config.option.collectonly:
        raise pytest.UsageError(f"{BIN} is not there: build it, or set MR_BIN")
    for item in items:
        only = item.get_closest_marker("release_only")
        if only or item.path.parent.name in ("00", "10"):
            item.add_marker("release")
        if wait.SLOW > 1 and only:
            item.add_marker(pytest.mark.skip(reason=only.args[0]))
    cases = collections.Counter()
    for item in items:
        if (few := item.get_closest_marker("few")) and not item.get_closest_marker("more"):
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            if cases[test] > (few.args[0] if few.args else 1):
                item.add_marker("more")


class Keeper:
    """The session's server; a new one when a test has brought it down."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        (folder / "repo").mkdir()
        repo.shared(folder / "repo")
        self.server = None
        self.clients = []

    def grpc(self):
        """A client that lives as long as the server: opening and closing one is slow."""
        server = self.get()
        if not self.clients or self.clients[-1].server is not server:
            self.clients.append(Grpc(server.url("grpc")))
            self.clients[-1].server = server
        return self.clients[-1]

    def close(self):
        [c.close() for c in self.clients]
        if self.server and self.server.running:
            self.server.stop()

    def get(self):
        if self.server is None or not self.server.running:
            self.count += 1
            self.server = Server(self.folder / f"server{self.count}", [self.folder / "repo"], "--exit-on-error=false")
            self.server.wait_ready()
        return self.server


@pytest.fixture(scope="session")
def keeper(tmp_path_factory):
    keeper = Keeper(tmp_path_factory.mktemp("shared"))
    yield keeper
    keeper.close()


@pytest.fixture
def server(keeper):
    server = keeper.get()
    yield server
    assert server.running, f"the server went down ({server.process.returncode})\n{server.describe()}"


@pytest.fixture
def hold(tmp_path):
    hold = Hold(tmp_path)
    yield hold
    hold.end()


@pytest.fixture
def start(tmp_path):
    """start(repos, *options, mode=..., env=..., ready=True): a Server."""
    servers = []

    def make(repos, *args, ready=True, **kw):
        repos = repos if isinstance(repos, (list, tuple)) else [repos]
        server = Server(tmp_path / f"server{len(servers)}", repos, *args, **kw)
        servers.append(server)
        return server.wait_ready() if ready else server

    yield make
    problems = []
    for server in servers:
        try:
            server.process.poll() if server.checked else server.stop()
        except AssertionError as e:
            problems.append(str(e))
        finally:
            if server.running:
                server.end_anyhow()
    assert not problems, "\n".join(problems)


@pytest.fixture
def models(tmp_path):
    """An empty repository."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def explicit(models, start):
    """explicit(*options): a server in mode explicit over `models`, and its Control."""
    made = []

    def make(*args):
        server = start(models, *args, mode="explicit")
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture
def rest(server):
    with Rest(server.http) as client:
        yield client


@pytest.fixture
def grpc_(server, keeper):
    return keeper.grpc()


def pytest_report_header():
    return f"millrace: {BIN} ({os.environ.get('MR_BUILD', 'release')})"
