"""Splits: the requests of a node shared among models, by the sequence and the hash that docs/endpoints.md describes."""
import re

import pytest
import tritonclient.http as httpclient

from lib import repo
from lib.control import Control
from lib.models.graphs import Clients, adders, node, vector, workflow
from lib.models.shares import bucket, spread

VARIANT = 'variant {{ name: "{}" model {{ name: "{}" }} weight: {} }}'
DEFAULT = 'default { tensor: "OUTPUT0" int64: -1 }'


def split(name, *variants, inputs=None, outputs=None, key="", extra=""):
    models = " ".join(VARIANT.format(*v) for v in variants)
    return node(name, "", inputs, outputs, extra).replace('model { name: "" }', f"split {{ {key} {models} }}")


BOTH = ("stable", "one", 70), ("cand", "ten", 30)
KEY = 'key: "parameter:user" salt: "s" sticky: true'


@pytest.fixture
def served(models, start):
    adders(models, one=1, ten=10, hundred=100)
    repo.add(models, "bad", backend="fault", parameters={"fail_status": "UNAVAILABLE", "fail_message": "no luck"})
    texts = {
        "spread": workflow(split("a", *BOTH)),
        "sticky": workflow(split("a", *BOTH, key=KEY)),
        # two splits of one key and salt put a request into one cohort, also without the key
        "by_header": workflow(split("a", *BOTH, key='key: "header:X-User" salt: "s" sticky: true')),
        "cohort": workflow(split("a", *BOTH, key=KEY, outputs={"OUTPUT0": "t"}), split("b", *BOTH, key=KEY, inputs={"INPUT0": "t"})),
        "variant": workflow(split("a", *BOTH, key=KEY, outputs={"OUTPUT0": "t"}),
                            node("b", "hundred", {"INPUT0": "t"}, extra="when: 'variant(a) == \"cand\"'"), extra=DEFAULT),
        "by_default": workflow(split("a", ("stable", "one", 70), ("cand", "bad", 30), key=KEY, extra=DEFAULT)),
        "by_model": workflow(split("a", ("stable", "bad", 70), ("cand", "ten", 30), key=KEY, extra='fallback { model { name: "hundred" } }')),
        "only": workflow(split("a", ("off", "bad", 0), ("on", "ten", 1))),
    }
    for name, text in texts.items():
        repo.add(models, name, text)
    return Clients(start(models, "--default-warmup-time=0"))


def once(served, name, x=0, **kw):
    made = httpclient.InferInput("INPUT0", [1], "INT32").set_data_from_numpy(vector(x))
    return served.http.infer(name, [made], **kw).as_numpy("OUTPUT0").tolist()[0]


def counted(served, model):
    return served.http.get_inference_statistics(model)["model_stats"][0]["inference_stats"]["success"]["count"]


def expected(buckets, below, above):
    return [below if b < 7000 else above for b in buckets]


USERS = [f"user-{i}" for i in range(24)]
OF_USERS = [bucket("s", u) for u in USERS]


def test_requests_are_spread_by_the_weights(served):
    before = counted(served, "ten")
    wanted = expected(spread(60), 1, 10)
    assert [once(served, "spread") for _ in range(60)] == wanted and 10 < wanted.count(10) < 26
    assert counted(served, "ten") - before == wanted.count(10)
    assert [once(served, "only") for _ in range(5)] == [10] * 5


def test_a_key_stays_with_its_variant(served):
    wanted = expected(OF_USERS, 1, 10)
    assert len(set(wanted)) == 2
    for user, y in zip(USERS, wanted):  # over both protocols
        assert served.ask("sticky", {"INPUT0": vector(0)}, parameters={"user": user})["OUTPUT0"].tolist() == [y]
        assert served.ask("by_header", {"INPUT0": vector(0)}, headers={"x-user": user})["OUTPUT0"].tolist() == [y]
    # numbers are keys, too
    assert once(served, "sticky", parameters={"user": 17}) == expected([bucket("s", "17")], 1, 10)[0]
    # one sequence is one key
    assert once(served, "sticky", sequence_id=23) == expected([bucket("s", "23")], 1, 10)[0]


def test_splits_of_one_key_and_salt_agree(served):
    found = [once(served, "cohort") for _ in range(40)]
    assert found == expected(spread(40), 2, 20)
    assert [once(served, "cohort", parameters={"user": u}) for u in USERS] == expected(OF_USERS, 2, 20)


def test_conditions_and_failures(served):
    for name, below, above in (("variant", -1, 110), ("by_default", 1, -1), ("by_model", 100, 10)):
        assert [once(served, name, parameters={"user": u}) for u in USERS] == expected(OF_USERS, below, above), name


REFUSED = [
    (workflow(split("a")), "split of node 'a': .*variant"),
    (workflow(split("a", ("x", "one", 0))), "split of node 'a': .*weight"),
    (workflow(split("a", ("x", "one", 1), ("x", "ten", 1))), "split of node 'a': .*same name 'x'"),
    (workflow(split("a", ("x", "one", 1), ("y", "", 1))), "split of node 'a': variant 2 must specify 'model'"),
    (workflow(split("a", ("x", "one", 1), ("y", "absent", 1))), "not available or ambiguous: absent"),
    (workflow(split("a", ("x", "one", 1), ("y", "floats", 1))), "inconsistent data type: "),
    (workflow(split("a", ("x", "one", 1), key="sticky: true")), "split of node 'a': "),
    (workflow(node("a", "one", outputs={"OUTPUT0": "t"}), node("b", "one", {"INPUT0": "t"}, extra="when: 'variant(a) == \"x\"'"),
              extra=DEFAULT), "node 'b', 'when': .*'a' is no node with 'split'"),
    (workflow(split("a", *BOTH, extra="when: 'variant(a) == \"x\"'"), extra=DEFAULT), "node 'a' waits for itself"),
]


def test_what_is_refused(models, start):
    adders(models, one=1, ten=10)
    repo.add(models, "floats", repo.config(inputs=[repo.tensor("INPUT0", "TYPE_FP32")], outputs=[repo.tensor("OUTPUT0", "TYPE_FP32")]))
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", text)
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400
            assert re.search(error, reply.json()["error"]), (error, reply.json()["error"])
