"""Models in worker processes, as their clients and the system see them."""
import contextlib
import json
import threading
from pathlib import Path

from lib import repo
from lib.rest import Rest, infer_path

PROCESS = {"execution_placement": "process"}
RESTARTS = "millrace_worker_restarts_total"


def group(count):
    return f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]"


def add_fault(models, name="m", count=1, max_batch_size=4, extra="", **parameters):
    repo.add(models, name, backend="fault", max_batch_size=max_batch_size, extra=group(count) + extra,
             parameters={**PROCESS, **parameters})


def report(server, model):
    with Rest(server.http) as rest:
        return rest.get(f"/v2/models/{model}/workers").ok().json()


def workers(server, model):
    return report(server, model)["workers"]


def pids(server, model):
    return [w["pid"] for w in workers(server, model) if w["state"] == "ready"]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):  # between open and read, too
        return False


def of_threads(pid, name):
    """The text of that file of each thread of a process, except of threads that end in between."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append((task / name).read_text())
    return found


def states(pid):
    """Of the threads of a process."""
    return [text.rsplit(")", 1)[1].split()[0] for text in of_threads(pid, "stat")]


def thread_names(server):
    return [text.strip() for text in of_threads(server.process.pid, "comm")]


def numbers(values, parameters=None):
    """A request of one row, as JSON."""
    return {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, len(values)], "data": values}],
            **({"parameters": parameters} if parameters else {})}


def ask(server, model, values, parameters=None):
    with Rest(server.http, timeout=300) as rest:
        return rest.post(infer_path(model), json.dumps(numbers(values, parameters)))


def answer(reply):
    return reply.ok().json()["outputs"][0]["data"]


def asked(server, model, values, parameters=None):
    """A thread that asks, and the list that its reply will be in."""
    replies = []
    thread = threading.Thread(target=lambda: replies.append(ask(server, model, values, parameters)))
    thread.start()
    return thread, replies
