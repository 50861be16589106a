"""What only one of tritonclient's kinds has: async_infer, streams, compression, time limits of the client."""
import asyncio
import contextlib
import queue

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import InferenceServerException

from lib import wait


def vector(module, values):
    x = module.InferInput("INPUT0", [len(values)], "INT32")
    x.set_data_from_numpy(np.array(values, np.int32))
    return [x]


def numbers(result):
    return result.as_numpy("OUTPUT0").tolist()


@pytest.fixture
def http(server):
    with httpclient.InferenceServerClient(server.url(), concurrency=8) as client:
        yield client


@pytest.fixture
def grpc_client(server):
    with grpcclient.InferenceServerClient(server.url("grpc")) as client:
        yield client


# ---- http ----

@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_coding", [None, "gzip", "deflate"])
def test_http_compression(http, request_coding, response_coding):
    values = list(range(3000))
    result = http.infer("flat_int32", vector(httpclient, values), request_compression_algorithm=request_coding,
                        response_compression_algorithm=response_coding)
    assert numbers(result) == values


def test_http_async_infer(http):
    pending = [http.async_infer("fault", vector(httpclient, [i]), parameters={"delay_ms": 20}) for i in range(20)]
    assert [numbers(p.get_result(timeout=wait.PATIENCE)) for p in pending] == [[i] for i in range(20)]


def test_http_async_error(http):
    with pytest.raises(InferenceServerException) as e:
        http.async_infer("nosuch", vector(httpclient, [1])).get_result(timeout=wait.PATIENCE)
    assert "'nosuch' is not found" in e.value.message()


def test_http_body_made_by_hand(http, rest):
    body, length = httpclient.InferenceServerClient.generate_request_body(vector(httpclient, [4, 5]))
    reply = rest.post("/v2/models/flat_int32/infer", body, headers={"Inference-Header-Content-Length": str(length)}).ok()
    result = httpclient.InferenceServerClient.parse_response_body(
        reply.body, header_length=int(reply.headers["inference-header-content-length"]))
    assert numbers(result) == [4, 5]


def test_http_client_that_does_not_wait(server, http, hold):
    with httpclient.InferenceServerClient(server.url(), network_timeout=0.2) as hasty:
        with pytest.raises(Exception) as e:
            hasty.infer("fault", vector(httpclient, [1]), parameters=hold.parameters)
        assert "time" in str(e.value).lower()
    hold.end()
    assert numbers(http.infer("fault", vector(httpclient, [2]))) == [2]


def test_http_headers_and_query(http):
    assert http.is_server_live(headers={"X-Extra": "1"}, query_params={"a": 1, "b": ["x y", "z"]})
    assert numbers(http.infer("flat_int32", vector(httpclient, [1]), headers={"X-Extra": "1"}, query_params={"q": 1})) == [1]


# ---- grpc ----

@pytest.mark.parametrize("coding", [None, "gzip", "deflate"])
def test_grpc_compression(grpc_client, coding):
    values = list(range(3000))
    assert numbers(grpc_client.infer("flat_int32", vector(grpcclient, values), compression_algorithm=coding)) == values


def collect(results):
    return lambda result, error: results.put(error or result)


def test_grpc_async_infer(grpc_client):
    results = queue.Queue()
    for i in range(20):
        grpc_client.async_infer("fault", vector(grpcclient, [i]), collect(results), parameters={"delay_ms": 20})
    assert sorted(numbers(results.get(timeout=wait.PATIENCE)) for _ in range(20)) == [[i] for i in range(20)]


def test_grpc_async_cancel(grpc_client, hold):
    results = queue.Queue()
    call = grpc_client.async_infer("fault", vector(grpcclient, [1]), collect(results), parameters=hold.parameters)
    call.cancel()
    assert "cancelled" in results.get(timeout=wait.PATIENCE).message().lower()


def test_grpc_client_timeout(grpc_client, hold):
    with pytest.raises(InferenceServerException) as e:
        grpc_client.infer("fault", vector(grpcclient, [1]), client_timeout=0.2, parameters=hold.parameters)
    hold.end()
    assert e.value.status() == "StatusCode.DEADLINE_EXCEEDED"
    assert numbers(grpc_client.infer("fault", vector(grpcclient, [2]), client_timeout=wait.PATIENCE)) == [2]


def test_grpc_stream(grpc_client):
    results = queue.Queue()
    grpc_client.start_stream(collect(results))
    delays = [200, 0, 50, 0]
    for i, delay in enumerate(delays):
        grpc_client.async_stream_infer("fault", vector(grpcclient, [i]), request_id=str(i), parameters={"delay_ms": delay})
    got = [results.get(timeout=wait.PATIENCE) for _ in delays]
    assert [(r.get_response().id, numbers(r)) for r in got] == [(str(i), [i]) for i in range(4)]
    grpc_client.stop_stream()


def test_grpc_stream_survives_errors(grpc_client):
    results = queue.Queue()
    grpc_client.start_stream(collect(results))
    for model in ("flat_int32", "nosuch", "flat_int32"):
        grpc_client.async_stream_infer(model, vector(grpcclient, [1]))
    got = [results.get(timeout=wait.PATIENCE) for _ in range(3)]
    assert numbers(got[0]) == numbers(got[2]) == [1]
    assert "'nosuch' is not found" in got[1].message()
    grpc_client.stop_stream()


def test_grpc_stream_with_real_errors(grpc_client):
    results = queue.Queue()
    grpc_client.start_stream(collect(results), headers={"triton_grpc_error": "true"})
    grpc_client.async_stream_infer("nosuch", vector(grpcclient, [1]))
    e = results.get(timeout=wait.PATIENCE)
    assert e.status() == "StatusCode.NOT_FOUND" and "'nosuch' is not found" in e.message()
    grpc_client.stop_stream()
    grpc_client.start_stream(collect(results))
    grpc_client.async_stream_infer("flat_int32", vector(grpcclient, [1]))
    assert numbers(results.get(timeout=wait.PATIENCE)) == [1]
    grpc_client.stop_stream()


def test_grpc_stream_many(grpc_client):
    results = queue.Queue()
    grpc_client.start_stream(collect(results), compression_algorithm="gzip")
    for i in range(300):
        grpc_client.async_stream_infer("flat_int32", vector(grpcclient, [i]))
    assert [numbers(results.get(timeout=wait.PATIENCE)) for _ in range(300)] == [[i] for i in range(300)]
    grpc_client.stop_stream()


def test_grpc_stream_cancelled(grpc_client):
    results = queue.Queue()
    grpc_client.start_stream(collect(results))
    for i in range(5):
        grpc_client.async_stream_infer("fault", vector(grpcclient, [i]), parameters={"delay_ms": 1000})
    grpc_client.stop_stream(cancel_requests=True)
    wait.until(lambda: not results.empty(), "the client's own answer")
    assert grpc_client.is_server_live()


def test_grpc_stream_timeout(grpc_client, hold):
    results = queue.Queue()
    grpc_client.start_stream(collect(results), stream_timeout=0.3)
    with contextlib.suppress(InferenceServerException):  # where the time is over already
        grpc_client.async_stream_infer("fault", vector(grpcclient, [1]), parameters=hold.parameters)
    assert results.get(timeout=wait.PATIENCE).status() == "StatusCode.DEADLINE_EXCEEDED"
    grpc_client.stop_stream()


def test_grpc_keepalive(server):
    options = grpcclient.KeepAliveOptions(keepalive_time_ms=100, keepalive_timeout_ms=int(1000 * wait.PATIENCE),
                                          keepalive_permit_without_calls=True, http2_max_pings_without_data=0)
    with grpcclient.InferenceServerClient(server.url("grpc"), keepalive_options=options) as client:
        assert numbers(client.infer("fault", vector(grpcclient, [1]), parameters={"delay_ms": 1000})) == [1]


# ---- asyncio ----

def test_http_aio_many_at_once(server):
    async def main():
        async with httpaio.InferenceServerClient(server.url(), conn_limit=20) as client:
            return await asyncio.gather(*(client.infer("fault", vector(httpclient, [i]), parameters={"delay_ms": 10})
                                          for i in range(40)))

    assert [numbers(r) for r in asyncio.run(main())] == [[i] for i in range(40)]


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_http_aio_compression(server, coding):
    async def main():
        async with httpaio.InferenceServerClient(server.url()) as client:
            return await client.infer("flat_int32", vector(httpclient, [1, 2]), request_compression_algorithm=coding,
                                      response_compression_algorithm=coding)

    assert numbers(asyncio.run(main())) == [1, 2]


def test_grpc_aio_many_at_once(server):
    async def main():
        async with grpcaio.InferenceServerClient(server.url("grpc")) as client:
            return await asyncio.gather(*(client.infer("fault", vector(grpcclient, [i]), parameters={"delay_ms": 10})
                                          for i in range(40)))

    assert [numbers(r) for r in asyncio.run(main())] == [[i] for i in range(40)]


def test_grpc_aio_stream(server):
    async def main():
        async def requests():
            for i, model in enumerate(["flat_int32", "nosuch", "flat_int32"]):
                yield {"model_name": model, "inputs": vector(grpcclient, [i]), "request_id": str(i)}

        got = []
        async with grpcaio.InferenceServerClient(server.url("grpc")) as client:
            async for result, error in client.stream_infer(requests()):
                got.append(error.message() if error else numbers(result))
        return got

    first, error, last = asyncio.run(main())
    assert (first, last) == ([0], [2]) and "'nosuch' is not found" in error


def test_grpc_aio_cancel(server):
    async def main():
        async with grpcaio.InferenceServerClient(server.url("grpc")) as client:
            task = asyncio.create_task(client.infer("fault", vector(grpcclient, [1]), parameters={"delay_ms": 1000}))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.infer("fault", vector(grpcclient, [2]))

    assert numbers(asyncio.run(main())) == [2]
