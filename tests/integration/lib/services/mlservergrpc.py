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


def became(call, messages):
    trailing = {k: v for k, v in call.trailing_metadata() or () if k.startswith("ce-")}
    return {"code": call.code().name, "details": call.details(), "messages": messages, "trailing": trailing}


def outcome(channel, method, *sent):
    stub = GRPCInferenceServiceStub(channel)
    messages = []
    try:
        if method != "ModelStreamInfer":
            answer, call = getattr(stub, method).with_call(*sent)
            return became(call, [MessageToDict(answer)])
        call = stub.ModelStreamInfer(iter(sent))
        for answer in call:
            messages.append(MessageToDict(answer))
    except grpc.RpcError as e:
        return became(e, messages)
    return became(call, messages)


def outcomes(address):
    """Not by grpc.aio: a message that it sends while the server ends the call makes an error of its own of the server's."""
    with grpc.insecure_channel(address) as channel:
        return {name: outcome(channel, *call) for name, call in CALLS.items()}


async def main(folder, address):
    server, port = await mlserver(folder)
    found = [await asyncio.to_thread(outcomes, target) for target in (f"127.0.0.1:{port}", address)]
    await server.stop(None)
    print(json.dumps({name: [there[name] for there in found] for name in CALLS}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
