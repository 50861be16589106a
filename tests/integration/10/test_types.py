"""All 14 data types in every encoding, by the protocol's text: REST JSON, REST binary, gRPC raw, gRPC contents."""
import struct

import grpc
import numpy as np
import pytest

from lib import grpcraw
from lib.dtypes import BY_NAME, DTYPES, decode_bytes

ALL = pytest.mark.parametrize("dtype", DTYPES, ids=str)
TYPED = pytest.mark.parametrize("dtype", [d for d in DTYPES if d.contents], ids=str)
SHAPES = pytest.mark.parametrize("model, shape", [("flat", [6]), ("batch", [2, 3]), ("batch", [6, 1])],
                                 ids=["flat", "2x3", "6x1"])
IN_BINARY = {"binary_data_output": True}


def name(model, dtype):
    return f"{model}_{dtype.name.lower()}"


def only_output(reply):
    document, blobs = reply.ok().parts()
    (output,) = document["outputs"]
    return output, blobs.get(output["name"])


def check_data(output, dtype, values=None):
    """Floats are compared in their own type: a float's shortest text need not be the double's."""
    got, want = output["data"], list(dtype.values if values is None else values)
    if isinstance(want[0], float):
        assert np.array(got, dtype.numpy).tolist() == np.array(want, dtype.numpy).tolist()
    else:
        assert got == want and [type(v) for v in got] == [type(v) for v in want]


def check_output(output, dtype, shape):
    assert (output["name"], output["datatype"], output["shape"]) == ("OUTPUT0", dtype.name, shape)


# ---- REST ----

@ALL
@SHAPES
def test_json_to_json(rest, dtype, model, shape):
    output, blob = only_output(rest.infer(name(model, dtype), [("INPUT0", dtype.name, shape, list(dtype.values))]))
    check_output(output, dtype, shape)
    assert blob is None
    check_data(output, dtype)


@ALL
def test_json_to_binary(rest, dtype):
    output, blob = only_output(rest.infer(name("flat", dtype), [("INPUT0", dtype.name, [6], list(dtype.values))],
                                          parameters=IN_BINARY))
    check_output(output, dtype, [6])
    assert blob == dtype.encode(dtype.values) and "data" not in output


@ALL
def test_binary_to_json(rest, dtype):
    reply = rest.infer_binary(name("flat", dtype), [("INPUT0", dtype.name, [6])], [dtype.encode(dtype.values)])
    output, _ = only_output(reply)
    check_data(output, dtype)
    assert reply.headers["content-type"] == "application/json"


@ALL
@SHAPES
def test_binary_to_binary(rest, dtype, model, shape):
    reply = rest.infer_binary(name(model, dtype), [("INPUT0", dtype.name, shape)], [dtype.encode(dtype.values)],
                              parameters=IN_BINARY)
    output, blob = only_output(reply)
    check_output(output, dtype, shape)
    assert blob == dtype.encode(dtype.values)
    assert reply.headers["content-type"] == "application/octet-stream"


@ALL
def test_nested_json_data(rest, dtype):
    v = list(dtype.values)
    output, _ = only_output(rest.infer(name("batch", dtype), [("INPUT0", dtype.name, [2, 3], [v[:3], v[3:]])]))
    check_data(output, dtype)
    assert output["shape"] == [2, 3]


@ALL
@pytest.mark.parametrize("json_in", [True, False], ids=["json", "binary"])
@pytest.mark.parametrize("json_out", [True, False], ids=["json", "binary"])
def test_empty_tensor(rest, dtype, json_in, json_out):
    parameters = {"binary_data_output": not json_out}
    if json_in:
        reply = rest.infer(name("flat", dtype), [("INPUT0", dtype.name, [0], [])], parameters=parameters)
    else:
        reply = rest.infer_binary(name("flat", dtype), [("INPUT0", dtype.name, [0])], [b""], parameters=parameters)
    output, blob = only_output(reply)
    check_output(output, dtype, [0])
    assert (output["data"] == []) if json_out else (blob == b"" and output["parameters"]["binary_data_size"] == 0)


# ---- gRPC ----

@ALL
@SHAPES
def test_grpc_raw(grpc_, dtype, model, shape):
    answer = grpc_.infer(grpcraw.request(name(model, dtype), [("INPUT0", dtype.name, shape, None)],
                                         raw=[dtype.encode(dtype.values)]))
    (output,) = answer.outputs
    assert (output.name, output.datatype, list(output.shape)) == ("OUTPUT0", dtype.name, shape)
    assert list(answer.raw_output_contents) == [dtype.encode(dtype.values)]
    assert not output.HasField("contents")


@TYPED
@SHAPES
def test_grpc_contents(grpc_, dtype, model, shape):
    values = [v.encode() for v in dtype.values] if dtype.name == "BYTES" else dtype.values
    answer = grpc_.infer(grpcraw.request(name(model, dtype), [("INPUT0", dtype.name, shape, {dtype.contents: values})]))
    assert list(answer.raw_output_contents) == [dtype.encode(dtype.values)]
    assert list(answer.outputs[0].shape) == shape


@ALL
def test_grpc_empty_tensor(grpc_, dtype):
    answer = grpc_.infer(grpcraw.request(name("flat", dtype), [("INPUT0", dtype.name, [0], None)], raw=[b""]))
    assert list(answer.outputs[0].shape) == [0] and list(answer.raw_output_contents) == [b""]


@TYPED
def test_grpc_empty_contents(grpc_, dtype):
    answer = grpc_.infer(grpcraw.request(name("flat", dtype), [("INPUT0", dtype.name, [0], {dtype.contents: []})]))
    assert list(answer.outputs[0].shape) == [0] and list(answer.raw_output_contents) == [b""]


@pytest.mark.parametrize("dtype", ["FP16", "BF16"])
@pytest.mark.parametrize("field", ["fp32_contents", "uint_contents", "bytes_contents"])
def test_grpc_half_floats_are_raw_only(grpc_, dtype, field):
    value = b"\0\0" if field == "bytes_contents" else 1
    with pytest.raises(grpc.RpcError) as e:
        grpc_.infer(grpcraw.request(f"flat_{dtype.lower()}", [("INPUT0", dtype, [1], {field: [value]})]))
    assert e.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# ---- single types ----

FLOATS = {"FP16": ("<H", [0x7E00, 0xFC00, 0x7C00, 0x8000, 0x0001, 0x7E55]),
          "BF16": ("<H", [0x7FC0, 0xFF80, 0x7F80, 0x8000, 0x0001, 0x7FD5]),
          "FP32": ("<I", [0x7FC00000, 0xFF800000, 0x7F800000, 0x80000000, 1, 0x7FC12345]),
          "FP64": ("<Q", [0x7FF8 << 48, 0xFFF0 << 48, 0x7FF0 << 48, 1 << 63, 1, (0x7FF8 << 48) + 12345])}


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_keep_every_bit_in_binary(rest, grpc_, dtype):
    form, bits = FLOATS[dtype]
    blob = b"".join(struct.pack(form, b) for b in bits)
    _, got = only_output(rest.infer_binary(f"flat_{dtype.lower()}", [("INPUT0", dtype, [6])], [blob], parameters=IN_BINARY))
    assert got == blob
    answer = grpc_.infer(grpcraw.request(f"flat_{dtype.lower()}", [("INPUT0", dtype, [6], None)], raw=[blob]))
    assert answer.raw_output_contents[0] == blob


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity_in_json(rest, dtype):
    """As Triton and Python write them: NaN, Infinity, -Infinity."""
    inf = float("inf")
    reply = rest.infer(f"flat_{dtype.lower()}", [("INPUT0", dtype, [4], [float("nan"), inf, -inf, -0.0])])
    data = only_output(reply)[0]["data"]
    assert np.isnan(data[0]) and data[1:3] == [inf, -inf]
    assert str(data[3]) == "-0.0"


@pytest.mark.parametrize("dtype", ["FP16", "FP32", "FP64", "BF16"])
def test_whole_numbers_are_floats_too(rest, dtype):
    data = only_output(rest.infer(f"flat_{dtype.lower()}", [("INPUT0", dtype, [3], [1, -2, 0])]))[0]["data"]
    assert data == [1.0, -2.0, 0.0]


def test_float_text_is_read_to_the_nearest(rest):
    values = [0.1, 1 / 3, 1e-300, 123456789.123456789, 2.2250738585072014e-308]
    data = only_output(rest.infer("flat_fp64", [("INPUT0", "FP64", [5], values)]))[0]["data"]
    assert data == values
    _, blob = only_output(rest.infer("flat_fp32", [("INPUT0", "FP32", [3], [0.1, 16777217.0, 1 / 3])], parameters=IN_BINARY))
    assert blob == np.array([0.1, 16777217.0, 1 / 3], np.float32).tobytes()


@pytest.mark.parametrize("dtype, bad", [
    ("INT8", 128), ("INT8", -129), ("UINT8", 256), ("UINT8", -1), ("INT16", 32768), ("UINT16", 65536), ("UINT16", -1),
    ("INT32", 2**31), ("INT32", -(2**31) - 1), ("UINT32", 2**32), ("UINT32", -1), ("INT64", 2**63),
    ("INT64", -(2**63) - 1), ("UINT64", 2**64), ("UINT64", -1),
    *((t, v) for t in ("INT8", "UINT8", "INT32", "UINT64", "INT64") for v in (1.5, "1", True, None, [], {})),
    *(("BOOL", v) for v in (0, 1, "true", None)), *(("BYTES", v) for v in (1, True, None, 1.5, {})),
    *((t, v) for t in ("FP16", "BF16", "FP32", "FP64") for v in ("1.0", True, None, {}))], ids=repr)
def test_json_value_of_another_kind(rest, dtype, bad):
    good = "" if dtype == "BYTES" else dtype == "BOOL" or 0
    reply = rest.infer(f"flat_{dtype.lower()}", [("INPUT0", dtype, [2], [good, bad])])
    assert reply.status == 400 and reply.error
    if bad != []:
        reply = rest.infer(f"flat_{dtype.lower()}", [("INPUT0", dtype, [2], [good, good])])
        assert reply.status == 200


@pytest.mark.parametrize("text", ["01", "1.", ".5", "+1", "0x10", "1e", "--1", "1_000"])
def test_json_text_that_is_no_number(rest, text):
    body = '{"inputs":[{"name":"INPUT0","datatype":"FP64","shape":[1],"data":[%s]}]}' % text
    assert rest.post("/v2/models/flat_fp64/infer", body).status == 400


@pytest.mark.parametrize("dtype, most, beyond", [("FP16", "65519", "65520"), ("BF16", "3.38e38", "3.4e38"),
                                                 ("FP32", "3.4028235e38", "3.4028236e38"),
                                                 ("FP64", "1.7976931348623157e308", "1.7976931348623159e308")])
def test_floats_beyond_the_range_are_refused(rest, dtype, most, beyond):
    def send(*texts):
        body = '{"inputs":[{"name":"INPUT0","datatype":"%s","shape":[%d],"data":[%s]}]}' % (dtype, len(texts), ",".join(texts))
        return rest.post(f"/v2/models/flat_{dtype.lower()}/infer", body)
    for sign in ("", "-"):
        for text in (beyond, "1e400", "1" + "0" * 400):
            reply = send("0", sign + text)
            assert reply.status == 400 and " does not fit " in reply.error
        least, zero = only_output(send(sign + most, sign + "1e-400"))[0]["data"]
        assert np.isfinite(least) and least and zero == 0


def test_integers_beyond_double_keep_every_digit(rest):
    values = [2**63 - 1, -(2**63), 2**53 + 1]
    assert only_output(rest.infer("flat_int64", [("INPUT0", "INT64", [3], values)]))[0]["data"] == values
    values = [2**64 - 1, 2**63 + 1]
    assert only_output(rest.infer("flat_uint64", [("INPUT0", "UINT64", [2], values)]))[0]["data"] == values


def test_bytes_that_are_not_utf8(rest, grpc_):
    elements = [b"\xff\xfe", b"\xc3", b"ok", b"\xed\xa0\x80", bytes(range(256))]
    strings = BY_NAME["BYTES"]
    blob = strings.encode(elements)
    answer = grpc_.infer(grpcraw.request("flat_bytes", [("INPUT0", "BYTES", [5], None)], raw=[blob]))
    assert decode_bytes(answer.raw_output_contents[0]) == elements
    _, got = only_output(rest.infer_binary("flat_bytes", [("INPUT0", "BYTES", [5])], [blob], parameters=IN_BINARY))
    assert decode_bytes(got) == elements
    data = only_output(rest.infer_binary("flat_bytes", [("INPUT0", "BYTES", [5])], [blob]))[0]["data"]
    assert data[2] == "ok" and "\ufffd" in data[0], "in JSON the bad bytes are replaced"


def test_json_escapes(rest):
    body = (r'{"inputs":[{"name":"INPUT0","datatype":"BYTES","shape":[3],'
            r'"data":["\u00e9\n\t\"\\\/\b\f\r", "\ud83d\ude00", "a\u0000b"]}]}')
    assert only_output(rest.post("/v2/models/flat_bytes/infer", body))[0]["data"] == [
        "é\n\t\"\\/\b\f\r", "😀", "a\0b"]


# ---- shapes ----

@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [0, 0], [1, 1], [2, 5]], ids=str)
def test_zero_and_dynamic_dimensions(rest, grpc_, shape):
    count = shape[0] * shape[1]
    data = [float(i) for i in range(count)]
    output, _ = only_output(rest.infer("grid", [("INPUT0", "FP32", shape, data)]))
    assert (output["shape"], output["data"]) == (shape, data)
    blob = np.array(data, "<f4").tobytes()
    answer = grpc_.infer(grpcraw.request("grid", [("INPUT0", "FP32", shape, None)], raw=[blob]))
    assert list(answer.outputs[0].shape) == shape and answer.raw_output_contents[0] == blob


def test_reshape_to_a_scalar(rest):
    output, _ = only_output(rest.infer("scalar", [("INPUT0", "FP32", [1], [2.5])]))
    assert (output["shape"], output["data"]) == ([1], [2.5])


@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_large_tensors(rest, grpc_, size):
    array = np.arange(size, dtype="<f4")
    _, blob = only_output(rest.infer_binary("flat_fp32", [("INPUT0", "FP32", [size])], [array.tobytes()], parameters=IN_BINARY))
    assert blob == array.tobytes()
    answer = grpc_.infer(grpcraw.request("flat_fp32", [("INPUT0", "FP32", [size], None)], raw=[array.tobytes()]))
    assert answer.raw_output_contents[0] == array.tobytes()


def test_large_json_tensor(rest):
    data = [i / 4 for i in range(200_000)]
    assert only_output(rest.infer("flat_fp32", [("INPUT0", "FP32", [200_000], data)]))[0]["data"] == data


def test_optional_input_left_out(rest, grpc_):
    assert only_output(rest.infer("optional", [("INPUT0", "INT32", [2], [1, 2])]))[0]["data"] == [1, 2]
    answer = grpc_.infer(grpcraw.int32("optional", [1, 2]))
    assert answer.raw_output_contents[0] == np.array([1, 2], "<i4").tobytes()
