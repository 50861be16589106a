"""Two servers of a mesh: what a request costs at the one that has its model, and at the one that sends it on. The two
are not pinned; CPU and switches are those of both, and the holder's include the load tool's trial run.

And a server of a mesh whose models are in a runtime: what a call of any service costs that it passes to the runtime, which
sends the message back (bench/net_echo.c) and shares the first CPU with it."""
import shutil
import tempfile
from pathlib import Path

from . import load, machine, servers

ECHO = load.Request("/echo.Echo/Echo", b"\0\0\0\0\x64" + bytes(range(100)),
                    {"content-type": "application/grpc", "te": "trailers", "mm-model-id": "identity"}, "grpc", bytes(range(100)))


class Runtime(servers.Server):
    name = "runtime"

    def __init__(self):
        program = servers.MILLRACE.parent.parent / "bench/bench_net_echo"
        if not program.exists():
            raise machine.Missing(f"{program} is not built (make bench builds it)")
        port = machine.free_port()
        super().__init__([program, f"127.0.0.1:{port}"], grpc=port, ready=None)


def runtime(clients, is_direct):
    """The CPU is that of the server that is asked: without that of the runtime behind it."""
    def measure(bench):
        folder = Path(tempfile.mkdtemp(prefix="mesh", dir="/tmp"))
        running = [Runtime()]
        try:
            if not is_direct:
                running.append(bench.begin("millrace", bench.repository("main"), f"--mesh=file:{folder}/registry",
                                           f"--mesh-runtime=127.0.0.1:{running[0].grpc}"))
            load.check(running[-1], ECHO)
            return load.Load(ECHO, clients)(running[-1], bench.seconds, bench.folder)
        finally:
            [server.stop() for server in reversed(running)]
            shutil.rmtree(folder)
    return measure


def mesh(request, clients, is_forwarded):
    """New servers each time, whose first request has the model loaded at the one that has its files."""
    def measure(bench):
        folder = Path(tempfile.mkdtemp(prefix="mesh", dir="/tmp"))  # the path of the registry's socket must be short
        (folder / "none").mkdir()
        running = []
        try:
            for repository in (bench.repository("main"), folder / "none"):
                running.append(bench.begin("millrace", repository, f"--mesh=file:{folder}/registry",
                                           f"--mesh-id=s{len(running)}", cpus=2))
            [load.check(server, request) for server in running]
            return both(load.Load(request, clients), running[is_forwarded], running[not is_forwarded], bench)
        finally:
            [server.stop() for server in running]
            shutil.rmtree(folder)
    return measure


def both(what, asked, other, bench):
    before, cpu = machine.switches(other.pid), machine.cpu_seconds(other.pid)
    figures = what(asked, bench.seconds, bench.folder)
    count = figures["rate"] * bench.seconds
    figures["cpu"] += 1e6 * (machine.cpu_seconds(other.pid) - cpu) / count
    figures["switches"] += sum(machine.switches_since(before, other.pid).values()) / count
    return figures
