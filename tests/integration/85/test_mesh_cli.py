"""`millrace mesh` as a user types it, against real servers."""
import contextlib
import json
import subprocess

import pytest

from lib import repo, wait
from lib.server import BIN, clean_environment
from lib.services.mesh import answers
from lib.services.ports import quiet_port


def millrace(server, *args, code=0):
    done = subprocess.run([BIN, "mesh", *map(str, args), "-u", server.url()], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == code, f"{args}: {done.returncode}\n{done.stdout}{done.stderr}\n{server.describe()}"
    return done.stdout if code == 0 else done.stderr


@contextlib.contextmanager
def watching(server, *args):
    watch = subprocess.Popen([BIN, "mesh", "watch", "--json", *args, "-u", server.url()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=clean_environment())
    try:
        yield watch
    finally:
        watch.kill()
        watch.communicate()


def rows(text):
    return [line.split("\t") for line in text.splitlines()]


def three_models(fleet, models, **kw):
    for i in range(3):
        repo.add(models, f"m{i}", repo.config())
    return fleet(models, models, **kw)


@pytest.fixture
def servers(fleet, models):
    return three_models(fleet, models)


def test_status_of_the_fleet(servers):
    answers(servers[0], "m0")
    for server in servers:
        peers = {row[0]: row for row in rows(millrace(server, "status"))}
        assert set(peers) == {"s0", "s1"} and all(p[3] == "there" for p in peers.values())
        wait.until(lambda: sum(int(r[4]) for r in rows(millrace(server, "status"))) == 1, "the copy to be known")
    state = json.loads(millrace(servers[1], "status", "--json"))
    assert state["id"] == "s1" and state["joined"] and len(state["peers"]) == 2
    table = millrace(servers[0], "status", "--output", "table")
    assert "SERVER" in table and "models 3" in table


def test_list_and_status_of_models(servers):
    answers(servers[0], "m1")
    wait.until(lambda: rows(millrace(servers[1], "status", "m1"))[0][1] == "LOADED", "the model to be seen as loaded")
    listed = rows(millrace(servers[1], "list"))
    assert [r[:2] for r in listed] == [["m0", "NOT_LOADED"], ["m1", "LOADED"], ["m2", "NOT_LOADED"]]
    assert listed[1][5] in ("s0", "s1") and listed[0][5] == "-"
    assert [r[0] for r in rows(millrace(servers[0], "list", "m2"))] == ["m2"]
    assert [m["id"] for m in json.loads(millrace(servers[0], "list", "--json"))["models"]] == ["m0", "m1", "m2"]


def test_register_load_unregister(servers):
    strange = "a/b c%41ü?&x"
    line = rows(millrace(servers[0], "register", strange, "--type", "t", "--path", "/p", "--min-copies", 0, "--max-copies", 2, "--pinned", "--size", "2MiB"))[0]
    assert line == [strange, "NOT_LOADED", "t", str(2 << 20), "0..2 pinned", "-"]
    wait.until(lambda: strange in millrace(servers[1], "list", "a/"), "the other server to know it")
    again = json.loads(millrace(servers[1], "register", strange, "--type", "t", "--path", "/p", "--json"))
    assert again["id"] == strange and again["path"] == "/p" and again["pinned"]
    assert "different attribute values" in millrace(servers[0], "register", strange, "--type", "u", code=1)
    assert millrace(servers[0], "unregister", strange) == f"{strange} unregistered\n"
    assert json.loads(millrace(servers[0], "unregister", strange, "--json")) == {}
    assert "not in the mesh" in millrace(servers[0], "status", strange, code=1)
    assert rows(millrace(servers[0], "load", "m2"))[0][:2] == ["m2", "LOADED"]


def test_vmodels(servers):
    assert rows(millrace(servers[0], "vmodel", "set", "v", "m0", "--owner", "me"))[0] == ["v", "DEFINED", "m0", "m0", "me"]
    assert rows(millrace(servers[0], "vmodel", "set", "v", "m1", "--owner", "me", "--wait"))[0][2] == "m1"
    assert "owner" in millrace(servers[0], "vmodel", "set", "v", "m1", "--owner", "you", code=1)
    assert rows(millrace(servers[0], "vmodel", "show", "v", "--owner", "me"))[0][0] == "v"
    assert "not in the mesh" in millrace(servers[0], "vmodel", "show", "v", "--owner", "you", code=1)
    millrace(servers[0], "vmodel", "delete", "v", "--owner", "you")
    assert [r[0] for r in rows(millrace(servers[0], "vmodel", "list"))] == ["v"]
    assert "v deleted" in millrace(servers[0], "vmodel", "delete", "v")
    assert millrace(servers[0], "vmodel", "list") == ""


def test_model_that_does_not_load_is_an_error_for_who_waits(servers, models):
    says = "the model 'lost' could not be loaded"
    assert says in millrace(servers[0], "register", "lost", "--type", "t", "--load", "--wait", code=1)
    assert says in millrace(servers[0], "load", "lost", "--json", code=1)
    assert rows(millrace(servers[0], "status", "lost"))[0][1] == "LOADING_FAILED"
    assert says in millrace(servers[0], "vmodel", "set", "w", "lost", "--load", "--wait", code=1)
    millrace(servers[0], "vmodel", "set", "v", "m0", "--load", "--wait")
    assert f"{says}, 'm0' answers on" in millrace(servers[0], "vmodel", "set", "v", "lost", "--wait", code=1)


def test_watch_shows_what_changes(servers):
    """Everything at first, then changes: a load, a model that goes."""
    with watching(servers[0]) as watch:
        seen = [json.loads(watch.stdout.readline()) for _ in range(3)]
        assert {m["id"]: m["status"] for m in seen} == {f"m{i}": "NOT_LOADED" for i in range(3)}
        answers(servers[1], "m1")
        change = json.loads(watch.stdout.readline())
        while change["status"] != "LOADED":
            assert change["id"] == "m1" and change["status"] == "LOADING"
            change = json.loads(watch.stdout.readline())
        millrace(servers[0], "register", "x", "--type", "t")
        assert json.loads(watch.stdout.readline())["id"] == "x"
        millrace(servers[0], "unregister", "x")
        assert json.loads(watch.stdout.readline())["status"] == "NOT_FOUND"


def test_watch_goes_on_after_the_server_was_away(fleet, models, start):
    """What has changed meanwhile is shown, what has not is not shown again."""
    port = quiet_port()
    servers = three_models(fleet, models, options_of=lambda i: [f"--http-port={port}"] if i else [])
    with watching(servers[1], "--interval", "50ms") as watch:
        assert sorted(json.loads(watch.stdout.readline())["id"] for _ in range(3)) == ["m0", "m1", "m2"]
        servers[1].stop()
        assert "is lost, trying again" in watch.stderr.readline()
        millrace(servers[0], "register", "x", "--type", "t")
        options = [o for o in servers[1].command if str(o).startswith("--mesh")]
        start(models, *options, f"--http-port={port}", mode=None)
        line = watch.stdout.readline()
        assert json.loads(line)["id"] == "x", line


def test_watch_of_a_prefix_ends_with_a_count(servers):
    assert [r[1] for r in rows(millrace(servers[0], "watch", "m2", "--count", 1))] == ["m2"]


def test_top_as_lines(servers):
    lines = rows(millrace(servers[0], "top", "--interval", "10ms", "--count", 3))
    assert [r[0] for r in lines] == ["s0", "s1"] * 3


def test_drain_moves_models_and_the_server_goes_on(servers):
    for i in range(3):
        answers(servers[0], f"m{i}")
    assert "drains" in millrace(servers[0], "drain")

    def holders():
        return {c["instance"] for m in json.loads(millrace(servers[1], "list", "--json"))["models"] for c in m["copies"] if c["state"] == "LOADED"}

    wait.until(lambda: holders() == {"s1"}, "the models to be at the other server")
    for server in servers:
        for i in range(3):
            answers(server, f"m{i}")


@pytest.mark.parametrize("args, says", [
    ([], "what? One of"), (["lists"], "'lists' is not one of"), (["register"], "register takes a model"),
    (["vmodel", "set", "v"], "vmodel set takes a vmodel and a model"), (["vmodel"], "'vmodel' is not one of")])
def test_wrong_words(args, says):
    done = subprocess.run([BIN, "mesh", *args], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_server_without_a_mesh(server):
    for args in (["status"], ["list"], ["watch"], ["top"], ["drain"], ["unregister", "x"]):
        assert "--mesh" in millrace(server, *args, code=1)


def test_nobody_there(tmp_path):
    done = subprocess.run([BIN, "mesh", "status", "-u", f"unix:{tmp_path}/none"], capture_output=True, text=True, timeout=wait.PATIENCE, env=clean_environment())
    assert done.returncode == 1 and "cannot connect" in done.stderr
