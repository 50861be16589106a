"""REST inference beside the data types: the JSON of requests and answers, binary data, raw binary requests."""
import json

import numpy as np
import pytest

from lib.raw import Http1, Http2, request
from lib.rest import binary_body, infer_path

ONE = {"name": "INPUT0", "datatype": "INT32", "shape": [3], "data": [1, 2, 3]}
ONE_BYTES = np.array([1, 2, 3], "<i4").tobytes()
FLAT = infer_path("flat_int32")
PAIR = [("INPUT0", "INT32", [1, 4], [1, 2, 3, 4]), ("INPUT1", "INT32", [1, 4], [5, 6, 7, 8])]
PAIR_SHAPES = [i[:3] for i in PAIR]
PAIR_BYTES = [np.array(i[3], "<i4").tobytes() for i in PAIR]


def test_order_of_the_answer(rest):
    reply = rest.infer("flat_int32", [ONE], id="a1").ok()
    assert list(reply.json()) == ["id", "model_name", "model_version", "outputs"]
    assert list(reply.json()["outputs"][0]) == ["name", "datatype", "shape", "data"]
    assert reply.json()["id"] == "a1" and reply.json()["model_version"] == "1"


@pytest.mark.parametrize("fields", [{}, {"id": ""}])
def test_no_id_in_no_id_out(rest, fields):
    assert "id" not in rest.infer("flat_int32", [ONE], **fields).ok().json()


@pytest.mark.parametrize("id", ["x" * 1000, "ünïcödé", 'q"uo\\te\n', "a b/c"])
def test_ids_come_back_as_they_were(rest, id):
    assert rest.infer("flat_int32", [ONE], id=id).ok().json()["id"] == id


def test_unknown_members_are_ignored(rest):
    reply = rest.infer("flat_int32", [{**ONE, "extra": {"a": [1]}}], more=[{"x": None}], another=1.5)
    assert reply.ok().json()["outputs"][0]["data"] == [1, 2, 3]


def test_members_in_any_order(rest):
    body = ('{"outputs":[{"name":"OUTPUT0"}], "inputs":[{"data":[1,2,3],"shape":[3],"parameters":{},'
            '"datatype":"INT32","name":"INPUT0"}], "id":"z"}')
    assert rest.post(FLAT, body).ok().json()["outputs"][0]["data"] == [1, 2, 3]


@pytest.mark.parametrize("body", [
    '{"inputs":[],"inputs":[%s]}', '{"inputs":[%s],"inputs":[]}', '{"inputs":[%s],"id":"a","id":"b"}',
    '{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"shape":[3],"data":[1],"data":[1,2,3]}]}'])
def test_members_that_come_twice(rest, body):
    """One of them counts or the request is refused; never a mixture, never a crash."""
    reply = rest.post(FLAT, body.replace("%s", json.dumps(ONE)))
    assert reply.status == 400 and reply.error or reply.json()["outputs"][0]["data"] == [1, 2, 3]
    assert rest.infer("flat_int32", [ONE]).status == 200


def test_white_space_everywhere(rest):
    body = json.dumps({"inputs": [ONE]}, indent=8).replace("\n", "\r\n\t ")
    assert rest.post(FLAT, " \n" + body + "\n\n").ok().json()["outputs"][0]["data"] == [1, 2, 3]


def test_keys_with_escapes(rest):
    body = r'{"\u0069nputs":[{"na\u006de":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}'
    assert rest.post(FLAT, body).status == 200


@pytest.mark.parametrize("data", [[1, 2, 3, 4], [[1, 2], [3, 4]], [[[1], [2]], [[3], [4]]], [[1, 2, 3, 4]]], ids=str)
def test_any_nesting_of_data(rest, data):
    output = rest.infer("grid", [("INPUT0", "FP32", [2, 2], data)]).ok().json()["outputs"][0]
    assert output["data"] == [1, 2, 3, 4] and output["shape"] == [2, 2]


def test_version_in_the_url(rest):
    for version in ("1", "2", "10"):
        answer = rest.infer(f"versions/versions/{version}", [ONE]).ok().json()
        assert answer["model_version"] == version
    assert rest.infer("versions", [ONE]).ok().json()["model_version"] == "10"


# ---- choice of outputs ----

def outputs_of(reply):
    document, blobs = reply.ok().parts()
    return {o["name"]: o.get("data", blobs.get(o["name"])) for o in document["outputs"]}


def test_all_outputs_when_none_is_named(rest):
    assert outputs_of(rest.infer("pair", PAIR)) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [5, 6, 7, 8]}
    assert outputs_of(rest.infer("pair", PAIR, outputs=[])) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [5, 6, 7, 8]}


def test_named_outputs_only(rest):
    assert outputs_of(rest.infer("pair", PAIR, outputs=[{"name": "OUTPUT1"}])) == {"OUTPUT1": [5, 6, 7, 8]}


def test_mixed_outputs(rest):
    reply = rest.infer("pair", PAIR, outputs=[{"name": "OUTPUT1", "parameters": {"binary_data": True}}, {"name": "OUTPUT0"}])
    assert outputs_of(reply) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": PAIR_BYTES[1]}
    assert reply.headers["content-type"] == "application/octet-stream"


def test_an_output_may_differ_from_the_request(rest):
    reply = rest.infer("pair", PAIR, parameters={"binary_data_output": True},
                       outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": False}}, {"name": "OUTPUT1"}])
    assert outputs_of(reply) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": PAIR_BYTES[1]}


def test_order_of_binary_outputs(rest):
    reply = rest.infer("pair", PAIR, parameters={"binary_data_output": True}).ok()
    length = int(reply.headers["inference-header-content-length"])
    assert reply.body[length:] == b"".join(PAIR_BYTES)
    assert [o["name"] for o in json.loads(reply.body[:length])["outputs"]] == ["OUTPUT0", "OUTPUT1"]


@pytest.mark.parametrize("outputs", [[{"name": "nosuch"}], [{"name": "OUTPUT0"}, {"name": "nosuch"}]])
def test_unknown_output(rest, outputs):
    reply = rest.infer("pair", PAIR, outputs=outputs)
    assert reply.status == 400 and "unexpected inference output 'nosuch' for model 'pair'" in reply.error


# ---- binary inputs ----

def test_mixed_inputs(rest):
    reply = rest.infer_binary("pair", [PAIR[0], PAIR_SHAPES[1]], [PAIR_BYTES[1]])
    assert outputs_of(reply) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [5, 6, 7, 8]}
    reply = rest.infer_binary("pair", [PAIR_SHAPES[0], PAIR[1]], [PAIR_BYTES[0]])
    assert outputs_of(reply) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [5, 6, 7, 8]}


def test_blobs_follow_the_order_of_inputs(rest):
    reply = rest.infer_binary("pair", PAIR_SHAPES[::-1], PAIR_BYTES[::-1])
    assert outputs_of(reply) == {"OUTPUT0": [1, 2, 3, 4], "OUTPUT1": [5, 6, 7, 8]}


def test_length_of_all_json_is_allowed(rest):
    body = json.dumps({"inputs": [ONE]})
    reply = rest.post(FLAT, body, headers={"Inference-Header-Content-Length": str(len(body))})
    assert reply.ok().json()["outputs"][0]["data"] == [1, 2, 3]


@pytest.mark.parametrize("length, text", [
    ("-1", "inference header size should be in range (0, {body}), got: -1"),
    ("{more}", "inference header size should be in range (0, {body}), got: {more}"),
    ("2147483648", ""), ("99999999999999999999", ""),
    ("abc", "Unable to parse Inference-Header-Content-Length, got: abc"),
    ("12x", "Unable to parse Inference-Header-Content-Length, got: 12x"), ("1.5", ""), ("", "")])
def test_bad_header_length(rest, length, text):
    body, _ = binary_body([("INPUT0", "INT32", [3])], [ONE_BYTES])
    values = {"body": len(body), "more": len(body) + 1}
    reply = rest.post(FLAT, body, headers={"Inference-Header-Content-Length": length.format(**values)})
    assert reply.status == 400
    assert text.format(**values) in reply.error
    assert rest.infer("flat_int32", [ONE]).status == 200


@pytest.mark.parametrize("other, status", [(0, 200), (1, 400), (-1, 400)])
def test_header_length_given_twice(server, other, status):
    body, length = binary_body([("INPUT0", "INT32", [3])], [ONE_BYTES])
    name = "Inference-Header-Content-Length"
    for first, second in ((length, length + other), (length + other, length)):
        with Http1(server.http) as wire:
            wire.send(request("POST", FLAT, f"{name}: {first}\r\n{name.lower()}: {second}\r\n", body))
            answer = wire.response()
        with Http2(server.http) as wire:
            over_http2 = wire.ask("POST", FLAT, body, [(name.lower(), str(first)), (name.lower(), str(second))])
        assert answer.status == over_http2.status == status
        assert status == 200 or "given twice" in json.loads(answer.body)["error"]


def test_header_length_cuts_the_json(rest):
    body, length = binary_body([("INPUT0", "INT32", [3])], [ONE_BYTES])
    for wrong in (1, length - 1, length + 1):
        reply = rest.post(FLAT, body, headers={"Inference-Header-Content-Length": str(wrong)})
        assert reply.status == 400 and reply.error


def test_blob_too_short(rest):
    inputs = [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "parameters": {"binary_data_size": 12}}]
    reply = rest.infer_binary("flat_int32", inputs, [ONE_BYTES[:7]])
    assert reply.status == 400
    assert "unexpected size for input 'INPUT0', expecting 5 additional bytes for model 'flat_int32'" in reply.error


def test_blob_left_over(rest):
    inputs = [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "parameters": {"binary_data_size": 12}}]
    reply = rest.infer_binary("flat_int32", inputs, [ONE_BYTES + b"xyz"])
    assert reply.status == 400
    assert "unexpected additional input data for model 'flat_int32'" in reply.error


@pytest.mark.parametrize("size", [-1, 2**31, 2**63, 1.5, "12", True, None, [12]], ids=repr)
def test_bad_binary_data_size(rest, size):
    inputs = [{"name": "INPUT0", "datatype": "INT32", "shape": [3], "parameters": {"binary_data_size": size}}]
    reply = rest.infer_binary("flat_int32", inputs, [ONE_BYTES])
    assert reply.status == 400 and reply.error


def test_binary_and_json_data_of_one_input(rest):
    inputs = [{**ONE, "parameters": {"binary_data_size": 12}}]
    reply = rest.infer_binary("flat_int32", inputs, [ONE_BYTES])
    assert reply.status == 400 and "must set only one of the following fields" in reply.error


def test_no_data_at_all(rest):
    reply = rest.infer("flat_int32", [("INPUT0", "INT32", [3])])
    assert reply.status == 400 and reply.error


# ---- raw binary requests: Inference-Header-Content-Length: 0 ----

RAW = {"Inference-Header-Content-Length": "0"}


def test_raw_binary_request(rest):
    reply = rest.post(FLAT, ONE_BYTES, headers=RAW).ok()
    document, blobs = reply.parts()
    assert document["outputs"][0]["shape"] == [3] and blobs["OUTPUT0"] == ONE_BYTES


def test_raw_binary_request_of_a_batching_model(rest):
    document, blobs = rest.post(infer_path("batch_int32"), ONE_BYTES, headers=RAW).ok().parts()
    assert document["outputs"][0]["shape"] == [1, 3] and blobs["OUTPUT0"] == ONE_BYTES


def test_raw_binary_request_with_odd_size(rest):
    reply = rest.post(FLAT, ONE_BYTES[:-1], headers=RAW)
    assert reply.status == 400 and reply.error


def test_raw_binary_request_with_one_string(rest):
    """The server adds the length before each element."""
    document, blobs = rest.post(infer_path("flat_bytes"), b"some \0 bytes", headers=RAW).ok().parts()
    assert document["outputs"][0]["shape"] == [1] and blobs["OUTPUT0"] == b"\x0c\0\0\0some \0 bytes"


@pytest.mark.parametrize("model", ["pair", "grid"])
def test_raw_binary_request_to_a_model_that_has_no_single_plain_input(rest, model):
    """Two inputs; two variable dimensions."""
    reply = rest.post(infer_path(model), ONE_BYTES, headers=RAW)
    assert reply.status == 400 and reply.error


# ---- parameters ----

def test_parameters_of_all_kinds_are_taken(rest):
    parameters = {"s": "text", "i": -5, "b": True, "d": 1.5, "u": 2**63}
    assert rest.infer("flat_int32", [ONE], parameters=parameters).status == 200


@pytest.mark.parametrize("value", [None, [1], {"a": 1}], ids=repr)
def test_parameter_of_no_kind(rest, value):
    reply = rest.infer("flat_int32", [ONE], parameters={"odd": value})
    assert reply.status == 400 and "odd" in reply.error


def test_a_parameter_that_comes_often(rest):
    """Each time counts, as each is compared with those before it."""
    body = '{"parameters":{%s},"inputs":[%s]}'
    one = json.dumps(ONE)
    assert rest.post(infer_path("flat_int32"), body % (",".join(['"a":1'] * 1024), one)).status == 200
    reply = rest.post(infer_path("flat_int32"), body % (",".join(['"a":1'] * 1025), one))
    assert reply.status == 400 and "more than 1024 parameters" in reply.error
    reply = rest.post(infer_path("flat_int32"), '{"inputs":[%s],"outputs":[{"name":"OUTPUT0","parameters":{},"parameters":{}}]}' % one)
    assert reply.status == 400 and "the member appears twice" in reply.error


def test_reserved_parameters(rest):
    reply = rest.infer("flat_int32", [ONE], parameters={"triton_anything": 1})
    assert reply.status == 400 and "triton_" in reply.error


@pytest.mark.parametrize("name, value", [
    ("priority", "high"), ("priority", -1), ("timeout", "soon"), ("timeout", -1), ("timeout", 1.5),
    ("binary_data_output", "yes"), ("sequence_start", 1), ("sequence_id", True)])
def test_known_parameter_of_another_kind(rest, name, value):
    reply = rest.infer("flat_int32", [ONE], parameters={name: value})
    assert reply.status == 400 and name in reply.error


# ---- texts that are no request ----

@pytest.mark.parametrize("body", [
    b"", b" ", b"null", b"[]", b"1", b'"inputs"', b"{", b"{}", b'{"inputs":}', b'{"inputs":null}', b'{"inputs":{}}',
    b'{"inputs":[]}', b'{"inputs":[1]}', b'{"inputs":[{}]}', b'{"inputs":[{"name":"INPUT0"}]}',
    b'{"inputs":[{"name":1,"datatype":"INT32","shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"int32","shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":7,"shape":[1],"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":1,"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":["1"],"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1.5],"data":[1]}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":1}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":"1"}]}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}x',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}]}{}',
    b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1,]}]}',
    b'{"inputs":[{"name":"INPUT0" "datatype":"INT32","shape":[1],"data":[1]}]}',
    b"{'inputs':[]}", b'\xef\xbb\xbf\xff', b'{"inputs":[{"name":"\xff"}]}', b"\0" * 100, b"{" * 5000, b"[" * 100000,
    b'{"a":' * 101 + b"1" + b"}" * 101], ids=lambda b: repr(b[:60]))
def test_body_that_is_no_request(rest, body):
    reply = rest.post(FLAT, body)
    assert reply.status == 400 and reply.error
    assert rest.infer("flat_int32", [ONE]).status == 200


def test_nesting_up_to_the_limit(rest):
    deep = b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1],"data":[1]}],"x":' + b"[" * 90 + b"]" * 90 + b"}"
    assert rest.post(FLAT, deep).status == 200


def test_one_input_twice(rest):
    reply = rest.infer("flat_int32", [ONE, ONE])
    assert reply.status == 400 and "INPUT0" in reply.error


@pytest.mark.parametrize("shape", [[-1], [2**31], [2**62, 4], [2**63 - 1], [2**32, 2**32], [-3], [1] * 40], ids=str)
def test_hostile_shapes(rest, shape):
    for reply in (rest.infer("flat_int32", [("INPUT0", "INT32", shape, [1])]),
                  rest.infer_binary("flat_int32", [("INPUT0", "INT32", shape)], [b"abcd"])):
        assert reply.status == 400 and reply.error
    assert rest.infer("flat_int32", [ONE]).status == 200


@pytest.mark.parametrize("count", [2, 4])
def test_count_of_data_differs_from_shape(rest, count):
    reply = rest.infer("flat_int32", [("INPUT0", "INT32", [3], list(range(count)))])
    assert reply.status in (400, 500)
    assert "Shape does not match true shape of 'data' field" in reply.error


@pytest.mark.parametrize("blob", [b"\x05\0\0\0abcd", b"\0\0\0", b"\xff\xff\xff\xff", b"\x01\0\0\0a\x01\0\0\0b",
                                  b"\x01\0\0\0a\0"], ids=repr)
def test_damaged_bytes_tensor(rest, blob):
    reply = rest.infer_binary("flat_bytes", [("INPUT0", "BYTES", [1])], [blob])
    assert reply.status == 400 and reply.error


def test_many_unknown_inputs(rest):
    reply = rest.infer("flat_int32", [("x%d" % i, "INT32", [1], [1]) for i in range(3000)])
    assert reply.status == 400 and reply.error
