"""Requests that take long to process: decompressing, decoding, encoding and compressing proceed in turns, between which
others are answered. One network thread, so that no request is answered elsewhere; counted, not timed."""
import gzip
import json
import re
import zlib
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from lib import metrics, onnxgen, repo, wait
from lib.counts import counting
from lib.control import Control
from lib.grpcraw import Grpc, pb, request
from lib.held import in_use
from lib.raw import Http1
from lib.rest import Rest, infer_path

FP32, BYTES, CLASSES = infer_path("floats"), infer_path("texts"), infer_path("classes")
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
CODINGS = pytest.mark.parametrize("coding", PACK)
PACKINGS = pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate], ids=["gzip", "deflate"])
TURNS = "millrace_loop_turns_total"
SMALL = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1], "data": [1]}]}
MANY = 4_000_000 // wait.SLOW  # elements of what is much work


def mb(number):
    """Bytes in so many megabytes, or in as many as a sanitizer's build takes as long for."""
    return number * 1_000_000 // wait.SLOW


@pytest.fixture
def serve(models, start):
    def make(*args, **kw):
        for name, kind in (("floats", "TYPE_FP32"), ("texts", "TYPE_STRING"), ("bools", "TYPE_BOOL")):
            repo.add(models, name, inputs=[repo.tensor("INPUT0", kind)], outputs=[repo.tensor("OUTPUT0", kind)])
        repo.add(models, "classes", max_batch_size=1_000_000, inputs=[repo.tensor("INPUT0", "TYPE_FP32", (10,))],
                 outputs=[repo.tensor("OUTPUT0", "TYPE_FP32", (10,))])
        return start(models, "--loop-threads=1", "--http-max-input-size=1GiB", "--max-decompression-ratio=0", *args, **kw)
    return make


# A request has at most twelve pieces of work: three messages of a stream, each unpacked, decoded, encoded and packed. Each
# would be one turn at most if it were not cut in slices. Slices end by the CPU time they took, or earlier when their
# thread lost its CPU: work of ten times the length has that many on a busy machine too.
LEAST = 16


def check_beside(server, work, least=LEAST):
    """The result of work(), which took turns, with another request answered between two of them. If no request arrived within
    it, it is repeated: timing decides nothing, and work in one piece never has an answer within it."""
    with ThreadPoolExecutor(1) as pool, Rest(server.http) as other, Rest(server.metrics) as scraper:
        def turns():
            text = scraper.get("/metrics").ok().body.decode()
            return int(re.search(rf"^{TURNS} (\d+)$", text, re.M)[1])

        def answered_within():
            before, inside, future = turns(), [], pool.submit(work)
            while not future.done():
                begin = turns()
                other.get("/v2/health/live").ok()
                inside.append((begin - before, turns() - before))
            total = turns() - before
            assert total >= least, f"{total} turns"
            return any(0 < begin < end < total for begin, end in inside) and [future.result()]

        return wait.until(answered_within, "another to be answered in the midst of the work")[0]


def numbers(values, **fields):
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [len(values)], "data": values}], **fields}


def binary(raw, datatype="FP32", shape=None, **fields):
    """(body, headers) of a request with binary data."""
    shape = shape or [len(raw) // 4]
    head = json.dumps({"inputs": [{"name": "INPUT0", "datatype": datatype, "shape": shape,
                                   "parameters": {"binary_data_size": len(raw)}}], **fields}).encode()
    return head + raw, {"Inference-Header-Content-Length": str(len(head))}


def post(server, body, headers=None, path=FP32):
    with Rest(server.http, timeout=300) as rest:
        return rest.post(path, body, headers=headers or {})


# ---- others are answered in between ----

@pytest.mark.few
@CODINGS
def test_rest_body_that_unpacks_to_much(serve, coding):
    server = serve()
    body = PACK[coding](json.dumps(SMALL).encode() + b" " * mb(200))
    reply = check_beside(server, lambda: post(server, body, {"Content-Encoding": coding}))
    assert reply.ok().json()["outputs"][0]["data"] == [1.0]


@pytest.mark.more
@PACKINGS
@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
def test_grpc_message_that_unpacks_to_much(serve, packing, is_stream):
    server = serve()
    message = request("floats", [("INPUT0", "FP32", [mb(25)], None)], raw=[bytes(mb(100))])

    def ask():
        with Grpc(server.url("grpc")) as client:
            if is_stream:
                # Later small ones are answered after it.
                small = request("floats", [("INPUT0", "FP32", [1], None)], raw=[bytes(4)])
                answers = client.stub.ModelStreamInfer(iter([message, small, small]), compression=packing, timeout=300)
                return [a.infer_response for a in answers]
            return [client.infer(message, compression=packing, timeout=300)]

    answers = check_beside(server, ask)
    assert [len(a.raw_output_contents[0]) for a in answers] == [mb(100)] + [4] * (2 * is_stream)


def test_json_with_many_numbers(serve):
    server = serve()
    body = json.dumps(numbers([0.5] * MANY, parameters={"binary_data_output": True}))
    reply = check_beside(server, lambda: post(server, body))
    assert np.frombuffer(list(reply.ok().parts()[1].values())[0], "<f4").tolist() == [0.5] * MANY


def test_json_with_much_else(serve):
    """White space, ignored members, escapes, an empty array in an array in an array."""
    server = serve()
    parts = [" " * mb(30), '"x":"' + "\\u00e9" * mb(5) + '",', '"y":[' + "[],".join([""] * mb(5)) + "[]],"]
    body = "{" + "".join(parts) + json.dumps(SMALL)[1:]
    assert check_beside(server, lambda: post(server, body)).ok().json()["outputs"][0]["data"] == [1.0]


def test_typed_contents_with_many_elements(serve):
    server = serve()
    message = request("floats", [("INPUT0", "FP32", [MANY], {"fp32_contents": [1.0] * 5})])
    message.inputs[0].ClearField("contents")
    one = pb.InferTensorContents(fp32_contents=[1.0]).SerializeToString()
    # One element at a time is allowed, and the dearest way.
    raw = message.SerializeToString()
    tensor = message.inputs[0].SerializeToString()
    contents = b"\x35\x00\x00\x80\x3f" * MANY
    assert one == b"\x32\x04\x00\x00\x80\x3f"

    def varint(n):
        return bytes([n & 0x7f | 0x80]) + varint(n >> 7) if n > 0x7f else bytes([n])

    tensor += b"\x2a" + varint(len(contents)) + contents
    raw = b"\x0a\x06floats\x2a" + varint(len(tensor)) + tensor

    def ask():
        with grpc.insecure_channel(server.url("grpc"), options=[("grpc.max_receive_message_length", -1)]) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", request_serializer=bytes,
                                       response_deserializer=pb.ModelInferResponse.FromString)
            return call(raw, timeout=300)

    assert np.frombuffer(check_beside(server, ask).raw_output_contents[0], "<f4").tolist() == [1.0] * MANY


def test_answer_with_many_numbers(serve):
    server = serve()
    values = np.arange(MANY, dtype="<f4")
    reply = check_beside(server, lambda: post(server, *binary(values.tobytes())))
    assert np.array_equal(np.array(reply.ok().json()["outputs"][0]["data"], "<f4"), values)


@pytest.mark.few
@pytest.mark.parametrize("is_valid", [True, False])
def test_bools_that_are_checked(serve, is_valid):
    """Elements that are not there are asked for, so that nothing comes back but an error."""
    server = serve()
    count = mb(400)
    raw = bytes(count - 1) + (b"\1" if is_valid else b"\2")
    body, headers = binary(raw, "BOOL", [count], outputs=[{"name": "NONE"}])
    reply = check_beside(server, lambda: post(server, body, headers, infer_path("bools")))
    assert reply.status == 400 and ("unexpected inference output" if is_valid else "neither 0 nor 1") in reply.error


@pytest.mark.more
def test_raw_body_as_one_text(serve):
    """Copying is fast, under a sanitizer too; it is two pieces of work."""
    server = serve()
    raw = bytes(400_000_000)
    reply = check_beside(server, lambda: post(server, raw, {"Inference-Header-Content-Length": "0"}, BYTES), least=4)
    assert reply.ok().parts()[1]["OUTPUT0"] == len(raw).to_bytes(4, "little") + raw


def in_chunks(body):
    for at in range(0, len(body), 300_000):
        yield body[at:at + 300_000]


@pytest.mark.release_only("a sanitizer has functions of its own for copies")
@pytest.mark.parametrize("kind", ["sized", "chunked", "unary", "stream", "parameter"])
def test_copies_while_a_body_comes(serve, tmp_path, kind):
    """None grows with the body, nor with a string in it."""
    copies = counting.Copies(tmp_path)
    server = serve(env=copies.environment)
    raw = bytes(150_000_000)
    with copies:
        if kind in ("sized", "chunked"):
            body, headers = binary(raw, parameters={"binary_data_output": True})
            assert len(post(server, body if kind == "sized" else in_chunks(body), headers).ok().body) > len(raw)
        elif kind == "parameter":
            assert post(server, json.dumps({**SMALL, "parameters": {"p": "x" * 20_000_000}})).status == 200
        else:
            message = request("floats", [("INPUT0", "FP32", [len(raw) // 4], None)], raw=[raw])
            with Grpc(server.url("grpc")) as client:
                answers = ([a.infer_response for a in client.stub.ModelStreamInfer(iter([message]), timeout=300)]
                           if kind == "stream" else [client.infer(message, timeout=300)])
            assert answers[0].raw_output_contents[0] == raw
    assert copies.largest <= 2 << 20


@CODINGS
def test_answer_that_is_compressed(serve, coding):
    server = serve()
    raw = np.random.default_rng(1).integers(0, 200, mb(20), "u1").tobytes()
    body, headers = binary(raw, parameters={"binary_data_output": True})
    reply = check_beside(server, lambda: post(server, body, {**headers, "Accept-Encoding": coding}))
    assert reply.ok().headers["content-encoding"] == coding
    plain = gzip.decompress(reply.body) if coding == "gzip" else zlib.decompress(reply.body)
    assert plain[int(reply.headers["inference-header-content-length"]):] == raw


@pytest.mark.few
@pytest.mark.parametrize("is_stream", [False, True], ids=["unary", "stream"])
def test_message_that_is_compressed(serve, is_stream):
    server = serve("--grpc-infer-response-compression-level=low")
    raw = np.random.default_rng(1).integers(0, 200, mb(20), "u1").tobytes()
    message = request("floats", [("INPUT0", "FP32", [mb(5)], None)], raw=[raw])

    def ask():
        with Grpc(server.url("grpc")) as client:
            if is_stream:
                return [a.infer_response for a in client.stub.ModelStreamInfer(iter([message] * 2), timeout=300)]
            return [client.infer(message, timeout=300)]

    answers = check_beside(server, ask)
    assert [a.raw_output_contents[0] == raw for a in answers] == [True] * (1 + is_stream)


def test_answer_with_long_and_many_texts(serve):
    """Long texts are written in parts, and no character is torn."""
    server = serve()
    texts = ["€" * mb(3), 'a"b\\c' * (mb(1) // 2), "\U0001f600x" * (mb(1) + 1)] + ["é"] * mb(1)
    raw = b"".join(len(b).to_bytes(4, "little") + b for b in (t.encode() for t in texts))
    body, headers = binary(raw, "BYTES", [len(texts)])
    reply = check_beside(server, lambda: post(server, body, headers, BYTES))
    assert reply.ok().json()["outputs"][0]["data"] == texts


def test_classification_of_many_rows(serve):
    server = serve()
    rows = MANY // 20
    raw = np.tile(np.arange(10, dtype="<f4"), rows).tobytes()
    body, headers = binary(raw, shape=[rows, 10], outputs=[{"name": "OUTPUT0", "parameters": {"classification": 2}}])
    reply = check_beside(server, lambda: post(server, body, headers, CLASSES))
    assert reply.ok().json()["outputs"][0]["data"] == ["9.000000:9", "8.000000:8"] * rows


def load_parameters(megabytes):
    """Of a model whose second file is large."""
    onnx = onnxgen.adder(3)
    tensor = {"data_type": "TYPE_INT32", "dims": [-1]}
    config = json.dumps({"backend": "onnxruntime", "input": [{"name": "INPUT0", **tensor}],
                         "output": [{"name": "OUTPUT0", **tensor}]})
    return config, {"1/model.onnx": onnx, "1/large.bin": bytes(mb(megabytes))}


def test_rest_load_with_large_files(serve):
    server = serve("--model-control-mode=explicit", "--load-overrides=all", "--load-model=floats", "--allow-backend=onnxruntime")
    config, files = load_parameters(150)
    with Control(server) as control:
        assert check_beside(server, lambda: control.load("new", config, files)).status == 200
        assert control.model_ready("new")


@pytest.mark.more
@pytest.mark.parametrize("packing", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_grpc_load_with_large_files(serve, packing):
    server = serve("--model-control-mode=explicit", "--load-overrides=all", "--load-model=floats", "--allow-backend=onnxruntime")
    config, files = load_parameters(150)
    message = pb.RepositoryModelLoadRequest(model_name="new")
    message.parameters["config"].string_param = config
    for path, data in files.items():
        message.parameters[f"file:{path}"].bytes_param = data

    def ask():
        with Grpc(server.url("grpc")) as client:
            return client.stub.RepositoryModelLoad(message, compression=packing, timeout=300)

    check_beside(server, ask)
    with Control(server) as control:
        assert control.model_ready("new")


SMALL_BODY = 1 << 20


@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/logging", "/v2/repository/models/floats/unload",
                                  "/v2/repository/models/floats/label", "/v2/repository/models/floats/rollback",
                                  "/v2/repository/models/floats/record-warmup", "/v2/trace/setting"])
def test_endpoints_without_tensors_take_small_bodies(serve, path):
    """Their JSON is read in one piece."""
    server = serve("--model-control-mode=explicit", "--load-model=floats")
    body = json.dumps({"x": "y" * SMALL_BODY})
    reply = post(server, body, path=path)
    assert reply.status == 400 and f"{len(body)} bytes" in reply.error and str(SMALL_BODY) in reply.error
    assert post(server, "{}".ljust(SMALL_BODY), path=path).status != 413
    chunked = Http1(server.http)
    for size in (SMALL_BODY, SMALL_BODY + 1):
        body = b"{}".ljust(size)
        chunk = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
        chunked.sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunk)
        reply = chunked.response()
        assert (reply.status == 400 and str(SMALL_BODY).encode() in reply.body) == (size > SMALL_BODY), reply.body


@pytest.mark.parametrize("packing", [None, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_methods_without_tensors_take_small_messages(serve, packing):
    server = serve()
    with Grpc(server.url("grpc")) as client:
        for method, message in (("ModelMetadata", pb.ModelMetadataRequest(name="x" * SMALL_BODY)),
                                ("RepositoryIndex", pb.RepositoryIndexRequest(repository_name="x" * SMALL_BODY)),
                                ("LogSettings", pb.LogSettingsRequest(settings={"x" * SMALL_BODY: {}}))):
            with pytest.raises(grpc.RpcError) as error:
                getattr(client.stub, method)(message, compression=packing, timeout=wait.PATIENCE)
            assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert str(SMALL_BODY) in error.value.details() and "this method" in error.value.details()


def test_strings_of_a_load_are_bounded(serve):
    server = serve("--model-control-mode=explicit", "--load-overrides=all", "--load-model=floats", "--allow-backend=onnxruntime")
    long = "x" * (SMALL_BODY + 1)
    with Control(server) as control:
        reply = control.load("new", long, {})
        assert reply.status == 400 and str(SMALL_BODY) in reply.error
        assert control.load("new", "{}", {long: b"x"}).status == 400
    with Grpc(server.url("grpc")) as client:
        def ask(**fields):
            with pytest.raises(grpc.RpcError) as error:
                client.stub.RepositoryModelLoad(pb.RepositoryModelLoadRequest(**fields), timeout=wait.PATIENCE)
            return error.value.code(), error.value.details()
        for fields in ({"model_name": long}, {"model_name": "new", "parameters": {"config": {"string_param": long}}}):
            code, text = ask(**fields)
            assert code == grpc.StatusCode.INVALID_ARGUMENT and str(SMALL_BODY) in text
        assert "NUL" in ask(model_name="a\0b")[1]
        assert ask(model_name="new", repository_name="r")[0] == grpc.StatusCode.UNIMPLEMENTED
        code, text = ask(model_name="new", parameters={"config": {"bool_param": True}})
        assert code == grpc.StatusCode.INVALID_ARGUMENT and "'config'" in text


def test_small_requests_take_no_turns(serve):
    """Packed ones are work that ends in its first slice, unless its thread loses its CPU within it: so one of each kind
    is found that took none."""
    server = serve()
    packed = gzip.compress(json.dumps(SMALL).encode())
    message = request("floats", [("INPUT0", "FP32", [1], None)], raw=[bytes(4)])
    with Rest(server.http) as rest, Grpc(server.url("grpc")) as client:
        def turns_of(ask):
            before = metrics.value(server, TURNS)
            ask()
            return metrics.value(server, TURNS) - before

        assert turns_of(lambda: [rest.post(FP32, SMALL).ok() for _ in range(50)]) == 0
        for kind, ask in (
                ("REST", lambda: rest.post(FP32, packed, headers={"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}).ok()),
                ("gRPC", lambda: client.infer(message, compression=grpc.Compression.Gzip))):
            wait.until(lambda: turns_of(ask) == 0, f"a packed request by {kind} without a turn of its own")


# ---- limits ----

def test_ratio(serve):
    server = serve("--max-decompression-ratio=100")
    much = gzip.compress(json.dumps(SMALL).encode() + b" " * 60_000_000)
    reply = post(server, much, {"Content-Encoding": "gzip"})
    assert reply.status == 400 and "--max-decompression-ratio" in reply.error
    with Grpc(server.url("grpc")) as client:
        def ask(n):
            return client.infer(request("floats", [("INPUT0", "FP32", [n // 4], None)], raw=[bytes(n)]), compression=grpc.Compression.Gzip)
        with pytest.raises(grpc.RpcError) as error:
            ask(60_000_000)
        assert error.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and "--max-decompression-ratio" in error.value.details()
        assert len(ask(8_000_000).raw_output_contents[0]) == 8_000_000  # zeros, but not many
    assert post(server, gzip.compress(json.dumps(SMALL).encode() + b" " * 8_000_000), {"Content-Encoding": "gzip"}).status == 200


@pytest.mark.few
@CODINGS
def test_budget_counts_what_is_unpacked(serve, coding):
    server = serve("--memory-budget=64MiB")
    body = PACK[coding](json.dumps(SMALL).encode() + b" " * 200_000_000)
    reply = post(server, body, {"Content-Encoding": coding})
    assert reply.status == 503 and "--memory-budget" in reply.error
    assert post(server, SMALL).status == 200


def test_budget_counts_answers_as_text(serve):
    server = serve("--memory-budget=64MiB")
    body, headers = binary(np.full(3_000_000, 1.2345678e-20, "<f4").tobytes())  # 12 MB twice, and 40 MB of text
    reply = post(server, body, headers)
    assert reply.status == 503 and "--memory-budget" in reply.error
    wait.until(lambda: in_use(server) < 10_000_000, "the memory to come back")
    body, headers = binary(bytes(4_000_000))
    assert post(server, body, headers).status == 200


def test_what_is_read_in_one_piece_is_bounded(serve):
    """A number's digits and a request's id: they are read or written in one go."""
    server = serve()

    def of(number="1", id="x"):
        return f'{{"id":"{id}","inputs":[{{"name":"INPUT0","datatype":"FP32","shape":[1],"data":[{number}]}}]}}'

    for number in ("1" * 70_000, "0." + "0" * 70_000 + "1", "1e" + "0" * 70_000):
        assert post(server, of(number)).status == 400
        assert post(server, f'{{"unread":{number},' + of()[1:]).status == 400
    assert post(server, of("0." + "0" * 60_000 + "1")).ok().json()["outputs"][0]["data"] == [0.0]
    long, too_long = "x" * (1 << 20), "x" * ((1 << 20) + 1)
    assert post(server, of(id=long)).ok().json()["id"] == long
    reply = post(server, of(id=too_long))
    assert reply.status == 400 and "1048577 bytes" in reply.error
    with Grpc(server.url("grpc")) as client:
        def ask(id):
            return client.infer(request("floats", [("INPUT0", "FP32", [1], None)], raw=[bytes(4)], id=id))
        assert ask(long).id == long
        with pytest.raises(grpc.RpcError) as error:
            ask(too_long)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "1048577 bytes" in error.value.details()


# ---- ends ----

def begun(server):
    """Until long work is under way."""
    wait.until(lambda: metrics.value(server, TURNS), "turns")


def open_post(server, body, headers, path=FP32):
    """A request that was sent whole, on a connection whose client does not read."""
    client = Http1(server.http)
    lines = "".join(f"{k}: {v}\r\n" for k, v in headers.items())
    client.sock.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body)
    return client


@pytest.mark.few
@pytest.mark.parametrize("what", ["body", "answer"])
def test_client_that_goes_away_ends_it(serve, what):
    server = serve()
    before = in_use(server)
    if what == "body":
        sent = gzip.compress(b" " * mb(1000), 1), {"Content-Encoding": "gzip"}
    else:
        sent = binary(bytes(mb(200)))
    clients = [open_post(server, *sent) for _ in range(2)]
    begun(server)
    for client in clients:
        client.sock.close()
    wait.until(lambda: in_use(server) <= before + 1_000_000, "the memory to come back")
    turns = metrics.value(server, TURNS)
    assert post(server, SMALL).status == 200
    assert metrics.value(server, TURNS) == turns, "it goes on for nobody"


def test_reset_stream_ends_it(serve):
    server = serve()
    before = in_use(server)
    with Grpc(server.url("grpc")) as client:
        message = request("floats", [("INPUT0", "FP32", [mb(100)], None)], raw=[bytes(mb(400))])
        future = client.stub.ModelInfer.future(message, compression=grpc.Compression.Gzip, timeout=300)
        begun(server)
        future.cancel()
        wait.until(lambda: in_use(server) <= before + 1_000_000, "the memory to come back")
        assert client.infer(request("floats", [("INPUT0", "FP32", [1], None)], raw=[bytes(4)])).raw_output_contents


def test_drain_ends_what_is_still_read(serve):
    """What is decoded is refused, so that the server can go; what is answered already is answered."""
    server = serve()
    packed = gzip.compress(b" " * mb(1000), 1)
    clients = [open_post(server, packed, {"Content-Encoding": "gzip"}) for _ in range(8)]
    begun(server)
    server.signal()
    for client in clients:
        reply = client.response()
        assert reply.status == 503 and b"exiting" in reply.body
    server.stop()
