"""Worker processes that are killed while they are asked, and what is left of them."""
import json
import os
import signal
import threading
import time

from lib import onnxgen, repo, wait
from lib.rest import Rest, infer_path
from lib.workers import PROCESS, add_fault, answer, ask, group, of_threads, pids

# Name of a model, and what it adds to its input.
ADDED = {"m": 0, "onnx": 1}


def fill(models, count=2):
    """Both models, each in `count` workers."""
    add_fault(models, "m", count, max_batch_size=0)
    text = onnxgen.ADDER_CONFIG + group(count) + 'parameters { key: "execution_placement" value { string_value: "process" } }'
    assert PROCESS == {"execution_placement": "process"}
    repo.add(models, "onnx", text, files={"1/model.onnx": onnxgen.adder(ADDED["onnx"])})


class Clients:
    """Threads that ask until the block ends. Each answer is compared with what it must be: one that is lost, wrong or comes
    twice on its connection is in `wrong`."""

    def __init__(self, server, model, count=2):
        self.server, self.model = server, model
        self.wrong, self.answered, self.end = [], [0] * count, threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(n,)) for n in range(count)]

    def run(self, n):
        with Rest(self.server.http, timeout=300) as rest:
            while not self.wrong and (not self.end.is_set() or not self.answered[n]):
                values = [n, self.answered[n], n * self.answered[n] + 7]
                body = {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": values}]}
                try:
                    reply = rest.post(infer_path(self.model), json.dumps(body))
                    if reply.status != 200 or answer(reply) != [v + ADDED[self.model] for v in values]:
                        self.wrong.append((self.model, values, reply.status, reply.body[:500]))
                except Exception as e:
                    self.wrong.append((self.model, values, repr(e)))
                self.answered[n] += 1

    def __enter__(self):
        [t.start() for t in self.threads]
        return self

    def __exit__(self, *_):
        self.end.set()
        [t.join() for t in self.threads]


def kill_ready(server, model, count, clients, period_s=0):
    """SIGKILL for `count` workers, each as soon as it is ready."""
    done = set()
    while len(done) < count and not clients.wrong:
        for pid in set(pids(server, model)) - done:
            os.kill(pid, signal.SIGKILL)
            done.add(pid)
            time.sleep(period_s)
    return len(done)


def replace(server, model, times):
    """Kills the model's one worker again and again, each time when it has answered: so the next one is started at once."""
    for i in range(times):
        pid, = wait.until(lambda: pids(server, model), "a worker")
        assert answer(ask(server, model, [i])) == [i]
        os.kill(pid, signal.SIGKILL)
        wait.until(lambda: pids(server, model) not in ([], [pid]), "the next worker")


def children(server):
    """Processes that the server has started and not taken note of as ended."""
    return [int(pid) for text in of_threads(server.process.pid, "children") for pid in text.split()]
