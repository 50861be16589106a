"""Graphs of models beside the calls of their steps, and what a call of the client library costs the client."""
import json
import re
import struct
import sys
from pathlib import Path

from . import machine, models
from .load import Load, grpc, pair, rest_binary, rest_json, tensors
from .rows import Row, least, most, under_load

LOOP = machine.ROOT / "build/release/bench/bench_sdk_loop"
LARGE = LOOP.with_name("bench_sdk_large")
CALLS = 5000
LARGE_CALLS = 300
# Three identities in turn: the ensemble of bench/lib/models.py beside each of its steps.
STEPS = 3
TRITON_CLIENT = """
import json, sys, time
import numpy as np
module = __import__("tritonclient." + sys.argv[1], fromlist=["_"])
client = module.InferenceServerClient(sys.argv[2])
inputs = [module.InferInput(n, [1, 16], "INT32") for n in ("INPUT0", "INPUT1")]
for i in inputs:
    i.set_data_from_numpy(np.arange(16, dtype=np.int32).reshape(1, 16))
def calls(count):
    return sum(int(client.infer(sys.argv[3], inputs).as_numpy("OUTPUT0")[0, 15]) == 15 for _ in range(count))
count = int(sys.argv[4])
calls(count // 10 + 1)
wall, cpu = time.perf_counter_ns(), time.process_time_ns()
right = calls(count)
print(json.dumps({"calls": right, "ns": time.perf_counter_ns() - wall, "cpu_ns": time.process_time_ns() - cpu}))
"""


def one_by_one(contender, steps=STEPS):
    """The client calls the steps itself: as many requests for each of its answers."""
    def measure(bench):
        figures = contender(bench)
        return {name: value / steps if name == "rate" else value * steps for name, value in figures.items()}
    return measure


def graph_row(key, title, make, connections, targets, kind="graphs"):
    """`make`(model): the request. Triton has the ensemble alone; its steps in turn are no better than ours."""
    ours = "millrace" if kind == "graphs" else "millrace, python"
    contenders = {"ensemble": under_load(Load(make("chain3"), connections), ours, kind),
                  "calls": one_by_one(under_load(Load(make("step"), connections), ours, kind)),
                  "triton": under_load(Load(make("chain3"), connections), "triton", kind)}
    return Row(key, title, contenders, targets)


def ensembles():
    raw = struct.pack("<f", 1.5) * (1 << 20)
    shape = tensors(("INPUT0", [1, 1 << 20], "FP32"))
    small = lambda model: pair(rest_json, model)
    large = lambda model: rest_binary(f"{model}_fp32", shape, [raw], raw)
    cheaper = most(1.1, "calls", "cpu", "ensemble")
    return [graph_row("ensemble", "Ensemble of three identities, REST JSON, 16 connections", small, 16,
                      [cheaper, least(5, "triton", who="ensemble")]),
            graph_row("ensemble-big", "The same, 4 MB FP32 in and out, REST binary", large, 1,
                      [cheaper, least(4, "triton", who="ensemble")]),
            graph_row("ensemble-python", "Ensemble of three model.py, REST JSON, 16 connections", small, 16,
                      [cheaper, least(3, "triton", who="ensemble")], "python-graphs")]


def of_rows(model, count):
    """INT32[16] rows, of which every second one begins with an odd number."""
    rows = [[i % 2, *range(1, 16)] for i in range(count)]
    return rest_json(model, tensors(("INPUT0", [count, 16], "INT32")), [rows], json.dumps(sum(rows, []), separators=(",", ":")).encode())


def row_graphs():
    """Rows that a workflow divides, beside the two calls of the model that a client would make of them."""
    make = lambda model, count: under_load(Load(of_rows(model, count), 16), "millrace", "workflows")
    pair_of = lambda model, count: {"workflow": make(model, count), "calls": one_by_one(make("part", count // 2), 2)}
    target = [most(1.1, "calls", "cpu", "workflow")]
    return [Row("row-switch", "Switch per row, 8 rows for two branches, REST JSON, 16 connections", pair_of("switch", 8), target),
            Row("foreach", "Foreach over 16 rows, of which the model takes 8, REST JSON, 16 connections", pair_of("each", 16), target)]


def through(load):
    """The workflow of one server whose second step is another server's: the CPU is that of both."""
    def measure(bench):
        other = bench.server("millrace", "workflows")
        if ("millrace", "far") not in bench.running:
            models.far(bench.folder, other.grpc)
        under = under_load(load, "millrace", "far")
        cpu = machine.cpu_seconds(other.pid)
        figures = under(bench)
        more = 1e6 * (machine.cpu_seconds(other.pid) - cpu) / (figures["rate"] * bench.seconds)
        return figures | {"cpu": figures["cpu"] + more}
    return measure


def one_after_the_other(load):
    """The client asks the model of each server itself."""
    def measure(bench):
        near, far = (under_load(load, "millrace", kind)(bench) for kind in ("far", "workflows"))
        return {name: 1 / (1 / near[name] + 1 / far[name]) if name == "rate" else near[name] + far[name] for name in near}
    return measure


def remote():
    contenders = {"workflow": through(Load(of_rows("far", 1), 16)), "calls": one_after_the_other(Load(of_rows("part", 1), 16))}
    return Row("remote", "Workflow of two steps, the second on another server over gRPC, REST JSON, 16 connections", contenders,
               [most(1.6, "calls", "cpu", "workflow")])


# ---- the client library ----


def need_built(program):
    if not program.exists():
        raise machine.Missing(f"{program} is not built (cmake --build build/release --target {program.name})")


def of_output(text, calls=CALLS):
    got = json.loads(text)
    if got["calls"] != calls:
        raise RuntimeError(f"{got['calls']} of {calls} calls had the right answer")
    return {"rate": 1e9 * calls / got["ns"], "client": got["cpu_ns"] / calls / 1e3}


def library(scheme, cpu=machine.client_cpu):
    """A loop of the library, or of the bytes of one request without a client (raw)."""
    def measure(bench):
        need_built(LOOP)
        server = bench.server("millrace")
        port = server.grpc if scheme == "grpc" else server.http
        return of_output(machine.output(machine.pinned(cpu(), [LOOP, "identity", f"{scheme}://127.0.0.1:{port}", CALLS])))
    return measure


def triton_client(module):
    def measure(bench):
        server = bench.server("millrace")
        port = server.grpc if module == "grpc" else server.http
        return of_output(machine.output(machine.pinned(machine.client_cpu(), [
            sys.executable, "-c", TRITON_CLIENT, module, f"127.0.0.1:{port}", "identity", CALLS])))
    return measure


def raw_loop(bench):
    """h2load, one call after the other, by the CPU of its process."""
    server = bench.server("millrace")
    command = Load(pair(grpc, "identity")).h2load_command(server, Path(bench.folder), "-n", str(CALLS))
    timed = machine.output([machine.need("bash", "bash"), "-c", 'TIMEFORMAT="%R %U %S"; time "$@" >/dev/null', "-", *command],
                           with_errors=True)
    wall, user, system = (float(n) for n in re.findall(r"[\d.]+", timed)[-3:])
    return {"rate": CALLS / wall, "client": 1e6 * (user + system) / CALLS}


def sdk():
    """Most of a call is the system's: `bytes` is the same without a client. On the server's own CPU no other one has to be woken up."""
    ours = ("libmillrace, REST", "libmillrace, gRPC")
    loops = lambda cpu: {"bytes": library("raw", cpu), ours[0]: library("http", cpu), ours[1]: library("grpc", cpu)}
    others = {"tritonclient, REST": triton_client("http"), "tritonclient, gRPC": triton_client("grpc"), "h2load, gRPC": raw_loop}
    targets = lambda *more: [t for o in ours for t in (most(2, "bytes", "client", o), *(m(o) for m in more))]
    return [Row("sdk", "CPU of the client for a call: two INT32[16], identity backend, one at a time", loops(machine.client_cpu) | others,
                targets(lambda o: most(1.2, "h2load, gRPC", "client", o))),
            Row("sdk-same-cpu", "The same, on the CPU of the server", loops(machine.server_cpu), targets(lambda o: most(15, None, "client", o)))]


def large(way, is_file=True):
    """A tensor of 4 MiB in and out, over a connection or in memory that is shared over one."""
    def measure(bench):
        need_built(LARGE)
        path = Path(bench.folder, "http.sock")
        options = [f"--http-address=unix:{path}", "--http-shared-memory=true"] if is_file else []
        server = bench.server("millrace", "graphs" if is_file else "main", options)
        model, url = ("step_fp32", f"http://unix:{path}") if is_file else ("identity_fp32", f"http://127.0.0.1:{server.http}")
        before = machine.cpu_seconds(server.pid)
        found = of_output(machine.output(machine.pinned(machine.client_cpu(), [LARGE, model, url, LARGE_CALLS, way])), LARGE_CALLS)
        calls = LARGE_CALLS + LARGE_CALLS // 10 + 1
        return found | {"cpu": 1e6 * (machine.cpu_seconds(server.pid) - before) / calls}
    return measure


def sdk_large():
    contenders = {"sent, TCP": large("sent", False), "sent, socket file": large("sent"), "shared": large("shared")}
    return Row("sdk-large", "4 MiB FP32 in and out by libmillrace, REST binary, one at a time", contenders,
               [most(0.5, "sent, socket file", "client", "shared"), most(1.1, "sent, socket file", "cpu", "shared")])


def graph_rows():
    return [*ensembles(), *row_graphs(), remote(), *sdk(), sdk_large()]
