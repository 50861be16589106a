"""Streams of ModelStreamInfer."""
import queue

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from lib import grpcraw, wait

SERVICE = "/inference.GRPCInferenceService/ModelStreamInfer"
DECOUPLED = "model_transaction_policy { decoupled: true }"


def flag(response, key="triton_final_response"):
    p = response.infer_response.parameters
    return p[key].bool_param if key in p else None


def values(response):
    return list(memoryview(response.infer_response.raw_output_contents[0]).cast("i"))


class Stream:
    def __init__(self, target, metadata=(), timeout=wait.PATIENCE):
        self.channel = grpc.insecure_channel(target, options=grpcraw.NO_LIMIT)
        self.requests = queue.Queue()
        self.answers = service_pb2_grpc.GRPCInferenceServiceStub(self.channel).ModelStreamInfer(
            iter(self.requests.get, None), metadata=metadata, timeout=timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.requests.put(None)
        self.answers.cancel()
        self.channel.close()

    def send(self, *requests):
        [self.requests.put(r) for r in requests]

    def take(self, count):
        return [next(self.answers) for _ in range(count)]

    def end(self):
        self.requests.put(None)
        return list(self.answers)


def text(word, id="", model="m"):
    q = pb.ModelInferRequest(model_name=model, id=id)
    q.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(word.encode())
    return q


def words(answer):
    return [b.decode() for b in answer.outputs[0].contents.bytes_contents]


class Talk:
    """A stream to `runtimes.Talk`, a model of MLServer; MLServer's answers are messages of another kind than Triton's."""

    def __init__(self, server, *said):
        self.channel = grpc.insecure_channel(server.url("grpc"))
        self.messages = queue.Queue()
        call = self.channel.stream_stream(SERVICE, pb.ModelInferRequest.SerializeToString, pb.ModelInferResponse.FromString)
        self.answers = call(iter(self.messages.get, None), timeout=wait.PATIENCE)
        self.say(*said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.messages.put(None)
        self.answers.cancel()
        self.channel.close()

    def say(self, *said, **kw):
        [self.messages.put(text(w, **kw)) for w in said]

    def next(self):
        return words(next(self.answers))

    def end(self):
        self.messages.put(None)
        return [words(a) for a in self.answers]

    def error(self):
        with pytest.raises(grpc.RpcError) as e:
            [*self.answers]
        return e.value.code(), e.value.details()
