"""Calls over gRPC to MLServer's own service and to another server, for tests that compare them. Run as a program, by an interpreter with
the package `mlserver`: FOLDER ADDRESS. The folder has the models, which both serve; ADDRESS is the other server's. Prints a JSON object: of
each call by its name, what became of it at MLServer and at the other."""
import asyncio
import json
import sys

import grpc
from google.protobuf.json_format import MessageToDict
from mlserver.grpc import dataplane_pb2 as pb
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub, add_GRPCInferenceServiceServicer_to_server
from mlserver.grpc.servicers import InferenceServicer
from mlserver.handlers import DataPlane, ModelRepositoryHandlers
from mlserver.registry import MultiModelRegistry
from mlserver.repository.factory import ModelRepositoryFactory
from mlserver.settings import Settings


async def mlserver(folder):
    """The server, and its port."""
    settings = Settings(debug=False, parallel_workers=0, model_repository_root=folder, cache_enabled=False)
    registry = MultiModelRegistry()
    repository = ModelRepositoryFactory.resolve_model_repository(settings)
    for model in await repository.list():
        await registry.load(model)
    server = grpc.aio.server()
    add_GRPCInferenceServiceServicer_to_server(
        InferenceServicer(DataPlane(settings=settings, model_registry=registry), ModelRepositoryHandlers(repository, registry)), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


def request(model, values=(1.0, 2.0), raw=False, version=""):
    q = pb.ModelInferRequest(model_name=model, model_version=version, id="seven")
    x = q.inputs.add(name="x", datatype="FP32", shape=[1, len(values)])
    x.parameters["content_type"].string_param = "np"
    if raw:
        import numpy

        q.raw_input_contents.append(numpy.array(values, dtype="<f4").tobytes())
    else:
        x.contents.fp32_contents.extend(values)
    return q


def text(model, value):
    q = pb.ModelInferRequest(model_name=model, id="w")
    q.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(value)
    return q


CALLS = {
    "server_live": ("ServerLive", pb.ServerLiveRequest()),
    "metadata": ("ModelMetadata", pb.ModelMetadataRequest(name="m")),
    "metadata_version": ("ModelMetadata", pb.ModelMetadataRequest(name="m", version="v1")),
    "metadata_bare": ("ModelMetadata", pb.ModelMetadataRequest(name="bare")),
    "ready": ("ModelReady", pb.ModelReadyRequest(name="m")),
    "infer": ("ModelInfer", request("m")),
    "infer_raw": ("ModelInfer", request("m", raw=True)),
    "infer_version": ("ModelInfer", request("m", version="v1")),
    "index": ("RepositoryIndex", pb.RepositoryIndexRequest()),
    "error_of_mlserver": ("ModelInfer", text("words", b"mine")),
    "stream": ("ModelStreamInfer", text("said", b"one after another")),
    "stream_summed": ("ModelStreamInfer", text("talk", b"4"), text("talk", b"quiet"), text("talk", b"3")),
    "stream_stopped": ("ModelStreamInfer", text("talk", b"4"), text("talk", b"stop"), text("talk", b"3")),
    "stream_failed": ("ModelStreamInfer", text("talk", b"4"), text("talk", b"mine"), text("talk", b"3")),
    "stream_unknown": ("ModelStreamInfer", request("nope", version="1")),
    "infer_unknown": ("ModelInfer", request("nope", version="1")),
    "metadata_unknown": ("ModelMetadata", pb.ModelMetadataRequest(name="nope", version="1")),
}


async def outcome(stub, method, *sent):
    call = getattr(stub, method)
    call = call(iter(sent)) if method == "ModelStreamInfer" else call(*sent)
    messages = []
    try:
        if method == "ModelStreamInfer":
            messages = [MessageToDict(m) async for m in call]
        else:
            messages = [MessageToDict(await call)]
    except grpc.aio.AioRpcError:
        pass
    trailing = {k: v for k, v in await call.trailing_metadata() or () if k.startswith("ce-")}
    return {"code": (await call.code()).name, "details": await call.details(), "messages": messages, "trailing": trailing}


async def main(folder, address):
    server, port = await mlserver(folder)
    found = {name: [] for name in CALLS}
    for target in (f"127.0.0.1:{port}", address):
        async with grpc.aio.insecure_channel(target) as channel:
            stub = GRPCInferenceServiceStub(channel)
            for name, call in CALLS.items():
                found[name].append(await outcome(stub, *call))
    await server.stop(None)
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
