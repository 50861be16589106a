#!/usr/bin/env python3
"""Everything at once for as long as one likes: every endpoint of REST and gRPC, errors, bad input, clients that vanish,
streams, loads and unloads, and each second a new version of a large model. Every answer is checked, and what the server
holds is sampled twice a second. Afterwards worker processes of two backends are killed every 20 ms while they are asked, one
worker is replaced again and again, and for a sixth of the time those of models of all kinds are killed, stopped and poisoned.

  make soak     (SOAK_SECONDS=3600, KIND=release or asan), or build/venv/bin/python tests/soak/soak.py [--seconds N] [--clients N]

Fails when an answer is wrong, when the server ends, when a descriptor or a thread is left over, or when memory is not flat.
Flat means: the median of the resident memory over the last fifth of the time is within 1 % of its median over the second
fifth. The first fifth is warm-up (caches fill), and medians leave out the requests that are large for a moment. Runs of
less than ten minutes and sanitizer builds, which keep freed memory, print the figure and do not judge it.
"""
import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests/integration"), str(TOP / "tests/soak")]
import actors  # noqa: E402
import workers  # noqa: E402
from lib import chaos, wait  # noqa: E402
from lib.held import cpu_seconds, descriptors, in_flight, resident, threads  # noqa: E402
from lib.metrics import value  # noqa: E402
from lib.server import Server  # noqa: E402
from lib.updated import WEIGHTS  # noqa: E402
from lib.workers import add_fault  # noqa: E402

JUDGED_FROM = 600
# Of a run that is judged, and of a shorter one.
KILLS, RESTARTS = (500, 60), (10_000, 100)


class Sampler(threading.Thread):
    def __init__(self, server, seconds):
        super().__init__(daemon=True)
        self.server, self.end, self.seconds = server, threading.Event(), seconds
        self.rows = []  # (time, resident, descriptors, threads, cpu seconds, answers)
        self.answers = lambda: 0

    def run(self):
        begin = time.monotonic()
        while not self.end.wait(0.5) and self.server.running:
            try:
                self.rows.append((time.monotonic() - begin, resident(self.server), descriptors(self.server),
                                  threads(self.server), cpu_seconds(self.server), self.answers()))
            except OSError:
                return

    def fifth(self, n):
        return [r for r in self.rows if n - 1 <= 5 * r[0] / self.seconds < n]

    def median(self, n):
        return statistics.median(r[1] for r in self.fifth(n))

    def cost_us(self, n):
        """CPU time of the server per answer."""
        rows = self.fifth(n)
        return (rows[-1][4] - rows[0][4]) / max(1, rows[-1][5] - rows[0][5]) * 1e6


def run_clients(server, seconds, count, sampler, updater):
    """(actors, failures)"""
    until, crowd, failures = time.monotonic() + seconds, [], []

    def run(seed):
        actor = actors.Actor(server, seed, updater.answers)
        crowd.append(actor)
        try:
            while time.monotonic() < until and not failures:
                actor.step()
        except Exception as e:
            failures.append(f"client {seed}: {type(e).__name__}: {str(e)[:500]}")
        actor.close()

    all_ = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    sampler.answers = lambda: sum(sum(a.counts.values()) for a in crowd)
    updater.start()
    [t.start() for t in all_]
    [t.join() for t in all_]
    updater.stop()
    return crowd, failures + updater.failures


def ask_everything(server, seed, answers):
    """One step of each kind, so that nothing is first used later."""
    actor = actors.Actor(server, seed, answers)
    for name in sorted(actor.steps):
        actor.steps[name]()
    actor.close()


def leftovers(server, idle, before):
    """What has not gone away again. idle: in_flight() before the first request; workers' replacements run kept warm-ups."""
    found = []
    for what, function, expected in (
            ("requests in flight", lambda: in_flight(server) == idle, idle),
            ("connections", lambda: value(server, "millrace_connections") <= 1, 1),
            ("descriptors", lambda: descriptors(server) <= before[0] + 2, before[0]),
            ("threads", lambda: threads(server) <= before[1] + 2, before[1])):
        try:
            wait.until(function, what, patience=30 * wait.SLOW)
        except AssertionError:
            found.append(f"{what} are left over; there were {expected}")
    return found


def soak(folder, seconds, clients):
    """(lines of the summary, failures)"""
    (folder / "models").mkdir()
    updated = actors.fill(folder / "models")
    server = Server(folder / "server", [folder / "models"], f"--backend-config=onnxruntime,parameter_cache={folder / 'cache'}",
                    "--load-model=*", "--log-info=false", "--log-warning=false", "--log-error=false", mode="explicit")
    try:
        server.wait_ready()
        idle = in_flight(server)
        updater = actors.Updater(server, updated)
        ask_everything(server, 1000, updater.answers)
        before = descriptors(server), threads(server)
        sampler = Sampler(server, seconds)
        sampler.start()
        crowd, failures = run_clients(server, seconds, clients, sampler, updater)
        sampler.end.set()
        sampler.join()
        if server.running:
            failures += leftovers(server, idle, before)
        lines = [*summary(sampler, crowd, seconds, failures), f"{updater.updates} updates of a model of {WEIGHTS >> 20} MiB"]
        server.stop()
    except AssertionError as e:
        return [], [str(e)]
    finally:
        if server.running:
            server.end_anyhow()
    return lines, failures


def soak_workers(folder, kills, restarts):
    """As soak(), of worker processes."""
    failures = []
    (folder / "models").mkdir(parents=True)
    chaos.fill(folder / "models")
    add_fault(folder / "models", "one")
    server = Server(folder / "server", [folder / "models"], "--log-warning=false", "--log-info=false")
    try:
        server.wait_ready()
        idle = in_flight(server)
        crowds = [chaos.Clients(server, model) for model in chaos.ADDED]
        with contextlib.ExitStack() as stack:
            [stack.enter_context(crowd) for crowd in crowds]
            killed = sum(chaos.kill_ready(server, c.model, kills // len(crowds), c, 0.02) for c in crowds)
        failures += [f"wrong: {crowd.wrong[:3]}" for crowd in crowds if crowd.wrong]
        chaos.replace(server, "one", 50)  # caches are full
        before, memory = (descriptors(server), threads(server)), resident(server)
        chaos.replace(server, "one", restarts)
        growth = resident(server) - memory
        failures += leftovers(server, idle, before)
        if wait.SLOW == 1 and growth > 2 << 20:
            failures.append(f"{restarts} restarts of a worker took {growth >> 10} KiB")
        lines = [f"{killed} workers killed under load, {sum(sum(c.answered) for c in crowds)} answers; "
                 f"{restarts} restarts, {growth >> 10} KiB more"]
        server.stop()
    except AssertionError as e:
        return [], [str(e)]
    finally:
        if server.running:
            server.end_anyhow()
    return lines, failures


def summary(sampler, crowd, seconds, failures):
    counts = {name: sum(a.counts[name] for a in crowd) for name in sorted(crowd[0].counts)}
    lines = [f"{name:24}{count:>10}" for name, count in counts.items()]
    lines.append(f"{sum(counts.values())} steps by {len(crowd)} clients in {seconds} s")
    if not all(sampler.fifth(n) for n in range(1, 6)):
        return lines  # it was cut short
    early, late = sampler.median(2), sampler.median(5)
    growth = 100 * (late - early) / early
    lines.append("resident memory, MiB, median of each fifth of the time: " +
                 " ".join(f"{sampler.median(n) / 2**20:.2f}" for n in range(1, 6)) + f"; second to last {growth:+.2f} %")
    lines.append("CPU of the server per step, us, in each fifth: " + " ".join(f"{sampler.cost_us(n):.0f}" for n in range(1, 6)))
    lines.append(f"descriptors at most {max(r[2] for r in sampler.rows)}, threads at most {max(r[3] for r in sampler.rows)}")
    if seconds >= JUDGED_FROM and wait.SLOW == 1 and abs(growth) > 1:
        failures.append(f"resident memory is not flat: {growth:+.2f} %")
    return lines


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seconds", type=int, default=int(os.environ.get("SOAK_SECONDS", 3600)))
    p.add_argument("--clients", type=int, default=8)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines, failures = soak(Path(folder), a.seconds, a.clients)
        is_long = a.seconds >= JUDGED_FROM
        more = soak_workers(Path(folder) / "workers", KILLS[not is_long], RESTARTS[not is_long])
        lines, failures = [*lines, *more[0]], [*failures, *more[1]]
        more = workers.soak(Path(folder) / "chaos", max(5, a.seconds / 6))
        lines, failures = [*lines, *more[0]], [*failures, *more[1]]
    print(*lines, *(f"failed: {f}" for f in failures), sep="\n")
    print("soak:", "failed" if failures else "passed")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
