"""Where models of a mesh may be: rules for types, pins, minimum and maximum of copies."""
import json
import re
import signal
import threading

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.grpcraw import Grpc
from lib.rest import Rest
from lib.services.mesh import X, answers, ask, loads

MESH = "millrace.mesh_"


def add(models, name, **parameters):
    repo.add(models, name, repo.config(parameters={MESH + k: v for k, v in parameters.items()}))


def holders(servers, model):
    """Which of them have it loaded."""
    with Rest(servers[0].http) as r:
        copies = r.get(f"/v2/mesh/models/{model}").json()["copies"]
    have = {c["instance"] for c in copies if c["state"] == "LOADED"}
    return [i for i, s in enumerate(servers) if re.search(r"--mesh-id=(\S+)", " ".join(s.command)).group(1) in have]


def labelled(i):
    return [["--mesh-label=cpu"], ["--mesh-label=cpu", "--mesh-label=gpu"], ["--mesh-label=cpu"]][i]


@pytest.mark.parametrize("form", ["text", "file"])
def test_rules_decide_by_type(fleet, models, tmp_path, form):
    rules = {"big": {"required": ["cpu", "gpu"]}, "nowhere": {"required": ["tpu"]}, "_default": {"preferred": ["gpu"]}}
    text = json.dumps(rules)
    if form == "file":
        (tmp_path / "rules.json").write_text(text)
        text = tmp_path / "rules.json"
    for i in range(4):
        add(models, f"b{i}", type="big")
    add(models, "n", type="nowhere")
    servers = fleet(models, models, models, options=[f"--mesh-constraints={text}"], options_of=labelled)
    for i in range(4):
        answers(servers[i % 3], f"b{i}")
        wait.until(lambda: holders(servers, f"b{i}") == [1], "the copy where the labels are")
    reply = ask(servers[0], "n")
    text = "There are no running instances that meet the label requirements of type nowhere: [tpu]"
    assert reply.status == 503 and reply.error == f"model 'n': {text}"
    with Rest(servers[1].http) as r:
        got = r.post("/v2/mesh/models/n/load").ok().json()
        assert (got["status"], got["reason"], got["copies"]) == ("LOADING_FAILED", text, [])
        r.post("/v2/mesh/vmodels/v/set", {"target": "b0"}).ok()
        got = r.post("/v2/mesh/vmodels/v/set", {"target": "n", "sync": True}).ok().json()
        assert (got["status"], got["active"], got["target_status"]) == ("TRANSITION_FAILED", "b0", "LOADING_FAILED")


@pytest.mark.parametrize("text, says", [
    ('{"a": {"required": "x"}}', "--mesh-constraints"), ("{", "--mesh-constraints"), ("/nonexistent/rules", "/nonexistent/rules: No such file"),
    ("/dev/zero", "/dev/zero is not a regular file"),
    ('{"a": [1]}', "--mesh-constraints")])
def test_wrong_rules_are_refused(registry, start, models, text, says):
    repo.add(models, "m")
    server = start(models, f"--mesh={registry}", f"--mesh-constraints={text}", mode=None, ready=False)
    assert server.wait_exit() == 1
    server.end_anyhow()
    assert says in server.err()


def test_minimum_is_loaded_without_a_request_and_restored_after_a_death(fleet, models):
    add(models, "m", min_copies="2")
    servers = fleet(models, models, models)
    wait.until(lambda: len(holders(servers, "m")) == 2, "two copies")
    dead = holders(servers, "m")[0]
    servers[dead].signal(signal.SIGKILL)
    servers[dead].wait_exit()
    servers[dead].end_anyhow()
    left = [s for i, s in enumerate(servers) if i != dead]
    wait.until(lambda: len(holders(left, "m")) == 2, "two copies again")


@pytest.mark.more
def test_versions_of_a_model_are_counted_together(fleet, models):
    """One that was asked more often than another of the same model does not count as asked again and again."""
    repo.add(models, "m", repo.config(extra="version_policy { all { } }"), versions=(1, 2))
    for name in ("busy", "late"):
        repo.add(models, name)
    servers = fleet(models, models, options=["--mesh-scale-up-rate=300"])
    with Rest(servers[0].http) as r:
        for _ in range(40):
            assert r.infer("m/versions/1", X).status == 200
    # Rates are looked at each ten seconds: once for each of these.
    for name in ("busy", "late"):
        def more():
            for _ in range(10):
                answers(servers[0], name)
            return len(holders(servers, name)) == 2
        wait.until(more, "another copy")
    assert len(holders(servers, "m")) == 1


def test_requests_that_wait_get_another_copy(fleet, models):
    """A few slow requests at a time are far less than 2,000 a minute."""
    repo.add(models, "slow", repo.config(parameters={"execute_delay_ms": 100}, extra="instance_group [ { count: 1 kind: KIND_CPU } ]"))
    servers = fleet(models, models)
    answers(servers[0], "slow")
    at = wait.until(lambda: holders(servers, "slow"), "the copy to be known")
    assert len(at) == 1
    enough = threading.Event()

    def go_on():
        while not enough.is_set():
            ask(servers[at[0]], "slow")
    clients = [threading.Thread(target=go_on) for _ in range(24)]
    for c in clients:
        c.start()
    try:
        wait.until(lambda: len(holders(servers, "slow")) == 2, "another copy")
    finally:
        enough.set()
        for c in clients:
            c.join()


def test_pinned_stays_when_there_are_more_models_than_room(fleet, models):
    add(models, "pinned", pinned="true")
    for i in range(12):
        add(models, f"m{i}")
    servers = fleet(models, models, options=["--mesh-capacity=4M"])
    answers(servers[0], "pinned")
    wait.until(lambda: holders(servers, "pinned"), "the copy to be known")
    holder = holders(servers, "pinned")
    for _ in range(3):
        for i in range(12):
            answers(servers[i % 2], f"m{i}")
    assert any(e["event"] == "model.unloaded" for s in servers for e in s.events())
    assert holders(servers, "pinned") == holder
    assert not any(e["event"] == "model.unloaded" and e["model"] == "pinned" for s in servers for e in s.events())


def test_load_that_fails_has_the_same_status_at_any_server(fleet, models):
    """Whether it failed for this request, here or at another server, or before it."""
    for i in range(3):
        add(models, f"pinned{i}", type="big", pinned="true")
    for i in range(4):
        add(models, f"m{i}", type="big")
    servers = fleet(models, models, options=['--mesh-constraints={"big": {"required": ["gpu"]}}', "--mesh-capacity=4M"],
                    options_of=lambda i: ["--mesh-label=gpu"] * i)
    for i in range(3):
        answers(servers[0], f"pinned{i}")
    for turn in range(2):
        for i in range(4):
            with Grpc(servers[(turn + i) % 2].url("grpc")) as g, pytest.raises(grpc.RpcError) as e:
                g.infer(grpcraw.int32(f"m{i}", [1, 2, 3]))
            assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert e.value.details() == f"model 'm{i}': there is no room: what is loaded may not be evicted"


def test_maximum_of_all_models_holds(fleet, models):
    add(models, "m")
    servers = fleet(models, models, models, options=["--mesh-max-copies=1"])
    for _ in range(3):
        for s in servers:
            answers(s, "m")
    wait.until(lambda: len(holders(servers, "m")) == 1, "the copy to be known")
    assert sum(loads(s, "m") for s in servers) == 1


def test_wrong_numbers_are_named_and_left_out(fleet, models):
    add(models, "m", min_copies="many")
    [server] = fleet(models)
    assert any(e["event"] == "mesh.register" and "millrace.mesh_min_copies" in str(e) for e in server.events())


def test_more_at_least_than_at_most_is_refused(registry, start, models):
    repo.add(models, "m")
    server = start(models, f"--mesh={registry}", "--mesh-min-copies=3", "--mesh-max-copies=2", mode=None, ready=False)
    assert server.wait_exit() == 1
    server.end_anyhow()
    assert "--mesh-min-copies is 3, more than --mesh-max-copies, 2" in server.err()


def test_rules_are_read_again(fleet, models, tmp_path):
    for i in range(2):
        add(models, f"n{i}", type="new")
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps({"new": {"required": ["tpu"]}}))
    [server] = fleet(models, options=[f"--mesh-constraints={rules}", "--mesh-label=gpu"])
    assert ask(server, "n0").status == 503

    def replace(text, says):
        after(lambda: repo.write(rules, text), says)

    def after(change, says):
        before = sum(e["event"] == "mesh.constraints" for e in server.events())
        change()
        wait.until(lambda: sum(e["event"] == "mesh.constraints" for e in server.events()) > before, "the server to read the rules")
        assert says in [e for e in server.events() if e["event"] == "mesh.constraints"][-1]["msg"]

    replace("{", "what was in force stays")
    after(lambda: repo.change_rights(rules), "what was in force stays")  # it may be what was wrong
    assert ask(server, "n0").status == 503
    replace(json.dumps({"new": {"required": ["gpu"]}}), "in force")
    answers(server, "n0")
    replace(json.dumps({"new": {"required": ["tpu"]}}), "in force")
    answers(server, "n0")  # it is there, and stays
    assert ask(server, "n1").status == 503


def test_device_memory_decides_where_servers_say_what_they_have(fleet, models):
    for i in range(4):
        add(models, f"d{i}", device_bytes=str(10 << 20))
    add(models, "huge", device_bytes=str(1 << 40))
    add(models, "plain")
    servers = fleet(models, models, options_of=lambda i: [f"--mesh-device-capacity={[1, 25][i]}M"])
    answers(servers[0], "plain")
    for i in range(4):
        answers(servers[i % 2], f"d{i}")
        wait.equal(lambda: holders(servers, f"d{i}"), [1], f"the servers of d{i}")
        wait.until(lambda: sum(len(holders(servers, f"d{k}")) for k in range(4)) <= 2, "no more than two that have room")
    assert holders(servers, "plain")
    reply = ask(servers[0], "huge")
    assert reply.status >= 400 and "device memory" in reply.error
