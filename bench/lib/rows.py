"""What is measured: rows of contenders, and the targets that compare them.

A contender is a function of the bench that measures once and returns figures by name. All contenders of a row take
turns, round after round, so that a change of the machine's mood meets all of them. A target compares the medians of
the rounds' own ratios.
"""
import struct
from dataclasses import dataclass, field
from typing import Callable

from . import balance, cold, extra, fleet, load, overload, tables, updates
from .bench import PLAIN, TRITON_TWO
from .load import Load, grpc, pair, rest_binary, rest_json, tensors


@dataclass
class Target:
    """`figure` of `who` must be at least (or at most) `bound` times that of `beside`; without `beside`, `bound` itself."""
    who: str
    figure: str
    least: bool
    bound: float
    beside: str = None


def least(bound, beside, figure="rate", who="millrace"):
    return Target(who, figure, True, bound, beside)


def most(bound, beside=None, figure="p50", who="millrace"):
    return Target(who, figure, False, bound, beside)


@dataclass
class Row:
    key: str
    title: str
    contenders: dict[str, Callable]
    targets: list[Target] = field(default_factory=list)
    rounds: int = None  # other than the run's
    note: str = ""


def under_load(what, server, kind="main"):
    """A contender: a running server and what is sent to it."""
    def measure(bench):
        running = bench.server(server, kind)
        load.check(running, what.request)
        return what(running, bench.seconds, bench.folder)
    return measure


def floor(request, path):
    """The same POST to a server that answers a constant."""
    return load.Request(path, request.body, request.headers, request.port)


BOTH = ("millrace", "triton")
ALL = (*BOTH, TRITON_TWO)  # of which the better Triton is compared


def http_row(key, title, request, connections, targets, beside="nginx", servers=ALL):
    contenders = {s: under_load(Load(request, connections), s) for s in servers}
    contenders[beside] = under_load(Load(floor(request, "/"), connections), beside)
    return Row(key, title, contenders, targets)


def grpc_row(key, title, request, connections, streams, targets, reply="/reply", servers=ALL):
    contenders = {s: under_load(Load(request, connections, streams), s) for s in servers}
    contenders["nghttpd"] = under_load(Load(floor(request, reply), connections, streams), "nghttpd")
    return Row(key, title, contenders, targets)


def small_requests():
    small, binary, call = pair(rest_json), pair(rest_binary), pair(grpc)
    same = pair(rest_json, "identity")
    polling = "millrace, busy polling"
    latency = [most(0.55, "triton"), most(0.55, "triton", who=polling)]
    nginx, alone = [*latency, most(1.4, "nginx")], ("millrace", polling, "triton", TRITON_TWO)
    return [
        http_row("rest-json", "REST JSON, `simple`, 16 connections", small, 16, [least(4, "triton"), least(0.6, "nginx")]),
        http_row("rest-json-identity", "REST JSON, identity backend, 16 connections", same, 16, [least(0.75, "nginx")]),
        http_row("rest-binary", "REST binary, `simple`, 16 connections", binary, 16, [least(4, "triton")]),
        grpc_row("grpc-streams", "gRPC, `simple`, 1 connection × 16 streams", call, 1, 16,
                 [least(3, "triton"), least(0.6, "nghttpd")]),
        grpc_row("grpc", "gRPC, `simple`, 16 connections", call, 16, 1, [least(3.5, "triton"), least(0.6, "nghttpd")]),
        http_row("latency-json", "REST JSON, `simple`, one at a time", small, 1, nginx, servers=alone),
        http_row("latency-binary", "REST binary, `simple`, one at a time", binary, 1, nginx, servers=alone),
        grpc_row("latency-grpc", "gRPC, `simple`, one at a time", call, 1, 1, latency, servers=alone),
    ]


def big_tensors():
    raw = struct.pack("<f", 1.5) * (1 << 20)
    shape = tensors(("INPUT0", [1, 1 << 20], "FP32"))
    rows = []
    for model, title in (("identity_onnx", "ONNX Runtime's Identity"), ("identity_fp32", "identity backend")):
        key = "big-" + ("onnx" if model == "identity_onnx" else "identity")
        rows.append(http_row(key + "-rest", f"4 MB FP32 in and out, REST binary, {title}", rest_binary(model, shape, [raw], raw),
                             1, [least(3, "triton"), least(0.75, "copy loop")], "copy loop"))
        rows.append(grpc_row(key + "-grpc", f"4 MB FP32 in and out, gRPC, {title}", grpc(model, shape, [raw], raw), 1, 1,
                             [least(3, "triton"), least(0.75, "nghttpd")], "/reply-4MB"))
    return rows


def worker_processes():
    """What a process costs beside a thread of the server, and beside Triton's python backend, its only one in a process;
    `cpu` is of the server and its workers together."""
    raw = struct.pack("<f", 1.5) * (1 << 20)
    shape = tensors(("INPUT0", [1, 1 << 20], "FP32"))
    small = {p: under_load(Load(pair(rest_json, p), 16), "millrace", "workers") for p in ("threads", "processes")}
    large = {p: under_load(Load(rest_binary(f"{p}_fp32", shape, [raw], raw), 1), "millrace", "workers") for p in small}
    python = "triton, python backend"
    small[python] = under_load(Load(pair(rest_json, "processes"), 16), "triton", "python")
    large[python] = under_load(Load(rest_binary("processes_fp32", shape, [raw], raw), 1), "triton", "python")
    large["copy loop"] = under_load(Load(floor(rest_binary("processes_fp32", shape, [raw], raw), "/"), 1), "copy loop")
    return [Row("workers", "Identity backend in a worker process, REST JSON, 16 connections", small,
                [least(3, python, who="processes")]),
            Row("workers-big", "The same, 4 MB FP32 in and out, REST binary", large, [least(8, python, who="processes")]),
            Row("workers-killed", "A worker of the identity backend that is killed, and one whose server is",
                {"millrace": extra.workers_killed(pair(rest_json, "processes"))},
                [most(20, None, "ready"), most(100, None, "gone")]),
            Row("workers-restart", "A killed worker of a model with 400 MB of weights, ONNX Runtime: alone, and with one that stands by",
                {model: extra.worker_restarts(restart_request(model), model) for model in ("alone", "standby", "standby_unwarmed")},
                [*(most(0.25, None, "of load", who=model) for model in ("alone", "standby")),
                 most(5, None, "ready", who="standby_unwarmed")])]


def restart_request(model):
    return rest_json(model, tensors(("INPUT0", [1, 2048], "FP32")), [[0] * 2048])


def python_models():
    """The same model.py files here and in Triton, the same MLModel here and in MLServer."""
    def beside_triton(what):
        return {"python": under_load(what, "millrace, python", "python"), "triton": under_load(what, "triton", "python"),
                TRITON_TWO: under_load(what, TRITON_TWO, "python")}

    raw = struct.pack("<f", 1.5) * (1 << 20)
    big = rest_binary("processes_fp32", tensors(("INPUT0", [1, 1 << 20], "FP32")), [raw], raw)
    many = load.Request("/v2/models/repeat/generate_stream", b'{"IN":[1000]}', {"Content-Type": "application/json"},
                        answer=b'"OUT":999')
    mlserver = load.Load(pair(rest_json, "identity"), 16)
    mlserver.request.answer = b'"outputs"'
    return [Row("python", "A model.py, REST JSON, 16 connections", beside_triton(Load(pair(rest_json, "processes"), 16)),
                [least(3, "triton", who="python")]),
            Row("python-big", "A model.py, 4 MB FP32 in and out, REST binary", beside_triton(Load(big, 1)),
                [least(8, "triton", who="python")]),
            Row("python-decoupled", "1,000 answers of a model.py to a request, `generate_stream`", beside_triton(Load(many, 4)),
                [least(3, "triton", who="python")]),
            Row("python-chain", "A model.py that asks another one three times, 16 connections",
                beside_triton(Load(pair(rest_json, "chain"), 16)), [least(4, "triton", who="python")]),
            Row("python-mlserver", "An `MLModel`, REST JSON, 16 connections",
                {"python": under_load(mlserver, "millrace, environment of mlserver", "mlserver"),
                 "mlserver": under_load(mlserver, "mlserver", "mlserver")}, [least(6, "mlserver", who="python")])]


def dense_request(model):
    return rest_binary(model, tensors(("INPUT0", [1, 64], "FP32")), [struct.pack("<64f", *(i / 64 for i in range(64)))])


def counting_batches(contender, server, model):
    """Adds the mean batch size, by the server's own statistics."""
    def measure(bench):
        rows, runs = load.statistics(bench.server(server), model)
        figures = contender(bench)
        rows_after, runs_after = load.statistics(bench.server(server), model)
        figures["batch"] = (rows_after - rows) / max(1, runs_after - runs)
        return figures
    return measure


def batching():
    batched, plain = dense_request("dense_batched"), dense_request("dense")
    full = {s: counting_batches(under_load(Load(batched, 64), s), s, "dense_batched") for s in ALL}
    alone = {"millrace": under_load(Load(batched, 1), "millrace"), "millrace, unbatched": under_load(Load(plain, 1), "millrace"),
             "triton": under_load(Load(batched, 1), "triton"), "triton, unbatched": under_load(Load(plain, 1), "triton")}
    return [
        Row("batching", "Dense net, dynamic batching (≤ 500 µs), 64 connections", full,
            [least(2.5, "triton"), most(1, "triton", "p99"), least(1, "triton", "batch")]),
        Row("lone-client", "The same net, a lone client", alone, [most(1.3, "millrace, unbatched")]),
    ]


def convolutional():
    raw = struct.pack("<f", 0.5) * (3 * 160 * 160)
    request = rest_binary("convolutional", tensors(("INPUT0", [1, 3, 160, 160], "FP32")), [raw])
    contenders = {"ONNX Runtime": extra.plain_loop("convolutional")}
    contenders |= {s: under_load(Load(request, 4), s) for s in ALL}
    call = grpc("convolutional", tensors(("INPUT0", [1, 3, 160, 160], "FP32")), [raw])
    pressed = {s: overload.at_twice_the_peak(s, call) for s in BOTH}
    return [Row("convolutional", "Convolutional net, 4 connections, beside ONNX Runtime in a loop", contenders,
                [least(0.97, "ONNX Runtime")]),
            Row("overload", "Convolutional net at twice the rate that the server sustains, with deadlines", pressed,
                [least(0.9, None, "kept")], note="answers in time; kept: their part of the peak; health: the time of a ready request")]


def loads_and_starts():
    ways = {s: extra.load_heavy(s) for s in BOTH}
    ways |= {"millrace, seen before": extra.load_heavy("millrace, seen before", is_new=False),
             "millrace, plain": extra.load_heavy("millrace, plain")}
    rows = [Row("load", "Load of 200 MB of weights", ways, [most(1, "triton", "seconds"), most(1.3, "millrace, plain", "seconds")])]
    for kind, title, targets in (("empty", "no models", [most(20, None, "rss")]), ("small", "one small model", []),
                                 ("demo", "the demonstration's models", [most(30, None, "ready")])):
        contenders = {s: extra.start(s, kind) for s in BOTH}
        if kind == "demo":
            contenders["ONNX Runtime, one model, once"] = extra.plain_start
        rows.append(Row(f"start-{kind}", f"Start to ready, {title}", contenders, targets))
    return rows


def model_updates():
    """Triton's HTTP threads wait for a load that is asked for over HTTP: its better way is gRPC. The other way is shown once,
    as it takes long."""
    rows = []
    by_rest = "triton, loads by REST"
    for cpus in (1, 2):
        contenders = {"millrace": updates.updated("millrace", cpus=cpus),
                      "millrace, plain": updates.updated("millrace", cpus=cpus, options=PLAIN),
                      "triton": updates.updated("triton", "grpc", cpus=cpus)}
        if cpus == 1:
            contenders[by_rest] = updates.updated("triton", cpus=cpus)
        title = f"Updates of a model of 384 MiB beside a small one at {updates.RATE}/s, " + ("one CPU" if cpus == 1 else "all CPUs")
        rows.append(Row(f"updates-{cpus}", title, contenders, [
            most(1, "triton", "worst"), *(most(0.05, who, "worst") for who in (by_rest, "millrace, plain") if who in contenders),
            most(1.05, None, "rss growth"), most(1.3, "millrace, plain", "load")], rounds=1))
    busy = {"millrace": updates.beside_busy_cpus("millrace", "rest"), "triton": updates.beside_busy_cpus("triton", "grpc")}
    rows.append(Row("updates-busy", f"Updates of a model of 128 MiB beside a small one at {updates.RATE}/s, all CPUs busy with other programs",
                    busy, [most(1, "triton", "worst")]))
    cold = {"millrace": updates.updated("millrace", is_cold=True), "triton": updates.updated("triton", "grpc", is_cold=True)}
    rows.append(Row("updates-cold", f"Updates of a model of 1 GiB from the disk beside a small one at {updates.RATE}/s, one CPU", cold,
                    [most(1, "triton", "worst")], rounds=1))
    return rows


def scale():
    request = pair(rest_json, "identity")
    request.path = "/v2/models/m0/infer"
    few, many = "10 models", "10,000 models"
    models = {few: extra.many_models(10), many: extra.many_models(10000)}
    turns = {few: extra.many_models(10, in_turn=True), many: extra.many_models(10000, in_turn=True)}
    rows = [Row("models", "10,000 models loaded, one of them asked, 16 connections", models, [most(1.05, few, "cpu", many)]),
            Row("models-in-turn", "10,000 models loaded, all asked in turn, 16 connections", turns,
                note="another model at each request: what is more is what the CPU's caches do not hold")]
    for kind in ("http", "grpc"):
        title = "HTTP/1.1" if kind == "http" else "HTTP/2"
        contenders = {"16 connections": extra.idle(kind, 0, request),
                      "and 10,000 idle": extra.idle(kind, 10000, request)}
        rows.append(Row(f"idle-{kind}", f"10,000 idle {title} connections beside 16 busy ones", contenders,
                        [most(1.05, "16 connections", "cpu", "and 10,000 idle"), most(100, None, "rss", "and 10,000 idle")]))
    return rows


def whole_tables():
    jobs = [("table-net", "2 million rows of 64 floats, dense net, 1,024 rows a call", ("dense_rows", 2000000, 1024), [
                least(2, "script", "rows"), most(1e6, None, "worker cpu"), most(576, None, "peak rss")]),
            ("table-calls", "500,000 rows of 64 floats, dense net, 64 rows a call", ("dense_rows", 500000, 64), [
                least(2, "script", "rows"), least(500000, None, "rows")]),
            ("table-text", "100,000 JSON lines of 20 to 2,000 bytes, identity backend, 256 rows a call", ("text", 100000, 256, True), [
                least(100000, None, "rows"), least(2, "script", "rows")])]
    rows = [Row(key, title, {who: tables.worked(who, *job) for who in ("millrace", "script")}, targets)
            for key, title, job, targets in jobs]
    rows.append(Row("table-lean", "2 million rows of 64 floats, a host that answers zeros and does nothing else",
                    {who: tables.lean(who, 2000000, 1024) for who in ("millrace", "script")},
                    [least(2e6 / 1.2, None, "rows"), most(1e6, None, "worker cpu"), least(2, "script", "rows")]))
    net = ("dense_rows", 2000000, 1024)
    rows.append(Row("table-triton", "2 million rows of 64 floats, dense net, a Triton as the host",
                    {who: tables.worked(who, *net, host="triton") for who in ("millrace", "script")},
                    [least(90, None, "busy"), most(1e6, None, "worker cpu")]))
    ways = {"millrace": "millrace", "script": "script", "DuckDB": "duckdb", "Spark": "spark"}
    rows.append(Row("table-local", "2 million rows of 64 floats, dense net, the model in the worker's process",
                    {name: tables.in_process(way, *net) for name, way in ways.items()},
                    [least(2e6 / 1.5, None, "rows"), most(150, None, "peak rss"),
                     *(least(1.5, name, "rows") for name in ways if name != "millrace")]))
    for width, count in ((10, 4000000), (64, 1000000)):
        rows.append(Row(f"table-write-{width}", f"Parquet of a key and {width} floats, plain, written by one thread",
                        {who: tables.written(who, width, count) for who in ("millrace", "pyarrow", "DuckDB")},
                        [least(2, "pyarrow", "rows"), least(2, "DuckDB", "rows")]))
    return rows


def balances():
    return [Row(f"balance-{s.key}", s.title, {"millrace": balance.balanced(s)},
                [most(s.time, None, "of best"), *([most(s.attempts, None, "attempts")] if s.attempts else [])], rounds=1)
            for s in balance.scenarios()]


def fleets():
    request = pair(grpc, "identity")
    return [Row(f"mesh-{clients}", f"A mesh of two servers, gRPC, {clients} at a time, at the server that has the model and at the other",
                {"local": fleet.mesh(request, clients, False), "forwarded": fleet.mesh(request, clients, True)})
            for clients in (1, 16)] + [
        Row(f"mesh-runtime-{clients}", f"A call of any gRPC service, {clients} at a time, passed on to a runtime of a mesh (mmesh.ModelRuntime)",
            {"passed": fleet.runtime(clients, False), "runtime alone": fleet.runtime(clients, True)}, [most(cpu, None, "cpu", "passed")])
        for clients, cpu in ((1, 25), (16, 15), (64, 12))] + [
        Row("mesh-cold", "500 models of a mesh that take 100 ms to load, 64 asked for at once, 16 loaded at once", {"millrace": cold.once(500)},
            [least(155, None), most(600e3, None, "p99"), most(0, None, "failed")]),
        Row("mesh-churn", "Any of 300 models that take 100 ms to load, a tenth of which fit, 64 asked for at once, 16 loaded at once",
            {"millrace": cold.churn(300)}, [most(0, None, "failed"), least(80, None, "loaders")])]


def all_rows():
    return [*small_requests(), *big_tensors(), *worker_processes(), *python_models(), *batching(), *convolutional(), *loads_and_starts(), *model_updates(),
            *scale(), *whole_tables(), *balances(), *fleets()]
