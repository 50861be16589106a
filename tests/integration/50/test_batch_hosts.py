"""Hosts of `millrace batch run`: gRPC, lists that are read again, names that are looked up."""
import concurrent.futures
import json
import subprocess
import threading

import grpc
import numpy
import pytest

from lib import batch, wait
from lib.services.batchgrpc import Service, services

pytestmark = batch.pytestmark


@pytest.mark.parametrize("form", ["raw", "mlserver", "typed"])
def test_grpc(tmp_path, form):
    x = batch.table(tmp_path / "in", 5000)
    one, two = Service(form=form), Service(form=form)
    with services(one, two) as addresses:
        batch.run(tmp_path, addresses, "--protocol", "grpc")
    batch.check(tmp_path, x)
    hedged = json.loads((tmp_path / "out/report.json").read_text())["this_start"]["hedged_calls"]
    assert 50 <= one.calls + two.calls <= 55 + hedged and min(one.calls, two.calls) > 0


def test_protocols_beside_each_other(tmp_path):
    x = batch.table(tmp_path / "in", 5000)
    service = Service()
    with services(service) as (first,), batch.hosts(batch.Host) as ((second,), made):
        batch.run(tmp_path, [f"grpc://{first}", f"http://{second}"])
    batch.check(tmp_path, x)
    assert service.calls > 0 and made[0].calls > 0


CODES = [(grpc.StatusCode.INVALID_ARGUMENT, "rejected"), (grpc.StatusCode.INTERNAL, "failed")]


@pytest.mark.parametrize("code,kind", CODES)
def test_grpc_poisoned_row(tmp_path, code, kind):
    x = batch.table(tmp_path / "in", 3000)
    service = Service(lambda number, key: (code, "row of ill will") if 777 in key else None)
    with services(service) as addresses:
        batch.run(tmp_path, addresses, "--protocol", "grpc")
    batch.check(tmp_path, x, gone=[777])
    (letter,) = batch.dead(tmp_path)
    assert letter["kind"] == kind and "row of ill will" in letter["cause"]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_grpc_busy(tmp_path, code):
    x = batch.table(tmp_path / "in", 3000)
    with services(Service(lambda number, key: (code, "busy") if number % 2 else None)) as addresses:
        batch.run(tmp_path, addresses, "--protocol", "grpc")
    batch.check(tmp_path, x)


def test_grpc_message_too_large(tmp_path):
    """As grpc-go reports it: smaller ones succeed."""
    x = batch.table(tmp_path / "in", 3000)
    text = "grpc: received message larger than max (999 vs. 100)"
    with services(Service(lambda number, key: (grpc.StatusCode.RESOURCE_EXHAUSTED, text) if len(key) > 30 else None)) as addresses:
        batch.run(tmp_path, addresses, "--protocol", "grpc")
    batch.check(tmp_path, x)


def test_grpc_host_that_does_not_have_the_model(tmp_path):
    x = batch.table(tmp_path / "in", 3000)
    lost = Service(lambda number, key: (grpc.StatusCode.NOT_FOUND, "no such model"))
    with services(Service(), lost) as addresses:
        done = batch.run(tmp_path, addresses, "--protocol", "grpc")
    batch.check(tmp_path, x)
    assert done.returncode == 0


def started(tmp_path, addresses, *args):
    return subprocess.Popen(batch.command(tmp_path, addresses, *args), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env=batch.environment())


class Held(batch.Host):
    """Answers when the test lets it."""
    go = None

    def answer(self, number, x, key):
        assert self.go.wait(wait.PATIENCE)
        self.good(x, key)


def test_file_of_hosts(tmp_path):
    """One that is put in gets calls, one that is taken out gets no more; bad lines change nothing."""
    x = batch.table(tmp_path / "in", 20000)
    names = tmp_path / "hosts"
    Held.go = threading.Event()
    with batch.hosts(batch.Host, Held) as ((good, held), made):
        names.write_text(f"# ours\n  {held}  # slow\n\n")
        run = started(tmp_path, [f"@{names}"])
        wait.until(lambda: made[1].calls > 0, "a call to the first host")
        names.write_text("dns:no-lists-in-lists\n")
        names.write_text(f"{good}\nhttp://{good}/\n")
        wait.until(lambda: made[0].calls > 0, "a call to the second host")
        wait.until(lambda: all(h["address"] != held or h["in_flight"] == made[1].calls
                               for h in batch.asked(tmp_path).get("hosts", ())), "what is on its way to arrive")
        before = made[1].calls
        Held.go.set()
        out, err = run.communicate(timeout=wait.PATIENCE)
        assert run.returncode == 0, err
        assert made[1].calls == before
    batch.check(tmp_path, x)


def test_a_host_of_two_lists(tmp_path):
    """It stays as long as one of them names it."""
    x = batch.table(tmp_path / "in", 20000)
    names = tmp_path / "hosts"
    Held.go = threading.Event()
    with batch.hosts(Held, Held) as ((stays, other), made):
        names.write_text(stays)
        run = started(tmp_path, [f"@{names}", stays])
        wait.until(lambda: made[0].calls > 0, "a call to the first host")
        names.write_text(f"{other}\n")
        wait.until(lambda: made[1].calls > 0, "a call to the second host")
        before = made[0].calls
        Held.go.set()
        out, err = run.communicate(timeout=wait.PATIENCE)
        assert run.returncode == 0, err
        assert made[0].calls > before
    batch.check(tmp_path, x)


def test_file_of_hosts_that_is_not_there(tmp_path):
    batch.table(tmp_path / "in", 10)
    done = batch.run(tmp_path, [f"@{tmp_path}/none"], code=1)
    assert "none: No such file" in done.stderr


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_name(tmp_path, scheme):
    x = batch.table(tmp_path / "in", 1000)
    with batch.hosts(batch.Host) as ((address,), _):
        batch.run(tmp_path, [f"dns:{scheme}localhost:{address.rpartition(':')[2]}"])
    batch.check(tmp_path, x)


@pytest.mark.parametrize("host,text", [("dns:", "is not dns:NAME:PORT"), ("dns:x:", "is not dns:NAME:PORT"),
                                       ("dns:ftp://x", "are the known schemes"), ("ftp://x", "are the known schemes"),
                                       ("dns:" + "x" * 300, "is not dns:NAME:PORT"), ("grpc://", "is not the address of a host")])
def test_what_is_no_host(tmp_path, host, text):
    batch.table(tmp_path / "in", 10)
    assert text in batch.run(tmp_path, [host], code=1).stderr


def test_name_that_nobody_knows(tmp_path):
    """It may be known later; the job waits as it waits for hosts."""
    batch.table(tmp_path / "in", 10)
    done = batch.run(tmp_path, ["dns:no-such-host.invalid:8000"], "--max-outage", "2s", code=1)
    assert "cannot look up no-such-host.invalid" in done.stderr and "no host has worked" in done.stderr


class OnlyJson(batch.Host):
    """Refuses tensors as bytes with `refusal`, as servers do that do not know the binary extension."""
    refusal = 400
    is_poisoned = True
    binary = 0

    def do_POST(self):
        body = self.body()
        with self.server.lock:
            type(self).calls += 1
            type(self).binary += "Inference-Header-Content-Length" in self.headers
        if "Inference-Header-Content-Length" in self.headers:
            self.say(self.refusal, {"error": "no JSON"})
            return
        data = batch.tensors(body, None)
        if 777 in data["id"] and self.is_poisoned:
            self.say(400, {"error": "row of ill will"})
            return
        x, key = data["x"], data["id"]
        self.say(200, {"model_name": "m", "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [len(x)], "data": x.sum(axis=1).tolist()},
            {"name": "z", "datatype": "INT64", "shape": [len(x), 2], "data": [[k * 10, k * 10 + 1] for k in key.tolist()]}]})


class CrashesOnBytes(OnlyJson):
    refusal = 500


class RefusesAtFirst(batch.Host):
    """Refuses its first call, and all that is no bytes: it cannot be that it takes JSON only."""
    json = 0

    def do_POST(self):
        if "Inference-Header-Content-Length" not in self.headers:
            self.body()
            type(self).json += 1
            self.say(400, {"error": "not yet"})
        else:
            super().do_POST()

    def answer(self, number, x, key):
        self.say(400, {"error": "not yet"}) if number == 1 else self.good(x, key)


@pytest.mark.parametrize("kind", [OnlyJson, CrashesOnBytes])
def test_host_that_takes_json_only(tmp_path, kind):
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(kind) as (addresses, (host,)):
        done = batch.run(tmp_path, addresses)
    batch.check(tmp_path, x, gone=[777])
    assert [d["cause"] for d in batch.dead(tmp_path)] == ['HTTP status 400: {"error": "row of ill will"}']
    assert "batch.json_only" in done.stderr and 2 <= host.binary <= 20


def test_bytes_are_used_where_they_are_taken(tmp_path):
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(RefusesAtFirst) as (addresses, (host,)):
        done = batch.run(tmp_path, addresses, "--max-in-flight-per-host", "1")
    batch.check(tmp_path, x)
    assert "batch.json_only" not in done.stderr and host.json >= 1 and host.calls >= 50


class FailsTwice(CrashesOnBytes):
    """With bytes, as if for some rows; from then on it takes both."""
    is_poisoned = False
    json = 0

    def do_POST(self):
        if "Inference-Header-Content-Length" not in self.headers:
            type(self).json += 1
        elif self.binary == 2:
            batch.Host.do_POST(self)
            return
        super().do_POST()


def test_bytes_are_tried_again(tmp_path):
    x = batch.table(tmp_path / "in", 5000)
    with batch.hosts(FailsTwice) as (addresses, (host,)):
        done = batch.run(tmp_path, addresses, "--max-in-flight-per-host", "1", "--batch-rows", "10")
    batch.check(tmp_path, x)
    assert "batch.json_only" in done.stderr and host.binary == 2
    assert host.json < 100 < host.calls - host.json


class Silent(batch.Host):
    """As a server whose model's settings name no tensors."""
    def do_GET(self):
        self.say(200, {"name": "m", "versions": [], "platform": "", "inputs": [], "outputs": []})


DECLARED = ["--model-input", "x=FP32[-1,4]", "--model-input", "id=INT64[-1]", "--model-output", "y=FP32[-1]", "--model-output",
            "z=INT64[-1, 2]"]


def test_metadata_without_inputs(tmp_path):
    batch.table(tmp_path / "in", 10)
    with batch.hosts(Silent) as (addresses, (host,)):
        done = batch.run(tmp_path, addresses, code=1)
    assert "metadata of model 'm' names no inputs" in done.stderr and host.calls == 0


def test_what_the_user_declares(tmp_path):
    """For a host without metadata; those of another one must be the same."""
    x = batch.table(tmp_path / "in", 2000)
    with batch.hosts(Silent, batch.Host) as (addresses, _):
        batch.run(tmp_path, addresses[:1], *DECLARED)
        batch.check(tmp_path, x)
        other = tmp_path / "other"
        other.mkdir()
        batch.table(other / "in", 2000)
        batch.run(other, addresses[1:], "--model-input", "x=FP64[-1]", "--model-output", "y=INT8[-1]")
        batch.check(other, x)


@pytest.mark.parametrize("text", ["x", "=FP32[-1]", "x=FP32", "x=FLOAT[-1]", "x=FP32[]", "x=FP32[-2]", "x=FP32[1,]", "x=FP32[1", "x=FP32[a]",
                                  "x=FP32[" + ",".join(["1"] * 99) + "]"])
def test_what_declares_nothing(tmp_path, text):
    said = batch.run(tmp_path, ["127.0.0.1:1"], "--model-input", text, code=2).stderr
    assert f"'{text}' is no tensor: expected NAME=TYPE[DIMS]" in said


def test_what_is_declared_twice(tmp_path):
    twice = ["--model-output", "y=FP32[-1]", "--model-output", "y=INT8[-1]"]
    assert "tensor 'y' is declared twice" in batch.run(tmp_path, ["127.0.0.1:1"], *twice, code=2).stderr


class Narrow(batch.Host):
    """Declares a number a row, and sends a column of them."""
    said, sent = [-1], (-1, 1)

    def say(self, status, document):
        if "outputs" in document:
            document["outputs"][0]["shape"] = self.said
        super().say(status, document)

    def good(self, x, key, y=None):
        super().good(x, key, x.sum(axis=1, dtype=numpy.float32).reshape(self.sent))


class Flat(Narrow):
    """The other way round."""
    said, sent = [-1, 1], (-1,)


@pytest.mark.parametrize("handler", [Narrow, Flat])
def test_a_number_a_row_is_one(tmp_path, handler):
    """Whether it has a dimension of 1 or not."""
    x = batch.table(tmp_path / "in", 1000)
    with batch.hosts(handler) as (addresses, _):
        batch.run(tmp_path, addresses)
        batch.check(tmp_path, x)


class Unknown(batch.Host):
    """Has another model only."""
    def do_GET(self):
        self.say(404, {"error": "Request for unknown model: 'm' is not found"})


class Forbidden(batch.Host):
    """Reports the metadata of the model, and answers no rows."""
    def answer(self, number, x, key):
        self.say(403, {"error": "not for you"})


WAITS = ("--max-outage", "10m")  # longer than a test waits for the job


def test_what_will_not_pass(tmp_path):
    """The job ends in seconds and reports why; it does not wait for --max-outage. Jobs side by side: each takes ten seconds."""
    def ends(name, kinds, text, *args):
        folder = tmp_path / name
        folder.mkdir()
        batch.table(folder / "in", 10)
        with batch.hosts(*[k for k in kinds if not isinstance(k, str)]) as (addresses, _):
            done = batch.run(folder, [*addresses, *[k for k in kinds if isinstance(k, str)]], *args, *WAITS, code=1)
        assert "no host serves the job" in done.stderr and "--wait-for-hosts" in done.stderr, (name, done.stderr)
        assert text in done.stderr.splitlines()[-1] and not (folder / "out/_SUCCESS").exists(), name

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda case: ends(*case), [
            ("model", [Unknown], "unknown model: 'm'"),
            ("models", [Unknown, Unknown], "unknown model: 'm'"),
            ("right", [Forbidden], "not for you"),
            ("refused", ["127.0.0.1:1"], "127.0.0.1:1: "),
            ("refused over grpc", ["127.0.0.1:1"], "127.0.0.1:1: ", "--protocol", "grpc"),
            ("list", ["dns:no-such-host.invalid:8000"], "no-such-host.invalid"),
            ("name", ["no-such-host.invalid:8000"], "no-such-host.invalid"),
            ("all of these", [Unknown, "127.0.0.1:1", "dns:no-such-host.invalid:8000"], "unknown model: 'm'"),
            ("protocol", [batch.Host], "127.0.0.1:", "--protocol", "grpc"),
        ]))


def test_grpc_model_that_is_not_there(tmp_path):
    class Lost(Service):
        def ModelMetadata(self, request, context):
            context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
    batch.table(tmp_path / "in", 10)
    with services(Lost()) as addresses:
        done = batch.run(tmp_path, addresses, "--protocol", "grpc", *WAITS, code=1)
    assert "no host serves the job" in done.stderr and "no such model" in done.stderr


def test_hosts_that_are_waited_for(tmp_path):
    """By an option, and by themselves if they report that they are not ready, or have served the job before."""
    class Starts(batch.Host):
        asked, status = 0, 404

        def do_GET(self):
            type(self).asked += 1
            if self.asked < 9:
                self.say(self.status, {"error": "not yet"})
            else:
                super().do_GET()

    class Busy(Starts):
        status = 503
    x = batch.table(tmp_path / "in", 100)
    with batch.hosts(Starts) as (addresses, _):
        batch.run(tmp_path, addresses, "--wait-for-hosts")
    batch.check(tmp_path, x)
    again = tmp_path / "again"
    again.mkdir()
    x = batch.table(again / "in", 100)
    with batch.hosts(Busy) as (addresses, _):
        batch.run(again, addresses)
    batch.check(again, x)


def test_one_host_that_may_come(tmp_path):
    """As long as one of them may serve the job, the others are no reason to end."""
    class Slow(batch.Host):
        asked = 0

        def do_GET(self):
            type(self).asked += 1
            if self.asked < 8:
                self.say(503, {"error": "loading"})
            else:
                super().do_GET()
    x = batch.table(tmp_path / "in", 100)
    with batch.hosts(Unknown, Slow) as (addresses, _):
        batch.run(tmp_path, ["127.0.0.1:1", *addresses])
    batch.check(tmp_path, x)


@pytest.mark.parametrize("row", [17, 777])
def test_rows_that_the_only_host_has_no_time_for(tmp_path, row):
    """It has time for the others, and for these when all others are done."""
    class Busy(batch.Host):
        done = 0

        def answer(self, number, x, key):
            if row in key and self.done + len(key) < 1500:
                self.say(503, {"error": "busy"})
            else:
                with batch.LOCK:
                    type(self).done += len(key)
                self.good(x, key)
    x = batch.table(tmp_path / "in", 1500)
    with batch.hosts(Busy) as (addresses, _):
        batch.run(tmp_path, addresses, "--max-outage", "30s")
    batch.check(tmp_path, x)


class Holds(batch.Host):
    """Answers nothing before the job is over."""
    def answer(self, number, x, key):
        self.is_over.wait()
        self.close_connection = True


def test_a_copy_that_lost_is_no_failure(tmp_path):
    """What the host that holds its calls has, the other one gets a second time; then the first copies are cancelled."""
    x = batch.table(tmp_path / "in", 2000)
    holds = type("Holds", (Holds,), {"is_over": threading.Event()})
    with batch.hosts(holds, batch.Host, together=True) as (addresses, _):
        try:
            batch.run(tmp_path, addresses, "--cross-check-share", 0)
        finally:
            holds.is_over.set()
    batch.check(tmp_path, x)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert [h["failures"] for h in report["hosts"]] == [0, 0]
