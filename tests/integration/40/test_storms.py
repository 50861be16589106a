"""Loads, unloads and reloads by many at once while requests run: each answer is right or reports that the model is
absent, and in the end memory, descriptors and threads are as before."""
import json
import random
import shutil
import threading

import grpc
import numpy as np
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.held import descriptors, in_flight, resident, threads
from lib.rest import Rest

ROUNDS = 25 if wait.SLOW == 1 else 8
MODELS = ("adder", "batch", "plain")
AWAY = (400, 404, 503)


def overriding(rng):
    """A configuration for `plain` that differs from the one in its folder and answers the same."""
    return {"backend": "identity", "max_batch_size": 0, "version_policy": {"latest": {"num_versions": rng.randrange(1, 3)}},
            "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
            "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}


class Crowd:
    """Threads that run until they are stopped; the first failure of each is kept."""

    def __init__(self):
        self.end, self.failures, self.threads = threading.Event(), [], []

    def add(self, function, *args, rounds=None):
        def run():
            rng = random.Random(len(self.threads))
            try:
                n = 0
                while not self.end.is_set() if rounds is None else n < rounds:
                    function(rng, *args)
                    n += 1
            except Exception as e:
                self.failures.append(repr(e))

        self.threads.append((threading.Thread(target=run), rounds))
        self.threads[-1][0].start()

    def join(self):
        """Those with rounds first, then the others."""
        [t.join(wait.PATIENCE) for t, rounds in self.threads if rounds]
        self.end.set()
        [t.join(wait.PATIENCE) for t, _ in self.threads]
        assert not self.failures, self.failures[:3]


@pytest.fixture
def stormy(models, start):
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    repo.add(models, "batch", max_batch_size=8, extra="dynamic_batching { max_queue_delay_microseconds: 500 }")
    repo.add(models, "plain", versions=(1, 2))
    return start(models, "--load-model=*", mode="explicit")


def right(model, x):
    return [x + 1] if model == "adder" else [x]


def shape(model):
    return [1, 1] if model == "batch" else [1]


def ask_rest(rng, server, local):
    client = local.setdefault("rest", Rest(server.http))
    model, x = rng.choice(MODELS), rng.randrange(1000)
    reply = client.infer(model, [("INPUT0", "INT32", shape(model), [x])])
    if reply.status == 200:
        assert reply.json()["outputs"][0]["data"] == right(model, x)
    else:
        assert reply.status in AWAY and model in reply.error, reply


def ask_grpc(rng, server, local):
    client = local.setdefault("grpc", Grpc(server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)))
    model, x = rng.choice(MODELS), rng.randrange(1000)
    try:
        answer = client.infer(grpcraw.int32(model, [x], shape=shape(model)))
    except grpc.RpcError as e:
        assert e.code().name in ("NOT_FOUND", "UNAVAILABLE", "INVALID_ARGUMENT") and model in e.details(), e
    else:
        assert np.frombuffer(answer.raw_output_contents[0], "<i4").tolist() == right(model, x)


def turn(rng, server, names):
    with Control(server) as c:
        model = rng.choice(names)
        kind = rng.randrange(4)
        if kind == 0:
            reply = c.unload(model)
        elif kind == 1 and model == "plain":
            reply = c.load(model, overriding(rng))
        elif kind == 2:
            reply = c.load(model, "{ no json")
        else:
            reply = c.load(model)
        assert reply.status == 200 or reply.error, reply
        assert c.rest.post("/v2/repository/index", b"").status == 200


def storm(server, rounds, names=MODELS):
    crowd, locals_ = Crowd(), [{} for _ in range(4)]
    for i in range(4):
        crowd.add((ask_rest, ask_grpc)[i % 2], server, locals_[i])
    for i in range(8):
        crowd.add(turn, server, names if i % 2 else names[:1], rounds=rounds)
    crowd.join()
    [c.close() for local in locals_ for c in local.values()]


def settle(server):
    with Control(server) as c:
        for model in MODELS:
            assert c.load(model).status == 200
            assert c.rest.infer(model, [("INPUT0", "INT32", shape(model), [5])]).json()["outputs"][0]["data"] == right(model, 5)
    wait.equal(lambda: in_flight(server), (0, 0), "what is in flight")


@pytest.mark.release
def test_loads_and_unloads_by_many(stormy):
    storm(stormy, ROUNDS)
    settle(stormy)
    before = descriptors(stormy), threads(stormy), resident(stormy)
    for _ in range(2):
        storm(stormy, ROUNDS)
        settle(stormy)
    wait.until(lambda: descriptors(stormy) <= before[0] + 1, f"the descriptors to be {before[0]} again")
    wait.until(lambda: threads(stormy) <= before[1] + 3, f"the threads to be {before[1]} again")
    if wait.SLOW == 1:
        assert resident(stormy) - before[2] < 16 << 20


def test_polled_files_that_change_all_the_time(models, start):
    """Files are rewritten in place, half copied, removed and put back; what is served is always whole."""
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    server = start(models, "--repository-poll-secs=1", mode="poll")
    crowd, seen = Crowd(), set()

    def ask(rng):
        with Rest(server.http) as client:
            reply = client.infer("adder", [("INPUT0", "INT32", [1], [100])])
            if reply.status == 200:
                seen.add(reply.json()["outputs"][0]["data"][0])
            else:
                assert reply.status in AWAY, reply

    def rewrite(rng, n=[1]):
        n[0] += 1
        data, path = onnxgen.adder(n[0] % 50), models / "adder" / "1" / "model.onnx"
        kind = rng.randrange(5)
        if kind == 0:  # by pieces, in place
            with open(path, "wb", buffering=0) as f:
                for at in range(0, len(data), 40):
                    f.write(data[at:at + 40])
        elif kind == 1:  # cut short, then whole
            path.write_bytes(data[: len(data) // 2])
            path.write_bytes(data)
        elif kind == 2:
            repo.write(path, data)
        elif kind == 3:
            shutil.copytree(models / "adder", models / ".copy", dirs_exist_ok=True)
            shutil.rmtree(models / "adder")
            (models / ".copy").rename(models / "adder")
        else:
            path.unlink()
            path.write_bytes(data)
        crowd.end.wait(rng.random() / 10)

    crowd.add(ask)
    crowd.add(rewrite, rounds=ROUNDS * 2)
    crowd.join()
    repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(77))
    with Control(server) as c:
        def settled():
            reply = c.infer("adder", [100])
            return reply.status == 200 and reply.json()["outputs"][0]["data"] == [177]

        wait.until(settled, "the last file to be served")
    assert seen <= set(range(100, 151))


def test_new_and_removed_models_all_the_time(models, start):
    """Poll mode: models come and go by the dozen; the one that stays is always served."""
    repo.add(models, "steady")
    server = start(models, "--repository-poll-secs=1", mode="poll")
    crowd = Crowd()

    def ask(rng):
        with Rest(server.http) as client:
            assert client.infer("steady", [("INPUT0", "INT32", [1], [7])]).ok().json()["outputs"][0]["data"] == [7]
            json.loads(client.post("/v2/repository/index", b"").ok().body)

    def change(rng):
        name = f"m{rng.randrange(6)}"
        if (models / name).exists():
            shutil.rmtree(models / name)
        else:
            repo.add(models, name, files={f"1/data{n}": bytes(100) for n in range(5)})
        crowd.end.wait(rng.random() / 50)

    crowd.add(ask)
    crowd.add(change, rounds=ROUNDS * 8)
    crowd.join()
    for i in range(6):
        shutil.rmtree(models / f"m{i}", ignore_errors=True)
    with Control(server) as c:
        wait.until(lambda: all(r["name"] == "steady" or r.get("state") != "READY" for r in c.index()), "the others to be gone")
