"""Requests that do not fit their model, by table, over REST JSON, REST binary and gRPC: status and text as Triton's.

After each of them the next good request on the same connection is answered.
"""
import re
from dataclasses import dataclass, field

import grpc
import numpy as np
import pytest

from lib import grpcraw
from lib.dtypes import BY_NAME


def tensor(name="INPUT0", datatype="INT32", shape=(1, 16), count=None):
    """A tensor of small values that agrees with its own shape unless `count` says otherwise."""
    count = max(0, int(np.prod(shape))) if count is None else count
    value = {"BYTES": "1", "BOOL": True}.get(datatype, 1.5 if datatype.startswith(("FP", "BF")) else 1)
    return name, datatype, list(shape), [value] * count


A, B = tensor(), tensor("INPUT1")
NOTE = "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each input shape"


@dataclass
class Case:
    name: str
    inputs: list
    text: str  # regular expression, searched
    outputs: list = field(default_factory=list)
    model: str = "simple"
    json: bool = True  # whether JSON can express it


CASES = [
    Case("batch too big", [tensor(shape=(9, 16)), tensor("INPUT1", shape=(9, 16))],
         r"inference request batch-size must be <= 8 for 'simple'"),
    Case("batch of none", [tensor(shape=(0, 16)), tensor("INPUT1", shape=(0, 16))], r"'simple'"),
    Case("wrong dimension", [tensor(shape=(1, 17)), B],
         r"unexpected shape for input 'INPUT0' for model 'simple'\. Expected \[-1,16\], got \[1,17\]\. " + re.escape(NOTE)),
    Case("wrong rank", [tensor(shape=(1, 16, 1)), B],
         r"unexpected shape for input 'INPUT0' for model 'simple'\. Expected \[-1,16\], got \[1,16,1\]"),
    Case("no batch dimension", [tensor(shape=(4,)), tensor("INPUT1", shape=(4,))],
         r"unexpected shape for input 'INPUT[01]' for model 'simple'\. Expected \[-1,16\], got \[4\]"),
    Case("no dimension at all", [tensor(shape=()), tensor("INPUT1", shape=())], r"'INPUT[01]'.*'simple'"),
    Case("wrong shape without batching", [tensor(datatype="FP32", shape=(6,))],
         r"unexpected shape for input 'INPUT0' for model 'grid'\. Expected \[-1,-1\], got \[6\]", model="grid"),
    Case("wrong type", [tensor(datatype="FP32"), B],
         r"inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'"),
    Case("wrong type of the same size", [A, tensor("INPUT1", "UINT32")],
         r"inference input 'INPUT1' data-type is 'UINT32', but model 'simple' expects 'INT32'"),
    Case("strings for numbers", [tensor(datatype="BYTES"), B],
         r"inference input 'INPUT0' data-type is 'BYTES', but model 'simple' expects 'INT32'"),
    Case("numbers for strings", [A, B],
         r"inference input 'INPUT0' data-type is 'INT32', but model 'simple_string' expects 'BYTES'", model="simple_string"),
    Case("too few bytes", [tensor(count=15), B],
         r"input byte size mismatch for input 'INPUT0' for model 'simple'\. Expected 64, got 60", json=False),
    Case("too many bytes", [A, tensor("INPUT1", count=17)],
         r"input byte size mismatch for input 'INPUT1' for model 'simple'\. Expected 64, got 68", json=False),
    Case("no bytes", [tensor(count=0), B],
         r"input byte size mismatch for input 'INPUT0' for model 'simple'\. Expected 64, got 0", json=False),
    Case("missing input", [A],
         r"expected 2 inputs but got 1 inputs for model 'simple'\. Got input\(s\) \['INPUT0'\], but missing required input\(s\) "
         r"\['INPUT1'\]\. Please provide all required input\(s\)\."),
    Case("no input", [], r"expected 2 inputs but got 0 inputs for model 'simple'", json=False),
    Case("one input more", [A, B, tensor("INPUT2")],
         r"expected 2 inputs but got 3 inputs for model 'simple'|unexpected inference input 'INPUT2' for model 'simple'"),
    Case("batches differ", [A, tensor("INPUT1", shape=(2, 16))],
         r"input 'INPUT[01]' batch size does not match other inputs for 'simple'"),
    Case("unknown input", [A, tensor("NOSUCH")], r"unexpected inference input 'NOSUCH' for model 'simple'"),
    Case("name in another case", [A, tensor("input1")], r"unexpected inference input 'input1' for model 'simple'"),
    Case("unknown output", [A, B], r"unexpected inference output 'NOSUCH' for model 'simple'", outputs=["NOSUCH"]),
    Case("unknown beside known output", [A, B], r"unexpected inference output 'NOSUCH' for model 'simple'",
         outputs=["OUTPUT0", "NOSUCH"]),
    Case("same input twice", [A, A], r"INPUT0"),
    Case("negative dimension", [tensor(shape=(1, -16), count=16), B], r"INPUT0|shape"),
    Case("all negative", [tensor(shape=(-1, -16), count=16), B], r"INPUT0|shape"),
    Case("product beyond 64 bits", [tensor(shape=(2**40, 2**40), count=1), B], r"INPUT0|shape"),
    Case("bytes beyond 64 bits", [tensor(shape=(2**61, 4), count=1), B], r"INPUT0|shape|batch"),
    Case("huge but sound shape", [tensor(shape=(1, 2**40), count=1), B], r"INPUT0|shape"),
    Case("rank of 200", [tensor(shape=(1,) * 200, count=1), B], r"INPUT0|shape|rank|dimension"),
    Case("unknown type", [tensor(datatype="INT31"), B], r"INT31|INPUT0"),
    Case("empty type", [tensor(datatype=""), B], r"INPUT0|datatype|data-type"),
    Case("empty name", [tensor(""), B], r"unexpected inference input ''|name|INPUT0"),
]
IDS = [c.name for c in CASES]
OPEN = {"same input twice", "negative dimension", "all negative", "product beyond 64 bits", "bytes beyond 64 bits",
        "huge but sound shape", "rank of 200", "unknown type", "empty type", "empty name", "no dimension at all", "batch of none"}


def raw(case_input):
    _, datatype, _, values = case_input
    known = BY_NAME.get(datatype)
    return known.encode(values) if known else b"\0" * 4 * len(values)


def still_good(rest):
    good = rest.infer("simple", [A, B]).ok().json()
    assert good["outputs"][0]["data"] == [2] * 16


def check_rest(rest, case, reply):
    assert reply.status == 400, reply.body[:300]
    assert re.search(case.text, reply.error), reply.error
    still_good(rest)


@pytest.mark.parametrize("case", [c for c in CASES if c.json], ids=[c.name for c in CASES if c.json])
def test_rest_json(rest, case):
    outputs = {"outputs": [{"name": n} for n in case.outputs]} if case.outputs else {}
    reply = rest.infer(case.model, case.inputs, **outputs)
    if reply.status in (400, 500) and "true shape of 'data'" in reply.error:
        assert case.name in OPEN, "the data agree with their shape"
        still_good(rest)
        return
    check_rest(rest, case, reply)


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_rest_binary(rest, case):
    outputs = {"outputs": [{"name": n} for n in case.outputs]} if case.outputs else {}
    reply = rest.infer_binary(case.model, [i[:3] for i in case.inputs], [raw(i) for i in case.inputs], **outputs)
    if case.name == "no input":
        assert reply.status == 400 and reply.error
        still_good(rest)
        return
    check_rest(rest, case, reply)


def grpc_failure(client, message):
    try:
        answer = client.infer(message)
    except grpc.RpcError as e:
        return e
    raise AssertionError(f"no error but {answer}")


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_grpc_raw(grpc_, rest, case):
    message = grpcraw.request(case.model, [(*i[:3], None) for i in case.inputs], case.outputs, raw=[raw(i) for i in case.inputs])
    e = grpc_failure(grpc_, message)
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e
    assert re.search(case.text, e.details()), e.details()
    still_good(rest)


@pytest.mark.parametrize("case", [c for c in CASES if c.json], ids=[c.name for c in CASES if c.json])
def test_grpc_contents(grpc_, rest, case):
    def contents(i):
        known = BY_NAME.get(i[1], BY_NAME["INT32"])
        return {known.contents: [v.encode() if isinstance(v, str) else v for v in i[3]]}

    message = grpcraw.request(case.model, [(*i[:3], contents(i)) for i in case.inputs], case.outputs)
    e = grpc_failure(grpc_, message)
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT, e
    assert case.name in OPEN or re.search(case.text, e.details()), e.details()
    still_good(rest)


@pytest.mark.parametrize("id, said", [("q7", "[request id: q7] "), ("", "[request id: <id_unknown>] ")])
def test_errors_of_the_core_name_the_request(rest, grpc_, id, said):
    text = "expected 2 inputs but got 1 inputs"
    error = rest.infer("simple", [A], **({"id": id} if id else {})).error
    assert error.startswith(said) and text in error
    e = grpc_failure(grpc_, grpcraw.request("simple", [(*A[:3], None)], raw=[raw(A)], id=id))
    assert e.details() == error, "the text is the same over both protocols"


@pytest.mark.parametrize("blob", [b"\x05\0\0\0abcd", b"\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0a\x01\0\0\0b", b""], ids=repr)
def test_grpc_damaged_strings(grpc_, rest, blob):
    e = grpc_failure(grpc_, grpcraw.request("flat_bytes", [("INPUT0", "BYTES", [1], None)], raw=[blob]))
    assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and "INPUT0" in e.details()
    still_good(rest)


@pytest.mark.parametrize("parameters", [
    {"shared_memory_region": "r", "shared_memory_byte_size": 64}, {"shared_memory_region": "r"},
    {"shared_memory_region": "r", "shared_memory_byte_size": 2**63 - 1, "shared_memory_offset": 2**63 - 1}], ids=repr)
def test_shared_memory_is_refused_by_name(rest, grpc_, parameters):
    inputs = [{"name": "INPUT0", "datatype": "INT32", "shape": [16], "parameters": parameters}]
    reply = rest.infer("flat_int32", inputs)
    assert reply.status in (400, 404, 501) and "shared" in reply.error.lower()
    outputs = [{"name": "OUTPUT0", "parameters": parameters}]
    reply = rest.infer("flat_int32", [tensor(shape=(16,))], outputs=outputs)
    assert reply.status in (400, 404, 501) and "shared" in reply.error.lower()
    message = grpcraw.request("flat_int32", [("INPUT0", "INT32", [16], None)])
    for key, v in parameters.items():
        message.inputs[0].parameters[key].CopyFrom(grpcraw.parameter(v))
    assert "shared" in grpc_failure(grpc_, message).details().lower()


# ---- models that misbehave ----

FAULTS = ["wrong_size", "wrong_dtype", "wrong_rank", "negative_dim", "missing_output", "twice", "bad_index"]


@pytest.mark.parametrize("fault", FAULTS)
def test_model_that_breaks_its_word(rest, grpc_, fault):
    reply = rest.infer("fault", [("INPUT0", "INT32", [2], [1, 2])], parameters={fault: True})
    assert reply.status == 500 and reply.error
    e = grpc_failure(grpc_, grpcraw.int32("fault", [1, 2], parameters={fault: True}))
    assert e.code() == grpc.StatusCode.INTERNAL
    still_good(rest)


def test_model_that_writes_bad_strings(rest, grpc_):
    reply = rest.infer("stringfault", [("INPUT0", "BYTES", [2], ["aaaa", "b"])], parameters={"bad_strings": True})
    assert reply.status == 500 and reply.error
    still_good(rest)


def test_model_that_fails_without_a_word(rest):
    reply = rest.infer("fault", [("INPUT0", "INT32", [1], [1])], parameters={"fail_status": "INTERNAL", "no_message": True})
    assert reply.status == 500 and reply.error


def test_model_that_gives_its_own_memory(rest, grpc_):
    for values in ([1, 2, 3], list(range(100_000))):
        reply = rest.infer("fault", [("INPUT0", "INT32", [len(values)], values)], parameters={"give": True})
        assert reply.ok().json()["outputs"][0]["data"] == values
        answer = grpc_.infer(grpcraw.int32("fault", values, parameters={"give": True}))
        assert np.frombuffer(answer.raw_output_contents[0], "<i4").tolist() == values


