"""`millrace mlserver infer`: each line of the input has one line in the output, whatever the lines and the hosts are."""
import json
import os
import subprocess
import threading
import time

import pytest

from lib import repo, wait
from lib.services import other
from lib.repo import tensor
from lib.server import BIN, Server, clean_environment


def infer(tmp_path, lines, url, *args, code=0, env=None, words=None):
    (tmp_path / "in.jsonl").write_bytes(b"".join(
        (line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines))
    words = words or [str(BIN), "mlserver", "infer"]
    done = subprocess.run([*words, "-u", url, "-m", "m", "-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"), *args],
                          capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment(env or {}))
    assert done.returncode == code, done.stderr
    return done


def answers(tmp_path, count):
    """By line; there is one for each."""
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    lines = [a["parameters"]["batch_index"] for a in found]
    assert sorted(lines) == list(range(count))
    return dict(zip(lines, found))


def request(i, rows=1, **more):
    return {"inputs": [{"name": "x", "shape": [rows, 2], "datatype": "FP32", "data": [i + k / 4 for k in range(2 * rows)]},
                       {"name": "s", "shape": [rows, 1], "datatype": "BYTES", "data": [f"zeile {i} 🌊"] * rows}], **more}


def check(answer, sent):
    for output, given in zip(answer["outputs"], sent["inputs"]):
        assert (output["shape"], output["datatype"], output["data"]) == (given["shape"], given["datatype"], given["data"])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Copies x and s to y and t."""
    top = tmp_path_factory.mktemp("mlserver")
    repo.add(top / "repo", "m", max_batch_size=64, inputs=[tensor("x", "TYPE_FP32", [2]), tensor("s", "TYPE_STRING", [1])],
             outputs=[tensor("y", "TYPE_FP32", [2]), tensor("t", "TYPE_STRING", [1])])
    running = Server(top / "run", [top / "repo"])
    try:
        yield running.wait_ready().url()
    finally:
        running.stop()


@pytest.mark.parametrize("args", [[], ["-s", "7"], ["-s", "7", "-b"], ["-b", "-w", "1"]], ids=" ".join)
def test_all_lines(tmp_path, server, args):
    lines = [request(i, 1 + i % 3 // 2, id=f"id {i // 2}") if i % 5 else request(i) for i in range(200)]  # ids come twice
    done = infer(tmp_path, lines, server, *args)
    found = answers(tmp_path, len(lines))
    for i, line in enumerate(lines):
        check(found[i], line)
        assert found[i]["model_name"] == "m" and found[i]["model_version"] == "1"
        assert found[i]["id"] == line.get("id", found[i]["id"]) and found[i]["parameters"]["inference_id"]
    calls = int(done.stderr.split(" calls")[0].split()[-1])
    assert calls <= 30 if "-s" in args else calls == 200


def test_lines_that_are_no_requests(tmp_path, server):
    bad = {0: b"not JSON", 3: b"", 7: b'{"inputs":[{"name":"x","datatype":"FP32","data":[1,2]}]}', 8: b"[1]", 9: b"\xff\xfe",
           11: b'{"inputs":[]', 12: b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"data":[1]}]}',
           17: b'{"inputs":[{"name":"z","shape":[1,2],"datatype":"FP32","data":[1,2]}]}', 18: b'"' + b"x" * (65 << 20)}
    lines = [bad.get(i, request(i)) for i in range(20)]
    done = infer(tmp_path, lines, server, "-s", "5")
    found = answers(tmp_path, 20)
    assert {i for i, a in found.items() if "error" in a} == set(bad)
    assert all(a["error"]["status"] == "preprocessing error" and a["error"]["msg"] for a in found.values() if "error" in a)
    assert "shape" in found[7]["error"]["msg"] and "missing required input" in found[17]["error"]["msg"]
    assert "more than 64 MiB" in found[18]["error"]["msg"]
    for i in set(range(20)) - set(bad):
        check(found[i], lines[i])
    assert "20 lines done, 9 of them errors" in done.stderr


class Echo(other.Handler):
    """Answers with x; what it was asked is in `seen`."""
    seen = []
    gone = ()

    def do_POST(self):
        sent = json.loads(self.body())
        with self.server.lock:
            self.seen.append((self.path, dict(self.headers), sent))
        self.answer(sent)

    def answer(self, sent):
        x = sent["inputs"][0]
        self.say(200, {"model_name": "m", "id": sent["id"], "parameters": {"took": 3, "batch_index": 99}, "outputs": [
            {"name": "y", "datatype": x["datatype"], "shape": x["shape"], "data": x["data"], "parameters": {"content_type": "np"}}]})


class Poisoned(Echo):
    def answer(self, sent):
        if 13 in sent["inputs"][0]["data"]:
            self.say(500, {"detail": "ill will"})
        else:
            super().answer(sent)


class Sums(Echo):
    """One row, whatever comes."""
    def answer(self, sent):
        self.say(200, {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [sum(sent["inputs"][0]["data"])]}]})


class Busy(Echo):
    def answer(self, sent):
        if len(self.seen) <= 1:
            self.say(503, {"error": "busy"})
        else:
            super().answer(sent)


def x_only(i, rows=1, **more):
    return {"inputs": [{"name": "x", "shape": [rows], "datatype": "INT64", "data": [i] * rows, **more}]}


def serving(handler):
    handler = type(handler.__name__, (handler,), {"seen": []})
    return other.serving(handler), handler.seen


def address(running):
    return f"127.0.0.1:{running.server_address[1]}"


def test_one_line_of_a_call_is_bad(tmp_path):
    host, _ = serving(Poisoned)
    with host as running:
        infer(tmp_path, [x_only(i) for i in range(20)], address(running), "-s", "20", "-r", "1")
    found = answers(tmp_path, 20)
    assert found.pop(13)["error"]["msg"] == "ill will"
    assert all(a["outputs"][0]["data"] == [i] for i, a in found.items())


def test_answer_that_cannot_be_cut(tmp_path):
    host, seen = serving(Sums)
    with host as running:
        infer(tmp_path, [x_only(i) for i in range(20)], address(running), "-s", "4", "-w", "1")
    found = answers(tmp_path, 20)
    assert all(a["outputs"][0]["data"] == [i] for i, a in found.items())
    assert len(seen) == 21  # all after the first one are of one line


def test_what_goes_together(tmp_path):
    lines = [x_only(0), x_only(1, 3), x_only(2, parameters={"content_type": "np"}), x_only(3), b"{}", x_only(4),
             {"inputs": [{**x_only(5)["inputs"][0], "datatype": "INT32"}]}, {**x_only(6), "outputs": [{"name": "y"}]},
             {"inputs": [{"name": "x", "shape": [], "datatype": "INT64", "data": [7]}]}]
    host, seen = serving(Echo)
    with host as running:
        infer(tmp_path, lines, address(running), "-s", "9", "-w", "1")
    found = answers(tmp_path, 9)
    assert "error" in found.pop(4)
    assert [sent["inputs"][0]["data"] for _, _, sent in seen] == [[0, 1, 1, 1], [2], [3, 4], [5], [6], [7]]
    assert seen[1][2]["inputs"][0]["parameters"] == {"content_type": "np"} and seen[4][2]["outputs"] == [{"name": "y"}]
    assert found[1]["outputs"][0] == {"name": "y", "datatype": "INT64", "shape": [3], "data": [1, 1, 1],
                                      "parameters": {"content_type": "np"}}
    assert found[1]["parameters"] == {"batch_index": 1, "inference_id": seen[0][2]["id"], "took": 3}


def test_headers_paths_and_environment(tmp_path):
    host, seen = serving(Echo)
    with host as running:
        environment = {"MLSERVER_INFER_REQUEST_HEADERS": "X-One:1 X-Two:a:b", "MLSERVER_INFER_RETRIES": "1",
                       "MLSERVER_INFER_CONNECTION_TIMEOUT": "5"}
        infer(tmp_path, [{**x_only(1), "id": "a-1"}], f"http://{address(running)}/a/b/", "-H", "X-Id: a:b:c", "-H", "Host: models.local",
              "-vv", "--batch-interval", "0.01", "--batch-jitter=0.01")
        infer(tmp_path, [{**x_only(1), "id": "x\r\nx-bad: 1"}], address(running), env=environment)
        assert "'many' is not a whole number" in infer(
            tmp_path, [], address(running), env={"MLSERVER_INFER_WORKERS": "many"}, code=2).stderr
    (path, first, _), (_, second, sent) = seen
    assert path == "/a/b/v2/models/m/infer"
    assert (first["x-id"], first["host"], first["x-request-id"], first["seldon-puid"]) == ("a:b:c", "models.local", "a-1", "a-1")
    assert (second["x-one"], second["x-two"]) == ("1", "a:b")
    assert "x-bad" not in second and "x-request-id" not in second and sent["id"] == "x\r\nx-bad: 1"


def test_failing_hosts(tmp_path):
    host, seen = serving(Busy)
    with host as running:
        infer(tmp_path, [x_only(1)], address(running), "-r", "2")
        assert answers(tmp_path, 1)[0]["outputs"] and len(seen) == 2
        # One of two is not there: what fails on it goes to the other one.
        infer(tmp_path, [x_only(i) for i in range(50)], f"127.0.0.1:1,{address(running)}", "-r", "2", "-w", "4")
    assert not any("error" in a for a in answers(tmp_path, 50).values())
    done = infer(tmp_path, [x_only(i) for i in range(50)], "127.0.0.1:1", "-r", "1", "-s", "3")
    assert all("127.0.0.1:1" in a["error"]["msg"] for a in answers(tmp_path, 50).values())
    assert "50 lines done, 50 of them errors" in done.stderr and done.stderr.count("attempt") == 10




def test_workers(tmp_path):
    """No more calls at a time than that, whatever comes."""
    class Counts(Echo):
        now = most = 0
        full = threading.Event()

        def answer(self, sent):
            with self.server.lock:
                type(self).now += 1
                type(self).most = max(self.most, self.now)
                if self.now == 3:
                    self.full.set()
            assert self.full.wait(wait.PATIENCE)
            time.sleep(0.005)
            with self.server.lock:
                type(self).now -= 1
            super().answer(sent)

    with other.serving(Counts) as running:
        infer(tmp_path, [x_only(i) for i in range(60)], address(running), "-w", "3")
    assert len(answers(tmp_path, 60)) == 60 and Counts.most == 3


def test_under_its_name(tmp_path, server):
    os.symlink(BIN, tmp_path / "mlserver")
    infer(tmp_path, [request(1)], server, words=[str(tmp_path / "mlserver"), "infer"])
    check(answers(tmp_path, 1)[0], request(1))


def test_the_output_is_the_input(tmp_path):
    os.symlink("in.jsonl", tmp_path / "same.jsonl")
    for name in ("in.jsonl", "same.jsonl"):
        done = infer(tmp_path, [request(1)], "127.0.0.1:1", "-o", str(tmp_path / name), code=2)
        assert "is the input" in done.stderr
        assert json.loads((tmp_path / "in.jsonl").read_text()) == request(1)


def test_an_output_that_is_there_is_emptied(tmp_path, server):
    (tmp_path / "out.jsonl").write_text("x" * 100000)
    infer(tmp_path, [request(1)], server)
    check(answers(tmp_path, 1)[0], request(1))


@pytest.mark.parametrize("args, message, code", [
    (["-t", "grpc"], "only rest is spoken here", 2), (["-w", "0"], "0 is out of range", 2), (["-H", "nothing"], "expected 'Name: value'", 2),
    (["-H", "Content-Length: 3"], "cannot be set", 2), (["-o", "/nonexistent/x"], "cannot make /nonexistent/x", 1),
    (["-i", "/nonexistent/x"], "cannot open /nonexistent/x", 1), (["--timeout", "soon"], "expected a number", 2),
    (["-u", "ftp://h"], "are the known schemes", 2), (["-u", ","], "there is no host", 2), (["--batch-sizes", "1"], "did you mean --batch-size", 2)])
def test_wrong(tmp_path, args, message, code):
    assert message in infer(tmp_path, [], "127.0.0.1:1", *args, code=code).stderr
    assert not (tmp_path / "out.jsonl").exists()
