"""Reload and unload while requests run: none fails, each finishes on the version that it began on."""
import json
import threading

import grpc
import numpy as np
import pytest

from lib import grpcraw, onnxgen, repo, wait
from lib.control import Control, GrpcControl
from lib.grpcraw import Grpc
from lib.metrics import value
from lib.raw import Http1, request
from lib.rest import Rest


class Load:
    """Clients of both protocols that ask without pause; every answer and every failure is kept."""

    def __init__(self, server, model, good, threads=2):
        self.server, self.model, self.good = server, model, good
        self.end = threading.Event()
        self.failures, self.counts = [], [0] * threads * 2
        self.threads = [threading.Thread(target=self._run, args=(kind, slot * 2 + i))
                        for slot in range(threads) for i, kind in enumerate((self._rest, self._grpc))]

    def __enter__(self):
        [t.start() for t in self.threads]
        self.wait_more()
        return self

    def __exit__(self, *_):
        self.end.set()
        [t.join(wait.PATIENCE) for t in self.threads]
        assert not self.failures, f"{len(self.failures)} of {sum(self.counts)} failed: {self.failures[:5]}"

    def wait_more(self, count=20):
        """Until every client has had that many more answers."""
        before = list(self.counts)
        wait.until(lambda: self.failures or all(c - b >= count for c, b in zip(self.counts, before)), "more answers")

    def _run(self, ask, slot):
        try:
            for got in ask():
                if not self.good(got):
                    self.failures.append(got)
                self.counts[slot] += 1
                if self.end.is_set():
                    break
        except Exception as e:
            self.failures.append(repr(e))

    def _rest(self):
        with Rest(self.server.http) as client:
            while True:
                reply = client.infer(self.model, [("INPUT0", "INT32", [1], [100])])
                yield reply.json()["outputs"][0]["data"][0] if reply.status == 200 else (reply.status, reply.body)

    def _grpc(self):
        with Grpc(self.server.url("grpc"), options=(("grpc.use_local_subchannel_pool", 1),)) as client:
            while True:
                try:
                    answer = client.infer(grpcraw.int32(self.model, [100]))
                except grpc.RpcError as e:
                    yield e.code().name, e.details()
                else:
                    yield np.frombuffer(answer.raw_output_contents[0], "<i4")[0]


def test_reload_under_load(models, explicit):
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(0)})
    server, c = explicit("--load-model=adder")
    with Load(server, "adder", lambda got: isinstance(got, (int, np.integer)) and 100 <= got <= 110) as load:
        for n in range(1, 11):
            repo.write(models / "adder" / "1" / "model.onnx", onnxgen.adder(n))
            assert c.load("adder").status == 200
            assert c.answer("adder", [100])[0] == [100 + n], "after the load only the new model answers"
            assert c.ready()
            load.wait_more(5)


def test_new_versions_under_load(models, explicit):
    folder = repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    server, c = explicit("--load-model=adder")
    with Load(server, "adder", lambda got: isinstance(got, (int, np.integer)) and 100 <= got <= 110) as load:
        for n in range(2, 8):
            (folder / str(n)).mkdir()
            repo.write(folder / str(n) / "model.onnx", onnxgen.adder(n))
            assert c.load("adder").status == 200
            assert c.answer("adder", [100]) == ([100 + n], str(n))
            load.wait_more(5)
    wait.until(lambda: [r["version"] for r in c.index("adder") if r["state"] == "READY"] == ["7"], "the old versions to end")


def test_reload_of_a_batching_model_under_load(models, explicit):
    def config(delay):
        return repo.config(max_batch_size=0, parameters={"execute_delay_ms": delay})

    repo.add(models, "m", config(1))
    server, c = explicit("--load-model=m")
    with Load(server, "m", lambda got: isinstance(got, (int, np.integer)) and got == 100) as load:
        for n in range(6):
            repo.write(models / "m" / "config.pbtxt", config(n % 3))
            assert c.load("m").status == 200
            load.wait_more(5)


def test_other_models_do_not_notice(models, explicit):
    repo.add(models, "steady")
    repo.add(models, "other", backend="fault", parameters={"open_delay_ms": 100})
    server, c = explicit("--load-model=steady")
    with Load(server, "steady", lambda got: isinstance(got, (int, np.integer)) and got == 100) as load:
        for _ in range(5):
            assert c.load("other").status == 200
            assert c.unload("other").status == 200
            load.wait_more(5)


def test_failed_reload_keeps_the_old_model(models, explicit):
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    server, c = explicit("--load-model=adder")
    with Load(server, "adder", lambda got: isinstance(got, (int, np.integer)) and got == 101):
        repo.write(models / "adder" / "1" / "model.onnx", b"damaged")
        reply = c.load("adder")
        assert reply.status == 400 and "load failed for model 'adder': version 1" in reply.error
        assert c.states("adder") == {"1": "READY"} and c.ready()
        repo.write(models / "adder" / "config.pbtxt", "max_batch_size: ")
        assert c.load("adder").status in (400, 500)
        assert c.answer("adder", [100])[0] == [101]
    repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(2)})
    assert c.load("adder").status == 200
    assert c.answer("adder", [100])[0] == [102]


def test_failed_new_version_keeps_the_old_one(models, explicit):
    folder = repo.add(models, "adder", onnxgen.ADDER_CONFIG, files={"1/model.onnx": onnxgen.adder(1)})
    _, c = explicit("--load-model=adder")
    (folder / "2").mkdir()
    (folder / "2" / "model.onnx").write_bytes(b"damaged")
    reply = c.load("adder")
    assert reply.status == 400 and "version 2" in reply.error
    assert c.answer("adder", [100]) == ([101], "1")
    assert c.states("adder") == {"1": "READY", "2": "UNAVAILABLE"}


# ---- requests in flight ----

class InFlight:
    """One request runs on `slow` (one instance) until `results`, and two more wait in its queue."""

    def __init__(self, server, hold):
        self.client, self.hold = Grpc(server.url("grpc")), hold
        self.futures = hold.requests(server, self.client, "slow", 3)

    def results(self):
        self.hold.end()
        out = [(np.frombuffer(f.result().raw_output_contents[0], "<i4").tolist(), f.result().model_version) for f in self.futures]
        self.client.close()
        return out


def slow_config(**kw):
    return repo.config(backend="fault", **kw)


def test_unload_while_requests_run(models, explicit, hold):
    repo.add(models, "slow", slow_config())
    server, c = explicit("--load-model=slow")
    flight = InFlight(server, hold)
    assert c.unload("slow").status == 200, "at once, not after the requests"
    assert c.states("slow") == {"1": "UNLOADING"}
    reply = c.infer("slow")
    assert reply.status in (404, 503) and "'slow'" in reply.error
    assert flight.results() == [([0], "1"), ([1], "1"), ([2], "1")]
    wait.until(lambda: c.states("slow") == {"1": "UNAVAILABLE"}, "the end of the model")


def test_new_version_while_requests_run(models, explicit, hold):
    folder = repo.add(models, "slow", slow_config())
    server, c = explicit("--load-model=slow")
    flight = InFlight(server, hold)
    (folder / "2").mkdir()
    assert c.load("slow").status == 200
    assert c.answer("slow")[1] == "2", "the new version does not wait for the old one"
    assert flight.results() == [([0], "1"), ([1], "1"), ([2], "1")]
    wait.until(lambda: c.states("slow") == {"1": "UNAVAILABLE", "2": "READY"}, "the end of version 1")


def test_reload_of_the_same_version_while_requests_run(models, explicit, hold):
    repo.add(models, "slow", slow_config())
    server, c = explicit("--load-model=slow")
    flight = InFlight(server, hold)
    repo.write(models / "slow" / "config.pbtxt", slow_config(parameters={"fail_status": "NOT_FOUND"}))
    assert c.load("slow").status == 200
    assert c.infer("slow").status == 404, "the new one fails as told"
    assert flight.results() == [([0], "1"), ([1], "1"), ([2], "1")]


def test_load_again_while_the_old_one_drains(models, explicit, hold):
    repo.add(models, "slow", slow_config())
    server, c = explicit("--load-model=slow")
    flight = InFlight(server, hold)
    c.unload("slow")
    assert c.load("slow").status == 200
    assert c.answer("slow")[0] == [1, 2]
    assert len(flight.results()) == 3
    wait.until(lambda: c.states("slow") == {"1": "READY"}, "one version")


# ---- many at once ----

def at_once(count, function):
    results = [None] * count

    def run(i):
        try:
            results[i] = function(i)
        except Exception as e:
            results[i] = repr(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    [t.start() for t in threads]
    [t.join(wait.PATIENCE) for t in threads]
    return results


def test_many_loads_of_one_model(models, explicit):
    repo.add(models, "m", slow_config(parameters={"open_delay_ms": 50}))
    server, c = explicit()

    def load(i):
        with Control(server) as mine:
            return mine.load("m").status

    assert at_once(12, load) == [200] * 12
    assert c.answer("m")[0] == [1, 2]


def test_loads_of_many_models(models, explicit):
    for i in range(24):
        repo.add(models, f"m{i}", slow_config(parameters={"open_delay_ms": 20}))
    server, c = explicit()

    def load(i):
        with Control(server) as mine:
            return mine.load(f"m{i}").status

    assert at_once(24, load) == [200] * 24
    assert all(c.model_ready(f"m{i}") for i in range(24))


def test_loads_against_unloads(models, explicit):
    repo.add(models, "m", slow_config(parameters={"open_delay_ms": 5}))
    server, c = explicit()

    def both(i):
        with Control(server) as mine:
            return [mine.load("m").status if (i + n) % 2 else mine.unload("m").status for n in range(10)]

    for statuses in at_once(6, both):
        assert all(s in (200, 400, 500) for s in statuses), statuses
    assert c.load("m").status == 200
    assert c.answer("m")[0] == [1, 2]
    assert c.unload("m").status == 200
    wait.until(lambda: c.states("m") == {"1": "UNAVAILABLE"}, "the end")


def test_requests_during_loads_and_unloads_get_an_answer(models, explicit):
    repo.add(models, "m")
    server, c = explicit("--load-model=m")
    with Load(server, "m", lambda got: got == 100 or isinstance(got, tuple) and got[0] in (404, 503, "NOT_FOUND", "UNAVAILABLE")):
        for _ in range(10):
            assert c.unload("m").status == 200
            assert c.load("m").status == 200


def test_load_over_grpc_by_many(models, explicit):
    repo.add(models, "m")
    server, _ = explicit()

    def load(i):
        g = GrpcControl(server)
        try:
            return g.load("m")
        finally:
            g.close()

    assert at_once(6, load) == [None] * 6


def test_control_of_a_model_ends_with_the_server(models, start):
    """SIGTERM while a load is under way ends the load, and the server cleanly."""
    repo.add(models, "slow", slow_config(parameters={"open_delay_ms": 3_600_000}))
    server = start(models, mode="explicit")
    with Rest(server.http) as rest, Control(server) as c:
        rest.connection.request("POST", "/v2/repository/models/slow/load", body=b"")
        wait.until(lambda: c.states("slow") == {"1": "LOADING"}, "the load to begin")
        server.stop()
        assert b"the server is stopping" in rest.connection.getresponse().read()


@pytest.mark.parametrize("batcher", ["", " sequence_batching {}"])
def test_unload_while_an_answer_is_being_read(models, start, batcher):
    """Its memory is the model's, which has to wait for the client; other models do not."""
    repo.add(models, "given", 'backend: "onnxruntime" input [ { name: "INPUT0" data_type: TYPE_INT64 dims: [ 1 ] } ]'
             ' output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]' + batcher, files={"1/model.onnx": onnxgen.filler(None)})
    repo.add(models, "m")
    server = start(models, "--load-model=*", mode="explicit")
    with Control(server) as control:
        state = lambda model: control.rest.get(f"/v2/models/{model}/versions").ok().json()["versions"][0]["state"]
        document = {"inputs": [{"name": "INPUT0", "datatype": "INT64", "shape": [1], "data": [4 << 20]}],
                    "parameters": {"binary_data_output": True, **({"sequence_id": 1, "sequence_start": True} if batcher else {})}}
        with Http1(server.http, receive_buffer=4096) as wire:
            wire.send(request("POST", "/v2/models/given/infer", body=json.dumps(document)))
            wait.until(lambda: value(server, "nv_inference_request_success", model="given"), "the answer")
            for model in ("given", "m"):
                control.unload(model).ok()
            wait.until(lambda: state("m") == "UNLOADED", "the other model to be gone")
            assert state("given") == "DRAINING"
        wait.until(lambda: state("given") == "UNLOADED", "its memory to be given back")
