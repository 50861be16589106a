"""Hosts of a batch job over gRPC."""
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from lib import batch


class Service(service_pb2_grpc.GRPCInferenceServiceServicer):
    """As batch.Host, over gRPC; `fault`(number, key) gives (code, text) of calls that fail. `form` of the values: raw;
    raw beside empty typed ones, as MLServer sends them; or typed."""

    def __init__(self, fault=lambda number, key: None, version="1", form="raw"):
        self.fault, self.version, self.calls, self.lock, self.form = fault, version, 0, threading.Lock(), form

    def ModelMetadata(self, request, context):
        io = pb.ModelMetadataResponse.TensorMetadata
        return pb.ModelMetadataResponse(
            name=request.name, versions=[self.version], platform="none",
            inputs=[io(name="x", datatype="FP32", shape=[-1, batch.WIDTH]), io(name="id", datatype="INT64", shape=[-1])],
            outputs=[io(name="y", datatype="FP32", shape=[-1]), io(name="z", datatype="INT64", shape=[-1, 2])])

    def ModelInfer(self, request, context):
        with self.lock:
            self.calls += 1
            number = self.calls
        raw = {t.name: (t.shape, r) for t, r in zip(request.inputs, request.raw_input_contents)}
        x = numpy.frombuffer(raw["x"][1], "<f4").reshape(raw["x"][0])
        key = numpy.frombuffer(raw["id"][1], "<i8")
        if fault := self.fault(number, key):
            context.abort(*fault)
        y, z = x.sum(axis=1, dtype=numpy.float32), numpy.stack([key * 10, key * 10 + 1], axis=1)
        tensor = pb.ModelInferResponse.InferOutputTensor
        answer = pb.ModelInferResponse(model_name="m", model_version=self.version, outputs=[
            tensor(name="y", datatype="FP32", shape=y.shape), tensor(name="z", datatype="INT64", shape=z.shape)])
        if self.form == "typed":
            answer.outputs[0].contents.fp32_contents.extend(y)
            answer.outputs[1].contents.int64_contents.extend(z.flatten())
        else:
            answer.raw_output_contents.extend([y.tobytes(), z.tobytes()])
        if self.form == "mlserver":
            [t.contents.SetInParent() for t in answer.outputs]
        return answer


@contextlib.contextmanager
def services(*made):
    """Addresses of gRPC servers."""
    servers, addresses = [], []
    for service in made:
        server = grpc.server(ThreadPoolExecutor(8))
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        servers.append(server)
    try:
        yield addresses
    finally:
        for server in servers:
            server.stop(None).wait()
