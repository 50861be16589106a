"""The models and the requests of the demonstration's mesh (mesh.sh).

mesh.py N FOLDER                        makes N models of 1 MiB; number i answers with i and the number that it is asked for
mesh.py N SECONDS NAME=ADDRESS...       asks them at these servers, some often and most seldom, by zipf's law

A request whose server is gone is asked again at another server, as any client of several servers does. Exit status 0 only if each
request was answered, by the right model.
"""
import bisect
import http.client
import itertools
import json
import random
import struct
import sys
import threading
import time
from pathlib import Path

ASKERS = 8
PATIENCE = 120  # seconds, for one answer
CONFIG = 'backend: "onnxruntime"\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]\noutput [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]\n'


# ---- models: ONNX files, y = x + i ----

def varint(n):
    return bytes([n & 127 | 128]) + varint(n >> 7) if n > 127 else bytes([n])


def number(tag, n):
    return bytes([tag]) + varint(n)


def part(tag, *content):
    data = b"".join(c.encode() if isinstance(c, str) else c for c in content)
    return number(tag, len(data)) + data


def onnx(i):
    value = [part(0x0a, name) + part(0x12, part(0x0a, number(0x08, 1) + part(0x12, part(0x0a, number(0x08, 1))))) for name in "xy"]
    node = part(0x0a, part(0x0a, "x"), part(0x0a, "i"), part(0x12, "y"), part(0x22, "Add"))
    constant = part(0x2a, number(0x08, 1), number(0x10, 1), part(0x42, "i"), part(0x4a, struct.pack("<f", i)))
    graph = part(0x3a, node, part(0x12, "m"), constant, part(0x5a, value[0]), part(0x62, value[1]))
    return number(0x08, 8) + part(0x42, number(0x10, 13)) + graph


def make_models(folder, count):
    for i in range(count):
        version = Path(folder) / f"m{i}" / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG)
        (version / "model.onnx").write_bytes(onnx(i))
        with open(version / "weights", "wb") as f:  # what makes it large: a hole in a file
            f.truncate(1 << 20)


# ---- requests ----

class Fleet:
    def __init__(self, peers):
        self.peers = [p.split("=") for p in peers]
        self.alive = list(range(len(peers)))
        self.turn = itertools.count()

    def next(self):
        return self.alive[next(self.turn) % len(self.alive)]

    def lost(self, peer):
        self.alive = [p for p in self.alive if p != peer]

    def ready_models(self, peer):
        if peer not in self.alive:
            return "killed"
        try:
            c = http.client.HTTPConnection(self.peers[peer][1], timeout=PATIENCE)
            c.request("POST", "/v2/repository/index", '{"ready":true}')
            return len(json.loads(c.getresponse().read()))
        except OSError:
            return "killed"


class Asker(threading.Thread):
    def __init__(self, fleet, cumulated, seed, until):
        super().__init__()
        self.fleet, self.cumulated, self.until = fleet, cumulated, until
        self.random = random.Random(seed)
        self.connections = {}
        self.answered = self.again = self.failed = 0
        self.why = None

    def run(self):
        while time.monotonic() < self.until:
            model = bisect.bisect(self.cumulated, self.random.random() * self.cumulated[-1])
            try:
                self.ask(model, self.random.randrange(1000))
                self.answered += 1
            except Exception as e:  # whatever it is, the request has failed
                self.failed += 1
                self.why = f"m{model}: {e}"

    def ask(self, model, x):
        while True:
            peer = self.fleet.next()
            try:
                reply = self.send(peer, model, x)
                break
            except (OSError, http.client.HTTPException):
                self.connections.pop(peer, None)
                self.fleet.lost(peer)
                self.again += 1
                if not self.fleet.alive:
                    raise
        status, answer = reply
        if status != 200 or answer["outputs"][0]["data"] != [x + model]:
            raise ValueError(f"{x} is answered with {status} {answer}")

    def send(self, peer, model, x):
        c = self.connections.get(peer)
        if not c:
            c = self.connections[peer] = http.client.HTTPConnection(self.fleet.peers[peer][1], timeout=PATIENCE)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [x]}]}
        c.request("POST", f"/v2/models/m{model}/infer", json.dumps(body), {"Content-Type": "application/json"})
        reply = c.getresponse()
        return reply.status, json.loads(reply.read())


def total(askers, what):
    return sum(getattr(a, what) for a in askers)


def ask(count, seconds, peers):
    fleet = Fleet(peers)
    begin = time.monotonic()
    ranks = list(range(1, count + 1))
    random.Random(1).shuffle(ranks)
    cumulated = list(itertools.accumulate(1 / r**0.9 for r in ranks))
    askers = [Asker(fleet, cumulated, seed, begin + seconds) for seed in range(ASKERS)]
    print(f"  {'':6}" + "".join(f"{'models of ' + name:>14}" for name, _ in fleet.peers) + f"{'answers':>11}{'failed':>9}")
    for a in askers:
        a.start()
    while any(a.is_alive() for a in askers):
        time.sleep(1)
        models = "".join(f"{fleet.ready_models(p)!s:>14}" for p in range(len(peers)))
        print(f"  {time.monotonic() - begin:4.0f} s{models}{total(askers, 'answered'):>11}{total(askers, 'failed'):>9}", flush=True)
    failed = total(askers, "failed")
    print(f"\n  {total(askers, 'answered')} answered by the right model, {total(askers, 'again')} of them asked again when their server was gone, {failed} failed")
    for a in askers:
        if a.why:
            print(f"  {a.why}")
    return 0 if failed == 0 and total(askers, "answered") else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        make_models(sys.argv[2], int(sys.argv[1]))
    else:
        sys.exit(ask(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
