"""The log: one line per event, text or JSON, the request id in every line about a request, live settings."""
import json
import re
import signal

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb

from lib import repo, wait
from lib.grpcraw import Grpc
from lib.rest import Rest

ODD_IDS = ['plain-7', 'new\nline {"event":"forged"}', 'quote"back\\slash', "tab\tbell\a", "ünïcödé", "x" * 5000]


@pytest.fixture
def logged(models, start):
    repo.add(models, "m", backend="fault")
    return lambda *options, **kw: start(models, *options, **kw)


def fail(server, id, **parameters):
    """A request that fails in the backend."""
    with Rest(server.http) as rest:
        return rest.infer("m", [("INPUT0", "INT32", [1], [1])], id=id, parameters={"fail_status": "INTERNAL", **parameters})


def settings(server, change=None):
    with Rest(server.http) as rest:
        reply = rest.get("/v2/logging") if change is None else rest.post("/v2/logging", change)
        return reply.ok().json()


def test_json_lines(logged):
    server = logged("--log-verbose=1")
    fail(server, "abc")
    server.stop()
    lines = server.err().splitlines()
    assert lines
    for line in lines:
        event = json.loads(line)
        assert {"ts", "level", "event", "msg"} <= set(event), line
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(Z|[+-]\d\d:?\d\d)$", event["ts"]), line
        assert event["level"] in ("error", "warning", "info", "debug")
        assert re.match(r"[a-z0-9_.]+$", event["event"])


FORMS = {
    "text": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z [EWID] [a-z0-9_.]+ .*\(\w+\.c:\d+\)",
    # As Triton writes them; the message is a JSON string.
    "default": r'[EWI](?P<month>\d\d)\d\d \d\d:\d\d:\d\d\.\d{6} (?P<pid>\d+) \w+\.c:\d+\] (?P<text>".*")',
    "ISO8601": r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ [EWI] (?P<pid>\d+) \w+\.c:\d+\] (?P<text>".*")'}


@pytest.mark.parametrize("form", FORMS)
def test_text_lines(logged, form):
    server = logged("--log-verbose=1", log=form)
    fail(server, 'a"b\\c')
    server.stop()
    messages = []
    for line in server.err().splitlines():
        m = re.fullmatch(FORMS[form], line)
        assert m, line
        if form != "text":
            assert m["pid"] == str(server.process.pid)
            messages.append(json.loads(m["text"]))
    if form != "text":
        assert any(t.startswith("serve.ready ") for t in messages)
        assert any('a\\"b' in t for t in messages), "the request's id, quoted once by the message"


def test_the_format_changes_while_it_runs(logged):
    server = logged("--log-verbose=1", log="text")
    for form in ("default", "ISO8601", "json", "text"):
        assert settings(server, {"log_format": form})["log_format"] == form
        before = len(server.err())
        fail(server, "changed")
        wait.until(lambda: "\n" in server.err()[before:], "a line")
        line = server.err()[before:].splitlines()[0]
        assert json.loads(line) if form == "json" else re.fullmatch(FORMS[form], line), line


@pytest.mark.parametrize("id", ODD_IDS, ids=lambda i: repr(i[:12]))
@pytest.mark.parametrize("form", ["json", "text"])
def test_request_id_is_in_the_line_and_forges_none(logged, id, form):
    server = logged("--log-verbose=2", log=form)
    assert fail(server, id).status == 500
    mark = json.dumps(id)[1:10]
    wait.until(lambda: mark in server.err() or id[:8] in server.err(), "a line with the request's id")
    server.stop()
    if form == "json":
        events = server.events()
        assert len(events) == len(server.err().splitlines()), "every line is whole"
        assert not [e for e in events if e["event"] == "forged"]
        assert any(id[:8] in json.dumps(e, ensure_ascii=False) or mark in json.dumps(e) for e in events)
    else:
        assert not [line for line in server.err().splitlines() if line.startswith("line {")]


def test_events_of_a_life(logged):
    server = logged()
    server.stop()
    events = [e["event"] for e in server.events()]
    for event in ("model.ready", "serve.listen", "serve.ready", "serve.stopping", "serve.stopped"):
        assert event in events, event
    listens = [str(e) for e in server.events() if e["event"] == "serve.listen"]
    assert any(str(server.http) in m for m in listens) and any(str(server.grpc) in m for m in listens)


def test_pairs_are_members(logged):
    """Numbers as numbers; whatever a client sends stays within its own member."""
    server = logged("--log-verbose=1")
    with Rest(server.http) as rest:
        rest.infer("m", [("INPUT0", "INT32", [2], [1, 2])], id='a "b" \\ \n\u0007 model=x').ok()
        rest.infer("x%22%20status=OK", [("INPUT0", "INT32", [2], [1])], id="level=error msg=no ts=1")
    wait.until(lambda: any(e["event"] == "request.refused" for e in server.events()), "both lines")
    done = next(e for e in server.events() if e["event"] == "request.done")
    assert (done["req"], done["model"], done["version"], done["rows"]) == ('a "b" \\ \n\u0007 model=x', "m", 1, 0)
    assert done["total_us"] >= 0 and done["msg"] == "" and done["level"] == "info"
    refused = next(e for e in server.events() if e["event"] == "request.refused")
    assert (refused["req"], refused["level"]) == ("level=error msg=no ts=1", "info")
    assert refused["protocol"] == "rest" and refused["status"] in ("NOT_FOUND", "INVALID") and "request id" in refused["msg"] + "request id"
    assert set(refused) == {"ts", "level", "event", "req", "model", "protocol", "peer", "status", "msg", "src"}


def test_log_file_and_rotation(logged, tmp_path):
    path = tmp_path / "millrace.log"
    path.write_text("old line\n")
    server = logged(f"--log-file={path}")
    wait.until(lambda: "serve.ready" in path.read_text(), "the log to be in the file")
    assert path.read_text().startswith("old line\n"), "appended"
    assert "serve.ready" not in server.err()
    path.rename(tmp_path / "millrace.log.1")
    server.signal(signal.SIGHUP)
    wait.until(path.exists, "the file to be opened anew")
    server.stop()
    assert "serve.stopped" in path.read_text()


def test_log_file_that_cannot_be(logged, tmp_path):
    server = logged(f"--log-file={tmp_path}/nothing/here.log", ready=False)
    server.checked = True
    assert server.wait_exit() in (1, 2)
    assert "here.log" in server.err()


@pytest.mark.parametrize("options, missing", [(["--log-info=false"], "serve.ready"), (["--log-level=error"], "serve.ready")])
def test_levels(logged, options, missing):
    server = logged(*options)
    server.stop()
    assert missing not in server.err()


# ---- /v2/logging ----

def test_get(logged):
    server = logged(log="text")
    assert settings(server) == {"log_file": "", "log_info": True, "log_warning": True, "log_error": True,
                                "log_verbose_level": 0, "log_format": "text"}


@pytest.mark.parametrize("change", [{"log_verbose_level": 3}, {"log_info": False}, {"log_warning": False, "log_error": False},
                                    {"log_format": "ISO8601"}, {}], ids=str)
def test_change(logged, change):
    server = logged(log="text")
    before = settings(server)
    assert settings(server, change) == {**before, **change}
    assert settings(server) == {**before, **change}


def test_changes_act_at_once(models, start):
    repo.add(models, "a")
    server = start(models, mode="explicit")
    with Rest(server.http) as rest:
        def loaded(expected):
            rest.post("/v2/repository/models/a/load").ok()
            rest.post("/v2/repository/models/a/unload").ok()
            return sum(e["event"] == "model.ready" for e in server.events()) == expected

        assert loaded(1)
        settings(server, {"log_info": False})
        assert loaded(1)
        settings(server, {"log_info": True})
        assert loaded(2)


def test_null_changes_nothing(logged):
    server = logged(log="text")
    before = settings(server)
    assert settings(server, dict.fromkeys(["log_file", "log_info", "log_verbose_level", "log_format"])) == before


@pytest.mark.parametrize("body, status", [
    ({"log_file": "/tmp/x.log"}, 501), ({"nosuch": 1}, 400), ({"log_info": "yes"}, 400), ({"log_info": 1}, 400),
    ({"log_verbose_level": -1}, 400), ({"log_verbose_level": "1"}, 400), ({"log_verbose_level": 1.5}, 400),
    ({"log_verbose_level": 2**32}, 400), ({"log_format": "xml"}, 400), ({"log_format": 1}, 400), ([], 400), ("x", 400), ("{", 400)], ids=repr)
def test_bad_change(logged, body, status):
    server = logged(log="text")
    before = settings(server)
    with Rest(server.http) as rest:
        reply = rest.post("/v2/logging", body)
    assert reply.status == status and reply.error
    assert settings(server) == before, "nothing of it was done"


def test_half_bad_change_does_nothing(logged):
    server = logged(log="text")
    with Rest(server.http) as rest:
        assert rest.post("/v2/logging", {"log_info": False, "log_format": "xml"}).status == 400
    assert settings(server)["log_info"] is True


def test_over_grpc(logged):
    server = logged(log="text")
    with Grpc(server.url("grpc")) as client:
        m = pb.LogSettingsRequest()
        m.settings["log_verbose_level"].uint32_param = 2
        m.settings["log_info"].bool_param = False
        answer = client.stub.LogSettings(m, timeout=wait.PATIENCE)
        assert answer.settings["log_verbose_level"].uint32_param == 2 and answer.settings["log_info"].bool_param is False
        assert settings(server)["log_verbose_level"] == 2
        for key, field, bad, code in (("log_file", "string_param", "/tmp/x", grpc.StatusCode.UNIMPLEMENTED),
                                      ("nosuch", "bool_param", True, grpc.StatusCode.INVALID_ARGUMENT),
                                      ("log_info", "string_param", "x", grpc.StatusCode.INVALID_ARGUMENT),
                                      ("log_format", "string_param", "xml", grpc.StatusCode.INVALID_ARGUMENT)):
            m = pb.LogSettingsRequest()
            setattr(m.settings[key], field, bad)
            with pytest.raises(grpc.RpcError) as e:
                client.stub.LogSettings(m, timeout=wait.PATIENCE)
            assert e.value.code() == code, key
