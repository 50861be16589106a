"""Operators as nodes of workflows: an image becomes a label, what is refused at load, and what is the request's error."""
import re
import struct
import zlib

import numpy as np
import pytest

from lib import repo
from lib.control import Control
from lib.models.graphs import Clients, adders, node, op, vector, workflow


def png(pixels):
    """A grayscale PNG of the rows of `pixels`."""
    height, width = pixels.shape
    rows = b"".join(b"\0" + row.astype(np.uint8).tobytes() for row in pixels)
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)


IMAGE = [repo.tensor("IMAGE", "TYPE_STRING", (1,))]
DECODE = op("decode", "image.decode", {"bytes": "IMAGE"}, {"image": "PIXELS"}, channels=1)
RESIZE = op("resize", "image.resize", {"image": "PIXELS"}, {"image": "SMALL"}, width=4, height=2, method="nearest")
NORMALIZE = op("normalize", "image.normalize", {"image": "SMALL"}, {"image": "x"}, layout="CHW", scale=0.5)
MODEL = node("net", "net", {"INPUT0": "x"}, {"OUTPUT0": "y"})
BEST = {"values": "SCORE", "indices": "INDEX", "labels": "LABEL"}
ANSWER = [repo.tensor("SCORE", "TYPE_FP32", (1, 2, 1)), repo.tensor("INDEX", "TYPE_INT64", (1, 2, 1)),
          repo.tensor("LABEL", "TYPE_STRING", (1, 2, 1))]


@pytest.fixture
def served(models, start):
    floats = {"inputs": [repo.tensor("INPUT0", "TYPE_FP32", (1, 2, 4))], "outputs": [repo.tensor("OUTPUT0", "TYPE_FP32", (1, 2, 4))]}
    repo.add(models, "net", repo.config(**floats))
    adders(models, one=1)
    top = op("best", "topk", {"scores": "y"}, BEST, k=1, labels_file="labels.txt")
    text = workflow(DECODE, RESIZE, NORMALIZE, MODEL, top, inputs=IMAGE, outputs=ANSWER)
    repo.add(models, "classify", text, files={"labels.txt": "a\nb\nc\nd\n"})
    # images side by side: the batch goes through all operators
    rows = workflow(op("decode", "image.decode", {"bytes": "IMAGE"}, {"image": "PIXELS"}, channels=1, width=2, height=2, method="nearest"),
                    inputs=IMAGE, outputs=[repo.tensor("PIXELS", "TYPE_UINT8", (2, 2, 1))], max_batch_size=4)
    repo.add(models, "batch", rows)
    texts = {
        # an operator after a condition that reads what an operator makes
        "when": workflow(op("double", "scale", {"x": "INPUT0"}, {"x": "t"}, multiply=2),
                         op("more", "scale", {"x": "t"}, {"x": "OUTPUT0"}, 'when: "t[0] > 5"', add=100),
                         extra='default { tensor: "OUTPUT0" int64: -1 }'),
        # in place, between two models
        "place": workflow(node("a", "one", outputs={"OUTPUT0": "t"}),
                          op("b", "scale", {"x": "t"}, {"x": "u"}, 'read_write: "x"', multiply=3), node("c", "one", {"INPUT0": "u"})),
        "fallback": workflow(op("a", "labels", {"indices": "INPUT0"}, {"labels": "s"}, 'fallback { node: "b" }', labels="x,y"),
                             op("b", "labels", {"indices": "INPUT0"}, {"labels": "s"}, labels="x,y", default="none"),
                             outputs=[repo.tensor("s", "TYPE_STRING")]),
    }
    for name, t in texts.items():
        repo.add(models, name, t)
    return Clients(start(models, "--default-warmup-time=0"))


def test_an_image_becomes_a_label(served):
    small = np.array([[0, 10, 200, 20], [90, 7, 8, 9]])
    image = png(small.repeat(2, 0).repeat(2, 1))
    found = served.ask("classify", {"IMAGE": np.array([image], np.object_)})
    assert found["LABEL"].reshape(-1).tolist() == [b"c", b"a"]
    assert found["INDEX"].reshape(-1).tolist() == [2, 0] and found["SCORE"].reshape(-1).tolist() == [100, 45]
    # only what is asked for
    assert list(served.ask("classify", {"IMAGE": np.array([image], np.object_)}, ["INDEX"])) == ["INDEX"]


def test_a_model_that_was_replaced(models, start):
    """The workflow was loaded with its outputs of before: an operator does not read others as such."""
    repo.add(models, "m")
    join = op("join", "concat", {"a": "INPUT0", "b": "t"}, {"y": "OUTPUT0"})
    repo.add(models, "w", workflow(node("k", "m", outputs={"OUTPUT0": "t"}), join))
    with Control(start(models, mode="explicit")) as control:
        control.load("w").ok()
        assert control.infer("w").ok().json()["outputs"][0]["data"] == [1, 2, 1, 2]
        repo.add(models, "m", repo.config(outputs=[repo.tensor("OUTPUT0", dims=(1, -1), extra="reshape { shape: [ -1 ] }")]))
        control.load("m").ok()
        reply = control.infer("w")
        assert reply.status == 400 and ("in workflow 'w', node 'join': op 'concat': input 1 is INT32 [1,2], "
                                        "the workflow was loaded with INT32 [-1]") in reply.error


def test_errors_before_a_model_runs_name_the_node(models, start):
    repo.add(models, "m", repo.config(inputs=[repo.tensor("INPUT0", dims=(3,))], outputs=[repo.tensor("OUTPUT0", dims=(3,))]))
    repo.add(models, "w", workflow(node("k", "m")))
    reply = Control(start(models)).infer("w")
    assert reply.status == 400 and reply.error.startswith("in workflow 'w', node 'k': ") and "unexpected shape" in reply.error, reply.error


def test_a_batch_of_images(served):
    images = [png(np.full((4 + 2 * i, 6), 50 * i)) for i in range(3)]
    found = served.ask("batch", {"IMAGE": np.array(images, np.object_).reshape(3, 1)})["PIXELS"]
    assert found.shape == (3, 2, 2, 1) and [set(x.reshape(-1)) for x in found] == [{0}, {50}, {100}]


def test_a_bad_image_is_the_requests_error(served):
    good = png(np.zeros((4, 4)))
    for bad in (b"no image", good[:40], b""):
        with pytest.raises(Exception, match="in workflow 'classify', node 'decode': ") as caught:
            served.ask("classify", {"IMAGE": np.array([bad], np.object_)})
        assert caught.value.status() == "400"
    served.ask("classify", {"IMAGE": np.array([good], np.object_)})


def test_operators_beside_models_and_conditions(served):
    wanted = [("when", 3, 106), ("when", 2, -1), ("place", 4, 16)]
    for name, x, y in wanted:
        assert served.ask(name, {"INPUT0": vector(x)})["OUTPUT0"].tolist() == [y], name
    # the first labels have no third name, which is the node's failure
    for x, label in ((1, b"y"), (2, b"none")):
        assert served.ask("fallback", {"INPUT0": vector(x)})["s"].tolist() == [label]


SCALE = {"x": "INPUT0"}, {"x": "OUTPUT0"}
REFUSED = [
    (workflow(op("cut", "image.crop", {"x": "INPUT0"}, {"y": "OUTPUT0"})), "'w0', node 'cut': there is no op 'image.crop'"),
    (workflow(op("a", "scale", *SCALE, dtype="FP32")), "node 'a' makes tensor 'OUTPUT0' as FP32 .*, and 'w1' has it as INT32"),
    (workflow(op("a", "scale", *SCALE, multiply="x")), "node 'a': op 'scale': .*multiply"),
    (workflow(op("a", "scale", *SCALE, by=2)), "node 'a': op 'scale': .*'by'"),
    (workflow(op("a", "scale", {"x": "INPUT0"}, {"y": "OUTPUT0"})), "node 'a': op 'scale': output_map has no 'x'"),
    (workflow(op("a", "image.decode", {"bytes": "INPUT0"}, {"image": "t"}), node("b", "one")), "node 'a': op 'image.decode': .*BYTES"),
    (workflow(op("a", "scale", {"x": "INPUT0"}, {"x": "t"}, dtype="FP32"), node("b", "one", {"INPUT0": "t"})),
     "node 'a' makes tensor 't' as FP32 .*, and 'one' has it as INT32"),
    (workflow(op("a", "scale", {"x": "t"}, {"x": "OUTPUT0"})), "node 'a' reads tensor 't', which nothing writes"),
    (workflow(op("a", "scale", {"x": "u"}, {"x": "t"}), op("b", "scale", {"x": "t"}, {"x": "u"}), node("c", "one")), "waits for itself"),
    (workflow(op("a", "scale", *SCALE, 'read_write: "y"')), "node 'a': read_write of 'y', which input_map does not have"),
    (workflow(node("a", "one", outputs={"OUTPUT0": "t"}), op("b", "scale", {"x": "t"}, {"x": "OUTPUT0"}, 'read_write: "x"'),
              op("c", "scale", {"x": "t"}, {"x": "u"})), "node 'b': read_write of tensor 't', which node 'c' reads, too"),
    (workflow(node("a", "one", outputs={"OUTPUT0": "t"}), op("b", "scale", {"x": "t"}, {"x": "u"}, 'read_write: "x"'),
              node("c", "one", extra='when: "t[0] > 1"'), extra='default { tensor: "OUTPUT0" int64: 1 }'),
     "node 'b': read_write of tensor 't', which 'when' of node 'c' reads"),
    (workflow(op("a", "scale", *SCALE, "retry { attempts: 2 }")), "node 'a' has 'retry', which is for models: an operator computes on"),
    (workflow(op("a", "scale", *SCALE, "timeout_ms: 2")), "node 'a' has 'timeout_ms', which is for models"),
    (workflow(op("a", "scale", *SCALE, "hedge { after_ms: 2 }")), "node 'a' has 'hedge', which is for models"),
    (workflow(op("a", "scale", *SCALE, 'shadow { model { name: "one" } percent: 1 }')), "node 'a' has 'shadow', which is for models"),
    (workflow(op("a", "scale", *SCALE, 'fallback { node: "b" }'), op("b", "scale", *SCALE, dtype="FP32")),
     "node 'b' makes tensor 'OUTPUT0' as FP32"),
    (workflow(node("a", "one", extra='read_write: "INPUT0"')), "node 'a' has 'read_write', which is for operators"),
]


def test_what_is_refused(models, start):
    adders(models, one=1)
    for i, (text, _) in enumerate(REFUSED):
        repo.add(models, f"w{i}", text)
    with Control(start(models, mode="explicit")) as control:
        for i, (_, error) in enumerate(REFUSED):
            reply = control.load(f"w{i}")
            assert reply.status == 400
            assert re.search(error, reply.json()["error"]), (error, reply.json()["error"])
