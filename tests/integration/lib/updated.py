"""A server with large models that get new versions under constant requests, and the statistics of the system."""
import os
import re
import threading
from pathlib import Path

import numpy as np

from lib import onnxgen, repo, wait
from lib.control import Control
from lib.rest import Rest

LAYERS, SIZE = 8, 1024
WEIGHTS = LAYERS * SIZE * SIZE * 4
SERVING = ("loop-", "run:", "mr-onnx")
ROW = np.linspace(-1, 1, SIZE, dtype="<f4")


def ask(rest, model, rows=ROW[None]):
    """The bytes of the answer."""
    reply = rest.infer_binary(model, [("INPUT0", "FP32", list(rows.shape))], [rows.tobytes()], parameters={"binary_data_output": True})
    return reply.ok().parts()[1]["OUTPUT0"]


class Dense:
    """A model with WEIGHTS bytes of weights (of 8 layers), that answers differently with each version. With `contents`, versions
    have these by turns."""

    def __init__(self, models, name="dense", max_batch_size=1, contents=(), extra=""):
        tensors = [repo.tensor(t, "TYPE_FP32", (SIZE,)) for t in ("INPUT0", "OUTPUT0")]
        self.name, self.number = name, 0
        self.folder = repo.add(models, name, versions=(), backend="onnxruntime", max_batch_size=max_batch_size,
                               inputs=tensors[:1], outputs=tensors[1:], extra="instance_group { count: 1 }\n" + extra)
        self.contents = contents
        self.seed = sum(name.encode())
        self.write()

    def file(self, number=None):
        return self.folder / str(number or self.number) / "model.onnx"

    def write(self, data=None):
        """The next version."""
        self.number += 1
        self.file().parent.mkdir()
        if data is None:
            data = self.contents[self.number % 2] if self.contents else onnxgen.dense(LAYERS, SIZE, self.seed + self.number)
        repo.write(self.file(), data)

    def remove(self, number):
        self.file(number).unlink()
        self.file(number).parent.rmdir()


class Asker(threading.Thread):
    """Queries a model repeatedly until it is stopped; keeps each different answer."""

    def __init__(self, server, model, pause=0.01):
        super().__init__()
        self.server, self.model, self.pause = server, model, pause
        self.answers, self.problems, self.asked = set(), [], 0
        self.is_over = threading.Event()

    def run(self):
        try:
            with Rest(self.server.http) as rest:
                while not self.is_over.wait(self.pause):
                    self.answers.add(ask(rest, self.model))
                    self.asked += 1
        except Exception as e:
            self.problems.append(repr(e))

    def some_more(self, count=20):
        """Until that many more have been answered."""
        goal = self.asked + count
        wait.until(lambda: self.asked >= goal or self.problems, "answers")


class Updated:
    """The server; `kw` go to its models. While the block runs, `askers` ask each model; none of them may be refused."""

    def __init__(self, folder, start, way, options, names=("dense",), askers=1, pause=0.01, cache=None, **kw):
        (folder / "models").mkdir(parents=True)
        self.folder = folder
        self.models = {name: Dense(folder / "models", name, **kw) for name in names}
        self.server = start(folder / "models", *(f"--load-model={name}" for name in names),
                            "--loop-threads=1", "--inline-threshold-us=0", "--model-load-thread-count=1",
                            f"--backend-config=onnxruntime,parameter_cache={cache or folder / 'cache'}",
                            f"--backend-config=onnxruntime,parameter_memory={way}", *options, mode="explicit")
        self.pid = self.server.process.pid
        self.control = Control(self.server)
        self.askers = [Asker(self.server, name, pause) for name in names for _ in range(askers)]

    def __enter__(self):
        [a.start() for a in self.askers]
        self.some_more()
        return self

    def __exit__(self, *_):
        [a.is_over.set() for a in self.askers]
        [a.join() for a in self.askers]
        self.control.close()
        problems = [p for a in self.askers for p in a.problems]
        assert not problems, problems

    def some_more(self, count=20):
        [a.some_more(count) for a in self.askers]

    def versions(self, name="dense"):
        """{number: state}, of those that the server remembers."""
        with Rest(self.server.http) as rest:  # several threads ask
            loads = rest.get(f"/v2/models/{name}/versions").ok().json()["versions"]
        return {int(v["version"]): v["state"] for v in loads}

    def settle(self, name="dense"):
        """Until no version is under way, and the memory of those that have gone is given back."""
        wait.until(lambda: set(self.versions(name).values()) <= {"READY", "UNLOADED", "FAILED"}, "the versions to settle")

    def update(self, name="dense"):
        """A new version replaces the old one, which is unloaded when this returns. Every answer in between is that of one of the
        two."""
        model, askers = self.models[name], [a for a in self.askers if a.model == name]
        with Rest(self.server.http) as rest, Control(self.server) as control:
            before = ask(rest, name)
            [a.answers.clear() for a in askers]
            model.write()
            assert control.load(name).status == 200
            self.settle(name)
            [a.some_more() for a in askers]
            after = ask(rest, name)
        assert before != after and set().union(*(a.answers for a in askers)) <= {before, after}
        assert self.versions(name)[model.number] == "READY"
        model.remove(model.number - 1)

    # ---- statistics of the system ----

    def threads(self):
        """Names of the threads, by number."""
        folder = Path(f"/proc/{self.pid}/task")
        return {t: (folder / t / "comm").read_text().strip() for t in os.listdir(folder)}

    def stat(self, thread):
        """What the system counts for it: the fields from the third on."""
        return Path(f"/proc/{self.pid}/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()

    def faults(self):
        """Page faults so far of each thread that serves."""
        fields = {t: self.stat(t) for t, name in self.threads().items() if name.startswith(SERVING)}
        return {t: int(f[7]) + int(f[9]) for t, f in fields.items()}

    def classes(self):
        """(name, scheduling class) of the threads."""
        return {(name, int(self.stat(t)[38])) for t, name in self.threads().items()}

    def maps(self):
        return len(Path(f"/proc/{self.pid}/maps").read_text().splitlines())

    def pool(self):
        """Ranges for packed weights, which are areas without reserve that asked for large pages, and bytes of them in memory."""
        areas = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{self.pid}/smaps").read_text(), flags=re.M)
        ranges = [a for a in areas if re.search(r"^VmFlags:.* nr\b.* hg\b", a, re.M)]
        return len(ranges), sum(int(re.search(r"^Rss:\s+(\d+) kB", a, re.M)[1]) for a in ranges) * 1024
