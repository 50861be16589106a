"""Requests, and the two tools that send them: wrk for HTTP/1.1, h2load for gRPC (and for a fixed number of requests)."""
import json
import re
import struct
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from . import machine

GRPC = "/inference.GRPCInferenceService/ModelInfer"
SCRIPT = Path(__file__).with_name("post.lua")


@dataclass
class Request:
    """One POST. `port` names the server's port that takes it; `answer` is a part of every right answer."""
    path: str
    body: bytes
    headers: dict = field(default_factory=dict)
    port: str = "http"
    answer: bytes = b""


def tensors(*shapes_and_types):
    return [{"name": name, "shape": shape, "datatype": kind} for name, shape, kind in shapes_and_types]


def rest_json(model, inputs, values, answer=b""):
    """`values`: a list of numbers for each input."""
    body = {"inputs": [dict(t, data=v) for t, v in zip(inputs, values)]}
    return Request(f"/v2/models/{model}/infer", json.dumps(body, separators=(",", ":")).encode(),
                   {"Content-Type": "application/json"}, answer=answer)


def rest_binary(model, inputs, raw, answer=b""):
    """`raw`: the bytes of each input; all outputs come back as bytes."""
    head = {"inputs": [dict(t, parameters={"binary_data_size": len(r)}) for t, r in zip(inputs, raw)],
            "parameters": {"binary_data_output": True}}
    head = json.dumps(head, separators=(",", ":")).encode()
    return Request(f"/v2/models/{model}/infer", head + b"".join(raw),
                   {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))},
                   answer=answer)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def proto(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def grpc(model, inputs, raw, answer=b""):
    message = proto(1, model.encode())
    for t in inputs:
        shape = b"".join(varint(n) for n in t["shape"])
        message += proto(5, proto(1, t["name"].encode()) + proto(2, t["datatype"].encode()) + proto(3, shape))
    message += b"".join(proto(7, r) for r in raw)
    return Request(GRPC, b"\0" + struct.pack(">I", len(message)) + message,
                   {"content-type": "application/grpc", "te": "trailers"}, "grpc", answer)


def pair(make, model="simple"):
    """The small request of most rows: two INT32[16] in, two out; `simple` answers with their sum and difference."""
    values = list(range(16))
    inputs = tensors(("INPUT0", [1, 16], "INT32"), ("INPUT1", [1, 16], "INT32"))
    out = [2 * v for v in values] if model == "simple" else values
    raw = struct.pack("<16i", *values)
    if make is rest_json:
        return make(model, inputs, [values] * 2, json.dumps(out, separators=(",", ":")).encode())
    return make(model, inputs, [raw] * 2, struct.pack("<16i", *out))


def check(server, request):
    """Asks once; raises unless the answer is right. Figures of wrong answers would be worth nothing."""
    if not request.answer:
        return
    if request.port == "grpc":
        import grpc as client
        limits = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        with client.insecure_channel(f"127.0.0.1:{server.grpc}", options=limits) as channel:
            metadata = [(k, v) for k, v in request.headers.items() if k not in ("content-type", "te")]
            got = channel.unary_unary(request.path)(request.body[5:], metadata=metadata, timeout=60)
    else:
        post = urllib.request.Request(f"http://127.0.0.1:{server.http}{request.path}", request.body, request.headers)
        with urllib.request.urlopen(post, timeout=60) as reply:
            got = reply.read()
    if request.answer not in got:
        raise RuntimeError(f"{server.name}: wrong answer to {request.path}: {got[:200]!r}")


class Load:
    """Sends one request from the client's CPU, `connections` x `streams` at a time."""

    def __init__(self, request, connections=1, streams=1, paths=None):
        self.request, self.connections, self.streams, self.paths = request, connections, streams, paths

    def __call__(self, server, seconds, folder):
        """One measurement: rate, times and the server's CPU and context switches for a request."""
        before = machine.switches(server.pid)
        cpu = machine.cpu_seconds(server.pid)
        tool = self.h2load if self.request.port == "grpc" else self.wrk
        count, spent, figures = tool(server, seconds, Path(folder))
        cpu = machine.cpu_seconds(server.pid) - cpu
        switched = sum(machine.switches_since(before, server.pid).values())
        return {"rate": count / spent, **figures, "cpu": 1e6 * cpu / count, "switches": switched / count}

    def wrk(self, server, seconds, folder):
        (folder / "body").write_bytes(self.request.body)
        paths = "-"
        if self.paths:
            paths = folder / "paths"
            paths.write_text("".join(p + "\n" for p in self.paths))
        command = [machine.need("wrk", "wrk"), "-t1", f"-c{self.connections}", f"-d{seconds}s", "--timeout", "20s",
                   "-s", SCRIPT, f"http://127.0.0.1:{server.http}{self.request.path}", "--", folder / "body", paths]
        command += [f"{name}: {value}" for name, value in self.request.headers.items()]
        out = machine.output(machine.pinned(machine.client_cpu(), command))
        got = json.loads(re.search(r"^JSON (.*)$", out, re.M).group(1))
        if got["failed"] or not got["requests"]:
            raise RuntimeError(f"{server.name}: {got['failed']} of {got['requests']} requests failed")
        return got["requests"], got["seconds"], {"p50": got["p50"], "p99": got["p99"]}

    def h2load_command(self, server, folder, *amount):
        (folder / "h2body").write_bytes(self.request.body)
        port = server.grpc if self.request.port == "grpc" else server.http
        command = [machine.need("h2load", "nghttp2-client"), f"-c{self.connections}", f"-m{self.streams}",
                   "-d", folder / "h2body", *amount]
        if self.request.port == "http":
            command.append("--h1")
        for name, value in self.request.headers.items():
            command += ["-H", f"{name}: {value}"]
        return machine.pinned(machine.client_cpu(), command + [f"http://127.0.0.1:{port}{self.request.path}"])

    def h2load(self, server, seconds, folder):
        log = folder / "h2log"
        log.unlink(missing_ok=True)
        # By number: at the end of a time h2load drops the calls under way, which ends some servers.
        some = 50 * self.connections * self.streams
        amount = ["-n", str(max(some, int(some * seconds / seconds_of(self.exactly(server, some, folder)))))]
        if self.connections * self.streams == 1:
            amount += ["--log-file", log]
        out = machine.output(self.h2load_command(server, folder, *amount))
        spent = seconds_of(out)
        count, failed = (int(re.search(rf"(\d+) {word}", out).group(1)) for word in ("succeeded", "failed"))
        if failed or not count:
            raise RuntimeError(f"{server.name}: {failed} of {count + failed} calls failed")
        times = sorted(int(line.split()[2]) for line in log.read_text().splitlines()) if log.exists() else []
        figures = {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100]} if times else {}
        return count, spent, figures

    def exactly(self, server, count, folder):
        """Sends `count` requests, no more and no less."""
        out = machine.output(self.h2load_command(server, Path(folder), "-n", str(count)))
        if f" {count} succeeded" not in out:
            raise RuntimeError(f"{server.name}: not all of {count} requests succeeded:\n{out}")
        return out


def seconds_of(out):
    """How long h2load says that it took."""
    number, unit = re.search(r"finished in ([\d.]+)(us|ms|s)", out).groups()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def statistics(server, model):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/v2/models/{model}/stats", timeout=20) as reply:
        row = json.load(reply)["model_stats"][0]
    return int(row["inference_count"]), int(row["execution_count"])


def post(server, path, body=b"{}", timeout=120):
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as reply:
        return reply.read()
