"""A gRPC client that knows only the server's reflection: stubs made at run time."""
from types import SimpleNamespace

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from lib import wait

VERSIONS = ("v1", "v1alpha")


def reflection_call(channel, version):
    """v1 and v1alpha have the same messages under other names."""
    return channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                 request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
                                 response_deserializer=reflection_pb2.ServerReflectionResponse.FromString)


class Reflected:
    def __init__(self, target, version="v1", options=()):
        self.channel = grpc.insecure_channel(target, options=options)
        self.database = ProtoReflectionDescriptorDatabase(self.channel)
        self.database._stub = SimpleNamespace(ServerReflectionInfo=reflection_call(self.channel, version))
        self.pool = descriptor_pool.DescriptorPool(self.database)

    def close(self):
        self.channel.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def method(self, name):
        """(callable, request class) of "package.Service/Method"."""
        service, _, method = name.partition("/")
        descriptor = self.pool.FindServiceByName(service).methods_by_name[method]
        request = message_factory.GetMessageClass(descriptor.input_type)
        answer = message_factory.GetMessageClass(descriptor.output_type)
        kind = f"{'stream' if descriptor.client_streaming else 'unary'}_{'stream' if descriptor.server_streaming else 'unary'}"
        call = getattr(self.channel, kind)(f"/{name}", request_serializer=request.SerializeToString,
                                           response_deserializer=answer.FromString)
        return call, request

    def call(self, path, timeout=wait.PATIENCE, **fields):
        call, request = self.method(path)
        return call(request(**fields), timeout=timeout)

    def infer(self, rpc, timeout=wait.PATIENCE, **fields):
        return self.call(f"inference.GRPCInferenceService/{rpc}", timeout, **fields)
