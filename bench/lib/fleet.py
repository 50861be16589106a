"""Two servers of a mesh: what a request costs at the one that has its model, and at the one that sends it on. The two
are not pinned; CPU and switches are those of both, and the holder's include the load tool's trial run."""
import shutil
import tempfile
from pathlib import Path

from . import load, machine


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
