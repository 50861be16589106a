"""The classification extension over REST and gRPC."""
import grpc
import numpy as np
import pytest

from lib import grpcraw
from lib.dtypes import BY_NAME, decode_bytes

NUMBERS = [t for t in BY_NAME if t not in ("BOOL", "BYTES", "FP16", "BF16")]
VALUES = {"FP": [0.25, 3.5, 1.0], "IN": [0, 100, 7], "UI": [0, 100, 7]}


def ask_rest(rest, dtype, data, shape, k, binary=False, model="batch"):
    parameters = {"classification": k, **({"binary_data": True} if binary else {})}
    return rest.infer(f"{model}_{dtype.lower()}", [("INPUT0", dtype, shape, data)],
                      outputs=[{"name": "OUTPUT0", "parameters": parameters}])


def text(dtype, value, index, label=True):
    number = f"{value:.6f}" if dtype.startswith("FP") else f"{value}"
    return f"{number}:{index}" + (f":{('cat', 'dog', 'bird')[index]}" if label else "")


@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_type(rest, grpc_, dtype):
    data = VALUES[dtype[:2]]
    want = [text(dtype, data[1], 1), text(dtype, data[2], 2)]
    output = ask_rest(rest, dtype, data, [1, 3], 2).ok().json()["outputs"][0]
    assert (output["datatype"], output["shape"], output["data"]) == ("BYTES", [1, 2], want)
    raw = BY_NAME[dtype].encode(data)
    answer = grpc_.infer(grpcraw.request(f"batch_{dtype.lower()}", [("INPUT0", dtype, [1, 3], None)], raw=[raw],
                                         outputs=[("OUTPUT0", {"classification": 2})]))
    assert answer.outputs[0].datatype == "BYTES" and list(answer.outputs[0].shape) == [1, 2]
    assert decode_bytes(answer.raw_output_contents[0]) == [w.encode() for w in want]


def test_as_binary(rest):
    _, blobs = ask_rest(rest, "FP32", [1.0, 2.0], [1, 2], 1, binary=True).ok().parts()
    assert decode_bytes(blobs["OUTPUT0"]) == [b"2.000000:1:dog"]


def test_more_classes_than_there_are(rest):
    output = ask_rest(rest, "FP32", [1.0, 2.0], [1, 2], 10).ok().json()["outputs"][0]
    assert output["shape"] == [1, 2] and output["data"] == ["2.000000:1:dog", "1.000000:0:cat"]


def test_each_row_of_a_batch(rest):
    output = ask_rest(rest, "INT32", [1, 2, 3, 9, 8, 7], [2, 3], 1).ok().json()["outputs"][0]
    assert output["shape"] == [2, 1] and output["data"] == ["3:2:bird", "9:0:cat"]


def test_classes_beyond_the_labels(rest):
    output = ask_rest(rest, "INT32", [1, 2, 3, 9], [1, 4], 2).ok().json()["outputs"][0]
    assert output["data"][0] == "9:3" and output["data"][1] == "3:2:bird"


def test_model_without_batch_and_labels(rest):
    output = ask_rest(rest, "FP32", [0.5, 2.0], [2], 1, model="flat").ok().json()["outputs"][0]
    assert output["shape"] == [1] and output["data"] == ["2.000000:1"]


def test_nan_is_never_first(rest):
    data = [float("nan"), 1.0, float("inf")]
    output = ask_rest(rest, "FP32", data, [1, 3], 2).ok().json()["outputs"][0]
    assert [d.split(":")[1] for d in output["data"]] == ["2", "1"]


@pytest.mark.parametrize("dtype", ["BYTES", "BOOL", "FP16", "BF16"])
def test_types_without_classes(rest, grpc_, dtype):
    d = BY_NAME[dtype]
    reply = rest.infer(f"batch_{dtype.lower()}", [("INPUT0", dtype, [1, 6], list(d.values))],
                       outputs=[{"name": "OUTPUT0", "parameters": {"classification": 1}}])
    want = f"class result not available for output due to unsupported type '{dtype}'"
    assert reply.status == 400 and want in reply.error
    with pytest.raises(grpc.RpcError) as e:
        grpc_.infer(grpcraw.request(f"batch_{dtype.lower()}", [("INPUT0", dtype, [1, 6], None)],
                                    raw=[d.encode(d.values)], outputs=[("OUTPUT0", {"classification": 1})]))
    assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT and want in e.value.details()


@pytest.mark.parametrize("k", [-1, "2", 1.5, True, None], ids=repr)
def test_bad_count(rest, k):
    reply = ask_rest(rest, "FP32", [1.0], [1, 1], k)
    assert reply.status == 400 and "classification" in reply.error


def test_too_large(rest):
    data = np.zeros(1_000_001, "<f4").tobytes()
    reply = rest.infer_binary("flat_fp32", [("INPUT0", "FP32", [1_000_001])], [data],
                              outputs=[{"name": "OUTPUT0", "parameters": {"classification": 1_000_001}}])
    assert reply.status == 400 and "classification output tensor too large" in reply.error
