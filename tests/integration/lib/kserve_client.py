"""KServe's own clients against a server: python kserve_client.py HOST:HTTP_PORT HOST:GRPC_PORT. Prints what they got as JSON.

A program of its own, because kserve and tritonclient both bring the protocol's messages and cannot live in one process.
"""
import asyncio
import json
import sys

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest
from kserve.inference_client import RESTConfig

DTYPES = {"INT32": np.int32, "FP32": np.float32, "UINT64": np.uint64, "BOOL": np.bool_}


def request(model, dtype, shape, names, binary):
    tensors = [InferInput(name=n, shape=shape, datatype=dtype) for n in names]
    for t in tensors:
        values = np.arange(int(np.prod(shape))) % (2 if dtype == "BOOL" else 100)
        t.set_data_from_numpy(values.astype(DTYPES[dtype]).reshape(shape), binary_data=binary)
    return InferRequest(model_name=model, infer_inputs=tensors, request_id="k1")


def outputs(response):
    return {"id": response.id, "model": response.model_name, **{o.name: o.as_numpy().ravel().tolist() for o in response.outputs}}


async def ask(infer):
    found = {}
    for binary in (False, True):
        kind = "binary" if binary else "plain"
        found[f"simple {kind}"] = outputs(await infer(request("simple", "INT32", [1, 16], ["INPUT0", "INPUT1"], binary)))
        for dtype in DTYPES:
            found[f"{dtype} {kind}"] = outputs(await infer(request(f"flat_{dtype.lower()}", dtype, [4], ["INPUT0"], binary)))
    return found


async def rest(base):
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    found = {"live": await client.is_server_live(base), "ready": await client.is_server_ready(base),
             "model ready": await client.is_model_ready(base, "simple")}
    found.update(await ask(lambda r: client.infer(base, r, model_name=r.model_name)))
    await client.close()
    return found


async def grpc(target):
    client = InferenceGRPCClient(url=target)
    found = {"live": await client.is_server_live(), "ready": await client.is_server_ready(),
             "model ready": await client.is_model_ready("simple")}
    found.update(await ask(client.infer))
    await client.close()
    return found


async def main(http_target, grpc_target):
    print(json.dumps({"rest": await rest(f"http://{http_target}"), "grpc": await grpc(grpc_target)}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
