"""Recorded requests: a file in a version's folder that is run at warm-up, and its recording from live requests."""
import os
import subprocess

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import repo, wait
from lib.control import Control
from lib.grpcraw import Grpc, request
from lib.reflected import Reflected
from lib.server import BIN
from lib.wait import SLOW

FILE = "warmup_requests.pb"


def delimited(messages):
    """Each message after its length, as a varint."""
    out = b""
    for m in messages:
        data, n = m.SerializeToString(), m.ByteSize()
        while n >= 0x80:
            out += bytes([n & 0x7f | 0x80])
            n >>= 7
        out += bytes([n]) + data
    return out


def messages(data):
    found = []
    while data:
        n = shift = 0
        while True:
            byte, data = data[0], data[1:]
            n |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append(pb.ModelInferRequest.FromString(data[:n]))
        assert len(data) >= n
        data = data[n:]
    return found


def row(*values, name="INPUT0", datatype="INT32"):
    return request("other", [(name, datatype, [1, len(values)], None)], raw=[np.array(values, "<i4").tobytes()])


def first(*values):
    return np.array(values, "<i4").tobytes()


class Model:
    """Model `m` and what it has been asked, by its own word: (instance, rows, first bytes of the input)."""

    def __init__(self, models, folder, requests=None, extra="", versions=(1,), **parameters):
        self.trace = folder / "trace"
        files = {f"1/{FILE}": requests} if requests is not None else {}
        self.folder = repo.add(models, "m", repo.config(
            backend="fault", max_batch_size=8, extra=extra, parameters={"warmup": "true", "trace": self.trace, **parameters}),
            versions=versions, files=files)
        self.file = self.folder / "1" / FILE

    def runs(self):
        lines = self.trace.read_text().splitlines() if self.trace.exists() else []
        return [(int(i), int(rows), bytes.fromhex(data)) for i, rows, data in map(str.split, lines)]


@pytest.fixture
def explicit(models, start):
    made = []

    def make(*args, **kw):
        server = start(models, *args, mode="explicit", **kw)
        made.append(Control(server))
        return server, made[-1]

    yield make
    [c.close() for c in made]


def record(c, model="m", **fields):
    return c.rest.post(f"/v2/repository/models/{model}/record-warmup", fields)


def status(c, model="m"):
    return c.rest.get(f"/v2/repository/models/{model}/record-warmup").ok().json()


def ask(c, *values, **kw):
    return c.rest.infer("m", [("INPUT0", "INT32", [1, len(values)], list(values))], **kw)


# ---- running them ----


def test_every_record_runs_once_on_every_instance(models, tmp_path, explicit):
    """And made-up requests do not; nor are they counted."""
    m = Model(models, tmp_path, delimited([row(1), row(2, 3), row(4)]), "instance_group { count: 2 kind: KIND_CPU }")
    _, c = explicit("--load-model=m")
    assert m.runs() == [(i, 1, data) for i in (0, 1) for data in (first(1), first(2, 3), first(4))]
    (s,) = c.stats("m")
    assert s["execution_count"] == s["inference_stats"]["success"]["count"] == 0


def test_beside_samples_of_the_configuration(models, tmp_path, explicit):
    m = Model(models, tmp_path, delimited([row(1)]), 'model_warmup { name: "s" batch_size: 1 inputs { key: "INPUT0" '
              "value { data_type: TYPE_INT32 dims: [1] zero_data: true } } }")
    explicit("--load-model=m")
    assert [data for _, _, data in m.runs()] == [first(0), first(1)]


def test_without_time_they_are_checked(models, tmp_path, explicit):
    m = Model(models, tmp_path, delimited([row(1), row(2)]))
    _, c = explicit("--recorded-warmup-time=0")
    assert c.load("m").status == 200 and m.runs() == []
    m.file.write_bytes(delimited([row(1), row(2, name="INPUT7")]))
    c.unload("m")
    assert "record 2" in c.load("m").error


def test_strings(models, explicit):
    model = repo.add(models, "m", max_batch_size=2, inputs=[repo.tensor("INPUT0", "TYPE_STRING")], outputs=[repo.tensor("OUTPUT0", "TYPE_STRING")])
    _, c = explicit()
    for raw, good in ((b"\2\0\0\0ab\0\0\0\0", True), (b"\2\0\0\0ab\7\0\0\0", False)):
        repo.write(model / "1" / FILE, delimited([request("m", [("INPUT0", "BYTES", [1, 2], None)], raw=[raw])]))
        assert (c.load("m").status == 200) == good
        c.unload("m")


@pytest.mark.parametrize("data, text", [
    (delimited([row(1)])[:-1], "record 1: should have"),
    (delimited([row(1), row(2)]) + b"\xff" * 10, "record 3: has no length"),
    (delimited([row(1)]) + b"\x80", "record 2: has no length"),
    (delimited([row(1)]) + b"\xff\xff\xff\xff\x7f", "record 2: should have"),
    (b"\4\xff\xff\xff\xff", "record 1: "),
    (b"\0", "record 1: "),
    (delimited([row(1), row(2, name="INPUT7")]), "record 2: unexpected inference input 'INPUT7'"),
    (delimited([row(1, datatype="FP32")]), "record 1: inference input 'INPUT0' data-type is 'FP32'"),
    (delimited([request("m", [("INPUT0", "INT32", [9, 1], None)], raw=[bytes(36)])]), "batch-size must be <= 8"),
    (delimited([row(1)] * 1001), "more than 1000 records"),
], ids=["cut off", "endless length", "half a length", "too long", "garbage", "nothing", "other input", "other type", "too many rows",
        "too many"])
def test_bad_files(models, tmp_path, explicit, data, text):
    """Each fails the load, and the load that comes after the repair works."""
    m = Model(models, tmp_path, data)
    _, c = explicit()
    error = c.load("m").error
    assert text in error and f"1/{FILE}" in error
    m.file.unlink()
    assert c.load("m").status == 200


def test_shared_memory_is_refused(models, tmp_path, explicit):
    q = request("m", [("INPUT0", "INT32", [1, 1], None)])
    q.inputs[0].parameters["shared_memory_region"].string_param = "r"
    q.inputs[0].parameters["shared_memory_byte_size"].int64_param = 4
    Model(models, tmp_path, delimited([q]))
    _, c = explicit()
    assert "refers to shared memory" in c.load("m").error


def test_what_is_no_file(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    os.mkfifo(m.file)
    _, c = explicit()
    assert "is not a regular file" in c.load("m").error
    m.file.unlink()
    (tmp_path / "outside").write_bytes(delimited([row(1)]))
    m.file.symlink_to(tmp_path / "outside")
    assert c.load("m").status == 400, "it leads out of the repository"


def test_a_record_that_fails_fails_the_load(models, tmp_path, explicit):
    Model(models, tmp_path, delimited([row(1), row(2), row(3)]), fail_every=2, fail_status="INVALID")
    _, c = explicit()
    error = c.load("m").error
    assert f"1/{FILE}, record 2: failed as configured" in error


def test_the_old_version_goes_on(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    _, c = explicit("--load-model=m")
    (m.folder / "2").mkdir()
    repo.write(m.folder / "2" / FILE, b"\5")
    assert c.load("m").status == 400
    assert ask(c, 1).ok().json()["model_version"] == "1"


def test_the_file_is_no_part_of_the_version(models, tmp_path, start):
    """Poll mode takes no notice of it, but a copy of the folder brings it along."""
    m = Model(models, tmp_path, versions=(1, 2))
    server = start(models, "--repository-poll-secs=1", mode="poll")
    with Control(server) as c:
        repo.write(m.folder / "2" / FILE, delimited([row(7)]))
        part = m.folder / ".3"
        part.mkdir()
        (part / FILE).write_bytes(delimited([row(5)]))
        part.rename(m.folder / "3")
        wait.until(lambda: c.states("m").get("3") == "READY", "version 3")
        lives = [(v["version"], v["state"]) for v in c.rest.get("/v2/models/m/versions").ok().json()["versions"]]
        assert [n for n, _ in lives] == ["2", "3"], "each was loaded once"
        assert first(5) in [data for _, _, data in m.runs()] and first(7) not in [data for _, _, data in m.runs()]


def test_a_repaired_file_is_taken_at_once_in_poll_mode(models, tmp_path, start):
    m = Model(models, tmp_path, b"\5")
    server = start(models, "--repository-poll-secs=1", "--exit-on-error=false", "--model-load-retry-pause=0", mode="poll")
    with Control(server) as c:
        assert c.states("m") == {"1": "UNAVAILABLE"}
        repo.write(m.file, delimited([row(3)]))
        wait.equal(lambda: c.states("m"), {"1": "READY"})
    assert m.runs() == [(0, 1, first(3))]


# ---- recording ----


def test_what_is_recorded(models, tmp_path, explicit):
    """Requests of all kinds become the same tensors, and the next load runs them."""
    m = Model(models, tmp_path)
    server, c = explicit("--load-model=m")
    assert status(c) == {"model_name": "m", "version": "1", "state": "none"}
    began = record(c, requests=4).ok().json()
    assert (began["state"], began["requests"], began["every"], began["recorded"]) == ("recording", 4, 1, 0)
    assert record(c).status == 503, "one at a time"
    assert ask(c, 1, 2, id="secret", parameters={"delay_ms": 1}).status == 200
    c.rest.infer_binary("m", [("INPUT0", "INT32", [1, 1])], [first(3)]).ok()
    with Grpc(server.url("grpc")) as g:
        g.infer(request("m", [("INPUT0", "INT32", [1, 1], {"int_contents": [4]})], id="secret"))
        assert status(c)["recorded"] == 3 and not m.file.exists()
        g.infer(request("m", [("INPUT0", "INT32", [2, 1], None)], raw=[first(5, 6)]))
    wait.equal(lambda: status(c)["state"], "written")
    ended = status(c)
    assert (ended["recorded"], ended["seen"]) == (4, 4)
    assert ask(c, 9).status == 200 and status(c)["seen"] == 4, "it is over"
    found = messages(m.file.read_bytes())
    assert sum(q.ByteSize() for q in found) == ended["bytes"]
    assert [(list(q.inputs[0].shape), q.raw_input_contents[0]) for q in found] == [
        ([1, 2], first(1, 2)), ([1, 1], first(3)), ([1, 1], first(4)), ([2, 1], first(5, 6))]
    assert all((q.inputs[0].name, q.inputs[0].datatype) == ("INPUT0", "INT32") for q in found)
    assert not any(q.id or q.parameters or q.outputs for q in found)
    assert [f.name for f in m.file.parent.iterdir()] == [FILE] and m.file.stat().st_mode & 0o777 == 0o600
    before = len(m.runs())
    assert c.load("m").status == 200 and len(m.runs()) == before, "the same version"
    c.unload("m")
    assert c.load("m").status == 200
    assert [data for _, _, data in m.runs()[before:]] == [first(1, 2), first(3), first(4), first(5, 6)]


def test_a_sample_of_those_that_were_answered(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    _, c = explicit("--load-model=m")
    record(c, requests=3, every=3, version=1).ok()
    for i in range(7):
        assert ask(c, i, parameters={"fail_status": "INVALID"}).status == 400
        ask(c, i).ok()
    wait.equal(lambda: status(c)["state"], "written")
    assert [q.raw_input_contents[0] for q in messages(m.file.read_bytes())] == [first(0), first(3), first(6)]


def test_stop_and_the_end_of_the_time(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    _, c = explicit("--load-model=m")
    assert record(c, action="stop").status == 503
    record(c).ok()
    ask(c, 1).ok()
    assert record(c, action="stop").status == 200
    wait.equal(lambda: record(c, action="status").ok().json()["state"], "written")
    before = m.file.read_bytes()
    assert len(messages(before)) == 1
    record(c, seconds=1).ok()
    wait.equal(lambda: status(c)["state"], "failed")
    assert status(c)["reason"] == "no request came" and m.file.read_bytes() == before
    assert [f.name for f in m.file.parent.iterdir()] == [FILE]


@pytest.mark.parametrize("body, text", [
    ({"requests": 0}, "'requests' is 0"), ({"requests": 1001}, "up to 1000"), ({"every": 0}, "'every' is 0"),
    ({"seconds": 0}, "'seconds' is 0"), ({"seconds": 1 << 60}, "up to 86400"), ({"action": "sing"}, "start, stop or status"),
    ({"melody": 1}, "'melody' is no member"), ({"requests": "many"}, ""), ({"requests": -1}, "")])
def test_bad_calls(models, tmp_path, explicit, body, text):
    Model(models, tmp_path)
    _, c = explicit("--load-model=m")
    reply = record(c, **body)
    assert reply.status == 400 and text in reply.error
    assert status(c)["state"] == "none"


def test_versions_that_are_not_there(models, tmp_path, explicit):
    Model(models, tmp_path)
    _, c = explicit("--load-model=m")
    assert record(c, "nobody").status == 404
    assert record(c, version=7).status == 404


def test_a_version_that_ends_ends_its_recording(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    server, c = explicit("--load-model=m")
    record(c).ok()
    ask(c, 1).ok()
    assert c.unload("m").status == 200
    wait.until(lambda: any(e["event"] == "model.record" and "nothing recorded" in e["msg"] for e in server.events()), "its end")
    wait.equal(lambda: list(m.file.parent.iterdir()), [])
    assert c.load("m").status == 200
    record(c).ok()
    ask(c, 2).ok()  # and the server's end as well


def test_files_of_a_load_request(models, tmp_path, explicit):
    """Have no folder to be written to."""
    _, c = explicit("--allow-backend=identity")
    config = {"backend": "identity", "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [-1]}],
              "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [-1]}]}
    c.load("m", config=config, files={"1/x": b"x"}).ok()
    reply = record(c)
    assert reply.status == 503 and "came with a load request" in reply.error


def test_a_folder_that_cannot_be_written(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    m.file.parent.chmod(0o555)
    try:
        _, c = explicit("--load-model=m", without_privileges=True)
        reply = record(c)
        assert reply.status == 403 and f"cannot write {FILE}: Permission denied" in reply.error
        assert status(c)["state"] == "none" and ask(c, 1).status == 200
    finally:
        m.file.parent.chmod(0o755)


def test_recording_under_load(models, explicit):
    """Many threads at once: as many as were asked for, each of them whole."""
    folder = repo.add(models, "m", max_batch_size=8)
    server, c = explicit("--load-model=m", "--loop-threads=4")
    record(c, requests=1000 // SLOW).ok()
    answers = []
    with Grpc(server.url("grpc")) as g:
        for i in range(2000 // SLOW):
            answers.append(g.stub.ModelInfer.future(request("m", [("INPUT0", "INT32", [1, 2], None)], raw=[first(i, -i)])))
        assert all(a.result().raw_output_contents[0] == first(i, -i) for i, a in enumerate(answers))
    wait.equal(lambda: status(c)["state"], "written")
    found = [np.frombuffer(q.raw_input_contents[0], "<i4") for q in messages((folder / "1" / FILE).read_bytes())]
    assert len(found) == 1000 // SLOW == len({int(f[0]) for f in found})
    assert all(f[0] == -f[1] for f in found)


# ---- other ways to ask ----


def test_over_grpc(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    server, c = explicit("--load-model=m")
    with Reflected(server.url("grpc")) as client:
        method, message = client.method("millrace.ModelControl/ModelRecordWarmup")
        r = method(message(model_name="m", requests=2))
        assert (r.model_name, r.version, r.state, r.requests, r.every) == ("m", "1", "recording", 2, 1)
        assert 0 < r.seconds_left <= 600
        ask(c, 1).ok()
        assert method(message(model_name="m", action=2)).recorded == 1
        method(message(model_name="m", action=1))
        wait.equal(lambda: method(message(model_name="m", action=2)).state, "written")
        for fields, code in ({"action": 1}, "UNAVAILABLE"), ({"requests": 1001}, "INVALID_ARGUMENT"), ({"version": "7"}, "NOT_FOUND"), (
                {"action": 9}, "INVALID_ARGUMENT"):
            with pytest.raises(grpc.RpcError) as e:
                method(message(model_name="m", **fields))
            assert e.value.code().name == code
    assert len(messages(m.file.read_bytes())) == 1


def test_from_the_command_line(models, tmp_path, explicit):
    m = Model(models, tmp_path)
    server, c = explicit("--load-model=m")

    def run(*args):
        return subprocess.run([BIN, "model", "record-warmup", "m", "--url", server.url(), *args], capture_output=True, text=True,
                              timeout=wait.PATIENCE)

    assert run("--requests", "2").stdout == "m version 1: recording, 0 of 2 requests, 0 B\n"
    assert run().returncode == 1
    ask(c, 1).ok()
    assert "recorded" in run("--stop", "--json").stdout
    wait.equal(lambda: status(c)["state"], "written")
    waiting = subprocess.Popen([BIN, "model", "record-warmup", "m", "--url", server.url(), "--requests=1", "--every=2", "--wait"],
                               stdout=subprocess.PIPE, text=True)
    wait.equal(lambda: status(c)["state"], "recording")
    ask(c, 2).ok()
    out, _ = waiting.communicate(timeout=wait.PATIENCE)
    assert waiting.returncode == 0 and out.startswith("m version 1: written, 1 of 1 requests, ")
    assert messages(m.file.read_bytes())[0].raw_input_contents[0] == first(2)


def test_for_explicit_mode_and_restricted(models, tmp_path, start):
    Model(models, tmp_path)
    with Control(start(models)) as c:
        reply = record(c)
        assert reply.status == 503 and "explicit" in reply.error and status(c)["state"] == "none"
    server = start(models, "--http-restricted-api=model-repository:key=secret",
                   "--grpc-restricted-protocol=model-repository:key=secret", "--load-model=m", mode="explicit")
    with Control(server) as c:
        assert record(c).status == 403 == c.rest.get("/v2/repository/models/m/record-warmup").status
    with grpc.insecure_channel(str(server.url("grpc"))) as channel:
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/millrace.ModelControl/ModelRecordWarmup")(b"")
        assert "restricted" in e.value.details()
