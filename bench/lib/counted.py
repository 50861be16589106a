"""Facts that are counted, not timed: system calls, threads and instructions of a request.

Instructions are those of the process (kernel excluded) by callgrind, as the difference of two numbers of requests, so
that what a connection costs cancels. bench/instructions.json holds what was last recorded. Other compilers and other processors give
other counts, so the record says whose they are, and on a machine that differs it is shown and not judged.
"""
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

from . import machine, models
from .load import Load, check, grpc, pair, rest_binary, rest_json
from .rows import Row, floor, most
from .servers import MILLRACE, Millrace

RECORD = machine.ROOT / "bench/instructions.json"
KINDS = {"rest-json": rest_json, "rest-binary": rest_binary, "grpc": grpc}
READS = {"read", "readv", "recvfrom", "recvmsg"}
WRITES = {"write", "writev", "sendto", "sendmsg", "sendfile"}
WAITS = {"epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll"}
GROWTH = 1.10


def requests():
    for kind, make in KINDS.items():
        for model in ("simple", "identity"):
            yield f"{kind}, {model}", pair(make, model)


# ---- system calls and threads ----


def traced(pid, work):
    """Calls of a process and its threads while `work` runs: {name: count}."""
    strace = machine.need("strace", "strace")
    with tempfile.NamedTemporaryFile("r") as report:
        tracers = [["-p", str(p)] for p in machine.family(pid)]
        tracer = subprocess.Popen([strace, "-f", "-c", "-o", report.name, *sum(tracers, [])], stderr=subprocess.PIPE, text=True)
        attached = tracer.stderr.readline()
        if "attached" not in attached:
            raise machine.Missing(f"strace could not attach: {attached.strip()}")
        time.sleep(0.5)  # until all threads are attached
        work()
        tracer.send_signal(2)
        tracer.wait(30)
        rows = [line.split() for line in report.read().splitlines()]
    return {row[-1]: int(row[3]) for row in rows if len(row) >= 5 and row[3].isdigit() and row[-1] != "total"}


def calls(request, server, count=2000):
    def measure(bench):
        running = bench.server(server)
        load = Load(request)
        load.exactly(running, 200, bench.folder)
        found = traced(running.pid, lambda: load.exactly(running, count, bench.folder))
        before = machine.switches(running.pid)
        load.exactly(running, count, bench.folder)
        took_part = [n for n in machine.switches_since(before, running.pid).values() if n > count / 10]
        groups = {"reads": READS, "writes": WRITES, "polls": WAITS}
        figures = {name: sum(found.get(c, 0) for c in group) / count for name, group in groups.items()}
        figures["other calls"] = sum(found.values()) / count - sum(figures.values())
        figures["threads"] = len(took_part)
        return figures
    return measure


def call_rows():
    targets = [most(1.01, None, "reads"), most(1.01, None, "writes"), most(1, None, "threads")]
    rows = []
    for kind, title, beside, path in (("rest-json", "REST JSON", "nginx", "/"), ("grpc", "gRPC", "nghttpd", "/reply")):
        request = pair(KINDS[kind])
        contenders = {s: calls(request, s) for s in ("millrace", "triton")}
        contenders[beside] = calls(floor(request, path), beside)
        rows.append(Row(f"calls-{kind}", f"System calls of a request, and threads that take part: {title}, one at a time",
                        contenders, targets, rounds=1))
    return rows


# ---- instructions ----


class Counter:
    """A server under callgrind. Each answer of since() starts the count anew."""

    def __init__(self, folder):
        self.out = Path(folder, "callgrind.out")
        self.dumps = 0
        machine.need("vgdb", "valgrind")
        valgrind = [machine.need("valgrind", "valgrind"), "--tool=callgrind", f"--callgrind-out-file={self.out}"]
        self.server = Millrace(models.make(folder, "counted"), "--loop-threads=1", "--inline-threshold-us=1000000",
                               "--metrics-interval-ms=3600000", after=valgrind)

    def since(self):
        machine.output(["vgdb", f"--pid={self.server.pid}", "dump"])
        self.dumps += 1
        dump = Path(f"{self.out}.{self.dumps}").read_text()
        return int(re.search(r"^totals: (\d+)", dump, re.M).group(1))


def per_request(folder, short=200, long=1200):
    """Instructions of one warm request, for each kind of request."""
    counter = Counter(folder)
    try:
        for name, request in requests():
            check(counter.server, request)
            load, found = Load(request), []
            for n in (100, short, long):
                load.exactly(counter.server, n, folder)
                found.append(counter.since())
            yield name, round((found[2] - found[1]) / (long - short))
    finally:
        counter.server.stop()


def made_by():
    """What decides the counts besides the source."""
    build = (MILLRACE.parents[1] / "CMakeCache.txt")
    compiler = re.search(r"^CMAKE_C_COMPILER:\w+=(.*)$", build.read_text(), re.M) if build.exists() else None
    version = machine.output([compiler.group(1) if compiler else "cc", "-dumpfullversion"]).strip()
    cpu = machine.describe()["cpu"]
    return {"compiler": f"gcc {version}", "cpu": cpu}


def record(figures):
    RECORD.write_text(json.dumps({"instructions_per_request": figures, "made_by": made_by()}, indent=1) + "\n")


def instruction_row(folder):
    """The row of the bench, and of bench/run --counted."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"instructions_per_request": {}, "made_by": {}}
    old, same = recorded["instructions_per_request"], recorded["made_by"] == made_by()
    contenders, targets = {}, []
    now = dict.fromkeys(old)

    def measured(bench):
        now.update(per_request(folder))
        return {name: float(n) for name, n in now.items()}

    contenders["record"] = lambda bench: {name: float(n) for name, n in old.items()}
    contenders["millrace"] = measured
    if same:
        targets = [most(GROWTH, "record", name) for name in old]
    note = "" if same else f"not judged: recorded by {recorded['made_by']}, this is {made_by()}"
    return Row("instructions", "Instructions of a request (kernel excluded)", contenders, targets, rounds=1, note=note)
