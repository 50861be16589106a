"""Worker processes of models of all kinds that are killed, stopped and poisoned while they are asked, and replaced by new
versions: batches, a standby, several answers, sequences with state, large tensors, updates. Each actor knows what it asked:
an answer that is lost, wrong or comes twice ends the soak. A refusal that says "try later" is tried again."""
import contextlib
import os
import random
import shutil
import signal
import threading

import grpc
import numpy as np
from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.metrics import value
from lib.rest import Rest
from lib.server import Server
from lib.stream import DECOUPLED, Stream, flag, values
from lib.workers import PROCESS, RESTARTS, add_fault, ask, group, pids

PATIENCE = 120 * wait.SLOW
LATER = "no worker process that runs"
LOST = ("start the sequence again", "must specify the START flag", "is not known here")
IN_PROCESS = 'parameters { key: "execution_placement" value { string_value: "process" } }'
# Model: seconds from one kill to the next.
KILLED = {"batched": 0.1, "spare": 0.1, "onnx": 0.2, "stream": 0.1, "state": 0.2, "large": 0.1, "updated": 0.3}
STOPPED = {"onnx": 3, "large": 3}


def fill(models):
    add_fault(models, "batched", 2, max_batch_size=8, extra=" dynamic_batching { max_queue_delay_microseconds: 300 }")
    add_fault(models, "spare", 1, worker_standby="1")
    add_fault(models, "stream", 2, max_batch_size=0, extra=DECOUPLED)
    repo.add(models, "state", backend="fault", max_batch_size=4, inputs=[repo.tensor("INPUT0", dims=(1,))],
             outputs=[repo.tensor("OUTPUT0", dims=(1,))], parameters={**PROCESS, "sums": "true"},
             extra="sequence_batching { oldest { } max_sequence_idle_microseconds: 3600000000 }" + group(2))
    repo.add(models, "large", parameters=PROCESS, inputs=[repo.tensor("INPUT0", "TYPE_FP32")],
             outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")], extra=group(2))
    for name in ("onnx", "updated"):
        repo.add(models, name, onnxgen.ADDER_CONFIG + group(2) + IN_PROCESS, files={"1/model.onnx": onnxgen.adder(1)})


class Chaos:
    def __init__(self, server, models, seconds):
        self.server, self.models, self.seconds = server, models, seconds
        self.end, self.failures, self.counts = threading.Event(), [], {}
        self.versions = [1, 1]  # of the model `updated`: it serves one between these, both included

    def run(self):
        plan = [(self.simple, model, n, added) for model, added in (("batched", 0), ("spare", 0), ("onnx", 1)) for n in range(2)]
        plan += [(act, n) for act in (self.stream, self.state, self.large, self.updated) for n in range(2)]
        plan += [(self.poison,), (self.update,)]
        plan += [(self.send, model, signal.SIGKILL, period) for model, period in KILLED.items()]
        plan += [(self.send, model, signal.SIGSTOP, period) for model, period in STOPPED.items()]
        threads = [threading.Thread(target=self.guard, args=(act[0], act[1:])) for act in plan]
        [t.start() for t in threads]
        self.end.wait(self.seconds)
        self.end.set()
        [t.join() for t in threads]
        return self.failures + [f"no {what} was answered" for what in KILLED if not self.counts.get(what)]

    def guard(self, act, args):
        try:
            act(*args)
        except Exception as e:
            self.failures.append(f"{act.__name__}{args}: {type(e).__name__}: {str(e)[:500]}")
            self.end.set()

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1  # about: threads

    def until_taken(self, act):
        """The reply, once it is none that asks to try later."""
        while True:
            reply = act()
            if reply.status != 503 or LATER not in reply.error:
                return reply.ok()
            self.end.wait(0.05)

    # ---- clients ----

    def simple(self, model, n, added):
        shape = [3] if model == "onnx" else [1, 3]
        with Rest(self.server.http, timeout=PATIENCE) as rest:
            i = 0
            while not self.end.is_set():
                i += 1
                x = [n, i, n * i]
                y = self.until_taken(lambda: rest.infer(model, [("INPUT0", "INT32", shape, x)])).json()["outputs"][0]["data"]
                assert y == [v + added for v in x], (x, y)
                self.count(model)

    def stream(self, n):
        number = n << 20
        with Stream(self.server.url("grpc"), timeout=self.seconds + PATIENCE) as s:
            while not self.end.is_set():
                number += 1
                wanted, got = random.randrange(1, 6), 0
                s.send(grpcraw.int32("stream", [number], id=str(number), parameters={"responses": wanted}))
                while got < wanted:
                    answer, = s.take(1)
                    if answer.error_message:
                        assert LATER in answer.error_message or (got and "while it was answering" in answer.error_message), answer
                        break
                    got += 1
                    assert values(answer) == [number] and flag(answer) == (got == wanted), (number, got, wanted, answer)
                self.count("stream")

    def state(self, n):
        """Sums over a sequence, until the process that has them dies."""
        id = n << 20
        with grpcraw.Grpc(self.server.url("grpc")) as client:
            while not self.end.is_set():
                id += 1
                length, total = random.randrange(1, 12), 0
                for i in range(length):
                    marks = {f"sequence_{m}": True for m, is_it in (("start", i == 0), ("end", i == length - 1)) if is_it}
                    total += i
                    message = grpcraw.request("state", [("INPUT0", "INT32", [1, 1], {"int_contents": [i]})],
                                              parameters={"sequence_id": id, **marks})
                    sum_ = self.sum_of(client, message)
                    if sum_ is None:
                        break
                    assert sum_ == total, (id, i, sum_, total)
                    self.count("state")

    def sum_of(self, client, message):
        while True:
            try:
                answer = client.infer(message, timeout=PATIENCE)
                return memoryview(answer.raw_output_contents[0]).cast("i").tolist()[0]
            except grpc.RpcError as e:
                if LATER not in e.details():
                    assert any(text in e.details() for text in LOST), e.details()
                    return None
            self.end.wait(0.05)

    def large(self, n):
        rng = np.random.default_rng(n)
        with Rest(self.server.http, timeout=PATIENCE) as rest:
            while not self.end.is_set():
                x = rng.random(random.choice((1000, 30_000, 300_000)), dtype="f4")
                reply = self.until_taken(lambda: rest.infer_binary("large", [("INPUT0", "FP32", [len(x)])], [x.tobytes()],
                                                                   parameters={"binary_data_output": True}))
                assert reply.parts()[1]["OUTPUT0"] == x.tobytes()
                self.count("large")

    def updated(self, n):
        with Rest(self.server.http, timeout=PATIENCE) as rest:
            while not self.end.is_set():
                least = self.versions[0]
                y = self.until_taken(lambda: rest.infer("updated", [("INPUT0", "INT32", [1], [0])])).json()["outputs"][0]["data"][0]
                assert least <= y <= self.versions[1], (least, y, self.versions)
                self.count("updated")

    # ---- what happens to the workers ----

    def poison(self):
        while not self.end.wait(0.3):
            reply = ask(self.server, "batched", [random.randrange(1 << 30)], {random.choice(("segv", "abort")): True})
            assert (reply.status == 500 and "worker process ended" in reply.error) or LATER in reply.error, reply
            self.count("poison")

    def update(self):
        number = 1
        with Control(self.server) as control:
            while not self.end.wait(0.2):
                number += 1
                folder = self.models / "updated" / str(number)
                folder.mkdir()
                (folder / "model.onnx").write_bytes(onnxgen.adder(number))
                self.versions[1] = number
                reply = control.load("updated")
                if reply.status == 200:
                    self.versions[0] = number
                    self.count("update")
                else:  # a process was killed while it loaded the model
                    assert "worker process" in reply.error, reply
                    shutil.rmtree(folder)

    def send(self, model, number, period):
        while not self.end.wait(period * random.uniform(0.5, 1.5)):
            there = pids(self.server, model)
            if there:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(random.choice(there), number)
                    self.count(f"{model} {number.name}")


def soak(folder, seconds):
    """(lines of the summary, failures)"""
    (folder / "models").mkdir(parents=True)
    fill(folder / "models")
    server = Server(folder / "server", [folder / "models"], "--load-model=*", "--log-info=false", "--log-warning=false",
                    "--log-error=false", mode="explicit")
    try:
        server.wait_ready()
        chaos = Chaos(server, folder / "models", seconds)
        failures = chaos.run()
        restarts = {m: sum(value(server, RESTARTS, model=m, reason=r) or 0 for r in ("crash", "hang")) for m in KILLED}
        lines = [f"workers of all kinds: {chaos.counts}", f"restarts: {restarts}"]
        server.stop()
    except AssertionError as e:
        return [], [str(e)]
    finally:
        if server.running:
            server.end_anyhow()
    return lines, failures
