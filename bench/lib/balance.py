"""What a batch job makes of hosts that fail, slow down or differ: its time against the best possible, and the attempts
that a row took. The hosts are bench/fault_hosts.c; a row is a call, which takes 20 ms of one of a host's slots, so a
scenario is over in some ten seconds and costs hardly any CPU. The time is from the first call to the last answer."""
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import machine
from .servers import MILLRACE

HOSTS = machine.ROOT / "build/release/bench/bench_fault_hosts"
SERVICE_S = 0.02
SLOTS = 8


@dataclass
class Scenario:
    key: str
    title: str
    hosts: list[dict]
    best_slots: float  # that a job with perfect knowledge keeps busy
    time: float  # at most, in terms of its time
    attempts: float = None  # at most, per row
    rows: int = 12000
    extra_s: float = 0  # that nobody could save


def host(**given):
    return {"slots": SLOTS, "service_us": int(SERVICE_S * 1e6), **given}


def scenarios():
    good, third = host(), {"fails": 1 / 3}
    slow_from_s = 1.5
    return [
        Scenario("well", "4 healthy hosts", [good] * 4, 32, 1.05, 1.05),
        Scenario("third-fast", "1 of 4: a third fails at once", [host(**third)] + [good] * 3, 32, 1.05),
        Scenario("third-slow", "1 of 4: a third fails after its time", [host(**third, slowly=1)] + [good] * 3,
                 SLOTS * (3 + 2 / 3), 1.05),
        Scenario("two-thirds", "2 of 4: a third fails at once", [host(**third)] * 2 + [good] * 2, 32, 1.05,
                 rows=20000),
        Scenario("dead", "1 of 4 fails always, at once", [host(fails=1)] + [good] * 3, 24, 1.05, 1.05),
        Scenario("slows", "1 of 4 becomes 10 times slower", [host(slow=10, from_ms=1000 * slow_from_s)] + [good] * 3, 24.8,
                 1.05, extra_s=slow_from_s * (1 - 32 / 24.8)),
        Scenario("unlike", "slots 2, 8, 32, 64", [host(slots=n) for n in (2, 8, 32, 64)], 106, 1.05, rows=40000),
        Scenario("gone", "1 of 3 refuses connections", [None, good, good], 16, 1.5, 1.05, rows=8000),
        Scenario("hung", "1 of 3 never answers", [host(hangs=1), good, good], 16, 1.5, 1.05, rows=8000),
        Scenario("slow", "1 of 3 is 10 times slower", [host(slow=10), good, good], 2.1 * SLOTS, 1.1, rows=8000),
        Scenario("outage", "4 hosts, all answer 503 for 5 s", [host(throttles=1, from_ms=1000, to_ms=6000)] * 4, 32, 1,
                 rows=6000, extra_s=7),
    ]


class Hosts:
    """Running ones; their addresses, and after `end` what they counted. None among them: nobody is there."""
    def __init__(self, hosts):
        if not HOSTS.exists():
            raise machine.Missing(f"{HOSTS} is not built (cmake --build build/release --target bench_fault_hosts)")
        texts = [",".join(f"{k}={v}" for k, v in h.items()) for h in hosts if h]
        self.process = subprocess.Popen([HOSTS, *texts], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ports = iter(self.process.stdout.readline().split())
        self.addresses = [f"127.0.0.1:{next(ports) if h else 1}" for h in hosts]
        self.pid = self.process.pid

    def end(self):
        said, _ = self.process.communicate()
        return [json.loads(line) for line in said.splitlines()]


def table(folder, rows):
    path = Path(folder, f"{rows}.csv")
    path.write_text("x\n" + "\n".join(map(str, range(rows))) + "\n")
    return path


def balanced(s):
    def measure(bench):
        out, rows = Path(bench.folder, "balance"), table(bench.folder, s.rows)
        subprocess.run(["rm", "-rf", out], check=True)
        hosts = Hosts(s.hosts)
        try:
            done = subprocess.run([MILLRACE, "batch", "run", "-i", rows, "-m", "m", "--hosts", ",".join(hosts.addresses), "-o", out,
                                   "--batch-rows", "1", "--output-format", "jsonl"], capture_output=True, text=True)
        finally:
            counted = hosts.end()
        report = json.loads((out / "report.json").read_text()) if done.returncode == 0 else {}
        if report.get("results") != s.rows:
            raise RuntimeError(f"it failed ({done.returncode}): {done.stderr[-800:]}")
        seconds = max(h["ms"] for h in counted) / 1000
        best = s.rows * SERVICE_S / s.best_slots + s.extra_s
        return {"seconds": seconds, "of best": seconds / best, "attempts": sum(h["requests"] for h in counted) / s.rows}
    return measure
