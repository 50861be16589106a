"""Random graphs whose nodes are models of this server and of another one: what they give is what a plain interpreter gives."""
import random

import numpy as np
import pytest

from lib import repo
from lib.models.graphs import Clients, adders, node, vector, workflow

GRAPHS = 60
NONE, LOST = -1, 7  # what outputs without a value have, and what nodes give that fail
NUMBERS = {"one": 1, "ten": 10, "hundred": 100}


class Failed(Exception):
    pass


class Graph:
    """Nodes in an order in which they can run. Each is its text, and a function of the tensors before it."""

    def __init__(self, seed, addresses):
        self.rng = random.Random(seed)
        self.addresses = addresses
        self.nodes, self.texts, self.tensors = [], [], ["INPUT0"]
        for i in range(self.rng.randint(1, 7)):
            self.rng.choice((self.add_node, self.add_node, self.add_switch, self.add_rows))(f"n{i}", f"T{i}")
            self.tensors.append(f"T{i}")

    def chance(self, percent):
        return self.rng.random() * 100 < percent

    def model(self, name):
        """The text of a model, here or there."""
        remote = self.rng.choice(("", *self.addresses))
        return f'model {{ name: "{name}" {f"remote: {chr(34)}{remote}{chr(34)}" if remote else ""} }}'

    def step(self, name, source, made, is_branch_of_rows=False):
        """A node that adds, or fails. Returns its text without conditions, and what it gives for numbers, or None."""
        number = self.rng.choice(list(NUMBERS))
        fails = self.chance(25)
        policy = self.rng.choice(("FAIL", "SKIP", "DEFAULT", "FALLBACK")) if fails or self.chance(30) else ""
        if fails and policy == "FAIL" and self.chance(70):
            policy = "SKIP"
        is_each = self.chance(30)
        spare = self.rng.choice(list(NUMBERS))
        extra = [f"on_error: {policy}" if policy else "",
                 f'default {{ tensor: "{made}" int64: {LOST} }}' if policy == "DEFAULT" else "",
                 f"fallback {{ {self.model(spare)} }}" if policy == "FALLBACK" else "",
                 f'foreach {{ over: "{source}" max: 100 }}' if is_each else "",
                 "retry { attempts: 2 }" if self.chance(20) else "",
                 "hedge { after_ms: 1 max_extra_percent: 100 }" if self.chance(20) else "",
                 "timeout_ms: 100000" if self.chance(20) else ""]
        what = self.model("bad" if fails else number)
        if not fails and self.chance(20):
            what = "split { " + " ".join(f'variant {{ name: "{v}" {self.model(number)} weight: 1 }}' for v in "ab") + " }"
        text = node(name, "", {"INPUT0": source}, {"OUTPUT0": made}, " ".join(extra)).replace('model { name: "" }', what)

        def run(numbers):
            if not fails or (is_each and not numbers):
                return [x + NUMBERS[number] for x in numbers]
            if policy in ("", "FAIL"):
                raise Failed
            if policy == "FALLBACK":
                return [x + NUMBERS[spare] for x in numbers]
            value = LOST if policy == "DEFAULT" else NONE
            if is_branch_of_rows:
                return [value] * len(numbers)
            return None if policy == "SKIP" else [value] * (len(numbers) if is_each else 1)
        return text, run, is_each

    def ran(self, got, made, source, is_each, run):
        if got[source] is None:
            return None
        if is_each and got[source]:  # a default has as many rows as there were to be
            self.rows[made] = len(got[source])
        return run(got[source])

    def condition(self):
        """Over a request: its text, and a function of the tensors."""
        t, k = self.rng.choice(self.tensors), self.rng.randint(0, 2)
        return f"size({t}) > 0 and {t}[0] % 3 != {k}", lambda got: bool(got[t]) and got[t][0] % 3 != k

    def add_node(self, name, made):
        source = self.rng.choice(self.tensors)
        text, run, is_each = self.step(name, source, made)
        when, holds = self.condition() if self.chance(40) else ("", lambda got: True)
        self.texts.append(text.replace("output_map", f'when: "{when}" output_map', 1) if when else text)
        self.nodes.append((made, lambda got: self.ran(got, made, source, is_each, run if holds(got) else lambda numbers: None)))

    def add_switch(self, name, made):
        cases, text = [], f'switch {{ name: "{name}" '
        for k in range(self.rng.randint(1, 3)):
            source = self.rng.choice(self.tensors)
            body, run, is_each = self.step(f"{name}_{k}", source, made)
            when, holds = self.condition()
            is_last = k > 0 and self.chance(30)
            self.texts.append(body)
            text += f'else {{ node: "{name}_{k}" }}' if is_last else f'case {{ when: "{when}" node: "{name}_{k}" }} '
            cases.append((source, (lambda got: True) if is_last else holds, run, is_each))
            if is_last:
                break
        self.texts.append(text + " }\n")

        def choose(got):
            chosen = next((c for c in cases if c[1](got)), None)
            return self.ran(got, made, chosen[0], chosen[3], chosen[2]) if chosen else None
        self.nodes.append((made, choose))

    def add_rows(self, name, made):
        source = self.rng.choice(self.tensors)
        cases, text = [], f'switch {{ name: "{name}" per: ROW input: "{source}" '
        for k in range(self.rng.randint(1, 3)):
            body, run, _ = self.step(f"{name}_{k}", source, made, True)
            self.texts.append(body)
            text += f'case {{ when: "{source} % 4 == {k}" node: "{name}_{k}" }} '
            cases.append(run)
        self.texts.append(text + " }\n")

        def divide(got):
            if got[source] is None:
                return None
            parts = [iter(run(part) if (part := [x for x in got[source] if x % 4 == k]) else []) for k, run in enumerate(cases)]
            return [next(parts[x % 4]) if x % 4 < len(parts) else NONE for x in got[source]]
        self.nodes.append((made, divide))

    def config(self):
        defaults = " ".join(f'default {{ tensor: "{t}" int64: {NONE} }}' for t in self.tensors[1:])
        return workflow(*self.texts, extra=defaults, outputs=[repo.tensor(t) for t in self.tensors[1:]])

    def interpret(self, numbers):
        got, self.rows = {"INPUT0": numbers}, {}
        for made, run in self.nodes:
            got[made] = run(got)
        return {t: [NONE] * self.rows.get(t, 1) if got[t] is None else got[t] for t in self.tensors[1:]}


@pytest.mark.more
def test_random_graphs(models, start, tmp_path):
    for folder in (models, tmp_path / "there"):
        adders(folder, **NUMBERS)
        repo.add(folder, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    there = start(tmp_path / "there", "--default-warmup-time=0")
    graphs = [Graph(seed, [f"http://{there.url('http')}", f"grpc://{there.url('grpc')}"]) for seed in range(GRAPHS)]
    for i, graph in enumerate(graphs):
        repo.add(models, f"g{i}", graph.config())
    clients = Clients(start(models, "--default-warmup-time=0"))
    failed = 0
    for i, graph in enumerate(graphs):
        for numbers in ([], [4], [1, 2, 3, 4, 5, 6], [graph.rng.randint(0, 50) for _ in range(40)]):
            try:
                wanted = graph.interpret(numbers)
            except Failed:
                failed += 1
                with pytest.raises(Exception, match=f"in workflow 'g{i}', node .*no luck"):
                    clients.ask(f"g{i}", {"INPUT0": vector(*numbers)})
                continue
            got = clients.ask(f"g{i}", {"INPUT0": vector(*numbers)})
            assert {t: a.tolist() for t, a in got.items()} == wanted, (i, numbers, graph.config())
    assert 0 < failed < GRAPHS * 2
