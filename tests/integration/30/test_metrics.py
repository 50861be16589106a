"""GET /metrics: Triton's names and labels, our histograms beside them; all of it read by prometheus_client's parser."""
import gzip
import math
import socket
import time

import grpc
import pytest

from lib import grpcraw, repo, wait
from lib.control import Control
from lib.grpcraw import Grpc
from lib.metrics import families, samples, value
from lib.rest import Rest
from lib.stream import DECOUPLED, Stream

COUNTERS = ["nv_inference_request_success", "nv_inference_count", "nv_inference_exec_count", "nv_inference_request_duration_us",
            "nv_inference_queue_duration_us", "nv_inference_compute_input_duration_us", "nv_inference_compute_infer_duration_us",
            "nv_inference_compute_output_duration_us"]
GAUGES = ["nv_inference_pending_request_count", "nv_model_load_duration_secs"]
PROCESS = ["nv_cpu_utilization", "nv_cpu_memory_total_bytes", "nv_cpu_memory_used_bytes"]
REASONS = {"REJECTED", "CANCELED", "BACKEND", "OTHER"}


@pytest.fixture
def own(models, start):
    """A server with the models `m` (identity), `slow` (fault), `several` (fault, decoupled) and `tagged`, and nothing asked yet."""
    repo.add(models, "m", max_batch_size=4)
    repo.add(models, "slow", backend="fault")
    repo.add(models, "several", backend="fault", extra=DECOUPLED)
    repo.add(models, "tagged", extra='metric_tags { key: "team" value: "a\\"b\\\\c" } metric_tags { key: "tier" value: "gold" }')
    return start(models)


def rows(count=2):
    return [("INPUT0", "INT32", [count, 1], [1] * count)]


def test_form(own):
    with Rest(own.metrics) as client:
        reply = client.get("/metrics").ok()
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        assert client.request("HEAD", "/metrics").body == b""
        refused = client.post("/metrics")
        assert refused.status == 405 and refused.headers["allow"] == "GET, HEAD"
        assert client.get("/nothing").status == 404
    text = reply.body.decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# HELP ") or line.startswith("# TYPE ") or line.split()[0][0].isalpha(), line
    assert families(own), "the parser takes it"


def test_every_family_stands_together_and_says_what_it_is(own):
    with Rest(own.metrics) as client:
        lines = client.get("/metrics").ok().body.decode().splitlines()
    seen, current = set(), None
    for line in lines:
        if line.startswith("# TYPE "):
            current = line.split()[2]
            assert current not in seen, f"{current} twice"
            seen.add(current)
        elif not line.startswith("#"):
            name = line.split("{")[0].split()[0]
            assert name in (current, f"{current}_bucket", f"{current}_sum", f"{current}_count"), line
    with_help = {line.split()[2] for line in lines if line.startswith("# HELP ")}
    assert with_help == seen


def test_no_sample_twice(own):
    seen = set()
    for f in families(own).values():
        for s in f.samples:
            key = (s.name, tuple(sorted(s.labels.items())))
            assert key not in seen, key
            seen.add(key)


@pytest.mark.parametrize("name", COUNTERS + GAUGES)
def test_names_and_labels(own, name):
    found = [l for l, _ in samples(own, name)]
    assert {"model": "m", "version": "1"} in found
    kinds = {f.type for f in families(own).values() for s in f.samples if s.name in (name, name + "_total")}
    assert kinds == {"counter" if name in COUNTERS else "gauge"}


@pytest.mark.parametrize("name", PROCESS)
def test_process(own, name):
    assert value(own, name) is not None and value(own, name) >= 0


def test_failure_reasons(own):
    """All of them once a model was asked, so that rates know what was 0 before."""
    assert samples(own, "nv_inference_request_failure") == []
    with Rest(own.http) as rest:
        rest.infer("m", rows()).ok()
    wait.until(lambda: value(own, "nv_inference_request_success", model="m") == 1, "one request")
    assert {l["reason"] for l, _ in samples(own, "nv_inference_request_failure") if l["model"] == "m"} == REASONS


def scrape(server, **headers):
    with Rest(server.metrics) as client:
        return client.get("/metrics", headers={k.replace("_", "-"): v for k, v in headers.items()}).ok()


@pytest.fixture
def many(models, start):
    """Five hundred models without requests."""
    for i in range(500):
        repo.add(models, f"a-model-of-the-team-{i:05d}", max_batch_size=4)
    return start(models)


def test_idle_models_are_small(many):
    """Less than a kilobyte each, without histograms; one that was asked has them, and is the only one."""
    text = scrape(many).body.decode()
    assert len(text) < 500 * 1024
    assert "millrace_request_stage_seconds_bucket" not in text
    with Rest(many.http) as rest:
        rest.infer("a-model-of-the-team-00007", rows()).ok()
    wait.until(lambda: value(many, "nv_inference_request_success", model="a-model-of-the-team-00007") == 1, "one request")
    assert {l["model"] for l, _ in samples(many, "millrace_request_stage_seconds_count")} == {"a-model-of-the-team-00007"}
    assert {l["protocol"] for l, _ in samples(many, "millrace_request_stage_seconds_count")} == {"rest"}


def stable(text):
    return [line for line in text.decode().splitlines() if line.startswith(("nv_inference", "nv_model", "# "))]


def test_packed_metrics(many, own):
    for server in (many, own):
        plain, packed = scrape(server), scrape(server, accept_encoding="gzip")
        assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
        assert stable(gzip.decompress(packed.body)) == stable(plain.body)
        assert len(packed.body) < len(plain.body) / 3
        assert "content-encoding" not in scrape(server, accept_encoding="gzip;q=0, deflate").headers
    with Rest(many.metrics) as client:
        assert client.request("HEAD", "/metrics").body == b""
        assert client.get("/metrics").ok().body, "the connection goes on"


def test_a_scraper_that_goes_away(many):
    """In the middle of an answer, many times: the server stays as it was."""
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", many.metrics), timeout=wait.PATIENCE) as s:
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            s.recv(1000)
    wait.until(lambda: value(many, "millrace_connections") <= 1, "the connections to be gone")
    assert len(samples(many, "nv_inference_count")) == 500


def test_metric_tags(own):
    labels = [l for l, _ in samples(own, "nv_inference_count") if l["model"] == "tagged"]
    assert labels == [{"model": "tagged", "version": "1", "team": 'a"b\\c', "tier": "gold"}]


@pytest.mark.parametrize("key", ["model", "stage", "le", "reason", "__name__"])
def test_tags_that_metrics_have(models, explicit, key):
    """A label twice makes all metrics unreadable."""
    repo.add(models, "m", extra=f'metric_tags {{ key: "{key}" value: "x" }}')
    _, control = explicit()
    assert f"metric_tags key '{key}' is a label of the server's own metrics" in control.load("m").error


def test_counters_move(own):
    with Rest(own.http) as rest:
        before = {name: value(own, name, model="m") for name in COUNTERS}
        assert all(v == 0 for v in before.values())
        for _ in range(3):
            rest.infer("m", rows(2)).ok()
        wait.until(lambda: value(own, "nv_inference_request_success", model="m") == 3, "three requests")
        assert value(own, "nv_inference_count", model="m") == 6
        assert value(own, "nv_inference_exec_count", model="m") == 3
        assert value(own, "nv_inference_request_success", model="slow") == 0
        s = rest.stats("m")[0]["inference_stats"]
        assert value(own, "nv_inference_request_duration_us", model="m") == s["success"]["ns"] // 1000


@pytest.mark.parametrize("reason", ["BACKEND", "OTHER", "CANCELED", "REJECTED"])
def test_failures_move(models, start, hold, reason):
    repo.add(models, "m", backend="fault", max_batch_size=1, extra="dynamic_batching { default_queue_policy { max_queue_size: 2 } }")
    server = start(models)

    def send(**kw):
        return client.stub.ModelInfer.future(grpcraw.int32("m", [1], shape=kw.pop("shape", [1, 1]), **kw), timeout=wait.PATIENCE)

    with Grpc(server.url("grpc")) as client:
        if reason == "BACKEND":
            failed = [send(parameters={"fail_status": "INTERNAL"})]
        elif reason == "OTHER":
            failed = [send(shape=[1])]
        else:
            first = send(parameters=hold.parameters)
            hold.wait_held()
            asked = [send() for _ in range(1 if reason == "CANCELED" else 5)]
            if reason == "CANCELED":
                wait.until(lambda: value(server, "nv_inference_pending_request_count", model="m") == 1, "one to wait")
                asked[0].cancel()
                wait.until(lambda: value(server, "nv_inference_pending_request_count", model="m") == 0, "it to have left the queue")
                failed = asked
                wait.equal(lambda: value(server, "nv_inference_pending_request_count", model="m"), 0, "those that wait")
            else:
                wait.until(lambda: sum(f.done() for f in asked) == 3, "those that the queue has no room for")
                failed = [f for f in asked if f.done()]
                assert {f.code() for f in failed} == {grpc.StatusCode.UNAVAILABLE}
            hold.end()
            first.result()
        wait.equal(lambda: value(server, "nv_inference_request_failure", model="m", reason=reason), len(failed), f"failures of kind {reason}")
    assert value(server, "nv_inference_request_failure", model="m") == len(failed) >= 1


def test_pending_gauge(own, hold):
    with Grpc(own.url("grpc")) as client:
        futures = hold.requests(own, client, "slow", 4)
        hold.end()
        [f.result() for f in futures]
        wait.until(lambda: value(own, "nv_inference_pending_request_count", model="slow") == 0, "none")


def histograms(server):
    """{name: {labels without le: ({le: count}, sum, count)}}"""
    found = {}
    for f in families(server).values():
        if f.type == "histogram":
            for s in f.samples:
                labels = {k: v for k, v in s.labels.items() if k != "le"}
                entry = found.setdefault(f.name, {}).setdefault(tuple(sorted(labels.items())), [{}, None, None])
                if s.name.endswith("_bucket"):
                    entry[0][float(s.labels["le"])] = s.value
                else:
                    entry[1 if s.name.endswith("_sum") else 2] = s.value
    return found


def test_histograms_are_sound(own):
    with Rest(own.http) as rest, Grpc(own.url("grpc")) as client:
        for i in range(20):
            rest.infer("m", rows()).ok()
            client.infer(grpcraw.int32("m", [1], shape=[1, 1]))
        client.infer(grpcraw.int32("slow", [1], parameters={"delay_ms": 50}))
    wait.until(lambda: value(own, "nv_inference_request_success", model="m") == 40, "forty requests")
    found = histograms(own)
    for name, series in found.items():
        for labels, (buckets, total, count) in series.items():
            where = (name, labels)
            bounds = sorted(buckets)
            assert bounds[-1] == math.inf and len(bounds) > 5, where
            counts = [buckets[b] for b in bounds]
            assert counts == sorted(counts), where
            assert counts[-1] == count, where
            assert total >= 0 and (total > 0 or count == 0), where
    stages = found["millrace_request_stage_seconds"]
    for protocol in ("rest", "grpc"):
        for stage in ("queue", "compute", "encode", "total"):
            key = tuple(sorted({"model": "m", "version": "1", "stage": stage, "protocol": protocol}.items()))
            assert stages[key][2] == 20, key
    total = stages[tuple(sorted({"model": "slow", "version": "1", "stage": "total", "protocol": "grpc"}.items()))]
    assert total[2] == 1 and total[1] >= 0.05 and total[0][0.032768 if 0.032768 in total[0] else sorted(total[0])[0]] == 0


def stage(server, name, protocol):
    return value(server, "millrace_request_stage_seconds_sum", model="several", stage=name, protocol=protocol)


def test_stages_of_several_answers(own, hold):
    """`encode` is the time that it takes to build the answers, without the time between them."""
    begin = time.monotonic()
    with Stream(own.url("grpc")) as stream, Rest(own.http) as rest:
        stream.send(grpcraw.int32("several", [1], parameters={"responses": 3, "hold_after": 1, **hold.parameters}))
        stream.take(1)
        first = time.monotonic()
        for _ in range(100):
            rest.infer("m", rows()).ok()
        held = time.monotonic() - first
        hold.end()
        assert len(stream.end()) == 2
    assert 0 < stage(own, "encode", "grpc") < held < stage(own, "total", "grpc") < time.monotonic() - begin


@pytest.mark.parametrize("kind", ["generate", "generate_stream"])
def test_stages_of_generate(own, kind):
    with Rest(own.http) as rest:
        rest.post(f"/v2/models/several/{kind}", {"INPUT0": [7], "responses": 1}).ok()
    assert stage(own, "encode", "rest") > 0


def test_loops_connections_and_memory(own):
    names = {s.name for f in families(own).values() for s in f.samples}
    assert any("lag" in n for n in names), "event loop lag"
    connections = "millrace_connections"
    assert any("bytes" in n and n.startswith("millrace_") for n in names), "memory by use"
    assert value(own, "process_resident_memory_bytes") > 1 << 20
    before = value(own, connections)
    clients = [Rest(own.http) for _ in range(5)]
    [c.get("/v2") for c in clients]
    assert value(own, connections) >= before + 4
    [c.close() for c in clients]
    wait.until(lambda: value(own, connections) <= before + 1, "the connections to be closed")


def test_memory_of_requests_comes_back(own):
    import numpy as np

    with Rest(own.http) as rest:
        blob = np.zeros(1_000_000, "<i4").tobytes()
        for _ in range(5):
            rest.infer_binary("m", [("INPUT0", "INT32", [1, 1_000_000])], [blob], parameters={"binary_data_output": True}).ok()
    wait.until(lambda: value(own, "millrace_block_bytes", use="requests") < 1 << 20, "the memory of requests to be back")


def test_models_that_come_and_go(models, start):
    repo.add(models, "m", extra="version_policy { all { } }", versions=(1, 2))
    server = start(models, mode="explicit")
    with Control(server) as c:
        assert samples(server, "nv_inference_count") == []
        c.load("m")
        assert [l["version"] for l, _ in samples(server, "nv_inference_count")] == ["1", "2"]
        assert all(v > 0 for _, v in samples(server, "nv_model_load_duration_secs"))
        c.unload("m")
        wait.until(lambda: not samples(server, "nv_inference_count"), "the model to be gone")


def test_a_failed_model_can_be_seen(models, start):
    repo.add(models, "bad", backend="fault", parameters={"fail_open": "true"})
    server = start(models, "--exit-on-error=false")
    failed = [(f.name, s.labels, s.value) for f in families(server).values() for s in f.samples
              if "FAILED" in s.labels.values() or "failed" in s.labels.values() or "failed" in s.name]
    assert any(v >= 1 for _, _, v in failed), "the failure shows in the metrics"


def test_metrics_may_be_switched_off(models, start):
    repo.add(models, "m")
    server = start(models, "--allow-metrics=false")
    assert set(server.ports) == {"http", "grpc"}


def test_metrics_do_not_need_http(models, start):
    repo.add(models, "m")
    server = start(models, "--allow-http=false")
    assert set(server.ports) == {"grpc", "metrics"}
    assert samples(server, "nv_inference_count")
