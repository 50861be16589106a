"""The codecs of MLServer for bytes, times and objects, whose values are strings on the way."""
import base64
import json

import numpy as np
import pytest
import tritonclient.grpc as grpc

from lib import pymodels
from lib.pymodels import add_mlserver
from lib.rest import Rest, infer_path

BLOBS = [b"\0\xff\x80", b"", b"text"]
TIMES = ["2024-02-28T12:30:00", "2025-12-31T23:59:59.000001+02:00"]
LATER = ["2024-02-29T12:30:00", "2026-01-01T23:59:59.000001+02:00"]


@pytest.fixture
def server(models, start):
    def make(model):
        add_mlserver(models / "m", f"coded.{model}")
        return start(models, *pymodels.options(pymodels.MLSERVER))
    return make


def encoded(blobs):
    return [base64.b64encode(b).decode() for b in blobs]


def column(name, data, content_type=None):
    found = {"name": name, "datatype": "BYTES", "shape": [len(data)], "data": data}
    return {**found, "parameters": {"content_type": content_type}} if content_type else found


def ask(server, *inputs, **fields):
    with Rest(server.http) as rest:
        return rest.post(infer_path("m"), json.dumps({"inputs": list(inputs), **fields}))


def ask_grpc(server, name, data, content_type):
    """The elements of the one answer; they travel as raw contents."""
    tensor = grpc.InferInput(name, [len(data)], "BYTES")
    tensor.set_data_from_numpy(np.array(data, dtype=object))
    tensor._get_tensor().parameters["content_type"].string_param = content_type
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as client:
        return client.infer("m", [tensor]).as_numpy("output-0").ravel().tolist()


@pytest.mark.few
@pytest.mark.parametrize("content_type", ["base64", None], ids=["said", "by_hint"])
def test_base64(server, content_type):
    """Any bytes, both ways; the type is that of the input or of the argument."""
    server = server("Reversed")
    outputs = ask(server, column("blobs", encoded(BLOBS), content_type)).ok().json()["outputs"]
    assert outputs == [{"name": "output-0", "shape": [3, 1], "datatype": "BYTES", "parameters": {"content_type": "base64"},
                        "data": encoded(b[::-1] for b in BLOBS)}]


@pytest.mark.more
def test_base64_grpc(server):
    assert ask_grpc(server("Reversed"), "blobs", [base64.b64encode(b) for b in BLOBS], "base64") == \
        [base64.b64encode(b[::-1]) for b in BLOBS]


@pytest.mark.more
def test_datetime(server):
    server = server("Tomorrow")
    outputs = ask(server, column("times", TIMES, "datetime")).ok().json()["outputs"]
    assert outputs == [{"name": "output-0", "shape": [2, 1], "datatype": "BYTES", "parameters": {"content_type": "datetime"},
                        "data": LATER}]
    assert ask_grpc(server, "times", [t.encode() for t in TIMES], "datetime") == [t.encode() for t in LATER]
    reply = ask(server, column("times", ["no time"], "datetime"))
    assert reply.status == 500 and reply.error == "builtins.ValueError: Invalid isoformat string: 'no time'"


@pytest.mark.more
def test_pd_json(server):
    """Objects in a column of a frame, both ways."""
    objects = [{"n": 7, "list": [1, "é"]}, {"n": 8, "list": []}]
    server = server("Objects")
    column_of_objects = column("object", [json.dumps(o) for o in objects], "pd_json")
    n, answered = ask(server, column_of_objects, parameters={"content_type": "pd"}).ok().json()["outputs"]
    assert n == {"name": "n", "shape": [2, 1], "datatype": "INT64", "data": [7, 8]}
    assert answered["datatype"] == "BYTES" and answered["parameters"] == {"content_type": "pd_json"}
    assert [json.loads(text) for text in answered["data"]] == [{"seen": o, "row": i} for i, o in enumerate(objects)]
