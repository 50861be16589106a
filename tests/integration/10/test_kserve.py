"""KServe's own clients, unmodified. They come with tests/requirements-kserve.txt (tools/setup --kserve)."""
import asyncio

import numpy as np
import pytest

kserve = pytest.importorskip("kserve", reason="kserve is not installed (tests/requirements-kserve.txt)")
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest  # noqa: E402
from kserve.inference_client import RESTConfig  # noqa: E402


def request(binary):
    tensors = [InferInput(name=n, shape=[1, 16], datatype="INT32") for n in ("INPUT0", "INPUT1")]
    for t in tensors:
        t.set_data_from_numpy(np.arange(16, dtype=np.int32).reshape(1, 16), binary_data=binary)
    return InferRequest(model_name="simple", infer_inputs=tensors, request_id="k1")


def sums(response):
    return next(o for o in response.outputs if o.name == "OUTPUT0").as_numpy().ravel().tolist()


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_rest(server, binary):
    async def main():
        client = InferenceRESTClient(RESTConfig(protocol="v2"))
        base = f"http://{server.url()}"
        assert await client.is_server_live(base)
        assert await client.is_server_ready(base)
        assert await client.is_model_ready(base, "simple")
        return await client.infer(base, request(binary), model_name="simple")

    assert sums(asyncio.run(main())) == [2 * i for i in range(16)]


@pytest.mark.parametrize("binary", [False, True], ids=["contents", "raw"])
def test_grpc(server, binary):
    async def main():
        client = InferenceGRPCClient(url=server.url("grpc"))
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("simple")
        return await client.infer(request(binary))

    assert sums(asyncio.run(main())) == [2 * i for i in range(16)]
