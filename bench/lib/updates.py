"""Contenders of updates: a model of 384 MiB gets another version again and again beside a small one that is measured,
by `millrace perf update`: quiet windows and windows with an update in turns, an open loop, latency from the intended
start."""
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

from . import machine
from .servers import MILLRACE

RATE, UPDATES, UPDATES_COLD, UPDATES_BUSY = 500, 10, 5, 2
QUIET, BUSY = "quiet", "update"


def sum_of(report, name):
    return next(s for s in report["sums"] if s["name"] == name)


def figures_of(report):
    """Of all windows of a kind: p99.9, and how long the one who waited longest did."""
    quiet, busy = sum_of(report, QUIET), sum_of(report, BUSY)
    windows = [w for w in report["windows"] if w["update"]]
    loads = [sum(end - begin for p, (begin, end) in w["phases_s"].items() if p in ("load", "warm")) for w in windows]
    rss = [w["rss_after"] for w in windows]
    return {"p99.9 quiet": quiet["latency_ns"]["p99.9"] / 1e3, "p99.9": busy["latency_ns"]["p99.9"] / 1e3,
            "worst quiet": quiet["latency_ns"]["max"] / 1e3, "worst": busy["latency_ns"]["max"] / 1e3,
            "load": statistics.median(loads), "rss": rss[-1] / 1e6, "rss growth": rss[-1] / rss[0],
            "doubtful": report["doubtful"]}


def perf_update(running, control, *how, before=()):
    """The report of `millrace perf update`, which the programs in `before` start."""
    loads = ["--control-protocol", control, "--control-url", f"127.0.0.1:{running.grpc if control == 'grpc' else running.http}"]
    return json.loads(machine.output([*before, *machine.pinned(machine.client_cpu(), [MILLRACE]), "perf", "update", "-m", "simple",
                                      "--update", "large", "--url", f"127.0.0.1:{running.http}", *loads, "--rate", RATE, *how,
                                      "--pid", running.pid, "--max-errors", "-1", "--json", "-"]))


def with_models(server, cache):
    """Options for both models under explicit control, and Millrace's cache in a folder of its own."""
    more = [] if server == "triton" else [f"--backend-config=onnxruntime,parameter_cache={cache}"]
    return ["--load-model=simple", "--load-model=large", *more]


def updated(server, control="rest", cpus=1, options=(), is_cold=False):
    """500 REST requests a second to `simple`, which does not change, while updates are asked for over `control`. Either both versions of the large model lie in the
    page cache, and Millrace has seen both; or a giant one is loaded in place, whose file neither the page cache nor
    Millrace's own has."""
    def measure(bench):
        repository = bench.repository("giant" if is_cold else "updates")
        cache = Path(bench.folder) / "cache of updates"
        running = bench.begin(server, repository, *with_models(server, cache), *options, explicit=True, cpus=cpus)
        how = ["--versions", "1,2", "--updates", UPDATES]
        if is_cold:
            file = f"{repository}/large/1/model.onnx"
            forget = f"rm -rf '{cache}'; touch '{file}'; sync '{file}'; dd if='{file}' iflag=nocache count=0 status=none"
            how = ["--command", forget, "--updates", UPDATES_COLD]
        try:
            return figures_of(perf_update(running, control, *how))
        finally:
            running.stop()
    return measure


@contextlib.contextmanager
def busy_cpus():
    """A program of another session on each CPU that computes without end."""
    programs = [subprocess.Popen(machine.pinned(cpu, [sys.executable, "-c", "while True: pass"]), start_new_session=True)
                for cpu in (machine.server_cpu(), machine.client_cpu())]
    try:
        yield
    finally:
        for p in programs:
            p.kill()
            p.wait()


def beside_busy_cpus(server, control):
    """As `updated`, in rounds, with a smaller model and both CPUs busy. The client is real-time, so that only the server
    waits; `late` is how late a real-time thread was that does nothing but sleep: what the machine below has to do with it."""
    def measure(bench):
        running = bench.server(server, "busy updates", with_models(server, Path(bench.folder) / "cache beside busy CPUs"),
                               explicit=True, cpus=2)
        with machine.Clock() as clock, busy_cpus():
            report = perf_update(running, control, "--versions", "1,2", "--updates", UPDATES_BUSY, before=machine.realtime())
        return {**{k: v for k, v in figures_of(report).items() if not k.startswith("rss")}, "late": clock.late_us}
    return measure
