"""tritonclient's four clients (http, grpc, and both under asyncio), unmodified, through one table of tests."""
import numpy as np
import pytest

from lib import wait
from lib.dtypes import BY_NAME, DTYPES
from lib.tclients import KINDS, Triton, error_of

EXTENSIONS = ["classification", "sequence", "model_repository", "model_repository(unload_dependents)",
              "schedule_policy", "model_configuration", "system_shared_memory", "cuda_shared_memory",
              "binary_tensor_data", "parameters", "statistics", "trace", "logging"]
INT32 = BY_NAME["INT32"]


@pytest.fixture(params=KINDS)
def triton(request, server):
    client = Triton(request.param, server)
    yield client
    client.close()


def pair(triton, a, b, dtype=INT32, shape=(1, 16), **kw):
    return [triton.input("INPUT0", dtype, dtype.array(a, shape), **kw),
            triton.input("INPUT1", dtype, dtype.array(b, shape), **kw)]


# ---- health, metadata, configuration ----

def test_health(triton):
    assert triton.call("is_server_live") is True
    assert triton.call("is_server_ready") is True
    assert triton.call("is_model_ready", "simple") is True
    assert triton.call("is_model_ready", "simple", "1") is True


@pytest.mark.parametrize("name, version", [("nosuch", ""), ("simple", "7")])
def test_health_of_an_unknown_model(triton, name, version):
    assert triton.call("is_model_ready", name, version) is False


def test_server_metadata(triton):
    m = triton.document("get_server_metadata")
    assert m["name"] == "triton"
    assert m["version"].split(".")[0].isdigit()
    for extension in EXTENSIONS:
        if extension not in ("system_shared_memory", "cuda_shared_memory", "trace"):
            assert extension in m["extensions"]


def test_model_metadata(triton):
    m = triton.document("get_model_metadata", "simple")
    assert (m["name"], m["versions"], m["platform"]) == ("simple", ["1"], "onnxruntime_onnx")
    io = [(t["name"], t["datatype"], [int(d) for d in t["shape"]]) for t in m["inputs"] + m["outputs"]]
    assert io == [(n, "INT32", [-1, 16]) for n in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]


def test_model_metadata_of_versions(triton):
    assert triton.document("get_model_metadata", "versions")["versions"] == ["1", "2", "10"]
    assert triton.document("get_model_metadata", "versions", "2")["versions"] == ["2"]


def test_model_config(triton):
    c = triton.document("get_model_config", "simple")
    c = c.get("config", c)
    assert (c["name"], c["max_batch_size"], c["platform"]) == ("simple", 8, "onnxruntime_onnx")
    assert [i["name"] for i in c["input"]] == ["INPUT0", "INPUT1"]
    assert c["input"][0]["data_type"] == "TYPE_INT32" and [int(d) for d in c["input"][0]["dims"]] == [16]


@pytest.mark.parametrize("method", ["get_model_metadata", "get_model_config"])
def test_unknown_model(triton, method):
    e = error_of(triton.call, method, "nosuch")
    assert "'nosuch' is not found" in e.message()
    assert e.status() == ("StatusCode.NOT_FOUND" if triton.is_grpc else "404")


# ---- inference ----

def test_simple(triton):
    result = triton.infer("simple", pair(triton, range(16), [1] * 16))
    assert result.as_numpy("OUTPUT0").tolist() == [[i + 1 for i in range(16)]]
    assert result.as_numpy("OUTPUT1").tolist() == [[i - 1 for i in range(16)]]
    assert result.as_numpy("OUTPUT0").dtype == np.int32


def test_batch_of_eight(triton):
    a = np.arange(128).reshape(8, 16)
    result = triton.infer("simple", pair(triton, a, a, shape=(8, 16)))
    assert result.as_numpy("OUTPUT0").tolist() == (2 * a).tolist()


def test_int8(triton):
    int8 = BY_NAME["INT8"]
    result = triton.infer("simple_int8", pair(triton, range(16), [1] * 16, int8))
    assert result.as_numpy("OUTPUT0").tolist() == [[i + 1 for i in range(16)]]


def test_strings_are_numbers(triton):
    strings = BY_NAME["BYTES"]
    result = triton.infer("simple_string", pair(triton, [str(i) for i in range(16)], ["2"] * 16, strings))
    assert result.as_numpy("OUTPUT0").tolist() == [[str(i + 2).encode() for i in range(16)]]
    assert result.as_numpy("OUTPUT1").tolist() == [[str(i - 2).encode() for i in range(16)]]


@pytest.mark.parametrize("triton, binary", [(k, b) for k in KINDS for b in (True, False) if b or "grpc" not in k],
                         indirect=["triton"], ids=lambda v: {True: "binary", False: "json"}.get(v, v))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(triton, dtype, binary):
    binary = binary or dtype.name in ("FP16", "BF16")  # which this client has no JSON for
    array = dtype.array(dtype.values, (2, 3))
    result = triton.infer(f"batch_{dtype.name.lower()}", [triton.input("INPUT0", dtype, array, binary_data=binary)],
                          outputs=[triton.output("OUTPUT0", binary_data=binary)])
    got = result.as_numpy("OUTPUT0")
    if dtype.name == "BYTES":
        got = np.array([v if isinstance(v, bytes) else v.encode() for v in got.ravel()], np.object_).reshape(got.shape)
    assert got.shape == (2, 3)
    assert got.tolist() == array.tolist()


def test_request_id_comes_back(triton):
    result = triton.infer("simple", pair(triton, range(16), range(16)), request_id="one/two №3")
    response = result.get_response()
    assert (response.id if triton.is_grpc else response["id"]) == "one/two №3"


def test_chosen_outputs_only(triton):
    result = triton.infer("simple", pair(triton, range(16), range(16)), outputs=[triton.output("OUTPUT1")])
    assert result.as_numpy("OUTPUT0") is None
    assert result.as_numpy("OUTPUT1").tolist() == [[0] * 16]


def test_model_version(triton):
    def version(**kw):
        r = triton.infer("versions", [triton.int32([5])], **kw).get_response()
        return r.model_version if triton.is_grpc else r["model_version"]

    assert [version(), version(model_version="2"), version(model_version="1")] == ["10", "2", "1"]


def test_classification(triton):
    fp32 = BY_NAME["FP32"]
    x = triton.input("INPUT0", fp32, fp32.array([0.5, 3.25, -1, 9, 8, 7], (2, 3)))
    result = triton.infer("batch_fp32", [x], outputs=[triton.output("OUTPUT0", class_count=2)])
    assert result.as_numpy("OUTPUT0").tolist() == [[b"3.250000:1:dog", b"0.500000:0:cat"],
                                                   [b"9.000000:0:cat", b"8.000000:1:dog"]]


def test_custom_parameters_reach_the_backend(triton):
    e = error_of(triton.infer, "fault", [triton.int32([1])],
                 parameters={"fail_status": "NOT_FOUND", "fail_message": "as the client said"})
    assert "as the client said" in e.message()
    assert e.status() == ("StatusCode.NOT_FOUND" if triton.is_grpc else "404")


@pytest.mark.parametrize("status, http, grpc", [
    ("UNKNOWN", "400", "UNKNOWN"), ("INVALID", "400", "INVALID_ARGUMENT"), ("NOT_FOUND", "404", "NOT_FOUND"),
    ("EXISTS", "400", "ALREADY_EXISTS"), ("UNAVAILABLE", "503", "UNAVAILABLE"), ("UNSUPPORTED", "501", "UNIMPLEMENTED"),
    ("INTERNAL", "500", "INTERNAL"), ("CANCELLED", "400", "CANCELLED")])
def test_status_of_a_backend_error(triton, status, http, grpc):
    e = error_of(triton.infer, "fault", [triton.int32([1])], parameters={"fail_status": status})
    assert e.status() == (f"StatusCode.{grpc}" if triton.is_grpc else http)
    if status != "CANCELLED":  # the client writes its own text for that one
        assert "failed as configured" in e.message()


def test_next_request_after_an_error(triton):
    error_of(triton.infer, "simple", [triton.int32([1])])
    test_simple(triton)


# ---- management ----

def test_statistics(triton):
    def count():
        s = triton.document("get_inference_statistics", "pair")["model_stats"][0]
        return int(s.get("inference_count", 0)), int(s.get("execution_count", 0)), \
            int(s["inference_stats"]["success"].get("count", 0))

    before = count()
    x = INT32.array(range(8), (2, 4))
    triton.infer("pair", [triton.input("INPUT0", INT32, x), triton.input("INPUT1", INT32, x)])
    rows, runs, good = wait.until(lambda: count() != before and count(), "the statistics to move")
    assert (rows - before[0], runs - before[1], good - before[2]) == (2, 1, 1)


def test_statistics_of_all_models(triton):
    names = {s["name"] for s in triton.document("get_inference_statistics")["model_stats"]}
    assert {"simple", "pair", "versions"} <= names


def test_repository_index(triton):
    index = triton.document("get_model_repository_index")
    index = index["models"] if isinstance(index, dict) else index
    assert {(m["version"], m["state"]) for m in index if m["name"] == "versions"} == {
        ("1", "READY"), ("2", "READY"), ("10", "READY")}


@pytest.mark.parametrize("method", ["load_model", "unload_model"])
def test_load_and_unload_need_explicit_mode(triton, method):
    e = error_of(triton.call, method, "simple")
    assert "explicit model load / unload is not allowed if polling is enabled" in e.message()
    assert e.status() == ("StatusCode.UNAVAILABLE" if triton.is_grpc else "503")


def test_log_settings(triton):
    settings = triton.document("get_log_settings")
    settings = settings.get("settings", settings)
    assert {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"} <= set(settings)


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_shared_memory_status_is_empty(triton, kind):
    assert not triton.document(f"get_{kind}_shared_memory_status")


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_shared_memory_region_that_is_not_there(triton, kind):
    e = error_of(triton.call, f"get_{kind}_shared_memory_status", "nosuch")
    assert "nosuch" in e.message() and e.status() == ("StatusCode.NOT_FOUND" if triton.is_grpc else "404")


def test_system_shared_memory_is_refused_by_name(triton):
    e = error_of(triton.call, "register_system_shared_memory", "region", "/key", 64)
    assert "shared memory" in e.message().lower()


def test_cuda_shared_memory_is_refused_by_name(triton):
    e = error_of(triton.call, "register_cuda_shared_memory", "region", b"AAAA", 0, 64)
    assert "shared memory" in e.message().lower()


@pytest.mark.parametrize("kind", ["system", "cuda"])
def test_examples_unregister_all_regions_first(triton, kind):
    """Every one of NVIDIA's shared-memory examples and perf_analyzer begins so."""
    assert "shared memory" in error_of(triton.call, f"unregister_{kind}_shared_memory").message().lower()


def test_inference_from_shared_memory_is_refused_by_name(triton):
    x = triton.module.InferInput("INPUT0", [4], "INT32")
    x.set_shared_memory("region", 16)
    assert "shared memory" in error_of(triton.infer, "flat_int32", [x]).message().lower()


def test_trace_settings_are_refused_by_name(triton):
    e = error_of(triton.call, "get_trace_settings")
    assert "trac" in e.message().lower()
    assert e.status() == ("StatusCode.UNIMPLEMENTED" if triton.is_grpc else "501")


def test_correlation_id_of_a_model_without_sequences(triton):
    """Triton takes it and gives it no meaning."""
    result = triton.infer("flat_int32", [triton.int32([1])], sequence_id=7, sequence_start=True, sequence_end=True)
    assert result.as_numpy("OUTPUT0").tolist() == [1]
