"""Graph files that someone made to hurt: each is refused with a text that names what is too much, and the server goes on."""
import os
import subprocess

import pytest

from lib import repo, wait
from lib.control import Control
from lib.held import resident
from lib.models.graphs import adders, node, workflow

MILLRACE = os.environ["MR_BIN"]
MIB = 1 << 20
MILLION = 1_000_000
SMALL = 'node { name: "n%d" model { name: "one" } output_map { key: "OUTPUT0" value: "t%d" } }\n'


def hostile():
    yield "many_nodes", workflow(*(SMALL % (i, i) for i in range(5000))), "5000 nodes, 0 switches and 0 gathers, allowed are 1 to 4096"
    yield "million", workflow(*(SMALL % (i, i) for i in range(MILLION))), "allowed are 1048576"
    yield "name", workflow(node("n" * 2 * MIB, "one")), "allowed are 1048576"
    yield "long_name", workflow(node("n" * 2000, "one")), "no name, or one of more than 1024 bytes"
    yield "nested", workflow(node("a", "one", extra="when: '" + "(" * 100_000 + "1" + ")" * 100_000 + "'")), "node 'a', 'when': an expression of 200001 bytes; at most 4096 are allowed"
    yield "parentheses", workflow(node("a", "one", extra="when: '" + "(" * 2000 + "1" + ")" * 2000 + "'")), "node 'a', 'when'"
    yield "long_condition", workflow(node("a", "one", extra="when: '" + " && ".join(["INPUT0[0] > 1"] * 40_000) + "'")), "node 'a', 'when': an expression of 679996 bytes"
    yield "weights", workflow('node { name: "a" split { ' + "".join(f'variant {{ name: "v{i}" model {{ name: "one" }} weight: 1e308 }} ' for i in range(2)) +
                              '} input_map { key: "INPUT0" value: "INPUT0" } output_map { key: "OUTPUT0" value: "OUTPUT0" } }'), "weight"


def test_load_of_hostile_graphs(models, start):
    adders(models, one=1)
    wanted = {}
    for name, text, error in hostile():
        repo.add(models, name, text)
        wanted[name] = error
    server = start(models, "--default-warmup-time=0", mode="explicit")
    with Control(server) as control:
        control.load("one").ok()
        before = resident(server)
        for name, error in wanted.items():
            for _ in range(3):
                assert error in control.load(name).error, name
        assert control.answer("one", (1,))[0] == [2]
        if wait.SLOW == 1:  # a sanitizer keeps what was freed
            assert resident(server) - before < 64 * MIB


@pytest.mark.more
@pytest.mark.parametrize("verb", ["check", "draw"])
def test_commands_with_a_million_nodes(tmp_path, verb):
    folder = repo.add(tmp_path, "million", workflow(*(SMALL % (i, i) for i in range(MILLION))))
    done = subprocess.run([MILLRACE, "workflow", verb, str(folder)], capture_output=True, text=True, timeout=wait.PATIENCE)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "config.pbtxt" in done.stderr, done
