"""Contenders that are more than a running server under load: starts, loads, many models, idle connections."""
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import time
import urllib.request
from pathlib import Path

from . import load, machine

DEMO = machine.ROOT / "examples/models"


def plain(repository, model, *arguments):
    """What ONNX Runtime without a server prints: on the server's CPU, on one thread."""
    program = machine.ROOT / "build/release/bench/bench_ort_run"
    if not program.exists():
        raise machine.Missing(f"{program} is not built (cmake --build build/release --target bench_ort_run)")
    return machine.output(machine.pinned(machine.server_cpu(), [
        program, "--way", "plain", "--repository", repository, "--model", model, *arguments]), cwd=machine.ROOT)


def plain_loop(model):
    def measure(bench):
        out = plain(bench.repository("main"), model, "--seconds", str(bench.seconds))
        ns, cpu = (float(n) for n in re.search(r"(\d+) ns, (\d+) ns of CPU", out).groups())
        return {"rate": 1e9 / ns, "cpu": cpu / 1e3}
    return measure


def plain_start(bench):
    """A program that loads ONNX Runtime and one of the demonstration's models, runs it once and ends."""
    before = time.perf_counter()
    plain(DEMO, "digits", "--count", "1")
    return {"ready": 1e3 * (time.perf_counter() - before)}


def start(server, kind):
    """From the start of the program to its first answer that it is ready; then its memory."""
    def measure(bench):
        folder = DEMO if kind == "demo" else bench.repository(kind)
        running = bench.begin(server, folder)
        try:
            return {"ready": running.ready_ms, "rss": machine.resident_mb(running.pid)}
        finally:
            running.stop()
    return measure


def load_heavy(server, is_new=True):
    """The time of a load call for a model whose file is in the page cache, and the memory with it. Millrace has nothing
    of it in its own cache when the model `is_new`, as after each change of one."""
    def measure(bench):
        cache = Path(bench.folder) / f"cache of {server}"
        if is_new:
            shutil.rmtree(cache, ignore_errors=True)
        options = [] if server == "triton" else [f"--backend-config=onnxruntime,parameter_cache={cache}"]
        running = bench.server(server, "heavy", options, explicit=True)
        (bench.repository("heavy") / "heavy/1/model.onnx").read_bytes()
        cpu, before = machine.cpu_seconds(running.pid), time.perf_counter()
        load.post(running, "/v2/repository/models/heavy/load")
        seconds = time.perf_counter() - before
        figures = {"seconds": seconds, "cpu": 1e6 * (machine.cpu_seconds(running.pid) - cpu), "rss": machine.resident_mb(running.pid)}
        load.post(running, "/v2/repository/models/heavy/unload")
        until = time.time() + 30
        while time.time() < until and "UNAVAILABLE" not in load.post(running, "/v2/repository/index").decode():
            time.sleep(0.05)
        figures["rss after"] = machine.resident_mb(running.pid)
        return figures
    return measure


KILLS, LARGE_KILLS = 20, 5


def workers_killed(request):
    """`ready`: from the notice that a worker was killed to its successor's being ready, by the server's histogram; `gone`: from
    the death of a killed server to that of its worker."""
    def measure(bench):
        running = bench.begin("millrace", bench.repository("workers"))
        try:
            pid = kill_workers(running, "processes", KILLS, request)
            ready = replacement_ms(running)
        finally:
            running.process.kill()
            running.process.wait()
        killed = time.perf_counter()
        while is_running(pid):
            time.sleep(1e-4)
        return {"ready": ready, "gone": 1e3 * (time.perf_counter() - killed)}
    return measure


def worker_restarts(request, model):
    """`load`: a large model's first load; `ready`: as above, and what that is of the load."""
    def measure(bench):
        repository = bench.repository("restart")
        (repository / model / "1/model.onnx").read_bytes()
        running = bench.begin("millrace", repository, explicit=True)
        try:
            before = time.perf_counter()
            load.post(running, f"/v2/repository/models/{model}/load")
            seconds = time.perf_counter() - before
            kill_workers(running, model, LARGE_KILLS, request)
            ready = replacement_ms(running)
            return {"load": seconds, "ready": ready, "of load": ready / 1e3 / seconds}
        finally:
            running.stop()
    return measure


def kill_workers(running, model, count, request):
    """Returns the process of the last successor."""
    pid = worker_of(running, model, 0)
    for _ in range(count):
        os.kill(pid, signal.SIGKILL)
        pid = worker_of(running, model, pid)
        load.post(running, request.path, request.body)  # one that has answered nothing is restarted later
    return pid


def replacement_ms(running):
    with urllib.request.urlopen(f"http://127.0.0.1:{running.metrics}/metrics", timeout=10) as reply:
        text = reply.read().decode()
    total, count = (sum(float(n) for n in re.findall(rf'^millrace_worker_replacement_seconds_{what}{{.*reason="crash".*}} (.*)$',
                                                     text, re.MULTILINE)) for what in ("sum", "count"))
    return 1e3 * total / count


def is_running(pid):
    """A process that has ended may wait for whoever is its parent now."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def worker_of(running, model, not_pid):
    """The model's process that takes requests, once there is another one than that, and all others stand by."""
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{running.http}/v2/models/{model}/workers", timeout=10) as reply:
            workers = json.load(reply)["workers"]
        ready = [w["pid"] for w in workers if w["state"] == "ready"]
        if ready and ready[0] != not_pid and all(w["state"] in ("ready", "standby") for w in workers):
            return ready[0]
        time.sleep(1e-3)


def ask_all(server, request, paths, times=3):
    """Each model some times, so that none is asked for the first time in a measurement."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=60)
    for path in paths * times:
        connection.request("POST", path, request.body, request.headers)
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
    connection.close()


def many_models(count, in_turn=False):
    def measure(bench):
        running = bench.server("millrace", f"many-{count}")
        request = load.pair(load.rest_json, "identity")
        names = [f"m{i}" for i in range(count)]
        random.Random(1).shuffle(names)
        paths = [f"/v2/models/{name}/infer" for name in names]
        request.path = paths[0]
        load.check(running, request)
        if in_turn:
            ask_all(running, request, paths)
        figures = load.Load(request, 16, paths=paths if in_turn else None)(running, bench.seconds, bench.folder)
        figures["rss"] = machine.resident_mb(running.pid)
        return figures
    return measure


def literal(name, value):
    """A header for HTTP/2, not indexed and not compressed."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def http2_hello():
    """A connection's preface and one call of ServerLive."""
    headers = b"".join(literal(n, v) for n, v in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/inference.GRPCInferenceService/ServerLive"),
        (b":authority", b"localhost"), (b"te", b"trailers"), (b"content-type", b"application/grpc")))
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(4, 1, 0) + frame(1, 4, 1, headers)
            + frame(0, 1, 1, b"\0" * 5))


def open_idle(server, kind):
    """A connection that was used once and is then left alone."""
    port = server.grpc if kind == "grpc" else server.http
    s = socket.create_connection(("127.0.0.1", port), 20)
    if kind == "http":
        s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        if not s.recv(4096).startswith(b"HTTP/1.1 200"):
            raise RuntimeError("an idle connection was refused")
        return s
    s.sendall(http2_hello())
    got = b""
    while True:  # until a HEADERS frame that ends stream 1: the trailers
        got += s.recv(4096) or b"\0" * (1 << 16)
        at = 0
        while at + 9 <= len(got):
            length, what, flags, stream = int.from_bytes(got[at:at + 3], "big"), got[at + 3], got[at + 4], got[at + 8]
            if (what, stream) == (1, 1) and flags & 1:
                return s
            at += 9 + length
        if len(got) >= 1 << 16:
            raise RuntimeError("an idle connection was refused")


def settled_mb(running):
    """The memory when it shrinks no more: what a connection needs no longer goes back some seconds after its last use."""
    before = machine.resident_mb(running.pid)
    for _ in range(10):
        time.sleep(2)
        now = machine.resident_mb(running.pid)
        if now > before - 0.5:
            break
        before = now
    return now


def idle(kind, count, request):
    """A load beside `count` idle connections, and the server's memory with them. Each time a new server, that of
    models without weights: what it has in memory is then the connections."""
    def measure(bench):
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < count + 500:
            raise machine.Missing(f"at most {hard} open files are allowed here (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        running = bench.begin("millrace", bench.repository("many-10"))
        connections = []
        try:
            for _ in range(count):
                connections.append(open_idle(running, kind))
            figures = load.Load(request, 16)(running, bench.seconds, bench.folder)
            figures["rss"] = settled_mb(running)
            return figures
        finally:
            for s in connections:
                s.close()
            running.stop()
    return measure
